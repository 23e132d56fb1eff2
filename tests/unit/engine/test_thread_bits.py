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
from weft.text.corpus import Corpus
from weft.text.parallel import Pairs
from weft.training.run import WEIGHTS, load_tensors

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


def test_weights_of_hidden_markov_models_and_n_grams(tmp_path):
    def weights(number):
        settings = {"train.iterations": 2, "model.num_states": 12}
        weft.train_hmm(TEXT, tmp_path / f"hmm{number}", settings, progress=False)
        weft.train_ngram(TEXT, tmp_path / f"ngram{number}", progress=False)
        return [hash_of(load_tensors(tmp_path / f"{name}{number}" / WEIGHTS).tensors) for name in ("hmm", "ngram")]

    found = on_all_threads(weights)
    assert all(found[number] == found[1] for number in THREADS), found


def test_weights_of_forecasts(tmp_path):
    random = np.random.default_rng(0)
    lines = ["time," + ",".join(f"s{number}" for number in range(30))]
    values = random.normal(0, 1, (120, 30)).cumsum(0) + np.resize(random.normal(0, 3, 12), 120)[:, None]
    for month, row in enumerate(values):
        lines.append(f"{2000 + month // 12}-{month % 12 + 1:02}," + ",".join(f"{value:.3f}" for value in row))
    (tmp_path / "series.csv").write_text("\n".join(lines) + "\n")

    def weights(number):
        out = tmp_path / str(number)
        weft.train_forecast(tmp_path / "series.csv", out, horizon=6, progress=False)
        return hash_of(load_tensors(out / WEIGHTS).tensors)

    found = on_all_threads(weights)
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
