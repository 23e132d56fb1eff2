"""How good a tagger is on sentences of known tags, and the calibration of its span-start biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.data.buckets import Buckets, IntArray, Ragged, in_batches, take
from weft.metrics.tagging import SpanScores, TokenScores, WordScores
from weft.nn.crf import TagPath
from weft.tasks.tag.encoder import collate
from weft.tasks.tag.model import Tagger
from weft.tasks.tag.vocabulary import TaggerVocabulary
from weft.text.spans import OUTSIDE, split_tag

PRIOR_STD = 1.0  # nats; standard deviation of the prior of a span-start bias, so that few sentences move it little


class TagScores(NamedTuple):
    """Scores of words and, where tags are spans, of spans."""

    words: TokenScores
    spans: SpanScores | None

    def score(self) -> float:
        return (self.spans or self.words).score()

    def signature(self) -> str:
        return (self.spans or self.words).signature()

    def metrics(self) -> dict[str, float]:
        return {**self.words.metrics(), **(self.spans.metrics() if self.spans else {})}


@torch.no_grad()
def decode(model: Tagger, columns: Mapping[str, Ragged]) -> list[TagPath]:
    """Predicts the tags of every sentence."""
    model.eval()

    def run(rows: IntArray) -> list[TagPath]:
        inputs = collate(columns, rows)
        return model.output.decode(model(inputs), inputs.lengths)

    return in_batches(columns["words"].lengths, run)


def calibrate(model: Tagger, vocabulary: TaggerVocabulary, columns: Mapping[str, Ragged]) -> None:
    """Fits the span-start bias of each label to sentences of known tags, in place.

    Frequencies of labels differ between texts, and labels that are hard to predict are predicted too seldom. The bias
    is added to the scores of the tags that begin a span; the fit maximizes the likelihood of the sentences' tags.
    """
    model.eval()
    model.span_start_bias.zero_()
    names = columns["tags"]
    rows = np.array([row for row in range(len(names)) if (names[row] < len(vocabulary.tags)).all()], dtype=np.int64)
    begins = beginnings(vocabulary.tags).to(model.span_start_bias)  # (labels, K)
    if not len(rows) or not len(begins):
        return

    def score(chosen: IntArray) -> tuple[Tensor, Tensor, Tensor]:
        inputs = collate(columns, rows[chosen])
        with torch.no_grad():
            scores = model(inputs)
        return scores, take(names, rows[chosen]).ids.to(scores.device), inputs.lengths

    batches = list(Buckets(names.lengths[rows], 8192, 256, 0, score).epoch(0))
    bias = begins.new_zeros(len(begins), requires_grad=True)
    optimizer = torch.optim.LBFGS([bias], max_iter=20, line_search_fn="strong_wolfe")

    def objective() -> float:
        optimizer.zero_grad()
        total = (bias / PRIOR_STD).square().sum() / 2
        for scores, tags, lengths in batches:
            total = total - model.output.log_likelihood(scores + bias @ begins, tags, lengths).sum()
        total.backward(inputs=[bias])  # type: ignore[no-untyped-call]
        return float(total.detach())

    optimizer.step(objective)  # type: ignore[no-untyped-call]
    model.span_start_bias += (bias @ begins).detach()


def beginnings(tags: Sequence[str]) -> Tensor:
    """(labels, K): which of the tags begin a span of each label.

    >>> beginnings(["O", "B-A", "I-A", "S-B"]).tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """
    parts = [split_tag(tag) or (OUTSIDE, "") for tag in tags]
    kinds = dict.fromkeys(kind for letter, kind in parts if letter != OUTSIDE)
    return torch.tensor([[float(letter in "BS" and of == kind) for letter, of in parts] for kind in kinds])


def evaluate_tagger(
    model: Tagger, vocabulary: TaggerVocabulary, columns: Mapping[str, Ragged]
) -> TagScores | WordScores:
    """Compares the model's tags with those of the columns."""
    names = (*vocabulary.tags, *vocabulary.extra_tags)
    tokens, spans, words = [TokenScores()], [SpanScores()], [WordScores()]
    for row, path in enumerate(decode(model, columns)):
        true = [names[number] for number in columns["tags"][row].tolist()]
        tags = [names[number] for number in path.tags]
        known = columns["known"][row].tolist()
        if vocabulary.lexicon.task == "segments":
            words.append(WordScores.of(true, tags, known))
            continue
        tokens.append(TokenScores.of(true, tags, known))
        if vocabulary.scheme:
            spans.append(SpanScores.of(true, tags))
    if vocabulary.lexicon.task == "segments":
        return reduce(add, words)
    return TagScores(reduce(add, tokens), reduce(add, spans) if vocabulary.scheme else None)
