"""An example of text classification, the order of labels, and examples of the embedded grammar."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from weft.text.grammars.english import ENGLISH, Node


class Example(NamedTuple):
    text: str
    label: str
    place: str  # file and line, for messages


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels, numbers in numeric order, names in alphabetic order.

    >>> ordered_labels(["10", "9", "9"]), ordered_labels(["pos", "neg"])
    (('9', '10'), ('neg', 'pos'))
    """
    different = set(labels)
    if all(re.fullmatch(r"-?\d+", label) for label in different):
        return tuple(sorted(different, key=lambda label: (int(label), label)))
    return tuple(sorted(different))


def label_counts(content: Mapping[str, Any]) -> dict[str, int]:
    """The labels in vocabulary.json, and how often each occurs in the training data."""
    counts: dict[str, int] = content["labels"]
    if not all(type(count) is int and count >= 0 for count in counts.values()) or not sum(counts.values()):
        raise ValueError("labels without numbers")
    return counts


def grammar_examples(sentences: int, seed: int) -> list[Example]:
    """Sentences of the embedded grammar, labelled by the grammatical number of their first subject.

    >>> [one[:2] for one in grammar_examples(2, seed=8)]
    [('the kings near a river sit in the bridge.', 'plural'), ('she finds some farmers in that river.', 'singular')]
    """
    rng = random.Random(seed)
    found = []
    for number in range(sentences):
        sentence = ENGLISH.sample(rng)
        clause = sentence.tree.children[0]
        assert isinstance(clause, Node)
        label = {"subject.sg": "singular", "subject.pl": "plural"}[clause.children[0].symbol]
        found.append(Example(sentence.text, label, f"grammar:{number + 1}"))
    return found
