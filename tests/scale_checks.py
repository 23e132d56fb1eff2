"""Training with several workers, whole: `python -m tests.scale_checks [NAME...]`; some minutes (`make scale-checks`).

    weights    every trained task with 1, 2 and 4 workers: the same bits
    torchrun   the same by torchrun: one node of two processes, two nodes
    killed     workers killed by SIGKILL and resumed, each time by another number of workers: the same bits
    restarts   a worker killed under torchrun --max-restarts, and under --workers: restarted, the same bits
    network    two hosts (network namespaces with a veth pair): the same bits; a lost network is one message
    memory     text of 20 times the memory limit (a memory cgroup): training works, anonymous memory stays flat
    postgres   two processes search in one study in a PostgreSQL server; one is killed, its trial is repeated

Processes talk on loopback, or inside namespaces of their own. A check whose means are missing is skipped and says so.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.kill_runs import CASES, DATA, differences
from weft.tasks.lm.config import LmConfig
from weft.text.corpus import Corpus
from weft.text.shards import open_shards, write_shards
from weft.training.lock import is_locked
from weft.training.run import METRICS

SLICES = ["--set", "train.slices=4"]
LONG = [*SLICES, "--epochs", "40", "--set", "train.evaluate_every=50"]
LIMIT = 300  # seconds for any training


def command(task: str, out: Path, *extra: str) -> list[str]:
    sets = [part for one in CASES[task] for part in ("--set", one)]
    column = ["--column", "upos"] if task == "tag" else []
    data = ["--data", DATA.get(task, "grammar")]
    return ["train", task, "--out", str(out), *data, *column, *sets, "--threads", "1", *extra]


def weft(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "weft", *arguments]


def torchrun(options: list[str], *arguments: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", "weft", *arguments]


def finish(arguments: list[str]) -> str:
    """Runs a command to its end; returns what it wrote to standard error."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stderr


def expect_equal(what: str, one: Path, other: Path) -> None:
    wrong = differences(one, other)
    assert not wrong, f"{what}: {wrong[:5]}"
    print(f"{what}: equal", flush=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def check_weights(folder: Path) -> None:
    for task in CASES:
        for workers in (1, 2, 4):
            finish(weft(*command(task, folder / f"{task}{workers}", *SLICES, "--workers", str(workers))))
            if workers > 1:
                expect_equal(f"{task}, {workers} workers", folder / f"{task}1", folder / f"{task}{workers}")
    finish(weft(*command("lm", folder / "lm3", *SLICES, "--workers", "3")))
    expect_equal("lm, 4 slices on 3 workers", folder / "lm1", folder / "lm3")
    said = finish(weft("train", "ngram", "--data", "grammar", "--out", str(folder / "ngram"), "--workers", "2"))
    assert "no training steps to divide" in said, said
    finish(weft("eval", str(folder / "ngram")))


def check_torchrun(folder: Path) -> None:
    finish(weft(*command("lm", folder / "one", *SLICES)))
    finish(torchrun(["--standalone", "--nproc-per-node=2"], *command("lm", folder / "two", *SLICES)))
    expect_equal("torchrun, 2 processes", folder / "one", folder / "two")
    nodes = ["--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    processes = [
        subprocess.Popen(
            torchrun([*nodes, f"--node-rank={rank}"], *command("lm", folder / "nodes", *SLICES)),
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, said = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, said
    expect_equal("torchrun, 2 nodes of 2 processes", folder / "one", folder / "nodes")


def check_killed(folder: Path) -> None:
    chance = random.Random(time.time_ns())
    for task in CASES:
        finish(weft(*command(task, folder / task, *SLICES)))
        out, kills = folder / f"{task}-killed", 0
        for workers in (2, 4, 1, 3, 2):
            before = count_lines(out / METRICS)
            process = subprocess.Popen(
                torchrun(["--standalone", f"--nproc-per-node={workers}"], *command(task, out, *SLICES, "--resume")),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            if kills < 4:
                wait_for_lines(out / METRICS, before + 1 + chance.randrange(3), process)
            if process.poll() is None and kills < 4:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                kills += 1
                continue
            _, said = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, said
            break
        expect_equal(f"{task}, {kills} kills, other numbers of workers", folder / task, out)


def count_lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


def wait_for_lines(file: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Waits until a training has reported so often, or has ended."""
    while process.poll() is None and count_lines(file) < count:
        time.sleep(0.01)


def worker_processes(parent: int) -> list[int]:
    """The processes below another one that train."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True).stdout.split()
    return [int(pid) for pid in found]


def check_restarts(folder: Path) -> None:
    finish(weft(*command("lm", folder / "straight", *LONG)))
    starts: dict[str, list[str]] = {
        "--workers 2": weft(*command("lm", folder / "workers", *LONG, "--workers", "2")),
        "torchrun --standalone --max-restarts=3": torchrun(
            ["--standalone", "--nproc-per-node=2", "--max-restarts=3"], *command("lm", folder / "c10d", *LONG)
        ),
        "torchrun --max-restarts=3 (static rendezvous)": torchrun(
            ["--nproc-per-node=2", "--max-restarts=3", f"--master-port={free_port()}"],
            *command("lm", folder / "static", *LONG),
        ),
    }
    for (name, start), out in zip(starts.items(), ("workers", "c10d", "static"), strict=True):
        for rank in (0, 1) if out == "workers" else (1,):
            shutil.rmtree(folder / out, ignore_errors=True)
            process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            wait_for_lines(folder / out / METRICS, 5, process)
            assert process.poll() is None, process.communicate()
            os.kill(worker_processes(process.pid)[rank], signal.SIGKILL)
            _, said = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, said
            assert "resuming" in said, said
            expect_equal(f"{name}, rank {rank} killed", folder / "straight", folder / out)


HOSTS = """
set -e
ip link set lo up
unshare -n sleep 1000 & other=$!
trap 'kill $other' EXIT
sleep 0.5
ip link add near type veth peer name far
ip link set far netns $other
ip addr add 10.77.0.1/24 dev near
ip link set near up
nsenter -t $other -n ip link set lo up
nsenter -t $other -n ip addr add 10.77.0.2/24 dev far
nsenter -t $other -n ip link set far up
meet="--nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=10.77.0.1:29400 --rdzv-id=weft"
GLOO_SOCKET_IFNAME=far nsenter -t $other -n {python} -m torch.distributed.run $meet --rdzv-conf=is_host=0 \\
  --local-addr=10.77.0.2 -m weft {train} >{folder}/far.log 2>&1 & far=$!
GLOO_SOCKET_IFNAME=near {python} -m torch.distributed.run $meet --rdzv-conf=is_host=1 \\
  --local-addr=10.77.0.1 -m weft {train} >{folder}/near.log 2>&1 & near=$!
{during}
wait $near
wait $far
"""
LOSE = """
while ! [ -e {out}/metrics.jsonl ]; do sleep 0.05; done
sleep 1
ip link set near down
sleep 40
kill -9 $near $far
"""


def check_network(folder: Path) -> None:
    if subprocess.run(["unshare", "-Urnm", "ip", "link", "show", "lo"], capture_output=True).returncode:
        print("network: skipped, namespaces are not allowed here", flush=True)
        return
    finish(weft(*command("lm", folder / "one", *SLICES)))
    for name, during in (("two", ""), ("lost", LOSE)):
        out = folder / name
        long = ["--epochs", "4000"] if during else []
        script = HOSTS.format(
            python=sys.executable,
            train=" ".join(command("lm", out, *SLICES, *long)),
            folder=folder,
            during=during.format(out=out),
        )
        done = subprocess.run(
            ["unshare", "-Urnm", "--fork", "--kill-child", "bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env={**os.environ, "WEFT_STEP_SECONDS": "5", "NO_COLOR": "1"},
        )
        said = [(folder / f"{side}.log").read_text() for side in ("near", "far")]
        if not during:
            assert done.returncode == 0, (done.stderr, *said)
            expect_equal("two hosts", folder / "one", out)
        else:
            for side in said:
                assert side.count("lost contact with the others") == 1, side
                assert "Traceback" not in side.split("lost contact")[0], side
            print("two hosts, network lost: one message on each", flush=True)


MEMORY_LIMIT = 420 << 20  # bytes; torch alone takes about 250 MB
FLAT = 20 << 20


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
    ids = generator.integers(4, len(open_shards(folder).codec.vocabulary), 1 << 24).astype(np.uint16).tobytes()
    index["shards"] = []
    for number in range(-(-size // (2 * count))):
        name = f"shard-{number:05d}.bin"
        with (folder / name).open("wb") as file:
            for _ in range(count // (1 << 24)):
                file.write(ids)
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
    large_shards(folder / "shards", 20 * MEMORY_LIMIT)
    train = weft(
        *("train", "lm", "--data", str(folder / "shards"), "--out", str(folder / "run"), "--threads", "1"),
        *("--set", "model.hidden_size=32", "--set", "train.save_seconds=5", "--set", "text.holdout=0"),
    )
    process = subprocess.Popen(
        train,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None,
        stderr=subprocess.PIPE,
        text=True,
    )
    used: list[int] = []
    try:
        wait_for_lines(folder / "run" / METRICS, 5, process)
        end = time.monotonic() + 40
        while process.poll() is None and time.monotonic() < end:
            status = Path(f"/proc/{process.pid}/status").read_text()
            used.append(int(status.split("RssAnon:")[1].split()[0]) << 10)
            time.sleep(0.5)
        assert process.poll() is None, process.communicate()
        steps = count_lines(folder / "run" / METRICS)
    finally:
        process.kill()
        process.communicate()
        time.sleep(0.5)
        group.rmdir()
    spread = max(used) - min(used)
    size = sum(file.stat().st_size for file in (folder / "shards").glob("*.bin"))
    print(
        f"memory: {size / 2**30:.1f} GiB of shards, limit {MEMORY_LIMIT / 2**20:.0f} MiB, anonymous memory "
        f"{min(used) / 2**20:.0f} to {max(used) / 2**20:.0f} MiB over {steps} reports",
        flush=True,
    )
    assert spread <= FLAT, spread


TUNE = """
import sys
from weft import tuning
tuning.HEARTBEAT_SECONDS = 1
tuning.tune("lm", "grammar", sys.argv[1], {"text.limit": 20000, "model.hidden_size": 32, "train.epochs": 3},
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


CHECKS: dict[str, Callable[[Path], None]] = {
    "weights": check_weights,
    "torchrun": check_torchrun,
    "killed": check_killed,
    "restarts": check_restarts,
    "network": check_network,
    "memory": check_memory,
    "postgres": check_postgres,
}


def main(*names: str) -> int:
    for name in names or CHECKS:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            CHECKS[name](Path(folder))
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
