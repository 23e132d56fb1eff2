"""Held-out scores by precision: trained in float32 and in bf16, with three seeds each, and quantized to int8.

A score of bf16 is good if its mean is within the spread of the seeds of float32. The trainings are short: what is
compared is the arithmetic, not the models.

    python -m benchmarks.quality.precision [lm classify tag translate] [--seeds 1 2 3]

Without arguments it writes benchmarks/records/precision.json and the page made from it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import weft
from benchmarks.quality.rows import data
from tools.pages import write_pages
from tools.records import machine, stamp, write
from weft.text.parallel import Pairs, open_pairs


class Work(NamedTuple):
    """A training and its score."""

    task: str
    metric: str
    sources: Callable[[], tuple[Any, Any, Any]]  # to train on, to select by, to evaluate on
    settings: dict[str, Any]
    score: Callable[[Any, Any], float]


def _pairs() -> tuple[Any, Any, Any]:
    pairs = open_pairs(f"{data('mt', 'fra-eng', 'fra-eng.zip')}:fra-eng/fra.txt")
    parts = [(0, 12_000), (12_000, 12_300), (12_300, 13_000)]
    return tuple(Pairs("fra-eng", pairs.sources[a:b], pairs.targets[a:b]) for a, b in parts)  # type: ignore[return-value]


def _text() -> tuple[Any, Any, Any]:
    text = data("lm", "timemachine.txt").read_text(encoding="utf-8")
    cut = len(text) * 9 // 10
    return weft.Corpus.from_texts("train", [text[:cut]]), None, weft.Corpus.from_texts("test", [text[cut:]])


def _files(*parts: str) -> tuple[str, str, str]:
    train, dev, test = (str(data(*parts[:-3], name)) for name in parts[-3:])
    return train, dev, test


WORKS = {
    "lm": Work(
        "lm", "perplexity, The Time Machine", _text,
        {"train.epochs": 3}, lambda model, source: float(model.evaluate(source).perplexity),
    ),
    "classify": Work(
        "classify", "accuracy in %, SST-2",
        lambda: _files("cls", "sst2", "stsa.binary.train", "stsa.binary.dev", "stsa.binary.test"),
        {"train.epochs": 2}, lambda model, source: 100 * model.evaluate(source).accuracy,
    ),
    "tag": Work(
        "tag", "span F1 in %, WNUT 17",
        lambda: _files("tag", "wnut17", "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        {"train.epochs": 4}, lambda model, source: 100 * model.evaluate(source).score(),
    ),
    "translate": Work(
        "translate", "chrF, 12,000 pairs of fra-eng", _pairs,
        {"train.epochs": 3}, lambda model, source: float(model.evaluate(source).chrf),
    ),
}  # fmt: skip


def scores(work: Work, seed: int) -> dict[str, float]:
    """Scores by how a model was trained and run: "float32", "bf16", and the float32 model as "int8"."""
    train, dev, test = work.sources()
    found = {}
    for name in ("float32", "bf16"):
        with tempfile.TemporaryDirectory() as folder:
            settings = {**work.settings, "train.seed": seed, "train.precision": name}
            model = weft.train(work.task, train, Path(folder) / "run", settings, dev=dev, progress=False)
            with weft.precision(name):
                found[name] = work.score(model, test)
            if name == "float32":
                found["int8"] = work.score(weft.quantize(model), test)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("works", nargs="*", default=list(WORKS), help="what to train")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    found = []
    for name in given.works:
        work = WORKS[name]
        by_seed = [scores(work, seed) for seed in given.seeds]
        kinds = {kind: [round(row[kind], 3) for row in by_seed] for kind in ("float32", "bf16", "int8")}
        exact, low, whole = kinds.values()
        found.append(
            {
                "work": f"{name}: {work.metric}",
                **kinds,
                "difference": round(statistics.mean(low) - statistics.mean(exact), 3),
                "spread": round(max(exact) - min(exact), 3),
                "largest change": round(max(abs(b / a - 1) for a, b in zip(exact, whole, strict=True)), 5),
            }
        )
        print(found[-1], flush=True)
    if given.works == list(WORKS) and given.seeds == [1, 2, 3]:
        parts = ["benchmarks/quality/precision.py::scores", "benchmarks/quality/precision.py::WORKS"]
        write(
            "precision",
            {"command": "python -m benchmarks.quality.precision", **stamp(parts), **machine(), "rows": found},
        )
        write_pages()


if __name__ == "__main__":
    main()
