"""Training in several processes: the workers of torchrun, or of `weft train --workers`.

Every worker holds the whole model. A step adds the gradients of all workers (`weft.training.slices`), after which all
of them take the same step. Rank 0 writes the run directory and prints; the others read the run directory.

The workers find each other through a store, a small key-value server that torchrun runs. The store outlives a restart
of the workers, with the keys of those that died. So every start of the workers agrees on a prefix for its own keys.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

import weft
from weft.config import from_dict, to_dict
from weft.engine import description
from weft.errors import WeftError, warn
from weft.training.environment import LostWorkerError, in_group, local_size

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_Config = TypeVar("_Config")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

CONNECT_SECONDS = 120.0  # for all workers to start and to find each other
STEP_SECONDS = 60.0  # for an answer of another worker in a step, unless the variable WEFT_STEP_SECONDS is set
STORE_SECONDS = 10.0  # for an answer of the store
_POLL_SECONDS = 2.0  # between checks that the store still answers
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class Workers:
    """The processes that train one model together; this process is the one with the given rank.

    Args:
        rank: the number of this process, from 0.
        size: the number of processes.
        store: the store with the prefix of this start, and the one without; None if the process is alone.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: tuple[Store, Store] | None = None) -> None:
        self.rank, self.size = rank, size
        self._own: Store | None = store[0] if store else None
        self._shared: Store | None = store[1] if store else None
        self._meetings = 0
        self._clock: float | None = None  # the last time of rank 0 that all workers know

    @property
    def alone(self) -> bool:
        return self.size == 1

    def now(self) -> float:
        """A time in seconds that is the same in all workers: that of rank 0 when they last exchanged something."""
        return time.perf_counter() if self._clock is None else self._clock

    def set_clock(self, seconds: float) -> None:
        """Sets the time that all workers know, which rank 0 has sent."""
        self._clock = seconds

    def synchronize(self) -> None:
        """Waits for all workers, however long they take, and agrees on the time."""
        if not self.alone:
            self.first(None)

    def first(self, value: _Result) -> _Result:
        """Returns the value of rank 0, and agrees on the time."""
        if self.alone:
            return value
        (found, seconds), *_ = self.gather((value, time.perf_counter()))
        self.set_clock(seconds)
        return found

    def gather(self, value: _Result) -> list[_Result]:
        """Returns the values of all workers, by rank. Waits for a slow worker as long as it takes."""
        if self.alone:
            return [value]
        from torch import distributed

        self.meet()
        found: list[Any] = [None] * self.size
        with self.exchanging():
            distributed.all_gather_object(found, value)
        return found

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """Returns the results of all items, in order; item i is computed by worker i modulo the number of workers."""
        own = [function(item) for number, item in enumerate(items) if number % self.size == self.rank]
        results = self.gather(own)
        return [results[number % self.size][number // self.size] for number in range(sum(map(len, results)))]

    def exchange(self, pieces: list[Tensor], sizes: list[int]) -> list[Tensor]:
        """Sends piece r to worker r. Returns the pieces that the workers have sent here, whose lengths are `sizes`."""
        from torch import distributed

        received = pieces[0].new_empty(sum(sizes))
        with self.exchanging():
            distributed.all_to_all_single(received, torch.cat(pieces), sizes, [len(piece) for piece in pieces])
        return list(received.split_with_sizes(sizes))

    def collect(self, piece: Tensor) -> Tensor:
        """Returns the equally long pieces of all workers, (workers, length)."""
        from torch import distributed

        found = piece.new_empty(self.size, len(piece))
        with self.exchanging():
            distributed.all_gather(list(found.unbind()), piece)
        return found

    def meet(self) -> None:
        """Waits until all workers have come here, however long that takes, as long as the store answers."""
        if self._own is None:
            return
        self._meetings += 1
        name = f"meeting/{self._meetings}"
        with self.exchanging():
            self._own.set(f"{name}/{self.rank}", "here")
            everyone = [f"{name}/{rank}" for rank in range(self.size)]
            while not _wait(self._own, everyone, _POLL_SECONDS):
                # The wait ended by its timeout: some worker is slow, or the network is gone.
                if not _wait(self._own, [f"{name}/{self.rank}"], STORE_SECONDS):
                    raise RuntimeError(f"the store gave no answer for {STORE_SECONDS:g} s")

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Reports a failed exchange with other workers as one error."""
        try:
            yield
        except RuntimeError as error:  # of the process group and the store
            raise LostWorkerError(
                f"worker {self.rank} of {self.size} on {platform.node()} lost contact with the others "
                f"({_reason(error)})",
                expected=f"every worker to answer within {step_seconds():g} s (WEFT_STEP_SECONDS sets another time)",
                hint="`resume` with any number of workers, or `torchrun --max-restarts=3`, which does it by itself",
            ) from error

    def mark_started(self, out: Path) -> None:
        """Notes that these workers have created the run, so that their restart resumes it."""
        if self._shared is not None:
            self._shared.set(f"weft/run/{out.absolute()}", "created")

    def has_started(self, out: Path) -> bool:
        """Whether these workers created the run before they were restarted."""
        if self._shared is None or not out.exists():
            return False
        restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        return restarted or bool(self._shared.check([f"weft/run/{out.absolute()}"]))

    def leave(self) -> None:
        """Ends the exchange. Rank 0 is the last, because it may have the store that the others still ask."""
        if self._own is None:
            return
        from torch import distributed

        self.meet()
        names = [f"left/{rank}" for rank in range(1, self.size)]
        distributed.destroy_process_group()
        if self.rank:
            self._own.set(f"left/{self.rank}", "left")
        else:
            _wait(self._own, names, STORE_SECONDS)
        self._own = None


ALONE = Workers()


def step_seconds() -> float:
    """The timeout of an exchange in a training step."""
    given = os.environ.get("WEFT_STEP_SECONDS", "")
    try:
        return max(1.0, float(given)) if given else STEP_SECONDS
    except ValueError:
        raise WeftError(f"WEFT_STEP_SECONDS is {given!r}", expected="a number of seconds") from None


def current_workers() -> Workers:
    """The workers that torchrun's environment names, connected on the first call; a process alone without it."""
    return _connect() if in_group() else ALONE


def slices_for(workers: Workers, config: _Config, *, resumed: bool = False) -> _Config:
    """Settings with which every worker has a slice of each batch: a new run gets one for each, unless it sets more."""
    train: Any = getattr(config, "train", None)
    if workers.alone:
        return config
    if not hasattr(train, "slices"):
        warn(f"this task has no training steps to divide: one process does it, the other {workers.size - 1} wait")
    elif train.slices == 1 and not resumed:
        sections = to_dict(config)
        return from_dict(type(config), {**sections, "train": {**sections["train"], "slices": workers.size}})
    elif train.slices < workers.size:
        raise WeftError(
            f"train.slices is {train.slices}, and there are {workers.size} workers",
            expected="a slice of each batch for every worker",
            hint=f"`train.slices={workers.size}`, which changes the weights, or fewer workers",
        )
    elif train.slices % workers.size:
        warn(f"train.slices={train.slices} is not a multiple of {workers.size} workers: some of them wait for others")
    return config


@cache
def _connect() -> Workers:
    from torch import distributed
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    if local_size() == size:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)  # one machine: nothing leaves it
    agent_has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    limit = timedelta(seconds=CONNECT_SECONDS)
    try:
        shared = TCPStore(
            host, port, is_master=rank == 0 and not agent_has_store, timeout=limit, wait_for_workers=False
        )
        start = _greet(shared, size) if rank == 0 else _join(shared, rank, size)
        own = PrefixStore(start, shared)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and distributed.is_nccl_available() else "gloo"
        distributed.init_process_group(
            backend,
            store=PrefixStore("group", own),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=step_seconds()),
        )
    except RuntimeError as error:
        raise LostWorkerError(
            f"worker {rank} of {size} on {platform.node()} could not reach the others at {host}:{port} "
            f"({_reason(error)})",
            expected=f"all workers to start within {CONNECT_SECONDS:g} s",
            hint="GLOO_SOCKET_IFNAME=NAME, if the machine has several network interfaces",
        ) from error
    return Workers(rank, size, (own, shared))


def _greet(store: Store, size: int) -> str:
    """Rank 0 of the handshake: gives every other worker the prefix of this start, and returns it.

    A worker says hello with a random word and waits for an answer that repeats it. A word that a dead worker has left
    behind is answered too, and answered again when the living one has replaced it.
    """
    start = f"weft/{uuid.uuid4().hex}"
    missing, answered, deadline = set(range(1, size)), dict[int, str](), time.monotonic() + CONNECT_SECONDS
    while missing:
        for other in sorted(missing):
            if store.check([f"weft/hello/{size}/{other}"]):
                hello = store.get(f"weft/hello/{size}/{other}").decode()
                if answered.get(other) != hello:
                    answered[other] = hello
                    store.set(f"weft/answer/{size}/{other}", f"{hello.split(' ', 1)[0]} {start}")
            if store.check([f"{start}/joined/{other}"]):
                missing.discard(other)
        if missing and time.monotonic() > deadline:
            raise RuntimeError(f"workers {', '.join(map(str, sorted(missing)))} did not start")
        time.sleep(0.01)
    _check_equal({0: _environment(), **{other: hello.split(" ", 1)[1] for other, hello in answered.items()}})
    return start


def _join(store: Store, rank: int, size: int) -> str:
    word, deadline = uuid.uuid4().hex, time.monotonic() + CONNECT_SECONDS
    store.set(f"weft/hello/{size}/{rank}", f"{word} {_environment()}")
    while time.monotonic() < deadline:
        if store.check([f"weft/answer/{size}/{rank}"]):
            repeated, start = store.get(f"weft/answer/{size}/{rank}").decode().split(" ", 1)
            if repeated == word:
                store.set(f"{start}/joined/{rank}", "here")
                return start
        time.sleep(0.01)
    raise RuntimeError("worker 0 did not answer")


def _environment() -> str:
    """What the bits of a step depend on; workers that differ in it would train different models."""
    return f"weft {weft.__version__}, torch {torch.__version__}, {description()}"


def _check_equal(environments: Mapping[int, str]) -> None:
    for rank, found in environments.items():
        if found != environments[0]:
            raise WeftError(
                f"worker {rank} runs {found}, and worker 0 runs {environments[0]}",
                expected="the same on all machines",
                hint="the same versions, and WEFT_ENGINE=avx2 (or another variant that all machines have) on all",
            )


def _reason(error: Exception) -> str:
    """The first sentence of an error of the network, without places in the source of its library."""
    return re.sub(r"^\[[^]]*\]\s*", "", str(error)).splitlines()[0].split(". ")[0][:200]


def _wait(store: Store, keys: list[str], seconds: float) -> bool:
    """Waits for keys of the store; returns whether all of them are there."""
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except RuntimeError as error:
        if "timeout" in str(error).lower():
            return False
        raise
    return True


def split_evenly(count: int, parts: int) -> list[range]:
    """Splits range(count) into consecutive ranges whose sizes differ by at most one.

    >>> split_evenly(5, 2)
    [range(0, 3), range(3, 5)]
    """
    size, larger = divmod(count, parts)
    ends = [size * number + min(number, larger) for number in range(parts + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(ends)]
