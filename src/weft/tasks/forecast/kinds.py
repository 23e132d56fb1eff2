"""The kinds of models that forecast, by `model.kind`: how each is trained, and how a run has stored it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from weft.tasks.forecast.anomalies import Detector, fit_linear_detector
from weft.tasks.forecast.autoencoder import AutoencoderFitting, ReconstructionModel, fit_reconstruction_detector
from weft.tasks.forecast.baselines import BASELINES
from weft.tasks.forecast.config import ForecastConfig
from weft.tasks.forecast.fitting import Fitting, ForecastPhase
from weft.tasks.forecast.hmm import RegimeFitting, RegimeModel, fit_regime_detector
from weft.tasks.forecast.linear import Array
from weft.tasks.forecast.model import (
    LINEAR_MAP,
    LOG_LINEAR_MAP,
    LOG_PREFIX,
    NETWORKS,
    Forecaster,
    ForecastModel,
    SeriesRows,
)
from weft.tasks.forecast.network_fitting import COUNTS, STEPWISE, plan_networks
from weft.training.step import Progress


class ForecastKind(NamedTuple):
    """A kind of model.

    Attributes:
        phase: what trains it: (rows, config, evaluates) -> phase. `evaluates` says whether the last horizon of each
            series is held out to evaluate; otherwise there are held-out data of their own.
        restore: the model from the tensors and the metadata "model" that its phase stores, and the prefix of its
            tensors: OWN or HELD. A ValueError or KeyError says that they are not those of such a model.
        detector: what scores anomalies: (model, series of the training, season) -> detector.
    """

    phase: Callable[[SeriesRows, ForecastConfig, bool], ForecastPhase]
    restore: Callable[[Mapping[str, Tensor], Mapping[str, Any], str], Forecaster]
    detector: Callable[[Any, Sequence[Array], int], Detector] = fit_linear_detector


def combination(names: Sequence[str]) -> ForecastKind:
    """Forecasters whose quantiles are averaged."""
    return ForecastKind(partial(_fitting, tuple(names)), ForecastModel.from_tensors)


def _fitting(names: Sequence[str], rows: SeriesRows, config: ForecastConfig, evaluates: bool) -> Fitting:
    model = config.model
    lags = max(0, model.lags)
    plan = plan_networks(rows, config) if any(name.removeprefix(LOG_PREFIX) in NETWORKS for name in names) else None
    if model.distribution == COUNTS and model.kind in STEPWISE:  # not of logarithms
        names = [name for name in names if not name.startswith(LOG_PREFIX)]
    return Fitting(
        rows,
        model.horizon,
        model.season,
        names,
        seed=config.train.seed,
        evaluates=evaluates,
        lags=lags,
        plan=plan,
        minutes=config.train.minutes,
    )


FORECAST_KINDS: Mapping[str, ForecastKind] = {
    "auto": combination((LINEAR_MAP, LOG_LINEAR_MAP, "direct", "log-direct", *BASELINES)),
    "linear": combination((LINEAR_MAP, LOG_LINEAR_MAP)),
    "baselines": combination(BASELINES),
    **{name: combination((name, f"{LOG_PREFIX}{name}")) for name in NETWORKS},
    "autoencoder": ForecastKind(AutoencoderFitting, ReconstructionModel.restore, fit_reconstruction_detector),
    "hmm": ForecastKind(RegimeFitting, RegimeModel.restore, fit_regime_detector),
}


def fit_model(rows: SeriesRows, config: ForecastConfig) -> Forecaster:
    """A model that is fitted to all windows of some series, as training does it."""
    phase = FORECAST_KINDS[config.model.kind].phase(rows, config, False)
    progress = Progress()
    total = phase.steps(progress)
    while progress.step < total and progress.epoch < phase.epochs:
        phase.step(progress, total, stop=False)
    return phase.models()[0]
