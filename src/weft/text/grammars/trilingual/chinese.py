"""Chinese sentences from derivations of the English grammar: measure words, 的, and word order.

There is no inflection. All modifiers, including relative clauses, precede their noun; a place precedes the verb; in
existential clauses the place comes first.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.text.grammars.pcfg import Leaf, Node
from weft.text.grammars.trilingual.derivation import Action, leaf, node
from weft.text.grammars.trilingual.lexicon import (
    ADJECTIVES,
    ADVERBS,
    NAMES,
    NOUN_FORMS,
    NOUNS,
    NUMBERS,
    OLD,
    PREPOSITIONS,
    PRONOUNS,
    VERB_FORMS,
    Noun,
)


class Phrase(NamedTuple):
    """A noun phrase in two parts, between which a modifier may occur: 三只 | 小猫."""

    quantity: str
    noun: str


def sentence(tree: Node) -> str:
    """The Chinese sentence of a derivation."""
    text = ""
    for part in tree.children:
        if isinstance(part, Node):
            text += _clause(part)
        else:
            text += {".": "。", ",": "，", "and": "", "but": "但是", "because": "，因为"}[part.word]
    return text


def _clause(clause: Node) -> str:
    inner = node(clause.children[0])
    parts = inner.children
    if inner.symbol == "scene":
        _, _, new, place = parts
        absent = node(new).children[0].symbol.startswith("no.")
        return f"{_place(node(place))}{'没有' if absent else '有'}{_nominal(new)}"
    if inner.symbol == "description":
        subject, quality = parts[0], leaf(parts[-1]).word
        kind = _noun(subject).kind if isinstance(subject, Node) else "person"
        predicate = OLD[kind][1] if quality == "old" and kind in OLD else ADJECTIVES[quality].predicate
        return _nominal(subject) + (predicate if len(parts) == 3 else f"不{predicate.removeprefix('很')}")
    return _nominal(parts[0]) + _action(parts[1])


def _nominal(part: Node | Leaf) -> str:
    """A subject, object or place."""
    if isinstance(part, Leaf):
        if part.symbol.startswith("self"):
            return "我" if part.word == "I" else "我们"
        return PRONOUNS[part.word][1] if part.word in PRONOUNS else NAMES[part.word].chinese
    if part.symbol.startswith("np."):
        return "".join(_noun_phrase(part))
    if len(part.children) == 1:
        return _nominal(part.children[0])
    quantity, noun = _noun_phrase(node(part.children[0]))
    modifier = node(part.children[1])
    if modifier.symbol == "place":
        return f"{_place(modifier)}的{quantity}{noun}"
    if len(modifier.children) == 2:  # the noun is the subject: 三只 | 正在睡觉的 | 猫
        return f"{quantity}{_action(modifier.children[1])}的{noun}"
    _, who, verb = modifier.children
    return f"{_nominal(who)}{VERB_FORMS[leaf(verb).word].chinese}的{quantity}{noun}"


def _noun(phrase: Node) -> Noun:
    return NOUN_FORMS[leaf(phrase.children[-1]).word][0]


def _noun_phrase(phrase: Node) -> Phrase:
    first, *adjectives, last = phrase.children
    noun, plural = NOUN_FORMS[leaf(last).word]
    described = _described([leaf(one).word for one in adjectives], noun) + noun.chinese
    if isinstance(first, Leaf):
        people = first.word == "the" and plural and noun.kind == "person"
        return Phrase(_quantity(first.word, noun), described + "们" * people)
    owner = leaf(first.children[-1]).word.removesuffix("'s")
    if owner in ("my", "our"):
        whose = "我" if owner == "my" else "我们"
    else:
        whose = NAMES[owner].chinese if owner in NAMES else NOUNS[owner].chinese
    # A single 的 suffices: 国王的猫, but 国王古老的城堡.
    return Phrase("", f"{whose}{'' if '的' in described else '的'}{described}")


def _quantity(word: str, noun: Noun) -> str:
    if word in NUMBERS:
        return NUMBERS[word][1] + noun.measure
    whole = {"the": "", "no": "", "some": "一些", "these": "这些", "any": "任何"}
    return whole[word] if word in whole else {"a": "一", "this": "这"}[word] + noun.measure


def _described(words: list[str], noun: Noun) -> str:
    """Order adjectives: those with 的 precede those without (红色的小帽子), and there are never two 的 in a row."""
    adjectives = [
        OLD[noun.kind][0] if word == "old" and noun.kind in OLD else ADJECTIVES[word].chinese for word in words
    ]
    long = [one for one in adjectives if one.endswith("的")]
    short = [one for one in adjectives if not one.endswith("的")]
    if len(long) == 2:
        first, second = long
        # 漂亮的红帽子, but 年轻而疲惫的国王
        return first + second[0] if second.endswith("色的") else f"{first.removesuffix('的')}而{second}"
    return "".join(long + short)


def _place(place: Node) -> str:
    preposition, spot = place.children
    return _nominal(spot) + PREPOSITIONS[leaf(preposition).word][1]


def _action(action: Node | Leaf) -> str:
    verb, progressive, adverb, negation, complement = Action.read(action)
    if progressive:
        where = f"在{_place(complement)}" if complement else ""
        return f"没有{where or '在'}{verb.chinese}" if negation else f"{where or '正在'}{verb.chinese}"
    lead = ADVERBS[adverb][1] if adverb else ""
    if negation == "never":  # 从不买, but 从来看不见, 从来不从市场来
        lead = "从" if verb.negated.startswith("不") and verb.base != "come" else "从来"
    said = verb.negated if negation else verb.chinese
    if complement is None:
        return lead + said
    if verb.base == "live":
        return f"{said}在{_place(complement)}"
    if verb.base == "come":
        return f"{lead}{'不' if negation else ''}从{_nominal(complement)}来"
    return lead + said + _nominal(complement)
