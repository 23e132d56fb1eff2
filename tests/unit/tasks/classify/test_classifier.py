"""The classifier and its poolings: what each is by definition, whatever stands in the padding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.checks.models import check_model
from weft.cells import CELLS
from weft.errors import WeftError
from weft.nn import Recurrent
from weft.nn.dropout import word_dropout
from weft.nn.pooling import POOLINGS, LastPooling, MaxPooling, MeanPooling, Pooled, Pooling
from weft.tasks.classify.config import ClassifyModelConfig
from weft.tasks.classify.model import Classifier, LabelledBatch, TokenLayer

V, LABELS = 11, 3
LENGTHS = torch.tensor([6, 1, 4, 0, 7])


def config(**settings):
    return ClassifyModelConfig(**{"hidden_size": 5, "embedding_dim": 4, "pooling": "max", **settings})


def model_of(seed=0, **settings):
    torch.manual_seed(seed)
    model = Classifier(TokenLayer(V, config(**settings)), LABELS, config(**settings)).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)  # no zero biases
    return model


def rows(count=5, steps=7, seed=0):
    return torch.randint(V, (count, steps), generator=torch.Generator().manual_seed(seed))


SHAPES = {
    "deep": {"num_layers": 3, "cell": "lstm", "residual": True},
    "one-hot": {"embedding_dim": 0, "cell": "gru"},
    "one way": {"bidirectional": False, "cell": "rnn"},
    "noisy": {"recurrent_dropout": 0.4, "word_dropout": 0.3, "embedding_dropout": 0.3, "dropout": 0.3},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_battery(shape, pooling):
    torch.manual_seed(1)
    settings = config(pooling=pooling, **SHAPES[shape])
    model = Classifier(TokenLayer(V, settings), LABELS, settings)
    lengths, labels = torch.tensor([30, 3, 17, 30, 1]), torch.tensor([0, 2, 1, 1, 0])
    batch = LabelledBatch(rows(5, 30), lengths, labels)
    parts = [LabelledBatch(*(part[begin:end] for part in batch)) for begin, end in ((0, 1), (1, 5))]
    check_model(model, batch, parts)
    weights = torch.tensor([0.5, 2.0, 1.25])
    check_model(model, batch, parts, loss=lambda model, batch: model.loss(batch, weights))


def by_hand(pooling, states, ahead):
    """One text's states (T, H) to its vector and the weights of its tokens, from the definitions."""
    T, H = states.shape
    if T == 0:
        return torch.zeros(H, dtype=states.dtype), torch.zeros(0, dtype=states.dtype)
    if pooling.__class__ is LastPooling:
        weights = torch.zeros(T, dtype=states.dtype)
        weights[-1] += ahead / H
        weights[0] += 1 - ahead / H
        return torch.cat([states[-1, :ahead], states[0, ahead:]]), weights
    if pooling.__class__ is MeanPooling:
        return states.mean(0), torch.full((T,), 1 / T, dtype=states.dtype)
    if pooling.__class__ is MaxPooling:
        winners = [max(range(T), key=lambda t, h=h: states[t, h].item()) for h in range(H)]
        return states.max(0).values, torch.tensor([winners.count(t) / H for t in range(T)], dtype=states.dtype)
    scores = torch.stack([pooling.query @ torch.tanh(pooling.key.weight @ s + pooling.key.bias) for s in states])
    weights = scores.exp() / scores.exp().sum()
    return sum(w * s for w, s in zip(weights, states, strict=True)), weights


def check_pooling(pooling, ahead=3, back=2, seed=0):
    """Every row by its definition; rows of all lengths, none included; garbage in the padding reaches nothing."""
    torch.manual_seed(seed)
    pooling = pooling(ahead, back).double()
    states = torch.randn(5, 7, ahead + back, dtype=torch.float64)
    inside = torch.arange(7) < LENGTHS[:, None]
    # as a stack gives them: zeros past the end
    vector, weights = pooling(states * inside.unsqueeze(-1), inside)
    for row, length in enumerate(LENGTHS.tolist()):
        expected, shares = by_hand(pooling, states[row, :length], ahead)
        torch.testing.assert_close(vector[row], expected)
        torch.testing.assert_close(weights[row, :length], shares)
        assert not weights[row, length:].any()


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("sizes", [(3, 2), (4, 0), (1, 3)])
def test_poolings_are_what_they_say(name, sizes):
    check_pooling(POOLINGS[name], *sizes)


class LastStep(LastPooling):
    """The mistake in many a notebook: the output at the last step, for both directions."""

    def forward(self, outputs, inside):
        return Pooled(outputs[:, -1], super().forward(outputs, inside).weights)


class OneDirection(LastPooling):
    """The other one: the backward direction's output at the last token, where it has read one token only."""

    def forward(self, outputs, inside):
        last = (inside.sum(1) - 1).clamp(min=0)
        return Pooled(outputs[torch.arange(len(outputs)), last], super().forward(outputs, inside).weights)


class PaddedMean(MeanPooling):
    def forward(self, outputs, inside):
        return Pooled(outputs.mean(1), super().forward(outputs, inside).weights)


class PaddedMax(MaxPooling):
    """Zeros in the padding win where all states are below zero."""

    def forward(self, outputs, inside):
        return Pooled(outputs.max(1).values, super().forward(outputs, inside).weights)


class PaddedAttention(Pooling):
    def __init__(self, ahead, back):
        super().__init__(ahead, back)
        self.key, self.query = nn.Linear(ahead + back, ahead + back), nn.Parameter(torch.randn(ahead + back))

    def forward(self, outputs, inside):
        weights = (torch.tanh(self.key(outputs)) @ self.query).softmax(1)
        return Pooled(torch.einsum("bt,bth->bh", weights, outputs), weights * inside)


@pytest.mark.parametrize("wrong", [LastStep, OneDirection, PaddedMean, PaddedMax, PaddedAttention])
def test_wrong_poolings_are_noticed(wrong, monkeypatch):
    monkeypatch.setitem(globals(), "by_hand", _as(wrong))
    with pytest.raises(AssertionError):
        check_pooling(wrong)


def _as(wrong):
    """`by_hand` for the pooling that `wrong` wants to be."""
    right = next((base for base in (LastPooling, MeanPooling, MaxPooling) if issubclass(wrong, base)), None)

    def judge(pooling, states, ahead, real=by_hand):
        if right is not None:
            pooling = right(ahead, states.shape[1] - ahead)
        return real(pooling, states, ahead)

    return judge


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_last_is_the_last_state_of_both_directions(cell, layers):
    model = model_of(pooling="last", cell=cell, num_layers=layers)
    ids = rows()
    outputs, states = model.stack(model.embedding(ids), lengths=LENGTHS)
    both = states[-1]
    expected = model.output(torch.cat([both.forward.h, both.backward.h], -1))
    torch.testing.assert_close(model(ids, LENGTHS).logits, expected)
    assert not torch.allclose(model.output(outputs[:, -1]), expected)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_padding_never_changes_a_result(pooling, shape):
    """A text alone, in a batch, beside longer ones, with anything after its end."""
    model, ids = model_of(pooling=pooling, **SHAPES[shape]), rows(5, 7)
    together = model(ids, LENGTHS)
    other = torch.where(torch.arange(7) < LENGTHS[:, None], ids, (ids + 1) % V)
    for one, two in zip(model(other, LENGTHS), together, strict=True):
        assert torch.equal(one, two)
    wider = model(torch.cat([other, rows(5, 9, seed=3)], 1), LENGTHS)
    torch.testing.assert_close(wider.logits, together.logits)
    torch.testing.assert_close(wider.weights[:, :7], together.weights)
    assert not wider.weights[:, 7:].any()
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(ids[row : row + 1, : max(1, length)], LENGTHS[row : row + 1])
        torch.testing.assert_close(alone.logits[0], together.logits[row])
        torch.testing.assert_close(alone.weights[0, :length], together.weights[row, :length])
        torch.testing.assert_close(together.weights[row].sum().item(), float(length > 0))


def test_word_dropout_takes_its_share_and_only_while_training():
    torch.manual_seed(0)
    ids = torch.full((200, 50), 5)
    dropped = word_dropout(ids, 0.3, 0)
    assert set(dropped.unique().tolist()) == {0, 5}
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(word_dropout(ids, 0.0, 0), ids)
    model = model_of(word_dropout=0.5, embedding_dropout=0.0, dropout=0.0)
    one, two = (model.train()(rows(), LENGTHS).logits for _ in range(2))
    assert not torch.equal(one, two)
    assert torch.equal(model.eval()(rows(), LENGTHS).logits, model(rows(), LENGTHS).logits)


def test_a_pooling_that_is_not_there():
    with pytest.raises(WeftError, match="pooling 'maximum' is not known"):
        Classifier(TokenLayer(V, config()), LABELS, config(pooling="maximum"))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_dropout_reaches_every_layer_and_direction(bidirectional):
    model = model_of(recurrent_dropout=0.4, num_layers=2, bidirectional=bidirectional, pooling="mean")
    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    assert [layer.recurrent_dropout for layer in layers] == [0.4] * (4 if bidirectional else 2)
