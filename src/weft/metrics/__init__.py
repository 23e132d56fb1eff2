"""Metrics as sufficient statistics that add up over batches, and a score computed from their sum.

Each metric has `+`, `score()` and `signature()`; the signature states exactly what was measured.
"""

from weft.metrics.bleu import Translations, count_matches, precisions, sentence_bleu
from weft.metrics.classification import Confusion, LabelScore
from weft.metrics.likelihood import Likelihood, TokenPredictions
from weft.metrics.paired import BootstrapDifference, ExampleStatistics, paired_bootstrap
from weft.metrics.tagging import AccuracyCounts, MatchCounts, SpanScores, TokenScores, WordScores

__all__ = [
    "AccuracyCounts",
    "BootstrapDifference",
    "Confusion",
    "ExampleStatistics",
    "LabelScore",
    "Likelihood",
    "MatchCounts",
    "SpanScores",
    "TokenPredictions",
    "TokenScores",
    "Translations",
    "WordScores",
    "count_matches",
    "paired_bootstrap",
    "precisions",
    "sentence_bleu",
]
