"""Writes docs/cli.md: the help of every command, as the program prints it. A test checks that it is current.

python docs/cli.py
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import typer
from typer.testing import CliRunner

from weft.cli import app

PAGE = Path(__file__).with_name("cli.md")


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of words to every command, the groups themselves included."""
    found = [path]
    for name, below in getattr(command, "commands", {}).items():
        found += commands(below, (*path, name))
    return found


def page() -> str:
    parts = ["# The commands\n\nWhat `--help` prints for each command.\n"]
    for path in commands(typer.main.get_command(app)):
        result = CliRunner().invoke(
            app, [*path, "--help"], prog_name="weft", env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}
        )
        text = re.sub(r"[ \t]+$", "", result.stdout, flags=re.M).strip("\n")
        parts.append(f"## weft {' '.join(path)}".rstrip() + f"\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
