"""What the probes may look at in a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from weft.data.buckets import take
from weft.data.column import Column
from weft.errors import WeftError
from weft.nn.pooling import Pooled
from weft.tasks.classify.data import cut_middle
from weft.tasks.classify.inputs import TextInput
from weft.tasks.classify.model import Classifier
from weft.tasks.classify.predictor import ClassifyPredictor
from weft.tasks.inspection import AttentionWeights, Inspection, Network, StackUse
from weft.tasks.mixture import first_member


def inspect_classify(predictor: ClassifyPredictor, text: str) -> Inspection:
    """One prediction: the label of the text. It is that of all members; the network is the first one's."""
    joint, predictor = predictor, first_member(predictor)
    model, reads, limit = predictor.model.eval(), predictor.input, predictor.config.data.max_tokens
    assert isinstance(model, Classifier)
    value = text if isinstance(reads, TextInput) else reads.field.parse(text)
    whole = reads.parts(value)
    tokens = cut_middle(reads.step_names(value, whole), limit)
    if not tokens:
        raise WeftError(f"the text {text[:40]!r} has no tokens as the model reads it", expected="at least one")
    column = Column.from_rows([reads.encode(cut_middle(whole, limit))], reads.stored_type)
    row = take(column, np.arange(1)).ids.to(model.output.bias.device)

    @cache
    def embeddings() -> Tensor:
        return model.embedding.vectors(row, model.output.bias.dtype).detach()

    def pool(x: Tensor) -> Pooled:
        inside = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        pooled: Pooled = model.pooling(model.stack(x)[0], inside)
        return pooled

    @cache
    def wide() -> Tensor | None:
        return None if predictor.wide is None else predictor.wide.scores([whole])[0]  # (labels, 2)

    def logits(x: Tensor) -> Tensor:
        found: Tensor = model.output(pool(x).vector)  # (B, labels)
        scores = wide()
        if scores is not None:  # the n-gram models do not depend on the embeddings
            network, *others = predictor.mixture
            found = network * found + (scores @ torch.tensor(others, dtype=scores.dtype)).to(found)
        return found[:, None]  # (B, 1, labels)

    @cache
    def target() -> int:
        return int(joint.predict([whole])[0].argmax())

    def without(removed: Sequence[range]) -> Tensor:
        head, tail = (len(tokens) + 1) // 2, len(whole) - len(tokens)  # the middle of a long text was not read
        omitted = [{place if place < head else place + tail for place in window} for window in removed]
        texts = [reads.without(whole, missing) for missing in omitted]
        frequencies = torch.tensor(list(predictor.prior.values()), dtype=torch.float64).log()
        rows = zip(texts, joint.predict(texts)[0], strict=True)
        return torch.stack([log_probs if len(text) else frequencies for text, log_probs in rows])

    @torch.no_grad()
    def attention() -> AttentionWeights:
        return AttentionWeights((predictor.labels[target()],), tokens, pool(embeddings()).weights)

    def network() -> Network:
        stacks, label = {"stack": StackUse(model.stack, tokens)}, predictor.labels[target()]
        return Network(tokens, embeddings(), logits, (label,), (target(),), predictor.labels, stacks)

    ngrams = None if predictor.wide is None or predictor.wide.kernels else partial(_ngrams, predictor, tokens)
    return Inspection(network=network, attention=attention, without=without, ngrams=ngrams)


def _ngrams(predictor: ClassifyPredictor, tokens: tuple[str, ...]) -> Tensor:
    """What each token adds, through its n-grams, to the logits, (T, labels)."""
    assert predictor.wide is not None
    weights = torch.tensor(predictor.mixture[1:], dtype=torch.float64)
    return predictor.wide.contributions(tokens) @ weights
