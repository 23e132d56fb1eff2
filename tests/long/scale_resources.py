"""Checks of `tests.long.scale_checks` that need a memory cgroup or a PostgreSQL server; skipped where there is none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from itertools import repeat
from pathlib import Path

import numpy as np

from tests.long.worker_processes import LIMIT, count_lines, free_port, wait_for_lines, weft
from weft.data.column import write_values
from weft.tasks.lm.config import LmConfig
from weft.text.corpus import Corpus
from weft.text.shards import open_shards, write_shards
from weft.training.lock import is_locked
from weft.training.run import METRICS

MEMORY_LIMIT = 420 << 20  # bytes; torch alone takes about 250 MB
FLAT = 20 << 20
WATCHED = 30  # seconds


def memory_group() -> Path | None:
    """A new memory cgroup, or None where none can be made."""
    version_1 = Path("/sys/fs/cgroup/memory")
    group = (version_1 if version_1.is_dir() else Path("/sys/fs/cgroup")) / f"weft-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")
    try:
        group.mkdir()
        limit.write_text(str(MEMORY_LIMIT))
    except OSError:
        return None
    return group


def large_shards(folder: Path, size: int) -> None:
    """Shards of random characters, `size` bytes at least."""
    config, count = LmConfig().text, 1 << 28
    text = Corpus.from_texts("text", ["the letters of a text, and more of them\n" * 100])
    write_shards(text, config, folder)
    index = json.loads((folder / "index.json").read_text())
    generator = np.random.default_rng(0)
    ids = generator.integers(4, len(open_shards(folder).text_field.vocabulary), 1 << 24).astype(np.uint16)
    index["shards"] = []
    for number in range(-(-size // (2 * count))):
        name = f"shard-{number:05d}.npy"
        write_values(folder / name, repeat(ids, count // len(ids)), ids.dtype)
        index["shards"].append({"file": name, "tokens": count, "sha256": str(number)})
    (folder / "index.json").write_text(json.dumps(index))


def check_memory(folder: Path) -> None:
    group = memory_group()
    if group is None:
        print("memory: skipped, no memory cgroup can be made here", flush=True)
        return
    if shutil.disk_usage(folder).free < 30 * MEMORY_LIMIT:
        group.rmdir()
        print("memory: skipped, there is not enough free disk space", flush=True)
        return
    try:
        large_shards(folder / "shards", 20 * MEMORY_LIMIT)
        size = sum(file.stat().st_size for file in (folder / "shards").glob("*.npy"))
        print(f"memory: {size / 2**30:.1f} GiB of shards, limit {MEMORY_LIMIT / 2**20:.0f} MiB", flush=True)
        for task in ("lm", "fill"):  # windows in order, windows in random order
            train_within(group, task, folder)
    finally:
        group.rmdir()


def train_within(group: Path, task: str, folder: Path) -> None:
    """Trains on the shards inside a memory cgroup, and checks that the anonymous memory stays flat."""
    out = folder / task
    train = weft(
        *("train", task, "--data", str(folder / "shards"), "--out", str(out), "--threads", "1"),
        *("--set", "model.hidden_size=32", "--set", "model.embedding_dim=32", "--set", "train.save_seconds=5"),
        *("--set", "text.holdout=0"),
        *("--set", "text.tokenizer=char", "--set", "text.lower=false", "--set", "text.min_count=1"),
    )
    process = subprocess.Popen(
        train,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None,
        stderr=subprocess.PIPE,
        text=True,
    )
    used: list[int] = []
    try:
        wait_for_lines(out / METRICS, 5, process)
        end = time.monotonic() + WATCHED
        while process.poll() is None and time.monotonic() < end:
            status = Path(f"/proc/{process.pid}/status").read_text()
            used.append(int(status.split("RssAnon:")[1].split()[0]) << 10)
            time.sleep(0.5)
        steps, ended = count_lines(out / METRICS), process.poll()
    finally:
        process.kill()
        _, said = process.communicate()
        time.sleep(0.5)
    assert ended is None, said
    print(
        f"memory: {task}, anonymous memory {min(used) / 2**20:.0f} to {max(used) / 2**20:.0f} MiB over {steps} reports",
        flush=True,
    )
    assert max(used) - min(used) <= FLAT, (min(used), max(used))


TUNE = """
import sys
from weft.training import study
from weft.tuning import tune
study.HEARTBEAT_SECONDS = 1
tune("lm", "grammar", sys.argv[1], {"text.limit": 20000, "model.hidden_size": 32, "train.epochs": 3},
    trials=6, storage=sys.argv[2], report=lambda trial: print(trial.number, trial.state, flush=True))
"""


def server_program(name: str) -> str | None:
    """A program of the PostgreSQL server, which distributions keep out of the path."""
    found = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)]
    return found[0] if found else shutil.which(name)


def check_postgres(folder: Path) -> None:
    initdb, postgres = server_program("initdb"), server_program("postgres")
    if initdb is None or postgres is None:
        print("postgres: skipped, the server is not installed", flush=True)
        return
    # The server refuses to run as root.
    user = "nobody" if os.getuid() == 0 else None
    server = folder / "server"
    server.mkdir()
    folder.chmod(0o755)
    if user:
        shutil.chown(server, user)
    port = free_port()
    subprocess.run(
        [initdb, "-D", str(server / "data"), "-U", "weft", "-A", "trust"],
        user=user,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    running = subprocess.Popen(
        [postgres, "-D", str(server / "data"), "-p", str(port), "-h", "127.0.0.1", "-k", str(server)],
        user=user,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        search_together(folder, f"postgresql+psycopg2://weft@127.0.0.1:{port}/postgres", port)
    finally:
        running.send_signal(signal.SIGINT)  # ends without waiting for its clients
        running.wait(30)


def search_together(folder: Path, storage: str, port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    time.sleep(1)
    first, second = (
        subprocess.Popen(
            [sys.executable, "-c", TUNE, str(folder / name), storage],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("first", "second")
    )
    while not any(is_locked(trial) for trial in (folder / "first").glob("trial-*")):
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    first.kill()
    first.wait()
    _, errors = second.communicate(timeout=LIMIT)
    assert second.returncode == 0, errors
    import optuna

    study = optuna.load_study(study_name="weft lm", storage=storage)
    states = [trial.state.name for trial in study.trials]
    assert states.count("COMPLETE") + states.count("PRUNED") >= 6, states
    assert states.count("FAIL") == 1, states  # that of the killed process, which was repeated
    assert states.count("RUNNING") == 0, states
    print(f"postgres: one of two processes killed; {', '.join(states)}", flush=True)
