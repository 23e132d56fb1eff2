"""The battery of steppers."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from tests.checks.comparisons import close, identical
from weft.decoding import TopKStepper


@torch.no_grad()
def check_stepper(
    stepper: Any, *, vocabulary: int, rows: int = 4, steps: int = 3, seed: int = 0, atol: float = 1e-5
) -> None:
    """Checks a stepper: initial_state, step, select, and top_k if it has one.

    Probabilities sum to 1, rows are independent, `select` only reorders rows, and top_k agrees with step. Nothing
    modifies its arguments. Rows start with different tokens, so a mixed-up state gives other probabilities.
    """
    random = torch.Generator().manual_seed(seed)

    def tokens(count: int) -> Tensor:
        return torch.randint(vocabulary, (count,), generator=random)

    def compare(what: str, actual: Tensor, expected: Tensor) -> None:
        close(what, actual.exp(), expected.exp(), atol=atol, rtol=0)

    state = stepper.initial_state(rows)
    for _ in range(steps):
        ids = tokens(rows)
        before, ids_before = copy.deepcopy(state), ids.clone()
        log_probs, after = stepper.step(ids, state)
        assert log_probs.shape == (rows, vocabulary), f"step: log-probabilities are {tuple(log_probs.shape)}"
        assert not log_probs.isnan().any(), "step: NaN"
        total = log_probs.logsumexp(-1).exp()
        close("step: the probabilities do not sum to 1", total, torch.ones_like(total), atol=atol, rtol=0)
        identical("step changed the state it was given", state, before)
        identical("step changed the ids it was given", ids, ids_before)
        compare("the same step twice differs", stepper.step(ids, state)[0], log_probs)
        state = after

    ids, next_ids = tokens(rows), tokens(rows)
    log_probs, after = stepper.step(ids, state)
    next_log_probs, _ = stepper.step(next_ids, after)
    order = torch.arange(rows)
    for what, chosen in (
        ("the same rows", order),
        ("reversed rows", order.flip(0)),
        ("rows taken twice", torch.cat([order.flip(0), order[1:]])),
        ("the last row many times", order[-1:].repeat(rows + 1)),
        *((f"row {row} alone", order[row : row + 1]) for row in range(rows)),
    ):
        before, chosen_before = copy.deepcopy(state), chosen.clone()
        picked = stepper.select(state, chosen)
        identical("select changed the state it was given", state, before)
        identical("select changed the rows it was given", chosen, chosen_before)
        found, picked_after = stepper.step(ids[chosen], picked)
        compare(f"select does not commute with step: {what}", found, log_probs[chosen])
        found, _ = stepper.step(next_ids[chosen], picked_after)
        compare(f"select does not commute with two steps: {what}", found, next_log_probs[chosen])
        found, _ = stepper.step(next_ids[chosen], stepper.select(after, chosen))
        compare(f"step does not commute with select: {what}", found, next_log_probs[chosen])
        compare("select disturbed the state it was given", stepper.step(ids, state)[0], log_probs)
    if isinstance(stepper, TopKStepper):
        for k in (1, 2, vocabulary, vocabulary + 3):
            before = copy.deepcopy(state)
            best, choices, found_after = stepper.top_k(ids, state, k)
            identical("top_k changed the state it was given", state, before)
            compare("top_k: not the best, best first", best, log_probs.topk(min(k, vocabulary)).values)
            compare("top_k: ids of other tokens", log_probs.gather(1, choices), best)
            assert all(len(set(row)) == len(row) for row in choices.tolist()), "top_k: a token twice"
            found, _ = stepper.step(next_ids, found_after)
            compare("top_k: not the state that step gives", found, next_log_probs)
