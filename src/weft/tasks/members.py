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

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from weft.training.build import load_model
from weft.training.run import WEIGHTS, Run
from weft.training.trainer import Phase

if TYPE_CHECKING:
    from weft.tasks.task import Task

Single = TypeVar("Single", bound=nn.Module)
Joined = TypeVar("Joined")

INITIAL = "initial.safetensors"


def members_of(config: Any) -> int:
    """The number of members that the settings of a task ask for."""
    train = getattr(config, "train", None)
    return int(getattr(train, "members", 1))


def settings_of_member(config: Any, member: int) -> Any:
    """The settings of a member: its seed, and its share of the time limit."""
    if members_of(config) == 1:
        return config
    train = config.train
    own = replace(train, seed=train.seed + member - 1, minutes=train.minutes / members_of(config))
    return replace(config, train=own)


def choose_for_members(task: Task[Any, Any, Any], run: Run, config: Any) -> tuple[Any, str]:
    """Chooses the settings that are "auto", those of an ensemble for the time that each member has."""
    if members_of(config) == 1:
        return task.choose(run, config)
    chosen, choice = task.choose(run, settings_of_member(config, 1))
    return replace(chosen, train=replace(chosen.train, minutes=config.train.minutes)), choice


def trained_members(run: Run) -> list[Run]:
    """The members of a run that have weights; the run itself if it has one member, or the first has none yet."""
    train = run.config.get("train")
    count = train.get("members", 1) if isinstance(train, dict) else 1
    if not isinstance(count, int) or count <= 1 or run.member:
        return [run]
    members = (replace(run, member=number) for number in range(1, count + 1))
    return [one for one in members if one.has(WEIGHTS)] or [run]


def load_members(run: Run, make: Callable[[], Single], join: Callable[[Sequence[Single]], Joined]) -> Single | Joined:
    """The model of a run with its best weights: that of its only member, or the members that are trained, joined."""
    models = [load_model(make, member) for member in trained_members(run)]
    return models[0] if len(models) == 1 else join(models)


def member_phase(task: Task[Any, Any, Any], run: Run, config: Any, member: int) -> Phase:
    """What trains a member of a run, by its number from 1; the only one has all the time, and no number in reports."""
    config, count = settings_of_member(config, member), members_of(config)
    torch.manual_seed(getattr(getattr(config, "train", None), "seed", 0))  # n-grams have none
    phase: Phase = task.build(run, config)
    if count > 1:
        phase.member, phase.weights_file = member, replace(run, member=member).file(WEIGHTS).name
        phase.description += f", {count} members"
        if run.has(INITIAL):
            phase.load_weights(run.load(INITIAL).tensors)
    return phase
