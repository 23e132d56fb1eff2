"""What the probes may look at in a hidden Markov model."""

from __future__ import annotations

import dataclasses

from weft.tasks.hmm.model import HMM
from weft.tasks.inspection import ChainView, Inspection
from weft.tasks.lm.inspection import inspect_steps, read_tokens
from weft.tasks.lm.predictor import LmPredictor

EMISSIONS = 5  # the most probable observations shown of each state


def inspect_hmm(predictor: LmPredictor, text: str) -> Inspection:
    """The parts of a model of the next token, and the chain of hidden states."""
    model = predictor.model
    assert isinstance(model, HMM)
    tokens, ids = read_tokens(predictor.text_field, text, least=2)
    names = predictor.text_field.vocabulary.tokens

    def chain() -> ChainView:
        model.posterior([ids])  # an impossible text is refused here
        probs, best = model.emission.topk(min(EMISSIONS, model.size))
        emissions = tuple(
            tuple((names[one], prob) for one, prob in zip(row, values, strict=True))
            for row, values in zip(best.tolist(), probs.tolist(), strict=True)
        )
        states = tuple(str(number) for number in range(model.states))
        return ChainView(tokens, states, model.chains([ids]), model.transition, emissions, "hmm")

    return dataclasses.replace(inspect_steps(predictor, text), chain=chain)
