"""Pretraining: a classifier, tagger or filler that starts from the layers of a language model of raw text.

The embedding and the recurrent layers are taken over, with the vocabulary; the layers above them are new. A model that
reads in both directions takes its backward layers from a language model with `model.backward`. Training then uses
discriminative learning rates and gradual unfreezing (`weft.training.optimizer`).

Howard and Ruder 2018, "Universal language model fine-tuning for text classification".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from weft.cells import Cell
from weft.config import as_config, assignment, dotted, to_dict
from weft.errors import WeftError, check_path
from weft.nn import Bidirectional, Recurrent, Stack
from weft.tasks.config import LayerRates
from weft.tasks.mixture import first_member
from weft.text.shards import is_shards
from weft.training.optimizer import LayerGroups
from weft.training.run import Run, open_run

if TYPE_CHECKING:
    from weft.tasks.task import Task, Training

# Settings of models that start from an encoder, unless they or the task's `encoder_defaults` are set.
ENCODER_RATES: Mapping[str, Any] = {"train.layer_decay": 0.4, "train.unfreeze_epochs": 0.5}
# Settings of the language model that `pretrain` trains, beside those of the text and the layers.
PRETRAINING = {
    "text.holdout": 0.02,
    "model.backward": True,
    "model.dropout": 0.1,
    "batch.size": 20,
    "batch.seq_length": 70,
    "train.epochs": 3,
    "train.learning_rate": 0.004,
}
SHARED_LAYERS = ("cell", "hidden_size", "num_layers", "residual", "embedding_dim")  # of the section `model`
SHARED_TEXT = ("tokenizer", "normalization", "lower", "letters_only")  # of the section `text`


class PretrainedLayers(NamedTuple):
    """What another model takes over of a language model: of cells the parameters by name, the lowest layer first."""

    name: str  # of its run, for messages
    embedding: Tensor  # (V, E)
    forward: list[dict[str, Tensor]]
    backward: list[dict[str, Tensor]]  # empty without `model.backward`


@runtime_checkable
class TakesEncoder(Protocol):
    """A task whose models can start from an encoder."""

    encoder_defaults: ClassVar[Mapping[str, Any]]  # defaults of settings, by dotted keys, with an encoder

    # The settings, by dotted keys, that a model has to share with its encoder.
    def encoder_settings(self, encoder: Run) -> dict[str, Any]: ...

    # The settings of the text, by dotted keys, of an encoder for a model with these settings.
    def pretraining_text(self, config: Any) -> dict[str, Any]: ...

    # What an encoder is trained on: raw text, and the texts of the examples, which have words of their own.
    def pretraining_corpus(self, raw: Any, source: Any, config: Any) -> Any: ...

    # Gives a new model the layers of the encoder.
    def take_over(self, model: Any, encoder: PretrainedLayers) -> None: ...


def open_encoder(task: Task[Any, Any, Any], run: Run | str | Path) -> Run:
    """The language model whose layers a run of a task starts from; others are refused."""
    check_takes_encoder(task)
    run = run if isinstance(run, Run) else open_run(run)
    if run.task != "lm":
        raise WeftError(
            f"{run.path} is a run of the task {run.task!r}",
            expected="a language model, a run of `weft train lm`, as the encoder",
            hint="`from_run=RUN` to fine-tune a run of the same task" if run.task == task.name else "",
        )
    if not run.config["model"]["embedding_dim"]:
        raise WeftError(
            f"{run.path} reads one-hot vectors: it has no embedding to take over",
            expected="a language model with an embedding, such as `model.embedding_dim=256`",
        )
    return run


def encoder_settings(task: Task[Any, Any, Any], encoder: Run) -> dict[str, Any]:
    """The settings that a run with an encoder starts from, by dotted keys."""
    assert isinstance(task, TakesEncoder)
    return {**ENCODER_RATES, **task.encoder_defaults, **task.encoder_settings(encoder)}


def encoder_config(task: Task[Any, Any, Any], encoder: Run, config: Any) -> Any:
    """The settings of a run with an encoder; those that do not fit it are refused."""
    assert isinstance(task, TakesEncoder)
    if config is None or isinstance(config, Mapping):
        config = {**encoder_settings(task, encoder), **dotted(config or {})}
    settings = as_config(task.config_class, config)
    given = dotted(to_dict(settings))
    for key, value in task.encoder_settings(encoder).items():
        if given[key] != value:
            raise WeftError(
                f"{encoder.path} was trained with {key.partition('.')[2]}={value}, and the new model has "
                f"{key}={given[key]}",
                expected="the layers and the vocabulary of the encoder",
                hint=assignment(key, value),
            )
    both, layers = getattr(settings.model, "bidirectional", True), settings.model
    if both and layers.residual and layers.embedding_dim in (layers.hidden_size, 2 * layers.hidden_size):
        raise WeftError(
            f"{encoder.path} has residual connections around layers of {layers.hidden_size} units that read "
            f"{layers.embedding_dim} features; two directions have them around other layers",
            expected="no residual connections, or another embedding_dim",
        )
    if both and not encoder.config["model"].get("backward"):
        raise WeftError(
            f"{encoder.path} reads forward only, and the new model reads in both directions",
            expected="an encoder trained with model.backward=true",
            hint="`model.bidirectional=false` for a model that reads forward only"
            if hasattr(settings.model, "bidirectional")
            else "",
        )
    return settings


def check_takes_encoder(task: Task[Any, Any, Any]) -> None:
    """Refuses a task whose models have no layers of an encoder."""
    if not isinstance(task, TakesEncoder):
        raise WeftError(
            f"a run of the task {task.name!r} cannot start from an encoder", expected="classify, tag or fill"
        )


def load_encoder(run: Run) -> PretrainedLayers:
    """The layers of a language model, as they were when its held-out loss was lowest."""
    from weft.tasks import get_task

    model = first_member(get_task("lm").load(run)).model

    def parameters(stack: Stack | None) -> list[dict[str, Tensor]]:
        cells = [] if stack is None else [cast(Cell, layer.cell) for layer in stack.layers]
        return [{name: weight.detach() for name, weight in cell.named_parameters()} for cell in cells]

    with torch.no_grad():
        table = model.embedding_table()
    return PretrainedLayers(str(run.path), table, parameters(model.stack), parameters(model.backward_stack))


def shared_settings(encoder: Run, sections: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Settings of an encoder by dotted keys, of the given names in each section."""
    return {f"{section}.{name}": encoder.config[section][name] for section, names in sections.items() for name in names}


def take_over_stack(stack: Stack, encoder: PretrainedLayers) -> None:
    """Gives a stack of recurrent layers the weights of an encoder.

    The separate stacks of the encoder become one: where a layer of the model reads more than that of the encoder (both
    directions below it, or more features of a token), the additional input weights are zero, so that it computes at
    first exactly what the encoder does. The first features that the lowest layer reads are those of the embedding.
    """
    for number, layer in enumerate(stack.layers):
        if isinstance(layer, Bidirectional):
            take_over_cell(layer.forward_layer.cell, encoder.forward[number], encoder.name)
            below = layer.forward_layer.output_size if number else 0  # all layers have as many units
            take_over_cell(layer.backward_layer.cell, encoder.backward[number], encoder.name, first=below)
        else:
            assert isinstance(layer, Recurrent)
            direction = encoder.backward if layer.reverse else encoder.forward
            take_over_cell(layer.cell, direction[number], encoder.name)


@torch.no_grad()
def take_over_cell(cell: Cell, weights: Mapping[str, Tensor], name: str, *, first: int = 0) -> None:
    """Gives a cell the weights of another one, whose inputs are those of this one from number `first` on."""
    own = dict(cell.named_parameters())
    for key, parameter in own.items():
        given = weights.get(key)
        if given is None or (given.shape != parameter.shape and key != "weight_ih") or len(own) != len(weights):
            raise WeftError(
                f"{name}: {key} of the cell is {'missing' if given is None else tuple(given.shape)}",
                expected=f"{tuple(parameter.shape)}, as in {type(cell).__name__}",
            )
        if given.shape == parameter.shape:
            parameter.copy_(given)
        else:
            parameter.zero_()
            parameter[:, first : first + given.shape[1]] = given


def layer_groups(
    model: nn.Module, stacks: Sequence[Stack], embedding: nn.Module | None, rates: LayerRates
) -> LayerGroups | None:
    """The groups of a model for discriminative learning rates and gradual unfreezing; None if no setting asks for them.

    The first group has the layers that no encoder gives. Then come the recurrent layers from the top down, both
    directions together (`stacks` are one, or one for each direction), and the embedding.
    """
    if rates.layer_decay == 1 and not rates.unfreeze_epochs:
        return None
    depth = len(stacks[0].layers)
    layers = [[p for stack in stacks for p in stack.layers[n].parameters()] for n in reversed(range(depth))]
    lower = [*layers, [] if embedding is None else list(embedding.parameters())]
    known = {id(parameter) for group in lower for parameter in group}
    first = [one for one in model.parameters() if one.requires_grad and id(one) not in known]
    return LayerGroups([first, *filter(None, lower)], rates.layer_decay, rates.unfreeze_epochs)


def start_pretraining(
    task: Task[Any, Any, Any], raw: Any, source: Any, out: str | Path, config: Any = None, *, resume: bool = False
) -> Training:
    """Starts the training of an encoder for a new run, or resumes it. It is a run of its own, `OUT.lm`.

    The encoder is trained on `raw`; task, source and settings are those of the new run.
    """
    from weft.tasks import get_task

    check_takes_encoder(task)
    lm, folder = get_task("lm"), Path(f"{check_path(out, '`out`')}.lm")
    if resume and folder.exists():
        return lm.resume(folder)
    settings = as_config(task.config_class, config)
    assert isinstance(task, TakesEncoder)
    text = raw if is_shards(raw) else task.pretraining_corpus(raw, source, settings)  # encoded text is as it is
    layers = {f"model.{name}": getattr(settings.model, name) for name in SHARED_LAYERS}
    train = {f"train.{name}": getattr(settings.train, name) for name in ("seed", "device", "precision")}
    return lm.start(text, folder, {**layers, **train, **PRETRAINING, **task.pretraining_text(settings)})
