"""Conversion of weights to and from torch.nn.RNN, GRU and LSTM.

Parameters have the same names, shapes and block order on both sides, so conversion copies them.
"""

from __future__ import annotations

import torch
from torch import nn

from weft.cells import Cell, GRUCell, LSTMCell, ReLURNNCell, RNNCell
from weft.errors import WeftError
from weft.nn.layers import Bidirectional, Recurrent, Stack

_MODES: dict[str, type[Cell]] = {
    "RNN_TANH": RNNCell,
    "RNN_RELU": ReLURNNCell,
    "GRU": GRUCell,
    "LSTM": LSTMCell,
}  # torch's names


def from_torch(module: nn.RNN | nn.GRU | nn.LSTM) -> Stack:
    """Builds a stack with the weights, dtype, device and mode of a torch module.

    Args:
        module: the module. Without biases (bias=False) the stack's cells have none.

    Returns:
        A stack of one layer for each of the module's; its weights are copies.

    Raises:
        WeftError: another module, or one with `proj_size`.
    """
    if not isinstance(module, nn.RNNBase) or module.mode not in _MODES:
        raise WeftError(f"from_torch: {type(module).__name__}", expected="torch.nn.RNN, GRU or LSTM")
    if module.proj_size:
        raise WeftError(
            f"from_torch: {type(module).__name__} with proj_size={module.proj_size}",
            expected="proj_size=0, because no cell of weft projects its state",
        )
    layers: list[Recurrent | Bidirectional] = []
    for number in range(module.num_layers):
        if module.bidirectional:
            layers.append(Bidirectional(_cell(module, f"l{number}"), _cell(module, f"l{number}_reverse")))
        else:
            layers.append(Recurrent(_cell(module, f"l{number}")))
    return Stack(layers, dropout=module.dropout).train(module.training)


def _cell(module: nn.RNNBase, suffix: str) -> Cell:
    """Builds a cell from the parameters with the suffix."""
    weight = module.get_parameter(f"weight_ih_{suffix}")
    cell = _MODES[module.mode](weight.shape[1], module.hidden_size, module.bias).to(weight)
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(module.get_parameter(f"{name}_{suffix}"))
    return cell


def to_torch(stack: Stack) -> nn.RNN | nn.GRU | nn.LSTM:
    """Builds the torch module (batch_first=True) that computes what the stack does.

    It has the stack's weights, dtype, device and mode.

    Args:
        stack: a stack of equal layers.

    Returns:
        The module; its weights are copies.

    Raises:
        WeftError: torch.nn has no such layer: a residual stack, a cell that torch does not have, a reversed layer, or
            layers that differ in cell, size or directions.
    """
    if stack.residual:
        raise WeftError(
            "to_torch: the stack has residual connections", expected="none, because torch.nn has no such layer"
        )
    cells = [_cells_of(layer) for layer in stack.layers]
    first = cells[0][0]
    kind = type(first)
    for cell in (cell for layer in cells for cell in layer):
        if type(cell) not in _MODES.values():
            known = ", ".join(each.__name__ for each in _MODES.values())
            raise WeftError(f"to_torch: torch.nn has no {type(cell).__name__}", expected=f"one of: {known}")
        if type(cell) is not kind:
            raise WeftError(
                f"to_torch: the stack has {kind.__name__} and {type(cell).__name__}", expected="one cell throughout"
            )
        if cell.hidden_size != first.hidden_size:
            raise WeftError(
                f"to_torch: the stack has hidden sizes {first.hidden_size} and {cell.hidden_size}",
                expected="one size in all layers and directions",
            )
        if cell.bias is not first.bias:
            raise WeftError("to_torch: some cells have biases and some do not", expected="one or the other")
    if len({len(layer) for layer in cells}) > 1:
        raise WeftError("to_torch: some layers are bidirectional and some are not", expected="one or the other")

    module = _new_module(kind, first, layers=len(cells), bidirectional=len(cells[0]) == 2, dropout=stack.dropout)
    with torch.no_grad():
        for number, layer in enumerate(cells):
            for direction, cell in zip(("", "_reverse"), layer, strict=False):
                for name, parameter in cell.named_parameters():
                    module.get_parameter(f"{name}_l{number}{direction}").copy_(parameter)
    return module.train(stack.training)


def _cells_of(layer: nn.Module) -> list[Cell]:
    """Returns the cells of a layer, forward first."""
    if isinstance(layer, Bidirectional):
        return [layer.forward_layer.cell, layer.backward_layer.cell]
    assert isinstance(layer, Recurrent)
    if layer.reverse:
        raise WeftError("to_torch: a layer reads backward only", expected="forward or both, as torch.nn has them")
    return [layer.cell]


def _new_module(
    kind: type[Cell], first: Cell, *, layers: int, bidirectional: bool, dropout: float
) -> nn.RNN | nn.GRU | nn.LSTM:
    nonlinearity = {"nonlinearity": "tanh" if kind is RNNCell else "relu"} if issubclass(kind, RNNCell) else {}
    make = nn.GRU if kind is GRUCell else nn.LSTM if kind is LSTMCell else nn.RNN
    module: nn.RNN | nn.GRU | nn.LSTM = make(
        first.input_size,
        first.hidden_size,
        layers,
        bias=first.bias,
        batch_first=True,
        dropout=dropout if layers > 1 else 0.0,  # dropout acts between layers; torch warns if there is one layer
        bidirectional=bidirectional,
        **nonlinearity,
    )
    return module.to(first.weight_ih)
