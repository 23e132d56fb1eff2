"""Metrics of translation: a sentence-level BLEU, and corpus BLEU and chrF.

The sentence score is computed here from n-gram counts. The corpus scores are those of sacrebleu, the reference
implementation, with its signature, so that they are comparable.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from weft.errors import WeftError
from weft.metrics.metric import Metric
from weft.metrics.paired import Array

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

_HAN = re.compile(r"[\u3400-\u9fff]")
_OTHER_LETTER = re.compile(r"[^\W\d_\u3400-\u9fff]")

BLEU_SCORE = Metric("bleu", higher_is_better=True)


class Matches(NamedTuple):
    """Clipped matches of the n-grams of a prediction, and the number of its n-grams."""

    found: int
    total: int


def count_matches(label: Sequence[str], prediction: Sequence[str], n: int) -> Matches:
    """Count the n-grams of a prediction that occur in the label, each at most as often as there."""

    def ngrams(tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
        return Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))

    wanted, given = ngrams(label), ngrams(prediction)
    return Matches(sum((wanted & given).values()), sum(given.values()))


def precisions(label: Sequence[str], prediction: Sequence[str], k: int) -> list[float]:
    """The n-gram precisions p_1 to p_k: the fraction of the prediction's n-grams that occur in the label.

    If the prediction is too short to have n-grams, p_n is 0, or 1 if the label is too short as well.

    >>> precisions("A B C D E F".split(), "A B B C D".split(), 4)
    [0.8, 0.75, 0.3333333333333333, 0.0]
    """
    found_precisions = []
    for n in range(1, k + 1):
        found, total = count_matches(label, prediction, n)
        found_precisions.append(found / total if total else float(len(label) < n))
    return found_precisions


def sentence_bleu(label: Sequence[str], prediction: Sequence[str], k: int = 2) -> float:
    """Sentence-level BLEU from 0 to 1, with geometric weights.

    exp(min(0, 1 - len(label) / len(prediction))) * prod(p_n ** (1 / 2**n) for n in 1 ... k)

    Args:
        label: the tokens of the reference.
        prediction: the tokens of the prediction.
        k: the length of the longest n-grams.

    >>> sentence_bleu("A B C D E F".split(), "A B".split(), k=2) == math.exp(1 - 6 / 2)
    True
    """
    if k < 1:
        raise WeftError(f"the longest n-gram is {k}", expected="at least 1")
    if not prediction:
        return float(not label)
    brevity = math.exp(min(0, 1 - len(label) / len(prediction)))
    return brevity * math.prod(math.pow(p, 0.5**n) for n, p in enumerate(precisions(label, prediction, k), start=1))


class _Scored(NamedTuple):
    score: float
    signature: str


@dataclass(frozen=True)
class Translations:
    """Predicted sentences with one or more references each; scores from 0 to 100.

    The sufficient statistics are the texts themselves. `tokenize` is the name of sacrebleu's tokenizer for BLEU; empty
    selects "zh" if the references are mostly Chinese, else the default "13a".
    """

    predictions: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    tokenize: str = ""

    def __post_init__(self) -> None:
        if len(self.predictions) != len(self.references):
            raise WeftError(
                f"there are {len(self.predictions)} predictions and references for {len(self.references)} sentences",
                expected="equal numbers",
            )
        if not all(self.references):
            number = next(number for number, choices in enumerate(self.references, start=1) if not choices)
            raise WeftError(f"sentence {number} has no reference", expected="at least one per prediction")

    @classmethod
    def of(
        cls, predictions: Iterable[str], references: Iterable[str | Iterable[str]], *, tokenize: str = ""
    ) -> Translations:
        """Build from predictions and, in the same order, one reference or several for each.

        >>> Translations.of(["A cat sleeps here.", "Hi!"], ["A cat sleeps here.", ["Hello!", "Hi!"]]).bleu
        100.0
        """
        several = tuple((one,) if isinstance(one, str) else tuple(one) for one in references)
        return cls(tuple(predictions), several, tokenize)

    def __add__(self, other: Translations) -> Translations:
        if self.tokenize != other.tokenize:
            raise WeftError(
                f"the tokenizers are {self.tokenize!r} and {other.tokenize!r}", expected="the same tokenizer"
            )
        return Translations(self.predictions + other.predictions, self.references + other.references, self.tokenize)

    def __len__(self) -> int:
        return len(self.predictions)

    @property
    def bleu(self) -> float:
        return self._bleu.score

    @property
    def chrf(self) -> float:
        return self._chrf.score

    @property
    def exact(self) -> float:
        """The fraction of predictions that equal a reference, up to white space."""
        pairs = zip(self.predictions, self.references, strict=True)
        hits = sum(one.split() in [choice.split() for choice in choices] for one, choices in pairs)
        return hits / len(self) if len(self) else math.nan

    def score(self) -> float:
        return self.bleu

    def signature(self) -> str:
        """What exactly was measured, in the notation of sacrebleu."""
        return f"BLEU|{self._bleu.signature} chrF2|{self._chrf.signature} sentences:{len(self)}"

    def bleu_statistics(self) -> Array:
        """(N, 10): of each prediction its length, that of its reference, and matched and all n-grams for n = 1 to 4."""
        from sacrebleu.metrics.bleu import BLEU

        metric = BLEU(tokenize=self._tokenizer(), force=True, effective_order=True)  # of single sentences
        scores = [metric.sentence_score(*pair) for pair in zip(self.predictions, self.references, strict=True)]
        rows = [[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in scores]
        return np.array(rows, dtype=np.float64).reshape(len(rows), 10)

    def _tokenizer(self) -> str:
        return self.tokenize or ("zh" if self._is_chinese() else "13a")

    @cached_property
    def _bleu(self) -> _Scored:
        from sacrebleu.metrics.bleu import BLEU

        # force: our own tokenizers may write spaces before full stops, which needs no warning
        return self._scored(BLEU(tokenize=self._tokenizer(), force=True))

    @cached_property
    def _chrf(self) -> _Scored:
        from sacrebleu.metrics.chrf import CHRF

        return self._scored(CHRF())

    def _scored(self, metric: BLEU | CHRF) -> _Scored:
        if not len(self):
            return _Scored(math.nan, "nothing")
        # The n-th list holds the n-th reference of each sentence; None for sentences with fewer.
        most = max(map(len, self.references))
        streams = [[choices[at] if at < len(choices) else None for choices in self.references] for at in range(most)]
        score = metric.corpus_score(list(self.predictions), cast("list[list[str]]", streams)).score
        # A perfect score may round above 100. The signature is complete only after scoring.
        return _Scored(min(100.0, float(score)), str(metric.get_signature()))

    def _is_chinese(self) -> bool:
        texts = [text for choices in self.references for text in choices]
        han, other = (sum(len(pattern.findall(text)) for text in texts) for pattern in (_HAN, _OTHER_LETTER))
        return han > other


def bleu_of_sums(sums: Array) -> Array:
    """Corpus BLEU of sums of `Translations.bleu_statistics`, (..., 10), smoothed as sacrebleu does it by default.

    The n-th precision without any match counts as 1 / (2^k total), k = 1 for the first such n, 2 for the next.
    """
    length, reference, found, total = sums[..., 0], sums[..., 1], sums[..., 2:6], sums[..., 6:10]
    empty = found == 0
    smooth = np.exp2(-np.cumsum(empty & (total > 0), axis=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.where(empty, smooth, found) / total)  # a sum without any 4-grams has BLEU 0
        brevity = np.minimum(0.0, 1 - reference / length)
        scores = 100 * np.exp(brevity + logs.mean(-1))
    return np.where((total > 0).all(-1) & (found.sum(-1) > 0), scores, 0.0)
