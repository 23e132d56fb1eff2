"""Layers at their edges: what they refuse and in which words, runs without steps or rows, residuals, dropout."""

from __future__ import annotations

import pytest
import torch

from weft.cells import CELLS, AdditiveCell, GRUCell, HiddenState, LSTMCell, LSTMState, RNNCell
from weft.errors import WeftError
from weft.nn import Bidirectional, BothDirections, Recording, Recurrent, Stack, make_stack, map_state

INPUT, HIDDEN = 4, 5


def layers_of(cell):
    return [
        Recurrent(cell(INPUT, HIDDEN)),
        Recurrent(cell(INPUT, HIDDEN), reverse=True),
        Bidirectional(cell(INPUT, HIDDEN), cell(INPUT, 3)),
        Stack([Recurrent(cell(INPUT, HIDDEN)), Recurrent(cell(HIDDEN, 3))]),
        Stack([Bidirectional(cell(INPUT, HIDDEN), cell(INPUT, 3)), Bidirectional(cell(8, 2), cell(8, 6))]),
    ]


def tensors(state):
    found = []
    map_state(lambda part: found.append(part) or part, state)
    return found


# --- edges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_lengths", [False, True])
@pytest.mark.parametrize(("rows", "steps"), [(2, 0), (0, 3), (0, 0), (2, 1), (1, 1)])
@pytest.mark.parametrize("name", CELLS)
def test_few_rows_and_few_steps(name, rows, steps, with_lengths):
    lengths = torch.full((rows,), steps) if with_lengths else None
    for layer in layers_of(CELLS[name]):
        state = map_state(torch.ones_like, layer.initial_state(rows))
        for x in (torch.randn(rows, steps, INPUT), torch.zeros(rows, steps, dtype=torch.long)):
            outputs, last = layer(x, state, lengths=lengths)
            assert outputs.shape == (rows, steps, layer.output_size)
            assert [part.shape for part in tensors(last)] == [part.shape for part in tensors(state)]
            if not steps:
                assert all(torch.equal(a, b) for a, b in zip(tensors(last), tensors(state), strict=True))
            for part in tensors(layer.record(x, state, lengths=lengths)):
                assert part.shape[:2] == (rows, steps)


@pytest.mark.parametrize("name", CELLS)
def test_gradients_flow_through_a_run_without_steps(name):
    layer = Recurrent(CELLS[name](INPUT, HIDDEN))
    state = map_state(lambda part: part.requires_grad_(), layer.initial_state(2))
    _, last = layer(torch.randn(2, 0, INPUT), state)
    (found,) = torch.autograd.grad(last.h.sum(), state.h)
    assert torch.equal(found, torch.ones(2, HIDDEN))


def test_only_empty_rows():
    for layer in layers_of(GRUCell):
        state = map_state(torch.randn_like, layer.initial_state(3))
        outputs, last = layer(torch.full((3, 4, INPUT), torch.nan), state, lengths=torch.zeros(3, dtype=torch.long))
        assert not outputs.any()
        assert all(torch.equal(a, b) for a, b in zip(tensors(last), tensors(state), strict=True))


def test_what_looks_ahead_is_not_causal():
    assert [layer.causal for layer in layers_of(RNNCell)] == [True, False, False, True, False]
    assert not Stack([Recurrent(GRUCell(INPUT, HIDDEN)), Recurrent(GRUCell(HIDDEN, 3), reverse=True)]).causal


def test_a_causal_output_does_not_see_what_follows():
    stack = make_stack("lstm", INPUT, HIDDEN, layers=2)
    x = torch.randn(2, 6, INPUT, requires_grad=True)
    found = torch.autograd.grad(stack(x)[0][:, 2].sum(), x)[0]
    assert found[:, :3].any()
    assert not found[:, 3:].any()


def test_traces_are_named_by_layer_and_direction():
    stack = Stack([Bidirectional(LSTMCell(INPUT, HIDDEN), LSTMCell(INPUT, 3)), Recurrent(GRUCell(8, 2))])
    below, above = stack.record(torch.randn(2, 6, INPUT))
    assert isinstance(below, BothDirections)
    assert isinstance(above, Recording)
    assert below.forward.gates._fields == ("i", "f", "g", "o")
    assert below.backward.states.c.shape == (2, 6, 3)
    assert above.gates._fields == ("r", "z", "n")


def test_map_state_keeps_the_nest():
    state = (
        HiddenState(torch.zeros(2)),
        BothDirections(LSTMState(torch.zeros(2), torch.zeros(3)), HiddenState(torch.zeros(1))),
    )
    found = map_state(lambda part: part + 1, state)
    assert isinstance(found[1], BothDirections)
    assert isinstance(found[1].forward, LSTMState)
    assert torch.equal(found[1].forward.c, torch.ones(3))
    assert not state[1].forward.c.any()


# --- residual connections and dropout ---------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 2, 0])])
def test_residual_adds_where_widths_agree(lengths):
    torch.manual_seed(0)
    layers = [Recurrent(GRUCell(HIDDEN, HIDDEN)), Recurrent(GRUCell(HIDDEN, 3)), Recurrent(GRUCell(3, 3))]
    stack = Stack(layers, residual=True)
    x = torch.randn(3, 5, HIDDEN)
    if lengths is not None:
        x = x.masked_fill(torch.arange(5)[:, None] >= lengths[:, None, None], 0)
    first = layers[0](x, lengths=lengths)[0] + x
    second = layers[1](first, lengths=lengths)[0]
    third = layers[2](second, lengths=lengths)[0] + second
    torch.testing.assert_close(stack(x, lengths=lengths)[0], third)
    torch.testing.assert_close(stack.record(x, lengths=lengths)[2].states.h + second, third)


def test_residual_adds_nothing_to_token_ids():
    stack = make_stack("gru", HIDDEN, HIDDEN, residual=True)
    ids = torch.randint(HIDDEN, (2, 6))
    torch.testing.assert_close(stack(ids)[0], stack.layers[0](ids)[0])


@pytest.mark.parametrize("poison", [1.0, float("nan"), float("inf")])
def test_residual_does_not_carry_the_padding_up(poison):
    torch.manual_seed(0)
    stack = make_stack("gru", HIDDEN, HIDDEN, layers=2, residual=True)
    lengths = torch.tensor([4, 1, 0])
    padding = torch.arange(4) >= lengths[:, None]
    clean = torch.randn(3, 4, HIDDEN).masked_fill(padding[..., None], 0)
    x = clean.masked_fill(padding[..., None], poison).requires_grad_()
    outputs, last = stack(x, lengths=lengths)
    assert not outputs[padding].any()
    expected, last_expected = stack(clean, lengths=lengths)
    torch.testing.assert_close(outputs, expected)
    for a, b in zip(tensors(last), tensors(last_expected), strict=True):
        torch.testing.assert_close(a, b)
    found = torch.autograd.grad(outputs.square().sum(), [x, *stack.parameters()])
    assert not found[0][padding].any()
    assert all(gradient.isfinite().all() for gradient in found)


def test_dropout_falls_between_layers_while_training():
    torch.manual_seed(0)
    x = torch.randn(2, 6, INPUT)
    deep = make_stack("gru", INPUT, HIDDEN, layers=2, dropout=0.5)
    assert not torch.equal(deep(x)[0], deep(x)[0])
    lower = [deep(x)[1][0].h for _ in range(2)]
    assert torch.equal(*lower)  # below the first dropout nothing is random
    plain = Stack(list(deep.layers))
    assert torch.equal(deep.eval()(x)[0], plain(x)[0])
    single = make_stack("gru", INPUT, HIDDEN, dropout=0.5)
    assert torch.equal(single(x)[0], single(x)[0])


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    top = Recurrent(AdditiveCell(HIDDEN, HIDDEN))
    with torch.no_grad():
        for parameter in top.parameters():
            parameter.zero_()
        top.cell.weight_ih.copy_(torch.eye(HIDDEN) * 1e-3)  # tanh is straight here: what goes in comes out
    stack = Stack([Recurrent(GRUCell(INPUT, HIDDEN)), top], dropout=0.25)
    x = torch.randn(1, 1, INPUT).expand(20_000, 1, INPUT)
    expected = stack.layers[0](x[:1])[0][0, 0]
    torch.testing.assert_close(stack(x)[0].mean(0)[0] * 1e3, expected, atol=0.01, rtol=0)


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "lengths", "message"),
    [
        (torch.zeros(3, 7, 6), None, r"x is \(3, 7, 6\); expected \(B, T, 4\) because input_size=4"),
        (torch.zeros(7, 4), None, r"x is \(7, 4\); expected \(B, T, 4\)"),
        (torch.zeros(3, 7, 4, dtype=torch.long), None, r"x holds token ids and is \(3, 7, 4\); expected \(B, T\)"),
        (torch.zeros(3, 7, 4), torch.tensor([1, 2]), r"lengths is \(2,\) .* expected \(3,\) integers"),
        (torch.zeros(3, 7, 4), torch.ones(3), r"lengths is \(3,\) of torch.float32"),
        (torch.zeros(3, 7, 4), torch.ones(3, 1, dtype=torch.long), r"lengths is \(3, 1\)"),
        (torch.zeros(3, 7, 4), torch.tensor([1, 8, 2]), "lengths run from 1 to 8; expected 0 to 7"),
        (torch.zeros(3, 7, 4), torch.tensor([1, -1, 2]), "lengths run from -1 to 2; expected 0 to 7"),
    ],
)
def test_inputs_are_checked(x, lengths, message):
    for layer, name in zip(
        layers_of(GRUCell), ["Recurrent", "Recurrent", "Bidirectional", "Stack", "Stack"], strict=True
    ):
        with pytest.raises(WeftError, match=f"{name}: {message}"):
            layer(x, lengths=lengths)
        with pytest.raises(WeftError, match=message):
            layer.record(x, lengths=lengths)


@pytest.mark.parametrize("with_lengths", [False, True])
@pytest.mark.parametrize("shape", [(1, HIDDEN), (2, HIDDEN), (3, 4), (3, HIDDEN, 1), (HIDDEN,)])
@pytest.mark.parametrize("name", ["gru", "rnn", "gru-reset-before", "lstm"])
def test_states_of_other_shapes_are_refused(name, shape, with_lengths):
    """Never broadcast in silence: one row's state for many rows is a mistake more often than a wish."""
    # float64, because torch's float32 LSTM kernel trusts the shape it is given and writes where it likes
    cell = CELLS[name](INPUT, HIDDEN).double()
    state = cell.state_type(*(torch.zeros(shape).double() for _ in cell.state_type._fields))
    lengths = torch.tensor([2, 7, 1]) if with_lengths else None
    for layer in (Recurrent(cell), Recurrent(cell, reverse=True)):
        with pytest.raises(WeftError, match="state"):
            layer(torch.zeros(3, 7, INPUT).double(), state, lengths=lengths)
        with pytest.raises(WeftError, match="state"):
            layer.record(torch.zeros(3, 7, INPUT).double(), state, lengths=lengths)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("lstm", HiddenState(torch.zeros(3, HIDDEN))),
        ("gru", LSTMState(torch.zeros(3, HIDDEN), torch.zeros(3, HIDDEN))),
        ("gru", torch.zeros(3, HIDDEN)),
        ("lstm", (torch.zeros(3, HIDDEN), torch.zeros(3, HIDDEN))),
    ],
)
def test_states_of_another_kind_are_refused(name, state):
    layer = Recurrent(CELLS[name](INPUT, HIDDEN))
    for lengths in (None, torch.tensor([2, 7, 1])):
        with pytest.raises(WeftError, match="state"):
            layer(torch.zeros(3, 7, INPUT), state, lengths=lengths)


def test_a_stack_wants_one_state_for_each_layer():
    stack = make_stack("gru", INPUT, HIDDEN, layers=2)
    with pytest.raises(WeftError, match="Stack: state has 1 parts; expected 2, one for each layer"):
        stack(torch.zeros(3, 7, INPUT), stack.initial_state(3)[:1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bidirectional(GRUCell(3, 5), GRUCell(4, 5)), "input_size 3 and 4; expected the same input_size"),
        (lambda: Stack([]), "no layers; expected at least one"),
        (
            lambda: Stack([Recurrent(GRUCell(3, 5)), Recurrent(GRUCell(4, 5))]),
            "input_size=4, the one below output_size=5",
        ),
        (lambda: Stack([Recurrent(GRUCell(3, 5))], dropout=1.0), "dropout is 1.0"),
        (lambda: Stack([Recurrent(GRUCell(3, 5))], dropout=-0.1), "dropout is -0.1"),
        (lambda: make_stack("grue", 3, 5), "cell 'grue' is not known; expected one of: rnn, .* Try: gru"),
        (lambda: make_stack("gru", 3, 5, layers=0), "layers is 0; expected 1 or more"),
        (lambda: make_stack("gru", 3, 0), "the cell has hidden_size=0; expected 1 or more"),
    ],
)
def test_construction_is_checked(make, message):
    with pytest.raises(WeftError, match=message):
        make()


def test_make_stack():
    stack = make_stack("lstm", 3, 5, layers=2, bidirectional=True, dropout=0.1, residual=True)
    assert (stack.input_size, stack.output_size, stack.dropout, stack.residual) == (3, 10, 0.1, True)
    assert [layer.input_size for layer in stack.layers] == [3, 10]
    assert all(
        isinstance(layer.backward_layer.cell, LSTMCell) and layer.backward_layer.reverse for layer in stack.layers
    )


def test_hooks_on_a_layer_of_a_stack_are_called():
    stack, seen = make_stack("gru", 3, 4, layers=2), []
    x = torch.randn(2, 5, 3)
    plain = stack(x)[0]
    for layer in stack.layers:
        layer.register_forward_hook(lambda layer, given, result: seen.append(result[0].shape))
    assert torch.allclose(stack(x)[0], plain)
    assert seen == [(2, 5, 4), (2, 5, 4)]


def test_a_layer_with_a_forward_of_its_own_keeps_it():
    class Doubled(Recurrent):
        def forward(self, x, state=None, *, lengths=None):
            outputs, last = super().forward(x, state, lengths=lengths)
            return 2 * outputs, last

    stack = make_stack("gru", 3, 4)
    x = torch.randn(2, 5, 3)
    assert torch.allclose(Stack([Doubled(stack.layers[0].cell)])(x)[0], 2 * stack(x)[0])
