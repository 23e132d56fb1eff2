"""Text on a terminal: control characters are shown escaped, so that no label, name or error commands the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import IO, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# C0 but tabs and line ends, DEL, C1.
_CONTROL = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def escape_controls(text: str) -> str:
    r"""The text with its control characters written out.

    >>> print(escape_controls("a red \x1b[31mlabel\x1b[0m"))
    a red \x1b[31mlabel\x1b[0m
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class TerminalStream:
    """A stream whose terminal shows control characters escaped. Rich writes to the terminal itself."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


class TerminalConsole(Console):
    """A console of rich that escapes the control characters of its texts; those of colours and cursors are its own."""

    @property
    def file(self) -> IO[str]:
        """The terminal itself, also while rich has replaced standard error to show a progress bar below it."""
        file: IO[str] = super().file
        return getattr(file, "rich_proxied_file", file)

    @file.setter
    def file(self, file: IO[str]) -> None:
        self._file = file

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_controls(segment.text))


def escape_standard_streams() -> None:
    """Lets standard output and standard error show control characters escaped where they are terminals."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty():
            setattr(sys, name, TerminalStream(stream))
