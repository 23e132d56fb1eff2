"""A cell over time as plain torch, for where the engine cannot run it and for recordings.

`run_steps` is the reference loop; `run_fused` uses torch's own layer where torch has the same cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.cells import Cell, Gates, GRUCell, LSTMCell, ReLURNNCell, RNNCell, State
from weft.compiler import evaluate, trace, with_recurrent_dropout
from weft.engine import Pass
from weft.nn.states import map_state


def run_steps(run: Pass, x: Tensor, state: State, lengths: Tensor | None) -> tuple[State, Gates, State]:
    """Runs a cell step by step.

    Args:
        run: the cell, its direction and its masks.
        x: (B, T, I) features or (B, T) token ids.
        state: the initial state.
        lengths: (B,) lengths of the rows, or None.

    Returns:
        All states and all gates, NamedTuples of (B, T, H) tensors, and the final state.
    """
    cell, T = run.cell, x.shape[1]
    active = None
    if lengths is not None:
        active = torch.arange(T, device=x.device) < lengths.to(x.device)[:, None]  # (B, T)
        # The padding is zeroed before the first product because NaN * 0 is NaN, in gradients too.
        x = x.masked_fill(~active.unsqueeze(-1) if x.is_floating_point() else ~active, 0)
    projected = cell.project(x)  # (B, T, G*H)
    step = _with_dropout(run) if run.noise.recurrent_dropout else cell.step
    kept: list[tuple[State, Gates]] = []
    for t in reversed(range(T)) if run.reverse else range(T):
        new, gates = step(projected[:, t], state)
        new = _zoneout(run, t, new, state)
        if active is not None:
            now = active[:, t, None]
            state = type(new)(*(torch.where(now, a, b) for a, b in zip(new, state, strict=True)))
            new, gates = map_state(partial(_zero_inactive, now), new), map_state(partial(_zero_inactive, now), gates)
        else:
            state = new
        kept.append((new, gates))
    if not kept:  # T = 0: one dummy step gives the shapes
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
    """Returns the cell's step with a dropout mask on h where it enters a product.

    The step is evaluated from the traced equations, which do not contain the gates; the old state is returned instead.
    """
    equations = with_recurrent_dropout(trace(run.cell))
    computed = {name: getattr(run.cell, name) for name in run.cell.computed}
    parameters = dict(run.cell.named_parameters()) | computed

    def step(x_proj: Tensor, state: State) -> tuple[State, Gates]:
        return type(state)(*evaluate(equations, parameters.__getitem__, x_proj, state, run.row_mask)), state

    return step


def _zoneout(run: Pass, t: int, new: State, old: State) -> State:
    """Applies zoneout: units keep their previous value, or in evaluation mode take the expected value."""
    if run.step_mask is not None:
        masks = run.step_mask[:, t].chunk(len(new), -1)
        return type(new)(*(torch.where(m != 0, a, b) for m, a, b in zip(masks, old, new, strict=True)))
    if rate := run.noise.expected_zoneout:
        return type(new)(*(rate * a + (1 - rate) * b for a, b in zip(old, new, strict=True)))
    return new


def _zero_inactive(active: Tensor, values: Tensor) -> Tensor:
    return torch.where(active, values, 0.0)


def _stack(steps: Sequence[Any]) -> Any:
    """Stacks T tuples of (B, H) tensors to one tuple of (B, T, H) tensors."""
    return type(steps[0])(*(torch.stack(parts, 1) for parts in zip(*steps, strict=True)))


# torch's fused layers of the same cells: (x, state, weights, ...) -> (outputs, *final state)
FUSED: dict[type[Cell], Callable[..., tuple[Tensor, ...]]] = {
    RNNCell: torch.rnn_tanh,
    ReLURNNCell: torch.rnn_relu,
    GRUCell: torch.gru,
    LSTMCell: torch.lstm,
}


def run_fused(cell: Cell, x: Tensor, state: State, reverse: bool) -> tuple[Tensor, State]:
    """Runs torch's fused layer of the same cell. Token ids become one-hot vectors, the only input it accepts."""
    if not x.is_floating_point():
        x = F.one_hot(x.long(), cell.input_size).to(cell.weight_ih.dtype)
    parts = [part.unsqueeze(0) for part in state]
    weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
    outputs, *last = FUSED[type(cell)](
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
