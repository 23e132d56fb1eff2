"""What a new run starts from: nothing, a run of the same task, or the layers of a language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import WeftError
from weft.tasks.fine_tuning import describe_source, fine_tuning_config, fine_tuning_settings
from weft.tasks.pretraining import TakesEncoder, encoder_config, encoder_settings, load_encoder, open_encoder
from weft.training.run import Run, decoding, open_run

if TYPE_CHECKING:
    from weft.tasks.task import Task
    from weft.training.trainer import Phase


def open_origin(
    task: Task[Any, Any, Any], source_run: Run | str | Path | None, encoder: Run | str | Path | None
) -> Run | None:
    """The run that a new run of a task starts from, if there is one.

    Args:
        task: the task of the new run.
        source_run: a run of the same task, or its path.
        encoder: a language model, or its path.

    Raises:
        WeftError: both are given, or a run cannot be started from.
    """
    if source_run is not None and encoder is not None:
        raise WeftError("`source_run` and `encoder` are both given", expected="one of the two")
    if encoder is not None:
        return open_encoder(task, encoder)
    if source_run is None:
        return None
    run = source_run if isinstance(source_run, Run) else open_run(source_run)
    if run.task != task.name:
        raise WeftError(f"{run.path} is a run of the task {run.task!r}", expected=f"a run of `weft train {task.name}`")
    return run


def base_settings(task: Task[Any, Any, Any], origin: Run) -> dict[str, Any]:
    """The settings that a run with this origin starts from, by dotted keys."""
    return fine_tuning_settings(origin) if origin.task == task.name else encoder_settings(task, origin)


def settings_from(task: Task[Any, Any, Any], origin: Run, config: Any) -> Any:
    """The settings of a run with this origin; those that do not fit it are refused."""
    if origin.task == task.name:
        return fine_tuning_config(task.config_class, origin, config)
    return encoder_config(task, origin, config)


def describe_origin(task: Task[Any, Any, Any], origin: Run) -> dict[str, str]:
    """What config.json says of the origin."""
    return {**({} if origin.task == task.name else {"task": origin.task}), **describe_source(origin)}


def initialize(task: Task[Any, Any, Any], phase: Phase, origin: Run) -> None:
    """Gives a new model the weights of its origin, or the layers."""
    if origin.task == task.name:
        weights = origin.weights()
        with decoding(origin.path):
            phase.load_weights(weights)
    else:
        assert isinstance(task, TakesEncoder)
        task.take_over(phase.model, load_encoder(origin))
        phase.load_weights(phase.model.state_dict())
