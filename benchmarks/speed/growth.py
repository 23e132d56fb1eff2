"""Time and memory of one training step as a language model grows, ours and torch's: benchmarks/records/growth.json.

    python -m benchmarks.speed.growth [--seconds 1] [--again] [--only sequences]

The model is an embedding, LSTM layers and an output layer with cross-entropy. One of T, B, H, layers and vocabulary
grows, the others stay. Times alternate in one process; each memory figure is the peak of a process of its own above
what it held before the step. Two more tables are of one LSTM layer: its memory with and without checkpointing, and its
throughput for long sequences and small batches. A row that was measured is kept in the cache folder, so an interrupted
run continues.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tools.pages import write_pages
from tools.records import machine, read, stamp, write
from weft import engine
from weft.engine import Embedded
from weft.nn import LSTMCell, Recurrent, checkpointed, make_stack

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft" / "growth"


class Size(NamedTuple):
    T: int = 64
    B: int = 16
    H: int = 128
    layers: int = 1
    vocabulary: int = 100


AXES = {
    "T": ("steps T", [16, 64, 256, 1024, 4096]),
    "B": ("rows B", [1, 8, 64, 512]),
    "H": ("hidden units H", [32, 128, 512, 2048]),
    "layers": ("layers", [1, 2, 4, 8]),
    "vocabulary": ("vocabulary", [100, 1000, 10000, 50000]),
}
SEQUENCES = [Size(T=10_000, B=1), Size(T=10_000, B=8)]  # a table of their own
LONG = [1024, 4096, 16384]  # steps of one layer: B 32, 16 features, H 128
RATES = [*((T, 32) for T in (35, 140, 560, 2240)), *((1120, B) for B in (1, 2, 4, 8))]  # T, B of one layer, H 256
NAMES = {"weft": "weft", "checkpointed": "weft, checkpointed", "torch": "torch"}


class Torch(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.H)
        self.rnn = nn.LSTM(size.H, size.H, size.layers, batch_first=True)
        self.output = nn.Linear(size.H, size.vocabulary)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        logits = self.output(self.rnn(self.embedding(ids))[0])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


class Ours(nn.Module):
    def __init__(self, size: Size, run: Callable[..., Any]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.H)
        self.stack, self.run = make_stack("lstm", size.H, size.H, layers=size.layers), run
        self.output = nn.Linear(size.H, size.vocabulary)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        outputs, _ = self.run(self.stack, Embedded.of(ids, self.embedding.weight))
        return engine.linear_cross_entropy(outputs, self.output.weight, self.output.bias, targets, reduction="sum")


def work(name: str, size: Size) -> Callable[[], float]:
    """One training step; returns the loss."""
    torch.manual_seed(0)
    ids = torch.randint(size.vocabulary, (size.B, size.T + 1))
    runs = {"weft": lambda stack, x: stack(x), "checkpointed": checkpointed}
    model = Torch(size) if name == "torch" else Ours(size, runs[name])

    def step() -> float:
        model.zero_grad()
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        return float(loss.detach())

    return step


def times(size: Size, seconds: float) -> dict[str, float]:
    steps = {name: work(name, size) for name in NAMES}
    for step in steps.values():
        step()
    taken: dict[str, list[float]] = {name: [] for name in NAMES}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(taken["weft"]) < 3:
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in taken.items()}


def memory(make: Callable[[int], Callable[[], Any]], held: int = 0) -> float:
    """Bytes at the peak of one step, above `held` and what the process held before, in a fork of this process.

    `make` returns the step of a batch: the one that is measured, and a small one that loads the engine before.
    """
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        step = make(1)
        make(0)()  # loads the engine, makes the thread pool
        before = _status("VmRSS")
        step()
        os.write(write, str(_status("VmHWM") - before - held).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return float(found)


def model_memory(name: str, size: Size) -> float:
    return memory(lambda whole: work(name, size if whole else size._replace(T=2, B=1)))


def layer_memory(T: int) -> dict[str, float]:
    """Of the training step of one layer, beyond its inputs and outputs."""
    found = {}
    for name, run in (("weft", Recurrent.__call__), ("checkpointed", checkpointed)):

        def make(whole: int, run: Callable[..., Any] = run) -> Callable[[], Any]:
            layer, x = Recurrent(LSTMCell(16, 128)), torch.randn(32, T if whole else 20, 16)
            return lambda: run(layer, x)[0].sum().backward()

        found[name] = memory(make, held=32 * T * 128 * 4)
    return found


def rate(T: int, B: int, seconds: float) -> dict[str, float]:
    """Seconds of the forward and the backward pass of one layer, of the system in both, and operations a second."""
    layer, x = Recurrent(LSTMCell(256, 256)), torch.randn(B, T, 256)
    forward, backward, system, until = list[float](), list[float](), 0.0, 0.0
    while time.perf_counter() < until or len(forward) < 4:
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_stime
        outputs, last = layer(x)
        middle = time.perf_counter()
        loss = outputs.sum()
        between = time.perf_counter()
        loss.backward()
        backward.append(time.perf_counter() - between)
        forward.append(middle - start)
        del outputs, last, loss
        system += resource.getrusage(resource.RUSAGE_SELF).ru_stime - before
        if len(forward) == 1:
            until, system = time.perf_counter() + seconds, 0.0
    taken = statistics.median(forward[1:]), statistics.median(backward[1:])
    products = 2 * 4 * 256 * (256 + 256) * B * T  # of the forward pass; the backward pass has no gradient of x
    return {
        "forward": taken[0],
        "backward": taken[1],
        "system": system / (len(forward) - 1),
        "rate": 2.5 * products / sum(taken),
    }


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def rows() -> list[tuple[str, Size]]:
    return [(axis, Size()._replace(**{axis: value})) for axis, (_, values) in AXES.items() for value in values]


def stored(size: tuple[Any, ...], kind: str) -> Path:
    return CACHE / f"{kind}-{'-'.join(map(str, size))}.json"


def kept(size: tuple[Any, ...], kind: str) -> Any:
    return json.loads(stored(size, kind).read_text(encoding="utf-8"))


def by_axis(kind: str, scale: float) -> dict[str, list[dict[str, float]]]:
    """The rows of times or memory by the axis that grows."""
    found: dict[str, list[dict[str, float]]] = {}
    for axis, size in rows():
        found.setdefault(axis, []).append({"value": getattr(size, axis), **figures(size, kind, scale)})
    return found


def figures(size: Size, kind: str, scale: float) -> dict[str, float]:
    """The times or the memory of one size."""
    row = kept(size, kind)
    ratio = {"ratio": round(row["torch"] / row["weft"], 3)} if kind == "time" else {}
    return {name: float(f"{row[name] * scale:.4g}") for name in NAMES} | ratio


def oldest(kind: str, sizes: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The stamp of the row of a table that was measured first."""
    row = min((kept(size, kind) for size in sizes), key=lambda row: row["date"])
    return {name: row[name] for name in ("commit", "date", "depends")}


def record() -> dict[str, Any]:
    """What benchmarks/records/growth.json keeps: milliseconds, megabytes and GFLOP/s."""
    sizes = [size for _, size in rows()]
    long = [(T, kept((T,), "layer")) for T in LONG]
    layer = [{"T": T, **{name: round(row[name] / 1e6, 1) for name in ("weft", "checkpointed")}} for T, row in long]
    return {
        "command": "python -m benchmarks.speed.growth",
        **machine(),
        "time": {**oldest("time", sizes), "rows": by_axis("time", 1e3)},
        "memory": {**oldest("memory", sizes), "rows": by_axis("memory", 1e-6)},
        "layer": {**oldest("layer", [(T,) for T in LONG]), "rows": layer},
        "rate": rates(),
        "sequences": sequences(),
    }


def rates() -> dict[str, Any]:
    """The part of the record that `--only rate` replaces."""
    found = []
    for T, B in RATES:
        row = kept((T, B), "rate")
        times = {name: round(row[name] * 1e3, 2) for name in ("forward", "backward", "system")}
        step = {"forward, us a step": round(row["forward"] / T * 1e6, 1), "rate": round(row["rate"] / 1e9, 1)}
        found.append({"T": T, "B": B, **times, **step})
    return part("rate", oldest("rate", RATES), found)


def sequences() -> dict[str, Any]:
    """The part of the record that `--only sequences` replaces."""
    found = [
        {"T": size.T, "B": size.B, "time": figures(size, "time", 1e3), "memory": figures(size, "memory", 1e-6)}
        for size in SEQUENCES
    ]
    return part("sequences", oldest("time", SEQUENCES), found)


def part(name: str, stamped: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, Any]:
    command = f"python -m benchmarks.speed.growth --only {name}"
    return {"command": command, **stamped, "machine": machine()["machine"], "rows": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row, at least")
    parser.add_argument("--again", action="store_true", help="measure all rows anew")
    parser.add_argument("--only", choices=["memory", "layer", "time", "rate", "sequences"], help="these")
    given = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    only = ("memory", "time") if given.only == "sequences" else (given.only,)
    sizes = [*SEQUENCES, *(size for _, size in rows() if given.only != "sequences")]
    works: dict[str, tuple[Sequence[tuple[Any, ...]], Callable[..., dict[str, float]], str]] = {
        # Memory first: a fork must not inherit threads.
        "memory": (sizes, lambda *size: {name: model_memory(name, Size(*size)) for name in NAMES}, "model_memory"),
        "layer": ([(T,) for T in LONG], layer_memory, "layer_memory"),
        "time": (sizes, lambda *size: times(Size(*size), given.seconds), "times"),
        "rate": (RATES, lambda *row: rate(*row, given.seconds), "rate"),
    }
    for kind, (each, measure, function) in works.items():
        for size in each if kind in only or not given.only else ():
            file = stored(size, kind)
            if given.again or not file.exists() or "date" not in kept(size, kind):
                found = measure(*size)
                file.write_text(
                    json.dumps({**found, **stamp([f"benchmarks/speed/growth.py::{function}"])}), encoding="utf-8"
                )
                print(kind, *size, {name: f"{value:.3g}" for name, value in found.items()}, flush=True)
    parts = {"rate": rates, "sequences": sequences}
    if given.only in parts:
        write("growth", {**read("growth"), given.only: parts[given.only]()})
        write_pages()
    elif all(stored(size, kind).exists() for kind, (each, *_) in works.items() for size in each):
        write("growth", record())
        write_pages()


if __name__ == "__main__":
    main()
