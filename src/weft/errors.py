"""The one exception a user's mistake raises: what was given, what was expected, what to try.

The command line prints it as one message and exits with code 2; in Python it is an ordinary exception.
Mistakes of our own are assertions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WeftError(Exception):
    """A mistake that its maker can mend.

    >>> print(WeftError("batch size is -3", expected="a whole number of 1 or more", hint="leave it out for 32"))
    batch size is -3; expected a whole number of 1 or more. Try: leave it out for 32
    """

    def __init__(self, given: str, *, expected: str = "", hint: str = "") -> None:
        self.given, self.expected, self.hint = given, expected, hint
        message = f"{given}; expected {expected}" if expected else given
        super().__init__(f"{message}. Try: {hint}" if hint else message)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> WeftError:
    """The error for a name that is not among the known ones, with the nearest one as the suggestion, if one is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return WeftError(
        f"{kind} {name!r} is not known", expected=f"one of: {', '.join(names)}", hint=near[0] if near else ""
    )
