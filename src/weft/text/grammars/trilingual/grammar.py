"""The English side: the grammar of the sentences, and their spelling."""

from __future__ import annotations

from functools import cache

from weft.text.grammars.pcfg import Grammar, Node
from weft.text.grammars.trilingual.lexicon import (
    ADJECTIVE_CLASSES,
    NOUN_CLASSES,
    NOUNS,
    OTHER_WORDS,
    VERB_CLASSES,
    VERBS,
)

Rules = dict[str, list[tuple[float, str]]]


# Placeholders: # is the number, sg or pl; @ is the subject, sg, pl, i or we; % is the verb form that agrees with it, sg
# or base. Noun classes: see NOUN_CLASSES.
_PHRASES: Rules = {
    "sentence": [(76, "clause stop"), (14, "clause comma conjunction clause stop"), (10, "clause because clause stop")],
    "clause": [(74, "event"), (14, "description"), (12, "scene")],
    "event": [
        (42, "subject.sg action.sg"), (32, "subject.pl action.pl"), (15, "self.i action.i"), (11, "self.we action.we"),
    ],
    "subject.sg": [(68, "being.sg"), (17, "name"), (15, "pronoun")],
    "subject.pl": [(1, "being.pl")],
    # Noun phrases of beings and things, followed by a place or a relative clause, but not by both.
    "being.#": [
        (30, "np.determiner.person.#"), (28, "np.determiner.animal.#"), (10, "np.owner.animal.#"),
        (5, "np.determiner.person.# place"), (5, "np.determiner.animal.# place"),
        (8, "np.determiner.person.# relative.#"), (6, "np.determiner.animal.# relative.#"),
    ],
    "thing.#": [
        (55, "np.determiner.thing.#"), (20, "np.owner.thing.#"),
        (8, "np.determiner.thing.# place"), (12, "np.determiner.thing.# made"),
    ],
    "light.sg": [(40, "np.determiner.person.sg"), (30, "np.determiner.animal.sg"), (15, "name"), (15, "pronoun")],
    "light.pl": [(55, "np.determiner.person.pl"), (45, "np.determiner.animal.pl")],
    "relative.#": [(55, "that action.#"), *((w, f"that {who} act.being.{form}") for w, who, form in (
        (20, "light.sg", "sg"), (13, "light.pl", "base"), (7, "self.i", "base"), (5, "self.we", "base")))],
    "made": [(w, f"that {who} act.thing.{form}") for w, who, form in (
        (45, "light.sg", "sg"), (30, "light.pl", "base"), (15, "self.i", "base"), (10, "self.we", "base"))],
    # Predicates.
    "action.@": [(30, "doing.@"), (28, "meeting.@"), (24, "dealing.@"), (7, "dwelling.%"), (11, "moving.%")],
    "doing.@": [
        (30, "be.@ gerund"), (30, "be.@ gerund place"), (10, "be.@ not gerund"), (8, "be.@ not gerund place"),
        (14, "often idle.%"), (8, "never idle.%"),
    ],
    "meeting.@": [
        (34, "habit.being.% object.@"), (18, "state.being.% object.@"), (16, "often habit.being.% object.@"),
        (12, "do.% not habit.being.base target.@"), (12, "do.% not state.being.base target.@"),
        (8, "never habit.being.% target.@"),
    ],
    "dealing.@": [
        (26, "habit.thing.% thing.sg"), (18, "habit.thing.% thing.pl"), (12, "state.thing.% thing.sg"),
        (8, "state.thing.% thing.pl"), (8, "need.% thing.sg"), (6, "need.% thing.pl"),
        (10, "often habit.thing.% thing.sg"),
        (5, "do.% not habit.thing.base goods"), (4, "do.% not state.thing.base goods"), (3, "do.% not need.base goods"),
        (5, "never habit.thing.% goods"),
    ],
    "dwelling.%": [(80, "live.% place"), (20, "do.% not live.base place")],
    "moving.%": [
        (55, "motion.% goal"), (20, "often motion.% goal"),
        (13, "do.% not motion.base known"), (12, "never motion.% known"),
    ],
    # Objects. There are no reflexive objects, so "me" and "us" occur with third-person subjects only.
    **{f"object.{who}": [(35, "being.sg"), (25, "being.pl"), (15, "name"), (25, pronoun)]
       for who, pronoun in (("sg", "him.3"), ("pl", "him.3"), ("i", "him.1"), ("we", "him.1"))},
    # After a negation there is no "a" or "some": the object is definite, or has "any".
    **{f"target.{who}": [
        (20, "np.definite.person.sg"), (15, "np.definite.animal.sg"), (10, "np.definite.person.pl"),
        (12, "np.definite.animal.pl"), (8, "np.any.person.pl"), (8, "np.any.animal.pl"), (10, "name"), (17, pronoun),
    ] for who, pronoun in (("sg", "him.3"), ("pl", "him.3"), ("i", "him.1"), ("we", "him.1"))},
    "goods": [
        (35, "np.definite.thing.sg"), (25, "np.definite.thing.pl"), (25, "np.any.thing.pl"), (15, "np.owner.thing.sg"),
    ],
    # Places.
    "place": [(36, "in spot.in"), (12, "on spot.on"), (10, "under spot.under"), (42, "beside spot.near")],
    "spot.in": [(58, "np.determiner.in.sg"), (18, "np.determiner.in.pl"), (24, "np.owner.in.sg")],
    "spot.on": [(80, "np.determiner.on.sg"), (20, "np.determiner.on.pl")],
    "spot.under": [(80, "np.determiner.under.sg"), (20, "np.determiner.under.pl")],
    "spot.near": [(75, "np.determiner.near.sg"), (25, "np.determiner.near.pl")],
    "goal": [(70, "np.determiner.goal.sg"), (30, "np.determiner.goal.pl")],
    "known": [(70, "np.definite.goal.sg"), (30, "np.definite.goal.pl")],
    # Existential and copular clauses.
    "scene": [
        (30, "there be.sg np.article.animal.sg place"), (20, "there be.sg np.article.thing.sg place"),
        (20, "there be.pl np.amount.animal.pl place"), (20, "there be.pl np.amount.thing.pl place"),
        (5, "there be.pl np.no.animal.pl place"), (5, "there be.pl np.no.thing.pl place"),
    ],
    "description": [
        *((w, f"np.{known}.{kind}.{n}.plain be.{n} {no}quality.{kind}")
          for known, w1 in (("definite", 3), ("owner", 1)) for kind in ("person", "animal", "thing", "near")
          for n in ("sg", "pl") for no, w2 in (("", 4), ("not ", 1))
          if (w := w1 * w2) and (known, kind) not in (("owner", "person"), ("owner", "near"))),
        (10, "name be.sg quality.person"), (3, "name be.sg not quality.person"), (6, "pronoun be.sg quality.person"),
    ],
    "owner": [(50, "possessive"), (32, "the possessor"), (18, "named")],
}  # fmt: skip


def _expanded() -> Rules:
    """The rules with placeholders replaced, and the rules of noun phrases, which share one pattern."""
    rules: Rules = {}
    for name, rows in _PHRASES.items():
        for who, form in (("sg", "sg"), ("pl", "base"), ("i", "base"), ("we", "base")):

            def fill(text: str, who: str = who, form: str = form) -> str:
                return text.replace("@", who).replace("%", form).replace("#", who)

            if "#" not in name or who in ("sg", "pl"):
                rules[fill(name)] = [(weight, fill(right)) for weight, right in rows]
    used = {part for rows in rules.values() for _, right in rows for part in right.split() if part.startswith("np.")}
    for phrase in sorted(used):
        _, first, kind, number, *plain = phrase.split(".")
        first = first if first == "owner" else f"{first}.{number}"
        noun, size, trait = f"noun.{kind}.{number}", f"size.{_adjective_class(kind)}", f"trait.{_adjective_class(kind)}"
        rules[phrase] = [(52, f"{first} {noun}")]
        if not plain:  # to exclude "the red hat is red"
            rules[phrase] += [(20, f"{first} {size} {noun}")]
        if not plain and kind not in ("on", "under"):  # to exclude "tired tables"
            rules[phrase] += [(17, f"{first} {trait} {noun}"), (11, f"{first} {size} {trait} {noun}")]
    return rules


def _adjective_class(kind: str) -> str:
    """The class of adjectives of a noun class; nouns after a preposition are places."""
    return kind if kind in ADJECTIVE_CLASSES else "place"


def _word_classes() -> dict[str, list[str]]:
    classes = dict(OTHER_WORDS)
    for kind, nouns in NOUN_CLASSES.items():
        classes[f"noun.{kind}.sg"] = nouns
        classes[f"noun.{kind}.pl"] = [NOUNS[noun].plural for noun in nouns]
    for kind, (size, trait) in ADJECTIVE_CLASSES.items():
        classes[f"size.{kind}"], classes[f"trait.{kind}"] = size, trait
    for kind in ("person", "animal", "thing", "near"):
        size, trait = ADJECTIVE_CLASSES[_adjective_class(kind)]
        classes[f"quality.{kind}"] = [word for word in size + trait if word != "new"]  # predicative: neuf in French
    for kind, verbs in VERB_CLASSES.items():
        classes[f"{kind}.base"] = verbs
        classes[f"{kind}.sg"] = [VERBS[verb].singular for verb in verbs]
    for kind in ("being", "thing"):
        for form in ("sg", "base"):
            classes[f"act.{kind}.{form}"] = classes[f"habit.{kind}.{form}"] + classes[f"state.{kind}.{form}"]
    classes["gerund"] = [VERBS[verb].gerund for verb in VERB_CLASSES["idle"]]
    return classes


@cache
def english_grammar() -> Grammar:
    """The grammar of the English side, built at the first call."""
    classes = {name: (name.split(".")[0], dict.fromkeys(words, 1.0)) for name, words in _word_classes().items()}
    return Grammar.from_weights("sentence", _expanded(), classes)


def english(tree: Node) -> str:
    """The English sentence of a derivation."""
    words = " ".join(leaf.word for leaf in tree.leaves()).replace(" .", ".").replace(" ,", ",").split(" ")
    spoken = [
        "an" if word == "a" and following[0] in "aeiou" else word
        for word, following in zip(words, [*words[1:], "."], strict=True)
    ]
    text = " ".join(spoken)
    return text[0].upper() + text[1:]
