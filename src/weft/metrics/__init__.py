"""Metrics as sufficient statistics that add up over batches, and a score computed from their sum.

Each has `+`, `score()` and `signature()`; the signature states exactly what was measured. A `Metric` describes a score:
its name, unit and direction.
"""

from weft.metrics.bleu import BLEU_SCORE, Translations, count_matches, precisions, sentence_bleu
from weft.metrics.classification import ACCURACY, Confusion, LabelScore
from weft.metrics.forecast import MASE, ForecastScores, QuantileForecast, seasonal_scale, series_scores
from weft.metrics.likelihood import CROSS_ENTROPY, PERPLEXITY, Likelihood, TokenPredictions
from weft.metrics.metric import MEAN_ABSOLUTE_ERROR, Metric
from weft.metrics.paired import BootstrapDifference, ExampleStatistics, paired_bootstrap
from weft.metrics.tagging import TAGGING_SCORE, AccuracyCounts, MatchCounts, SpanScores, TokenScores, WordScores
