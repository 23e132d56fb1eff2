"""The paired bootstrap test, and the statistics of single examples that the tasks give to it."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import probes
from weft.config import load_config
from weft.metrics import ExampleStatistics, Translations, paired_bootstrap
from weft.metrics.bleu import bleu_of_sums
from weft.metrics.paired import f1_score, ratio
from weft.tasks import get_task

PREDICTED = ["le roi voit un chien", "la reine", "un deux trois quatre cinq six", "rien de bon", ""]
TRUE = ["le roi voit le chien", "la reine dort bien ici", "un deux trois quatre cinq", "tout autre chose", "vide"]


@pytest.mark.parametrize("rows", [[0], [0, 1], [0, 1, 2, 3, 4], [3], [4], [1, 1, 3], [2, 2, 0]])
def test_bleu_of_sums_is_corpus_bleu(rows):
    statistics = Translations.of(PREDICTED, TRUE).bleu_statistics()
    expected = Translations.of([PREDICTED[row] for row in rows], [TRUE[row] for row in rows]).bleu
    assert bleu_of_sums(statistics[rows].sum(0)) == pytest.approx(expected, abs=1e-9)


def test_resampling_by_hand():
    generator = np.random.default_rng(5)
    first, second = (
        ExampleStatistics("f1", "sentence", "f1", generator.integers(low, 9, (40, 3)).astype(float), f1_score)
        for low in (0, 3)
    )
    found = paired_bootstrap(first, second, resamples=4000)
    assert found.difference == f1_score(second.sums.sum(0)) - f1_score(first.sums.sum(0))
    naive = []
    for _ in range(4000):
        rows = generator.integers(0, 40, 40)
        naive.append(f1_score(second.sums[rows].sum(0)) - f1_score(first.sums[rows].sum(0)))
    low, high = np.quantile(naive, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.15 * (high - low))
    same = paired_bootstrap(first, first)
    assert same == (0, 0, 0, 1)


def test_the_examples_are_resampled_together():
    """Models that differ by the same small step on all examples differ significantly."""
    losses = np.random.default_rng(1).exponential(3.0, 100)
    first, second = (
        ExampleStatistics("cross_entropy", "text", "", np.stack([losses + step, np.ones(100)], 1), ratio)
        for step in (0.0, 0.01)
    )
    found = paired_bootstrap(first, second)
    assert found.p_value == 0
    assert found.low == pytest.approx(0.01)


TAGGED = [
    (words.split(), tags.split())
    for words, tags in (
        ("Ada Byron wrote", "B-PER I-PER O"),
        ("she saw Paris", "O O B-LOC"),
        ("Paris saw Ada", "B-LOC O B-PER"),
        ("nobody wrote", "O O"),
        ("Ada saw nobody", "B-PER O O"),
        ("in Paris", "O B-LOC"),
    )
]
SETTINGS = {
    "tag": (TAGGED, ["model.hidden_size=6", "model.embedding_dim=5", "data.holdout=0.5"]),
    "translate": ("grammar-fr", ["model.hidden_size=8", "model.embedding_dim=6", "text.limit=100"]),
    "classify": ("grammar", ["model.hidden_size=6", "model.embedding_dim=5"]),
    "hmm": ("grammar", ["text.limit=12000", "model.num_states=2", "train.iterations=1", "text.tokenizer=word"]),
}


@pytest.mark.parametrize("task", SETTINGS)
def test_every_task_sums_to_its_evaluation(task, tmp_path):
    source, settings = SETTINGS[task]
    own = get_task(task)
    config = load_config(own.config_class, None, settings)
    if task == "hmm":
        own.train(source, tmp_path / "run", config, progress=False)
    else:
        own.start(source, tmp_path / "run", config)
    model = weft.load(tmp_path / "run")
    found = {one.metric: float(one.score(one.sums.sum(0))) for one in model.held_out_statistics()}
    if task == "translate":
        expected = {"bleu": model.evaluate_held_out(beam=1).bleu}
        from weft.tasks.translate.data import held_out_pairs

        expected["cross_entropy"] = model.likelihood(held_out_pairs(model.run)).cross_entropy
    elif task == "tag":
        scores = model.evaluate_held_out()
        expected = {"f1": scores.score(), "accuracy": scores.words.accuracy}
    elif task == "hmm":
        expected = {"cross_entropy": model.evaluate_held_out().cross_entropy}
    else:
        scores = model.evaluate_held_out()
        expected = {"accuracy": scores.accuracy, "cross_entropy": scores.cross_entropy}
    # The blocks of a text are read by themselves, so the cross-entropy of an HMM is only close.
    assert found == pytest.approx(expected, rel=0.05 if task == "hmm" else 1e-6)
    if task != "classify":
        return
    compared = probes.compare_run_results([model.run.path, model.run.path])
    assert [test.metric for test in compared.tests] == list(found)
    assert {(test.difference, test.p_value, test.better) for test in compared.tests} == {(0, 1, "neither")}
