"""The battery of probes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.checks.comparisons import close
from weft.nn import Bidirectional

# From recorded gates and the state before a step to the state after it, a second time: (gates, *state) -> new state.


def lstm_state(g: Any, h: Any, c: Any) -> tuple[Any, ...]:
    return g["o"] * np.tanh(g["f"] * c + g["i"] * g["g"]), g["f"] * c + g["i"] * g["g"]


def sru_state(g: Any, h: Any, c: Any) -> tuple[Any, ...]:
    new = g["f"] * c + (1 - g["f"]) * g["u"]
    return g["r"] * new + (1 - g["r"]) * g["k"], new


def slstm_state(g: Any, h: Any, c: Any, n: Any, m: Any) -> tuple[Any, ...]:
    new, total = g["f"] * c + g["i"] * g["g"], g["f"] * n + g["i"]
    return g["o"] * new / total, new, total, None  # m is what the gates are relative to


RECOMBINE: dict[str, Callable[..., tuple[Any, ...]]] = {
    "RNNCell": lambda g, h: (g["u"],),
    "ReLURNNCell": lambda g, h: (g["u"],),
    "StatelessCell": lambda g, h: (g["u"],),
    "AdditiveCell": lambda g, h: (h + g["u"],),
    "CoupledGateCell": lambda g, h: (g["f"] * h + (1 - g["f"]) * g["u"],),
    "TwoGateCell": lambda g, h: (g["f"] * h + g["i"] * g["u"],),
    "GRUCell": lambda g, h: (g["z"] * h + (1 - g["z"]) * g["n"],),
    "GRUResetBeforeCell": lambda g, h: (g["z"] * h + (1 - g["z"]) * g["n"],),
    "LSTMCell": lstm_state,
    "MinGRUCell": lambda g, h: (g["z"] * h + (1 - g["z"]) * g["n"],),
    "MinLSTMCell": lambda g, h: (g["f"] * h + g["i"] * g["u"],),
    "SRUCell": sru_state,
    "RGLRUCell": lambda g, h: (g["a"] * h + np.sqrt(1 - g["a"] ** 2) * g["i"] * g["u"],),
    "MultiHeadLSTMCell": lstm_state,
    "SLSTMCell": slstm_state,
    "MogrifierLSTMCell": lstm_state,
}


def check_probes(
    network: Any,
    *,
    read: Callable[..., Any] | None = None,
    flow: Callable[..., Any] | None = None,
    connect: Callable[..., Any] | None = None,
    recombine: Callable[..., tuple[Any, ...]] | None = None,
    initial: bool = True,
    atol: float = 1e-6,
) -> None:
    """What every network must satisfy under every probe: names, gates, gradients, influence, rows by themselves.

    `network` is in float64. `recombine` is given for a custom cell. `initial` is false where a stack does not begin
    with a zero state, as a decoder does not.
    """
    from weft import probes

    read, flow, connect = read or probes.activations, flow or probes.gradient_flow, connect or probes.connectivity
    check_activations(network, read(network), recombine, initial=initial, atol=atol)
    check_influence(network, connect, atol=atol)
    found = flow(network)
    check_flow_names(network, found)
    if network.readout is not None:
        check_flow(network, found, atol=atol)
        by_autograd = probes.flow_by_autograd(network, list(found.predictions))
        for one, other in zip(found.layers, by_autograd.layers, strict=True):
            for kind in ("states", "gates"):
                for name, norms in getattr(one, kind).items():
                    expected = torch.from_numpy(getattr(other, kind)[name])
                    close(f"gradient of {name}", torch.from_numpy(norms), expected, atol=atol, rtol=1e-6)
    x = network.embeddings
    with torch.no_grad():
        rows = network.logits(torch.cat([x, x * 0.5, x]))
        close("a row alone and in a batch", rows[2:], network.logits(x), atol=atol, rtol=0)


def check_activations(network: Any, found: Any, recombine: Any, *, initial: bool, atol: float) -> None:
    """Names and shapes are the cell's own; the gates of a step and the state before it make the state after it."""
    json.dumps(found.to_dict(), allow_nan=False)
    for one in found.layers:
        use = network.stacks[one.name.stack]
        assert one.steps == use.steps, f"{one.name}: other tokens"
        layer = use.stack.layers[one.name.layer]
        if isinstance(layer, Bidirectional):
            layer = layer.backward_layer if one.name.direction == "backward" else layer.forward_layer
        assert layer.reverse == (one.name.direction == "backward"), f"{one.name}: the other direction"
        _, gates = layer.cell.step(
            layer.cell.weight_ih.new_zeros(1, layer.cell.blocks * layer.cell.hidden_size), layer.initial_state(1)
        )
        assert list(one.gates) == list(gates._fields), f"{one.name}: gates {list(one.gates)}"
        assert list(one.states) == list(layer.cell.state_type._fields), f"{one.name}: states {list(one.states)}"
        called = {**getattr(layer.cell.state_type, "labels", {}), **getattr(gates, "labels", {})}
        assert one.labels == called, f"{one.name}: labels {one.labels}"
        shape = (len(use.steps), layer.cell.hidden_size)
        for values in (*one.gates.values(), *one.states.values()):
            assert values.shape == shape, f"{one.name}: {values.shape}, expected {shape}"
            assert np.isfinite(values).all(), f"{one.name}: not finite"
        rule = recombine or RECOMBINE[type(layer.cell).__name__]
        order = list(range(shape[0]))[:: -1 if layer.reverse else 1]
        before = [np.zeros(shape[1]) for _ in one.states] if initial else None
        for step in order:
            now = [values[step] for values in one.states.values()]
            if before is not None:
                made = rule({name: values[step] for name, values in one.gates.items()}, *before)
                for name, value, expected in zip(one.states, made, now, strict=True):
                    if value is None:  # the gates do not determine it
                        continue
                    off = float(np.abs(value - expected).max())
                    assert off <= atol, f"{one.name}, step {step}: the gates do not make {name}, off by {off:.3g}"
            before = now


def check_influence(network: Any, connect: Callable[..., Any], *, atol: float) -> None:
    """Gradient norms are those of finite differences; integrated gradients sum to the difference they explain."""
    last = len(network.predictions) - 1
    found = connect(network, predictions=[last])
    assert found.steps == network.steps, "connectivity: other tokens"
    x, eps = network.embeddings, 1e-5

    def log_prob(rows: Tensor) -> Tensor:
        return network.logits(rows)[:, last].log_softmax(-1)[:, network.targets[last]]

    with torch.no_grad():
        moves = torch.eye(x[0].numel(), dtype=x.dtype).view(-1, *x.shape[1:]) * eps
        slopes = (log_prob(x + moves) - log_prob(x - moves)) / (2 * eps)
        expected = slopes.view(x.shape[1:]).norm(dim=-1)
        whole = float(log_prob(x)) - float(log_prob(x * 0))
    close("influence by gradient", torch.from_numpy(found.influence[0]), expected, atol=atol, rtol=1e-4)
    parts = connect(network, method="integrated", predictions=[last], points=256)
    close("integrated gradients sum", torch.tensor(parts.influence.sum()), torch.tensor(whole), atol=1e-3, rtol=1e-3)
    json.dumps(found.to_dict(), allow_nan=False)


def check_flow_names(network: Any, found: Any) -> None:
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.names == tuple(network.predictions[one] for one in found.predictions), "gradient: other names"
    for one in found.layers:
        tokens = network.stacks[one.name.stack].steps
        assert one.steps == tokens, f"{one.name}: other tokens"
        for values in (*one.states.values(), *one.gates.values()):
            assert values.shape == (len(found.predictions), len(tokens)), f"{one.name}: gradient of {values.shape}"
            assert np.isfinite(values).all(), f"{one.name}: the gradient is not finite"
    reached = max(float(values.max()) for one in found.layers for values in one.states.values())
    assert reached > 0, "no gradient reaches any state"


def check_flow(network: Any, found: Any, *, atol: float) -> None:
    """dL_t/dh_s by finite differences: the stack is stopped after step s, one unit moved, and run on."""
    ((_, (stack, tokens)),) = network.stacks.items()
    x, eps, T = network.embeddings, 1e-5, len(tokens)
    for row, t in ((0, found.predictions[0]), (len(found.predictions) - 1, found.predictions[-1])):
        for s in range(t):
            with torch.no_grad():
                _, state = stack(x[:, : s + 1])
            for one in found.layers:
                slopes = []
                for unit in range(state[one.name.layer].h.shape[1]):
                    losses = []
                    for sign in (1, -1):
                        moved = list(state)
                        h = moved[one.name.layer].h.clone()
                        h[0, unit] += sign * eps
                        moved[one.name.layer] = moved[one.name.layer]._replace(h=h)
                        with torch.no_grad():
                            outputs, _ = stack(x[:, s + 1 :], tuple(moved))
                        scores = network.readout(outputs)[0, t - s - 1].log_softmax(-1)
                        losses.append(-float(scores[network.targets[t]].detach()))
                    slopes.append((losses[0] - losses[1]) / (2 * eps))
                # What is moved is a state on its way to step s + 1. A lower layer's state also reaches the layers above
                # it at step s itself; that part is compared with autograd in check_probes.
                if one.name.layer == len(stack.layers) - 1:
                    actual, expected = torch.tensor(one.states["h"][row, s]), torch.tensor(slopes).double().norm()
                    close(f"dL_{t}/dh_{s} of {one.name}", actual, expected, atol=atol, rtol=1e-4)
        for one in found.layers:
            late = one.states["h"][row, t + 1 : T]
            assert not late.any(), f"{one.name}: a later state has a gradient"
