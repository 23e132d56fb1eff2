"""Inference of recurrent layers: weft, torch, ONNX Runtime and OpenVINO, in float32, bfloat16 and int8.

Every runtime is a process of its own (benchmarks/speed/inference_peers.py), the last two in environments that this
program makes with pip under the user's cache. They are checked to agree, then take turns; a time is the median of all
turns.

    python -m benchmarks.speed.inference [--quick] [--seconds 1] [--threads 1]

The record is benchmarks/records/inference.json. With WEFT_ENGINE=avx2 the other runtimes are held to AVX2 too, but for
ONNX Runtime, which has no setting for it; then only float32 is measured, and the record is inference-avx2.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.pages import write_pages
from tools.records import machine, stamp, write

PEERS = {
    "onnxruntime": ("onnxruntime==1.31.1", "onnx==1.23.2", "numpy"),
    "openvino": ("openvino==2026.4.1", "onnx==1.23.2", "numpy"),
    "jax": ("jax==0.10.2", "numpy"),
}
CONTESTANTS = (
    ("weft", "float32"), ("weft", "bf16"), ("weft", "int8"), ("torch", "float32"), ("torch", "bf16"),
    ("onnxruntime", "float32"), ("openvino", "float32"), ("openvino", "bf16"),
)  # fmt: skip
HELD = {  # what holds the other runtimes to the instruction set of a variant of weft
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",  # of torch and OpenVINO
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    }
}
STREAMS = 1000
TURNS = 8
TOLERANCE = {"float32": 1e-4, "bf16": 0.02, "int8": 0.03}


class Case(NamedTuple):
    kind: str  # as benchmarks/speed/inference_peers.py names them
    cell: str
    rows: int
    steps: int
    threads: int
    size: int = 256  # I = H

    @property
    def title(self) -> str:
        cores = f"{self.threads} core{'s' * (self.threads > 1)}"
        if self.kind == "lengths":
            return f"bidirectional {self.cell.upper()}, batch {self.rows}, lengths 4-{self.steps}, {cores}"
        if self.kind == "train":
            return f"{self.cell.upper()}, {self.size} units, train, batch {self.rows}, {self.steps} steps, {cores}"
        return f"{self.cell.upper()}, batch {self.rows}, {self.steps} steps, {cores}"


class Process:
    """A runtime that answers requests."""

    def __init__(self, runtime: str) -> None:
        self.started = subprocess.Popen(
            [python_of(runtime), str(Path(__file__).with_name("inference_peers.py")), runtime],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, **request: Any) -> Any:
        assert self.started.stdin is not None
        assert self.started.stdout is not None
        self.started.stdin.write(json.dumps(request) + "\n")
        self.started.stdin.flush()
        answer = self.started.stdout.readline()
        if not answer:
            raise SystemExit("a runtime ended: see its message above")
        return json.loads(answer)

    def end(self) -> None:
        assert self.started.stdin is not None
        self.started.stdin.close()
        self.started.wait()


def python_of(runtime: str) -> str:
    """The interpreter of a runtime's environment, which is made at the first use."""
    if runtime not in PEERS:
        return sys.executable
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft" / "benchmarks" / runtime
    python = cache / "bin" / "python"
    if not (cache / "ready").exists():
        venv.create(cache, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS[runtime]], check=True)
        (cache / "ready").touch()
    return str(python)


def record_name(name: str) -> str:
    """The record of the variant that WEFT_ENGINE chooses: `name`, or its own where the other runtimes are held."""
    variant = os.environ.get("WEFT_ENGINE", "")
    return f"{name}-{variant}" if variant in HELD else name


def chosen_engine() -> str:
    """WEFT_ENGINE as it stands before a command; nothing if it is not set."""
    return f"WEFT_ENGINE={os.environ['WEFT_ENGINE']} " if os.environ.get("WEFT_ENGINE") else ""


def is_held() -> bool:
    """Whether the other runtimes are held to the instruction set of weft's variant."""
    return os.environ.get("WEFT_ENGINE") in HELD


def is_compared(runtime: str) -> bool:
    """Whether a runtime is one of the others that weft's time is compared with: ONNX Runtime cannot be held."""
    return runtime != "weft" and not (is_held() and runtime == "onnxruntime")


def hold_peers() -> None:
    """Starts this program again if the other runtimes have to be held: they read their settings when they load."""
    wanted = HELD.get(os.environ.get("WEFT_ENGINE", ""), {})
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **wanted})


def make_weights(folder: Path, case: Case) -> Path:
    """Random weights and inputs in torch's layout."""
    random, blocks, H = np.random.default_rng(0), {"lstm": 4, "gru": 3}[case.cell], case.size
    sizes = {
        "weight_ih": (blocks * H, H),
        "weight_hh": (blocks * H, H),
        "bias_ih": (blocks * H,),
        "bias_hh": (blocks * H,),
    }
    arrays = {name: random.uniform(-1, 1, size) / np.sqrt(H) for name, size in sizes.items()}
    arrays["x"] = random.standard_normal((case.rows, case.steps, H))
    lengths = (
        random.integers(4, case.steps + 1, case.rows) if case.kind == "lengths" else np.full(case.rows, case.steps)
    )
    lengths[0] = case.steps
    path = folder / f"{case.kind}-{case.cell}-{case.rows}-{case.steps}-{case.size}.npz"
    np.savez(path, lengths=lengths, **{name: array.astype(np.float32) for name, array in arrays.items()})
    return path


def measure(
    case: Case, contestants: tuple[tuple[str, str], ...], folder: Path, seconds: float
) -> dict[tuple[str, str], float]:
    """The median time of each contestant, in seconds."""
    weights = str(make_weights(folder, case))
    processes = {runtime: Process(runtime) for runtime in dict.fromkeys(runtime for runtime, _ in contestants)}
    names = {contestant: " ".join(contestant) for contestant in contestants}
    reference: Any = None
    for runtime, precision in contestants:
        described = {**case._asdict(), "precision": precision, "weights": weights}
        sample = np.array(processes[runtime].ask(do="prepare", name=names[runtime, precision], case=described))
        reference = sample if reference is None else reference
        if len(sample):
            error = float(np.linalg.norm(sample - reference) / np.linalg.norm(reference))
            assert error < TOLERANCE[precision], f"{runtime} {precision} differs from weft by {error:.3g}"
    taken: dict[tuple[str, str], list[float]] = {contestant: [] for contestant in contestants}
    for _ in range(TURNS):
        for contestant in contestants:
            time.sleep(0.02)  # threads of the one before go to sleep
            taken[contestant] += processes[contestant[0]].ask(do="run", name=names[contestant], seconds=seconds / TURNS)
    for process in processes.values():
        process.end()
    return {contestant: statistics.median(times) for contestant, times in taken.items()}


def layers(cases: list[Case], folder: Path, seconds: float) -> list[dict[str, Any]]:
    """Milliseconds of each contestant, and the time of the best other runtime over ours, by precision.

    Where the others are held to an instruction set, float32 alone is measured.
    """
    contestants = tuple(each for each in CONTESTANTS if each[1] == "float32" or not is_held())
    rows = []
    for case in cases:
        found = measure(case, contestants, folder, seconds)
        ratios = {
            precision: min(
                value for (runtime, kind), value in found.items() if kind == precision and is_compared(runtime)
            )
            / found["weft", precision]
            for precision in ("float32", "bf16")
            if ("weft", precision) in contestants
        }
        rows.append({"work": case.title, "times": milliseconds(found), "ratios": rounded(ratios)})
        print(rows[-1], flush=True)
    return rows


def training(threads: list[int], folder: Path, seconds: float) -> list[dict[str, Any]]:
    """Training in bfloat16: ours against our float32 and against torch's layer under autocast."""
    contestants = (("weft", "float32"), ("weft", "bf16"), ("torch", "float32"), ("torch", "bf16"))
    rows = []
    for number in threads:
        for size in (256, 512):
            case = Case("train", "lstm", 32, 35, number, size)
            found = measure(case, contestants, folder, seconds)
            ours, half, theirs, their_half = found.values()
            ratios = {
                "bf16 to float32": ours / half,
                "float32 to torch": theirs / ours,
                "bf16 to torch": their_half / half,
            }
            rows.append({"work": case.title, "times": milliseconds(found), "ratios": rounded(ratios)})
            print(rows[-1], flush=True)
    return rows


def milliseconds(found: dict[tuple[str, str], float]) -> dict[str, float]:
    return {" ".join(each): round(value * 1e3, 3) for each, value in found.items()}


def rounded(ratios: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in ratios.items()}


def streams(folder: Path, seconds: float, threads: int) -> dict[str, Any]:
    """One step of one stream, and of many, each alone and together."""
    contestants = (*CONTESTANTS[:5], ("onnxruntime", "float32"))
    one = measure(Case("steps", "lstm", 1, 1, threads), contestants, folder, seconds)
    together = measure(Case("steps", "lstm", STREAMS, 1, threads), CONTESTANTS[:5], folder, seconds)
    step = [{"runtime": " ".join(each), "microseconds": round(value * 1e6, 2)} for each, value in one.items()]
    many = []
    for each, value in together.items():
        batched, single = STREAMS / value, 1 / one[each]
        speeds = {"together": round(batched), "one after the other": round(single), "ratio": round(batched / single, 2)}
        many.append({"runtime": " ".join(each), **speeds})
    print(step, many, flush=True)
    return {"step": step, "streams": many}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="0.2 seconds a turn, nothing written")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn of each runtime")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads")
    given = parser.parse_args()
    hold_peers()
    name = record_name("inference")
    seconds = 0.2 if given.quick else given.seconds
    cases = [
        Case("layer", cell, rows, steps, threads)
        for threads in given.threads
        for rows, steps in ((32, 35), (8, 35), (1, 100))
        for cell in ("lstm", "gru")
    ]
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        found: dict[str, Any] = {"layers": layers(cases, folder, seconds)}
        if name == "inference":
            found["train"] = training(given.threads, folder, seconds)
            found |= streams(folder, seconds, given.threads[-1])
    if not given.quick:
        command = f"{chosen_engine()}python -m benchmarks.speed.inference --seconds {seconds:g}"
        parts = ["benchmarks/speed/inference.py::measure", "benchmarks/speed/inference_peers.py"]
        packages = ", ".join(package for names in PEERS.values() for package in names if "==" in package)
        versions = machine()
        versions["versions"] += f", {packages}"
        write(name, {"command": command, **stamp(parts), **versions, **found})
        write_pages()


if __name__ == "__main__":
    main()
