"""Settings of forecasts (`weft train forecast`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from weft.config import AUTO, Settings, setting
from weft.series import SeriesColumns
from weft.series.reader import AGGREGATES, DUPLICATES
from weft.series.time_series import LAYOUTS
from weft.training.search_space import Choice, SearchSpace

MODEL_KINDS = {  # by name, what each is; how it is trained stands in kinds.py
    "auto": "linear, baselines and direct, combined",
    "linear": "a linear map for all series",
    "baselines": "exponential smoothing, Theta and others",
    "direct": "a network that forecasts all steps at once, on top of the linear map",
    "es-rnn": "a network beside exponential smoothing of level and season",
    "recurrent": "a recurrent network that forecasts step by step, by sample paths",
    "ar": "a map of the last values that forecasts step by step",
    "hmm": "a hidden Markov model of regimes",
    "autoencoder": "a network that writes values again, for anomaly scores; no forecasts",
}


@dataclass(frozen=True)
class SeriesDataConfig(Settings):
    """The `data` section: which columns are what. Empty: found by usual names."""

    id: str = setting("", "column that names a series, such as unique_id", option="--id")
    time: str = setting("", "column of times, such as ds", option="--time")
    target: str = setting("", "column to forecast, such as y; several, with commas, are channels", option="--target")
    known: str = setting("", "columns of covariates that are known in advance, with commas", option="--known")
    past: str = setting("", "columns of covariates known as far as the target is, with commas", option="--past")
    static: str = setting("", "columns that do not change within a series, with commas", option="--static")
    layout: str = setting(
        "auto", "long: a row for each time; columns, rows: a column or a row for each series", choices=LAYOUTS
    )
    freq: str = setting(
        "", "step of time, such as h, D, W-SUN or MS; other times are resampled; empty: inferred", option="--freq"
    )
    aggregate: str = setting("mean", "how the values of a step are joined in resampling", choices=AGGREGATES)
    duplicates: str = setting("refuse", "rows with the same time: refuse, or how they are joined", choices=DUPLICATES)

    @property
    def columns(self) -> SeriesColumns:
        """The columns; None where they are not given."""
        names: dict[str, Any] = {name: getattr(self, name) or None for name in ROLES}
        return SeriesColumns.of(self.layout, **names)

    @property
    def steps(self) -> dict[str, str]:
        """How rows become steps."""
        return {"freq": self.freq, "aggregate": self.aggregate, "duplicates": self.duplicates}


ROLES = ("id", "time", "target", "known", "past", "static")


@dataclass(frozen=True)
class ForecastModelConfig(Settings):
    """The `model` section."""

    kind: str = setting(
        "auto",
        "; ".join(f"{name}: {words}" for name, words in MODEL_KINDS.items()),
        choices=tuple(MODEL_KINDS),
    )  # fmt: skip
    horizon: int = setting(AUTO, "steps to forecast; auto: one season", low=1, high=10_000, auto=True,
                           option="--horizon")  # fmt: skip
    season: int = setting(AUTO, "steps of a season; auto: by the step of time", low=1, high=10_000, auto=True,
                          option="--season")  # fmt: skip
    lags: int = setting(AUTO, "last values that the linear map or a network reads; auto: chosen on held-out windows",
                        low=1, high=10_000, auto=True)  # fmt: skip
    cell: str = setting("gru", "recurrent cell of a network, a name in weft.cells.CELLS")
    hidden_size: int = setting(
        AUTO, "hidden units of a network; auto: by the amount of data; 0: ar is a linear map", low=0, auto=True
    )
    attention: str = setting(
        "none", "direct, es-rnn: how steps of the horizon attend to the segments of the past",
        choices=("none", "additive", "bilinear", "dot", "scaled_dot"),
    )  # fmt: skip
    num_states: int = setting(4, "hidden states of a hidden Markov model", low=1, high=1000)
    dropout: float = setting(0.1, "dropout rate of the outputs of a network's layer", low=0, high=0.95)
    distribution: str = setting(
        "student-t", "recurrent, ar: distribution of the next value; negative-binomial: of counts",
        choices=("gaussian", "student-t", "gaussian-mixture", "quantiles", "negative-binomial"),
    )  # fmt: skip


@dataclass(frozen=True)
class ForecastTrainConfig(Settings):
    """The `train` section."""

    seed: int = setting(1, "random seed", low=0, fixed=True, option="--seed")
    epochs: int = setting(AUTO, "epochs of 50 batches of a network; auto: by the amount of data", low=1, auto=True,
                          fixed=True, option="--epochs")  # fmt: skip
    minutes: float = setting(
        0.0, "time limit in minutes, for which networks have fewer epochs; 0: no limit", low=0, fixed=True,
        option="--minutes",
    )  # fmt: skip
    learning_rate: float = setting(0.004, "peak learning rate of a network", low=0, fixed=True,
                                   option="--learning-rate")  # fmt: skip
    slices: int = setting(
        1, "parts of a batch, computed one by one or by several workers: the weights depend on it, not on the workers",
        low=1, high=4096,
    )  # fmt: skip


@dataclass(frozen=True)
class ForecastConfig:
    """All settings of `weft train forecast`."""

    data: SeriesDataConfig = field(default_factory=SeriesDataConfig)
    model: ForecastModelConfig = field(default_factory=ForecastModelConfig)
    train: ForecastTrainConfig = field(default_factory=ForecastTrainConfig)

    search_space: ClassVar[SearchSpace] = {
        "model.kind": Choice(tuple(kind for kind in MODEL_KINDS if kind != "autoencoder"))
    }
