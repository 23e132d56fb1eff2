"""Sessions: the recurrent state of a text that grows over several requests.

A session belongs to one model, by its name and the hash of its weights. The store keeps the sessions that were used
last; saved ones are safetensors files in a folder and are found again after a restart.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.decoding.history import History, top_tokens
from weft.errors import WeftError
from weft.nn.states import map_state, state_leaves
from weft.server.config import ServerConfig
from weft.server.errors import RequestError
from weft.server.models import LoadedModel, Models, generator
from weft.training.run import load_tensors, save_tensors

SESSION_ID = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"
SHOWN_NEXT = 10  # candidates of the next token that a session shows


@dataclass
class Session:
    """A text that a model has read and generated."""

    id: str
    model: LoadedModel
    history: History
    created: float = field(default_factory=time.time)
    used: float = field(default_factory=time.time)
    saved: bool = False
    busy: bool = False

    @property
    def length(self) -> int:
        """The number of its tokens, without those that a text without a prompt starts from."""
        return len(self.history.ids) - self.history.hidden

    def summary(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "model": self.model.name,
            "hash": self.model.hash,
            "length": self.length,
            "created": round(self.created, 3),
            "used": round(self.used, 3),
            "saved": self.saved,
        }

    def describe(self) -> dict[str, Any]:
        """Everything about it; computes the probabilities of the next token."""
        history, text_field = self.history, generator(self.model).text_field
        ids, names = history.ids[history.hidden :], text_field.vocabulary.tokens
        log_probs = history.next_log_probs()
        found = [] if log_probs is None else top_tokens(log_probs, SHOWN_NEXT)
        before = text_field.decode(history.ids[: history.hidden])
        return {
            **self.summary(),
            "text": text_field.decode(history.ids)[len(before) :],
            "tokens": [names[one] for one in ids],
            "logprobs": history.log_probs[history.hidden :],
            "next": [[names[one.id], one.log_prob] for one in found],
        }


class SessionStore:
    """Sessions by their ids, the least recently used first."""

    def __init__(self, config: ServerConfig, models: Models) -> None:
        self.config, self.models = config, models
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        self._drop_idle()
        return iter(list(self._sessions.values()))

    def new(self, id: str, model: LoadedModel, history: History | None = None) -> Session:
        check_id(id)
        if id in self._sessions or self._file(id) is not None:
            raise RequestError(409, f"there is a session {id!r} already")
        engine = model.engine
        if engine is None:
            generator(model)  # refuses
        assert engine is not None
        session = Session(id, model, history or History(engine, keep=True))
        self._put(session)
        return session

    def get(self, id: str) -> Session:
        """The session of that id; a saved one is loaded."""
        self._drop_idle()
        if id not in self._sessions:
            path = self._file(id)
            if path is None:
                raise _not_found(id)
            self._put(self._restore(id, path))
        session = self._sessions[id]
        if self.models.get(session.model.name).hash != session.model.hash:
            raise _outdated(id, session.model.name)
        session.used = time.time()
        self._sessions.move_to_end(id)
        return session

    def find(self, id: str) -> Session | None:
        """The session of that id, or None."""
        check_id(id)
        return self.get(id) if id in self._sessions or self._file(id) is not None else None

    @contextmanager
    def use(self, session: Session) -> Iterator[Session]:
        """Holds a session for one request."""
        if session.busy:
            raise _in_use(session.id)
        session.busy = True
        try:
            yield session
        finally:
            session.busy, session.used = False, time.time()

    def delete(self, id: str) -> None:
        """Removes a session, also from the disk, and also one of a model that has changed."""
        session, path = self._sessions.get(id), self._file(id)
        if session is None and path is None:
            raise _not_found(id)
        if session is not None and session.busy:
            raise _in_use(id)
        self._sessions.pop(id, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def save(self, session: Session) -> int:
        """Writes a session to the disk; returns the size of its file."""
        if self.config.sessions is None:
            raise RequestError(400, "sessions cannot be saved here; expected a server with --sessions DIR")
        if self._file(session.id) is None and sum(1 for _ in self.config.sessions.glob("*")) >= self.config.max_saved:
            raise RequestError(400, f"{self.config.max_saved:,} sessions are saved; expected fewer: delete some")
        history = session.history
        tensors = {
            "ids": torch.tensor(history.ids, dtype=torch.int64),
            "log_probs": torch.tensor(
                [float("nan") if one is None else one for one in history.log_probs], dtype=torch.float64
            ),
        }
        tensors |= {f"state.{at}": part.contiguous() for at, part in enumerate(state_leaves(history.state))}
        metadata = {
            "model": session.model.name,
            "hash": session.model.hash,
            "hidden": history.hidden,
            "read": history.read,
            "created": session.created,
        }
        self.config.sessions.mkdir(parents=True, exist_ok=True)
        path = self.config.sessions / f"{session.id}.safetensors"
        save_tensors(path, tensors, metadata)
        session.saved = True
        return path.stat().st_size

    def _restore(self, id: str, path: Path) -> Session:
        try:
            tensors, metadata = load_tensors(path)
            model = self.models.get(str(metadata["model"]))
            if metadata["hash"] != model.hash:
                raise _outdated(id, model.name)
            assert model.engine is not None
            history = History(model.engine, keep=True)
            history.ids = tensors["ids"].tolist()
            history.log_probs = [None if one != one else one for one in tensors["log_probs"].tolist()]
            history.hidden, history.read = int(metadata["hidden"]), int(metadata["read"])
            parts = iter([tensors[f"state.{at}"] for at in range(len(tensors) - 2)])
            history.state = map_state(lambda like: _fitting(next(parts), like), history.state)
            history.states[history.read] = history.state
            return Session(id, model, history, created=float(metadata["created"]), saved=True)
        except (WeftError, KeyError, ValueError, TypeError, AssertionError, StopIteration) as error:
            raise RequestError(409, f"the file of the session {id!r} is damaged") from error

    def _put(self, session: Session) -> None:
        self._drop_idle()
        while len(self._sessions) >= self.config.max_sessions:
            oldest = next((id for id, one in self._sessions.items() if not one.busy), None)
            if oldest is None:
                raise RequestError(503, "all sessions are in use", headers={"Retry-After": "1"})
            del self._sessions[oldest]
        self._sessions[session.id] = session

    def _drop_idle(self) -> None:
        before = time.time() - self.config.session_idle
        for id, session in list(self._sessions.items()):
            if session.used < before and not session.busy:
                del self._sessions[id]

    def _file(self, id: str) -> Path | None:
        if self.config.sessions is None or not re.fullmatch(SESSION_ID, id):
            return None
        path = self.config.sessions / f"{id}.safetensors"
        return path if path.is_file() else None


def _not_found(id: str) -> RequestError:
    return RequestError(404, f"there is no session {id[:64]!r}", "session_not_found")


def _in_use(id: str) -> RequestError:
    return RequestError(409, f"the session {id!r} is in use by another request", "session_in_use")


def _outdated(id: str, model: str) -> RequestError:
    message = f"the model {model} has changed since the session {id!r} began"
    return RequestError(409, message, "session_outdated")


def check_id(id: str) -> str:
    if not re.fullmatch(SESSION_ID, id):
        raise RequestError(400, f"the session is {id[:64]!r}; expected 1 to 64 letters, digits, _ . -")
    return id


def _fitting(part: Tensor, like: Tensor) -> Tensor:
    """A tensor of a stored state in the place of another. A dimension of 0 in the state before any token grows."""
    same = part.ndim == like.ndim and all(one in (other, 0) for one, other in zip(like.shape, part.shape, strict=True))
    if not same or part.dtype != like.dtype:
        raise ValueError("a state of another shape")
    return part
