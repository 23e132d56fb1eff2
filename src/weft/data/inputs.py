"""What kind of input a source is: text, series or audio. One rule for all tasks: the extension, then the content.

- The extension of an audio file or of a file of arrays says it, and so does one of text. `.gz` is looked through; a
  folder is what its first file is.
- Other files, tables included, are looked into: audio and arrays begin with a signature; a table whose cells are
  numbers, but for a header and times in its first column, is a series. Everything else is text.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weft.errors import WeftError, unknown_name

INPUTS = ("text", "series", "audio")
KIND_SUFFIXES = {
    **dict.fromkeys((".txt", ".text", ".md", ".json", ".jsonl", ".conll", ".conllu", ".zip"), "text"),
    **dict.fromkeys((".npy", ".npz", ".tsf", ".arff"), "series"),
    **dict.fromkeys((".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aif", ".aiff"), "audio"),
}
SIGNATURES = {b"RIFF": "audio", b"fLaC": "audio", b"OggS": "audio", b"ID3": "audio", b"\x93NUMPY": "series"}
PEEKED = 1 << 16  # bytes
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[nN]a[nN]|")
_TIME = re.compile(
    r"\d{4}[-/.]\d{1,2}|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d\d(:\d\d([.,]\d+)?)?)?(Z|[+-]\d\d:?\d\d)?|\d+"
)


class InputKind(NamedTuple):
    """The kind of a source, and how it is known."""

    kind: str
    reason: str


def check_input_kind(
    source: Any, expected: Sequence[str], given: str = "", *, task: str, known: InputKind | None = None
) -> str:
    """The kind of a source, `given` or looked for, in a line; "" for what is no file.

    Raises:
        WeftError: the source is of another kind than those that the task expects, if it says any.
    """
    if given and given not in INPUTS:
        raise unknown_name("input", given, INPUTS)
    found = InputKind(given, "as given") if given else known or input_kind(source)
    if not expected or found is None:
        return ""
    name = str(source) if isinstance(source, str | Path) else "the data"
    if found.kind not in expected:
        raise WeftError(
            f"{name} looks like {found.kind} ({found.reason}), and the task {task!r} reads {' or '.join(expected)}",
            expected=f"{' or '.join(expected)}",
            hint="" if given else f"`input={expected[0]}`, if it is {expected[0]} all the same",
        )
    return f"{name} contains {found.kind} ({found.reason})"


def input_kind(source: Any) -> InputKind | None:
    """The kind of a file or folder; None for names of data sets, standard input and values in memory."""
    if not isinstance(source, str | Path) or not Path(source).exists():
        return None
    path = Path(source)
    if path.is_dir():
        files = (file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith("."))
        first = next(files, None)
        found = None if first is None else input_kind(first)
        return found and InputKind(found.kind, f"{found.reason} of {first.name if first else ''}")
    if not path.is_file():
        return None
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    suffix = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
    if suffix in KIND_SUFFIXES:
        return InputKind(KIND_SUFFIXES[suffix], f"by the extension {suffix}")
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            start = file.read(PEEKED)
    except (OSError, EOFError):
        return None  # what reads it says what is wrong
    kind = next((kind for signature, kind in SIGNATURES.items() if start.startswith(signature)), None)
    if kind is None and suffix == ".ts" and b"\n@data" in start.lower():
        return InputKind("series", "by the line @data")
    if kind is None:
        kind = "series" if _is_numbers(start, table=suffix in (".csv", ".tsv")) else "text"
    return InputKind(kind, "by the content")


def _is_numbers(start: bytes, *, table: bool) -> bool:
    """Whether the rows after a header are numbers; the first column may have times. One column only in a table."""
    lines = start.decode("utf-8", "replace").splitlines()
    whole = [line for line in (lines[:-1] if len(start) == PEEKED else lines) if line.strip()]
    if len(whole) < 3:
        return False
    for delimiter in ",;\t":
        try:
            rows = list(csv.reader(whole, delimiter=delimiter))
        except csv.Error:  # a cell beyond the limit
            return False
        width = len(rows[0])
        if any(len(row) != width for row in rows) or (width == 1 and not table):
            continue
        timed = width > 1 and all(_TIME.fullmatch(row[0].strip()) for row in rows[1:])
        cells = [cell.strip() for row in rows[1:] for cell in row[timed:]]
        if any(cells) and all(_NUMBER.fullmatch(cell) for cell in cells):
            return True
    return False
