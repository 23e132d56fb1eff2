"""Several fill-in-the-blank models with different seeds in the place of one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.data.windows import Passage, Tokens, evaluation_passages
from weft.decoding.blanks import FilledBlanks, fill_blanks
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.metrics import Likelihood, TokenPredictions
from weft.tasks.ensemble import Ensemble, mean_log_probs
from weft.tasks.fill.model import Filler
from weft.training.loss import count_predictions


class FillerEnsemble(Ensemble[Filler]):
    """Averages the probabilities of the tokens."""

    @property
    def context(self) -> str:
        """What a token is predicted from: "left" or "both"."""
        return self.members[0].context

    @property
    def blank(self) -> int:
        """The id of a missing token."""
        return self.members[0].blank

    @torch.no_grad()
    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """Predicts each token but the first from all the others, and compares with the true tokens."""
        found = map(self._predict_passage, evaluation_passages(tokens))
        return sum(found, start=TokenPredictions(Likelihood(0.0, 0), 0))

    def _predict_passage(self, passage: Passage) -> TokenPredictions:
        valid = passage.targets != IGNORE_INDEX
        log_probs = [member(passage.ids.to(member.bias.device)).cpu()[valid].log_softmax(-1) for member in self.members]
        return count_predictions(mean_log_probs(log_probs), passage.targets[valid])

    @torch.no_grad()
    def fill_blanks(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        """Finds the `n` most probable ways to fill the blanks of one row; see `weft.decoding.fill_blanks`."""

        def log_probs(rows: Tensor, position: int) -> Tensor:
            return mean_log_probs([member.log_probs_at(rows, position) for member in self.members])

        return fill_blanks(ids, self.blank, n, log_probs, width=width, banned=banned)
