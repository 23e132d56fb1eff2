"""The truncated gradient is the sum formula cut at k; the randomised one has the full gradient as its mean."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from torch.autograd.functional import jacobian

from tests.checks.equations import EQUATIONS
from weft.errors import WeftError
from weft.nn import make_stack, map_state
from weft.nn.bptt import BPTT, full, randomized, reweighted, truncated, unroll

B, T, INPUT, HIDDEN = 2, 5, 2, 3
NEAR = {"atol": 1e-12, "rtol": 1e-10}


def make_case(cell, layers=1, *, rows=B, steps=T):
    torch.manual_seed(7)
    stack = make_stack(cell, INPUT, HIDDEN, layers=layers).double()
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.uniform_(-0.9, 0.9)
    x = torch.randn(rows, steps, INPUT, dtype=torch.float64, requires_grad=True)
    state = map_state(lambda part: torch.randn_like(part).requires_grad_(), stack.initial_state(rows))
    return stack, x, state


def flat(state):
    found = []
    map_state(lambda part: found.append(part) or part, state)
    return found


def joint_step(stack, w, joint, x):
    """One step of the whole stack on one row, from the equations: weights, joint state and input as vectors."""
    new = []
    for layer in stack.layers:
        cell = layer.cell
        weights = {}
        for name, parameter in cell.named_parameters():
            weights[name], w = w[: parameter.numel()].view(parameter.shape), w[parameter.numel() :]
        parts = len(cell.state_type._fields)
        state, joint = joint[: parts * HIDDEN].chunk(parts), joint[parts * HIDDEN :]

        def block(weight, bias, k, vector, weights=weights):
            rows = slice(k * HIDDEN, (k + 1) * HIDDEN)
            return weights[weight][rows] @ vector + weights[bias][rows]

        after, _ = EQUATIONS[type(cell)](
            partial(block, "weight_ih", "bias_ih"), partial(block, "weight_hh", "bias_hh"), x, *state
        )
        new.extend(after)
        x = after[0]
    return torch.cat(new)


def sum_formula(stack, x, start, k):
    """d state_t / d(w, x, start) of one row for every t: the formula's terms i = t-k+1..t, by explicit Jacobians."""
    w = torch.cat([parameter.detach().flatten() for parameter in stack.parameters()])
    before, jacobians = start, []
    for t in range(len(x)):
        jacobians.append(jacobian(partial(joint_step, stack), (w, before, x[t])))
        before = joint_step(stack, w, before, x[t])
    for t in range(len(x)):
        by_weights = torch.zeros_like(jacobians[0][0])
        by_x = x.new_zeros(len(before), *x.shape)
        chain = torch.eye(len(before), dtype=x.dtype)  # the product over j = i+1..t of df_j/dh_{j-1}
        for i in range(t, max(-1, t - k), -1):
            by_w, by_state, by_input = jacobians[i]
            by_weights += chain @ by_w
            by_x[:, i] = chain @ by_input
            chain = chain @ by_state
        by_start = chain if t < k else torch.zeros_like(chain)
        yield by_weights, by_x, by_start


def vector(gradients, sources):
    return torch.cat(
        [(torch.zeros_like(s) if g is None else g).flatten() for g, s in zip(gradients, sources, strict=True)]
    )


@pytest.mark.parametrize("k", range(1, T + 2))
@pytest.mark.parametrize(
    ("cell", "layers"), [("rnn", 1), ("gru", 1), ("lstm", 1), ("gru-reset-before", 1), ("lstm", 2)]
)
def test_truncated_gradient_is_the_sum_formula_cut_at_k(cell, layers, k):
    stack, x, state = make_case(cell, layers)
    outputs, last = truncated(stack, x, state, steps=k)
    parameters, parts = list(stack.parameters()), flat(state)
    for row in range(B):
        start = torch.cat([part[row].detach() for part in parts])
        for t, (by_weights, by_x, by_start) in enumerate(sum_formula(stack, x[row].detach(), start, k)):
            top = len(by_weights) - HIDDEN * len(stack.layers[-1].cell.state_type._fields)  # h of the upper layer
            results = [(outputs[row, t, unit], top + unit) for unit in range(HIDDEN)]
            if t == T - 1:
                results += [(value, n) for n, value in enumerate(torch.cat([part[row] for part in flat(last)]))]
            for result, n in results:
                found = torch.autograd.grad(result, [*parameters, x, *parts], allow_unused=True, retain_graph=True)
                torch.testing.assert_close(vector(found[: len(parameters)], parameters), by_weights[n], **NEAR)
                expected_x = torch.zeros_like(x)
                expected_x[row] = by_x[n]
                torch.testing.assert_close(vector([found[len(parameters)]], [x]), expected_x.flatten(), **NEAR)
                of_row = [
                    torch.zeros(HIDDEN, dtype=x.dtype) if g is None else g[row] for g in found[len(parameters) + 1 :]
                ]
                torch.testing.assert_close(torch.cat(of_row), by_start[n], **NEAR)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm", "additive"])
@pytest.mark.parametrize(
    "way", [partial(truncated, steps=k) for k in range(1, T + 2)] + [partial(randomized, keep=0.5)]
)
def test_values_are_those_of_the_full_run(cell, way):
    stack, x, state = make_case(cell, 2)
    for given in (state, None):
        outputs, last = way(stack, x, given)
        expected, last_expected = full(stack, x, given)
        torch.testing.assert_close(outputs, expected, **NEAR)
        for a, b in zip(flat(last), flat(last_expected), strict=True):
            torch.testing.assert_close(a, b, **NEAR)


@pytest.mark.parametrize(
    "way", [partial(truncated, steps=T), partial(truncated, steps=99), partial(randomized, keep=1)]
)
def test_nothing_cut_is_the_full_gradient(way):
    stack, x, state = make_case("lstm", 2)
    sources = [x, *flat(state), *stack.parameters()]
    found = torch.autograd.grad(way(stack, x, state)[0].square().sum(), sources)
    expected = torch.autograd.grad(full(stack, x, state)[0].square().sum(), sources)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, **NEAR)


@pytest.mark.parametrize(("cell", "layers"), [("rnn", 1), ("gru", 1), ("lstm", 1), ("lstm", 2), ("two-gates", 2)])
@pytest.mark.parametrize("keep", [0.3, 0.75])
def test_randomised_gradient_has_the_full_one_as_its_mean(cell, layers, keep):
    """Every outcome of every draw, weighted by its probability: no sampling, no luck."""
    stack, x, state = make_case(cell, layers, rows=2, steps=3)
    sources = [x, *flat(state), *stack.parameters()]

    def gradient(outputs, last):
        loss = outputs.square().sum() + sum(part.sin().sum() for part in flat(last))
        return vector(torch.autograd.grad(loss, sources), sources)

    expected = gradient(*full(stack, x, state))
    mean, total, spread = torch.zeros_like(expected), 0.0, 0.0
    for kept in itertools.product((0, 1), repeat=6):
        xi = torch.tensor(kept, dtype=torch.float64).view(2, 3) / keep
        probability = keep ** sum(kept) * (1 - keep) ** (6 - sum(kept))
        found = gradient(*reweighted(stack, x, state, xi=xi))
        mean += probability * found
        total += probability
        spread = max(spread, (found - expected).abs().max().item())
    assert total == pytest.approx(1)
    assert spread > 1e-3  # single draws do differ
    torch.testing.assert_close(mean, expected, **NEAR)


def test_randomised_gradient_by_sampling():
    """The public function draws what the enumeration weighs: the mean over many equal rows is the full gradient."""
    stack, x, state = make_case("gru", rows=1, steps=4)
    many, parameters = 20_000, list(stack.parameters())
    torch.manual_seed(0)
    outputs, _ = randomized(
        stack, x.expand(many, -1, -1), map_state(lambda part: part.expand(many, -1), state), keep=0.7
    )
    found = vector(torch.autograd.grad(outputs.square().sum() / many, parameters), parameters)
    expected = vector(torch.autograd.grad(full(stack, x, state)[0].square().sum(), parameters), parameters)
    assert (found - expected).norm() < 0.02 * expected.norm()
    biased, _ = truncated(stack, x, state, steps=1)
    biased = vector(torch.autograd.grad(biased.square().sum(), parameters), parameters)
    assert (biased - expected).norm() > 0.05 * expected.norm()


def test_each_row_is_cut_by_its_own_draws():
    stack, x, state = make_case("lstm")
    xi = torch.ones(B, T, dtype=torch.float64)
    xi[1, 3] = 0
    found = torch.autograd.grad(reweighted(stack, x, state, xi=xi)[0].sum(), x)[0]
    expected = torch.autograd.grad(full(stack, x, state)[0].sum(), x)[0]
    torch.testing.assert_close(found[0], expected[0], **NEAR)
    cut = torch.autograd.grad(full(stack, x[:, :3], state)[0].sum(), x)[0]
    torch.testing.assert_close(found[1, :3], cut[1, :3], **NEAR)


def test_a_cut_stops_an_infinite_gradient():
    stack, x, state = make_case("rnn", steps=2)
    _, last = reweighted(stack, x, state, xi=torch.zeros(B, 2, dtype=torch.float64))
    found = torch.autograd.grad((last[0].h * torch.inf).sum(), x)[0]
    assert not found[:, 0].any()


def test_draws_are_repeatable():
    stack, x, state = make_case("gru", rows=8)

    def gradient(generator=None):
        outputs, _ = randomized(stack, x, state, keep=0.5, generator=generator)
        return torch.autograd.grad(outputs.sum(), x)[0]

    torch.manual_seed(3)
    first, second = gradient(), gradient()
    torch.manual_seed(3)
    assert torch.equal(gradient(), first)
    assert not torch.equal(first, second)
    before = torch.get_rng_state()
    assert torch.equal(gradient(torch.Generator().manual_seed(3)), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("way", [partial(truncated, steps=2), partial(randomized, keep=0.5), full])
def test_token_ids_and_windows_without_steps(way):
    stack, _, state = make_case("gru", 2)
    ids = torch.randint(INPUT, (B, T))
    one_hot = torch.nn.functional.one_hot(ids, INPUT).double()
    torch.testing.assert_close(way(stack, ids, state)[0], full(stack, one_hot, state)[0], **NEAR)
    outputs, last = way(stack, ids[:, :0], state)
    assert outputs.shape == (B, 0, HIDDEN)
    assert torch.equal(last[0].h, state[0].h)
    assert way(stack, ids[:0], None)[0].shape == (0, T, HIDDEN)


def test_float32_stays_float32():
    stack = make_stack("lstm", INPUT, HIDDEN)
    for way in (full, partial(truncated, steps=2), partial(randomized, keep=0.5)):
        outputs, last = way(stack, torch.randn(B, T, INPUT), None)
        outputs.sum().backward()
        assert outputs.dtype == last[0].c.dtype == stack.layers[0].cell.weight_hh.grad.dtype == torch.float32


def test_residual_stack_truncates():
    torch.manual_seed(0)
    stack = make_stack("gru", HIDDEN, HIDDEN, layers=2, residual=True).double()
    x = torch.randn(B, T, HIDDEN, dtype=torch.float64, requires_grad=True)
    outputs, _ = truncated(stack, x, None, steps=2)
    torch.testing.assert_close(outputs, stack(x)[0], **NEAR)
    found = torch.autograd.grad(outputs[:, 4].sum(), x)[0]
    assert found[:, 3:].all()
    assert not found[:, :3].any()


def test_dropout_belongs_to_the_draw():
    """While training, an output is random and its gradient that of the very same output."""
    stack, x, state = make_case("gru", 2)
    stack.dropout = 0.5
    torch.manual_seed(1)
    outputs, _ = truncated(stack, x, state, steps=2)
    torch.manual_seed(1)
    assert torch.equal(truncated(stack, x, state, steps=2)[0], outputs)
    assert not torch.equal(truncated(stack, x, state, steps=2)[0], outputs)
    stack.eval()
    torch.testing.assert_close(truncated(stack, x, state, steps=2)[0], stack(x, state)[0], **NEAR)


def test_names_resolve():
    stack, x, state = make_case("gru")
    for name in BPTT:
        outputs, _ = unroll(name, steps=2, keep=0.5)(stack, x, state)
        assert outputs.shape == (B, T, HIDDEN)
    assert unroll("full") is full


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: unroll("truncate", steps=3), "bptt method 'truncate' is not known.*Try: truncated"),
        (lambda: unroll("truncated"), "steps is 0; expected 1 or more"),
        (lambda: unroll("truncated", steps=-2), "steps is -2"),
        (lambda: unroll("randomized", keep=0.0), "keep is 0.0; expected a probability above 0"),
        (lambda: unroll("randomized", keep=1.5), "keep is 1.5"),
        (lambda: unroll("randomized", keep=float("nan")), "keep is nan"),
    ],
)
def test_settings_are_checked(make, message):
    with pytest.raises(WeftError, match=message):
        make()


@pytest.mark.parametrize("way", [partial(truncated, steps=2), partial(randomized, keep=0.5)])
def test_two_directions_are_refused(way):
    stack = make_stack("gru", INPUT, HIDDEN, bidirectional=True)
    with pytest.raises(WeftError, match=r"is not causal.*full"):
        way(stack, torch.randn(B, T, INPUT), None)
