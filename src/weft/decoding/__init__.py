"""Decoding: from a model of the next token to sequences. Every algorithm is written once, over `Stepper`.

stepper.py      Stepper: what decoding needs of a model (initial_state, step, select)
sampling.py     generate: one continuation of each prompt, greedy or sampled (temperature, top-k, top-p, penalties, ...)
beam_search.py  beam_search: the best continuations of each prompt
beam_tree.py    beam_tree: the same search, with every hypothesis it considered
engines.py      a model of the next token for rows that come and go
history.py      the tokens of a row, and states to return to
blanks.py       fill_blanks: the best ways to fill the blanks of a sequence
"""

from weft.decoding.beam_search import Hypothesis, TopKStepper, beam_search
from weft.decoding.blanks import FilledBlanks, fill_blanks
from weft.decoding.sampling import (
    NO_TOKEN,
    Sample,
    Sampler,
    SequenceSampler,
    SequenceStepper,
    TokenCounts,
    count_token,
    generate,
    greedy,
)
from weft.decoding.stepper import Stepper

__all__ = [
    "NO_TOKEN",
    "FilledBlanks",
    "Hypothesis",
    "Sample",
    "Sampler",
    "SequenceSampler",
    "SequenceStepper",
    "Stepper",
    "TokenCounts",
    "TopKStepper",
    "beam_search",
    "count_token",
    "fill_blanks",
    "generate",
    "greedy",
]
