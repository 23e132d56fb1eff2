"""weft.accelerate: recurrent layers inside any model, exchanged in place and back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from weft.errors import WeftError
from weft.nn.accelerate import AcceleratedGRU, AcceleratedLSTM, accelerate, restore

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch's own word on proj_size


class Model(nn.Module):
    """A model as people write them: a layer, a list of layers, a cell, a layer of its own kind."""

    class OwnLSTM(nn.LSTM):
        pass

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.encoder = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.others = nn.ModuleList([nn.GRU(10, 8, batch_first=True), nn.RNN(8, 8, batch_first=True)])
        self.projected = nn.LSTM(8, 6, proj_size=3, batch_first=True)
        self.cell = nn.GRUCell(3, 4)
        self.own = self.OwnLSTM(3, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.encoder(self.embedding(ids))[0]
        for layer in self.others:
            x = layer(x)[0]
        x = self.projected(x)[0]
        return self.cell(self.own(x)[0][:, -1])


def test_layers_are_exchanged_in_place_and_back():
    torch.manual_seed(0)
    model, ids = Model(), torch.randint(11, (3, 7))
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(model.parameters())
    before = model(ids)
    expected = torch.autograd.grad(before.sum(), parameters, allow_unused=True)
    encoder = model.encoder

    report = accelerate(model)
    assert [one.name for one in report.replaced] == ["encoder", "others.0", "others.1"]
    assert {one.name for one in report.kept} == {"projected", "cell", "own"}
    assert all(one.reason for one in report.kept)
    assert "replaced encoder: LSTM(6, 5" in str(report)
    assert model.encoder is encoder
    assert type(encoder) is AcceleratedLSTM
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

    assert [one.name for one in restore(model).replaced] == ["encoder", "others.0", "others.1"]
    assert type(model.encoder) is nn.LSTM
    assert type(model.others[0]) is nn.GRU


def test_a_bare_layer():
    layer = nn.GRU(3, 4)
    assert accelerate(layer).replaced[0].name == ""
    assert type(layer) is AcceleratedGRU
    assert accelerate(layer).replaced == ()  # it is already


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
    with pytest.raises(WeftError, match=r"a torch\.nn\.Module"):
        accelerate("model")
    assert type(model[0]) is nn.LSTM
