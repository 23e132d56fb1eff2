"""What a tagger knows apart from its weights, and how good its tags are on sentences of known tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch

from weft.buckets import Numbers, Ragged, in_batches
from weft.crf import TagPath
from weft.metrics.tagging import SpanScores, TokenScores, WordScores
from weft.models.tagger import Tagger
from weft.models.words import collate
from weft.text.columns import Sentence
from weft.text.lexicon import LEXICONS, Lexicon
from weft.text.spans import OUTSIDE, SCHEMES, Scheme

LEANINGS = (0.0, 0.25, 0.5)  # nats that the score of O may be lowered by
ENOUGH = 0.005  # F1 that is no reason to lean further: other text than the held-out may have fewer spans


class Knowledge(NamedTuple):
    """What a tagger knows apart from its weights; stored in vocabulary.json."""

    lexicon: Lexicon
    tags: tuple[str, ...]
    scheme: Scheme | None
    strange: tuple[str, ...] = ()  # tags that only held-out sentences have; their numbers follow those of the tags
    notes: tuple[str, ...] = ()  # what was mended in the data

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.lexicon.task,
            "lexicon": self.lexicon.to_json(),
            "tags": list(self.tags),
            "scheme": self.scheme.name if self.scheme else None,
            "strange": list(self.strange),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Knowledge:
        return cls(
            LEXICONS[data["task"]].from_json(data["lexicon"]),
            tuple(data["tags"]),
            SCHEMES[data["scheme"]] if data["scheme"] else None,
            tuple(data["strange"]),
            tuple(data["notes"]),
        )

    def encode(self, words: Sequence[Sequence[str]]) -> dict[str, Ragged]:
        return {name: Ragged.of(rows) for name, rows in self.lexicon.encode(words).items()}

    def encode_tagged(self, sentences: Sequence[Sentence]) -> dict[str, Ragged]:
        """The same with tags, and of each word (of the tags, where they tell words) whether it is known."""
        numbers = {tag: number for number, tag in enumerate((*self.tags, *self.strange))}
        columns = self.encode([sentence.words for sentence in sentences])
        columns["tags"] = Ragged.of([numbers[tag] for tag in sentence.tags] for sentence in sentences)
        columns["known"] = Ragged.of(self.lexicon.known(sentence) for sentence in sentences)
        return columns


class TagScores(NamedTuple):
    """How good tags are: word by word, and span by span where they are spans."""

    words: TokenScores
    spans: SpanScores | None

    def score(self) -> float:
        return (self.spans or self.words).score()

    def signature(self) -> str:
        return (self.spans or self.words).signature()

    def facts(self) -> dict[str, float]:
        return {**self.words.facts(), **(self.spans.facts() if self.spans else {})}


@torch.no_grad()
def decode(model: Tagger, columns: Mapping[str, Ragged]) -> list[TagPath]:
    """The likeliest tags of every sentence."""
    model.eval()

    def run(rows: Numbers) -> list[TagPath]:
        inputs = collate(columns, rows)
        return model.output.decode(model(inputs), inputs.lengths)

    return in_batches(columns["words"].lengths, run)


@torch.no_grad()
def balance(model: Tagger, knowledge: Knowledge, columns: Mapping[str, Ragged]) -> None:
    """Let the model lean away from O by as much as gives the best F1 of spans, or all but the best."""
    model.eval()
    outside = torch.zeros_like(model.lean)
    outside[knowledge.tags.index(OUTSIDE)] = 1
    model.lean.zero_()

    def run(rows: Numbers) -> list[list[list[int]]]:
        inputs = collate(columns, rows)
        scores = model(inputs)
        ways = [model.output.decode(scores - much * outside, inputs.lengths) for much in LEANINGS]
        return [[path.tags for path in paths] for paths in zip(*ways, strict=True)]

    names = (*knowledge.tags, *knowledge.strange)
    totals = [SpanScores() for _ in LEANINGS]
    for row, ways in enumerate(in_batches(columns["words"].lengths, run)):
        true = [names[number] for number in columns["tags"][row].tolist()]
        for at, tags in enumerate(ways):
            totals[at] += SpanScores.of(true, [names[number] for number in tags])
    best = max(total.score() for total in totals)
    least = next(much for much, total in zip(LEANINGS, totals, strict=True) if total.score() >= best - ENOUGH)
    model.lean -= least * outside


def measure(model: Tagger, knowledge: Knowledge, columns: Mapping[str, Ragged]) -> TagScores | WordScores:
    """How good the model's tags are, held against those of the columns."""
    names = (*knowledge.tags, *knowledge.strange)
    tokens, spans, words = [TokenScores()], [SpanScores()], [WordScores()]
    for row, path in enumerate(decode(model, columns)):
        true = [names[number] for number in columns["tags"][row].tolist()]
        tags = [names[number] for number in path.tags]
        known = columns["known"][row].tolist()
        if knowledge.lexicon.task == "segments":
            words.append(WordScores.of(true, tags, known))
            continue
        tokens.append(TokenScores.of(true, tags, known))
        if knowledge.scheme:
            spans.append(SpanScores.of(true, tags))
    if knowledge.lexicon.task == "segments":
        return reduce(add, words)
    return TagScores(reduce(add, tokens), reduce(add, spans) if knowledge.scheme else None)
