"""Recurrent cells: the equations of one step, and nothing else.

A cell holds its weights and computes one step for a batch of rows. Calling a cell takes one step, as torch.nn's cells
do:

    >>> import torch
    >>> cell = LSTMCell(4, 5)
    >>> h, c = cell(torch.zeros(3, 4))          # zero state
    >>> h, c = cell(torch.zeros(3, 4), (h, c))
    >>> h.shape
    torch.Size([3, 5])

A layer (`weft.nn.Recurrent`) runs a cell over time. It projects the inputs of all steps at once, because the input
projection `x_proj = x W_ih^T + b_ih` does not depend on the state, and then calls `Cell.step(x_proj, state)`, which
returns the new state and the gates.

Parameters have the names, shapes and block order of torch.nn's cells: `weight_ih` (G*H, I), `weight_hh` (G*H, H),
`bias_ih` (G*H,), `bias_hh` (G*H,). There are two biases because they are not interchangeable in the GRU, whose reset
gate acts between them.

Notation in the docstrings: `W x` is a block of the input projection including `bias_ih`; `U h` is a block of the
recurrent projection `weight_hh h + bias_hh`; `s` is the logistic sigmoid; `*` is the element-wise product; a prime
marks the value after the step.

A custom cell is a subclass of `Cell` that defines `blocks` (G, the number of gate blocks) and `step`:

    class MinimalGatedUnit(Cell):
        blocks = 2

        def step(self, x_proj, state):
            (x_f, x_u), (h_f, h_u) = x_proj.chunk(2, -1), self.recur(state.h).chunk(2, -1)
            f = torch.sigmoid(x_f + h_f)
            u = torch.tanh(x_u + f * h_u)
            return HiddenState(state.h + f * (u - state.h)), CoupledGates(f, u)

The types of states and gates are NamedTuples. `labels` says what their fields are called in pictures and on the page:

    class MinimalGates(NamedTuple):
        f: Tensor
        u: Tensor
        labels = {"f": "forget gate", "u": "candidate"}

Modules:

    base.py     the contract: Cell, the state types, and the checks
    rnn.py      RNNCell, ReLURNNCell, StatelessCell
    gru.py      GRUCell, GRUResetBeforeCell
    lstm.py     LSTMCell
    ladder.py   the steps from the RNN to the LSTM: AdditiveCell, CoupledGateCell, TwoGateCell
    linear.py   linear recurrences, without recurrent weights: MinGRUCell, MinLSTMCell, SRUCell, RGLRUCell
    lstm_variants.py  MultiHeadLSTMCell, SLSTMCell, MogrifierLSTMCell
    custom.py   custom cells by name: using_cells
"""

from weft.cells.base import (
    Candidate,
    Cell,
    Gates,
    HiddenState,
    InputGatedCell,
    LSTMState,
    State,
    check_blocks,
    check_cell,
    check_instance,
    check_state,
    from_iterable,
    traced_as_one_call,
)
from weft.cells.custom import custom_cells, is_custom, load_cell, using_cells
from weft.cells.gru import GRUCell, GRUGates, GRUResetBeforeCell
from weft.cells.ladder import AdditiveCell, CoupledGateCell, CoupledGates, InputForgetGates, TwoGateCell
from weft.cells.linear import MinGRUCell, MinGRUGates, MinLSTMCell, RGLRUCell, RGLRUGates, SRUCell, SRUGates
from weft.cells.lstm import LSTMCell, LSTMGates
from weft.cells.lstm_variants import MogrifierLSTMCell, MultiHeadLSTMCell, SLSTMCell, SLSTMState
from weft.cells.rnn import ReLURNNCell, RNNCell, StatelessCell
from weft.errors import unknown_name

# The cells by the names that settings use.
CELLS: dict[str, type[Cell]] = {
    "rnn": RNNCell,
    "rnn-relu": ReLURNNCell,
    "gru": GRUCell,
    "gru-reset-before": GRUResetBeforeCell,
    "lstm": LSTMCell,
    "additive": AdditiveCell,
    "coupled-gate": CoupledGateCell,
    "two-gates": TwoGateCell,
    "stateless": StatelessCell,
    "mingru": MinGRUCell,
    "minlstm": MinLSTMCell,
    "sru": SRUCell,
    "rg-lru": RGLRUCell,
    "multi-head-lstm": MultiHeadLSTMCell,
    "slstm": SLSTMCell,
    "mogrifier-lstm": MogrifierLSTMCell,
}


def find_cell(name: str) -> type[Cell]:
    """The class of a cell by the name that settings use: one of CELLS, or a custom one of `using_cells`.

    Raises:
        WeftError: If there is no cell of that name, or it lacks `blocks`.
    """
    known = {**CELLS, **custom_cells()}
    if name not in known:
        own = name if str(name).isidentifier() else "CLASS"
        own = f"for a cell of your own its class, on the command line --cell FILE.py:{own}"
        raise unknown_name("cell", str(name), known, otherwise=own)
    check_blocks(known[name].__name__, known[name])
    return known[name]


__all__ = [
    "CELLS",
    "AdditiveCell",
    "Candidate",
    "Cell",
    "CoupledGateCell",
    "CoupledGates",
    "GRUCell",
    "GRUGates",
    "GRUResetBeforeCell",
    "Gates",
    "HiddenState",
    "InputForgetGates",
    "InputGatedCell",
    "LSTMCell",
    "LSTMGates",
    "LSTMState",
    "MinGRUCell",
    "MinGRUGates",
    "MinLSTMCell",
    "MogrifierLSTMCell",
    "MultiHeadLSTMCell",
    "RGLRUCell",
    "RGLRUGates",
    "RNNCell",
    "ReLURNNCell",
    "SLSTMCell",
    "SLSTMState",
    "SRUCell",
    "SRUGates",
    "State",
    "StatelessCell",
    "TwoGateCell",
    "check_cell",
    "check_instance",
    "check_state",
    "custom_cells",
    "find_cell",
    "from_iterable",
    "is_custom",
    "load_cell",
    "traced_as_one_call",
    "using_cells",
]
