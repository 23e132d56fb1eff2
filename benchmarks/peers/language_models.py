"""Peers of character language models: a small transformer and an LSTM in plain torch, each with a limit of time.

Called by benchmarks/peers/__main__.py with a folder that has train.txt, test.txt and limits.json ("minutes",
"threads"). Prints a line of JSON for each peer: nats per character of the test text. Both have a warm-up and a cosine
schedule that ends with the time: the number of steps is planned from the speed of the first ones. Sizes and rates are
those of nanoGPT's recipe for a CPU (4 layers, 4 heads, 128 features, 64 characters of context, batches of 12) and of a
usual LSTM of 512 units.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WARMUP, TRIAL_STEPS = 100, 30


class Block(nn.Module):
    """Causal self-attention and an MLP, each after a layer norm, with residual connections."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim)])
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    name, batch, context, rate = "transformer, 4 layers of 128 (plain torch)", 12, 64, 1e-3

    def __init__(self, size: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(size, 128), nn.Embedding(self.context, 128)
        self.blocks = nn.Sequential(*(Block(128, 4) for _ in range(4)))
        self.norm, self.output = nn.LayerNorm(128), nn.Linear(128, size)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.output(self.norm(self.blocks(x)))


class Recurrent(nn.Module):
    name, batch, context, rate = "LSTM of 512 units (plain torch)", 32, 64, 2e-3

    def __init__(self, size: int) -> None:
        super().__init__()
        self.tokens, self.layer = nn.Embedding(size, 128), nn.LSTM(128, 512, batch_first=True)
        self.dropout, self.output = nn.Dropout(0.1), nn.Linear(512, size)

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.dropout(self.layer(self.tokens(ids))[0]))


def train(model: Transformer | Recurrent, ids: Tensor, seconds: float) -> int:
    """Trains for a time on windows drawn at random; returns the number of steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=model.rate, weight_decay=0.1, betas=(0.9, 0.99))
    began, step, steps = time.perf_counter(), 0, TRIAL_STEPS * 1000
    while step < steps:
        if step == TRIAL_STEPS:  # the first steps are slower than the others
            warm = time.perf_counter()
        if step in (4 * TRIAL_STEPS, 20 * TRIAL_STEPS):
            now = time.perf_counter()
            steps = step + int((seconds - (now - began)) * (step - TRIAL_STEPS) / (now - warm))
        share = max(0.0, (step - WARMUP) / max(1, steps - WARMUP))
        rate = model.rate * (min(1.0, step / WARMUP) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share))))
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(ids) - model.context - 1, (model.batch, 1))
        window = ids[starts + torch.arange(model.context + 1)]
        loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
    return step


@torch.no_grad()
def nats(model: Transformer | Recurrent, ids: Tensor) -> float:
    """The mean cross-entropy; each character is predicted with the context that the model has, at least half of it."""
    model.eval()
    if isinstance(model, Recurrent):
        logits = model(ids[None, :-1])[0]
        return float(F.cross_entropy(logits, ids[1:]))
    total, count, half = 0.0, 0, model.context // 2
    for begin in range(0, len(ids) - model.context - 1, half):
        window = ids[begin : begin + model.context + 1]
        losses = F.cross_entropy(model(window[None, :-1])[0], window[1:], reduction="none")
        used = losses if begin == 0 else losses[half:]
        total, count = total + float(used.sum()), count + len(used)
    return total / count


def main(folder: str) -> None:
    texts = [(Path(folder) / f"{name}.txt").read_text(encoding="utf-8") for name in ("train", "test")]
    limits = json.loads((Path(folder) / "limits.json").read_text(encoding="utf-8"))
    torch.set_num_threads(limits["threads"])
    characters = {one: place for place, one in enumerate(sorted(set(texts[0])))}
    ids, test = (torch.tensor([characters[one] for one in text if one in characters]) for text in texts)
    for kind in (Transformer, Recurrent):
        torch.manual_seed(1)
        model = kind(len(characters))
        began = time.process_time()
        steps = train(model, ids, 60 * limits["minutes"])
        seconds = time.process_time() - began
        record = {"model": kind.name, "score": round(nats(model, test), 4), "seconds": round(seconds, 1)}
        settings = f"{steps:,} steps of {kind.batch} x {kind.context} characters, learning rate {kind.rate:g}"
        print(json.dumps({**record, "settings": settings}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
