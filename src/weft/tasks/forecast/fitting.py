"""Fits the forecasters of a run, and their combination on held-out windows, as a phase of training.

The last horizons of each series are held out one after the other: window 1 is the last one. Window 1 evaluates; the
windows before it choose the linear maps, give the weights, and calibrate, all cross-fitted: what is applied to a fold
of series (of windows, where the series are few) is fitted to the others. The model of the run is then fitted to all
windows; the one that was evaluated is stored beside it.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.data.column import IntArray
from weft.errors import WeftError
from weft.metrics.forecast import MASE, QUANTILE_LEVELS, ForecastScores, seasonal_scale
from weft.tasks.forecast.baselines import BASELINES
from weft.tasks.forecast.calibration import Calibration, normal_quantiles
from weft.tasks.forecast.combination import AVERAGE
from weft.tasks.forecast.evaluation import finite, score
from weft.tasks.forecast.linear import (
    MAP_ADAPTATIONS,
    Array,
    BoolArray,
    LinearForm,
    LinearMap,
    Panel,
    first_value,
    sum_windows,
)
from weft.tasks.forecast.model import (
    LINEAR_MAP,
    LOG_LINEAR_MAP,
    LOG_PREFIX,
    NETWORKS,
    Forecaster,
    ForecastModel,
    SeriesRows,
    baseline_quantiles,
    is_positive,
    medians,
    on_scale,
    restored_network,
    within_range,
)
from weft.tasks.forecast.network import NetworkForm, SeriesNetwork
from weft.tasks.forecast.network_fitting import NetworkFitting, NetworkPlan, first_windows, stages_of
from weft.training.distributed import current_workers
from weft.training.loss import MeanLoss
from weft.training.run import with_prefix
from weft.training.step import Evaluation, Progress
from weft.training.trainer import Phase, Update

ADAPTATION_MARGIN = 1.01  # a map that adapts to series has to be better by so much: of short series it seldom is
MOST_SERIES = 2000  # that held-out windows are forecast of; of more, some drawn at random
ENOUGH = 30  # held-out windows: of few series several are taken
MOST_WINDOWS, SERIES_FOLDS, FEW_SERIES = 8, 5, 10
FEWEST_WINDOWS = 300  # to train a network on, where there are other forecasters
NETWORK_SHARE = 0.8  # of a time limit: when networks end
OWN, HELD = "own.", "held."  # begin the names of the tensors of the model, and of the one that was evaluated


@dataclass(frozen=True)
class HeldOut:
    """The held-out windows of some series.

    Attributes:
        rows: the series.
        cutoffs: (W, N) where each window begins.
        usable: (W, N) whether there is enough before it.
        targets: (W, N, H), NaN where missing.
        scales: (W, N) the mean absolute seasonal difference before the window; 1 where it is 0.
        positive: (W, N) whether all values before the window are positive.
        folds: (W, N) the number of the fold.
        evaluating: how many of the first windows only evaluate.
        varies: whether a series varies before its last window.
    """

    rows: SeriesRows
    cutoffs: IntArray
    usable: BoolArray
    targets: Array
    scales: Array
    positive: BoolArray
    folds: IntArray
    evaluating: int
    varies: bool

    @classmethod
    def of(cls, rows: SeriesRows, horizon: int, season: int, *, evaluating: int) -> HeldOut:
        lengths = np.array([len(row) for row in rows.targets])
        firsts = np.array([first_value(row) for row in rows.targets])
        spare = int(np.median(lengths - firsts)) - season - 2
        windows = -(-ENOUGH // len(lengths))
        windows = min(max(windows, 2), max(1, spare // (2 * horizon)), MOST_WINDOWS) + evaluating
        cutoffs = lengths - horizon * np.arange(1, windows + 1)[:, None]  # (W, N)
        usable = cutoffs - firsts >= season + 2
        targets = np.full((*cutoffs.shape, horizon), np.nan)
        scales, positive, varies = np.ones(cutoffs.shape), usable.copy(), False
        for window, number in zip(*np.nonzero(usable), strict=True):
            cutoff, row = cutoffs[window, number], rows.targets[number]
            targets[window, number] = row[cutoff : cutoff + horizon]
            positive[window, number] = is_positive(row[:cutoff])
            scale = seasonal_scale([row[:cutoff]], season)[0]
            varies |= bool(window == 0 and scale > 0 and np.isfinite(targets[window, number]).any())
            scales[window, number] = scale if scale > 0 else 1.0
        series = np.arange(len(lengths)) % SERIES_FOLDS
        numbers = np.broadcast_to(series, cutoffs.shape)
        if len(lengths) < FEW_SERIES:
            numbers = np.broadcast_to(np.arange(windows)[:, None], cutoffs.shape)
        return cls(rows, cutoffs, usable, targets, scales, positive, numbers, evaluating, varies)

    @property
    def windows(self) -> int:
        return len(self.cutoffs)

    @property
    def fitting(self) -> BoolArray:
        """(W, N) the windows that choose and fit, where the first ones evaluate."""
        found: BoolArray = self.usable.copy()
        found[: self.evaluating] = False
        return found

    def errors(self, forecasts: Array) -> Array:
        """The mean absolute error (W, N) of forecasts (W, N, H) in units of the scales; NaN where there is none."""
        errors = np.abs(forecasts - self.targets) / self.scales[..., None]
        known = ~np.isnan(errors)
        counts = known.sum(-1)
        found: Array = np.where(counts > 0, np.where(known, errors, 0).sum(-1) / np.maximum(counts, 1), np.nan)
        return found


class ForecastPhase(Phase):
    """A training of a forecaster, which makes two models.

    Attributes:
        held_out_scores: the scores of a model on held-out data of their own, where there are such data: of the model
            ("") and of baselines.
    """

    held_out_scores: Callable[[Forecaster], dict[str, ForecastScores]] | None = None

    @abstractmethod
    def models(self) -> tuple[Forecaster, Forecaster]:
        """The model of the run, and the one that does not know the last horizon of each series."""


class Fitting(ForecastPhase):
    """Fits one forecaster in each step, and their combination in the last one.

    Args:
        rows: all series.
        horizon: the number of steps to forecast.
        season: the length of a season.
        names: the forecasters.
        seed: draws the series whose held-out windows are forecast, where there are many.
        evaluates: whether the last window evaluates; otherwise there are held-out data of their own.
        lags: the number of last values of the linear maps; 0: chosen.
        plan: how networks are made and trained, where there are any.
        minutes: a time limit, for which networks have fewer epochs; 0: none.
    """

    epochs, report_every, save_seconds = 1, 1, 5.0
    loss = MASE.of("window")

    def __init__(
        self,
        rows: SeriesRows,
        horizon: int,
        season: int,
        names: Sequence[str],
        *,
        seed: int,
        evaluates: bool,
        lags: int = 0,
        plan: NetworkPlan | None = None,
        minutes: float = 0.0,
    ) -> None:
        self.rows, self.horizon, self.season, self.names, self.lags = rows, horizon, season, tuple(names), lags
        numbers = np.arange(len(rows.targets))
        if len(numbers) > MOST_SERIES:
            numbers = np.sort(np.random.default_rng((seed, 0x5E)).permutation(numbers)[:MOST_SERIES])
        self.numbers = numbers
        self.held_out = HeldOut.of(rows.at(numbers), horizon, season, evaluating=int(evaluates))
        self.forecasts: dict[str, Array] = {}  # (W, N, H, Q) of the held-out windows by name
        self.maps: dict[str, tuple[LinearMap, LinearMap]] = {}  # that of the run, and the one that is evaluated
        self.networks: dict[str, tuple[SeriesNetwork, SeriesNetwork]] = {}
        self.plan, self.limit = plan, 60 * minutes
        self.planned = not minutes  # whether the epochs of networks are those that the limit allows
        self.names = tuple(name for name in names if not _is_network(name) or self._has_windows(name))
        if not self.names:
            longest = max(len(row) for row in rows.targets)
            raise WeftError(
                f"a network cannot be trained on series of at most {longest} values to forecast {horizon}, with a "
                f"season of {season}",
                expected=f"more than {season + 1 + horizon * (self.held_out.windows + 1)} values",
                hint="`model.kind=auto`, or a smaller `model.horizon`",
            )
        self.training: NetworkFitting | None = None  # of the network under way
        self.joined: tuple[ForecastModel, ForecastModel] | None = None
        self.scores: dict[str, ForecastScores] = {}  # of the combination ("") and of each forecaster

    @property
    def model(self) -> ForecastModel | None:
        return None if self.joined is None else self.joined[0]

    def models(self) -> tuple[ForecastModel, ForecastModel]:
        assert self.joined is not None
        return self.joined

    @property
    def can_evaluate(self) -> bool:
        """Whether there is something to evaluate on, and a series that varies: MASE is not defined of constant ones."""
        return self.held_out.varies and (bool(self.held_out.evaluating) or self.held_out_scores is not None)

    @property
    def _own_maps(self) -> list[str]:
        return [name for name in self.names if name in (LINEAR_MAP, LOG_LINEAR_MAP)]

    @property
    def _own_networks(self) -> list[str]:
        return [name for name in self.names if _is_network(name)]

    @property
    def _network_epochs(self) -> int:
        """The epochs of a network, in all stages."""
        if self.plan is None:
            return 0
        stages = stages_of(self.held_out.windows, self.held_out.evaluating, self.plan.epochs)
        return sum(stage.epochs for stage in stages)

    @property
    def _baselines(self) -> list[str]:
        return [name for name in self.names if name in BASELINES]

    def steps(self, progress: Progress) -> int:
        networks = len(self._own_networks) * self._network_epochs
        return len(self._own_maps) + networks + (self.held_out.windows if self._baselines else 0) + 1

    def step(self, progress: Progress, total: int, *, stop: bool) -> Update:
        number, maps, held_out = progress.step, self._own_maps, self.held_out
        networks, epochs = self._own_networks, self._network_epochs
        progress.step += 1
        last = progress.step == self.steps(progress)
        if last:
            errors = held_out.errors(medians(self._join()))
            shares = sorted(self.joined[0].weights.items(), key=lambda one: -one[1]) if self.joined else []
            note = ", ".join(f"{name} {share:.2f}" for name, share in shares if share > 0)
            progress.epoch = 1
        elif number < len(maps):
            note = maps[number]
            self._fit_map(note)
            errors = held_out.errors(medians(self.forecasts[note]))
        elif number < len(maps) + len(networks) * epochs:
            place = (number - len(maps)) // epochs
            note, began = networks[place], time.perf_counter()
            loss = self._train_network(note)
            if not self.planned:
                left = self.limit * NETWORK_SHARE - progress.seconds
                self._plan_epochs(left / (len(networks) - place), time.perf_counter() - began)
            return Update(loss, 1, stop=stop, note=note)
        else:
            window = number - len(maps) - len(networks) * epochs
            self._forecast_baselines(window)
            note = f"baselines, window {window + 1}"
            parts = [medians(self.forecasts[name])[window] for name in self._baselines]
            errors = np.array(
                [held_out.errors(np.broadcast_to(part, held_out.targets.shape))[window] for part in parts]
            )
        known = errors[~np.isnan(errors)]
        loss = MeanLoss(float(known.sum()), len(known))
        return Update(loss, 1, evaluation_due=last, stop=stop, note=note)

    def _fit_map(self, name: str) -> None:
        """Fits a linear map for each cutoff; its lags, its ridge and its adaptation are those of the other folds."""
        held_out, log = self.held_out, name == LOG_LINEAR_MAP
        fitted = self._fitted(self.rows, log=log)
        chosen = self._fitted(held_out.rows, log=log)
        usable = (held_out.usable & held_out.positive if log else held_out.usable)[:, chosen]
        fitting = usable & held_out.fitting[:, chosen]
        if log and LINEAR_MAP in self.forecasts:  # series that are not positive
            quantiles = self.forecasts[LINEAR_MAP].copy()
        else:
            quantiles = np.full((*held_out.targets.shape, len(QUANTILE_LEVELS)), np.nan)
        if not fitted:
            self.forecasts[name] = quantiles
            return
        candidates, errors = list[list[LinearMap]](), list[Array]()  # by cutoff; (W, n, H)
        means, deviations = list[Array](), list[Array]()  # (W, n, H)
        sampled, whole = held_out.rows.at(chosen), self.rows.at(fitted)

        def add(maps: list[LinearMap], adaptations: Sequence[float]) -> None:
            """Adds the candidates of maps by cutoff, which adapt to series by so much."""
            panel = panels[maps[0].form.lags]
            found = [self._at_window(maps[w + 1], panel, chosen, w, adaptations) for w in range(held_out.windows)]
            for number, adaptation in enumerate(adaptations):
                candidates.append([replace(one, adaptation=adaptation) for one in maps])
                means.append(np.stack([of_window[number] for of_window, _ in found]))
                deviations.append(np.stack([deviation for _, deviation in found]))
                difference = on_scale(means[-1], log=log) - held_out.targets[:, chosen]
                scaled = np.abs(difference) / held_out.scales[:, chosen, None]
                scaled = scaled * (ADAPTATION_MARGIN if adaptation else 1.0)
                errors.append(np.where(fitting[..., None], scaled, np.nan))

        panels = {}
        for lags in self._lags():
            form = LinearForm(self.horizon, self.season, lags, log, **self.rows.widths)
            sums = sum_windows(whole.panel(form), held_out.windows)
            panels[lags] = sampled.panel(form)
            for maps in zip(*(LinearMap.solve(form, one) for one in sums), strict=True):  # by strength
                add(list(maps), [0.0])
        everywhere = np.ones(held_out.cutoffs[:, chosen].shape, bool)
        add(candidates[_least(errors, everywhere)], MAP_ADAPTATIONS)
        folds = held_out.folds[:, chosen]
        for fold in np.unique(folds):
            best = _least(errors, folds != fold)
            part = normal_quantiles(means[best], deviations[best])
            part = on_scale(part, log=log)
            inside = ((folds == fold) & usable)[..., None, None]
            quantiles[:, chosen] = np.where(inside, part, quantiles[:, chosen])
        chosen_maps = candidates[_least(errors, everywhere)]
        self.maps[name] = chosen_maps[0], chosen_maps[held_out.evaluating]
        self.forecasts[name] = quantiles

    def _fitted(self, rows: SeriesRows, *, log: bool) -> list[int]:
        """The series that a map or a network is fitted to; on logarithms those that were positive.

        That is judged by what stands before the held-out windows, or of shorter series before the last one: what comes
        after a cutoff may not matter to what is forecast from it.
        """
        found = []
        for number, row in enumerate(rows.targets):
            first, before = first_value(row), len(row) - self.horizon * self.held_out.windows
            if not log or is_positive(row[: before if first < before else max(first + 1, len(row) - self.horizon)]):
                found.append(number)
        return found

    def _at_window(
        self, one: LinearMap, panel: Panel, chosen: Sequence[int], window: int, adaptations: Sequence[float]
    ) -> tuple[list[Array], Array]:
        held_out = self.held_out
        firsts = np.array([first_value(held_out.rows.targets[number]) for number in chosen])
        places = panel.starts + np.maximum(held_out.cutoffs[window, chosen] - firsts, 0)
        return one.forecasts(panel, places, adaptations)

    def _lags(self) -> list[int]:
        """The numbers of lags to choose from."""
        if self.lags:
            return [max(self.lags, self.season)]
        season, lengths = self.season, [len(row) for row in self.rows.targets]
        longest = max(season, int(np.median(lengths)) // 3)
        wanted = {max(season, 3), 2 * season, max(2 * season, self.horizon)}
        if season in (24, 48, 96):  # of a day: a week
            wanted = {2 * season, 7 * season}
        return sorted(one for one in wanted if one <= longest) or [season]

    def _train_network(self, name: str) -> MeanLoss:
        """Trains a network for an epoch; at the end of a stage it forecasts the windows that the next one knows."""
        held_out, log = self.held_out, name.startswith(LOG_PREFIX)
        if name not in self.forecasts:
            empty = np.full((*held_out.targets.shape, len(QUANTILE_LEVELS)), np.nan)
            self.forecasts[name] = self.forecasts.get(name.removeprefix(LOG_PREFIX), empty).copy()
        if self.training is None:
            self.training = self._new_training(name)
        loss, stage = self.training.epoch()
        if stage is not None:
            network = deepcopy(self.training.network)
            following = self.training.stages[self.training.stage :]
            for window in range(following[0].held_out if following else 0, stage.held_out):
                usable = np.flatnonzero(held_out.usable[window] & (held_out.positive[window] | (not log))).tolist()
                history = held_out.rows.at(usable).until(held_out.cutoffs[window, usable])
                self.forecasts[name][window, usable] = on_scale(network.forecast(history), log=log)
            if stage.held_out == held_out.evaluating:
                self.networks[name] = network, network
            if not following:
                self.networks[name] = network, self.networks[name][1]
                self.training = None
        return loss

    def _plan_epochs(self, left: float, seconds: float) -> None:
        """Gives networks as many epochs as fit into the seconds left for each, of which the first epoch took some."""
        assert self.plan is not None
        assert self.training is not None
        epochs = self.plan.epochs
        fitting = int(current_workers().first(left / max(seconds, 1e-9) * epochs / self._network_epochs))
        self.plan = self.plan._replace(epochs=min(epochs, max(2, fitting)))  # one is done
        self.training.stages = stages_of(self.held_out.windows, self.held_out.evaluating, self.plan.epochs)
        self.planned = True

    def _rows_of(self, name: str) -> SeriesRows:
        """The series that a network is trained on: those on logarithms are positive."""
        return self.rows.at(self._fitted(self.rows, log=name.startswith(LOG_PREFIX)))

    def _has_windows(self, name: str) -> bool:
        """Whether there are windows to train a network on; beside other forecasters it takes more to be of use."""
        alone = all(map(_is_network, self.names))
        windows = first_windows(self._rows_of(name), self.horizon, self.season, self.held_out.windows)
        return windows >= (1 if alone else FEWEST_WINDOWS)

    def _new_training(self, name: str) -> NetworkFitting:
        assert self.plan is not None
        return self.plan.fitting(name, self._rows_of(name), self.held_out.windows, self.held_out.evaluating)

    def _forecast_baselines(self, window: int) -> None:
        held_out, names = self.held_out, self._baselines
        for name in names:
            self.forecasts.setdefault(name, np.full((*held_out.targets.shape, len(QUANTILE_LEVELS)), np.nan))
        usable = np.flatnonzero(held_out.usable[window])
        history = held_out.rows.at(usable).until(held_out.cutoffs[window, usable])
        for name, part in baseline_quantiles(history.targets, self.horizon, self.season, names).items():
            self.forecasts[name][window, usable] = part

    def _join(self) -> Array:
        """Fits the weights and the calibration; returns the quantiles (W, N, H, Q) of the run's own model."""
        held_out = self.held_out
        fitted = [name for name in self.names if name in {*self.maps, *self.networks, *BASELINES}]
        names = [name for name in fitted if np.isfinite(self.forecasts[name][held_out.usable]).all()]
        models = []
        joined = np.full((*held_out.targets.shape, len(QUANTILE_LEVELS)), np.nan)
        for version, fitting in enumerate((held_out.usable, held_out.fitting)):
            if not fitting.any():  # one window alone evaluates: nothing is fitted for it
                fitting = held_out.usable
            for fold in np.unique(held_out.folds):
                inside = held_out.usable & (held_out.folds == fold)
                others = fitting & (held_out.folds != fold)
                weights = self._weights(names, others if others.any() else fitting)
                joined[inside] = sum(share * self.forecasts[name][inside] for name, share in weights.items())
            calibration = Calibration.fit(joined[fitting], held_out.targets[fitting])
            weights = self._weights(names, fitting)
            maps = {name: self.maps[name][version] for name in self.maps}
            networks = {name: self.networks[name][version] for name in self.networks}
            models.append(ForecastModel(self.horizon, self.season, weights, maps, networks, calibration))
            if version and held_out.evaluating:
                self._score(models[version], names)
        self.joined = models[0], models[1]
        if self.held_out_scores is not None:
            self.scores = self.held_out_scores(models[0])
        return joined

    def _weights(self, names: Sequence[str], windows: BoolArray) -> dict[str, float]:
        held_out = self.held_out
        scales = held_out.scales[windows][:, None]
        parts = [torch.from_numpy(self.forecasts[name][windows] / scales[..., None]) for name in names]
        found = AVERAGE.fit(parts, torch.from_numpy(held_out.targets[windows] / scales), np.nonzero(windows)[0])
        return dict(zip(names, found, strict=True))

    def _score(self, model: ForecastModel, names: Sequence[str]) -> None:
        """The scores of window 1: of the model, and of each forecaster alone."""
        held_out = self.held_out
        usable = held_out.usable[0]
        history = held_out.rows.at(np.flatnonzero(usable)).until(held_out.cutoffs[0, usable])
        parts = {name: self.forecasts[name][0, usable] for name in names}
        found = {"": model.join(parts, history.targets)}
        found |= {name: within_range(part, history.targets) for name, part in parts.items()}
        self.scores = {
            name: score(part, held_out.targets[0, usable], history, self.season) for name, part in found.items()
        }

    def evaluate(self) -> Evaluation:
        """The scores of the last horizon of each series, by a model that does not know it."""
        return Evaluation.by(MASE, finite(self.scores[""].metrics()))

    def baselines(self) -> dict[str, float]:
        """The best baseline on the same window."""
        found = {name: one.score() for name, one in self.scores.items() if name in BASELINES}
        best = min(filter(lambda name: np.isfinite(found[name]), found), key=lambda name: found[name], default="")
        return {best: found[best]} if best else {}

    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        assert self.joined is not None
        own, held = self.joined
        scores = {name: finite(one.metrics()) for name, one in self.scores.items()}
        return {**own.tensors(OWN), **held.tensors(HELD)}, {"model": own.to_json(), "scores": scores}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"forecasts.{name}": torch.from_numpy(part) for name, part in self.forecasts.items()}
        maps = {}
        for name, both in self.maps.items():
            maps[name] = both[0].to_json()
            for version, one in enumerate(both):
                tensors |= {f"maps.{name}.{version}.{part}": tensor for part, tensor in one.tensors().items()}
        networks = {}
        for name, trained in self.networks.items():
            networks[name] = trained[0].form.to_json()
            for version, network in enumerate(trained):
                for part, tensor in network.state_dict().items():
                    tensors[f"networks.{name}.{version}.{part}"] = tensor.clone()
        training: dict[str, Any] = {}
        if self.training is not None:
            own, content = self.training.state()
            training = {"name": self.training.name, **content}
            tensors |= {f"training.{part}": tensor for part, tensor in own.items()}
        epochs = 0 if self.plan is None else self.plan.epochs
        training |= {"epochs": epochs, "planned": self.planned}
        joined = self.joined is not None
        return tensors, {"maps": maps, "networks": networks, "training": training, "joined": joined}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        self.forecasts = {
            name: tensors[f"forecasts.{name}"].numpy() for name in self.names if f"forecasts.{name}" in tensors
        }
        for name, sizes in metadata["maps"].items():
            both = [
                LinearMap.restore(
                    with_prefix(tensors, f"maps.{name}.{version}."),
                    sizes,
                    self.horizon,
                    self.season,
                    name == LOG_LINEAR_MAP,
                )
                for version in range(2)
            ]
            self.maps[name] = both[0], both[1]
        for name, sizes in metadata["networks"].items():
            restored = [
                restored_network(
                    name,
                    NetworkForm(**sizes),
                    {
                        part: tensor.numpy()
                        for part, tensor in with_prefix(tensors, f"networks.{name}.{version}.").items()
                    },
                )
                for version in range(2)
            ]
            self.networks[name] = restored[0], restored[1]
        if self.plan is not None:
            self.plan = self.plan._replace(epochs=int(metadata["training"]["epochs"]))
            self.planned = bool(metadata["training"]["planned"])
        if "name" in metadata["training"]:
            self.training = self._new_training(metadata["training"]["name"])
            self.training.restore(with_prefix(tensors, "training."), metadata["training"])
        if metadata["joined"]:
            self._join()


def _is_network(name: str) -> bool:
    return name.removeprefix(LOG_PREFIX) in NETWORKS


def _least(errors: Sequence[Array], windows: BoolArray) -> int:
    """The candidate of the least mean error, each (W, N, H), in some windows (W, N)."""
    chosen = np.stack([one[windows] for one in errors])
    known = ~np.isnan(chosen)
    totals = np.where(known, chosen, 0).sum((1, 2)) / np.maximum(known.sum((1, 2)), 1)
    return int(totals.argmin())
