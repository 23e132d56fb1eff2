"""Several taggers with different seeds in the place of one."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from weft.tasks.ensemble import Ensemble
from weft.tasks.tag.encoder import Inputs
from weft.tasks.tag.model import Tagger


class TaggerEnsemble(Ensemble[Tagger]):
    """Averages the tag scores and the transition scores: a CRF whose score of a tag sequence is the members' mean.

    Args:
        members: the taggers, of the same tags.
    """

    def __init__(self, members: Sequence[Tagger]) -> None:
        super().__init__(members)
        self.output = copy.deepcopy(members[0].output)
        others = [dict(member.output.named_parameters()) for member in members]
        with torch.no_grad():
            for name, parameter in self.output.named_parameters():
                parameter.copy_(torch.stack([one[name] for one in others]).mean(0))

    def forward(self, inputs: Inputs) -> Tensor:
        """Computes the mean tag scores (B, T, K)."""
        return torch.stack([member(inputs) for member in self.members]).mean(0)
