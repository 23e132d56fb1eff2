"""Layers: a cell over time, in two directions, and stacked.

All three take `x` as (B, T, I) numbers or (B, T) token ids, a state (None is zeros) and each row's length, and
give every step's output and the last state. Three promises hold for each of them:

- Outputs past a row's length are exactly zero, the last state is each row's own, the backward direction starts
  at each row's own end, and what stands in the padding (NaN too) reaches nothing, gradients included.
- A row alone gives what it gives in a batch.
- A causal run split in two with the state carried gives what the whole gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft import engine
from weft.cells import CELLS, GRU, LSTM, RNN, Cell, Gates, ReluRNN, State
from weft.engine import Pass
from weft.errors import WeftError, unknown_name
from weft.program import Noise, evaluate, trace, with_recurrent_dropout


class Trace(NamedTuple):
    """Everything a run computed: every state and every gate of every step, zero past a row's length."""

    states: State  # of (B, T, H)
    gates: Gates  # of (B, T, H)


class Both(NamedTuple):
    """One thing for each direction: states of a Bidirectional, or its traces."""

    forward: Any
    backward: Any


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """The same nest of tuples with the function applied to every tensor: detach, pick rows, move."""
    if isinstance(state, Tensor):
        return function(state)
    parts = [map_state(function, part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def check_input(name: str, x: Tensor, input_size: int, lengths: Tensor | None) -> None:
    """Refuse shapes that do not fit, in words."""
    shape = tuple(x.shape)
    if x.is_floating_point():
        if x.dim() != 3 or shape[-1] != input_size:
            raise WeftError(f"{name}: x is {shape}", expected=f"(B, T, {input_size}) because input_size={input_size}")
    elif x.dim() != 2:
        raise WeftError(f"{name}: x holds token ids and is {shape}", expected="(B, T)")
    if lengths is None:
        return
    if lengths.dim() != 1 or lengths.shape[0] != shape[0] or lengths.is_floating_point():
        raise WeftError(
            f"{name}: lengths is {tuple(lengths.shape)} of {lengths.dtype}",
            expected=f"({shape[0]},) whole numbers, one for each row of x",
        )
    if torch.compiler.is_compiling():
        return  # no one knows yet what is in it; the engine's operator looks when it runs
    if lengths.numel() and not (int(lengths.min()) >= 0 and int(lengths.max()) <= shape[1]):
        raise WeftError(
            f"{name}: lengths run from {int(lengths.min())} to {int(lengths.max())}",
            expected=f"0 to {shape[1]}, the number of steps in x",
        )


def check_state(cell: Cell, state: State, rows: int) -> None:
    """Refuse a state of another kind or shape: torch would broadcast it, or write past its end."""
    shape = (rows, cell.hidden_size)
    shapes = [tuple(getattr(part, "shape", ())) for part in (state if isinstance(state, tuple) else (state,))]
    if type(state) is not cell.state_type or any(each != shape for each in shapes):
        raise WeftError(
            f"{type(cell).__name__}: state is {type(state).__name__} of {', '.join(map(str, shapes))}",
            expected=f"{cell.state_type.__name__} of {shape}, or None for zeros",
        )


class Recurrent(nn.Module):
    """A cell over time, from the first step to the last, or from the last to the first with `reverse`.

    While training, `recurrent_dropout` drops units of h where it enters the cell's products, the same ones at all
    steps of a row (Gal and Ghahramani 2016), and `zoneout` lets units keep their old value (Krueger et al. 2017); after
    training a unit is the average of what zoneout would make it.
    """

    def __init__(
        self, cell: Cell, *, reverse: bool = False, recurrent_dropout: float = 0.0, zoneout: float = 0.0
    ) -> None:
        super().__init__()
        for name, rate in (("recurrent_dropout", recurrent_dropout), ("zoneout", zoneout)):
            if not 0 <= rate < 1:
                raise WeftError(f"Recurrent: {name} is {rate}", expected="0 or more and below 1")
        self.cell, self.reverse = cell, reverse
        self.recurrent_dropout, self.zoneout = recurrent_dropout, zoneout
        self.input_size, self.output_size = cell.input_size, cell.hidden_size
        self.causal = not reverse

    def start(self, rows: int) -> State:
        return self.cell.start(rows)

    def forward(self, x: Tensor, state: State = None, *, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """x (B, T, I) or ids (B, T) to outputs (B, T, H) and the last state."""
        check_input("Recurrent", x, self.input_size, lengths)
        if state is not None:
            check_state(self.cell, state, x.shape[0])
        run = self._pass(x)
        if engine.takes(x, run):
            outputs, (last,) = engine.run_passes([run], x, [state], lengths)
            return outputs, last
        state = self.start(x.shape[0]) if state is None else state
        fits = lengths is None and 0 not in x.shape and run.noise == Noise()
        if type(self.cell) in _FUSED and fits and not torch.compiler.is_compiling():  # which cannot compile its own
            return _run_fused(self.cell, x, state, self.reverse)
        states, _, last = _run_steps(run, x, state, lengths)
        return states.h, last

    def trace(self, x: Tensor, state: State = None, *, lengths: Tensor | None = None) -> Trace:
        """The same run, keeping every gate of every step; what dropout would drop is not dropped."""
        check_input("Recurrent", x, self.input_size, lengths)
        if state is not None:
            check_state(self.cell, state, x.shape[0])
        run = self._pass(x)
        run = run._replace(noise=run.noise._replace(recurrent_dropout=False))
        states, gates, _ = _run_steps(run, x, self.start(x.shape[0]) if state is None else state, lengths)
        return Trace(states, gates)

    def _pass(self, x: Tensor) -> Pass:
        """One run with its masks drawn."""
        if not self.recurrent_dropout and not self.zoneout:
            return Pass(self.cell, self.reverse)
        if not self.training:
            return Pass(self.cell, self.reverse, Noise(expected_zoneout=self.zoneout))
        weight, H = self.cell.weight_ih, self.cell.hidden_size
        row_mask = step_mask = None
        if self.recurrent_dropout:
            keep = 1 - self.recurrent_dropout
            row_mask = torch.bernoulli(weight.new_full((x.shape[0], H), keep)) / keep
        if self.zoneout:
            states = len(self.cell.state_type._fields)  # type: ignore[attr-defined]
            step_mask = torch.bernoulli(weight.new_full((*x.shape[:2], states * H), self.zoneout))
        return Pass(
            self.cell, self.reverse, Noise(bool(row_mask is not None), bool(step_mask is not None)), row_mask, step_mask
        )


def _run_steps(run: Pass, x: Tensor, state: State, lengths: Tensor | None) -> tuple[State, Gates, State]:
    """The equations step by step: all states and gates as (B, T, H), and the last state."""
    cell, T = run.cell, x.shape[1]
    active = None
    if lengths is not None:
        active = torch.arange(T, device=x.device) < lengths.to(x.device)[:, None]  # (B, T)
        # Zeroed before the first product: a NaN times a zero gradient would still be a NaN.
        x = x.masked_fill(~active.unsqueeze(-1) if x.is_floating_point() else ~active, 0)
    projected = cell.project(x)  # (B, T, G*H)
    step = _with_dropout(run) if run.noise.recurrent_dropout else cell.step
    kept: list[tuple[State, Gates]] = []
    for t in reversed(range(T)) if run.reverse else range(T):
        new, gates = step(projected[:, t], state)
        new = _held_back(run, t, new, state)
        if active is not None:
            now = active[:, t, None]
            state = type(new)(*(torch.where(now, a, b) for a, b in zip(new, state, strict=True)))
            new, gates = map_state(partial(_only, now), new), map_state(partial(_only, now), gates)
        else:
            state = new
        kept.append((new, gates))
    if not kept:  # no step at all: one made-up step tells the shapes
        new, gates = cell.step(projected.new_zeros(x.shape[0], projected.shape[-1]), state)
        return (
            map_state(lambda a: a[:, None][:, :0], new),
            map_state(lambda a: a[:, None][:, :0], gates),
            state,
        )
    if run.reverse:
        kept.reverse()
    return _stack([new for new, _ in kept]), _stack([gates for _, gates in kept]), state


def _with_dropout(run: Pass) -> Callable[[Tensor, State], tuple[State, Gates]]:
    """The cell's step with h masked where it enters a product, by its traced equations; it gives no gates."""
    equations = with_recurrent_dropout(trace(run.cell))
    parameters = dict(run.cell.named_parameters())

    def step(x_proj: Tensor, state: State) -> tuple[State, Gates]:
        return type(state)(*evaluate(equations, parameters.__getitem__, x_proj, state, run.row_mask)), state

    return step


def _held_back(run: Pass, t: int, new: State, old: State) -> State:
    """The new state after zoneout."""
    if run.step_mask is not None:
        masks = run.step_mask[:, t].chunk(len(new), -1)
        return type(new)(*(torch.where(m != 0, a, b) for m, a, b in zip(masks, old, new, strict=True)))
    if rate := run.noise.expected_zoneout:
        return type(new)(*(rate * a + (1 - rate) * b for a, b in zip(old, new, strict=True)))
    return new


def _only(active: Tensor, values: Tensor) -> Tensor:
    return torch.where(active, values, 0.0)


def _stack(steps: Sequence[Any]) -> Any:
    """T tuples of (B, H) to one tuple of (B, T, H)."""
    return type(steps[0])(*(torch.stack(parts, 1) for parts in zip(*steps, strict=True)))


# torch's own layers where a cell is exactly theirs. (x, state, weights, ...) -> (outputs, *last state)
_FUSED: dict[type[Cell], Callable[..., tuple[Tensor, ...]]] = {
    RNN: torch.rnn_tanh,
    ReluRNN: torch.rnn_relu,
    GRU: torch.gru,
    LSTM: torch.lstm,
}


def _run_fused(cell: Cell, x: Tensor, state: State, reverse: bool) -> tuple[Tensor, State]:
    """The same equations by torch's layer. Token ids become one-hot rows: its layer takes nothing else."""
    if not x.is_floating_point():
        x = F.one_hot(x.long(), cell.input_size).to(cell.weight_ih.dtype)
    parts = [part.unsqueeze(0) for part in state]
    weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
    outputs, *last = _FUSED[type(cell)](
        x.flip(1) if reverse else x,
        parts if len(parts) > 1 else parts[0],
        weights,
        True,  # has biases
        1,  # layers
        0.0,  # dropout
        torch.is_grad_enabled(),
        False,  # bidirectional
        True,  # batch first
    )
    return outputs.flip(1) if reverse else outputs, type(state)(*(part[0] for part in last))


class Bidirectional(nn.Module):
    """Two layers over the same rows, one from each end; outputs side by side, (B, T, H_forward + H_backward)."""

    causal = False

    def __init__(self, forward: Cell, backward: Cell, *, recurrent_dropout: float = 0.0) -> None:
        super().__init__()
        if forward.input_size != backward.input_size:
            raise WeftError(
                f"Bidirectional: the cells read inputs of {forward.input_size} and {backward.input_size}",
                expected="the same input_size in both directions (hidden sizes may differ)",
            )
        self.ahead = Recurrent(forward, recurrent_dropout=recurrent_dropout)
        self.back = Recurrent(backward, reverse=True, recurrent_dropout=recurrent_dropout)
        self.input_size = forward.input_size
        self.output_size = forward.hidden_size + backward.hidden_size

    def start(self, rows: int) -> Both:
        return Both(self.ahead.start(rows), self.back.start(rows))

    def forward(self, x: Tensor, state: Both | None = None, *, lengths: Tensor | None = None) -> tuple[Tensor, Both]:
        check_input("Bidirectional", x, self.input_size, lengths)
        ahead, back = state or (None, None)
        passes = [self.ahead._pass(x), self.back._pass(x)]
        if engine.takes(x, *passes):
            for layer, part in ((self.ahead, ahead), (self.back, back)):
                if part is not None:
                    check_state(layer.cell, part, x.shape[0])
            outputs, last = engine.run_passes(passes, x, [ahead, back], lengths)
            return outputs, Both(*last)
        outputs_ahead, ahead = self.ahead(x, ahead, lengths=lengths)
        outputs_back, back = self.back(x, back, lengths=lengths)
        return torch.cat([outputs_ahead, outputs_back], -1), Both(ahead, back)

    def trace(self, x: Tensor, state: Both | None = None, *, lengths: Tensor | None = None) -> Both:
        ahead, back = state or (None, None)
        return Both(self.ahead.trace(x, ahead, lengths=lengths), self.back.trace(x, back, lengths=lengths))


class Stack(nn.Module):
    """Layers upon layers: each reads what the one below gives.

    Dropout falls between layers while training. With `residual`, a layer whose input is as wide as its output
    adds its input to its output. The state is a tuple of the layers' states.
    """

    def __init__(
        self, layers: Sequence[Recurrent | Bidirectional], *, dropout: float = 0.0, residual: bool = False
    ) -> None:
        super().__init__()
        if not layers:
            raise WeftError("Stack: no layers", expected="at least one")
        for below, above in pairwise(layers):
            if above.input_size != below.output_size:
                raise WeftError(
                    f"Stack: a layer reads {above.input_size} numbers and the one below gives {below.output_size}",
                    expected="the two to be equal",
                )
        if not 0 <= dropout < 1:
            raise WeftError(f"Stack: dropout is {dropout}", expected="0 or more and below 1")
        self.layers = nn.ModuleList(layers)
        self.dropout, self.residual = dropout, residual
        self.input_size, self.output_size = layers[0].input_size, layers[-1].output_size
        self.causal = all(layer.causal for layer in layers)

    def start(self, rows: int) -> tuple[State, ...]:
        return tuple(layer.start(rows) for layer in self.layers)  # type: ignore[operator]

    def forward(
        self, x: Tensor, state: tuple[State, ...] | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        check_input("Stack", x, self.input_size, lengths)
        last = []
        for number, (layer, before) in enumerate(zip(self.layers, self._states(state), strict=True)):
            inputs = F.dropout(x, self.dropout, self.training) if number else x
            outputs, after = layer(inputs, before, lengths=lengths)
            x = self._join(x, outputs, lengths)
            last.append(after)
        return x, tuple(last)

    def trace(
        self, x: Tensor, state: tuple[State, ...] | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Trace | Both, ...]:
        """The trace of every layer, lowest first. What one layer reads is computed as in `forward`."""
        check_input("Stack", x, self.input_size, lengths)
        traces = []
        for number, (layer, before) in enumerate(zip(self.layers, self._states(state), strict=True)):
            inputs = F.dropout(x, self.dropout, self.training) if number else x
            trace = layer.trace(inputs, before, lengths=lengths)  # type: ignore[operator]
            parts = trace if isinstance(trace, Both) else (trace,)
            x = self._join(x, torch.cat([part.states.h for part in parts], -1), lengths)
            traces.append(trace)
        return tuple(traces)

    def _states(self, state: tuple[State, ...] | None) -> tuple[State, ...]:
        if state is None:
            return (None,) * len(self.layers)
        if len(state) != len(self.layers):
            raise WeftError(f"Stack: state has {len(state)} parts", expected=f"{len(self.layers)}, one for each layer")
        return state

    def _join(self, below: Tensor, outputs: Tensor, lengths: Tensor | None) -> Tensor:
        if not (self.residual and below.is_floating_point() and below.shape == outputs.shape):
            return outputs
        if lengths is not None:  # the padding of the first layer's input must not be added back
            padding = torch.arange(below.shape[1], device=below.device) >= lengths.to(below.device)[:, None]
            below = below.masked_fill(padding.unsqueeze(-1), 0)
        return outputs + below


def make_stack(
    cell: str,
    input_size: int,
    hidden_size: int,
    *,
    layers: int = 1,
    bidirectional: bool = False,
    reverse: bool = False,
    dropout: float = 0.0,
    recurrent_dropout: float = 0.0,
    residual: bool = False,
) -> Stack:
    """A stack of equal layers of the named cell; each direction of a bidirectional one has `hidden_size` units.

    With `reverse` all layers run from the last step to the first.

    >>> make_stack("gru", 5, 7, layers=2, bidirectional=True).output_size
    14
    """
    if cell not in CELLS:
        raise unknown_name("cell", cell, CELLS)
    if layers < 1:
        raise WeftError(f"layers is {layers}", expected="1 or more")
    if bidirectional and reverse:
        raise WeftError("a stack is to be both bidirectional and reverse", expected="one of the two")
    made: list[Recurrent | Bidirectional] = []
    for _ in range(layers):
        size = made[-1].output_size if made else input_size
        one = CELLS[cell](size, hidden_size)
        if bidirectional:
            other = CELLS[cell](size, hidden_size)
            made.append(Bidirectional(one, other, recurrent_dropout=recurrent_dropout))
        else:
            made.append(Recurrent(one, reverse=reverse, recurrent_dropout=recurrent_dropout))
    return Stack(made, dropout=dropout, residual=residual)
