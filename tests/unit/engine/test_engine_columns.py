"""Few rows: threads divide the columns of the recurrent products, and the results are the bits of one thread."""

from __future__ import annotations

import pytest
import torch

import weft
from weft import engine
from weft.nn import Bidirectional, Recurrent

pytestmark = pytest.mark.skipif(engine.library() is None, reason="the engine is not built")


def by_threads(work):
    """What `work` returns with one, two and three threads."""
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(work())
    finally:
        torch.set_num_threads(before)
    return found


def assert_equal_bits(found):
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("cell", "rows", "steps", "size", "dtype"),
    [
        ("lstm", 1, 20, 256, torch.float32),
        ("gru", 2, 30, 200, torch.float32),  # panels across the ends of blocks
        ("lstm", 3, 12, 160, torch.float64),
        ("rnn", 1, 25, 300, torch.float32),  # rows that are not whole vectors
        ("slstm", 2, 20, 192, torch.float32),
    ],
)
def test_results_do_not_depend_on_the_number_of_threads(cell, rows, steps, size, dtype):
    torch.manual_seed(0)
    layer = Recurrent(weft.CELLS[cell](24, size)).to(dtype)
    x = torch.randn(rows, steps, 24, dtype=dtype, requires_grad=True)
    lengths = torch.arange(steps, steps - 2 * rows, -2)

    def work():
        layer.zero_grad()
        x.grad = None
        outputs, last = layer(x, lengths=lengths)
        (outputs * torch.linspace(-1, 1, size, dtype=dtype)).sum().backward()
        with torch.no_grad():
            plain, _ = layer(x, lengths=lengths)
        return [
            plain,
            outputs.detach(),
            *(part.detach() for part in last),
            x.grad,
            *(p.grad for p in layer.parameters()),
        ]

    assert_equal_bits(by_threads(work))


@pytest.mark.parametrize("kind", ["bf16", "int8", "two directions"])
def test_other_layers_do_not_depend_on_it_either(kind):
    torch.manual_seed(0)
    layer = Recurrent(weft.CELLS["lstm"](24, 512))
    if kind == "int8":
        layer = weft.quantize(layer)
    if kind == "two directions":
        layer = Bidirectional(weft.CELLS["lstm"](24, 256), weft.CELLS["gru"](24, 256))
    x = torch.randn(1, 20, 24)

    def work():
        with torch.no_grad(), weft.precision("bf16" if kind == "bf16" else "float32"):
            return [layer(x)[0]]

    assert_equal_bits(by_threads(work))


def test_one_row_alone_is_the_row_of_a_batch():
    """The input of few rows is projected before the loop, that of many rows may be projected inside."""
    torch.manual_seed(0)
    layer, x = Recurrent(weft.CELLS["lstm"](48, 96)), torch.randn(8, 9, 48)
    with torch.no_grad():
        together = layer(x)[0]
        for row in range(8):
            assert torch.equal(layer(x[row : row + 1])[0][0], together[row])


def test_a_batch_without_tokens():
    """Products without depth are their initial values: gradients of zero."""
    layer = Recurrent(weft.CELLS["gru"](5, 40))
    for rows, steps in ((0, 3), (3, 0), (1, 0)):
        layer.zero_grad()
        outputs, last = layer(torch.zeros(rows, steps, 5))
        (outputs.sum() + last.h.sum()).backward()
        assert all(not p.grad.any() for p in layer.parameters())
