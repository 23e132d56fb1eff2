"""Networks that forecast one step after the other, each of which feeds its forecasts back.

A recurrent layer has a latent state, which may remember everything. The autoregressive network has none: the next value
depends on a number of last values only (the Markov assumption). Both give a distribution of the next value. A forecast
is made of sample paths: values are drawn step by step, and each is an input of the next ones. The horizon may be
longer than that of the training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.cells import State
from weft.metrics.forecast import QUANTILE_LEVELS
from weft.nn import make_stack, map_state
from weft.tasks.forecast.distributions import DISTRIBUTIONS, Uniforms
from weft.tasks.forecast.network import NetworkForm, SeriesNetwork, SeriesWindows
from weft.training.loss import Loss

PATHS = 100  # that a forecast is made of
LARGEST_DRAW = 1e4  # in units of the scale: paths may not explode
RECENT_VALUES = 3  # last values that a recurrent network has as inputs, beside those of a season before


class StepNetwork(SeriesNetwork):
    """Inputs of a step: earlier values, which of them are missing, the mean of the lags, and covariates of the step.

    The parameters of the distribution are a linear map of the inputs plus a map of the hidden units.
    """

    def __init__(self, form: NetworkForm, earlier: list[int], hidden: int) -> None:
        super().__init__()
        self.form, self.earlier = form, earlier
        self.distribution = DISTRIBUTIONS[form.distribution]()
        self.input_size = 2 * len(earlier) + 1 + form.features + form.window.context
        self.map = nn.Linear(self.input_size, self.distribution.size)
        self.head = nn.Linear(hidden, self.distribution.size) if hidden else None
        self.dropout = nn.Dropout(form.dropout)
        nn.init.zeros_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def hidden(self, inputs: Tensor, state: State) -> tuple[Tensor | None, State]:
        """The hidden units (B, T, U) of steps, and the state after them; by default there are none."""
        return None, state

    def parameters_of(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """The parameters (B, T, P) of the distributions of values from the inputs (B, T, I) of their steps."""
        units, state = self.hidden(inputs, state)
        found = self.map(inputs)
        return found if units is None or self.head is None else found + self.head(self.dropout(units)), state

    def loss(self, batch: SeriesWindows) -> Loss:
        values = torch.cat([batch.lags, torch.where(batch.known, batch.targets, 0.0)], 1)
        seen = torch.cat([batch.seen, batch.known.float()], 1)
        parameters, _ = self.parameters_of(self.inputs(batch, values, seen), None)
        parameters = parameters[:, -batch.horizon :]
        scales = batch.scales.float()[:, None]
        losses = self.distribution.losses(parameters, values[:, -batch.horizon :], batch.offsets[:, None], scales)
        return Loss(torch.where(batch.known, losses, 0.0).sum(), int(batch.known.sum()))

    def inputs(self, batch: SeriesWindows, values: Tensor, seen: Tensor) -> Tensor:
        """The inputs (B, T, I) of the last T steps, from values and masks (B, .) up to them: those that have all."""
        steps, reach = values.shape[1], max(self.earlier)
        masked = values * seen
        columns = [part[:, reach - back : steps - back] for part in (masked, seen) for back in self.earlier]
        columns.append(batch.lags.mean(1, keepdim=True).expand(-1, steps - reach))
        return torch.cat([torch.stack(columns, -1), batch.features[:, reach:steps]], -1)

    def quantiles(self, batch: SeriesWindows) -> Tensor:
        rows, reach = len(batch.lags), max(self.earlier)
        state: State = None
        if batch.lags.shape[1] > reach:
            _, state = self.hidden(self.inputs(batch, batch.lags, batch.seen), None)
        first, second = _uniforms(batch.horizon)
        # (B, S, reach) the last values of each path; then as rows of one batch
        past, seen = (
            part[:, None, -reach:].expand(-1, PATHS, -1).reshape(rows * PATHS, reach)
            for part in (batch.lags * batch.seen, batch.seen)
        )
        state = None if state is None else map_state(lambda leaf: leaf.repeat_interleave(PATHS, 0), state)
        mean = batch.lags.mean(1).repeat_interleave(PATHS)[:, None]
        offsets, scales = batch.offsets[:, None], batch.scales.float()[:, None]
        drawn = []
        for step in range(batch.horizon):
            places = [reach - back for back in self.earlier]
            features = batch.features[:, batch.lags.shape[1] + step].repeat_interleave(PATHS, 0)
            inputs = torch.cat([past[:, places], seen[:, places], mean, features], 1)[:, None]
            parameters, state = self.parameters_of(inputs, state)
            uniforms = Uniforms(first[step], second[step])
            value = self.distribution.draw(parameters.view(rows, PATHS, -1), uniforms, offsets, scales)
            value = value.clamp(-LARGEST_DRAW, LARGEST_DRAW)
            drawn.append(value)
            past = torch.cat([past[:, 1:], value.reshape(-1, 1)], 1)
            seen = torch.cat([seen[:, 1:], torch.ones(len(seen), 1)], 1)
        paths = torch.stack(drawn, 1)  # (B, H, S)
        return torch.quantile(paths.double(), torch.tensor(QUANTILE_LEVELS, dtype=torch.float64), -1).movedim(0, -1)


class RecurrentNetwork(StepNetwork):
    """A recurrent layer over the steps of a series."""

    def __init__(self, form: NetworkForm) -> None:
        backs = {*range(1, RECENT_VALUES + 1), form.season, form.season + 1}
        super().__init__(form, sorted(back for back in backs if back < form.lags) or [1], form.hidden_size)
        self.stack = make_stack(form.cell, self.input_size, form.hidden_size)

    def hidden(self, inputs: Tensor, state: State) -> tuple[Tensor | None, State]:
        outputs: tuple[Tensor, Any] = self.stack(inputs, state)
        return outputs


class AutoregressiveNetwork(StepNetwork):
    """A map of the last L values: linear, with a hidden layer beside it if there are hidden units."""

    def __init__(self, form: NetworkForm) -> None:
        super().__init__(form, list(range(1, form.lags + 1)), form.hidden_size)
        self.layer = nn.Linear(self.input_size, form.hidden_size) if form.hidden_size else None

    def hidden(self, inputs: Tensor, state: State) -> tuple[Tensor | None, State]:
        return None if self.layer is None else torch.relu(self.layer(inputs)), None


def _uniforms(steps: int) -> tuple[Tensor, Tensor]:
    """Two uniform random numbers (steps, S) for each path and step, the same for all series; evenly spread."""
    random = np.random.default_rng(0)
    orders = [random.permutation(PATHS) for _ in range(2 * steps)]  # the first steps do not depend on how many follow
    uniforms = torch.from_numpy((np.stack(orders) + 0.5) / PATHS).float()
    return uniforms[::2], uniforms[1::2]
