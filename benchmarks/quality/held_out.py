"""Held-out perplexity of the default language model against a plain LSTM with the same training time.

Data: The Time Machine, unchanged, with its last tenth held out. Ours: `weft train lm --data timemachine` with default
settings. The peer: a torch.nn.LSTM with 256 units on character embeddings, dropout 0.3 on its outputs, Adam with
learning rate 0.002 (or the best of several rates, with --rates), gradients clipped at norm 1, batches of 32 rows of 35
steps with the state carried, evaluated after each epoch; the best evaluation counts. It trains as long as ours did.

    python benchmarks/quality/held_out.py [--seeds 1 2] [--rates 0.001 0.002 0.004]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from weft.data.windows import SequentialWindows, evaluation_windows
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.metrics import Likelihood
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.task import start_lm
from weft.tasks.text_task import part_tokens
from weft.text.text_field import Text


class PlainLSTM(nn.Module):
    """A typical notebook implementation."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(size, 256), nn.LSTM(256, 256, batch_first=True)
        self.dropout, self.output = nn.Dropout(0.3), nn.Linear(256, size)

    def forward(self, ids, state=None):
        outputs, state = self.layer(self.embedding(ids), state)
        return self.output(self.dropout(outputs)), tuple(part.detach() for part in state)

    def loss(self, window, state):
        logits, state = self(window.inputs, None if window.reset_state else state)
        total = F.cross_entropy(
            logits.flatten(0, 1), window.targets.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
        )
        return total, int((window.targets != IGNORE_INDEX).sum()), state


def plain(train, dev, size: int, seconds: float, rate: float, seed: int) -> tuple[float, int]:
    """The best held-out perplexity of the peer within the time, and its number of epochs."""
    torch.manual_seed(seed)
    model = PlainLSTM(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    stream = SequentialWindows(train, 32, 35, seed)
    began, best, epoch = time.perf_counter(), float("inf"), 0
    while time.perf_counter() - began < seconds:
        model.train()
        state = None
        for window in stream.epoch(epoch):
            total, count, state = model.loss(window, state)
            optimizer.zero_grad()
            (total / count).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            if time.perf_counter() - began > seconds:
                break
        epoch += 1
        model.eval()
        with torch.no_grad():
            likelihood, state = Likelihood(0.0, 0), None
            for window in evaluation_windows(dev):
                total, count, state = model.loss(window, state)
                likelihood += Likelihood(float(total), count)
        best = min(best, likelihood.perplexity)
    return best, epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.002])
    options = parser.parse_args()
    torch.set_num_threads(2)
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            config = LmConfig()
            config = replace(config, train=replace(config.train, seed=seed))
            training = start_lm("timemachine", Path(folder) / "run", config)
            began = time.perf_counter()
            epochs = max(step.epoch for step in training.trainer.run())
            seconds = time.perf_counter() - began
            found = Likelihood(training.trainer.progress.best, 1).perplexity
            print(f"weft, defaults, seed {seed}: {found:.3f} after {seconds:.0f} s, {epochs} epochs", flush=True)
            size = len(training.run.field("text", Text).vocabulary)
            train, dev = (part_tokens(training.run, part, size) for part in ("train", "dev"))
            for rate in options.rates:
                found, epochs = plain(train, dev, size, seconds, rate, seed)
                print(
                    f"plain LSTM, rate {rate}, seed {seed}: {found:.3f} after {seconds:.0f} s, {epochs} epochs",
                    flush=True,
                )


if __name__ == "__main__":
    main()
