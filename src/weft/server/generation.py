"""Sequences that are being generated, all of a model together: rows join and leave between two steps.

A row has the tokens and bits that it has alone: its random numbers depend on its seed and number only, as in
`weft.decoding.generate`, and the engine's rows do not depend on each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from weft.decoding import GeneratedRow, History, TokenChoice, TokenEngine, advance
from weft.decoding.generation import StopText
from weft.decoding.history import TopToken, top_tokens
from weft.errors import WeftError
from weft.server.errors import LOGGER
from weft.server.metrics import Metrics
from weft.text.text_field import StreamingDecoder, Text

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


class SequenceRow(GeneratedRow):
    """One sequence: what it generates goes, as text, to the event loop.

    Args:
        pieces: Where it goes, with the number of the row.
        history: Its tokens so far: a prompt of at least one token.
        text_field: Decodes tokens.
        choice: How tokens are chosen.
        limit: The most tokens to generate.
        seed: Of its random numbers, with the number of the row.
        stops: Texts before which it ends.
        log_probs: How many alternatives of each token to return; None: no log-probabilities.
        scored: Compute the log-probabilities of the prompt, too.
    """

    def __init__(
        self,
        pieces: asyncio.Queue[tuple[int, Piece]],
        history: History,
        text_field: Text,
        choice: TokenChoice,
        *,
        limit: int,
        seed: tuple[int, int],
        stops: Iterable[str] = (),
        log_probs: int | None = None,
        scored: bool = False,
    ) -> None:
        super().__init__(history, choice, limit=limit, seed=seed, scored=scored)
        self.pieces, self.number, self.log_probs = pieces, seed[1], log_probs
        self.log_prob, self.chosen = 0.0, 0  # of all tokens that were chosen with one, the end included; their number
        self.prompt = len(history.ids)
        self.decoder = StreamingDecoder(text_field, history.ids[-StreamingDecoder.CONTEXT :])
        self.stop = StopText(stops)
        self.length = 0  # characters of the text so far that are final
        self.released: Callable[[], None] | None = None  # called when the worker no longer touches the row
        self._loop = asyncio.get_running_loop()
        self._text: list[str] = []
        self._error = ""
        self._tokens: list[TokenInfo] = []

    @property
    def size(self) -> int:
        return row_size(self.prompt, self.limit, self.log_probs)

    @property
    def tokens_only(self) -> bool:
        return self.log_probs is None and super().tokens_only

    @property
    def mean_log_prob(self) -> float:
        return self.log_prob / max(1, self.chosen)

    def accept(self, token: int, log_probs: Tensor | None) -> bool:
        log_prob = None if log_probs is None else float(log_probs[token])
        if log_prob is not None:
            self.log_prob, self.chosen = self.log_prob + log_prob, self.chosen + 1
        taken = super().accept(token, log_probs)
        if taken:
            top = top_tokens(log_probs, self.log_probs) if log_probs is not None and self.log_probs else ()
            held = len(self.decoder.text) - self.decoder.shown
            self._tokens.append(TokenInfo(token, log_prob, tuple(top), self.length + held))
            piece = self.decoder.push(token)
            self._text.append(self.stop.push(piece))
            self.length += len(piece)
        if self.finish:
            self._text.append(self.stop.push(self.decoder.rest()) + self.stop.rest())
        if self.stop.ended:
            self.finish = "stop"
        return taken

    def fail(self, message: str) -> None:
        self.finish, self._error = "error", message

    def flush(self) -> None:
        """Hands what is new to the event loop."""
        if self._tokens or self._text or self.finish:
            piece = Piece("".join(self._text), tuple(self._tokens), self.finish, self._error)
            self._text, self._tokens = [], []
            self._call(lambda: self.pieces.put_nowait((self.number, piece)))

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

    def tick(self) -> None:
        """Every row reads a part of its prompt or generates some tokens."""
        rows = [row for row in self._rows if not row.abandoned]
        self._advance(rows)
        with self._lock:
            over = [row for row in self._rows if row.over]
            self._rows = [row for row in self._rows if not row.over]
        for row in over:
            row.release()
        for row in rows:
            row.flush()  # the last piece of a row after it is out of use, so that its session is free

    def _advance(self, rows: Sequence[SequenceRow]) -> None:
        generated = sum(row.count for row in rows)
        try:
            for batch in advance(self.engine, rows, TICK_TOKENS):
                self.metrics.batches.labels(self.name).observe(len(batch))
                before, generated = generated, sum(row.count for row in rows)
                self.metrics.tokens.labels(self.name).inc(generated - before)
                for row in rows:
                    if not row.finish:
                        row.flush()
        except Exception as error:
            for row in rows:  # the mistake of one row is no failure of the others
                if len(rows) == 1:
                    _fail(row, error)
                elif not row.over:
                    self._advance([row])


def row_size(prompt: int, limit: int, log_probs: int | None) -> int:
    """What is kept of a row until its request is answered: tokens, and alternatives of those that are generated."""
    return prompt + limit * (1 + (log_probs or 0))


def _fail(row: SequenceRow, error: Exception) -> None:
    if not isinstance(error, WeftError):
        LOGGER.error("generation failed: %s", type(error).__name__, exc_info=error)
    row.fail(str(error) if isinstance(error, WeftError) else "internal error")
