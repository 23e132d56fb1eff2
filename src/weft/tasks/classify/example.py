"""An example of text classification, and examples of the embedded grammar."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from weft.text.grammars.english import ENGLISH, Node


class Example(NamedTuple):
    """A text, or a series, and its label."""

    value: Any
    label: str
    place: str  # file and line, for messages


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
