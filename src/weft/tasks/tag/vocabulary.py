"""The fields of a tagger: its words or characters, and its tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from weft.data.column import Column
from weft.series import ScaledSeries
from weft.tasks.tag.lexicon import LEXICONS, Lexicon, SeriesLexicon
from weft.text.conll import TaggedSentence
from weft.text.fields import Tags
from weft.text.spans import Scheme


class TaggerVocabulary(NamedTuple):
    """The words and tags of a tagger; the steps of series stand for words."""

    lexicon: Lexicon
    tag_field: Tags

    @property
    def series(self) -> ScaledSeries | None:
        """The field of series; None of a tagger of text."""
        return self.lexicon.field if isinstance(self.lexicon, SeriesLexicon) else None

    @property
    def tags(self) -> tuple[str, ...]:
        return self.tag_field.tags

    @property
    def scheme(self) -> Scheme | None:
        return self.tag_field.scheme

    @property
    def extra_tags(self) -> tuple[str, ...]:
        return self.tag_field.extra_tags

    def with_extra(self, tags: Iterable[str]) -> TaggerVocabulary:
        """The same with tags of held-out sentences only."""
        return self._replace(tag_field=replace(self.tag_field, extra_tags=tuple(tags)))

    def to_json(self) -> dict[str, Any]:
        return {"words": {"task": self.lexicon.task, **self.lexicon.to_json()}, "tags": self.tag_field.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaggerVocabulary:
        words = data["words"]
        return cls(LEXICONS[words["task"]].from_json(words), Tags.from_json(data["tags"]))

    def encode(self, words: Sequence[Sequence[str]]) -> dict[str, Column]:
        return as_columns(self.lexicon.encode(words))

    def encode_tagged(self, sentences: Sequence[TaggedSentence]) -> dict[str, Column]:
        """The same with tags and with whether each word is known (in segmentation: each word that the tags mark)."""
        return self._with_tags(self.encode([sentence.words for sentence in sentences]), sentences)

    def encode_training(self, sentences: Sequence[TaggedSentence]) -> dict[str, Column]:
        """The same for the sentences that the lexicon was built from."""
        return self._with_tags(as_columns(self.lexicon.encode_training(sentences)), sentences)

    def _with_tags(self, columns: dict[str, Column], sentences: Sequence[TaggedSentence]) -> dict[str, Column]:
        columns["tags"] = Column.from_rows(self.tag_field.encode(sentence.tags) for sentence in sentences)
        columns["known"] = Column.from_rows(self.lexicon.known(sentence) for sentence in sentences)
        return columns


def as_columns(rows: Mapping[str, Any]) -> dict[str, Column]:
    """Columns of ids, or of the values of series."""
    return {name: Column.from_rows(one, getattr(one[0], "dtype", np.int32) if one else np.int32)
            for name, one in rows.items()}  # fmt: skip
