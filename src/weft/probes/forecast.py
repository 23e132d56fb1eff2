"""Forecasts over the dates: history, forecast with intervals, baselines, residuals, and who forecasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from weft.pictures.figures import Array, Band, Bars, Curve, Curves, Figure
from weft.probes.parts import get_part
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult
from weft.tasks.operation import Option

FORECAST_HUE, HISTORY_HUE, BASELINE_HUES = (
    0,
    6,
    (4, 2, 3, 1, 5),
)  # the colours of the forecast, the history and the baselines
ALARM_HUE = 1
FORECAST_NAME = "weft"


@dataclass(frozen=True, eq=False)
class Forecast(ProbeResult):
    """A series and its forecast. T steps of history, H steps of the forecast.

    Attributes:
        reading: How a table was read, a line each.
        ids: The names of all series.
        id: The name of this one.
        channel: The name of the value that is forecast.
        times: The T + H times, as the input writes times.
        dates: The same in ISO 8601; empty where steps are only counted.
        history: (T,), NaN where missing.
        forecast: (H,), the median.
        intervals: The ends (2, H) of each interval, by its percent.
        baselines: (H,) of each baseline, by name.
        weights: The weight of each forecaster in the combination.
        earlier: (T,), what was forecast of the history from earlier cutoffs, one horizon apart, by the model that does
            not know the last horizon of its training data; NaN where nothing was.
        table: The forecast as the columns of a table, of this series or of all.
        anomalies: (T,) each, where they were asked for: "score", "anomaly" (1 where there is one), and the ends "lower"
            and "upper" of the values without an alarm.
        residuals: (T,), the history minus the earlier forecasts.
    """

    probe = "forecast"

    reading: tuple[str, ...]
    ids: tuple[str, ...]
    id: str
    channel: str
    times: tuple[str, ...]
    dates: tuple[str, ...]
    history: Array
    forecast: Array
    intervals: Mapping[str, Array]
    baselines: Mapping[str, Array]
    weights: Mapping[str, float]
    earlier: Array
    table: Mapping[str, Sequence[Any]]
    anomalies: Mapping[str, Array]
    residuals: Array

    def records(self) -> Iterator[dict[str, Any]]:
        """A row for each step, of the history first."""
        T = len(self.history)
        for step, time in enumerate(self.times):
            row: dict[str, Any] = {"id": self.id, "time": time, "value": None, FORECAST_NAME: None}
            if step < T:
                yield {**row, "value": self.history[step], "earlier": self.earlier[step]}
                continue
            ends = {
                f"{FORECAST_NAME}-{end}-{name}": both[number, step - T]
                for name, both in self.intervals.items()
                for number, end in enumerate(("lo", "hi"))
            }
            others = {name: values[step - T] for name, values in self.baselines.items()}
            yield {**row, FORECAST_NAME: self.forecast[step - T], **ends, **others}

    def figures(self) -> list[Figure]:
        """The forecast; what was forecast earlier, and its residuals; the weights, if there are several."""
        T, H = len(self.history), len(self.forecast)
        past, future = np.arange(T, dtype=np.float64), np.arange(T, T + H, dtype=np.float64)
        common: dict[str, Any] = {"dates": self.dates, "ticks": self.times, "x_label": "" if self.dates else "step"}
        name = self.id or self.channel
        known = np.isfinite(self.history)
        history = Curve("history", past[known], self.history[known], hue=HISTORY_HUE)
        joined = np.append(past[known][-1:], future), history.y[-1:]  # the fan begins at the last value
        figures: list[Figure] = [
            Curves(
                f"Forecast of {name}",
                (
                    *(
                        Curve(other, future, values, hue=hue, dashed=True)
                        for (other, values), hue in zip(self.baselines.items(), BASELINE_HUES, strict=False)
                    ),
                    history,
                    Curve("forecast", joined[0], np.append(joined[1], self.forecast), hue=FORECAST_HUE),
                ),
                bands=tuple(
                    Band(f"{percent}%", joined[0], np.append(joined[1], low), np.append(joined[1], high), FORECAST_HUE)
                    for percent, (low, high) in self.intervals.items()
                ),
                **common,
            )
        ]
        if self.anomalies:
            low, high = self.anomalies["lower"], self.anomalies["upper"]
            scored = np.isfinite(low + high)
            alarms = known & (self.anomalies["anomaly"] == 1)
            usual = Band("no alarm", past[scored], low[scored], high[scored])
            marked = Curve("anomaly", past[alarms], self.history[alarms], hue=ALARM_HUE, dots=True)
            figures.append(Curves(f"Anomalies of {name}", (history, marked), bands=(usual,), **common))
        if np.isfinite(self.residuals).any():
            shown = np.isfinite(self.earlier)
            earlier = Curve("forecast", past[shown], self.earlier[shown], hue=FORECAST_HUE)
            measured = np.isfinite(self.residuals)
            residuals = Curve("residual", past[measured], self.residuals[measured], hue=FORECAST_HUE)
            zero = Curve("0", past[shown], np.zeros(int(shown.sum())), hue=HISTORY_HUE, dashed=True)
            figures += [
                Curves(f"Earlier forecasts of {name}, {H} steps at a time", (history, earlier), **common),
                Curves(f"Residuals of {name}: history minus earlier forecasts", (zero, residuals), **common),
            ]
        if len(self.weights) > 1:
            shares = np.array(list(self.weights.values()))
            figures.append(Bars("Weights of the forecasters", tuple(self.weights), shares, best=0))
        return figures


def forecast(
    model: Any,
    text: str | None = None,
    *,
    data: Annotated[
        Any, Option("A table of series. Without it, and without TEXT, those of the run.", requests=())
    ] = None,
    future: Annotated[Any, Option("A table of the covariates known in advance.", requests=())] = None,
    series: Annotated[str, Option("The name of the series to show; without it the first.")] = "",
    channel: Annotated[str, Option("The name of the value, where a series has several; without it the first.")] = "",
    horizon: Annotated[int | None, Option("Steps to forecast; without it those of the training.", 1, 10_000)] = None,
    level: Annotated[str, Option("Intervals, in percent, with commas.")] = "80,95",
    baselines: Annotated[str, Option("Baselines beside it, with commas.")] = "",
    steps: Annotated[int | None, Option("Steps of history to show.", 2, 100_000)] = None,
    all_series: Annotated[
        bool, Option("A table of the forecasts of all series, not of this one alone.", flag="")
    ] = False,
    rate: Annotated[
        float | None, Option("Also anomalies, at this rate of false alarms for each value.", 1e-9, 0.5)
    ] = None,
) -> Forecast:
    """A series with its forecast, the intervals and baselines, and the residuals of earlier forecasts.

    Args:
        model: A loaded run of the forecast task.
        text: Series as a table (CSV), or as JSON such as `{"y": [1, 2, 3]}`; None: those of `data` or of the run.
        data: A file or a DataFrame of series.
        future: The covariates known in advance after them.
        series: The name of the series.
        channel: The name of the value.
        horizon: Steps to forecast.
        level: Intervals in percent.
        baselines: Names of baselines; "": the seasonal naive one, and that of the largest weight.
        steps: Steps of history.
        all_series: Whether the table has the forecasts of all series.
        rate: False alarms for each value, of anomalies; None: they are not looked for.

    Raises:
        WeftError: The model forecasts no series, or the data cannot be read.
    """
    view = get_part(model, text or "", "series")(
        data=data, future=future, series=series, channel=channel, horizon=horizon, level=level, baselines=baselines,
        steps=steps, all_series=all_series, rate=rate,
    )  # fmt: skip
    intervals = {name: np.stack(ends) for name, ends in view.intervals.items()}
    return Forecast(**{**view._asdict(), "intervals": intervals}, residuals=view.history - view.earlier)


PROBE = Probe(
    "forecast", "history, forecast with its intervals, baselines, residuals, weights of the forecasters", "series",
    forecast,
)  # fmt: skip
