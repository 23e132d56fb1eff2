"""Baselines of a language model: the uniform distribution, an n-gram model of its own text, the true entropy."""

from __future__ import annotations

import math
from typing import NamedTuple

from weft.data.windows import Tokens
from weft.metrics import Likelihood
from weft.tasks.kneser_ney import modified_kneser_ney
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.stored_data import TRAIN_PART, is_stored
from weft.tasks.text_task import part_tokens
from weft.text.grammars.english import ENGLISH
from weft.training.run import DATA_RECORD, read_json

ORDER = 5
BASELINE_TOKENS = 5_000_000  # counted at most, so that the baseline takes no longer than the evaluation
GRAMMAR_DATASET = "grammar"  # the data set whose entropy is known


class Baseline(NamedTuple):
    """A likelihood of the same text to compare with."""

    name: str
    likelihood: Likelihood


def baselines(model: LmPredictor, tokens: Tokens) -> list[Baseline]:
    """The baselines that exist for this model and this text, the strongest first."""
    run, size, count = model.run, len(model.text_field.vocabulary), len(tokens) - 1
    found = [_entropy(model, tokens)] if run.has(DATA_RECORD) else []
    if run.task != "ngram" and is_stored(run, TRAIN_PART):  # the text may have been deleted
        train = part_tokens(run, TRAIN_PART, size)
        part = f" of its first {BASELINE_TOKENS:,} tokens" if len(train) > BASELINE_TOKENS else " of the same text"
        ngram = modified_kneser_ney(train[:BASELINE_TOKENS], size, ORDER)
        found.append(Baseline(f"{ORDER}-gram{part}", ngram.evaluate(tokens)))
    return [*filter(None, found), Baseline("uniform baseline", Likelihood(count * math.log(size), count))]


def _entropy(model: LmPredictor, tokens: Tokens) -> Baseline | None:
    """The entropy of the embedded grammar on the whole lines of a text, if the run was trained on that grammar."""
    if read_json(model.run.path / DATA_RECORD)["source"] != GRAMMAR_DATASET:
        return None
    text = model.text_field.decode(tokens.tolist())
    lines = text[text.find("\n") + 1 : text.rfind("\n") + 1]
    if not lines:
        return None
    nats, count = ENGLISH.likelihood(lines).nats, len(model.text_field.encode(lines))
    return Baseline("true distribution", Likelihood(nats, count)) if math.isfinite(nats) else None
