"""The layers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from weft import engine
from weft.cells import CELLS, Cell, Gates, State
from weft.engine import Embedded, Pass, materialize
from weft.errors import WeftError, unknown_name
from weft.program import Noise
from weft.recurrent.states import check_input, check_state
from weft.recurrent.steps import FUSED, run_fused, run_steps


class Trace(NamedTuple):
    """Everything a run computed: every state and every gate of every step, zero past a row's length."""

    states: State  # of (B, T, H)
    gates: Gates  # of (B, T, H)


class Both(NamedTuple):
    """One thing for each direction: states of a Bidirectional, or its traces."""

    forward: Any
    backward: Any


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

    def forward(
        self, x: Tensor | Embedded, state: State = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """x (B, T, I) or ids (B, T) to outputs (B, T, H) and the last state."""
        check_input("Recurrent", x, self.input_size, lengths)
        passes, states = self._passes(x), self._given(state, x.shape[0])
        if done := engine.run_layers([passes], x, [states], lengths):
            outputs, ((last,),) = done
            return outputs, last
        (run,), x = passes, materialize(x)
        state = self.start(x.shape[0]) if state is None else state
        fits = lengths is None and 0 not in x.shape and run.noise == Noise()
        if type(self.cell) in FUSED and fits and not torch.compiler.is_compiling():  # which cannot compile its own
            return run_fused(self.cell, x, state, self.reverse)
        states, _, last = run_steps(run, x, state, lengths)
        return states.h, last

    def trace(self, x: Tensor, state: State = None, *, lengths: Tensor | None = None) -> Trace:
        """The same run, keeping every gate of every step; what dropout would drop is not dropped."""
        check_input("Recurrent", x, self.input_size, lengths)
        self._given(state, x.shape[0])
        (run,) = self._passes(x)
        run = run._replace(noise=run.noise._replace(recurrent_dropout=False))
        states, gates, _ = run_steps(run, x, self.start(x.shape[0]) if state is None else state, lengths)
        return Trace(states, gates)

    def _given(self, state: State, rows: int) -> list[State]:
        """The state of each pass, checked."""
        if state is not None:
            check_state(self.cell, state, rows)
        return [state]

    def _passes(self, x: Tensor | Embedded) -> list[Pass]:
        """One run with its masks drawn."""
        if not self.recurrent_dropout and not self.zoneout:
            return [Pass(self.cell, self.reverse)]
        if not self.training:
            return [Pass(self.cell, self.reverse, Noise(expected_zoneout=self.zoneout))]
        weight, H = self.cell.weight_ih, self.cell.hidden_size
        row_mask = step_mask = None
        if self.recurrent_dropout:
            keep = 1 - self.recurrent_dropout
            row_mask = torch.bernoulli(weight.new_full((x.shape[0], H), keep)) / keep
        if self.zoneout:
            states = len(self.cell.state_type._fields)  # type: ignore[attr-defined]
            step_mask = torch.bernoulli(weight.new_full((*x.shape[:2], states * H), self.zoneout))
        noise = Noise(row_mask is not None, step_mask is not None)
        return [Pass(self.cell, self.reverse, noise, row_mask, step_mask)]


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

    def forward(
        self, x: Tensor | Embedded, state: Both | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, Both]:
        check_input("Bidirectional", x, self.input_size, lengths)
        states = self._given(state, x.shape[0])
        if done := engine.run_layers([self._passes(x)], x, [states], lengths):
            outputs, (last,) = done
            return outputs, Both(*last)
        x, (ahead, back) = materialize(x), states
        outputs_ahead, ahead = self.ahead(x, ahead, lengths=lengths)
        outputs_back, back = self.back(x, back, lengths=lengths)
        return torch.cat([outputs_ahead, outputs_back], -1), Both(ahead, back)

    def _given(self, state: Both | None, rows: int) -> list[State]:
        ahead, back = state or (None, None)
        return self.ahead._given(ahead, rows) + self.back._given(back, rows)

    def _passes(self, x: Tensor | Embedded) -> list[Pass]:
        return self.ahead._passes(x) + self.back._passes(x)

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
        self, x: Tensor | Embedded, state: tuple[State, ...] | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """x (B, T, I) or ids (B, T) to outputs (B, T, H) of the last layer and the last states of all."""
        check_input("Stack", x, self.input_size, lengths)
        layers, states = list(self.layers), self._states(state)
        if not self.residual and not torch.compiler.is_compiling() and all(map(_unobserved, layers)):
            passes = [layer._passes(x) for layer in layers]  # type: ignore[operator]
            given = [layer._given(before, x.shape[0]) for layer, before in zip(layers, states, strict=True)]  # type: ignore[operator]
            if done := engine.run_layers(passes, x, given, lengths, self.dropout if self.training else 0.0):
                return done[0], tuple([parts[0] if len(parts) == 1 else Both(*parts) for parts in done[1]])
        x = materialize(x)
        last: list[State] = []
        for number, (layer, before) in enumerate(zip(layers, states, strict=True)):
            inputs = engine.dropout(x, self.dropout, self.training) if number else x
            outputs, after = layer(inputs, before, lengths=lengths)
            x = self._join(x, outputs, lengths)
            last.append(after)
        return x, tuple(last)

    def trace(
        self, x: Tensor, state: tuple[State, ...] | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Trace | Both, ...]:
        """The trace of every layer, lowest first. What one layer reads is computed as in `forward`, but that
        recurrent dropout drops nothing."""
        check_input("Stack", x, self.input_size, lengths)
        traces = []
        for number, (layer, before) in enumerate(zip(self.layers, self._states(state), strict=True)):
            inputs = engine.dropout(x, self.dropout, self.training) if number else x
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


def _unobserved(layer: nn.Module) -> bool:
    """Whether nobody would notice that a layer is not called by itself: no hooks, and no forward of its own."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return not hooks and type(layer).forward in (Recurrent.forward, Bidirectional.forward)


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
