"""A hidden Markov model of regimes as a kind of forecaster: `model.kind=hmm`.

Each series is reduced by the mean and divided by the standard deviation of its values so far. The states of all
series are those of one model, fitted by Baum-Welch to what stands before the held-out windows, which calibrate and
evaluate; some further iterations on everything give the model of the run. A forecast is the mixture of the normal
distributions of the states, weighted by the probabilities of the states at that step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.data.column import IntArray
from weft.metrics import Metric
from weft.metrics.forecast import MASE, QUANTILE_LEVELS, ForecastScores
from weft.tasks.forecast.anomalies import Detector, Deviations, Moments, Tail
from weft.tasks.forecast.baselines import BASELINES
from weft.tasks.forecast.calibration import Calibration
from weft.tasks.forecast.config import ForecastConfig
from weft.tasks.forecast.evaluation import finite, scores_at
from weft.tasks.forecast.fitting import HELD, OWN, ForecastPhase, HeldOut
from weft.tasks.forecast.linear import Array
from weft.tasks.forecast.model import SeriesRows, baseline_quantiles, within_range
from weft.tasks.hmm.baum_welch import Iteration, baum_welch
from weft.tasks.hmm.gaussian import GaussianHMM
from weft.training.loss import MeanLoss
from weft.training.run import with_prefix
from weft.training.step import Evaluation, Progress
from weft.training.trainer import Update

FIRST_ITERATIONS, FURTHER_ITERATIONS = 40, 10  # of Baum-Welch before the held-out windows, and on everything
TOLERANCE = 1e-5  # nats a value: a smaller gain ends the iterations
PSEUDOCOUNT = 0.1
LOG_LOSS = Metric("negative_log_likelihood", "nats", per="value")  # of scaled values, by their density
BISECTIONS = 60
DETECTOR_SHARE = 0.7  # of each series, to which the model that calibrates alarms is fitted
LEAST_VALUES = 8  # before a value is scored


def scaled(rows: Sequence[Array]) -> list[Array]:
    """Series (T,) on the scale of the model, (T, 1)."""
    return [Moments.of(row).scaled(row)[:, None] for row in rows]


@dataclass(frozen=True)
class RegimeModel:
    """A hidden Markov model that forecasts.

    Attributes:
        horizon: the number of steps H.
        season: the length of a season, of the scores.
        hmm: of the scaled values.
        calibration: of the quantiles.
    """

    horizon: int
    season: int
    hmm: GaussianHMM
    calibration: Calibration

    @property
    def summary(self) -> str:
        return f"HMM of {self.hmm.states} states"

    def quantiles(self, rows: SeriesRows) -> Array:
        """The quantiles (N, H, Q) of the steps after the ends of series; NaN for one without any value."""
        return within_range(self.calibration.apply(self.mixture_quantiles(rows.targets, self.horizon)), rows.targets)

    def with_baselines(self, rows: SeriesRows, names: Sequence[str]) -> dict[str, Array]:
        """The quantiles (N, H, Q) of the model (""), and of baselines by name."""
        parts = baseline_quantiles(rows.targets, self.horizon, self.season, names)
        return {"": self.quantiles(rows), **{name: within_range(part, rows.targets) for name, part in parts.items()}}

    def mixture_quantiles(self, targets: Sequence[Array], steps: int) -> Array:
        """The quantiles (N, steps, Q) of the predictive mixtures, by bisection of their distribution functions."""
        found = np.full((len(targets), steps, len(QUANTILE_LEVELS)), np.nan)
        chosen = [number for number, row in enumerate(targets) if np.isfinite(row).any()]
        if not chosen:
            return found
        weights = self._state_probabilities([targets[number] for number in chosen], steps)  # (N, H, K)
        means, deviations = self.hmm.means[:, 0], self.hmm.variances[:, 0].sqrt()
        levels = torch.tensor(QUANTILE_LEVELS, dtype=torch.float64)
        low = (means - 10 * deviations).min().expand(*weights.shape[:2], len(levels))
        high = (means + 10 * deviations).max().expand_as(low)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            share = (weights[:, :, None] * torch.special.ndtr((middle[..., None] - means) / deviations)).sum(-1)
            low, high = torch.where(share < levels, middle, low), torch.where(share < levels, high, middle)
        scales = [Moments.of(targets[number]) for number in chosen]
        for number, scale, part in zip(chosen, scales, high.numpy(), strict=True):
            found[number] = scale.means + scale.deviations * part
        return found

    def _state_probabilities(self, targets: Sequence[Array], steps: int) -> Tensor:
        """The probabilities (N, steps, K) of the states after the ends of series."""
        state, found = self.hmm.next_states(scaled(targets)), []
        for _ in range(steps):
            found.append(state)
            state = state @ self.hmm.transition
        return torch.stack(found, 1)

    def draw(self, row: Array, steps: int, count: int, *, seed: int = 0) -> Array:
        """Paths (count, steps) of what may come after a series."""
        random, scale = np.random.default_rng(seed), Moments.of(row)
        probs = self.hmm.next_states(scaled([row]))[0].numpy()
        transition = self.hmm.transition.numpy().cumsum(1)
        states = random.choice(self.hmm.states, size=count, p=probs / probs.sum())
        found = np.zeros((count, steps))
        for step in range(steps):
            noise = random.normal(size=count)
            found[:, step] = self.hmm.means[states, 0] + self.hmm.variances[states, 0].sqrt() * torch.from_numpy(noise)
            states = (random.random(count)[:, None] > transition[states]).sum(1).clip(0, self.hmm.states - 1)
        drawn: Array = scale.means + scale.deviations * found
        return drawn

    def regimes(self, rows: Sequence[Array]) -> list[IntArray]:
        """The most probable states (T,) of series."""
        return [path.states.numpy() for path in self.hmm.viterbi(scaled(rows))]

    def tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """What `restore` needs, beside `to_json`."""
        own = self.hmm.tensors() | {"calibration": torch.from_numpy(self.calibration.factors.copy())}
        return {f"{prefix}{name}": tensor.clone() for name, tensor in own.items()}

    def to_json(self) -> dict[str, Any]:
        return {"horizon": self.horizon, "season": self.season}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], data: Mapping[str, Any], prefix: str = "") -> RegimeModel:
        """The inverse of `tensors` and `to_json`. A ValueError or KeyError says that they are not those of a model."""
        own, horizon = with_prefix(tensors, prefix), int(data["horizon"])
        factors = own["calibration"].numpy()
        if factors.shape != (horizon, len(QUANTILE_LEVELS)):
            raise ValueError("the calibration does not have the size of the horizon")
        return cls(horizon, int(data["season"]), GaussianHMM.from_tensors(own), Calibration(factors))


class RegimeFitting(ForecastPhase):
    """Fits a hidden Markov model: before the held-out windows, then to everything. A step is an iteration."""

    epochs, report_every, save_seconds = 1, 1, 5.0
    loss = LOG_LOSS

    def __init__(self, rows: SeriesRows, config: ForecastConfig, evaluates: bool) -> None:
        self.rows, model = rows, config.model
        self.horizon, self.season = model.horizon, model.season
        self.held_out = HeldOut.of(rows, self.horizon, self.season, evaluating=int(evaluates))
        earliest = np.where(self.held_out.usable, self.held_out.cutoffs, len(max(rows.targets, key=len))).min(0)
        before = [row[: int(cutoff)] for row, cutoff in zip(rows.targets, earliest, strict=True)]
        self.parts = [scaled(_with_values(before) or _with_values(rows.targets)), scaled(_with_values(rows.targets))]
        self.hmm = GaussianHMM.first(self.parts[0], model.num_states)
        self.held: GaussianHMM | None = None  # the model before the held-out windows, once it is fitted
        self.before = -np.inf  # the objective one iteration ago
        self.fitted: tuple[RegimeModel, RegimeModel] | None = None
        self.scores: dict[str, ForecastScores] = {}
        self._iterations: Iterator[Iteration[GaussianHMM]] | None = None

    @property
    def can_evaluate(self) -> bool:
        return self.held_out.varies and (bool(self.held_out.evaluating) or self.held_out_scores is not None)

    @property
    def model(self) -> RegimeModel | None:
        """The model of the run, once it is trained."""
        return None if self.fitted is None else self.fitted[0]

    def models(self) -> tuple[RegimeModel, RegimeModel]:
        assert self.fitted is not None
        return self.fitted

    def steps(self, progress: Progress) -> int:
        left = FURTHER_ITERATIONS if self.held is not None else FIRST_ITERATIONS + FURTHER_ITERATIONS
        return progress.step + max(1, left - progress.batch)

    def step(self, progress: Progress, total: int, *, stop: bool) -> Update:
        stage = int(self.held is not None)
        if self._iterations is None:
            self._iterations = baum_welch(self.hmm, self.parts[stage], smoothing=PSEUDOCOUNT)
            if progress.batch:
                next(self._iterations)  # the model that was saved, whose step was reported already
        iteration = next(self._iterations)
        progress.step += 1
        progress.batch += 1
        self.hmm = iteration.model
        values = sum(int(np.isfinite(one).sum()) for one in self.parts[stage])
        gain, self.before = iteration.objective - self.before, iteration.objective
        done = progress.batch >= (FIRST_ITERATIONS, FURTHER_ITERATIONS)[stage] or gain < TOLERANCE * values
        if done:
            progress.batch, self.before, self._iterations = 0, -np.inf, None
            if stage:
                progress.epoch = 1
                self._finish()
            else:
                self.held = self.hmm
        loss = MeanLoss(-iteration.log_likelihood, values)
        return Update(loss, 1, evaluation_due=done and bool(stage), stop=stop)

    def _finish(self) -> None:
        """Calibrates both models on the held-out windows, by the model that does not know them."""
        assert self.held is not None
        held_out, none = self.held_out, Calibration.none(self.horizon)
        raw = RegimeModel(self.horizon, self.season, self.held, none)
        quantiles = np.full((*held_out.targets.shape, len(QUANTILE_LEVELS)), np.nan)
        for window in range(held_out.windows):
            usable = np.flatnonzero(held_out.usable[window])
            history = held_out.rows.at(usable).until(held_out.cutoffs[window, usable])
            quantiles[window, usable] = raw.mixture_quantiles(history.targets, self.horizon)
        calibrations = []
        for fitting in (held_out.usable, held_out.fitting):
            chosen = fitting if fitting.any() else held_out.usable
            found = Calibration.fit(quantiles[chosen], held_out.targets[chosen]) if chosen.any() else none
            calibrations.append(found)
        own, held = (
            RegimeModel(self.horizon, self.season, hmm, calibration)
            for hmm, calibration in zip((self.hmm, self.held), calibrations, strict=True)
        )
        self.fitted = own, held
        if self.held_out_scores is not None:
            self.scores = self.held_out_scores(own)
        elif held_out.evaluating and held_out.usable[0].any():
            cutoffs = held_out.cutoffs[0].clip(0)
            self.scores = scores_at(
                lambda rows: held.with_baselines(rows, BASELINES), held_out.rows, cutoffs, self.horizon, self.season
            )

    def evaluate(self) -> Evaluation:
        return Evaluation.by(MASE, finite(self.scores[""].metrics()))

    def baselines(self) -> dict[str, float]:
        """The best baseline on the same window."""
        found = {name: one.score() for name, one in self.scores.items() if name and np.isfinite(one.score())}
        best = min(found, key=lambda name: found[name]) if found else ""
        return {best: found[best]} if best else {}

    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        own, held = self.models()
        scores = {name: finite(one.metrics()) for name, one in self.scores.items()}
        return {**own.tensors(OWN), **held.tensors(HELD)}, {"model": own.to_json(), "scores": scores}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"model.{name}": tensor.clone() for name, tensor in self.hmm.tensors().items()}
        if self.held is not None:
            tensors |= {f"held.{name}": tensor.clone() for name, tensor in self.held.tensors().items()}
        return tensors, {"before": self.before, "finished": self.fitted is not None, "held": self.held is not None}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        self.hmm, self.before = GaussianHMM.from_tensors(with_prefix(tensors, "model.")), float(metadata["before"])
        self._iterations = None
        if metadata["held"]:
            self.held = GaussianHMM.from_tensors(with_prefix(tensors, "held."))
        if metadata["finished"]:
            self._finish()


def _with_values(rows: Sequence[Array]) -> list[Array]:
    return [row for row in rows if np.isfinite(row).any()]


class RegimeState(NamedTuple):
    """What a watcher of regimes remembers of N series: moments of the values so far, the states' probabilities."""

    moments: Moments
    states: Tensor  # (N, K)


@dataclass(frozen=True)
class RegimeWatcher:
    """The normal score of each value in the predictive mixture, one step ahead."""

    hmm: GaussianHMM

    def start(self, rows: int) -> RegimeState:
        return RegimeState(Moments.none(rows), self.hmm.initial.expand(rows, -1).clone())

    def step(self, values: Array, state: RegimeState) -> tuple[Deviations, RegimeState]:
        moments, states = state
        x = torch.from_numpy(moments.scaled(values))
        centres, spreads = self.hmm.means[:, 0], self.hmm.variances[:, 0].sqrt()
        distances = (x[:, None] - centres) / spreads
        log = states.log()
        below, above = (torch.special.log_ndtr(sign * distances).add(log).logsumexp(-1) for sign in (1, -1))
        scores = torch.where(below < above, -_normal_score(below), _normal_score(above)).numpy()
        centre = (states * centres).sum(-1)
        spread = ((states * (spreads**2 + centres**2)).sum(-1) - centre**2).clamp(min=1e-12).sqrt()
        ready = moments.counts >= LEAST_VALUES
        expected = np.where(ready, moments.means + moments.deviations * centre.numpy(), np.nan)
        unit = np.where(ready, moments.deviations * spread.numpy(), np.nan)
        found = Deviations(np.where(ready, scores, np.nan)[:, None], expected, unit)
        return found, RegimeState(moments.after(values), self.hmm.step(x[:, None], states))


def _normal_score(log_tail: Tensor) -> Tensor:
    """The normal score whose upper tail has a log-probability; far out by its expansion."""
    far = (-2 * log_tail).clamp(min=1.0)
    return torch.where(log_tail < -300, (far - (far * 2 * np.pi).log()).sqrt(), -torch.special.ndtri(log_tail.exp()))


def fit_regime_detector(model: RegimeModel, rows: Sequence[Array], season: int) -> Detector:
    """The detector of a model of regimes; its tail is of values behind those that a model like it was fitted to."""
    known = _with_values(rows)
    cuts = [int(DETECTOR_SHARE * len(row)) for row in known]
    parts = scaled(_with_values([row[:cut] for row, cut in zip(known, cuts, strict=True)]) or known)
    fitted = GaussianHMM.first(parts, model.hmm.states)
    for iteration in baum_welch(fitted, parts, smoothing=PSEUDOCOUNT):
        fitted = iteration.model
        if iteration.number == FIRST_ITERATIONS:
            break
    reference = Detector(RegimeWatcher(fitted), ())
    sequences = []
    for row, cut in zip(known, cuts, strict=True):
        state, found = reference.start(1), []
        for value in row:
            deviations, state = reference.watcher.step(np.array([value]), state)
            found.append(deviations.values[0, 0])
        sequences.append(np.array(found[cut:]))
    return Detector(RegimeWatcher(model.hmm), (Tail.fit(sequences),))
