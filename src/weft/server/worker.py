"""The thread that computes for one model: requests that wait are answered together.

A worker has a queue of items. It takes the oldest; if it is a batch item, all waiting items with the same key come
along, up to the batch size. While one batch is computed the next one gathers, so nothing is delayed in order to be
batched. Between two batches the sequences that are being generated advance by some tokens (`Generation`).

An item whose client has gone is dropped; where the whole running batch has been dropped, its computation is interrupted
by an exception in the worker's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Any

import torch

from weft.server.errors import LOGGER, overloaded
from weft.server.generation import Generation
from weft.server.metrics import Metrics

RETRY = 0.2  # seconds between two attempts to interrupt a computation
ALL_THREADS = torch.get_num_threads()  # asked once, since the number is one of each thread's own
SMALL_BATCH = 5000  # characters of all its texts
LARGE_BATCH = 100_000  # characters; what is computed at a time takes memory for each


class Interrupted(BaseException):
    """Raised in a worker's thread when nobody waits for what it computes. No `except Exception` catches it."""


class Item:
    """A computation that one request waits for.

    Args:
        run: Inputs of one or more items to their results.
        inputs: The texts of this item; one result is expected for each.
        key: Items with equal keys are computed together; None: alone.
    """

    def __init__(self, run: Callable[[Sequence[Any]], Sequence[Any]], inputs: Sequence[Any], key: Any = None) -> None:
        self.run, self.inputs, self.key = run, inputs, key
        self.size = sum(map(_size, inputs))
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Any]] = self.loop.create_future()
        self.abandoned = False


class Worker:
    """Computes for one model, in one thread."""

    def __init__(
        self, name: str, generation: Generation | None, metrics: Metrics, batch_size: int, max_queue: int
    ) -> None:
        self.name, self.generation, self.metrics = name, generation, metrics
        self.batch_size, self.max_queue = batch_size, max_queue
        self._queue: deque[Item] = deque()
        self._changed = threading.Condition()
        self._running: list[Item] = []
        self._stopping = False
        self._threads = 0  # that the thread computes with
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def wake(self) -> None:
        """Says that there is something to tick."""
        with self._changed:
            self._begin()

    def _begin(self) -> None:
        """Wakes the thread, or starts one: a request may still compute with a model that has been loaded again."""
        if self._thread is None:
            run = copy_context().run  # a new thread has no context: custom cells are part of it
            self._thread = threading.Thread(target=run, args=(self._work,), name=f"weft-{self.name}", daemon=True)
            self._thread.start()
        self._changed.notify()

    async def compute(
        self, run: Callable[[Sequence[Any]], Sequence[Any]], inputs: Sequence[Any], key: Any = None
    ) -> list[Any]:
        """Computes the results of inputs; where it is cancelled, the computation is dropped or interrupted."""
        items = [Item(run, part, key) for part in self._parts(inputs)]
        with self._changed:
            if len(self._queue) >= self.max_queue:
                raise overloaded(f"{len(self._queue):,} requests wait for the model {self.name}; expected fewer")
            self._queue.extend(items)
            self._begin()
        try:
            found = [await item.future for item in items]
        finally:
            pending = [item for item in items if not item.future.done() or item.future.cancelled()]
            if pending:
                self._abandon(pending)
        return [result for part in found for result in part]

    def _parts(self, inputs: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Inputs in parts that are computed together; a very long text alone."""
        begin = size = 0
        for end, one in enumerate(inputs):
            if end > begin and (end - begin >= self.batch_size or size + _size(one) > LARGE_BATCH):
                yield inputs[begin:end]
                begin, size = end, 0
            size += _size(one)
        if inputs:
            yield inputs[begin:]

    async def call(self, function: Callable[[], Any]) -> Any:
        """Computes one value, by itself."""
        (found,) = await self.compute(lambda _: [function()], [None])
        return found

    def stop(self) -> None:
        """Finishes what waits, then ends the thread."""
        with self._changed:
            self._stopping, thread = True, self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(timeout=10)

    def _abandon(self, items: Sequence[Item]) -> None:
        with self._changed:
            for item in items:
                item.abandoned = True
            left = [item for item in self._queue if not item.abandoned]
            self._queue = deque(left)
            running = self._running
        if running and all(item.abandoned for item in running):
            self._interrupt(running)

    def _interrupt(self, running: list[Item]) -> None:
        """Raises Interrupted in the thread; again after a while, since a destructor may have swallowed it."""
        with self._changed:
            if self._running is not running or self._thread is None or self._thread.ident is None:
                return
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident), ctypes.py_object(Interrupted)
            )
        threading.Timer(RETRY, self._interrupt, [running]).start()

    def _work(self) -> None:
        torch.set_grad_enabled(True)
        self._threads = 0
        working = True
        while working:
            with contextlib.suppress(Interrupted):  # raised again while it is being handled
                try:
                    working = self.step()
                except Interrupted:
                    self._running = []
                except BaseException:
                    LOGGER.exception("the worker of the model %s failed", self.name)
                    self._running = []

    def step(self) -> bool:
        """One batch, one tick. Returns whether to go on."""
        generation = self.generation
        with self._changed:
            while not self._queue and not generation:
                if self._stopping:
                    self._thread = None
                    return False
                self._changed.wait()
            batch = self._take()
            self._running = batch
        if batch:
            self._run(batch)
            with self._changed:
                self._running = []
        if generation:
            self._use_threads(ALL_THREADS)
            generation.tick()
        return True

    def _take(self) -> list[Item]:
        """The oldest item, and those that can be computed with it."""
        if not self._queue:
            return []
        batch = [self._queue.popleft()]
        if batch[0].key is None:
            return batch
        count, size, left = len(batch[0].inputs), batch[0].size, deque[Item]()
        for item in self._queue:
            fits = count + len(item.inputs) <= self.batch_size and size + item.size <= LARGE_BATCH
            if item.key == batch[0].key and fits:
                batch.append(item)
                count, size = count + len(item.inputs), size + item.size
            else:
                left.append(item)
        self._queue = left
        return batch

    def _run(self, batch: list[Item]) -> None:
        inputs = [one for item in batch for one in item.inputs]
        self.metrics.batches.labels(self.name).observe(len(inputs))
        self._use_threads(threads_for(inputs))
        try:
            results = list(batch[0].run(inputs))
        except Exception as error:
            if len(batch) > 1:  # the mistake of one request is no failure of the others
                for item in batch:
                    if not item.abandoned:
                        self._run([item])
                return
            _deliver([(batch[0], None, error)])
            return
        begin, found = 0, []
        for item in batch:
            found.append((item, results[begin : begin + len(item.inputs)], None))
            begin += len(item.inputs)
        _deliver(found)

    def _use_threads(self, count: int) -> None:
        """Sets how many OpenMP threads this worker's thread computes with; those of others keep their number."""
        if count != self._threads:
            torch.set_num_threads(count)
            self._threads = count


def _size(one: Any) -> int:
    """The length of a text, or of its token ids."""
    return len(one) if isinstance(one, (str, list)) else 0


def threads_for(inputs: Sequence[Any]) -> int:
    """How many threads to compute a batch with: one, unless its texts are long.

    A search for one translation is hundreds of products of some microseconds each. A second thread takes as long to
    wake up, and the event loop and a client on the same machine need its core. With models of the default sizes, one
    thread was faster than two for every batch measured, of up to 64 sentences or 4,800 characters.
    """
    short = all(isinstance(one, str) for one in inputs) and sum(map(_size, inputs)) <= SMALL_BATCH
    return 1 if short else ALL_THREADS


def _deliver(results: Sequence[tuple[Item, list[Any] | None, Exception | None]]) -> None:
    """Hands results to the event loop, all at once."""

    def set_all() -> None:
        for item, found, error in results:
            if item.future.done():
                continue
            if error is not None:
                item.future.set_exception(error)
            else:
                item.future.set_result(found or [])

    try:
        results[0][0].loop.call_soon_threadsafe(set_all)
    except RuntimeError:  # the loop is closed: the server has stopped
        LOGGER.debug("a result came after the end of the server")
