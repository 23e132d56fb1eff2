"""The battery of probes passes for every cell, and fails for wrong probes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.checks.probes import check_probes
from tests.checks.test_cells import MinimalGatedUnit
from weft.cells import CELLS
from weft.nn import make_stack
from weft.probes import activations, connectivity, gradient_flow
from weft.tasks.inspection import Network, StackUse


def next_token_network(cell, layers=1, residual=False, seed=3):
    """A small language model in float64 with random weights and biases, as the probes see it."""
    torch.manual_seed(seed)
    T, E, H, V = 6, 5 if not residual else 4, 4, 7
    stack = make_stack(cell, E, H, layers=layers, residual=residual).double()
    weight, bias = torch.randn(V, H).double(), torch.randn(V).double()
    for parameter in stack.parameters():
        nn.init.normal_(parameter, std=0.6)

    def readout(outputs):
        return F.linear(outputs, weight, bias)

    tokens = tuple("abcdef")
    return Network(
        tokens,
        torch.randn(1, T, E).double(),
        lambda x: readout(stack(x)[0][:, :-1]),
        tokens[1:],
        (1, 2, 3, 0, 5),
        tuple("tuvwxyz"),
        {"stack": StackUse(stack, tokens)},
        readout,
    )


def label_network(cell, seed=4):
    """A bidirectional classifier."""
    torch.manual_seed(seed)
    stack = make_stack(cell, 5, 4, layers=2, bidirectional=True).double()
    output = nn.Linear(8, 3).double()
    for parameter in (*stack.parameters(), *output.parameters()):
        nn.init.normal_(parameter, std=0.6)
    tokens = tuple("abcde")
    return Network(
        tokens,
        torch.randn(1, 5, 5).double(),
        lambda x: output(stack(x)[0].mean(1))[:, None],
        ("yes",),
        (1,),
        ("no", "yes", "maybe"),
        {"stack": StackUse(stack, tokens)},
    )


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_probes(name, layers):
    check_probes(next_token_network(name, layers))


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_probes_of_other_networks(name):
    check_probes(next_token_network(name, 2, residual=True))
    check_probes(label_network(name))


def test_probes_of_a_custom_cell():
    check_probes(next_token_network(MinimalGatedUnit, 2), recombine=lambda g, h: (h + g["f"] * (g["u"] - h),))


def swapped_gates(network):
    found = activations(network)
    return replace(found, layers=tuple(replace(one, gates={**one.gates, "i": one.gates["f"]}) for one in found.layers))


def late_states(network):
    """Off by one in time: the state before each step."""
    found = activations(network)
    return replace(
        found,
        layers=tuple(
            replace(one, states={name: np.roll(values, 1, axis=0) for name, values in one.states.items()})
            for one in found.layers
        ),
    )


def changed_flow(change):
    def mutant(network):
        found = gradient_flow(network)
        layers = tuple(
            replace(one, states={name: change(values) for name, values in one.states.items()}) for one in found.layers
        )
        return replace(found, layers=layers)

    return mutant


def detached_gradient(values):
    """Nothing flows through time: only what a prediction asks of its own step."""
    return values * np.eye(*values.shape)


def detached_influence(network, **given):
    found = connectivity(network, **given)
    kept = np.eye(len(network.predictions), len(network.steps))[list(found.predictions)]
    return replace(found, influence=found.influence * kept)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        ({"read": swapped_gates}, "do not make"),
        ({"read": late_states}, "do not make"),
        ({"flow": changed_flow(detached_gradient)}, "dL_"),
        ({"flow": changed_flow(lambda values: np.roll(values, 1, axis=1))}, "later state"),
        ({"flow": changed_flow(lambda values: values * 0)}, "no gradient"),
        ({"connect": detached_influence}, "influence by gradient"),
    ],
)
def test_wrong_probes_are_noticed(mutant, message):
    with pytest.raises(AssertionError, match=message):
        check_probes(next_token_network("lstm", 2), **mutant)
