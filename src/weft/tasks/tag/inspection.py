"""What the probes may look at in a tagger."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.chains import Chains
from weft.data.buckets import take
from weft.data.column import Column
from weft.errors import WeftError
from weft.tasks.inspection import ChainView, Inspection, Network, StackUse
from weft.tasks.mixture import first_member
from weft.tasks.tag.encoder import collate
from weft.tasks.tag.lexicon import SeriesLexicon, WordLexicon
from weft.tasks.tag.model import Tagger, forbid_continuation
from weft.tasks.tag.predictor import TagPredictor
from weft.tasks.tag.word_split import make_split


def inspect_tag(predictor: TagPredictor, text: str) -> Inspection:
    """One prediction for each word, or for each character of a text that is segmented."""
    predictor = first_member(predictor)
    model, lexicon = predictor.model.eval(), predictor.vocabulary.lexicon
    assert isinstance(model, Tagger)
    starts = None
    steps: Sequence[Any] = ()
    if isinstance(lexicon, SeriesLexicon):
        value = lexicon.field.parse(text)
        words, steps = lexicon.field.names(value), [tuple(step) for step in value.target.tolist()]
    elif isinstance(lexicon, WordLexicon):
        name = "space" if predictor.unspaced else "word"
        words = tuple(make_split(name, lexicon.count, whole_hyphens=lexicon.whole_hyphens)(text))
    else:
        pieces = text.split()
        words = tuple("".join(pieces))
        starts = Column.from_rows([[int(not at) for piece in pieces for at in range(len(piece))]])
    if not words:
        raise WeftError(f"the text {text[:40]!r} has no words", expected="at least one")
    first = np.arange(1)
    inputs = collate(predictor.vocabulary.encode([steps or words]), first)

    @cache
    @torch.no_grad()
    def embeddings() -> Tensor:
        encoded = model.encode(inputs)
        return encoded if isinstance(encoded, Tensor) else encoded.tensor()

    def logits(x: Tensor) -> Tensor:
        scores: Tensor = model.scores(model.stack(x)[0]) + model.span_start_bias
        return (
            scores
            if starts is None
            else forbid_continuation(scores, take(starts, first).ids.expand(len(x), -1), predictor.tags)
        )

    @torch.no_grad()
    def chain() -> ChainView:
        start, transition, end = (part.detach() for part in model.output.masked())
        chains = Chains.padded(start, transition, end, logits(embeddings()), inputs.lengths)
        return ChainView(words, predictor.tags, chains, transition, (), "crf")

    def network() -> Network:
        with torch.no_grad():
            (path,) = model.output.decode(logits(embeddings()), inputs.lengths)
        names = tuple(f"{predictor.tags[tag]} of {word}" for tag, word in zip(path.tags, words, strict=True))
        stacks = {"stack": StackUse(model.stack, words)}
        return Network(words, embeddings(), logits, names, tuple(path.tags), predictor.tags, stacks)

    return Inspection(network=network, chain=chain)
