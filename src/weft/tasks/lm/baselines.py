"""What a language model has to beat, and what nobody can: n-grams of its own text, blind guessing, true entropy."""

from __future__ import annotations

import math
from typing import NamedTuple

from weft.data.windows import Tokens
from weft.metrics import Likelihood
from weft.tasks.lm.predictor import Language
from weft.tasks.ngram.model import modified_kneser_ney
from weft.tasks.task import FACTS, TRAIN
from weft.text.corpus import open_tokens
from weft.text.grammars.english import ENGLISH
from weft.training.run import read_json

ORDER = 5
MOST_TOKENS = 5_000_000  # counted, so that the comparison does not take longer than the evaluation
GRAMMAR = "grammar"  # the data set whose entropy is known


class Baseline(NamedTuple):
    """Something to compare with, on the same text."""

    name: str
    likelihood: Likelihood


def baselines(language: Language, tokens: Tokens) -> list[Baseline]:
    """Those that there are for this model and this text, best known first."""
    found = [_entropy(language, tokens), _ngram(language, tokens), _uniform(language, tokens)]
    return [one for one in found if one is not None]


def _uniform(language: Language, tokens: Tokens) -> Baseline:
    count = len(tokens) - 1
    return Baseline("guessing blindly", Likelihood(count * math.log(len(language.codec.vocabulary)), count))


def _ngram(language: Language, tokens: Tokens) -> Baseline | None:
    """An n-gram model of the run's own training text, where the run still has it and is not one itself."""
    run, size = language.run, len(language.codec.vocabulary)
    if run.task == "ngram" or not run.has(TRAIN):
        return None
    train = open_tokens(run.path / TRAIN, size)
    some = f" of its first {MOST_TOKENS:,} tokens" if len(train) > MOST_TOKENS else " of the same text"
    model = modified_kneser_ney(train[:MOST_TOKENS], size, ORDER)
    return Baseline(f"{ORDER}-gram{some}", model.measure(tokens))


def _entropy(language: Language, tokens: Tokens) -> Baseline | None:
    """What the grammar itself needs for the whole lines of a text, if the run was trained on it and the text is its."""
    run, codec = language.run, language.codec
    if not run.has(FACTS) or read_json(run.path / FACTS)["source"] != GRAMMAR:
        return None
    text = codec.decode(tokens.tolist())
    lines = text[text.find("\n") + 1 : text.rfind("\n") + 1]
    if not lines:
        return None
    nats, count = ENGLISH.likelihood(lines).nats, len(codec.encode(lines))
    return Baseline("the grammar itself", Likelihood(nats, count)) if math.isfinite(nats) else None
