"""Drop-in replacements for torch.nn's recurrent layers: `LSTM`, `GRU` and `RNN`, run by the engine.

Constructor, parameters, initialisation, `state_dict`, error messages and results are torch's; only the loop over time
is ours. Under `torch.autocast("cpu", torch.bfloat16)` its products are in bfloat16. Where the engine cannot run
(another device or dtype, `proj_size`, and graphs that leave this process: torch.export, torch.jit), torch's own layer
does. torch.compile puts the engine's operator into its graph.

For these classes torch's conventions win over weft's: time-first by default, PackedSequence in and out. They derive
from torch.nn.RNNBase and not from torch.nn.LSTM, GRU or RNN, which torch.compile refuses to put into a graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from weft import engine
from weft.cells import CELLS, Cell, traced_as_one_call
from weft.nn.steps import run_passes

_CELLS: dict[str, type[Cell]] = {
    "RNN_TANH": CELLS["rnn"],
    "RNN_RELU": CELLS["rnn-relu"],
    "GRU": CELLS["gru"],
    "LSTM": CELLS["lstm"],
}
_DTYPES = (torch.float32, torch.float64)
_BOUND = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # a cell's parameters in the order of torch's layers


class _Packing:
    """The layout of a PackedSequence, and the way between packed rows and padded (B, T, ...) tensors."""

    def __init__(self, packed: PackedSequence) -> None:
        self.packed, self.batch_sizes = packed, packed.batch_sizes
        rows = int(self.batch_sizes[0])
        # Row r, in the packed order, has a value at every step whose batch is larger than r.
        self.lengths = (self.batch_sizes[None] > torch.arange(rows)[:, None]).sum(1)  # (B,)

    def pad(self, data: Tensor) -> Tensor:
        """Packed rows (sum of lengths, F) to (B, T, F)."""
        padded, _ = torch._VF._pad_packed_sequence(data, self.batch_sizes, True, 0.0, len(self.batch_sizes))
        return padded

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, F) to packed rows (sum of lengths, F)."""
        data, _ = torch._VF._pack_padded_sequence(padded, self.lengths, True)
        return data

    def sequence(self, padded: Tensor) -> PackedSequence:
        _, batch_sizes, sorted_indices, unsorted_indices = self.packed
        return PackedSequence(self.pack(padded), batch_sizes, sorted_indices, unsorted_indices)


class _Passes:
    """The engine's view of a layer's weights. A copy of the layer, or a pickled one, makes its own."""

    def __init__(self, layers: Sequence[list[engine.Pass]] = ()) -> None:
        self.layers = list(layers)

    def __reduce__(self) -> Any:
        return _Passes, ()


class EngineForward(nn.RNNBase):
    """The forward pass of torch's recurrent layers, on the engine wherever it can run, else by `torch_layer`."""

    torch_layer: ClassVar[type[nn.RNNBase]]

    @traced_as_one_call
    def forward(self, input: Any, hx: Any = None) -> Any:
        if torch.compiler.is_compiling():
            return self._run_compiled(input, hx)
        if (done := self._run_prepared(input, hx)) is not None:
            return done
        self._update_flat_weights()
        if self._takes_autocast():
            return self._run_autocast(input, hx)
        packed = isinstance(input, PackedSequence)
        if not self._can_run(input.data if packed else input, hx):
            return self._run_torch(input, hx)
        if packed and "torch._dynamo" in sys.modules:  # torch.compile may run this call outside its graph
            return _uncompiled_packed()(self, input, hx)
        if packed:
            return self._run_packed(input, hx)
        return self._run_tensor(input, hx)

    def _run_prepared(self, x: Any, hx: Any) -> Any:
        """A call like an earlier one, without gradients (engine/prepared.py). None: it is not, or not plainly right."""
        kept: _Passes | None = self.__dict__.get("_weft_passes")
        if type(x) is not Tensor or kept is None or not kept.layers or torch.is_grad_enabled() or x.dim() != 3:
            return None
        if torch.is_autocast_enabled("cpu") or (self.dropout and self.training):
            return None
        ready = engine.prepared_layers(kept.layers[0][0].cell)
        if ready is None:
            return None
        own, names = self._parameters, iter(self._flat_weights_names)
        for layer in kept.layers:
            for run in layer:
                bound = run.cell._parameters
                for key in _BOUND[: 4 if self.bias else 2]:
                    bound[key] = own.get(next(names))
        if not ready.fits(kept.layers, x):
            return None
        states = hx if hx is None or self.mode == "LSTM" else (hx,)
        if states is not None and not (type(states) is tuple and {*map(type, states)} == {Tensor}):
            return None
        done = ready.run_as_torch(x, states, batch_first=self.batch_first)
        return None if done is None else (done[0], self._hidden(done[1]))

    def _run_torch(self, input: Any, hx: Any) -> Any:
        return self.torch_layer.forward(self, input, hx)

    def _takes_autocast(self) -> bool:
        """Whether torch.autocast asks for bfloat16, and this layer has it."""
        if not torch.is_autocast_enabled("cpu") or not engine.rounds_to_bfloat16() or self.proj_size:
            return False
        weights_fit = all(weight.dtype is torch.float32 and weight.is_cpu for weight in self.parameters())
        return weights_fit and engine.library() is not None

    def _run_autocast(self, input: Any, hx: Any) -> Any:
        """Runs with products in bfloat16, the rest in float32. Results have the dtype that torch's layer gives them."""
        given = input if hx is None else _parts(hx)[0]
        dtype = given.data.dtype if self.mode == "GRU" else torch.bfloat16
        if hx is not None:
            hx = _like(hx, [part.float() for part in _parts(hx)])
        with torch.autocast("cpu", enabled=False), engine.precision("bf16"):
            outputs, last = self.forward(input.float(), hx)
        return outputs.to(dtype), _like(last, [part.to(dtype) for part in _parts(last)])

    def _can_run(self, x: Tensor, hx: Any) -> bool:
        """Whether the engine computes this call; torch's own layer does otherwise."""
        if torch.is_autocast_enabled("cpu") or self.proj_size:
            return False
        tensors = [x, *self._weights()]
        if hx is not None:
            tensors += hx if isinstance(hx, tuple | list) else [hx]
        # Anything unexpected (another type, dtype or device, a mistake) is torch's to run or to refuse.
        if not torch.compiler.is_compiling() and not {*map(type, self._weights())} <= {Tensor, nn.Parameter}:
            return False  # subclasses of weights may not even let their dtype be read
        if not all(isinstance(t, Tensor) and t.dtype is x.dtype and t.is_cpu for t in tensors):
            return False
        if x.dtype not in _DTYPES or x.layout is not torch.strided or x.numel() == 0:
            return False
        if torch.compiler.is_compiling():  # x has no type and no memory yet
            return True
        # torch.jit.trace makes a program that runs without weft.
        known = type(x) in (Tensor, nn.Parameter) and torch._C._get_tracing_state() is None
        return known and engine.library() is not None

    def _run_compiled(self, input: Any, hx: Any) -> Any:
        """In the graph of torch.compile: the engine's operator. An exported graph must run without weft."""
        if torch.compiler.is_exporting():
            return self._run_torch(input, hx)
        if isinstance(input, PackedSequence):
            torch._dynamo.graph_break(msg="the shape of a PackedSequence depends on its values: pad it for fullgraph")
            return torch.compiler.disable(EngineForward.forward)(self, input, hx)  # type: ignore[no-untyped-call]
        if not self._can_run(input, hx) or not _prepared(self):
            return self._run_torch(input, hx)
        return self._run_tensor(input, hx)

    def _run_tensor(self, x: Tensor, hx: Any) -> Any:
        if x.dim() not in (2, 3):
            return self._run_torch(x, hx)  # torch's message
        batched, batch_dim = x.dim() == 3, 0 if self.batch_first else 1
        if not batched:
            x = x.unsqueeze(batch_dim)
        if hx is not None:
            parts = _parts(hx)
            if any(part.dim() != (3 if batched else 2) for part in parts):
                return self._run_torch(x if batched else x.squeeze(batch_dim), hx)  # torch's message
            hx = _like(hx, parts if batched else [part.unsqueeze(1) for part in parts])
            self.check_forward_args(x, hx, None)
        else:
            self.check_input(x, None)
        rows = x if self.batch_first else x.transpose(0, 1)
        outputs, last = self._run(rows, hx, None)
        if not self.batch_first:
            outputs = outputs.transpose(0, 1).contiguous()  # as torch gives it: users call .view on it
        if not batched:
            outputs, last = outputs.squeeze(batch_dim), [part.squeeze(1) for part in last]
        return outputs, self._hidden(last)

    def _run_packed(self, packed: PackedSequence, hx: Any) -> Any:
        packing = _Packing(packed)
        self.check_input(packed.data, packed.batch_sizes)
        if hx is not None:
            hx = self.permute_hidden(hx, packed.sorted_indices)
            self.check_forward_args(packed.data, hx, packed.batch_sizes)
        outputs, last = self._run(packing.pad(packed.data), hx, packing)
        return packing.sequence(outputs), self.permute_hidden(self._hidden(last), packed.unsorted_indices)

    def _run(self, x: Tensor, hx: Any, packing: _Packing | None) -> tuple[Tensor, list[Tensor]]:
        """x (B, T, I) to outputs (B, T, D*H) and the parts of the last state, (L*D, B, H) each."""
        cells, states = self.bound_cells(), self._states(hx)
        lengths = None if packing is None else packing.lengths
        together = not (self.dropout and self.training) and not torch.compiler.is_compiling()
        done = engine.run_layers(cells, x, states, lengths) if together else None
        if done is None:
            outputs, last = x, []
            for number, (layer, given) in enumerate(zip(cells, states, strict=True)):
                inputs = self._drop(outputs, packing) if number and self.dropout and self.training else outputs
                done = engine.run_layers([layer], inputs, [given], lengths)
                outputs, (after,) = done or run_passes(layer, inputs, given, lengths)
                last.append(after)
        else:
            outputs, last = done
        if torch.compiler.is_compiling():  # otherwise the graph gives out weights that only a transform inside it knows
            bound = _BOUND[: 4 if self.bias else 2]
            for run in (run for layer in cells for run in layer):
                run.cell._parameters.update(dict.fromkeys(bound))
        flat = [state for layer in last for state in layer]
        return outputs, [torch.stack(parts) for parts in zip(*flat, strict=True)]

    def _drop(self, outputs: Tensor, packing: _Packing | None) -> Tensor:
        """Dropout in the layout in which torch draws its mask, so that a seed gives the same mask."""
        if packing is not None:
            return packing.pad(F.dropout(packing.pack(outputs), self.dropout))
        return F.dropout(outputs.transpose(0, 1).contiguous(), self.dropout).transpose(0, 1)

    def _states(self, hx: Any) -> list[list[Any]]:
        directions = 2 if self.bidirectional else 1
        if hx is None:
            return [[None] * directions for _ in range(self.num_layers)]
        kind = _CELLS[self.mode].state_type
        states = [kind(*parts) for parts in zip(*(part.unbind(0) for part in _parts(hx)), strict=True)]
        return [states[at : at + directions] for at in range(0, len(states), directions)]

    def _hidden(self, parts: Sequence[Tensor]) -> Any:
        return tuple(parts) if self.mode == "LSTM" else parts[0]

    def _weights(self) -> list[Any]:
        if not torch.compiler.is_compiling():
            return self._flat_weights
        # By name: torch.compile fails on a guard of torch's weak references once a weight was replaced and freed.
        return [getattr(self, name) for name in self._flat_weights_names]

    def bound_cells(self) -> list[list[engine.Pass]]:
        """weft's cells over this module's own weights, which may have been replaced since the last call."""
        kept: _Passes | None = self.__dict__.get("_weft_passes")
        if kept is None or not kept.layers:
            kept = self.__dict__["_weft_passes"] = _Passes(self._make_passes())
        weights = iter(self._weights())
        for layer in kept.layers:
            for run in layer:
                bound: dict[str, Any] = run.cell._parameters
                bound["weight_ih"], bound["weight_hh"] = next(weights), next(weights)
                if self.bias:
                    bound["bias_ih"], bound["bias_hh"] = next(weights), next(weights)
                elif bound["bias_ih"].is_meta or bound["bias_ih"].dtype is not bound["weight_ih"].dtype:
                    with engine.outside_of_transforms():  # they outlive this call
                        zeros = torch.zeros(bound["weight_ih"].shape[0], dtype=bound["weight_ih"].dtype)
                    bound["bias_ih"] = bound["bias_hh"] = zeros
        return kept.layers

    def _make_passes(self) -> list[list[engine.Pass]]:
        directions, passes = (False, True) if self.bidirectional else (False,), []
        size = self.input_size
        for _ in range(self.num_layers):
            layer = []
            for reverse in directions:
                with (
                    engine.outside_of_transforms(),
                    torch.device("meta"),
                ):  # no memory and no random numbers: the weights are this module's
                    cell = _CELLS[self.mode](size, self.hidden_size)
                layer.append(engine.Pass(cell, reverse))
            passes.append(layer)
            size = self.hidden_size * len(directions)
        return passes

    def __prepare_scriptable__(self) -> nn.RNNBase:
        """What torch.jit.script compiles, and puts into the model it is given: torch's own layer with these weights."""
        layer = self.torch_layer.__new__(self.torch_layer)
        layer.__dict__.update(self.__dict__)
        layer.__dict__.pop("_weft_passes", None)
        return layer


@cache
def _uncompiled_packed() -> Callable[..., Any]:
    """`_run_packed` without torch.compile, which otherwise traces it by itself after a break of the graph."""
    return torch.compiler.disable(EngineForward._run_packed)  # type: ignore[no-untyped-call,no-any-return]


def _prepared(layer: EngineForward) -> bool:
    """Whether the engine is here. torch.compile calls it while it traces: the layer's cells get their weights in
    memory, from which the engine makes its programs."""
    layer.bound_cells()
    return engine.library() is not None


# What torch.compiler.assume_constant_result does, without importing torch's compiler, which takes a second.
_prepared._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _parts(hx: Any) -> list[Tensor]:
    return list(hx) if isinstance(hx, tuple | list) else [hx]


def _like(hx: Any, parts: list[Tensor]) -> Any:
    return tuple(parts) if isinstance(hx, tuple | list) else parts[0]


class LSTM(EngineForward):
    """torch.nn.LSTM on the engine: the same arguments, parameters and results.

    Args:
        input_size: I, the number of input features.
        hidden_size: H, the number of hidden units of each layer and direction.
        num_layers: the number of layers.
        bias: whether the layers have biases.
        batch_first: inputs are (B, T, I) instead of (T, B, I).
        dropout: dropout rate between layers.
        bidirectional: read in both directions.
        proj_size: the size of a projection of h; 0: none.
        device, dtype: of the parameters.

    >>> layer = LSTM(5, 7, num_layers=2, batch_first=True)
    >>> outputs, (h_n, c_n) = layer(torch.zeros(3, 4, 5))
    >>> outputs.shape, h_n.shape
    (torch.Size([3, 4, 7]), torch.Size([2, 3, 7]))
    """

    torch_layer = nn.LSTM
    check_forward_args = nn.LSTM.check_forward_args  # type: ignore[assignment]
    get_expected_cell_size = nn.LSTM.get_expected_cell_size
    permute_hidden = nn.LSTM.permute_hidden  # type: ignore[assignment]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip


class GRU(EngineForward):
    """torch.nn.GRU on the engine: the same arguments, parameters and results.

    Args:
        input_size: I, the number of input features.
        hidden_size: H, the number of hidden units of each layer and direction.
        num_layers: the number of layers.
        bias: whether the layers have biases.
        batch_first: inputs are (B, T, I) instead of (T, B, I).
        dropout: dropout rate between layers.
        bidirectional: read in both directions.
        device, dtype: of the parameters.

    >>> outputs, h_n = GRU(5, 7, bidirectional=True)(torch.zeros(4, 3, 5))
    >>> outputs.shape, h_n.shape
    (torch.Size([4, 3, 14]), torch.Size([2, 3, 7]))
    """

    torch_layer = nn.GRU

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device,
            dtype=dtype,
        )  # fmt: skip


class RNN(EngineForward):
    """torch.nn.RNN (tanh or relu) on the engine: the same arguments, parameters and results.

    Args:
        input_size: I, the number of input features.
        hidden_size: H, the number of hidden units of each layer and direction.
        num_layers: the number of layers.
        nonlinearity: "tanh" or "relu".
        bias: whether the layers have biases.
        batch_first: inputs are (B, T, I) instead of (T, B, I).
        dropout: dropout rate between layers.
        bidirectional: read in both directions.
        device, dtype: of the parameters.

    >>> outputs, h_n = RNN(5, 7, nonlinearity="relu")(torch.zeros(4, 3, 5))
    >>> outputs.shape, h_n.shape
    (torch.Size([4, 3, 7]), torch.Size([1, 3, 7]))
    """

    torch_layer = nn.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        self.nonlinearity = nonlinearity
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, device=device, dtype=dtype,
        )  # fmt: skip
