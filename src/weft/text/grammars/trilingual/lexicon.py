"""The lexicon: English words with their French forms and Chinese translations, from `lexicon.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


class Noun(NamedTuple):
    """A noun: singular and plural, French gender, Chinese measure word."""

    singular: str
    plural: str
    french: tuple[str, str]
    gender: str
    chinese: str
    measure: str
    kind: str  # person, animal, thing or place


class Adjective(NamedTuple):
    """An adjective: four French forms (m, f, m plural, f plural); Chinese attributive and predicative form."""

    english: str
    french: tuple[str, str, str, str]
    chinese: str
    predicate: str


class Verb(NamedTuple):
    """A verb: English sleep, sleeps, sleeping; French je, il, nous, ils; Chinese, and its negation with 不."""

    base: str
    singular: str
    gerund: str
    french: tuple[str, str, str, str]
    chinese: str
    negated: str


class Name(NamedTuple):
    """A name or a third-person pronoun."""

    english: str
    french: str
    gender: str
    chinese: str


_TABLES: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

NOUNS = {row[0]: Noun(*row) for row in _TABLES["nouns"]}
ADJECTIVES = {row[0]: Adjective(*row) for row in _TABLES["adjectives"]}
VERBS = {row[0]: Verb(*row) for row in _TABLES["verbs"]}
NAMES = {row[0]: Name(*row) for row in _TABLES["names"]}

# Nouns by use: as a person, animal or thing; after in, on, under, near; as a destination.
NOUN_CLASSES: dict[str, list[str]] = _TABLES["noun_classes"]
# The adjectives of each noun class: those before the noun in French, and those after it.
ADJECTIVE_CLASSES: dict[str, tuple[list[str], list[str]]] = _TABLES["adjective_classes"]
VERB_CLASSES: dict[str, list[str]] = _TABLES["verb_classes"]
OTHER_WORDS: dict[str, list[str]] = _TABLES["other_words"]  # by word class of the grammar

# By English form: the noun and whether the form is plural; the verb.
NOUN_FORMS = {form: (noun, form == noun.plural) for noun in NOUNS.values() for form in (noun.singular, noun.plural)}
VERB_FORMS = {form: verb for verb in VERBS.values() for form in (verb.base, verb.singular, verb.gerund)}

# Adjectives that precede their noun in French, and their form before a masculine noun that begins with a vowel.
BEFORE = frozenset(_TABLES["before"])
BEFORE_VOWEL: dict[str, str] = _TABLES["before_vowel"]
# Chinese has three words for "old": of beings (in ADJECTIVES), of things, and of places.
OLD: dict[str, tuple[str, str]] = _TABLES["old"]

# By English word, in French and in Chinese.
PRONOUNS: dict[str, tuple[str, str]] = _TABLES["pronouns"]
NUMBERS: dict[str, tuple[str, str]] = _TABLES["numbers"]
ADVERBS: dict[str, tuple[str, str]] = _TABLES["adverbs"]
# French words ("de" and "à" contract with an article), and the Chinese word after the place, which follows 在.
PREPOSITIONS: dict[str, tuple[list[str], str]] = _TABLES["prepositions"]
