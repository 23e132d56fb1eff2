"""Predictive distributions of the next value: what networks that forecast step by step end with.

Each has a number of parameters for a value, the negative log-likelihood of a value under them, and draws from them. A
draw is a function of uniform random numbers, so that series do not depend on each other and a forecast can be repeated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.metrics.forecast import QUANTILE_LEVELS
from weft.tasks.forecast.calibration import NORMAL_SCORES

LEAST_SCALE = 1e-3  # of a distribution, in units of the series' scale
MIXTURE_COMPONENTS = 3  # of a mixture
LARGEST_MEAN = 1e8  # of counts
MOST_INVERTED = 200  # steps of the inversion of a distribution of counts


class Uniforms(NamedTuple):
    """Two independent uniform random numbers for each draw, strictly between 0 and 1."""

    first: Tensor
    second: Tensor

    @property
    def normal(self) -> Tensor:
        found: Tensor = torch.special.ndtri(self.first)
        return found


class Distribution(ABC):
    """A family of distributions of values in units of the scale of a series.

    `offsets` are where the value 0 stands, in units of the scale, and `scales` the scale: what counts need.
    """

    size: int  # parameters

    @abstractmethod
    def losses(self, parameters: Tensor, values: Tensor, offsets: Tensor, scales: Tensor) -> Tensor:
        """The negative log-likelihoods (...) of values (...) under parameters (..., P)."""

    @abstractmethod
    def draw(self, parameters: Tensor, uniforms: Uniforms, offsets: Tensor, scales: Tensor) -> Tensor:
        """Values (...) from parameters (..., P) and uniform random numbers (...)."""


class Gaussian(Distribution):
    size = 2

    def losses(self, parameters: Tensor, values: Tensor, offsets: Tensor, scales: Tensor) -> Tensor:
        mean, deviation = _location_and_scale(parameters)
        return 0.5 * ((values - mean) / deviation) ** 2 + deviation.log() + 0.5 * math.log(2 * math.pi)

    def draw(self, parameters: Tensor, uniforms: Uniforms, offsets: Tensor, scales: Tensor) -> Tensor:
        mean, deviation = _location_and_scale(parameters)
        return mean + deviation * uniforms.normal


class StudentT(Distribution):
    """With more than 2 degrees of freedom."""

    size = 3

    def losses(self, parameters: Tensor, values: Tensor, offsets: Tensor, scales: Tensor) -> Tensor:
        location, scale = _location_and_scale(parameters)
        freedom = self._freedom(parameters)
        squares = ((values - location) / scale) ** 2
        constant = torch.lgamma(freedom / 2) - torch.lgamma((freedom + 1) / 2) + 0.5 * (math.pi * freedom).log()
        return constant + scale.log() + (freedom + 1) / 2 * torch.log1p(squares / freedom)

    def draw(self, parameters: Tensor, uniforms: Uniforms, offsets: Tensor, scales: Tensor) -> Tensor:
        location, scale = _location_and_scale(parameters)
        freedom = self._freedom(parameters)
        # Bailey 1994: as Box-Muller, with a power instead of the logarithm.
        radius = (freedom * (uniforms.first ** (-2 / freedom) - 1)).sqrt()
        return location + scale * radius * torch.cos(2 * math.pi * uniforms.second)

    def _freedom(self, parameters: Tensor) -> Tensor:
        return 2.1 + 20 * F.softplus(parameters[..., 2])


class GaussianMixture(Distribution):
    size = 3 * MIXTURE_COMPONENTS

    def losses(self, parameters: Tensor, values: Tensor, offsets: Tensor, scales: Tensor) -> Tensor:
        shares, means, deviations = self._components(parameters)
        densities = -0.5 * ((values[..., None] - means) / deviations) ** 2 - deviations.log()
        return 0.5 * math.log(2 * math.pi) - torch.logsumexp(shares + densities, -1)

    def draw(self, parameters: Tensor, uniforms: Uniforms, offsets: Tensor, scales: Tensor) -> Tensor:
        shares, means, deviations = self._components(parameters)
        below = (
            (shares.exp().cumsum(-1) < uniforms.second[..., None])
            .sum(-1, keepdim=True)
            .clamp(max=MIXTURE_COMPONENTS - 1)
        )
        mean, deviation = (part.gather(-1, below)[..., 0] for part in (means, deviations))
        return mean + deviation * uniforms.normal

    def _components(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shares, means, widths = parameters.chunk(3, -1)
        apart = torch.linspace(-0.5, 0.5, MIXTURE_COMPONENTS)  # so that components differ from the first step on
        return shares.log_softmax(-1), means + apart, LEAST_SCALE + F.softplus(widths)


class Quantiles(Distribution):
    """Quantiles, by the pinball loss; between them values are interpolated over normal scores."""

    size = len(QUANTILE_LEVELS)

    def losses(self, parameters: Tensor, values: Tensor, offsets: Tensor, scales: Tensor) -> Tensor:
        levels, errors = torch.tensor(QUANTILE_LEVELS), values[..., None] - self._ordered(parameters)
        return torch.maximum(levels * errors, (levels - 1) * errors).mean(-1)

    def draw(self, parameters: Tensor, uniforms: Uniforms, offsets: Tensor, scales: Tensor) -> Tensor:
        quantiles, known = self._ordered(parameters), torch.from_numpy(NORMAL_SCORES).float()
        scores = uniforms.normal.expand(quantiles.shape[:-1]).contiguous()
        right = torch.searchsorted(known, scores).clamp(1, self.size - 1)
        below, above = known[right - 1], known[right]
        low, high = (quantiles.gather(-1, place[..., None])[..., 0] for place in (right - 1, right))
        return low + (scores - below) / (above - below) * (high - low)

    def _ordered(self, parameters: Tensor) -> Tensor:
        start = parameters[..., :1] - 0.5
        return torch.cat([start, start + (0.1 * F.softplus(parameters[..., 1:])).cumsum(-1)], -1)


class NegativeBinomial(Distribution):
    """Counts: 0, 1, 2, ...; the mean is in units of the scale, the variance is mean + mean^2 / shape."""

    size = 2

    def losses(self, parameters: Tensor, values: Tensor, offsets: Tensor, scales: Tensor) -> Tensor:
        mean, shape = self._mean_and_shape(parameters, offsets, scales)
        counts = ((values - offsets) * scales).round().clamp(min=0)
        log_total = (mean + shape).log()
        return (
            torch.lgamma(shape)
            + torch.lgamma(counts + 1)
            - torch.lgamma(counts + shape)
            - shape * (shape.log() - log_total)
            - counts * (mean.log() - log_total)
        )

    def draw(self, parameters: Tensor, uniforms: Uniforms, offsets: Tensor, scales: Tensor) -> Tensor:
        mean, shape = self._mean_and_shape(parameters, offsets, scales)
        counts = _counts(uniforms, mean.double(), shape.double()).to(mean.dtype)
        return counts / scales + offsets

    def _mean_and_shape(self, parameters: Tensor, offsets: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
        mean = (F.softplus(parameters[..., 0] - offsets) * scales).clamp(1e-6, LARGEST_MEAN)
        return mean, 1e-3 + F.softplus(parameters[..., 1])


def _location_and_scale(parameters: Tensor) -> tuple[Tensor, Tensor]:
    return parameters[..., 0], LEAST_SCALE + F.softplus(parameters[..., 1])


def _counts(uniforms: Uniforms, mean: Tensor, shape: Tensor) -> Tensor:
    """Negative binomial counts: the first one whose cumulative probability reaches the uniform number.

    Beyond `MOST_INVERTED` they are values of a gamma distribution, by the cube root of Wilson and Hilferty (1931).
    """
    wanted = uniforms.first.double().expand(mean.shape)
    term, ratio = (shape / (shape + mean)) ** shape, mean / (mean + shape)
    counts, total = torch.zeros_like(mean), term
    left = (total < wanted) & (mean < MOST_INVERTED)
    for number in range(MOST_INVERTED):
        if not left.any():
            break
        term = term * (number + shape) / (number + 1) * ratio
        counts, total = counts + left, total + term
        left &= total < wanted
    cube = (1 - 1 / (9 * shape) + uniforms.normal.double() / (3 * shape.sqrt())).clamp(min=0) ** 3
    return torch.where(left | (mean >= MOST_INVERTED), torch.maximum((mean * cube).round(), counts), counts)


DISTRIBUTIONS: Mapping[str, Callable[[], Distribution]] = {
    "gaussian": Gaussian,
    "student-t": StudentT,
    "gaussian-mixture": GaussianMixture,
    "quantiles": Quantiles,
    "negative-binomial": NegativeBinomial,
}
