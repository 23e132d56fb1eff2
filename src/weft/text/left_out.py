"""Rows that lack something, such as a text or a label: left out and reported in one line, or refused."""

from __future__ import annotations

from collections import Counter

from weft.errors import WeftError, warn

MOST_PLACES = 3  # places of rows that a report names


class LeftOut:
    """Counts the rows of some data that are left out.

    Args:
        setting: the setting that refuses such rows.
        strict: whether it is set: the first such row is an error then.
        rows: what a row is called.

    >>> left_out = LeftOut("data.strict", strict=False)
    >>> for line in (5, 9): left_out.add(f"a.csv:{line}", "label")
    >>> left_out.count, left_out.words(120)
    (2, '2 of 120 rows (no label: 2): a.csv:5, a.csv:9')
    """

    def __init__(self, setting: str, *, strict: bool, rows: str = "rows") -> None:
        self.setting, self.strict, self.rows = setting, strict, rows
        self.places: list[str] = []
        self.reasons: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self.reasons.total()

    def add(self, place: str, lack: str, *, given: str = "", expected: str = "", hint: str = "") -> None:
        """Leaves the row at a place out, which lacks something; where that is not wanted, this is an error."""
        if self.strict:
            raise WeftError(given or f"{place}: the {lack} is empty", expected=expected or f"a {lack}", hint=hint)
        self.reasons[f"no {lack}"] += 1
        if len(self.places) < MOST_PLACES:
            self.places.append(place)

    def words(self, total: int) -> str:
        """How many of how many rows, why, and the places of the first."""
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in self.reasons.items())
        places = ", ".join(self.places) + (", ..." if self.count > MOST_PLACES else "")
        return f"{self.count:,} of {total:,} {self.rows} ({reasons}): {places}"

    def report(self, total: int, hint: str = "") -> int:
        """Warns of the rows that were left out, of `total`, and returns their number; refuses more than half."""
        if 2 * self.count > total:
            raise WeftError(f"incomplete: {self.words(total)}", expected="at most half of them", hint=hint)
        if self.count:
            warn(f"left out {self.words(total)}; `{self.setting}=true` refuses them")
        return self.count
