"""A model of the next token for rows that come and go: each row has a state of its own.

`StreamEngine` runs rows together through the engine's packed weights (`weft.engine.Stream`); a row has the same bits
alone and with others. `StepEngine` is for any `Stepper`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.decoding.sampling import Sample, Sampler, TokenCounts
from weft.decoding.stepper import Stepper
from weft.engine import Stream, StreamLayers
from weft.errors import not_finite

STREAM_ROWS = (16, 4, 1)  # rows of the streams; more rows are run in parts of these sizes


class TokenChoice(NamedTuple):
    """How the tokens of a row are chosen."""

    sampler: Sampler
    bias: tuple[tuple[int, float], ...]  # ids, and what is added to their log-probabilities; -inf: never chosen
    end: int | None


class TokenEngine(ABC):
    """Reads tokens of rows and predicts the next ones."""

    @abstractmethod
    def start(self, rows: int) -> list[Any]:
        """The states of rows before any token."""

    @abstractmethod
    def step(self, ids: Sequence[int], states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        """Reads one token in each row; returns log-probabilities (R, V) of the next, and the states."""

    def skip(self, ids: Sequence[int], states: Sequence[Any]) -> list[Any]:
        """The same without the log-probabilities."""
        return self.step(ids, states)[1]

    def read(self, ids: Sequence[Sequence[int]], states: Sequence[Any]) -> list[Any]:
        """Reads some tokens in each row; returns the states after them."""
        after = [*states]
        for at in range(max(map(len, ids), default=0)):
            rows = [row for row, tokens in enumerate(ids) if at < len(tokens)]
            states = self.skip([ids[row][at] for row in rows], [after[row] for row in rows])
            for row, state in zip(rows, states, strict=True):
                after[row] = state
        return after


class StreamEngine(TokenEngine):
    """Rows through the engine's packed weights. It also chooses tokens by itself, many in one call."""

    def __init__(self, layers: StreamLayers) -> None:
        self.layers = layers
        self._streams: dict[tuple[int, bool], Stream] = {}

    def _stream(self, rows: int, predicts: bool = True) -> Stream:
        if (rows, predicts) not in self._streams:
            output = self.layers if predicts else self.layers[:1]
            self._streams[rows, predicts] = Stream(*output, rows=rows)
        return self._streams[rows, predicts]

    def start(self, rows: int) -> list[Any]:
        return [tuple(cell.initial_state(1) for cell in self.layers.cells)] * rows

    def step(self, ids: Sequence[int], states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        logits, after = self._run(ids, states, predicts=True)
        return _checked(logits.log_softmax(-1)), after

    def skip(self, ids: Sequence[int], states: Sequence[Any]) -> list[Any]:
        return self._run(ids, states, predicts=False)[1]

    def _run(self, ids: Sequence[int], states: Sequence[Any], *, predicts: bool) -> tuple[Tensor, list[Any]]:
        results, after = [], []
        for part in parts(len(ids)):
            stream = self._stream(part.stop - part.start, predicts)
            result, state = stream.step(torch.tensor(ids[part]), _joined(states[part]))
            results.append(result)
            after += _split(state)
        return torch.cat(results), after

    def sample(
        self,
        ids: Sequence[int],
        states: Sequence[Any],
        uniforms: Tensor,
        choice: TokenChoice,
        seen: Sequence[TokenCounts],
    ) -> tuple[list[list[int]], list[Any]]:
        """Reads a token in each row, then samples and reads N tokens, for `uniforms` (R, N); the last is not read."""
        assert isinstance(choice.sampler, Sample)
        tokens, after = [], []
        for part in parts(len(ids)):
            chosen, state = self._stream(part.stop - part.start).sample(
                torch.tensor(ids[part]),
                _joined(states[part]),
                uniforms[part],
                choice.sampler,
                bias=dict(choice.bias),
                seen=seen[part] if choice.sampler.penalizes else (),
                end=choice.end,
            )
            for values in (part for layer in state for part in layer):
                _checked(values)  # no token was chosen of probabilities that are NaN
            tokens += chosen.tolist()
            after += _split(state)
        return tokens, after


class BatchRow(NamedTuple):
    """The state of one of several rows that a stepper runs together."""

    batch: Any
    row: int
    rows: int


class StepEngine(TokenEngine):
    """Rows through any stepper: those that have begun together, together as long as they go on; others one by one."""

    def __init__(self, model: Stepper) -> None:
        self.model = model

    def start(self, rows: int) -> list[Any]:
        return _batch_rows(self.model.initial_state(rows), rows)

    @torch.no_grad()
    def step(self, ids: Sequence[int], states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        together: dict[int, list[int]] = {}
        for at, state in enumerate(states):
            together.setdefault(id(state.batch) if isinstance(state, BatchRow) else -1 - at, []).append(at)
        results: list[Any] = [None] * len(ids)
        for places in together.values():
            state = states[places[0]]
            if isinstance(state, BatchRow):
                rows = [states[at].row for at in places]
                everyone = rows == [*range(state.rows)]
                state = state.batch if everyone else self.model.select(state.batch, torch.tensor(rows))
            log_probs, state = self.model.step(torch.tensor([ids[at] for at in places]), state)
            for at, *result in zip(places, log_probs.cpu(), _batch_rows(state, len(places)), strict=True):
                results[at] = result
        return _checked(torch.stack([log_probs for log_probs, _ in results])), [state for _, state in results]


def token_engine(model: Stepper) -> StreamEngine | StepEngine:
    """The fastest engine that can run a model, with its current weights: `stream_layers` are what the streams run."""
    layers: StreamLayers | None = getattr(model, "stream_layers", lambda: None)()
    return StepEngine(model) if layers is None else StreamEngine(layers)


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


def _checked(values: Tensor) -> Tensor:
    if not values.numel() or values.max() < torch.inf:  # not so of NaN
        return values
    raise not_finite("the model")


def _batch_rows(state: Any, rows: int) -> list[Any]:
    return [state] if rows == 1 else [BatchRow(state, row, rows) for row in range(rows)]


def _joined(states: Sequence[Any]) -> Any:
    if len(states) == 1:
        return states[0]
    layers = zip(*states, strict=True)
    return tuple(type(rows[0])(*map(torch.cat, zip(*rows, strict=True))) for rows in layers)


def _split(state: Any) -> list[Any]:
    rows = len(state[0][0])
    if rows == 1:
        return [state]
    return [tuple(type(layer)(*(part[row : row + 1] for part in layer)) for layer in state) for row in range(rows)]
