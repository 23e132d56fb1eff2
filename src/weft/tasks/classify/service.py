"""A classifier behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.config import Settings, setting
from weft.errors import WeftError
from weft.tasks.classify.command import classified_record
from weft.tasks.classify.predictor import ClassifyPredictor
from weft.tasks.service import JsonRecord, Service, TextService
from weft.text.arguments import short_repr
from weft.text.vocabulary import RESERVED


@dataclass(frozen=True)
class ClassifyOptions(Settings):
    """Options of a request."""

    weights: bool = setting(False, "also return the weight of each token")


def serve_classifier(model: ClassifyPredictor) -> Service:
    """The service of a classifier."""

    def predict(texts: Sequence[str], options: ClassifyOptions) -> list[JsonRecord]:
        found = model.classify(texts)
        return [classified_record(text, one, options.weights) for text, one in zip(texts, found, strict=True)]

    service = TextService(
        capability="classify",
        options=ClassifyOptions,
        predict=predict,
        pipeline="text-classification",
        parameters={"top_k": None, "function_to_apply": None},
        to_pipeline=to_labels,
        listed=True,
    )
    tokens = model.codec.vocabulary.tokens[len(RESERVED) :][:6]
    return Service((service,), labels=model.labels, example=model.codec.tokenizer.join(tokens))


def to_labels(record: JsonRecord, parameters: Mapping[str, Any]) -> list[JsonRecord]:
    """[{label, score}], the most probable label first."""
    ordered = sorted(record["probabilities"].items(), key=lambda pair: -pair[1])
    count = parameters.get("top_k")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise WeftError(f"top_k is {short_repr(count)}", expected="a number of labels, 1 or more")
    return [{"label": label, "score": score} for label, score in ordered[:count]]
