"""A language model one token at a time, for rows that come and go.

A row's state is that of one sequence. `StreamEngine` runs several rows together through the engine's packed weights
(`weft.engine.Stream`); a row has the same bits alone and with others. `StepEngine` is for any `Stepper`, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from weft.decoding.sampling import Sample, TokenCounts
from weft.decoding.stepper import Stepper
from weft.engine import Stream

STREAM_ROWS = (16, 4, 1)  # rows of the streams; more rows are run in parts of these sizes


class TokenChoice(NamedTuple):
    """How the tokens of a row are chosen."""

    sample: Sample
    bias: tuple[tuple[int, float], ...]  # ids, and what is added to their log-probabilities; -inf: never chosen
    end: int | None


@runtime_checkable
class StreamModel(Protocol):
    """A language model that the engine's streams may run."""

    def sampler(self, rows: int) -> Stream | None: ...

    def reader(self) -> Stream | None: ...


class TokenEngine(Protocol):
    """Reads tokens of rows and predicts the next ones."""

    def start(self) -> Any:
        """The state before any token."""
        ...

    def read(self, ids: Sequence[int], state: Any) -> Any:
        """Reads tokens; returns the state after them."""
        ...

    def step(self, ids: Sequence[int], states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        """Reads one token in each row; returns log-probabilities (R, V) of the next, and the states."""
        ...


@runtime_checkable
class SamplingEngine(TokenEngine, Protocol):
    """An engine that also chooses tokens by itself, many in one call."""

    def sample(
        self,
        ids: Sequence[int],
        states: Sequence[Any],
        uniforms: Tensor,
        drawn: TokenChoice,
        seen: Sequence[TokenCounts],
    ) -> tuple[list[list[int]], list[Any]]:
        """Reads a token in each row, then samples and reads N tokens, for `uniforms` (R, N); the last is not read."""
        ...


class StreamEngine:
    """Rows through the engine's packed weights."""

    def __init__(self, model: StreamModel, reader: Stream) -> None:
        self.model, self._reader = model, reader
        self._streams: dict[int, Stream] = {}

    def _stream(self, rows: int) -> Stream:
        if rows not in self._streams:
            made = self.model.sampler(rows)
            assert made is not None
            self._streams[rows] = made
        return self._streams[rows]

    def start(self) -> Any:
        return self._reader.start()

    def read(self, ids: Sequence[int], state: Any) -> Any:
        for token in ids:
            _, state = self._reader.step(torch.tensor([token]), state)
        return state

    def step(self, ids: Sequence[int], states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        found, after = [], []
        for part in parts(len(ids)):
            logits, state = self._stream(part.stop - part.start).step(torch.tensor(ids[part]), _joined(states[part]))
            found.append(logits.log_softmax(-1))
            after += _split(state)
        return torch.cat(found), after

    def sample(
        self,
        ids: Sequence[int],
        states: Sequence[Any],
        uniforms: Tensor,
        drawn: TokenChoice,
        seen: Sequence[TokenCounts],
    ) -> tuple[list[list[int]], list[Any]]:
        tokens, after = [], []
        for part in parts(len(ids)):
            chosen, state = self._stream(part.stop - part.start).sample(
                torch.tensor(ids[part]),
                _joined(states[part]),
                uniforms[part],
                drawn.sample,
                bias=dict(drawn.bias),
                seen=seen[part] if drawn.sample.penalizes else (),
                end=drawn.end,
            )
            tokens += chosen.tolist()
            after += _split(state)
        return tokens, after


class StepEngine:
    """Rows through any stepper, one by one."""

    def __init__(self, model: Stepper) -> None:
        self.model = model

    def start(self) -> Any:
        return self.model.initial_state(1)

    @torch.no_grad()
    def read(self, ids: Sequence[int], state: Any) -> Any:
        for token in ids:
            _, state = self.model.step(torch.tensor([token]), state)
        return state

    @torch.no_grad()
    def step(self, ids: Sequence[int], states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        found = [self.model.step(torch.tensor([token]), state) for token, state in zip(ids, states, strict=True)]
        return torch.cat([log_probs.cpu() for log_probs, _ in found]), [state for _, state in found]


def token_engine(model: Stepper) -> TokenEngine:
    """The fastest engine that can run a model."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    reader = model.reader() if isinstance(model, StreamModel) else None
    if reader is not None and isinstance(model, StreamModel):
        return StreamEngine(model, reader)
    return StepEngine(model)


def parts(rows: int) -> Iterator[slice]:
    """Slices of the sizes of the streams that cover all rows.

    >>> list(parts(6))
    [slice(0, 4, None), slice(4, 5, None), slice(5, 6, None)]
    """
    begin = 0
    for size in STREAM_ROWS:
        while rows - begin >= size:
            yield slice(begin, begin + size)
            begin += size


def _joined(states: Sequence[Any]) -> Any:
    """States of single rows as one state."""
    if len(states) == 1:
        return states[0]
    layers = zip(*states, strict=True)
    return tuple(type(rows[0])(*map(torch.cat, zip(*rows, strict=True))) for rows in layers)


def _split(state: Any) -> list[Any]:
    rows = len(state[0][0])
    if rows == 1:
        return [state]
    return [tuple(type(layer)(*(part[row : row + 1] for part in layer)) for layer in state) for row in range(rows)]
