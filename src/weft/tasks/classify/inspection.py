"""What the probes may look at in a classifier."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.errors import WeftError
from weft.nn.pooling import Pooled
from weft.tasks.classify.data import cut_middle, split_text
from weft.tasks.classify.model import Classifier
from weft.tasks.classify.predictor import ClassifyPredictor
from weft.tasks.inspection import AttentionWeights, Inspection, Network, StackUse
from weft.tasks.mixture import first_member


def inspect_classify(predictor: ClassifyPredictor, text: str) -> Inspection:
    """One prediction: the label of the text."""
    predictor = first_member(predictor)
    model, text_field = predictor.model.eval(), predictor.text_field
    assert isinstance(model, Classifier)
    whole = split_text(text, text_field)
    tokens = tuple(cut_middle(whole, predictor.config.data.max_tokens))
    if not tokens:
        raise WeftError(f"the text {text[:40]!r} has no tokens as the model reads it", expected="at least one")
    row = torch.tensor([text_field.vocabulary.encode(tokens)], device=model.output.bias.device)

    @cache
    def embeddings() -> Tensor:
        if model.embedding is None:
            return F.one_hot(row, len(text_field.vocabulary)).to(model.output.bias.dtype)
        return model.embedding(row).detach()  # type: ignore[no-any-return]

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
    @torch.no_grad()
    def target() -> int:
        return int(logits(embeddings())[0, 0].argmax())

    @torch.no_grad()
    def attention() -> AttentionWeights:
        return AttentionWeights((predictor.labels[target()],), tokens, pool(embeddings()).weights)

    def network() -> Network:
        stacks, label = {"stack": StackUse(model.stack, tokens)}, predictor.labels[target()]
        return Network(tokens, embeddings(), logits, (label,), (target(),), predictor.labels, stacks)

    ngrams = None if predictor.wide is None else partial(_ngrams, predictor, tokens)
    return Inspection(network=network, attention=attention, ngrams=ngrams)


def _ngrams(predictor: ClassifyPredictor, tokens: tuple[str, ...]) -> Tensor:
    """What each token adds, through its n-grams, to the logits, (T, labels)."""
    assert predictor.wide is not None
    weights = torch.tensor(predictor.mixture[1:], dtype=torch.float64)
    return predictor.wide.contributions(tokens) @ weights
