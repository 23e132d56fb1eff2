"""The recursions in the engine's C++ core, called through ctypes: the memory they read and write."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.chains.problem import NO_STATE, Best, Chains, Expected, Partition
from weft.engine.library import library

_BLOCK = 8  # states side by side in the core
MOST_STATES = 512
_PLACES_A_THREAD = 256  # for fewer, another thread does not pay


@cache
def core() -> ctypes.CDLL | None:
    """The engine's library, where there is one."""
    loaded = library()
    if loaded is not None:
        loaded.weft_chain_sum.argtypes = [ctypes.c_void_p] * 2
        loaded.weft_chain_best.argtypes = [ctypes.c_void_p] * 4
    return loaded


def takes(chains: Chains) -> bool:
    """Whether the compiled recursions run these chains."""
    return core() is not None and chains.states <= MOST_STATES


class _Problem(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "states", "threads")),
        *((name, ctypes.c_void_p) for name in ("begins", "lengths", "ids", "start", "transition", "end", "table")),
        *((name, ctypes.c_void_p) for name in ("start_number", "transition_number", "transposed_number")),
        *((name, ctypes.c_void_p) for name in ("end_number", "table_number", "table_peaks")),
        *((name, ctypes.c_double) for name in ("peaks", "transition_peak")),
        ("weights", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("table_rows", "rows_are_shared")),
    )


class _Results(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("log_z", "dead", "posterior", "cavity", "first", "pairs", "last", "table")
    )


class _Call:
    """A problem in the core's form. It holds on to every tensor whose memory the core reads."""

    def __init__(self, chains: Chains, weights: Tensor | None = None) -> None:
        self.chains, self.weights = chains, weights
        places = int(chains.lengths.sum())
        threads = max(1, min(torch.get_num_threads(), places // _PLACES_A_THREAD))
        self.problem = _Problem(rows=chains.rows, states=chains.states, threads=threads)
        self.problem.table_rows, self.problem.rows_are_shared = len(chains.table), chains.rows_are_shared
        self.kept: list[Tensor] = []
        for name in ("begins", "lengths", "ids", "start", "transition", "end", "table"):
            self._give(name, getattr(chains, name))
        if weights is not None:
            self._give("weights", weights)

    def _give(self, name: str, tensor: Tensor) -> None:
        tensor = tensor.contiguous()
        self.kept.append(tensor)
        setattr(self.problem, name, tensor.data_ptr())

    def with_numbers(self) -> _Call:
        chains = self.chains
        start, start_peak = _relative(chains.start[None])
        end, end_peak = _relative(chains.end[None])
        table, table_peaks = _relative(chains.table)
        peak = _finite(chains.transition.max()) if chains.states else torch.zeros(())
        transition = (chains.transition - peak).exp()
        self._give("start_number", _blocks(start, 0.0))
        self._give("end_number", _blocks(end, 0.0))
        self._give("table_number", _blocks(table, 0.0))
        self._give("table_peaks", table_peaks)
        self._give("transition_number", _blocks(transition, 0.0))
        self._give("transposed_number", _blocks(transition.t(), 0.0))
        self.problem.peaks = float(start_peak + end_peak)
        self.problem.transition_peak = float(peak)
        return self

    def sum(self, **wanted: Tensor) -> Partition:
        log_z = torch.empty(self.chains.rows, dtype=torch.float64)
        dead = torch.empty(self.chains.rows, dtype=torch.int64)
        wanted = {"log_z": log_z, "dead": dead, **wanted}
        results = _Results(**{name: tensor.data_ptr() for name, tensor in wanted.items()})
        _done(_loaded().weft_chain_sum(ctypes.byref(self.problem), ctypes.byref(results)))
        return Partition(log_z, dead)


def partition(chains: Chains) -> Partition:
    return _Call(chains).with_numbers().sum()


def posterior(chains: Chains) -> tuple[Partition, Tensor]:
    shares = _for_places(chains)
    return _Call(chains).with_numbers().sum(posterior=shares), shares


def cavity(chains: Chains) -> tuple[Partition, Tensor]:
    shares = _for_places(chains)
    return _Call(chains).with_numbers().sum(cavity=shares), shares


def expect(chains: Chains, weights: Tensor) -> Expected:
    K = chains.states
    start, transition, end, table = _zeros(K), _zeros(K, K), _zeros(K), _zeros(*chains.table.shape)
    log_z, _ = _Call(chains, weights).with_numbers().sum(first=start, pairs=transition, last=end, table=table)
    return Expected(log_z, start, transition, end, table)


def viterbi(chains: Chains) -> Best:
    call = _Call(chains)
    transition = _blocks(chains.transition, -torch.inf)
    states = torch.full((len(chains.ids),), NO_STATE)
    score = torch.empty(chains.rows, dtype=torch.float64)
    addresses = (transition.data_ptr(), states.data_ptr(), score.data_ptr())
    _done(_loaded().weft_chain_best(ctypes.byref(call.problem), *addresses))
    return Best(states, score)


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _for_places(chains: Chains) -> Tensor:
    """Memory for (P, K) numbers: zeros, but where the chains cover every place, which they then fill themselves."""
    shape = (len(chains.ids), chains.states)
    covered = int(chains.lengths.sum()) == len(chains.ids)
    return torch.empty(shape, dtype=torch.float64) if covered else _zeros(*shape)


def _finite(peak: Tensor) -> Tensor:
    """Where everything is forbidden any peak will do."""
    return torch.where(peak == -torch.inf, 0.0, peak)


def _relative(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Values relative to the largest of each row, and its logarithm."""
    peaks = _finite(scores.amax(-1))
    return (scores - peaks[:, None]).exp_(), peaks


def _blocks(rows: Tensor, filling: float) -> Tensor:
    """Rows filled up to whole blocks; the memory of a new tensor begins where vectors may."""
    missing = -rows.shape[-1] % _BLOCK
    filled = F.pad(rows, (0, missing), value=filling) if missing else rows.contiguous()
    return filled if filled.data_ptr() % 64 == 0 else filled.clone()


def _loaded() -> Any:
    loaded = core()
    assert loaded is not None
    return loaded


def _done(code: int) -> None:
    if code:
        raise MemoryError("the recursions of a chain need more memory than there is")
