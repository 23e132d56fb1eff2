"""Beam search: the best continuations of every prompt; of one prompt with every hypothesis that was considered, and why
it was kept or dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from weft.decoding.sampling import NO_TOKEN
from weft.decoding.stepper import Stepper
from weft.errors import WeftError


@runtime_checkable
class TopKStepper(Protocol):
    """A `Stepper` that computes the top-k next tokens without materialising all log-probabilities."""

    def top_k(self, ids: Tensor, state: Any, k: int) -> tuple[Tensor, Tensor, Any]:
        """Reads ids (R,) as `step` does.

        Returns:
            The log-probabilities and the ids of the k most probable next tokens, (R, k) each, best first (fewer if the
            vocabulary is smaller), and the state after the tokens.
        """
        ...


class Hypothesis(NamedTuple):
    """A continuation of a prompt, found by `beam_search`."""

    ids: tuple[int, ...]  # without the end token
    log_prob: float  # of all its tokens, the end token included
    score: float  # log_prob / L^alpha, where L counts the end token too
    ended: bool  # False if it was cut at the maximum length
    recorded: Tensor | None = None  # (L, ...) what `record` returned at each of its tokens


def beam_search(
    stepper: Stepper,
    prompts: Sequence[Sequence[int]],
    *,
    width: int,
    tokens: Sequence[int],
    end: int | None,
    alpha: float = 0.75,
    n_best: int = 1,
    banned: Sequence[int] = (),
    record: Callable[[Any], Tensor] | None = None,
) -> list[list[Hypothesis]]:
    """Finds the best continuations of every prompt by score = log P / L^alpha.

    At every step the `width` most probable continuations of a prompt are kept. A hypothesis that ends, or reaches its
    maximum length, leaves the beam and makes it narrower by one, so width 1 is greedy search and no width is spent on
    finished hypotheses (Sutskever et al. 2014). A hypothesis that can no longer enter the `n_best` is pruned: log P
    never rises, so log P / longest^alpha bounds its score. All prompts are searched in one batch, and finished or
    pruned rows leave the batch.

    Args:
        stepper: the model.
        prompts: token ids, at least one in every row.
        width: the beam width.
        tokens: the maximum number of new tokens for each prompt.
        end: the id that ends a hypothesis, or None.
        alpha: the exponent of the length penalty: larger values favour longer outputs; 0 means log P alone.
        n_best: how many hypotheses to return for each prompt, at most `width`.
        banned: ids that are never generated.
        record: maps the state after a step to a value for each row, (R, ...), such as its attention weights; those of
            the tokens of a hypothesis are returned with it.

    Returns:
        For each prompt up to `n_best` hypotheses, best first.

    Raises:
        WeftError: a parameter is out of range, or a prompt is empty.
    """
    check_beam(prompts, width, tokens, alpha, n_best)
    found: list[list[Hypothesis]] = [[] for _ in prompts]
    initial = stepper.initial_state(len(prompts))
    # Prompts of equal length are read together, all but the last token, which the first step of the search reads.
    for length in sorted({len(prompt) for prompt in prompts}):
        rows = torch.tensor([row for row, prompt in enumerate(prompts) if len(prompt) == length])
        columns = torch.tensor([list(prompts[row]) for row in rows.tolist()]).T  # (length, rows)
        state = stepper.select(initial, rows)
        for ids in columns[:-1]:
            _, state = stepper.step(ids, state)
        limits = torch.tensor([tokens[row] for row in rows.tolist()])
        ids_banned = torch.tensor(sorted(set(banned)), dtype=torch.long)
        search = Search(width, limits, end, alpha, n_best, ids_banned, record)
        for row, hypotheses in zip(rows.tolist(), search.run(stepper, columns[-1], state), strict=True):
            found[row] = hypotheses
    return found


def check_beam(prompts: Sequence[Sequence[int]], width: int, tokens: Sequence[int], alpha: float, n_best: int) -> None:
    if width < 1 or not 1 <= n_best <= width:
        raise WeftError(
            f"beam width {width} for the {n_best} best",
            expected="a width of 1 or more, and at most as many hypotheses",
            hint=f"`width={max(n_best, 1)}`",
        )
    if alpha < 0:
        raise WeftError(f"the length penalty is {alpha}", expected="0 or more", hint="0.75")
    if len(tokens) != len(prompts) or not all(count > 0 for count in tokens):
        raise WeftError(f"tokens is {list(tokens)}", expected="a maximum length of 1 or more for each prompt")
    if not all(prompts):
        raise WeftError("a prompt has no token", expected="at least one token to start from in every row")


@dataclass
class Search:
    """A beam over B prompts at once. A row is an unfinished hypothesis; the rows of a prompt are adjacent.

    The history keeps, for each step, the chosen tokens and the index of their parents in the step before. A finished
    hypothesis is an index into that history; its tokens are read by following the parents at the end.
    """

    width: int
    limits: Tensor  # (B,)
    end: int | None
    alpha: float
    n_best: int
    banned: Tensor
    record: Callable[[Any], Tensor] | None = None

    def __post_init__(self) -> None:
        self.recorded: list[Tensor] = []  # what was recorded at each step, in the order of its tokens
        self.history: list[tuple[Tensor, Tensor]] = []  # tokens and parents of each step
        self.finished: list[tuple[int, Tensor, Tensor, Tensor, Tensor]] = []  # step; prompt, index, log_prob, ended
        self.scores = torch.full((len(self.limits), self.width), -torch.inf, dtype=torch.float64)  # of the finished
        self.count = torch.zeros(len(self.limits), dtype=torch.long)  # of the finished

    def run(self, stepper: Stepper, ids: Tensor, state: Any) -> list[list[Hypothesis]]:
        prompt = torch.arange(len(ids))  # of each row
        total = torch.zeros(len(ids), dtype=torch.float64)
        index = prompt  # of each row in the step before
        while len(prompt):
            log_probs, choices, state = self._top_k(stepper, ids, state)
            parent, ids, total = self._expand(log_probs, choices, prompt, total)
            if self.record is not None:
                self.recorded.append(self.record(state).cpu()[parent])
            prompt = prompt[parent]
            self.history.append((ids, index[parent]))
            kept = self._finish(prompt, ids, total)
            state = stepper.select(state, parent[kept])
            prompt, ids, total, index = prompt[kept], ids[kept], total[kept], kept
        return self._results()

    def _top_k(self, stepper: Stepper, ids: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Reads a token in each row. Returns log-probabilities and ids of the candidates, (R, k), and the state."""
        # A row contributes at most `width` candidates, and banned tokens may be among its best.
        k = self.width + len(self.banned)
        if isinstance(stepper, TopKStepper):
            best, choices, state = stepper.top_k(ids, state, k)
        else:
            log_probs, state = stepper.step(ids, state)
            best, choices = log_probs.topk(min(k, log_probs.shape[-1]))
        best, choices = best.cpu(), choices.cpu()
        return best.masked_fill(torch.isin(choices, self.banned), -torch.inf), choices, state

    def _expand(self, best: Tensor, choices: Tensor, prompt: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Selects the best continuations of each prompt: parent rows, tokens, log-probabilities; best first."""
        prompts, k = len(self.limits), best.shape[1]
        rows = torch.bincount(prompt, minlength=prompts)
        first = rows.cumsum(0) - rows  # first row of each prompt
        slot = torch.arange(len(prompt)) - first[prompt]
        table = total.new_full((prompts, self.width, k), -torch.inf)
        table[prompt, slot] = total[:, None] + best.double()
        values, candidates = table.flatten(1).topk(self.width)  # (B, width)
        active = torch.arange(self.width) < (self.width - self.count)[:, None]
        owner, column = (active & values.isfinite()).nonzero(as_tuple=True)
        chosen = candidates[owner, column]
        parent = first[owner] + chosen // k
        return parent, choices[parent, chosen % k], values[owner, column]

    def _finish(self, prompt: Tensor, ids: Tensor, total: Tensor) -> Tensor:
        """Records finished hypotheses. Returns the indices of the rows that continue."""
        step = len(self.history)
        ended = ids == (NO_TOKEN if self.end is None else self.end)
        over = ended | (step >= self.limits[prompt])
        finished = over.nonzero()[:, 0]
        if len(finished):
            owner = prompt[finished]
            self.finished.append((step, owner, finished, total[finished], ended[finished]))
            new = torch.bincount(owner, minlength=len(self.count))
            first = new.cumsum(0) - new
            slot = self.count[owner] + torch.arange(len(finished)) - first[owner]
            self.scores[owner, slot] = total[finished] / step**self.alpha
            self.count += new
        # A hypothesis has to beat the n-th best score so far at the greatest length that it may reach.
        to_beat = self.scores.topk(self.n_best).values[:, -1]
        pruned = total / self.limits[prompt].double() ** self.alpha <= to_beat[prompt]
        return (~over & ~pruned).nonzero()[:, 0]

    def _results(self) -> list[list[Hypothesis]]:
        found: list[list[tuple[float, int, int, float, bool]]] = [[] for _ in self.limits]
        for step, *parts in self.finished:
            for prompt, index, log_prob, ended in zip(*(part.tolist() for part in parts), strict=True):
                found[prompt].append((log_prob / step**self.alpha, step, index, log_prob, ended))
        steps = [(tokens.tolist(), parents.tolist()) for tokens, parents in self.history]
        return [
            [self._hypothesis(steps, *one) for one in sorted(hypotheses, key=lambda one: -one[0])[: self.n_best]]
            for hypotheses in found
        ]

    def _hypothesis(
        self,
        steps: Sequence[tuple[list[int], list[int]]],
        score: float,
        step: int,
        index: int,
        log_prob: float,
        ended: bool,
    ) -> Hypothesis:
        ids, recorded = [], []
        for number in reversed(range(step)):  # from its last token back to the prompt
            tokens, parents = steps[number]
            ids.append(tokens[index])
            if self.recorded:
                recorded.append(self.recorded[number][index])
            index = parents[index]
        whole = tuple(ids[:0:-1] if ended else ids[::-1])
        return Hypothesis(whole, log_prob, score, ended, torch.stack(recorded[::-1]) if recorded else None)


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
