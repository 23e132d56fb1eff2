"""Tagging and word segmentation on real data, alone and with raw text."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

from benchmarks.quality.rows import Result, Row, data
from benchmarks.quality.rows_classify import SPLITS
from benchmarks.quality.rows_translate import PAIRS
from weft.config import as_config, load_config, to_dict
from weft.tasks.members import trained_members
from weft.tasks.pretraining import encoder_settings, start_pretraining
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.task import TASK, start_tag
from weft.text.corpus import Corpus
from weft.text.parallel import open_pairs

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
MEMBERS = 3


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


def english_text() -> Corpus:
    """Raw English text of about 4.1 million words: WikiText-2, sentences of tatoeba.org, film reviews."""
    with gzip.open(data("lm", "wikitext-2", "train.txt.gz"), "rt", encoding="utf-8") as file:
        articles = [line.strip() for line in file if line.strip() and not line.startswith(" =")]
    for mark in "-,.":
        articles = [line.replace(f" @{mark}@ ", mark) for line in articles]
    sentences = dict.fromkeys(open_pairs(f"{data(*PAIRS)}:fra-eng/fra.txt").sources)
    train, dev, _ = SPLITS["cls/imdb-subset"]()
    reviews = [one.value.replace("<br />", " ") for part in (train, dev or []) for one in part]
    return Corpus.from_texts("raw text", ["\n".join(part) for part in (articles, sentences, reviews)])


def chinese_text() -> Corpus:
    """Raw Chinese text of about a million characters: the training texts of ChnSentiCorp."""
    return Corpus.from_texts("raw text", ["\n".join(one.value for one in SPLITS["cls/chnsenticorp"]()[0])])


def ensemble(name: str, goal: float, metric: str, raw: Callable[[], Corpus] | None) -> Row:
    """`weft train tag --members 3`; with raw text, `--pretrain raw.txt` too."""

    def run(out: Path, seed: int) -> Result:
        train, dev, test = paths(name)
        sets = [*SETS[name], f"train.seed={seed}", f"train.members={MEMBERS}"]
        encoder, base, pretraining = None, None, 0.0
        if raw is not None:
            language = start_pretraining(TASK, raw(), train, out / "run", load_config(TagConfig, sets=sets))
            for _ in language.trainer.run():
                pass
            encoder, pretraining = language.run.path, language.trainer.progress.all_seconds
            base = to_dict(as_config(TagConfig, encoder_settings(TASK, language.run)))
        config = load_config(TagConfig, sets=sets, base=base)
        training = start_tag(train, out / "run", config, dev=dev, encoder=encoder)
        for _ in training.trainer.run():
            pass
        progress = training.trainer.progress
        found = TASK.load_run(training.run).evaluate(test)
        score = metric.removeprefix("test ")
        members = [TASK.load(one) for one in trained_members(training.run)]
        metrics = {
            f"dev {score}": progress.best_metrics["score"],
            **({"minutes of pretraining": round(pretraining / 60, 1)} if pretraining else {}),
            **{f"member {n}": one.evaluate(test).score() for n, one in enumerate(members, start=1)},
            **{f"member {n}, dev": one.evaluate(dev).score() for n, one in enumerate(members, start=1)},
            **found.metrics(),
        }
        return Result(metric, found.score(), pretraining + progress.all_seconds, metrics)

    return Row(goal, run, seeds=(1,))


GOALS = {
    "tag/en_ewt": (0.965, "test accuracy"),
    "tag/wnut17": (0.30, "test span F1"),
    "tag/zh_gsdsimp": (0.95, "test word F1"),
}
ROWS = {
    **{name: row(name, *goal) for name, goal in GOALS.items()},
    **{
        f"{name}, raw text": ensemble(name, *goal, chinese_text if name == "tag/zh_gsdsimp" else english_text)
        for name, goal in GOALS.items()
    },
    "tag/zh_gsdsimp, 3 members": ensemble("tag/zh_gsdsimp", *GOALS["tag/zh_gsdsimp"], None),
}
