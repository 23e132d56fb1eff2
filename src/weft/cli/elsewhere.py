"""Commands of tasks from other packages: listed by name, and made when they are called, which imports the package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from weft.cli.cells import with_cells
from weft.tasks import TASKS
from weft.tasks.elsewhere import installed_tasks, package_of


class CommandElsewhere(TyperCommand):
    """The command of a task whose package is imported when the command is called."""

    def __init__(self, name: str, make: Callable[[], Callable[..., None]]) -> None:
        super().__init__(name, help=f"A task of the package {package_of(name)}.")
        self.make = make

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        return to_click(str(self.name), self.make()).make_context(info_name, args, parent, **extra)


def to_click(name: str, function: Callable[..., None]) -> Any:
    """The command of a function as click has it."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name)(with_cells(function))
    return typer.main.get_command(app)


def task_group(help: str, make: Callable[[str], Callable[..., None]]) -> typer.Typer:
    """A group with a command for each task, as `make` makes it from the name of the task."""

    class TaskGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*super().list_commands(ctx), *installed_tasks()]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            own = super().get_command(ctx, cmd_name)
            if own is not None or cmd_name not in installed_tasks():
                return own
            return CommandElsewhere(cmd_name, partial(make, cmd_name))

    group = typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, cls=TaskGroup)
    for name in TASKS:
        group.command(name)(make(name))
    return group
