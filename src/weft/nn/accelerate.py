"""`accelerate(model)`: the recurrent layers inside any torch model run on the engine, with one call.

A layer is replaced in place by changing its class to a subclass of it with the engine's forward pass. The module
object, its Parameter objects, hooks and names stay the same, so optimizers and checkpoints stay valid, and `restore`
undoes it exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from weft import engine
from weft.errors import WeftError
from weft.nn.torch_layers import EngineForward

_LAYERS = (nn.LSTM, nn.GRU, nn.RNN)
_DTYPES = (torch.float32, torch.float64)


class Accelerated(EngineForward):
    """Added to the class of a layer that runs on the engine; `torch_layer` is the class that it had."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Its class exists only in this process: pickle the class that it had.
        return _blank, (self.torch_layer,), self.__getstate__()  # type: ignore[no-untyped-call]


def _blank(kind: type[nn.RNNBase]) -> nn.Module:
    """An accelerated layer of this class, before pickle or deepcopy give it its state."""
    made = accelerated_class(kind)  # type: ignore[arg-type]
    return made.__new__(made)


@cache
def accelerated_class(kind: type[nn.RNNBase]) -> type[nn.Module]:
    return type(f"Accelerated{kind.__name__}", (Accelerated, kind), {"torch_layer": kind})


def _faster(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The class of the layer once it is accelerated; None if it stays as it is."""
    if _is_parametrized(kind):
        return _on_top_of(_faster(kind.__bases__[0]), kind)
    if issubclass(kind, EngineForward) or not any(kind.forward is one.forward for one in _LAYERS):
        return None
    return accelerated_class(kind)  # type: ignore[arg-type]


def _slower(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The class that an accelerated layer had; None for any other."""
    if _is_parametrized(kind):
        return _on_top_of(_slower(kind.__bases__[0]), kind)
    return kind.torch_layer if issubclass(kind, Accelerated) else None


def _is_parametrized(kind: type[nn.Module]) -> bool:
    """Whether torch.nn.utils.parametrize made this class, for one module, as the only subclass of the module's."""
    return kind.__name__ == f"Parametrized{kind.__bases__[0].__name__}"


def _on_top_of(base: type[nn.Module] | None, kind: type[nn.Module]) -> type[nn.Module] | None:
    """The class of a parametrized module with another base. The parametrizations are properties of the class."""
    if base is None:
        return None
    own = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__", "__doc__")}
    return type(f"Parametrized{base.__name__}", (base,), own)


class ReplacedLayer(NamedTuple):
    """A layer that now runs on the engine, or again as torch has it."""

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
    engine: str  # the instruction set of the engine; "" if torch's own layers run again

    def __str__(self) -> str:
        action = "replaced" if self.engine else "restored"
        lines = [f"{action} {_quoted(one.name)}: {one.layer}" for one in self.replaced]
        lines += [f"kept {_quoted(one.name)}: {one.layer} ({one.reason})" for one in self.kept]
        nothing = "no recurrent layers found" if self.engine else "no accelerated layers found"
        return "\n".join([*(lines or [nothing]), *([self.engine] if self.engine else [])])


def _quoted(name: str) -> str:
    return f"'{name}'" if name else "the model itself"


def accelerate(model: nn.Module) -> AccelerationReport:
    """Run every torch.nn.LSTM, GRU and RNN inside `model` on weft's engine, in place.

    Results, parameters, `state_dict`, optimizers, hooks and parametrizations stay as they are. Subclasses that inherit
    torch's forward pass are replaced too. `restore(model)` undoes it.

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
    return _exchange(model, _faster, "accelerate", _reason)


def restore(model: nn.Module) -> AccelerationReport:
    """Undo `accelerate`: every accelerated layer inside `model` gets its own class back, in place.

    Args:
        model: The model that `accelerate` was called with. Layers that were built as weft.nn.LSTM, GRU or RNN stay.

    Returns:
        A report of the layers that were restored.

    Raises:
        WeftError: if `model` is no module, is scripted, or is compiled.
    """
    return _exchange(model, _slower, "restore", lambda module: "")


def _exchange(
    model: nn.Module,
    other: Callable[[type[nn.Module]], type[nn.Module] | None],
    call: str,
    reason_of: Callable[[nn.Module], str],
) -> AccelerationReport:
    if not isinstance(model, nn.Module):
        raise WeftError(f"{call}: the model is a {type(model).__name__}", expected="a torch.nn.Module")
    replaced, kept = [], []
    modules = list(model.named_modules())
    for name, module in modules:
        _check_open(call, name, module)
    for name, module in modules:
        shown = f"{_plain_name(type(module))}({module.extra_repr()})"
        if reason := reason_of(module):
            kept.append(KeptLayer(name, shown, reason))
        elif kind := other(type(module)):
            module.__class__ = kind
            replaced.append(ReplacedLayer(name, shown))
    return AccelerationReport(tuple(replaced), tuple(kept), engine.description() if call == "accelerate" else "")


def _check_open(call: str, name: str, module: nn.Module) -> None:
    """Refuses a module whose code was translated already."""
    if isinstance(module, torch.jit.ScriptModule):
        raise WeftError(
            f"{call}: {name or 'the model'} is a scripted module, whose code is fixed",
            expected="a model in Python",
            hint=f"{call} the model before torch.jit.script or torch.jit.trace",
        )
    compiled = type(module).__name__ == "OptimizedModule" and type(module).__module__.startswith("torch._dynamo")
    if compiled or getattr(module, "_compiled_call_impl", None) is not None:
        raise WeftError(
            f"{call}: {name or 'the model'} is a compiled module, whose graph is fixed",
            expected="a model that is not compiled yet",
            hint=f"{call} the model before torch.compile",
        )


def _reason(module: nn.Module) -> str:
    """Why a recurrent module is not replaced; "" for one that is, and for any other module."""
    kind = type(module)
    if isinstance(module, EngineForward):
        return "it runs on the engine already"
    if isinstance(module, nn.RNNCellBase):
        return "a cell runs one step a call, and the engine is faster only over many; use the layer where you can"
    if kind.__module__.startswith("torch.ao.nn.") and kind.__name__ in (
        "LSTM",
        "GRU",
        "LSTMCell",
        "GRUCell",
        "RNNCell",
    ):
        return "its weights are quantized, or about to be; torch's own kernels run them"
    if not isinstance(module, nn.RNNBase):
        return ""
    if _faster(kind) is None:
        return f"{kind.__name__} has a forward pass of its own"
    if "forward" in vars(module):
        return "its forward pass was replaced on the instance"
    if module.proj_size:
        return "the engine has no cell with proj_size"
    weight = next(module.parameters(), None)
    if weight is not None and (not weight.is_cpu or weight.dtype not in _DTYPES):
        return f"its weights are {weight.dtype} on {weight.device}; the engine runs float32 and float64 on the CPU"
    return ""


def _plain_name(kind: type[nn.Module]) -> str:
    """The name of a class without what parametrizations and `accelerate` put before it."""
    if _is_parametrized(kind):
        return _plain_name(kind.__bases__[0])
    return kind.torch_layer.__name__ if issubclass(kind, Accelerated) else kind.__name__
