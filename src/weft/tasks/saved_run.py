"""A run directory from Python: look at it, load its model, resume its training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from weft.cells import Cell, using_cells
from weft.config import load_config
from weft.tasks import check_predictor, get_task, load, task_of
from weft.training import run as run_directory
from weft.training.run import Run

if TYPE_CHECKING:
    from weft.tasks import Predictor, PredictorKind


@dataclass(frozen=True)
class SavedRun:
    """A run directory. `weft.open_run` returns it.

    Attributes:
        path: The directory.
        task: The name of its task: "lm", "classify", ...
        settings: All settings, by section.
    """

    path: Path
    task: str
    settings: dict[str, Any] = field(repr=False)
    run: Run = field(repr=False)
    cells: tuple[type[Cell], ...] = field(default=(), repr=False)

    def metrics(self) -> list[dict[str, Any]]:
        """The records of the training so far: one for every report and evaluation."""
        return self.run.metrics()

    @overload
    def load(self) -> Predictor: ...
    @overload
    def load(self, kind: type[PredictorKind]) -> PredictorKind: ...
    def load(self, kind: type[Any] | None = None) -> Any:
        """Loads the trained model, as `weft.load` does."""
        return load(self.path, cells=self.cells) if kind is None else load(self.path, kind, cells=self.cells)

    @overload
    def resume(self, settings: Any = None, *, progress: bool = True) -> Predictor: ...
    @overload
    def resume(self, settings: Any = None, *, progress: bool = True, kind: type[PredictorKind]) -> PredictorKind: ...
    def resume(self, settings: Any = None, *, progress: bool = True, kind: type[Any] | None = None) -> Any:
        """Continues training from the last checkpoint to the end, and loads the model.

        A run that has ended is loaded as it is, unless the settings give it more to do: more epochs, more minutes.

        Args:
            settings: Settings that change, such as `{"train.epochs": 30}`, all settings, or a TOML file. Only settings
                under `train.` may change.
            progress: Whether to show progress, in a terminal, a notebook, or as lines on standard error.
            kind: The predictor that is expected, such as `weft.LmPredictor`, for type checkers.

        Returns:
            The predictor of the run's task.

        Raises:
            WeftError: If the run is damaged, another process trains it, or a setting cannot change.
        """
        task = get_task(self.task)
        if isinstance(settings, str | Path):
            settings = load_config(task.config_class, settings, base=self.settings)
        with using_cells(self.cells):
            found = task.complete(task.resume(self.run, settings), progress=progress)
        return check_predictor(found, self.run, kind)


def open_run(path: str | Path, *, cells: Iterable[type[Cell]] = ()) -> SavedRun:
    """Opens a run directory.

    Args:
        path: The run directory.
        cells: Custom cells, for a run that was trained with one.

    Returns:
        A SavedRun: `load()` returns its model, `resume()` continues its training.

    Raises:
        WeftError: If there is no run at the path, or it is damaged or of another format.

    Example:
        run = weft.open_run("runs/mine")
        model = run.resume({"train.epochs": 30})
    """
    run = run_directory.open_run(path)
    task_of(run)
    return SavedRun(run.path, run.task, run.config, run, tuple(cells))
