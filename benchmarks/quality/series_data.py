"""The sets of the series benchmark: files of the tourism and M4 competitions, read into arrays.

Files of the tourism competition have a column for each series; below its name stand the number of its values, the year
and, of monthly and quarterly data, the period of the first one. The number has to be believed: some columns carry a
stray cell below their end. Files of M4 have a row for each series, with empty cells after its end.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.quality.rows import data


@dataclass(frozen=True)
class CompetitionSet:
    """N series to train on and the h values that follow each, which are to be forecast."""

    name: str
    ids: tuple[str, ...]
    train: tuple[np.ndarray, ...]  # N arrays (T,)
    test: np.ndarray  # (N, h)
    season: int

    @property
    def horizon(self) -> int:
        return self.test.shape[1]


def _tourism_columns(path: Path, header: int) -> dict[str, np.ndarray]:
    """The values of each column; `header` rows stand between the names and the values."""
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    columns = {}
    for column, name in enumerate(names):
        count = int(rows[0][column])
        columns[name] = np.array([float(row[column]) for row in rows[header : header + count]])
    return columns


def tourism(period: str) -> CompetitionSet:
    """The set "monthly", "quarterly" or "yearly"."""
    header = 2 if period == "yearly" else 3
    train, test = (
        _tourism_columns(data("series", "tourism", f"{period}_{part}.csv"), header) for part in ("in", "oos")
    )
    season = {"monthly": 12, "quarterly": 4, "yearly": 1}[period]
    ids = tuple(train)
    return CompetitionSet(
        f"tourism {period}", ids, tuple(train.values()), np.stack([test[name] for name in ids]), season
    )


def m4_hourly() -> CompetitionSet:
    parts = []
    for part in ("train", "test"):
        with gzip.open(
            data("series", "m4_hourly", f"Hourly-{part}.csv.gz"), "rt", newline="", encoding="utf-8"
        ) as file:
            rows = list(csv.reader(file))[1:]
        parts.append({name: np.array([float(cell) for cell in cells if cell]) for name, *cells in rows})
    train, test = parts
    ids = tuple(train)
    return CompetitionSet("M4 hourly", ids, tuple(train.values()), np.stack([test[name] for name in ids]), 24)


SETS = {
    "tourism-monthly": lambda: tourism("monthly"),
    "tourism-quarterly": lambda: tourism("quarterly"),
    "tourism-yearly": lambda: tourism("yearly"),
    "m4-hourly": m4_hourly,
}
