"""Beam search against enumeration, over every kind of model that steps; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.checks.beam_search import check_beam
from weft.decoding import beam_search, generate, greedy
from weft.errors import WeftError
from weft.tasks.hmm.model import HMM
from weft.tasks.kneser_ney import modified_kneser_ney
from weft.tasks.lm.config import LmModelConfig
from weft.tasks.lm.model import LanguageModel

V = 5


def language_model():
    torch.manual_seed(0)
    model = LanguageModel(V, LmModelConfig(hidden_size=6, embedding_dim=4, num_layers=2)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def hmm():
    random = torch.Generator().manual_seed(2)
    rows = [torch.rand(shape, generator=random, dtype=torch.float64) for shape in ((3,), (3, 3), (3, V))]
    return HMM(*(part / part.sum(-1, keepdim=True) for part in rows))


STEPPERS = {
    "language model": language_model,
    "n-gram": lambda: modified_kneser_ney(np.random.default_rng(0).integers(0, V, 60), V, 3),
    "hidden Markov model": hmm,
}


@pytest.mark.parametrize("name", STEPPERS)
@pytest.mark.parametrize("end", [1, None])
def test_it_finds_what_enumeration_finds(name, end):
    """Prompts of unequal length, room for unequal numbers of tokens, a banned token."""
    prompts = [[2], [3, 4, 2], [4], [2, 2, 0]]
    check_beam(beam_search, STEPPERS[name](), prompts, vocabulary=V, tokens=[3, 2, 1, 3], end=end, banned=[0])


def test_a_beam_of_one_is_the_greedy_generator():
    model = language_model()
    rows = [[] for _ in range(3)]
    for new in generate(model, [[2], [3], [4]], greedy, tokens=12, end=1, banned=[0]):
        for row, token in zip(rows, new, strict=True):
            row += [token] if token >= 0 else []
    found = beam_search(model, [[2], [3], [4]], width=1, tokens=[12] * 3, end=1, banned=[0])
    assert [list(best[0].ids) for best in found] == rows


def test_a_wider_beam_finds_at_least_as_likely_a_way():
    """With no length penalty and no n-best to look after, over many prompts on average; and never worse than all."""
    model = language_model()
    prompts = [[first, second] for first in range(2, V) for second in range(2, V)]
    scores = [
        sum(best[0].score for best in beam_search(model, prompts, width=width, tokens=[6] * 9, end=None, alpha=0.0))
        for width in (1, 3, 200)
    ]
    assert scores[0] < scores[1] <= scores[2]


def test_room_ends_a_hypothesis():
    (found,) = beam_search(language_model(), [[2]], width=3, tokens=[4], end=None, n_best=3)
    assert [len(one.ids) for one in found] == [4, 4, 4]
    assert not any(one.ended for one in found)


def test_no_prompts_no_answers():
    assert beam_search(language_model(), [], width=2, tokens=[], end=1) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width 0"),
        ({"width": 2, "n_best": 3}, r"width 2 for the 3 best.*width=3"),
        ({"width": 2, "alpha": -1.0}, "length penalty is -1"),
        ({"width": 2, "tokens": [0]}, r"tokens is \[0\]"),
        ({"width": 2, "tokens": [3, 3]}, "1 or more for each prompt"),
        ({"width": 2, "prompts": [[]]}, "a prompt has no token"),
    ],
)
def test_mistakes(options, message):
    options = {"prompts": [[2]], "tokens": [3], "end": 1, **options}
    with pytest.raises(WeftError, match=message):
        beam_search(language_model(), options.pop("prompts"), **options)
