"""Labelled texts or series: split into training and held-out ones, encoded, and stored in a run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.buckets import hold_out
from weft.data.column import Column
from weft.data.field import fields_content
from weft.errors import WeftError, short_repr
from weft.series import ScaledSeries, SeriesSet, TimeSeries
from weft.series.examples import same_channels
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.inputs import (
    ClassifierInput,
    SeriesInput,
    TextInput,
    check_series_settings,
    input_of,
    read_labelled_series,
)
from weft.tasks.classify.readers import Example, ExampleLayout, Examples, ExampleSource, read_labelled
from weft.tasks.classify.self_training import LABELLED_TIMES, labelled_by_teacher
from weft.tasks.classify.wide import LabelledTokens, store_ngrams, store_series_plan
from weft.tasks.config import SERIES_EXAMPLES, SERIES_SETTINGS, TEXT_EXAMPLES
from weft.tasks.example_kind import choose_input
from weft.tasks.origin import warn_new_tokens
from weft.tasks.plausibility import check_labelled, repeated, report_examples, report_single
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, store, stored
from weft.text.fields import Label, ordered_labels
from weft.text.text_field import Text
from weft.text.tokenizers import Normalizer
from weft.text.word_vectors import WordVectors, read_word_vectors
from weft.training.run import DATA_FOLDER, Run, decoding

WORD_VECTORS = "vectors"  # the columns of pretrained word vectors


def store_examples(
    source: ExampleSource,
    dev: ExampleSource | None,
    config: ClassifyConfig,
    folder: Path,
    origin: Run | None = None,
    text_field: Text | None = None,
) -> Mapping[str, Any]:
    """Reads and encodes examples to train on and to hold out, and stores them; returns the vocabulary of the run.

    Args:
        source: The examples to train on.
        dev: The held-out examples; None: a part of the source is held out.
        config: All settings.
        folder: The folder data/ of the run.
        origin: The run that is fine-tuned: its tokens or channels, labels and columns are kept.
        text_field: The tokens of an encoder.
    """
    kind = choose_input(source, config.data) if origin is None else input_of(origin).name
    if text_field is not None and kind == SERIES_EXAMPLES:
        raise WeftError(
            "there is an `encoder`, which reads text, and the examples are series of numbers", expected="no `encoder`"
        )
    reading = _SeriesReading(config, origin) if kind == SERIES_EXAMPLES else _TextReading(config, origin, text_field)
    like = None
    if origin is not None:
        text_column, label_column = origin.column_names("text", "label")
        like = ExampleLayout(text_column, label_column, origin.field("label", Label).labels)
    examples = reading.read(source, like)
    rows, one, several = examples.rows, kind, reading.plural
    if config.text.limit and config.text.limit < len(rows):
        rows = random.Random(config.train.seed).sample(rows, config.text.limit)
    labels = ordered_labels(row.label for row in rows) if like is None else like.labels
    check_labels(rows, labels)
    if len(labels) < 2:
        raise WeftError(f"all {len(rows):,} examples have the label {labels[0]!r}", expected="two labels or more")
    shown = short_repr(rows[0].value) if kind == TEXT_EXAMPLES else f"of {len(rows[0].value):,} steps"
    read = f"{rows[0].place} is read as the label {rows[0].label!r} of the {one} {shown}"
    check_labelled([row.label for row in rows], read, chosen=config.data.label_column != "", what=several)
    layout = examples.layout._replace(labels=labels)
    description = examples.description
    if dev is None:
        train, held = _split(rows, config, reading.identity)
    else:
        given = reading.read(dev, layout)
        train, held = rows, given.rows
        check_labels(held, labels)
        description += f"; held out: {given.description}" if given.columns != examples.columns else ""
    report_single((row.label for row in (*train, *held)), "labels")
    known, held_out = ([(reading.identity(row.value), row.label, row.place) for row in part] for part in (train, held))
    report_examples(known, held_out, several)
    if again := repeated([reading.identity(row.value) for row in rows], several):
        description += f"; {again}"
    counts = Counter(row.label for row in train)
    taught = labelled_by_teacher(config.data, layout, [*train, *held]) if kind == TEXT_EXAMPLES else []
    if taught:
        description += f"; {len(taught):,} texts have the labels that {config.data.teacher} predicts"
        train = train * LABELLED_TIMES + taught
    rows_of = {TRAIN_PART: train, DEV_PART: held}
    reads: ClassifierInput = reading.fit(train)
    parts = {name: [reads.parts(row.value) for row in part] for name, part in rows_of.items()}
    encoded = {name: _encode(part, parts[name], reads) for name, part in rows_of.items()}
    places = {label: place for place, label in enumerate(labels)}
    numbers = {name: [places[row.label] for row in part] for name, part in rows_of.items()}
    long = sum(len(row) > config.data.max_tokens for part in encoded.values() for row in part)
    description += f"; {long:,} {several} cut to {config.data.max_tokens:,} {reads.unit}" if long else ""
    for name, part in encoded.items():
        if part:
            cut = Column.from_rows((cut_middle(row, config.data.max_tokens) for row in part), reads.stored_type)
            store(folder, name, {one: cut, "label": [[number] for number in numbers[name]]})
    reading.store_more(folder, reads)
    if config.model.wide and isinstance(reads, TextInput):
        labelled = [LabelledTokens(parts[name], numbers[name]) for name in (TRAIN_PART, DEV_PART)]
        store_ngrams(
            folder, *labelled, count=len(labels), seed=config.train.seed, drawn=dev is None, cross_fit=not taught,
            origin=origin,
        )  # fmt: skip
    elif config.model.wide:
        store_series_plan(folder, all=dev is None and bool(held))
    fields = {one: reads.field, "label": Label({label: counts[label] for label in labels})}
    return fields_content(fields, columns={"text": layout.text, "label": layout.label}, description=description)


class _TextReading:
    """How texts are read, and what is learnt from them."""

    plural = TextInput.plural

    def __init__(self, config: ClassifyConfig, origin: Run | None, text_field: Text | None) -> None:
        if text_field is not None and config.model.word_vectors:
            raise WeftError("`encoder` and `model.word_vectors` are both given", expected="one of the two")
        if any(getattr(config.data, name) for name in SERIES_SETTINGS):
            raise WeftError("the examples are texts, and columns of series are set", expected="`data.input=series`")
        self.config = config
        self.known = origin.field(TEXT_EXAMPLES, Text) if origin is not None else text_field
        text = config.text
        self.normalizer = (
            self.known.normalizer if self.known else Normalizer(text.normalization, text.lower, text.letters_only)
        )

    def read(self, source: ExampleSource, like: ExampleLayout | None) -> Examples:
        return read_labelled(source, self.config.data, like, self.normalizer)

    def identity(self, value: str) -> str:
        return value

    def fit(self, train: Sequence[Example]) -> TextInput:
        texts = [row.value for row in train]
        if self.known is None:
            return TextInput(Text.fit(texts, self.config.text))
        warn_new_tokens(Counter(token for text in texts for token in self.known.unknown(text)))
        return TextInput(self.known)

    def store_more(self, folder: Path, reads: ClassifierInput) -> None:
        assert isinstance(reads, TextInput)
        vectors = _vectors(reads.field, self.config) if self.known is None else None
        if vectors is not None:
            store(folder, WORD_VECTORS, {"ids": Column(vectors.ids), "values": Column(vectors.values)})


class _SeriesReading:
    """How series are read, and what is learnt from them."""

    plural = SeriesInput.plural

    def __init__(self, config: ClassifyConfig, origin: Run | None) -> None:
        check_series_settings(config)
        self.config, self.known = (
            config,
            None if origin is None else SeriesInput(origin.field(SERIES_EXAMPLES, ScaledSeries)),
        )
        self.set: SeriesSet | None = None

    def read(self, source: ExampleSource, like: ExampleLayout | None) -> Examples:
        if self.known is not None:
            return self.known.read(source, self.config.data, like or ExampleLayout())
        columns = None if self.set is None else self.set.columns
        found, read = read_labelled_series(source, self.config.data, like or ExampleLayout(), columns)
        if self.set is not None:
            same_channels(read, self.set.channels, source)
        self.set = self.set or read
        return found

    def identity(self, value: TimeSeries) -> bytes:
        return value.target.tobytes()

    def fit(self, train: Sequence[Example]) -> SeriesInput:
        if self.known is not None:
            return self.known
        return SeriesInput(ScaledSeries.fit([row.value for row in train], self.set))

    def store_more(self, folder: Path, reads: ClassifierInput) -> None:
        pass


def load_examples(run: Run, name: str) -> dict[str, Column]:
    """The encoded examples of a part of a run's data."""
    reads = input_of(run)
    ids = {TEXT_EXAMPLES: len(reads.field.vocabulary)} if isinstance(reads, TextInput) else {}
    columns = stored(run, name, {**ids, "label": len(run.field("label", Label).counts)})
    with decoding(run.path / DATA_FOLDER):
        if len(columns["label"].values) != len(columns[reads.name]):
            raise ValueError(f"{reads.plural} and labels of different numbers")
        if isinstance(reads, SeriesInput):
            values = columns[SERIES_EXAMPLES].values
            if values.dtype != np.float32 or values.shape[1:] != (len(reads.field.channels),) or np.isinf(values).any():
                raise ValueError("the values are not those of the channels")
    return columns


def _split(
    rows: list[Example], config: ClassifyConfig, identity: Callable[[Any], Hashable]
) -> tuple[list[Example], list[Example]]:
    """Splits examples into training and held-out ones. A label that would only be held out stays in training."""
    keys = [identity(row.value) for row in rows]
    train, held = hold_out(keys, config.text.holdout, config.train.seed)
    known = {rows[number].label for number in train}
    back = {keys[number] for number in held if rows[number].label not in known}
    train += [number for number in held if keys[number] in back]
    return [rows[number] for number in train], [rows[number] for number in held if keys[number] not in back]


def check_labels(rows: Sequence[Example], labels: Sequence[str]) -> None:
    """Refuses examples with a label that the training data does not have."""
    for row in rows:
        if row.label not in labels:
            known = ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
            raise WeftError(
                f"{row.place} has the label {row.label!r}, which is not in the training data",
                expected=f"one of: {known}",
            )


def _encode(rows: Sequence[Example], parts: Sequence[Any], reads: ClassifierInput) -> list[Any]:
    found = [reads.encode(one) for one in parts]
    for row, encoded in zip(rows, found, strict=True):
        if not len(encoded):
            raise WeftError(
                f"{row.place}: the {reads.name} {row.value!r} has no {reads.unit}",
                expected=f"a {reads.name} for every label",
            )
    return found


def cut_middle(parts: Any, limit: int) -> Any:
    """Keeps at most `limit` tokens or steps: of a longer text half from its beginning and half from its end."""
    if len(parts) <= limit:
        return parts
    first, last = parts[: (limit + 1) // 2], parts[len(parts) - limit // 2 :]
    return np.concatenate([first, last]) if isinstance(parts, np.ndarray) else first + last


def _vectors(text_field: Text, config: ClassifyConfig) -> WordVectors | None:
    if not config.model.word_vectors:
        return None
    found = read_word_vectors(config.model.word_vectors, text_field.vocabulary)
    if found.values.shape[1] != config.model.embedding_dim:
        raise WeftError(
            f"model.embedding_dim is {config.model.embedding_dim}, and the vectors of {config.model.word_vectors} have "
            f"{found.values.shape[1]} dimensions",
            expected="the two to be equal",
            hint=f"`model.embedding_dim={found.values.shape[1]}`",
        )
    return found
