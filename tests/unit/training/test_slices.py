"""Batches in slices: the sum of the slices is the batch, and its bits do not depend on the number of workers."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
import torch

import weft
from tests.long.kill_runs import differences
from tests.program import fails, succeeds
from weft.config import load_config
from weft.data.buckets import Buckets
from weft.data.sharing import shared_map, shared_parts, sharing
from weft.data.windows import RandomWindows, SequentialWindows
from weft.tasks import get_task
from weft.text.corpus import Corpus
from weft.text.parallel import Pairs
from weft.training.distributed import Workers, slices_for, split_evenly
from weft.training.slices import sum_slices


class ThreadWorkers(Workers):
    """Workers that are threads of one process."""

    def __init__(self, rank, size, board, barrier):
        super().__init__(rank, size)
        self.board, self.barrier = board, barrier

    def _post(self, value):
        self.board[self.rank] = value
        self.barrier.wait(10)
        found = list(self.board)
        self.barrier.wait(10)
        return found

    def exchange(self, pieces, sizes):
        received = [sent[self.rank].clone() for sent in self._post(pieces)]
        assert [len(piece) for piece in received] == sizes
        return received

    def collect(self, piece):
        return torch.stack(self._post(piece))

    def gather(self, value):
        return self._post(value)


def in_threads(size, function):
    """What `function(workers)` returns in each of `size` threads."""
    board, barrier, results = [None] * size, threading.Barrier(size), [None] * size

    def run(rank):
        try:
            results[rank] = function(ThreadWorkers(rank, size, board, barrier))
        except BaseException:
            barrier.abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 6, 7, 8, 13])
def test_the_sum_of_slices_has_the_same_bits_for_every_number_of_workers(slices):
    # Values of very different sizes, so that another order of additions gives other bits.
    vectors = torch.randn(slices, 11) * 10.0 ** torch.randint(-6, 6, (slices, 11))

    def total(workers):
        own = split_evenly(slices, workers.size)[workers.rank]
        parts = (vectors[number].clone() for number in own)
        return sum_slices(workers, slices, parts, [workers.rank, 0.1], like=vectors[0])

    expected, _ = total(Workers())
    torch.testing.assert_close(expected.double(), vectors.double().sum(0), rtol=1e-4, atol=1e-4)
    for size in (2, 3, 4, 5):
        for found, notes in in_threads(size, total):
            assert found.equal(expected), size
            assert notes.tolist() == [[rank, 0.1] for rank in range(size)]


def test_another_order_of_additions_would_be_noticed():
    torch.manual_seed(0)
    vectors = torch.randn(8, 101) * 10.0 ** torch.randint(-6, 6, (8, 101))
    tree, _ = sum_slices(Workers(), 8, (vector.clone() for vector in vectors), [], like=vectors[0])
    in_order = vectors[0].clone()
    for vector in vectors[1:]:
        in_order += vector
    assert not tree.equal(in_order)


def test_shared_work_returns_everything_in_order_for_any_number_of_items():
    for items, size in itertools.product((0, 1, 5, 6), (1, 2, 4)):
        done = []

        def work(workers, items=items, done=done):
            with sharing(3, workers.map):
                assert shared_parts() == 3
                return shared_map(lambda one: done.append(one) or one**2, range(items))

        results = in_threads(size, work)
        assert results == [[item**2 for item in range(items)]] * size
        assert sorted(done) == list(range(items))  # each once, whoever did it


def test_slices_of_an_epoch_are_its_rows_each_once():
    lengths = np.array([3, 9, 1, 4, 4, 7, 2, 8, 5, 1, 6])
    buckets = Buckets(lengths, 20, 4, 5, lambda rows: rows.tolist())
    for slices in (2, 3, 5):
        for whole, read in zip(buckets.epoch(2, 1), buckets.sliced_epoch(2, 1, slices), strict=True):
            parts = [part for number in range(slices) if (part := read(number)) is not None]
            assert sorted(row for part in parts for row in part) == sorted(whole)
    tokens = np.arange(400, dtype=np.uint16)
    for kind in (SequentialWindows, RandomWindows):
        windows = kind(tokens, 5, 7, 3)
        for slices in (2, 7):
            for whole, read in zip(windows.epoch(1, 2), windows.sliced_epoch(1, 2, slices), strict=True):
                parts = [part for number in range(slices) if (part := read(number)) is not None]
                assert torch.cat([part.inputs for part in parts]).equal(whole.inputs)
                assert torch.cat([part.targets for part in parts]).equal(whole.targets)
                assert {part.reset_state for part in parts} == {whole.reset_state}


WORDS = ["ab", "ba", "abc", "cab", "Bab"]
SENTENCES = [" ".join(WORDS[(row * 7 + place * 3) % 5] for place in range(1 + row * row % 9)) for row in range(60)]
TEXT = Corpus.from_texts("text", ["\n".join(SENTENCES)])
SMALL = {"model.hidden_size": 8, "model.embedding_dim": 8, "model.dropout": 0.0, "train.epochs": 9}
CASES = {
    "lm": (TEXT, {"batch.size": 5, "batch.seq_length": 9}),
    "fill": (TEXT, {"batch.size": 5, "batch.seq_length": 9, "batch.mask_rate": 0.0}),
    "classify": (
        [(text, str(len(text) % 2)) for text in SENTENCES],
        {"model.embedding_dropout": 0.0, "model.word_dropout": 0.0, "batch.size": 7},
    ),
    "tag": (
        [(text.split(), ["B-X" if word == "Bab" else "O" for word in text.split()]) for text in SENTENCES],
        {
            "model.embedding_dropout": 0.0,
            "model.word_dropout_alpha": 0.0,
            "batch.mention_replacement": 0.0,
            "batch.size": 7,
        },
    ),
    "translate": (
        Pairs("pairs", SENTENCES, [text[::-1] for text in SENTENCES]),
        {"batch.size": 7, "train.label_smoothing": 0.1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_in_slices_has_the_gradient_of_the_whole_batch(name, tmp_path):
    """Without dropout, the steps of a training in slices are those of a training without, up to rounding."""
    source, settings = CASES[name]
    found = []
    for slices in (1, 3):
        config = {**SMALL, **settings, "train.slices": slices}
        training = get_task(name).start(source, tmp_path / str(slices), config)
        steps = list(itertools.islice(training.trainer.run(), 3))
        found.append(([step.loss for step in steps], [step.grad_norm for step in steps]))
    (losses, norms), (sliced_losses, sliced_norms) = found
    assert [loss.count for loss in sliced_losses] == [loss.count for loss in losses]
    assert [loss.total for loss in sliced_losses] == pytest.approx([loss.total for loss in losses], rel=1e-4)
    assert sliced_norms == pytest.approx(norms, rel=1e-3)


def test_slices_of_a_hidden_markov_model_add_up(tmp_path):
    config = {"model.num_states": 4, "train.iterations": 5, "train.seq_length": 50}
    models = [
        weft.train_hmm(TEXT, tmp_path / str(slices), {**config, "train.slices": slices}, progress=False).model
        for slices in (1, 3)
    ]
    torch.testing.assert_close(models[0].emission, models[1].emission)
    assert not models[0].emission.equal(models[1].emission)  # the order of additions differs


def test_settings_for_workers():
    config = load_config(weft.LmConfig)
    workers = ThreadWorkers(0, 3, [], None)
    assert slices_for(Workers(), config) is config
    assert slices_for(workers, config).train.slices == 3
    assert slices_for(workers, load_config(weft.LmConfig, sets={"train.slices": 6})).train.slices == 6
    with pytest.warns(weft.WeftWarning, match="not a multiple of 3 workers"):
        slices_for(workers, load_config(weft.LmConfig, sets={"train.slices": 4}))
    with pytest.raises(weft.WeftError, match=r"train\.slices is 1, and there are 3 workers"):
        slices_for(workers, config, resumed=True)


WORKER_CASES = {
    "lm": ["batch.seq_length=20", "train.evaluate_every=9"],
    "fill": ["model.embedding_dim=16", "batch.seq_length=20"],
    "classify": ["model.embedding_dim=16", "train.evaluate_every=5"],
    "tag": [],
    "translate": ["model.embedding_dim=16"],
    "hmm": ["model.num_states=5", "train.iterations=3"],
    "forecast": ["model.kind=recurrent", "model.season=6", "model.horizon=4"],
}


@pytest.mark.parametrize("task", WORKER_CASES)
def test_two_workers_train_the_model_of_one(task, tmp_path):
    """Weights, optimizer, carried state and metrics are equal bit for bit, with 3 threads and with 1; rank 0 prints."""
    rows = {
        "lm": SENTENCES * 9,
        "classify": [f"{len(text) % 2}\t{text}" for text in SENTENCES * 3],
        "tag": [
            "\n".join(f"{word}\t{'B-X' if word == 'Bab' else 'O'}" for word in text.split()) + "\n"
            for text in SENTENCES
        ],
        "translate": [f"{text}\t{text[::-1]}" for text in SENTENCES * 2],
    }
    rows["fill"] = rows["hmm"] = rows["lm"]
    rows["forecast"] = ["ds,y", *(f"{day},{day % 6 + 0.1 * (day * 7 % 5)}" for day in range(90))]
    data = tmp_path / (
        "text.txt" if task in ("lm", "fill", "hmm") else "rows.csv" if task == "forecast" else "rows.tsv"
    )
    data.write_text("\n".join(rows[task]) + "\n", encoding="utf-8")
    train = ["train", task, "--data", data]
    if task != "hmm":
        train += ["--epochs", 2, "--set", "model.hidden_size=16"]
    for setting in WORKER_CASES[task]:
        train += ["--set", setting]
    one = succeeds(*train, "--out", tmp_path / "one", "--set", "train.slices=2", "--threads", 3)
    two = succeeds(*train, "--out", tmp_path / "two", "--workers", 2, "--threads", 1)
    assert differences(tmp_path / "one", tmp_path / "two") == []
    if task == "lm":
        assert two.stdout.replace("two", "one").split(";")[1] == one.stdout.split(";")[1]
        assert two.stderr.count("vocabulary of") == 1
        message = fails(*train, "--out", tmp_path / "two", "--workers", 2)
        assert message.count("exists already") == 1
