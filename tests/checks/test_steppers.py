"""The battery of steppers fails for mutants."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.checks.steppers import check_stepper
from weft.cells import (
    LSTMState,
)
from weft.nn import make_stack, map_state

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
