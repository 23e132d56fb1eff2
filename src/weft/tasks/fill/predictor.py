"""Filling blanks: train a model that reads from both sides, load it, let it fill, measure it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from weft.cells import State
from weft.config import from_dict
from weft.data.windows import Passage, RandomWindows, Tokens, Window
from weft.decoding.blanks import FilledBlanks
from weft.errors import WeftError
from weft.metrics import TokenPredictions
from weft.tasks.fill.blanks import Blanked
from weft.tasks.fill.config import FillConfig
from weft.tasks.fill.model import Filler
from weft.tasks.hmm.model import HMM
from weft.tasks.task import (
    Text,
    Training,
    device,
    encoded,
    held_out,
    resume_training,
    start_training,
    text_task,
)
from weft.text.arguments import check_text
from weft.text.codec import Codec
from weft.text.corpus import Corpus
from weft.text.vocabulary import RESERVED
from weft.text.word_tokenizer import WordTokenizer
from weft.training.loss import Loss
from weft.training.run import Run, open_run
from weft.training.trainer import Evaluation, Trainer

WIDTH = 100  # ways kept while several blanks are filled one after the other


def start_fill(source: str | Corpus, out: str | Path, config: FillConfig, *, dev: str | None = None) -> Training:
    """Prepare the text, make the run directory with all that resuming needs, and stand before the first step."""
    return start_training(FILL, source, out, config, dev=dev)


def train_fill(
    source: str | Corpus, out: str | Path, config: FillConfig | None = None, *, dev: str | None = None
) -> Filling:
    """Train a model that fills blanks to the end, in silence, and load it. `start_fill` lets you watch."""
    training = start_fill(source, out, config or FillConfig(), dev=dev)
    for _ in training.trainer.run():
        pass
    return load_fill(training.run)


def resume_fill(run: Run, config: FillConfig | None = None, *, source: str | None = None) -> Training:
    """Stand where the run's last save stood; see `resume_training`."""
    return resume_training(FILL, run, config, source=source)


def _prepare(run: Run, config: FillConfig, text: Text) -> tuple[Trainer, State]:
    stream = RandomWindows(text.train, config.batch.size, config.batch.seq_length, config.train.seed)
    model = Filler(len(text.codec.vocabulary), config.model).to(device(config.train.device))
    dev = text.dev

    def objective(window: Window, carried: State) -> Loss:
        """Every token of every row at once; what the row shows of its tokens has blanks in it."""
        return model.loss(Passage(model.hide(window.inputs, config.batch.mask_rate), window.inputs))

    def evaluate() -> Evaluation:
        assert dev is not None
        found = model.eval().guess(dev)
        nats, perplexity = found.likelihood.cross_entropy, found.likelihood.perplexity
        return Evaluation(nats, {"nats": nats, "perplexity": perplexity, "accuracy": found.accuracy})

    return Trainer(model, stream, objective, config.train, evaluate=None if dev is None else evaluate, run=run), None


FILL = text_task("fill", FillConfig, _prepare)


@dataclass(frozen=True)
class Answer:
    """One way to fill the blanks of a text: what goes into each, the whole text, and how likely that is."""

    fills: tuple[str, ...]
    text: str
    probability: float


class BlankModel(Protocol):
    """A model that fills blanks, whatever is inside: a recurrent one that reads from both ends, an HMM."""

    @property
    def reads(self) -> str: ...

    @property
    def blank(self) -> int:
        """The id that stands for a missing token."""
        ...

    def best(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        """The likeliest ways to fill the blanks of one row, with their joint log-probabilities."""
        ...

    def guess(self, tokens: Tokens) -> TokenPredictions: ...


@dataclass(frozen=True)
class Filling:
    """A trained model that fills blanks, ready for use."""

    run: Run
    model: BlankModel
    codec: Codec

    @property
    def reads(self) -> str:
        return self.model.reads

    def fill(self, text: str, n: int = 5, *, tokens: int = 1, width: int = WIDTH) -> list[Answer]:
        """The `n` likeliest ways to fill the blanks (`___`) of the text, likeliest first.

        A blank stands for `tokens` tokens; 0 means as many as it has underscores. The probability is that of all
        blanks together, and over all ways to fill them with tokens the model knows it sums to 1. For one token it
        is exact; for several, `width` ways are kept while they are filled from left to right.
        """
        if n < 1:
            raise WeftError(f"{n} answers are wanted", expected="1 or more")
        blanked = Blanked.read(check_text(text))
        ids = blanked.ids(self.codec, self.model.blank, tokens)
        answers = []
        for filled in self.model.best(ids, n, width=width, banned=self._no_answers()):
            rest = iter(filled.ids)
            fills = [self.codec.decode([next(rest) for _ in range(count)]) for count in blanked.widths(tokens)]
            answers.append(Answer(tuple(fills), blanked.filled(self.codec, fills), math.exp(filled.log_prob)))
        return answers

    def _no_answers(self) -> list[int]:
        """What fills no blank: the reserved symbols, and where tokens are words, a line break."""
        vocabulary = self.codec.vocabulary
        names = (*RESERVED, "\n") if self.codec.tokenizer.name == WordTokenizer.name else RESERVED
        return [vocabulary.id(name) for name in names if name in vocabulary]

    def unknown(self, text: str) -> list[str]:
        """The tokens around the blanks that the model does not know and reads as <unk>."""
        return Blanked.read(check_text(text)).unknown(self.codec)

    def measure(self, source: str | Corpus) -> TokenPredictions:
        """How well the model tells the tokens of a text, each from all the others: a path, a name, or a Corpus."""
        with encoded(source, self.codec) as tokens:
            return self.guess(tokens)

    def measure_held_out(self) -> TokenPredictions:
        """The same for the part of its own text that the model was not trained on."""
        return self.guess(held_out(self.run, self.codec))

    def guess(self, tokens: Tokens) -> TokenPredictions:
        return self.model.guess(tokens)


def open_filling(path: str | Path) -> Filling:
    """What fills blanks from a run directory: a model trained to, or a hidden Markov model, which can as it is."""
    run = open_run(path)
    if run.task == "hmm":
        return Filling(run, HMM.from_tensors(run.weights()), Codec.from_json(run.vocabulary))
    if run.task != FILL.name:
        raise WeftError(
            f"{path} is a run of the task {run.task!r}", expected="a run of `weft train fill` or `weft train hmm`"
        )
    return load_fill(run)


def load_fill(run: Run) -> Filling:
    """The model of a run, with its best weights (or its newest, while there are no best ones)."""
    codec = Codec.from_json(run.vocabulary)
    model = Filler(len(codec.vocabulary), from_dict(FillConfig, run.config).model)
    model.load_state_dict(run.weights())
    return Filling(run, model.eval(), codec)
