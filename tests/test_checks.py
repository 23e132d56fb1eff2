"""The battery passes for every cell and fails for mutants, each of which has exactly one defect."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.checks import check_beam, check_cell, check_metric, check_model, check_probes, check_stepper
from weft.cells import (
    CELLS,
    AdditiveCell,
    Candidate,
    Cell,
    CoupledGateCell,
    CoupledGates,
    GRUCell,
    GRUGates,
    GRUResetBeforeCell,
    HiddenState,
    InputForgetGates,
    LSTMCell,
    LSTMGates,
    LSTMState,
    ReLURNNCell,
    RNNCell,
    StatelessCell,
    TwoGateCell,
)
from weft.decoding import beam_search
from weft.metrics import Likelihood
from weft.nn import Bidirectional, Recurrent, Stack, make_stack, map_state
from weft.probes import activations, connectivity, gradient_flow
from weft.tasks.inspection import Network, StackUse


@pytest.mark.parametrize("name", CELLS)
def test_cell(name):
    check_cell(CELLS[name])


class MinimalGatedUnit(Cell):
    """The custom cell of the docstring of weft.cells."""

    blocks = 2

    def step(self, x_proj, state):
        (x_f, x_u), (h_f, h_u) = x_proj.chunk(2, -1), self.recur(state.h).chunk(2, -1)
        f = torch.sigmoid(x_f + h_f)
        u = torch.tanh(x_u + f * h_u)
        return HiddenState(state.h + f * (u - state.h)), CoupledGates(f, u)


def minimal_gated_unit(W, U, x, h):
    f = 1 / (1 + torch.exp(-W(0, x) - U(0, h)))
    u = torch.tanh(W(1, x) + f * U(1, h))
    return ((1 - f) * h + f * u,), {"f": f, "u": u}


@pytest.mark.parametrize("equations", [None, minimal_gated_unit])
def test_custom_cell(equations):
    check_cell(MinimalGatedUnit, equations=equations, dtypes=[torch.float64])


def test_wrong_equations_are_detected():
    with pytest.raises(AssertionError, match="step: h"):
        check_cell(
            MinimalGatedUnit, equations=lambda W, U, x, h: ((h,), minimal_gated_unit(W, U, x, h)[1]), rtol=0, atol=0.01
        )


# --- cells with one defect ---------------------------------------------------------------------------------


def gru_parts(cell, x_proj, state):
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x_proj.chunk(3, -1), cell.recur(state.h).chunk(3, -1)
    return torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z), x_n, h_n


def mix(z, n, state):
    return HiddenState(z * state.h + (1 - z) * n)


class GRUWithoutHiddenBias(GRUCell):
    def step(self, x_proj, state):
        r, z, x_n, h_n = gru_parts(self, x_proj, state)
        n = torch.tanh(x_n + r * (h_n - self.bias_hh[2 * self.hidden_size :]))
        return mix(z, n, state), GRUGates(r, z, n)


class GRUBiasOutsideReset(GRUCell):
    def step(self, x_proj, state):
        r, z, x_n, h_n = gru_parts(self, x_proj, state)
        bias = self.bias_hh[2 * self.hidden_size :]
        n = torch.tanh(x_n + r * (h_n - bias) + bias)
        return mix(z, n, state), GRUGates(r, z, n)


class GRUInvertedUpdate(GRUCell):
    def step(self, x_proj, state):
        r, z, x_n, h_n = gru_parts(self, x_proj, state)
        n = torch.tanh(x_n + r * h_n)
        return mix(1 - z, n, state), GRUGates(r, z, n)


class GRUSwappedGates(GRUCell):
    def step(self, x_proj, state):
        z, r, x_n, h_n = gru_parts(self, x_proj, state)
        n = torch.tanh(x_n + r * h_n)
        return mix(z, n, state), GRUGates(r, z, n)


class GRUGatesInWrongOrder(GRUCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return new, GRUGates(gates.z, gates.r, gates.n)


class GRUResetOnTheWrongSide(GRUCell):
    step = GRUResetBeforeCell.step


class GRUResetBeforeOnTheWrongSide(GRUResetBeforeCell):
    step = GRUCell.step


def lstm_step(i, f, g, o, state):
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = f * state.c + i * g
    return LSTMState(o * torch.tanh(c), c), LSTMGates(i, f, g, o)


class LSTMInputForgetSwapped(LSTMCell):
    def step(self, x_proj, state):
        f, i, g, o = (x_proj + self.recur(state.h)).chunk(4, -1)
        return lstm_step(i, f, g, o, state)


class LSTMCandidateOutputSwapped(LSTMCell):
    def step(self, x_proj, state):
        i, f, o, g = (x_proj + self.recur(state.h)).chunk(4, -1)
        return lstm_step(i, f, g, o, state)


class LSTMWithoutTanhOnOutput(LSTMCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return LSTMState(gates.o * new.c, new.c), gates


class LSTMWithOldMemoryInOutput(LSTMCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return LSTMState(gates.o * torch.tanh(state.c), new.c), gates


class LSTMMemoryFirst(LSTMCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return LSTMState(new.c, new.h), gates


class LSTMMemoryWithoutGradient(LSTMCell):
    def step(self, x_proj, state):
        return super().step(x_proj, LSTMState(state.h, state.c.detach()))


class CoupledGateInverted(CoupledGateCell):
    def step(self, x_proj, state):
        _, (f, u) = super().step(x_proj, state)
        return HiddenState(f * u + (1 - f) * state.h), CoupledGates(f, u)


class TwoGatesSwapped(TwoGateCell):
    def step(self, x_proj, state):
        _, (i, f, u) = super().step(x_proj, state)
        return HiddenState(i * state.h + f * u), InputForgetGates(i, f, u)


class AdditiveWithoutOldState(AdditiveCell):
    step = RNNCell.step


class StatelessWithState(StatelessCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return HiddenState(new.h + 0.01 * state.h), gates


class RNNWithoutHiddenBias(RNNCell):
    def step(self, x_proj, state):
        return super().step(x_proj - self.bias_hh, state)


class LeakyReLURNN(ReLURNNCell):
    def step(self, x_proj, state):
        h = F.leaky_relu(x_proj + self.recur(state.h), 0.01)
        return HiddenState(h), Candidate(h)


class RNNImprecise(RNNCell):
    def step(self, x_proj, state):
        return super().step(x_proj * (1 + 1e-6), state)


class RNNThatWritesIntoItsState(RNNCell):
    def step(self, x_proj, state):
        result = super().step(x_proj, state)
        state.h.data.zero_()
        return result


class RNNWithNonzeroInitialState(RNNCell):
    def initial_state(self, rows):
        return map_state(torch.ones_like, super().initial_state(rows))


class RNNWithParametersInAnotherOrder(RNNCell):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        weight = self.weight_ih
        del self.weight_ih
        self.weight_ih = weight


class CallIgnoresTheState(GRUCell):
    def forward(self, x, state=None):
        return super().forward(x)


class GateOutOfRange(MinimalGatedUnit):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return new, CoupledGates(2 * gates.f, gates.u)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (GRUWithoutHiddenBias, "step: h"),
        (GRUBiasOutsideReset, "step: h"),
        (GRUInvertedUpdate, "step: h"),
        (GRUSwappedGates, "step: h"),
        (GRUGatesInWrongOrder, "gate r"),
        (GRUResetOnTheWrongSide, "step: h"),
        (GRUResetBeforeOnTheWrongSide, "step: h"),
        (LSTMInputForgetSwapped, "step: h"),
        (LSTMCandidateOutputSwapped, "step: h"),
        (LSTMWithoutTanhOnOutput, "step: h"),
        (LSTMWithOldMemoryInOutput, "step: h"),
        (LSTMMemoryFirst, "step: h"),
        (LSTMMemoryWithoutGradient, "gradient of"),
        (CoupledGateInverted, "step: h"),
        (TwoGatesSwapped, "step: h"),
        (AdditiveWithoutOldState, "step: h"),
        (StatelessWithState, "step: h"),
        (RNNWithoutHiddenBias, "step: h"),
        (LeakyReLURNN, "step: h"),
        (RNNImprecise, "step: h"),
        (RNNThatWritesIntoItsState, "changed the state"),
        (RNNWithNonzeroInitialState, "initial_state: not zero"),
        (RNNWithParametersInAnotherOrder, "order"),
        (GateOutOfRange, "within 0 to 1"),
        (CallIgnoresTheState, "calling the cell is not its step"),
    ],
)
def test_cell_mutants_fail(mutant, message):
    with pytest.raises(AssertionError, match=message):
        check_cell(mutant)


# --- layers with one defect --------------------------------------------------------------------------------


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


# --- steppers ---------------------------------------------------------------------------------------------------

VOCABULARY = 6


class RecurrentStepper:
    def __init__(self, cell="lstm"):
        torch.manual_seed(1)
        self.stack = make_stack(cell, VOCABULARY, 9, layers=2)
        self.out = nn.Linear(9, VOCABULARY)
        with torch.no_grad():
            for parameter in (*self.stack.parameters(), *self.out.parameters()):
                parameter.mul_(3)

    def initial_state(self, rows):
        return self.stack.initial_state(rows)

    def step(self, ids, state):
        outputs, state = self.stack(ids[:, None], state)
        return self.out(outputs[:, 0]).log_softmax(-1), state

    def select(self, state, rows):
        return map_state(lambda part: part[rows], state)


class CountingStepper:
    """A table over the last two tokens with a plain Python state, in which some tokens have probability 0."""

    def initial_state(self, rows):
        return [(0, 0)] * rows

    def step(self, ids, state):
        state = [(old, new) for (_, old), new in zip(state, ids.tolist(), strict=True)]
        table = torch.rand(VOCABULARY**2, VOCABULARY, generator=torch.Generator().manual_seed(2))
        table[:, 0] = 0
        table = table / table.sum(-1, keepdim=True)
        return table[[old * VOCABULARY + new for old, new in state]].log(), state

    def select(self, state, rows):
        return [state[row] for row in rows.tolist()]


class WithTopK(RecurrentStepper):
    def top_k(self, ids, state, k):
        log_probs, state = self.step(ids, state)
        return *log_probs.topk(min(k, VOCABULARY)), state


@pytest.mark.parametrize(
    "stepper", [RecurrentStepper(), RecurrentStepper("gru-reset-before"), CountingStepper(), WithTopK()]
)
def test_steppers_pass(stepper):
    check_stepper(stepper, vocabulary=VOCABULARY)


class SelectIgnoresItsRows(RecurrentStepper):
    def select(self, state, rows):
        return state


class SelectInPlace(RecurrentStepper):
    def select(self, state, rows):
        if len(rows) == len(state[0].h):
            map_state(lambda part: part.copy_(part[rows]), state)
            return state
        return super().select(state, rows)


class SelectDropsTheMemoryCell(RecurrentStepper):
    def select(self, state, rows):
        return tuple(LSTMState(h[rows], c[: len(rows)] if len(rows) <= len(c) else c[rows]) for h, c in state)


class SelectDropsALayer(RecurrentStepper):
    def select(self, state, rows):
        first, second = super().select(state, rows)
        return first, map_state(lambda part: part.sort(0).values, second)


class SelectSortsItsRows(RecurrentStepper):
    def select(self, state, rows):
        return super().select(state, rows.sort().values)


class SelectSortsItsRowsInPlace(RecurrentStepper):
    def select(self, state, rows):
        picked = super().select(state, rows)
        rows.copy_(rows.sort().values)
        return picked


class StepInPlace(RecurrentStepper):
    def step(self, ids, state):
        log_probs, new = super().step(ids, state)
        for old, fresh in zip(state, new, strict=True):
            for a, b in zip(old, fresh, strict=True):
                a.copy_(b)
        return log_probs, state


class ScoresInsteadOfLogProbabilities(RecurrentStepper):
    def step(self, ids, state):
        log_probs, state = super().step(ids, state)
        return log_probs + 1, state


class StepMixesRows(RecurrentStepper):
    def step(self, ids, state):
        log_probs, state = super().step(ids, state)
        return (log_probs + log_probs.mean(0)).log_softmax(-1), state


class StateInside(RecurrentStepper):
    """Keeps the state inside and returns none."""

    def initial_state(self, rows):
        self.hidden = super().initial_state(rows)
        return ()

    def step(self, ids, state):
        log_probs, self.hidden = super().step(ids, self.hidden)
        return log_probs, ()

    def select(self, state, rows):
        return ()


class TopKOfTheWorst(WithTopK):
    def top_k(self, ids, state, k):
        log_probs, state = self.step(ids, state)
        return *log_probs.topk(min(k, VOCABULARY), largest=False), state


class TopKOfAnotherRow(WithTopK):
    def top_k(self, ids, state, k):
        best, choices, state = super().top_k(ids, state, k)
        return best, choices.flip(0), state


class TopKWithoutStep(WithTopK):
    def top_k(self, ids, state, k):
        return *super().top_k(ids, state, k)[:2], state


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (TopKOfTheWorst, "not the best"),
        (TopKOfAnotherRow, "ids of other tokens"),
        (TopKWithoutStep, "not the state that step gives"),
        (SelectIgnoresItsRows, "commute"),
        (SelectInPlace, "select changed the state"),
        (SelectDropsTheMemoryCell, "commute"),
        (SelectDropsALayer, "commute"),
        (SelectSortsItsRows, "commute"),
        (SelectSortsItsRowsInPlace, "select changed the rows"),
        (StepInPlace, "step changed the state"),
        (ScoresInsteadOfLogProbabilities, "sum to 1"),
        (StepMixesRows, "commute"),
        (StateInside, "same step twice"),
    ],
)
def test_stepper_mutants_fail(mutant, message):
    with pytest.raises(AssertionError, match=message):
        check_stepper(mutant(), vocabulary=VOCABULARY)


# --- beam search ------------------------------------------------------------------------------------------------------

PROMPTS = {"prompts": [[1], [4, 2], [5]], "tokens": [3, 2, 3], "end": 2, "banned": [3], "vocabulary": VOCABULARY}


@pytest.mark.parametrize("stepper", [RecurrentStepper(), CountingStepper(), WithTopK()])
@pytest.mark.parametrize("end", [2, None])
def test_beam_passes(stepper, end):
    check_beam(beam_search, stepper, **{**PROMPTS, "end": end})


class Unselected:
    """A stepper whose `select` does nothing: what a beam search that ignores `select` would see."""

    def __init__(self, stepper):
        self.initial_state, self.step, self.inner = stepper.initial_state, stepper.step, stepper

    def select(self, state, rows):
        return self.inner.select(state, torch.arange(len(rows)) % len(state[0].h))


def ignores_select(stepper, prompts, **options):
    return beam_search(Unselected(stepper), prompts, **options)


def ignores_lengths(stepper, prompts, *, alpha=0.75, **options):
    return beam_search(stepper, prompts, alpha=0.0, **options)


def counts_no_end(stepper, prompts, *, alpha=0.75, **options):
    def scored(one):
        return one._replace(score=one.log_prob / max(1, len(one.ids)) ** alpha)

    return [list(map(scored, row)) for row in beam_search(stepper, prompts, alpha=alpha, **options)]


def stops_at_the_first_end(stepper, prompts, *, n_best=1, **options):
    found = beam_search(stepper, prompts, n_best=n_best, **options)
    return [sorted(row, key=lambda one: len(one.ids))[:1] + row[1:] for row in found]


def keeps_banned_tokens(stepper, prompts, *, banned=(), **options):
    return beam_search(stepper, prompts, **options)


def is_narrow(stepper, prompts, *, width, n_best=1, **options):
    return beam_search(stepper, prompts, width=min(width, max(2, n_best)), n_best=n_best, **options)


def is_never_width_one(stepper, prompts, *, width, **options):
    return beam_search(stepper, prompts, width=max(2, width), **options)


def continues_after_the_end(stepper, prompts, *, end, **options):
    return beam_search(stepper, prompts, end=None, **options)


@pytest.mark.parametrize(
    "mutant",
    [
        ignores_select,
        ignores_lengths,
        counts_no_end,
        stops_at_the_first_end,
        keeps_banned_tokens,
        is_narrow,
        is_never_width_one,
        continues_after_the_end,
    ],
)
def test_beam_mutants_fail(mutant):
    with pytest.raises(AssertionError, match="beam"):
        check_beam(mutant, RecurrentStepper(), **PROMPTS)


# --- models -----------------------------------------------------------------------------------------------------


class TinyModel(nn.Module):
    """Predicts the next token; a batch is (inputs, targets), and negative targets are ignored."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.stack = make_stack("gru", VOCABULARY, 5)
        self.out = nn.Linear(5, VOCABULARY)

    def loss(self, batch):
        inputs, targets = batch
        scores = self.out(self.stack(inputs)[0]).flatten(0, 1)
        total = F.cross_entropy(scores, targets.flatten(), ignore_index=-100, reduction="sum")
        return total, int((targets >= 0).sum())


def make_batch():
    random = torch.Generator().manual_seed(9)
    ids = torch.randint(VOCABULARY, (7, 6), generator=random)
    targets = ids[:, 1:].clone()
    targets[2, 1:] = targets[5, 3:] = -100
    whole = (ids[:, :-1].contiguous(), targets)
    return whole, [tuple(part[rows] for part in whole) for rows in (slice(0, 2), slice(2, 3), slice(3, 7))]


def test_model_passes():
    check_model(TinyModel(), *make_batch())


class LossIsAMean(TinyModel):
    def loss(self, batch):
        total, count = super().loss(batch)
        return total / count, count


class LossIsAMeanTimesRows(TinyModel):
    def loss(self, batch):
        total, count = super().loss(batch)
        return total / count * len(batch[0]), count


class CountIsRows(TinyModel):
    def loss(self, batch):
        return super().loss(batch)[0], 1


class CountIsATensor(TinyModel):
    def loss(self, batch):
        total, count = super().loss(batch)
        return total, torch.tensor(count)


class LossIsALikelihood(TinyModel):
    def loss(self, batch):
        total, count = super().loss(batch)
        return -total, count


class DeadParameter(TinyModel):
    def __init__(self):
        super().__init__()
        self.forgotten = nn.Parameter(torch.ones(3))


class CutGradient(TinyModel):
    def loss(self, batch):
        scores = self.out(self.stack(batch[0])[0].detach()).flatten(0, 1)
        return F.cross_entropy(scores, batch[1].flatten(), reduction="sum"), int((batch[1] >= 0).sum())


class RandomInEvaluation(TinyModel):
    def loss(self, batch):
        scores = self.out(F.dropout(self.stack(batch[0])[0], 0.5)).flatten(0, 1)
        return F.cross_entropy(scores, batch[1].flatten(), reduction="sum"), int((batch[1] >= 0).sum())


class WeightsOutsideTheStateDict(TinyModel):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.5), persistent=False)

    def loss(self, batch):
        total, count = super().loss(batch)
        return total * self.scale, count


class WritesIntoItsBatch(TinyModel):
    def loss(self, batch):
        result = super().loss(batch)
        batch[1][batch[1] < 0] = -1
        return result


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (LossIsAMean, "totals of the parts"),
        (LossIsAMeanTimesRows, "totals of the parts"),
        (CountIsRows, "counts of the parts"),
        (CountIsATensor, "count is a Tensor"),
        (LossIsALikelihood, "below zero"),
        (DeadParameter, "no gradient reaches forgotten"),
        (CutGradient, "no gradient reaches stack"),
        (RandomInEvaluation, "not repeatable"),
        (WeightsOutsideTheStateDict, "state_dict"),
        (WritesIntoItsBatch, "changed its batch"),
    ],
)
def test_model_mutants_fail(mutant, message):
    with pytest.raises(AssertionError, match=message):
        check_model(mutant(), *make_batch())


# --- metrics ----------------------------------------------------------------------------------------------------


@dataclass
class MeanOfMeans:
    mean: float

    def __add__(self, other):
        return type(self)((self.mean + other.mean) / 2)

    def score(self):
        return self.mean


class AddsInPlace(MeanOfMeans):
    def __add__(self, other):
        self.mean += other.mean
        return self


def test_metric_passes():
    check_metric(Likelihood(12.0, 9), [Likelihood(2.0, 4), Likelihood(7.0, 2), Likelihood(3.0, 3)])


def test_metric_mutants_fail():
    with pytest.raises(AssertionError, match="not that of the whole"):
        check_metric(MeanOfMeans(12 / 9), [MeanOfMeans(2 / 4), MeanOfMeans(7 / 2), MeanOfMeans(3 / 3)])
    with pytest.raises(AssertionError, match="adding changed a part"):
        check_metric(AddsInPlace(0.0), [AddsInPlace(0.0), AddsInPlace(0.0), AddsInPlace(1.0), AddsInPlace(-1.0)])


# --- probes ---------------------------------------------------------------------------------------------------


def next_token_network(cell, layers=1, residual=False, seed=3):
    """A small language model in float64 with random weights and biases, as the probes see it."""
    torch.manual_seed(seed)
    T, E, H, V = 6, 5 if not residual else 4, 4, 7
    stack = make_stack(cell, E, H, layers=layers, residual=residual).double()
    weight, bias = torch.randn(V, H).double(), torch.randn(V).double()
    for parameter in stack.parameters():
        nn.init.normal_(parameter, std=0.6)

    def readout(outputs):
        return F.linear(outputs, weight, bias)

    tokens = tuple("abcdef")
    return Network(
        tokens,
        torch.randn(1, T, E).double(),
        lambda x: readout(stack(x)[0][:, :-1]),
        tokens[1:],
        (1, 2, 3, 0, 5),
        tuple("tuvwxyz"),
        {"stack": StackUse(stack, tokens)},
        readout,
    )


def label_network(cell, seed=4):
    """A bidirectional classifier."""
    torch.manual_seed(seed)
    stack = make_stack(cell, 5, 4, layers=2, bidirectional=True).double()
    output = nn.Linear(8, 3).double()
    for parameter in (*stack.parameters(), *output.parameters()):
        nn.init.normal_(parameter, std=0.6)
    tokens = tuple("abcde")
    return Network(
        tokens,
        torch.randn(1, 5, 5).double(),
        lambda x: output(stack(x)[0].mean(1))[:, None],
        ("yes",),
        (1,),
        ("no", "yes", "maybe"),
        {"stack": StackUse(stack, tokens)},
    )


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_probes(name, layers):
    check_probes(next_token_network(name, layers))


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_probes_of_other_networks(name):
    check_probes(next_token_network(name, 2, residual=True))
    check_probes(label_network(name))


def test_probes_of_a_custom_cell():
    check_probes(next_token_network(MinimalGatedUnit, 2), recombine=lambda g, h: (h + g["f"] * (g["u"] - h),))


def swapped_gates(network):
    found = activations(network)
    return replace(found, layers=tuple(replace(one, gates={**one.gates, "i": one.gates["f"]}) for one in found.layers))


def late_states(network):
    """Off by one in time: the state before each step."""
    found = activations(network)
    return replace(
        found,
        layers=tuple(
            replace(one, states={name: np.roll(values, 1, axis=0) for name, values in one.states.items()})
            for one in found.layers
        ),
    )


def changed_flow(change):
    def mutant(network):
        found = gradient_flow(network)
        layers = tuple(
            replace(one, states={name: change(values) for name, values in one.states.items()}) for one in found.layers
        )
        return replace(found, layers=layers)

    return mutant


def detached_gradient(values):
    """Nothing flows through time: only what a prediction asks of its own step."""
    return values * np.eye(*values.shape)


def detached_influence(network, **given):
    found = connectivity(network, **given)
    kept = np.eye(len(network.predictions), len(network.steps))[list(found.predictions)]
    return replace(found, influence=found.influence * kept)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        ({"read": swapped_gates}, "do not make"),
        ({"read": late_states}, "do not make"),
        ({"flow": changed_flow(detached_gradient)}, "dL_"),
        ({"flow": changed_flow(lambda values: np.roll(values, 1, axis=1))}, "later state"),
        ({"flow": changed_flow(lambda values: values * 0)}, "no gradient"),
        ({"connect": detached_influence}, "influence by gradient"),
    ],
)
def test_wrong_probes_are_noticed(mutant, message):
    with pytest.raises(AssertionError, match=message):
        check_probes(next_token_network("lstm", 2), **mutant)
