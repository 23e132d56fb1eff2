"""Messages of the library in the words of the command line: Python arguments and settings become options."""

from __future__ import annotations

import re

# Arguments whose options have other names, and expressions that have an option of their own.
_OPTIONS = {
    "source": "--data",
    "from_run": "--from",
    "sampler=greedy": "--greedy",
    "data.task=segments": "--segment",
    "data.strict=true": "--strict",
    "text.strict=true": "--strict",
}
# Arguments whose options have the same name.
_SAME = (
    "out",
    "dev",
    "input",
    "resume",
    "column",
    "columns",
    "file",
    "split",
    "width",
    "beam",
    "tokens",
    "stop",
    "minutes",
    "epochs",
    "device",
    "encoder",
)
_EXPRESSION = re.compile(r"`([a-z_]+(?:\.[a-z_]+)?)(?:=([^`]*))?`")


def for_command_line(message: str) -> str:
    """Translate the arguments and settings that a message names in backticks.

    >>> for_command_line("Try: another `out`, or `column=NAME`, or `train.epochs=3`; see `weft train`")
    'Try: another --out, or --column NAME, or --set train.epochs=3; see `weft train`'
    """
    return _EXPRESSION.sub(_translate, message)


def _translate(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if name == "cells" and value is not None:
        return f"--cell FILE.py:{value.strip('[]')}, with the file that defines it"
    whole = found[0].strip("`")
    if whole in _OPTIONS:
        return _OPTIONS[whole]
    if "." in name:
        return whole if value is None else f"--set {whole}"
    option = _OPTIONS.get(name) or (f"--{name}" if name in _SAME else None)
    if option is None:
        return found[0]
    return option if value is None else f"{option} {value}"
