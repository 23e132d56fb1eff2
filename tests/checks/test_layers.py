"""The battery passes for a correct layer, and fails for layers and stacks with exactly one defect."""

from __future__ import annotations

import pytest
import torch

from tests.checks.cells import check_cell
from weft.cells import (
    CoupledGateCell,
    GRUCell,
    LSTMCell,
)
from weft.nn import Bidirectional, Recurrent, Stack, map_state


class Correct(Recurrent):
    """A correct layer over time with a method for each place where a mutant goes wrong."""

    def begin(self, rows):
        return self.cell.initial_state(rows)

    def project(self, x, active):
        x = x.masked_fill(~active[..., None] if x.is_floating_point() else ~active, 0)
        return self.cell.project(x)

    def link(self, state):
        return state

    def carry(self, now, new, old):
        return type(new)(*(torch.where(now, a, b) for a, b in zip(new, old, strict=True)))

    def emit(self, now, h):
        return torch.where(now, h, 0.0)

    def forward(self, x, state=None, *, lengths=None):
        B, T = x.shape[:2]
        state = self.begin(B) if state is None else state
        active = torch.arange(T) < (torch.full((B,), T) if lengths is None else lengths)[:, None]
        projected = self.project(x, active)
        outputs = {}
        for t in reversed(range(T)) if self.reverse else range(T):
            now = active[:, t, None]
            new, _ = self.cell.step(projected[:, t], self.link(state))
            state, outputs[t] = self.carry(now, new, state), self.emit(now, new.h)
        nothing = [projected.new_zeros(B, 0, self.output_size)]
        return torch.cat(nothing + [outputs[t][:, None] for t in range(T)], 1), state


@pytest.mark.parametrize("cell", [GRUCell, LSTMCell])
def test_a_correct_layer_passes(cell):
    check_cell(cell, layer=Correct, dtypes=[torch.float64])


class LeaksPastTheLength(Correct):
    def carry(self, now, new, old):
        return old if self.reverse and not now.any() else new


class BackwardStartsAtTheEndOfTheBatch(Correct):
    def carry(self, now, new, old):
        return new if self.reverse else super().carry(now, new, old)


class OutputsPastTheLength(Correct):
    def emit(self, now, h):
        return h


class OutputsRepeatedPastTheLength(Correct):
    """Repeats the last output in the padding, as masking the state alone does."""

    def forward(self, x, state=None, *, lengths=None):
        outputs, last = super().forward(x, state, lengths=lengths)
        if lengths is not None:
            past = torch.arange(x.shape[1]) >= lengths[:, None]
            outputs = torch.where(past[..., None], last.h[:, None], outputs)
        return outputs, last


class PaddingReachesTheState(Correct):
    """Masks by multiplication: correct for finite values, NaN for NaN."""

    def project(self, x, active):
        return self.cell.project(x * active[..., None] if x.is_floating_point() else x * active)

    def carry(self, now, new, old):
        return type(new)(*(a * now + b * ~now for a, b in zip(new, old, strict=True)))


class PaddingReachesTheGradient(Correct):
    """Masks after the product: values are correct, but a zero gradient times NaN is NaN."""

    def project(self, x, active):
        return torch.where(active[..., None], self.cell.project(x), 0.0)


class EmptyRowsTakeAStep(Correct):
    def forward(self, x, state=None, *, lengths=None):
        return super().forward(x, state, lengths=None if lengths is None else lengths.clamp(min=min(1, x.shape[1])))


class NoStateIsOnes(Correct):
    def begin(self, rows):
        return map_state(torch.ones_like, self.cell.initial_state(rows))


class StateIsIgnored(Correct):
    def forward(self, x, state=None, *, lengths=None):
        return super().forward(x, None, lengths=lengths)


class GradientStopsBetweenSteps(Correct):
    def link(self, state):
        return map_state(torch.Tensor.detach, state)


class GradientStopsAtTheStart(Correct):
    def forward(self, x, state=None, *, lengths=None):
        return super().forward(x, state and map_state(torch.Tensor.detach, state), lengths=lengths)


class LastStateWithoutGradient(Correct):
    def forward(self, x, state=None, *, lengths=None):
        outputs, last = super().forward(x, state, lengths=lengths)
        return outputs, map_state(torch.Tensor.detach, last)


class MixesRows(Correct):
    def project(self, x, active):
        projected = super().project(x, active)
        return projected - 0.01 * projected.mean(0, keepdim=True)


class IdsOffByOne(Correct):
    def project(self, x, active):
        return super().project(x if x.is_floating_point() else (x + 1) % self.input_size, active)


class WritesIntoItsState(Correct):
    def forward(self, x, state=None, *, lengths=None):
        result = super().forward(x, state, lengths=lengths)
        if state is not None and lengths is None and x.shape[1] == 5 and not self.reverse:
            state.h.data.mul_(0.999999999999)  # too little for a tolerance to detect
        return result


class ReverseOutputsNotReordered(Correct):
    def forward(self, x, state=None, *, lengths=None):
        outputs, last = super().forward(x, state, lengths=lengths)
        return outputs.flip(1) if self.reverse and lengths is None else outputs, last


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (LeaksPastTheLength, "with lengths: final state"),
        (BackwardStartsAtTheEndOfTheBatch, "backward with lengths"),
        (OutputsPastTheLength, "with lengths: outputs"),
        (OutputsRepeatedPastTheLength, "with lengths: outputs"),
        (PaddingReachesTheState, "padding: nan reaches the outputs"),
        (PaddingReachesTheGradient, "padding: nan reaches the gradients"),
        (EmptyRowsTakeAStep, "with lengths"),
        (NoStateIsOnes, "None is not zeros"),
        (StateIsIgnored, "outputs"),
        (GradientStopsBetweenSteps, "gradient of"),
        (GradientStopsAtTheStart, "gradient of"),
        (LastStateWithoutGradient, "gradient"),
        (MixesRows, "outputs"),
        (IdsOffByOne, "token ids"),
        (WritesIntoItsState, "changed its inputs"),
        (ReverseOutputsNotReordered, "backward without lengths"),
    ],
)
def test_layer_mutants_fail(mutant, message):
    with pytest.raises(AssertionError, match=message):
        check_cell(LSTMCell, layer=mutant)


class DirectionsSwapped(Bidirectional):
    def forward(self, x, state=None, *, lengths=None):
        outputs, last = super().forward(x, state, lengths=lengths)
        return outputs.roll(self.backward_layer.output_size, -1), last


class BackwardRunsForward(Bidirectional):
    def __init__(self, forward, backward):
        super().__init__(forward, backward)
        self.backward_layer.reverse = False


class StackThatCutsGradients(Stack):
    def forward(self, x, state=None, *, lengths=None):
        last = []
        for layer, before in zip(self.layers, self._states(state), strict=True):
            x, after = layer(x.detach(), before, lengths=lengths)
            last.append(after)
        return x, tuple(last)


class StackThatIgnoresLengths(Stack):
    def forward(self, x, state=None, *, lengths=None):
        last = []
        for number, (layer, before) in enumerate(zip(self.layers, self._states(state), strict=True)):
            x, after = layer(x, before, lengths=None if number else lengths)
            last.append(after)
        return x, tuple(last)


@pytest.mark.parametrize(
    ("seam", "mutant"),
    [
        ("bidirectional", DirectionsSwapped),
        ("bidirectional", BackwardRunsForward),
        ("stack", StackThatCutsGradients),
        ("stack", StackThatIgnoresLengths),
    ],
)
def test_stack_mutants_fail(seam, mutant):
    with pytest.raises(AssertionError, match="deep"):
        check_cell(CoupledGateCell, **{seam: mutant})
