"""A network that forecasts all steps of the horizon at once, on top of the linear map.

Segments of the series are the steps of a recurrent layer (SegRNN, Lin et al. 2023), so that few steps read long series.
Its last output gives the quantiles of every step of the horizon, as corrections of a linear map that starts from the
ridge regression and is trained further.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor, nn

from weft.metrics.forecast import QUANTILE_LEVELS
from weft.nn import make_stack
from weft.tasks.forecast.linear import STRENGTHS, LinearMap, Panel, sum_windows
from weft.tasks.forecast.network import NetworkForm, SeriesNetwork, SeriesWindows, pinball_loss
from weft.training.loss import Loss

LONGEST_SEGMENT = 24
USUAL_STRENGTH = STRENGTHS.index(1e-3)  # of the ridge that the linear map starts from
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
        """The inputs (B, S, U) of the recurrent layer: S segments of the lags."""
        rows, size = len(batch.lags), self.segment * self.segments
        parts = [part[:, -size:].reshape(rows, self.segments, self.segment) for part in (batch.lags, 1 - batch.seen)]
        return torch.relu(self.embedding(torch.cat(parts, -1)))

    def quantiles(self, batch: SeriesWindows) -> Tensor:
        return self.quantiles_after(self.read(batch), batch)

    def quantiles_after(self, segments: Tensor, batch: SeriesWindows) -> Tensor:
        """The quantiles (B, H, Q) after segments (B, S, U) of these windows."""
        form, rows = self.form, len(segments)
        own, common = torch.cat([batch.lags, batch.context], 1), form.window.common
        shared = torch.cat([self.map[:, : form.lags], self.map[:, form.lags + 1 : common]], 1)
        linear = own @ shared.T + self.map[:, form.lags]  # (B, H)
        if form.features:
            linear = linear + torch.einsum("bhe,he->bh", batch.inputs, self.map[:, common:])
        outputs, _ = self.stack(segments)
        last = self.dropout(outputs[:, -1])
        corrections = self.head(last).view(rows, form.horizon, -1)
        if self.covariates:
            inputs = torch.cat([batch.inputs, batch.context[:, None].expand(-1, form.horizon, -1)], -1)
            inputs = inputs.expand(rows, -1, -1)
            each = torch.cat([last[:, None].expand(-1, form.horizon, -1), inputs], -1)
            corrections = corrections + self.mixed_head(torch.relu(self.mixed(each)))
        quantiles: Tensor = (batch.naive + linear)[..., None] + corrections
        return quantiles
