"""Surprisal: how unexpected each token of a text is to a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch

from weft.errors import WeftError
from weft.pictures.figures import Array, ColouredText, Figure, visible
from weft.probes.parts import get_part
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, rows_by_step, to_array
from weft.tasks.inspection import TokenScores
from weft.tasks.operation import Option


class Alternative(NamedTuple):
    """A token that could have stood there, and its probability."""

    token: str
    probability: float


@dataclass(frozen=True, eq=False)
class Surprisal(ProbeResult):
    """The surprisal of the tokens of a text.

    Attributes:
        steps: All T tokens.
        nats: (T,), -log P of each token; NaN where the model predicts none (the first token of a language model).
        entropy: (T,), the entropy of the predicted distribution in nats; NaN as above.
        alternatives: For each token the most probable tokens at its position, best first; empty where there are none.
        context: What a token is predicted from: "left" or "both".
    """

    probe = "surprisal"

    steps: tuple[str, ...]
    nats: Array
    entropy: Array
    alternatives: tuple[tuple[Alternative, ...], ...]
    context: str

    def records(self) -> Iterator[dict[str, Any]]:
        best = [alternatives[0].token if alternatives else None for alternatives in self.alternatives]
        for row in rows_by_step(self.steps, nats=self.nats, entropy=self.entropy, best=best):
            yield {**row, "context": self.context}

    def figures(self) -> list[Figure]:
        notes = []
        for token, nats, entropy, best in zip(
            self.steps, self.nats.tolist(), self.entropy.tolist(), self.alternatives, strict=True
        ):
            if math.isnan(nats):
                notes.append(f"{visible(token)}: not predicted")
                continue
            others = ", ".join(f"{visible(one.token)} {one.probability:.2f}" for one in best)
            notes.append(f"{visible(token)}: {nats:.2f} nats, entropy {entropy:.2f}; expected {others}")
        mean = float(np.nanmean(self.nats)) if np.isfinite(self.nats).any() else math.nan
        sides = "the tokens before it" if self.context == "left" else "all other tokens"
        title = f"Surprisal of each token given {sides} (mean {mean:.2f} nats)"
        return [ColouredText(title, self.steps, self.nats, "nats", notes=tuple(notes))]


def surprisal(
    model: Any, text: str, *, top: Annotated[int, Option("How many alternatives of each token.", 0, 50)] = 5
) -> Surprisal:
    """The surprisal of each token of a text, for every model that predicts tokens.

    Args:
        model: A loaded run: `weft.load("runs/mine")`.
        text: The text; the model's own tokenizer splits it.
        top: How many alternatives to return for each token.

    Returns:
        A Surprisal. Two models with the same tokenizer can be compared token by token.
    """
    if top < 0:
        raise WeftError(f"top is {top}", expected="0 or more")
    scores: TokenScores = get_part(model, text, "scores")()
    count = len(scores.tokens)
    nats, entropy = torch.full((2, count), torch.nan, dtype=torch.float64)
    alternatives: list[tuple[Alternative, ...]] = [()] * count
    positions = torch.tensor(scores.positions, dtype=torch.long)
    log_probs = scores.log_probs.detach().double().cpu()  # (P, V)
    nats[positions] = -log_probs.gather(1, scores.ids.cpu()[:, None])[:, 0]
    entropy[positions] = torch.special.entr(log_probs.exp()).sum(-1)
    best, ids = log_probs.topk(min(top, log_probs.shape[1]))
    for position, values, row in zip(scores.positions, best.exp().tolist(), ids.tolist(), strict=True):
        alternatives[position] = tuple(
            Alternative(scores.names[id], value) for id, value in zip(row, values, strict=True)
        )
    return Surprisal(scores.tokens, to_array(nats), to_array(entropy), tuple(alternatives), scores.context)


PROBE = Probe("surprisal", "-log P of each token in nats, entropy, best alternatives", "scores", surprisal)
