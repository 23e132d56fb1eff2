"""Labelled texts: split into training and held-out ones, encoded, and stored in a run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from weft.data.buckets import hold_out
from weft.data.column import Column
from weft.data.field import fields_content
from weft.errors import WeftError, short_repr
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.example import Example
from weft.tasks.classify.readers import ExampleLayout, ExampleSource, read_labelled
from weft.tasks.classify.self_training import LABELLED_TIMES, labelled_by_teacher
from weft.tasks.classify.wide import LabelledTokens, store_ngrams
from weft.tasks.origin import warn_new_tokens
from weft.tasks.plausibility import check_labelled, repeated, report_examples, report_single
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, store, stored
from weft.text.fields import Label, ordered_labels
from weft.text.text_field import Text
from weft.text.tokenizers import Normalizer
from weft.text.word_vectors import WordVectors, read_word_vectors
from weft.training.run import DATA_FOLDER, Run, decoding

WORD_VECTORS = "vectors"  # the columns of pretrained word vectors

_Tokens = TypeVar("_Tokens", list[int], list[str])


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
        origin: The run that is fine-tuned: its tokens, labels and columns are kept.
        text_field: The tokens of an encoder.
    """
    like = None
    if origin is not None:
        text_field = origin.field("text", Text)
        text_column, label_column = origin.column_names("text", "label")
        like = ExampleLayout(text_column, label_column, origin.field("label", Label).labels)
    elif text_field is not None and config.model.word_vectors:
        raise WeftError("`encoder` and `model.word_vectors` are both given", expected="one of the two")
    text = config.text
    normalizer = text_field.normalizer if text_field else Normalizer(text.normalization, text.lower, text.letters_only)
    examples = read_labelled(source, config.data, like, normalizer)
    rows = examples.rows
    if config.text.limit and config.text.limit < len(rows):
        rows = random.Random(config.train.seed).sample(rows, config.text.limit)
    labels = ordered_labels(row.label for row in rows) if like is None else like.labels
    check_labels(rows, labels)
    if len(labels) < 2:
        raise WeftError(f"all {len(rows):,} examples have the label {labels[0]!r}", expected="two labels or more")
    read = f"{rows[0].place} is read as the label {rows[0].label!r} of the text {short_repr(rows[0].text)}"
    check_labelled([row.label for row in rows], read, chosen=config.data.label_column != "")
    layout = examples.layout._replace(labels=labels)
    description = examples.description
    if dev is None:
        train, held = _split(rows, config)
    else:
        given = read_labelled(dev, config.data, layout, normalizer)
        train, held = rows, given.rows
        check_labels(held, labels)
        description += f"; held out: {given.description}" if given.columns != examples.columns else ""
    report_single((row.label for row in (*train, *held)), "labels")
    report_examples(train, held, "texts")
    if again := repeated([row.text for row in rows], "texts"):
        description += f"; {again}"
    counts = Counter(row.label for row in train)
    taught = labelled_by_teacher(config.data, layout, [*train, *held])
    if taught:
        description += f"; {len(taught):,} texts have the labels that {config.data.teacher} predicts"
        train = train * LABELLED_TIMES + taught
    parts = {TRAIN_PART: train, DEV_PART: held}
    texts = [row.text for row in train]
    is_new = text_field is None
    text_field = Text.fit(texts, config.text) if text_field is None else text_field
    if not is_new:
        warn_new_tokens(Counter(token for text in texts for token in text_field.unknown(text)))
    tokens = {name: [split_text(row.text, text_field) for row in part] for name, part in parts.items()}
    columns = {name: _encode(part, tokens[name], text_field, labels) for name, part in parts.items()}
    long = sum(len(ids) > config.data.max_tokens for part in columns.values() for ids in part["text"])
    description += f"; {long:,} texts cut to {config.data.max_tokens:,} tokens" if long else ""
    vectors = _vectors(text_field, config) if is_new else None
    for name, part in columns.items():
        if part["text"]:
            cut = [cut_middle(ids, config.data.max_tokens) for ids in part["text"]]
            store(folder, name, {"text": cut, "label": part["label"]})
    if vectors is not None:
        store(folder, WORD_VECTORS, {"ids": Column(vectors.ids), "values": Column(vectors.values)})
    if config.model.wide:
        labelled = [
            LabelledTokens(tokens[name], [place for (place,) in part["label"]]) for name, part in columns.items()
        ]
        store_ngrams(
            folder, *labelled, count=len(labels), seed=config.train.seed, drawn=dev is None, cross_fit=not taught,
            origin=origin,
        )  # fmt: skip
    fields = {"text": text_field, "label": Label({label: counts[label] for label in labels})}
    return fields_content(fields, columns={"text": layout.text, "label": layout.label}, description=description)


def load_examples(run: Run, name: str) -> dict[str, Column]:
    """The encoded examples of a part of a run's data."""
    tokens = len(run.field("text", Text).vocabulary)
    columns = stored(run, name, {"text": tokens, "label": len(run.field("label", Label).counts)})
    with decoding(run.path / DATA_FOLDER):
        if len(columns["label"].values) != len(columns["text"]):
            raise ValueError("texts and labels of different numbers")
    return columns


def _split(rows: list[Example], config: ClassifyConfig) -> tuple[list[Example], list[Example]]:
    """Splits examples into training and held-out ones. A label that would only be held out stays in training."""
    train, held = hold_out([row.text for row in rows], config.text.holdout, config.train.seed)
    known = {rows[number].label for number in train}
    back = {rows[number].text for number in held if rows[number].label not in known}
    train += [number for number in held if rows[number].text in back]
    return [rows[number] for number in train], [rows[number] for number in held if rows[number].text not in back]


def check_labels(rows: Sequence[Example], labels: Sequence[str]) -> None:
    """Refuses examples with a label that the training data does not have."""
    for row in rows:
        if row.label not in labels:
            known = ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
            raise WeftError(
                f"{row.place} has the label {row.label!r}, which is not in the training data",
                expected=f"one of: {known}",
            )


def split_text(text: str, text_field: Text) -> list[str]:
    """The tokens of a text."""
    return text_field.tokenizer.split(text_field.normalizer(text))


def _encode(
    rows: Sequence[Example], tokens: Sequence[Sequence[str]], text_field: Text, labels: Sequence[str]
) -> dict[str, list[list[int]]]:
    places = {label: place for place, label in enumerate(labels)}
    texts = [text_field.vocabulary.encode(one) for one in tokens]
    for row, ids in zip(rows, texts, strict=True):
        if not ids:
            raise WeftError(f"{row.place}: the text {row.text!r} has no tokens", expected="a text for every label")
    return {"text": texts, "label": [[places[row.label]] for row in rows]}


def cut_middle(tokens: _Tokens, limit: int) -> _Tokens:
    """Keeps at most `limit` tokens: of a longer text half from its beginning and half from its end."""
    return tokens if len(tokens) <= limit else tokens[: (limit + 1) // 2] + tokens[len(tokens) - limit // 2 :]


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
