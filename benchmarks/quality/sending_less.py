"""What sending less between workers costs in quality (some minutes).

    python -m benchmarks.quality.sending_less [SEED...]

Eight workers, simulated in one process, train one language model on the text that every Python carries:

    exact       the sum of all gradients, as weft computes it
    half        the same in half the steps: what a network leaves time for if the exchange takes as long as the rest
    16 bits     every worker rounds its gradient to bfloat16
    1 in 100    every worker sends the largest hundredth of its gradient, and keeps the rest for the next step
                (error feedback: Stich et al. 2018, "Sparsified SGD with memory")
    every 8th   local SGD (Stich 2018): the workers train by themselves and average weights and moments every 8 steps

All have the same batches, the same initial weights and, but for "half", the same number of steps. Printed is the
cross-entropy of the held-out text, in nats for each character.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from weft.cells import State
from weft.config import load_config
from weft.data.windows import Window
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.model import LanguageModel
from weft.text.datasets import open_data

WORKERS, ROWS, LENGTH, STEPS, LOCAL = 8, 8, 35, 300, 8  # ROWS: of each worker
CHARACTERS, HELD_OUT = 1_000_000, 50_000
RATE, KEPT = 0.004, 0.01
Compress = Callable[[int, Tensor], Tensor]  # (worker, its gradient) -> what it sends


def read_text() -> tuple[np.ndarray, np.ndarray, int]:
    """Characters as ids to train on and held out, and the size of the vocabulary."""
    lines = (line for document in open_data("python-docs").documents() for line in document.lines())
    text = "".join(lines)[:CHARACTERS]
    symbols, ids = np.unique(np.array(list(text)), return_inverse=True)
    return ids[:-HELD_OUT], ids[-HELD_OUT:], len(symbols)


def windows(tokens: np.ndarray, step: int) -> list[Window]:
    """The window of each worker at a step; every row reads its own part of the text from left to right."""
    width = len(tokens) // (WORKERS * ROWS)
    begin = step * LENGTH % (width - LENGTH - 1)
    rows = torch.from_numpy(
        tokens[: width * WORKERS * ROWS].reshape(WORKERS * ROWS, width)[:, begin : begin + LENGTH + 1]
    )
    return [Window(part[:, :-1], part[:, 1:], begin < LENGTH) for part in rows.split(ROWS)]


def gradient(model: LanguageModel, window: Window, state: State) -> tuple[Tensor, State]:
    """The flat gradient of the summed loss, and the state to carry."""
    loss = model.loss(window, state)
    parts = torch.autograd.grad(loss.total, list(model.parameters()))
    return torch.cat([part.reshape(-1) for part in parts]), loss.state


def update(model: LanguageModel, optimizer: torch.optim.Optimizer, flat: Tensor) -> None:
    parameters = list(model.parameters())
    for parameter, part in zip(parameters, flat.split([one.numel() for one in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


def train_together(model: LanguageModel, tokens: np.ndarray, compress: Compress, steps: int = STEPS) -> LanguageModel:
    """All workers have the same weights; what they send is added."""
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    states: list[State] = [None] * WORKERS
    for step in range(steps):
        total = torch.zeros(sum(one.numel() for one in model.parameters()))
        for worker, window in enumerate(windows(tokens, step)):
            own, states[worker] = gradient(model, window, states[worker])
            total += compress(worker, own)
        update(model, optimizer, total / (WORKERS * ROWS * LENGTH))
    return model


def train_apart(model: LanguageModel, tokens: np.ndarray) -> LanguageModel:
    """Each worker has weights of its own, which are averaged every `LOCAL` steps."""
    models = [copy.deepcopy(model) for _ in range(WORKERS)]
    optimizers = [torch.optim.AdamW(one.parameters(), RATE) for one in models]
    states: list[State] = [None] * WORKERS
    for step in range(STEPS):
        for worker, window in enumerate(windows(tokens, step)):
            own, states[worker] = gradient(models[worker], window, states[worker])
            update(models[worker], optimizers[worker], own / (ROWS * LENGTH))
        if (step + 1) % LOCAL == 0 or step + 1 == STEPS:
            for group in zip(*(one.parameters() for one in models), strict=True):
                moments = [optimizer.state[one] for optimizer, one in zip(optimizers, group, strict=True)]
                for same in (list(group), *([one[name] for one in moments] for name in ("exp_avg", "exp_avg_sq"))):
                    mean = torch.stack([one.detach() for one in same]).mean(0)
                    for one in same:
                        one.data.copy_(mean)
    return models[0]


def exact(worker: int, flat: Tensor) -> Tensor:
    return flat


def rounded(worker: int, flat: Tensor) -> Tensor:
    return flat.bfloat16().float()


def sparse() -> Compress:
    kept: dict[int, Tensor] = {}

    def compress(worker: int, flat: Tensor) -> Tensor:
        flat = flat + kept.get(worker, 0.0)
        places = flat.abs().topk(int(KEPT * len(flat))).indices
        sent = torch.zeros_like(flat)
        sent[places] = flat[places]
        kept[worker] = flat - sent
        return sent

    return compress


def main(*seeds: str) -> None:
    train, held_out, size = read_text()
    sets = {"model.hidden_size": 128, "model.embedding_dim": 64, "model.dropout": 0.0}
    config = load_config(LmConfig, None, sets).model
    methods: dict[str, Callable[[LanguageModel], LanguageModel]] = {
        "exact": lambda model: train_together(model, train, exact),
        "half": lambda model: train_together(model, train, exact, STEPS // 2),
        "16 bits": lambda model: train_together(model, train, rounded),
        "1 in 100": lambda model: train_together(model, train, sparse()),
        "every 8th": lambda model: train_apart(model, train),
    }
    for seed in map(int, seeds or ("1", "2")):
        for name, method in methods.items():
            torch.manual_seed(seed)
            model = method(LanguageModel(size, config))
            print(f"seed {seed}, {name:10} {model.evaluate(held_out).cross_entropy:.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
