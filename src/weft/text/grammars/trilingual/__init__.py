"""Sentences in English, French and Chinese that mean the same: parallel text made here, with real agreement.

A grammar draws an English sentence; its derivation is then said in French and in Chinese. What English leaves open
never occurs (no "you", no "they"), and no sentence has two derivations, so the English text alone settles its
translations: a perfect translator can be right every time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from weft.errors import WeftError, unknown_name
from weft.text.grammars.pcfg import Node
from weft.text.grammars.trilingual import chinese, french
from weft.text.grammars.trilingual.grammar import english, english_grammar

__all__ = ["LANGUAGES", "LONGEST", "Triple", "english_grammar", "text", "translate", "triples"]

LONGEST = 20  # words of an English sentence


class Triple(NamedTuple):
    """One meaning in three languages."""

    english: str
    french: str
    chinese: str


LANGUAGES: dict[str, Callable[[Node], str]] = {
    "french": french.sentence,
    "chinese": chinese.sentence,
}


def translate(tree: Node) -> Triple:
    """A derivation of `english_grammar` in all three languages."""
    return Triple(english(tree), french.sentence(tree), chinese.sentence(tree))


def triples(count: int, seed: int = 0) -> list[Triple]:
    """So many different sentences of at most 20 English words, by chance; the same ones for the same seed.

    >>> triples(1, seed=3)
    [Triple(english='The spider is dancing.', french="L'araignée danse.", chinese='蜘蛛正在跳舞。')]
    """
    return [translate(tree) for tree in _trees(count, seed).values()]


def text(language: str, count: int = 20_000, seed: int = 0) -> str:
    """Tab-separated lines: an English sentence and its translation into this language."""
    if language not in LANGUAGES:
        raise unknown_name("language", language, LANGUAGES)
    say = LANGUAGES[language]
    return "".join(f"{sentence}\t{say(tree)}\n" for sentence, tree in _trees(count, seed).items())


def _trees(count: int, seed: int) -> dict[str, Node]:
    """Derivations by their English sentences."""
    if count < 1:
        raise WeftError(f"the number of sentences is {count}", expected="1 or more")
    rng = random.Random(seed)
    found: dict[str, Node] = {}
    while len(found) < count:
        tree = english_grammar().sample(rng).tree
        sentence = english(tree)
        if sentence.count(" ") < LONGEST:
            found.setdefault(sentence, tree)
    return found
