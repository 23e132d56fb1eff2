"""Fuzzes the loading of run directories: `python -m tests.long.fuzz_runs [SECONDS] [SEED]`.

Small runs of every task are changed at random, their hashes made right again, and loaded and evaluated. Only WeftError
may come out, within a limit of memory. The seed of a failure is printed.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import weft
from weft.errors import WeftError
from weft.tasks import TASKS, get_task
from weft.training import run as runs

MEMORY = 6 << 30
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 10**6, 10**9, 10**30, 1.5, float("nan"), "", "x", "\ud800", "é" * 50, [], [[]], {},
    {"a": 1},
]  # fmt: skip
SETTINGS = {
    "train.epochs": 1,
    "model.hidden_size": 6,
    "model.embedding_dim": 6,
    "text.limit": 1500,
    "batch.size": 16,
    "model.num_states": 3,
    "train.iterations": 2,
}


def make_runs(folder: Path) -> list[Path]:
    """A small trained run of every task."""
    from weft.config import load_config

    made = []
    for name in TASKS:
        task = get_task(name)
        sets = []
        for key, value in SETTINGS.items():
            try:
                load_config(task.config_class, sets={key: value})
                sets.append(f"{key}={value}")
            except WeftError:  # not a setting of this task
                continue
        source: Any = task.sample
        if name == "tag":
            source = [(["a", "Rome", "b"], ["O", "B-X", "O"]), (["c", "d"], ["O", "O"])] * 20
        if name == "forecast":
            source = [[float(step % 4 + row) for step in range(40)] for row in range(3)]
        task.train(source, folder / name, load_config(task.config_class, sets=sets))
        made.append(folder / name)
    return made


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside a JSON value."""
    found = [path] if path else []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(inside)[:200]:
        found += nodes(part, (*path, key))
    return found


def change_json(file: Path, chance: random.Random) -> None:
    """Replace, remove or copy a part, and write the file with a right hash."""
    content = runs.read_json(file)
    for _ in range(chance.choice((1, 1, 1, 3))):
        paths = [path for path in nodes(content) if path[0] not in ("format", "weft")]
        if not paths:
            break
        *above, last = chance.choice(paths)
        owner = content
        for key in above:
            owner = owner[key]
        action = chance.random()
        if action < 0.6:
            owner[last] = copy.deepcopy(chance.choice(VALUES))
        elif action < 0.8:
            del owner[last]
        elif isinstance(owner, list):
            owner.append(copy.deepcopy(owner[last]))
    try:
        runs.write_json(file, {key: value for key, value in content.items() if key not in ("format", "weft")})
    except (UnicodeEncodeError, ValueError):
        file.write_bytes(json.dumps(content).encode("utf-8", "surrogatepass"))


def change_tensors(file: Path, chance: random.Random) -> None:
    """Remove, rename, cut or fill a tensor, and write the file with a right hash."""
    tensors, metadata = runs.load_tensors(file)
    name = chance.choice(sorted(tensors)) if tensors else ""
    tensor = tensors.pop(name, None)
    action = chance.choice(("remove", "rename", "cut", "type", "metadata"))
    if tensor is not None and action == "rename":
        tensors[name + "x"] = tensor
    elif tensor is not None and action == "cut":
        tensors[name] = tensor.flatten()[: chance.randrange(0, 5)]
    elif tensor is not None and action == "type":
        tensors[name] = tensor.bool()
    elif tensor is not None and action == "metadata":
        tensors[name], metadata = tensor, {key: chance.choice(VALUES[:10]) for key in metadata}
    runs.save_tensors(file, tensors, metadata)


def change_bytes(file: Path, chance: random.Random) -> None:
    """Flip, cut or add bytes, without a right hash."""
    content = bytearray(file.read_bytes())
    if content and chance.random() < 0.7:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    elif chance.random() < 0.5:
        content = content[: chance.randrange(len(content) + 1)]
    else:
        content += bytes(chance.randrange(256) for _ in range(20))
    file.write_bytes(content)


def change_data(run: Path, chance: random.Random) -> None:
    """Change a data file, and its hash in the record."""
    files = sorted(file for file in (run / "data").iterdir() if file.name != Path(runs.DATA_RECORD).name)
    file = chance.choice(files)
    change_bytes(file, chance)
    record = runs.read_json(run / runs.DATA_RECORD)
    record["files"][file.name] = runs.file_hash(file)
    runs.write_json(run / runs.DATA_RECORD, {k: v for k, v in record.items() if k not in ("format", "weft")})


def attempt(source: Path, seed: int) -> bool:
    """Load and evaluate one changed run; returns whether it was refused."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(source, Path(folder) / "run"))
        files = {file.name: file for file in run.iterdir() if file.is_file()}
        kind = chance.random()
        if kind < 0.5:
            change_json(files[chance.choice((runs.CONFIG, runs.FIELDS))], chance)
        elif kind < 0.7:
            change_tensors(files[chance.choice((runs.WEIGHTS, runs.CHECKPOINT))], chance)
        elif kind < 0.85:
            change_data(run, chance)
        else:
            change_bytes(chance.choice([file for name, file in sorted(files.items()) if name != "lock"]), chance)
        try:
            opened = runs.open_run(run)
            weft.load(run).held_out_metrics()
            get_task(opened.task).resume(opened).lock.release()
        except WeftError:
            return True
        return False


def main(seconds: float = 120.0, first: int = 0) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    seed, refused = first, 0
    with tempfile.TemporaryDirectory() as folder:
        made = make_runs(Path(folder))
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            run = made[seed % len(made)]
            try:
                refused += attempt(run, seed)
            except BaseException:
                traceback.print_exc()
                print(f"seed {seed} ({run.name}): not a WeftError")
                return 1
            seed += 1
    print(
        f"{seed - first} changed runs of {len(made)} tasks: {refused} refused, the others loaded; nothing else came out"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*(float(sys.argv[1]),) if len(sys.argv) > 1 else (), *(int(a) for a in sys.argv[2:3])))
