"""How good a tagger is on sentences of known tags, and the calibration of its span-start biases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft import html
from weft.data.buckets import Buckets, in_batches, take
from weft.data.column import Column, IntArray
from weft.metrics import Confusion, Likelihood
from weft.metrics.paired import ExampleStatistics, f1_score, ratio
from weft.metrics.tagging import SpanScores, TokenScores, WordScores
from weft.nn.crf import TagPath
from weft.tasks.tag.encoder import collate
from weft.tasks.tag.model import Tagger, TaggerMixture
from weft.tasks.tag.vocabulary import TaggerVocabulary
from weft.text.conll import count_noun
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

    def _repr_html_(self) -> str:
        """The scores, and those of each label of spans, for notebooks."""
        return html.box(html.score_line(self.metrics()) + (self.spans.label_table() if self.spans else ""))


@torch.no_grad()
def decode(model: Tagger | TaggerMixture, columns: Mapping[str, Column]) -> list[TagPath]:
    """Predicts the tags of every sentence."""
    model.eval()

    def run(rows: IntArray) -> list[TagPath]:
        inputs = collate(columns, rows)
        return model.output.decode(model(inputs), inputs.lengths)

    return in_batches(columns["words"].lengths, run)


class ScoredPath(NamedTuple):
    """The predicted tags of a sentence, and how probable its true ones are."""

    path: TagPath
    log_likelihood: float  # in nats; NaN if the model lacks one of the true tags


@torch.no_grad()
def decode_and_score(model: Tagger | TaggerMixture, columns: Mapping[str, Column]) -> list[ScoredPath]:
    """Predicts the tags of every sentence and scores its true ones, which have to be valid."""
    model.eval()

    def run(rows: IntArray) -> list[ScoredPath]:
        inputs = collate(columns, rows)
        scores, true = model(inputs), take(columns["tags"], rows).ids
        known = (true < scores.shape[2]).all(1)
        log_likelihood = torch.full((len(rows),), torch.nan)
        log_likelihood[known] = model.output.log_likelihood(scores[known], true[known], inputs.lengths[known]).cpu()
        paths = model.output.decode(scores, inputs.lengths)
        return [ScoredPath(*one) for one in zip(paths, log_likelihood.tolist(), strict=True)]

    return in_batches(columns["words"].lengths, run)


def calibrate(model: Tagger, vocabulary: TaggerVocabulary, columns: Mapping[str, Column]) -> None:
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
    model: Tagger | TaggerMixture, vocabulary: TaggerVocabulary, columns: Mapping[str, Column]
) -> TagScores | WordScores:
    """Compares the model's tags with those of the columns."""
    return _total(_sentence_scores(decode(model, columns), vocabulary, columns))


def evaluate_with_loss(
    model: Tagger | TaggerMixture, vocabulary: TaggerVocabulary, columns: Mapping[str, Column]
) -> tuple[TagScores | WordScores, float]:
    """The scores, and the cross-entropy per token of the sentences whose tags the model knows."""
    decoded = decode_and_score(model, columns)
    known = [row for row, one in enumerate(decoded) if not math.isnan(one.log_likelihood)]
    loss = Likelihood(-sum(decoded[row].log_likelihood for row in known), int(columns["tags"].lengths[known].sum()))
    return _total(_sentence_scores([one.path for one in decoded], vocabulary, columns)), loss.cross_entropy


def _total(found: list[TagScores] | list[WordScores]) -> TagScores | WordScores:
    if isinstance(found[0], WordScores):
        return reduce(add, (one for one in found if isinstance(one, WordScores)))
    tagged = [one for one in found if isinstance(one, TagScores)]
    spans = [one.spans for one in tagged if one.spans is not None]
    return TagScores(reduce(add, (one.words for one in tagged)), reduce(add, spans) if spans else None)


def _sentence_scores(
    paths: Sequence[TagPath], vocabulary: TaggerVocabulary, columns: Mapping[str, Column]
) -> list[TagScores] | list[WordScores]:
    """The scores of each sentence; those of an empty sentence where there is none."""
    names = (*vocabulary.tags, *vocabulary.extra_tags)
    compared: list[tuple[list[str], list[str], list[int]]] = []
    for row, path in enumerate(paths):
        true = [names[number] for number in columns["tags"][row].tolist()]
        compared.append((true, [names[number] for number in path.tags], columns["known"][row].tolist()))
    compared = compared or [([], [], [])]
    if vocabulary.lexicon.task == "segments":
        return [WordScores.of(*one) for one in compared]
    spans = [SpanScores.of(true, tags) if vocabulary.scheme else None for true, tags, _ in compared]
    return [TagScores(TokenScores.of(*one), own) for one, own in zip(compared, spans, strict=True)]


def tag_metrics(scores: TagScores | WordScores) -> dict[str, float]:
    """The metrics of predicted tags."""
    return {"score": scores.score(), **scores.metrics()}


def score_lines(found: TagScores | WordScores, unit: str = "word") -> Iterator[str]:
    """The scores as people read them."""
    if isinstance(found, WordScores):
        yield f"word F1          {found.words.f1:.4f}"
        yield f"precision        {found.words.precision:.4f}"
        yield f"recall           {found.words.recall:.4f}"
        hits = found.known, found.unknown
    else:
        yield f"accuracy         {found.words.accuracy:.4f} of {count_noun(found.words.all.count, unit)}"
        hits = found.words.known, found.words.unknown
    for name, one in zip(("known words", "unknown words"), hits, strict=True):
        if one.count and unit == "word":
            yield f"  {name:13}  {one.accuracy:.4f} of {one.count:,}"
    if isinstance(found, WordScores) or found.spans is None:
        return
    kinds = sorted(found.spans.labels.items())
    wide = max([8, *(len(kind) for kind, _ in kinds)])
    yield ""
    yield f"{'spans':{wide}}  precision  recall      F1       true   found"
    for kind, scores in [*kinds, ("all", found.spans.all)]:
        numbers = f"{scores.precision:9.4f}  {scores.recall:6.4f}  {scores.f1:6.4f}  {scores.true:9,}"
        yield f"{kind:{wide}}  {numbers}  {scores.predicted:6,}"


def tag_confusion(
    model: Tagger | TaggerMixture, vocabulary: TaggerVocabulary, columns: Mapping[str, Column]
) -> Confusion:
    """How often each tag was predicted for each true tag."""
    names = (*vocabulary.tags, *vocabulary.extra_tags)
    pairs = (
        (names[true], names[predicted])
        for row, path in enumerate(decode(model, columns))
        for true, predicted in zip(columns["tags"][row].tolist(), path.tags, strict=True)
    )
    return Confusion.of(names, pairs)


def tag_statistics(
    model: Tagger | TaggerMixture, vocabulary: TaggerVocabulary, columns: Mapping[str, Column]
) -> tuple[ExampleStatistics, ...]:
    """Accuracy, and F1 where tags are spans or words, of each sentence."""
    accuracies, matches = [], []
    for one in _sentence_scores(decode(model, columns), vocabulary, columns):
        if isinstance(one, WordScores):
            matches.append(one.words)
            continue
        accuracies.append(one.words.all)
        if one.spans is not None:
            matches.append(one.spans.all)
    found = []
    tags = f"tags:{','.join(vocabulary.tags)}"
    if matches:
        sums = np.array([[one.correct, one.predicted, one.true] for one in matches], dtype=np.float64)
        found.append(ExampleStatistics("f1", "sentence", f"f1|{tags}", sums, f1_score))
    if accuracies:
        sums = np.array([[one.correct, one.count] for one in accuracies], dtype=np.float64)
        found.append(ExampleStatistics("accuracy", "sentence", f"accuracy|{tags}", sums, ratio))
    return tuple(found)
