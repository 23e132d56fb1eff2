"""The likeliest ways to fill the blanks of a row, for any model that tells one token from all the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Filled(NamedTuple):
    """A token for every blank, from the first blank to the last, and the log of their joint probability."""

    ids: tuple[int, ...]
    log_prob: float


def best_fills(
    ids: Sequence[int],
    blank: int,
    n: int,
    log_probs: Callable[[Tensor, int], Tensor],
    *,
    width: int,
    banned: Sequence[int] = (),
) -> list[Filled]:
    """The `n` likeliest ways to fill the blanks of one row, likeliest first.

    `log_probs(rows, place)` gives, for rows (K, T) with blanks at that place and perhaps later, the log-probabilities
    (K, V) of the token at the place. The joint probability of b_1 ... b_m is the product of P(b_k | the text,
    b_1 ... b_k-1, the later ones blank); over all ways it sums to 1. With one blank the answer is exact; with several
    it is a beam search from left to right, exact where `width` is at least V^(m-1). The probability of banned tokens
    is shared by the others.
    """
    rows = torch.tensor([list(ids)])
    places = [place for place, token in enumerate(ids) if token == blank]
    total = torch.zeros(1, dtype=torch.float64)
    for place in places:
        chances = log_probs(rows, place).double()
        chances[:, list(banned)] = -torch.inf
        scores = total[:, None] + chances.log_softmax(-1)
        room = n if place == places[-1] else max(n, width)
        possible = int(scores.isfinite().sum())
        total, chosen = scores.flatten().topk(min(room, possible))
        rows = rows[chosen // scores.shape[1]]
        rows[:, place] = chosen % scores.shape[1]
    return [Filled(tuple(row), score) for row, score in zip(rows[:, places].tolist(), total.tolist(), strict=True)]
