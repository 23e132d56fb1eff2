"""The tokens of a sequence and the states to return to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from weft.decoding.engines import TokenEngine

EVERY = 32  # tokens between two states that are kept; states in between are computed again, to the same bits


class TopToken(NamedTuple):
    id: int
    log_prob: float


class History:
    """Tokens that were read or generated, their log-probabilities, and, with `keep`, states to return to.

    `state` is the state after `ids[:read]`. All tokens but the last have been read whenever a token is generated.
    """

    def __init__(self, engine: TokenEngine, *, keep: bool = False, state: Any = None) -> None:
        self.engine, self.keep = engine, keep
        self.ids: list[int] = []
        self.log_probs: list[float | None] = []
        self.hidden = 0  # tokens at the beginning that a text without a prompt starts from
        self.read = 0
        self.state: Any = engine.start(1)[0] if state is None else state
        self.states: dict[int, Any] = {0: self.state} if keep else {}

    def append(self, ids: Sequence[int], log_prob: float | None = None) -> None:
        self.ids += ids
        self.log_probs += [log_prob] * len(ids)

    def advance(self, count: int, state: Any) -> None:
        """Notes that `count` more tokens have been read."""
        self.read, self.state = self.read + count, state
        if self.keep and self.read % EVERY == 0:
            self.states[self.read] = state

    def advance_scored(self, log_probs: Tensor, state: Any) -> None:
        """Notes that a token has been read, and the log-probability of the one after it."""
        self.advance(1, state)
        self.log_probs[self.read] = float(log_probs[self.ids[self.read]])

    def read_scored(self, count: int) -> None:
        """Reads up to `count` tokens, all but the last, and notes the log-probability of each."""
        for _ in range(min(count, len(self.ids) - 1 - self.read)):
            log_probs, (state,) = self.engine.step([self.ids[self.read]], [self.state])
            self.advance_scored(log_probs[0], state)

    @property
    def unread(self) -> int:
        """Tokens to read before the next can be generated."""
        return max(0, len(self.ids) - 1 - self.read)

    def next_log_probs(self) -> Tensor | None:
        """The log-probabilities (V,) of the next token; None before the first token."""
        if not self.ids:
            return None
        self.read_scored(self.unread)
        log_probs, _ = self.engine.step([self.ids[-1]], [self.state])
        return log_probs[0]

    def rewind(self, length: int) -> None:
        """Keeps the first `length` tokens; the state is that after all but the last of them."""
        del self.ids[length:], self.log_probs[length:]
        if not length:
            self.hidden = 0
        target = max(0, length - 1)
        self.states = {at: state for at, state in self.states.items() if at <= target}
        if self.read > target:
            self.read = max(self.states)
            (state,) = self.engine.read([self.ids[self.read : target]], [self.states[self.read]])
            self.advance(target - self.read, state)

    def copy(self, length: int) -> History:
        """A history of its own with the first `length` tokens."""
        other = History(self.engine, keep=self.keep)
        other.ids, other.log_probs, other.hidden = list(self.ids), list(self.log_probs), self.hidden
        other.read, other.state, other.states = self.read, self.state, dict(self.states)
        other.rewind(length)
        return other


def top_tokens(log_probs: Tensor, count: int) -> list[TopToken]:
    values, ids = log_probs.topk(min(count, len(log_probs)))
    return [TopToken(*pair) for pair in zip(ids.tolist(), values.tolist(), strict=True)]
