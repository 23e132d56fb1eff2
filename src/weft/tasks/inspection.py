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
    """Distributions over the vocabulary for tokens of the text.

    Attributes:
        tokens: All tokens of the text.
        positions: The positions of the P predicted tokens.
        log_probs: (P, V), the predicted distribution at each of them.
        ids: (P,), the true tokens.
        names: The V tokens of the vocabulary.
        context: What a token is predicted from: "left" or "both".
    """

    tokens: tuple[str, ...]
    positions: tuple[int, ...]
    log_probs: Tensor
    ids: Tensor
    names: Sequence[str]
    context: str


class StackUse(NamedTuple):
    """A recurrent stack of a model, and the token at each of its steps."""

    stack: Stack
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """A recurrent network as a differentiable function of the embeddings of a text.

    Attributes:
        tokens: The T tokens that are read.
        embeddings: (1, T, E), their embeddings, or one-hot vectors where the model has no embedding.
        logits: Embeddings (B, T, E) to logits (B, P, C) of all predictions.
        predictions: What each of the P predictions is: the next token, the tag of a token, the label of the text.
        targets: The class that each prediction is about.
        classes: The names of the C classes.
        stacks: The stacks by name; all are run by `logits`.
        readout: Outputs (B, T, O) of the stack to logits (B, T, C), where there is one causal stack and prediction t
            depends on output t alone; otherwise None.
        losses: Logits (B, P, C) to the loss (B, P) of each prediction; None: -log P of its target.
    """

    tokens: tuple[str, ...]
    embeddings: Tensor
    logits: Callable[[Tensor], Tensor]
    predictions: tuple[str, ...]
    targets: tuple[int, ...]
    classes: Sequence[str]
    stacks: Mapping[str, StackUse]
    readout: Callable[[Tensor], Tensor] | None = None
    losses: Callable[[Tensor], Tensor] | None = None


class AttentionWeights(NamedTuple):
    """Attention weights (T, S): of each of T queries over S tokens; each row sums to 1."""

    queries: tuple[str, ...]
    tokens: tuple[str, ...]
    weights: Tensor


class NamedBeamTree(NamedTuple):
    """A beam search, and the tokens by id."""

    tree: BeamTree
    names: Sequence[str]


class ChainView(NamedTuple):
    """One chain of hidden states over the tokens of a text: an HMM, or the tags of a CRF.

    Attributes:
        tokens: The T tokens.
        states: The names of the K states.
        chains: The chain's scores; one row.
        transition: (K, K), probabilities of an HMM or scores of a CRF.
        emissions: For each state its most probable observations, where the model has emissions.
        kind: "hmm" or "crf".
    """

    tokens: tuple[str, ...]
    states: tuple[str, ...]
    chains: Chains
    transition: Tensor
    emissions: tuple[tuple[tuple[str, float], ...], ...]
    kind: str


Array = np.ndarray[Any, np.dtype[np.float64]]


class SeriesView(NamedTuple):
    """A series and its forecast. T steps of history, H steps of the forecast.

    Attributes:
        reading: How a table was read, a line each.
        ids: The names of all series.
        id: The name of this one.
        channel: The name of the value that is forecast.
        times: The T + H times, as the input writes times.
        dates: The same in ISO 8601; empty for a counter.
        history: (T,), NaN where missing.
        forecast: (H,), the median.
        intervals: The ends (H,) of each interval, by its percent.
        baselines: (H,) of each baseline, by name.
        weights: The weight of each forecaster in the combination.
        earlier: (T,), what was forecast of the history from earlier cutoffs; NaN where nothing was.
        table: The forecast as the columns of a table, of this series or of all.
        anomalies: (T,) each, where they were asked for: "score", "anomaly" (1 where there is one), and the ends "lower"
            and "upper" of the values without an alarm.
    """

    reading: tuple[str, ...]
    ids: tuple[str, ...]
    id: str
    channel: str
    times: tuple[str, ...]
    dates: tuple[str, ...]
    history: Array
    forecast: Array
    intervals: Mapping[str, tuple[Array, Array]]
    baselines: Mapping[str, Array]
    weights: Mapping[str, float]
    earlier: Array
    table: Mapping[str, Sequence[Any]]
    anomalies: Mapping[str, Array]


@dataclass(frozen=True)
class Inspection:
    """What builds the parts of a model on one text; None where a model does not have one.

    Attributes:
        scores: Predicted distributions of the tokens.
        network: The recurrent network.
        attention: Attention weights: of a translator, or of the pooling of a classifier.
        search: Beam search with this width and length penalty (None: the default) that goes on from these tokens, with
            every hypothesis.
        chain: The chain of hidden states.
        without: The log-probabilities (N, C) of the classes of a text without each of N ranges of its tokens, predicted
            anew; None: a probe puts embeddings of zero in the place of tokens.
        ngrams: (T, C), what the n-grams of each token add to the logits of a classifier.
        series: A series and its forecast.
        missing: Why a part is None, where there is more to say than that the task has none.
    """

    scores: Callable[[], TokenScores] | None = None
    network: Callable[[], Network] | None = None
    attention: Callable[[], AttentionWeights] | None = None
    search: Callable[[int, float | None, Sequence[str]], NamedBeamTree] | None = None
    chain: Callable[[], ChainView] | None = None
    without: Callable[[Sequence[range]], Tensor] | None = None
    ngrams: Callable[[], Tensor] | None = None
    series: Callable[..., SeriesView] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
