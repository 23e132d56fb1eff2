"""Series of a run: read, stored as columns, continued by later data, and taken apart into rows of one channel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.column import Column
from weft.errors import WeftError
from weft.series import Series, SeriesColumns, SeriesSet, TimeSeries, read_columns
from weft.series.typed_columns import MissingColumnError
from weft.tasks.forecast.config import SeriesDataConfig
from weft.tasks.forecast.linear import Array
from weft.tasks.forecast.model import SeriesRows
from weft.tasks.stored_data import store, stored
from weft.text.corpus import Document
from weft.training.run import DATA_FOLDER, Run, decoding


def read_set(source: Any, config: SeriesDataConfig) -> SeriesSet:
    """The series to train on.

    Raises:
        WeftError: there are none, or not one has a value.
    """
    found = read_columns(source, config.columns, **config.steps)
    if not any(np.isfinite(one.target).any() for one in found):
        raise WeftError(f"{_named(source)} has no value to train on", expected="series of numbers")
    return found


def read_like_training(source: Any, layout: Series, config: SeriesDataConfig) -> SeriesSet:
    """Series with the same columns as those that a model was trained on.

    Raises:
        WeftError: they have other channels, covariates, or another step of time.
    """
    if isinstance(source, SeriesSet):
        found = source
    else:
        is_table = isinstance(source, str | Path | Document) or hasattr(source, "columns")
        columns = layout.columns if is_table else config.columns
        found, columns = _read_with_ids(source, columns, config)
        if found.frequency != layout.frequency and layout.frequency.has_times and found.frequency.has_times:
            # The step of few rows is not known. With that of the training no two of them may be one.
            likely = read_columns(source, columns, **{**config.steps, "freq": layout.frequency.name})
            found = likely if _count(likely) == _count(found) else found
    for role in ("known", "past", "static"):
        expected, given = getattr(layout, role), getattr(found, role)
        if len(expected) != len(given):
            raise WeftError(
                f"{_named(source)} has {len(given)} {role} covariates ({', '.join(given) or 'none'})",
                expected=f"{', '.join(expected) or 'none'}, as in training",
            )
    if len(found.channels) != len(layout.channels):
        raise WeftError(
            f"{_named(source)} has {len(found.channels)} channels", expected=f"{', '.join(layout.channels)}"
        )
    if found.frequency != layout.frequency and found.frequency.has_times and layout.frequency.has_times:
        raise WeftError(
            f"{_named(source)} has a value {found.frequency.words}",
            expected=f"{layout.frequency.words}, as in training",
            hint=f"`freq={layout.frequency.name}` in training resamples",
        )
    return found


def _read_with_ids(source: Any, columns: SeriesColumns, config: SeriesDataConfig) -> tuple[SeriesSet, SeriesColumns]:
    """Series by their columns; where their names are missing, by another column of names, or as one without."""
    try:
        return read_columns(source, columns, **config.steps), columns
    except MissingColumnError as error:
        if error.role != "id":
            raise
    others = replace(columns, id=None)
    return read_columns(source, others, **config.steps), others


def _count(found: SeriesSet) -> int:
    return sum(int(np.isfinite(one.target).sum()) for one in found)


def read_future(source: Any, layout: Series, config: SeriesDataConfig) -> dict[str, TimeSeries]:
    """The series of known covariates after the end of the target, by id."""
    if not layout.known:
        raise WeftError("there is a `future`, and the model knows no covariates", expected="no `future`")
    columns = replace(layout.columns, target=layout.known, known=(), past=(), static=())
    found = read_columns(source, columns, **{**config.steps, "freq": layout.frequency.name})
    return {one.id: one for one in found}


def with_future(series: TimeSeries, future: TimeSeries, known: Sequence[str]) -> TimeSeries:
    """A series whose known covariates go on with those of `future`."""
    offset = int(series.frequency.steps(series.start, np.array([future.start]))[0])
    if offset > len(series.known):
        gap = offset - len(series.known)
        raise WeftError(
            f"the future of {series.id or 'the series'} begins {gap} steps after the end of its covariates",
            expected=f"{', '.join(known)} from the step after the last value on",
        )
    return replace(series, known=_joined(series.known, future.target, offset))


def _joined(earlier: Array, later: Array, offset: int) -> Array:
    """Values from `offset` on replaced by later ones where these are not missing; what is between is missing."""
    found = np.full((max(len(earlier), offset + len(later)), earlier.shape[1]), np.nan)
    found[: len(earlier)] = earlier
    begin = max(0, -offset)
    part = found[max(0, offset) : offset + len(later)]
    part[...] = np.where(np.isnan(later[begin:]), part, later[begin:])
    return found


def continued(history: TimeSeries, later: TimeSeries) -> TimeSeries:
    """A series and what came after it, as one; between them values may be missing."""
    offset = int(history.frequency.steps(history.start, np.array([later.start]))[0])
    if offset < 0:
        return later
    target = _joined(history.target, later.target, offset)
    past = _joined(history.past, later.past, offset)
    return replace(history, target=target, past=past, known=_joined(history.known, later.known, offset))


def store_set(folder: Path, part: str, found: SeriesSet) -> None:
    """Writes the columns of series in the folder data/ of a new run."""
    columns = {
        "id": Column.from_texts(one.id for one in found),
        "start": Column(np.array([_number_of(one) for one in found], np.int64)),
        "static": Column.from_texts(json.dumps(one.static) for one in found),
    }
    for name, width in (("target", len(found.channels)), ("known", len(found.known)), ("past", len(found.past))):
        if width:
            columns[name] = Column.from_rows([getattr(one, name) for one in found], np.float64)
    store(folder, part, columns)


def _number_of(series: TimeSeries) -> int:
    """The start of a series: microseconds since 1970, or its place in a counter."""
    start: Any = series.start
    return int(np.datetime64(start, "us").astype(np.int64)) if series.frequency.has_times else int(start)


def stored_set(run: Run, part: str, layout: Series) -> SeriesSet:
    """The series that `store_set` stored; their values are mapped into memory."""
    columns = stored(run, part)
    with decoding(run.path / DATA_FOLDER):
        ids, static = columns["id"].texts(), [tuple(json.loads(text)) for text in columns["static"].texts()]
        starts = columns["start"].values
        found = []
        for number, (name, fixed) in enumerate(zip(ids, static, strict=True)):
            start: Any = np.datetime64(int(starts[number]), "us") if layout.frequency.has_times else int(starts[number])
            parts = [columns[role][number] if role in columns else None for role in ("target", "known", "past")]
            target, known, past = (None if one is None else np.asarray(one, np.float64) for one in parts)
            if target is None or target.ndim != 2 or target.shape[1] != len(layout.channels):
                raise ValueError("the series do not have the channels of the run")
            found.append(TimeSeries(name, start, layout.frequency, target, known, past, fixed))  # type: ignore[arg-type]
        return layout.set_of(found)


def rows_of(found: Iterable[TimeSeries], layout: Series) -> SeriesRows:
    """The channels of series one after another, with their covariates and times."""
    channels = [(one, channel) for one in found for channel in range(one.target.shape[1])]
    targets = [one.target[:, channel] for one, channel in channels]
    known = [one.known for one, _ in channels if one.known.shape[1]]
    past = [one.past for one, _ in channels if one.past.shape[1]]
    static = [layout.static_features(one.static) for one, _ in channels]
    if not any(map(len, static)):
        static = []
    return SeriesRows(targets, known, [(one.start, one.frequency) for one, _ in channels], past, static)


def _named(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else "the data"
