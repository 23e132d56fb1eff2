"""Training on text, whatever the task: a run directory with its own copy of the text, begun and taken up again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import nn

from weft.batch import Tokens
from weft.cells import State
from weft.config import TextConfig, TrainConfig, changed, from_dict, to_dict
from weft.errors import WeftError
from weft.run import LAST, Run, check_file, check_free, create_run, file_hash, read_json, save_tensors, write_json
from weft.text.codec import Codec, prepare
from weft.text.corpus import Corpus, encode_corpus, open_tokens
from weft.text.datasets import open_data
from weft.train import Trainer

TRAIN, DEV, FACTS = "data/train.bin", "data/dev.bin", "data/facts.json"


class TextTaskConfig(Protocol):
    """What the settings of every task on text have."""

    @property
    def text(self) -> TextConfig: ...

    @property
    def train(self) -> TrainConfig: ...


Config = TypeVar("Config", bound=TextTaskConfig)


class Text(NamedTuple):
    """The encoded text of a run."""

    codec: Codec
    train: Tokens
    dev: Tokens | None


class Sources(NamedTuple):
    """The text to train on and, where it is given, the text to hold out; opened, with the names they were given by."""

    corpus: Corpus
    held_out: Corpus | None
    source: str
    dev: str | None

    @classmethod
    def open(cls, source: str | Corpus, dev: str | None) -> Sources:
        corpus = source if isinstance(source, Corpus) else open_data(source)
        return cls(corpus, open_data(dev) if dev else None, source if isinstance(source, str) else source.name, dev)

    def store(self, config: TextConfig, folder: Path) -> Codec:
        """Put a copy of the text, encoded, into the folder of a run that is being made."""
        (folder / "data").mkdir()
        codec = prepare(config, self.corpus, self.held_out, folder / "data")
        files = {name: file_hash(folder / name) for name in (TRAIN, DEV) if (folder / name).exists()}
        write_json(folder / FACTS, {"source": self.source, "dev": self.dev, "files": files})
        return codec


@dataclass(frozen=True)
class Task(Generic[Config]):
    """A task on text: its name in config.json and on the command line, its settings, and how it is trained.

    `prepare` gives a trainer that stands before its first step, and a state of the kind it carries between steps.
    """

    name: str
    config: type[Config]
    prepare: Callable[[Run, Config, Text], tuple[Trainer, State]]


@dataclass(frozen=True)
class Training:
    """A training made ready: walk through `trainer.run()`."""

    run: Run
    trainer: Trainer
    model: nn.Module
    codec: Codec
    train_tokens: int
    dev_tokens: int


def start_training(
    task: Task[Config], source: str | Corpus, out: str | Path, config: Config, *, dev: str | None = None
) -> Training:
    """Prepare the text, make the run directory with all that resuming needs, and stand before the first step."""
    check_free(Path(out))  # before the text is read, which may take a while
    sources = Sources.open(source, dev)

    def fill(folder: Path) -> dict[str, Any]:
        codec = sources.store(config.text, folder)
        training, _ = _training(task, Run(folder, task.name, to_dict(config), codec.to_json()))
        save_tensors(folder / LAST, *training.trainer.state())
        return codec.to_json()

    return resume_training(task, create_run(Path(out), task=task.name, config=to_dict(config), fill=fill))


def resume_training(
    task: Task[Config], run: Run, config: Config | None = None, *, source: str | None = None
) -> Training:
    """Stand where the run's last save stood, with other training settings if a configuration is given.

    The text is the run's own copy; a `source` is only compared with the name of the one it was made from.
    """
    if config is not None:
        run = _change_training(run, config)
    facts = read_json(run.path / FACTS)
    if source is not None and source != facts["source"]:
        raise WeftError(
            f"{run.path} was begun on {facts['source']}, and is to go on with {source}",
            expected="the same text, or no --data at all, since the run keeps its own copy",
        )
    for name, digest in facts["files"].items():
        check_file(run.path / name, digest)
    saved = run.load(LAST)
    training, carried = _training(task, run)
    training.trainer.restore(saved.tensors, saved.facts, carried=carried)
    run.forget_after(training.trainer.place.step)
    return training


def _change_training(run: Run, config: TextTaskConfig) -> Run:
    differences = changed(run.config, to_dict(config))
    fixed = [key for key in differences if not key.startswith("train.") or key == "train.optimizer"]
    if fixed:
        before, after = differences[fixed[0]]
        raise WeftError(
            f"{run.path} was begun with {fixed[0]}={before}, and is to go on with {after}",
            expected="only settings under train. to change, and not the optimizer",
            hint="a new run in another --out",
        )
    return run.change_config(to_dict(config)) if differences else run


def _training(task: Task[Config], run: Run) -> tuple[Training, State]:
    config = from_dict(task.config, run.config)
    codec = Codec.from_json(run.vocabulary)
    train = open_tokens(run.path / TRAIN, len(codec.vocabulary))
    dev = open_tokens(run.path / DEV, len(codec.vocabulary)) if run.has(DEV) else None
    torch.manual_seed(config.train.seed)
    trainer, carried = task.prepare(run, config, Text(codec, train, dev))
    return Training(run, trainer, trainer.model, codec, len(train), 0 if dev is None else len(dev)), carried


def held_out(run: Run, codec: Codec) -> Tokens:
    """The part of a run's own text that its model was not trained on."""
    if not run.has(DEV):
        raise WeftError(f"{run.path} holds out no text", expected="text to measure on", hint="--data PATH")
    return open_tokens(run.path / DEV, len(codec.vocabulary))


@contextmanager
def encoded(source: str | Corpus, codec: Codec) -> Iterator[Tokens]:
    """A text as a model reads it, for the time of a `with`: a path, the name of a data set, or a Corpus."""
    corpus = source if isinstance(source, Corpus) else open_data(source)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.bin"
        encode_corpus(corpus, codec.normalizer, codec.tokenizer, codec.vocabulary, file)
        yield open_tokens(file, len(codec.vocabulary))
