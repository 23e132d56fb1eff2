"""Embeddings of the engine: what torch computes, written out or read by a layer as they are told."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from weft import engine
from weft.cells import LSTMCell
from weft.engine import Dropout, Embedded, Part, embed
from weft.errors import WeftError
from weft.nn import Bidirectional, Recurrent, make_stack

LIBRARY = import_module("weft.engine.library")  # the package has a function of that name
needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")


@pytest.fixture
def one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call draws the same seed."""
    for module in ("dropout", "layers", "embedding"):
        monkeypatch.setattr(import_module(f"weft.engine.{module}"), "draw_seed", lambda: 12345)


@pytest.mark.parametrize("shape", [(), (0,), (9,), (4, 0), (3, 5), (40, 70)])
@pytest.mark.parametrize("width", [1, 7, 100])
def test_embed_is_torchs_embedding(shape: tuple[int, ...], width: int) -> None:
    torch.manual_seed(0)
    table = torch.randn(13, width, requires_grad=True)
    ids = torch.randint(0, 13, shape)
    ours, theirs = embed(ids, table), F.embedding(ids, table)
    assert torch.equal(ours, theirs)
    gradient = torch.randn(ours.shape)
    (a,), (b,) = (torch.autograd.grad(each, table, gradient) for each in (ours, theirs))
    torch.testing.assert_close(a, b)


def test_embed_drops_forward_and_back_alike(one_seed: None) -> None:
    table = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    ids = torch.randint(0, 6, (4, 9))
    assert bool((embed(ids, table, 0.5) == 0).any())
    assert torch.autograd.gradcheck(lambda weight: embed(ids, weight, 0.5), table)
    assert torch.equal(embed(ids, table, 0.5, False), F.embedding(ids, table))


@needs_engine
def test_ids_outside_the_table_are_refused() -> None:
    for wrong in (-1, 6):
        with pytest.raises(WeftError, match="outside the vocabulary"):
            embed(torch.tensor([0, wrong]), torch.randn(6, 5))


@pytest.mark.parametrize("drop", [Dropout(), Dropout(0.4), Dropout(0.4, shared_over_time=True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("places", [(3, 5), (40, 70)])
def test_tables_side_by_side(one_seed: None, drop: Dropout, dtype: torch.dtype, places: tuple[int, int]) -> None:
    """As one by one, the tables' gradients too, where one is read twice and one is not trained."""
    torch.manual_seed(0)
    a, b, c = (torch.randn(size, width, dtype=dtype) for size, width in ((13, 100), (7, 3), (5, 18)))
    a.requires_grad_()
    b.requires_grad_()
    tables = [a, b, c, b]
    parts = [Part(torch.randint(0, len(table), places), table) for table in tables]
    ours = Embedded(parts, drop).tensor()
    theirs = drop.apply(torch.cat([F.embedding(ids, table) for ids, table, _ in parts], -1))
    assert torch.equal(ours, theirs)
    assert drop == Dropout() or bool((ours == 0).any())
    gradient = torch.randn_like(ours)
    found = [torch.autograd.grad(each, [a, b], gradient) for each in (ours, theirs)]
    torch.testing.assert_close(*found)


def test_tables_that_do_not_go_together() -> None:
    """By torch: tables of two types."""
    ids = torch.tensor([[0, 1]])
    one, other = torch.randn(2, 3), torch.randn(2, 1, dtype=torch.float64)
    found = Embedded([Part(ids, one), Part(ids, other)]).tensor()
    assert torch.equal(found, torch.cat([one[None].double(), other[None]], -1))
    for wrong in (Part(ids[:, :1], one), Part(ids, one[0]), Part(ids, one, torch.zeros(3))):
        with pytest.raises(WeftError, match="embed: ids"):
            Embedded([Part(ids, one), wrong]).tensor()


@pytest.mark.parametrize("built", [True, False])
def test_rows_are_forgotten_by_their_chances(built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not built:
        monkeypatch.setattr(LIBRARY, "usable", lambda: False)
    torch.manual_seed(0)
    table = torch.arange(5.0)[:, None].repeat(1, 3).requires_grad_()
    ids, probability = torch.arange(5).repeat(20_000).view(1000, 100), torch.tensor([0.5, 0.0, 0.1, 0.9, 1.0])
    read = Embedded([Part(ids, table, probability), Part(ids, table)]).tensor()
    assert torch.equal(read[..., 3:], table[ids]), "a part without word dropout keeps its ids"
    forgotten = read[..., 0] != ids
    assert torch.equal(read[..., :3], table[ids.masked_fill(forgotten, 0)])
    for id in range(1, 5):
        share, chance = float(forgotten[ids == id].double().mean()), float(probability[id])
        assert abs(share - chance) <= 5 * (chance * (1 - chance) / 20_000) ** 0.5
    (gradient,) = torch.autograd.grad(read[..., 0].sum(), table)
    expected = torch.bincount(ids.masked_fill(forgotten, 0).flatten(), minlength=5).float()
    torch.testing.assert_close(gradient[:, 0], expected)
    assert not gradient[:, 1:].any()
    again = Embedded([Part(ids, table, probability)]).tensor()
    assert not torch.equal(again, read[..., :3]), "another draw each time"


@needs_engine
def test_parts_forget_each_for_itself() -> None:
    table, probability = torch.tensor([[0.0], [1.0]]), torch.tensor([0.0, 0.5])
    ids = torch.ones(100, 100, dtype=torch.long)
    one, other = Embedded([Part(ids, table, probability), Part(ids, table, probability)]).tensor().unbind(-1)
    assert abs(float(((one - 0.5) * (other - 0.5)).mean())) < 5 * 0.25 / 100


def read(
    words: Tensor, kinds: Tensor, joined: Tensor, drop: Dropout = engine.NO_DROPOUT, rows: int = 6, steps: int = 5
) -> Embedded:
    """Two tables, one of them twice and one with probability to be forgotten, and numbers of each row beside them."""
    torch.manual_seed(3)
    ids = [torch.randint(0, size, (rows, steps)) for size in (len(words), len(kinds), len(words))]
    probability = torch.full((len(words),), 0.3, dtype=words.dtype)
    parts = [Part(ids[0], words, probability), Part(ids[1], kinds), Part(ids[2], words)]
    return Embedded(parts, drop).join(joined)


def tables(*shapes: tuple[int, int]) -> list[Tensor]:
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@needs_engine
@pytest.mark.parametrize("drop", [Dropout(), Dropout(0.4), Dropout(0.4, shared_over_time=True)])
@pytest.mark.parametrize("lengths", [None, [5, 0, 3, 1, 5, 2], [0, 0, 0, 0, 0, 0]])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("width", [9, 300])  # small weights and large ones are projected apart
def test_a_stack_reads_what_would_be_written_out(
    one_seed: None, drop: Dropout, lengths: list[int] | None, layers: int, width: int
) -> None:
    """Outputs, states and all gradients; what is joined is not dropped."""
    torch.manual_seed(0)
    given = tables((13, width), (4, 2), (6, 3))
    stack = make_stack("gru", 2 * width + 5, 4, layers=layers, bidirectional=True, dropout=0.3).double()
    ends = None if lengths is None else torch.tensor(lengths)
    found = []
    for written in (False, True):
        x = read(*given, drop)
        outputs, states = stack(x.tensor() if written else x, lengths=ends)
        loss = (outputs * torch.linspace(0, 1, outputs.numel()).view_as(outputs)).sum()
        loss = loss + sum(side.h.square().sum() for state in states for side in state)
        found.append((outputs, *torch.autograd.grad(loss, [*given, *stack.parameters()])))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
    if lengths is None:
        assert found[0][3].all(), "every number that is joined counts"


@needs_engine
def test_what_is_read_is_differentiated(one_seed: None) -> None:
    given = tables((5, 2), (3, 1), (2, 2))
    stack = make_stack("lstm", 7, 3, layers=2, dropout=0.5).double()
    lengths = torch.tensor([4, 2])
    assert torch.autograd.gradcheck(
        lambda *each: stack(read(*each, Dropout(0.5), rows=2, steps=4), lengths=lengths)[0], given
    )


@pytest.mark.parametrize("built", [True, False])
def test_every_layer_reads_it(built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not built:
        monkeypatch.setattr(LIBRARY, "usable", lambda: False)
    torch.manual_seed(0)
    ids, table, lengths = torch.randint(0, 9, (3, 4)), torch.randn(9, 5), torch.tensor([4, 0, 2])
    for layer in (
        Recurrent(LSTMCell(5, 6)),
        Bidirectional(LSTMCell(5, 6), LSTMCell(5, 6)),
        make_stack("rnn", 5, 5, residual=True),
    ):
        ours, theirs = (layer(x, lengths=lengths)[0] for x in (Embedded.of(ids, table), F.embedding(ids, table)))
        torch.testing.assert_close(ours, theirs)
        with pytest.raises(WeftError, match=r"x is \(3, 4, 4\).*\(B, T, 5\)"):
            layer(Embedded.of(ids, table[:, :4]), lengths=lengths)


@needs_engine
def test_ids_past_a_rows_end_are_not_looked_at() -> None:
    """And within it they are checked."""
    layer, table = Recurrent(LSTMCell(2, 3)), torch.randn(4, 2, requires_grad=True)
    ids = torch.tensor([[1, 2, 99], [3, -7, 1 << 40]])
    outputs, _ = layer(Embedded.of(ids, table), lengths=torch.tensor([2, 1]))
    outputs.sum().backward()
    assert table.grad is not None
    assert table.grad[1:].abs().sum(1).all()
    assert not table.grad[0].any()
    with pytest.raises(WeftError, match="outside the vocabulary"):
        layer(Embedded.of(ids, table), lengths=torch.tensor([2, 2]))


@needs_engine
def test_nothing_is_kept_and_frozen_tables_get_no_gradient() -> None:
    layer, table = Recurrent(LSTMCell(2, 3)), torch.randn(4, 2)
    x = Embedded.of(torch.randint(0, 4, (3, 2)), table)
    layer(x)[0].sum().backward()
    assert table.grad is None
    assert layer.cell.weight_ih.grad is not None
    with torch.no_grad():
        assert layer(x)[0].grad_fn is None
    layer.requires_grad_(False)
    table.requires_grad_()
    layer(x)[0].sum().backward()
    assert table.grad is not None


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("width", [5, 300])  # of small weights and of large ones
@pytest.mark.parametrize(("rows", "steps"), [(50, 1), (1, 60), (7, 9), (40, 30), (3, 2)])
def test_a_row_that_is_read_often_is_projected_once_and_gives_the_same(
    rows: int, steps: int, width: int, lengths: bool
) -> None:
    """Few ids and many, call after call, over tables of several sizes; in both directions, and upon other layers."""
    torch.manual_seed(0)
    stack = make_stack("gru", width, 24, layers=2, bidirectional=True)
    given = torch.randint(0, steps + 1, (rows,)) if lengths else None
    for size, few in ((9, 3), (1000, 1000), (500, 40), (9, 9)):
        table, ids = torch.randn(size, width), torch.randint(0, few, (rows, steps)) * (size // few)
        with torch.no_grad():
            found, state = stack(Embedded.of(ids, table), lengths=given)
            known, known_state = stack(F.embedding(ids, table), lengths=given)
        assert torch.equal(found, known)
        assert torch.equal(state[0].backward.h, known_state[0].backward.h)


@needs_engine
def test_ids_outside_the_table_are_refused_where_most_repeat() -> None:
    stack = make_stack("rnn", 4, 5)
    for wrong in (-1, 6):
        ids = torch.ones(8, 9, dtype=torch.long)
        ids[7, 8] = wrong
        with torch.no_grad(), pytest.raises(WeftError, match="outside the vocabulary"):
            stack(Embedded.of(ids, torch.randn(6, 4)))
        ids[7, 8] = 0
        with torch.no_grad():  # and nothing is left over from it
            table = torch.randn(6, 4)
            assert torch.equal(stack(Embedded.of(ids, table))[0], stack(F.embedding(ids, table))[0])


@needs_engine
def test_ids_changed_before_the_way_back_are_refused() -> None:
    layer, table = Recurrent(LSTMCell(2, 3)), torch.randn(4, 2, requires_grad=True)
    for run in (layer, lambda x: (x.tensor(), None)):
        ids = torch.zeros(3, 2, dtype=torch.long)
        outputs, _ = run(Embedded.of(ids, table))
        ids.fill_(3)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            outputs.sum().backward()


def test_what_is_joined_must_fit() -> None:
    x = Embedded.of(torch.zeros(3, 2, dtype=torch.long), torch.randn(4, 2))
    for wrong in (torch.zeros(2, 5), torch.zeros(3), torch.zeros(3, 2, 1)):
        with pytest.raises(WeftError, match=r"join: features .*\(3, J\)"):
            x.join(wrong)


@needs_engine
def test_tables_of_another_type_than_the_cell_are_refused() -> None:
    with pytest.raises(WeftError, match=r"x is torch\.float64"):
        Recurrent(LSTMCell(2, 3))(Embedded.of(torch.zeros(3, 2, dtype=torch.long), torch.randn(4, 2).double()))
