"""weft.accelerate: recurrent layers inside any model, exchanged in place and back."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import weft
from weft.errors import WeftError
from weft.nn.accelerate import Accelerated, accelerate, accelerated_class, restore

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch's own word on proj_size


class OwnLSTM(nn.LSTM):
    """A subclass that keeps torch's forward pass."""


class ScaledLSTM(nn.LSTM):
    """A subclass with a forward pass of its own."""

    def forward(self, input, hx=None):
        outputs, last = super().forward(input, hx)
        return 2 * outputs, last


class Model(nn.Module):
    """A model as people write them: a layer, a list of layers, a cell, layers of its own kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.encoder = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.others = nn.ModuleList([nn.GRU(10, 8, batch_first=True), nn.RNN(8, 8, batch_first=True)])
        self.projected = nn.LSTM(8, 6, proj_size=3, batch_first=True)
        self.cell = nn.GRUCell(3, 4)
        self.own, self.scaled = OwnLSTM(3, 3), ScaledLSTM(3, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.encoder(self.embedding(ids))[0]
        for layer in self.others:
            x = layer(x)[0]
        x = self.projected(x)[0]
        return self.cell(self.scaled(self.own(x)[0])[0][:, -1])


def test_layers_are_exchanged_in_place_and_back():
    torch.manual_seed(0)
    model, ids = Model(), torch.randint(11, (3, 7))
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(model.parameters())
    before = model(ids)
    expected = torch.autograd.grad(before.sum(), parameters, allow_unused=True)
    encoder = model.encoder

    report = accelerate(model)
    assert [one.name for one in report.replaced] == ["encoder", "others.0", "others.1", "own"]
    reasons = {one.name: one.reason for one in report.kept}
    assert set(reasons) == {"projected", "cell", "scaled"}
    assert "proj_size" in reasons["projected"]
    assert "one step" in reasons["cell"]
    assert "ScaledLSTM has a forward pass of its own" in reasons["scaled"]
    assert "replaced 'encoder': LSTM(6, 5" in str(report)
    assert model.encoder is encoder
    assert isinstance(encoder, Accelerated)
    assert isinstance(encoder, nn.LSTM)  # as code around it may ask
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    after = model(ids)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)
    for found, wanted in zip(torch.autograd.grad(after.sum(), parameters, allow_unused=True), expected, strict=True):
        if wanted is not None:
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    model(ids).sum().backward()
    optimizer.step()
    assert not torch.equal(model(ids), after)

    restored = restore(model)
    assert [one.name for one in restored.replaced] == ["encoder", "others.0", "others.1", "own"]
    assert str(restored).startswith("restored 'encoder': LSTM(6, 5")
    assert "engine" not in str(restored)
    assert type(model.encoder) is nn.LSTM
    assert type(model.others[0]) is nn.GRU
    assert type(model.own) is OwnLSTM


def test_a_bare_layer():
    layer = nn.GRU(3, 4)
    assert accelerate(layer).replaced[0].name == ""
    assert isinstance(layer, Accelerated)
    again = accelerate(layer)
    assert again.replaced == ()
    assert again.kept[0].reason == "it runs on the engine already"


def test_a_model_without_recurrent_layers():
    report = accelerate(nn.Linear(2, 3))
    assert report.replaced == report.kept == ()
    assert "no recurrent layers" in str(report)


def test_what_is_fixed_already_is_refused():
    model = nn.Sequential(nn.LSTM(3, 4))
    with pytest.warns(DeprecationWarning, match="script"):
        scripted = torch.jit.script(model)
    with pytest.raises(WeftError, match="scripted"):
        accelerate(scripted)
    with pytest.raises(WeftError, match="compiled"):
        accelerate(torch.compile(model, backend="eager"))
    inside = nn.Sequential(nn.LSTM(3, 4))
    inside[0].compile(backend="eager")
    with pytest.raises(WeftError, match=r"0 is a compiled module.*before torch\.compile"):
        accelerate(inside)
    with pytest.raises(WeftError, match=r"a torch\.nn\.Module"):
        accelerate("model")
    assert type(model[0]) is nn.LSTM


@pytest.mark.filterwarnings("ignore")  # of torch's own quantization
def test_what_stays_and_why():
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(3, 4)), {nn.LSTM}, dtype=torch.qint8)
    replaced_by_hand = nn.LSTM(3, 4)
    replaced_by_hand.forward = lambda x: x
    model = nn.ModuleDict(
        {
            "quantized": quantized,
            "low_precision": nn.GRU(3, 4, dtype=torch.bfloat16),
            "meta": nn.GRU(3, 4, device="meta"),
            "by_hand": replaced_by_hand,
            "ours": weft.nn.LSTM(3, 4),
        }
    )
    report = accelerate(model)
    assert report.replaced == ()
    reasons = {one.name.split(".")[0]: one.reason for one in report.kept}
    assert list(reasons) == list(model)
    for name, reason in {
        "quantized": "quantized", "low_precision": "bfloat16", "meta": "on meta", "by_hand": "on the instance",
        "ours": "already",
    }.items():  # fmt: skip
        assert reason in reasons[name]
        assert f"kept '{name}" in str(report)
    assert restore(model).replaced == ()


@pytest.mark.parametrize("first", ["accelerate", "parametrize"])
def test_parametrizations_stay(first):
    x = torch.randn(5, 2, 3)
    torch.manual_seed(0)
    plain = nn.GRU(3, 4)
    torch.manual_seed(0)
    model = nn.Sequential(nn.GRU(3, 4))
    expected, _ = plain(x)  # weight_norm does not change the weight
    if first == "accelerate":
        accelerate(model)
    parametrizations.weight_norm(model[0], "weight_hh_l0")
    report = accelerate(model)
    assert [one.layer for one in (*report.replaced, *report.kept)] == ["GRU(3, 4)"]
    assert isinstance(model[0], Accelerated)
    outputs, _ = model(x)
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-6)
    outputs.sum().backward()
    assert model[0].parametrizations.weight_hh_l0.original0.grad.any()
    restore(model)
    assert not isinstance(model[0], Accelerated)
    assert parametrize.is_parametrized(model[0], "weight_hh_l0")
    accelerate(model)
    parametrize.remove_parametrizations(model[0], "weight_hh_l0")
    torch.testing.assert_close(model(x)[0], expected, rtol=1e-5, atol=1e-6)
    restore(model)
    assert type(model[0]) is nn.GRU


def test_copies_and_hooks():
    model = nn.Sequential(OwnLSTM(3, 4))
    seen, x = [], torch.randn(5, 2, 3)
    handle = model[0].register_forward_hook(lambda module, inputs, outputs: seen.append(1))
    accelerate(model)
    before = model(x)[0]
    assert seen == [1]
    handle.remove()
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    accelerated_class.cache_clear()  # as in another process, which has not made the class
    for one in (*copies, torch.load(buffer, weights_only=False)):
        assert isinstance(one[0], Accelerated)
        assert isinstance(one[0], OwnLSTM)
        assert torch.equal(one(x)[0], before)
        restore(one)
        assert type(one[0]) is OwnLSTM


def test_weights_that_modules_share_stay_shared():
    model = nn.ModuleList([nn.LSTM(3, 3), nn.LSTM(3, 3)])
    model[1].weight_hh_l0 = model[0].weight_hh_l0
    accelerate(model)
    assert model[1].weight_hh_l0 is model[0].weight_hh_l0
    assert len(list(model.parameters())) == 7


@pytest.mark.filterwarnings("ignore")
def test_an_accelerated_model_can_be_translated():
    class Outputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(3, 4)

        def forward(self, x):
            return self.layer(x)[0]

    model, x = Outputs(), torch.randn(5, 2, 3)
    accelerate(model)
    for translated in (
        torch.jit.script(model),
        torch.jit.trace(model, x),
        torch.export.export(model, (x,)).module(),
        torch.compile(model, backend="eager"),
    ):
        torch.testing.assert_close(translated(x), model(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("training", [False, True])
def test_packed_sequences_of_a_compiled_model_break_its_graph(backend, training):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.LSTM(3, 4, 2, bidirectional=True, dropout=0.5)
            self.second = nn.GRU(8, 4)

        def forward(self, x, lengths):
            packed, state = self.first(pack_padded_sequence(x, lengths, enforce_sorted=False))
            return pad_packed_sequence(self.second(packed, state[0][:1])[0])[0]

    torch.compiler.reset()
    model, x, lengths = Packed().train(training), torch.randn(5, 3, 3), torch.tensor([2, 5, 3])
    accelerate(model)
    results = []
    for run in (model, torch.compile(model, backend=backend)):
        torch.manual_seed(1)
        outputs = run(x, lengths)
        results.append([outputs, *torch.autograd.grad(outputs.square().sum(), list(model.parameters()))])
    torch.testing.assert_close(*results)
