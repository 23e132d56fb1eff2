"""The commands of tasks. Those of other packages are listed by name and made when called, which imports the package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from weft.cli.cells import with_cells
from weft.errors import WeftError
from weft.tasks import TASKS, describe
from weft.tasks.elsewhere import installed_tasks, package_of


class TaskCommand(TyperCommand):
    """The command of a task. An unknown option that is the name of a setting is refused with that setting."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        known = {flag for parameter in self.params for flag in parameter.opts}
        flags = [arg.partition("=")[0] for arg in args if arg.startswith("--")]
        for flag in flags[: flags.index("--") if "--" in flags else None]:
            if flag not in known and "--set" in known and (settings := _settings_like(str(self.name), flag)):
                raise WeftError(
                    f"there is no option {flag}",
                    expected="an option, or a setting",
                    hint=" or ".join(f"`{setting}=VALUE`" for setting in settings),
                )
        return super().make_context(info_name, args, parent, **extra)


def _settings_like(task: str, flag: str) -> list[str]:
    """The settings of a task that have the name of an option, or its name as their last word."""
    name, known = flag.removeprefix("--").replace("-", "_"), describe(task)["settings"]
    named = [setting for setting in known if setting.endswith(f".{name}")]
    return named or [setting for setting in known if name and setting.endswith(f"_{name}")]


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
        group.command(name, cls=TaskCommand)(make(name))
    return group
