"""A language model behind a server: recurrent, n-gram or HMM."""

from __future__ import annotations

from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.service import Service, TextService
from weft.text.vocabulary import RESERVED


def serve_lm(model: LmPredictor, *texts: TextService) -> Service:
    """The service of a language model, and text services that it has besides."""
    tokens = [token for token in model.codec.vocabulary.tokens[len(RESERVED) :] if token.strip()][:6]
    return Service(texts, generator=model, example=model.codec.tokenizer.join(tokens))
