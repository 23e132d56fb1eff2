"""The operations of a loaded model as requests call them: with the limits of a server, and records as JSON.

An operation that the server has never seen is served as any other: its options, and the schema of its inputs, are its
own. What operations are in the protocols of clients is said where these are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from weft.config import from_dict
from weft.errors import WeftError
from weft.server.config import LONGEST_INPUT, MOST_CHARACTERS, MOST_INPUTS, MOST_VALUES
from weft.server.errors import RequestError
from weft.server.schema import Schema, check_value, options_schema
from weft.tasks import load_for
from weft.tasks.operation import Operation, operations
from weft.training.run import Run

JsonRecord = dict[str, Any]
# Options of requests that have limits, of all operations and of single ones, since they take time and memory.
LIMITS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "": {"n_best": {"high": 100}, "beam": {"high": 100}, "length_penalty": {"high": 10}},
    "fill": {"tokens": {"high": 20}, "width": {"high": 200}},
    "generate": {"tokens": {"high": 1000}},
}
LONGEST_LIST = 1000  # of an option
ATTENDED = 100  # how many weights a character may have: one for each token of its translation
MOST_MISSING = 20  # tokens of a text with blanks
MOST_FORECAST = 20_000  # values of all series, each counted once for every horizon that follows another
SEARCHED = 200_000  # characters of a text with blanks times beam width


class Languages(NamedTuple):
    """The language codes of a translator."""

    source: str
    target: str


class Profile(Protocol):
    """What texts of one language look like."""

    def log_prob(self, text: str) -> float: ...


UNKNOWN_LANGUAGES = Languages("source", "target")  # of a translator whose languages are not known


def languages_in(name: str) -> Languages:
    """Language codes in the name of a run or a model, such as en-fr; a run directory does not record languages.

    >>> languages_in("runs-en-to-fr")
    Languages(source='en', target='fr')
    """
    found = re.search(r"(?<![a-z])([a-z]{2,3})[-_](?:to[-_])?([a-z]{2,3})(?![a-z])", name.lower())
    return Languages(found[1], found[2]) if found else UNKNOWN_LANGUAGES


@dataclass(frozen=True)
class ServedOperation:
    """An operation of a loaded model."""

    predictor: Any
    operation: Operation

    @property
    def name(self) -> str:
        return self.operation.name

    @property
    def input_schema(self) -> Schema:
        assert self.operation.inputs is not None
        return dict(self.operation.inputs.schema)

    @cached_property
    def options(self) -> type[Any]:
        """A dataclass of the options of a request."""
        return self.operation.request_options({**LIMITS[""], **LIMITS.get(self.name, {})})

    def describe(self) -> JsonRecord:
        help = self.operation.help
        return {"description": help, "input": self.input_schema, "options": options_schema(self.options)}

    def read_options(self, given: Mapping[str, Any]) -> Any:
        options = from_dict(self.options, given)
        for name, value in vars(options).items():
            if isinstance(value, tuple) and len(value) > LONGEST_LIST:
                raise WeftError(f"the {name} has {len(value):,} entries", expected=f"at most {LONGEST_LIST:,}")
        return options

    def check_inputs(self, inputs: Sequence[Any], options: Any) -> None:
        """Refuses more, or longer, inputs than a request may have."""
        sizes = [len(one if isinstance(one, str) else json.dumps(one)) for one in inputs]
        if len(inputs) > MOST_INPUTS:
            raise RequestError(400, f"{len(inputs):,} texts; expected at most {MOST_INPUTS}")
        if (longest := max(sizes)) > LONGEST_INPUT:
            raise RequestError(400, f"a text has {longest:,} characters; expected at most {LONGEST_INPUT:,}")
        labels = len(self.predictor.labels) if self.name == "classify" else 1
        if len(inputs) * labels > MOST_VALUES:
            most = max(1, MOST_VALUES // labels)
            raise RequestError(400, f"{len(inputs):,} texts with {labels:,} labels each; expected at most {most:,}")
        growth = getattr(options, "n_best", 1) * (ATTENDED if getattr(options, "attention", False) else 1)
        growth *= max(1, options.tokens) if self.name == "generate" else 1
        if sum(sizes) * growth > MOST_CHARACTERS:
            most = MOST_CHARACTERS // growth
            raise RequestError(
                400, f"the texts have {sum(sizes):,} characters; expected at most {most:,}"
                + (" with these options, as each is returned several times" if growth > 1 else "")
            )  # fmt: skip
        for place, value in enumerate(inputs):
            check_value(self.input_schema, value, f"inputs[{place}]")
        if self.name == "forecast":
            check_forecast(inputs, options.horizon, self.predictor.model.horizon)

    def predict(self, inputs: Sequence[Any], options: Any) -> list[JsonRecord]:
        """A record for each input. It does not depend on the other inputs."""
        if self.name == "fill":
            for text in inputs:
                check_search(text, self.predictor.missing_tokens(text, options.tokens), options)
        given = vars(options)
        results = self.operation.results(self.predictor, inputs, given)
        records = [self.operation.to_json(one, given) for one in results]
        if self.name in ("tag", "segment"):
            return [{**one, "offsets": word_offsets(one["text"], one["words"])} for one in records]
        return records


def served_operations(task: Any, run: Run, predictor: Any) -> dict[str, ServedOperation]:
    """What a model can do for requests; the operations of other predictors of its run, too."""
    found = {name: ServedOperation(predictor, one) for name, one in predictor.operations.items() if one.inputs}
    for kind in task.predictors:
        for name, one in {} if isinstance(predictor, kind) else operations(kind).items():
            if one.inputs and name not in found:
                found[name] = ServedOperation(load_for(run, one.command), one)
    return found


def check_search(text: str, missing: int, options: Any) -> None:
    """Refuses what takes too long or too much memory: for each missing token but the first, a beam of whole texts."""
    if missing > MOST_MISSING:
        raise WeftError(f"{missing:,} tokens of the text are missing", expected=f"at most {MOST_MISSING}")
    beam = max(options.width, options.n_best)
    if missing > 1 and len(text) * beam > SEARCHED:
        raise WeftError(
            f"a text of {len(text):,} characters with {missing} missing tokens and a beam width of {beam}",
            expected=f"at most {SEARCHED // beam:,} characters",
        )


def check_forecast(series: Sequence[Any], horizon: int | None, trained: int) -> None:
    """Refuses series that take long: forecasters are fitted to each value, and anew after each horizon of training.

    Raises:
        RequestError: 400.
    """
    steps = horizon or trained
    values = sum(map(_count_values, series))
    if (values + steps * len(series)) * -(-steps // trained) > MOST_FORECAST:
        fewer = f" with a horizon of {trained:,}, that of the training" if steps > trained else ""
        raise RequestError(
            400,
            f"series of {values:,} values and a horizon of {steps:,}; expected at most {MOST_FORECAST:,} values{fewer}",
        )


def _count_values(value: Any) -> int:
    rows = value.get("y", ()) if isinstance(value, Mapping) else value
    return sum(len(row) if isinstance(row, list) else 1 for row in rows)


def word_offsets(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Where each word stands in the text, as (begin, end) in code points.

    >>> word_offsets("Don't  go.", ["Do", "n't", "go", "."])
    [(0, 2), (2, 5), (7, 9), (9, 10)]
    """
    found, at = [], 0
    for word in words:
        begin = text.find(word, at)
        assert begin >= 0, "a word is a part of the text"
        at = begin + len(word)
        found.append((begin, at))
    return found
