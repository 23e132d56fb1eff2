"""The best continuations of every prompt: beam search, written once, over Stepper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from weft.decoding.generate import NOTHING
from weft.decoding.stepper import Stepper
from weft.errors import WeftError


@runtime_checkable
class Ranking(Protocol):
    """A Stepper that may tell the likeliest tokens without working out the chances of all for others to read."""

    def likeliest(self, ids: Tensor, state: Any, many: int) -> tuple[Tensor, Tensor, Any]:
        """As `step`, but of the `many` likeliest alone: their log-probabilities and ids, (R, many), best first."""
        ...


class Hypothesis(NamedTuple):
    """A way to go on from a prompt, as `beam` found it."""

    ids: tuple[int, ...]  # without the end
    log_prob: float  # of all its tokens, the end included
    score: float  # log_prob / L^alpha, where L counts the end too
    ended: bool  # or cut because there was no more room


def beam(
    stepper: Stepper,
    prompts: Sequence[Sequence[int]],
    *,
    width: int,
    tokens: Sequence[int],
    end: int | None,
    alpha: float = 0.75,
    n_best: int = 1,
    banned: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """The best ways to go on from every prompt, up to `n_best` each, best first: score = log P / L^alpha.

    At every step the likeliest `width` of all continuations are kept; one that ends (or has its prompt's `tokens`)
    leaves the search and makes it narrower by one, so that width 1 is greedy and no width is lost to what is done
    (Sutskever et al. 2014). What can no longer come among the `n_best` is dropped: a log P only falls, so that
    log P / longest^alpha is the most it can reach. All prompts are searched side by side, and a row that is done or
    dropped costs nothing more.
    """
    if width < 1 or not 1 <= n_best <= width:
        raise WeftError(
            f"a beam of width {width} for the {n_best} best",
            expected="a width of 1 or more, and at most as many answers",
            hint=f"--beam {max(n_best, 1)}",
        )
    if alpha < 0:
        raise WeftError(f"the length penalty is {alpha}", expected="0 or more", hint="0.75")
    if len(tokens) != len(prompts) or not all(count > 0 for count in tokens):
        raise WeftError(f"room for {list(tokens)} tokens", expected="1 or more for each prompt")
    if not all(prompts):
        raise WeftError("a prompt has no token", expected="at least one token to start from in every row")
    found: list[list[Hypothesis]] = [[] for _ in prompts]
    begun = stepper.initial_state(len(prompts))
    # Prompts of equal length are read together, all but the last token, which the first step of the search reads.
    for length in sorted({len(prompt) for prompt in prompts}):
        rows = torch.tensor([row for row, prompt in enumerate(prompts) if len(prompt) == length])
        columns = torch.tensor([list(prompts[row]) for row in rows.tolist()]).T  # (length, rows)
        state = stepper.select(begun, rows)
        for ids in columns[:-1]:
            _, state = stepper.step(ids, state)
        room = torch.tensor([tokens[row] for row in rows.tolist()])
        search = _Search(width, room, end, alpha, n_best, torch.tensor(sorted(set(banned)), dtype=torch.long))
        for row, hypotheses in zip(rows.tolist(), search.run(stepper, columns[-1], state), strict=True):
            found[row] = hypotheses
    return found


class _Search:
    """A beam over B prompts at once. A row is a hypothesis that still grows; those of a prompt stand side by side.

    What was chosen at each step is kept as (token, place of its parent in the step before); hypotheses that are done
    are places in that history, and their tokens are read off backwards when all is over.
    """

    def __init__(self, width: int, tokens: Tensor, end: int | None, alpha: float, n_best: int, banned: Tensor) -> None:
        self.width, self.tokens, self.end, self.alpha, self.n_best = width, tokens, end, alpha, n_best
        self.banned = banned
        self.history: list[tuple[Tensor, Tensor]] = []  # tokens and parents of each step
        self.done: list[tuple[int, Tensor, Tensor, Tensor, Tensor]] = []  # step; prompt, place, log_prob, ended
        self.scores = torch.full((len(tokens), width), -torch.inf, dtype=torch.float64)  # of what is done
        self.count = torch.zeros(len(tokens), dtype=torch.long)  # of what is done

    def run(self, stepper: Stepper, ids: Tensor, state: Any) -> list[list[Hypothesis]]:
        prompt = torch.arange(len(ids))  # of each row
        total = torch.zeros(len(ids), dtype=torch.float64)
        place = prompt  # of each row in the step before
        while len(prompt):
            best, choices, state = self._likeliest(stepper, ids, state)
            parent, ids, total = self._grow(best, choices, prompt, total)
            prompt = prompt[parent]
            self.history.append((ids, place[parent]))
            kept = self._settle(prompt, ids, total)
            state = stepper.select(state, parent[kept])
            prompt, ids, total, place = prompt[kept], ids[kept], total[kept], kept
        return self._read()

    def _likeliest(self, stepper: Stepper, ids: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Read a token a row; log-probabilities and ids of all that may come next, (R, many), and the state."""
        # No row can give more than `width`, and what is banned may be among its best.
        many = self.width + len(self.banned)
        if isinstance(stepper, Ranking):
            best, choices, state = stepper.likeliest(ids, state, many)
        else:
            log_probs, state = stepper.step(ids, state)
            best, choices = log_probs.topk(min(many, log_probs.shape[-1]))
        best, choices = best.cpu(), choices.cpu()
        return best.masked_fill(torch.isin(choices, self.banned), -torch.inf), choices, state

    def _grow(self, best: Tensor, choices: Tensor, prompt: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The likeliest continuations of each prompt: their rows, tokens and log-probabilities, best first."""
        prompts, many = len(self.tokens), best.shape[1]
        rows = torch.bincount(prompt, minlength=prompts)
        first = rows.cumsum(0) - rows  # each prompt's first row
        slot = torch.arange(len(prompt)) - first[prompt]
        table = total.new_full((prompts, self.width, many), -torch.inf)
        table[prompt, slot] = total[:, None] + best.double()
        values, places = table.flatten(1).topk(self.width)  # (B, width)
        room = torch.arange(self.width) < (self.width - self.count)[:, None]
        wanted, column = (room & values.isfinite()).nonzero(as_tuple=True)
        chosen = places[wanted, column]
        parent = first[wanted] + chosen // many
        return parent, choices[parent, chosen % many], values[wanted, column]

    def _settle(self, prompt: Tensor, ids: Tensor, total: Tensor) -> Tensor:
        """Put down what is done; gives the places of what goes on."""
        step = len(self.history)
        ended = ids == (NOTHING if self.end is None else self.end)
        over = ended | (step >= self.tokens[prompt])
        done = over.nonzero()[:, 0]
        if len(done):
            owner = prompt[done]
            self.done.append((step, owner, done, total[done], ended[done]))
            fresh = torch.bincount(owner, minlength=len(self.count))
            first = fresh.cumsum(0) - fresh
            slot = self.count[owner] + torch.arange(len(done)) - first[owner]
            self.scores[owner, slot] = total[done] / step**self.alpha
            self.count += fresh
        # The n-th best score so far is what a hypothesis has to beat, at the greatest length that it may reach.
        to_beat = self.scores.topk(self.n_best).values[:, -1]
        hopeless = total / self.tokens[prompt].double() ** self.alpha <= to_beat[prompt]
        return (~over & ~hopeless).nonzero()[:, 0]

    def _read(self) -> list[list[Hypothesis]]:
        found: list[list[tuple[float, int, int, float, bool]]] = [[] for _ in self.tokens]
        for step, *parts in self.done:
            for prompt, place, log_prob, ended in zip(*(part.tolist() for part in parts), strict=True):
                found[prompt].append((log_prob / step**self.alpha, step, place, log_prob, ended))
        steps = [(tokens.tolist(), parents.tolist()) for tokens, parents in self.history]
        result = []
        for hypotheses in found:
            best = sorted(hypotheses, key=lambda one: -one[0])[: self.n_best]
            result.append(
                [
                    Hypothesis(_back(steps, step, place, ended), log_prob, score, ended)
                    for score, step, place, log_prob, ended in best
                ]
            )
        return result


def _back(steps: Sequence[tuple[list[int], list[int]]], step: int, place: int, ended: bool) -> tuple[int, ...]:
    """The tokens that lead to a place of a step, without the end."""
    ids = []
    for tokens, parents in reversed(steps[:step]):
        ids.append(tokens[place])
        place = parents[place]
    return tuple(reversed(ids[1:] if ended else ids))
