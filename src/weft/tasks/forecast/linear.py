"""One linear map for all series: each step of the horizon from the last values, by ridge regression in closed form.

The values before the cutoff are reduced by the mean of the last season and divided by the mean absolute seasonal
difference so far, so that series of all sizes share one map. It corrects the seasonal naive forecast: every step of
the horizon has weights of its own (a direct forecast). Covariates that are known in advance enter at the step that is
forecast, and one season before it; past ones at the last steps and one season before these; static ones as they are.

All series count alike, and a window that a map of the first ones forecasts badly counts less: forecasts are judged by
absolute errors. The sums that the regression needs are kept for each number of horizons that are held out at the end:
one pass over the data gives the maps of all cutoffs, and of all strengths of the ridge.

The shared map adapts to a series by a second ridge regression, on its own windows before the cutoff: of what the map
leaves, on the principal components of its inputs, pulled towards no correction. So new series adapt too, and nothing is
stored of a series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from weft.data.column import IntArray

Array = np.ndarray[Any, np.dtype[np.float64]]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)  # of the ridge, as shares of the mean square of a feature
MOST_PRODUCTS = 4e9  # multiplications of one pass; of more windows every second, third, ... is taken
MAP_SIZES = ("lags", "features", "past", "static")  # of a form, that a map is stored with
WINDOWS_AT_ONCE = 4096  # windows at a time
REWEIGHTINGS, REWEIGHTING_STRENGTH = 2, 1e-3  # maps that weigh the windows, and the strength of their ridge
MAP_ADAPTATIONS = (
    0.02,
    0.06,
    0.2,
    2.0,
)  # one over the horizons of its own data that a series needs to count as the shared map
COMPONENTS = 64  # principal components of the inputs, of which a series has weights of its own
OWN_WINDOWS = 512  # of a series that it adapts to; of more every second, third, ... is taken
PAST_VALUES = 2  # last values of a past covariate that are inputs, and as many one season before them
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
        past: the number of past covariates P.
        static: the number of features S that do not change within a series.
    """

    horizon: int
    season: int
    lags: int
    log: bool = False
    features: int = 0
    past: int = 0
    static: int = 0

    @property
    def context(self) -> int:
        """The number of inputs G that are known at a cutoff beside the lags."""
        return 2 * PAST_VALUES * self.past + self.static

    @property
    def common(self) -> int:
        """The inputs that all steps have: lags, a constant, and the context."""
        return self.lags + 1 + self.context

    @property
    def inputs(self) -> int:
        """The inputs of a step: the common ones, covariates at that step and a season before."""
        return self.common + 2 * self.features

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
    context: Array  # (total, G) what is known before each place of past and static covariates
    starts: IntArray  # (N,) the place of the first value
    ends: IntArray  # (N,) the place behind the last value


def make_panel(
    series: Sequence[Array],
    form: LinearForm,
    features: Sequence[Array] | None = None,
    past: Sequence[Array] | None = None,
    static: Sequence[Array] | None = None,
) -> Panel:
    """Prepares series for a map.

    Args:
        series: (T,) each, NaN where values are missing; on the log scale those that are not positive are missing, and
            the first one is positive.
        form: what the map reads.
        features: (T + F, E) of each series, of which F steps beyond its end are known.
        past: (T, P) of each series.
        static: (S,) of each series.
    """
    values, observed, scales, extra = list[Array](), list[BoolArray](), list[Array](), list[Array]()
    context = list[Array]()
    starts, ends, place = list[int](), list[int](), 0
    for number, row in enumerate(series):
        first = first_value(row)
        known = np.log(np.where(row[first:] > 0, row[first:], np.nan)) if form.log else row[first:]
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
        if form.context:
            own = np.zeros((form.lags + size + after, form.context))
            if past is not None:
                known_before = before_places(past[number][first : first + size], size, form.season)
                own[form.lags : form.lags + size + 1, : known_before.shape[1]] = known_before
            if static is not None and form.static:
                own[:, -form.static :] = static[number]
            context.append(own)
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
        np.concatenate(context) if context else np.zeros((place, 0)),
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


def before_places(columns: Array, size: int, season: int) -> Array:
    """The values (size + 1, 2 * PAST_VALUES * P) of past covariates (T, P) before each place of a series.

    The last ones, and those one season before them. Missing ones are the last that were known; 0 before the first.
    """
    values = standardized(columns)
    there = np.where(~np.isnan(columns), np.arange(len(columns))[:, None], -1)
    last = np.maximum.accumulate(there, 0)
    filled = np.where(last >= 0, np.take_along_axis(values, np.maximum(last, 0), 0), 0.0)
    filled = np.concatenate([filled, np.repeat(filled[-1:], max(0, size - len(filled)), 0)])[:size]
    backs = [back + gap for gap in (0, season) for back in range(1, PAST_VALUES + 1)]
    padded = np.concatenate([np.zeros((max(backs), columns.shape[1])), filled])
    start = max(backs)
    return np.concatenate([padded[start - back : start - back + size + 1] for back in backs], 1)


class Windows(NamedTuple):
    """The inputs and the scaled targets of B windows."""

    lags: Array  # (B, L)
    context: Array  # (B, G)
    features: Array  # (B, H, 2 * E)
    naive: Array  # (B, H) the values of the last season, which the map corrects
    scales: Array  # (B,) 1 of a constant series, whose inputs are all 0
    targets: Array  # (B, H) scaled; NaN where missing, and beyond the end

    def inputs(self, step: int) -> Array:
        """The inputs (B, F) of a step."""
        return np.concatenate([self.own_inputs, self.features[:, step]], 1)

    @property
    def own_inputs(self) -> Array:
        """The inputs (B, L + 1 + G) of all steps: lags, a constant, and the context."""
        return np.concatenate([self.lags, np.ones((len(self.lags), 1)), self.context], 1)


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
    return Windows(scaled, panel.context[places], features, naive, scales, (targets - naive) / scales[:, None])


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

    def add(self, windows: Windows, weights: Array) -> None:
        """Adds windows, each with a weight (B,)."""
        targets = windows.targets.clip(-LARGEST_TARGET, LARGEST_TARGET)
        if len(self.products) == 1:
            inputs = windows.inputs(0)
            weighted = inputs * weights[:, None]
            self.products[0] += weighted.T @ inputs
            self.cross += targets.T @ weighted
            self.squares += weights @ targets**2
            self.counts += weights.sum()
            return
        for step in range(targets.shape[1]):
            known = ~np.isnan(targets[:, step])
            inputs, wanted = windows.inputs(step)[known], targets[known, step]
            weighted = inputs * weights[known, None]
            self.products[step] += weighted.T @ inputs
            self.cross[step] += wanted @ weighted
            self.squares[step] += weights[known] @ wanted**2
            self.counts[step] += weights[known].sum()

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(own + further for own, further in zip(vars(self).values(), vars(other).values(), strict=True)))


class FittedWindows(NamedTuple):
    """The windows that a map is fitted to.

    Attributes:
        series: (B,) the series of each.
        places: (B,) where its first target stands.
        spare: (B,) how many horizons may be held out before a target of the window is among them.
        shared: whether all steps have the same inputs and known targets, so that one sum of products is enough.
    """

    series: IntArray
    places: IntArray
    spare: IntArray
    shared: bool

    @classmethod
    def of(cls, panel: Panel, held_out: int) -> FittedWindows:
        form = panel.form
        series, places = training_places(panel)
        whole = all(panel.observed[start:end].all() for start, end in zip(panel.starts, panel.ends, strict=True))
        shared = whole and not form.features
        work = len(places) * form.inputs**2 * (1 if shared else form.horizon)
        stride = max(1, int(np.ceil(work / MOST_PRODUCTS)))
        series, places = series[::stride], places[::stride]
        spare = ((panel.ends[series] - places) // form.horizon - 1).clip(0, held_out)
        return cls(series, places, spare, shared)

    def sums(self, panel: Panel, weights: Array, spare: int) -> Sums:
        """The sums of the windows with a number of spare horizons."""
        found = Sums.empty(panel.form, shared=self.shared)
        chosen = np.flatnonzero(self.spare == spare)
        for begin in range(0, len(chosen), WINDOWS_AT_ONCE):
            part = chosen[begin : begin + WINDOWS_AT_ONCE]
            found.add(windows_at(panel, self.places[part]), weights[part])
        return found

    def weights(self, panel: Panel, held_out: int) -> Array:
        """What each window counts (B,): all series alike, and the less the larger its mean absolute error is.

        The errors are those of a map that is fitted to the windows before the held-out horizons.
        """
        counts = np.bincount(self.series, minlength=len(panel.starts))
        shares = counts.mean() / counts[self.series]
        found: Array = shares
        for _ in range(REWEIGHTINGS if (self.spare == held_out).any() else 0):
            sums = self.sums(panel, found, held_out)
            (fitted,) = LinearMap.solve(panel.form, sums, [REWEIGHTING_STRENGTH])
            errors = np.zeros(len(found))
            for begin in range(0, len(found), WINDOWS_AT_ONCE):
                windows = windows_at(panel, self.places[begin : begin + WINDOWS_AT_ONCE])
                absolute = np.abs(windows.targets.clip(-LARGEST_TARGET, LARGEST_TARGET) - fitted.shared(windows))
                known = ~np.isnan(absolute)
                errors[begin : begin + WINDOWS_AT_ONCE] = np.where(known, absolute, 0).sum(1) / known.sum(1).clip(1)
            oldest = self.spare == held_out
            found = shares / (errors + 0.1 * errors[oldest].mean() + 1e-12)
            found /= found[oldest].mean()
        return found


def sum_windows(panel: Panel, held_out: int) -> list[Sums]:
    """The sums of all windows whose targets end before the last 0, 1, ..., `held_out` horizons of the series."""
    windows = FittedWindows.of(panel, held_out)
    weights = windows.weights(panel, held_out)
    parts = [windows.sums(panel, weights, number) for number in range(held_out + 1)]
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
    """A fitted map.

    Attributes:
        form: what it reads.
        weights: (H, F)
        deviations: (H,) the standard deviation of its scaled errors.
        components: (L + 1 + G, K) the principal components of the inputs that all steps have.
        adaptation: how far it adapts to each series, the inverse strength of a ridge; 0: not at all.
    """

    form: LinearForm
    weights: Array
    deviations: Array
    components: Array
    adaptation: float = 0.0

    @classmethod
    def solve(cls, form: LinearForm, sums: Sums, strengths: Sequence[float] = STRENGTHS) -> list[LinearMap]:
        """The ridge regressions of several strengths. Without any window it forecasts the level."""
        counts = np.maximum(sums.counts, 1e-12)
        solved = []
        for step, products in enumerate(sums.products):
            steps = slice(None) if len(sums.products) == 1 else slice(step, step + 1)
            values, vectors = np.linalg.eigh(products)
            turned = sums.cross[steps] @ vectors  # (H or 1, F)
            least = max(float(values.mean()), 1e-12)
            solved.append([turned / (values.clip(0) + strength * least) @ vectors.T for strength in strengths])
        vectors = np.linalg.eigh(sums.products[0][: form.common, : form.common])[1]
        components = np.ascontiguousarray(vectors[:, ::-1][:, :COMPONENTS])
        found = []
        for choice in zip(*solved, strict=True):
            weights = np.concatenate(choice)  # (H, F)
            quadratic = np.einsum(
                "hf,sfg,hg->h" if len(sums.products) == 1 else "hf,hfg,hg->h", weights, sums.products, weights
            )
            squares = sums.squares - 2 * (weights * sums.cross).sum(1) + quadratic
            found.append(cls(form, weights, np.sqrt(np.maximum(squares / counts, 1e-12)), components))
        return found

    def shared(self, windows: Windows) -> Array:
        """The scaled forecasts (B, H) of windows by the map that all series share."""
        count = self.form.common
        scaled: Array = windows.own_inputs @ self.weights[:, :count].T
        if self.form.features:
            scaled = scaled + np.einsum("bhe,he->bh", windows.features, self.weights[:, count:])
        return scaled

    def forecast(self, panel: Panel, places: IntArray) -> tuple[Array, Array]:
        """The forecasts from a place (N,) of each series, and their standard deviations, both (N, H)."""
        (means,), deviations = self.forecasts(panel, places, [self.adaptation])
        return means, deviations

    def forecasts(self, panel: Panel, places: IntArray, adaptations: Sequence[float]) -> tuple[list[Array], Array]:
        """The forecasts for several values of `adaptation`, and their standard deviations."""
        windows = windows_at(panel, places)
        inputs, scales = windows.own_inputs @ self.components, windows.scales[:, None]  # (N, K), (N, 1)
        scaled = np.repeat(self.shared(windows)[None], len(adaptations), 0)
        for number, place in enumerate(places.tolist() if any(adaptations) else ()):
            errors = OwnErrors.of(self, panel, number, place)
            for candidate, adaptation in enumerate(adaptations):
                scaled[candidate, number] += errors.correction(inputs[number], adaptation)
        return [windows.naive + scales * one for one in scaled], scales * self.deviations

    def tensors(self) -> dict[str, Tensor]:
        """What `restore` needs, beside `to_json`."""
        return {name: torch.tensor(getattr(self, name)) for name in ("weights", "deviations", "components")}

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self.form, name) for name in MAP_SIZES} | {"adaptation": self.adaptation}

    @classmethod
    def restore(
        cls, tensors: Mapping[str, Tensor], data: Mapping[str, Any], horizon: int, season: int, log: bool
    ) -> LinearMap:
        """The inverse of `tensors` and `to_json`. A ValueError or KeyError says that they are not those of a map."""
        sizes = {"past": 0, "static": 0, **data}  # of earlier runs, which read no such covariates
        form = LinearForm(horizon, season, log=log, **{name: int(sizes[name]) for name in MAP_SIZES})
        weights, deviations, components = (tensors[name].numpy() for name in ("weights", "deviations", "components"))
        size = min(COMPONENTS, form.common)
        if (
            weights.shape != (horizon, form.inputs)
            or deviations.shape != (horizon,)
            or components.shape != (form.common, size)
        ):
            raise ValueError("the map does not have the sizes of its horizon and lags")
        return cls(form, weights, deviations, components, float(data["adaptation"]))


class OwnErrors(NamedTuple):
    """What the shared map leaves of the windows of a series before a place.

    Attributes:
        values, vectors: (K,) and (K, K) the eigenvalues and eigenvectors of the sum of products of the inputs.
        cross: (H, K) of errors and inputs, in the basis of the eigenvectors.
        horizons: how many horizons the windows span.
    """

    values: Array
    vectors: Array
    cross: Array
    horizons: float

    @classmethod
    def of(cls, shared: LinearMap, panel: Panel, number: int, place: int) -> OwnErrors:
        form, size = shared.form, shared.components.shape[1]
        places = np.arange(place - form.horizon, panel.starts[number] + form.least - 1, -1)
        horizons = len(places) / form.horizon
        places = places[:: max(1, -(-len(places) // OWN_WINDOWS))]
        places = places[panel.scales[places] > 0]
        if not len(places):
            return cls(np.zeros(size), np.eye(size), np.zeros((form.horizon, size)), 0.0)
        windows = windows_at(panel, places)
        inputs = windows.own_inputs @ shared.components
        errors = windows.targets.clip(-LARGEST_TARGET, LARGEST_TARGET) - shared.shared(windows)
        values, vectors = np.linalg.eigh(inputs.T @ inputs)
        return cls(values.clip(0), vectors, np.nan_to_num(errors).T @ inputs @ vectors, horizons)

    def correction(self, inputs: Array, adaptation: float) -> Array:
        """The correction (H,) of a scaled forecast with some inputs (K,)."""
        weight = adaptation * self.horizons
        if weight == 0:
            return np.zeros(len(self.cross))
        found: Array = self.cross @ (inputs @ self.vectors / (self.values + self.values.mean() / weight + 1e-12))
        return found
