"""Gradients of each sample (`vmap` of `grad`): a layer of weft, the same step by step in torch, and torch.nn.LSTM.

All are checked to agree, then alternate in one process; a time is the shortest of its rounds.

    python -m benchmarks.speed.per_sample [--rows 32] [--hidden 128] [--seconds 5]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import weft

STEPS = (20, 100)


def gradients_of(layer: nn.Module, x: Tensor) -> Callable[[], list[Tensor]]:
    """The gradients of all parameters for each row of x."""
    weights = {name: weight.detach() for name, weight in layer.named_parameters()}

    def loss(weights: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(layer, weights, (row[None],))[0].square().sum()

    return lambda: list(vmap(grad(loss), (None, 0))(weights, x).values())


def step_by_step(run: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
    """The same where the engine has no rule for vmap."""

    def slowly() -> list[Tensor]:
        with patch("weft.engine.cells.mapped", lambda *rules: False):
            return run()

    return slowly


def measure(runs: dict[str, Callable[[], list[Tensor]]], seconds: float) -> dict[str, float]:
    shortest = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            shortest[name] = min(shortest[name], time.perf_counter() - began)
    return shortest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="There is a performance drop")  # torch's own LSTM under vmap
    size = arguments.hidden
    for steps in STEPS:
        x = torch.randn(arguments.rows, steps, size)
        theirs, ours = nn.LSTM(size, size, batch_first=True), weft.nn.LSTM(size, size, batch_first=True)
        ours.load_state_dict(theirs.state_dict())
        run = gradients_of(ours, x)
        runs = {"weft": run, "step by step": step_by_step(run), "torch.nn.LSTM": gradients_of(theirs, x)}
        expected = run()
        for other in runs.values():
            for found, one in zip(other(), expected, strict=True):
                torch.testing.assert_close(found, one, rtol=1e-3, atol=1e-3)
        times = measure(runs, arguments.seconds)
        shown = ", ".join(f"{name} {1e3 * t:.1f} ms ({t / times['weft']:.1f}x)" for name, t in times.items())
        print(f"LSTM, {arguments.rows} samples, {steps} steps, {size} units: {shown}")


if __name__ == "__main__":
    main()
