"""A small grammar of English with known entropy.

A model trained on its text can be compared with the optimum. Subject and verb agree in number over any distance,
relative clauses nest, and the part of speech of a few words (that, light, watch, dance) depends on their context. Its
words are in `english.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

from weft.text.grammars.pcfg import Grammar

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
    name: (tag, words)
    for name, (tag, words) in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
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
