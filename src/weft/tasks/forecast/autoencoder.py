"""A recurrent autoencoder for anomaly scores: `model.kind=autoencoder`.

One recurrent layer reads the last values of a series; a few numbers of its last state, the bottleneck, are all that a
second layer has to write these values again, the last one first. What is unlike the training is written badly. Values
are reduced by the mean of their series so far and divided by its standard deviation. The first deviation of a value is
the error of its own reconstruction, the second that of all values read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from weft.data.column import IntArray
from weft.errors import WeftError
from weft.metrics import MEAN_ABSOLUTE_ERROR
from weft.nn import make_stack
from weft.tasks.forecast.anomalies import Detector, Deviations, Moments, Tail
from weft.tasks.forecast.config import ForecastConfig
from weft.tasks.forecast.fitting import OWN, ForecastPhase
from weft.tasks.forecast.linear import Array
from weft.tasks.forecast.model import SeriesRows
from weft.training.config import TrainConfig
from weft.training.gradient_descent import GradientDescent
from weft.training.loss import Loss
from weft.training.run import with_prefix

TRAINED_SHARE = 0.7  # of each series; what is behind calibrates alarms
FEWEST_READ, MOST_READ = 16, 64  # that are read, unless `model.lags` says how many
USUAL_UNITS, UNITS_FOR_ONE = 16, 4  # hidden units; of these for one number of the bottleneck
BATCHES_OF_EPOCH, WINDOWS_OF_BATCH, USUAL_EPOCHS = 50, 64, 12
LARGEST_INPUT = 20.0  # standard deviations; the network reads no larger ones
LARGEST_ERROR = 1e6  # standard deviations; larger ones count as this
NEEDED_VALUES = 8  # before a value is scored


class Autoencoder(nn.Module):
    """Reads and writes W values.

    Args:
        size: W.
        cell: a name of `weft.cells.CELLS`.
        hidden: the hidden units of both layers.
        bottleneck: the numbers between them.
    """

    def __init__(self, size: int, cell: str, hidden: int, bottleneck: int) -> None:
        super().__init__()
        self.size, self.sizes = size, {"size": size, "cell": cell, "hidden": hidden, "bottleneck": bottleneck}
        self.encoder = make_stack(cell, 2, hidden)
        self.narrow = nn.Linear(hidden, bottleneck)
        self.decoder = make_stack(cell, bottleneck, hidden)
        self.readout = nn.Linear(hidden, 1)

    def forward(self, values: Tensor) -> Tensor:
        """The values (B, W) as it writes them; NaN: missing."""
        known = ~values.isnan()
        filled = torch.where(known, values, 0.0).clamp(-LARGEST_INPUT, LARGEST_INPUT)
        read = self.encoder(torch.stack([filled, known.to(filled)], -1))[0]  # (B, W, H)
        code = self.narrow(read[:, -1]).tanh()  # (B, bottleneck)
        written: Tensor = self.readout(self.decoder(code[:, None].expand(-1, self.size, -1).contiguous())[0])
        return written[..., 0].flip(1)

    def loss(self, values: Tensor) -> Loss:
        """The absolute errors of the values that are known."""
        known = ~values.isnan()
        errors = (self(values) - torch.where(known, values, 0.0).clamp(-LARGEST_INPUT, LARGEST_INPUT)).abs()
        return Loss(torch.where(known, errors, 0.0).sum(), int(known.sum()))


class SeriesPieces:
    """The last W values before places of series, drawn at random, as a pure function of (seed, epoch)."""

    def __init__(self, rows: Sequence[Array], size: int, seed: int) -> None:
        self.size, self.seed, self.batches = size, seed, BATCHES_OF_EPOCH
        gap, parts, ends, place = np.full(size, np.nan), list[Array](), list[IntArray](), 0
        for row in rows:
            moments = Moments.of(row)
            parts += [gap, moments.scaled(row)]
            ends.append(np.flatnonzero(~np.isnan(row)) + place + size + 1)
            place += size + len(row)
        self.values, self.ends = np.concatenate(parts).astype(np.float32), np.concatenate(ends)

    def epoch(self, number: int, start: int = 0) -> Iterator[Tensor]:
        for chosen in self._drawn(number, start):
            yield self._at(chosen)

    def sliced_epoch(self, number: int, start: int, slices: int) -> Iterator[Callable[[int], Tensor | None]]:
        for chosen in self._drawn(number, start):
            yield partial(self._slice, chosen, slices)

    def _drawn(self, number: int, start: int) -> Iterator[IntArray]:
        random = np.random.default_rng((self.seed, number))
        for batch in range(self.batches):
            chosen = self.ends[random.integers(len(self.ends), size=WINDOWS_OF_BATCH)]
            if batch >= start:
                yield chosen

    def _slice(self, chosen: IntArray, slices: int, part: int) -> Tensor | None:
        own = chosen[part::slices]
        return self._at(own) if len(own) else None

    def _at(self, ends: IntArray) -> Tensor:
        return torch.from_numpy(self.values[ends[:, None] + np.arange(-self.size, 0)])


@dataclass(frozen=True)
class ReconstructionModel:
    """An autoencoder of a run. It scores anomalies, and does not forecast.

    Attributes:
        horizon: the number of steps that the settings name.
        season: the length of a season.
        network: what reads and writes.
    """

    horizon: int
    season: int
    network: Autoencoder

    @property
    def summary(self) -> str:
        sizes = self.network.sizes
        return f"autoencoder of {sizes['size']} values by {sizes['bottleneck']} numbers"

    def quantiles(self, rows: SeriesRows) -> Array:
        raise WeftError(
            "a run of `model.kind=autoencoder` does not forecast: it scores anomalies",
            expected="`weft anomalies`, or a run of another kind, such as `model.kind=auto`",
        )

    def with_baselines(self, rows: SeriesRows, names: Sequence[str]) -> dict[str, Array]:
        return {"": self.quantiles(rows)}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], data: Mapping[str, Any], prefix: str = "") -> ReconstructionModel:
        """The model of a run, which has one for both prefixes."""
        sizes = data["sizes"]
        network = Autoencoder(*(sizes[name] for name in ("size", "cell", "hidden", "bottleneck")))
        try:
            network.load_state_dict(with_prefix(tensors, OWN))
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        return cls(int(data["horizon"]), int(data["season"]), network.eval())


class AutoencoderFitting(GradientDescent, ForecastPhase):
    """Trains an autoencoder on the first part of each series."""

    def __init__(self, rows: SeriesRows, config: ForecastConfig, evaluates: bool) -> None:
        model, train = config.model, config.train
        self.horizon, self.season = model.horizon, model.season
        size = model.lags if model.lags > 0 else min(max(model.season, FEWEST_READ), MOST_READ)
        hidden = model.hidden_size if model.hidden_size > 0 else USUAL_UNITS
        torch.manual_seed(train.seed)
        network = Autoencoder(size, model.cell, hidden, max(1, hidden // UNITS_FOR_ONE))
        descent = TrainConfig(
            epochs=train.epochs if train.epochs > 0 else USUAL_EPOCHS,
            learning_rate=train.learning_rate,
            ema_decay=0.99,
            seed=train.seed,
            slices=train.slices,
        )
        pieces = SeriesPieces(before_calibration(rows.targets), size, train.seed)
        super().__init__(network, pieces, lambda batch, carried: network.loss(batch), descent, loss=MEAN_ABSOLUTE_ERROR)

    def models(self) -> tuple[ReconstructionModel, ReconstructionModel]:
        found = ReconstructionModel.restore(*self.weights_of_model())
        return found, found

    def weights_of_model(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors of the network and what `restore` needs beside them."""
        tensors, _ = super().weights()
        data = {"horizon": self.horizon, "season": self.season, "sizes": self.model.sizes}
        return {f"{OWN}{name}": tensor for name, tensor in tensors.items()}, data

    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, data = self.weights_of_model()
        return tensors, {"model": data, "scores": {}}


def before_calibration(rows: Sequence[Array]) -> list[Array]:
    """The part of each series that a network is trained on; all of them where that has no value."""
    found = [row[: int(TRAINED_SHARE * len(row))] for row in rows]
    return [part if np.isfinite(part).any() else row for part, row in zip(found, rows, strict=True)]


class ReadState(NamedTuple):
    """What a watcher by reconstruction remembers of N series: moments of the values so far, and the last W (N, W)."""

    moments: Moments
    last: Array


@dataclass(frozen=True)
class ReconstructionWatcher:
    """The errors of a reconstruction: of the last value, and of all that were read."""

    network: Autoencoder

    def start(self, rows: int) -> ReadState:
        return ReadState(Moments.none(rows), np.full((rows, self.network.size), np.nan))

    @torch.no_grad()
    def step(self, values: Array, state: ReadState) -> tuple[Deviations, ReadState]:
        moments, last = state.moments, np.concatenate([state.last[:, 1:], values[:, None]], 1)
        scaled = (last - moments.means[:, None]) / moments.deviations[:, None]
        scaled = scaled.clip(-LARGEST_ERROR, LARGEST_ERROR).astype(np.float32)
        ready = moments.counts >= NEEDED_VALUES
        written = np.full(last.shape, np.nan)
        for row in np.flatnonzero(ready):  # one by one: the bits of a row depend on no others
            written[row] = self.network(torch.from_numpy(scaled[row : row + 1]))[0].numpy()
        known = ~np.isnan(scaled)
        errors = np.where(known, scaled - written, 0.0)
        sizes = np.sqrt((errors**2).sum(1) / np.maximum(known.sum(1), 1))
        own = np.where(ready & ~np.isnan(values), errors[:, -1], np.nan)
        both = np.stack([own, np.where(np.isnan(own), np.nan, sizes)], 1)
        expected = moments.means + moments.deviations * written[:, -1]
        unit = np.where(ready, moments.deviations, np.nan)
        return Deviations(both, expected, unit), ReadState(moments.after(values), last)


def fit_reconstruction_detector(model: ReconstructionModel, rows: Sequence[Array], season: int) -> Detector:
    """The detector of an autoencoder; its tails are of the values behind those that it was trained on."""
    watcher = ReconstructionWatcher(model.network)
    sequences: list[list[Array]] = [[], []]
    for row in rows:
        state, found = watcher.start(1), list[Array]()
        for value in row:
            deviations, state = watcher.step(np.array([value]), state)
            found.append(deviations.values[0])
        table = np.stack(found) if found else np.zeros((0, 2))
        for part, column in zip(sequences, table[int(TRAINED_SHARE * len(row)) :].T, strict=True):
            part.append(column)
    return Detector(watcher, tuple(Tail.fit(part) for part in sequences))
