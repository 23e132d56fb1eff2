"""Texts as vectors: the state of a language model after a text, for the endpoints of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import not_finite
from weft.server.completion import Prompt, prompt_ids
from weft.server.errors import RequestError
from weft.server.http import Context
from weft.server.models import LoadedModel
from weft.tasks.lm.model import LanguageModel
from weft.tasks.mixture import Mixture

StateVector = np.ndarray[Any, np.dtype[np.float64]]


class StateVectors(NamedTuple):
    """A vector for each text, and the number of their tokens."""

    vectors: list[StateVector]
    tokens: int


async def state_vectors(
    context: Context, model: LoadedModel, texts: Sequence[Prompt], *, size: int | None = None, unit: bool = False
) -> StateVectors:
    """h of the top layer after the last token of each text; of an HMM, the probabilities of its states.

    An ensemble, or a network interpolated with n-grams, has the vectors of its networks one after another.

    Args:
        context: The server's limits.
        model: A language model.
        texts: Texts, or token ids.
        size: The size that the client expects; None: any.
        unit: Divide each vector by its length.

    Raises:
        RequestError: 400, if the model has no such state, or one of another size, or there are too many tokens.
    """
    ids, engine = await prompt_ids(model, texts), model.engine
    assert engine is not None

    def run(rows: Sequence[Sequence[int]]) -> list[StateVector]:
        return [
            _vector(model.predictor.model, state) for state in engine.read(rows, [engine.start(1)[0] for _ in rows])
        ]

    count = sum(map(len, ids))
    if count > context.config.request_tokens:
        raise RequestError(400, f"{count:,} tokens; expected at most {context.config.request_tokens:,}")
    vectors = await model.worker.compute(run, ids, "embed")
    if size not in (None, len(vectors[0])):
        raise RequestError(400, f"dimensions is {size}; expected {len(vectors[0])}, the size of the state")
    if unit:
        vectors = [vector / (np.linalg.norm(vector) or 1.0) for vector in vectors]
    return StateVectors(vectors, count)


def _vector(model: Any, state: Any) -> StateVector:
    found = _hidden_states(model, state)
    if not found:
        raise RequestError(400, "an n-gram model has no state vector; expected a model of the task lm or hmm")
    vector: StateVector = torch.cat(found).detach().cpu().double().numpy()
    if not np.isfinite(vector).all():
        raise not_finite("the model")
    return vector


def _hidden_states(model: Any, state: Any) -> list[Tensor]:
    """The vectors (H,) of a row: of a mixture those of its networks, of n-grams and caches none."""
    if isinstance(model, Mixture):
        parts = zip(model.models, state, strict=True)
        return [vector for one, part in parts for vector in _hidden_states(one, part)]
    if isinstance(model, LanguageModel):
        return [state[-1][0][0]]
    return [state[0]] if isinstance(state, Tensor) and state.is_floating_point() else []
