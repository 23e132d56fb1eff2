"""Sequences that are being generated, all of a model together: rows join and leave between two steps.

A row has the tokens and bits that it has alone: its random numbers depend on its seed and number only, as in
`weft.decoding.generate`, and the engine's rows do not depend on each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from weft.decoding import NO_TOKEN, TokenCounts, count_token
from weft.decoding.engines import SamplingEngine, TokenChoice, TokenEngine
from weft.decoding.history import History, TopToken, top_tokens
from weft.errors import WeftError
from weft.server.errors import LOGGER
from weft.server.metrics import Metrics
from weft.tasks.lm.stopping import StopText
from weft.text.codec import Codec, StreamingDecoder

PROMPT_CHUNK = 128  # tokens of a prompt that are read in one tick
TICK_TOKENS = 16  # tokens that are generated in one tick, after the first


class TokenInfo(NamedTuple):
    """A generated or echoed token."""

    id: int
    log_prob: float | None
    top: tuple[TopToken, ...]
    offset: int  # where its text begins, in the text of the choice


class Piece(NamedTuple):
    """What a row has generated since the last piece."""

    text: str
    tokens: tuple[TokenInfo, ...]
    finish: str = ""  # "length" or "stop" at the end
    error: str = ""


class SequenceRow:
    """One sequence.

    Args:
        history: Its tokens so far: a prompt of at least one token.
        codec: Decodes tokens.
        drawn: How tokens are chosen.
        limit: The most tokens to generate.
        seed: Of its random numbers, with the number of the row.
        stops: Texts before which it ends.
        log_probs: How many alternatives of each token to return; None: no log-probabilities.
        scored: Compute the log-probabilities of the prompt, too.
    """

    def __init__(
        self,
        history: History,
        codec: Codec,
        drawn: TokenChoice,
        *,
        limit: int,
        seed: tuple[int, int],
        stops: Iterable[str] = (),
        log_probs: int | None = None,
        scored: bool = False,
    ) -> None:
        self.history, self.drawn, self.limit, self.scored, self.log_probs = history, drawn, limit, scored, log_probs
        self.uniforms = np.random.default_rng(seed).random(limit)
        self.count = 0  # tokens generated
        self.log_prob, self.chosen = 0.0, 0  # of all tokens that were chosen with one, the end included; their number
        self.seen: TokenCounts = dict.fromkeys(history.ids if drawn.sample.penalizes else (), 0)
        self.prompt = len(history.ids)
        self.decoder = StreamingDecoder(codec, history.ids[-StreamingDecoder.CONTEXT :])
        self.stop = StopText(stops)
        self.length = 0  # characters of the text so far that are final
        self.finish = ""
        self.abandoned = False
        self.released: Callable[[], None] | None = None  # called when the worker no longer touches the row
        self._loop = asyncio.get_running_loop()
        self.pieces: asyncio.Queue[Piece] = asyncio.Queue()
        self._text: list[str] = []
        self._error = ""
        self._tokens: list[TokenInfo] = []

    @property
    def size(self) -> int:
        return row_size(self.prompt, self.limit, self.log_probs)

    @property
    def tokens_only(self) -> bool:
        """Whether nothing but its tokens is asked for, so that an engine may sample many of them in one call."""
        return self.log_probs is None and not self.history.keep

    @property
    def mean_log_prob(self) -> float:
        return self.log_prob / max(1, self.chosen)

    def accept(self, token: int, log_prob: float | None, top: tuple[TopToken, ...]) -> bool:
        """Takes a token that was chosen; returns whether it is one of the text, not its end."""
        if log_prob is not None:
            self.log_prob, self.chosen = self.log_prob + log_prob, self.chosen + 1
        if token in (self.drawn.end, NO_TOKEN):
            self._end("stop")
            return False
        self.history.append([token], log_prob)
        self.count += 1
        count_token(self.seen, token)
        held = len(self.decoder.text) - self.decoder.shown
        self._tokens.append(TokenInfo(token, log_prob, top, self.length + held))
        piece = self.decoder.push(token)
        self._text.append(self.stop.push(piece))
        self.length += len(piece)
        if self.stop.ended:
            self.finish = "stop"
        elif self.count >= self.limit:
            self._end("length")
        return True

    def _end(self, reason: str) -> None:
        self._text.append(self.stop.push(self.decoder.rest()) + self.stop.rest())
        self.finish = "stop" if self.stop.ended else reason

    def fail(self, message: str) -> None:
        self.finish, self._error = "error", message

    def flush(self) -> None:
        """Hands what is new to the event loop."""
        if self._tokens or self._text or self.finish:
            piece = Piece("".join(self._text), tuple(self._tokens), self.finish, self._error)
            self._text, self._tokens = [], []
            self._call(lambda: self.pieces.put_nowait(piece))

    def release(self) -> None:
        """Says that the worker no longer touches the row."""
        if self.released is not None:
            self._call(self.released)

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            self.abandoned = True  # the loop is closed: the server has stopped


class Generation:
    """The rows of one model. `add` and `abandon` may be called from any thread, `tick` from the worker's."""

    def __init__(self, name: str, engine: TokenEngine, metrics: Metrics) -> None:
        self.name, self.engine, self.metrics = name, engine, metrics
        self._sampler = engine if isinstance(engine, SamplingEngine) else None
        self._lock = threading.Lock()
        self._rows: list[SequenceRow] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size(self) -> int:
        """The sizes of all rows."""
        return sum(row.size for row in self._rows)

    def add(self, rows: Sequence[SequenceRow]) -> None:
        with self._lock:
            self._rows += rows

    def abandon(self, rows: Sequence[SequenceRow], released: Callable[[], None] | None = None) -> None:
        """Stops rows whose client has gone; `released` is called, in the event loop, when they are out of use."""
        with self._lock:
            busy = [row for row in rows if row in self._rows]
            for row in rows:
                row.abandoned = True
            if busy:
                busy[-1].released = released
        if released is not None and not busy:
            released()

    def active(self) -> bool:
        return bool(self._rows)

    def tick(self) -> None:
        """Every row reads a part of its prompt or generates some tokens."""
        rows = [row for row in self._rows if not row.abandoned]
        ready = []
        for row in rows:
            if row.abandoned:  # since this tick began
                continue
            try:
                self._read(row)
                if row.limit == 0:
                    row.finish = "length"
                elif not row.history.unread:
                    ready.append(row)
            except Exception as error:
                _fail(row, error)
        for group in self._groups(ready):
            self._generate(group)
        with self._lock:
            over = [row for row in self._rows if row.abandoned or row.finish]
            self._rows = [row for row in self._rows if not row.abandoned and not row.finish]
        for row in over:
            row.release()
        for row in rows:
            row.flush()  # the last piece of a row after it is out of use, so that its session is free

    def _read(self, row: SequenceRow) -> None:
        if row.scored:
            row.history.read_scored(PROMPT_CHUNK)
        else:
            row.history.read_quickly(PROMPT_CHUNK)

    def _groups(self, rows: Sequence[SequenceRow]) -> Iterator[list[SequenceRow]]:
        """Rows that can be generated together."""
        found: dict[TokenChoice | None, list[SequenceRow]] = {}
        for row in rows:
            found.setdefault(row.drawn if self._sampler and row.tokens_only else None, []).append(row)
        yield from found.values()

    def _generate(self, rows: list[SequenceRow]) -> None:
        try:
            if self._sampler is not None and rows[0].tokens_only:
                self._sample(self._sampler, rows)
            else:
                self._step(rows)
        except Exception as error:
            if len(rows) == 1:
                _fail(rows[0], error)
                return
            for row in rows:
                if not row.finish:
                    self._generate([row])

    def _sample(self, sampler: SamplingEngine, rows: list[SequenceRow]) -> None:
        """Tokens of rows that are chosen in the same way, by the engine's sampling loop."""
        columns = (
            1 if any(row.count == 0 for row in rows) else min(TICK_TOKENS, *(row.limit - row.count for row in rows))
        )
        uniforms = torch.from_numpy(np.stack([row.uniforms[row.count : row.count + columns] for row in rows]))
        histories = [row.history for row in rows]
        tokens, states = sampler.sample(
            [one.ids[-1] for one in histories],
            [one.state for one in histories],
            uniforms,
            rows[0].drawn,
            [row.seen for row in rows],
        )
        self.metrics.batches.labels(self.name).observe(len(rows))
        for row, chosen, state in zip(rows, tokens, states, strict=True):
            before = row.count
            for token in chosen:
                if not row.finish and not row.abandoned:
                    row.accept(token, None, ())
            row.history.advance(len(chosen), state)
            self.metrics.tokens.labels(self.name).inc(row.count - before)

    def _step(self, rows: list[SequenceRow]) -> None:
        """Tokens of rows that need their log-probabilities, or that are kept in a session."""
        for _ in range(TICK_TOKENS):
            rows = [row for row in rows if not row.finish and not row.abandoned]
            if not rows:
                return
            histories = [row.history for row in rows]
            log_probs, states = self.engine.step([one.ids[-1] for one in histories], [one.state for one in histories])
            self.metrics.batches.labels(self.name).observe(len(rows))
            for row, values, state in zip(rows, log_probs, states, strict=True):
                if row.abandoned:
                    continue
                allowed = values.clone()
                for token, bias in row.drawn.bias:
                    allowed[token] += bias
                now = torch.tensor([row.uniforms[row.count]])
                token = int(row.drawn.sample(allowed[None], now, [row.seen]))
                top = tuple(top_tokens(values, row.log_probs)) if row.log_probs else ()
                if row.accept(token, float(values[token]), top):
                    row.history.advance(1, state)
            self.metrics.tokens.labels(self.name).inc(sum(not row.finish or row.finish == "length" for row in rows))
            for row in rows:
                if not row.finish:
                    row.flush()


def row_size(prompt: int, limit: int, log_probs: int | None) -> int:
    """What is kept of a row until its request is answered: tokens, and alternatives of those that are generated."""
    return prompt + limit * (1 + (log_probs or 0))


def _fail(row: SequenceRow, error: Exception) -> None:
    if not isinstance(error, WeftError):
        LOGGER.error("generation failed: %s", type(error).__name__, exc_info=error)
    row.fail(str(error) if isinstance(error, WeftError) else "internal error")
