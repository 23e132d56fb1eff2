"""What forecasts: linear maps and networks on values and on logarithms, the baselines, their weights and calibration.

Each forecaster gives quantiles. These are averaged with weights, calibrated, and kept within what the series can be:
those of a series that is never negative are not negative, those of counts are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from weft.data.column import IntArray
from weft.metrics.forecast import QUANTILE_LEVELS
from weft.series.frequency import Frequency, Time
from weft.tasks.forecast.baselines import BASELINES, forecast_baselines
from weft.tasks.forecast.calibration import MEDIAN, Calibration, normal_quantiles, ordered
from weft.tasks.forecast.direct import DirectNetwork, SmoothedNetwork
from weft.tasks.forecast.linear import Array, LinearForm, LinearMap, Panel, first_value, make_panel
from weft.tasks.forecast.network import NetworkForm, SeriesNetwork
from weft.tasks.forecast.recurrent import AutoregressiveNetwork, RecurrentNetwork, StepNetwork
from weft.training.run import with_prefix

LINEAR_MAP, LOG_LINEAR_MAP = "linear", "log-linear"  # the maps on values and on logarithms, which have to be positive
NETWORKS: Mapping[str, Callable[[NetworkForm], SeriesNetwork]] = {
    "direct": DirectNetwork,
    "es-rnn": SmoothedNetwork,
    "recurrent": RecurrentNetwork,
    "ar": AutoregressiveNetwork,
}
LOG_PREFIX = "log-"  # begins the name of a forecaster that works on logarithms
LARGEST_LOG = 700.0


class SeriesRows(NamedTuple):
    """Series of one channel.

    Attributes:
        targets: (T,) of each; NaN where missing.
        features: (T + F, E) of each, known F steps beyond the end; empty where there are none.
        starts: the time of the first value of each, and the step of time; empty where they are not known.
        past: (T, P) of each, known as far as the target is; empty where there are none.
        static: (S,) of each, that do not change; empty where there are none.
    """

    targets: Sequence[Array]
    features: Sequence[Array] = ()
    starts: Sequence[tuple[Time, Frequency]] = ()
    past: Sequence[Array] = ()
    static: Sequence[Array] = ()

    def at(self, numbers: Sequence[int] | IntArray) -> SeriesRows:
        """Some of the series."""
        return SeriesRows(
            [self.targets[one] for one in numbers],
            [self.features[one] for one in numbers if self.features],
            [self.starts[one] for one in numbers if self.starts],
            [self.past[one] for one in numbers if self.past],
            [self.static[one] for one in numbers if self.static],
        )

    def until(self, cutoffs: Sequence[int] | IntArray) -> SeriesRows:
        """The series as they are known before their cutoffs; covariates are known beyond."""
        targets = [row[:cutoff] for row, cutoff in zip(self.targets, cutoffs, strict=True)]
        past = [row[:cutoff] for row, cutoff in zip(self.past, cutoffs, strict=True)] if self.past else ()
        return self._replace(targets=targets, past=past)

    @property
    def widths(self) -> dict[str, int]:
        """How many covariates there are of each kind, as a form names them."""
        return {
            "features": self.features[0].shape[1] if self.features else 0,
            "past": self.past[0].shape[1] if self.past else 0,
            "static": len(self.static[0]) if self.static else 0,
        }

    def panel(self, form: LinearForm) -> Panel:
        """The series as a map or a network reads them."""
        return make_panel(self.targets, form, self.features or None, self.past or None, self.static or None)


class Forecaster(Protocol):
    """A trained model of any kind (`kinds.py`), as the predictor uses it."""

    @property
    def horizon(self) -> int:
        """The number of steps H."""
        ...

    @property
    def season(self) -> int:
        """The length of a season."""
        ...

    @property
    def summary(self) -> str:
        """What it is made of, in a few words."""
        ...

    def quantiles(self, rows: SeriesRows) -> Array:
        """The quantiles (N, H, Q) of the steps after the ends of series; NaN for one without any value."""
        ...

    def with_baselines(self, rows: SeriesRows, names: Sequence[str]) -> dict[str, Array]:
        """The quantiles (N, H, Q) of the model (""), and of baselines by name."""
        ...


@dataclass(frozen=True)
class ForecastModel:
    """A combination of forecasters for all series.

    Attributes:
        horizon: the number of steps H.
        season: the length of a season.
        weights: of the forecasters, by name.
        maps: the linear maps by name.
        networks: the networks by name.
        calibration: of the joined quantiles.
    """

    horizon: int
    season: int
    weights: Mapping[str, float]
    maps: Mapping[str, LinearMap]
    networks: Mapping[str, SeriesNetwork]
    calibration: Calibration

    def quantiles(self, rows: SeriesRows, steps: int = 0) -> Array:
        """The calibrated quantiles (N, H, Q) of the steps after the ends of series; NaN for one without any value.

        Where all of it forecasts step by step, it can be asked for more than H steps.
        """
        chosen = [name for name, share in self.weights.items() if share > 0]
        unrolled = all(isinstance(self.networks.get(name), StepNetwork) for name in chosen)
        return self.join(self.parts(rows, steps=max(steps, self.horizon) if unrolled else 0), rows.targets)

    @property
    def summary(self) -> str:
        return ", ".join(f"{name} {share:.2f}" for name, share in self.weights.items() if share > 0)

    def with_baselines(self, rows: SeriesRows, names: Sequence[str]) -> dict[str, Array]:
        """The quantiles (N, H, Q) of the model (""), and of baselines by name, each of which is computed once."""
        parts = self.parts(rows, names)
        alone = {name: within_range(parts[name], rows.targets) for name in names}
        return {"": self.join(parts, rows.targets), **alone}

    def parts(self, rows: SeriesRows, names: Sequence[str] = (), steps: int = 0) -> dict[str, Array]:
        """The quantiles (N, H, Q) of each forecaster that has a weight, and of further ones."""
        wanted = dict.fromkeys((*(name for name, share in self.weights.items() if share > 0), *names))
        found = {name: map_quantiles(name, rows, self.maps) for name in wanted if name in self.maps}
        found |= {name: network_quantiles(name, rows, self.networks, steps) for name in wanted if name in self.networks}
        baselines = [name for name in wanted if name not in found]
        return found | baseline_quantiles(rows.targets, self.horizon, self.season, baselines)

    def join(self, parts: Mapping[str, Array], targets: Sequence[Array]) -> Array:
        """The calibrated quantiles (N, H, Q) from those of the forecasters."""
        joined = np.sum([share * parts[name] for name, share in self.weights.items() if share > 0], 0)
        return within_range(self.calibration.apply(joined), targets)

    def tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """What `from_tensors` restores, beside `to_json`."""
        shares = np.array(list(self.weights.values()))
        found = {"calibration": torch.tensor(self.calibration.factors), "weights": torch.from_numpy(shares)}
        for name, one in self.maps.items():
            found |= {f"{name}.{part}": tensor for part, tensor in one.tensors().items()}
        for name, network in self.networks.items():
            found |= {f"{name}.{part}": tensor for part, tensor in network.state_dict().items()}
        return {f"{prefix}{name}": tensor for name, tensor in found.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "season": self.season,
            "forecasters": list(self.weights),
            "maps": {name: one.to_json() for name, one in self.maps.items()},
            "networks": {name: network.form.to_json() for name, network in self.networks.items()},
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], data: Mapping[str, Any], prefix: str = "") -> ForecastModel:
        """The inverse of `tensors` and `to_json`. A ValueError or KeyError says that they are not those of a model."""
        found = with_prefix(tensors, prefix)
        arrays = {name: tensor.numpy() for name, tensor in found.items()}
        horizon, season, names = int(data["horizon"]), int(data["season"]), list(data["forecasters"])
        maps = {}
        for name, sizes in data["maps"].items():
            if name not in (LINEAR_MAP, LOG_LINEAR_MAP):
                raise ValueError(f"there is no map {name}")
            maps[name] = LinearMap.restore(
                with_prefix(found, f"{name}."), sizes, horizon, season, name == LOG_LINEAR_MAP
            )
        networks = {
            name: restored_network(name, NetworkForm(**form), with_prefix(arrays, f"{name}."))
            for name, form in data["networks"].items()
        }
        if any(one.form.horizon != horizon or one.form.season != season for one in networks.values()):
            raise ValueError("a network has another horizon or season")
        known = {*BASELINES, *maps, *networks}
        weights, factors = found["weights"].numpy(), found["calibration"].numpy()
        if (
            not set(names) <= known
            or weights.shape != (len(names),)
            or factors.shape != (horizon, len(QUANTILE_LEVELS))
        ):
            raise ValueError("the weights of the combination are not those of its forecasters")
        return cls(
            horizon, season, dict(zip(names, weights.tolist(), strict=True)), maps, networks, Calibration(factors)
        )


def make_network(name: str, form: NetworkForm) -> SeriesNetwork:
    """A network with random weights, by the name of its forecaster."""
    return NETWORKS[name.removeprefix(LOG_PREFIX)](form)


def restored_network(name: str, form: NetworkForm, weights: Mapping[str, Array]) -> SeriesNetwork:
    """A network with given weights. A ValueError or KeyError says that they are not its own."""
    network = make_network(name, form)
    expected = {part: tuple(tensor.shape) for part, tensor in network.state_dict().items()}
    if expected != {part: values.shape for part, values in weights.items()} or form.log != name.startswith(LOG_PREFIX):
        raise ValueError(f"the weights of the network {name} do not have the sizes of its form")
    network.load_state_dict({part: torch.from_numpy(values) for part, values in weights.items()})
    return network.eval()


def map_quantiles(name: str, rows: SeriesRows, maps: Mapping[str, LinearMap]) -> Array:
    """The quantiles (N, H, Q) of a linear map for the steps after the ends of series."""
    found = np.full((len(rows.targets), maps[name].form.horizon, len(QUANTILE_LEVELS)), np.nan)
    for kind, numbers in by_map(name, rows.targets, maps).items():
        chosen = rows.at(numbers)
        panel = chosen.panel(maps[kind].form)
        means, deviations = maps[kind].forecast(panel, panel.ends)
        found[numbers] = on_scale(normal_quantiles(means, deviations), log=maps[kind].form.log)
    return found


def network_quantiles(name: str, rows: SeriesRows, networks: Mapping[str, SeriesNetwork], steps: int = 0) -> Array:
    """The quantiles (N, H, Q) of a network for the steps after the ends of series, the usual ones unless given."""
    found = np.full((len(rows.targets), steps or networks[name].form.horizon, len(QUANTILE_LEVELS)), np.nan)
    for kind, numbers in by_map(name, rows.targets, networks).items():
        found[numbers] = on_scale(networks[kind].forecast(rows.at(numbers), steps), log=networks[kind].form.log)
    return found


def by_map(name: str, targets: Sequence[Array], maps: Mapping[str, Any]) -> dict[str, list[int]]:
    """The series that each map or network forecasts: those that are not positive are not on the log scale."""
    found: dict[str, list[int]] = {}
    for number, row in enumerate(targets):
        if first_value(row) < len(row):
            kind = name if not name.startswith(LOG_PREFIX) or is_positive(row) else name.removeprefix(LOG_PREFIX)
            if kind in maps:
                found.setdefault(kind, []).append(number)
    return found


def is_positive(row: Array) -> bool:
    """Whether all values that are not missing are above 0."""
    return bool((row[~np.isnan(row)] > 0).all())


def on_scale(quantiles: Array, *, log: bool) -> Array:
    """Quantiles on the scale of the values, from those of a map."""
    return np.exp(quantiles.clip(-LARGEST_LOG, LARGEST_LOG)) if log else quantiles


def baseline_quantiles(targets: Sequence[Array], horizon: int, season: int, names: Sequence[str]) -> dict[str, Array]:
    """The quantiles (N, H, Q) of baselines by name."""
    if not names or not targets:
        return {name: np.zeros((0, horizon, len(QUANTILE_LEVELS))) for name in names}
    found = forecast_baselines(targets, horizon, season, names)
    return {name: found[name].quantiles(QUANTILE_LEVELS) for name in names}


def within_range(quantiles: Array, targets: Sequence[Array]) -> Array:
    """Quantiles (N, H, Q) that a series can take: not negative where it never was, whole where it counts."""
    found = ordered(quantiles)
    for number, row in enumerate(targets):
        values = row[~np.isnan(row)]
        if len(values) and values.min() >= 0:
            found[number] = np.maximum(found[number], 0.0)
            if (values == np.round(values)).all():
                found[number] = np.round(found[number])
    return found


def medians(quantiles: Array) -> Array:
    """The forecasts (...) of quantiles (..., Q)."""
    found: Array = quantiles[..., MEDIAN]
    return found
