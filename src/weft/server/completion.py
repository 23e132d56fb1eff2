"""Text generation for one request: rows of a model's `Generation`, whole or piece by piece."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from weft.decoding import Sample
from weft.decoding.engines import TokenChoice
from weft.decoding.history import History
from weft.errors import WeftError
from weft.server.config import MOST_CHARACTERS
from weft.server.errors import RequestError, overloaded
from weft.server.generation import Piece, SequenceRow, row_size
from weft.server.http import Context
from weft.server.models import LoadedModel, generator
from weft.server.schema import Schema, integer, optional, options_schema, real
from weft.server.sessions import Session
from weft.tasks.lm.predictor import LmPredictor

MOST_SEQUENCES = 64  # prompts times choices of a request
LONGEST_STOP = 1000  # characters of a stop text
Prompt = str | tuple[int, ...]  # a text, or token ids
GREEDY_BELOW = 1e-4  # a temperature that is as good as 0


@dataclass(frozen=True)
class CompletionRequest:
    """What to generate."""

    prompts: tuple[Prompt, ...]  # the beginnings of the texts, or their token ids
    tokens: int  # the most tokens of each
    choices: int = 1  # how many continuations of each prompt
    sample: Sample = field(default_factory=Sample)  # how tokens are chosen
    bias: tuple[tuple[int, float], ...] = ()  # ids, and what is added to their log-probabilities
    seed: int | None = None  # the random seed; None or -1: a new one
    stop: tuple[str, ...] = ()  # texts before which to end
    log_probs: int | None = None  # how many alternatives of each token to return; None: no log-probabilities
    ranked: bool = False  # compute the mean log-probability of each continuation, for `Completion.ranked`
    echo: bool = False  # score the prompt, too
    session: str | None = None  # the session that the text continues


SEED = optional(integer(-1, (1 << 63) - 1, "equal seeds give equal texts; -1: a new one"))
SAMPLING: dict[str, Schema] = {
    name: optional({**schema, "maximum": schema.get("maximum", 1_000_000)})
    for name, schema in options_schema(Sample)["properties"].items()
}
SAMPLING["temperature"] = optional(real(0, 100, f"{SAMPLING['temperature']['description']}; 0: greedy"))


def read_sample(options: Mapping[str, Any]) -> Sample:
    """How tokens are chosen; temperature 0 is greedy. Of the options those that are fields of `Sample` are read."""
    found = {name: options[name] for name in SAMPLING if options.get(name) is not None}
    if min(found.get("temperature", 1), found.get("top_p", 1)) < GREEDY_BELOW:
        found |= {"temperature": 1.0, "top_p": 1.0, "top_k": 1}
    return Sample(**found)


async def prompt_ids(model: LoadedModel, prompts: Sequence[Prompt]) -> list[list[int]]:
    """The token ids of texts, which the model's worker splits, as long ones take a while; ids are checked."""
    predictor = generator(model)
    for prompt in prompts:
        if not isinstance(prompt, str):
            check_ids(predictor, prompt)
    found: list[list[int]] = await model.worker.call(
        lambda: [predictor.prompt_ids(one) if isinstance(one, str) else list(one) for one in prompts]
    )
    return found


def check_ids(predictor: LmPredictor, ids: Iterable[int]) -> None:
    """Refuses ids that are not in the vocabulary."""
    size = len(predictor.text_field.vocabulary)
    wrong = next((one for one in ids if not 0 <= one < size), None)
    if wrong is not None:
        raise RequestError(400, f"a token id is {wrong}; expected 0 to {size - 1}")


class Completion:
    """A running request: its rows, and the session it holds."""

    @classmethod
    async def prepare(cls, context: Context, model: LoadedModel, request: CompletionRequest) -> Completion:
        """Encodes the prompts."""
        return cls(context, model, request, await prompt_ids(model, request.prompts))

    def __init__(
        self, context: Context, model: LoadedModel, request: CompletionRequest, ids: Sequence[Sequence[int]]
    ) -> None:
        self.context, self.model, self.request = context, model, request
        self.predictor = generator(model)
        self._held = ExitStack()
        self.queue: asyncio.Queue[tuple[int, Piece]] = asyncio.Queue()
        if request.tokens > context.config.max_tokens:
            raise RequestError(
                400, f"{request.tokens:,} tokens to generate; expected at most {context.config.max_tokens:,}"
            )
        if len(request.prompts) * request.choices > MOST_SEQUENCES:
            raise RequestError(
                400,
                f"{len(request.prompts)} prompts with {request.choices} choices; expected {MOST_SEQUENCES} or fewer",
            )
        self._check_size(ids)
        histories = self._histories(ids)
        self.seed = secrets.randbits(31) if request.seed in (None, -1) else request.seed
        banned = dict.fromkeys(self.predictor.banned_ids, -math.inf)
        choice = TokenChoice(request.sample, tuple({**dict(request.bias), **banned}.items()), self.predictor.end_id)
        self.prompt_tokens = sum(len(history.ids) for history in histories)
        try:
            self.rows = [
                SequenceRow(
                    self.queue,
                    history,
                    self.predictor.text_field,
                    choice,
                    limit=request.tokens,
                    seed=(self.seed, number),
                    stops=request.stop,
                    log_probs=request.log_probs if not request.ranked else request.log_probs or 0,
                    scored=history.keep or (request.echo and request.log_probs is not None),
                )
                for number, history in enumerate(histories)
            ]
        except BaseException:
            self._held.close()
            raise

    def _check_size(self, ids: Sequence[Sequence[int]]) -> None:
        request, config = self.request, self.context.config
        size = request.choices * sum(row_size(len(prompt), request.tokens, request.log_probs) for prompt in ids)
        if size > config.request_tokens:
            raise RequestError(
                400, f"the request has {size:,} tokens: of its prompts, to generate, and alternatives of these, "
                f"for each choice; expected at most {config.request_tokens:,}",
            )  # fmt: skip
        echoed = request.choices * sum(len(one) for one in request.prompts if isinstance(one, str)) * request.echo
        if echoed > MOST_CHARACTERS:
            raise RequestError(
                400, f"the prompts to echo have {echoed:,} characters; expected at most {MOST_CHARACTERS:,}"
            )

    def _histories(self, ids: Sequence[Sequence[int]]) -> list[History]:
        request, engine = self.request, self.model.engine
        assert engine is not None
        if request.session is not None:
            if len(request.prompts) * request.choices != 1:
                raise RequestError(400, "a session continues one text; expected one prompt and n=1")
            return [self._session_history(request.session, ids[0])]
        histories = []
        for prompt in ids:
            for _ in range(request.choices):
                history = History(engine, keep=False)
                history.append(prompt)
                histories.append(history)
        return histories

    def _session_history(self, id: str, ids: Sequence[int]) -> History:
        sessions = self.context.sessions
        session: Session = sessions.find(id) or sessions.new(id, self.model)
        if session.model.name != self.model.name:
            raise RequestError(
                409,
                f"the session {id!r} is of the model {session.model.name}, and the request names {self.model.name}",
            )
        self._held.enter_context(sessions.use(session))
        history, prompt = session.history, self.request.prompts[0]
        try:
            ids = ids if prompt or not history.ids else []
            if len(history.ids) + len(ids) + self.request.tokens > self.context.config.session_tokens:
                most = self.context.config.session_tokens
                raise RequestError(400, f"the session {id!r} would have more than {most:,} tokens")
        except BaseException:
            self._held.close()
            raise
        if not prompt and not history.ids:
            history.hidden = len(ids)
        history.append(ids)
        return history

    def start(self) -> None:
        generation = self.model.generation
        assert generation is not None
        if generation.size > self.context.config.model_tokens:
            self.close()
            raise overloaded(f"the model {self.model.name} generates {generation.size:,} tokens; expected fewer")
        generation.add(self.rows)
        self.model.worker.wake()

    def close(self, gone: bool = False) -> None:
        """Ends it; a row that is still being generated stops."""
        assert self.model.generation is not None
        self.model.generation.abandon(self.rows, self._held.close)
        if gone:
            self.context.metrics.cancelled.labels(self.model.name).inc()

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """What the rows generate, with their numbers, in the order in which it comes, until all have ended."""
        left = len(self.rows)
        while left:
            number, piece = await self.queue.get()
            if piece.error:
                raise RequestError(500 if piece.error == "internal error" else 400, piece.error)
            yield number, piece
            left -= bool(piece.finish)

    def ranked(self) -> list[list[int]]:
        """The rows of each prompt when they have ended, by their mean log-probability, the highest first."""
        of_prompt = self.request.choices
        starts = range(0, len(self.rows), of_prompt)
        return [
            sorted(range(start, start + of_prompt), key=lambda row: -self.rows[row].mean_log_prob) for start in starts
        ]

    async def whole(self) -> list[Piece]:
        """Everything that each row generates."""
        try:
            self.start()
            found: list[list[Piece]] = [[] for _ in self.rows]
            async for number, piece in self.pieces():
                found[number].append(piece)
                await asyncio.sleep(0)  # the next pieces may all be there: other requests come first
            return [
                Piece(
                    "".join(one.text for one in row),
                    tuple(token for one in row for token in one.tokens),
                    row[-1].finish,
                )
                for row in found
            ]
        finally:
            self.close()


def check_stop(stop: str | Iterable[str] | None) -> tuple[str, ...]:
    """Stop texts as a tuple."""
    stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(stops):
        raise WeftError("a stop text is empty", expected="text before which to end")
    if (longest := max(map(len, stops), default=0)) > LONGEST_STOP:
        raise WeftError(f"a stop text has {longest:,} characters", expected=f"at most {LONGEST_STOP:,}")
    return stops
