"""What both target languages read from an English derivation."""

from __future__ import annotations

from typing import NamedTuple

from weft.text.grammars.pcfg import Leaf, Node
from weft.text.grammars.trilingual.lexicon import VERB_FORMS, Verb

_VERB_CLASSES = ("gerund", "idle", "habit", "state", "need", "live", "motion")


def leaf(part: Node | Leaf) -> Leaf:
    assert isinstance(part, Leaf)
    return part


def node(part: Node | Leaf) -> Node:
    assert isinstance(part, Node)
    return part


class Action(NamedTuple):
    """A predicate: what is done, how often or whether at all, and to whom or where."""

    verb: Verb
    lasting: bool  # "is sleeping", not "sleeps"
    adverb: str  # of ADVERBS, or nothing
    denial: str  # "not", "never", or nothing
    complement: Node | None

    @classmethod
    def read(cls, action: Node | Leaf) -> Action:
        (inner,) = node(action).children
        parts = node(inner).children
        words = {part.symbol.split(".")[0]: part.word for part in parts if isinstance(part, Leaf)}
        kind = next(kind for kind in words if kind in _VERB_CLASSES)
        return cls(
            verb=VERB_FORMS[words[kind].split(" ")[0]],
            lasting=kind == "gerund",
            adverb=words.get("often", ""),
            denial=words.get("never") or words.get("not", ""),
            complement=parts[-1] if isinstance(parts[-1], Node) else None,
        )
