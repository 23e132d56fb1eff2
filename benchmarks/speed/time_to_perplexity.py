"""Time until a character model reaches a training perplexity of 1.1: the recipe of the study notes against weft's.

The notes' setup: the first 10,000 characters of The Time Machine in lower case, letters and spaces only; a GRU of
256 units on one-hot characters; batches of 32 rows of 35 steps; until the mean training perplexity of an epoch is
below 1.1. Their recipe: torch.nn.GRU, SGD at rate 1, gradients clipped at norm 1, random offset each epoch, state
carried. Ours: the same text, cell, size and batches, with the optimizer and schedule below.

    python -m benchmarks.speed.time_to_perplexity [--repeat 3] [--skip-notes] [--write]

Prints each time, the median and the ratio. The text is the dataset `timemachine`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from tools.pages import write_pages
from tools.records import machine, stamp, write
from weft.data.windows import SequentialWindows
from weft.metrics import Likelihood
from weft.tasks.config import ModelConfig
from weft.tasks.lm.config import BpttConfig, LmBatchConfig, LmConfig
from weft.tasks.lm.task import start_lm
from weft.tasks.text_task import part_tokens
from weft.text.config import TextConfig
from weft.text.text_field import Text
from weft.training.config import TrainConfig

TARGET = 1.1
ROWS, STEPS, UNITS = 32, 35, 256

OURS = LmConfig(
    text=TextConfig(lower=True, letters_only=True, limit=10_000, holdout=0.0),
    model=ModelConfig(cell="gru", hidden_size=UNITS, dropout=0.0),
    batch=LmBatchConfig(size=ROWS, seq_length=STEPS),
    bptt=BpttConfig(),
    train=TrainConfig(epochs=400, optimizer="adam", learning_rate=0.01, schedule="constant", save_seconds=1e9),
)


class NotesModel(nn.Module):
    """The notes' model: torch's GRU on one-hot characters, and a linear layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.layer, self.output = size, nn.GRU(size, UNITS), nn.Linear(UNITS, size)

    def forward(self, ids, state):
        outputs, state = self.layer(F.one_hot(ids.T, self.size).float(), state)  # time first, as in the notes
        return self.output(outputs), state


def notes_recipe(tokens, size: int, seed: int) -> tuple[float, int]:
    """Seconds and epochs until the target is reached."""
    torch.manual_seed(seed)
    model = NotesModel(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    stream = SequentialWindows(tokens, ROWS, STEPS, seed)
    began = time.perf_counter()
    for epoch in range(2000):
        total, state = Likelihood(0.0, 0), None
        for window in stream.epoch(epoch):
            logits, state = model(window.inputs, None if state is None else state.detach())
            loss = F.cross_entropy(logits.flatten(0, 1), window.targets.T.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            total += Likelihood(loss.item() * window.targets.numel(), window.targets.numel())
        if total.perplexity < TARGET:
            return time.perf_counter() - began, epoch + 1
    return math.inf, 2000


def our_recipe(seed: int, folder: Path) -> tuple[float, int]:
    """The same with the trainer of `weft train lm`."""
    from dataclasses import replace

    config = replace(OURS, train=replace(OURS.train, seed=seed))
    training = start_lm("timemachine", folder / f"run{time.time_ns()}", config)
    began, epoch, total = time.perf_counter(), 1, Likelihood(0.0, 0)
    for step in training.trainer.run():
        total += step.loss
        if step.number % training.trainer.phase.data.batches == 0:
            if total.perplexity < TARGET:
                return time.perf_counter() - began, epoch
            epoch, total = epoch + 1, Likelihood(0.0, 0)
    return math.inf, epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of our recipe, each with its own seed")
    parser.add_argument("--skip-notes", action="store_true", help="time ours alone")
    parser.add_argument("--write", action="store_true", help="write benchmarks/records/memorise.json and its pages")
    options = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        our_recipe(0, folder)  # warm-up: imports, first allocations
        ours = []
        for seed in range(1, options.repeat + 1):
            ours.append(our_recipe(seed, folder))
            print(f"weft, seed {seed}: {ours[-1][0]:6.2f} s, {ours[-1][1]} epochs", flush=True)
        median = statistics.median(seconds for seconds, _ in ours)
        print(f"weft, median:  {median:6.2f} s")
        if not options.skip_notes:
            training = start_lm("timemachine", folder / "tokens", OURS)
            size = len(training.run.field("text", Text).vocabulary)
            tokens = part_tokens(training.run, "train", size)
            seconds, epochs = notes_recipe(tokens, size, seed=1)
            print(f"the notes:     {seconds:6.2f} s, {epochs} epochs")
            print(f"ratio:         {seconds / median:6.1f}")
            if options.write:
                counts = [count for _, count in ours]
                found = {"seconds": round(median, 2), "seeds": options.repeat, "epochs": [min(counts), max(counts)]}
                notes = {"seconds": round(seconds, 2), "epochs": epochs}
                found |= {"notes' recipe": notes, "ratio": round(seconds / median, 1)}
                command = f"python -m benchmarks.speed.time_to_perplexity --repeat {options.repeat} --write"
                parts = [f"benchmarks/speed/time_to_perplexity.py::{name}" for name in ("our_recipe", "notes_recipe")]
                write("memorise", {"command": command, **stamp(parts), **machine(), **found})
                write_pages()


if __name__ == "__main__":
    main()
