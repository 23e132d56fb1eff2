"""weft.nn.LSTMCell, GRUCell and RNNCell as torch.nn's: the same draws, results, gradients and weights."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import weft
from tests.twins import TOLERANCE, assert_close, flat, pair

KINDS = {
    "LSTMCell": (nn.LSTMCell, weft.nn.LSTMCell),
    "GRUCell": (nn.GRUCell, weft.nn.GRUCell),
    "RNNCell": (nn.RNNCell, weft.nn.RNNCell),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 4), (4,)], ids=["batch", "one row"])
def test_three_steps_and_their_gradients(kind, shape, bias, dtype):
    results = []
    for cell in pair(kind, 4, 6, bias=bias, dtype=dtype):
        torch.manual_seed(7)
        xs, state = torch.randn(3, *shape, dtype=dtype, requires_grad=True), None
        for x in xs:
            state = cell(x, state)
        loss = sum((n + 1) * part.square().sum() for n, part in enumerate(flat(state)))
        results.append([*flat(state), *torch.autograd.grad(loss, [xs, *cell.parameters()])])
    assert_close(results[1], results[0])


def test_draws_and_state_dicts(kind):
    theirs, ours = pair(kind, 4, 6)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters(), strict=True))
    torch.manual_seed(8)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(3, 4)
    assert_close(flat(ours(x)), flat(theirs(x)))


def test_the_entries_of_torch_s_own_tests(kind):
    from torch.testing._internal.common_modules import module_db

    infos = [info for info in module_db if info.module_cls is KINDS[kind][0]]
    assert infos
    checked = 0
    for info, training, dtype in itertools.product(infos, (True, False), TOLERANCE):
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
        for one in inputs:
            arguments, options = one.constructor_input.args, one.constructor_input.kwargs
            theirs, ours = (cls(*arguments, **options).to(dtype).train(training) for cls in KINDS[kind])
            ours.load_state_dict(theirs.state_dict())
            given = one.forward_input
            assert_close(
                *(flat(cell(*copy.deepcopy(given.args), **copy.deepcopy(given.kwargs))) for cell in (ours, theirs))
            )
            checked += 1
    assert checked > 3


def test_copies(kind):
    _, ours = pair(kind, 4, 6)
    x = torch.randn(3, 4)
    before = flat(ours(x))[0]
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]
    with torch.no_grad():
        ours.weight_ih.zero_()
    assert all(torch.equal(flat(one(x))[0], before) for one in copies)


def test_a_compiled_cell(kind):
    torch.compiler.reset()
    _, ours = pair(kind, 4, 6)
    x = torch.randn(3, 4)
    assert_close(flat(torch.compile(ours, backend="eager", fullgraph=True)(x)), flat(ours(x)))


def refusal(cell, x, hx):
    """Whether a call is refused."""
    try:
        cell(x, hx)
    except (RuntimeError, ValueError, IndexError):  # the last one is torch's alone
        return "refused"
    return None


def test_states_are_not_broadcast(kind):
    """Each combination of shapes is refused or accepted as torch does it."""
    shapes = ((3, 4), (4,), (1, 4), (0, 4), (2, 3, 4), (3, 5)), ((3, 6), (6,), (1, 6), (1, 1, 6), (3, 5), (0, 6), (1,))
    theirs, ours = pair(kind, 4, 6)
    found = []
    for of_x, of_h in itertools.product(*shapes):
        h = torch.zeros(of_h)
        hx = (h, h) if kind == "LSTMCell" else h
        found.append(refusal(theirs, torch.zeros(of_x), hx))
        assert refusal(ours, torch.zeros(of_x), hx) == found[-1], (of_x, of_h)
    assert set(found) == {"refused", None}


def test_wrong_tensors_are_weft_errors_and_torch_s():
    with pytest.raises(weft.WeftError, match="because input_size=4"):
        weft.nn.GRUCell(4, 6)(torch.zeros(3, 5))
    assert issubclass(weft.TensorError, weft.WeftError)


@pytest.mark.parametrize("name", weft.CELLS)
def test_no_hidden_units(name):
    """A cell may have none, as in torch, whose layers refuse it."""
    cell = weft.CELLS[name](4, 0)
    state = cell(torch.zeros(3, 4))
    assert all(part.shape == (3, 0) for part in flat(state))
    assert all(part.shape == (3, 0) for part in flat(cell(torch.zeros(3, 4), state)))
    with pytest.raises(weft.WeftError, match="hidden_size=0"):
        weft.Recurrent(cell)
    with pytest.raises(ValueError, match="greater than zero"):
        weft.nn.LSTM(4, 0)


@pytest.mark.parametrize("name", weft.CELLS)
def test_states_and_gates_are_built_from_one_iterable(name):
    """As torch rebuilds a tuple, which does not know NamedTuples everywhere."""
    cell = weft.CELLS[name](4, 6)
    with torch.no_grad():
        results = cell.step(cell.project(torch.randn(3, 4)), cell.initial_state(3))
    for part in results:
        kind = type(part)
        rebuilt = (kind(iter(part)), kind(list(part)), kind(tuple(part)), kind(map(torch.Tensor.clone, part)))
        for one in (kind(*part), *rebuilt, pickle.loads(pickle.dumps(part)), copy.deepcopy(part), part._replace()):
            assert type(one) is kind
            assert all(torch.equal(a, b) for a, b in zip(one, part, strict=True))
        with pytest.raises(TypeError):
            kind(iter([*part, part[0]]))
        shapes = tree_map(lambda tensor: tensor.shape, part)  # not taken for the fields
        assert shapes == kind(*([torch.Size([3, 6])] * len(part)))
