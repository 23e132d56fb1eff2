"""The translator: step by step it is what it is at once, the source stays the source, and rows do not meet."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tests.checks.beam_search import check_beam
from tests.checks.comparisons import flat
from tests.checks.models import check_model
from tests.checks.steppers import check_stepper
from weft.data.buckets import Padded, pad
from weft.decoding import beam_search
from weft.engine import linear_cross_entropy
from weft.errors import WeftError
from weft.nn.attention import SCORES
from weft.tasks.translate.config import TranslateModelConfig
from weft.tasks.translate.decoder import DECODERS, ContextDecoder, Decoded, DecoderState, IdentityBridge, LinearBridge
from weft.tasks.translate.model import BOS_ID, TranslationBatch, Translator

V, W = 11, 9  # source and target vocabulary


def config(**settings):
    small = {"hidden_size": 6, "embedding_dim": 5, "tied": False, "dropout": 0.3, "cell": "gru"}
    return TranslateModelConfig(**{**small, **settings})


SHAPES = {
    **{decoder: config(decoder=decoder) for decoder in DECODERS},
    **{f"{name} before": config(decoder="attend_before", attention=name, num_layers=2) for name in SCORES},
    **{f"{name} after": config(decoder="attend_after", attention=name) for name in SCORES},
    "straight": config(decoder="context", bidirectional=False, num_layers=2),
    "lstm, deep": config(cell="lstm", num_layers=3, residual=True),
    "other cell": config(cell="lstm", encoder_cell="rnn", decoder="state"),
    "flat encoder": config(cell="lstm", num_layers=3, encoder_num_layers=1, encoder_hidden_size=4, decoder="context"),
    "tied": config(tied=True, hidden_size=8),
    "tied, of another width": config(tied=True, decoder="context"),
}


def model_of(shape="attend_after", seed=0, sizes=(V, W)):
    torch.manual_seed(seed)
    model = Translator(*sizes, SHAPES[shape] if isinstance(shape, str) else shape).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)  # no zero biases, and states that depend on every token
    return model


def batch_of(rows=4, seed=0):
    random = torch.Generator().manual_seed(seed)
    lengths = [[6, 1, 4, 6, 3][:rows], [2, 5, 4, 1, 5][:rows]]
    return TranslationBatch(
        *(
            pad([torch.randint(size, (length,), generator=random).tolist() for length in side])
            for size, side in zip((V, W), lengths, strict=True)
        )
    )


def rows_of(batch, rows):
    return TranslationBatch(*(Padded(side.ids[rows], side.lengths[rows]) for side in batch))


@pytest.mark.parametrize("shape", SHAPES)
def test_battery(shape):
    batch = batch_of(5)
    parts = [rows_of(batch, slice(0, 1)), rows_of(batch, slice(1, 5))]
    torch.manual_seed(3)
    check_model(Translator(V, W, SHAPES[shape]), batch, parts)
    check_model(model_of(shape), batch, parts, loss=lambda model, part: model.loss(part, label_smoothing=0.2))


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_a_stepper(shape):
    check_stepper(model_of(shape).stepper(batch_of().sources), vocabulary=W)


def stepwise(model, batch):
    """Log-probabilities of all targets, one token at a time, as a decoder meets them."""
    stepper = model.stepper(batch.sources)
    state, found = stepper.initial_state(len(batch.sources.lengths)), []
    ids = torch.full((len(batch.targets.lengths),), BOS_ID)
    for time in range(batch.targets.ids.shape[1]):
        log_probs, state = stepper.step(ids, state)
        found.append(log_probs)
        ids = batch.targets.ids[:, time]
    return torch.stack(found, 1)


def check_stepwise(model):
    batch = batch_of()
    whole = model(batch).log_softmax(-1)
    steps = stepwise(model, batch)
    inside = torch.arange(whole.shape[1]) < batch.targets.lengths[:, None]
    torch.testing.assert_close(steps[inside], whole[inside])


@pytest.mark.parametrize("shape", SHAPES)
def test_step_by_step_is_the_whole(shape):
    check_stepwise(model_of(shape))


class Drifting(ContextDecoder):
    """The study notes' decoder: its context is its own state, which in prediction is no longer the encoder's."""

    def initial_state(self, encoded):
        return DecoderState(self.bridge(encoded.state), ())

    def forward(self, inputs, carried, *, lengths=None):
        context = carried.layers[-1].h
        joined = inputs.join(context)
        outputs, layers = self.stack(joined, carried.layers, lengths=lengths)
        return Decoded(outputs, None, DecoderState(layers, ()))


def test_a_context_that_drifts_is_caught(monkeypatch):
    monkeypatch.setitem(DECODERS, "context", Drifting)
    with pytest.raises(AssertionError):
        check_stepwise(model_of("straight"))


@pytest.mark.parametrize("shape", ["context", "attend_before", "attend_after"])
def test_the_source_is_the_same_at_every_step(shape):
    """What a step carries of the source is what the encoder gave, to the last bit."""
    model, batch = model_of(shape), batch_of()
    stepper = model.stepper(batch.sources)
    state = begun = stepper.initial_state(4)
    for _ in range(3):
        _, state = stepper.step(torch.tensor([4, 5, 6, 7]), state)
    for now, then in zip(flat(state.source), flat(begun.source), strict=True):
        assert torch.equal(now, then)
    encoded = model.encoder(batch.sources)
    context = flat(begun.source)[0]
    torch.testing.assert_close(context, encoded.context if shape == "context" else encoded.outputs)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_alone_and_what_stands_in_the_padding(shape):
    model, batch = model_of(shape), batch_of()
    together = model.token_losses(batch)
    for row in range(4):
        source, target = (int(side.lengths[row]) for side in batch)
        alone = TranslationBatch(
            Padded(batch.sources.ids[row : row + 1, :source], batch.sources.lengths[row : row + 1]),
            Padded(batch.targets.ids[row : row + 1, :target], batch.targets.lengths[row : row + 1]),
        )
        torch.testing.assert_close(together[row, :target], model.token_losses(alone)[0])
        assert not together[row, target:].any()
    other = TranslationBatch(*(Padded(side.ids.clone(), side.lengths) for side in batch))
    for side, size in zip(other, (V, W), strict=True):
        outside = torch.arange(side.ids.shape[1]) >= side.lengths[:, None]
        side.ids[outside] = size - 1
    assert torch.equal(model.token_losses(other), together)


@pytest.mark.parametrize("shape", ["attend_after", "attend_before"])
def test_alignments(shape):
    model, batch = model_of(shape), batch_of()
    weights = model.attention_weights(batch)
    assert weights.shape == (4, 5, 6)
    for row, (source, target) in enumerate(zip(*(side.lengths.tolist() for side in batch), strict=True)):
        assert not weights[row, :, source:].any()
        torch.testing.assert_close(weights[row, :target].sum(-1), torch.ones(target, dtype=torch.float64))


def test_the_loss_that_the_notes_check():
    targets = Padded(torch.ones(3, 4, dtype=torch.long), torch.tensor([4, 2, 0]))
    logits = torch.ones(3, 4, 10)

    def nats(logits):
        return linear_cross_entropy(logits, torch.eye(10), None, targets.ids, lengths=targets.lengths)

    means = nats(logits).mean(1)
    torch.testing.assert_close(means, torch.tensor([2.3026, 1.1513, 0.0]), atol=1e-4, rtol=0)
    logits[1, 2:] = logits[2] = math.nan
    logits.requires_grad_()
    nats(logits).sum().backward()
    assert logits.grad.isfinite().all()
    assert torch.equal(nats(logits).mean(1), means)


def test_the_loss_by_hand():
    """Every token from its definition: P(y_t | y_<t, x), smoothed over the whole vocabulary."""
    model, batch, smoothing = model_of(), batch_of(), 0.3
    log_probs = stepwise(model, batch)
    total = 0.0
    for row, length in enumerate(batch.targets.lengths.tolist()):
        for time in range(length):
            chances = torch.full((W,), smoothing / W, dtype=torch.float64)
            chances[batch.targets.ids[row, time]] += 1 - smoothing
            total -= (chances * log_probs[row, time]).sum().item()
    loss = model.loss(batch, label_smoothing=smoothing)
    assert loss.total.item() == pytest.approx(total)
    assert loss.count == int(batch.targets.lengths.sum())


@pytest.mark.parametrize("shape", SHAPES)
def test_scheduled_sampling(shape):
    """No guesses: teacher forcing. Only guesses: what is read after <bos> is the likeliest token, each time."""
    model, batch = model_of(shape), batch_of()
    encoded = model.encoder(batch.sources)
    inside = torch.arange(5) < batch.targets.lengths[:, None]
    taught, none = model.decode(encoded, batch.targets), model.decode_scheduled(encoded, batch.targets, 0.0)
    torch.testing.assert_close(none.outputs[inside], taught.outputs[inside])
    guessed = model.decode_scheduled(encoded, batch.targets, 1.0)
    stepper = model.stepper(batch.sources)
    ids, state = torch.full((4,), BOS_ID), stepper.initial_state(4)
    for time in range(5):
        log_probs, state = stepper.step(ids, state)
        now = inside[:, time]
        found = model.readout(guessed.outputs[:, time]).log_softmax(-1)
        torch.testing.assert_close(found[now], log_probs[now])
        ids = log_probs.argmax(-1)


def test_sampling_half_is_between():
    torch.manual_seed(0)
    model, batch = model_of(), batch_of()
    totals = {model.loss(batch, scheduled_sampling=0.5).total.item() for _ in range(20)}
    assert len(totals) > 3
    loss = model.loss(batch, scheduled_sampling=0.5)
    loss.total.backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("shape", ["attend_after", "attend_before", "context", "lstm, deep"])
def test_beams(shape):
    """Three tokens and the end: all ways can be tried."""
    model = model_of(config(**{**vars(SHAPES[shape]), "tied": False}), sizes=(V, 4))
    sources = batch_of(3).sources
    check_beam(
        beam_search,
        model.stepper(sources),
        [[BOS_ID]] * 3,
        vocabulary=4,
        tokens=[3, 4, 2],
        end=3,
        banned=[1],
        alone=lambda row: model.stepper(
            Padded(sources.ids[row : row + 1, : sources.lengths[row]], sources.lengths[row : row + 1])
        ),
    )


def test_bridges():
    """Straight where the two ends fit, else a layer for each decoder layer; both give states of the decoder's kind."""
    kinds = {
        ("gru", "", 0, 0, False): IdentityBridge,
        ("lstm", "", 0, 0, False): IdentityBridge,
        ("gru", "", 0, 0, True): LinearBridge,
        ("lstm", "gru", 0, 0, False): LinearBridge,
        ("gru", "lstm", 0, 0, False): LinearBridge,
        ("gru", "", 4, 0, False): LinearBridge,
        ("gru", "", 0, 1, False): LinearBridge,
        ("gru", "", 0, 3, False): LinearBridge,
    }
    for (cell, encoder_cell, encoder_hidden, encoder_layers, bidirectional), kind in kinds.items():
        model = model_of(
            config(
                cell=cell,
                num_layers=2,
                encoder_cell=encoder_cell,
                encoder_hidden_size=encoder_hidden,
                encoder_num_layers=encoder_layers,
                bidirectional=bidirectional,
                decoder="state",
            )
        )
        assert type(model.decoder.bridge) is kind
        encoded = model.encoder(batch_of().sources)
        begun = model.decoder.bridge(encoded.state)
        wanted = model.decoder.stack.initial_state(4)
        assert [type(layer) for layer in begun] == [type(layer) for layer in wanted]
        assert [part.shape for part in flat(begun)] == [part.shape for part in flat(wanted)]
        if kind is IdentityBridge:
            assert all(torch.equal(*both) for both in zip(flat(begun), flat(encoded.state), strict=True))


def test_the_source_matters():
    """Another source, another translation: by the state alone, by the context, by either attention."""
    for shape in DECODERS:
        model, batch = model_of(shape), batch_of()
        other = batch.sources.ids.clone()
        other[:, 0] = (other[:, 0] + 1) % V
        changed = TranslationBatch(Padded(other, batch.sources.lengths), batch.targets)
        assert not torch.isclose(model.token_losses(changed)[:, 0], model.token_losses(batch)[:, 0]).any(), shape


def test_attention_learns_to_reverse():
    """Rows to be read backwards: attention finds the place, and its weights say so."""
    torch.manual_seed(0)
    model = Translator(12, 12, config(hidden_size=24, embedding_dim=16, cell="gru", dropout=0.0))
    rows = torch.randint(4, 12, (256, 5))
    ends = torch.full((256, 1), 3)
    full = torch.full((256,), 6)
    batch = TranslationBatch(Padded(torch.cat([rows, ends], 1), full), Padded(torch.cat([rows.flip(1), ends], 1), full))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(120):
        loss = model.loss(batch)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
    assert (loss.total / loss.count).item() < 0.1
    found = beam_search(model.eval().stepper(batch.sources), [[BOS_ID]] * 256, width=3, tokens=[9] * 256, end=3)
    right = [best[0].ids == tuple(row) for best, row in zip(found, rows.flip(1).tolist(), strict=True)]
    assert sum(right) > 240
    places = model.attention_weights(batch)[:, :5].argmax(-1)
    assert (places == torch.arange(4, -1, -1)).double().mean() > 0.5


def test_mistakes():
    with pytest.raises(WeftError, match=r"model.hidden_size=7 cannot be divided.*model.encoder_hidden_size"):
        Translator(V, W, config(hidden_size=7))
    with pytest.raises(WeftError, match=r"queries of size 6 and keys of size 8"):
        Translator(V, W, config(attention="dot", encoder_hidden_size=4))
    with pytest.raises(WeftError, match=r"'lstn' is not known.*Try: lstm"):
        Translator(V, W, config(encoder_cell="lstn"))


def test_every_cell_encodes_and_decodes():
    from weft.cells import CELLS

    for encoder, decoder in itertools.pairwise([*CELLS, next(iter(CELLS))]):
        check_stepwise(model_of(config(cell=decoder, encoder_cell=encoder)))
