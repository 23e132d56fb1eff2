"""Programs of minutes, each with what it proves.

make long                 all of them, one after another (about an hour and a half)
make long RUN=kills       one, or some: RUN="kills fuzz"
python -m tests.long --list
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import NamedTuple

PYTHON = sys.executable


class Program(NamedTuple):
    proves: str
    commands: tuple[tuple[str, ...], ...]


def program(proves: str, *lines: str) -> Program:
    """A program that is run by modules of this folder; a line is a module and its arguments."""
    return Program(proves, tuple((PYTHON, "-m", f"tests.long.{line.split()[0]}", *line.split()[1:]) for line in lines))


PROGRAMS = {
    "kills": program("trainings killed at 100 random moments and resumed end in the same weights", "kill_runs 100"),
    "fuzz": program("damaged and hostile runs are refused with a clear error, for 5 minutes", "fuzz_runs 300"),
    "server": program(
        "the server answers what its schema allows, keeps no memory, drops who leaves, and holds 10 minutes of load",
        "serve_soak schema 100",
        "serve_soak requests 10000",
        "serve_soak drops 100",
        "serve_soak slow 30",
        "serve_soak load 10",
    ),
    "workers": program("several workers train the same weights, after kills and restarts too", "scale_checks"),
    "recorded": program("weights, scores and outputs of every task are those of the record", "recorded check"),
    "torch": program("torch's own tests of recurrent layers pass on weft.nn (needs WEFT_TORCH_TESTS)", "torch_suite"),
    "memory": Program(
        "the engine reads and writes no memory that is not its own (needs g++)", (("tests/long/sanitize.sh", PYTHON),)
    ),
    "threads": Program(
        "the thread pool, a stream and a layer have no data race (needs g++)", (("tests/long/sanitize_threads.sh",),)
    ),
}


def main(*names: str) -> int:
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        print(f"there is no {unknown[0]!r}; there are: {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or PROGRAMS:
        began = time.monotonic()
        print(f"== {name}: {PROGRAMS[name].proves}", flush=True)
        if any(subprocess.run(command, check=False).returncode for command in PROGRAMS[name].commands):
            failed.append(name)
        print(f"== {name}: {'FAILED' if name in failed else 'passed'}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(names or PROGRAMS) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if "--list" in sys.argv or "--help" in sys.argv:
        print(__doc__, *(f"{name:10} {one.proves}" for name, one in PROGRAMS.items()), sep="\n")
        sys.exit(0)
    sys.exit(main(*sys.argv[1:]))
