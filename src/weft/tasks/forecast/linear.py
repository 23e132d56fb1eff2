"""One linear map for all series: each step of the horizon from the last values, by ridge regression in closed form.

The values before the cutoff are reduced by the mean of the last season and divided by the mean absolute seasonal
difference so far, so that series of all sizes share one map. It corrects the seasonal naive forecast: every step of
the horizon has weights of its own (a direct forecast). Covariates enter at the step that is forecast, and one season
before it.

The sums that the regression needs are kept for each number of horizons that are held out at the end: one pass over the
data gives the maps of all cutoffs, and of all strengths of the ridge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from weft.data.column import IntArray

Array = np.ndarray[Any, np.dtype[np.float64]]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)  # of the ridge, as shares of the mean square of a feature
MOST_PRODUCTS = 4e9  # multiplications of one pass; of more windows every second, third, ... is taken
WINDOWS_AT_ONCE = 4096  # windows at a time
LARGEST_TARGET = 10.0  # scaled targets beyond are cut off in the regression: a change of level would outweigh all else


@dataclass(frozen=True)
class LinearForm:
    """What a map reads.

    Attributes:
        horizon: the number of steps H.
        season: the length of a season.
        lags: the number of last values.
        log: whether it works on logarithms.
        features: the number of covariates E that are known in advance, those of the calendar included.
    """

    horizon: int
    season: int
    lags: int
    log: bool = False
    features: int = 0

    @property
    def inputs(self) -> int:
        """The inputs of a step: lags, a constant, covariates at that step and a season before."""
        return self.lags + 1 + 2 * self.features

    @property
    def least(self) -> int:
        """The values that a window has before its cutoff at least."""
        return max(2, self.season + 1)


class Panel(NamedTuple):
    """Series one after another, each with `lags` values before its first: its first season, repeated backwards."""

    form: LinearForm
    values: Array  # (total,) without gaps: the value of the last season stands there, or the last value
    observed: BoolArray  # (total,)
    scales: Array  # (total,) the mean absolute seasonal difference of the series before each place; 0: constant
    features: Array  # (total, E)
    starts: IntArray  # (N,) the place of the first value
    ends: IntArray  # (N,) the place behind the last value


def make_panel(series: Sequence[Array], form: LinearForm, features: Sequence[Array] | None = None) -> Panel:
    """Prepares series for a map.

    Args:
        series: (T,) each, NaN where values are missing; on the log scale they have to be positive.
        form: what the map reads.
        features: (T + F, E) of each series, of which F steps beyond its end are known.
    """
    values, observed, scales, extra = list[Array](), list[BoolArray](), list[Array](), list[Array]()
    starts, ends, place = list[int](), list[int](), 0
    for number, row in enumerate(series):
        first = first_value(row)
        known = np.log(row[first:]) if form.log else row[first:]
        filled, size = fill(known, form.season), len(row) - first
        after = form.horizon + 1  # so that the targets of every window are missing, and not those of the next series
        period = max(1, min(size, form.season))
        before = filled[np.arange(-form.lags, 0) % period] if size else np.zeros(form.lags)
        values += [before, filled, np.zeros(after)]
        observed += [np.zeros(form.lags, bool), ~np.isnan(known), np.zeros(after, bool)]
        scales += [np.zeros(form.lags), seasonal_scales(filled, form.season), np.zeros(after - 1)]
        if features is not None:
            columns = standardized(features[number][first : first + size + after])
            extra += [
                np.zeros((form.lags, form.features)),
                columns,
                np.zeros((size + after - len(columns), form.features)),
            ]
        starts.append(place + form.lags)
        ends.append(starts[-1] + size)
        place = ends[-1] + after
    joined = np.concatenate(values)
    return Panel(
        form,
        joined,
        np.concatenate(observed),
        np.concatenate(scales),
        np.concatenate(extra) if extra else np.zeros((place, 0)),
        np.array(starts),
        np.array(ends),
    )


def first_value(row: Array) -> int:
    """The place of the first value that is not missing; the length if all are."""
    observed = ~np.isnan(row)
    return int(observed.argmax()) if observed.any() else len(row)


def fill(row: Array, season: int) -> Array:
    """The values without gaps: of the season before, or the last one where there is none.

    >>> fill(np.array([1.0, 2.0, np.nan, np.nan, np.nan]), 2).tolist()
    [1.0, 2.0, 1.0, 2.0, 1.0]
    """
    filled: Array = row.copy()
    for place in np.flatnonzero(np.isnan(row)):
        filled[place] = filled[place - season] if place >= season else filled[place - 1]
    return filled


def seasonal_scales(row: Array, season: int) -> Array:
    """The mean absolute seasonal difference of the values before each place (T + 1,).

    Before the second season it is that of neighbours. Of a constant series it is 0.

    >>> seasonal_scales(np.array([1.0, 2.0, 4.0]), 1).tolist()
    [0.0, 0.0, 1.0, 1.5]
    """
    size = len(row)
    scales = np.zeros(size + 1)
    for gap in (1, season) if season > 1 else (1,):
        if size > gap:
            sums = np.cumsum(np.abs(row[gap:] - row[:-gap]))
            scales[gap + 1 :] = np.where(sums > 0, sums / np.arange(1, len(sums) + 1), scales[gap + 1 :])
    return scales


def standardized(columns: Array) -> Array:
    """Covariates (T, E) reduced by their mean and deviation so far; 0 where constant or missing."""
    known = ~np.isnan(columns)
    values, counts = np.where(known, columns, 0.0), np.maximum(np.cumsum(known, 0), 1)
    means = np.cumsum(values, 0) / counts
    deviations = np.sqrt(np.maximum(np.cumsum(values**2, 0) / counts - means**2, 0.0))
    usable = known & (deviations > 1e-8 * (1 + np.abs(means)))
    found: Array = np.where(usable, (values - means) / np.where(usable, deviations, 1.0), 0.0).clip(-5, 5)
    return found


class Windows(NamedTuple):
    """The inputs and the scaled targets of B windows."""

    lags: Array  # (B, L)
    features: Array  # (B, H, 2 * E)
    naive: Array  # (B, H) the values of the last season, which the map corrects
    scales: Array  # (B,) 1 of a constant series, whose inputs are all 0
    targets: Array  # (B, H) scaled; NaN where missing, and beyond the end

    def inputs(self, step: int) -> Array:
        """The inputs (B, F) of a step."""
        return np.concatenate([self.lags, np.ones((len(self.lags), 1)), self.features[:, step]], 1)


def windows_at(panel: Panel, places: IntArray) -> Windows:
    """The windows whose first targets stand at given places (B,)."""
    form = panel.form
    span = min(form.season, form.lags)
    lags = sliding_window_view(panel.values, form.lags)[places - form.lags]
    levels = lags[:, -span:].mean(1)
    scales = np.where(panel.scales[places] > 0, panel.scales[places], 1.0)
    steps = places[:, None] + np.arange(form.horizon)  # (B, H)
    targets = np.where(panel.observed[steps], panel.values[steps], np.nan)
    # The last season that lies before the cutoff.
    earlier = steps - form.season * (1 + np.arange(form.horizon) // form.season)
    naive, scaled = panel.values[earlier], (lags - levels[:, None]) / scales[:, None]
    features = np.zeros((len(places), form.horizon, 0))
    if form.features:
        features = np.concatenate([panel.features[steps], panel.features[earlier]], -1)
    return Windows(scaled, features, naive, scales, (targets - naive) / scales[:, None])


@dataclass
class Sums:
    """What a regression needs of some windows: for each step, or of all steps alike (S = 1).

    Attributes:
        products: (S, F, F) of the inputs.
        cross: (H, F) of inputs and targets.
        squares: (H,) of the targets.
        counts: (H,) of the targets.
    """

    products: Array
    cross: Array
    squares: Array
    counts: Array

    @classmethod
    def empty(cls, form: LinearForm, *, shared: bool) -> Sums:
        steps, size = form.horizon, form.inputs
        return cls(np.zeros((1 if shared else steps, size, size)), np.zeros((steps, size)), *np.zeros((2, steps)))

    def add(self, windows: Windows) -> None:
        targets = windows.targets.clip(-LARGEST_TARGET, LARGEST_TARGET)
        if len(self.products) == 1:
            inputs = windows.inputs(0)
            self.products[0] += inputs.T @ inputs
            self.cross += targets.T @ inputs
            self.squares += (targets**2).sum(0)
            self.counts += len(targets)
            return
        for step in range(targets.shape[1]):
            known = ~np.isnan(targets[:, step])
            inputs, wanted = windows.inputs(step)[known], targets[known, step]
            self.products[step] += inputs.T @ inputs
            self.cross[step] += wanted @ inputs
            self.squares[step] += wanted @ wanted
            self.counts[step] += len(wanted)

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(own + further for own, further in zip(vars(self).values(), vars(other).values(), strict=True)))


def sum_windows(panel: Panel, held_out: int) -> list[Sums]:
    """The sums of all windows whose targets end before the last 0, 1, ..., `held_out` horizons of the series."""
    form = panel.form
    series, places = training_places(panel)
    whole = all(panel.observed[start:end].all() for start, end in zip(panel.starts, panel.ends, strict=True))
    shared = whole and not form.features
    work = len(places) * form.inputs**2 * (1 if shared else form.horizon)
    stride = max(1, int(np.ceil(work / MOST_PRODUCTS)))
    series, places = series[::stride], places[::stride]
    # How many horizons may be held out before a target of the window is among them.
    spare = ((panel.ends[series] - places) // form.horizon - 1).clip(0, held_out)
    parts = [Sums.empty(form, shared=shared) for _ in range(held_out + 1)]
    for number, part in enumerate(parts):
        chosen = places[spare == number]
        for begin in range(0, len(chosen), WINDOWS_AT_ONCE):
            part.add(windows_at(panel, chosen[begin : begin + WINDOWS_AT_ONCE]))
    for number in range(held_out, 0, -1):
        parts[number - 1] += parts[number]
    return parts


def training_places(panel: Panel) -> tuple[IntArray, IntArray]:
    """The series and the place of the first target of every window of a panel, but those of constant series so far."""
    counts = (panel.ends - panel.starts - panel.form.least - panel.form.horizon + 1).clip(0)
    series = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(series)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = panel.starts[series] + panel.form.least + within
    varies = panel.scales[places] > 0
    return series[varies], places[varies]


@dataclass(frozen=True)
class LinearMap:
    """A fitted map: weights (H, F), and the standard deviation (H,) of its scaled errors."""

    form: LinearForm
    weights: Array
    deviations: Array

    @classmethod
    def solve(cls, form: LinearForm, sums: Sums, strengths: Sequence[float] = STRENGTHS) -> list[LinearMap]:
        """The ridge regressions of several strengths. Without any window it forecasts the level."""
        counts = np.maximum(sums.counts, 1.0)
        solved = []
        for step, products in enumerate(sums.products):
            steps = slice(None) if len(sums.products) == 1 else slice(step, step + 1)
            values, vectors = np.linalg.eigh(products)
            turned = sums.cross[steps] @ vectors  # (H or 1, F)
            least = max(float(values.mean()), 1e-12)
            solved.append([turned / (values.clip(0) + strength * least) @ vectors.T for strength in strengths])
        found = []
        for choice in zip(*solved, strict=True):
            weights = np.concatenate(choice)  # (H, F)
            quadratic = np.einsum(
                "hf,sfg,hg->h" if len(sums.products) == 1 else "hf,hfg,hg->h", weights, sums.products, weights
            )
            squares = sums.squares - 2 * (weights * sums.cross).sum(1) + quadratic
            found.append(cls(form, weights, np.sqrt(np.maximum(squares / counts, 1e-12))))
        return found

    def forecast(self, windows: Windows) -> tuple[Array, Array]:
        """The forecasts of windows and their standard deviations, both (B, H), on the scale of the panel."""
        count = self.form.lags + 1
        scaled = windows.lags @ self.weights[:, : count - 1].T + self.weights[:, count - 1]
        if self.form.features:
            scaled = scaled + np.einsum("bhe,he->bh", windows.features, self.weights[:, count:])
        scales = windows.scales[:, None]
        return windows.naive + scales * scaled, scales * self.deviations
