"""What a loaded model shows of itself on one text: the hook between the tasks and `weft.probes`.

`Task.inspect(predictor, text)` returns an `Inspection`: functions that build views of the model which all tasks share.
A part that a model does not have is None; one that fails, fails for the probes that ask for it. The probes are written
once over these parts, so a new task is open to every probe whose part it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from weft.chains import Chains
from weft.decoding.beam_search import BeamTree
from weft.nn import Stack


class TokenScores(NamedTuple):
    """Distributions over the vocabulary for tokens of the text."""

    tokens: tuple[str, ...]  # all tokens of the text
    positions: tuple[int, ...]  # the positions of the P predicted tokens
    log_probs: Tensor  # (P, V), the predicted distribution at each of them
    ids: Tensor  # (P,), the true tokens
    names: Sequence[str]  # the V tokens of the vocabulary
    context: str  # what a token is predicted from: "left" or "both"


class StackUse(NamedTuple):
    """A recurrent stack of a model, and the names of its steps: tokens, or times."""

    stack: Stack
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """A recurrent network as a differentiable function of the embeddings of a text, or of the values of a series."""

    steps: tuple[str, ...]  # the names of the T steps that are read: tokens, or times
    embeddings: Tensor  # (1, T, E), their embeddings, or one-hot vectors where the model has no embedding
    logits: Callable[[Tensor], Tensor]  # embeddings (B, T, E) to logits (B, P, C) of all predictions
    # what each of the P predictions is: the next token, the tag of a token, the label of the text
    predictions: tuple[str, ...]
    targets: tuple[int, ...]  # the class that each prediction is about
    classes: Sequence[str]  # the names of the C classes
    stacks: Mapping[str, StackUse]  # the stacks by name; all are run by `logits`
    # outputs (B, T, O) of the stack to logits (B, T, C), where there is one causal stack and prediction t depends on
    # output t alone; otherwise None
    readout: Callable[[Tensor], Tensor] | None = None
    # logits (B, P, C) to the loss (B, P) of each prediction; None: -log P of its target
    losses: Callable[[Tensor], Tensor] | None = None


class AttentionWeights(NamedTuple):
    """Attention weights (T, S): of each of T queries over S steps; each row sums to 1."""

    queries: tuple[str, ...]
    steps: tuple[str, ...]
    weights: Tensor


class NamedBeamTree(NamedTuple):
    """A beam search, and the tokens by id."""

    tree: BeamTree
    names: Sequence[str]


class ChainView(NamedTuple):
    """One chain of hidden states over the steps of an input: an HMM, or the tags of a CRF."""

    steps: tuple[str, ...]  # the names of the T steps: tokens, or times
    states: tuple[str, ...]  # the names of the K states
    chains: Chains  # the chain's scores; one row
    transition: Tensor  # (K, K), probabilities of an HMM or scores of a CRF
    # for each state its most probable observations, where the model has emissions
    emissions: tuple[tuple[tuple[str, float], ...], ...]
    kind: str  # "hmm" or "crf"


Array = np.ndarray[Any, np.dtype[np.float64]]


class SeriesView(NamedTuple):
    """A series and its forecast. T steps of history, H steps of the forecast."""

    reading: tuple[str, ...]  # how a table was read, a line each
    ids: tuple[str, ...]  # the names of all series
    id: str  # the name of this one
    channel: str  # the name of the value that is forecast
    times: tuple[str, ...]  # the T + H times, as the input writes times
    dates: tuple[str, ...]  # the same in ISO 8601; empty for a counter
    history: Array  # (T,), NaN where missing
    forecast: Array  # (H,), the median
    intervals: Mapping[str, tuple[Array, Array]]  # the ends (H,) of each interval, by its percent
    baselines: Mapping[str, Array]  # (H,) of each baseline, by name
    weights: Mapping[str, float]  # the weight of each forecaster in the combination
    earlier: Array  # (T,), what was forecast of the history from earlier cutoffs; NaN where nothing was
    table: Mapping[str, Sequence[Any]]  # the forecast as the columns of a table, of this series or of all
    # (T,) each, where they were asked for: "score", "anomaly" (1 where there is one), and the ends "lower" and "upper"
    # of the values without an alarm.
    anomalies: Mapping[str, Array]


@dataclass(frozen=True)
class Inspection:
    """What builds the parts of a model on one text; None where a model does not have one."""

    scores: Callable[[], TokenScores] | None = None  # predicted distributions of the tokens
    network: Callable[[], Network] | None = None  # the recurrent network
    # attention weights: of a translator, or of the pooling of a classifier
    attention: Callable[[], AttentionWeights] | None = None
    # beam search with this width and length penalty (None: the default) that goes on from these tokens, with every
    # hypothesis
    search: Callable[[int, float | None, Sequence[str]], NamedBeamTree] | None = None
    chain: Callable[[], ChainView] | None = None  # the chain of hidden states
    # the log-probabilities (N, C) of the classes of a text without each of N ranges of its tokens, predicted anew;
    # None: a probe puts embeddings of zero in the place of tokens
    without: Callable[[Sequence[range]], Tensor] | None = None
    # (T, C), what the n-grams of each token add to the logits of a classifier
    ngrams: Callable[[], Tensor] | None = None
    series: Callable[..., SeriesView] | None = None  # a series and its forecast
    # why a part is None, where there is more to say than that the task has none
    missing: Mapping[str, str] = field(default_factory=dict)
