"""The battery of metrics fails for mutants."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.checks.metrics import check_metric
from weft.metrics import Likelihood


@dataclass
class MeanOfMeans:
    mean: float

    def __add__(self, other):
        return type(self)((self.mean + other.mean) / 2)

    def score(self):
        return self.mean


class AddsInPlace(MeanOfMeans):
    def __add__(self, other):
        self.mean += other.mean
        return self


def test_metric_passes():
    check_metric(Likelihood(12.0, 9), [Likelihood(2.0, 4), Likelihood(7.0, 2), Likelihood(3.0, 3)])


def test_metric_mutants_fail():
    with pytest.raises(AssertionError, match="not that of the whole"):
        check_metric(MeanOfMeans(12 / 9), [MeanOfMeans(2 / 4), MeanOfMeans(7 / 2), MeanOfMeans(3 / 3)])
    with pytest.raises(AssertionError, match="adding changed a part"):
        check_metric(AddsInPlace(0.0), [AddsInPlace(0.0), AddsInPlace(0.0), AddsInPlace(1.0), AddsInPlace(-1.0)])
