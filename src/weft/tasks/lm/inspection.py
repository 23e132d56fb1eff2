"""What the probes may look at in a language model: recurrent, n-gram or HMM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from weft.decoding.beam_search import beam_tree
from weft.errors import WeftError
from weft.tasks.inspection import Inspection, NamedBeamTree, Network, StackUse, TokenScores
from weft.tasks.lm.model import LanguageModel
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.mixture import first_member
from weft.text.text_field import Text
from weft.text.vocabulary import RESERVED

CONTINUATION = 12  # tokens that a beam search adds to a text
ALPHA = 0.75


def read_tokens(text_field: Text, text: str, least: int = 1) -> tuple[tuple[str, ...], list[int]]:
    """The tokens of a text and their ids.

    Raises:
        WeftError: There are fewer than `least` tokens.
    """
    tokens = text_field.names(text)
    if len(tokens) < least:
        known = " ".join(text_field.vocabulary.tokens[len(RESERVED) :][:12])
        raise WeftError(
            f"the text {text[:40]!r} has {len(tokens)} tokens as the model reads it",
            expected=f"at least {least}, with some of: {known}",
        )
    return tokens, text_field.vocabulary.encode(tokens)


def inspect_lm(predictor: LmPredictor, text: str) -> Inspection:
    """The parts of a recurrent language model; of a mixture, scores and search are those of all its models."""
    whole, predictor = predictor, first_member(predictor)
    model = predictor.model
    assert isinstance(model, LanguageModel)
    model.eval()
    tokens, ids = read_tokens(predictor.text_field, text, least=2)
    names = predictor.text_field.vocabulary.tokens
    row = torch.tensor([ids], device=model.device)

    def logits(x: Tensor) -> Tensor:
        return model.logits(model.stack(x)[0][:, :-1])

    @torch.no_grad()
    def scores() -> TokenScores:
        log_probs = logits(model.embed(row))[0].log_softmax(-1)
        return TokenScores(tokens, tuple(range(1, len(ids))), log_probs, row[0, 1:].cpu(), names, "left")

    def network() -> Network:
        stacks = {"stack": StackUse(model.stack, tokens)}
        x = model.embed(row).detach()
        return Network(tokens, x, logits, tokens[1:], tuple(ids[1:]), names, stacks, model.logits)

    if whole is not predictor:
        return replace(inspect_steps(whole, text), network=network)
    return Inspection(scores=scores, network=network, search=search_continuations(predictor, ids))


def inspect_steps(predictor: LmPredictor, text: str) -> Inspection:
    """The parts of any model of the next token: its distribution after each token, and beam search."""
    tokens, ids = read_tokens(predictor.text_field, text, least=2)

    @torch.no_grad()
    def scores() -> TokenScores:
        state, rows = predictor.model.initial_state(1), []
        for token in ids[:-1]:
            log_probs, state = predictor.model.step(torch.tensor([token]), state)
            rows.append(log_probs)
        names = predictor.text_field.vocabulary.tokens
        return TokenScores(tokens, tuple(range(1, len(ids))), torch.cat(rows), torch.tensor(ids[1:]), names, "left")

    return Inspection(scores=scores, search=search_continuations(predictor, ids))


def search_continuations(
    predictor: LmPredictor, ids: list[int]
) -> Callable[[int, float | None, Sequence[str]], NamedBeamTree]:
    """Beam search for the best continuations of a text."""
    vocabulary = predictor.text_field.vocabulary
    end = predictor.end_id
    banned = predictor.banned_ids

    @torch.no_grad()
    def search(width: int, alpha: float | None, prefix: Sequence[str]) -> NamedBeamTree:
        tree = beam_tree(
            predictor.model,
            [*ids, *vocabulary.encode_known(prefix)],
            width=width,
            tokens=CONTINUATION,
            end=end,
            alpha=ALPHA if alpha is None else alpha,
            n_best=1,
            banned=banned,
        )
        return NamedBeamTree(tree, vocabulary.tokens)

    return search
