"""Tasks of other packages: entry points of the group `weft.tasks`. A package is imported when its task is used.

[project.entry-points."weft.tasks"]      # in the package's pyproject.toml
running_mean = "running_mean:TASK"       # the name of the task, and its Task object
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from weft.errors import WeftError, warn
from weft.tasks import COMBINED, TASKS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from weft.tasks.task import Task

GROUP = "weft.tasks"


@cache
def installed_tasks() -> dict[str, EntryPoint]:
    """The tasks of other packages by their names. One whose name is taken is reported, once, and left out."""
    from importlib.metadata import entry_points  # takes longer to load than `weft --help`

    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        owner = "weft" if point.name in TASKS or point.name in COMBINED else _package(found.get(point.name))
        if owner:
            warn(
                f"the task {point.name!r} of the package {_package(point)!r} is left out: {owner} has one of that name"
            )
        else:
            found[point.name] = point
    return found


def load_task(name: str) -> Task[Any, Any, Any]:
    """Imports a task of another package.

    Raises:
        WeftError: The package cannot be imported, or has something else in this place.
    """
    from weft.tasks.task import Task

    point = installed_tasks()[name]
    what = f"the task {name!r} of the package {_package(point)!r}"
    try:
        task = point.load()
    except (Exception, SystemExit) as error:  # whatever happens in a package of somebody else
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise WeftError(f"{what} cannot be imported ({why})", expected="a package for this version of weft") from error
    if not isinstance(task, Task) or task.name != name:
        given = f"a task named {task.name!r}" if isinstance(task, Task) else f"a {type(task).__name__}"
        raise WeftError(
            f"{what} ({point.value}) is {given}", expected=f"an object of a subclass of Task, named {name!r}"
        )
    return task


def package_of(task: str) -> str:
    """The package that a task comes from; "" for weft's own."""
    return "" if task in TASKS or task in COMBINED else _package(installed_tasks().get(task))


def _package(point: EntryPoint | None) -> str:
    return "" if point is None or point.dist is None else point.dist.name
