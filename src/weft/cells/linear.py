"""Linear recurrences: cells whose new state is linear in the old one, with weights that depend on the input.

MinGRUCell    h' = z * h + (1 - z) * n            gate and candidate read x alone
MinLSTMCell   h' = f * h + i * u                  two gates that sum to 1
SRUCell       c' = f * c + (1 - f) * u            gates also see c through one weight per unit; h' mixes c' and x
RGLRUCell     h' = a * h + sqrt(1 - a^2) * i * u  a decay of each unit's own, to the power of a gate

None has a product with h, so the loop over time is pointwise. What a gate must know about the past, it has to get from
a layer below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.cells.base import HiddenState, InputGatedCell, LSTMState, from_iterable, labelled
from weft.cells.ladder import InputForgetGates


@from_iterable
@labelled(z="update gate", n="candidate")
class MinGRUGates(NamedTuple):
    """Update gate and candidate; (B, H) each."""

    z: Tensor
    n: Tensor


class MinGRUCell(InputGatedCell):
    """The minimal gated recurrent unit.

        z = s(W_z x)
        n = W_n x
        h' = z * h + (1 - z) * n

    Paper: Feng et al. 2024, "Were RNNs all we needed?". Convention: z = 1 keeps the old state, as in `GRUCell`; the
    paper has 1 - z in its place. Block order: z, n.
    """

    blocks = 2

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, MinGRUGates]:
        z, n = x_proj.chunk(2, -1)
        z = torch.sigmoid(z)
        return HiddenState(z * state.h + (1 - z) * n), MinGRUGates(z, n)


class MinLSTMCell(InputGatedCell):
    """The minimal LSTM: input and forget gate are divided by their sum.

        i = s(W_i x) / (s(W_i x) + s(W_f x))
        f = s(W_f x) / (s(W_i x) + s(W_f x))
        u = W_u x
        h' = f * h + i * u

    Paper: Feng et al. 2024, "Were RNNs all we needed?". Block order: i, f, u.
    """

    blocks = 3

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, InputForgetGates]:
        i, f, u = x_proj.chunk(3, -1)
        # The quotient is s(log s(f) - log s(i)), which cannot become 0 / 0.
        f = torch.sigmoid(F.softplus(-i) - F.softplus(-f))
        i = 1 - f
        return HiddenState(f * state.h + i * u), InputForgetGates(i, f, u)


@from_iterable
@labelled(f="forget gate", r="reset gate", u="candidate", k="highway input")
class SRUGates(NamedTuple):
    """Forget gate, reset gate (of the output), candidate, highway input; (B, H) each."""

    f: Tensor
    r: Tensor
    u: Tensor
    k: Tensor


class SRUCell(InputGatedCell):
    """The simple recurrent unit.

        u = W_u x
        f = s(W_f x + v_f * c)
        r = s(W_r x + v_r * c)
        c' = f * c + (1 - f) * u
        k = W_k x
        h' = r * c' + (1 - r) * k

    Paper: Lei et al. 2018, "Simple recurrent units for highly parallelizable recurrence". Convention: the highway
    connection has a projection W_k, which the paper uses where input and hidden sizes differ. `peephole` is v_f, v_r.
    Block order: u, f, r, k.
    """

    blocks = 4
    state_type = LSTMState

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.peephole = nn.Parameter(torch.empty(2 * hidden_size, device=device, dtype=dtype))
        self.reset_parameters()

    def step(self, x_proj: Tensor, state: LSTMState) -> tuple[LSTMState, SRUGates]:
        (u, f, r, k), (v_f, v_r) = x_proj.chunk(4, -1), self.peephole.chunk(2)
        f, r = torch.sigmoid(f + v_f * state.c), torch.sigmoid(r + v_r * state.c)
        c = f * state.c + (1 - f) * u
        return LSTMState(r * c + (1 - r) * k, c), SRUGates(f, r, u, k)


@from_iterable
@labelled(r="recurrence gate", i="input gate", a="decay", u="candidate")
class RGLRUGates(NamedTuple):
    """Recurrence gate, input gate, the decay that follows from the recurrence gate, candidate; (B, H) each."""

    r: Tensor
    i: Tensor
    a: Tensor
    u: Tensor


class RGLRUCell(InputGatedCell):
    """The real-gated linear recurrent unit.

        r = s(W_r x)
        i = s(W_i x)
        a = exp(-8 softplus(decay) * r)
        h' = a * h + sqrt(1 - a^2) * i * (W_u x)

    Paper: De et al. 2024, "Griffin: mixing gated linear recurrences with local attention"; the linear recurrent unit:
    Orvieto et al. 2023, "Resurrecting recurrent neural networks for long sequences". Convention: W_u is the linear
    layer before the unit; the convolution and the gated branch around it belong to Griffin's block, not to the cell.
    exp(-softplus(decay)) starts uniform in [0.9, 0.999]. 1 - a^2 is at least 1e-6, where its root has a derivative.
    Block order: r, i, u.
    """

    blocks = 3
    computed = ("rate",)

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.decay = nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "decay"):
            with torch.no_grad():
                nn.init.uniform_(self.decay, 0.9, 0.999)
                self.decay.copy_(torch.log(1 / self.decay - 1))

    @property
    def rate(self) -> Tensor:
        """The rate of decay of each unit with an open gate, (H,)."""
        return 8 * F.softplus(self.decay)

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, RGLRUGates]:
        r, i, u = x_proj.chunk(3, -1)
        r, i = torch.sigmoid(r), torch.sigmoid(i)
        a = torch.exp(-self.rate * r)
        scale = torch.sqrt(torch.clamp(1 - a * a, min=1e-6))
        return HiddenState(a * state.h + scale * i * u), RGLRUGates(r, i, a, u)
