"""What the probes may look at in a fill-in-the-blank model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.tasks.fill.model import Filler
from weft.tasks.fill.predictor import FillPredictor
from weft.tasks.inspection import Inspection, Network, StackUse, TokenScores
from weft.tasks.lm.inspection import read_tokens
from weft.tasks.mixture import first_member


def inspect_fill(predictor: FillPredictor, text: str) -> Inspection:
    """Every token of the text is predicted from all others."""
    predictor = first_member(predictor)
    model = predictor.model
    assert isinstance(model, Filler)
    model.eval()
    tokens, ids = read_tokens(predictor.text_field, text, least=2)
    names = predictor.text_field.vocabulary.tokens
    row = torch.tensor([ids], device=model.bias.device)

    def embeddings() -> Tensor:
        if model.embedding is None:
            return F.one_hot(row, model.vocabulary_size + 1).to(model.bias.dtype)
        return model.embedding(row).detach()  # type: ignore[no-any-return]

    def logits(x: Tensor) -> Tensor:
        return model.readout(model.sides(x))

    @torch.no_grad()
    def scores() -> TokenScores:
        log_probs = logits(embeddings())[0].log_softmax(-1)
        return TokenScores(tokens, tuple(range(len(ids))), log_probs, row[0].cpu(), names, model.context)

    def network() -> Network:
        stacks = {"left": StackUse(model.forward_stack, tokens)}
        if model.backward_stack is not None:
            stacks["right"] = StackUse(model.backward_stack, tokens)
        return Network(tokens, embeddings(), logits, tokens, tuple(ids), names, stacks)

    return Inspection(scores=scores, network=network)
