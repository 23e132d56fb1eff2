"""The battery of models fails for mutants."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.checks.models import check_model
from tests.checks.test_steppers import VOCABULARY
from weft.nn import make_stack


class TinyModel(nn.Module):
    """Predicts the next token; a batch is (inputs, targets), and negative targets are ignored."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.stack = make_stack("gru", VOCABULARY, 5)
        self.out = nn.Linear(5, VOCABULARY)

    def loss(self, batch):
        inputs, targets = batch
        scores = self.out(self.stack(inputs)[0]).flatten(0, 1)
        total = F.cross_entropy(scores, targets.flatten(), ignore_index=-100, reduction="sum")
        return total, int((targets >= 0).sum())


def make_batch():
    random = torch.Generator().manual_seed(9)
    ids = torch.randint(VOCABULARY, (7, 6), generator=random)
    targets = ids[:, 1:].clone()
    targets[2, 1:] = targets[5, 3:] = -100
    whole = (ids[:, :-1].contiguous(), targets)
    return whole, [tuple(part[rows] for part in whole) for rows in (slice(0, 2), slice(2, 3), slice(3, 7))]


def test_model_passes():
    check_model(TinyModel(), *make_batch())


class LossIsAMean(TinyModel):
    def loss(self, batch):
        total, count = super().loss(batch)
        return total / count, count


class LossIsAMeanTimesRows(TinyModel):
    def loss(self, batch):
        total, count = super().loss(batch)
        return total / count * len(batch[0]), count


class CountIsRows(TinyModel):
    def loss(self, batch):
        return super().loss(batch)[0], 1


class CountIsATensor(TinyModel):
    def loss(self, batch):
        total, count = super().loss(batch)
        return total, torch.tensor(count)


class LossIsALikelihood(TinyModel):
    def loss(self, batch):
        total, count = super().loss(batch)
        return -total, count


class DeadParameter(TinyModel):
    def __init__(self):
        super().__init__()
        self.forgotten = nn.Parameter(torch.ones(3))


class CutGradient(TinyModel):
    def loss(self, batch):
        scores = self.out(self.stack(batch[0])[0].detach()).flatten(0, 1)
        return F.cross_entropy(scores, batch[1].flatten(), reduction="sum"), int((batch[1] >= 0).sum())


class RandomInEvaluation(TinyModel):
    def loss(self, batch):
        scores = self.out(F.dropout(self.stack(batch[0])[0], 0.5)).flatten(0, 1)
        return F.cross_entropy(scores, batch[1].flatten(), reduction="sum"), int((batch[1] >= 0).sum())


class WeightsOutsideTheStateDict(TinyModel):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.5), persistent=False)

    def loss(self, batch):
        total, count = super().loss(batch)
        return total * self.scale, count


class WritesIntoItsBatch(TinyModel):
    def loss(self, batch):
        result = super().loss(batch)
        batch[1][batch[1] < 0] = -1
        return result


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (LossIsAMean, "totals of the parts"),
        (LossIsAMeanTimesRows, "totals of the parts"),
        (CountIsRows, "counts of the parts"),
        (CountIsATensor, "count is a Tensor"),
        (LossIsALikelihood, "below zero"),
        (DeadParameter, "no gradient reaches forgotten"),
        (CutGradient, "no gradient reaches stack"),
        (RandomInEvaluation, "not repeatable"),
        (WeightsOutsideTheStateDict, "state_dict"),
        (WritesIntoItsBatch, "changed its batch"),
    ],
)
def test_model_mutants_fail(mutant, message):
    with pytest.raises(AssertionError, match=message):
        check_model(mutant(), *make_batch())
