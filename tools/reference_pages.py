"""The pages of the reference that are made when the site is built: commands, settings, operations.

docs/hooks.py adds them to the site; nothing of them is kept. `python -m tools.reference_pages FOLDER` writes them.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import click
import typer
from typer.testing import CliRunner

from weft.cli import app
from weft.config import AUTO, LARGEST_INTEGER
from weft.tasks import TASKS, get_task
from weft.tasks.operation import operations

WIDTH = "100"


def commands_page() -> str:
    """What `--help` prints for each command."""
    parts = ["# The commands\n\nWhat `--help` prints for each command.\n"]
    for path in _commands(typer.main.get_command(app)):
        result = CliRunner().invoke(
            app, [*path, "--help"], prog_name="weft", env={"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH}
        )
        text = re.sub(r"[ \t]+$", "", result.stdout, flags=re.M).strip("\n")
        parts.append(f"## weft {' '.join(path)}".rstrip() + f"\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of words to every command, the groups themselves included."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*path, name))


def settings_page() -> str:
    """A table of all settings for each task."""
    parts = [
        "# The settings\n\nAll settings of each task, with their defaults. `--set SECTION.NAME=VALUE` changes one, in "
        'Python a dict such as `{"train.epochs": 3}`. What "auto" stands for is on the page [What is chosen for '
        "you](defaults.md).\n"
    ]
    for name in TASKS:
        task = get_task(name)
        rows = [f"## weft train {name}\n\n| setting | default | meaning |\n| --- | --- | --- |"]
        sections = get_type_hints(task.config_class)
        for section in dataclasses.fields(task.config_class):
            for entry in dataclasses.fields(sections[section.name]):
                rows.append(_setting(f"{section.name}.{entry.name}", entry))
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _setting(name: str, entry: Any) -> str:
    metadata = entry.metadata
    default = "auto" if metadata["auto"] and entry.default == AUTO else entry.default
    details = [metadata["help"]]
    if metadata["choices"]:
        details.append("One of " + ", ".join(f"`{choice}`" for choice in metadata["choices"]) + ".")
    details.append(_limits(metadata))
    if metadata["option"]:
        details.append(f"Option `{metadata['option'].partition('=')[0]}`.")
    return f"| `{name}` | {_default(default)} | {_cell(*details)} |"


def _default(value: Any) -> str:
    """A default as settings and options write it; empty where there is none."""
    if value is None or value in ("", [], ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _limits(limits: Mapping[str, Any]) -> str:
    low, high = (limits.get(name) for name in ("low", "high"))
    if high == LARGEST_INTEGER:
        high = None
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f"At least {low:,}." if high is None else f"At most {high:,}."
    return f"From {low:,} to {high:,}."


def _cell(*details: str) -> str:
    """Sentences in a cell of a table."""
    sentences = (part[:1].upper() + part[1:] for part in details if part)
    text = " ".join(part if part.endswith(".") else f"{part}." for part in sentences)
    return text.replace("|", "\\|").replace("<", "&lt;")


def operations_page() -> str:
    """The operations of the predictors of each task, with their options."""
    parts = [
        "# The operations\n\nWhat a trained model can do. An operation is a method of what `weft.load` returns, a "
        "command, a request to `weft serve` (`POST /weft/predict/MODEL`) and a form on its page, with the same options "
        "and limits.\n"
    ]
    for name in TASKS:
        described: dict[str, Any] = {}
        for predictor in get_task(name).predictors:
            described = {key: one.describe() for key, one in operations(predictor).items()} | described
        parts.append(f"## {name}\n")
        parts += [_operation(key, one) for key, one in described.items()]
    return "\n".join(parts)


def _operation(name: str, described: Mapping[str, Any]) -> str:
    rows = [f"### {name}\n\n{described['help']}\n"]
    if described["options"]:
        rows.append("| option | default | meaning |\n| --- | --- | --- |")
        for key, schema in described["options"].items():
            details = [schema.get("description", "")]
            if choices := schema.get("enum"):
                details.append("One of " + ", ".join(f"`{choice}`" for choice in choices) + ".")
            details.append(_limits({"low": schema.get("minimum"), "high": schema.get("maximum")}))
            rows.append(f"| `{key}` | {_default(schema.get('default'))} | {_cell(*details)} |")
    return "\n".join(rows) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands_page,
    "settings.md": settings_page,
    "operations.md": operations_page,
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or "--help" in sys.argv:
        sys.exit(__doc__)
    for page, make in PAGES.items():
        (Path(sys.argv[1]) / page).write_text(make(), encoding="utf-8")
