"""Access to English derivations, shared by French and Chinese."""

from __future__ import annotations

from typing import NamedTuple

from weft.text.grammars.pcfg import Leaf, Node
from weft.text.grammars.trilingual.lexicon import VERB_FORMS, Verb

_VERB_CLASSES = ("gerund", "idle", "habit", "state", "need", "live", "motion")


def leaf(part: Node | Leaf) -> Leaf:
    """`part`, which must be a Leaf."""
    assert isinstance(part, Leaf)
    return part


def node(part: Node | Leaf) -> Node:
    """`part`, which must be a Node."""
    assert isinstance(part, Node)
    return part


class Action(NamedTuple):
    """A predicate: verb, aspect, adverb, negation and complement."""

    verb: Verb
    progressive: bool  # "is sleeping", not "sleeps"
    adverb: str  # a key of ADVERBS, or empty
    negation: str  # "not", "never", or empty
    complement: Node | None

    @classmethod
    def read(cls, action: Node | Leaf) -> Action:
        """Extract the predicate from the derivation of an action."""
        (inner,) = node(action).children
        parts = node(inner).children
        words = {part.symbol.split(".")[0]: part.word for part in parts if isinstance(part, Leaf)}
        kind = next(kind for kind in words if kind in _VERB_CLASSES)
        return cls(
            verb=VERB_FORMS[words[kind].split(" ")[0]],
            progressive=kind == "gerund",
            adverb=words.get("often", ""),
            negation=words.get("never") or words.get("not", ""),
            complement=parts[-1] if isinstance(parts[-1], Node) else None,
        )
