"""The battery: contract tests that every cell, layer, stepper, model, metric and probe must pass.

It uses the public contracts only, so a new cell, a faster engine or a new decoder is tested by naming it. Values and
gradients are compared with a second, independent implementation of the equations below (row by row, block by block, in
float64, sharing nothing with the code under test), with torch.nn where torch has the same cell, and with finite
differences. Sizes are unequal and biases random, because equal sizes and zeros hide swapped gates. Every failure is an
AssertionError whose message names the violated property.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from weft.cells import (
    AdditiveCell,
    Cell,
    CoupledGateCell,
    GRUCell,
    GRUResetBeforeCell,
    LSTMCell,
    MinGRUCell,
    MinLSTMCell,
    MogrifierLSTMCell,
    MultiHeadLSTMCell,
    ReLURNNCell,
    RGLRUCell,
    RNNCell,
    SLSTMCell,
    SLSTMState,
    SRUCell,
    StatelessCell,
    TwoGateCell,
)
from weft.decoding import TopKStepper
from weft.nn import Bidirectional, Recurrent, Stack, map_state
from weft.text.grammars.pcfg import Grammar

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
SIZES = [(3, 5, 4, 7), (19, 4, 6, 17), (1, 1, 1, 1)]  # B, T, I, H; 17 and 19 cross the width of a vector register

# --- reference equations of one row: (W, U, x, *state) -> (new state, {name: gate}) ------------------------------
# W(k, x) is block k of the input projection with its bias, U(k, h) block k of the recurrent projection with its bias;
# W.cell has the parameters that only some cells have.

Equations = Callable[..., tuple[tuple[Tensor, ...], dict[str, Tensor]]]


def s(a: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-a))


def rnn(W, U, x, h):
    u = torch.tanh(W(0, x) + U(0, h))
    return (u,), {"u": u}


def relu_rnn(W, U, x, h):
    a = W(0, x) + U(0, h)
    u = a * (a > 0)
    return (u,), {"u": u}


def stateless(W, U, x, h):
    u = torch.tanh(W(0, x))
    return (u,), {"u": u}


def additive(W, U, x, h):
    u = torch.tanh(W(0, x) + U(0, h))
    return (h + u,), {"u": u}


def coupled_gate(W, U, x, h):
    f = s(W(0, x) + U(0, h))
    u = torch.tanh(W(1, x) + U(1, h))
    return (f * h + (1 - f) * u,), {"f": f, "u": u}


def two_gates(W, U, x, h):
    i = s(W(0, x) + U(0, h))
    f = s(W(1, x) + U(1, h))
    u = torch.tanh(W(2, x) + U(2, h))
    return (f * h + i * u,), {"i": i, "f": f, "u": u}


def lstm(W, U, x, h, c):
    i = s(W(0, x) + U(0, h))
    f = s(W(1, x) + U(1, h))
    g = torch.tanh(W(2, x) + U(2, h))
    o = s(W(3, x) + U(3, h))
    new = f * c + i * g
    return (o * torch.tanh(new), new), {"i": i, "f": f, "g": g, "o": o}


def gru(W, U, x, h):
    r = s(W(0, x) + U(0, h))
    z = s(W(1, x) + U(1, h))
    n = torch.tanh(W(2, x) + r * U(2, h))
    return (z * h + (1 - z) * n,), {"r": r, "z": z, "n": n}


def gru_reset_before(W, U, x, h):
    r = s(W(0, x) + U(0, h))
    z = s(W(1, x) + U(1, h))
    n = torch.tanh(W(2, x) + U(2, r * h))
    return (z * h + (1 - z) * n,), {"r": r, "z": z, "n": n}


def mingru(W, U, x, h):
    z, n = s(W(0, x)), W(1, x)
    return (n + z * (h - n),), {"z": z, "n": n}


def minlstm(W, U, x, h):
    i, f, u = s(W(0, x)), s(W(1, x)), W(2, x)
    i, f = i / (i + f), f / (i + f)
    return (f * h + i * u,), {"i": i, "f": f, "u": u}


def sru(W, U, x, h, c):
    H = len(c)
    f = s(W(1, x) + W.cell.peephole[:H] * c)
    r = s(W(2, x) + W.cell.peephole[H:] * c)
    new = f * c + (1 - f) * W(0, x)
    return (r * new + (1 - r) * W(3, x), new), {"f": f, "r": r, "u": W(0, x), "k": W(3, x)}


def rg_lru(W, U, x, h):
    r, i, u = s(W(0, x)), s(W(1, x)), W(2, x)
    a = s(-W.cell.decay) ** (8 * r)  # exp(-softplus(d)) = s(-d)
    return (a * h + (1 - a**2) ** 0.5 * i * u,), {"r": r, "i": i, "a": a, "u": u}


def multi_head_lstm(W, U, x, h, c):
    H, (_, size) = len(h), W.cell.weight_heads.shape

    def own(k, h):  # head by head
        rows = [(k * H + start, start) for start in range(0, H, size)]
        parts = [W.cell.weight_heads[row : row + size] @ h[start : start + size] for row, start in rows]
        return torch.cat(parts) + W.cell.bias_hh[k * H : (k + 1) * H]

    return lstm(W, own, x, h, c)


def slstm(W, U, x, h, c, n, m):
    i, f = W(0, x) + U(0, h), torch.log(s(W(1, x) + U(1, h))) + m
    g, o = torch.tanh(W(2, x) + U(2, h)), s(W(3, x) + U(3, h))
    scale = torch.where(f > i, f, i)
    i, f = torch.exp(i - scale), torch.exp(f - scale)
    new, total = f * c + i * g, f * n + i
    return (o * new / total, new, total, scale), {"i": i, "f": f, "g": g, "o": o}


def mogrifier_lstm(W, U, x, h, c):
    cell, H, v = W.cell, len(h), W(0, x)
    Q, R = cell.weight_q.split(H), cell.weight_r.split(H)
    v = 2 * s(Q[0] @ h) * v
    h = 2 * s(R[0] @ v) * h
    v = 2 * s(Q[1] @ h) * v
    h = 2 * s(R[1] @ v) * h
    v = 2 * s(Q[2] @ h) * v
    return lstm(
        lambda k, _: cell.weight_x.split(H)[k] @ v,
        lambda k, h: cell.weight_h.split(H)[k] @ h + cell.bias_gates.split(H)[k],
        x,
        h,
        c,
    )


EQUATIONS: dict[type[Cell], Equations] = {
    RNNCell: rnn,
    ReLURNNCell: relu_rnn,
    StatelessCell: stateless,
    AdditiveCell: additive,
    CoupledGateCell: coupled_gate,
    TwoGateCell: two_gates,
    LSTMCell: lstm,
    GRUCell: gru,
    GRUResetBeforeCell: gru_reset_before,
    MinGRUCell: mingru,
    MinLSTMCell: minlstm,
    SRUCell: sru,
    RGLRUCell: rg_lru,
    MultiHeadLSTMCell: multi_head_lstm,
    SLSTMCell: slstm,
    MogrifierLSTMCell: mogrifier_lstm,
}

TORCH: dict[type[Cell], Callable[..., nn.RNNBase]] = {
    RNNCell: nn.RNN,
    ReLURNNCell: functools.partial(nn.RNN, nonlinearity="relu"),
    GRUCell: nn.GRU,
    LSTMCell: nn.LSTM,
}

# --- comparisons ------------------------------------------------------------------------------------------------


def close(what: str, actual: Tensor, expected: Tensor, *, atol: float, rtol: float) -> None:
    """Asserts that all elements agree within atol + rtol * max(abs(expected)); NaN is never close."""
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if not expected.numel():
        return
    a, b = actual.detach().double(), expected.detach().double()
    error, allowed = (a - b).abs().max().item(), atol + rtol * b.abs().max().item()
    assert error <= allowed, f"{what}: off by {error:.3g}, allowed is {allowed:.3g}"


def identical(what: str, actual: Any, expected: Any) -> None:
    """Asserts bitwise equality, in any nesting of tuples, lists, dicts and dataclasses."""
    if isinstance(expected, Tensor):
        assert torch.equal(actual, expected), f"{what}: values differ"
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), f"{what}: {len(actual)} parts, expected {len(expected)}"
        for a, b in zip(actual, expected, strict=True):
            identical(what, a, b)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), f"{what}: other keys"
        identical(what, list(actual.values()), list(expected.values()))
    elif dataclasses.is_dataclass(expected):
        identical(what, vars(actual), vars(expected))
    elif hasattr(expected, "__array__"):
        identical(what, torch.as_tensor(actual), torch.as_tensor(expected))
    elif type(expected).__eq__ is not object.__eq__:
        assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"


def flat(state: Any) -> list[Tensor]:
    """Returns all tensors of a nested state, in order."""
    found: list[Tensor] = []
    map_state(lambda part: found.append(part) or part, state)  # type: ignore[func-returns-value]
    return found


def reachable(state: Any) -> Any:
    """Returns a random state with the normalizer of an sLSTM, a divisor, in the range that it has in a run."""
    if isinstance(state, SLSTMState):
        return state._replace(n=(state.n.detach().abs() + 0.5).requires_grad_())
    if isinstance(state, tuple) and not hasattr(state, "h"):
        parts = [reachable(part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state


def gradients(results: Sequence[Tensor], sources: Sequence[Tensor], seed: int = 5) -> list[Tensor]:
    """Returns the gradients of a fixed random weighting of the results; unequal weights keep errors from cancelling."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(result.shape, generator=generator, dtype=torch.float64) for result in results]
    total = sum((result * weight.to(result.dtype)).sum() for result, weight in zip(results, weights, strict=True))
    assert total.requires_grad, "no gradient flows at all"
    found = torch.autograd.grad(total, sources, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(b) if a is None else a for a, b in zip(found, sources, strict=True)]


# --- cells and layers -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Projection:
    """The input or recurrent projection of the reference equations."""

    cell: Cell
    weight: str
    bias: str

    def __call__(self, k: int, vector: Tensor) -> Tensor:
        rows = slice(k * self.cell.hidden_size, (k + 1) * self.cell.hidden_size)
        return getattr(self.cell, self.weight)[rows] @ vector + getattr(self.cell, self.bias)[rows]


@dataclasses.dataclass
class Bench:
    """A cell class, the layers that run it, the tolerances, and reproducible inputs."""

    cell_class: type[Cell]
    layer: Callable[..., Recurrent]
    bidirectional: Callable[..., Bidirectional]
    stack: Callable[..., Stack]
    equations: Equations | None
    dtype: torch.dtype
    atol: float
    rtol: float

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(3)

    def normal(self, *shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=self.random, dtype=torch.float64)
        return numbers.to(self.dtype).requires_grad_()

    def cell(self, input_size: int, hidden_size: int) -> Cell:
        """Returns a cell with random parameters, biases included."""
        cell = self.cell_class(input_size, hidden_size).to(self.dtype)
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=self.random, dtype=torch.float64) * 1.4 - 0.7)
        return cell

    def state(self, layer: Any, rows: int) -> Any:
        return reachable(
            map_state(
                lambda part: (self.normal(*part.shape) * 0.5).detach().requires_grad_(), layer.initial_state(rows)
            )
        )

    def lengths(self, rows: int, steps: int) -> Tensor:
        """Returns lengths that include half, full, zero, one, and then all others."""
        return torch.tensor(([steps // 2, steps, 0, 1] + list(range(steps + 1)) * rows)[:rows])

    def close(self, what: str, actual: Tensor, expected: Tensor) -> None:
        close(what, actual, expected, atol=self.atol, rtol=self.rtol)

    def all_close(self, what: str, actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
        assert len(actual) == len(expected), f"{what}: {len(actual)} tensors, expected {len(expected)}"
        for a, b in zip(actual, expected, strict=True):
            self.close(what, a, b)

    def step_row(self, cell: Cell, x: Tensor, state: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], dict]:
        """Computes one step of one row by the reference equations, or by the cell itself if there are none."""
        if self.equations is None:
            new, gates = cell.step(cell.project(x[None]), cell.state_type(*(part[None] for part in state)))
            return tuple(part[0] for part in new), {name: gate[0] for name, gate in gates._asdict().items()}

        W, U = Projection(cell, "weight_ih", "bias_ih"), Projection(cell, "weight_hh", "bias_hh")
        return self.equations(W, U, x, *state)

    def reference(
        self, cell: Cell, x: Tensor, state: Any, lengths: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...], list[Tensor], dict[str, Tensor]]:
        """Runs row by row over the row's own steps. Returns outputs, final state, all states and all gates."""
        B, T, H = x.shape[0], x.shape[1], cell.hidden_size
        zeros = x.new_zeros(H)
        last, states, gates = [], [], []
        for row in range(B):
            now = tuple(part[row] for part in state)
            size = T if lengths is None else int(lengths[row])
            row_states: list[Any] = [tuple(zeros for _ in now)] * T
            row_gates: list[Any] = [None] * T
            for t in reversed(range(size)) if reverse else range(size):
                now, row_gates[t] = self.step_row(cell, x[row, t], now)
                row_states[t] = now
            last.append(now)
            states.append(row_states)
            gates.append(row_gates)
        names = next(found for row in gates for found in row if found is not None).keys()
        all_states = [
            torch.stack([torch.stack([states[row][t][k] for t in range(T)]) for row in range(B)])
            for k in range(len(state))
        ]
        all_gates = {
            name: torch.stack(
                [torch.stack([gates[b][t][name] if gates[b][t] else zeros for t in range(T)]) for b in range(B)]
            )
            for name in names
        }
        return all_states[0], tuple(torch.stack(parts) for parts in zip(*last, strict=True)), all_states, all_gates


def double(module: nn.Module) -> Any:
    return copy.deepcopy(module).double()


def double_leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().double().requires_grad_()


def check_parameters(bench: Bench) -> None:
    cell = bench.cell(4, 7)
    rows = cell.blocks * 7
    shapes = {"weight_ih": (rows, 4), "weight_hh": (rows, 7), "bias_ih": (rows,), "bias_hh": (rows,)}
    found = {name: tuple(parameter.shape) for name, parameter in cell.named_parameters()}
    ours = [name for name in found if name in shapes]
    assert {"weight_ih", "bias_ih"} <= set(ours), f"parameters: {ours} lack weight_ih or bias_ih"
    assert ours == [name for name in shapes if name in found], f"parameters: order is {ours}, not torch's"
    for name in ours:
        assert found[name] == shapes[name], f"parameters: {name} is {found[name]}, expected {shapes[name]}"
    for base, make in TORCH.items():
        if issubclass(bench.cell_class, base):
            theirs = {name[: -len("_l0")]: tuple(p.shape) for name, p in make(4, 7).named_parameters()}
            assert list(found.items()) == list(theirs.items()), "parameters: not those of torch.nn"


def check_initial_state(bench: Bench) -> None:
    cell = bench.cell(4, 7)
    start = cell.initial_state(3)
    assert type(start) is cell.state_type, f"initial_state: a {type(start).__name__}, not a {cell.state_type.__name__}"
    assert start._fields[0] == "h", f"initial_state: h is not the first field of {start._fields}"
    for part in start:
        assert part.shape == (3, 7), f"initial_state: shape {tuple(part.shape)}, expected (3, 7)"
        assert part.dtype == bench.dtype, f"initial_state: {part.dtype}, expected {bench.dtype}"
        assert not part.any(), "initial_state: not zero"


def check_step(bench: Bench) -> None:
    """A step follows the equations; gates are named, in range, and those of the step; a call is one step."""
    cell, x = bench.cell(4, 7), bench.normal(5, 4)
    state = bench.state(cell, 5)
    before = copy.deepcopy(state)
    projected = cell.project(x)
    assert projected.shape == (5, cell.blocks * 7), f"project: shape {tuple(projected.shape)}"
    new, gates = cell.step(projected, state)
    assert type(new) is cell.state_type, f"step: state is a {type(new).__name__}"
    assert isinstance(gates, tuple), "step: gates are not a NamedTuple"
    assert gates._fields, "step: no gates"
    identical("step changed the state it was given", state, before)
    for name, gate in gates._asdict().items():
        assert gate.shape == (5, 7), f"gate {name}: shape {tuple(gate.shape)}"
        low, high = gate.min().item(), gate.max().item()
        if name in ("i", "f", "o", "r", "z"):
            assert 0 <= low <= high <= 1, f"gate {name}: runs from {low:.3g} to {high:.3g}, not within 0 to 1"
    reference = [bench.step_row(cell, x[row], tuple(part[row] for part in state)) for row in range(5)]
    for k, name in enumerate(new._fields):
        bench.close(f"step: {name}", new[k], torch.stack([row[k] for row, _ in reference]))
    assert set(gates._fields) == set(reference[0][1]), f"gates: {gates._fields}, expected {tuple(reference[0][1])}"
    for name in gates._fields:
        bench.close(f"gate {name}", getattr(gates, name), torch.stack([row[name] for _, row in reference]))
    called = cell(x, state if len(state) > 1 else state[0])
    bench.all_close("calling the cell is not its step", called if len(new) > 1 else [called], new)
    zeros = cell(x)
    expected, _ = cell.step(projected, cell.initial_state(5))
    bench.all_close("calling the cell without a state", zeros if len(new) > 1 else [zeros], expected)


def check_equations(bench: Bench) -> None:
    """A layer computes the equations over time: both directions, with and without lengths, values and gradients."""
    for B, T, input_size, H in SIZES:
        cell, x = bench.cell(input_size, H), bench.normal(B, T, input_size)
        state = bench.state(cell, B)
        twin, x_twin, state_twin = double(cell), double_leaf(x), map_state(double_leaf, state)
        sources, sources_twin = [x, *state, *cell.parameters()], [x_twin, *state_twin, *twin.parameters()]
        for reverse in (False, True):
            layer = bench.layer(cell, reverse=reverse)
            for lengths in (None, bench.lengths(B, T) if B > 1 else torch.tensor([T])):
                what = f"{'backward' if reverse else 'forward'} {'with' if lengths is not None else 'without'} lengths"
                outputs, last = layer(x, state, lengths=lengths)
                expected, last_twin, states, gates = bench.reference(twin, x_twin, state_twin, lengths, reverse=reverse)
                assert type(last) is cell.state_type, f"{what}: final state is a {type(last).__name__}"
                assert outputs.dtype == bench.dtype, f"{what}: outputs are {outputs.dtype}"
                bench.close(f"{what}: outputs", outputs, expected)
                bench.all_close(f"{what}: final state", last, last_twin)
                # gradients of the outputs alone, of the final state alone, and of both
                for part, results, results_twin in (
                    ("outputs", [outputs], [expected]),
                    ("final state", list(last), list(last_twin)),
                    ("all", [outputs, *last], [expected, *last_twin]),
                ):
                    bench.all_close(
                        f"{what}: gradient of {part}",
                        gradients(results, sources),
                        gradients(results_twin, sources_twin),
                    )
                recording = layer.record(x, state, lengths=lengths)
                bench.all_close(f"{what}: states of the recording", recording.states, states)
                for name, gate in recording.gates._asdict().items():
                    bench.close(f"{what}: gate {name} of the recording", gate, gates[name])


def check_torch(bench: Bench) -> None:
    """A layer equals torch.nn's layer with the same weights."""
    base = next((base for base in bench.cell_class.__mro__ if base in TORCH), None)
    if base is not None:
        cell, x = bench.cell(4, 7), bench.normal(3, 5, 4)
        theirs = TORCH[base](4, 7, batch_first=True).double()
        for name, parameter in cell.named_parameters():
            theirs.get_parameter(f"{name}_l0").data.copy_(parameter.data)
        state = bench.state(cell, 3)
        x_twin, state_twin = double_leaf(x), map_state(double_leaf, state)
        parts = [part[None] for part in state_twin]
        expected, last_twin = theirs(x_twin, tuple(parts) if len(parts) > 1 else parts[0])
        last_twin = [part[0] for part in (last_twin if len(parts) > 1 else (last_twin,))]
        outputs, last = bench.layer(cell)(x, state)
        bench.close("torch.nn: outputs", outputs, expected)
        bench.all_close("torch.nn: final state", last, last_twin)
        bench.all_close(
            "torch.nn: gradients",
            gradients([outputs, *last], [x, *state, *cell.parameters()]),
            gradients([expected, *last_twin], [x_twin, *state_twin, *theirs.parameters()]),
        )


def check_no_state(bench: Bench) -> None:
    """A state of None is the zero state, bitwise."""
    cell, x = bench.cell(4, 7), bench.normal(3, 5, 4)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        for lengths in (None, bench.lengths(3, 5)):
            zeros = layer.initial_state(3)
            identical("state None is not zeros", layer(x, lengths=lengths), layer(x, zeros, lengths=lengths))
            identical(
                "state None is not zeros in recording",
                layer.record(x, lengths=lengths),
                layer.record(x, zeros, lengths=lengths),
            )


def check_rows(bench: Bench) -> None:
    """A row gives the same result alone and in a batch, whatever the other rows contain."""
    cell, x = bench.cell(4, 7), bench.normal(6, 5, 4)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        state = bench.state(layer, 6)
        for lengths in (None, bench.lengths(6, 5)):
            outputs, last = layer(x, state, lengths=lengths)
            for row in range(6):
                one = slice(row, row + 1)
                alone, last_alone = layer(
                    x[one],
                    map_state(lambda part, one=one: part[one], state),
                    lengths=None if lengths is None else lengths[one],
                )
                bench.close("a row alone: outputs", alone, outputs[one])
                bench.all_close("a row alone: final state", last_alone, [part[one] for part in last])


def check_split(bench: Bench) -> None:
    """A run in two parts with the state carried over equals one run, in values and gradients."""
    cell, x = bench.cell(4, 7), bench.normal(3, 5, 4)
    layer = bench.layer(cell)
    state = bench.state(layer, 3)
    sources = [x, *state, *cell.parameters()]
    for lengths in (None, bench.lengths(3, 5)):
        outputs, last = layer(x, state, lengths=lengths)
        for cut in (0, 1, 3, 5):
            early = late = None
            if lengths is not None:
                early, late = lengths.clamp(max=cut), (lengths - cut).clamp(min=0)
            first, middle = layer(x[:, :cut], state, lengths=early)
            second, end = layer(x[:, cut:], middle, lengths=late)
            joined = torch.cat([first, second], 1)
            bench.close(f"split at {cut}: outputs", joined, outputs)
            bench.all_close(f"split at {cut}: final state", end, last)
            bench.all_close(
                f"split at {cut}: gradients", gradients([joined, *end], sources), gradients([outputs, *last], sources)
            )


def check_padding(bench: Bench) -> None:
    """Outputs are zero past the length, final states are the row's own; NaN and inf in the padding has no effect."""
    cell, x, lengths = bench.cell(4, 7), bench.normal(7, 5, 4), bench.lengths(7, 5)
    padding = torch.arange(5) >= lengths[:, None]
    assert (lengths == 0).any(), "the battery itself: no empty row"
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        state = bench.state(layer, 7)
        outputs, last = layer(x, state, lengths=lengths)
        assert not outputs[padding].any(), "padding: outputs past the length are not zero"
        for before, after in zip(state, last, strict=True):
            identical("padding: an empty row changed its state", after[lengths == 0], before[lengths == 0])
        expected = gradients([outputs, *last], [x, *state, *cell.parameters()])
        assert not expected[0][padding].any(), "padding: a gradient reaches it"
        for poison in (float("nan"), float("inf"), -float("inf"), 1e30):
            bad = x.detach().masked_fill(padding[..., None], poison).requires_grad_()
            result = layer(bad, state, lengths=lengths.int())
            identical(f"padding: {poison} reaches the outputs or the final state", result, (outputs, last))
            identical(
                f"padding: {poison} reaches the recording",
                layer.record(bad, state, lengths=lengths),
                layer.record(x, state, lengths=lengths),
            )
            found = gradients([result[0], *result[1]], [bad, *state, *cell.parameters()])
            bench.all_close(f"padding: {poison} reaches the gradients", found, expected)
        whole = torch.full((7,), 5)
        bench.close("lengths that are all of it", layer(x, state, lengths=whole)[0], layer(x, state)[0])


def check_reverse(bench: Bench) -> None:
    """The reverse layer equals the forward layer over each row's own steps in reverse order."""
    cell, x, lengths = bench.cell(4, 7), bench.normal(6, 5, 4), bench.lengths(6, 5)
    ahead, back = bench.layer(cell), bench.layer(cell, reverse=True)
    state = bench.state(ahead, 6)

    def turned(values: Tensor) -> Tensor:
        rows = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(values, lengths.tolist(), strict=True)]
        return torch.stack(rows)

    outputs, last = back(x, state, lengths=lengths)
    expected, last_ahead = ahead(turned(x), state, lengths=lengths)
    bench.close("reverse is not forward on reversed rows: outputs", outputs, turned(expected))
    bench.all_close("reverse is not forward on reversed rows: final state", last, last_ahead)


def check_ids(bench: Bench) -> None:
    """Token ids equal one-hot vectors, in values and gradients; ids in the padding are arbitrary."""
    cell = bench.cell(6, 7)
    ids = torch.randint(6, (4, 5), generator=bench.random)
    one_hot = nn.functional.one_hot(ids, 6).to(bench.dtype)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        state = bench.state(layer, 4)
        for lengths in (None, bench.lengths(4, 5)):
            given = ids if lengths is None else ids.masked_fill(torch.arange(5) >= lengths[:, None], -1)
            before = given.clone()
            outputs, last = layer(given, state, lengths=lengths)
            expected, last_expected = layer(one_hot, state, lengths=lengths)
            bench.close("token ids are not one-hot: outputs", outputs, expected)
            bench.all_close("token ids are not one-hot: final state", last, last_expected)
            sources = [*state, *cell.parameters()]
            bench.all_close(
                "token ids are not one-hot: gradients",
                gradients([outputs, *last], sources),
                gradients([expected, *last_expected], sources),
            )
            identical("ids were changed", given, before)


def check_purity(bench: Bench) -> None:
    """Inputs are not modified; strides, no_grad and the mode have no effect; repeated runs agree."""
    cell, x, lengths = bench.cell(4, 7), bench.normal(3, 5, 4), bench.lengths(3, 5)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        state = bench.state(layer, 3)
        for given in (None, lengths):
            before = copy.deepcopy((x, state, given))
            result = layer(x, state, lengths=given)
            gradients([result[0], *result[1]], [x, *state])
            identical("the layer changed its inputs", (x, state, given), before)
            identical("the same run twice differs", layer(x, state, lengths=given), result)
            with torch.no_grad():
                quiet = layer.eval()(x, state, lengths=given)
                strided = x.transpose(0, 1).contiguous().transpose(0, 1)
                wide = map_state(lambda part: torch.stack([part, part], -1)[..., 0], state)
                spread = layer(strided, wide, lengths=given)
            bench.all_close("without gradients", [quiet[0], *quiet[1]], [result[0], *result[1]])
            bench.all_close("with other strides", [spread[0], *spread[1]], [result[0], *result[1]])


def check_deep(bench: Bench) -> None:
    """A stack equals its layers run one after another, also with two directions of different sizes and with lengths."""
    B, T = 5, 4
    cells = [bench.cell(3, 6), bench.cell(6, 5), bench.cell(5, 2)]
    x, lengths = bench.normal(B, T, 3), bench.lengths(B, T)
    stack = bench.stack([bench.layer(cell) for cell in cells])
    for given in (None, lengths):
        state = bench.state(stack, B)
        twins, below, sources_twin = double(nn.ModuleList(cells)), double_leaf(x), []
        sources_twin.append(below)
        last_twin: list[Tensor] = []
        for twin, part in zip(twins, state, strict=True):
            before = map_state(double_leaf, part)
            sources_twin.extend(before)
            below, after, _, _ = bench.reference(twin, below, before, given)
            last_twin.extend(after)
        sources_twin.extend(twins.parameters())
        _compare_stack(bench, "deep", stack, x, state, given, below, last_twin, sources_twin)

    pairs = [(bench.cell(3, 6), bench.cell(3, 4)), (bench.cell(10, 2), bench.cell(10, 5))]
    stack = bench.stack([bench.bidirectional(*pair) for pair in pairs])
    assert stack.output_size == 7, f"deep bidirectional: output_size is {stack.output_size}, expected 7"
    for given in (None, lengths):
        state = bench.state(stack, B)
        twins, below = double(nn.ModuleList(cell for pair in pairs for cell in pair)), double_leaf(x)
        sources_twin, last_twin = [below], []
        for number, part in enumerate(state):
            sides = []
            for direction in (0, 1):
                before = map_state(double_leaf, part[direction])
                sources_twin.extend(before)
                side, after, _, _ = bench.reference(
                    twins[2 * number + direction], below, before, given, reverse=bool(direction)
                )
                sides.append(side)
                last_twin.extend(after)
            below = torch.cat(sides, -1)
        sources_twin.extend(twins.parameters())
        _compare_stack(bench, "deep bidirectional", stack, x, state, given, below, last_twin, sources_twin)


def _compare_stack(
    bench: Bench,
    what: str,
    stack: Stack,
    x: Tensor,
    state: Any,
    lengths: Tensor | None,
    expected: Tensor,
    last_expected: list[Tensor],
    sources_expected: list[Tensor],
) -> None:
    outputs, last = stack(x, state, lengths=lengths)
    bench.close(f"{what}: outputs", outputs, expected)
    bench.all_close(f"{what}: final state", flat(last), last_expected)
    bench.all_close(
        f"{what}: gradients",
        gradients([outputs, *flat(last)], [x, *flat(state), *stack.parameters()]),
        gradients([expected, *last_expected], sources_expected),
    )
    top = stack.record(x, state, lengths=lengths)[-1]
    sides = [top] if hasattr(top, "states") else list(top)
    bench.close(f"{what}: recording", torch.cat([side.states.h for side in sides], -1), outputs)
    identical(
        f"{what}: None is not zeros", stack(x, lengths=lengths), stack(x, stack.initial_state(len(x)), lengths=lengths)
    )


def check_differences(bench: Bench) -> None:
    """Gradients agree with finite differences, in float64."""
    if bench.dtype != torch.float64:
        return
    cell, x = bench.cell(2, 3), bench.normal(2, 3, 2)
    names = [f"cell.{name}" for name, _ in cell.named_parameters()]
    state = bench.state(cell, 2)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        for lengths in (None, torch.tensor([1, 3])):

            def run(x, *rest, layer=layer, lengths=lengths):
                now, values = type(state)(*rest[: len(state)]), rest[len(state) :]
                weights = dict(zip(names, values, strict=True))
                outputs, last = functional_call(layer, weights, (x, now), {"lengths": lengths})
                return outputs, *last

            inputs = (x, *state, *(p.detach().requires_grad_() for p in cell.parameters()))
            try:
                torch.autograd.gradcheck(run, inputs)
            except RuntimeError as error:  # gradcheck's own
                raise AssertionError(f"gradients are not the finite differences: {error}") from None


CELL_CHECKS = (
    check_parameters,
    check_initial_state,
    check_step,
    check_equations,
    check_torch,
    check_no_state,
    check_rows,
    check_split,
    check_padding,
    check_reverse,
    check_ids,
    check_purity,
    check_deep,
    check_differences,
)


def check_cell(
    cell_class: type[Cell],
    *,
    layer: Callable[..., Recurrent] = Recurrent,
    bidirectional: Callable[..., Bidirectional] = Bidirectional,
    stack: Callable[..., Stack] = Stack,
    equations: Equations | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float64, torch.float32),
    atol: float | None = None,
    rtol: float | None = None,
) -> None:
    """Checks a cell and the layers that run it.

    The reference equations are those given, else those above of the nearest base class, else the cell's own step, one
    row at a time; in the last case only the layers are tested, not the equations.
    """
    if equations is None:
        equations = next((EQUATIONS[base] for base in cell_class.__mro__ if base in EQUATIONS), None)
    for dtype in dtypes:
        near = TOLERANCE[dtype]
        bench = Bench(
            cell_class,
            layer,
            bidirectional,
            stack,
            equations,
            dtype,
            atol=near if atol is None else atol,
            rtol=near if rtol is None else rtol,
        )
        for check in CELL_CHECKS:
            try:
                check(bench)
            except AssertionError as error:
                raise AssertionError(f"{cell_class.__name__}, {dtype}, {check.__name__}: {error}") from error


# --- steppers ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def check_stepper(
    stepper: Any, *, vocabulary: int, rows: int = 4, steps: int = 3, seed: int = 0, atol: float = 1e-5
) -> None:
    """Checks a stepper: initial_state, step, select, and top_k if it has one.

    Probabilities sum to 1, rows are independent, `select` only reorders rows, and top_k agrees with step. Nothing
    modifies its arguments. Rows start with different tokens, so a mixed-up state gives other probabilities.
    """
    random = torch.Generator().manual_seed(seed)

    def tokens(count: int) -> Tensor:
        return torch.randint(vocabulary, (count,), generator=random)

    def compare(what: str, actual: Tensor, expected: Tensor) -> None:
        close(what, actual.exp(), expected.exp(), atol=atol, rtol=0)

    state = stepper.initial_state(rows)
    for _ in range(steps):
        ids = tokens(rows)
        before, ids_before = copy.deepcopy(state), ids.clone()
        log_probs, after = stepper.step(ids, state)
        assert log_probs.shape == (rows, vocabulary), f"step: log-probabilities are {tuple(log_probs.shape)}"
        assert not log_probs.isnan().any(), "step: NaN"
        total = log_probs.logsumexp(-1).exp()
        close("step: the probabilities do not sum to 1", total, torch.ones_like(total), atol=atol, rtol=0)
        identical("step changed the state it was given", state, before)
        identical("step changed the ids it was given", ids, ids_before)
        compare("the same step twice differs", stepper.step(ids, state)[0], log_probs)
        state = after

    ids, next_ids = tokens(rows), tokens(rows)
    log_probs, after = stepper.step(ids, state)
    next_log_probs, _ = stepper.step(next_ids, after)
    order = torch.arange(rows)
    for what, chosen in (
        ("the same rows", order),
        ("reversed rows", order.flip(0)),
        ("rows taken twice", torch.cat([order.flip(0), order[1:]])),
        ("the last row many times", order[-1:].repeat(rows + 1)),
        *((f"row {row} alone", order[row : row + 1]) for row in range(rows)),
    ):
        before, chosen_before = copy.deepcopy(state), chosen.clone()
        picked = stepper.select(state, chosen)
        identical("select changed the state it was given", state, before)
        identical("select changed the rows it was given", chosen, chosen_before)
        found, picked_after = stepper.step(ids[chosen], picked)
        compare(f"select does not commute with step: {what}", found, log_probs[chosen])
        found, _ = stepper.step(next_ids[chosen], picked_after)
        compare(f"select does not commute with two steps: {what}", found, next_log_probs[chosen])
        found, _ = stepper.step(next_ids[chosen], stepper.select(after, chosen))
        compare(f"step does not commute with select: {what}", found, next_log_probs[chosen])
        compare("select disturbed the state it was given", stepper.step(ids, state)[0], log_probs)
    if isinstance(stepper, TopKStepper):
        for k in (1, 2, vocabulary, vocabulary + 3):
            before = copy.deepcopy(state)
            best, choices, found_after = stepper.top_k(ids, state, k)
            identical("top_k changed the state it was given", state, before)
            compare("top_k: not the best, best first", best, log_probs.topk(min(k, vocabulary)).values)
            compare("top_k: ids of other tokens", log_probs.gather(1, choices), best)
            assert all(len(set(row)) == len(row) for row in choices.tolist()), "top_k: a token twice"
            found, _ = stepper.step(next_ids, found_after)
            compare("top_k: not the state that step gives", found, next_log_probs)


# --- models -----------------------------------------------------------------------------------------------------


def check_model(
    model: nn.Module,
    whole: Any,
    parts: Sequence[Any],
    *,
    loss: Callable[[nn.Module, Any], Any] = lambda model, batch: model.loss(batch),
    atol: float = 1e-4,
    rtol: float = 1e-5,
) -> None:
    """Checks a model: the loss of a batch is (total, count, ...), and totals, counts and gradients add up over parts.

    Every parameter receives a finite, non-zero gradient, and a state_dict holds the whole model. `parts` are the rows
    of `whole` in smaller batches, of unequal sizes if possible.
    """
    training = model.training
    model.eval()
    before = copy.deepcopy(whole)
    result = loss(model, whole)
    identical("the loss changed its batch", whole, before)
    total, count = result[:2]
    assert isinstance(total, Tensor), f"loss: total is a {type(total).__name__}"
    assert total.shape == (), f"loss: total is {tuple(total.shape)}, expected a single number"
    assert isinstance(count, int), f"loss: count is a {type(count).__name__}, expected an int"
    assert count > 0, f"loss: count is {count}"
    assert torch.isfinite(total), f"loss: total is {total.item()}"
    assert total >= 0, f"loss: total is {total.item()}, below zero"
    identical("the loss in evaluation is not repeatable", loss(model, whole)[0], total)

    pieces = [loss(model, part) for part in parts]
    assert sum(piece[1] for piece in pieces) == count, f"loss: the counts of the parts do not add up to {count}"
    summed = functools.reduce(operator.add, [piece[0] for piece in pieces])
    close("loss: the totals of the parts do not add up", summed, total, atol=atol, rtol=rtol)
    names, parameters = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True)
    for name, one, other in zip(
        names,
        torch.autograd.grad(summed, parameters, allow_unused=True),
        torch.autograd.grad(total, parameters, allow_unused=True),
        strict=True,
    ):
        assert other is not None, f"loss: no gradient reaches {name}"
        assert torch.isfinite(other).all(), f"loss: the gradient of {name} is not finite"
        assert other.any(), f"loss: the gradient of {name} is zero"
        close(f"loss: the gradients of {name} do not add up", one, other, atol=atol, rtol=rtol)

    twin = copy.deepcopy(model)
    with torch.no_grad():
        for tensor in [*twin.parameters(), *(b for b in twin.buffers() if b.is_floating_point())]:
            tensor.add_(1)
    twin.load_state_dict(model.state_dict())
    identical("a state_dict does not carry the whole model", loss(twin, whole)[0], total)
    model.train(training)


# --- metrics ----------------------------------------------------------------------------------------------------


def check_metric(whole: Any, parts: Sequence[Any], *, atol: float = 1e-9, rtol: float = 1e-9) -> None:
    """Checks a metric: the score of the sum of the parts is that of the whole, in any order; adding modifies nothing.

    `whole` has the statistics of all data, `parts` those of its pieces; each has `+` and `score()`.
    """
    before = [part.score() for part in parts]
    for order in (list(parts), list(reversed(parts))):
        merged = functools.reduce(operator.add, order)
        actual, expected = (torch.as_tensor(m.score(), dtype=torch.float64) for m in (merged, whole))
        close("metric: the score of the sum is not that of the whole", actual, expected, atol=atol, rtol=rtol)
    assert [part.score() for part in parts] == before, "metric: adding changed a part"


# --- beam search ------------------------------------------------------------------------------------------------------


def enumerate_all(
    stepper: Any, prompt: Sequence[int], *, vocabulary: int, tokens: int, end: int | None, banned: Sequence[int] = ()
) -> dict[tuple[int, ...], float]:
    """Enumerates all continuations of a prompt with their log-probabilities: those that end and those of full length.

    Each is read from the start, alone, so nothing depends on `select`. The end token is part of a continuation.
    """
    found: dict[tuple[int, ...], float] = {}

    def go_on(way: tuple[int, ...], total: float) -> None:
        if len(way) == tokens or (way and way[-1] == end):
            found[way] = total
            return
        state = stepper.initial_state(1)
        for token in (*prompt, *way):
            log_probs, state = stepper.step(torch.tensor([token]), state)
        for token in range(vocabulary):
            log_prob = log_probs[0, token].item()
            if token not in banned and log_prob > -float("inf"):
                go_on((*way, token), total + log_prob)

    go_on((), 0.0)
    return found


@torch.no_grad()
def check_beam(
    search: Callable[..., Any],
    stepper: Any,
    prompts: Sequence[Sequence[int]],
    *,
    vocabulary: int,
    tokens: Sequence[int],
    end: int | None,
    banned: Sequence[int] = (),
    alone: Callable[[int], Any] | None = None,
    atol: float = 1e-4,
) -> None:
    """Checks a beam search against enumeration; width 1 is greedy search, and rows are independent.

    A beam as wide as the number of continuations finds the best ones.

    `alone(row)` returns the stepper of one row, if rows differ in more than their prompts.
    """
    single = alone or (lambda row: stepper)
    options = {"end": end, "banned": banned}
    ways = [
        enumerate_all(single(row), prompt, vocabulary=vocabulary, tokens=tokens[row], end=end, banned=banned)
        for row, prompt in enumerate(prompts)
    ]
    widest = max(map(len, ways))
    for alpha in (0.0, 0.75, 2.0):
        for n_best in (1, 3, widest):
            found = search(stepper, prompts, width=widest, tokens=tokens, alpha=alpha, n_best=n_best, **options)
            assert len(found) == len(prompts), f"beam: {len(found)} results for {len(prompts)} prompts"
            for row, continuations in enumerate(ways):
                scored = sorted(((p / len(way) ** alpha, p) for way, p in continuations.items()), reverse=True)[:n_best]
                what = f"beam: row {row}, alpha {alpha}, {n_best} best"
                assert len(found[row]) == len(scored), f"{what}: {len(found[row])} found, there are {len(scored)}"
                for one, (score, _) in zip(found[row], scored, strict=True):
                    whole = (*one.ids, *([end] if one.ended else []))
                    assert whole in continuations, f"{what}: {whole} is not a continuation"
                    true = continuations[whole]
                    assert abs(one.log_prob - true) <= atol, f"{what}: log P of {whole} is {true}, not {one.log_prob}"
                    assert abs(one.score - true / len(whole) ** alpha) <= atol, f"{what}: the score is not log P / L^a"
                    assert abs(one.score - score) <= atol, f"{what}: {one.score} where the best is {score}"
                assert len({one.ids for one in found[row] if one.ended}) == sum(one.ended for one in found[row])
    for width in (1, 2, 3):
        together = search(stepper, prompts, width=width, tokens=tokens, n_best=width, **options)
        for row, prompt in enumerate(prompts):
            (found,) = search(single(row), [prompt], width=width, tokens=[tokens[row]], n_best=width, **options)
            ids = [one.ids for one in found]
            assert [one.ids for one in together[row]] == ids, f"beam: width {width}, row {row}: rows meet"
    for row, prompt in enumerate(prompts):
        (greedy,) = search(single(row), [prompt], width=1, tokens=[tokens[row]], **options)
        now, state, written = list(prompt), single(row).initial_state(1), []
        while len(written) < tokens[row] and (not written or written[-1] != end):
            for token in now:
                log_probs, state = single(row).step(torch.tensor([token]), state)
            log_probs = log_probs.clone()
            log_probs[:, list(banned)] = -float("inf")
            now = [int(log_probs[0].argmax())]
            written += now
        if written[-1] == end:
            written.pop()
        assert greedy[0].ids == tuple(written), f"beam: width 1 gives {greedy[0].ids}, greedy gives {tuple(written)}"


# --- probes ---------------------------------------------------------------------------------------------------
# From recorded gates and the state before a step to the state after it, a second time: (gates, *state) -> new state.


def lstm_state(g: Any, h: Any, c: Any) -> tuple[Any, ...]:
    return g["o"] * np.tanh(g["f"] * c + g["i"] * g["g"]), g["f"] * c + g["i"] * g["g"]


def sru_state(g: Any, h: Any, c: Any) -> tuple[Any, ...]:
    new = g["f"] * c + (1 - g["f"]) * g["u"]
    return g["r"] * new + (1 - g["r"]) * g["k"], new


def slstm_state(g: Any, h: Any, c: Any, n: Any, m: Any) -> tuple[Any, ...]:
    new, total = g["f"] * c + g["i"] * g["g"], g["f"] * n + g["i"]
    return g["o"] * new / total, new, total, None  # m is what the gates are relative to


RECOMBINE: dict[str, Callable[..., tuple[Any, ...]]] = {
    "RNNCell": lambda g, h: (g["u"],),
    "ReLURNNCell": lambda g, h: (g["u"],),
    "StatelessCell": lambda g, h: (g["u"],),
    "AdditiveCell": lambda g, h: (h + g["u"],),
    "CoupledGateCell": lambda g, h: (g["f"] * h + (1 - g["f"]) * g["u"],),
    "TwoGateCell": lambda g, h: (g["f"] * h + g["i"] * g["u"],),
    "GRUCell": lambda g, h: (g["z"] * h + (1 - g["z"]) * g["n"],),
    "GRUResetBeforeCell": lambda g, h: (g["z"] * h + (1 - g["z"]) * g["n"],),
    "LSTMCell": lstm_state,
    "MinGRUCell": lambda g, h: (g["z"] * h + (1 - g["z"]) * g["n"],),
    "MinLSTMCell": lambda g, h: (g["f"] * h + g["i"] * g["u"],),
    "SRUCell": sru_state,
    "RGLRUCell": lambda g, h: (g["a"] * h + np.sqrt(1 - g["a"] ** 2) * g["i"] * g["u"],),
    "MultiHeadLSTMCell": lstm_state,
    "SLSTMCell": slstm_state,
    "MogrifierLSTMCell": lstm_state,
}


def check_probes(
    network: Any,
    *,
    read: Callable[..., Any] | None = None,
    flow: Callable[..., Any] | None = None,
    connect: Callable[..., Any] | None = None,
    recombine: Callable[..., tuple[Any, ...]] | None = None,
    initial: bool = True,
    atol: float = 1e-6,
) -> None:
    """What every network must satisfy under every probe: names, gates, gradients, influence, rows by themselves.

    `network` is in float64. `recombine` is given for a custom cell. `initial` is false where a stack does not begin
    with a zero state, as a decoder does not.
    """
    from weft import probes

    read, flow, connect = read or probes.activations, flow or probes.gradient_flow, connect or probes.connectivity
    check_activations(network, read(network), recombine, initial=initial, atol=atol)
    check_influence(network, connect, atol=atol)
    found = flow(network)
    check_flow_names(network, found)
    if network.readout is not None:
        check_flow(network, found, atol=atol)
        by_autograd = probes.flow_by_autograd(network, list(found.predictions))
        for one, other in zip(found.layers, by_autograd.layers, strict=True):
            for kind in ("states", "gates"):
                for name, norms in getattr(one, kind).items():
                    expected = torch.from_numpy(getattr(other, kind)[name])
                    close(f"gradient of {name}", torch.from_numpy(norms), expected, atol=atol, rtol=1e-6)
    x = network.embeddings
    with torch.no_grad():
        rows = network.logits(torch.cat([x, x * 0.5, x]))
        close("a row alone and in a batch", rows[2:], network.logits(x), atol=atol, rtol=0)


def check_activations(network: Any, found: Any, recombine: Any, *, initial: bool, atol: float) -> None:
    """Names and shapes are the cell's own; the gates of a step and the state before it make the state after it."""
    json.dumps(found.to_dict(), allow_nan=False)
    for one in found.layers:
        use = network.stacks[one.name.stack]
        assert one.steps == use.steps, f"{one.name}: other tokens"
        layer = use.stack.layers[one.name.layer]
        if isinstance(layer, Bidirectional):
            layer = layer.backward_layer if one.name.direction == "backward" else layer.forward_layer
        assert layer.reverse == (one.name.direction == "backward"), f"{one.name}: the other direction"
        _, gates = layer.cell.step(
            layer.cell.weight_ih.new_zeros(1, layer.cell.blocks * layer.cell.hidden_size), layer.initial_state(1)
        )
        assert list(one.gates) == list(gates._fields), f"{one.name}: gates {list(one.gates)}"
        assert list(one.states) == list(layer.cell.state_type._fields), f"{one.name}: states {list(one.states)}"
        called = {**getattr(layer.cell.state_type, "labels", {}), **getattr(gates, "labels", {})}
        assert one.labels == called, f"{one.name}: labels {one.labels}"
        shape = (len(use.steps), layer.cell.hidden_size)
        for values in (*one.gates.values(), *one.states.values()):
            assert values.shape == shape, f"{one.name}: {values.shape}, expected {shape}"
            assert np.isfinite(values).all(), f"{one.name}: not finite"
        rule = recombine or RECOMBINE[type(layer.cell).__name__]
        order = list(range(shape[0]))[:: -1 if layer.reverse else 1]
        before = [np.zeros(shape[1]) for _ in one.states] if initial else None
        for step in order:
            now = [values[step] for values in one.states.values()]
            if before is not None:
                made = rule({name: values[step] for name, values in one.gates.items()}, *before)
                for name, value, expected in zip(one.states, made, now, strict=True):
                    if value is None:  # the gates do not determine it
                        continue
                    off = float(np.abs(value - expected).max())
                    assert off <= atol, f"{one.name}, step {step}: the gates do not make {name}, off by {off:.3g}"
            before = now


def check_influence(network: Any, connect: Callable[..., Any], *, atol: float) -> None:
    """Gradient norms are those of finite differences; integrated gradients sum to the difference they explain."""
    last = len(network.predictions) - 1
    found = connect(network, predictions=[last])
    assert found.steps == network.steps, "connectivity: other tokens"
    x, eps = network.embeddings, 1e-5

    def log_prob(rows: Tensor) -> Tensor:
        return network.logits(rows)[:, last].log_softmax(-1)[:, network.targets[last]]

    with torch.no_grad():
        moves = torch.eye(x[0].numel(), dtype=x.dtype).view(-1, *x.shape[1:]) * eps
        slopes = (log_prob(x + moves) - log_prob(x - moves)) / (2 * eps)
        expected = slopes.view(x.shape[1:]).norm(dim=-1)
        whole = float(log_prob(x)) - float(log_prob(x * 0))
    close("influence by gradient", torch.from_numpy(found.influence[0]), expected, atol=atol, rtol=1e-4)
    parts = connect(network, method="integrated", predictions=[last], points=256)
    close("integrated gradients sum", torch.tensor(parts.influence.sum()), torch.tensor(whole), atol=1e-3, rtol=1e-3)
    json.dumps(found.to_dict(), allow_nan=False)


def check_flow_names(network: Any, found: Any) -> None:
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.names == tuple(network.predictions[one] for one in found.predictions), "gradient: other names"
    for one in found.layers:
        tokens = network.stacks[one.name.stack].steps
        assert one.steps == tokens, f"{one.name}: other tokens"
        for values in (*one.states.values(), *one.gates.values()):
            assert values.shape == (len(found.predictions), len(tokens)), f"{one.name}: gradient of {values.shape}"
            assert np.isfinite(values).all(), f"{one.name}: the gradient is not finite"
    reached = max(float(values.max()) for one in found.layers for values in one.states.values())
    assert reached > 0, "no gradient reaches any state"


def check_flow(network: Any, found: Any, *, atol: float) -> None:
    """dL_t/dh_s by finite differences: the stack is stopped after step s, one unit moved, and run on."""
    ((_, (stack, tokens)),) = network.stacks.items()
    x, eps, T = network.embeddings, 1e-5, len(tokens)
    for row, t in ((0, found.predictions[0]), (len(found.predictions) - 1, found.predictions[-1])):
        for s in range(t):
            with torch.no_grad():
                _, state = stack(x[:, : s + 1])
            for one in found.layers:
                slopes = []
                for unit in range(state[one.name.layer].h.shape[1]):
                    losses = []
                    for sign in (1, -1):
                        moved = list(state)
                        h = moved[one.name.layer].h.clone()
                        h[0, unit] += sign * eps
                        moved[one.name.layer] = moved[one.name.layer]._replace(h=h)
                        with torch.no_grad():
                            outputs, _ = stack(x[:, s + 1 :], tuple(moved))
                        scores = network.readout(outputs)[0, t - s - 1].log_softmax(-1)
                        losses.append(-float(scores[network.targets[t]].detach()))
                    slopes.append((losses[0] - losses[1]) / (2 * eps))
                # What is moved is a state on its way to step s + 1. A lower layer's state also reaches the layers above
                # it at step s itself; that part is compared with autograd in check_probes.
                if one.name.layer == len(stack.layers) - 1:
                    actual, expected = torch.tensor(one.states["h"][row, s]), torch.tensor(slopes).double().norm()
                    close(f"dL_{t}/dh_{s} of {one.name}", actual, expected, atol=atol, rtol=1e-4)
        for one in found.layers:
            late = one.states["h"][row, t + 1 : T]
            assert not late.any(), f"{one.name}: a later state has a gradient"


def derivations(grammar: Grammar, words: Sequence[str]) -> int:
    """The number of derivations of a sentence: its probability where every rule and every word has probability 1."""
    counting = copy.copy(grammar)
    rules = {name: tuple(rule._replace(log_prob=0.0) for rule in rules) for name, rules in grammar.rules.items()}
    classes = {name: one._replace(words=dict.fromkeys(one.words, 0.0)) for name, one in grammar.word_classes.items()}
    vars(counting).update(rules=rules, word_classes=classes)
    return round(math.exp(counting.log_prob(words)))
