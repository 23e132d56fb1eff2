"""How a network of series is trained beside other forecasters: in stages, each of which knows one more held-out window.

The first stage is the training proper. It knows nothing of the held-out windows. Each further stage goes on for some
epochs with the windows up to a later cutoff. Every held-out window is forecast at the end of the last stage that did
not know it, and the last stage of all knows everything: its network is that of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.tasks.forecast.config import ForecastConfig
from weft.tasks.forecast.direct import segment_size
from weft.tasks.forecast.linear import first_value
from weft.tasks.forecast.model import LOG_PREFIX, SeriesRows, make_network
from weft.tasks.forecast.network import DrawnWindows, NetworkForm, SeriesNetwork, count_calendar, panel_of
from weft.training.config import TrainConfig
from weft.training.gradient_descent import GradientDescent
from weft.training.loss import MeanLoss
from weft.training.run import with_prefix
from weft.training.step import Progress

EPOCH_BATCHES = 50
COUNTS, STEPWISE = "negative-binomial", ("recurrent", "ar")  # a distribution, and the kinds that have one
EPOCH_WINDOWS, FEWEST_EPOCHS, LIMIT_OF_EPOCHS = 4000, 2, 60  # windows of the data for each epoch
FEW_WINDOWS, FEW_UNITS, MANY_UNITS = (
    20_000,
    32,
    64,
)  # hidden units, where there are few windows and where there are more
FURTHER_SHARE, FURTHER_RATE = 0.25, 0.5  # epochs and learning rate of a further stage, as shares of the first one's


class Stage(NamedTuple):
    """A part of a training that knows all but the last horizons of the series."""

    held_out: int  # how many horizons
    epochs: int


def stages_of(windows: int, evaluating: int, epochs: int) -> list[Stage]:
    """The stages of a training with held-out windows, of which the first ones evaluate.

    >>> [stage.held_out for stage in stages_of(3, 1, 8)], [stage.held_out for stage in stages_of(9, 1, 8)]
    ([3, 2, 1, 0], [9, 5, 1, 0])
    """
    held_out = sorted({windows, -(-(windows + evaluating) // 2), evaluating, 0}, reverse=True)
    further = max(1, round(FURTHER_SHARE * epochs))
    return [Stage(number, further if place else epochs) for place, number in enumerate(held_out)]


class NetworkFitting:
    """Trains a network epoch by epoch.

    Args:
        name: the name of the forecaster.
        form: the sizes of the network.
        rows: the series.
        stages: the stages.
        config: the settings of gradient descent; `seed` draws weights and windows.
        batch_size: windows of a batch.

    `network` is that of the stage under way.
    """

    def __init__(
        self,
        name: str,
        form: NetworkForm,
        rows: SeriesRows,
        stages: Sequence[Stage],
        config: TrainConfig,
        batch_size: int,
    ) -> None:
        self.name, self.stages, self.config, self.batch_size = name, list(stages), config, batch_size
        self.panel = panel_of(rows, form)
        torch.manual_seed(config.seed)
        self.network: SeriesNetwork = make_network(name, form)
        self.stage = 0
        self.progress = Progress()
        self._descent: GradientDescent | None = None

    def epoch(self) -> tuple[MeanLoss, Stage | None]:
        """Trains for an epoch. Returns the loss, and the stage if this was its last epoch."""
        if self._descent is None:
            if not self.stage:
                self.network.start_from(self.panel, self.stages[0].held_out)
            self._descent = self._begin()
        descent, stage, total, count = self._descent, self.stages[self.stage], 0.0, 0
        for _ in range(EPOCH_BATCHES):
            update = descent.step(self.progress, stage.epochs * EPOCH_BATCHES, stop=False)
            total, count = total + update.loss.total, count + update.loss.count
        if self.progress.epoch < stage.epochs:
            return MeanLoss(total, count), None
        self.network.load_state_dict(descent.weights()[0])
        self.stage, self.progress, self._descent = self.stage + 1, Progress(), None
        return MeanLoss(total, count), stage

    def _begin(self) -> GradientDescent:
        stage, config = self.stages[self.stage], self.config
        rate = config.learning_rate * (FURTHER_RATE if self.stage else 1.0)
        own = replace(config, epochs=stage.epochs, learning_rate=rate)
        windows = DrawnWindows(
            self.panel, stage.held_out, batches=EPOCH_BATCHES, size=self.batch_size, seed=config.seed + self.stage
        )
        network = self.network
        torch.manual_seed(config.seed + self.stage)  # of dropout
        return GradientDescent(network, windows, lambda batch, carried: network.loss(batch), own)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the next epoch depends on."""
        metadata = {"stage": self.stage, "progress": vars(self.progress).copy()}
        if self._descent is None:
            return {f"model.{name}": tensor for name, tensor in self.network.state_dict().items()}, metadata
        return self._descent.state()[0], metadata

    def restore(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        self.stage, self.progress = int(metadata["stage"]), Progress.from_json(metadata["progress"])
        self.network.load_state_dict(with_prefix(tensors, "model."))
        if self.progress.step:
            self._descent = self._begin()
            self._descent.restore(dict(tensors), {})


class NetworkPlan(NamedTuple):
    """How the networks of a set of series are made and trained.

    Attributes:
        form: the sizes of a network on values.
        epochs: of the first stage.
        batch_size: windows of a batch.
        config: the settings of gradient descent.
    """

    form: NetworkForm
    epochs: int
    batch_size: int
    config: TrainConfig

    def fitting(self, name: str, rows: SeriesRows, windows: int, evaluating: int) -> NetworkFitting:
        """What trains a network, beside held-out windows of which the first ones evaluate."""
        form = replace(self.form, log=name.startswith(LOG_PREFIX))
        stages = stages_of(windows, evaluating, self.epochs)
        return NetworkFitting(name, form, rows, stages, self.config, self.batch_size)


def plan_networks(rows: SeriesRows, config: ForecastConfig) -> NetworkPlan:
    """Sizes and steps by the amount of data."""
    model, train = config.model, config.train
    horizon, season = model.horizon, model.season
    lengths = np.array([len(row) - first_value(row) for row in rows.targets])
    windows = int((lengths - season - horizon).clip(0).sum())
    lags = model.lags if model.lags > 0 else usual_lags(season, horizon, int(np.median(lengths)))
    _check_settings(rows, config)
    hidden = model.hidden_size if model.hidden_size >= 0 else FEW_UNITS if windows < FEW_WINDOWS else MANY_UNITS
    lags = max(lags, season)
    calendar = count_calendar(rows.starts[0][1]) if rows.starts and model.kind in STEPWISE else 0
    form = NetworkForm(
        horizon,
        season,
        lags,
        features=rows.widths["features"] + calendar,
        past=rows.widths["past"],
        static=rows.widths["static"],
        cell=model.cell,
        hidden_size=hidden,
        dropout=model.dropout,
        distribution=model.distribution,
        calendar=calendar,
        attention=model.attention,
    )
    epochs = train.epochs if train.epochs > 0 else min(max(windows // EPOCH_WINDOWS, FEWEST_EPOCHS), LIMIT_OF_EPOCHS)
    descent = TrainConfig(
        learning_rate=train.learning_rate, weight_decay=0.01, ema_decay=0.99, seed=train.seed, slices=train.slices
    )
    return NetworkPlan(form, epochs, min(128, max(8, windows // 8)), descent)


def _check_settings(rows: SeriesRows, config: ForecastConfig) -> None:
    if config.model.hidden_size == 0 and config.model.kind != "ar":
        raise WeftError("model.hidden_size is 0", expected="1 or more; only `model.kind=ar` has none as a linear map")
    if config.model.distribution == COUNTS and config.model.kind in STEPWISE:
        for row in rows.targets:
            values = row[np.isfinite(row)]
            if (values < 0).any() or (values != np.round(values)).any():
                raise WeftError(
                    "model.distribution is 'negative-binomial', and there are values that are no counts",
                    expected="whole numbers from 0 on",
                    hint="`model.distribution=student-t`",
                )


def usual_lags(season: int, horizon: int, length: int) -> int:
    """The number of last values that a network reads: some seasons, a week of hours, and no less than the horizon.

    >>> [usual_lags(season, 6, 500) for season in (12, 4, 7, 24, 52, 1)]
    [48, 32, 49, 168, 90, 12]
    """
    seasons = 7 if season in (24, 48, 96) else min(8, max(4, -(-48 // season))) if season < 24 else 2
    wanted = max(seasons * season if season > 1 else 2 * horizon, horizon)
    segment = segment_size(season, horizon)
    most = max(length - horizon, segment)
    return max(min(wanted, most) // segment * segment, segment)


def first_windows(rows: SeriesRows, horizon: int, season: int, held_out: int) -> int:
    """The number of windows that the first stage of a training has."""
    lengths = np.array([len(row) - first_value(row) for row in rows.targets])
    return int((lengths - season - 1 - horizon * (held_out + 1)).clip(0).sum())
