"""Layers for sequence models: what a torch user imports.

    layers.py        Recurrent (a cell over time), Bidirectional, Stack, make_stack
    attention.py     Attention with additive, bilinear, dot and scaled dot scores
    pooling.py       LastPooling, MeanPooling, MaxPooling, AttentionPooling
    adaptive_softmax.py  AdaptiveSoftmax: embedding and output layer of large vocabularies
    crf.py           CRF, the linear-chain conditional random field, with BIO and BIOES constraints
    bptt.py          full, truncated and randomized backpropagation through time
    checkpoint.py    checkpointed: the full gradient of long sequences with less memory
    torch_layers.py  LSTM, GRU, RNN: drop-in replacements for torch.nn's layers
    accelerate.py    accelerate: run the recurrent layers of a finished torch model on the engine
    conversion.py    from_torch, to_torch: weights to and from torch.nn.RNN, GRU and LSTM
    dropout.py       word dropout
    steps.py         the plain-torch loop over time, where the engine cannot run a cell
    states.py        states as nested tuples, and the checks of inputs

The cells of `weft.cells` are exported here too.

Recurrent, Bidirectional and Stack take `x` as (B, T, I) features, (B, T) token ids, or embedding lookups that are not
yet materialised (`weft.engine.Embedded`); a state (None means zeros); and the length of each row. They return the
outputs of every step and the final state. Three guarantees hold for each of them:

- Outputs past a row's length are exactly zero, the final state is each row's own, the backward direction starts at each
  row's own end, and the contents of the padding (NaN included) reach neither results nor gradients.
- A row gives the same result alone and in a batch.
- A causal layer run in two parts, with the state carried over, gives the same result as one run.
"""

from weft.cells import (
    CELLS,
    AdditiveCell,
    Cell,
    CoupledGateCell,
    GRUCell,
    GRUResetBeforeCell,
    HiddenState,
    LSTMCell,
    LSTMState,
    MinGRUCell,
    MinLSTMCell,
    MogrifierLSTMCell,
    MultiHeadLSTMCell,
    ReLURNNCell,
    RGLRUCell,
    RNNCell,
    SLSTMCell,
    SLSTMState,
    SRUCell,
    StatelessCell,
    TwoGateCell,
)
from weft.nn.accelerate import accelerate, restore
from weft.nn.adaptive_softmax import AdaptiveSoftmax
from weft.nn.attention import Attention, AttentionMemory, masked_softmax
from weft.nn.bptt import BPTT, unroll
from weft.nn.checkpoint import checkpointed
from weft.nn.conversion import from_torch, to_torch
from weft.nn.crf import CRF, TagConstraints, TagPath, bio_constraints, bioes_constraints
from weft.nn.dropout import word_dropout
from weft.nn.layers import Bidirectional, BothDirections, Recording, Recurrent, Stack, make_stack
from weft.nn.pooling import POOLINGS, AttentionPooling, LastPooling, MaxPooling, MeanPooling, Pooled, Pooling
from weft.nn.states import map_state
from weft.nn.torch_layers import GRU, LSTM, RNN

__all__ = [
    "BPTT",
    "CELLS",
    "CRF",
    "GRU",
    "LSTM",
    "POOLINGS",
    "RNN",
    "AdaptiveSoftmax",
    "AdditiveCell",
    "Attention",
    "AttentionMemory",
    "AttentionPooling",
    "Bidirectional",
    "BothDirections",
    "Cell",
    "CoupledGateCell",
    "GRUCell",
    "GRUResetBeforeCell",
    "HiddenState",
    "LSTMCell",
    "LSTMState",
    "LastPooling",
    "MaxPooling",
    "MeanPooling",
    "MinGRUCell",
    "MinLSTMCell",
    "MogrifierLSTMCell",
    "MultiHeadLSTMCell",
    "Pooled",
    "Pooling",
    "RGLRUCell",
    "RNNCell",
    "ReLURNNCell",
    "Recording",
    "Recurrent",
    "SLSTMCell",
    "SLSTMState",
    "SRUCell",
    "Stack",
    "StatelessCell",
    "TagConstraints",
    "TagPath",
    "TwoGateCell",
    "accelerate",
    "bio_constraints",
    "bioes_constraints",
    "checkpointed",
    "from_torch",
    "make_stack",
    "map_state",
    "masked_softmax",
    "restore",
    "to_torch",
    "unroll",
    "word_dropout",
]
