"""What a forecaster shows of itself on one series: its forecast, those of baselines, and its earlier forecasts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from weft.errors import WeftError, short_repr, unknown_name
from weft.metrics.forecast import QUANTILE_LEVELS
from weft.series import SeriesSet, TimeSeries
from weft.tasks.forecast.baselines import BASELINES
from weft.tasks.forecast.calibration import MEDIAN, quantile_at
from weft.tasks.forecast.data import rows_of
from weft.tasks.forecast.direct import DirectNetwork
from weft.tasks.forecast.linear import Array
from weft.tasks.forecast.model import ForecastModel, SeriesRows, baseline_quantiles, by_map, medians, within_range
from weft.tasks.forecast.network import SeriesNetwork, batch_at, panel_of
from weft.tasks.forecast.predictor import ForecastPredictor, parse_levels
from weft.tasks.forecast.recurrent import RecurrentNetwork
from weft.tasks.inspection import Inspection, Network, SeriesView, StackUse
from weft.text.corpus import Document

LEAST_SHOWN = 40  # steps of history, if there are as many
MOST_CUTOFFS = 60  # from which the history is forecast


def read_text(predictor: ForecastPredictor, text: str) -> SeriesSet:
    """Series of a text: a table, or JSON; those of the run, if it is empty."""
    if not text.strip():
        return predictor.history
    if text.lstrip()[0] not in "{[":
        return predictor.read_series(Document.of_text(text, "the table"))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WeftError(f"the input {short_repr(text)} is no JSON: {error}", expected='{"y": [1, 2, 3]}') from error
    several = isinstance(value, list) and any(isinstance(one, dict) for one in value)
    return predictor.read_series(value if several else [value])


def view_series(
    predictor: ForecastPredictor,
    text: str = "",
    *,
    data: Any = None,
    future: Any = None,
    series: str = "",
    channel: str = "",
    horizon: int | None = None,
    level: str = "80,95",
    baselines: str = "",
    steps: int | None = None,
    all_series: bool = False,
    rate: float | None = None,
) -> SeriesView:
    """A series and its forecast.

    Args:
        predictor: The forecaster.
        text: The series as a table or as JSON.
        data: A file or a DataFrame of series instead of a text.
        future: The covariates known in advance after them.
        series: The name of the one to show; "": the first.
        channel: The name of the value; "": the first.
        horizon: Steps to forecast; None: those of the training.
        level: Intervals in percent.
        baselines: Baselines to forecast with, with commas; "": the seasonal naive one, and that of the largest weight.
        steps: Steps of history; None: some seasons and horizons.
        all_series: Whether the table has the forecasts of all series.
        rate: False alarms for each value, of anomalies; None: they are not looked for.
    """
    found = read_text(predictor, text) if data is None else predictor.read_series(data)
    ids = tuple(one.id for one in found)
    if series and series not in ids:
        raise unknown_name("the series", series, ids)
    if channel and channel not in found.channels:
        raise unknown_name("the channel", channel, found.channels)
    number = ids.index(series) if series else 0
    place = found.channels.index(channel) if channel else 0
    if future is not None:
        found = predictor.with_future(found, future)
    chosen = replace(found, series=(found.series[number],))
    model, levels = predictor.model, parse_levels(level)
    horizon = horizon or model.horizon
    quantiles = predictor.quantiles(chosen, horizon)[place]  # (H, Q)
    (one,) = chosen
    shown = min(len(one), steps or max(4 * horizon, 3 * model.season, LEAST_SHOWN))
    row = rows_of(chosen, predictor.layout).at([place])
    moments = np.concatenate([one.times[len(one) - shown :], one.future_times(horizon)])
    named = tuple(filter(None, (part.strip() for part in baselines.split(","))))
    for name in named:
        if name not in BASELINES:
            raise unknown_name("baseline", name, BASELINES)
    parts = baseline_quantiles(row.targets, horizon, model.season, named or _usual_baselines(predictor))
    return SeriesView(
        found.reading if data is not None or text.strip() else (),
        ids,
        one.id,
        found.channels[place],
        tuple(found.time_format.write(moments)),
        tuple(map(str, moments.astype("M8[s]"))) if found.frequency.has_times else (),
        one.target[len(one) - shown :, place],
        quantiles[:, MEDIAN],
        {name: (quantile_at(quantiles, 0.5 - share / 2), quantile_at(quantiles, 0.5 + share / 2))
         for name, share in sorted(levels.items(), key=lambda item: -item[1])},
        {name: within_range(part, row.targets)[0, :, MEDIAN] for name, part in parts.items()},
        _weights(predictor),
        _earlier(predictor, row, shown),
        predictor.forecasts(found if all_series else chosen, horizon, levels).columns(),
        {} if rate is None else _anomalies(predictor, one, place, shown, rate),
    )  # fmt: skip


def _anomalies(predictor: ForecastPredictor, one: TimeSeries, place: int, shown: int, rate: float) -> dict[str, Array]:
    (record,) = predictor.anomalies([one], rate=rate)
    columns = {"score": record.scores, "anomaly": record.anomalies.astype(np.float64)}
    columns |= {"lower": record.lower[:, place], "upper": record.upper[:, place]}
    found = {name: np.full(shown, np.nan) for name in columns}
    for name, values in columns.items():  # series that go on from the training are scored from its end on
        count = min(shown, len(values))
        found[name][shown - count :] = values[len(values) - count :]
    return found


def inspect_forecast(predictor: ForecastPredictor, text: str) -> Inspection:
    """The forecast of a series, and the recurrent network of the largest weight, if there is one."""
    series = partial(view_series, predictor, text)
    model = predictor.model
    names = [name for name in _weights(predictor) if isinstance(model, ForecastModel) and name in model.networks]
    recurrent = [name for name in names if hasattr(_networks(predictor)[name], "stack")]
    if not recurrent:
        return Inspection(series=series, missing={"network": "combines forecasters without recurrent layers"})
    return Inspection(series=series, network=partial(_view_network, predictor, text, recurrent[0]))


def _networks(predictor: ForecastPredictor) -> Mapping[str, SeriesNetwork]:
    return predictor.model.networks if isinstance(predictor.model, ForecastModel) else {}


def _view_network(predictor: ForecastPredictor, text: str, name: str) -> Network:
    """The network on the first series of a text: its steps are named by their times."""
    found = read_text(predictor, text)
    one = found.series[0]
    row = rows_of([one], predictor.layout).at([0])
    kind = next(iter(by_map(name, row.targets, _networks(predictor))), None)
    if kind is None:
        raise WeftError(f"{one.id or 'the series'} has no value", expected="a series of numbers")
    network = _networks(predictor)[kind].eval()
    panel = panel_of(row, network.form)
    batch = batch_at(panel, panel.ends)
    lags = network.form.lags
    past = found.time_format.write(one.frequency.range(one.start, lags, first=len(one) - lags))
    if isinstance(network, DirectNetwork):
        batch, size = network.prepared(batch), network.segment
        times = tuple(past[lags - size * network.segments :: size])
        future = tuple(found.time_format.write(one.future_times(network.form.horizon)))
        return Network(
            times,
            network.read(batch).detach(),
            lambda x: network.quantiles_after(x, batch),
            future,
            (MEDIAN,) * len(future),
            tuple(f"{level:.1%}" for level in QUANTILE_LEVELS),
            {"segments": StackUse(network.stack, times)},
            losses=lambda quantiles: quantiles[..., MEDIAN],  # there is no true value yet: what is forecast
        )
    assert isinstance(network, RecurrentNetwork)
    x = network.inputs(batch, batch.lags, batch.seen).detach()
    steps = x.shape[1]
    values, seen, scales = batch.lags[:, -steps:], batch.seen[:, -steps:], batch.scales.float()[:, None]

    def losses(parameters: Tensor) -> Tensor:
        return seen * network.distribution.losses(parameters, values, batch.offsets[:, None], scales)

    times = tuple(past[-steps:])
    parameters = tuple(f"parameter {number}" for number in range(1, network.distribution.size + 1))
    return Network(
        times, x, lambda inputs: network.parameters_of(inputs, None)[0], times, (0,) * steps, parameters,
        {"stack": StackUse(network.stack, times)}, losses=losses,
    )  # fmt: skip


def _weights(predictor: ForecastPredictor) -> dict[str, float]:
    """The weights of the forecasters that are combined, the largest first; none of a model that is one alone."""
    model = predictor.model
    weights = model.weights if isinstance(model, ForecastModel) else {}
    return {name: share for name, share in sorted(weights.items(), key=lambda item: -item[1]) if share > 0}


def _usual_baselines(predictor: ForecastPredictor) -> list[str]:
    """The seasonal naive baseline, and that of the largest weight."""
    naive = "snaive" if predictor.model.season > 1 else "naive"
    return list(dict.fromkeys([naive, *[name for name in _weights(predictor) if name in BASELINES][:1]]))


def _earlier(predictor: ForecastPredictor, row: SeriesRows, shown: int) -> Array:
    """What was forecast (shown,) of the last values of one row from cutoffs one horizon apart, before each.

    The model is the one that the evaluation has: it does not know the last horizon of the training data.
    """
    model, (target,) = predictor.held_out, row.targets
    least = model.season + 2
    cutoffs = np.array([
        cutoff for cutoff in range(len(target) - model.horizon, len(target) - shown - model.horizon, -model.horizon)
        if cutoff >= least and np.isfinite(target[:cutoff]).any()
    ][:MOST_CUTOFFS], np.int64)  # fmt: skip
    found = np.full(len(target), np.nan)
    if len(cutoffs):
        history = row.at([0] * len(cutoffs)).until(cutoffs)
        for cutoff, part in zip(cutoffs.tolist(), medians(model.quantiles(history)), strict=True):
            found[cutoff : cutoff + model.horizon] = part
    return found[len(target) - shown :]
