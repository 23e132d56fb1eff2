"""Fill-in-the-blank models whose weights follow the text: dynamic evaluation (`weft.tasks.lm.adapt`).

In evaluation the text is read in segments. Each is predicted, from the text on both sides, by weights that have adapted
to the segments before it. Updates read no token after the segment, so that no weight has seen a token that is still to
be predicted. A text with blanks is filled by weights that have adapted to its known tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from weft.data.windows import Passage, Tokens, evaluation_passages
from weft.decoding.blanks import FilledBlanks
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.tasks.fill.model import Filler
from weft.tasks.fill.predictor import FillPredictor
from weft.tasks.lm.adapt import RATE_TOKENS, DynamicConfig, DynamicModel, best_rate, gradient_rms
from weft.tasks.stored_data import DEV_PART, is_stored
from weft.tasks.text_task import held_out_tokens, stored_tokens

DEFAULT = DynamicConfig(segment=64)  # each update reads the row anew, so segments are longer than a language model's
SAMPLED_SEGMENTS = 128  # of the training text, for the statistics of the gradient


class AdaptedFiller(nn.Module):
    """A fill-in-the-blank model whose weights follow the text; `rms` is what `gradient_rms` returned."""

    def __init__(self, filler: Filler, config: DynamicConfig, rms: Sequence[Tensor] | None) -> None:
        super().__init__()
        self.filler, self.config, self.rms = filler, config, rms
        self.context, self.blank = filler.context, filler.blank

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        adapted = DynamicModel(self.filler, self.config, self.rms)
        total = TokenPredictions(Likelihood(0.0, 0), 0)
        for passage in evaluation_passages(tokens, seq_length=self.config.segment, batch_size=1):
            with torch.no_grad():
                total += adapted.model.predict_passage(passage)
            adapted.update(mean_loss(adapted.model, read_part(passage)))
        return total

    def fill_blanks(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        adapted = DynamicModel(self.filler, self.config, self.rms)
        row = torch.tensor([list(ids)])
        for begin in range(0, row.shape[1], self.config.segment):
            targets = torch.full_like(row, IGNORE_INDEX)
            part = slice(begin, begin + self.config.segment)
            targets[:, part] = row[:, part].masked_fill(row[:, part] == self.blank, IGNORE_INDEX)
            if (targets != IGNORE_INDEX).any():
                adapted.update(mean_loss(adapted.model, Passage(row, targets)))
        found: list[FilledBlanks] = adapted.model.fill_blanks(ids, n, width=width, banned=banned)
        return found


def read_part(passage: Passage) -> Passage:
    """The passage without the tokens after its last target, which are still to be predicted."""
    end = int((passage.targets != IGNORE_INDEX).any(0).nonzero().max()) + 1
    return Passage(passage.ids[:, :end], passage.targets[:, :end])


def mean_loss(model: Filler, passage: Passage) -> Tensor:
    """The mean cross-entropy of the targets, with its gradient."""
    with torch.enable_grad():
        loss = model.loss(passage)
    return loss.total / max(1, loss.count)


def adapt_filler(
    predictor: FillPredictor, method: str = "dynamic", *, dynamic: DynamicConfig | None = None
) -> FillPredictor:
    run, filler = predictor.run, predictor.model
    if method != "dynamic":
        raise WeftError(f"a fill-in-the-blank model is to adapt by {method!r}", expected="dynamic")
    if not isinstance(filler, Filler):
        raise WeftError(
            f"{run.path} cannot adapt: its model is a {type(filler).__name__}",
            expected="a run of `weft train fill` with one member",
        )
    config = dynamic or DEFAULT

    def losses(model: Filler) -> Iterator[Tensor]:
        tokens = stored_tokens(run, filler.vocabulary_size)
        begins = np.linspace(0, max(0, len(tokens) - config.segment), SAMPLED_SEGMENTS).astype(int)
        for begin in np.unique(begins):
            ids = torch.from_numpy(np.asarray(tokens[begin : begin + config.segment]).astype(np.int64))[None]
            yield mean_loss(model, Passage(ids, ids))

    rms = gradient_rms(filler, config, losses)
    if dynamic is None and is_stored(run, DEV_PART) and len(dev := held_out_tokens(run, predictor.text_field)) > 1:

        def nats(one: DynamicConfig) -> float:
            return AdaptedFiller(filler, one, rms).predict_tokens(dev[: RATE_TOKENS + 1]).likelihood.nats

        config = best_rate(config, nats)
    return replace(predictor, model=AdaptedFiller(filler, config, rms))
