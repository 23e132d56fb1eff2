"""weft.nn.LSTM, GRU and RNN against torch.nn's: the same results, gradients, draws, messages and behaviour."""

from __future__ import annotations

import copy
import io
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, stateless
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tests.twins import TOLERANCE, assert_close, flat, pair
from weft import engine
from weft.nn import torch_layers
from weft.nn.torch_layers import GRU, LSTM, RNN

KINDS = {"LSTM": (nn.LSTM, LSTM), "GRU": (nn.GRU, GRU), "RNN": (nn.RNN, RNN)}
LENGTHS = torch.tensor([4, 6, 2])

needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def states_of(kind: str, layer: nn.RNNBase, rows: int):
    """A random initial state for a batch of `rows`."""
    shape = (layer.num_layers * (2 if layer.bidirectional else 1), rows, layer.hidden_size)
    parts = [torch.randn(shape, dtype=layer.weight_ih_l0.dtype, requires_grad=True) for _ in range(2)]
    return tuple(parts) if kind == "LSTM" else parts[0]


def everything(layer, x, hx, *, lengths=None):
    """Outputs, last states, and all gradients of a random projection of them."""
    x = x.clone().requires_grad_()
    hx = None if hx is None else tuple(p.detach().clone().requires_grad_() for p in flat(hx))
    given = x
    if lengths is not None:
        given = pack_padded_sequence(x, lengths, batch_first=layer.batch_first, enforce_sorted=False)
    state = None if hx is None else (hx if layer.mode == "LSTM" else hx[0])
    torch.manual_seed(9)  # of dropout
    outputs, last = layer(given, state)
    found = [outputs.data if lengths is not None else outputs, *flat(last)]
    torch.manual_seed(3)
    loss = sum((t * torch.randn(t.shape, dtype=t.dtype)).sum() for t in found)
    wanted = [x, *layer.parameters(), *(hx or ())]
    return found, torch.autograd.grad(loss, wanted)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("layers", "dropout"), [(1, 0.0), (3, 0.0), (2, 0.4)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_results_and_gradients_are_those_of_torch(kind, layers, dropout, bidirectional, dtype):
    options = itertools.product((False, True), (False, True), (None, LENGTHS), (False, True), (False, True))
    for bias, batch_first, lengths, with_state, training in options:
        theirs, ours = pair(
            kind, 5, 7, layers, bias=bias, batch_first=batch_first, dropout=dropout, bidirectional=bidirectional,
            dtype=dtype,
        )  # fmt: skip
        assert all(torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters(), strict=True))
        torch.manual_seed(2)
        x = torch.randn(*((3, 6, 5) if batch_first else (6, 3, 5)), dtype=dtype)
        hx = states_of(kind, theirs, 3) if with_state else None
        expected, gradients = everything(theirs.train(training), x, hx, lengths=lengths)
        found, ours_gradients = everything(ours.train(training), x, hx, lengths=lengths)
        assert_close(found, expected)
        assert_close(ours_gradients, gradients)


def test_the_state_dict_fits_both_ways(kind):
    theirs, ours = pair(kind, 4, 6, 2, bidirectional=True)
    torch.manual_seed(8)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(5, 3, 4)
    assert_close([ours(x)[0]], [theirs(x)[0]])


def test_a_relu_network():
    theirs, ours = pair("RNN", 4, 6, 2, nonlinearity="relu")
    x = torch.randn(5, 3, 4)
    assert_close(*(everything(layer, x, None)[1] for layer in (ours, theirs)))


def test_packed_sequences_come_back_packed(kind):
    theirs, ours = pair(kind, 4, 6, bidirectional=True)
    packed = pack_padded_sequence(torch.randn(6, 3, 4), LENGTHS, enforce_sorted=False)
    (outputs, last), (expected, expected_last) = ours(packed), theirs(packed)
    assert isinstance(outputs, PackedSequence)
    assert torch.equal(outputs.batch_sizes, expected.batch_sizes)
    assert torch.equal(outputs.unsorted_indices, expected.unsorted_indices)
    assert_close(
        [pad_packed_sequence(outputs)[0], *flat(last)], [pad_packed_sequence(expected)[0], *flat(expected_last)]
    )


def test_a_packed_row_is_a_row_alone(kind):
    _, ours = pair(kind, 4, 6, bidirectional=True, batch_first=True)
    x = torch.randn(3, 6, 4)
    outputs, last = ours(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    padded, _ = pad_packed_sequence(outputs, batch_first=True)
    for row, length in enumerate(LENGTHS.tolist()):
        alone, alone_last = ours(x[row : row + 1, :length])
        torch.testing.assert_close(padded[row, :length], alone[0])
        for part, one in zip(flat(last), flat(alone_last), strict=True):
            torch.testing.assert_close(part[:, row], one[:, 0])


def test_unbatched_input(kind):
    theirs, ours = pair(kind, 4, 6, 2)
    x = torch.randn(5, 4)
    hx = states_of(kind, theirs, 1)
    hx = tuple(p[:, 0].detach() for p in hx) if kind == "LSTM" else hx[:, 0].detach()
    for state in (None, hx):
        (found, last), (expected, expected_last) = ours(x, state), theirs(x, state)
        assert_close([found, *flat(last)], [expected, *flat(expected_last)])


def test_time_first_outputs_are_contiguous(kind):
    assert pair(kind, 4, 6)[1](torch.randn(5, 3, 4))[0].is_contiguous()


def test_inputs_in_pieces(kind):
    theirs, ours = pair(kind, 4, 6)
    x = torch.randn(4, 3, 10).permute(2, 1, 0)[::2]
    assert not x.is_contiguous()
    assert_close([ours(x)[0]], [theirs(x)[0]])


def wrong_calls(kind: str):
    state = torch.zeros(1, 3, 6)
    yield torch.zeros(5, 3, 7), None  # features
    yield torch.zeros(5, 3, 4, 1), None  # dimensions
    yield torch.zeros(5, 3, 4), (torch.zeros(1, 2, 6), state) if kind == "LSTM" else torch.zeros(1, 2, 6)  # rows
    yield torch.zeros(5, 3, 4), (torch.zeros(1, 3, 5), state) if kind == "LSTM" else torch.zeros(1, 3, 5)  # width
    yield torch.zeros(5, 3, 4), (state[0], state[0]) if kind == "LSTM" else state[0]  # a state without a batch
    yield torch.zeros(5, 4), (state, state) if kind == "LSTM" else state  # a batch of states for one row
    yield torch.zeros(5, 3, 4, dtype=torch.float64), None
    yield torch.zeros(5, 3, 4, dtype=torch.int64), None


def test_mistakes_get_the_messages_of_torch(kind):
    theirs, ours = pair(kind, 4, 6)
    for x, hx in wrong_calls(kind):
        with pytest.raises((RuntimeError, ValueError)) as expected:
            theirs(x, hx)
        with pytest.raises(type(expected.value)) as found:
            ours(x, hx)
        assert str(found.value) == str(expected.value)


def test_empty_batches_are_as_torch_has_them(kind):
    theirs, ours = pair(kind, 4, 6)
    for shape in ((5, 0, 4), (0, 3, 4)):
        outcomes = []
        for layer in (theirs, ours):
            try:
                outcomes.append(layer(torch.zeros(shape))[0].shape)
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_copies_are_independent(kind):
    _, ours = pair(kind, 4, 6)
    x = torch.randn(5, 3, 4)
    before = ours(x)[0]
    buffer = io.BytesIO()
    torch.save(ours, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(buffer, weights_only=False)]
    with torch.no_grad():
        ours.weight_ih_l0.zero_()
    assert not torch.equal(ours(x)[0], before)
    for one in copies:
        assert torch.equal(one(x)[0], before)


def test_weights_shared_between_layers(kind):
    results = []
    for cls in KINDS[kind]:
        torch.manual_seed(5)
        first, second = cls(4, 4), cls(4, 4)
        second.weight_hh_l0 = first.weight_hh_l0
        torch.manual_seed(6)
        x = torch.randn(5, 3, 4)
        outputs = second(first(x)[0])[0]
        results.append([outputs, *torch.autograd.grad(outputs.square().sum(), list(first.parameters()))])
    assert_close(results[1], results[0])


def test_weights_that_are_replaced(kind):
    theirs, ours = pair(kind, 4, 6)
    x = torch.randn(5, 3, 4)
    ours(x)
    for layer in (theirs, ours):
        torch.manual_seed(4)
        layer.weight_hh_l0 = nn.Parameter(torch.randn(layer.weight_hh_l0.shape))
    assert_close([ours(x)[0]], [theirs(x)[0]])
    with torch.no_grad():
        for layer in (theirs, ours):
            layer.weight_ih_l0.mul_(2)
    assert_close([ours(x)[0]], [theirs(x)[0]])


def test_parametrizations(kind):
    results = []
    for layer in pair(kind, 4, 6):
        parametrizations.weight_norm(layer, "weight_hh_l0")
        torch.manual_seed(6)
        outputs = layer(torch.randn(5, 3, 4))[0]
        results.append([outputs, *torch.autograd.grad(outputs.square().sum(), list(layer.parameters()))])
    assert_close(results[1], results[0])


def test_functional_calls(kind):
    theirs, ours = pair(kind, 4, 6)
    x = torch.randn(5, 3, 4)
    weights = {name: torch.randn_like(p) for name, p in theirs.named_parameters()}
    before = ours(x)[0]
    found = torch.func.functional_call(ours, weights, (x,))[0]
    assert_close([found], [torch.func.functional_call(theirs, weights, (x,))[0]])
    with stateless._reparametrize_module(ours, weights):
        assert torch.equal(ours(x)[0], found)
    assert torch.equal(ours(x)[0], before)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_that_a_hook_computes(kind):
    """torch.nn.utils.weight_norm sets the weight before every call."""
    results = []
    for layer in pair(kind, 4, 6):
        torch.nn.utils.weight_norm(layer, "weight_hh_l0")
        torch.manual_seed(6)
        x = torch.randn(5, 3, 4)
        layer(x)
        with torch.no_grad():
            layer.weight_hh_l0_g.mul_(2)
        outputs = layer(x)[0]
        results.append([outputs, *torch.autograd.grad(outputs.square().sum(), list(layer.parameters()))])
    assert_close(results[1], results[0])


def test_zero_lengths_are_refused_as_in_torch():
    with pytest.raises(RuntimeError, match="greater than 0"):
        pack_padded_sequence(torch.randn(6, 2, 4), torch.tensor([6, 0]))


def test_backward_hooks(kind):
    """Hooks of the module see the gradients that torch's would see."""
    results = []
    for layer in pair(kind, 4, 6):
        seen = []
        layer.register_full_backward_hook(lambda module, inputs, outputs, seen=seen: seen.extend([*inputs, outputs[0]]))
        torch.manual_seed(6)
        layer(torch.randn(5, 3, 4, requires_grad=True))[0].square().sum().backward()
        results.append(seen)
    assert len(results[0]) == 2
    assert_close(results[1], results[0])


def test_hooks_and_flattening(kind):
    _, ours = pair(kind, 4, 6)
    seen = []
    ours.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs[0].shape))
    ours.flatten_parameters()
    ours(torch.randn(5, 3, 4))
    assert seen == [(5, 3, 6)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_dtypes_are_torch_s(kind, dtype):
    theirs, ours = pair(kind, 4, 6, dtype=dtype)
    x = torch.randn(5, 3, 4).to(dtype)
    assert torch.equal(ours(x)[0], theirs(x)[0])


def test_autocast(kind):
    theirs, ours = pair(kind, 4, 6)
    x = torch.randn(5, 3, 4)
    expected = theirs(x)[0].bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ours(x)[0]
        if kind != "LSTM" or torch.ops.mkldnn._is_mkldnn_bf16_supported():  # torch's LSTM raises on other CPUs
            expected = theirs(x)[0]
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projections_are_torch_s():
    theirs, ours = pair("LSTM", 4, 6, proj_size=3)
    x = torch.randn(5, 3, 4)
    assert torch.equal(ours(x)[0], theirs(x)[0])


def test_the_meta_device(kind):
    assert KINDS[kind][1](4, 6, device="meta")(torch.zeros(5, 3, 4, device="meta"))[0].shape == (5, 3, 6)


def test_transforms_of_functions(kind):
    theirs, ours = pair(kind, 4, 6, dtype=torch.float64)
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    gradients = [torch.func.grad(lambda v, m=m: m(v)[0].square().sum())(x) for m in (theirs, ours)]
    assert_close([gradients[1]], [gradients[0]])


def test_no_random_number_is_drawn(kind):
    _, ours = pair(kind, 4, 6)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    ours(torch.zeros(5, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)


@needs_engine
def test_the_engine_runs_it(kind, monkeypatch):
    """Not torch's layer behind our name."""
    calls = []
    run = engine.run_layers
    monkeypatch.setattr(torch_layers.engine, "run_layers", lambda *a: calls.append(1) or run(*a))
    _, ours = pair(kind, 4, 6, 2)
    ours(torch.randn(5, 3, 4))
    ours(pack_padded_sequence(torch.randn(6, 3, 4), LENGTHS, enforce_sorted=False))
    assert len(calls) == 2


def test_the_entries_of_torch_s_own_tests(kind):
    """The inputs that torch tests its modules with, in training and evaluation, on ours."""
    from torch.testing._internal.common_modules import module_db

    infos = [info for info in module_db if info.module_cls is KINDS[kind][0]]
    assert infos
    checked = 0
    for info, training, dtype in itertools.product(infos, (True, False), (torch.float32, torch.float64)):
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=False, training=training
        )  # fmt: skip
        for one in inputs:
            arguments, options = one.constructor_input.args, one.constructor_input.kwargs
            theirs, ours = (cls(*arguments, **options).to(dtype).train(training) for cls in KINDS[kind])
            ours.load_state_dict(theirs.state_dict())
            results = []
            for layer in (theirs, ours):
                torch.manual_seed(1)
                results.append(layer(*one.forward_input.args, **one.forward_input.kwargs))
            (expected, expected_last), (found, last) = results
            if isinstance(expected, PackedSequence):
                expected, found = expected.data, found.data
            assert_close([found, *flat(last)], [expected, *flat(expected_last)])
            checked += 1
    assert checked > 10
