"""Ensembles of models: what the members of every task's ensemble have in common.

An ensemble averages the probabilities of its members; a tagger averages their CRF scores. It stands in the place of a
single model in a predictor. Probes look at its first member.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

Member = TypeVar("Member", bound=nn.Module)


class Ensemble(nn.Module, Generic[Member]):
    """Several trained models of one kind, in the place of one.

    Args:
        members: the models.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(members)
        self.members = tuple(members)


def mean_log_probs(log_probs: Sequence[Tensor]) -> Tensor:
    """The log of the mean of probabilities whose logs are given.

    >>> mean_log_probs([torch.tensor([0.5]).log(), torch.tensor([0.1]).log()]).exp()
    tensor([0.3000])
    """
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))


def first_member(predictor: Any) -> Any:
    """The predictor with the first member of its ensemble, or the predictor itself: what probes look at."""
    members = getattr(predictor.model, "members", None)
    return predictor if members is None else replace(predictor, model=members[0])
