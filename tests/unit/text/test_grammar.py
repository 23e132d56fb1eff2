"""Grammars with known entropy: against enumeration for small grammars, against samples for the embedded one."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from functools import cache

import numpy as np
import pytest

from tests.checks.grammars import derivations
from weft.errors import WeftError
from weft.text.grammars.english import ENGLISH, PHRASES, WORDS
from weft.text.grammars.pcfg import Grammar, Leaf
from weft.text.tokenizers import WordTokenizer

FINITE = Grammar.from_weights(
    "S",
    {"S": [(3, "subject verb stop"), (2, "subject verb subject stop")], "subject": [(1, "noun"), (4, "det noun")]},
    {
        "noun": ("NOUN", {"猫": 5, "狗": 3, "birds": 2}),
        "det": ("DET", {"the": 1}),
        "verb": ("VERB", {"see": 1, "hear": 3}),
        "stop": ("PUNCT", {".": 1}),
    },
)
NESTED = Grammar.from_weights("S", {"S": [(7, "w"), (2, "w S"), (1, "w S S")]}, {"w": ("X", {"a": 1, "b": 1})})
TWO_WAYS = Grammar.from_weights(
    "S",
    {"S": [(1, "one"), (1, "two"), (2, "one two")]},
    {"one": ("X", {"a": 1, "b": 1}), "two": ("X", {"a": 3, "c": 1})},
)


def derivations_within(grammar: Grammar, room: int) -> list[tuple[tuple[str, ...], float]]:
    """Every derivation of at most `room` words, as its words and its log-probability."""

    @cache
    def expand(symbol: str, room: int) -> list[tuple[tuple[str, ...], float]]:
        if symbol in grammar.word_classes:
            words = grammar.word_classes[symbol].words
            return [((word,), log_prob) for word, log_prob in words.items()] if room >= 1 else []
        return [
            (words, rule.log_prob + log_prob)
            for rule in grammar.rules[symbol]
            for words, log_prob in sequence(rule.symbols, room)
        ]

    @cache
    def sequence(symbols: tuple[str, ...], room: int) -> list[tuple[tuple[str, ...], float]]:
        if not symbols:
            return [((), 0.0)]
        return [
            (head + tail, head_log_prob + tail_log_prob)
            for head, head_log_prob in expand(symbols[0], room - len(symbols) + 1)
            for tail, tail_log_prob in sequence(symbols[1:], room - len(head))
        ]

    return expand(grammar.start, room)


class TestAgainstEnumeration:
    def test_log_prob_of_every_sentence(self) -> None:
        for words, log_prob in derivations_within(FINITE, 10):
            assert FINITE.log_prob(words) == pytest.approx(log_prob, abs=1e-12)
            assert derivations(FINITE, words) == 1

    def test_impossible_sentences(self) -> None:
        possible = {words for words, _ in derivations_within(FINITE, 4)}
        for length in range(5):
            for words in itertools.product(["猫", "the", "see", ".", "fish"], repeat=length):
                assert (FINITE.log_prob(words) == -math.inf) == (words not in possible)
                assert derivations(FINITE, words) == (words in possible)

    def test_sentences_with_several_derivations_sum_them(self) -> None:
        assert derivations(TWO_WAYS, ["a"]) == 2
        assert TWO_WAYS.log_prob(["a"]) == pytest.approx(math.log(0.25 * 0.5 + 0.25 * 0.75))
        assert derivations(TWO_WAYS, ["a", "a"]) == 1
        every: Counter[tuple[str, ...]] = Counter()
        ways = Counter(words for words, _ in derivations_within(NESTED, 6))
        for words, log_prob in derivations_within(NESTED, 6):
            every[words] += math.exp(log_prob)  # type: ignore[assignment]
        assert max(ways.values()) > 1
        for words, probability in every.items():
            assert NESTED.log_prob(words) == pytest.approx(math.log(probability))
            assert derivations(NESTED, words) == ways[words]


class TestEnglish:
    def test_no_short_sentence_has_two_derivations(self) -> None:
        """Of each class one word stands for all that only this class has; shared words are all kept."""
        classes = Counter(word for word_class in ENGLISH.word_classes.values() for word in word_class.words)
        kept = {}
        for name, word_class in ENGLISH.word_classes.items():
            own = [word for word in word_class.words if classes[word] == 1][:1]
            shared = [word for word in word_class.words if classes[word] > 1]
            kept[name] = (word_class.tag, dict.fromkeys(own + shared, 1.0))
        phrases = {
            name: [(math.exp(rule.log_prob), " ".join(rule.symbols)) for rule in rules]
            for name, rules in ENGLISH.rules.items()
        }
        small = Grammar.from_weights("sentence", phrases, kept)
        sentences = [words for words, _ in derivations_within(small, 11)]
        assert len(sentences) > 200_000
        assert len(sentences) == len(set(sentences))

    def test_no_sampled_sentence_has_two_derivations(self) -> None:
        rng = random.Random(5)
        for _ in range(3000):
            sentence = ENGLISH.sample(rng)
            assert derivations(ENGLISH, sentence.words) == 1
            assert ENGLISH.log_prob(sentence.words) == pytest.approx(sentence.log_prob, abs=1e-9)

    def test_sampled_rules_have_their_probabilities(self) -> None:
        rng = random.Random(7)
        words = Counter(
            leaf.word for _ in range(5000) for leaf in ENGLISH.sample(rng).tree.leaves() if leaf.symbol == "adverb"
        )
        shares = np.array([words[word] for word in WORDS["adverb"][1].split()]) / words.total()
        np.testing.assert_allclose(shares, np.array([12, 6, 4, 3]) / 25, atol=0.06)

    def test_trees(self) -> None:
        sentence = ENGLISH.sample(random.Random(3))
        leaves = list(sentence.tree.leaves())
        assert tuple(leaf.word for leaf in leaves) == sentence.words
        assert tuple(leaf.tag for leaf in leaves) == sentence.tags
        assert all(isinstance(leaf, Leaf) and leaf.tag == WORDS[leaf.symbol][0] for leaf in leaves)
        assert sentence.tree.symbol == "sentence"
        assert (sentence.words[-1], sentence.tags[-1]) == (".", "PUNCT")

    def test_agreement(self) -> None:
        assert derivations(ENGLISH, ["the", "cat", "that", "the", "small", "dogs", "see", "sleeps", "."]) == 1
        assert derivations(ENGLISH, ["the", "cats", "that", "this", "dog", "sees", "sleep", "."]) == 1
        assert ENGLISH.log_prob(["the", "cat", "that", "the", "small", "dogs", "see", "sleep", "."]) == -math.inf
        assert ENGLISH.log_prob(["this", "cats", "sleep", "."]) == -math.inf
        assert ENGLISH.log_prob(["the", "cat", "near", "the", "houses", "sleeps"]) == -math.inf

    def test_some_words_have_two_tags(self) -> None:
        tags: dict[str, set[str]] = {}
        for tag, words in WORDS.values():
            for word in words.split():
                tags.setdefault(word, set()).add(tag)
        assert {word for word, found in tags.items() if len(found) > 1} == {
            *("that", "light", "watch", "watches", "dance", "dances")
        }
        assert 60 <= len(tags) <= 120

    def test_a_never_meets_a_vowel(self) -> None:
        after_a = ("noun.sg", "item.sg", "site.sg", "adjective")
        assert not [word for name in after_a for word in WORDS[name][1].split() if word[0] in "aeiou"]

    def test_singular_and_plural_tables_are_parallel(self) -> None:
        for name in WORDS:
            if name.endswith(".sg") and not name.startswith(("determiner", "pronoun")):
                assert len(WORDS[name][1].split()) == len(WORDS[name[:-2] + "pl"][1].split())
        assert all(isinstance(weight, (int, float)) for rows in PHRASES.values() for weight, _ in rows)


class TestText:
    def test_is_reproducible_and_reads_as_text(self) -> None:
        text = ENGLISH.text(200, seed=1)
        assert text == ENGLISH.text(200, seed=1) != ENGLISH.text(200, seed=2)
        assert text.startswith(ENGLISH.text(100, seed=1))
        lines = text.splitlines()
        assert len(lines) == 200
        assert all(line.endswith(".") and " ." not in line and " ," not in line for line in lines)

    def test_word_tokens_are_the_words(self) -> None:
        rng = random.Random(8)
        for _ in range(300):
            sentence = ENGLISH.sample(rng)
            assert tuple(WordTokenizer().split(sentence.text)) == sentence.words

    def test_likelihood_of_sampled_text(self) -> None:
        rng = random.Random(9)
        sentences = [ENGLISH.sample(rng) for _ in range(500)]
        ideal = ENGLISH.likelihood("".join(f"{sentence.text}\n" for sentence in sentences))
        assert ideal.nats == pytest.approx(-sum(sentence.log_prob for sentence in sentences))
        assert ideal.words == sum(len(sentence.words) + 1 for sentence in sentences)
        assert ideal.characters == sum(len(sentence.text) + 1 for sentence in sentences)

    def test_no_model_does_better_on_average(self) -> None:
        """Cross-entropy with any other grammar over the same words is larger."""
        even = {name: (tag, dict.fromkeys(words.split(), 1.0)) for name, (tag, words) in WORDS.items()}
        phrases = {
            name: [(math.exp(rule.log_prob), " ".join(rule.symbols)) for rule in rules]
            for name, rules in ENGLISH.rules.items()
        }
        text = ENGLISH.text(500, seed=4)
        assert (
            Grammar.from_weights("sentence", phrases, even).likelihood(text).nats > ENGLISH.likelihood(text).nats + 50
        )

    def test_mistakes(self) -> None:
        assert ENGLISH.likelihood("the cat sleeps.\nthe cat sleep.\n").nats == math.inf
        assert ENGLISH.likelihood("猫睡觉。\n").nats == math.inf
        with pytest.raises(WeftError, match="does not end with a line end"):
            ENGLISH.likelihood("the cat sleeps.")


@pytest.mark.parametrize(
    ("phrases", "message"),
    [
        ({"S": [(1, "w missing")]}, "S uses missing, which has no rule and no words"),
        ({"S": [(1, "S w"), (1, "w")]}, "S can begin with itself"),
        ({"S": [(1, "T w"), (1, "w")], "T": [(1, "S")]}, "can begin with itself"),
        ({"S": [(1, "")]}, "empty rule"),
        ({"S": [(0, "w")]}, "all above 0"),
        ({"S": []}, "at least one"),
        ({"T": [(1, "w")]}, "start symbol S has no rule"),
        ({"S": [(1, "w S S"), (1, "w")]}, "expected length of a sentence is infinite"),
    ],
)
def test_invalid_grammars(phrases: dict[str, list[tuple[float, str]]], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        Grammar.from_weights("S", phrases, {"w": ("X", {"a": 1})})
