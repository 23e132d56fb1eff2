"""French sentences from derivations of the English grammar: agreement, position of adjectives, elision, contraction.

Words are first ordered and inflected. Elision and contraction, which depend on the next word, come last: l'île, du
marché, qu'elle.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.text.grammars.pcfg import Leaf, Node
from weft.text.grammars.trilingual.derivation import Action, leaf, node
from weft.text.grammars.trilingual.lexicon import (
    ADJECTIVES,
    ADVERBS,
    BEFORE,
    BEFORE_VOWEL,
    NAMES,
    NOUN_FORMS,
    NOUNS,
    NUMBERS,
    PREPOSITIONS,
    PRONOUNS,
    VERB_FORMS,
    Verb,
)

JE, IL, NOUS, ILS = range(4)  # the verb forms

_SOME = "des:some"  # the plural of un, which is dropped after de, unlike des = de + les
_ELIDED = frozenset({"le", "la", "je", "me", "ne", "de", "que"})
_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_VOWELS = frozenset("aeiouyhâéèêîôûœ")
_ASPIRATED = frozenset({"hibou", "hiboux"})  # an aspirated h prevents elision: le hibou
_BE = ("suis", "est", "sommes", "sont")
_LEAD = {"need": ["besoin", "de"], "go": ["à"], "come": ["de"]}  # between a verb and its object


class Phrase(NamedTuple):
    """Words, with the person and gender that others agree with."""

    words: list[str]
    person: int = IL
    gender: str = "m"


def sentence(tree: Node) -> str:
    """The French sentence of a derivation."""
    words: list[str] = []
    for part in tree.children:
        if isinstance(part, Node):
            words += _clause(part)
        else:
            words += {".": ["."], ",": [","], "and": ["et"], "but": ["mais"], "because": ["parce", "que"]}[part.word]
    text = " ".join(_contract(words)).replace("' ", "'").replace(" ,", ",").replace(" .", ".")
    return text[0].upper() + text[1:]


def begins_with_vowel(word: str) -> bool:
    """Whether the word before this one is elided."""
    return word[0].lower() in _VOWELS and word not in _ASPIRATED


def _contract(words: list[str]) -> list[str]:
    """Apply elision and contraction from the end, so that l'arbre is elided before de could contract with le."""
    spoken: list[str] = []
    for word in reversed(words):
        following = spoken[-1] if spoken else "."
        if word == "de" and following in ("de", "d'"):
            continue
        if word == "de" and following == _SOME:
            spoken[-1] = "d'" if begins_with_vowel(spoken[-2]) else "de"
        elif (word, following) in _CONTRACTED:
            spoken[-1] = _CONTRACTED[word, following]
        elif word in _ELIDED and begins_with_vowel(following):
            spoken.append(f"{word[:-1]}'")
        else:
            spoken.append(word)
    return ["des" if word == _SOME else word for word in reversed(spoken)]


def _clause(clause: Node) -> list[str]:
    inner = node(clause.children[0])
    parts = inner.children
    if inner.symbol == "scene":
        _, _, new, place = parts
        absent = node(new).children[0].symbol.startswith("no.")
        there_is = "il ne y a pas" if absent else "il y a"
        return [*there_is.split(), *_nominal(new).words, *_place(node(place))]
    subject = _nominal(parts[0])
    if inner.symbol == "description":
        verb = [_BE[subject.person]] if len(parts) == 3 else ["ne", _BE[subject.person], "pas"]
        quality = _inflect(leaf(parts[-1]).word, subject.gender, plural=subject.person == ILS)
        return [*subject.words, *verb, quality]
    return subject.words + _action(parts[1], subject.person)


def _nominal(part: Node | Leaf) -> Phrase:
    """A subject, object or place."""
    if isinstance(part, Leaf):
        if part.symbol.startswith("self"):
            return Phrase(["je"], JE) if part.word == "I" else Phrase(["nous"], NOUS)
        name = NAMES[part.word]
        return Phrase([name.french], IL, name.gender)
    if part.symbol.startswith("np."):
        return _noun_phrase(part)
    head = _nominal(part.children[0])
    if len(part.children) == 1:
        return head
    modifier = node(part.children[1])
    words = _place(modifier) if modifier.symbol == "place" else _relative(modifier, head)
    return head._replace(words=head.words + words)


def _relative(clause: Node, head: Phrase) -> list[str]:
    if len(clause.children) == 2:
        return ["qui", *_action(clause.children[1], head.person)]
    _, who, verb = clause.children
    subject = _nominal(who)
    return ["que", *subject.words, VERB_FORMS[leaf(verb).word].french[subject.person]]


def _noun_phrase(phrase: Node) -> Phrase:
    first, *adjectives, last = phrase.children
    noun, plural = NOUN_FORMS[leaf(last).word]
    form = noun.french[plural]
    before, after = [], []
    for adjective in (leaf(one).word for one in adjectives):
        agreeing = _inflect(adjective, noun.gender, plural)
        if adjective not in BEFORE:
            after.append(agreeing)
        elif begins_with_vowel(form) and not plural:
            before.append(BEFORE_VOWEL.get(agreeing, agreeing))
        else:
            before.append(agreeing)
    core = [*before, form, *after]
    if isinstance(first, Leaf):
        words = [_determiner(first.word, noun.gender, plural, core[0], bool(before)), *core]
    elif (owner := leaf(first.children[-1])).symbol == "possessive":
        words = [_possessive(owner.word, noun.gender, plural, core[0]), *core]
    else:
        words = [_article(noun.gender, plural), *core, "de", *_owner(owner.word.removesuffix("'s"))]
    return Phrase(words, ILS if plural else IL, noun.gender)


def _inflect(adjective: str, gender: str, plural: bool) -> str:
    return ADJECTIVES[adjective].french[(gender == "f") + 2 * plural]


def _article(gender: str, plural: bool) -> str:
    return "les" if plural else "la" if gender == "f" else "le"


def _determiner(word: str, gender: str, plural: bool, following: str, adjective_first: bool) -> str:
    if word in NUMBERS:
        return NUMBERS[word][0]
    if word == "the":
        return _article(gender, plural)
    if word == "a":
        return "une" if gender == "f" else "un"
    if word in ("any", "no"):
        return "de"
    if word == "some":
        return "de" if adjective_first else _SOME
    assert word in ("this", "these")
    if plural:
        return "ces"
    return "cette" if gender == "f" else "cet" if begins_with_vowel(following) else "ce"


def _possessive(word: str, gender: str, plural: bool, following: str) -> str:
    if word == "our":
        return "nos" if plural else "notre"
    if plural:
        return "mes"
    return "ma" if gender == "f" and not begins_with_vowel(following) else "mon"


def _owner(english: str) -> list[str]:
    if english in NAMES:
        return [NAMES[english].french]
    noun = NOUNS[english]
    return [_article(noun.gender, plural=False), noun.french[0]]


def _place(place: Node) -> list[str]:
    preposition, spot = place.children
    return [*PREPOSITIONS[leaf(preposition).word][0], *_nominal(spot).words]


def _action(action: Node | Leaf, person: int) -> list[str]:
    """A predicate: ne, pronoun, verb, pas or jamais or adverb, and complement."""
    read = Action.read(action)
    before, after = _complement(read.verb, read.complement)
    words = [*before, read.verb.french[person]]
    if read.negation:
        words = ["ne", *words, "jamais" if read.negation == "never" else "pas"]
    if read.adverb:
        words.append(ADVERBS[read.adverb][0])
    return words + after


def _complement(verb: Verb, complement: Node | None) -> tuple[list[str], list[str]]:
    """The parts of a complement before the verb (a pronoun) and after it."""
    if complement is None:
        return [], []
    if complement.symbol == "place":
        return [], _place(complement)
    first = complement.children[0]
    if isinstance(first, Leaf) and first.word in PRONOUNS:
        return [PRONOUNS[first.word][0]], []
    return [], _LEAD.get(verb.base, []) + _nominal(complement).words
