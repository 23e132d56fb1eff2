"""Features of series by random convolutions: how often each of many kernels responds above a threshold.

The kernels are the 84 ways to put three weights of 2 among nine, the other six being -1, at several dilations, each on
a random choice of channels. A feature is the share of steps at which the response is above a threshold; thresholds are
quantiles of the responses on training series. The features of a series do not depend on its length or on other series.

Dempster, Schmidt and Webb 2021, "MiniRocket: a very fast (almost) deterministic transform for time series
classification".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.data.buckets import in_batches
from weft.data.column import Array, IntArray

KERNEL_LENGTH = 9
TRIPLES = np.array(list(itertools.combinations(range(KERNEL_LENGTH), 3)))  # (84, 3) where the weights are 2
WANTED_FEATURES = 4956  # 59 for each kernel
MOST_FEATURE_VALUES = 1 << 26  # of all features of the training series: keeps them within 256 MB
MOST_DILATIONS = 16
MOST_CHANNELS = 9  # that a kernel reads
BATCH_VALUES = 1 << 16  # steps of padded series in a batch, times channels
THRESHOLD_SERIES = 8  # training series whose responses give the thresholds of a dilation
_GOLDEN = (math.sqrt(5) + 1) / 2


@dataclass(frozen=True, eq=False)
class ConvolutionKernels:
    """Kernels for series of C channels, which have mean 0 and deviation 1.

    Attributes:
        dilations: (D,).
        channels: (D, 84, M) the channels of each kernel; C stands for none.
        thresholds: (D, 84, Q), NaN where a dilation has fewer than Q.
    """

    dilations: IntArray
    channels: IntArray
    thresholds: Array

    @classmethod
    def fit(cls, series: Sequence[Array], seed: int) -> ConvolutionKernels:
        """The kernels for training series (T, C)."""
        rng = np.random.default_rng((seed, 0xC0))
        width, longest = series[0].shape[1], max(map(len, series))
        each = max(1, min(WANTED_FEATURES, MOST_FEATURE_VALUES // len(series)) // len(TRIPLES))
        highest = math.log2(max(1.0, (longest - 1) / (KERNEL_LENGTH - 1)))
        steps = np.floor(2 ** np.linspace(0, highest, min(each, MOST_DILATIONS * 2))).astype(np.int64)
        dilations, times = np.unique(steps, return_counts=True)
        counts = np.maximum(1, times * each // times.sum())
        counts[0] += max(0, each - counts.sum())
        most = min(width, MOST_CHANNELS)
        channels = np.full((len(dilations), len(TRIPLES), most), width, np.int64)
        for place in np.ndindex(channels.shape[:2]):
            number = int(2 ** rng.uniform(0, math.log2(most + 1)))
            channels[place][:number] = rng.choice(width, number, replace=False)
        thresholds = np.full((len(dilations), len(TRIPLES), counts.max()), np.nan, np.float32)
        found = cls(dilations, channels, thresholds)
        quantile = 0
        for place, count in enumerate(counts.tolist()):
            chosen = rng.choice(len(series), min(THRESHOLD_SERIES, len(series)), replace=False)
            responses = [found._responses(_present(series[row])[None], place)[0] for row in chosen]
            for kernel in range(len(TRIPLES)):
                shares = (np.arange(quantile + 1, quantile + count + 1) * _GOLDEN) % 1
                quantile += count
                values = np.concatenate([one[kernel] for one in responses])
                thresholds[place, kernel, :count] = np.quantile(values, shares)
        return found

    @property
    def size(self) -> int:
        """F, the number of features."""
        return int((~np.isnan(self.thresholds)).sum())

    def of(self, series: Sequence[Array]) -> list[Array]:
        """The features (F,) of each series (T, C); a missing value is read as the mean of its channel."""
        lengths = np.array([len(one) for one in series], np.int64)
        width = series[0].shape[1] if len(series) else 1

        def compute(rows: IntArray) -> list[Array]:
            padded = np.zeros((len(rows), int(lengths[rows].max()), width), np.float32)
            for place, row in enumerate(rows.tolist()):
                padded[place, : lengths[row]] = _present(series[row])
            return list(self._shares(padded, lengths[rows]))

        return in_batches(lengths, compute, max_tokens=max(1, BATCH_VALUES // width), size=64)

    def _shares(self, x: Array, lengths: IntArray) -> Array:
        """For rows (B, T, C) the share of steps above each threshold, (B, F)."""
        inside = (np.arange(x.shape[1]) < lengths[:, None])[:, None]  # (B, 1, T)
        found = []
        for place, thresholds in enumerate(self.thresholds):
            responses = self._responses(x, place)
            responses[~np.broadcast_to(inside, responses.shape)] = -np.inf
            for row in thresholds.T:  # (84,), NaN from the first one that is not used
                if not np.isnan(row).any():
                    found.append((responses > row[:, None]).sum(2) / lengths[:, None])
        return np.concatenate(found, 1).astype(np.float32)

    def _responses(self, x: Array, place: int) -> Array:
        """The responses (B, 84, T) of the kernels of a dilation to rows (B, T, C), which end in zeros.

        Sums of single elements in a fixed order: a row has the same bits alone and in a batch.
        """
        batch, steps, _ = x.shape
        reach = (KERNEL_LENGTH - 1) // 2 * int(self.dilations[place])
        padded = np.zeros((batch, x.shape[2] + 1, steps + 2 * reach), np.float32)
        padded[:, :-1, reach : reach + steps] = x.transpose(0, 2, 1)
        channels = self.channels[place]
        mixed = padded[:, channels[:, 0]]  # (B, 84, T + 2 reach), of the sums of channels
        for column in range(1, channels.shape[1]):
            used = channels[:, column] < x.shape[2]
            mixed[:, used] += padded[:, channels[used, column]]
        shifted = [mixed[:, :, begin : begin + steps] for begin in range(0, 2 * reach + 1, int(self.dilations[place]))]
        total = shifted[0] + shifted[1]
        for one in shifted[2:]:
            total += one
        responses = np.empty_like(total)
        for kernel, (first, second, third) in enumerate(TRIPLES.tolist()):
            three = shifted[first][:, kernel] + shifted[second][:, kernel] + shifted[third][:, kernel]
            responses[:, kernel] = 3 * three - total[:, kernel]
        return responses

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        return {f"{prefix}{name}": torch.from_numpy(np.ascontiguousarray(value)) for name, value in vars(self).items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], width: int) -> ConvolutionKernels:
        """The kernels for so many channels from what `tensors` returned, without the prefix.

        Raises:
            LookupError, ValueError: they are not of such kernels.
        """
        arrays: dict[str, Any] = {name: tensors[name].numpy() for name in ("dilations", "channels", "thresholds")}
        found = cls(**arrays)
        shape = (len(found.dilations), len(TRIPLES))
        if (
            found.dilations.ndim != 1 or found.channels.ndim != 3 or found.thresholds.ndim != 3
            or found.channels.shape[:2] != shape or found.thresholds.shape[:2] != shape
            or found.dilations.dtype != np.int64 or found.channels.dtype != np.int64
            or not (found.dilations > 0).all()
            or not ((found.channels >= 0) & (found.channels <= width)).all() or not found.size
        ):  # fmt: skip
            raise ValueError(f"no kernels for {width} channels")
        return found


def _present(values: Array) -> Array:
    """Values with 0, the mean, where one is missing."""
    return np.nan_to_num(values, nan=0.0).astype(np.float32)
