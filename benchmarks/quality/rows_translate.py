"""Translation from English to French, on the sentence pairs of tatoeba.org (mt/fra-eng)."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.quality.rows import Result, Row, data
from benchmarks.speed.translate import NOTES, NOTES_SENTENCES, decoding_speed, notes_pairs, training_speed
from weft.config import load_config
from weft.data.buckets import hold_out
from weft.metrics import sentence_bleu
from weft.tasks.translate.config import TranslateConfig
from weft.tasks.translate.predictor import TranslatePredictor
from weft.tasks.translate.task import TASK, start_translate
from weft.text.parallel import Pairs, open_pairs

PAIRS = ("mt", "fra-eng", "fra-eng.zip")
# Equal time, not equal steps: the learning rate is constant, and the EMA of the weights replaces its decay.
FOUR_MINUTES = [
    *("train.minutes=4", "train.epochs=100", "train.schedule=constant", "train.learning_rate=0.002"),
    "train.optimizer=adamw",
    "model.dropout=0.1",
]


def split() -> tuple[Pairs, Pairs]:
    """Training pairs, and test pairs (2 % of the source sentences); the same split for every seed."""
    pairs = open_pairs(f"{data(*PAIRS)}:fra-eng/fra.txt")
    sides = hold_out(pairs.sources, 0.02, seed=1)
    rest, test = (
        Pairs("fra-eng", [pairs.sources[row] for row in rows], [pairs.targets[row] for row in rows]) for rows in sides
    )
    return rest, test


def train(
    folder: Path, seed: int, sets: list[str], pairs: int | None = None
) -> tuple[TranslatePredictor, Pairs, float]:
    """Trains on the pairs that are not test pairs, or on that many of them."""
    rest, test = split()
    if pairs is not None:
        chosen = sorted(random.Random(seed).sample(range(len(rest)), pairs))
        rest = Pairs(rest.name, [rest.sources[row] for row in chosen], [rest.targets[row] for row in chosen])
    config = load_config(TranslateConfig, None, [*sets, f"train.seed={seed}"])
    training = start_translate(rest, folder / "run", config)
    for _ in training.trainer.run():
        pass
    return TASK.load(training.run), test, training.trainer.progress.seconds


def all_pairs(folder: Path, seed: int, sets: Sequence[str] = ()) -> Result:
    """All pairs, default settings with a few changes."""
    model, test, seconds = train(folder, seed, [*sets])
    greedy, beam = model.evaluate(test, beam=1), model.evaluate(test, beam=5)
    sources = list(dict.fromkeys(test.sources))
    speed = decoding_speed(model, sources)
    metrics = {
        "pairs": len(test),
        "beam 5": beam.bleu,
        "chrF": beam.chrf,
        "exact": beam.exact,
        "sentences/s, beam 5": speed.batched,
        "one at a time": speed.alone,
        "ratio": speed.ratio,
        "signature": beam.signature(),
    }
    return Result("BLEU, greedy", greedy.bleu, seconds, metrics)


def limited(minutes: float, *, threads: int, sets: Sequence[str] = ()) -> Callable[[Path, int], Result]:
    """All pairs with a time limit: as many epochs as the machine has time for."""

    def run(folder: Path, seed: int) -> Result:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return all_pairs(folder, seed, [f"train.minutes={minutes:g}", *sets])
        finally:
            torch.set_num_threads(before)

    return run


def by_beam(run: Callable[[Path, int], Result]) -> Callable[[Path, int], Result]:
    """The same row with the score of beam search."""

    def beam(folder: Path, seed: int) -> Result:
        found = run(folder, seed)
        metrics = {"greedy": found.score, **found.metrics}
        return replace(found, metric="BLEU, beam 5", score=metrics.pop("beam 5"), metrics=metrics)

    return beam


def some_pairs(pairs: int, sets: Sequence[str] = ()) -> Callable[[Path, int], Result]:
    """Default settings on fewer pairs."""

    def run(folder: Path, seed: int) -> Result:
        model, test, seconds = train(folder, seed, [*sets], pairs)
        greedy, beam = model.evaluate(test, beam=1), model.evaluate(test, beam=5)
        return Result("BLEU, beam 5", beam.bleu, seconds, {"greedy": greedy.bleu, "chrF": beam.chrf})

    return run


def four_minutes(*sets: str) -> Row:
    def run(folder: Path, seed: int) -> Result:
        model, test, seconds = train(folder, seed, [*FOUR_MINUTES, *sets])
        greedy, beam = model.evaluate(test, beam=1), model.evaluate(test, beam=5)
        steps = model.run.metrics()[-1]["step"]
        return Result("BLEU, greedy", greedy.bleu, seconds, {"beam 5": beam.bleu, "steps": steps})

    return Row(None, run, seeds=(1,))


def notes(folder: Path, seed: int) -> Result:
    """The setup of the study notes: the first 600 pairs, 2 layers of 32 units, 300 epochs, no held-out data."""
    config = load_config(TranslateConfig, None, [*NOTES, f"train.seed={seed}"])
    training = start_translate(notes_pairs(data(*PAIRS)), folder / "run", config)
    for _ in training.trainer.run():
        pass
    model = TASK.load(training.run)
    found = dict(zip(NOTES_SENTENCES, model.translate(list(NOTES_SENTENCES), beam=1), strict=True))
    scores = {
        text: sentence_bleu(NOTES_SENTENCES[text].split(" "), translation.split(" "))
        for text, translation in found.items()
    }
    loop, ours = (statistics.median(speeds) for speeds in training_speed(rounds=11, epochs=10))
    metrics = {f"{text} => {found[text]}": score for text, score in scores.items()}
    metrics |= {"tokens/s": ours, "the notes' loop": loop, "ratio": ours / loop}
    return Result(
        "mean BLEU of the notes' four sentences", sum(scores.values()) / 4, training.trainer.progress.seconds, metrics
    )


ROWS = {
    "mt/fra-eng": Row(35.0, all_pairs, seeds=(1,)),
    "mt/fra-eng, 14 min": Row(45.5, by_beam(limited(14, threads=2)), seeds=(1,)),
    # The dropout that the development pairs alone choose: docs/lab/translate-dropout.md.
    "mt/fra-eng, 14 min, dropout 0.05": Row(
        None, by_beam(limited(14, threads=2, sets=["model.dropout=0.05"])), seeds=(1, 2, 3)
    ),
    "mt/fra-eng, 4 min": Row(None, limited(4, threads=1), seeds=(1, 2, 3)),
    **{f"mt/fra-eng, {pairs:,} pairs": Row(None, some_pairs(pairs), seeds=(1,)) for pairs in (1_000, 10_000, 30_000)},
    "mt/fra-eng, notes": Row(None, notes),
    "mt/fra-eng, 4 min, additive": four_minutes("model.attention=additive"),
    "mt/fra-eng, 4 min, bilinear": four_minutes("model.attention=bilinear"),
    "mt/fra-eng, 4 min, dot": four_minutes("model.attention=dot"),
    "mt/fra-eng, 4 min, scaled dot": four_minutes("model.attention=scaled_dot"),
    "mt/fra-eng, 4 min, attention before the step": four_minutes(
        "model.decoder=attend_before", "model.attention=bilinear"
    ),
    "mt/fra-eng, 4 min, none (context)": four_minutes("model.decoder=context"),
    "mt/fra-eng, 4 min, none (state)": four_minutes("model.decoder=state"),
}
