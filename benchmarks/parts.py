"""Where the time of a layer goes: the layer as it is, and with parts of the core's time loop switched off.

Copies of the core are compiled with the pointwise code or the products of the loop left out; their results are wrong,
their times are those of the rest. Each build is a process of its own; they take turns, and a time is the median of all
turns. The bound is the time of the recurrent products at the peak of multiply-adds in registers.

    python -m benchmarks.parts [--threads 2] [--seconds 1]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

B, T, V, H = 32, 35, 28, 256
TURNS = 5
CORE = Path(__file__).parents[1] / "src" / "weft" / "engine" / "core"
FLAGS = ("-O3", "-std=c++17", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math",
         "-ffp-contract=fast", "-fvisibility=hidden", "-Wno-psabi", "-pthread", "-fPIC", "-shared")  # fmt: skip
POINTWISE = ("interpreter_.run(code_.segments[0], active);", "interpreter_.run(code_.segments[k + 1], active);",
             "interpreter_.run(code_.segments[n + 1], active);")  # fmt: skip
PRODUCTS = (
    "multiply_shared(pool_, active, weight.operand(active, h,",
    "multiply_shared(pool_, active, weight.operand(active, d,",
)
BUILDS: dict[str, tuple[str, ...]] = {"all": (), "without pointwise code": POINTWISE, "without products": PRODUCTS}


class Work(NamedTuple):
    cell: str
    train: bool

    @property
    def title(self) -> str:
        return f"{self.cell.upper()} H{H}, {'train' if self.train else 'inference'}"


WORKS = tuple(Work(cell, train) for cell in ("lstm", "gru", "rnn") for train in (True, False))


def build(folder: Path, off: tuple[str, ...]) -> Path:
    """The core for this machine, without some calls of its time loop."""
    from weft import engine

    shutil.copytree(CORE.parents[1], folder / "weft", ignore=shutil.ignore_patterns("*.so", "*.py"))
    loop = folder / "weft" / "engine" / "core" / "time_loop.hpp"
    text = loop.read_text(encoding="utf-8")
    for call in off:
        assert call in text, f"{loop.name} has no {call!r}: this program is older than the core"
        text = text.replace(call, f"if (false) {call}")
    loop.write_text(text, encoding="utf-8")
    source = loop.with_name(f"{engine.description().rpartition(' ')[2]}.cpp")
    library = folder / "core.so"
    subprocess.run([os.environ.get("CXX", "g++"), *FLAGS, source, "-o", library], check=True)
    return library


def measure(work: Work, seconds: float) -> float:
    """The median time of a call of the layer, in seconds."""
    import torch

    import weft

    layer, ids = weft.Recurrent(weft.CELLS[work.cell](V, H)), torch.randint(0, V, (B, T))
    times = []
    until = time.perf_counter() + 2 * seconds  # the first half brings memory and caches into their usual state
    with torch.set_grad_enabled(work.train):
        while time.perf_counter() < until or len(times) < 14:
            layer.zero_grad()
            began = time.perf_counter()
            outputs = layer(ids)[0]
            if work.train:
                outputs.sum().backward()
            times.append(time.perf_counter() - began)
    return statistics.median(times[len(times) // 2 :])


def child(threads: int, seconds: float) -> None:
    """Answers with the peak and the times of all works, in seconds."""
    import torch

    from weft import engine

    torch.set_num_threads(threads)
    peak = max(engine.peak_flops() for _ in range(3))
    print(json.dumps([peak, *(measure(work, seconds) for work in WORKS)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given.threads, given.seconds / TURNS)
    found: dict[str, list[list[float]]] = {name: [] for name in BUILDS}
    with tempfile.TemporaryDirectory() as name:
        libraries = {build_name: build(Path(name) / str(n), off) for n, (build_name, off) in enumerate(BUILDS.items())}
        command = [sys.executable, "-m", "benchmarks.parts", "--child"]
        command += ["--threads", str(given.threads), "--seconds", str(given.seconds)]
        for _ in range(TURNS):
            for build_name, library in libraries.items():
                environment = {**os.environ, "WEFT_ENGINE": str(library)}
                answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
                found[build_name].append(json.loads(answer))
    peak = max(turn[0] for turns in found.values() for turn in turns)
    print(f"{given.threads} threads, peak {peak / 1e9:.0f} GFLOP/s; milliseconds\n")
    print(
        "| layer | " + " | ".join(BUILDS) + " | bound of the products | share |\n" + "| --- " * (len(BUILDS) + 3) + "|"
    )
    for number, work in enumerate(WORKS, start=1):
        times = [statistics.median(turn[number] for turn in turns) for turns in found.values()]
        blocks = {"lstm": 4, "gru": 3, "rnn": 1}[work.cell]
        bound = (3 if work.train else 1) * 2 * B * T * H * blocks * H / peak
        cells = " | ".join(f"{value * 1e3:.2f}" for value in [*times, bound])
        print(f"| {work.title} | {cells} | {bound / times[0]:.2f} |")
    return None


if __name__ == "__main__":
    main()
