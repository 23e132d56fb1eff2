"""Time and memory of one training step as a language model grows, ours and torch's: writes docs/growth.md.

    python -m benchmarks.growth [--seconds 1] [--again]

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
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft import engine
from weft.engine import Embedded
from weft.nn import LSTMCell, Recurrent, checkpointed, make_stack
from weft.pictures.draw_curves import draw_curves
from weft.pictures.figures import Curve, Curves

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
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


def table(axis: str) -> list[str]:
    label, values = AXES[axis]
    lines = [
        f"| {label} | weft, ms | checkpointed, ms | torch, ms | torch / weft | weft, MB | checkpointed, MB "
        "| torch, MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for value in values:
        size = Size()._replace(**{axis: value})
        t, m = (json.loads(stored(size, kind).read_text()) for kind in ("time", "memory"))
        shown = [f"{t[name] * 1e3:.3g}" if t[name] < 1 else f"{t[name] * 1e3:,.0f}" for name in NAMES]
        used = [f"{m[name] / 1e6:,.0f}" if m[name] > 1e7 else f"{m[name] / 1e6:.1f}" for name in NAMES]
        lines.append(f"| {value:,} | {' | '.join(shown)} | **{t['torch'] / t['weft']:.2f}** | {' | '.join(used)} |")
    return lines


def plot(axis: str, kind: str) -> str:
    label, values = AXES[axis]
    sizes = [Size()._replace(**{axis: value}) for value in values]
    found = [json.loads(stored(size, kind).read_text()) for size in sizes]
    scale, unit = (1e3, "milliseconds") if kind == "time" else (1e-6, "megabytes")
    curves = tuple(
        Curve(NAMES[name], np.arange(len(values)), np.array([row[name] * scale for row in found])) for name in NAMES
    )
    title = f"One training step: {unit} as the {label} grow" if axis != "vocabulary" else (
        f"One training step: {unit} as the vocabulary grows"
    )  # fmt: skip
    figure = Curves(title, curves, x_label=label, y_label=unit, log=True, ticks=tuple(f"{value:,}" for value in values))
    return draw_curves(figure).render()


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def layer_tables() -> list[str]:
    lines = [
        "## Checkpointing in time",
        "",
        "Memory of the training step of one LSTM layer (B 32, 16 features, H 128) beyond its inputs and outputs.",
        "Without checkpointing it grows with T. With it, it is one segment and the states between segments, both",
        "of which grow with the square root of T.",
        "",
        "| steps T | weft, MB | checkpointed, MB |",
        "| --- | --- | --- |",
    ]
    for T in LONG:
        found = json.loads(stored((T,), "layer").read_text())
        lines.append(f"| {T:,} | {found['weft'] / 1e6:,.1f} | {found['checkpointed'] / 1e6:,.1f} |")
    lines += [
        "",
        "## Long sequences and small batches",
        "",
        "One LSTM layer, 256 features, H 256: time of the forward and of the backward pass, time that the system",
        "spends in both (it clears the pages of new memory), and the rate of the matrix products.",
        "",
        "| steps T | rows B | forward, ms | backward, ms | system, ms | forward, us a step | GFLOP/s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for T, B in RATES:
        row = json.loads(stored((T, B), "rate").read_text())
        lines.append(
            f"| {T:,} | {B} | {row['forward'] * 1e3:.1f} | {row['backward'] * 1e3:.1f} "
            f"| {row['system'] * 1e3:.1f} | {row['forward'] / T * 1e6:.1f} | {row['rate'] / 1e9:.0f} |"
        )
    return [
        *lines,
        "",
        "- **Long sequences** need gigabytes in a step. The tensors of a step come from a pool that keeps as much",
        "  as the steps before used at once. The workspace of the backward pass is larger than what a thread",
        "  keeps, so the system clears its pages anew in every step.",
        "- **One row** reads all recurrent weights at every step for a matrix-vector product, two operations for",
        "  each weight. Its time is the time of reading 1 MB from the cache: two rows take hardly longer than one.",
        "",
    ]


def write_page() -> None:
    size = Size()
    lines = [
        "# Growth",
        "",
        "Time and memory of one training step of a word language model (embedding, LSTM layers, output layer",
        "with cross-entropy) as one size grows. torch's model has the same layers of torch.nn. `checkpointed`",
        "is weft with",
        "[checkpointing in time](cells.md#long-sequences).",
        "",
        f"The sizes that do not grow are T {size.T}, B {size.B}, H {size.H}, {size.layers} layer, vocabulary "
        f"{size.vocabulary:,}.",
        "",
    ]
    for axis, (label, _) in AXES.items():
        lines += [f"## {label[0].upper() + label[1:]}", ""]
        verb = "grow" if label.split()[0].endswith("s") else "grows"
        for kind in ("time", "memory"):
            name = f"pictures/growth-{axis.lower()}-{kind}.svg"
            (DOCS / name).write_text(plot(axis, kind), encoding="utf-8")
            lines.append(f"![{kind} of a training step as the {label} {verb}]({name})")
        lines += ["", *table(axis), ""]
    lines += layer_tables()
    lines += [
        f"Measured by `python -m benchmarks.growth` at {commit()} on {date.today()}: torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, {engine.description()}, Python {platform.python_version()}. "
        "Times are medians;",
        "the models alternate in one process. Memory is the peak of a process of its own during one step,",
        "above what it held before: activations, gradients and temporary values.",
        "",
    ]
    (DOCS / "growth.md").write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row, at least")
    parser.add_argument("--again", action="store_true", help="measure all rows anew")
    parser.add_argument("--only", choices=["memory", "layer", "time", "rate"], help="measure only these")
    given = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    sizes = [size for _, size in rows()]
    works: dict[str, tuple[Sequence[tuple[Any, ...]], Callable[..., dict[str, float]]]] = {
        # Memory first: a fork must not inherit threads.
        "memory": (sizes, lambda *size: {name: model_memory(name, Size(*size)) for name in NAMES}),
        "layer": ([(T,) for T in LONG], layer_memory),
        "time": (sizes, lambda *size: times(Size(*size), given.seconds)),
        "rate": (RATES, lambda *row: rate(*row, given.seconds)),
    }
    for kind, (each, measure) in works.items():
        for size in each if given.only in (None, kind) else ():
            file = stored(size, kind)
            if given.again or not file.exists():
                found = measure(*size)
                file.write_text(json.dumps(found), encoding="utf-8")
                print(kind, *size, {name: f"{value:.3g}" for name, value in found.items()}, flush=True)
    if all(stored(size, kind).exists() for kind, (each, _) in works.items() for size in each):
        write_page()


if __name__ == "__main__":
    main()
