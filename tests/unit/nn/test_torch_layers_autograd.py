"""weft.nn.LSTM, GRU and RNN inside training programs: autograd, checkpointing and tensors that change."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import weft
from tests.twins import assert_close, pair

KINDS = {"LSTM": (nn.LSTM, weft.nn.LSTM), "GRU": (nn.GRU, weft.nn.GRU), "RNN": (nn.RNN, weft.nn.RNN)}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def both(kind, use, **options):
    """What a use of torch's layer gives, and of ours, from the same seed; compares them."""
    results = []
    for cls in KINDS[kind]:
        torch.manual_seed(5)
        layer = cls(4, 6, 2, **options)
        torch.manual_seed(6)
        results.append(use(layer, torch.randn(5, 3, 4, requires_grad=True)))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def gradients(layer, x, outputs):
    outputs.square().sum().backward()
    return [x.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_first_run_may_be_inside_a_checkpoint(kind, reentrant):
    both(kind, lambda layer, x: gradients(layer, x, checkpoint(lambda v: layer(v)[0], x, use_reentrant=reentrant)))


def test_frozen_weights_have_no_gradient(kind):
    def use(layer, x):
        layer.weight_hh_l0.requires_grad_(False)
        layer.bias_ih_l1.requires_grad_(False)
        found = gradients(layer, x, layer(x)[0])
        assert [one is None for one in found].count(True) == 2
        return [one for one in found if one is not None]

    both(kind, use)


def test_a_second_backward_pass(kind):
    def use(layer, x):
        outputs, _ = layer(x)
        outputs.sum().backward(retain_graph=True)
        return gradients(layer, x, outputs)

    both(kind, use)


@pytest.mark.parametrize("batch_first", [False, True])
def test_outputs_that_are_changed_in_place(kind, batch_first):
    torch.manual_seed(5)
    layer, x = KINDS[kind][1](4, 6, batch_first=batch_first), torch.randn(5, 3, 4, requires_grad=True)
    expected = torch.autograd.grad((2 * layer(x)[0]).sum(), [x, *layer.parameters()])
    outputs, _ = layer(x)
    torch.testing.assert_close(torch.autograd.grad(outputs.mul_(2).sum(), [x, *layer.parameters()]), expected)


@pytest.mark.parametrize("name", ["x", "weight_hh_l0"])
def test_what_the_backward_pass_reads_must_not_change(kind, name):
    layer, x = KINDS[kind][1](4, 6, batch_first=True), torch.randn(5, 3, 4)
    outputs, _ = layer(x)
    with torch.no_grad():
        {"x": x, **dict(layer.named_parameters())}[name].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


def test_inference_mode(kind):
    def use(layer, x):
        with torch.inference_mode():
            outputs, _ = layer(x)
        assert outputs.is_inference()
        return [outputs.clone(), *gradients(layer, x, layer(x)[0])]  # and training after it

    both(kind, use)


def test_pruned_weights(kind):
    def use(layer, x):
        prune.l1_unstructured(layer, "weight_hh_l0", 0.5)
        layer(x)
        with torch.no_grad():
            layer.weight_hh_l0_orig.mul_(2)
        return gradients(layer, x, layer(x)[0])

    both(kind, use)


def test_weights_that_are_assigned(kind):
    def use(layer, x):
        layer(x)
        layer.load_state_dict({name: torch.randn_like(one) for name, one in layer.state_dict().items()}, assign=True)
        return layer(x)[0]

    both(kind, use)


def test_another_dtype_and_back(kind):
    def use(layer, x):
        layer(x)
        in_double = layer.double()(x.double())[0]
        return [in_double, layer.float()(x)[0]]

    both(kind, use, bias=False)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own word on its LSTM under vmap
def test_per_sample_gradients():
    """torch.func over a batch: vmap of grad of functional_call, as torch's LSTM runs it."""

    def use(layer, x):
        weights = {name: one.detach() for name, one in layer.named_parameters()}

        def loss(weights, row):
            return torch.func.functional_call(layer, weights, (row[:, None],))[0].square().sum()

        return list(torch.func.vmap(torch.func.grad(loss), (None, 1))(weights, x.detach()).values())

    both("LSTM", use)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # torch's word on its own flags
def test_weights_of_another_class_are_torch_s_to_run(kind):
    """As those of torch's per-sample gradients, which let nothing of them be read."""
    from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

    torch.manual_seed(1)
    grads = []
    for layer in pair(kind, 4, 6, batch_first=True):
        x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
        with torch.backends.mkldnn.flags(enabled=False):  # which torch's LSTM would take, and fail
            call_for_per_sample_grads(layer)(x)[0].sum().backward()
        grads.append([weight.grad_sample for weight in layer.parameters()])
    assert_close(*grads)
