"""Training with several workers, whole: `python -m tests.long.scale_checks [NAME[:TASK]...]`.

    weights    every trained task with 1, 2 and 4 workers: the same bits
    torchrun   the same by torchrun: one node of two processes, two nodes
    killed     workers killed by SIGKILL and resumed, each time by another number of workers: the same bits
    restarts   a worker killed under torchrun --max-restarts, and under --workers: restarted, the same bits
    network    two hosts (network namespaces with a veth pair): the same bits; a lost network is one message
    memory     text of 20 times the memory limit (a memory cgroup): training works, anonymous memory stays flat
    postgres   two processes search in one study in a PostgreSQL server; one is killed, its trial is repeated

`weights:tag` runs a check of one task only; all of them take about 15 minutes. Processes talk on loopback, or inside
namespaces of their own. A check whose means are missing is skipped and says so.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.long.kill_runs import CASES, DATA, differences
from tests.long.scale_resources import check_memory, check_postgres
from tests.long.worker_processes import LIMIT, count_lines, finish, free_port, torchrun, wait_for_lines, weft
from weft.training.run import METRICS

SLICES = ["--set", "train.slices=4"]
LONG = [*SLICES, "--epochs", "40", "--set", "train.evaluate_every=50"]
# Shorter than those that one process trains, because all workers may share two cores.
SHORT = {
    "lm": "train.epochs=12",
    "fill": "train.epochs=10",
    "classify": "train.epochs=10",
    "tag": "train.epochs=3",
    "translate": "train.epochs=6",
    "hmm": "train.iterations=25",
}


def command(task: str, out: Path, *extra: str) -> list[str]:
    sets = [part for one in (*CASES[task], SHORT[task]) for part in ("--set", one)]
    column = ["--column", "upos"] if task == "tag" else []
    data = ["--data", DATA.get(task, "grammar")]
    return ["train", task, "--out", str(out), *data, *column, *sets, "--threads", "1", *extra]


def expect_equal(what: str, one: Path, other: Path) -> None:
    wrong = differences(one, other)
    assert not wrong, f"{what}: {wrong[:5]}"
    print(f"{what}: equal", flush=True)


def check_weights(folder: Path, *tasks: str) -> None:
    for task in tasks or CASES:
        for workers in (1, 2, 4):
            finish(weft(*command(task, folder / f"{task}{workers}", *SLICES, "--workers", str(workers))))
            if workers > 1:
                expect_equal(f"{task}, {workers} workers", folder / f"{task}1", folder / f"{task}{workers}")
    if "lm" in (tasks or CASES):
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


def check_killed(folder: Path, *tasks: str) -> None:
    chance = random.Random(time.time_ns())
    for task in tasks or CASES:
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
        assert kills, f"{task}: the training ended before it could be killed"
        expect_equal(f"{task}, {kills} kills, other numbers of workers", folder / task, out)


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
for wait in $(seq 80); do
  if grep -q "lost contact" {folder}/near.log && grep -q "lost contact" {folder}/far.log; then break; fi
  sleep 0.5
done
sleep 2  # time for a second message, which would be wrong
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
            during=during.format(out=out, folder=folder),
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


CHECKS: dict[str, Callable[..., None]] = {
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
        check, *tasks = name.split(":")
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            CHECKS[check](Path(folder), *tasks)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
