"""The recursions of the engine's C++ core: their calls, and the memory that they read and write."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft import abi
from weft.chains.problem import NO_STATE, Best, Chains, Expected, Partition
from weft.engine.library import check, library, loaded_library
from weft.engine.tensors import address, checked
from weft.engine.threads import thread_count

_BLOCK = 8  # the core pads rows of scores to a multiple of it
MOST_STATES = 512
_POSITIONS_A_THREAD = 256  # with fewer, another thread does not help


_chain_problem, _chain_results = abi.packer(abi.ChainProblem), abi.packer(abi.ChainResults)
_viterbi_results = abi.packer(abi.ViterbiResults)


class _Scaled(NamedTuple):
    """The addresses of scores relative to their peaks, and the peaks."""

    start: int
    transition: int
    transposed: int
    end: int
    table: int
    table_peaks: int
    start_end_peak: float
    transition_peak: float


_NOT_SCALED = _Scaled(0, 0, 0, 0, 0, 0, 0.0, 0.0)


def takes(chains: Chains) -> bool:
    """Whether the compiled recursions run these chains."""
    return library() is not None and chains.states <= MOST_STATES


class _Call:
    """A problem in the core's form. It holds on to every tensor whose memory the core reads."""

    def __init__(self, chains: Chains, weights: Tensor | None = None, scaled: bool = True) -> None:
        self.chains = chains
        self.kept: list[Tensor] = []
        B, K, P, N = len(chains.lengths), len(chains.start), len(chains.ids), len(chains.table)
        part = self._scaled() if scaled else _NOT_SCALED
        self.problem = _chain_problem(
            rows=B,
            states=K,
            threads=max(1, min(thread_count(), int(chains.lengths.sum()) // _POSITIONS_A_THREAD)),
            positions=P,
            table_rows=N,
            rows_are_shared=chains.rows_are_shared,
            begins=self._give(checked("chains: begins", chains.begins, torch.int64, (B,))),
            lengths=self._give(checked("chains: lengths", chains.lengths, torch.int64, (B,))),
            ids=self._give(checked("chains: ids", chains.ids, torch.int64, (P,))),
            start=self._give(checked("chains: start", chains.start, torch.float64, (K,))),
            transition=self._give(checked("chains: transition", chains.transition, torch.float64, (K, K))),
            end=self._give(checked("chains: end", chains.end, torch.float64, (K,))),
            table=self._give(checked("chains: table", chains.table, torch.float64, (N, K))),
            start_scaled=part.start,
            transition_scaled=part.transition,
            transposed_scaled=part.transposed,
            end_scaled=part.end,
            table_scaled=part.table,
            table_peaks=part.table_peaks,
            start_end_peak=part.start_end_peak,
            transition_peak=part.transition_peak,
            weights=0 if weights is None else self._give(checked("chains: weights", weights, torch.float64, (B,))),
        )

    def _give(self, tensor: Tensor) -> int:
        """The address of a contiguous tensor, which is kept alive."""
        self.kept.append(tensor)
        return tensor.data_ptr()

    def _scaled(self) -> _Scaled:
        chains = self.chains
        start, start_peak = _relative(chains.start[None])
        end, end_peak = _relative(chains.end[None])
        table, table_peaks = _relative(chains.table)
        peak = _finite(chains.transition.max()) if chains.states else torch.zeros(())
        transition = (chains.transition - peak).exp()
        return _Scaled(
            start=self._give(_blocks(start, 0.0)),
            transition=self._give(_blocks(transition, 0.0)),
            transposed=self._give(_blocks(transition.t(), 0.0)),
            end=self._give(_blocks(end, 0.0)),
            table=self._give(_blocks(table, 0.0)),
            table_peaks=self._give(table_peaks.contiguous()),
            start_end_peak=float(start_peak + end_peak),
            transition_peak=float(peak),
        )

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
