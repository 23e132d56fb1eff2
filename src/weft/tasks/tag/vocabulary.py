"""The vocabulary of a tagger: its words or characters, its tags and their scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weft.data.column import Column
from weft.tasks.tag.lexicon import LEXICONS, Lexicon, Rows
from weft.text.conll import TaggedSentence
from weft.text.spans import SCHEMES, Scheme


class TaggerVocabulary(NamedTuple):
    """The words, tags and scheme of a tagger; stored in vocabulary.json."""

    lexicon: Lexicon
    tags: tuple[str, ...]
    scheme: Scheme | None
    extra_tags: tuple[str, ...] = ()  # tags of held-out sentences only; their ids follow those of the tags
    notes: tuple[str, ...] = ()  # what was repaired in the data

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.lexicon.task,
            "lexicon": self.lexicon.to_json(),
            "tags": list(self.tags),
            "scheme": self.scheme.name if self.scheme else None,
            "extra_tags": list(self.extra_tags),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaggerVocabulary:
        if not all(isinstance(tag, str) for tag in (*data["tags"], *data["extra_tags"])):
            raise ValueError("a tag is no text")
        return cls(
            LEXICONS[data["task"]].from_json(data["lexicon"]),
            tuple(data["tags"]),
            SCHEMES[data["scheme"]] if data["scheme"] else None,
            tuple(data["extra_tags"]),
            tuple(data["notes"]),
        )

    def encode(self, words: Sequence[Sequence[str]]) -> dict[str, Column]:
        return as_columns(self.lexicon.encode(words))

    def encode_tagged(self, sentences: Sequence[TaggedSentence]) -> dict[str, Column]:
        """The same with tags and with whether each word is known (in segmentation: each word that the tags mark)."""
        return self._with_tags(self.encode([sentence.words for sentence in sentences]), sentences)

    def encode_training(self, sentences: Sequence[TaggedSentence]) -> dict[str, Column]:
        """The same for the sentences that the lexicon was built from."""
        return self._with_tags(as_columns(self.lexicon.encode_training(sentences)), sentences)

    def _with_tags(self, columns: dict[str, Column], sentences: Sequence[TaggedSentence]) -> dict[str, Column]:
        numbers = {tag: number for number, tag in enumerate((*self.tags, *self.extra_tags))}
        columns["tags"] = Column.from_rows([numbers[tag] for tag in sentence.tags] for sentence in sentences)
        columns["known"] = Column.from_rows(self.lexicon.known(sentence) for sentence in sentences)
        return columns


def as_columns(rows: Rows) -> dict[str, Column]:
    return {name: Column.from_rows(one) for name, one in rows.items()}
