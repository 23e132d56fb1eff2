"""A cell over time as plain torch, for where the engine cannot run it and for recordings.

`run_steps` is the reference loop; `run_fused` uses torch's own layer where torch has the same cell, which on a GPU is
one kernel for all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from weft.cells import Cell, Gates, GRUCell, LSTMCell, ReLURNNCell, RNNCell, State
from weft.compiler import evaluate, trace, with_recurrent_dropout
from weft.engine import Pass, over_time
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

    def masked_step(t: int, state: State) -> tuple[State, Gates]:
        new, gates = step(projected[:, t], state)
        return _zoneout(run, t, new, state), gates

    kept, state = over_time(masked_step, T, state, reverse=run.reverse, active=active)
    if not kept:  # T = 0: one dummy step gives the shapes
        new, gates = cell.step(projected.new_zeros(x.shape[0], projected.shape[-1]), state)
        return (
            map_state(lambda a: a[:, None][:, :0], new),
            map_state(lambda a: a[:, None][:, :0], gates),
            state,
        )
    return _stack([new for new, _ in kept]), _stack([gates for _, gates in kept]), state


def run_passes(
    passes: Sequence[Pass], x: Tensor, states: Sequence[State], lengths: Tensor | None
) -> tuple[Tensor, list[list[State]]]:
    """Runs the passes of one layer step by step; arguments and results are those of engine.run_layers."""
    outputs, last = [], []
    for run, given in zip(passes, states, strict=True):
        state = run.cell.initial_state(x.shape[0]) if given is None else given
        found, _, after = run_steps(run, x, state, lengths)
        outputs.append(found.h)
        last.append(after)
    return torch.cat(outputs, -1), [last]


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


def run_fused(cell: Cell, x: Tensor, state: State, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
    """Runs torch's fused layer of the same cell. Token ids become one-hot vectors, the only input it accepts.

    Args:
        cell: a cell of `FUSED`.
        x: (B, T, I) features or (B, T) token ids; B and T are at least 1.
        state: the initial state.
        lengths: (B,) lengths of the rows, at least 1, or None.
        reverse: run from the last step of each row to the first.

    Returns:
        The outputs (B, T, H), zero past a row's length, and the final state.
    """
    if not x.is_floating_point():
        x = F.one_hot(x.long(), cell.input_size).to(cell.weight_ih.dtype)
    B, T = x.shape[:2]
    order = None if not reverse else _reversed_steps(B, T, lengths, x.device)
    if order is not None:
        x = x[torch.arange(B, device=x.device)[:, None], order]
    kind = x.device.type
    autocast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if autocast else cell.weight_ih.dtype
    weights = [weight.to(dtype) for weight in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)]
    parts = [part.unsqueeze(0).to(dtype) for part in state]
    options = (True, 1, 0.0, torch.is_grad_enabled(), False)  # biases, layers, dropout, training, bidirectional
    # Under autocast all operands have the dtype that it would choose.
    with torch.autocast(kind, enabled=False) if autocast else nullcontext():
        if lengths is None:
            hx = parts if len(parts) > 1 else parts[0]
            outputs, *last = FUSED[type(cell)](x.to(dtype), hx, weights, *options, True)  # batch first
        else:
            packed = pack_padded_sequence(x.to(dtype), lengths.cpu(), batch_first=True, enforce_sorted=False)
            parts = [part[:, packed.sorted_indices] for part in parts]
            hx = parts if len(parts) > 1 else parts[0]
            values, *last = FUSED[type(cell)](packed.data, packed.batch_sizes, hx, weights, *options)
            last = [part[:, packed.unsorted_indices] for part in last]
            outputs, _ = pad_packed_sequence(packed._replace(data=values), batch_first=True, total_length=T)
    if order is not None:
        outputs = outputs[torch.arange(B, device=x.device)[:, None], order]
    # States are carried from step to step and batch to batch: they keep their dtype.
    final = type(state)(*(new[0].to(old.dtype) for new, old in zip(last, state, strict=True)))
    return outputs, final


def _reversed_steps(rows: int, steps: int, lengths: Tensor | None, device: torch.device) -> Tensor:
    """(B, T) indices of steps that turn each row round within its length and leave its padding."""
    forward = torch.arange(steps, device=device).expand(rows, steps)
    if lengths is None:
        return forward.flip(1)
    ends = lengths.to(device)[:, None]
    return torch.where(forward < ends, ends - 1 - forward, forward)
