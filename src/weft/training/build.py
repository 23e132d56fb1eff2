"""Building models: whether one fits into memory is checked before any of it is allocated.

A model is first built on torch's meta device, which has shapes and no memory. Its shapes then give the memory that
training takes, or are compared with those of a run's weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from weft.cells import CELLS, Cell, custom_cells, find_cell, is_custom, using_cells
from weft.config import dotted
from weft.errors import WeftError
from weft.machine import memory
from weft.nn.freezing import keep_packed
from weft.training.run import Run

Model = TypeVar("Model", bound=nn.Module)

TRAINING_COPIES = 4  # of the weights: themselves, their gradients, and the optimizer's two moments
CELL_SETTINGS = ("cell", "encoder_cell")  # of the section `model`


def check_memory(what: str, needed: int | None) -> None:
    """Refuse what needs more bytes than the machine has; None stands for more than can be counted."""
    total = memory()
    if needed is None or needed > total:
        size = "more than 8 EiB" if needed is None else f"about {needed / 2**30:,.1f} GiB"
        raise WeftError(
            f"{what} needs {size} of memory, and this machine has {total / 2**30:,.1f} GiB",
            expected="a model that fits",
            hint="smaller sizes, such as `model.hidden_size=256`, or `model.num_states=64` of an HMM",
        )


def take_cells(config: Any) -> tuple[Any, list[type[Cell]]]:
    """Replaces cell classes in a dict of settings, such as `{"model.cell": MyCell}`, by their names; returns both."""
    flat = dotted(config) if isinstance(config, Mapping) else {}
    classes = {key: value for key, value in flat.items() if isinstance(value, type) and issubclass(value, Cell)}
    if not classes:
        return config, []
    return {**flat, **{key: cell.__name__ for key, cell in classes.items()}}, list(classes.values())


def record_cells(config: Any) -> dict[str, str]:
    """The custom cells of a configuration: their names in the settings, and the names of their classes.

    Raises:
        WeftError: A cell is not known.
    """
    names = {getattr(getattr(config, "model", None), key, "") for key in CELL_SETTINGS} - {"", "auto"}
    found = {name: find_cell(name) for name in names}
    return {name: cell.__name__ for name, cell in found.items() if is_custom(cell)}


@contextmanager
def cells_of(run: Run) -> Iterator[None]:
    """Makes the custom cells of a run known by the names in its settings. Their classes have to be known already: a run
    never loads code by itself.
    """
    section = run.config.get("model")
    names = [section.get(key) for key in CELL_SETTINGS] if isinstance(section, dict) else []
    found = {}
    for name in names:
        if isinstance(name, str) and name and name not in CELLS:
            class_name = run.custom_cells.get(name, name)
            known = custom_cells()
            if name not in known and class_name not in known:
                raise WeftError(
                    f"{run.path} needs the cell {class_name!r}, which is not part of weft",
                    expected="its class, since a run never loads code by itself",
                    hint=f"`cells=[{class_name if class_name.isidentifier() else 'CLASS'}]`",
                )
            found[name] = known.get(class_name) or known[name]
    with using_cells(found):
        yield


def build_model(make: Callable[[], Model]) -> Model:
    """Builds a model that fits into memory for training, by `make`, which is called twice."""
    outline = _outline(make)
    size = None if outline is None else sum(p.numel() * p.element_size() for p in outline.parameters())
    check_memory("training this model", None if size is None else size * TRAINING_COPIES)
    return make()


def load_model(make: Callable[[], Model], run: Run) -> Model:
    """Build the model of a run with its best weights, which have to be those of its settings, in evaluation mode."""
    with cells_of(run):
        outline, shapes = _outline(make), run.shapes()
        wanted = {} if outline is None else {name: tuple(value.shape) for name, value in outline.state_dict().items()}
        if wanted != shapes:
            name = next((name for name in (*wanted, *shapes) if wanted.get(name) != shapes.get(name)), "weights")
            raise WeftError(
                f"{run.path}: {name} is {shapes.get(name, 'missing')} in the saved weights",
                expected=f"{wanted.get(name, 'none')}, as the settings of the run say",
                hint="copy the run anew, or train again",
            )
        model = make()
        model.load_state_dict(run.weights())
        keep_packed(model)
        return model.eval()


def _outline(make: Callable[[], Model]) -> Model | None:
    """The model without memory behind its weights; None if they are more than can be counted."""
    try:
        with torch.device("meta"), _WithoutNormal():
            return make()
    except RuntimeError as error:
        if "overflow" in str(error):
            return None
        raise


class _WithoutNormal(TorchFunctionMode):
    """Leaves out `normal_`, which changes nothing on the meta device: torch would load its compiler for it."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (nn.init.normal_, torch.Tensor.normal_):
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)
