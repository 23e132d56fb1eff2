"""The fields of what is said of a text, a label or a tag for each of its words. The text: `weft.text.text_field`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from weft.data.field import Field
from weft.text.spans import OUTSIDE, SCHEMES, WORD_SCHEME, Scheme, split_tag


@dataclass(frozen=True)
class Label(Field[str]):
    """One of several labels, with how often each occurs in the training data.

    >>> field = Label.fit(["10", "9", "9"])
    >>> field.labels, field.encode("10"), field.decode([0])
    (('9', '10'), [1], '9')
    """

    counts: dict[str, int]

    @classmethod
    def fit(cls, values: Iterable[str], settings: Sequence[str] | None = None) -> Label:
        """The field of labels: numbers in numeric order, names in alphabetic order, or in the order of `settings`."""
        counts = Counter(values)
        return cls({label: counts[label] for label in settings or ordered_labels(counts)})

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.counts)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.counts)}

    def encode(self, value: str) -> list[int]:
        return [self._places[value]]

    def decode(self, row: Any) -> str:
        return self.labels[int(row[0])]

    def names(self, value: str) -> tuple[str, ...]:
        return (value,)

    def parse(self, text: str) -> str:
        return text

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.counts)}

    def to_json(self) -> dict[str, Any]:
        return {"labels": self.counts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Label:
        counts: dict[str, int] = data["labels"]
        if not all(type(count) is int and count >= 0 for count in counts.values()) or not sum(counts.values()):
            raise ValueError("labels without numbers")
        return cls(counts)


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels, numbers in numeric order, names in alphabetic order.

    >>> ordered_labels(["10", "9", "9"]), ordered_labels(["pos", "neg"])
    (('9', '10'), ('neg', 'pos'))
    """
    different = set(labels)
    if all(re.fullmatch(r"-?\d+", label) for label in different):
        return tuple(sorted(different, key=lambda label: (int(label), label)))
    return tuple(sorted(different))


@dataclass(frozen=True)
class Tags(Field[Sequence[str]]):
    """A tag for each word of a sentence; where they mark spans, their scheme.

    >>> field = Tags.fit([["O", "B-X"], ["O"]], SCHEMES["bio"])
    >>> field.tags, field.encode(["O", "B-X"]), field.decode([2])
    (('O', 'B-X', 'I-X'), [0, 1], ('I-X',))
    """

    tags: tuple[str, ...]
    scheme: Scheme | None = None
    extra_tags: tuple[str, ...] = ()  # of held-out sentences only; their ids follow those of the tags

    @classmethod
    def fit(cls, values: Iterable[Sequence[str]], settings: Scheme | None = None) -> Tags:
        """The field of the tags of sentences; where they are spans, with every letter of the scheme for every label."""
        tags, scheme = dict.fromkeys(tag for sentence in values for tag in sentence), settings
        if scheme is None:
            return cls(tuple(sorted(tags)))
        letters = dict.fromkeys(scheme[1:])
        kinds = sorted({parts[1] for parts in map(split_tag, tags) if parts and parts[0] != OUTSIDE})
        written = [f"{letter}-{kind}" if kind else letter for kind in kinds for letter in letters]
        outside = () if OUTSIDE not in tags and scheme == WORD_SCHEME else (OUTSIDE,)
        return cls((*outside, *written), scheme)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {tag: number for number, tag in enumerate((*self.tags, *self.extra_tags))}

    def encode(self, value: Sequence[str]) -> list[int]:
        return [self._numbers[tag] for tag in value]

    def decode(self, row: Any) -> tuple[str, ...]:
        names = (*self.tags, *self.extra_tags)
        return tuple(names[int(number)] for number in row)

    def names(self, value: Sequence[str]) -> tuple[str, ...]:
        return tuple(value)

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "enum": list(self.tags)}}

    def to_json(self) -> dict[str, Any]:
        scheme = self.scheme.name if self.scheme else None
        return {"tags": list(self.tags), "scheme": scheme, "extra_tags": list(self.extra_tags)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tags:
        tags, extra = data["tags"], data["extra_tags"]
        if not isinstance(tags, list) or not isinstance(extra, list):
            raise ValueError("the tags are no list")
        if not all(isinstance(tag, str) for tag in (*tags, *extra)):
            raise ValueError("a tag is no text")
        return cls(tuple(tags), SCHEMES[data["scheme"]] if data["scheme"] else None, tuple(extra))
