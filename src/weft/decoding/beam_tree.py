"""Beam search that keeps every hypothesis it considered, and why it was kept or dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from weft.decoding.beam_search import Hypothesis, Search, check_beam
from weft.decoding.stepper import Stepper

KEPT, ENDED, CUT, OUTRANKED, PRUNED = "kept", "ended", "cut", "outranked", "pruned"


class BeamNode(NamedTuple):
    """A hypothesis: its parent and one more token.

    Its status is "kept" in the beam; "ended" with the end token; "cut" at the maximum length; "outranked" by better
    hypotheses of the same step; "pruned" because it can no longer beat a finished hypothesis.
    """

    parent: int  # its index in `BeamTree.nodes`, or -1 for the prompt
    step: int  # the number of new tokens, from 1
    id: int  # the last token
    log_prob: float  # of all new tokens
    score: float  # log_prob / step^alpha
    status: str
    reason: str  # the status in words, with the numbers that decided it


class BeamTree(NamedTuple):
    """Every hypothesis of a beam search on one prompt."""

    nodes: tuple[BeamNode, ...]
    results: tuple[Hypothesis, ...]  # as `beam_search` returns them
    width: int
    alpha: float


def beam_tree(
    stepper: Stepper,
    prompt: Sequence[int],
    *,
    width: int,
    tokens: int,
    end: int | None,
    alpha: float = 0.75,
    n_best: int = 1,
    banned: Sequence[int] = (),
) -> BeamTree:
    """Runs `beam_search` on one prompt and keeps every hypothesis; the arguments are those of `beam_search`.

    Considered are, at each step, the `width` most probable continuations of every hypothesis in the beam.
    """
    check_beam([prompt], width, [tokens], alpha, n_best)
    state = stepper.initial_state(1)
    for token in prompt[:-1]:
        _, state = stepper.step(torch.tensor([token]), state)
    ids_banned = torch.tensor(sorted(set(banned)), dtype=torch.long)
    search = _RecordedSearch(width, torch.tensor([tokens]), end, alpha, n_best, ids_banned)
    (results,) = search.run(stepper, torch.tensor([prompt[-1]]), state)
    return BeamTree(tuple(search.nodes), tuple(results), width, alpha)


class _RecordedSearch(Search):
    """A search over one prompt that notes what each step considered and what became of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.nodes: list[BeamNode] = []
        self.rows = [-1]  # the node of each row of the beam
        self.chosen: list[int] = []  # the node of each chosen continuation

    def _expand(self, best: Tensor, choices: Tensor, prompt: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parent, ids, values = super()._expand(best, choices, prompt, total)
        step, slots = len(self.history) + 1, len(values)
        lowest = float(values[-1]) if slots else float("-inf")
        chosen = {(int(row), int(token)): place for place, (row, token) in enumerate(zip(parent, ids, strict=True))}
        self.chosen = [0] * slots
        for row in range(len(best)):
            for rank in range(min(best.shape[1], self.width + len(self.banned))):
                log_prob = float(total[row] + best[row, rank].double())
                token = int(choices[row, rank])
                place = chosen.get((row, token))
                if log_prob == float("-inf") or (place is None and rank >= self.width):
                    continue
                reason = "" if place is not None else f"log P {log_prob:.3f} is below the {slots} best, {lowest:.3f}"
                if place is not None:
                    self.chosen[place] = len(self.nodes)
                self.nodes.append(
                    BeamNode(self.rows[row], step, token, log_prob, log_prob / step**self.alpha, OUTRANKED, reason)
                )
        return parent, ids, values

    def _finish(self, prompt: Tensor, ids: Tensor, total: Tensor) -> Tensor:
        going_on = super()._finish(prompt, ids, total)
        step, stays = len(self.history), set(going_on.tolist())
        limit, to_beat = int(self.limits[0]), float(self.scores.topk(self.n_best).values[0, -1])
        for row, node in enumerate(self.chosen):
            if row in stays:
                status, reason = KEPT, f"among the {len(self.chosen)} best of step {step}"
            elif self.end is not None and int(ids[row]) == self.end:
                status, reason = ENDED, f"ended with score {self.nodes[node].score:.3f}"
            elif step >= limit:
                status, reason = CUT, f"reached the maximum of {limit} tokens with score {self.nodes[node].score:.3f}"
            else:
                bound = float(total[row]) / limit**self.alpha
                status = PRUNED
                reason = f"its score can reach at most {bound:.3f}; a finished one has {to_beat:.3f}"
            self.nodes[node] = self.nodes[node]._replace(status=status, reason=reason)
        self.rows = [self.chosen[row] for row in going_on.tolist()]
        return going_on
