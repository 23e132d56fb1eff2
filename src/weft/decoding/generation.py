"""Generation: rows that continue their prompts together, and join and leave between two steps; where a text stops.

A row has the tokens that it has alone: its random numbers depend on its seed only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from weft.decoding.engines import StreamEngine, TokenChoice, TokenEngine, token_engine
from weft.decoding.history import History
from weft.decoding.sampling import NO_TOKEN, Sample, Sampler, TokenCounts, count_token, greedy
from weft.decoding.stepper import Stepper
from weft.errors import WeftError
from weft.text.arguments import check_texts

PROMPT_CHUNK = 128  # tokens of a prompt that are read at a time
CHUNK = 32  # tokens that are generated at a time: few enough to watch them appear


class GeneratedRow:
    """A sequence of up to `limit` tokens that is being generated after a prompt of at least one token, its history.

    `seed` is that of its random numbers, one for each token; with `scored` the prompt has log-probabilities, too.
    """

    def __init__(
        self, history: History, choice: TokenChoice, *, limit: int, seed: tuple[int, int], scored: bool = False
    ) -> None:
        self.history, self.choice, self.limit, self.scored = history, choice, limit, scored
        self.uniforms = np.random.default_rng(seed).random(limit)
        self.count = 0  # tokens generated
        penalizes = isinstance(choice.sampler, Sample) and choice.sampler.penalizes
        self.seen: TokenCounts = dict.fromkeys(history.ids if penalizes else (), 0)
        self.finish = ""  # "length" or "stop" at the end
        self.abandoned = False

    @property
    def over(self) -> bool:
        return self.abandoned or bool(self.finish)

    @property
    def tokens_only(self) -> bool:
        """Whether nothing but its tokens is asked for, so that an engine may sample many of them in one call."""
        return not self.history.keep and isinstance(self.choice.sampler, Sample)

    def accept(self, token: int, log_probs: Tensor | None) -> bool:
        """Takes a token, chosen of log-probabilities (V,); returns whether it is one of the text, not its end."""
        if token in (self.choice.end, NO_TOKEN):
            self.finish = "stop"
            return False
        self.history.append([token], None if log_probs is None else float(log_probs[token]))
        self.count += 1
        count_token(self.seen, token)
        if self.count >= self.limit:
            self.finish = "length"
        return True


def advance(engine: TokenEngine, rows: Sequence[GeneratedRow], most: int) -> Iterator[Sequence[GeneratedRow]]:
    """Every row reads a part of its prompt, or generates up to `most` tokens; only one where the first comes next.

    Yields:
        The rows of each computation, after it.
    """
    streams = engine if isinstance(engine, StreamEngine) else None
    rows = [row for row in rows if not row.over]
    if streams is not None:
        _read(streams, [row for row in rows if row.history.unread and not row.scored])
    groups: dict[TokenChoice | None, list[GeneratedRow]] = {}
    for row in rows:
        if not row.limit and not row.history.unread:
            row.finish = "length"
        elif streams is None or row.scored or not row.history.unread:
            groups.setdefault(row.choice if streams is not None and row.tokens_only else None, []).append(row)
    for choice, group in groups.items():
        if streams is not None and choice is not None:
            _sample(streams, choice, group, most)
            yield group
        else:
            yield from _step(engine, group, most)


def _read(engine: StreamEngine, rows: Sequence[GeneratedRow]) -> None:
    """A part of each prompt, but its last token; the probabilities of its tokens are not computed."""
    histories = [row.history for row in rows]
    chunks = [one.ids[one.read : min(one.read + PROMPT_CHUNK, len(one.ids) - 1)] for one in histories]
    states = engine.read(chunks, [one.state for one in histories])
    for history, chunk, state in zip(histories, chunks, states, strict=True):
        history.advance(len(chunk), state)


def _sample(engine: StreamEngine, choice: TokenChoice, rows: Sequence[GeneratedRow], most: int) -> None:
    """Tokens of rows that are chosen in the same way, by the engine's sampling loop."""
    columns = 1 if any(row.count == 0 for row in rows) else min(most, *(row.limit - row.count for row in rows))
    uniforms = torch.from_numpy(np.stack([row.uniforms[row.count : row.count + columns] for row in rows]))
    histories = [row.history for row in rows]
    tokens, states = engine.sample(
        [one.ids[-1] for one in histories],
        [one.state for one in histories],
        uniforms,
        choice,
        [row.seen for row in rows],
    )
    for row, chosen, state in zip(rows, tokens, states, strict=True):
        for token in chosen:
            if not row.over:
                row.accept(token, None)
        row.history.advance(len(chosen), state)


def _step(engine: TokenEngine, rows: Sequence[GeneratedRow], most: int) -> Iterator[Sequence[GeneratedRow]]:
    """One token in each row at a time, of its prompt or generated."""
    for _ in range(most):
        rows = [row for row in rows if not row.over]
        if not rows:
            return
        histories = [row.history for row in rows]
        log_probs, states = engine.step([one.ids[one.read] for one in histories], [one.state for one in histories])
        choosing: dict[TokenChoice, list[int]] = {}
        for at, row in enumerate(rows):
            if not row.history.unread:
                choosing.setdefault(row.choice, []).append(at)
            elif row.scored:
                row.history.advance_scored(log_probs[at], states[at])
            else:
                row.history.advance(1, states[at])
            if not row.limit and not row.history.unread:
                row.finish = "length"
        for choice, places in choosing.items():
            chosen = _choose(choice, [rows[at] for at in places], log_probs[places])
            for at, token in zip(places, chosen, strict=True):
                if not rows[at].abandoned and rows[at].accept(token, log_probs[at]):
                    rows[at].history.advance(1, states[at])
        yield rows


def _choose(choice: TokenChoice, rows: Sequence[GeneratedRow], log_probs: Tensor) -> list[int]:
    """Tokens of rows that are chosen in the same way, of their log-probabilities (R, V)."""
    for token, bias in choice.bias:
        log_probs[:, token] += bias  # indexed by a list, so a copy
    uniforms = torch.tensor([row.uniforms[row.count] for row in rows], dtype=torch.float64)
    if isinstance(choice.sampler, Sample):
        chosen = choice.sampler(log_probs, uniforms, [row.seen for row in rows])
    else:
        chosen = choice.sampler(log_probs, uniforms)
    return [int(token) for token in chosen]


def generate(
    stepper: Stepper,
    prompts: Sequence[Sequence[int]],
    sampler: Sampler,
    *,
    tokens: int,
    seed: int = 0,
    banned: Sequence[int] = (),
    end: int | None = None,
) -> Iterator[list[int]]:
    """Continues every prompt, of at least one token, by up to `tokens` tokens.

    Each row has its own clock: it may start to write as soon as its own prompt has been read, even while longer prompts
    are still being read. The random number of row r's n-th token depends on (seed, r, n) alone, not on the other rows.
    `banned` ids are never generated; `end` ends a row and is not yielded.

    Yields:
        The new token of each row, step by step; NO_TOKEN before a row starts to write and after its end.
    """
    if not prompts or not all(prompts):
        raise WeftError("a prompt has no token", expected="at least one token to start from in every row")
    engine = token_engine(stepper)
    sampler = Sample(top_k=1) if sampler is greedy else sampler
    choice = TokenChoice(sampler, tuple((token, -math.inf) for token in banned), end)
    rows = []
    for number, (prompt, state) in enumerate(zip(prompts, engine.start(len(prompts)), strict=True)):
        history = History(engine, state=state)
        history.append(prompt)
        rows.append(GeneratedRow(history, choice, limit=tokens, seed=(seed, number)))
    shown = [len(prompt) for prompt in prompts]
    while tokens and not all(row.finish for row in rows):
        for _ in advance(engine, rows, CHUNK):
            new = [row.history.ids[begin:] for row, begin in zip(rows, shown, strict=True)]
            shown = [len(row.history.ids) for row in rows]
            yield from (list(column) for column in zip_longest(*new, fillvalue=NO_TOKEN))


class StopText:
    """Ends a growing text before the first stop text that is complete; holds back what may be the beginning of one.

    How the text is cut into pieces changes nothing. The time of a piece depends on its length, not on that of the stop
    texts (the algorithm of Knuth, Morris and Pratt).

    >>> text = StopText(["END"])
    >>> text.push("to the E"), text.push("nglish"), text.push(" EN"), text.push("D of"), text.ended
    ('to the ', 'English', ' ', '', True)
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self.stops, self.held, self.ended = tuple(stops), "", False
        self._borders = [_borders(stop) for stop in self.stops]
        self._matched = [0] * len(self.stops)  # of each stop text: how much of it the text ends with

    def push(self, piece: str) -> str:
        """Add text and return what is final."""
        if self.ended:
            return ""
        text = self.held + piece
        for end, character in enumerate(piece, len(self.held) + 1):
            complete = 0
            for number, (stop, borders) in enumerate(zip(self.stops, self._borders, strict=True)):
                matched = self._matched[number]
                while matched and stop[matched] != character:
                    matched = borders[matched]
                matched += stop[matched] == character
                self._matched[number] = matched
                if matched == len(stop):
                    complete = max(complete, matched)
            if complete:
                self.held, self.ended = "", True
                return text[: end - complete]
        final = len(text) - max(self._matched, default=0)
        self.held = text[final:]
        return text[:final]

    def rest(self) -> str:
        """Return what is still held back: the text has ended without a stop text."""
        piece, self.held = self.held, ""
        return piece


@lru_cache(maxsize=64)
def _borders(text: str) -> tuple[int, ...]:
    """Of the first n characters, for each n: how many of them both begin and end it, fewer than all.

    >>> _borders("aabaa")
    (0, 0, 1, 0, 1, 2)
    """
    borders, border = [0], 0
    for at, character in enumerate(text):
        while border and text[border] != character:
            border = borders[border]
        border += bool(at) and text[border] == character
        borders.append(border)
    return tuple(borders)


def check_stops(stop: str | Iterable[str]) -> tuple[str, ...]:
    """One stop text or several as a tuple; empty ones are refused."""
    stops = (stop,) if isinstance(stop, str) else tuple(check_texts(stop))
    if not all(stops):
        raise WeftError("a `stop` text is empty", expected="text before which to stop")
    return stops
