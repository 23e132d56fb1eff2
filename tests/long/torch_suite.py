"""torch's own tests of recurrent layers, run on weft's: `python -m tests.long.torch_suite [MODE ...]`, some minutes.

They are not part of torch's wheel: WEFT_TORCH_TESTS is the path of the folder `test` of its source, best of the version
that is installed. Each file is run three times in a process of its own: as it is; with weft.nn's classes in the place
of torch.nn's (`layers`); and with the classes that `weft.nn.accelerate` gives to a model's layers (`accelerated`).
Tests that pass with torch and not here are listed by their reasons.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.paths import ROOT

FILES = (
    "test_nn.py",
    "test_modules.py",
    "test_expanded_weights.py",
    "test_autograd.py",
    "test_mkldnn.py",
    "nn/test_pruning.py",
)
NAMES = "rnn or lstm or gru"  # of tests, in any case
MODES = ("layers", "accelerated")


def exchange(mode: str) -> None:
    """Put the classes of a mode in the place of those that torch.nn exports."""
    from torch import nn
    from torch.nn import modules

    import weft
    from weft.nn.accelerate import accelerated_class

    layers = ("LSTM", "GRU", "RNN")
    for name in (*layers, "LSTMCell", "GRUCell", "RNNCell") if mode == "layers" else layers:
        kind = getattr(weft.nn, name) if mode == "layers" else accelerated_class(getattr(nn, name))
        setattr(nn, name, kind)
        setattr(modules, name, kind)  # from which they take the names of their tests


def run_file(mode: str, file: str, report: str) -> int:
    """The child process: torch's tests of one file."""
    import pytest

    if mode != "torch":
        exchange(mode)
    # Their conftest needs another version of pytest; the working folder is theirs, since tests import each other.
    options = ["--noconftest", "-q", "--tb=short", "-W", "ignore", "-p", "no:cacheprovider", "-k", NAMES]
    return pytest.main([*options, f"--junit-xml={report}", file])


def results(tests: Path, mode: str, file: str) -> dict[str, str]:
    """The tests of a file by name: "" for one that passed, "skipped", or the last line of the failure."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        roots = [str(ROOT), *sys.path]
        process = subprocess.run(
            [sys.executable, "-m", "tests.long.torch_suite", "--run", mode, file, str(report)],
            cwd=tests,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots)), "PYTORCH_TEST_WITH_SLOW": "1"},
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        if not report.exists():
            raise SystemExit(f"{file}, {mode}: exit code {process.returncode}\n{process.stdout}{process.stderr}")
        return {case.attrib["name"]: _outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def _outcome(case: ElementTree.Element) -> str:
    for child in case:
        if child.tag == "skipped":
            return "skipped"
        if child.tag in ("failure", "error"):
            return (child.attrib.get("message") or child.text or "failed").strip().splitlines()[0]
    return ""


def main(modes: tuple[str, ...]) -> int:
    tests, worse = os.environ.get("WEFT_TORCH_TESTS"), 0
    if not tests or not (Path(tests) / FILES[0]).exists():
        raise SystemExit(f"WEFT_TORCH_TESTS is {tests or 'not set'}; expected the folder with torch's {FILES[0]}")
    for file in FILES:
        expected = results(Path(tests), "torch", file)
        passed = [name for name, outcome in expected.items() if not outcome]
        print(f"{file}: {len(passed)} of {len(expected)} pass with torch", flush=True)
        for mode in modes:
            found = results(Path(tests), mode, file)
            failed = {name: found.get(name, "not collected") for name in passed if found.get(name, "not collected")}
            print(f"  {mode}: {len(passed) - len(failed)} of these {len(passed)}", flush=True)
            for reason in dict.fromkeys(failed.values()):
                print(f"    {reason}: {', '.join(name for name in failed if failed[name] == reason)}", flush=True)
            worse += len(failed)
    return min(worse, 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        sys.exit(run_file(*sys.argv[2:]))
    sys.exit(main(tuple(sys.argv[1:]) or MODES))
