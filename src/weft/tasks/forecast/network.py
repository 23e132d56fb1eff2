"""What networks of series have in common: what they read, the windows that train them, and how they forecast.

A network sees a window as the linear map does (`linear.py`): values reduced by the mean of the last season and divided
by the mean absolute seasonal difference so far. Its forecasts are put back on the scale of the series.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor, nn

from weft.data.column import IntArray
from weft.metrics.forecast import QUANTILE_LEVELS
from weft.series.calendar import calendar_cycles, calendar_features
from weft.series.frequency import Frequency
from weft.tasks.forecast.calibration import ordered
from weft.tasks.forecast.linear import (
    LARGEST_TARGET,
    Array,
    LinearForm,
    Panel,
    first_value,
    training_places,
    windows_at,
)
from weft.training.loss import Loss

if TYPE_CHECKING:
    from weft.tasks.forecast.model import SeriesRows

NO_ATTENTION = "none"
LEVEL_TENSOR = torch.tensor(QUANTILE_LEVELS)
ROWS_AT_ONCE = 512  # series that are forecast at a time


@dataclass(frozen=True)
class NetworkForm:
    """The sizes of a network, and what it reads.

    Attributes:
        horizon: the number of steps H that it is trained to forecast.
        season: the length of a season.
        lags: the number of last values L.
        log: whether it works on logarithms.
        features: the number of covariates E that are known in advance, those of the calendar included.
        calendar: how many of them, the last ones, are features of the calendar.
        past: the number of past covariates.
        static: the number of features that do not change within a series.
        attention: of the steps of the horizon, where all are forecast at once: its score, or NO_ATTENTION.
        cell: the name of its cell.
        hidden_size: its hidden units.
        dropout: its dropout rate.
        distribution: of the next value, where it forecasts step by step.
    """

    horizon: int
    season: int
    lags: int
    log: bool = False
    features: int = 0
    cell: str = "gru"
    hidden_size: int = 64
    dropout: float = 0.1
    distribution: str = "student-t"
    calendar: int = 0
    past: int = 0
    static: int = 0
    attention: str = NO_ATTENTION

    def __post_init__(self) -> None:
        if (
            min(self.horizon, self.season, self.lags) < 1
            or min(self.calendar, self.features - self.calendar, self.hidden_size, self.past, self.static) < 0
        ):
            raise ValueError("the sizes of a network are above 0")

    @property
    def window(self) -> LinearForm:
        return LinearForm(self.horizon, self.season, self.lags, self.log, self.features, self.past, self.static)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class SeriesWindows(NamedTuple):
    """B windows, in units of their scales.

    Where a value is missing, that of the season before stands among the lags; among the targets anything may stand.
    """

    lags: Tensor  # (B, L)
    seen: Tensor  # (B, L) 1 where a lag is not missing
    context: Tensor  # (B, G) what is known of past and static covariates
    features: Tensor  # (B, L + H, E + G) covariates of each step; in the horizon the context stays as it is
    inputs: Tensor  # (B, H, 2 * E) covariates as the linear map reads them
    naive: Tensor  # (B, H) the values of the last season, which forecasts correct
    targets: Tensor  # (B, H)
    known: Tensor  # (B, H) whether a target is not missing
    levels: Tensor  # (B,) the value 0, on the scale of the panel; float64
    scales: Tensor  # (B,) the unit; float64

    @property
    def horizon(self) -> int:
        return self.targets.shape[1]

    @property
    def offsets(self) -> Tensor:
        """(B,) where the value 0 of the panel stands."""
        return (-self.levels / self.scales).float()


def batch_at(panel: Panel, places: IntArray) -> SeriesWindows:
    """The windows whose first targets stand at places (B,)."""
    form, windows = panel.form, windows_at(panel, places)
    span = min(form.season, form.lags)
    levels = sliding_window_view(panel.values, span)[places - span].mean(1)
    naive = (windows.naive - levels[:, None]) / windows.scales[:, None]
    steps = places[:, None] + np.arange(-form.lags, form.horizon)
    covariates = [panel.features[steps], panel.context[np.minimum(steps, places[:, None])]]
    targets = windows.targets.clip(-LARGEST_TARGET, LARGEST_TARGET) + naive
    return SeriesWindows(
        _tensor(windows.lags),
        _tensor(panel.observed[steps[:, : form.lags]]),
        _tensor(panel.context[places]),
        _tensor(np.concatenate(covariates, -1)),
        _tensor(windows.features),
        _tensor(naive),
        _tensor(targets),
        torch.from_numpy(~np.isnan(targets)),
        torch.from_numpy(levels),
        torch.from_numpy(windows.scales),
    )


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))


def pinball_loss(quantiles: Tensor, targets: Tensor, known: Tensor) -> Loss:
    """The summed pinball loss of quantiles (B, H, Q), a mean over levels; that of missing targets is 0."""
    errors = torch.where(known, targets, 0.0)[..., None] - quantiles
    losses = torch.maximum(LEVEL_TENSOR * errors, (LEVEL_TENSOR - 1) * errors).mean(-1)
    return Loss(torch.where(known, losses, 0.0).sum(), int(known.sum()))


class SeriesNetwork(nn.Module, ABC):
    """A network that forecasts all series of a set."""

    form: NetworkForm

    @abstractmethod
    def loss(self, batch: SeriesWindows) -> Loss:
        """The loss of the targets that are not missing."""

    @abstractmethod
    def quantiles(self, batch: SeriesWindows) -> Tensor:
        """The quantiles (B, H, Q) of the steps after the lags."""

    def start_from(self, panel: Panel, held_out: int) -> None:
        """Sets weights that can be computed from the windows before the last horizons of the series."""

    @torch.no_grad()
    def forecast(self, rows: SeriesRows, steps: int = 0) -> Array:
        """The quantiles (N, H, Q) after the ends of series, logarithms if it works on these.

        NaN for a series without any value. A network that forecasts step by step can be asked for other than H steps.
        """
        self.eval()
        form = replace(self.form, horizon=steps or self.form.horizon)
        found = np.full((len(rows.targets), form.horizon, len(QUANTILE_LEVELS)), np.nan)
        numbers = np.array([place for place, row in enumerate(rows.targets) if first_value(row) < len(row)], int)
        for begin in range(0, len(numbers), ROWS_AT_ONCE):
            some = numbers[begin : begin + ROWS_AT_ONCE]
            panel = panel_of(rows.at(some), form)
            batch = batch_at(panel, panel.ends)
            quantiles = batch.levels[:, None, None] + batch.scales[:, None, None] * self.quantiles(batch)
            found[some] = ordered(quantiles.numpy())
        return found


def panel_of(rows: SeriesRows, form: NetworkForm) -> Panel:
    """Series as a network sees them."""
    known = form.features - form.calendar
    panel = rows.panel(replace(form.window, features=known))
    if not form.calendar:
        return panel
    calendar = np.zeros((len(panel.values), form.calendar))
    for place, end, row, (start, frequency) in zip(panel.starts, panel.ends, rows.targets, rows.starts, strict=True):
        steps = end - place + form.horizon
        if count_calendar(frequency) == form.calendar:  # series of a run with times may have none
            times = frequency.range(start, steps, first=first_value(row))
            calendar[place : place + steps] = calendar_features(times, frequency)
    return panel._replace(form=form.window, features=np.concatenate([panel.features, calendar], 1))


def count_calendar(frequency: Frequency) -> int:
    """The number of features of the calendar that series with a step of time have."""
    return 2 * len(calendar_cycles(frequency))


class DrawnWindows:
    """Windows drawn at random, as a pure function of (seed, epoch): first a series, then a place in it.

    Args:
        panel: the series.
        held_out: the number of horizons at the end of each series that no target is from.
        batches: the number of batches of an epoch.
        size: the number of windows of a batch.
        seed: the random seed.
    """

    def __init__(self, panel: Panel, held_out: int, *, batches: int, size: int, seed: int) -> None:
        series, places = training_places(panel)
        usable = places + (held_out + 1) * panel.form.horizon <= panel.ends[series]
        self.panel, self.places = panel, places[usable]
        self.counts = np.bincount(series[usable], minlength=len(panel.ends))
        self.begins = np.cumsum(self.counts) - self.counts
        self.varied = np.flatnonzero(self.counts)  # series that have windows
        self.batches, self.size, self.seed = batches, size, seed

    def __len__(self) -> int:
        return len(self.places)

    def epoch(self, number: int, start: int = 0) -> Iterator[SeriesWindows]:
        for chosen in self._drawn(number, start):
            yield batch_at(self.panel, chosen)

    def sliced_epoch(self, number: int, start: int, slices: int) -> Iterator[Callable[[int], SeriesWindows | None]]:
        for chosen in self._drawn(number, start):
            yield partial(self._slice, chosen, slices)

    def _slice(self, chosen: IntArray, slices: int, part: int) -> SeriesWindows | None:
        own = chosen[part::slices]
        return batch_at(self.panel, own) if len(own) else None

    def _drawn(self, number: int, start: int) -> Iterator[IntArray]:
        random = np.random.default_rng((self.seed, number))
        for batch in range(self.batches):
            series = self.varied[random.integers(len(self.varied), size=self.size)]
            within = (random.random(self.size) * self.counts[series]).astype(np.int64)
            if batch >= start:
                yield self.places[self.begins[series] + within]
