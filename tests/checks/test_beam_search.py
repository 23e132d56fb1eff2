"""The battery of beam search fails for mutants."""

from __future__ import annotations

import pytest
import torch

from tests.checks.beam_search import check_beam
from tests.checks.test_steppers import VOCABULARY, CountingStepper, RecurrentStepper, WithTopK
from weft.decoding import beam_search

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
