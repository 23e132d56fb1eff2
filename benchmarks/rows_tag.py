"""Tagging and word segmentation on real data."""

from __future__ import annotations

from pathlib import Path

from benchmarks.rows import Result, Row, data
from weft.config import load_config
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.task import TASK, start_tag


def row(goal: float, metric: str, files: tuple[str, str, str, str], *sets: str) -> Row:
    """A row of a folder with three files; `sets` are the settings that its format requires."""
    folder, *names = files

    def run(out: Path, seed: int) -> Result:
        train, dev, test = (str(data("tag", folder, name)) for name in names)
        config = load_config(TagConfig, sets=[*sets, f"train.seed={seed}"])
        training = start_tag(train, out / "run", config, dev=dev)
        for _ in training.trainer.run():
            pass
        progress = training.trainer.progress
        found = TASK.load(training.run).evaluate(test)
        dev_score = {f"dev {metric.removeprefix('test ')}": progress.best_metrics["score"]}
        return Result(metric, found.score(), progress.seconds, {**dev_score, **found.metrics()})

    return Row(goal, run)


ROWS = {
    "tag/en_ewt": row(
        0.935,
        "test accuracy",
        ("en_ewt", *(f"en_ewt-ud-{part}.conllu.gz" for part in ("train", "dev", "test"))),
        "data.tag_column=upos",
    ),
    "tag/wnut17": row(
        0.25, "test span F1", ("wnut17", "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
    ),
    "tag/zh_gsdsimp": row(
        0.93,
        "test word F1",
        ("zh_gsdsimp", *(f"zh_gsdsimp-{part}.conllu.gz" for part in ("train-derived", "ud-dev", "ud-test"))),
        "data.task=segments",
    ),
}
