"""Probabilistic context-free grammars: sentences at random, and what an ideal model can know about them.

Every rule is chosen independently, so the entropy of a sentence has a closed form: the expected number of uses of
each symbol, times the entropy of the choice it makes. It is the entropy of derivations; where no sentence has two
derivations, as in the grammar of `weft.text.grammars.english`, it is that of sentences.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from weft.errors import WeftError
from weft.text.word_tokenizer import WordTokenizer


class Leaf(NamedTuple):
    """A word in a derivation, below the word class it was drawn from."""

    symbol: str
    word: str
    tag: str


class Node(NamedTuple):
    """A phrase in a derivation."""

    symbol: str
    children: tuple[Node | Leaf, ...]

    def leaves(self) -> Iterator[Leaf]:
        for child in self.children:
            if isinstance(child, Leaf):
                yield child
            else:
                yield from child.leaves()


class Sentence(NamedTuple):
    """One derivation: its words and their tags, the log-probability of all its choices in nats, and its tree."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    log_prob: float
    tree: Node

    @property
    def text(self) -> str:
        return WordTokenizer().join(self.words)


class Rule(NamedTuple):
    """One way to rewrite a symbol, with the log-probability of choosing it."""

    log_prob: float
    symbols: tuple[str, ...]


class WordClass(NamedTuple):
    """A symbol that becomes one word: the tag of its words, and the log-probability of each."""

    tag: str
    words: Mapping[str, float]


class GrammarLikelihood(NamedTuple):
    """What the model that knows the grammar needs for a text, in nats, and what there was to predict.

    A line end counts as one word token and as one character.
    """

    nats: float
    words: int
    characters: int

    @property
    def perplexity_per_word(self) -> float:
        return math.exp(self.nats / self.words)

    @property
    def perplexity_per_character(self) -> float:
        return math.exp(self.nats / self.characters)


@dataclass(frozen=True, eq=False)
class Grammar:
    """A start symbol, rules for phrases, and classes of words.

    Rules may recur, but not through their first symbol (no left recursion), and a sentence must be of finite
    length on average. A text is made of independent sentences, one a line.
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
                raise WeftError(f"{left} has an empty rule", expected="one symbol or more")
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
        """From tables that are easy to write: `symbol -> (weight, "symbol symbol ...")` and `class -> (tag, weights)`.

        Weights are relative; those of a symbol need not sum to one.
        """
        rules = {
            left: tuple(
                Rule(log_prob, tuple(right.split()))
                for log_prob, (_, right) in zip(_log_shares([w for w, _ in rows]), rows, strict=True)
            )
            for left, rows in phrases.items()
        }
        classes = {
            name: WordClass(tag, dict(zip(weights, _log_shares(list(weights.values())), strict=True)))
            for name, (tag, weights) in word_classes.items()
        }
        return cls(start, rules, classes)

    def _first_symbols(self, symbol: str) -> set[str]:
        """All symbols that some derivation of `symbol` can begin with."""
        found: set[str] = set()
        waiting = [symbol]
        while waiting:
            firsts = {rule.symbols[0] for rule in self.rules.get(waiting.pop(), ())} - found
            found |= firsts
            waiting += firsts
        return found

    # Sampling

    @cached_property
    def _wheels(self) -> dict[str, list[float]]:
        """For every symbol the running sums of its probabilities, to turn a uniform number into a choice."""
        choices = {name: [rule.log_prob for rule in rules] for name, rules in self.rules.items()}
        choices |= {name: list(words.words.values()) for name, words in self.word_classes.items()}
        return {name: list(accumulate(map(math.exp, log_probs))) for name, log_probs in choices.items()}

    @cached_property
    def _word_lists(self) -> dict[str, list[tuple[str, float]]]:
        return {name: list(words.words.items()) for name, words in self.word_classes.items()}

    def sample(self, rng: random.Random) -> Sentence:
        """One sentence at random."""
        log_prob = 0.0

        def grow(symbol: str) -> Node | Leaf:
            nonlocal log_prob
            wheel = self._wheels[symbol]
            choice = min(bisect(wheel, rng.random()), len(wheel) - 1)  # sums may end a rounding below one
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
        """Independent sentences, one a line; the same for the same seed."""
        rng = random.Random(seed)
        return "".join(f"{self.sample(rng).text}\n" for _ in range(sentences))

    # Probability of given words

    def log_prob(self, words: Sequence[str]) -> float:
        """The log-probability of a sentence in nats, summed over its derivations; -inf if it has none."""
        return self._inside(words, lambda log_prob: log_prob)

    def derivations(self, words: Sequence[str]) -> int:
        """In how many ways the grammar derives a sentence."""
        return round(math.exp(self._inside(words, lambda log_prob: 0.0)))

    def _inside(self, words: Sequence[str], weigh: Callable[[float], float]) -> float:
        """The inside algorithm, from the top and the left: where can a symbol that begins here end, and how likely.

        Only spans that the words to their left allow are looked at, so it is quick where few are possible.
        """
        known: dict[tuple[str, int], dict[int, float]] = {}

        def ends(symbol: str, begin: int) -> dict[int, float]:
            if symbol in self.word_classes:
                log_probs = self.word_classes[symbol].words
                matches = begin < len(words) and words[begin] in log_probs
                return {begin + 1: weigh(log_probs[words[begin]])} if matches else {}
            if (symbol, begin) not in known:
                found: dict[int, float] = {}
                for rule in self.rules[symbol]:
                    reached = {begin: weigh(rule.log_prob)}
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
        """What an ideal model needs for a text of whole lines; infinite if the grammar cannot make one of them."""
        if not text.endswith("\n"):
            raise WeftError("the text does not end with a line end", expected="whole lines")
        lines = [WordTokenizer().split(line) for line in text[:-1].split("\n")]
        nats = -sum(self.log_prob(words) for words in lines)
        return GrammarLikelihood(nats, sum(len(words) + 1 for words in lines), len(text))

    # Expectations

    @cached_property
    def _expected_children(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """How many of each symbol (column) one use of a symbol (row) makes on average."""
        places = {name: place for place, name in enumerate((*self.rules, *self.word_classes))}
        matrix = np.zeros((len(places), len(places)))
        for left, rules in self.rules.items():
            for rule in rules:
                for symbol in rule.symbols:
                    matrix[places[left], places[symbol]] += math.exp(rule.log_prob)
        return matrix

    @cached_property
    def expected_uses(self) -> dict[str, float]:
        """How often each symbol occurs in a sentence on average: u = start + u A, solved for u."""
        names = [*self.rules, *self.word_classes]
        start = np.array([float(name == self.start) for name in names])
        uses = np.linalg.solve(np.eye(len(names)) - self._expected_children.T, start)
        return dict(zip(names, uses.tolist(), strict=True))

    def entropy_per_sentence(self) -> float:
        """In nats: the uses of each symbol times the entropy of its choice."""
        choices = {name: [rule.log_prob for rule in rules] for name, rules in self.rules.items()}
        choices |= {name: list(words.words.values()) for name, words in self.word_classes.items()}
        return sum(self.expected_uses[name] * _entropy(log_probs) for name, log_probs in choices.items())

    def expected_words(self) -> float:
        """Words and punctuation marks of a sentence, its line end not counted."""
        return sum(self.expected_uses[name] for name in self.word_classes)

    def expected_characters(self) -> float:
        """Characters of a sentence on its line, the line end included."""
        return sum(
            self.expected_uses[name] * math.exp(log_prob) * _width(word, word_class.tag)
            for name, word_class in self.word_classes.items()
            for word, log_prob in word_class.words.items()
        )

    def entropy_per_word(self) -> float:
        """The entropy rate of the text in nats per word token, a line end being one of them."""
        return self.entropy_per_sentence() / (self.expected_words() + 1)

    def entropy_per_character(self) -> float:
        """The entropy rate of the text in nats per character, line ends included."""
        return self.entropy_per_sentence() / self.expected_characters()


def _width(word: str, tag: str) -> int:
    """The characters that a word adds to its line.

    A space before each word, none before punctuation; the first word has none either, and the line end makes up
    for that one.
    """
    return len(word) + (tag != "PUNCT")


def _log_shares(weights: Sequence[float]) -> list[float]:
    if not weights or min(weights) <= 0:
        raise WeftError(f"weights are {list(weights)}", expected="one or more, all above 0")
    return [math.log(weight / sum(weights)) for weight in weights]


def _entropy(log_probs: Sequence[float]) -> float:
    return -sum(math.exp(log_prob) * log_prob for log_prob in log_probs)


def _log_add(left: float, right: float) -> float:
    high, low = max(left, right), min(left, right)
    return high + math.log1p(math.exp(low - high))
