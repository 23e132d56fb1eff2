"""Where the time of a layer goes: the phases of the core, timed inside it, and what is outside of it.

A copy of the core is compiled with a clock around each phase. Times of phases that threads run side by side are means
over the threads. "Rest" is what the core does beside the phases: dividing the work, waiting for each other.
"Outside" is Python and autograd, of torch and of weft. The share is that of the peak of multiply-adds in registers.

    python -m benchmarks.speed.parts [--threads 2] [--seconds 2]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from unittest import mock

B, T, V, H = 32, 35, 28, 256
ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "weft" / "engine" / "core"
PHASES = ("core", "product forward", "product backward", "gradient products", "pointwise forward", "pointwise backward",
          "packing", "gradient of ids")  # fmt: skip
CLOCK = """#pragma once
#include <atomic>
#include <chrono>
namespace weft {
inline std::atomic<int64_t> phases[16];
inline thread_local int open_phases[16];
struct Clock {
    int phase;
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    explicit Clock(int phase) : phase(phase) { ++open_phases[phase]; }
    ~Clock() {
        if (--open_phases[phase]) return;
        phases[phase] += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
    }
};
}
extern "C" __attribute__((visibility("default"))) void weft_phases(int64_t* to) {
    for (int i = 0; i < 16; ++i) to[i] = weft::phases[i].exchange(0);
}
"""
# A file of the core, a statement or the beginning of a function in it, and its phase.
CLOCKED = (
    ("time_loop.hpp", "interpreter_.run(code_.segments[0], active);\n            for (size_t k", "pointwise forward"),
    ("time_loop.hpp", "interpreter_.run(code_.segments[k + 1], active);", "pointwise forward"),
    ("time_loop.hpp", "interpreter_.run(code_.segments[0], active);\n            for (size_t n", "pointwise backward"),
    ("time_loop.hpp", "interpreter_.run(code_.segments[n + 1], active);", "pointwise backward"),
    ("time_loop.hpp", "multiply_shared(pool_, active, weight.operand(active, h,", "product forward"),
    ("time_loop.hpp", "multiply_shared(pool_, active, weight.operand(active, d,", "product backward"),
    ("panels.hpp", "void fill(int64_t p, const Pack& pack) const {", "packing"),
    ("gemm.hpp", "void multiply_block(const std::vector<const Gemm<T>*>& works, int64_t block) {", "gradient products"),
    ("run.hpp", "void add_by_id(const Direction<T>& call, int64_t first, int64_t last) {", "gradient of ids"),
    ("run.hpp", "Status run_forward(const abi::RunCall<T>& call, abi::Reader& reader) {", "core"),
    ("run.hpp", "Status run_backward(const abi::RunCall<T>& call, abi::Reader& reader) {", "core"),
)


class Work(NamedTuple):
    cell: str
    train: bool

    @property
    def title(self) -> str:
        return f"{self.cell.upper()} H{H}, {'train' if self.train else 'inference'}"


WORKS = tuple(Work(cell, train) for cell in ("lstm", "gru", "rnn") for train in (True, False))


def build(folder: Path) -> Path:
    """The core for this machine, with clocks."""
    from weft import engine

    shutil.copytree(CORE.parents[1], folder / "weft", ignore=shutil.ignore_patterns("*.so", "*.py"))
    core = folder / "weft" / "engine" / "core"
    (core / "clock.hpp").write_text(CLOCK, encoding="utf-8")
    for name, found, phase in CLOCKED:
        text, clock = (core / name).read_text(encoding="utf-8"), f"Clock clock({PHASES.index(phase)});"
        assert text.count(found) == 1, f"{name} has {found!r} {text.count(found)} times: this program is older than it"
        if found.endswith("{"):
            text = text.replace(found, f"{found} {clock}")
        else:  # a statement, to its semicolon
            start = text.index(found)
            end = text.index(";\n", start) + 1
            text = f"{text[:start]}{{ {clock} {text[start:end]} }}{text[end:]}"
        (core / name).write_text(text, encoding="utf-8")
    vector = core / "vector.hpp"  # which every file includes
    vector.write_text(vector.read_text().replace("#pragma once", '#pragma once\n#include "clock.hpp"', 1))
    variant = engine.description().rpartition(" ")[2]
    library = folder / "core.so"
    command = [os.environ.get("CXX", "g++"), *flags_of(variant), "-fPIC", "-shared"]
    subprocess.run([*command, core / f"{variant}.cpp", "-o", library], check=True)
    return library


def flags_of(variant: str) -> list[str]:
    """The flags with which setup.py compiles a variant."""
    import setuptools

    with mock.patch.object(setuptools, "setup"):
        found = runpy.run_path(str(ROOT / "setup.py"))
    return [*found["FLAGS"], *found["VARIANTS"][variant]]


def measure(work: Work, seconds: float, read: ctypes._NamedFuncPointer) -> list[float]:
    """The median times of a call of the layer and of each phase, in seconds."""
    import torch

    import weft

    layer, ids = weft.Recurrent(weft.CELLS[work.cell](V, H)), torch.randint(0, V, (B, T))
    rows, phases = list[list[float]](), (ctypes.c_int64 * 16)()
    until = time.perf_counter() + 2 * seconds  # the first half brings memory and caches into their usual state
    with torch.set_grad_enabled(work.train):
        while time.perf_counter() < until or len(rows) < 14:
            layer.zero_grad()
            read(phases)
            began = time.perf_counter()
            outputs = layer(ids)[0]
            if work.train:
                outputs.sum().backward()
            took = time.perf_counter() - began
            read(phases)
            rows.append([took, *(nanoseconds / 1e9 for nanoseconds in phases[: len(PHASES)])])
    return [statistics.median(column) for column in zip(*rows[len(rows) // 2 :], strict=True)]


def child(threads: int, seconds: float) -> None:
    """Answers with the peak and the times of all works, in seconds."""
    import torch

    from weft import engine

    torch.set_num_threads(threads)
    peak = max(engine.peak_flops() for _ in range(5))
    read = ctypes.CDLL(os.environ["WEFT_ENGINE"]).weft_phases
    print(json.dumps([peak, [measure(work, seconds, read) for work in WORKS]]))


def table(threads: int, peak: float, found: list[list[float]]) -> str:
    names = [*PHASES[1:], "rest", "outside", "all", "bound"]
    lines = [f"| milliseconds | {' | '.join(names)} | share |", "| --- " * (len(names) + 2) + "|"]
    for work, (total, core, *phases) in zip(WORKS, found, strict=True):
        blocks = {"lstm": 4, "gru": 3, "rnn": 1}[work.cell]
        product = 2 * B * T * H * blocks * H / peak  # the bound of one of the three products
        each = [phase / threads for phase in phases]
        bound = product * (3 if work.train else 1)
        cells = [f"{seconds * 1e3:.2f}" for seconds in each]
        for number in range(3 if work.train else 1):
            cells[number] += f" ({product / each[number]:.2f})"
        cells += [f"{seconds * 1e3:.2f}" for seconds in (core - sum(each), total - core, total, bound)]
        lines.append(f"| {work.title} | {' | '.join(cells)} | {bound / total:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given.threads, given.seconds)
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "benchmarks.speed.parts", "--child"]
        command += ["--threads", str(given.threads), "--seconds", str(given.seconds)]
        environment = {**os.environ, "WEFT_ENGINE": str(build(Path(name)))}
        answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    peak, found = json.loads(answer)
    print(f"{given.threads} threads, peak {peak / 1e9:.0f} GFLOP/s; in parentheses, the share of the peak\n")
    print(table(given.threads, peak, found))
    return None


if __name__ == "__main__":
    main()
