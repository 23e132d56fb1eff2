"""A trained forecaster in use: it forecasts, is evaluated, and is tried on earlier cutoffs."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, TypeVar

import numpy as np

from weft import html
from weft.config import from_dict
from weft.data.column import IntArray
from weft.errors import WeftError, short_repr, unknown_name
from weft.metrics.forecast import MASE, ForecastScores
from weft.metrics.paired import ExampleStatistics
from weft.series import Series, SeriesSet, TimeSeries
from weft.series.archives import series_of_json
from weft.tasks.forecast.anomalies import Detector
from weft.tasks.forecast.anomaly_records import (
    SeriesAnomalies,
    alarms_in_words,
    follow_series,
    lines_as_they_arrive,
    score_series,
)
from weft.tasks.forecast.backtest import backtest_record, backtest_table
from weft.tasks.forecast.baselines import BASELINES
from weft.tasks.forecast.calibration import MEDIAN, quantile_at
from weft.tasks.forecast.config import ForecastConfig
from weft.tasks.forecast.data import (
    continued,
    read_future,
    read_like_training,
    rows_of,
    stored_set,
    with_future,
)
from weft.tasks.forecast.evaluation import Forecasters, finite, lines_of, scores_at, statistics_at, summed
from weft.tasks.forecast.hmm import RegimeModel
from weft.tasks.forecast.kinds import FORECAST_KINDS, fit_model
from weft.tasks.forecast.linear import Array
from weft.tasks.forecast.model import Forecaster, ForecastModel, SeriesRows, within_range
from weft.tasks.operation import (
    EvaluationData,
    EvaluationReport,
    Operation,
    OperationInputs,
    Option,
    ReadInputs,
    operation,
)
from weft.tasks.predictor import NO_OPTIONS, ResultList, TaskPredictor
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, is_stored
from weft.training.run import Run

FORECAST_COLUMN = "weft"  # the column of forecasts, where there is one channel
DEFAULT_LEVELS, MOST_LEVELS = "80,95", 20
NUMBER_LIST = {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "minItems": 1}
VALUES = {"anyOf": [NUMBER_LIST, {"type": "array", "items": NUMBER_LIST, "minItems": 1}]}
TEXT_OR_NUMBER = {"anyOf": [{"type": "string"}, {"type": "number"}]}
SERIES_INPUT: Mapping[str, Any] = {
    "anyOf": [
        NUMBER_LIST,
        {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "unique_id": {"type": "string"},
                "start": TEXT_OR_NUMBER,
                "ds": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "array", "items": TEXT_OR_NUMBER}]},
                "freq": {"type": "string"},
                "y": VALUES,
                "known": VALUES,
                "past": VALUES,
                "static": {"type": "array", "items": TEXT_OR_NUMBER},
            },
            "required": ["y"],
            "additionalProperties": False,
        },
    ]
}
ComparedForecasters = Annotated[
    tuple[str, ...],
    Option("Another run, or baselines such as snaive,ets, to compare with by a paired test over series; repeatable."),
]
Levels = Annotated[str, Option("Intervals to give, in percent, with commas.")]
Rate = Annotated[float, Option("False alarms for each value: 0.001 is one in 1,000 values.", 1e-9, 0.5)]
Follow = Annotated[
    bool,
    Option("Score each line of standard input when it arrives: VALUE, TIME,VALUE or NAME,TIME,VALUE.", requests=()),
]
Horizon = Annotated[int | None, Option("Steps to forecast; without it those of the training.", 1, 10_000)]


@dataclass(frozen=True)
class SeriesForecast:
    """The forecast of one series.

    Attributes:
        id: the name of the series.
        times: (H,) the time of each step, as the input writes times.
        channels: the names of the channels.
        values: (H, C) the median of each step.
        intervals: the lower and the upper end (H, C) of each interval, by its percent.
        named: whether the series has a name.
        moments: (H,) the times as datetime64, or integers.
    """

    id: str
    times: tuple[str, ...]
    channels: tuple[str, ...]
    values: Array
    intervals: Mapping[str, tuple[Array, Array]]
    named: bool
    moments: Array

    def columns(self) -> dict[str, list[Any]]:
        """The columns of a table, by the names that Nixtla's libraries give them."""
        found: dict[str, list[Any]] = {"unique_id": [self.id] * len(self.times)} if self.named else {}
        found["ds"] = list(self.times)
        for place, channel in enumerate(self.channels):
            name = FORECAST_COLUMN if len(self.channels) == 1 else channel
            found[name] = self.values[:, place].tolist()
            for percent, (low, high) in self.intervals.items():
                found[f"{name}-lo-{percent}"] = low[:, place].tolist()
                found[f"{name}-hi-{percent}"] = high[:, place].tolist()
        return found

    def to_text(self, number: int) -> str:
        """Rows of CSV; the first series has the names of the columns above."""
        columns = self.columns()
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        if not number:
            rows.writerow(columns)
        rows.writerows(
            [f"{value:.10g}" if isinstance(value, float) else value for value in row]
            for row in zip(*columns.values(), strict=True)
        )
        return text.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Without what depends on the other series: a name stands where this one has it."""
        found = {name: [_plain(value) for value in values] for name, values in self.columns().items()}
        found.pop("unique_id", None)
        return {**({"unique_id": self.id} if self.id else {}), **found}

    def records(self) -> Iterator[dict[str, Any]]:
        """A row for each step."""
        columns = self.columns()
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))

    def _repr_html_(self) -> str:
        names, rows = list(self.columns()), zip(*self.columns().values(), strict=True)
        shown = [
            (str(row[names.index("ds")]), [(f"{value:.6g}", 0.0, "") for value in row if isinstance(value, float)])
            for row in rows
        ]
        wide = [name for name in names if name not in ("unique_id", "ds")]
        return html.box(html.heading(self.id or "Forecast") + html.table(shown, wide, "ds"))


SeriesResult = TypeVar("SeriesResult", SeriesForecast, SeriesAnomalies)


class SeriesResults(ResultList[SeriesResult]):
    """What a forecaster says of each series: forecasts, or anomaly scores."""

    def records(self) -> Iterator[dict[str, Any]]:
        for one in self:
            yield from one.records()

    def to_dataframe(self) -> Any:
        """A row for each step of each series, as a pandas DataFrame; times are times.

        Raises:
            WeftError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise WeftError("pandas is not installed", expected="pandas", hint="pip install pandas") from error
        return pandas.DataFrame(self.table())

    def columns(self) -> dict[str, list[Any]]:
        """The columns of a table; times as the input writes them."""
        joined: dict[str, list[Any]] = {}
        for one in self:
            for name, values in one.columns().items():
                joined.setdefault(name, []).extend(values)
        return joined

    def table(self) -> dict[str, Any]:
        """The columns of a DataFrame; times are times."""
        return {**self.columns(), **({"ds": np.concatenate([one.moments for one in self])} if self else {})}


@dataclass(frozen=True, repr=False)
class ForecastPredictor(TaskPredictor):
    """A trained forecaster, ready for use.

    Attributes:
        run: the run.
        model: what forecasts.
        held_out: the model that does not know the last horizon of the training data, which evaluates it.
        layout: what the series have in common.
    """

    run: Run
    model: Forecaster
    held_out: Forecaster
    layout: Series

    def __repr__(self) -> str:
        return f"ForecastPredictor({str(self.run.path)!r}, horizon {self.model.horizon}, {self.model.summary})"

    @cached_property
    def config(self) -> ForecastConfig:
        return from_dict(ForecastConfig, self.run.config)

    @cached_property
    def history(self) -> SeriesSet:
        """The series of the run, to their latest values."""
        found = stored_set(self.run, TRAIN_PART, self.layout)
        return self._continued(found, stored_set(self.run, DEV_PART, self.layout)) if self._has_dev else found

    @property
    def _has_dev(self) -> bool:
        return is_stored(self.run, DEV_PART)

    @property
    def example(self) -> str:
        """Two seasons of a wave."""
        steps = np.arange(max(8, 2 * self.model.season))
        wave = 10 + np.sin(2 * np.pi * steps / max(4, self.model.season))
        width = len(self.layout.channels)
        values = wave.round(2).tolist() if width == 1 else [[value] * width for value in wave.round(2).tolist()]
        return "" if self.layout.known or self.layout.past else json.dumps({"y": values})

    @operation(
        "forecast",
        OperationInputs(
            'Series as JSON: {"y": [1, 2, 3], "start": "2024-01-31"}, or [1, 2, 3]; without any those of --data.',
            "The same as --data.",
            schema=SERIES_INPUT,
        ),
    )
    def forecast(
        self,
        series: Any = None,
        *,
        horizon: Horizon = None,
        level: Levels = DEFAULT_LEVELS,
        future: Any = None,
    ) -> ResultList[SeriesForecast]:
        """Forecast the next values of series, as CSV: time, median, and the ends of intervals.

        The columns are those of Nixtla's libraries (unique_id, ds, weft, weft-lo-80, weft-hi-80); times are written as
        in the input. Without series, those of the training are continued.

        Args:
            series: a file, a DataFrame, a list of series (TimeSeries, dicts with "y", or lists of numbers); None: those
                of the training.
            horizon: steps to forecast; beyond those of the training, forecasts are fed back.
            level: intervals in percent, such as "80,95".
            future: a file or DataFrame of the covariates known in advance, after the last values.

        Returns:
            A forecast for each series; for a DataFrame a DataFrame of the same library.
        """
        levels, found = parse_levels(level), self.read_series(series)
        if future is not None:
            found = self.with_future(found, future)
        results = self.forecasts(found, horizon or self.model.horizon, levels)
        if is_dataframe(series):
            table: ResultList[SeriesForecast] = self._dataframe(series, results.table())
            return table
        return results

    def forecasts(self, found: SeriesSet, steps: int, levels: Mapping[str, float]) -> SeriesResults[SeriesForecast]:
        """The forecast of each series; `levels` are the shares of intervals by their percent.

        Raises:
            WeftError: a covariate is not known for all steps.
        """
        quantiles = self.quantiles(found, steps)
        channels, results, named = (
            self.layout.channels,
            SeriesResults[SeriesForecast](),
            len(found) > 1 or any(one.id for one in found),
        )
        for number, one in enumerate(found):
            part = quantiles[number * len(channels) : (number + 1) * len(channels)].swapaxes(0, 1)  # (H, C, Q)
            intervals = {
                percent: (quantile_at(part, 0.5 - share / 2), quantile_at(part, 0.5 + share / 2))
                for percent, share in levels.items()
            }
            moments = one.future_times(steps)
            times = tuple(found.time_format.write(moments))
            results.append(SeriesForecast(one.id, times, channels, part[..., MEDIAN], intervals, named, moments))
        return results

    @cached_property
    def detector(self) -> Detector:
        """What scores anomalies, fitted to the series of the training.

        Raises:
            WeftError: their data were deleted.
        """
        if not self._has_data:
            raise WeftError(
                f"{self.run.path} has no training data any more", expected="its folder data/, to calibrate alarms"
            )
        rows = rows_of(stored_set(self.run, TRAIN_PART, self.layout), self.layout)
        return FORECAST_KINDS[self.config.model.kind].detector(self.model, rows.targets, self.model.season)

    def regimes(self, series: Any = None) -> list[IntArray]:
        """The most probable states (T,) of each channel of series, the Viterbi path of a model of `model.kind=hmm`.

        Args:
            series: as in `forecast`.
        """
        if not isinstance(self.model, RegimeModel):
            raise WeftError(
                f"{self.run.path} is a run of `model.kind={self.config.model.kind}`",
                expected="`model.kind=hmm`, which has regimes",
            )
        return self.model.regimes(rows_of(self.read_series(series), self.layout).targets)

    @cached_property
    def _trained(self) -> dict[str, TimeSeries]:
        return {one.id: one for one in stored_set(self.run, TRAIN_PART, self.layout)}

    @operation(
        "anomalies",
        OperationInputs(
            'Series as JSON: {"y": [1, 2, 3], "start": "2024-01-31"}, or [1, 2, 3]; without any those of --data.',
            "The same as --data.",
            schema=SERIES_INPUT,
        ),
    )
    def anomaly_records(
        self, series: Any = None, *, rate: Rate = 0.001, follow: Follow = False
    ) -> Iterator[SeriesAnomalies]:
        """Score each value of series by how improbable it is after those before it, as CSV: ds, y, score, anomaly.

        A score of 3 is reached by 1 in 1,000 values without an anomaly. Series that go on from those of the training
        are scored from their first value on; of others the first season has no score. With --follow, --data is what
        came before the lines of standard input.
        """
        if follow:
            yield from self.follow_anomalies(lines_as_they_arrive(sys.stdin), series, rate=rate)
        else:
            yield from score_series(self.detector, self.read_series(series), self._trained, rate=rate)

    def anomalies(self, series: Any = None, *, rate: float = 0.001) -> ResultList[SeriesAnomalies]:
        """The anomaly scores of series.

        Args:
            series: a file, a DataFrame, a list of series (TimeSeries, dicts with "y", or lists of numbers); None: those
                of the training.
            rate: false alarms for each value; neighbours above the threshold are one alarm.

        Returns:
            Scores for each series; for a DataFrame a DataFrame of the same library.
        """
        results = SeriesResults(self.anomaly_records(series, rate=rate))
        if is_dataframe(series):
            table: ResultList[SeriesAnomalies] = self._dataframe(series, results.table())
            return table
        return results

    def _dataframe(self, source: Any, columns: Mapping[str, Any]) -> Any:
        """Columns as a DataFrame of the library of another; names of series are integers where they were."""
        ids = [name for name in self.layout.columns.id or () if name in list(source.columns)]
        if len(ids) == 1 and "unique_id" in columns and np.asarray(source[ids[0]].to_numpy()).dtype.kind in "iu":
            columns = {**columns, "unique_id": np.array(columns["unique_id"]).astype(np.int64)}
        return type(source)(columns)

    def follow_anomalies(
        self, lines: Iterable[str], series: Any = None, *, rate: float = 0.001
    ) -> Iterator[SeriesAnomalies]:
        """The score of each line when it arrives: `value`, `time,value`, `name,time,value`, or JSON with "y".

        Args:
            lines: such as an open file; a first line may name the columns.
            series: what came before; None: the series of the training.
            rate: false alarms for each value.
        """
        found = self.read_series(series)
        yield from follow_series(self.detector, found, self._trained, lines, self.layout, rate=rate)

    def quantiles(self, series: SeriesSet, steps: int) -> Array:
        """The quantiles (N, steps, Q) after the ends of all channels; beyond the horizon, medians are fed back.

        Raises:
            WeftError: a covariate is not known for all steps.
        """
        self._check_future(series, steps)
        rows = rows_of(series, self.layout)
        model = self.model
        found = model.quantiles(rows, steps) if isinstance(model, ForecastModel) else model.quantiles(rows)
        while found.shape[1] < steps:
            targets = [np.concatenate([row, part[:, MEDIAN]]) for row, part in zip(rows.targets, found, strict=True)]
            further, last = self.model.quantiles(rows._replace(targets=targets)), found[:, -1:]
            middle, spread = further[..., MEDIAN, None], last - last[..., MEDIAN, None]
            distances = further - middle  # errors of both stretches add up
            further = middle + np.sign(distances + spread) * np.hypot(distances, spread)
            found = np.concatenate([found, within_range(further, rows.targets)], 1)
        return found[:, :steps]

    def _check_future(self, found: SeriesSet, steps: int) -> None:
        for one in found:
            after = one.known[len(one) : len(one) + steps]
            for place, name in enumerate(self.layout.known):
                known = int((~np.isnan(after[:, place])).sum())
                if known < steps:
                    raise WeftError(
                        f"the covariate {name!r} of {one.id or 'the series'} is known for {known} of the {steps} steps "
                        "to forecast",
                        expected="all of them",
                        hint="`future=FILE`, or a smaller `horizon`",
                    )

    def with_future(self, found: SeriesSet, source: Any) -> SeriesSet:
        """Series whose covariates go on with those of a file or a DataFrame."""
        after = read_future(source, self.layout, self.config.data)
        only = next(iter(after.values())) if len(after) == len(found) == 1 else None
        series = []
        for one in found:
            own = after.get(one.id, only)
            if own is None:
                raise WeftError(f"the future has no series {one.id!r}", expected=f"one of {', '.join(list(after)[:5])}")
            series.append(with_future(one, own, self.layout.known))
        return replace(found, series=tuple(series))

    def read_series(self, source: Any = None) -> SeriesSet:
        """Series as a command or a caller gives them; None: those of the run."""
        if source is None:
            return self.history
        if isinstance(source, SeriesSet) or not isinstance(source, list | tuple):
            return read_like_training(source, self.layout, self.config.data)
        if all(isinstance(one, TimeSeries) for one in source) and source:
            return read_like_training(self.layout.set_of(source), self.layout, self.config.data)
        return self._from_json(source)

    def _from_json(self, values: Sequence[Any]) -> SeriesSet:
        """Series of JSON values: objects with "y", or lists of numbers."""
        records = [dict(one) if isinstance(one, Mapping) else {"y": one} for one in values]
        for place, one in enumerate(records):
            if not isinstance(one.get("y"), list | tuple | np.ndarray):
                raise WeftError(f"series {place + 1} is {short_repr(values[place])}", expected='{"y": [numbers]}')
            one["y"] = np.asarray(one["y"], object).tolist()
        layout, timed = self.layout, any("start" in one or "ds" in one for one in records)
        names = [f"series {place + 1}" for place in range(len(records))]
        if not records:
            return layout.set_of(())
        form = layout.time_format if timed else None
        found = series_of_json(
            records, names, frequency=layout.frequency if timed else None, form=form, channels=layout.channels
        )
        return read_like_training(found, layout, self.config.data)

    def read_inputs(
        self,
        operation: Operation,
        texts: Sequence[str],
        file: str | None,
        *,
        data: Annotated[str | None, Option("Series to forecast: a table as in training.")] = None,
        future: Annotated[
            str | None, Option("A table of the covariates known in advance, after the last values.")
        ] = None,
    ) -> ReadInputs:
        """The series of a command: those of a table, of JSON values, or of the run."""
        source = data if file is None else file
        if texts and source is not None:
            raise WeftError("there are series and a `data`", expected="one of the two")
        if texts:
            found, notes = self._from_json(super().read_inputs(operation, texts, None).inputs), []
        else:
            found = self.read_series(source)
            notes = [] if source is None else ["; ".join(found.reading)]
        if future is not None:
            found = self.with_future(found, future)
        return ReadInputs(found, [note for note in notes if note])  # type: ignore[arg-type]

    def notes(self, texts: Any, options: Mapping[str, Any] = NO_OPTIONS) -> list[str]:
        """What a user should know: series without values, and a longer horizon than that of the training."""
        found = texts if isinstance(texts, SeriesSet) else self.read_series(texts)
        empty = [one.id for one in found if not np.isfinite(one.target).any()]
        notes = [f"{', '.join(empty[:5])} had no values: there is no forecast"] if empty else []
        if (options.get("horizon") or 0) > self.model.horizon:
            notes.append(f"the model forecasts {self.model.horizon} steps; beyond them forecasts are fed back")
        if "rate" in options:
            notes.append(alarms_in_words(options["rate"], self.layout.frequency))
        return notes

    @operation("evaluate", command="eval")
    def evaluation(self, data: EvaluationData = None, *, against: ComparedForecasters = ()) -> EvaluationReport:
        """MASE, sMAPE, scaled CRPS and coverage of intervals, beside the best baseline; `against` others, paired tests.

        Without data, the last horizon of each series, forecast by a model that does not know it. Series that go on from
        those of the run are forecast horizon by horizon; of others the last horizon is.
        """
        scores = self.held_out_scores() if data is None else self._later_scores(data)
        report = self._report(scores)
        if against:
            from weft.tasks.forecast.comparison import compare_forecasters

            compared, lines = compare_forecasters(self, against, data)
            return EvaluationReport({**report.record, "compared": compared}, [*report.lines, *lines])
        return report

    def evaluate(self, data: Any = None) -> dict[str, float]:
        """The metrics of `evaluation` by name, of a file or a DataFrame."""
        scores = self.held_out_scores() if data is None else self._later_scores(data)
        return finite(scores[""].metrics())

    def _report(self, scores: Mapping[str, ForecastScores]) -> EvaluationReport:
        own = scores[""]
        metrics, best = finite(own.metrics()), best_baseline(scores)
        record = {**metrics, "series": own.series, "steps": own.steps, "signature": own.signature()}
        lines = [*lines_of(metrics), f"{'series':<14} {own.series:,}", f"{'values':<14} {own.steps:,}"]
        if best:
            record["baselines"] = {best: scores[best].score()}
            lines.append(f"{best}, the best baseline: {MASE.name} {scores[best].score():.4f}")
        return self.report(record, lines)

    def held_out_metrics(self) -> dict[str, float]:
        return finite(self.held_out_scores()[""].metrics())

    def held_out_scores(self) -> dict[str, ForecastScores]:
        """The scores of the run's own held-out data: of the model ("") and of each baseline."""
        return self._scores(*self.held_out_windows())

    def held_out_statistics(self) -> tuple[ExampleStatistics, ...]:
        model, rows, cutoffs = self.held_out_windows()
        return statistics_at(_forecasters(model, ()), rows, cutoffs, model.horizon, model.season)[""]

    def _scores(self, model: Forecaster, rows: SeriesRows, windows: Sequence[IntArray]) -> dict[str, ForecastScores]:
        scores = [scores_at(_forecasters(model), rows, one, model.horizon, model.season) for one in windows]
        return summed(scores)

    def _later_scores(self, data: Any) -> dict[str, ForecastScores]:
        return self._scores(*self.later_windows(data))

    def held_out_windows(self) -> tuple[Forecaster, SeriesRows, list[IntArray]]:
        """What the run's own held-out data asks: the model to evaluate, the series, and the cutoffs of each window."""
        if self._has_dev:
            return self.later_windows(stored_set(self.run, DEV_PART, self.layout))
        rows = rows_of(stored_set(self.run, TRAIN_PART, self.layout), self.layout)
        return self.held_out, rows, [np.array([len(row) - self.model.horizon for row in rows.targets])]

    def later_windows(self, data: Any) -> tuple[Forecaster, SeriesRows, list[IntArray]]:
        """The same of later values of known series, horizon by horizon, and of the last horizon of others."""
        later, horizon = read_like_training(data, self.layout, self.config.data), self.model.horizon
        trained = {one.id: one for one in stored_set(self.run, TRAIN_PART, self.layout)} if self._has_data else {}
        series, begins = [], []
        for one in later:
            own = trained.get(one.id)
            whole = one if own is None else continued(own, one)
            goes_on = own is not None and len(whole) > len(own) and whole.start == own.start
            series.append(whole)
            begins.append(len(own) if own is not None and goes_on else max(1, len(one) - horizon))
        rows, channels = rows_of(series, self.layout), len(self.layout.channels)
        cutoffs = np.repeat(begins, channels)
        most = max((len(row) - begin for row, begin in zip(rows.targets, cutoffs, strict=True)), default=0)
        if most <= 0:
            raise WeftError(f"{short_repr(data)} has no series", expected="series to evaluate on")
        return self.model, rows, [cutoffs + step for step in range(0, most, horizon)]

    @property
    def _has_data(self) -> bool:
        return is_stored(self.run, TRAIN_PART)

    def _continued(self, earlier: SeriesSet, later: SeriesSet) -> SeriesSet:
        after = {one.id: one for one in later}
        return replace(
            earlier, series=tuple(continued(one, after[one.id]) if one.id in after else one for one in earlier)
        )

    @operation("backtest")
    def backtest_report(
        self,
        data: Annotated[str | None, Option("Series; without it those of the run.")] = None,
        *,
        windows: Annotated[int, Option("How many cutoffs there are.", 1, 1000)] = 5,
        step: Annotated[int | None, Option("Steps between cutoffs; without it the horizon.", 1)] = None,
        refit: Annotated[bool, Option("Fit the model anew at each cutoff, and not at the first one only.")] = False,
        against: Annotated[str | None, Option("Baselines to compare with, with commas; all: every one.")] = None,
        keep: Annotated[int, Option("The first series whose forecasts --json has, for weft plot.", 0, 1000)] = 3,
    ) -> EvaluationReport:
        """Forecast from earlier cutoffs, as if what came after were not known, and score the forecasts.

        The model is fitted to what stands before the first cutoff. `weft plot` draws what --json gives.
        """
        series = self.read_series(data)
        models = self._backtest_models(series, windows=windows, step=step, refit=refit)
        found = self._backtest_scores(series, models, baselines_of(against))
        names = list(found[0])
        total = summed(found)
        metrics = {name: finite(one.metrics()) for name, one in total.items()}
        lines = [f"{'window':<8}" + "".join(f"{name or FORECAST_COLUMN:>14}" for name in names) + "   MASE"]
        for number, scores in enumerate(found, start=1):
            lines.append(f"{number:<8}" + "".join(f"{scores[name].score():14.4f}" for name in names))
        lines += [f"{'all':<8}" + "".join(f"{total[name].score():14.4f}" for name in names), "", *lines_of(metrics[""])]
        record = {
            **metrics[""],
            "windows": [{name or FORECAST_COLUMN: one.score() for name, one in scores.items()} for scores in found],
            "against": {name: metrics[name] for name in names if name},
            "signature": total[""].signature(),
            "forecasts": backtest_record(series, rows_of(series, self.layout), models, baselines_of(against), keep),
        }
        return self.report(record, lines)

    def backtest(
        self, data: Any = None, *, windows: int = 5, step: int | None = None, refit: bool = False, against: str = ""
    ) -> Any:
        """The scores at each cutoff, the earliest first, of the model ("") and of baselines by name.

        For a DataFrame all forecasts as a DataFrame of the same library, with the columns of Nixtla's libraries:
        unique_id, ds, cutoff, y, weft, weft-lo-80, ..., and the baselines.

        Args:
            data: a file or a DataFrame; None: the series of the run.
            windows: how many cutoffs there are.
            step: steps between cutoffs; None: the horizon.
            refit: whether the model is fitted anew at each cutoff.
            against: baselines to compare with, with commas; "all": every one.
        """
        series = self.read_series(data)
        models = self._backtest_models(series, windows=windows, step=step, refit=refit)
        if is_dataframe(data):
            rows, levels = rows_of(series, self.layout), parse_levels(DEFAULT_LEVELS)
            return self._dataframe(data, backtest_table(series, rows, models, baselines_of(against), levels))
        return self._backtest_scores(series, models, baselines_of(against))

    def _backtest_scores(
        self, series: SeriesSet, models: Sequence[tuple[Forecaster, IntArray]], names: Sequence[str]
    ) -> list[dict[str, ForecastScores]]:
        rows, horizon, season = rows_of(series, self.layout), self.model.horizon, self.model.season
        return [scores_at(_forecasters(model, names), rows, cutoffs, horizon, season) for model, cutoffs in models]

    def _backtest_models(
        self, series: SeriesSet, *, windows: int, step: int | None, refit: bool
    ) -> list[tuple[Forecaster, IntArray]]:
        """The model of each window, the earliest first, and the cutoffs of its rows."""
        rows, horizon = rows_of(series, self.layout), self.model.horizon
        lengths = np.array([len(row) for row in rows.targets])
        found: list[tuple[Forecaster, IntArray]] = []
        for number in range(windows):
            cutoffs = lengths - horizon - (step or horizon) * (windows - 1 - number)
            model = self._fitted_before(rows, cutoffs) if refit or not found else found[0][0]
            found.append((model, cutoffs))
        return found

    def _fitted_before(self, rows: SeriesRows, cutoffs: IntArray) -> Forecaster:
        chosen = np.flatnonzero(cutoffs > self.model.horizon)
        if not len(chosen):
            longest = max((len(row) for row in rows.targets), default=0)
            raise WeftError(
                f"the longest series has {longest} values, too few for these windows",
                expected="more than one horizon before the first cutoff",
                hint="fewer `windows`",
            )
        history = rows.at(chosen).until(cutoffs[chosen])
        return fit_model(history, self.config)


def _forecasters(model: Forecaster, names: Sequence[str] = BASELINES) -> Forecasters:
    """The model ("") and baselines by name."""
    return lambda rows: model.with_baselines(rows, names)


def baselines_of(against: str | None) -> tuple[str, ...]:
    """Baselines by their names with commas; "all": every one."""
    if against == "all":
        return tuple(BASELINES)
    names = tuple(filter(None, (name.strip() for name in (against or "").split(","))))
    for name in names:
        if name not in BASELINES:
            raise unknown_name("baseline", name, BASELINES)
    return names


def best_baseline(scores: Mapping[str, ForecastScores]) -> str:
    """The baseline of the least MASE; "" if there is none."""
    found = {name: one.score() for name, one in scores.items() if name in BASELINES and np.isfinite(one.score())}
    return min(found, key=lambda name: found[name]) if found else ""


def parse_levels(level: str | Sequence[float]) -> dict[str, float]:
    """The shares of intervals by their percent, as names of columns have it.

    >>> parse_levels("80,95")
    {'80': 0.8, '95': 0.95}
    """
    parts = level.split(",") if isinstance(level, str) else [level] if isinstance(level, int | float) else level
    try:
        found = {f"{float(part):g}": float(part) / 100 for part in parts if str(part).strip()}
    except (TypeError, ValueError):
        found = {"": 0.0}
    if not all(0 < share < 1 for share in found.values()):
        raise WeftError(
            f"the level is {short_repr(level)}", expected="percent between 0 and 100", hint='`level="80,95"`'
        )
    if len(found) > MOST_LEVELS:
        raise WeftError(f"the level names {len(found):,} intervals", expected=f"at most {MOST_LEVELS}")
    return found


def is_dataframe(source: Any) -> bool:
    """Whether something is a DataFrame, of pandas or polars."""
    return hasattr(source, "columns") and hasattr(source, "__getitem__") and not isinstance(source, SeriesSet | Mapping)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
