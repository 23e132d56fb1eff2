"""The contract of a task, and what is written once over it: start, resume, train.

A task is a folder under `weft.tasks` and one line in the table of `weft.tasks`. Its `task.py` has the Task object.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from torch import nn

from weft.cells import Cell, using_cells
from weft.config import as_config, from_dict, to_dict
from weft.data.inputs import InputKind, check_input_kind
from weft.errors import WeftError, check_path
from weft.metrics import Metric
from weft.tasks.config import with_input, with_strict
from weft.tasks.elsewhere import package_of
from weft.tasks.inspection import Inspection
from weft.tasks.members import INITIAL, choose_for_members, member_phase, members_of
from weft.tasks.origin import change_settings, describe_origin, initialize, merge_settings, open_origin, settings_from
from weft.tasks.predictor import TaskPredictor
from weft.tasks.stored_data import data_folder, write_data_record
from weft.training.build import cells_of, record_cells, take_cells
from weft.training.devices import choose_precision
from weft.training.distributed import current_workers, slices_for
from weft.training.lock import RunLock, lock_run
from weft.training.run import (
    CHECKPOINT,
    DATA_RECORD,
    Run,
    open_run,
    read_json,
    staged,
    write_run,
    writing_run,
)
from weft.training.step import Step
from weft.training.trainer import Phase, Trainer

TaskConfig = TypeVar("TaskConfig")
Predictor = TypeVar("Predictor", bound=TaskPredictor)
DataSource = TypeVar("DataSource", contravariant=True)


@dataclass(frozen=True)
class Training:
    """A training run before its next step: iterate over `steps()`."""

    task: Task[Any, Any, Any]
    run: Run
    trainer: Trainer
    lock: RunLock | None  # no other process may train the run meanwhile; rank 0 has it
    choice: str = ""  # the settings that the task has chosen for a new run, for what, and if it takes hours

    def steps(self) -> Iterator[Step]:
        """Trains to the end; yields each step. Afterwards other processes may train the run."""
        try:
            yield from self.trainer.run()
        finally:
            if self.lock is not None:
                self.lock.release()

    def complete(self, *, progress: bool = True) -> Any:
        """Trains to the end and loads the model. Shows progress; `progress=False` disables it."""
        from weft.training.progress import TrainingProgress  # rich takes a while to load

        shown = TrainingProgress(self.task.metric, self.trainer.phase.loss) if progress and self.lock else None
        if shown is not None:
            shown.say(self.summary)
        with nullcontext() if shown is None else shown:
            for step in self.steps():
                if shown is not None:
                    shown.step(step)
        current_workers().meet()  # rank 0 has written the last weights
        return self.task.load(self.run)

    @property
    def model(self) -> Any:
        return self.trainer.model

    @property
    def summary(self) -> str:
        """The data, how it was read and the size of the model, and what was chosen for them, in a line each."""
        model, size = self.model, ""
        if isinstance(model, nn.Module):
            size = f", {sum(parameter.numel() for parameter in model.parameters()):,} weights"
        return "\n".join(filter(None, (f"{self.trainer.phase.description}{size}", self.choice)))


class RunKind(ABC, Generic[TaskConfig, Predictor]):
    """How runs of a kind are loaded and used: those of a task, and mixtures, which are made of other runs.

    `TaskConfig` are its settings, `Predictor` is a loaded model ready for use.
    """

    name: ClassVar[str]  # in config.json, on the command line, in the table of tasks
    summary: ClassVar[str]  # what `weft train` trains
    details: ClassVar[str] = ""  # what else its help says
    data_help: ClassVar[str]  # of --data
    dev_help: ClassVar[str]  # of --dev
    predictors: ClassVar[tuple[type[TaskPredictor], ...]]  # what its runs load as; their operations are its commands
    metric: ClassVar[Metric]  # the held-out metric that progress lines and results show
    config_class: type[TaskConfig]

    @abstractmethod
    def load(self, run: Run) -> Predictor:
        """Loads a run: the best weights of its members, or the newest while there are no best ones."""

    def inspect(self, predictor: Predictor, text: str) -> Inspection:
        """The parts of a loaded model on a text that `weft.probes` look at; none unless a task gives them."""
        return Inspection()


class Task(RunKind[TaskConfig, Predictor], Generic[DataSource, TaskConfig, Predictor]):
    """Everything the rest of weft asks of a task. `DataSource` is what its data is read from."""

    sample: ClassVar[str] = "grammar"  # data for a first try
    inputs: ClassVar[tuple[str, ...]] = ()  # the kinds of files that it reads: "text", "series", "audio"; none: any

    @abstractmethod
    def read(
        self, source: DataSource, dev: DataSource | None, config: TaskConfig, folder: Path, origin: Run | None = None
    ) -> Mapping[str, Any]:
        """Reads the data of a new run and stores the encoded examples.

        Args:
            source: What to train on: a path, the name of a data set, or the examples themselves.
            dev: Held-out data, where it is given.
            config: All settings.
            folder: The folder data/ of the new run.
            origin: The run that the new one starts from: one of the same task, or a language model whose layers it
                takes over. Its vocabulary is kept, and new tokens are reported.

        Returns:
            The content of fields.json; see `fields_content`.
        """

    def kind_of(self, source: Any, config: TaskConfig) -> InputKind | None:
        """The kind of a file, where the task knows better than its content in general; None: as that says."""
        return None

    def choose(self, run: Run, config: TaskConfig) -> tuple[TaskConfig, str]:
        """Chooses the settings of a new run that are "auto", from the data that `open` stored; says what they are."""
        return choose_precision(config), ""

    @abstractmethod
    def build(self, run: Run, config: TaskConfig) -> Phase:
        """Builds what trains a model on the data that `open` stored in the run."""

    def start(
        self,
        source: DataSource,
        out: str | Path,
        config: TaskConfig | Mapping[str, Any] | None = None,
        *,
        dev: DataSource | None = None,
        from_run: Run | str | Path | None = None,
        encoder: Run | str | Path | None = None,
        strict: bool = False,
        input: str = "",
    ) -> Training:
        """Stores the data in a new run directory and builds the trainer.

        Args:
            source: What to train on.
            out: The run directory to create.
            config: Settings; a dict such as `{"train.epochs": 3}` changes some of the task's defaults. In a dict,
                `model.cell` may be a class of your own.
            dev: Held-out data; without it a part of the source is held out.
            from_run: A run of the same task to fine-tune: its settings, vocabulary and weights are the start. Its
                learning rate is multiplied by `origin.FINE_TUNING_FACTOR` unless `config` sets one.
            encoder: A language model whose vocabulary, embedding and recurrent layers are the start.
            strict: Refuse rows that lack something, such as a label, which are left out and reported otherwise; the
                same as the setting `data.strict`, or `text.strict`.
            input: What the files are: "text", "series" or "audio"; empty: what their extension or content says.

        Returns:
            A Training before its first step. Nothing is trained until `steps()` is iterated over.

        Raises:
            WeftError: If `out` exists, or the data or a setting is not usable. No run directory is left then.
        """
        began = time.perf_counter()  # the time limit covers reading and encoding the data
        origin, workers = open_origin(self, from_run, encoder), current_workers()
        config, classes = take_cells(with_strict(self.config_class, config) if strict else config)
        config = with_input(self.config_class, config, input) if input else config
        with using_cells(classes), nullcontext() if origin is None else cells_of(origin):
            settings = as_config(self.config_class, config) if origin is None else settings_from(self, origin, config)
            if workers.rank:
                return self.follow(out)
            out = check_path(out, "`out`")
            if workers.has_started(out):  # before a restart of the workers
                return self.resume(out)
            cells, settings = record_cells(settings), slices_for(workers, settings)
            kind, _ = [
                check_input_kind(data, self.inputs, input, task=self.name, known=self.kind_of(data, settings))
                for data in (source, dev)
            ]
            with staged(out) as folder:
                lock = lock_run(folder)  # it stays with the folder
                fields = self.read(source, dev, settings, data_folder(folder), origin)
                write_data_record(folder, source, dev)
                run = write_run(
                    folder,
                    self.name,
                    to_dict(settings),
                    fields,
                    from_run=None if origin is None else describe_origin(self, origin),
                    custom_cells=cells,
                    metric=self.metric,
                    package=package_of(self.name),
                )
                settings, choice = choose_for_members(self, run, settings)
                run = run.change(config=to_dict(settings))
                trainer = self._trainer(run)
                if origin is not None:
                    initialize(self, trainer.phase, origin)
                    if len(trainer.phases) > 1:
                        run.save(INITIAL, *trainer.phase.weights())
                run.change(loss=trainer.phase.loss)
                trainer.progress.seconds = time.perf_counter() - began
                trainer.save()
            del trainer  # the resume builds its own
            workers.mark_started(out)
            return replace(self.resume(out), lock=lock, choice="\n".join(filter(None, (kind, choice))))

    def follow(self, out: str | Path) -> Training:
        """Joins the training of a run that rank 0 has started or resumed. Writes only what a copy of it lacks.

        Args:
            out: The run directory, on a file system that all workers see, or a copy of it.
        """
        current_workers().meet()
        run = open_run(out)
        with cells_of(run):
            trainer = self._restored(run)
        trainer.run_directory = None
        return Training(self, run, trainer, None)

    def resume(
        self,
        run: Run | str | Path,
        config: TaskConfig | Mapping[str, Any] | None = None,
        *,
        source: str | None = None,
        cells: Iterable[type[Cell]] = (),
    ) -> Training:
        """Continues from a run's last checkpoint.

        Args:
            run: The run, or its directory.
            config: New settings, or a dict of those that change; only those under `train.` may differ from the run's.
            source: The data's name. The run has its own copy of the data; this is only compared with its origin.
            cells: Custom cells, for a run that was trained with one.

        Returns:
            A Training at its last checkpoint. It goes on when `steps()` is iterated over.

        Raises:
            WeftError: If the run is of another task, damaged, or does not fit the settings or the source.
        """
        began, workers = time.perf_counter(), current_workers()
        if workers.rank:
            return self.follow(run.path if isinstance(run, Run) else run)
        run = run if isinstance(run, Run) else open_run(run)
        if run.task != self.name:
            raise WeftError(
                f"{run.path} is a run of the task {run.task!r}", expected=f"a run of `weft train {self.name}`"
            )
        config, classes = take_cells(config)
        with using_cells([*cells, *classes]), cells_of(run):
            with writing_run(run.path):
                lock = lock_run(run.path)
            if config is not None:
                run = change_settings(run, merge_settings(self.config_class, run, config))
            started_on = read_json(run.path / DATA_RECORD)["source"]
            if source is not None and source != started_on:
                raise WeftError(
                    f"{run.path} was started on {started_on} and cannot resume on {source}",
                    expected="the same data, or no `source` at all, since the run keeps its own copy",
                )
            slices_for(workers, from_dict(self.config_class, run.config), resumed=True)
            trainer = self._restored(run)
            run.drop_metrics_after(trainer.progress.all_steps)
            if not trainer.progress.planned_steps:  # a plan holds whatever a resume takes
                trainer.progress.seconds += time.perf_counter() - began
            workers.meet()
            return Training(self, run, trainer, lock)

    def train(
        self,
        source: DataSource,
        out: str | Path,
        config: TaskConfig | Mapping[str, Any] | None = None,
        *,
        dev: DataSource | None = None,
        from_run: Run | str | Path | None = None,
        encoder: Run | str | Path | None = None,
        strict: bool = False,
        input: str = "",
        progress: bool = True,
    ) -> Predictor:
        """Trains a model to the end and loads it.

        Args:
            source: What to train on, and further arguments as in `start`.
            out: The run directory to create.
            config: Settings.
            dev: Held-out data.
            from_run: A run to start from.
            encoder: A language model to start from.
            strict: Refuse rows that lack something.
            input: What the files are.
            progress: Whether to show progress, in a terminal, a notebook, or as lines on standard error: first how the
                data was read, and what was chosen for it.

        Returns:
            The predictor with the best weights, as `weft.load` returns it.

        Raises:
            WeftError: If `out` exists, or the data or a setting is not usable.
        """
        config, classes = take_cells(config)
        with using_cells(classes):
            training = self.start(
                source, out, config, dev=dev, from_run=from_run, encoder=encoder, strict=strict, input=input
            )
            predictor: Predictor = training.complete(progress=progress)
            return predictor

    def _trainer(self, run: Run) -> Trainer:
        """The trainer of a run: a phase for each member."""
        config = from_dict(self.config_class, run.config)
        phases = [partial(member_phase, self, run, config, number) for number in range(1, members_of(config) + 1)]
        return Trainer(phases, run=run, evaluate_all=lambda: self.load(run).held_out_metrics())

    def _restored(self, run: Run) -> Trainer:
        """The trainer of a run, at its last checkpoint."""
        trainer = self._trainer(run)
        trainer.restore(*run.load(CHECKPOINT))
        return trainer
