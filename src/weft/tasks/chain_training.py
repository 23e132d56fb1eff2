"""n-gram models and hidden Markov models of text: train one, and use it as any other language model."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.config import from_dict, to_dict
from weft.tasks.hmm.baum_welch import Iteration, fit_steps
from weft.tasks.hmm.config import HmmConfig
from weft.tasks.hmm.model import HMM
from weft.tasks.lm.predictor import Language
from weft.tasks.ngram.config import NgramConfig
from weft.tasks.ngram.model import NGram, modified_kneser_ney
from weft.tasks.task import DEV, TRAIN, open_text, store_data
from weft.text.codec import Codec
from weft.text.corpus import Corpus, open_tokens
from weft.training.run import WEIGHTS, Run, check_new, create_run, save_tensors

SAVE_SECONDS = 5.0  # between saves of the best model so far


def train_ngram(
    source: str | Corpus, out: str | Path, config: NgramConfig | None = None, *, dev: str | None = None
) -> Language:
    """Count the n-grams of a text, and load the model that they make."""
    check_new(Path(out))
    settings = config or NgramConfig()
    store = open_text(source, dev, settings.text)

    def fill(folder: Path) -> Mapping[str, Any]:
        vocabulary = store_data(store, folder, source, dev)
        size = len(Codec.from_json(vocabulary).vocabulary)
        model = modified_kneser_ney(open_tokens(folder / TRAIN, size), size, settings.model.order)
        save_tensors(folder / WEIGHTS, model.tensors(), {"size": size, "discounts": model.discounts})
        return vocabulary

    return load_ngram(create_run(Path(out), task="ngram", config=to_dict(settings), fill=fill))


def load_ngram(run: Run) -> Language:
    tensors, facts = run.load(WEIGHTS)
    model = NGram.from_tensors(tensors, facts["size"], [tuple(row) for row in facts["discounts"]])
    return Language(run, model, Codec.from_json(run.vocabulary))


@dataclass(frozen=True)
class HmmTraining:
    """A training made ready: walk through `steps()`."""

    run: Run
    codec: Codec
    train_tokens: int
    dev_tokens: int

    def steps(self) -> Generator[tuple[Iteration, Iteration], None, None]:
        """Each step of Baum-Welch beside the best so far, which is saved now and then and when you stop looking."""
        config = from_dict(HmmConfig, self.run.config)
        size, train = len(self.codec.vocabulary), config.train
        tokens = open_tokens(self.run.path / TRAIN, size)
        sequences = [tokens[begin : begin + train.seq_length] for begin in range(0, len(tokens), train.seq_length)]
        best, saved, began = None, None, time.perf_counter()
        last_save = began
        try:
            for number, (step, best) in enumerate(
                fit_steps(
                    sequences,
                    config.model.num_states,
                    size,
                    iterations=train.iterations,
                    tolerance=train.tolerance,
                    smoothing=train.smoothing,
                    restarts=train.restarts,
                    seed=train.seed,
                )
            ):
                now = time.perf_counter()
                nats = -step.log_likelihood / len(tokens)
                self.run.report({"step": number, "train_cross_entropy": nats, "seconds": round(now - began, 3)})
                yield step, best
                if now - last_save >= SAVE_SECONDS:
                    self._save(best)
                    saved, last_save = best, now
        finally:
            if best is not None and best is not saved:
                self._save(best)

    def _save(self, best: Iteration) -> None:
        self.run.save(WEIGHTS, best.model.tensors(), {"log_likelihood": best.log_likelihood})


def start_hmm(
    source: str | Corpus, out: str | Path, config: HmmConfig | None = None, *, dev: str | None = None
) -> HmmTraining:
    """Prepare the text, make the run directory, and stand before the first step."""
    check_new(Path(out))
    settings = config or HmmConfig()
    store = open_text(source, dev, settings.text)
    run = create_run(
        Path(out),
        task="hmm",
        config=to_dict(settings),
        fill=lambda folder: store_data(store, folder, source, dev),
    )
    codec = Codec.from_json(run.vocabulary)
    size = len(codec.vocabulary)
    train, dev_tokens = open_tokens(run.path / TRAIN, size), 0
    if run.has(DEV):
        dev_tokens = len(open_tokens(run.path / DEV, size))
    return HmmTraining(run, codec, len(train), dev_tokens)


def train_hmm(
    source: str | Corpus, out: str | Path, config: HmmConfig | None = None, *, dev: str | None = None
) -> Language:
    """Train a hidden Markov model to the end, in silence, and load it. `start_hmm` lets you watch."""
    training = start_hmm(source, out, config, dev=dev)
    for _ in training.steps():
        pass
    return load_hmm(training.run)


def load_hmm(run: Run) -> Language:
    return Language(run, HMM.from_tensors(run.load(WEIGHTS).tensors), Codec.from_json(run.vocabulary))
