"""What a classifier reads, texts or series: all that depends on which.

The parts of an example are what models read: the tokens of a text, the scaled values (T, C) of a series. Training,
prediction and probes are written once over `ClassifierInput`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from weft.data.column import Array
from weft.data.field import Field
from weft.errors import WeftError
from weft.nn.channels import ChannelLayer
from weft.series import ScaledSeries, SeriesColumns, SeriesSet, TimeSeries
from weft.series.examples import given_series, read_examples, same_channels
from weft.tasks.classify.config import ClassifyConfig, ClassifyDataConfig, ClassifyModelConfig
from weft.tasks.classify.model import TokenLayer
from weft.tasks.classify.readers import Example, ExampleLayout, Examples, ExampleSource, read_labelled
from weft.tasks.config import SERIES_EXAMPLES, TEXT_EXAMPLES
from weft.tasks.operation import TEXT_INPUT
from weft.text.columns import read_rows
from weft.text.text_field import Text
from weft.training.run import Run

# Settings that only texts have, and their values where nothing is set.
TEXT_SETTINGS = ("data.unlabelled", "data.teacher", "data.label_separator", "data.text_column", "model.word_vectors")


class GivenExamples(NamedTuple):
    """Examples to classify: "" or None where one is missing, what each is called, and the index of a table of them."""

    values: list[Any]
    names: list[str]
    index: Any = None


class ClassifierInput(ABC):
    """What a classifier reads.

    Attributes:
        name: of its field, of its column, and of one in messages.
        plural: of several.
        unit: what the parts of one are called.
        linear: what its linear models read.
        svm: the name of its linear SVM, which is reported as a baseline.
        stored_type: that of its column.
    """

    name: ClassVar[str]
    plural: ClassVar[str]
    unit: ClassVar[str]
    linear: ClassVar[str]
    svm: ClassVar[str]
    stored_type: ClassVar[type[np.generic]]
    field: Field[Any]

    @abstractmethod
    def parts(self, value: Any) -> Any:
        """What models read of a value."""

    @abstractmethod
    def encode(self, parts: Any) -> Sequence[int] | Array:
        """The row of a column."""

    @abstractmethod
    def step_names(self, value: Any, parts: Any) -> tuple[str, ...]:
        """The names of the parts: tokens, or times."""

    @abstractmethod
    def without(self, parts: Any, places: set[int]) -> Any:
        """The parts as if some were not known: tokens are left out, values are missing."""

    @abstractmethod
    def layer(self, config: ClassifyModelConfig) -> TokenLayer | ChannelLayer:
        """The lowest layer of the network."""

    @abstractmethod
    def given(self, values: Any, layout: ExampleLayout) -> GivenExamples:
        """Examples without labels from Python, from a command or from a request."""

    @abstractmethod
    def read(self, source: Any, config: ClassifyDataConfig, layout: ExampleLayout) -> Examples:
        """Labelled examples, read as the training data were."""

    @abstractmethod
    def shown(self, row: Array) -> str:
        """A stored row as somebody would type it."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of an example in a request."""
        return TEXT_INPUT


@dataclass(frozen=True)
class TextInput(ClassifierInput):
    """Texts: their tokens."""

    name, plural, unit, linear, svm = TEXT_EXAMPLES, "texts", "tokens", "n-grams", "NB-SVM"
    stored_type = np.int32

    field: Text

    def parts(self, value: str) -> list[str]:
        return self.field.tokenizer.split(self.field.normalizer(value))

    def encode(self, parts: Sequence[str]) -> list[int]:
        return self.field.vocabulary.encode(parts)

    def step_names(self, value: str, parts: Sequence[str]) -> tuple[str, ...]:
        return tuple(parts)

    def without(self, parts: Sequence[str], places: set[int]) -> list[str]:
        return [token for place, token in enumerate(parts) if place not in places]

    def layer(self, config: ClassifyModelConfig) -> TokenLayer:
        return TokenLayer(len(self.field.vocabulary), config, unknown=self.field.vocabulary.unk_id)

    def given(self, values: Any, layout: ExampleLayout) -> GivenExamples:
        rows = read_rows(values, layout.text)
        texts = rows.texts()
        return GivenExamples(texts, texts, rows.index)

    def read(self, source: ExampleSource, config: ClassifyDataConfig, layout: ExampleLayout) -> Examples:
        return read_labelled(source, config, layout)

    def shown(self, row: Array) -> str:
        return self.field.decode(row.tolist())


@dataclass(frozen=True)
class SeriesInput(ClassifierInput):
    """Series of numbers: their values, scaled."""

    name, plural, unit, linear, svm = SERIES_EXAMPLES, "series", "steps", "convolutions", "SVM of convolutions"
    stored_type = np.float32

    field: ScaledSeries

    def parts(self, value: TimeSeries) -> Array:
        found: Array = self.field.encode(value)
        return found

    def encode(self, parts: Array) -> Array:
        return parts

    def step_names(self, value: TimeSeries, parts: Array) -> tuple[str, ...]:
        found: tuple[str, ...] = self.field.names(value)
        return found

    def without(self, parts: Array, places: set[int]) -> Array:
        found: Array = parts.copy()
        found[sorted(places)] = np.nan
        return found

    def layer(self, config: ClassifyModelConfig) -> ChannelLayer:
        return ChannelLayer(len(self.field.channels), config.embedding_dim, config.embedding_dropout)

    def given(self, values: Any, layout: ExampleLayout) -> GivenExamples:
        found = given_series(values, self.field, layout.label)
        return GivenExamples(found, [one.id or str(number) for number, one in enumerate(found, start=1)])

    def read(self, source: Any, config: ClassifyDataConfig, layout: ExampleLayout) -> Examples:
        found, read = read_labelled_series(source, config, layout, self.field.columns)
        same_channels(read, self.field.channels, source)
        return found

    def shown(self, row: Array) -> str:
        return json.dumps(self.field.json_of(self.field.decode(row))["y"])

    @property
    def example(self) -> list[Any]:
        """The means of the channels, for a few steps."""
        return self.field.example

    @property
    def schema(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.field.schema["properties"]["y"]
        return found


def input_of(run: Run) -> ClassifierInput:
    """What the classifier of a run reads."""
    if SERIES_EXAMPLES in run.fields:
        return SeriesInput(run.field(SERIES_EXAMPLES, ScaledSeries))
    return TextInput(run.field(TEXT_EXAMPLES, Text))


def read_labelled_series(
    source: Any, config: ClassifyDataConfig, layout: ExampleLayout, columns: SeriesColumns | None = None
) -> tuple[Examples, SeriesSet]:
    """Labelled series, and the set that they are from; those without a label are left out, or with `strict` refused.

    Args:
        source: what `read_examples` reads.
        config: the columns and rules that are set.
        layout: the column of the labels in the training data.
        columns: the other columns of the training data.
    """
    if columns is None or columns.layout == "auto":
        names: dict[str, Any] = {"id": config.id, "time": config.time, "target": config.channels}
        columns = SeriesColumns.of("auto", **{name: value or None for name, value in names.items()})
    label = str(config.label_column) or layout.label
    rules = {"freq": config.freq, "aggregate": config.aggregate}
    found = read_examples(source, columns, label, rules=rules)
    rows, missing = [], 0
    for one, name, place in zip(found.series, found.labels, found.places, strict=True):
        if not name and config.strict:
            raise WeftError(f"{place} has no label", expected="a label for every series", hint="`data.strict=false`")
        missing += not name
        if name:
            rows.append(Example(one, name, place))
    if not rows:
        raise WeftError("no series has a label", expected="series with labels", hint="`data.label_column=NAME`")
    description = "; ".join(found.series.reading)
    if found.column:
        description += f"; label {found.column!r}"
    if missing:
        description += f"; {missing:,} series without a label left out"
    return Examples(rows, ExampleLayout("", found.column), description, missing, description), found.series


def check_series_settings(config: ClassifyConfig) -> None:
    """Refuses settings that only texts have."""
    for key in TEXT_SETTINGS:
        section, name = key.split(".")
        if getattr(getattr(config, section), name):
            raise WeftError(f"`{key}` is set, and the examples are series of numbers", expected="a setting of series",
                            hint="`data.input=text`, if they are texts")  # fmt: skip
