"""Training on text, whatever the task: a run directory with its own copy of the text, begun and taken up again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import nn

from weft.cells import State
from weft.config import changed, from_dict, to_dict
from weft.data.windows import Tokens
from weft.errors import WeftError
from weft.text.codec import Codec, prepare_corpus
from weft.text.config import TextConfig
from weft.text.corpus import Corpus, encode_corpus, open_tokens
from weft.text.datasets import open_data
from weft.training.config import TrainConfig
from weft.training.run import (
    CHECKPOINT,
    Run,
    check_file,
    check_new,
    create_run,
    file_hash,
    read_json,
    save_tensors,
    write_json,
)
from weft.training.trainer import Trainer

DATA, FACTS, TRAIN, DEV = "data", "data/facts.json", "data/train.bin", "data/dev.bin"


class TaskConfig(Protocol):
    """What the settings of every task have."""

    @property
    def train(self) -> TrainConfig: ...


class TextTaskConfig(TaskConfig, Protocol):
    """What the settings of every task on plain text have."""

    @property
    def text(self) -> TextConfig: ...


Config = TypeVar("Config", bound=TaskConfig)
TextTask = TypeVar("TextTask", bound=TextTaskConfig)

# Puts the examples of a run into the folder data/ of the run that is being made, encoded, and gives what
# vocabulary.json is to hold.
Store = Callable[[Path], Mapping[str, Any]]


class Prepared(NamedTuple):
    """A trainer that stands before its first step, a state of the kind that it carries between steps, and what is
    trained on, in words; what losses are counted in, where that is not the same for all runs of the task."""

    trainer: Trainer
    carried: State
    about: str
    unit: str | None = None


@dataclass(frozen=True)
class Task(Generic[Config]):
    """A task: its name in config.json and on the command line, its settings, and how it is trained.

    `open(source, dev, config)` reads the data, or makes sure that it can be read, before any run directory is made.
    `prepare(run, config)` gives the trainer from what `open`'s Store has put into the run. `measure` is the fact of an
    evaluation by which people know the model, `unit` what its losses are counted in, `sample` data for a first try.
    """

    name: str
    config: type[Config]
    open: Callable[[Any, Any, Config], Store]
    prepare: Callable[[Run, Config], Prepared]
    measure: str
    unit: str = "tokens"
    sample: str = "grammar"


@dataclass(frozen=True)
class Training:
    """A training made ready: walk through `trainer.run()`."""

    task: Task[Any]
    run: Run
    trainer: Trainer
    about: str
    unit: str

    @property
    def model(self) -> nn.Module:
        return self.trainer.model


def start_training(task: Task[Config], source: Any, out: str | Path, config: Config, *, dev: Any = None) -> Training:
    """Prepare the data, make the run directory with all that resuming needs, and stand before the first step.

    Source and dev are what the task reads: a path, the name of a data set, or the thing itself.
    """
    check_new(Path(out))  # before the data is read, which may take a while
    store = task.open(source, dev, config)

    def fill(folder: Path) -> Mapping[str, Any]:
        vocabulary = store_data(store, folder, source, dev)
        training, _ = _training(task, Run(folder, task.name, to_dict(config), dict(vocabulary)))
        save_tensors(folder / CHECKPOINT, *training.trainer.state())
        return vocabulary

    return resume_training(task, create_run(Path(out), task=task.name, config=to_dict(config), fill=fill))


def store_data(store: Store, folder: Path, source: Any, dev: Any) -> Mapping[str, Any]:
    """Fill data/ of a run that is being made, and note there what it was made from; gives the vocabulary."""
    data = folder / DATA
    data.mkdir()
    vocabulary = store(data)
    files = {file.name: file_hash(file) for file in sorted(data.iterdir())}
    write_json(folder / FACTS, {"source": _name(source), "dev": _name(dev), "files": files})
    return vocabulary


def _name(source: Any) -> str | None:
    """What a source is called: the path it was given by, its own name, or nothing."""
    return str(source) if isinstance(source, str | Path) else getattr(source, "name", None)


def resume_training(
    task: Task[Config], run: Run, config: Config | None = None, *, source: str | None = None
) -> Training:
    """Stand where the run's last save stood, with other training settings if a configuration is given.

    The data is the run's own copy; a `source` is only compared with the name of the one it was made from.
    """
    if config is not None:
        run = _change_training(run, config)
    facts = read_json(run.path / FACTS)
    if source is not None and source != facts["source"]:
        raise WeftError(
            f"{run.path} was begun on {facts['source']}, and is to go on with {source}",
            expected="the same data, or no --data at all, since the run keeps its own copy",
        )
    for name, digest in facts["files"].items():
        check_file(run.path / DATA / name, digest)
    saved = run.load(CHECKPOINT)
    training, carried = _training(task, run)
    training.trainer.restore(saved.tensors, saved.metadata, carried=carried)
    run.drop_metrics_after(training.trainer.progress.step)
    return training


def _change_training(run: Run, config: TaskConfig) -> Run:
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
    torch.manual_seed(config.train.seed)
    trainer, carried, about, unit = task.prepare(run, config)
    return Training(task, run, trainer, about, unit or task.unit), carried


class Text(NamedTuple):
    """The encoded text of a run."""

    codec: Codec
    train: Tokens
    dev: Tokens | None


def open_text(source: str | Corpus, dev: str | None, config: TextConfig) -> Store:
    """Open a text to train on and, where it is given, one to hold out; gives what encodes them."""
    corpus = source if isinstance(source, Corpus) else open_data(source)
    held_out = open_data(dev) if dev else None
    return lambda data: prepare_corpus(config, corpus, held_out, data).to_json()


def text_task(
    name: str,
    config: type[TextTask],
    make: Callable[[Run, TextTask, Text], tuple[Trainer, State]],
) -> Task[TextTask]:
    """A task on one long text."""

    def open_source(source: str | Corpus, dev: str | None, settings: TextTask) -> Store:
        return open_text(source, dev, settings.text)

    def prepare_text(run: Run, settings: TextTask) -> Prepared:
        codec = Codec.from_json(run.vocabulary)
        train = open_tokens(run.path / TRAIN, len(codec.vocabulary))
        dev = open_tokens(run.path / DEV, len(codec.vocabulary)) if run.has(DEV) else None
        trainer, carried = make(run, settings, Text(codec, train, dev))
        about = (
            f"{len(train):,} {codec.tokenizer.name} tokens to train on, {0 if dev is None else len(dev):,} held out, "
            f"vocabulary of {len(codec.vocabulary):,}"
        )
        return Prepared(trainer, carried, about)

    return Task(name, config, open_source, prepare_text, "perplexity")


def held_out(run: Run, codec: Codec) -> Tokens:
    """The part of a run's own text that its model was not trained on."""
    if not run.has(DEV):
        raise WeftError(f"{run.path} holds out no text", expected="text to measure on", hint="--data PATH")
    return open_tokens(run.path / DEV, len(codec.vocabulary))


def device(name: str) -> torch.device:
    """The named device, tried out."""
    try:
        found = torch.device(name)
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise WeftError(
            f"train.device is {name!r}: {reason}", expected="a device of this machine", hint="cpu"
        ) from error
    return found


@contextmanager
def encoded(source: str | Corpus, codec: Codec) -> Iterator[Tokens]:
    """A text as a model reads it, for the time of a `with`: a path, the name of a data set, or a Corpus."""
    corpus = source if isinstance(source, Corpus) else open_data(source)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.bin"
        encode_corpus(corpus, codec.normalizer, codec.tokenizer, codec.vocabulary, file)
        yield open_tokens(file, len(codec.vocabulary))
