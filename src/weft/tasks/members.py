"""Ensembles in training: the members of a run are trained one after the other.

The run directory of an ensemble is that of its first member, with the weights of the others beside it:

    weights.safetensors     the first member
    weights-2.safetensors   the second, and so on
    checkpoint.safetensors  the state of the member that is being trained, its number, and the steps before it
    initial.safetensors     where members are fine-tuned: the weights that each of them starts from

Member n has the seed `train.seed` + n - 1 and an equal share of the time limit. The state of training is one file as
for any run, so a run resumes bit for bit whichever member is being trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft.cells import State
from weft.tasks.prepared import Prepared, TaskTrainer
from weft.training.run import CHECKPOINT, WEIGHTS, Run, with_prefix
from weft.training.step import Evaluation, Progress, Step

if TYPE_CHECKING:
    from weft.tasks.task import Task

INITIAL = "initial.safetensors"
INTERRUPTED = "interrupted"


def members_of(config: Any) -> int:
    """The number of members that the settings of a task ask for."""
    train = getattr(config, "train", None)
    return int(getattr(train, "members", 1))


def settings_of_member(config: Any, member: int) -> Any:
    """The settings of a member: its seed, and its share of the time limit."""
    train = config.train
    own = replace(train, seed=train.seed + member - 1, minutes=train.minutes / members_of(config))
    return replace(config, train=own)


def choose_for_members(task: Task[Any, Any, Any], run: Run, config: Any) -> tuple[Any, str]:
    """Chooses the settings that are "auto", those of an ensemble for the time that each member has."""
    if members_of(config) == 1:
        return task.choose_settings(run, config)
    chosen, choice = task.choose_settings(run, settings_of_member(config, 1))
    return replace(chosen, train=replace(chosen.train, minutes=config.train.minutes)), choice


@dataclass(frozen=True)
class MemberRun(Run):
    """A run as one of its members sees it: with weights of its own."""

    member: int = 1
    steps_before: int = 0  # of the members before this one
    seconds_before: float = 0.0

    def file(self, name: str) -> Path:
        own = name == WEIGHTS and self.member > 1
        return self.path / (f"weights-{self.member}.safetensors" if own else name)

    def save(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        super().save(name, tensors, {**metadata, **self.position()} if name == CHECKPOINT else metadata)

    def position(self) -> dict[str, Any]:
        """What the checkpoint records of the member."""
        return {"member": self.member, "steps_before": self.steps_before, "seconds_before": self.seconds_before}

    def report(self, record: Mapping[str, Any]) -> None:
        super().report({**record, "step": record["step"] + self.steps_before, "member": self.member})


def member_run(run: Run, member: int, steps_before: int = 0, seconds_before: float = 0.0) -> MemberRun:
    """A run as one of its members sees it."""
    known = {one.name: getattr(run, one.name) for one in fields(Run)}
    return MemberRun(**known, member=member, steps_before=steps_before, seconds_before=seconds_before)


def trained_members(run: Run) -> list[Run]:
    """The members of a run that have weights; the run itself if it has one member, or the first has none yet."""
    train = run.config.get("train")
    count = train.get("members", 1) if isinstance(train, dict) else 1
    if not isinstance(count, int) or count <= 1:
        return [run]
    return [one for one in (member_run(run, number) for number in range(1, count + 1)) if one.has(WEIGHTS)] or [run]


class MembersTrainer:
    """Trains the members of an ensemble one after the other.

    Args:
        task: the task.
        run: the run directory.
        config: all settings.
    """

    def __init__(self, task: Task[Any, Any, Any], run: Run, config: Any) -> None:
        self.task, self.run_files, self.config = task, run, config
        self.count = members_of(config)
        self.progress = Progress()
        self.ensemble: dict[str, float] | None = None  # held-out metrics of all members together
        self.stop_requested = False
        self._directory: Run | None = run
        self._enter(member_run(run, 1))

    def _enter(self, run: MemberRun) -> None:
        """Builds the trainer of a member."""
        config = settings_of_member(self.config, run.member)
        torch.manual_seed(self.task.seed(config))
        self.current: Prepared = self.task.prepare(self.run_files, config)
        self.member = run
        self._assign_directory()

    @property
    def trainer(self) -> TaskTrainer:
        """The trainer of the present member."""
        return self.current.trainer

    @property
    def model(self) -> Any:
        return self.trainer.model

    @property
    def total(self) -> int:
        """The number of steps of all members, if each has as many as the present one."""
        left = self.count - self.member.member + 1
        own: int = self.trainer.total  # type: ignore[attr-defined]
        return self.member.steps_before + left * own

    @property
    def run_directory(self) -> Run | None:
        return self._directory

    @run_directory.setter
    def run_directory(self, run: Run | None) -> None:
        self._directory = run
        if run is not None:
            self.run_files = run
            at = self.member
            self.member = member_run(run, at.member, at.steps_before, at.seconds_before)
        self._assign_directory()

    def _assign_directory(self) -> None:
        self.trainer.run_directory = None if self._directory is None else self.member

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Lets every member start from given weights. They differ by the order of the data and by dropout."""
        self.trainer.load_weights(weights)  # type: ignore[attr-defined]
        if self._directory is not None:
            self._directory.save(INITIAL, weights, {})

    def stop(self) -> None:
        self.stop_requested = True
        self.trainer.stop()

    def end_reason(self) -> str:
        return self.trainer.end_reason() if self.member.member == self.count else ""

    def run(self) -> Iterator[Step]:
        """Trains from the current state. The last step has the evaluation of the whole ensemble."""
        if not self.progress.step:
            self.trainer.progress.seconds = self.progress.seconds  # reading the data counts for the first member
        while True:
            for step in self.trainer.run():
                ended = bool(step.end) and step.end != INTERRUPTED
                yield self._step(step, self._finish() if ended else None)
                if step.end and not ended:
                    return
            if self.member.member == self.count:
                self._finish()
                return
            self._finish()
            self._next()
            if self.stop_requested:
                return

    def _finish(self) -> Evaluation | None:
        """Stores the weights of a member; after the last, evaluates them all together."""
        trainer, directory = self.trainer, self._directory
        if directory is None:
            return None
        if not self.member.has(WEIGHTS):  # without held-out data nothing has selected the best
            tensors, _ = trainer.state()
            weights = with_prefix(tensors, "model.") | with_prefix(tensors, "ema.")
            self.member.save(WEIGHTS, weights, {"step": trainer.progress.step})
        if self.member.member < self.count or self.ensemble is not None:
            return None
        self.ensemble = self.task.held_out_metrics(self.task.load_run(directory))
        self._save()
        self._follow()
        if not self.ensemble:
            return None
        last = {"step": self.progress.step, "epoch": trainer.progress.epoch, "members": self.count}
        directory.report({**last, "evaluation": self.ensemble, "best": True})
        return Evaluation(self.ensemble.get("cross_entropy", 0.0), self.ensemble)

    def _next(self) -> None:
        at, done = self.member, self.trainer.progress
        following = member_run(
            self.run_files, at.member + 1, at.steps_before + done.step, at.seconds_before + done.seconds
        )
        self._enter(following)
        if self.run_files.has(INITIAL):
            self.trainer.load_weights(self.run_files.load(INITIAL).tensors)  # type: ignore[attr-defined]
        self._save()

    def _save(self) -> None:
        if self._directory is not None:
            tensors, metadata = self.state()
            self._directory.save(CHECKPOINT, tensors, metadata)

    def _follow(self) -> None:
        """Brings `progress`, that of the whole training, up to date."""
        own, at = self.trainer.progress, self.member
        metrics = own.best_metrics if not self.ensemble else self.ensemble
        self.progress = replace(
            own,
            step=at.steps_before + own.step,
            seconds=at.seconds_before + own.seconds,
            best_step=at.steps_before + own.best_step,
            best_metrics=metrics,
        )

    def _step(self, step: Step, ensemble: Evaluation | None) -> Step:
        self._follow()
        at, left = self.member, self.count - self.member.member
        own_seconds = step.seconds + step.remaining
        return step._replace(
            number=at.steps_before + step.number,
            total=self.total,
            seconds=at.seconds_before + step.seconds,
            remaining=step.remaining + left * own_seconds,
            end="" if left and step.end != INTERRUPTED else step.end,
            evaluation=ensemble or step.evaluation,
            best=step.best or ensemble is not None,
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state of the present member, and which one it is."""
        tensors, metadata = self.trainer.state()
        metadata = {**metadata, **self.member.position()}
        return tensors, metadata if self.ensemble is None else {**metadata, "ensemble": self.ensemble}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any], carried: State = None) -> None:
        """Continues with the member that was being trained."""
        at = member_run(
            self.run_files, int(metadata["member"]), int(metadata["steps_before"]), float(metadata["seconds_before"])
        )
        if at.member != self.member.member:
            self._enter(at)
        self.trainer.restore(tensors, metadata, carried=self.current.carried)
        self.ensemble = metadata.get("ensemble")
        self._follow()


def prepare_members(task: Task[Any, Any, Any], run: Run, config: Any) -> Prepared:
    """The trainer of an ensemble, before the first step of its first member."""
    trainer = MembersTrainer(task, run, config)
    first = trainer.current
    return Prepared(trainer, f"{first.description}, {trainer.count} members", first.carried, first.unit)
