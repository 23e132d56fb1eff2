"""Tasks on one long text: it is stored as token ids, a part of it held out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from weft.data.windows import Tokens
from weft.errors import WeftError
from weft.tasks.fine_tuning import warn_new_tokens
from weft.tasks.plausibility import check_plain_text
from weft.tasks.task import ExampleLosses, Prepared, StoreData, Task, TaskTrainer
from weft.text.codec import Codec, prepare_corpus, prepare_corpus_like
from weft.text.config import CorpusConfig
from weft.text.corpus import Corpus, encode_corpus, open_tokens
from weft.text.datasets import open_data
from weft.text.tables import read_column
from weft.training.run import DATA_FOLDER, Run

TRAIN_TOKENS, DEV_TOKENS = f"{DATA_FOLDER}/train.bin", f"{DATA_FOLDER}/dev.bin"

BLOCK, MOST_BLOCKS = 256, 400  # tokens of an example in a paired test, and how many examples it takes at most

CorpusSource = str | Corpus  # a path, the name of a data set, or a Corpus


class HasText(Protocol):
    """The settings of every task on text."""

    @property
    def text(self) -> CorpusConfig: ...


TextTaskConfig = TypeVar("TextTaskConfig", bound=HasText)
TextPredictor = TypeVar("TextPredictor")


class TextData(NamedTuple):
    """The encoded text of a run."""

    codec: Codec
    train: Tokens
    dev: Tokens | None


class TextTask(Task[CorpusSource, TextTaskConfig, TextPredictor]):
    """A task on one long text. A subclass gives `make_trainer` and `load`."""

    metric = "perplexity"

    def open(self, source: CorpusSource, dev: CorpusSource | None, config: TextTaskConfig) -> StoreData:
        corpus = open_corpus(source, config.text.column)
        held_out = None if dev is None else open_corpus(dev, config.text.column)
        if not config.text.column:
            check_plain_text(corpus)
        return lambda data: prepare_corpus(config.text, corpus, held_out, data).to_json()

    def open_like(
        self,
        source: CorpusSource,
        dev: CorpusSource | None,
        config: TextTaskConfig,
        vocabulary: Mapping[str, Any],
    ) -> StoreData:
        corpus = open_corpus(source, config.text.column)
        held_out = None if dev is None else open_corpus(dev, config.text.column)
        codec = Codec.from_json(vocabulary)

        def store(data: Path) -> Mapping[str, Any]:
            warn_new_tokens(prepare_corpus_like(codec, config.text, corpus, held_out, data))
            return codec.to_json()

        return store

    def prepare(self, run: Run, config: TextTaskConfig) -> Prepared:
        codec = Codec.from_json(run.vocabulary)
        train = open_tokens(run.data_file(TRAIN_TOKENS), len(codec.vocabulary))
        dev = open_tokens(run.data_file(DEV_TOKENS), len(codec.vocabulary)) if run.has(DEV_TOKENS) else None
        trainer, carried = self.make_trainer(run, config, TextData(codec, train, dev))
        description = (
            f"{len(train):,} {codec.tokenizer.name} tokens to train on, {0 if dev is None else len(dev):,} held out, "
            f"vocabulary of {len(codec.vocabulary):,}"
        )
        return Prepared(trainer, description, carried)

    def held_out_losses(self, predictor: Any) -> ExampleLosses | None:
        """The cross-entropy of each block of the held-out text, every block read by itself."""
        tokens = held_out_tokens(predictor.run, predictor.codec)
        begins = range(0, min(len(tokens), BLOCK * MOST_BLOCKS) - BLOCK + 1, BLOCK)
        found = [predictor.predict_tokens(tokens[begin : begin + BLOCK]).likelihood.cross_entropy for begin in begins]
        return ExampleLosses(tuple(found), f"block of {BLOCK} tokens, predicted from context: {predictor.context}")

    def make_trainer(self, run: Run, config: TextTaskConfig, data: TextData) -> tuple[TaskTrainer, Any]:
        """Builds the trainer, and a state of the shape that it carries between steps, if it carries any."""
        raise NotImplementedError


def text_column(run: Run) -> str:
    """The column that the run's text was read from; empty: plain text."""
    return str(run.config.get("text", {}).get("column", ""))


def held_out_tokens(run: Run, codec: Codec) -> Tokens:
    """The part of a run's own text that its model was not trained on."""
    if not run.has(DEV_TOKENS):
        raise WeftError(f"{run.path} has no held-out text", expected="text to evaluate on", hint="`source=PATH`")
    return open_tokens(run.data_file(DEV_TOKENS), len(codec.vocabulary))


def open_corpus(source: CorpusSource, column: str = "") -> Corpus:
    """The corpus of a source. With a column, each row of its tables is a text of its own.

    Args:
        source: A path, the name of a data set, or a Corpus.
        column: A column of CSV, TSV or JSON lines, by name or number from 1; empty: the source is plain text.
    """
    corpus = source if isinstance(source, Corpus) else open_data(source)
    if not column:
        return corpus
    texts = [text for document in corpus.documents() for text in read_column(document, column)]
    return Corpus.from_texts(corpus.name, texts)


@contextmanager
def encoded(source: CorpusSource, codec: Codec, column: str = "") -> Iterator[Tokens]:
    """The token ids of a text, in a temporary file for the time of a `with`."""
    corpus = open_corpus(source, column)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.bin"
        encode_corpus(corpus, codec.normalizer, codec.tokenizer, codec.vocabulary, file)
        yield open_tokens(file, len(codec.vocabulary))
