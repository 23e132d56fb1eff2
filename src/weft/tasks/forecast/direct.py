"""A network that forecasts all steps of the horizon at once, on top of the linear map.

Segments of the series are the steps of a recurrent layer (SegRNN, Lin et al. 2023), so that few steps read long series.
Its last output gives the quantiles of every step of the horizon, as corrections of a linear map that starts from the
ridge regression and is trained further. With attention each step of the horizon also has a query of its own, which
reads the outputs of all segments.

The network of ES-RNN (Smyl 2020) reads what is left of a series when its level and its season are taken away.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor, nn

from weft.metrics.forecast import QUANTILE_LEVELS
from weft.nn import make_stack
from weft.nn.attention import Attention
from weft.tasks.forecast.linear import STRENGTHS, LinearMap, Panel, sum_windows
from weft.tasks.forecast.network import NO_ATTENTION, NetworkForm, SeriesNetwork, SeriesWindows, pinball_loss
from weft.training.loss import Loss

LONGEST_SEGMENT = 24
USUAL_STRENGTH = STRENGTHS.index(1e-3)  # of the ridge that the linear map starts from
RATE_UNITS, FIRST_RATES = 16, (0.3, 0.2)  # hidden units of the rates of smoothing, and the rates at the start
NARROWER = 0.7  # the errors that are left, as a share of those of the linear map


def segment_size(season: int, horizon: int) -> int:
    """A season, or a part of it where it is long; of series without a season the horizon.

    >>> [segment_size(season, 6) for season in (12, 24, 52, 1)]
    [12, 24, 18, 6]
    """
    whole = season if season > 1 else horizon
    return -(-whole // -(-whole // LONGEST_SEGMENT))


class DirectNetwork(SeriesNetwork):
    """Quantiles (B, H, Q) = naive + linear map + head(last output of the layer over segments).

    Covariates of a step, and what is known of past and static ones, enter the head by a layer that all steps share.
    """

    def __init__(self, form: NetworkForm) -> None:
        super().__init__()
        self.form, hidden, levels = form, form.hidden_size, len(QUANTILE_LEVELS)
        self.segment = min(segment_size(form.season, form.horizon), form.lags)
        self.segments = form.lags // self.segment
        self.embedding = nn.Linear(2 * self.segment, hidden)  # values, and which are missing
        self.stack = make_stack(form.cell, hidden, hidden)
        self.dropout = nn.Dropout(form.dropout)
        self.head = nn.Linear(hidden, form.horizon * levels)
        self.map = nn.Parameter(torch.zeros(form.horizon, form.window.inputs))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if form.attention != NO_ATTENTION:
            self.queries = nn.Parameter(0.1 * torch.randn(form.horizon, hidden))
            self.attention = Attention(form.attention, hidden, hidden)
            self.attended_head = nn.Linear(hidden, levels)
            nn.init.zeros_(self.attended_head.weight)
            nn.init.zeros_(self.attended_head.bias)
        self.covariates = 2 * form.features + form.window.context
        if self.covariates:
            self.mixed = nn.Linear(hidden + self.covariates, hidden)
            self.mixed_head = nn.Linear(hidden, levels)
            nn.init.zeros_(self.mixed_head.weight)
            nn.init.zeros_(self.mixed_head.bias)

    @torch.no_grad()
    def start_from(self, panel: Panel, held_out: int) -> None:
        solved = LinearMap.solve(panel.form, sum_windows(panel, held_out)[held_out])[USUAL_STRENGTH]
        self.map.copy_(torch.from_numpy(solved.weights))
        scores = torch.tensor([NormalDist().inv_cdf(level) for level in QUANTILE_LEVELS])
        widths = NARROWER * torch.from_numpy(solved.deviations).float()
        self.head.bias.copy_((widths[:, None] * scores).flatten())

    def loss(self, batch: SeriesWindows) -> Loss:
        return pinball_loss(self.quantiles(batch), batch.targets, batch.known)

    def read(self, batch: SeriesWindows) -> Tensor:
        """The inputs (B, S, U) of the recurrent layer: S segments of the lags of prepared windows."""
        rows, size = len(batch.lags), self.segment * self.segments
        parts = [part[:, -size:].reshape(rows, self.segments, self.segment) for part in (batch.lags, 1 - batch.seen)]
        return torch.relu(self.embedding(torch.cat(parts, -1)))

    def prepared(self, batch: SeriesWindows) -> SeriesWindows:
        """The windows as `read` and `quantiles_after` take them."""
        return batch

    def quantiles(self, batch: SeriesWindows) -> Tensor:
        batch = self.prepared(batch)
        return self.quantiles_after(self.read(batch), batch)

    def quantiles_after(self, segments: Tensor, batch: SeriesWindows) -> Tensor:
        """The quantiles (B, H, Q) after segments (B, S, U) of prepared windows."""
        form, rows = self.form, len(segments)
        own, common = torch.cat([batch.lags, batch.context], 1), form.window.common
        shared = torch.cat([self.map[:, : form.lags], self.map[:, form.lags + 1 : common]], 1)
        linear = own @ shared.T + self.map[:, form.lags]  # (B, H)
        if form.features:
            linear = linear + torch.einsum("bhe,he->bh", batch.inputs, self.map[:, common:])
        outputs, _ = self.stack(segments)
        last = self.dropout(outputs[:, -1])
        corrections = self.head(last).view(rows, form.horizon, -1)
        if form.attention != NO_ATTENTION:
            memory = self.attention.prepare(outputs, torch.full((rows,), outputs.shape[1]))
            attended, _ = self.attention(last[:, None] + self.queries, memory)
            corrections = corrections + self.attended_head(self.dropout(attended))
        if self.covariates:
            inputs = torch.cat([batch.inputs, batch.context[:, None].expand(-1, form.horizon, -1)], -1)
            inputs = inputs.expand(rows, -1, -1)
            each = torch.cat([last[:, None].expand(-1, form.horizon, -1), inputs], -1)
            corrections = corrections + self.mixed_head(torch.relu(self.mixed(each)))
        quantiles: Tensor = (batch.naive + linear)[..., None] + corrections
        return quantiles


class SmoothedNetwork(DirectNetwork):
    """A network beside exponential smoothing: level_t = level + a * error_t, season_t = season + b * error_t.

    The error is what level and season did not forecast. Both rates, from 0 to 1, are functions of the values of the
    series, so that each series has its own, also one that was not in the training. The network reads the values
    without the season and the last level, and corrects the last level and season. All is in units of the scale of the
    series, or on logarithms.
    """

    def __init__(self, form: NetworkForm) -> None:
        super().__init__(form)
        rates = nn.Linear(RATE_UNITS, 2)
        nn.init.zeros_(rates.weight)
        with torch.no_grad():
            rates.bias.copy_(torch.tensor(FIRST_RATES).logit())
        self.rates = nn.Sequential(nn.Linear(form.lags, RATE_UNITS), nn.Tanh(), rates)

    @torch.no_grad()
    def start_from(self, panel: Panel, held_out: int) -> None:
        super().start_from(panel, held_out)
        self.map.zero_()  # it would correct the seasonal naive forecast

    def prepared(self, batch: SeriesWindows) -> SeriesWindows:
        """The windows with what smoothing leaves as the lags, and its forecast in the place of the naive one."""
        span, horizon = min(self.form.season, self.form.lags), self.form.horizon
        rates = self.rates(batch.lags).sigmoid()
        level_rate, season_rate = rates[:, 0], rates[:, 1] * (span > 1)  # without a season there is only a level
        level = batch.lags[:, :span].mean(1)
        season, past = list((batch.lags[:, :span] - level[:, None]).unbind(1)), list[Tensor]()
        for step, (value, seen) in enumerate(zip(batch.lags.unbind(1), batch.seen.unbind(1), strict=True)):
            expected = season[step % span]
            error = seen * (value - level - expected)  # a missing value teaches nothing
            past.append(expected)
            level, season[step % span] = level + level_rate * error, expected + season_rate * error
        forecast = torch.stack([level + season[(self.form.lags + step) % span] for step in range(horizon)], 1)
        left = batch.lags - torch.stack(past, 1) - level[:, None]
        return batch._replace(lags=left, naive=forecast)
