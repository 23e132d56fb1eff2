"""The cells of weft as language models: held-out nats at equal CPU time and at equal parameters.

Every cell is a stack of two layers with an embedding of 64 features, in a size that gives the stack about as many
parameters as an LSTM of 2 x 96 units has. Text: the characters of tiny Shakespeare (the last tenth is the test text,
the tenth before it the development text) and the words of WikiText-2, split at white space (its own division).

The speed of a training step is measured first, with all cells in turns and one thread. It fixes how many steps a cell
takes in the given CPU seconds, so the training runs are deterministic and do not depend on the load of the machine.
Then each cell's learning rate is chosen by the loss on the development text, with one seed: rates are doubled and
halved until both neighbours of the best one are worse. The loss on the test text is reported for
that run and for the other seeds.

    python -m benchmarks.quality.cells_compared             what is missing, then the page
    python -m benchmarks.quality.cells_compared --list      the results that there are
    python -m benchmarks.quality.cells_compared characters  one kind of text
    python -m benchmarks.quality.cells_compared --page      only the page

Results are kept one by one in benchmarks/records/cells-compared.json; an interrupted program continues there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.quality.cells_compared_page import next_rate, tried_rates, write_page
from benchmarks.quality.rows import data
from weft.cells import CELLS
from weft.data.windows import SequentialWindows
from weft.nn import Recurrent, make_stack
from weft.tasks.lm.config import LmModelConfig
from weft.tasks.lm.model import LanguageModel, make_language_model
from weft.training.optimizer import Adam, Optimizer

COMPARED = (
    "lstm", "gru", "mingru", "minlstm", "sru", "rg-lru", "multi-head-lstm", "slstm", "mogrifier-lstm",
)  # fmt: skip
RECORDS = Path(__file__).parents[1] / "records" / "cells-compared.json"
EMBEDDING, UNITS, LAYERS, ROWS, STEPS = 64, 96, 2, 32, 35
RATES, FIRST_RATE, SEEDS = (0.0015, 0.003, 0.006, 0.012, 0.024, 0.048), 0.012, (1, 2, 3)
SECONDS = {"characters": 10, "words": 7}  # CPU seconds of a training run
EVALUATED = 20_000  # words of the development and of the test text


@dataclass(frozen=True)
class Text:
    """A text for training, and its held-out parts."""

    train: torch.Tensor
    dev: torch.Tensor
    test: torch.Tensor
    vocabulary: int


def characters() -> Text:
    text = data("lm", "tinyshakespeare", "input.txt").read_text(encoding="utf-8")
    known = {character: n for n, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([known[character] for character in text])
    tenth = len(ids) // 10
    return Text(ids[: -2 * tenth], ids[-2 * tenth : -tenth], ids[-tenth:], len(known))


def words() -> Text:
    parts = []
    for name in ("train", "valid", "test"):
        with gzip.open(data("lm", "wikitext-2", f"{name}.txt.gz"), "rt", encoding="utf-8") as lines:
            parts.append([token for line in lines for token in (*line.split(), "<eos>")])
    counts: dict[str, int] = {}
    for token in parts[0]:
        counts[token] = counts.get(token, 0) + 1
    ids = {token: n for n, token in enumerate(sorted(counts, key=lambda token: -counts[token]))}
    train, dev, test = (torch.tensor([ids.get(token, ids["<unk>"]) for token in part]) for part in parts)
    return Text(train, dev[:EVALUATED], test[:EVALUATED], len(ids))


TEXTS: dict[str, Callable[[], Text]] = {"characters": characters, "words": words}


def parameters(cell: str, units: int) -> int:
    with torch.device("meta"):
        stack = make_stack(cell, EMBEDDING, units, layers=LAYERS)
    return sum(parameter.numel() for parameter in stack.parameters())


def units_of(cell: str) -> int:
    """The multiple of 16 units whose stack has nearest to the parameters of the LSTM's."""
    wanted = parameters("lstm", UNITS)
    return min(range(16, 1024, 16), key=lambda units: abs(parameters(cell, units) - wanted))


class Training:
    """A language model with one cell in training, step by step."""

    def __init__(self, text: Text, cell: str, seed: int) -> None:
        torch.manual_seed(seed)
        config = LmModelConfig(
            cell=cell, embedding_dim=EMBEDDING, hidden_size=units_of(cell), num_layers=LAYERS, dropout=0.0
        )
        self.model: LanguageModel = make_language_model(text.vocabulary, config)
        weights = list(self.model.parameters())
        self.optimizer = Optimizer(weights, [Adam(weight_decay=0.01)] * len(weights))
        self.windows = self._windows(SequentialWindows(text.train, ROWS, STEPS, seed))
        self.state: Any = None

    def _windows(self, source: SequentialWindows) -> Any:
        epoch = 0
        while True:
            yield from source.epoch(epoch)
            epoch += 1

    def step(self, rate: float) -> None:
        self.model.train()
        loss = self.model.loss(next(self.windows), self.state)
        self.state = loss.state
        self.optimizer.zero_grad()
        (loss.total / loss.count).backward()
        self.optimizer.step(rate, clip_norm=1.0)


def train(text: Text, cell: str, seed: int, rate: float, steps: int) -> LanguageModel:
    """Trains with a linear warmup over a twentieth of the steps and a cosine schedule to zero."""
    training, warmup = Training(text, cell, seed), max(1, steps // 20)
    for n in range(steps):
        cosine = 0.5 * (1 + math.cos(math.pi * max(0, n - warmup) / (steps - warmup)))
        training.step(rate * min(1, (n + 1) / warmup) * cosine)
    return training.model


def nats(model: LanguageModel, tokens: torch.Tensor) -> float:
    likelihood = model.evaluate(tokens)
    return round(likelihood.nats / likelihood.count, 4)


def measure_speed(text: Text, rounds: int = 12) -> dict[str, float]:
    """Tokens in a CPU second of training, all cells in turns: the median of the rounds."""
    trainings = {cell: Training(text, cell, 1) for cell in COMPARED}
    taken: dict[str, list[float]] = {cell: [] for cell in COMPARED}
    for n in range(rounds):
        for cell, training in trainings.items():
            start = time.process_time()
            training.step(0.001)
            if n >= 2:
                taken[cell].append(time.process_time() - start)
    return {cell: round(ROWS * STEPS / statistics.median(times)) for cell, times in taken.items()}


def measure_layers(size: int = 256, rounds: int = 8) -> dict[str, float]:
    """CPU milliseconds of a layer forward and backward, I = H = size, all cells in turns: the median of the rounds."""
    layers = {cell: Recurrent(CELLS[cell](size, size)) for cell in COMPARED}
    x, taken = torch.randn(ROWS, STEPS, size), {cell: list[float]() for cell in COMPARED}
    for n in range(rounds):
        for cell, layer in layers.items():
            start = time.process_time()
            layer(x)[0].sum().backward()
            if n >= 1:
                taken[cell].append(time.process_time() - start)
    return {cell: round(1000 * statistics.median(times), 1) for cell, times in taken.items()}


# --- records ----------------------------------------------------------------------------------------------------


def load() -> dict[str, Any]:
    return json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}


def save(key: str, value: Any) -> None:
    records = {**load(), key: value}  # read again: another process may have added some
    temporary = RECORDS.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(dict(sorted(records.items())), indent=1) + "\n", encoding="utf-8")
    temporary.replace(RECORDS)
    print(key, value, flush=True)


def steps_of(speeds: dict[str, float], cell: str, seconds: float) -> int:
    return round(speeds[cell] * seconds / (ROWS * STEPS))


def missing(kind: str, text: Text) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is left to compute for a kind of text: key, function. A part reads the records of those before it."""
    start = f"{kind}/{SECONDS[kind]} s"

    def run(cell: str, seed: int, rate: float) -> dict[str, float]:
        model = train(text, cell, seed, rate, steps_of(load()[f"{kind}/speed"], cell, SECONDS[kind]))
        return {"dev": nats(model, text.dev), "test": nats(model, text.test)}

    if f"{kind}/speed" not in load():
        yield f"{kind}/speed", lambda: measure_speed(text)
    for cell in COMPARED:
        while (rate := next_rate(tried_rates(load(), start, cell, RATES), RATES, FIRST_RATE)) is not None:
            yield f"{start}/rate/{cell}/{rate}", lambda cell=cell, rate=rate: run(cell, SEEDS[0], rate)
    for seed in SEEDS[1:]:
        for cell in COMPARED:
            if (key := f"{start}/time/{cell}/{seed}") not in load():
                tried = tried_rates(load(), start, cell, RATES)
                rate = min(tried, key=lambda one: tried[one])
                yield key, lambda cell=cell, seed=seed, rate=rate: run(cell, seed, rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", help="characters, words; both if there are none")
    parser.add_argument("--list", action="store_true", help="print the results that there are")
    parser.add_argument("--page", action="store_true", help="write the page from the results that there are")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.list:
        print(*(f"{key} {value}" for key, value in load().items()), sep="\n")
        return
    if not options.page:
        if "layers" not in load():
            save("layers", measure_layers())
        for kind in options.texts or TEXTS:
            for key, compute in missing(kind, TEXTS[kind]()):
                save(key, compute())
    sizes = {cell: (units_of(cell), parameters(cell, units_of(cell))) for cell in COMPARED}
    write_page(load(), sizes, RATES, SECONDS)


if __name__ == "__main__":
    assert set(COMPARED) <= set(CELLS)
    main()
