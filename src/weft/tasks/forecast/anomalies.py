"""Anomaly scores: how improbable each value of a series is, given the values before it.

A watcher reads series one value at a time and gives deviations, which are near 0 where a value is as expected. A
detector turns them into scores: -log10 of the rate of alarms that a threshold at this deviation has on held-out values
of the training data. Its state is all that it remembers, so following a series equals scoring it as a whole.

The watcher of most models is linear: each value is forecast from the values before it, and from those that were known
one season before it. The first deviation finds single values; the mean of the second over a season finds changes that
last, to which the first has adapted after a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft.data.column import IntArray
from weft.tasks.forecast.linear import (
    STRENGTHS,
    Array,
    LinearForm,
    LinearMap,
    Panel,
    Sums,
    Windows,
    first_value,
    make_panel,
    training_places,
    windows_at,
)

STRETCHES = (
    4  # stretches of time of each series; deviations of a stretch are those of a map that was fitted to the others
)
TAIL_SHARE, LEAST_TAIL = 0.2, 20  # of the deviations, the largest ones, to which a power law is fitted
LARGEST_SCORE = 16.0  # a rate of 1e-16
SHORTEST_WEEKS = 3  # of training, for a map that reads a week
PRIOR_VALUES = 500.0  # values that the mean deviation of all series is worth beside a series' own
LARGEST_COUNTED = 5.0  # a deviation counts at most as so many mean ones in that of a series


class Deviations(NamedTuple):
    """What a watcher says of a value of each of N series.

    Attributes:
        values: (N, K) its deviations; NaN where the value is missing, or too few are before it.
        expected: (N,) the forecast of the value; NaN where there is none.
        unit: (N,) how far from the forecast a value is whose first deviation is 1.
    """

    values: Array
    expected: Array
    unit: Array


class Watcher(Protocol):
    """Reads series one value at a time."""

    def start(self, rows: int) -> Any:
        """The state before the first value of N series."""
        ...

    def step(self, values: Array, state: Any) -> tuple[Deviations, Any]:
        """What it says of the next values (N,), and the state after them."""
        ...


class Moments(NamedTuple):
    """The mean and the standard deviation of the values of N series so far.

    >>> Moments.none(1).after(np.array([1.0])).after(np.array([np.nan])).after(np.array([5.0])).deviations.tolist()
    [2.0]
    """

    counts: Array  # (N,)
    means: Array  # (N,)
    squares: Array  # (N,) sums of squared distances from the mean

    @classmethod
    def none(cls, rows: int) -> Moments:
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows))

    @classmethod
    def of(cls, row: Array) -> Moments:
        """Those of one whole series (T,)."""
        values = row[~np.isnan(row)]
        mean = float(values.mean()) if len(values) else 0.0
        return cls(np.array([float(len(values))]), np.array([mean]), np.array([((values - mean) ** 2).sum()]))

    @property
    def deviations(self) -> Array:
        """(N,); 1 of what does not vary."""
        found = np.sqrt(self.squares / np.maximum(self.counts, 1))
        return np.where(found > 0, found, 1.0)

    def scaled(self, values: Array) -> Array:
        """Values (N,), or those of one series (T,), reduced by the mean and divided by the deviation."""
        found: Array = (values - self.means) / self.deviations
        return found

    def after(self, values: Array) -> Moments:
        """The moments after the next values (N,); NaN: missing."""
        known = ~np.isnan(values)
        counts = self.counts + known
        change = np.where(known, np.where(known, values, 0.0) - self.means, 0.0)
        means = self.means + change / np.maximum(counts, 1)
        squares = self.squares + change * np.where(known, np.where(known, values, 0.0) - means, 0.0)
        return Moments(counts, means, squares)


@dataclass(frozen=True)
class Tail:
    """The rate of alarms for each threshold of a deviation.

    Below the largest deviations of the reference the rate is counted; these are continued by a power law (Hill 1975).
    Neighbours above a threshold are one alarm: the rate of values is multiplied by the alarms for each such value.

    Attributes:
        reference: (R,) absolute deviations in ascending order, without the largest ones.
        start: where the tail begins.
        share: of all values, those in the tail.
        exponent: of the power law.
        cluster: the alarms for each value in the tail, at most 1.
    """

    reference: Array
    start: float
    share: float
    exponent: float
    cluster: float

    @classmethod
    def fit(cls, sequences: Sequence[Array]) -> Tail:
        """The tail of the deviations (T,) of series; NaN: none."""
        known = np.sort(np.abs(np.concatenate([*sequences, np.zeros(0)])))
        known = known[~np.isnan(known)]
        count = min(max(LEAST_TAIL, int(TAIL_SHARE * len(known))), len(known) // 2)
        if not count:
            return UNKNOWN_TAIL
        start = max(float(known[-count - 1]), 1e-9)
        exponent = 1 / max(float(np.log(np.maximum(known[-count:], start) / start).mean()), 1e-3)
        above = [np.abs(one) > start for one in sequences]
        alarms = sum(int((one & ~np.concatenate([[False], one[:-1]])).sum()) for one in above if len(one))
        values = sum(int(one.sum()) for one in above)
        share = (count + 1) / (len(known) + 1)
        return cls(known[:-count], start, share, exponent, alarms / values if values else 1.0)

    def scores(self, deviations: Array) -> Array:
        """-log10 of the rates (...) of thresholds at these deviations; NaN stays."""
        sizes = np.abs(deviations)
        known = np.where(np.isnan(sizes), 0.0, sizes)
        below = self.share + (1 - self.share) * (
            1 - np.searchsorted(self.reference, known) / max(1, len(self.reference))
        )
        beyond = self.share * np.maximum(known / self.start, 1.0) ** -self.exponent
        rates = self.cluster * np.where(known > self.start, beyond, below)
        found: Array = np.where(np.isnan(sizes), np.nan, np.minimum(-np.log10(rates.clip(1e-300)), LARGEST_SCORE))
        return found

    def size_of(self, rate: float) -> float:
        """The deviation whose rate is a given one."""
        share = rate / self.cluster
        if share < self.share:
            return float(self.start * (share / self.share) ** (-1 / self.exponent))
        place = (1 - (share - self.share) / max(1 - self.share, 1e-9)) * len(self.reference)
        return float(self.reference[int(np.clip(place, 0, len(self.reference) - 1))]) if len(self.reference) else 0.0


UNKNOWN_TAIL = Tail(np.zeros(0), 3.0, TAIL_SHARE, 4.0, 1.0)  # of constant series, and of ones too short to calibrate


class Scores(NamedTuple):
    """What a detector says of a value of each of N series: its score, and the interval of values without an alarm.

    Attributes:
        values: (N,) the scores; NaN where there is none.
        expected: (N,) the forecasts.
        lower: (N,) the least value that alone is no alarm at the rate.
        upper: (N,) the largest one.
    """

    values: Array
    expected: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class Detector:
    """A watcher and the tails of its deviations."""

    watcher: Watcher
    tails: tuple[Tail, ...]

    def start(self, rows: int) -> Any:
        return self.watcher.start(rows)

    def step(self, values: Array, state: Any, *, rate: float = 0.001, channels: int = 1) -> tuple[Scores, Any]:
        """The scores of the next values (N,) of series, and the state after them.

        Args:
            values: NaN: missing.
            state: of `start`, or of the step before.
            rate: of the interval.
            channels: the channels of a series: the rate is shared among them, and among kinds of deviations.
        """
        deviations, state = self.watcher.step(values, state)
        shared = len(self.tails) * channels
        parts = np.stack([tail.scores(deviations.values[:, place]) for place, tail in enumerate(self.tails)], 1)
        known = ~np.isnan(parts).all(1)
        best = np.where(known, np.where(np.isnan(parts), -np.inf, parts).max(1), np.nan)
        reach = deviations.unit * self.tails[0].size_of(rate / shared)
        scores = (best - math.log10(shared)).clip(0, None)
        return Scores(scores, deviations.expected, deviations.expected - reach, deviations.expected + reach), state

    def score(self, rows: Sequence[Array], *, rate: float = 0.001, channels: int = 1) -> list[Scores]:
        """The scores (T,) of whole series (T,), one value after the other."""
        firsts = [first_value(row) for row in rows]
        longest = max((len(row) - first for row, first in zip(rows, firsts, strict=True)), default=0)
        table = np.full((len(rows), longest), np.nan)
        for number, (row, first) in enumerate(zip(rows, firsts, strict=True)):
            table[number, : len(row) - first] = row[first:]
        state, steps = self.start(len(rows)), list[Scores]()
        for place in range(longest):
            found, state = self.step(table[:, place], state, rate=rate, channels=channels)
            steps.append(found)
        columns = [np.stack(part, 1) for part in zip(*steps, strict=True)] if steps else [table] * 4
        return [
            Scores(*(np.concatenate([np.full(first, np.nan), part[number, : len(row) - first]]) for part in columns))
            for number, (row, first) in enumerate(zip(rows, firsts, strict=True))
        ]


class LinearState(NamedTuple):
    """What a linear watcher remembers of N series.

    Attributes:
        seen: the values so far.
        lags: (N, L) the last values without gaps; before the first season is complete, zeros in front.
        sums: (N, 2) of the absolute differences of neighbours, and of values one season apart.
        early: (N, S) the forecasts of the next S values that were made one season before each; NaN: none.
        scales: (N, S) the scales of these.
        recent: (N, S) the last deviations from such forecasts; NaN where missing.
        spread: (N, 2) the sum of the deviations from the last forecast, cut off, and their number.
    """

    seen: int
    lags: Array
    sums: Array
    early: Array
    scales: Array
    recent: Array
    spread: Array


@dataclass(frozen=True)
class LinearWatcher:
    """Forecasts each value from the last ones by a linear map, one step and one season ahead.

    Attributes:
        map: weights of both steps (2, F); one (1, F) where there is no season.
        spread: the mean absolute deviation from the forecast one step ahead.
    """

    map: LinearMap
    spread: float

    @property
    def _season(self) -> int:
        return self.map.form.season

    def start(self, rows: int) -> LinearState:
        empty = np.full((rows, self._season), np.nan)
        lags = np.zeros((rows, self.map.form.lags + 1))  # one more than the map reads: the value a season before
        return LinearState(0, lags, np.zeros((rows, 2)), empty, empty, empty, np.zeros((rows, 2)))

    def step(self, values: Array, state: LinearState) -> tuple[Deviations, LinearState]:
        form, season, count, rows = self.map.form, self._season, state.seen, len(values)
        lags, early, scales, recent, spread = state.lags, state.early, state.scales, state.recent, state.spread
        expected, unit = np.full((2, rows), np.nan)
        deviations = np.full((rows, len(self.map.weights)), np.nan)
        if count >= form.least:
            scale = _scale(state.sums, count, season)
            inputs = (lags[:, 1:] - lags[:, -min(season, form.lags) :].mean(1)[:, None]) / scale[:, None]
            # Sums of products row by row: a matrix product has other bits for other numbers of rows.
            ahead = [(inputs * weights[: form.lags]).sum(1) + weights[form.lags] for weights in self.map.weights]
            expected = lags[:, -season] + scale * ahead[0]
            own = (PRIOR_VALUES * self.spread + spread[:, 0]) / (PRIOR_VALUES + spread[:, 1])
            unit = own * scale
            deviations[:, 0] = (values - expected) / unit
            known = ~np.isnan(values)
            sizes = np.minimum(np.abs(values - expected) / scale, LARGEST_COUNTED * own)
            spread = spread + np.stack([np.where(known, sizes, 0.0), known], 1)
            if len(ahead) > 1:
                # The forecast of the value that is one season after the last: its season before is the last value.
                early = np.concatenate([early[:, 1:], (lags[:, -1] + scale * ahead[1])[:, None]], 1)
                scales = np.concatenate([scales[:, 1:], scale[:, None]], 1)
                recent = np.concatenate([recent[:, 1:], ((values - early[:, 0]) / scales[:, 0])[:, None]], 1)
                deviations[:, 1] = np.where(known, mean_of_recent(recent), np.nan)
        before = lags[:, -season] if count >= season else lags[:, -1]
        filled = np.where(np.isnan(values), before, values)
        changes = np.stack([np.abs(filled - lags[:, -1]), np.abs(filled - lags[:, -season])], 1)
        sums = state.sums + changes * [count >= 1, count >= season]
        lags = np.concatenate([lags[:, 1:], filled[:, None]], 1)
        if count + 1 == form.least:  # as `make_panel`: before the first value stands the first season, repeated
            missing = lags.shape[1] - form.least
            if missing > 0:
                places = missing + np.arange(-missing, 0) % season
                lags[:, :missing] = lags[:, places]
        return Deviations(deviations, expected, unit), LinearState(count + 1, lags, sums, early, scales, recent, spread)


def mean_of_recent(recent: Array) -> Array:
    """The sum of deviations (..., S) by the root of their number; NaN where none is known.

    >>> mean_of_recent(np.array([[1.0, 3.0, np.nan, np.nan]])).round(3).tolist()
    [2.828]
    """
    known = ~np.isnan(recent)
    counts = known.sum(-1)
    sums = np.where(known, recent, 0.0).sum(-1)
    found: Array = np.where(counts > 0, sums / np.sqrt(np.maximum(counts, 1)), np.nan)
    return found


def _scale(sums: Array, count: int, season: int) -> Array:
    """The mean absolute seasonal difference (N,) of `count` values; that of neighbours where it is 0; else 1."""
    near, seasonal = sums[:, 0] / max(1, count - 1), sums[:, 1] / max(1, count - season)
    found: Array = np.where(seasonal > 0, seasonal, np.where(near > 0, near, 1.0))
    return found


def fit_linear_detector(model: Any, rows: Sequence[Array], season: int) -> Detector:
    """The detector of a linear watcher; its tails are of deviations from maps that were fitted to other stretches.

    Args:
        model: is not used: the maps are of their own.
        rows: (T,) of each series; NaN: missing.
        season: the length of a season.
    """
    lengths = [len(row) - first_value(row) for row in rows]
    weekly = season in (24, 48, 96) and float(np.median(lengths or [0])) >= SHORTEST_WEEKS * 7 * season
    form = LinearForm(season, season, 7 * season + 1 if weekly else max(2 * season, 3))
    panel = make_panel(rows, form)
    series, places = training_places(panel)
    leads = [0, season - 1] if season > 1 else [0]
    # The stretch of the series that the window is in.
    spans = np.maximum(panel.ends - panel.starts - form.least, 1)[series]
    folds = ((places - panel.starts[series] - form.least) * STRETCHES // spans).clip(0, STRETCHES - 1)
    parts = []
    for fold in range(STRETCHES):
        part = Sums.empty(LinearForm(len(leads), season, form.lags), shared=False)
        for begin, end in _pieces(chosen := places[folds == fold]):
            part.add(_at_leads(panel, chosen[begin:end], leads), np.ones(len(chosen[begin:end])))
        parts.append(part)
    everything = _sum(parts)
    candidates = []
    own_form = LinearForm(len(leads), season, form.lags)
    solved = [LinearMap.solve(own_form, _sum(parts[:fold] + parts[fold + 1 :])) for fold in range(STRETCHES)]
    windows = [np.flatnonzero(folds == fold) for fold in range(STRETCHES)]
    for strength in range(len(STRENGTHS)):
        errors = np.full((len(places), len(leads)), np.nan)
        for fold, chosen in enumerate(windows):
            for begin, end in _pieces(chosen):
                inside = chosen[begin:end]
                found = _at_leads(panel, places[inside], leads)
                errors[inside] = found.targets - solved[fold][strength].shared(found)
        candidates.append(errors)
    sizes = [float(np.nanmean(np.abs(one[:, 0]))) if np.isfinite(one[:, 0]).any() else 0.0 for one in candidates]
    best = int(np.argmin(sizes))
    # Any change of series that were constant is one; of what is too short to know, the scale is that of its changes.
    varies = any(np.unique(row[~np.isnan(row)]).size > 1 for row in rows)
    spread = max(sizes[best], 1e-9) if len(places) or not varies else 1.0
    watcher = LinearWatcher(LinearMap.solve(own_form, everything)[best], spread)
    sequences = _sequences(candidates[best], panel, series, places, leads, watcher.spread)
    return Detector(watcher, tuple(Tail.fit(part) for part in sequences))


def _sequences(
    errors: Array, panel: Panel, series: IntArray, places: IntArray, leads: Sequence[int], spread: float
) -> list[list[Array]]:
    """The deviations of each kind, of each series over time, as a watcher gives them."""
    found: list[list[Array]] = [[] for _ in leads]
    for number, (start, end) in enumerate(zip(panel.starts, panel.ends, strict=True)):
        chosen = series == number
        steps = places[chosen] - start
        near = np.full(end - start, np.nan)
        near[steps] = errors[chosen, 0]
        sizes = np.where(np.isnan(near), 0.0, np.minimum(np.abs(near), LARGEST_COUNTED * spread))
        before = np.concatenate([[0.0], np.cumsum(sizes)[:-1]])
        counts = np.concatenate([[0.0], np.cumsum(~np.isnan(near))[:-1]])
        own = (PRIOR_VALUES * spread + before) / (PRIOR_VALUES + counts)
        found[0].append(near / own)
        if len(leads) > 1:
            far = np.full(end - start, np.nan)
            inside = steps + leads[1] < len(far)
            far[steps[inside] + leads[1]] = errors[chosen, 1][inside]
            known = np.where(np.isnan(far), 0.0, far)
            sums = np.concatenate([[0.0], np.cumsum(known)])
            total = np.concatenate([[0], np.cumsum(~np.isnan(far))])
            begin = np.maximum(np.arange(1, len(far) + 1) - leads[1] - 1, 0)
            many = total[1:] - total[begin]
            means = (sums[1:] - sums[begin]) / np.sqrt(np.maximum(many, 1))
            found[1].append(np.where((many > 0) & ~np.isnan(far), means, np.nan))
    return found


def _at_leads(panel: Panel, places: IntArray, leads: Sequence[int]) -> Windows:
    windows = windows_at(panel, places)
    return windows._replace(
        features=windows.features[:, leads], naive=windows.naive[:, leads], targets=windows.targets[:, leads]
    )


def _pieces(places: IntArray, size: int = 2048) -> list[tuple[int, int]]:
    return [(begin, begin + size) for begin in range(0, len(places), size)]


def _sum(parts: Sequence[Sums]) -> Sums:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
