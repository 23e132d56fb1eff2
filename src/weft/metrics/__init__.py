"""Metrics: statistics that add up, and a score made from their sum, never a mean of means."""

from weft.metrics.bleu import Translations, count_matches, notes_bleu, precisions
from weft.metrics.likelihood import Guesses, Likelihood

__all__ = ["Guesses", "Likelihood", "Translations", "count_matches", "notes_bleu", "precisions"]
