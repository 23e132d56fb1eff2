"""The exception for mistakes of the user: what was given, what was expected, what to try.

The command line prints it as one message and exits with code 2; in Python it is an ordinary exception. Bugs of the
package itself are assertions.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

MOST_LISTED = 100  # names in a message


class WeftError(Exception):
    """A mistake that the user can correct.

    Args:
        given: what was given.
        expected: what was expected instead.
        hint: what to try.

    Messages name Python arguments and settings in backticks: `out`, `column=NAME`, `train.epochs=3`. The command line
    translates them to its options: --out, --column NAME, --set train.epochs=3.

    >>> print(WeftError("batch size is -3", expected="an integer of at least 1", hint="`batch.size=32`"))
    batch size is -3; expected an integer of at least 1. Try: `batch.size=32`
    """

    def __init__(self, given: str, *, expected: str = "", hint: str = "") -> None:
        self.given, self.expected, self.hint = given, expected, hint
        message = f"{given}; expected {expected}" if expected else given
        super().__init__(f"{message}. Try: {hint}" if hint else message)


class TensorError(WeftError, RuntimeError, ValueError):
    """A tensor that does not fit: its shape, type, device or values. torch reports these as RuntimeError or ValueError.

    >>> import torch
    >>> from weft.nn import GRUCell
    >>> try:
    ...     GRUCell(4, 5)(torch.zeros(3, 7))
    ... except RuntimeError as error:
    ...     print(error)
    GRUCell: input is (3, 7); expected (B, 4) because input_size=4, or (B,) token ids
    """


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "{}", otherwise: str = "") -> WeftError:
    """The error for an unknown name; suggests the closest known name, if any is close.

    Args:
        kind: what the name names, such as "setting".
        name: the unknown name.
        known: the known names.
        hint: how the suggestion is written; `{}` stands for the close name.
        otherwise: the hint where no known name is close.
    """
    names = list(known)
    name = name if len(name) <= 60 else f"{name[:60]}..."
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return WeftError(
        f"{kind} {name!r} is not known",
        expected=f"one of: {listed(names)}",
        hint=hint.format(near[0]) if near else otherwise,
    )


def listed(names: Sequence[str]) -> str:
    """Names in a message; of very many the first ones, and how many there are."""
    more = f", ... ({len(names):,} in all)" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def short_repr(value: object) -> str:
    """The repr of a value, shortened for error messages."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def check_path(path: str | Path, what: str) -> Path:
    """Return the path; refuse an empty one, which would silently mean the current folder, by the name `what`."""
    if isinstance(path, str) and not path.strip():
        hint = "a path such as ./data; a shell variable may not be set"
        raise WeftError(f"{what} is empty", expected="a path or a name", hint=hint)
    if not isinstance(path, str | Path):
        raise WeftError(f"{what} is {path!r}", expected="a path or a name")
    return Path(path)


def not_finite(model: str) -> WeftError:
    """The error where a model computes NaN or infinity."""
    return WeftError(
        f"{model}'s values are not finite: its weights are too large",
        expected="the weights of a trained model",
        hint="copy the run anew, or train again with a smaller `train.learning_rate`",
    )


class WeftWarning(UserWarning):
    """Something a user should know that is no error: a text was cut, a word is unknown. The CLI prints it."""


def warn(message: str) -> None:
    """Warns of something at the line of the caller's program that called weft."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "weft":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, WeftWarning, stacklevel=level)
