"""Models side by side: how well each tells the hidden tokens of the same text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from weft.config import changed
from weft.data.windows import Tokens
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.text.codec import Codec
from weft.training.run import Run


@runtime_checkable
class Guesser(Protocol):
    """A loaded model that can tell a token of a text: from those before it, or from both sides."""

    @property
    def run(self) -> Run: ...

    @property
    def codec(self) -> Codec: ...

    @property
    def reads(self) -> str:
        """What it goes by: "before" or "both sides"."""
        ...

    def guess(self, tokens: Tokens) -> TokenPredictions:
        """How well it tells each token but the first."""
        ...


class Line(NamedTuple):
    """One line of the comparison."""

    name: str
    reads: str
    guesses: TokenPredictions


def compare(model: Guesser, others: Sequence[Guesser], tokens: Tokens) -> list[Line]:
    """Guessing blindly, guessing by frequency, the others, and the model itself, all on the same tokens."""
    for other in others:
        if not isinstance(other, Guesser):
            raise WeftError(
                f"{other.run.path} is a run of the task {other.run.task!r}", expected="one that tells tokens, as lm"
            )
        _check_same_text(model, other)
    counts = np.array(model.codec.vocabulary.counts) + 1.0  # one more each, so that none is impossible
    lines = [
        Line("guessing blindly", "nothing", _always(np.ones_like(counts), tokens)),
        Line("token frequencies", "nothing", _always(counts, tokens)),
    ]
    return lines + [Line(str(one.run.path), one.reads, one.guess(tokens)) for one in (*others, model)]


def _always(weights: np.ndarray[Any, np.dtype[np.float64]], tokens: Tokens) -> TokenPredictions:
    """The guesses of one who gives the same chances everywhere, in proportion to the weights."""
    asked = np.asarray(tokens[1:])
    nats = -np.log(weights / weights.sum())[asked].sum()
    best = np.flatnonzero(weights == weights.max())  # of equals it takes any, as often right
    return TokenPredictions(Likelihood(float(nats), len(asked)), round(np.isin(asked, best).sum() / len(best)))


def _check_same_text(model: Guesser, other: Guesser) -> None:
    """Perplexities can only be compared over the same tokens of the same vocabulary."""
    mine, its = model.codec, other.codec
    same_cut = mine.normalizer == its.normalizer and mine.tokenizer == its.tokenizer
    if same_cut and mine.vocabulary.tokens == its.vocabulary.tokens:
        return
    settings = changed(other.run.config.get("text", {}), model.run.config.get("text", {}))
    wanted = " ".join(
        f"--set text.{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, (_, value) in settings.items()
    )
    raise WeftError(
        f"{other.run.path} cuts text into other tokens than {model.run.path} ({len(its.vocabulary):,} different ones, "
        f"not {len(mine.vocabulary):,})",
        expected="a run on the same text with the same settings under text.",
        hint=f"train it again with {wanted}" if wanted else "train both on the same --data",
    )
