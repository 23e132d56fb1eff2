"""`accelerate(model)`: the recurrent layers inside any torch model run on the engine, with one call.

A layer is replaced in place by changing its class to weft's subclass of it. The module object, its Parameter objects,
hooks and names stay the same, so optimizers and checkpoints stay valid, and `restore` undoes it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from weft import engine
from weft.errors import WeftError
from weft.nn.torch_layers import EngineForward


class AcceleratedLSTM(EngineForward, nn.LSTM):
    """A torch.nn.LSTM that runs on the engine; to `isinstance` it is still one."""

    torch_layer = nn.LSTM


class AcceleratedGRU(EngineForward, nn.GRU):
    """A torch.nn.GRU that runs on the engine."""

    torch_layer = nn.GRU


class AcceleratedRNN(EngineForward, nn.RNN):
    """A torch.nn.RNN that runs on the engine."""

    torch_layer = nn.RNN


_FASTER: dict[type[nn.Module], type[nn.Module]] = {
    nn.LSTM: AcceleratedLSTM,
    nn.GRU: AcceleratedGRU,
    nn.RNN: AcceleratedRNN,
}
_TORCH = {ours: theirs for theirs, ours in _FASTER.items()}


class ReplacedLayer(NamedTuple):
    """A layer that now runs on the engine."""

    name: str
    layer: str


class KeptLayer(NamedTuple):
    """A recurrent module that stays as it is, and why."""

    name: str
    layer: str
    reason: str


@dataclass(frozen=True)
class AccelerationReport:
    """What `accelerate` or `restore` did; `print` it for one line per module."""

    replaced: tuple[ReplacedLayer, ...]
    kept: tuple[KeptLayer, ...]
    engine: str

    def __str__(self) -> str:
        lines = [f"replaced {one.name or '(the model itself)'}: {one.layer}" for one in self.replaced]
        lines += [f"kept {one.name or '(the model itself)'}: {one.layer} ({one.reason})" for one in self.kept]
        return "\n".join([*(lines or ["no recurrent layers found"]), self.engine])


def accelerate(model: nn.Module) -> AccelerationReport:
    """Run every torch.nn.LSTM, GRU and RNN inside `model` on weft's engine, in place.

    Results, parameters, `state_dict`, optimizers and hooks stay as they are. `restore(model)` undoes it.

    Args:
        model: Any torch model. Scripted and compiled models are refused: accelerate first, then compile.

    Returns:
        A report of the layers that were replaced, and of those that were not with the reason.

    Raises:
        WeftError: if `model` is no module, is scripted, or is compiled.

    >>> model = nn.Sequential(nn.Embedding(10, 4), nn.LSTM(4, 8, batch_first=True))
    >>> [one.name for one in accelerate(model).replaced]
    ['1']
    """
    return _exchange(model, _FASTER, "accelerate")


def restore(model: nn.Module) -> AccelerationReport:
    """Undo `accelerate`: every layer of weft's inside `model` becomes torch's own again, in place."""
    return _exchange(model, _TORCH, "restore")


def _exchange(model: nn.Module, kinds: dict[type[nn.Module], type[nn.Module]], call: str) -> AccelerationReport:
    if not isinstance(model, nn.Module):
        raise WeftError(f"{call}: the model is a {type(model).__name__}", expected="a torch.nn.Module")
    replaced, kept = [], []
    modules = list(model.named_modules())
    for name, module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            raise WeftError(
                f"{call}: {name or 'the model'} is a scripted module, whose code is fixed",
                expected="a model in Python",
                hint="accelerate the model before torch.jit.script or torch.jit.trace",
            )
        if type(module).__name__ == "OptimizedModule" and type(module).__module__.startswith("torch._dynamo"):
            raise WeftError(
                f"{call}: {name or 'the model'} is a compiled module, whose graph is fixed",
                expected="a model that is not compiled yet",
                hint="accelerate the model before torch.compile",
            )
    for name, module in modules:
        kind = type(module)
        if kind in kinds and not getattr(module, "proj_size", 0):
            replaced.append(ReplacedLayer(name, _shown(module)))
            module.__class__ = kinds[kind]
        elif reason := _reason(module, kinds):
            kept.append(KeptLayer(name, _shown(module), reason))
    return AccelerationReport(tuple(replaced), tuple(kept), engine.description())


def _reason(module: nn.Module, kinds: dict[type[nn.Module], type[nn.Module]]) -> str:
    """Why a recurrent module is not replaced; "" for any other module."""
    if type(module) in kinds:
        return "proj_size is not an equation of the engine's"
    if isinstance(module, nn.RNNCellBase):
        return "a cell runs one step a call; the engine runs loops over time"
    if isinstance(module, nn.RNNBase) and type(module) not in kinds.values():
        return f"a subclass, {type(module).__name__}, whose forward pass may differ"
    return ""


def _shown(module: nn.Module) -> str:
    return f"{_TORCH.get(type(module), type(module)).__name__}({module.extra_repr()})"
