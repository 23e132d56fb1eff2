"""One process trains a run at a time."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys

import pytest

from weft.config import load_config
from weft.errors import WeftError
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.task import TASK
from weft.training.lock import LOCK, lock_run

HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom weft.training.lock import lock_run\n"
    "lock = lock_run(Path(sys.argv[1]))\nprint('held', flush=True)\ntime.sleep(60)\n"
)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of the folder."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_refused_by_name(tmp_path, holder):
    with pytest.raises(WeftError, match=f"is being trained by process {holder.pid} on "):
        lock_run(tmp_path)


def test_a_kill_releases_the_lock(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert lock_run(tmp_path).held


def test_release_lets_others_in(tmp_path):
    lock_run(tmp_path).release()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        process.kill()


def test_a_process_may_take_up_its_own_run(tmp_path):
    lock = lock_run(tmp_path)
    assert lock_run(tmp_path) is lock
    del lock
    gc.collect()
    assert str(os.getpid()) in (tmp_path / LOCK).read_text()


def test_training_holds_the_lock_until_its_end(tmp_path):
    config = load_config(LmConfig, sets=["text.limit=4000", "model.hidden_size=8", "batch.size=4", "train.epochs=1"])
    training = TASK.start("grammar", tmp_path / "run", config)
    command = [sys.executable, "-m", "weft", "train", "lm", "--out", str(tmp_path / "run"), "--resume"]
    metrics = training.run.path / "metrics.jsonl"
    steps = training.steps()
    list(itertools.islice(steps, 2))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"is being trained by process {os.getpid()}" in done.stderr
    for _ in steps:
        pass
    before = metrics.read_text()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert metrics.read_text() == before
