"""Several classifiers with different seeds in the place of one."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.tasks.classify.model import Classifier, ClassifierOutput
from weft.tasks.ensemble import Ensemble, mean_log_probs


class ClassifierEnsemble(Ensemble[Classifier]):
    """Averages the probabilities of the labels, and the pooling weights."""

    def forward(self, ids: Tensor, lengths: Tensor) -> ClassifierOutput:
        """Classifies padded texts: ids (B, T), lengths (B,). The logits are log-probabilities."""
        found: list[ClassifierOutput] = [member(ids, lengths) for member in self.members]
        logits = mean_log_probs([one.logits.log_softmax(-1) for one in found])
        return ClassifierOutput(logits, torch.stack([one.weights for one in found]).mean(0))
