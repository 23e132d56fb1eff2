"""Weights and results have the same bits for any number of threads: of every kind of layer, and of every trained task.

The sizes are such that torch, NumPy and the engine do divide the work: torch begins at 32,768 elements.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from tests.unit.tasks.test_weights import hash_of, tagged_sentences
from weft.engine import library, reproducible, thread_count
from weft.nn import make_stack
from weft.tasks import get_task
from weft.tasks.forecast.config import MODEL_KINDS
from weft.text.corpus import Corpus
from weft.text.parallel import Pairs
from weft.training.run import CHECKPOINT, WEIGHTS, load_tensors

THREADS = (1, 2, 3, 4, 8)
pytestmark = pytest.mark.skipif(library() is None, reason="the promise is the engine's")


@pytest.fixture(autouse=True)
def threads():
    """The number of threads is set back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def on_all_threads(compute):
    """What `compute` returns with each number of threads, by that number."""
    found = {}
    for number in THREADS:
        torch.set_num_threads(number)
        found[number] = compute(number)
    return found


@pytest.mark.parametrize("rows", [1, 3, 33, 70])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn", "multi-head-lstm", "sru"])
def test_gradients_of_a_stack(cell, rows):
    torch.manual_seed(0)
    stack = make_stack(cell, 20, 48, layers=2, bidirectional=True)
    x, lengths = torch.randn(rows, 9, 20), torch.randint(0, 10, (rows,))
    lengths[0] = 9

    def gradients(number):
        stack.zero_grad()
        inputs = x.clone().requires_grad_()
        outputs, _ = stack(inputs, lengths=lengths)
        outputs.sin().sum(-1).mean(-1).sum().backward()
        return [outputs.detach(), inputs.grad, *(parameter.grad.clone() for parameter in stack.parameters())]

    found = on_all_threads(gradients)
    for number in THREADS[1:]:
        assert all(map(torch.equal, found[1], found[number])), number


def test_sums_of_torch_and_numpy():
    """What torch and NumPy divide among their threads, and do not where results are to be reproducible."""
    torch.manual_seed(0)
    x = torch.randn(700, 300)

    def sums(number):
        before = torch.get_num_threads()
        with reproducible():
            assert torch.get_num_threads() == 1
            with reproducible():
                assert thread_count() == number
            found = [x.sum(), x[:64, :100].t() @ x[64:128, :100], torch.from_numpy(x.numpy().T @ x.numpy())]
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == before == thread_count()
        return found

    found = on_all_threads(sums)
    for number in THREADS[1:]:
        assert all(map(torch.equal, found[1], found[number])), number


def test_threads_are_set_back_after_a_mistake():
    torch.set_num_threads(3)
    with pytest.raises(ValueError, match="mistake"), reproducible():
        raise ValueError("mistake")
    assert torch.get_num_threads() == thread_count() == 3


LAYERS = {"model.hidden_size": 64, "model.embedding_dim": 48, "batch.size": 40}
CASES: dict[str, dict[str, Any]] = {
    "lm": {**LAYERS, "batch.seq_length": 24, "model.num_layers": 2, "model.dropout": 0.2},
    "lm muon": {**LAYERS, "batch.seq_length": 24, "train.optimizer": "muon"},
    "lm adaptive": {**LAYERS, "model.softmax": "adaptive", "text.tokenizer": "word"},
    "fill": {**LAYERS, "model.embedding_dim": 64},
    "classify": {**LAYERS, "model.pooling": "attention"},
    "tag": {"model.hidden_size": 64},
    "translate": {**LAYERS, "model.attention": "additive"},
}
TAGGED = tagged_sentences(400)
SENTENCES = [" ".join(words) for words, _ in TAGGED]
TEXT = Corpus.from_texts("text", ["\n".join(SENTENCES)])
LABELLED = [(sentence, str(len(sentence) % 3)) for sentence in SENTENCES[:150]]
SOURCES = {
    "lm": TEXT,
    "fill": TEXT,
    "classify": LABELLED,
    "tag": TAGGED[:100],
    "translate": Pairs("pairs", SENTENCES[:100], [sentence[::-1] for sentence in SENTENCES[:100]]),
}


@pytest.mark.parametrize(("name", "precision"), [*((name, "float32") for name in CASES), ("lm muon", "bf16")])
def test_weights_of_a_trained_task(name, precision, tmp_path: Path):
    """The weights after two steps, with the losses of these."""
    task = get_task(name.split()[0])
    settings = {"train.epochs": 60, "train.precision": precision, **CASES[name]}

    def weights(number):
        training = task.start(SOURCES[task.name], tmp_path / str(number), settings)
        steps = list(itertools.islice((step for step in training.trainer.run() if not step.note), 2))
        assert len(steps) == 2
        return hash_of(training.model.state_dict()), [step.loss.total for step in steps]

    found = on_all_threads(weights)
    assert all(found[number] == found[1] for number in THREADS), found


def random_walks(count, steps):
    """Series with a season, one a row."""
    random = np.random.default_rng(0)
    season = np.resize(random.normal(0, 3, 12), steps)
    return list(random.normal(0, 1, (count, steps)).cumsum(1) + season)


def labelled_series():
    walks = [np.stack([walk, walk**2], 1) for walk in random_walks(60, 80)]
    return [(values, "up" if values[-1, 0] > values[0, 0] else "down") for values in walks]


def forecasts(kind):
    """Trains a forecaster of a kind; a network with products and sums that torch would divide."""
    settings = {"model.kind": kind, "model.horizon": 6, "model.season": 12}
    if kind not in ("linear", "baselines", "hmm"):
        settings |= {"model.hidden_size": 48, "train.epochs": 1}
    return lambda out: weft.train_forecast(random_walks(24, 84), out, settings, progress=False)


SHORT = {**LAYERS, "train.epochs": 1}
PARTS_OF_AUTO = ("linear", "baselines", "direct")
WHOLE = {
    "classify": lambda out: weft.train_classify(LABELLED, out, {**SHORT, "model.pooling": "attention"}, progress=False),
    "classify series": lambda out: weft.train_classify(labelled_series(), out, SHORT, progress=False),
    "hmm": lambda out: weft.train_hmm(TEXT, out, {"train.iterations": 2, "model.num_states": 12}, progress=False),
    "ngram": lambda out: weft.train_ngram(TEXT, out, progress=False),
    **{f"forecast {kind}": forecasts(kind) for kind in MODEL_KINDS if kind not in PARTS_OF_AUTO},
}


@pytest.mark.parametrize("name", WHOLE)
def test_weights_of_a_whole_training(name, tmp_path: Path):
    """All that a run predicts with: networks, linear models, counts, smoothing; as its files hold it."""

    def weights(number):
        out = tmp_path / str(number)
        WHOLE[name](out)
        files = sorted(file for file in out.glob("*.safetensors") if file.name != CHECKPOINT)
        return {file.name: hash_of(load_tensors(file).tensors) for file in files}

    found = on_all_threads(weights)
    assert WEIGHTS in found[1]
    assert ("linear.safetensors" in found[1]) == name.startswith("classify")
    assert all(found[number] == found[1] for number in THREADS), found


def test_operations(tmp_path):
    """A classifier's probabilities and an evaluation, of a predictor's operations."""
    settings = {**LAYERS, "model.pooling": "attention", "train.epochs": 1}
    weft.train_classify(LABELLED, tmp_path / "run", settings, progress=False)
    model = weft.load(tmp_path / "run", weft.ClassifyPredictor)
    texts = [text for text, _ in LABELLED]

    def results(number):
        records = list(model.operations["classify"].results(model, texts, {"probabilities": True}))
        return [record.to_json() for record in records], model.evaluate(LABELLED)

    found = on_all_threads(results)
    assert all(str(found[number]) == str(found[1]) for number in THREADS)
