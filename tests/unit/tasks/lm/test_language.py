"""The language model: its loss, its steps, and what it refuses."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from tests.checks.models import check_model
from tests.checks.steppers import check_stepper
from weft.cells import CELLS
from weft.data.windows import Window
from weft.decoding import Sample, generate, greedy, token_engine
from weft.decoding.engines import StepEngine, StreamEngine
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError
from weft.nn.bptt import unroll
from weft.tasks.config import ModelConfig
from weft.tasks.lm.config import LmModelConfig
from weft.tasks.lm.model import AdaptiveLanguageModel, LanguageModel, make_language_model

V = 11
SHAPES = {
    "one-hot": ModelConfig(cell="gru", hidden_size=6),
    "embedding": ModelConfig(cell="lstm", hidden_size=6, num_layers=2, embedding_dim=5),
    "tied": ModelConfig(cell="rnn", hidden_size=7, embedding_dim=7, tied=True, residual=True, num_layers=2),
    "projected": LmModelConfig(cell="lstm", hidden_size=7, embedding_dim=5, tied=True),
    "adaptive": LmModelConfig(cell="gru", hidden_size=8, embedding_dim=8, softmax="adaptive"),
    "adaptive projected": LmModelConfig(cell="lstm", hidden_size=6, embedding_dim=9, softmax="adaptive"),
}


def make(shape, vocabulary=11):
    config = SHAPES[shape]
    return (
        make_language_model(vocabulary, config)
        if isinstance(config, LmModelConfig)
        else LanguageModel(vocabulary, config)
    )


def window(rows=5, steps=4, seed=0, reset_state=True):
    ids = torch.randint(V, (rows, steps + 1), generator=torch.Generator().manual_seed(seed))
    return Window(ids[:, :-1], ids[:, 1:], reset_state)


def rows_of(batch, begin, end):
    return Window(batch.inputs[begin:end], batch.targets[begin:end], batch.reset_state)


@pytest.mark.parametrize("shape", SHAPES)
def test_battery(shape):
    torch.manual_seed(1)
    model = make(shape)
    batch = window(rows=5, steps=40)  # long enough that every token occurs, so that every weight has a gradient
    parts = [rows_of(batch, 0, 1), rows_of(batch, 1, 5)]
    check_model(model, batch, parts, loss=lambda model, one: model.loss(one)[:2])
    check_stepper(model.eval(), vocabulary=V)


@pytest.mark.parametrize("cell", CELLS)
def test_steps_say_what_the_whole_says(cell):
    torch.manual_seed(0)
    model = LanguageModel(V, ModelConfig(cell=cell, hidden_size=6, num_layers=2)).eval()
    batch = window()
    logits, _ = model(batch.inputs)
    state = model.initial_state(5)
    for t in range(4):
        log_probs, state = model.step(batch.inputs[:, t], state)
        torch.testing.assert_close(log_probs, logits[:, t].log_softmax(-1))


def test_loss_is_the_sum_over_sequences_it_is_trained_on():
    """The probabilities of all continuations sum to one, and the loss is minus the log of the true one's."""
    torch.manual_seed(0)
    model = LanguageModel(3, ModelConfig(cell="gru", hidden_size=4)).eval().double()
    start = torch.zeros(27, 1, dtype=torch.long)
    ids = torch.cat([start, torch.tensor(list(itertools.product(range(3), repeat=3)))], 1)
    nats = torch.stack([model.loss(Window(row[None, :-1], row[None, 1:], True)).total for row in ids])
    assert (-nats).exp().sum().item() == pytest.approx(1)


def test_ignored_targets_do_not_count():
    model = LanguageModel(V, SHAPES["one-hot"]).eval()
    batch = window()
    half = batch.targets.clone()
    half[:, 2:] = IGNORE_INDEX
    loss = model.loss(batch._replace(targets=half))
    short = model.loss(Window(batch.inputs[:, :2], batch.targets[:, :2], True))
    assert loss.count == 10
    torch.testing.assert_close(loss.total, short.total)


def test_state_is_carried_unless_the_window_is_fresh():
    model = LanguageModel(V, SHAPES["embedding"]).eval()
    first, second = window(seed=1), window(seed=2, reset_state=False)
    carried = model.loss(first).state
    together = Window(torch.cat([first.inputs, second.inputs], 1), torch.cat([first.targets, second.targets], 1), True)
    whole = model.loss(together).total
    torch.testing.assert_close(model.loss(first).total + model.loss(second, carried).total, whole)
    anew = model.loss(second._replace(reset_state=True), carried).total
    torch.testing.assert_close(anew, model.loss(second, None).total)
    assert not torch.equal(anew, model.loss(second, carried).total)


def test_carried_state_has_no_gradient():
    state = LanguageModel(V, SHAPES["embedding"]).loss(window()).state
    assert not any(part.requires_grad for layer in state for part in layer)


@pytest.mark.parametrize("method", ["truncated", "randomized"])
def test_every_way_of_bptt_has_the_same_loss(method):
    torch.manual_seed(0)
    model = LanguageModel(V, SHAPES["one-hot"]).eval()
    way = unroll(method, steps=2, keep=0.5)
    torch.testing.assert_close(model.loss(window(), unroll=way).total, model.loss(window()).total)


def test_a_fresh_model_is_about_as_good_as_guessing():
    torch.manual_seed(0)
    for shape in (shape for shape in SHAPES if "adaptive" not in shape):  # whose clusters begin as single tokens
        loss = make(shape).eval().loss(window(rows=50))
        assert loss.total.item() / loss.count == pytest.approx(math.log(V), rel=0.25)


def test_dropout_only_while_training():
    torch.manual_seed(0)
    model = LanguageModel(V, ModelConfig(hidden_size=20, dropout=0.5))
    assert not torch.equal(model(window().inputs)[0], model(window().inputs)[0])
    model.eval()
    assert torch.equal(model(window().inputs)[0], model(window().inputs)[0])


def test_recurrent_dropout_only_while_training():
    config = LmModelConfig(hidden_size=16, embedding_dim=5, dropout=0.0, recurrent_dropout=0.5)
    torch.manual_seed(1)
    model, batch = make_language_model(V, config), window(steps=9)
    first, second = (model.train().loss(batch).total.item() for _ in range(2))
    assert first != second
    first, second = (model.eval().loss(batch).total.item() for _ in range(2))
    assert first == second
    model.train().loss(batch).total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_model_built_by_itself_needs_no_task_to_choose_for_it():
    model = make_language_model(V, LmModelConfig(hidden_size=6))
    assert (model.embedding.weight.shape, model.dropout) == ((V, 6), 0.0)


def test_bidirectional_is_refused_with_the_reason_and_the_way_out():
    with pytest.raises(WeftError, match=r"backward direction has already read it.*fill"):
        LanguageModel(V, ModelConfig(bidirectional=True))


def test_tied_weights_need_an_embedding():
    with pytest.raises(WeftError, match=r"model.tied with model.embedding_dim=0.*model.embedding_dim=256"):
        LanguageModel(V, ModelConfig(tied=True))


def test_large_vocabularies_have_an_adaptive_softmax():
    small = LmModelConfig(hidden_size=4, embedding_dim=4)
    assert type(make_language_model(10_000, small)) is LanguageModel
    assert type(make_language_model(10_001, small)) is AdaptiveLanguageModel
    assert type(make_language_model(V, LmModelConfig(hidden_size=4, softmax="adaptive"))) is AdaptiveLanguageModel
    assert type(make_language_model(10_001, LmModelConfig(hidden_size=4, softmax="full"))) is LanguageModel


@pytest.mark.parametrize("shape", ["adaptive", "adaptive projected"])
def test_the_adaptive_loss_is_that_of_its_exact_probabilities(shape):
    torch.manual_seed(0)
    model, batch = make(shape).eval().double(), window()
    log_probs, _ = model(batch.inputs)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(5, 4, dtype=torch.double))
    expected = -log_probs.gather(-1, batch.targets[..., None]).sum()
    torch.testing.assert_close(model.loss(batch).total, expected)
    tokens = torch.cat([batch.inputs[0], batch.targets[0, -1:]])
    each = log_probs[0].gather(-1, tokens[1:, None])[:, 0].detach()
    torch.testing.assert_close(torch.from_numpy(model.token_log_probs(tokens.numpy())), each)
    found = model.predict_tokens(torch.cat([batch.inputs[0], batch.targets[0, -1:]]).numpy())
    assert found.likelihood.count == 4


def test_unknown_cell():
    with pytest.raises(WeftError, match=r"'lstn' is not known.*Try: lstm"):
        LanguageModel(V, ModelConfig(cell="lstn"))
    with pytest.raises(WeftError, match=r"'foo' is not known; expected one of: rnn, ") as caught:
        LanguageModel(V, ModelConfig(cell="foo"))
    assert "Try: for a cell of your own" in str(caught.value)  # no name is near


@pytest.mark.parametrize("shape", ["one-hot", "embedding", "projected"])
@pytest.mark.parametrize(
    "choice",
    [
        greedy,
        Sample(),
        Sample(0.7, top_k=4, top_p=0.8),
        Sample(min_p=0.1, typical_p=0.8),
        Sample(repetition_penalty=1.5, presence_penalty=0.2, frequency_penalty=0.1),
    ],
)
@pytest.mark.parametrize("end", [None, 10])
def test_the_samplers_own_loop_writes_what_single_steps_write(shape, choice, end):
    torch.manual_seed(3)
    model = make(shape).eval().double()
    if model.stream_layers() is None:
        pytest.skip("the engine is not built here")
    prompts = [[1], [2, 3, 4, 5], [6, 7]]
    settings = {"tokens": 90, "seed": 5, "banned": [0, 1], "end": end}
    fast = list(generate(model, prompts, choice, **settings))
    plain = SimpleNamespace(initial_state=model.initial_state, step=model.step, select=model.select)
    assert rows_written(fast) == rows_written(generate(plain, prompts, choice, **settings))
    assert all(len(row) == 90 for row in rows_written(fast)) or end


def rows_written(steps):
    return [[token for token in row if token >= 0] for row in zip(*steps, strict=True)]


def test_an_adaptive_softmax_samples_step_by_step():
    assert isinstance(token_engine(make("embedding").eval()), StreamEngine)
    assert isinstance(token_engine(make("adaptive").eval()), StepEngine)


def test_a_stack_with_residuals_samples_step_by_step():
    model = LanguageModel(V, SHAPES["tied"]).eval()
    assert model.stream_layers() is None
    assert len(list(generate(model, [[1]], Sample(), tokens=5))) == 5
