"""Filling blanks: beam search over the blanks of one sequence, for any model of a token given all the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class FilledBlanks(NamedTuple):
    """One way to fill the blanks of a sequence."""

    ids: tuple[int, ...]  # a token for each blank, from left to right
    log_prob: float  # of all of them jointly


def fill_blanks(
    ids: Sequence[int],
    blank: int,
    n: int,
    log_probs: Callable[[Tensor, int], Tensor],
    *,
    width: int,
    banned: Sequence[int] = (),
) -> list[FilledBlanks]:
    """Finds the `n` most probable ways to fill the blanks of one sequence.

    The joint probability of the tokens b_1 ... b_m is the product of P(b_k | the text, b_1 ... b_(k-1), later blanks
    still blank); it sums to 1 over all ways. With one blank the result is exact. With m blanks it is a beam search from
    left to right, exact if `width` is at least V^(m-1).

    Args:
        ids: T token ids with blanks among them.
        blank: the id of the blank.
        n: how many ways to return, most probable first.
        log_probs: maps rows (K, T), with blanks at the position and possibly later, and the position to the
            log-probabilities (K, V) of the token there.
        width: the beam width; at least `n` is used.
        banned: ids that are never filled in. Their probability is redistributed over the others.
    """
    rows = torch.tensor([list(ids)])
    positions = [position for position, token in enumerate(ids) if token == blank]
    total = torch.zeros(1, dtype=torch.float64)
    for position in positions:
        candidates = log_probs(rows, position).double()  # (K, V)
        candidates[:, list(banned)] = -torch.inf
        scores = total[:, None] + candidates.log_softmax(-1)
        limit = n if position == positions[-1] else max(n, width)
        possible = int(scores.isfinite().sum())
        total, chosen = scores.flatten().topk(min(limit, possible))
        rows = rows[chosen // scores.shape[1]]
        rows[:, position] = chosen % scores.shape[1]
    filled = zip(rows[:, positions].tolist(), total.tolist(), strict=True)
    return [FilledBlanks(tuple(row), score) for row, score in filled]
