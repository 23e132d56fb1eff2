"""Decoding: from a model of the next token to sequences. Every algorithm is written once, over `Stepper`.

stepper.py      Stepper: what decoding needs of a model (initial_state, step, select)
sampling.py     how the next token is chosen: greedy or sampled (temperature, top-k, top-p, penalties, ...)
generation.py   advance: rows that generate together, and join and leave; generate: one continuation of each prompt;
                StopText: where a text stops
engines.py      a model for such rows: each has a state of its own
history.py      the tokens of a row, and states to return to
beam_search.py  beam_search: the best continuations of each prompt; beam_tree: with every hypothesis it considered
blanks.py       fill_blanks: the best ways to fill the blanks of a sequence
"""

from weft.decoding.beam_search import Hypothesis, TopKStepper, beam_search
from weft.decoding.blanks import FilledBlanks, fill_blanks
from weft.decoding.engines import TokenChoice, TokenEngine, token_engine
from weft.decoding.generation import GeneratedRow, advance, generate
from weft.decoding.history import History
from weft.decoding.sampling import NO_TOKEN, Sample, Sampler, TokenCounts, count_token, greedy
from weft.decoding.stepper import Stepper
