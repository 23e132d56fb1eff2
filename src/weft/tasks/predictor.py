"""What all predictors have in common."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from weft import html
from weft.errors import WeftError, not_finite, short_repr, warn
from weft.metrics import ExampleStatistics
from weft.tasks.operation import TEXT_INPUT, EvaluationReport, Operation, ReadInputs, operations
from weft.text.corpus import open_documents
from weft.text.dataframes import to_dataframe
from weft.text.tables import numbered_lines
from weft.text.text_field import Text
from weft.text.vocabulary import RESERVED
from weft.training.run import Run

_Result = TypeVar("_Result")
LIKELIHOODS = ("cross_entropy", "perplexity")  # metrics that are numbers unless the model is broken
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class TaskPredictor:
    """A trained model, ready for use."""

    run: Run
    model: Any

    def __repr__(self) -> str:
        weights = ""
        if isinstance(self.model, nn.Module):
            weights = f", {sum(parameter.numel() for parameter in self.model.parameters()):,} weights"
        return f"{type(self).__name__}({str(self.run.path)!r}{weights})"

    @property
    def operations(self) -> Mapping[str, Operation]:
        """What it can do, by name."""
        return operations(type(self))  # type: ignore[arg-type]

    @property
    def example(self) -> str:
        """A short text that the model can read; empty unless a task has one."""
        return ""

    def as_input(self, sentence: str) -> str:
        """A sentence as an input of its main operation."""
        return sentence

    def read_inputs(self, operation: Operation, texts: Sequence[str], file: str | None) -> ReadInputs:
        """The inputs that a command was given: texts, `-` for standard input, or the lines of a file."""
        lines = [line for text in texts for line in (read_lines("-") if text == "-" else [text])]
        if file is not None:
            lines = read_lines(file)
        if operation.inputs is None or operation.inputs.schema == TEXT_INPUT:
            return ReadInputs(lines)
        return ReadInputs([_from_json(line) for line in lines])

    def notes(self, texts: Sequence[Any], options: Mapping[str, Any] = NO_OPTIONS) -> list[str]:
        """What a user should know about these inputs of an operation with options; nothing unless a task says more."""
        return []

    def report(self, record: dict[str, Any], lines: Iterable[str], notes: Iterable[str] = ()) -> EvaluationReport:
        """The report of an evaluation; warns with the notes on its data, and refuses values that are not finite."""
        if any(math.isnan(record.get(name, 0.0)) for name in LIKELIHOODS):
            raise not_finite(f"{self.run.path}: the model")
        for note in notes:
            warn(note)
        return EvaluationReport(record, list(lines))

    def held_out_metrics(self) -> dict[str, float]:
        """The metrics on the run's own held-out data, as evaluations in training have them; none without such data."""
        return {}

    def held_out_texts(self) -> Iterator[str]:
        """The run's own held-out texts as the model reads them, to look at."""
        return iter(())

    def held_out_statistics(self) -> tuple[ExampleStatistics, ...]:
        """Metrics of the run's own held-out examples one by one, for paired tests."""
        return ()

    def check_finite(self, values: Tensor) -> Tensor:
        """Returns what the model computed; refuses NaN and infinity, which large weights give in an unbounded cell."""
        if not (values < torch.inf).all():
            raise not_finite(f"{self.run.path}: the model")
        return values


class ResultList(list[_Result]):
    """Predictions, one for each row of the input. A notebook shows them below each other.

    Args:
        results: The predictions; a list of alternatives is a ResultList itself.
        index: The index of the input, if it was a DataFrame or a Series of pandas.
        column: The name of a prediction that is a text or a list of words.

    >>> list(ResultList(["Va !", ""], column="translation").records())
    [{'translation': 'Va !'}, {'translation': ''}]
    """

    def __init__(self, results: Iterable[_Result] = (), *, index: Any = None, column: str = "text") -> None:
        super().__init__(results)
        self.row_index, self.column = index, column

    def records(self) -> Iterator[dict[str, Any]]:
        """A row for each prediction, for a DataFrame of any library; alternatives have a `rank`, from 1."""
        for item in self:
            if isinstance(item, ResultList):
                yield from ({"rank": rank, **record} for rank, record in enumerate(item.records(), start=1))
            elif hasattr(item, "record"):
                yield item.record()
            elif dataclasses.is_dataclass(item) and not isinstance(item, type):
                yield {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
            else:
                yield {self.column: item}

    def to_dataframe(self) -> Any:
        """The records as a pandas DataFrame, with the index of the input, or with the numbers of its rows.

        Raises:
            WeftError: pandas is not installed.
        """
        counts = (len(item) if isinstance(item, ResultList) else 1 for item in self)
        places = [place for place, count in enumerate(counts) for _ in range(count)]
        return to_dataframe(self.records(), places if self.row_index is None else self.row_index.take(places))

    def _repr_html_(self) -> str:
        return html.below_each_other(self)


def example_of(text_field: Text, count: int = 6) -> str:
    """A text of the first tokens of a vocabulary."""
    tokens = [token for token in text_field.vocabulary.tokens[len(RESERVED) :] if token.strip()]
    return text_field.tokenizer.join(tokens[:count])


def read_lines(source: str) -> list[str]:
    """The lines of a file, or of standard input for `-`; none if it is empty. Errors name the line."""
    return [line for document in open_documents(source) for _, line in numbered_lines(document)]


def _from_json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WeftError(f"the input {short_repr(line)} is no JSON: {error}", expected="a value as JSON") from error
