"""A second count for grammars: derivations of a sentence."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

from weft.text.grammars.pcfg import Grammar


def derivations(grammar: Grammar, words: Sequence[str]) -> int:
    """The number of derivations of a sentence: its probability where every rule and every word has probability 1."""
    counting = copy.copy(grammar)
    rules = {name: tuple(rule._replace(log_prob=0.0) for rule in rules) for name, rules in grammar.rules.items()}
    classes = {name: one._replace(words=dict.fromkeys(one.words, 0.0)) for name, one in grammar.word_classes.items()}
    vars(counting).update(rules=rules, word_classes=classes)
    return round(math.exp(counting.log_prob(words)))
