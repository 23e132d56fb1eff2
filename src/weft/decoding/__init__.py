"""Decoding: from a model that gives the next token's chances to text. Written once, over Stepper."""

from weft.decoding.beam import Hypothesis, Ranking, beam
from weft.decoding.generate import NOTHING, Choice, Sample, Sampler, SelfSampling, generate, greedy
from weft.decoding.stepper import Stepper

__all__ = [
    "NOTHING",
    "Choice",
    "Hypothesis",
    "Ranking",
    "Sample",
    "Sampler",
    "SelfSampling",
    "Stepper",
    "beam",
    "generate",
    "greedy",
]
