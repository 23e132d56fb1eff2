"""Memory that goes from tensor to tensor: never two at once, and never more waiting than is allowed."""

from __future__ import annotations

import gc
import threading

import torch

from weft.engine import memory
from weft.engine.memory import MemoryPool

LARGE = (memory.SMALLEST // 4, 2)


def test_a_block_serves_again_when_its_tensor_is_gone():
    pool = MemoryPool()
    first = pool.empty(LARGE, torch.float32)
    place = first.data_ptr()
    view = first[10:, 1].detach()
    del first
    gc.collect()
    other = pool.empty(LARGE, torch.float32)
    assert other.data_ptr() != place  # the view still holds it
    del view
    gc.collect()
    assert pool.empty(LARGE, torch.float32).data_ptr() == place
    assert other.shape == LARGE
    assert other.untyped_storage().nbytes() == 2 * memory.SMALLEST


def test_a_small_tensor_takes_no_large_block():
    pool = MemoryPool()
    large = pool.empty((40, *LARGE), torch.float32)
    place = large.data_ptr()
    del large
    assert pool.empty(LARGE, torch.float32).data_ptr() != place


def waiting(pool):
    return sum(block.size for block in pool.waiting)


def test_what_waits_is_bounded():
    """By the recent peak of use; later, when the peak is long ago, by a constant."""
    pool = MemoryPool()
    for count in (20, 3):
        tensors = [pool.empty((16, *LARGE), torch.float64) for _ in range(count)]
        tensors.clear()
        assert waiting(pool) == 20 * 32 * memory.SMALLEST * 2
    for _ in range(2 * memory.RECENT):
        pool.empty(LARGE, torch.float32)
    assert 0 < waiting(pool) <= memory.MOST_WAITING


def test_use_never_grows_past_its_peak():
    """Blocks of other sizes do not add up: what is unused makes room before a block is made."""
    pool, large = MemoryPool(), memory.MOST_WAITING // 4
    for size in range(4 * large, 16 * large, large):
        tensor = pool.empty((size,), torch.float32)  # four bytes each: nothing is touched
        assert waiting(pool) + 4 * size <= max(pool.peak, 4 * size + memory.MOST_WAITING)
        del tensor


def test_threads_never_share_a_block():
    pool, wrong = MemoryPool(), []

    def work(value: int) -> None:
        for _ in range(50):
            tensor = pool.empty(LARGE, torch.float32).fill_(value)
            if not bool((tensor == value).all()):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_tensor_is_an_ordinary_one():
    tensor = MemoryPool().empty(LARGE, torch.float32).zero_()
    shared = tensor.share_memory_()
    assert torch.equal(shared, torch.zeros(LARGE))
    assert torch.equal(torch.from_numpy(tensor.numpy()), tensor)
