"""Models side by side: how well each predicts the hidden tokens of the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.config import assignment, changed
from weft.data.windows import Tokens
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.tasks import load
from weft.tasks.operation import EvaluationReport
from weft.tasks.text_task import TextPredictor, corpus_for, encoded, held_out_tokens


class ComparedModel(NamedTuple):
    """One row of a comparison."""

    name: str
    context: str
    predictions: TokenPredictions


def compare(model: TextPredictor[Any], others: Sequence[TextPredictor[Any]], tokens: Tokens) -> list[ComparedModel]:
    """The uniform and the unigram baseline, the others, and the model itself, all on the same tokens."""
    for other in others:
        if not isinstance(other, TextPredictor):
            raise WeftError(
                f"{other.run.path} is a run of the task {other.run.task!r}", expected="one that predicts tokens, as lm"
            )
        check_same_tokens(model, other)
    counts = np.array(model.text_field.vocabulary.counts) + 1.0  # add-one smoothing: no token is impossible
    rows = [
        ComparedModel("uniform baseline", "none", _constant(np.ones_like(counts), tokens)),
        ComparedModel("unigram baseline", "none", _constant(counts, tokens)),
    ]
    return rows + [
        ComparedModel(str(one.run.path), one.context, one.predict_tokens(tokens)) for one in (*others, model)
    ]


def compare_runs(
    model: Any, against: Sequence[str], data: str | None, adapt: str | None = None, *, strict: bool = False
) -> EvaluationReport:
    """What `weft eval --against` reports: the model beside other runs, on a text or on its own held-out text.

    With `adapt` the model stands there also as it adapts to the text: "dynamic", "cache" or "both".
    """
    others: list[Any] = [load(path) for path in against]  # `compare` refuses what predicts no tokens
    adapted = None if adapt is None else model.adapt(adapt)

    def report(tokens: Tokens, more: Mapping[str, Any]) -> EvaluationReport:
        rows = compare(model, others, tokens)
        beside = []
        if adapted is not None:
            name = f"{model.run.path}, adapted ({adapt})"
            beside.append(ComparedModel(name, adapted.context, adapted.predict_tokens(tokens)))
        record, lines = _table(model, rows, beside)
        found: EvaluationReport = model.report({**record, **more}, lines)
        return found

    if data is None:
        return report(held_out_tokens(model.run, model.text_field), {})
    corpus = corpus_for(model.run, data, strict=strict)
    with encoded(corpus, model.text_field) as tokens:
        return report(tokens, {"left_out": corpus.left_out})


def _table(
    model: TextPredictor[Any], rows: Sequence[ComparedModel], adapted: Sequence[ComparedModel]
) -> tuple[dict[str, Any], list[str]]:
    """All rows as a record and as lines. The result is that of the last of `rows`, the model as it was trained."""
    level, last = model.text_field.tokenizer.name, rows[-1].predictions
    own = len(rows) - 1
    rows = [*rows, *adapted]
    compared = [
        {
            "name": row.name,
            "context": row.context,
            "perplexity": row.predictions.likelihood.perplexity,
            "cross_entropy": row.predictions.likelihood.cross_entropy,
            "accuracy": row.predictions.accuracy,
        }
        for row in rows
    ]
    head = {"tokens": last.likelihood.count, "level": level, "signature": last.signature(level)}
    title = f"model of a hidden {level}"
    wide = max(len(title), *(len(row.name) for row in rows))
    lines = [f"{title:{wide}}  {'context':10}  perplexity  accuracy"]
    for name, context, found in rows:
        lines.append(f"{name:{wide}}  {context:10}  {found.likelihood.perplexity:10.2f}  {found.accuracy:8.1%}")
    lines.append(f"({last.likelihood.count:,} tokens)")
    return {**head, **compared[own], "compared": compared}, lines


def _constant(weights: np.ndarray[Any, np.dtype[np.float64]], tokens: Tokens) -> TokenPredictions:
    """The predictions of a fixed distribution, proportional to the weights."""
    targets = np.asarray(tokens[1:])
    nats = -np.log(weights / weights.sum())[targets].sum()
    best = np.flatnonzero(weights == weights.max())  # a tie is broken at random
    return TokenPredictions(Likelihood(float(nats), len(targets)), round(np.isin(targets, best).sum() / len(best)))


def check_same_tokens(model: TextPredictor[Any], other: TextPredictor[Any]) -> None:
    """Perplexities can only be compared over the same tokens of the same vocabulary."""
    own, its = model.text_field, other.text_field
    same_tokens = own.normalizer == its.normalizer and own.tokenizer == its.tokenizer
    if same_tokens and own.vocabulary.tokens == its.vocabulary.tokens:
        return
    settings = changed(other.run.config.get("text", {}), model.run.config.get("text", {}))
    wanted = " ".join(assignment(f"text.{key}", value) for key, (_, value) in settings.items())
    raise WeftError(
        f"{other.run.path} has other tokens than {model.run.path} ({len(its.vocabulary):,} different ones, "
        f"not {len(own.vocabulary):,})",
        expected="a run on the same text with the same `text` settings",
        hint=f"train it again with {wanted}" if wanted else "train both on the same `source`",
    )
