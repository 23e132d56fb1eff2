"""The forecast task: how forecasters of series are trained and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.config import AUTO, auto_settings, dotted, from_dict, load_config, resolve_auto, to_dict
from weft.data.field import fields_content
from weft.data.inputs import InputKind, input_kind
from weft.errors import WeftError
from weft.metrics.forecast import MASE
from weft.series import Series
from weft.tasks.forecast.config import ForecastConfig
from weft.tasks.forecast.data import (
    read_like_training,
    read_set,
    rows_of,
    store_set,
    stored_set,
)
from weft.tasks.forecast.fitting import HELD, OWN, ForecastPhase
from weft.tasks.forecast.inspection import inspect_forecast
from weft.tasks.forecast.kinds import FORECAST_KINDS
from weft.tasks.forecast.model import NETWORKS
from weft.tasks.forecast.predictor import ForecastPredictor
from weft.tasks.inspection import Inspection
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, is_stored
from weft.tasks.task import Task
from weft.training.build import cells_of
from weft.training.run import CONFIG, WEIGHTS, Run, decoding, finite_weights

HORIZON, SEASON, LAGS = "model.horizon", "model.season", "model.lags"
COVARIATE_KINDS = ("auto", "linear", *NETWORKS)
USUAL_HORIZON = 6  # of series without a season


class ForecastTask(Task[Any, ForecastConfig, ForecastPredictor]):
    """Fits forecasters of series, and combines them."""

    name = "forecast"
    summary = "Train a forecaster of numeric series: it predicts the next values, with intervals."
    details = (
        "Columns of names, times and values are found by usual names (unique_id, ds, y), or named by --id, --time and "
        "--target. Missing values are left out."
    )
    data_help = "Series: CSV, TSV, JSON lines, Parquet, .tsf, .ts or arrays, also as .gz."
    dev_help = "Later values of the series; without them the last horizon of each series is held out to evaluate."
    predictors = (ForecastPredictor,)
    config_class = ForecastConfig
    inputs = ("series",)
    metric = MASE

    def kind_of(self, source: Any, config: ForecastConfig) -> InputKind | None:
        """A table with names of series looks like text; what is no series is refused by line when it is read."""
        found = input_kind(source)
        return InputKind("series", "as the task reads it") if found and found.kind == "text" else found

    def read(
        self, source: Any, dev: Any, config: ForecastConfig, folder: Path, origin: Run | None = None
    ) -> Mapping[str, Any]:
        if origin is not None:
            raise WeftError("forecasters are fitted anew, not fine-tuned", expected="a new run on all the data")
        found = read_set(source, config.data)
        layout = Series.fit(found, found)
        store_set(folder, TRAIN_PART, found)
        if dev is not None:
            store_set(folder, DEV_PART, read_like_training(dev, layout, config.data))
        covariates, kind, reading = [*layout.known, *layout.past, *layout.static], config.model.kind, [*found.reading]
        if covariates and kind not in COVARIATE_KINDS:
            words = f"{', '.join(covariates)} {'is' if len(covariates) == 1 else 'are'} left out"
            reading.append(f"model.kind={kind} reads no covariates: {words}")
        return fields_content({"series": layout}, description="; ".join(reading), notes=[])

    def choose(self, run: Run, config: ForecastConfig) -> tuple[ForecastConfig, str]:
        layout = run.field("series", Series)
        found = stored_set(run, TRAIN_PART, layout)
        length = int(np.median([len(one) for one in found]))
        usual = layout.frequency.season
        season = usual if length >= 2 * usual + 2 else 1
        asked = config.model.season if SEASON not in auto_settings(config) else season
        values = {SEASON: season, HORIZON: asked if asked > 1 else USUAL_HORIZON}
        open_settings = [name for name in (SEASON, HORIZON) if name in auto_settings(config)]
        chosen = resolve_auto(config, values)
        horizon, longest = chosen.model.horizon, max(len(one) for one in found)
        if chosen.model.season >= longest:
            raise WeftError(
                f"a season is {chosen.model.season} steps, and the longest series has {longest}",
                expected="series longer than a season",
                hint=f"`--season {season}`" if season > 1 else "`--season 1`: no season",
            )
        if horizon >= longest:
            raise WeftError(
                f"the horizon is {horizon} steps, and the longest series has {longest}",
                expected="series longer than the horizon",
                hint=f"`model.horizon={max(1, length // 4)}`",
            )
        words = ", ".join(f"{name.partition('.')[2]} {values[name]}" for name in open_settings)
        short = f" (the series are too short for {usual})" if SEASON in open_settings and season != usual else ""
        return chosen, f"{words}: chosen for a value {layout.frequency.words}{short}" if words else ""

    def build(self, run: Run, config: ForecastConfig) -> ForecastPhase:
        layout = run.field("series", Series)
        with decoding(run.path / CONFIG):
            if AUTO in (config.model.horizon, config.model.season):
                raise ValueError("the horizon and the season are those that were chosen")
        found = stored_set(run, TRAIN_PART, layout)
        phase = FORECAST_KINDS[config.model.kind].phase(rows_of(found, layout), config, not is_stored(run, DEV_PART))
        values = sum(int(np.isfinite(one.target).sum()) for one in found)
        phase.description = f"{len(found):,} series, {values:,} values ({run.reading.get('description', '')})"
        if is_stored(run, DEV_PART):
            phase.held_out_scores = lambda fitted: ForecastPredictor(run, fitted, fitted, layout).held_out_scores()
        return phase

    def load(self, run: Run) -> ForecastPredictor:
        layout, config = run.field("series", Series), from_dict(ForecastConfig, run.config)
        saved = run.load(WEIGHTS)
        finite_weights(run.file(WEIGHTS), saved.tensors)
        with decoding(run.file(WEIGHTS)), cells_of(run):
            restore, data = FORECAST_KINDS[config.model.kind].restore, saved.metadata["model"]
            models = [restore(saved.tensors, data, prefix) for prefix in (OWN, HELD)]
        return ForecastPredictor(run, models[0], models[1], layout)

    def inspect(self, predictor: ForecastPredictor, text: str) -> Inspection:
        return inspect_forecast(predictor, text)


TASK = ForecastTask()
start_forecast, resume_forecast = TASK.start, TASK.resume


def train_forecast(
    source: Any,
    out: str | Path,
    config: ForecastConfig | Mapping[str, Any] | None = None,
    *,
    horizon: int | None = None,
    season: int | None = None,
    dev: Any = None,
    progress: bool = True,
) -> ForecastPredictor:
    """Trains a forecaster of series and loads it.

    Args:
        source: A file of series, a DataFrame, arrays, or a SeriesSet.
        out: The run directory to create.
        config: Settings; a dict such as `{"model.kind": "linear"}` changes some of the defaults.
        horizon: Steps to forecast; the setting `model.horizon`.
        season: Steps of a season; the setting `model.season`.
        dev: Later values of the series; without them the last horizon of each series is held out to evaluate.
        progress: Whether to show progress.

    Returns:
        The forecaster, as `weft.load` returns it.

    Raises:
        WeftError: If `out` exists, or the data or a setting is not usable.

    Example:
        model = weft.train_forecast(df, "runs/f", horizon=24)
        print(model.forecast(df))
    """
    given = {name: value for name, value in ((HORIZON, horizon), (SEASON, season)) if value is not None}
    if config is None or isinstance(config, Mapping):  # it may have a cell class
        settings: Any = {**dotted(config or {}), **given}
    else:
        settings = load_config(ForecastConfig, sets=given, base=to_dict(config))
    return TASK.train(source, out, settings, dev=dev, progress=progress)
