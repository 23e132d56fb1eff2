"""A tagger or a word segmenter behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.config import Settings, setting
from weft.errors import WeftError
from weft.tasks.service import MOST_ANSWERS, JsonRecord, Service, TextService
from weft.tasks.tag.command import segmented_record, tagged_record
from weft.tasks.tag.predictor import TagPredictor
from weft.text.arguments import short_repr
from weft.text.spans import OUTSIDE


@dataclass(frozen=True)
class SegmentOptions(Settings):
    """Options of a request to segment text."""

    n_best: int = setting(1, "how many segmentations of each text", low=1, high=MOST_ANSWERS)


@dataclass(frozen=True)
class TagOptions(Settings):
    """Options of a request to tag text."""

    n_best: int = setting(1, "how many tag sequences of each text", low=1, high=MOST_ANSWERS)
    split: str = setting("word", "how to split text into words", choices=("word", "space"))


def serve_tagger(model: TagPredictor) -> Service:
    """The service of a tagger."""
    segments = model.task == "segments"

    def predict(texts: Sequence[str], options: Any) -> list[JsonRecord]:
        if segments:
            words = model.segment_n_best(texts, options.n_best)
            found = [segmented_record(text, one, options.n_best) for text, one in zip(texts, words, strict=True)]
        else:
            paths, spans = model.n_best(texts, options.n_best, split=options.split), model.vocabulary.scheme is not None
            found = [tagged_record(text, one, spans, options.n_best) for text, one in zip(texts, paths, strict=True)]
        return [{**record, "offsets": word_offsets(record["text"], record["words"])} for record in found]

    service = TextService(
        capability="segment" if segments else "tag",
        options=SegmentOptions if segments else TagOptions,
        predict=predict,
        pipeline="token-classification",
        parameters={"aggregation_strategy": None, "ignore_labels": None, "stride": None},
        to_pipeline=to_entities,
        growth=lambda options: options.n_best,
    )
    words = [word for word in model.vocabulary.lexicon.words.tokens if word.isalpha()][:6]
    return Service((service,), labels=model.tags, example=("" if segments else " ").join(words))


def word_offsets(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Where each word stands in the text, as (begin, end) in code points.

    >>> word_offsets("Don't  go.", ["Do", "n't", "go", "."])
    [(0, 2), (2, 5), (7, 9), (9, 10)]
    """
    found, at = [], 0
    for word in words:
        begin = text.find(word, at)
        assert begin >= 0, "a word is a part of the text"
        at = begin + len(word)
        found.append((begin, at))
    return found


def to_entities(record: JsonRecord, parameters: Mapping[str, Any]) -> list[JsonRecord]:
    """[{entity_group, score, word, start, end}] of the spans, or of every word where tags are no spans.

    The score of a span is the smallest probability of its tags. Offsets are code points of the text as it was sent.
    """
    text, offsets, confidence = record["text"], record["offsets"], record["confidence"]
    ignored = parameters.get("ignore_labels")
    ignored = [OUTSIDE] if ignored is None else ignored
    if not isinstance(ignored, list) or not all(isinstance(label, str) for label in ignored):
        raise WeftError(f"ignore_labels is {short_repr(ignored)}", expected="a list of labels")
    if "spans" in record:
        spans = [(one["label"], one["start"], one["end"]) for one in record["spans"]]
    else:
        tags = record.get("tags") or ["word"] * len(offsets)
        spans = [(tag, at, at + 1) for at, tag in enumerate(tags)]
    found = []
    for label, first, last in spans:
        if label in ignored:
            continue
        start, end = offsets[first][0], offsets[last - 1][1]
        score = min(confidence[first:last])
        found.append({"entity_group": label, "score": score, "word": text[start:end], "start": start, "end": end})
    return found
