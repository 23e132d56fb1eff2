"""Tasks on one long text: it is stored as token ids, a part of it held out."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np

from weft.data.column import Column
from weft.data.field import fields_content
from weft.data.windows import Tokens
from weft.errors import WeftError, warn
from weft.metrics import PERPLEXITY, Likelihood, TokenPredictions
from weft.metrics.paired import ExampleStatistics, ratio
from weft.tasks.origin import warn_new_tokens
from weft.tasks.plausibility import check_plain_text, check_tokenization, repeated, report_shared
from weft.tasks.predictor import TaskPredictor, example_of
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, is_stored, store, stored
from weft.tasks.task import Task
from weft.text.columns import Role, choose_columns, column_texts, longest_column, read_column, read_rows
from weft.text.config import CorpusConfig
from weft.text.corpus import Corpus, check_token_ids, encode_corpus, open_tokens
from weft.text.dataframes import from_python, index_of
from weft.text.datasets import open_data
from weft.text.left_out import LeftOut
from weft.text.shards import Shards, is_shards, open_shards
from weft.text.tables import TEXT_NAMES, format_with_column
from weft.text.text_field import Text, store_corpus
from weft.training.run import DATA_FOLDER, Run, read_json, write_json

SHARDS = f"{DATA_FOLDER}/shards.json"  # instead of train.tokens: where the shards are that the run trains on
MOST_HELD_OUT = 1_000_000  # tokens of shards that are held out at most

PIECE_TOKENS = 500  # of a piece of held-out text
BLOCK, MOST_BLOCKS = 256, 400  # tokens of an example in a paired test, and how many examples it takes at most

# A path, the name of a data set, a Corpus, texts, or a table of Python that has a column of them.
CorpusSource = str | Path | Corpus | Iterable[Any]


TextScore = TypeVar("TextScore", Likelihood, TokenPredictions)
TextTaskConfig = TypeVar("TextTaskConfig", bound=Any)  # settings with a section `text`, a CorpusConfig


class TextData(NamedTuple):
    text_field: Text
    train: Tokens
    dev: Tokens | None
    reading: str = ""  # how a table was read

    @property
    def description(self) -> str:
        held_out = 0 if self.dev is None else len(self.dev)
        return (
            f"{len(self.train):,} {self.text_field.tokenizer.name} tokens to train on, {held_out:,} held out, "
            f"vocabulary of {len(self.text_field.vocabulary):,}{f' ({self.reading})' if self.reading else ''}"
        )


@dataclass(frozen=True, repr=False)
class TextPredictor(TaskPredictor, Generic[TextScore]):
    """A loaded model of the tokens of a text. `TextScore` is what its evaluation returns."""

    run: Run
    model: Any
    text_field: Text

    @property
    def example(self) -> str:
        return example_of(self.text_field)

    @property
    def context(self) -> str:
        """What `predict_tokens` predicts a token from: "left" or "both"."""
        context: str = self.model.context
        return context

    @property
    def read_context(self) -> str:
        """What `evaluate_tokens` predicts a token from: "left" or "both"."""
        return "left"

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """Predicts each token but the first of token ids (N,) from its context."""
        predictions: TokenPredictions = self.model.predict_tokens(tokens)
        return predictions

    @abstractmethod
    def score_tokens(self, tokens: Tokens) -> TextScore:
        """What an evaluation of token ids (N,) returns."""

    def evaluate_tokens(self, tokens: Tokens) -> Likelihood:
        """The likelihood of token ids (N,), each but the first given its context."""
        score = self.score_tokens(tokens)
        return score.likelihood if isinstance(score, TokenPredictions) else score

    def evaluate(self, source: CorpusSource, *, strict: bool = False) -> TextScore:
        """Predicts each token of a text but the first: a language model from those before it, a filler from all others.

        Args:
            source: A path, the name of a data set, a Corpus, texts (a list, a Series, an array, a generator), or a
                table (a DataFrame, a data set, a dict of columns, dicts).
            strict: Refuse rows without a text, which are left out and reported otherwise.

        Returns:
            A likelihood, with `perplexity`; of a filler predictions, with `likelihood` and `accuracy`.
        """
        with encoded(corpus_for(self.run, source, strict=strict), self.text_field) as tokens:
            return self.score_tokens(tokens)

    def evaluate_held_out(self) -> TextScore:
        """The same for the run's own held-out text."""
        return self.score_tokens(held_out_tokens(self.run, self.text_field))

    def held_out_metrics(self) -> dict[str, float]:
        return self.evaluate_held_out().metrics() if is_stored(self.run, DEV_PART) else {}

    def held_out_texts(self) -> Iterator[str]:
        """The held-out text in pieces of some hundred tokens."""
        if is_stored(self.run, DEV_PART):
            tokens = held_out_tokens(self.run, self.text_field)
            for begin in range(0, len(tokens), PIECE_TOKENS):
                yield self.text_field.decode(tokens[begin : begin + PIECE_TOKENS].tolist())

    def held_out_statistics(self) -> tuple[ExampleStatistics, ...]:
        """The cross-entropy of each block of the held-out text, every block read by itself."""
        tokens = held_out_tokens(self.run, self.text_field)
        begins = range(0, min(len(tokens), BLOCK * MOST_BLOCKS) - BLOCK + 1, BLOCK)
        found = [self.evaluate_tokens(tokens[begin : begin + BLOCK]) for begin in begins]
        sums = np.array([[one.nats, one.count] for one in found], dtype=np.float64).reshape(len(found), 2)
        signature = f"cross_entropy|per:{self.text_field.tokenizer.name}|context:{self.read_context}"
        unit = f"block of {BLOCK} tokens"
        return (ExampleStatistics("cross_entropy", unit, signature, sums, ratio, higher_is_better=False),)


def unknown_note(unknown: Sequence[str], where: str) -> str:
    """The note about unknown tokens of a text."""
    return f"the model does not know {', '.join(map(repr, unknown))} in {where} and reads <unk>"


LoadedText = TypeVar("LoadedText", bound=TextPredictor[Any])


class TextTask(Task[CorpusSource, TextTaskConfig, LoadedText]):
    """A task on one long text. Its phases train on `text_data`."""

    inputs = ("text",)
    metric = PERPLEXITY
    data_help = "Text: a file, a folder, .gz, .zip, - for standard input, or a name of `weft data`."
    dev_help = "Held-out text; without it the end of --data is held out."

    def read(
        self,
        source: CorpusSource,
        dev: CorpusSource | None,
        config: TextTaskConfig,
        folder: Path,
        origin: Run | None = None,
    ) -> Mapping[str, Any]:
        if origin is not None:
            corpus, held_out = _open_both(source, dev, config.text)
            text_field = origin.field("text", Text)
            warn_new_tokens(store_corpus(config.text, corpus, held_out, folder, text_field)[1])
            return fields_content({"text": text_field}, **_reading(corpus))
        if is_shards(source):
            shards = open_shards(str(source))
            shards.check_settings(config.text)
            return fields_content({"text": store_shards(shards, config.text, dev, folder)})
        corpus, held_out = _open_both(source, dev, config.text)
        if not corpus.reading:
            check_plain_text(corpus)
            check_tokenization(corpus, config.text.tokenizer)
        return fields_content({"text": store_corpus(config.text, corpus, held_out, folder)[0]}, **_reading(corpus))

    def text_data(self, run: Run) -> TextData:
        text_field = run.field("text", Text)
        dev = held_out_tokens(run, text_field) if is_stored(run, DEV_PART) else None
        if run.has(SHARDS):
            record = read_json(run.data_file(SHARDS))
            shards = open_shards(record["folder"])
            if shards.digest != record["digest"]:
                raise WeftError(f"{shards.folder} has changed", expected="the shards that training started with")
            train = cast(Tokens, shards.tokens().part(0, record["train_tokens"]))  # read where they are
        else:
            train = part_tokens(run, TRAIN_PART, len(text_field.vocabulary))
        return TextData(text_field, train, dev, run.reading.get("description", ""))


def store_shards(shards: Shards, config: CorpusConfig, dev: CorpusSource | None, data: Path) -> Text:
    """Records in a new run that it trains on shards, which stay where they are; the held-out part is copied."""
    text_field, tokens = shards.text_field, shards.tokens()
    count = min(len(tokens), config.limit or len(tokens))
    held_out = min(int(count * config.holdout), MOST_HELD_OUT) if dev is None else 0
    if held_out:
        store(data, DEV_PART, {"tokens": Column(tokens[count - held_out : count])})
    if dev is not None:
        corpus = open_corpus(dev, config.column, strict=config.strict)
        encode_corpus(
            corpus, text_field.normalizer, text_field.tokenizer, text_field.vocabulary, data / "dev.tokens.npy"
        )
    record = {"folder": str(shards.folder.absolute()), "digest": shards.digest, "train_tokens": count - held_out}
    write_json(data.parent / SHARDS, record)
    return text_field


def held_out_tokens(run: Run, text_field: Text) -> Tokens:
    """The part of a run's own text that its model was not trained on."""
    return part_tokens(run, DEV_PART, len(text_field.vocabulary))


def stored_tokens(run: Run, vocabulary_size: int) -> Tokens:
    """The training text that a run has stored, or its held-out text."""
    part = next((part for part in (TRAIN_PART, DEV_PART) if is_stored(run, part)), None)
    if part is None:
        raise WeftError(f"{run.path} has no stored text: its data folder was deleted", expected="a run with its data")
    return part_tokens(run, part, vocabulary_size)


def part_tokens(run: Run, part: str, vocabulary_size: int) -> Tokens:
    """The tokens of a part of a run's text."""
    tokens = stored(run, part)["tokens"].values
    check_token_ids(tokens, vocabulary_size, f"{run.path}: {part}.tokens")
    return tokens


def _open_both(source: CorpusSource, dev: CorpusSource | None, config: CorpusConfig) -> tuple[Corpus, Corpus | None]:
    """The corpora of the training text and of the held-out text, where that is given."""
    corpus = open_corpus(source, config.column, strict=config.strict)
    if dev is None:
        if corpus.reading and config.holdout and (again := repeated(list(_texts(corpus)), "texts")):
            warn(f"{again}: those at the end, which are held out, may be in the training data, too")
        return corpus, None
    held_out = open_corpus(dev, config.column, like=corpus.column, strict=config.strict)
    if corpus.reading and held_out.reading:
        report_shared(_texts(corpus), list(_texts(held_out)), "texts")
    return corpus, held_out


def _texts(corpus: Corpus) -> Iterator[str]:
    return ("".join(document.lines()) for document in corpus.documents())


def _reading(corpus: Corpus) -> dict[str, Any]:
    """What fields.json records of how a table was read."""
    return {"columns": {"text": corpus.column}, "description": corpus.reading} if corpus.reading else {}


def open_corpus(source: CorpusSource, column: str = "", *, like: str = "", strict: bool = False) -> Corpus:
    """The corpus of a source. Each text of a list and each row of a table is a text of its own.

    Args:
        source: A path, the name of a data set, a Corpus, texts (a list, a Series, an array, a generator), or a table (a
            DataFrame, a data set, a dict of columns, dicts).
        column: The column of CSV, TSV or JSON lines, or of a table, by name or number from 1; empty: a file is plain
            text, and the column of a table is inferred.
        like: The column of the training text, which is read where `column` is empty and there is one.
        strict: Refuse rows without a text, which are left out and reported otherwise.
    """
    left_out = LeftOut("text.strict", strict=strict)
    if isinstance(source, str | Path | Corpus):
        corpus = source if isinstance(source, Corpus) else open_data(source)
        if like and not column and all(format_with_column(document, like) for document in corpus.documents()):
            column = like
        if not column:
            return corpus
        texts = [text for document in corpus.documents() for text in read_column(document, column, left_out)]
        return _of_texts(corpus.name, texts, left_out, f"text from column {column!r}")
    data, index = from_python(source), index_of(source)
    if not isinstance(data, list):
        table = data.table()
        (known,) = choose_columns(table, Role("text", column, "`column`", like, TEXT_NAMES))
        chosen = known or longest_column(table, range(table.width))
        texts = column_texts(table, chosen.places, left_out)
        reading = f"read as {table.description}: text from {chosen.describe(table)}"
        corpus = _of_texts(data.kind, texts, left_out, reading)
        return replace(corpus, column=",".join((table.names or ())[place] for place in chosen.places))
    texts = []
    for number, text in enumerate(read_rows(data).texts()):
        if text.strip():
            texts.append(text)
        else:
            place = f"text {number + 1}" if index is None else f"{type(source).__name__}:{index[number]}"
            left_out.add(place, "text", expected="some text")
    return _of_texts("the texts", texts, left_out, f"{len(texts):,} texts")


def _of_texts(name: str, texts: list[str], left_out: LeftOut, reading: str) -> Corpus:
    count = left_out.report(len(texts) + left_out.count, "`column=NAME`, if the texts are in another column")
    return replace(Corpus.from_texts(name, texts), left_out=count, reading=reading)


def corpus_for(run: Run, source: CorpusSource, *, strict: bool = False) -> Corpus:
    """The corpus of a source that is read as the training text of a run was."""
    text = run.config.get("text", {})
    (like,) = run.column_names("text")
    return open_corpus(source, str(text.get("column", "")), like=like, strict=strict or bool(text.get("strict")))


@contextmanager
def encoded(corpus: Corpus, text_field: Text) -> Iterator[Tokens]:
    """The token ids of a text, in a temporary file for the time of a `with`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.npy"
        encode_corpus(corpus, text_field.normalizer, text_field.tokenizer, text_field.vocabulary, file)
        yield open_tokens(file, len(text_field.vocabulary))
