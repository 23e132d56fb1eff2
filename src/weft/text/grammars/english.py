"""A small grammar of English with known entropy.

A model trained on its text can be compared with the optimum. Subject and verb agree in number over any distance,
relative clauses nest, and the part of speech of a few words (that, light, watch, dance) depends on their context.
"""

from __future__ import annotations

from weft.text.grammars.pcfg import Grammar, GrammarLikelihood, Leaf, Node, Sentence

__all__ = ["ENGLISH", "PHRASES", "WORDS", "Grammar", "GrammarLikelihood", "Leaf", "Node", "Sentence"]

# A symbol with # is two symbols: one for the singular (.sg), one for the plural (.pl).
# The grammar is unambiguous, because each verb takes an object, a place or neither, without a choice; adverbs precede
# their verb; and a noun is followed by a place or a relative clause, but not by both.
PHRASES: dict[str, list[tuple[float, str]]] = {
    "sentence": [(85, "clause stop"), (15, "clause comma conjunction clause stop")],
    "clause": [(55, "subject.sg predicate.sg"), (45, "subject.pl predicate.pl")],
    "subject.sg": [(70, "being.sg"), (15, "name"), (15, "pronoun.sg")],
    "subject.pl": [(85, "being.pl"), (15, "pronoun.pl")],
    "being.#": [(65, "bare.#"), (15, "bare.# place"), (20, "bare.# relative.#")],
    "bare.#": [(60, "determiner.# noun.#"), (40, "determiner.# quality noun.#")],
    "quality": [(80, "adjective"), (20, "adjective adjective")],
    "relative.#": [
        (60, "relativizer predicate.#"),
        (22, "relativizer subject.sg transitive.sg"),
        (18, "relativizer subject.pl transitive.pl"),
    ],
    "predicate.#": [(85, "action.#"), (15, "adverb action.#")],
    "action.#": [(35, "intransitive.#"), (40, "transitive.# object"), (25, "posture.# place")],
    "object": [(30, "being.sg"), (25, "being.pl"), (20, "thing.sg"), (15, "thing.pl"), (10, "name")],
    "thing.#": [(65, "determiner.# item.#"), (35, "determiner.# adjective item.#")],
    "place": [(75, "preposition spot.sg"), (25, "preposition spot.pl")],
    "spot.#": [(75, "determiner.# site.#"), (25, "determiner.# adjective site.#")],
}

# The tag of each word class, and its words. The n-th word has weight 1/n (Zipf's law).
WORDS: dict[str, tuple[str, str]] = {
    "determiner.sg": ("DET", "the a this every that"),
    "determiner.pl": ("DET", "the some these those"),
    "noun.sg": ("NOUN", "cat dog child bird teacher farmer sailor king"),
    "noun.pl": ("NOUN", "cats dogs children birds teachers farmers sailors kings"),
    "item.sg": ("NOUN", "book light letter song watch dance"),
    "item.pl": ("NOUN", "books lights letters songs watches dances"),
    "site.sg": ("NOUN", "house river garden tree bridge market"),
    "site.pl": ("NOUN", "houses rivers gardens trees bridges markets"),
    "adjective": ("ADJ", "small big young red quiet brave light strange"),
    "name": ("PROPN", "mia tom lena max"),
    "pronoun.sg": ("PRON", "she he"),
    "pronoun.pl": ("PRON", "they"),
    "relativizer": ("PRON", "that"),
    "intransitive.sg": ("VERB", "sleeps laughs waits dances sings"),
    "intransitive.pl": ("VERB", "sleep laugh wait dance sing"),
    "transitive.sg": ("VERB", "sees likes finds follows watches remembers"),
    "transitive.pl": ("VERB", "see like find follow watch remember"),
    "posture.sg": ("VERB", "sits lives stands plays"),
    "posture.pl": ("VERB", "sit live stand play"),
    "adverb": ("ADV", "often never always quietly"),
    "preposition": ("ADP", "in near behind under by"),
    "conjunction": ("CCONJ", "and but"),
    "comma": ("PUNCT", ","),
    "stop": ("PUNCT", "."),
}


def _english() -> Grammar:
    rules = {
        name.replace("#", number): [(weight, right.replace("#", number)) for weight, right in rows]
        for name, rows in PHRASES.items()
        for number in ("sg", "pl")
    }
    classes = {
        name: (tag, {word: 1 / place for place, word in enumerate(listed.split(), start=1)})
        for name, (tag, listed) in WORDS.items()
    }
    return Grammar.from_weights("sentence", rules, classes)


ENGLISH = _english()
