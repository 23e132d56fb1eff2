"""The recursions of the engine's C++ core: their calls, and the memory that they read and write."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.chains.problem import NO_STATE, Best, Chains, Expected, Partition
from weft.engine import abi
from weft.engine.library import check, library, loaded_library
from weft.engine.tensors import address, checked

_BLOCK = 8  # the core pads rows of scores to a multiple of it
MOST_STATES = 512
_POSITIONS_A_THREAD = 256  # with fewer, another thread does not help


_chain_problem, _chain_results = abi.packer(abi.ChainProblem), abi.packer(abi.ChainResults)
_viterbi_results = abi.packer(abi.ViterbiResults)
_SCALED = ("start_scaled", "transition_scaled", "transposed_scaled", "end_scaled", "table_scaled", "table_peaks")
_NOT_SCALED: dict[str, Any] = {**dict.fromkeys(_SCALED, 0), "start_end_peak": 0.0, "transition_peak": 0.0}


def takes(chains: Chains) -> bool:
    """Whether the compiled recursions run these chains."""
    return library() is not None and chains.states <= MOST_STATES


class _Call:
    """A problem in the core's form. It holds on to every tensor whose memory the core reads."""

    def __init__(self, chains: Chains, weights: Tensor | None = None, scaled: bool = True) -> None:
        self.chains = chains
        self.kept: list[Tensor] = []
        B, K, P, N = chains.rows, chains.states, len(chains.ids), len(chains.table)
        self.problem = _chain_problem(
            rows=chains.rows,
            states=chains.states,
            threads=max(1, min(torch.get_num_threads(), int(chains.lengths.sum()) // _POSITIONS_A_THREAD)),
            positions=P,
            table_rows=N,
            rows_are_shared=chains.rows_are_shared,
            begins=self._checked("begins", chains.begins, torch.int64, B),
            lengths=self._checked("lengths", chains.lengths, torch.int64, B),
            ids=self._checked("ids", chains.ids, torch.int64, P),
            start=self._checked("start", chains.start, torch.float64, K),
            transition=self._checked("transition", chains.transition, torch.float64, K, K),
            end=self._checked("end", chains.end, torch.float64, K),
            table=self._checked("table", chains.table, torch.float64, N, K),
            weights=0 if weights is None else self._checked("weights", weights, torch.float64, B),
            **(self._scaled() if scaled else _NOT_SCALED),
        )

    def _checked(self, name: str, tensor: Tensor, dtype: torch.dtype, *shape: int) -> int:
        return self._give(checked(f"chains: {name}", tensor, dtype, shape))

    def _give(self, tensor: Tensor) -> int:
        tensor = tensor.contiguous()
        self.kept.append(tensor)
        return tensor.data_ptr()

    def _scaled(self) -> dict[str, Any]:
        chains = self.chains
        start, start_peak = _relative(chains.start[None])
        end, end_peak = _relative(chains.end[None])
        table, table_peaks = _relative(chains.table)
        peak = _finite(chains.transition.max()) if chains.states else torch.zeros(())
        transition = (chains.transition - peak).exp()
        return {
            "start_scaled": self._give(_blocks(start, 0.0)),
            "transition_scaled": self._give(_blocks(transition, 0.0)),
            "transposed_scaled": self._give(_blocks(transition.t(), 0.0)),
            "end_scaled": self._give(_blocks(end, 0.0)),
            "table_scaled": self._give(_blocks(table, 0.0)),
            "table_peaks": self._give(table_peaks),
            "start_end_peak": float(start_peak + end_peak),
            "transition_peak": float(peak),
        }

    def sum(
        self,
        *,
        posterior: Tensor | None = None,
        cavity: Tensor | None = None,
        first: Tensor | None = None,
        pairs: Tensor | None = None,
        last: Tensor | None = None,
        table: Tensor | None = None,
    ) -> Partition:
        log_z = torch.empty(self.chains.rows, dtype=torch.float64)
        dead = torch.empty(self.chains.rows, dtype=torch.int64)
        results = _chain_results(
            log_z=address(log_z),
            dead=address(dead),
            posterior=address(posterior),
            cavity=address(cavity),
            first=address(first),
            pairs=address(pairs),
            last=address(last),
            table=address(table),
        )
        check(loaded_library().weft_chain_sum(self.problem + results))
        return Partition(log_z, dead)


def partition(chains: Chains) -> Partition:
    return _Call(chains).sum()


def posterior(chains: Chains) -> tuple[Partition, Tensor]:
    shares = _for_positions(chains)
    return _Call(chains).sum(posterior=shares), shares


def cavity(chains: Chains) -> tuple[Partition, Tensor]:
    shares = _for_positions(chains)
    return _Call(chains).sum(cavity=shares), shares


def expect(chains: Chains, weights: Tensor) -> Expected:
    K = chains.states
    start, transition, end, table = _zeros(K), _zeros(K, K), _zeros(K), _zeros(*chains.table.shape)
    log_z, _ = _Call(chains, weights).sum(first=start, pairs=transition, last=end, table=table)
    return Expected(log_z, start, transition, end, table)


def viterbi(chains: Chains) -> Best:
    call = _Call(chains, scaled=False)
    transition = _blocks(chains.transition, -torch.inf)
    states = torch.full((len(chains.ids),), NO_STATE)
    score = torch.empty(chains.rows, dtype=torch.float64)
    results = _viterbi_results(transition_padded=address(transition), states=address(states), score=address(score))
    check(loaded_library().weft_chain_viterbi(call.problem + results))
    return Best(states, score)


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _for_positions(chains: Chains) -> Tensor:
    """Memory for (P, K) values: zeros, unless the chains cover all positions and thus fill it."""
    shape = (len(chains.ids), chains.states)
    covered = int(chains.lengths.sum()) == len(chains.ids)
    return torch.empty(shape, dtype=torch.float64) if covered else _zeros(*shape)


def _finite(peak: Tensor) -> Tensor:
    """0 where the peak is -inf: all is forbidden, and any finite peak will do."""
    return torch.where(peak == -torch.inf, 0.0, peak)


def _relative(scores: Tensor) -> tuple[Tensor, Tensor]:
    """exp(score - peak) of each row, and the peaks."""
    peaks = _finite(scores.amax(-1))
    return (scores - peaks[:, None]).exp_(), peaks


def _blocks(rows: Tensor, filling: float) -> Tensor:
    """Rows padded to whole blocks, in memory that is aligned to 64 bytes."""
    missing = -rows.shape[-1] % _BLOCK
    filled = F.pad(rows, (0, missing), value=filling) if missing else rows.contiguous()
    return filled if filled.data_ptr() % 64 == 0 else filled.clone()
