"""Layers: a cell over time, in two directions, and stacked.

All three take `x` as (B, T, I) numbers, as (B, T) token ids or as rows of tables that are not written out yet
(weft.engine.Embedded), a state (None is zeros) and each row's length, and give every step's output and the last
state. Three promises hold for each of them:

- Outputs past a row's length are exactly zero, the last state is each row's own, the backward direction starts
  at each row's own end, and what stands in the padding (NaN too) reaches nothing, gradients included.
- A row alone gives what it gives in a batch.
- A causal run split in two with the state carried gives what the whole gives.
"""

from weft.nn.layers import Bidirectional, Both, Recurrent, Stack, Trace, make_stack
from weft.nn.states import map_state
from weft.nn.steps import run_steps

__all__ = ["Bidirectional", "Both", "Recurrent", "Stack", "Trace", "make_stack", "map_state", "run_steps"]
