"""Metrics: statistics that add up, and a score made from their sum, never a mean of means."""

from weft.metrics.bleu import Translations, count_matches, notes_bleu, precisions
from weft.metrics.classification import Confusion, LabelScore
from weft.metrics.likelihood import Guesses, Likelihood
from weft.metrics.tagging import Found, Hits, SpanScores, TokenScores, WordScores

__all__ = [
    "Confusion",
    "Found",
    "Guesses",
    "Hits",
    "LabelScore",
    "Likelihood",
    "SpanScores",
    "TokenScores",
    "Translations",
    "WordScores",
    "count_matches",
    "notes_bleu",
    "precisions",
]
