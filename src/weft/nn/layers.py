"""Recurrent layers: a cell over time (Recurrent), in both directions (Bidirectional), and stacked (Stack).

The engine runs a layer where it can; elsewhere the same equations run as plain torch (steps.py). Results and gradients
are the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from weft import engine
from weft.cells import (
    Cell,
    Gates,
    State,
    check_cell,
    check_instance,
    check_state,
    find_cell,
    from_iterable,
    traced_as_one_call,
)
from weft.compiler import StepMasks
from weft.engine import Embedded, Pass, materialize
from weft.errors import TensorError, WeftError
from weft.nn.states import check_input
from weft.nn.steps import FUSED, run_fused, run_steps


class Recording(NamedTuple):
    """All states and gates of a run over time; zero past a row's length."""

    states: State  # of (B, T, H)
    gates: Gates  # of (B, T, H)


@from_iterable
class BothDirections(NamedTuple):
    """A value for each direction: the states of a `Bidirectional`, or its recordings."""

    forward: Any
    backward: Any


class Recurrent(nn.Module):
    """A cell over time.

    Args:
        cell: the cell, an instance.
        reverse: run from the last step to the first.
        recurrent_dropout: dropout rate of h where it enters the recurrent products; one mask for all steps of a row
            (variational dropout, Gal and Ghahramani 2016).
        zoneout: probability that a unit of the state keeps its previous value at a step (Krueger et al. 2017). In
            evaluation mode a unit takes the expected value.

    Raises:
        WeftError: `cell` is not a cell or has no hidden units, or a rate is outside [0, 1).
    """

    def __init__(
        self, cell: Cell, *, reverse: bool = False, recurrent_dropout: float = 0.0, zoneout: float = 0.0
    ) -> None:
        super().__init__()
        check_instance("Recurrent", cell)
        for name, rate in (("recurrent_dropout", recurrent_dropout), ("zoneout", zoneout)):
            if not 0 <= rate < 1:
                raise WeftError(f"Recurrent: {name} is {rate}", expected="0 or more and below 1")
        if cell.hidden_size < 1:
            raise WeftError("Recurrent: the cell has hidden_size=0", expected="1 or more")
        self.cell, self.reverse = cell, reverse
        self.recurrent_dropout, self.zoneout = recurrent_dropout, zoneout
        self.input_size, self.output_size = cell.input_size, cell.hidden_size
        self.causal = not reverse

    def initial_state(self, rows: int) -> State:
        """Returns the zero state for a batch of `rows`."""
        return self.cell.initial_state(rows)

    @traced_as_one_call
    def forward(
        self, x: Tensor | Embedded, state: State = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Runs the cell over time.

        Args:
            x: (B, T, I) features, (B, T) token ids, or embedding lookups.
            state: the initial state, a `cell.state_type` of (B, H) tensors; None means zeros.
            lengths: (B,) lengths of the rows; None means T.

        Returns:
            The outputs (B, T, H), which are `h` of every step, and the final state.
        """
        if not self.recurrent_dropout and not self.zoneout:
            done = engine.run_prepared([[Pass(self.cell, self.reverse)]], x, [[state]], lengths)
            if done is not None:
                outputs, ((last,),) = done
                return outputs, last
        check_input("Recurrent", x, self.input_size, lengths)
        passes, states = self.passes(x), self._check_states(state, x.shape[0])
        if done := engine.run_layers([passes], x, [states], lengths):
            outputs, ((last,),) = done
            return outputs, last
        (run,), x = passes, materialize(x)
        state = self.initial_state(x.shape[0]) if state is None else state
        # torch.compile cannot put torch's own fused layers into a graph.
        traced = torch.compiler.is_compiling() or engine.transformed()
        if type(self.cell) in FUSED and not traced and run.noise == StepMasks() and _has_steps(x, lengths):
            return run_fused(self.cell, x, state, lengths, self.reverse)
        states, _, last = run_steps(run, x, state, lengths)
        return states.h, last

    def record(self, x: Tensor, state: State = None, *, lengths: Tensor | None = None) -> Recording:
        """Runs the cell over time and keeps every state and gate. Recurrent dropout is not applied.

        Args:
            x: as in `forward`.
            state: as in `forward`.
            lengths: as in `forward`.

        Returns:
            The states and the gates of all steps, NamedTuples of (B, T, H) tensors.
        """
        check_input("Recurrent", x, self.input_size, lengths)
        self._check_states(state, x.shape[0])
        (run,) = self.passes(x)
        run = run._replace(noise=run.noise._replace(recurrent_dropout=False))
        states, gates, _ = run_steps(run, x, self.initial_state(x.shape[0]) if state is None else state, lengths)
        return Recording(states, gates)

    def _check_states(self, state: State, rows: int) -> list[State]:
        """Checks the cell and its state. Returns the state of each pass."""
        check_cell("Recurrent", self.cell)
        if state is not None:
            check_state(self.cell, state, rows)
        return [state]

    def passes(self, x: Tensor | Embedded) -> list[Pass]:
        """Returns the pass of each direction, with freshly drawn dropout and zoneout masks."""
        if not self.recurrent_dropout and not self.zoneout:
            return [Pass(self.cell, self.reverse)]
        if not self.training:
            return [Pass(self.cell, self.reverse, StepMasks(expected_zoneout=self.zoneout))]
        weight, H = self.cell.weight_ih, self.cell.hidden_size
        row_mask = step_mask = None
        if self.recurrent_dropout:
            keep = 1 - self.recurrent_dropout
            row_mask = torch.bernoulli(weight.new_full((x.shape[0], H), keep)) / keep
        if self.zoneout:
            states = len(self.cell.state_type._fields)  # type: ignore[attr-defined]
            step_mask = torch.bernoulli(weight.new_full((*x.shape[:2], states * H), self.zoneout))
        masks = StepMasks(row_mask is not None, step_mask is not None)
        return [Pass(self.cell, self.reverse, masks, row_mask, step_mask)]


class Bidirectional(nn.Module):
    """Two layers over the same rows, one in each direction; their outputs are concatenated.

    Schuster and Paliwal 1997, "Bidirectional recurrent neural networks". The state is
    `BothDirections(forward, backward)`.

    Args:
        forward: the cell that runs from the first step to the last.
        backward: the cell that runs from the last step to the first. Its hidden size may differ.
        recurrent_dropout: see `Recurrent`.

    Raises:
        WeftError: the input sizes of the cells differ.
    """

    causal = False

    def __init__(self, forward: Cell, backward: Cell, *, recurrent_dropout: float = 0.0) -> None:
        super().__init__()
        for cell in (forward, backward):
            check_instance("Bidirectional", cell)
        if forward.input_size != backward.input_size:
            raise WeftError(
                f"Bidirectional: the cells have input_size {forward.input_size} and {backward.input_size}",
                expected="the same input_size in both directions (hidden sizes may differ)",
            )
        self.forward_layer = Recurrent(forward, recurrent_dropout=recurrent_dropout)
        self.backward_layer = Recurrent(backward, reverse=True, recurrent_dropout=recurrent_dropout)
        self.input_size = forward.input_size
        self.output_size = forward.hidden_size + backward.hidden_size

    def initial_state(self, rows: int) -> BothDirections:
        """Returns the zero states for a batch of `rows`."""
        return BothDirections(self.forward_layer.initial_state(rows), self.backward_layer.initial_state(rows))

    @traced_as_one_call
    def forward(
        self, x: Tensor | Embedded, state: BothDirections | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, BothDirections]:
        """Runs both directions; see `Recurrent.forward`. The outputs are (B, T, H_forward + H_backward)."""
        check_input("Bidirectional", x, self.input_size, lengths)
        states = self._check_states(state, x.shape[0])
        if done := engine.run_layers([self.passes(x)], x, [states], lengths):
            outputs, (last,) = done
            return outputs, BothDirections(*last)
        x, (forward, backward) = materialize(x), states
        forward_outputs, forward = self.forward_layer(x, forward, lengths=lengths)
        backward_outputs, backward = self.backward_layer(x, backward, lengths=lengths)
        return torch.cat([forward_outputs, backward_outputs], -1), BothDirections(forward, backward)

    def _check_states(self, state: BothDirections | None, rows: int) -> list[State]:
        forward, backward = state or (None, None)
        return self.forward_layer._check_states(forward, rows) + self.backward_layer._check_states(backward, rows)

    def passes(self, x: Tensor | Embedded) -> list[Pass]:
        return self.forward_layer.passes(x) + self.backward_layer.passes(x)

    def record(
        self, x: Tensor, state: BothDirections | None = None, *, lengths: Tensor | None = None
    ) -> BothDirections:
        """Records both directions; see `Recurrent.record`."""
        forward, backward = state or (None, None)
        return BothDirections(
            self.forward_layer.record(x, forward, lengths=lengths),
            self.backward_layer.record(x, backward, lengths=lengths),
        )


class Stack(nn.Module):
    """Layers on top of each other: each layer reads the outputs of the one below.

    The state is a tuple of the layers' states, lowest layer first.

    Args:
        layers: `Recurrent` and `Bidirectional` layers, lowest first.
        dropout: dropout rate between layers, in training mode.
        residual: add a layer's input to its output where the sizes agree.

    Raises:
        WeftError: there is no layer, the sizes of adjacent layers differ, or the rate is outside [0, 1).
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
                    f"Stack: a layer has input_size={above.input_size}, the one below output_size={below.output_size}",
                    expected="the two to be equal",
                )
        if not 0 <= dropout < 1:
            raise WeftError(f"Stack: dropout is {dropout}", expected="0 or more and below 1")
        self.layers = nn.ModuleList(layers)
        self.dropout, self.residual = dropout, residual
        self.input_size, self.output_size = layers[0].input_size, layers[-1].output_size
        self.causal = all(layer.causal for layer in layers)

    def initial_state(self, rows: int) -> tuple[State, ...]:
        """Returns the zero states for a batch of `rows`."""
        return tuple(layer.initial_state(rows) for layer in self.layers)  # type: ignore[operator]

    @traced_as_one_call
    def forward(
        self, x: Tensor | Embedded, state: tuple[State, ...] | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Runs all layers.

        Args:
            x: (B, T, I) features, (B, T) token ids, or embedding lookups.
            state: the initial states of the layers; None means zeros.
            lengths: (B,) lengths of the rows; None means T.

        Returns:
            The outputs (B, T, H) of the top layer, and the final states of all layers.
        """
        check_input("Stack", x, self.input_size, lengths)
        layers, states = list(self.layers), self._states(state)
        if not self.residual and not torch.compiler.is_compiling() and all(map(_is_plain, layers)):
            passes = [layer.passes(x) for layer in layers]  # type: ignore[operator]
            checked = [
                layer._check_states(before, x.shape[0])  # type: ignore[operator]
                for layer, before in zip(layers, states, strict=True)
            ]
            if done := engine.run_layers(passes, x, checked, lengths, self.dropout if self.training else 0.0):
                return done[0], tuple([parts[0] if len(parts) == 1 else BothDirections(*parts) for parts in done[1]])
        x = materialize(x)
        last: list[State] = []
        for number, (layer, before) in enumerate(zip(layers, states, strict=True)):
            inputs = engine.dropout(x, self.dropout, self.training) if number else x
            outputs, after = layer(inputs, before, lengths=lengths)
            x = self._add_residual(x, outputs, lengths)
            last.append(after)
        return x, tuple(last)

    def record(
        self, x: Tensor, state: tuple[State, ...] | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Recording | BothDirections, ...]:
        """Records every layer, lowest first; see `Recurrent.record`.

        Dropout between layers is applied as in `forward`, recurrent dropout is not.
        """
        check_input("Stack", x, self.input_size, lengths)
        recordings = []
        for number, (layer, before) in enumerate(zip(self.layers, self._states(state), strict=True)):
            inputs = engine.dropout(x, self.dropout, self.training) if number else x
            recording = layer.record(inputs, before, lengths=lengths)  # type: ignore[operator]
            parts = recording if isinstance(recording, BothDirections) else (recording,)
            x = self._add_residual(x, torch.cat([part.states.h for part in parts], -1), lengths)
            recordings.append(recording)
        return tuple(recordings)

    def _states(self, state: tuple[State, ...] | None) -> tuple[State, ...]:
        if state is None:
            return (None,) * len(self.layers)
        if len(state) != len(self.layers):
            raise TensorError(
                f"Stack: state has {len(state)} parts", expected=f"{len(self.layers)}, one for each layer"
            )
        return state

    def _add_residual(self, inputs: Tensor, outputs: Tensor, lengths: Tensor | None) -> Tensor:
        if not (self.residual and inputs.is_floating_point() and inputs.shape == outputs.shape):
            return outputs
        if lengths is not None:  # the padding of the stack's input must not reach the outputs
            padding = torch.arange(inputs.shape[1], device=inputs.device) >= lengths.to(inputs.device)[:, None]
            inputs = inputs.masked_fill(padding.unsqueeze(-1), 0)
        return outputs + inputs


def _has_steps(x: Tensor, lengths: Tensor | None) -> bool:
    """Whether every row has a step, as torch's fused layers require. They cannot pack rows without values."""
    return 0 not in x.shape and (lengths is None or (not x.is_meta and bool((lengths > 0).all())))


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer may be run without being called: it has no hooks and does not override `forward`."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return not hooks and type(layer).forward in (Recurrent.forward, Bidirectional.forward)


def _cell_class(cell: str | type[Cell]) -> type[Cell]:
    if isinstance(cell, type) and issubclass(cell, Cell):
        return cell
    if isinstance(cell, Cell):
        name = type(cell).__name__
        raise WeftError(
            f"make_stack: cell is an instance of {name}",
            expected="the class, because every layer has a cell of its own",
            hint=f"make_stack({name}, input_size, hidden_size)",
        )
    return find_cell(cell)


def make_stack(
    cell: str | type[Cell],
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
    """Builds a stack of equal layers.

    Args:
        cell: a name of `weft.cells.CELLS`, or a cell class.
        input_size: I, the number of input features (or token ids) of the first layer.
        hidden_size: H, the number of hidden units of each layer; of each direction if bidirectional.
        layers: L, the number of layers.
        bidirectional: every layer reads in both directions.
        reverse: every layer reads from the last step to the first.
        dropout: dropout rate between layers.
        recurrent_dropout: dropout rate of h where it enters the recurrent products.
        residual: add a layer's input to its output where the sizes agree.

    Returns:
        The stack, with new weights.

    Raises:
        WeftError: an unknown cell name, a cell class that needs other arguments, `layers` below 1, or both
            `bidirectional` and `reverse`.

    >>> make_stack("gru", 5, 7, layers=2, bidirectional=True).output_size
    14
    """
    kind = _cell_class(cell)
    try:
        inspect.signature(kind).bind(input_size, hidden_size)
    except TypeError as error:
        raise WeftError(
            f"the cell {kind.__name__} cannot be made: {error}",
            expected="a class whose other arguments have defaults",
            hint="def __init__(self, input_size, hidden_size)",
        ) from None
    if layers < 1:
        raise WeftError(f"layers is {layers}", expected="1 or more")
    if bidirectional and reverse:
        raise WeftError("make_stack: bidirectional and reverse are both set", expected="one of the two")
    stacked: list[Recurrent | Bidirectional] = []
    for _ in range(layers):
        size = stacked[-1].output_size if stacked else input_size
        if bidirectional:
            forward, backward = kind(size, hidden_size), kind(size, hidden_size)
            stacked.append(Bidirectional(forward, backward, recurrent_dropout=recurrent_dropout))
        else:
            one = kind(size, hidden_size)
            stacked.append(Recurrent(one, reverse=reverse, recurrent_dropout=recurrent_dropout))
    return Stack(stacked, dropout=dropout, residual=residual)
