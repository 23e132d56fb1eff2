"""Generated parallel text in English, French and Chinese, with correct agreement.

A grammar samples an English sentence, and its derivation is translated into French and Chinese. Words that are
ambiguous in English do not occur (no "you", no "they"), and no sentence has two derivations, so the English sentence
determines its translations: a perfect model reaches an accuracy of 100 %.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from weft.errors import WeftError, unknown_name
from weft.text.grammars.pcfg import Node
from weft.text.grammars.trilingual import chinese, french
from weft.text.grammars.trilingual.grammar import english, english_grammar

MAX_WORDS = 20  # of an English sentence


LANGUAGES: dict[str, Callable[[Node], str]] = {
    "french": french.sentence,
    "chinese": chinese.sentence,
}


def text(language: str, count: int = 20_000, seed: int = 0) -> str:
    """Sample parallel text: tab-separated lines of `count` different English sentences and their translations.

    >>> text("french", 1, seed=3), text("chinese", 1, seed=3)
    ("The spider is dancing.\\tL'araignée danse.\\n", 'The spider is dancing.\\t蜘蛛正在跳舞。\\n')
    """
    if language not in LANGUAGES:
        raise unknown_name("language", language, LANGUAGES)
    render = LANGUAGES[language]
    return "".join(f"{sentence}\t{render(tree)}\n" for sentence, tree in _trees(count, seed).items())


def _trees(count: int, seed: int) -> dict[str, Node]:
    """Derivations, by English sentence."""
    if count < 1:
        raise WeftError(f"the number of sentences is {count}", expected="1 or more")
    rng = random.Random(seed)
    found: dict[str, Node] = {}
    while len(found) < count:
        tree = english_grammar().sample(rng).tree
        sentence = english(tree)
        if sentence.count(" ") < MAX_WORDS:
            found.setdefault(sentence, tree)
    return found
