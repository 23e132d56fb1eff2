"""Metrics: statistics that add up, and a score made from their sum, never a mean of means."""

from weft.metrics.classification import Confusion, LabelScore
from weft.metrics.likelihood import Guesses, Likelihood

__all__ = ["Confusion", "Guesses", "LabelScore", "Likelihood"]
