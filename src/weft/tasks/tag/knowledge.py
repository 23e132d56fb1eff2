"""What a tagger knows apart from its weights, and how good its tags are on sentences of known tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.data.buckets import Buckets, IntArray, Ragged, in_batches, take
from weft.metrics.tagging import SpanScores, TokenScores, WordScores
from weft.nn.crf import TagPath
from weft.tasks.tag.encoder import collate
from weft.tasks.tag.lexicon import LEXICONS, Lexicon
from weft.tasks.tag.model import Tagger
from weft.tasks.task import DATA
from weft.text.conll import TaggedSentence
from weft.text.spans import OUTSIDE, SCHEMES, Scheme, split_tag

HELD_OUT = f"{DATA}/dev.npz"
SPREAD = 1.0  # nats by which a kind's readiness is thought to be off, so that a few sentences do not move it far


class Knowledge(NamedTuple):
    """What a tagger knows apart from its weights; stored in vocabulary.json."""

    lexicon: Lexicon
    tags: tuple[str, ...]
    scheme: Scheme | None
    strange: tuple[str, ...] = ()  # tags that only held-out sentences have; their numbers follow those of the tags
    notes: tuple[str, ...] = ()  # what was repair_tags in the data

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
        return {name: Ragged.from_rows(rows) for name, rows in self.lexicon.encode(words).items()}

    def encode_tagged(self, sentences: Sequence[TaggedSentence]) -> dict[str, Ragged]:
        """The same with tags, and of each word (of the tags, where they tell words) whether it is known."""
        numbers = {tag: number for number, tag in enumerate((*self.tags, *self.strange))}
        columns = self.encode([sentence.words for sentence in sentences])
        columns["tags"] = Ragged.from_rows([numbers[tag] for tag in sentence.tags] for sentence in sentences)
        columns["known"] = Ragged.from_rows(self.lexicon.known(sentence) for sentence in sentences)
        return columns


class TagScores(NamedTuple):
    """How good tags are: word by word, and span by span where they are spans."""

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
    """The likeliest tags of every sentence."""
    model.eval()

    def run(rows: IntArray) -> list[TagPath]:
        inputs = collate(columns, rows)
        return model.output.decode(model(inputs), inputs.lengths)

    return in_batches(columns["words"].lengths, run)


def balance(model: Tagger, knowledge: Knowledge, columns: Mapping[str, Ragged]) -> None:
    """Let spans of each kind begin as readily as the sentences of the columns have it.

    Other text than that trained on has other shares of each kind, and kinds that are hard to tell are told too seldom.
    What is added to the scores of the tags that begin a span of a kind is what makes the sentences' tags likeliest.
    """
    model.eval()
    model.lean.zero_()
    names = columns["tags"]
    rows = np.array([row for row in range(len(names)) if (names[row] < len(knowledge.tags)).all()], dtype=np.int64)
    begins = beginnings(knowledge.tags).to(model.lean)  # (kinds, K)
    if not len(rows) or not len(begins):
        return

    def score(chosen: IntArray) -> tuple[Tensor, Tensor, Tensor]:
        inputs = collate(columns, rows[chosen])
        with torch.no_grad():
            scores = model(inputs)
        return scores, take(names, rows[chosen]).ids.to(scores.device), inputs.lengths

    batches = list(Buckets(names.lengths[rows], 8192, 256, 0, score).epoch(0))
    much = begins.new_zeros(len(begins), requires_grad=True)
    optimizer = torch.optim.LBFGS([much], max_iter=20, line_search_fn="strong_wolfe")

    def cost() -> float:
        optimizer.zero_grad()
        total = (much / SPREAD).square().sum() / 2
        for scores, tags, lengths in batches:
            total = total - model.output.log_likelihood(scores + much @ begins, tags, lengths).sum()
        total.backward(inputs=[much])  # type: ignore[no-untyped-call]
        return float(total.detach())

    optimizer.step(cost)  # type: ignore[no-untyped-call]
    model.lean += (much @ begins).detach()


def beginnings(tags: Sequence[str]) -> Tensor:
    """(kinds, K): which of the tags begin a span of each kind.

    >>> beginnings(["O", "B-A", "I-A", "S-B"]).tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """
    parts = [split_tag(tag) or (OUTSIDE, "") for tag in tags]
    kinds = dict.fromkeys(kind for letter, kind in parts if letter != OUTSIDE)
    return torch.tensor([[float(letter in "BS" and of == kind) for letter, of in parts] for kind in kinds])


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
