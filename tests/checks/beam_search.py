"""The battery of beam search: against enumeration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def enumerate_all(
    stepper: Any, prompt: Sequence[int], *, vocabulary: int, tokens: int, end: int | None, banned: Sequence[int] = ()
) -> dict[tuple[int, ...], float]:
    """Enumerates all continuations of a prompt with their log-probabilities: those that end and those of full length.

    Each is read from the start, alone, so nothing depends on `select`. The end token is part of a continuation.
    """
    found: dict[tuple[int, ...], float] = {}

    def go_on(way: tuple[int, ...], total: float) -> None:
        if len(way) == tokens or (way and way[-1] == end):
            found[way] = total
            return
        state = stepper.initial_state(1)
        for token in (*prompt, *way):
            log_probs, state = stepper.step(torch.tensor([token]), state)
        for token in range(vocabulary):
            log_prob = log_probs[0, token].item()
            if token not in banned and log_prob > -float("inf"):
                go_on((*way, token), total + log_prob)

    go_on((), 0.0)
    return found


@torch.no_grad()
def check_beam(
    search: Callable[..., Any],
    stepper: Any,
    prompts: Sequence[Sequence[int]],
    *,
    vocabulary: int,
    tokens: Sequence[int],
    end: int | None,
    banned: Sequence[int] = (),
    alone: Callable[[int], Any] | None = None,
    atol: float = 1e-4,
) -> None:
    """Checks a beam search against enumeration; width 1 is greedy search, and rows are independent.

    A beam as wide as the number of continuations finds the best ones.

    `alone(row)` returns the stepper of one row, if rows differ in more than their prompts.
    """
    single = alone or (lambda row: stepper)
    options = {"end": end, "banned": banned}
    ways = [
        enumerate_all(single(row), prompt, vocabulary=vocabulary, tokens=tokens[row], end=end, banned=banned)
        for row, prompt in enumerate(prompts)
    ]
    widest = max(map(len, ways))
    for alpha in (0.0, 0.75, 2.0):
        for n_best in (1, 3, widest):
            found = search(stepper, prompts, width=widest, tokens=tokens, alpha=alpha, n_best=n_best, **options)
            assert len(found) == len(prompts), f"beam: {len(found)} results for {len(prompts)} prompts"
            for row, continuations in enumerate(ways):
                scored = sorted(((p / len(way) ** alpha, p) for way, p in continuations.items()), reverse=True)[:n_best]
                what = f"beam: row {row}, alpha {alpha}, {n_best} best"
                assert len(found[row]) == len(scored), f"{what}: {len(found[row])} found, there are {len(scored)}"
                for one, (score, _) in zip(found[row], scored, strict=True):
                    whole = (*one.ids, *([end] if one.ended else []))
                    assert whole in continuations, f"{what}: {whole} is not a continuation"
                    true = continuations[whole]
                    assert abs(one.log_prob - true) <= atol, f"{what}: log P of {whole} is {true}, not {one.log_prob}"
                    assert abs(one.score - true / len(whole) ** alpha) <= atol, f"{what}: the score is not log P / L^a"
                    assert abs(one.score - score) <= atol, f"{what}: {one.score} where the best is {score}"
                assert len({one.ids for one in found[row] if one.ended}) == sum(one.ended for one in found[row])
    for width in (1, 2, 3):
        together = search(stepper, prompts, width=width, tokens=tokens, n_best=width, **options)
        for row, prompt in enumerate(prompts):
            (found,) = search(single(row), [prompt], width=width, tokens=[tokens[row]], n_best=width, **options)
            ids = [one.ids for one in found]
            assert [one.ids for one in together[row]] == ids, f"beam: width {width}, row {row}: rows meet"
    for row, prompt in enumerate(prompts):
        (greedy,) = search(single(row), [prompt], width=1, tokens=[tokens[row]], **options)
        now, state, written = list(prompt), single(row).initial_state(1), []
        while len(written) < tokens[row] and (not written or written[-1] != end):
            for token in now:
                log_probs, state = single(row).step(torch.tensor([token]), state)
            log_probs = log_probs.clone()
            log_probs[:, list(banned)] = -float("inf")
            now = [int(log_probs[0].argmax())]
            written += now
        if written[-1] == end:
            written.pop()
        assert greedy[0].ids == tuple(written), f"beam: width 1 gives {greedy[0].ids}, greedy gives {tuple(written)}"
