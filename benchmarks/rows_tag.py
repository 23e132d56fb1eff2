"""Tagging and word segmentation on real data."""

from __future__ import annotations

from pathlib import Path

from benchmarks.rows import Result, Row, data
from weft.config import load_config
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.task import TASK, start_tag

FILES = {  # to train on, to hold out, to test
    "tag/en_ewt": ("en_ewt", *(f"en_ewt-ud-{part}.conllu.gz" for part in ("train", "dev", "test"))),
    "tag/wnut17": ("wnut17", "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    "tag/zh_gsdsimp": (
        "zh_gsdsimp",
        *(f"zh_gsdsimp-{part}.conllu.gz" for part in ("train-derived", "ud-dev", "ud-test")),
    ),
}
SETS = {  # the settings that a format requires
    "tag/en_ewt": ["data.tag_column=upos"],
    "tag/wnut17": [],
    "tag/zh_gsdsimp": ["data.task=segments"],
}


def paths(name: str) -> list[str]:
    folder, *files = FILES[name]
    return [str(data("tag", folder, file)) for file in files]


def row(name: str, goal: float, metric: str) -> Row:
    def run(out: Path, seed: int) -> Result:
        train, dev, test = paths(name)
        config = load_config(TagConfig, sets=[*SETS[name], f"train.seed={seed}"])
        training = start_tag(train, out / "run", config, dev=dev)
        for _ in training.trainer.run():
            pass
        progress = training.trainer.progress
        found = TASK.load(training.run).evaluate(test)
        dev_score = {f"dev {metric.removeprefix('test ')}": progress.best_metrics["score"]}
        return Result(metric, found.score(), progress.seconds, {**dev_score, **found.metrics()})

    return Row(goal, run, seeds=(1, 2, 3))


ROWS = {
    name: row(name, goal, metric)
    for name, goal, metric in (
        ("tag/en_ewt", 0.965, "test accuracy"),
        ("tag/wnut17", 0.30, "test span F1"),
        ("tag/zh_gsdsimp", 0.95, "test word F1"),
    )
}
