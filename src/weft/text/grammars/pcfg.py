"""Probabilistic context-free grammars: sampling, and the probability of a sentence."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from weft.errors import WeftError
from weft.text.word_tokenizer import WordTokenizer


class Leaf(NamedTuple):
    """A word of a derivation; `symbol` is its word class."""

    symbol: str
    word: str
    tag: str


class Node(NamedTuple):
    """A phrase of a derivation."""

    symbol: str
    children: tuple[Node | Leaf, ...]

    def leaves(self) -> Iterator[Leaf]:
        """The words below this node, from left to right."""
        for child in self.children:
            if isinstance(child, Leaf):
                yield child
            else:
                yield from child.leaves()


class Sentence(NamedTuple):
    """A sampled sentence: words, tags, the log-probability of its derivation in nats, and the derivation tree."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    log_prob: float
    tree: Node

    @property
    def text(self) -> str:
        return WordTokenizer().join(self.words)


class Rule(NamedTuple):
    """The right-hand side of a rule, and its log-probability."""

    log_prob: float
    symbols: tuple[str, ...]


class WordClass(NamedTuple):
    """A preterminal symbol: the tag of its words, and the log-probability of each word."""

    tag: str
    words: Mapping[str, float]


class GrammarLikelihood(NamedTuple):
    """The negative log-likelihood of a text under its grammar, in nats, and its length in words and characters.

    A line end counts as one word and as one character.
    """

    nats: float
    words: int
    characters: int


@dataclass(frozen=True, eq=False)
class Grammar:
    """A start symbol, rules of phrases, and word classes.

    Rules may be recursive, but not left-recursive, and the expected length of a sentence must be finite. A text
    consists of independent sentences, one per line.
    """

    start: str
    rules: Mapping[str, tuple[Rule, ...]]
    word_classes: Mapping[str, WordClass]

    def __post_init__(self) -> None:
        for left, rules in self.rules.items():
            for symbol in (symbol for rule in rules for symbol in rule.symbols):
                if symbol not in self.rules and symbol not in self.word_classes:
                    raise WeftError(f"{left} uses {symbol}, which has no rule and no words")
            if not all(rule.symbols for rule in rules):
                raise WeftError(f"{left} has an empty rule", expected="at least one symbol")
            if left in self._first_symbols(left):
                raise WeftError(f"{left} can begin with itself", expected="no left recursion")
        if self.start not in self.rules:
            raise WeftError(f"the start symbol {self.start} has no rule")
        if max(abs(np.linalg.eigvals(self._expected_children))) >= 1:
            raise WeftError("the expected length of a sentence is infinite", hint="less weight on the recursive rules")

    @classmethod
    def from_weights(
        cls,
        start: str,
        phrases: Mapping[str, Sequence[tuple[float, str]]],
        word_classes: Mapping[str, tuple[str, Mapping[str, float]]],
    ) -> Grammar:
        """Build a grammar from weights, which are normalized to probabilities.

        Args:
            start: the start symbol.
            phrases: for each symbol its rules, as (weight, "symbol symbol ...").
            word_classes: for each word class its tag and the weights of its words.
        """
        rules = {
            left: tuple(
                Rule(log_prob, tuple(right.split()))
                for log_prob, (_, right) in zip(_log_probs([w for w, _ in rows]), rows, strict=True)
            )
            for left, rows in phrases.items()
        }
        classes = {
            name: WordClass(tag, dict(zip(weights, _log_probs(list(weights.values())), strict=True)))
            for name, (tag, weights) in word_classes.items()
        }
        return cls(start, rules, classes)

    def _first_symbols(self, symbol: str) -> set[str]:
        """All symbols with which a derivation of `symbol` can begin."""
        found: set[str] = set()
        waiting = [symbol]
        while waiting:
            firsts = {rule.symbols[0] for rule in self.rules.get(waiting.pop(), ())} - found
            found |= firsts
            waiting += firsts
        return found

    # Sampling

    @cached_property
    def _cumulative(self) -> dict[str, list[float]]:
        """The cumulative probabilities of each symbol's rules or words, for sampling."""
        choices = {name: [rule.log_prob for rule in rules] for name, rules in self.rules.items()}
        choices |= {name: list(words.words.values()) for name, words in self.word_classes.items()}
        return {name: list(accumulate(map(math.exp, log_probs))) for name, log_probs in choices.items()}

    @cached_property
    def _word_lists(self) -> dict[str, list[tuple[str, float]]]:
        return {name: list(words.words.items()) for name, words in self.word_classes.items()}

    def sample(self, rng: random.Random) -> Sentence:
        """Sample a sentence."""
        log_prob = 0.0

        def grow(symbol: str) -> Node | Leaf:
            nonlocal log_prob
            cumulative = self._cumulative[symbol]
            choice = min(bisect(cumulative, rng.random()), len(cumulative) - 1)  # the last sum may round below 1
            if symbol in self.word_classes:
                word, word_log_prob = self._word_lists[symbol][choice]
                log_prob += word_log_prob
                return Leaf(symbol, word, self.word_classes[symbol].tag)
            rule = self.rules[symbol][choice]
            log_prob += rule.log_prob
            return Node(symbol, tuple(grow(child) for child in rule.symbols))

        tree = grow(self.start)
        assert isinstance(tree, Node)
        leaves = list(tree.leaves())
        return Sentence(tuple(leaf.word for leaf in leaves), tuple(leaf.tag for leaf in leaves), log_prob, tree)

    def text(self, sentences: int, seed: int) -> str:
        """Sample a text of independent sentences, one per line."""
        rng = random.Random(seed)
        return "".join(f"{self.sample(rng).text}\n" for _ in range(sentences))

    # Probability of given words

    def log_prob(self, words: Sequence[str]) -> float:
        """The log-probability of a sentence in nats, over all its derivations; -inf if it has none."""
        # The inside algorithm, top-down from left to right: where a symbol that starts here can end, and its weight.
        # Only spans that are consistent with the words to their left are visited.
        known: dict[tuple[str, int], dict[int, float]] = {}

        def ends(symbol: str, begin: int) -> dict[int, float]:
            if symbol in self.word_classes:
                log_probs = self.word_classes[symbol].words
                matches = begin < len(words) and words[begin] in log_probs
                return {begin + 1: log_probs[words[begin]]} if matches else {}
            if (symbol, begin) not in known:
                found: dict[int, float] = {}
                for rule in self.rules[symbol]:
                    reached = {begin: rule.log_prob}
                    for part in rule.symbols:
                        reached = _advance(reached, part)
                    for end, weight in reached.items():
                        found[end] = _log_add(found[end], weight) if end in found else weight
                known[symbol, begin] = found
            return known[symbol, begin]

        def _advance(reached: dict[int, float], part: str) -> dict[int, float]:
            further: dict[int, float] = {}
            for middle, weight in reached.items():
                for end, part_weight in ends(part, middle).items():
                    total = weight + part_weight
                    further[end] = _log_add(further[end], total) if end in further else total
            return further

        return ends(self.start, 0).get(len(words), -math.inf)

    def likelihood(self, text: str) -> GrammarLikelihood:
        """The likelihood of a text of complete lines: a bound for every model.

        It is infinite if the grammar does not derive one of the lines.
        """
        if not text.endswith("\n"):
            raise WeftError("the text does not end with a line end", expected="complete lines")
        lines = [WordTokenizer().split(line) for line in text[:-1].split("\n")]
        nats = -sum(self.log_prob(words) for words in lines)
        return GrammarLikelihood(nats, sum(len(words) + 1 for words in lines), len(text))

    @cached_property
    def _expected_children(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """The expected number of each symbol (column) in one expansion of a symbol (row)."""
        indices = {name: index for index, name in enumerate((*self.rules, *self.word_classes))}
        matrix = np.zeros((len(indices), len(indices)))
        for left, rules in self.rules.items():
            for rule in rules:
                for symbol in rule.symbols:
                    matrix[indices[left], indices[symbol]] += math.exp(rule.log_prob)
        return matrix


def _log_probs(weights: Sequence[float]) -> list[float]:
    if not weights or min(weights) <= 0:
        raise WeftError(f"weights are {list(weights)}", expected="at least one, all above 0")
    return [math.log(weight / sum(weights)) for weight in weights]


def _log_add(left: float, right: float) -> float:
    high, low = max(left, right), min(left, right)
    return high + math.log1p(math.exp(low - high))
