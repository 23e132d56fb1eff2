"""The linear-chain conditional random field (CRF): scores whole sequences of tags.

    score(y | x) = start[y_1] + sum_t scores[t, y_t] + sum_t transition[y_(t-1), y_t] + end[y_T]
    P(y | x) = exp(score(y | x)) / sum over all K^T tag sequences of the same

The scores of the positions come from a model, for example a recurrent layer; start, transition and end are parameters
of the CRF. Lafferty, McCallum and Pereira 2001, "Conditional random fields".

The forward pass, its gradient and Viterbi decoding are in weft.chains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft import chains
from weft.chains import Chains, Segment
from weft.errors import TensorError, WeftError


class TagConstraints(NamedTuple):
    """Boolean masks of the allowed first tags, transitions and last tags."""

    start: Tensor  # (K,)
    transition: Tensor  # (K, K): from, to
    end: Tensor  # (K,)


class TagPath(NamedTuple):
    """A sequence of tags and its log-probability."""

    tags: list[int]
    log_prob: float


class CRF(nn.Module):
    """A linear-chain CRF over K tags. Sequences that violate the constraints have probability 0.

    Every method takes scores (B, T, K) and lengths (B,); None means T.

    Args:
        tags: K, the number of tags.
        allowed: the constraints; None allows everything.

    Raises:
        WeftError: `tags` is below 1, or the constraints have other shapes.
    """

    start: Tensor
    transition: Tensor
    end: Tensor

    def __init__(self, tags: int, allowed: TagConstraints | None = None) -> None:
        super().__init__()
        if tags < 1:
            raise WeftError(f"CRF: tags={tags}", expected="1 or more")
        self.tags = tags
        self.start = nn.Parameter(torch.zeros(tags))
        self.transition = nn.Parameter(torch.zeros(tags, tags))
        self.end = nn.Parameter(torch.zeros(tags))
        if allowed is None:
            yes = torch.ones((), dtype=torch.bool)
            allowed = TagConstraints(yes.expand(tags), yes.expand(tags, tags), yes.expand(tags))
        for name, shape in (("start", (tags,)), ("transition", (tags, tags)), ("end", (tags,))):
            mask = getattr(allowed, name)
            if tuple(mask.shape) != shape or mask.dtype != torch.bool:
                raise WeftError(
                    f"CRF: allowed.{name} is {mask.dtype} of shape {tuple(mask.shape)}", expected=f"booleans of {shape}"
                )
            self.register_buffer(f"{name}_allowed", mask.clone())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters from U(-0.1, 0.1)."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def masked(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns start, transition and end with -inf where the constraints forbid them."""
        start, transition, end = (
            torch.where(getattr(self, f"{name}_allowed"), getattr(self, name), -torch.inf)
            for name in ("start", "transition", "end")
        )
        return start, transition, end

    def log_partition(self, scores: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Computes the log of the sum of exp(score) over all tag sequences, (B,)."""
        log_z = chains.log_partition(*self.masked(), scores, lengths)
        self._check_possible(log_z, scores, lengths)
        return log_z

    def score(self, scores: Tensor, tags: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Computes the score of tags (B, T), (B,); -inf if they violate the constraints."""
        rows, steps = scores.shape[:2]
        if tags.shape != (rows, steps):
            raise TensorError(f"CRF: tags are {tuple(tags.shape)}", expected=f"({rows}, {steps}), as in the scores")
        if lengths is None:
            lengths = torch.full((rows,), steps)
        tags, lengths = tags.to(scores.device), lengths.to(scores.device)
        inside = torch.arange(steps, device=scores.device) < lengths[:, None]  # (B, T)
        tags = torch.where(inside, tags, 0)
        if tags.numel() and not 0 <= int(tags.min()) <= int(tags.max()) < self.tags:
            raise TensorError(f"CRF: a tag is {int(tags.max())}", expected=f"0 to {self.tags - 1}")
        start, transition, end = self.masked()
        if not steps:
            return scores.new_zeros(rows)
        emissions = torch.where(inside, scores.gather(2, tags[:, :, None])[:, :, 0], 0).sum(1)
        transitions = torch.where(inside[:, 1:], transition[tags[:, :-1], tags[:, 1:]], 0).sum(1)
        last = tags.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        return torch.where(lengths > 0, start[tags[:, 0]] + emissions + transitions + end[last], 0)

    def log_likelihood(self, scores: Tensor, tags: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Computes log P(tags | scores) of each row, (B,). The loss is the negative sum.

        Raises:
            WeftError: the tags of a row violate the constraints.
        """
        found = self.score(scores, tags, lengths)
        if found.isneginf().any() and not scores.isneginf().any():
            row = int(found.isneginf().nonzero()[0, 0])
            size = int(lengths[row]) if lengths is not None else scores.shape[1]
            raise WeftError(
                f"CRF: the tags of row {row}, {tags[row, :size].tolist()}, violate the constraints",
                expected="an allowed sequence of tags",
            )
        return found - self.log_partition(scores, lengths)

    def marginals(self, scores: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Computes P(y_t = k | scores), (B, T, K); zeros past a row's length."""
        found, probs = chains.posterior(self._chains(scores, lengths))
        self._check_possible(found.log_z, scores, lengths)
        return probs.view(scores.shape).to(scores)

    def decode(self, scores: Tensor, lengths: Tensor | None = None) -> list[TagPath]:
        """Finds the most probable tags of each row (Viterbi)."""
        problem = self._chains(scores, lengths)
        states, best = chains.viterbi(problem)
        log_z = chains.partition(problem).log_z
        self._check_possible(log_z, scores, lengths)
        rows = states.view(scores.shape[:2]).tolist()
        found = zip(rows, problem.lengths.tolist(), (best - log_z).tolist(), strict=True)
        return [TagPath(row[:length], log_prob) for row, length, log_prob in found]

    def n_best(self, scores: Tensor, count: int, lengths: Tensor | None = None) -> list[list[TagPath]]:
        """Finds the `count` most probable tag sequences of each row, best first; fewer if fewer are allowed."""
        if count < 1:
            raise WeftError(f"CRF: count is {count}", expected="1 or more")
        problem = self._chains(scores, lengths)
        log_z = chains.partition(problem).log_z.tolist()
        found = zip(chains.n_best(problem, count), log_z, strict=True)
        return [[TagPath(path, score - total) for score, path in row] for row, total in found]

    def segment_probabilities(
        self, scores: Tensor, paths: Sequence[tuple[Sequence[int], Sequence[Segment]]], lengths: Tensor | None = None
    ) -> list[list[float]]:
        """Computes P(y_b ... y_(e-1) | scores) of segments (b, e) of a row's tags, summed over all tags around them.

        Args:
            scores: (B, T, K).
            paths: for each row its tags and the segments, end excluded.
            lengths: (B,).

        Returns:
            For each row the probabilities of its segments.
        """
        found = chains.segment_log_probs(self._chains(scores, lengths), paths)
        return [[min(1.0, math.exp(one)) for one in row] for row in found]

    def _chains(self, scores: Tensor, lengths: Tensor | None) -> Chains:
        return Chains.padded(*self.masked(), scores, lengths)

    def _check_possible(self, log_z: Tensor, scores: Tensor, lengths: Tensor | None) -> None:
        if log_z.isneginf().any():
            row = int(log_z.isneginf().nonzero()[0, 0])
            size = int(lengths[row]) if lengths is not None else scores.shape[1]
            raise WeftError(
                f"CRF: no sequence of {size} tags is allowed in row {row}", expected="constraints that allow one"
            )

    def extra_repr(self) -> str:
        return f"{self.tags}"


def bio_constraints(tags: Sequence[str]) -> TagConstraints:
    """Returns the constraints of the BIO scheme: I-X must follow B-X or I-X.

    Args:
        tags: the names of the tags: O, B-X or I-X.
    """
    parts = [_split(tag, "BI") for tag in tags]

    def follows(before: tuple[str, str] | None, after: tuple[str, str]) -> bool:
        return after[0] != "I" or (before is not None and before[0] in "BI" and before[1] == after[1])

    return TagConstraints(
        torch.tensor([follows(None, after) for after in parts]),
        torch.tensor([[follows(before, after) for after in parts] for before in parts]),
        torch.ones(len(parts), dtype=torch.bool),
    )


def bioes_constraints(tags: Sequence[str]) -> TagConstraints:
    """Returns the constraints of the BIOES scheme: B-X (I-X)* E-X is a span of two or more tokens, S-X a span of one.

    Args:
        tags: the names of the tags: O, B-X, I-X, E-X or S-X.
    """
    parts = [_split(tag, "BIES") for tag in tags]

    def follows(before: tuple[str, str] | None, after: tuple[str, str] | None) -> bool:
        open_kind = before[1] if before is not None and before[0] in "BI" else None
        continued_kind = after[1] if after is not None and after[0] in "IE" else None
        return open_kind == continued_kind

    return TagConstraints(
        torch.tensor([follows(None, after) for after in parts]),
        torch.tensor([[follows(before, after) for after in parts] for before in parts]),
        torch.tensor([follows(before, None) for before in parts]),
    )


def _split(tag: str, letters: str) -> tuple[str, str]:
    letter, dash, kind = tag.partition("-")
    if tag == "O" or (len(letter) == 1 and letter in letters and dash and kind):
        return letter, kind
    raise WeftError(f"the tag is {tag!r}", expected=f"O, or one of {', '.join(letters)} followed by -KIND")
