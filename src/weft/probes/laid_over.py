"""Two models on one text: the surprisal of both, laid over the same tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import WeftError
from weft.pictures.figures import DIVERGING, Array, ColouredText, Figure, visible
from weft.pictures.svg import number
from weft.probes.result import ProbeResult, rows_by_step
from weft.probes.surprisal import Surprisal, surprisal


@dataclass(frozen=True, eq=False)
class SurprisalComparison(ProbeResult):
    """The surprisal of two models on the same text.

    Models with different tokenizers are compared on the shortest stretches of text that both begin and end with a token
    of their own: a word of the one is compared with its characters of the other.

    Attributes:
        first: The path of one run.
        second: The path of the other.
        steps: The S tokens or stretches.
        first_nats: (S,), -log P by the first model; NaN where it predicts none.
        second_nats: (S,), the same by the second.
        difference: (S,), second minus first; positive: the second model is more surprised. NaN where one predicts none.
        contexts: What each model predicts a token from: "left" or "both".
    """

    probe = "surprisal_comparison"

    first: str
    second: str
    steps: tuple[str, ...]
    first_nats: Array
    second_nats: Array
    difference: Array
    contexts: tuple[str, str]

    def records(self) -> Iterator[dict[str, Any]]:
        return rows_by_step(self.steps, first=self.first_nats, second=self.second_nats, difference=self.difference)

    def figures(self) -> list[Figure]:
        """The difference of two models as coloured text, and the surprisal of each."""
        notes = tuple(
            f"{visible(token)}: {number(one)} and {number(other)} nats"
            for token, one, other in zip(self.steps, self.first_nats.tolist(), self.second_nats.tolist(), strict=True)
        )
        both = np.isfinite(self.difference)
        mean = float(self.difference[both].mean()) if both.any() else math.nan
        what = "nats, second - first"
        title = f"Surprisal of {self.second} minus that of {self.first} (mean {mean:+.2f} nats)"
        figures: list[Figure] = [ColouredText(title, self.steps, self.difference, what, DIVERGING, notes)]
        for path, nats, context in zip(
            (self.first, self.second), (self.first_nats, self.second_nats), self.contexts, strict=True
        ):
            own = float(nats[both].mean()) if both.any() else math.nan
            sides = "the tokens before" if context == "left" else "all other tokens"
            figures.append(
                ColouredText(f"{path}: given {sides} (mean {own:.2f} nats)", self.steps, nats, "nats", notes=notes)
            )
        return figures


def compare_surprisal(first: Any, second: Any, text: str) -> SurprisalComparison:
    """The surprisal of two models on a text, token by token.

    Args:
        first: A loaded run that predicts tokens: lm, ngram, hmm or fill.
        second: Another one, of any of these tasks and with any tokenizer.
        text: The text that both read.

    Raises:
        WeftError: A model predicts no tokens, or the two read different text: one of them in lower case, for example.
    """
    one, other = surprisal(first, text, top=0), surprisal(second, text, top=0)
    tokens, starts = align_tokens(one.steps, other.steps)
    own, its = _sums(one, starts[0]), _sums(other, starts[1])
    paths = str(first.run.path), str(second.run.path)
    return SurprisalComparison(*paths, tokens, own, its, its - own, (one.context, other.context))


def _sums(found: Surprisal, begins: Sequence[int]) -> Array:
    ends = [*begins[1:], len(found.steps)]
    return np.array([found.nats[begin:end].sum() for begin, end in zip(begins, ends, strict=True)])


def align_tokens(one: Sequence[str], other: Sequence[str]) -> tuple[tuple[str, ...], tuple[list[int], list[int]]]:
    """The stretches of a text that begin and end with a token in both of two lists of its tokens.

    White space is not compared, since some tokenizers leave it out; it belongs to the stretch before it.

    Returns:
        The stretches, and the number of the first token of each in both lists.

    Raises:
        WeftError: The tokens are not of the same text.

    >>> align_tokens(["the", "king"], ["t", "h", "e", " ", "k", "ing"])
    (('the ', 'king'), ([0, 1], [0, 4]))
    """
    if list(one) == list(other):
        return tuple(one), (list(range(len(one))), list(range(len(other))))
    letters = ["".join("".join(tokens).split()) for tokens in (one, other)]
    if letters[0] != letters[1]:
        at = next(
            (n for n, pair in enumerate(zip(*letters, strict=False)) if pair[0] != pair[1]), min(map(len, letters))
        )
        shown = [repr(text[max(0, at - 10) : at + 10]) for text in letters]
        raise WeftError(
            f"the models read different text: {shown[0]} and {shown[1]}",
            expected="runs with the same normalization, such as `text.lower` and `text.letters_only`",
        )
    starts = [_starts(tokens) for tokens in (one, other)]
    common = sorted(starts[0].keys() & starts[1].keys())
    begins = [[where[at] for at in common] for where in starts]
    longer = one if "".join(one) != letters[0] or "".join(other) == letters[0] else other
    own = begins[0] if longer is one else begins[1]
    stretches = ("".join(longer[a:b]) for a, b in zip(own, [*own[1:], len(longer)], strict=True))
    return tuple(stretches), (begins[0], begins[1])


def _starts(tokens: Sequence[str]) -> dict[int, int]:
    """The number of each token that has a letter, by how many characters stand before it; the first one is at 0."""
    found, at = {0: 0}, 0
    for place, token in enumerate(tokens):
        size = len("".join(token.split()))
        if size:
            found.setdefault(at, place)
            at += size
    return found
