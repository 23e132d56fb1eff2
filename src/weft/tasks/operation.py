"""Operations: the methods of a predictor that the command line, the server and the page offer.

An operation takes many inputs and returns one record for each; a record knows its text for people and its JSON. The
method's signature and docstring are the only place where its options stand: commands and their help, the schema of a
request and its checks are made from them. An option is a parameter annotated with `Option`, or each field of a
parameter that is a dataclass of settings; further ones are those of `read_inputs`, `to_text` and `to_json`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_type_hints

from weft.config import Settings, setting, setting_schema, without_none
from weft.engine import reproducible

Method = TypeVar("Method", bound=Callable[..., Any])
TEXT_INPUT: Mapping[str, Any] = {"type": "string"}


@dataclasses.dataclass(frozen=True)
class Option:
    """What an annotation says of an option of an operation or a probe: `Annotated[int, Option("How many.", 1)]`."""

    help: str  # what it is, as a sentence
    min: float | None = None  # the least value
    max: float | None = None  # the largest
    choices: tuple[str, ...] = ()  # all values; empty: any
    name: str = ""  # its name, where it is not that of the parameter
    # the values that a request to a server may give; None: any, (): none, it is for the command line alone
    requests: tuple[str, ...] | None = None
    flag: str | None = None  # of a probe, its name on the command line where it is not `--name`; "": it has none there


EvaluationData = Annotated[str | None, Option("Data to evaluate on; without it the run's own held-out data.")]
Strict = Annotated[bool, Option("Refuse rows that lack something, which are left out and counted otherwise.")]


class OperationInputs(NamedTuple):
    """What an operation takes."""

    help: str  # what the inputs are
    file: str = "A file with one text per line; - for standard input."  # help of --file
    missing: str = ""  # the message where there is no input; empty: there may be none
    example: str = ""  # what to try then
    option: str = ""  # an option that takes the inputs, such as --prompt, where they are no arguments
    # the JSON schema of an input; one that is no string is given as a line of JSON
    schema: Mapping[str, Any] = TEXT_INPUT


class EvaluationReport(NamedTuple):
    """The record of an evaluation."""

    record: dict[str, Any]
    lines: list[str]

    def to_text(self, number: int) -> str:
        return "\n".join(self.lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        return self.record


class Argument(NamedTuple):
    """Where the value of an option goes: to a parameter, or to a field of the dataclass that the parameter is."""

    parameter: str
    kind: Any
    default: Any
    metadata: Mapping[str, Any]
    group: type[Any] | None = None


Arguments = Mapping[str, Argument]


@dataclasses.dataclass(frozen=True)
class Operation:
    """A method that is an operation."""

    name: str  # its name in requests
    command: str  # the name of its command; several operations of a predictor may have one
    method: str  # the name of the method
    help: str  # the method's docstring, up to its arguments
    # what it takes; None: it has options only, reads files, and is no operation of a server
    inputs: OperationInputs | None
    reading: Arguments  # the options of `read_inputs`, on the command line
    arguments: Arguments  # the options of the method
    text: Arguments  # the options of a record's `to_text`
    json: Arguments  # the options of its `to_json`

    @property
    def options(self) -> dict[str, Argument]:
        """All options, as the command has them."""
        return {**self.reading, **self.arguments, **self.json, **self.text}

    def describe(self) -> dict[str, Any]:
        """The operation as plain data."""
        options = {name: setting_schema(one.kind, one.default, one.metadata) for name, one in self.options.items()}
        inputs = None if self.inputs is None else self.inputs._asdict()
        return {"command": self.command, "help": self.help, "inputs": inputs, "options": options}

    def request_options(self, limits: Mapping[str, Mapping[str, Any]]) -> type[Any]:
        """A dataclass of the options of a request, with further limits."""
        fields = []
        for name, one in {**self.arguments, **self.json}.items():
            if one.metadata.get("requests") != ():
                more = {**one.metadata, **limits.get(name, {})}
                known = {key: more[key] for key in ("help", "choices", "low", "high")}
                fields.append((name, one.kind, setting(one.default, **known)))
        return dataclasses.make_dataclass(f"{self.name.title()}Options", fields, frozen=True)

    def read(self, predictor: Any, texts: Sequence[str], file: str | None, options: Mapping[str, Any]) -> ReadInputs:
        """The inputs that a command was given."""
        read: ReadInputs = call_with(predictor.read_inputs, self.reading, options, self, texts, file)
        return read

    def results(self, predictor: Any, inputs: Sequence[Any] | None, options: Mapping[str, Any]) -> Iterator[Any]:
        """The record of each input, or the one record of an operation without inputs."""
        method = getattr(predictor, self.method)
        if inputs is None:
            yield call_with(method, self.arguments, options)
        else:
            yield from call_with(method, self.arguments, options, inputs)

    def to_text(self, record: Any, number: int, options: Mapping[str, Any]) -> Iterator[str]:
        """A record as people read it, in pieces."""
        found = call_with(record.to_text, self.text, options, number)
        yield from [found] if isinstance(found, str) else found

    def to_json(self, record: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = call_with(record.to_json, self.json, options)
        return found


class ReadInputs(NamedTuple):
    """Inputs as a command reads them."""

    inputs: Sequence[Any]  # what the operation takes
    notes: Sequence[str] = ()  # how they were read, where that was not given
    # writes the records in the form of the inputs, with the options of the command; None: one by one
    write: Callable[[Sequence[Any], Mapping[str, Any]], Iterator[str]] | None = None


def operation(name: str, inputs: OperationInputs | None = None, *, command: str = "") -> Callable[[Method], Method]:
    """Marks a method of a predictor as an operation; the type that it returns many of is that of the records.

    A record has `to_text(number)`, what people read, whole or in pieces, with its line end, where `number` records
    stand before it; and `to_json()`, a dict.
    """

    def mark(method: Method) -> Method:
        held = _reproducible(method)
        held.operation = (name, command or name, inputs)  # type: ignore[attr-defined]
        return held

    return mark


def _reproducible(method: Method) -> Method:
    """The method, whose results do not depend on the number of threads; nothing is held between two of its results."""

    @wraps(method)
    def run(*args: Any, **options: Any) -> Any:
        with reproducible():
            results = method(*args, **options)
        return each_of(results) if isinstance(results, Iterator) else results

    def each_of(results: Iterator[Any]) -> Iterator[Any]:
        while True:
            with reproducible():
                try:
                    result = next(results)
                except StopIteration:
                    return
            yield result

    return cast(Method, run)


@cache
def operations(kind: Any) -> Mapping[str, Operation]:
    """The operations of a class of predictors by name, in the order of their definition."""
    found = {}
    for owner in reversed(kind.__mro__):
        for method in [name for name, value in vars(owner).items() if hasattr(value, "operation")]:
            function = getattr(kind, method)
            name, command, inputs = function.operation
            record = get_type_hints(function)["return"]
            record = (get_args(record) or (record,))[-1]
            reading = {} if inputs is None else read_arguments(kind.read_inputs)
            help = re.split(r"\n\n(?:Args|Returns|Raises):", inspect.getdoc(function) or "")[0]
            options = map(read_arguments, (function, record.to_text, record.to_json))
            found[name] = Operation(name, command, method, help, inputs, reading, *options)
    return found


@cache
def read_arguments(function: Callable[..., Any]) -> Arguments:
    """The options of a function by name."""
    found = {}
    hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        kind = hints.get(parameter.name)
        if isinstance(kind, type) and issubclass(kind, Settings):
            fields = get_type_hints(kind)
            for entry in dataclasses.fields(kind):  # type: ignore[arg-type]
                value = getattr(parameter.default, entry.name)
                found[entry.name] = Argument(parameter.name, fields[entry.name], value, entry.metadata, kind)
        for one in getattr(kind, "__metadata__", ()):
            if isinstance(one, Option):
                metadata = {**vars(one), "low": one.min, "high": one.max}
                given = without_none(get_args(kind)[0])
                found[one.name or parameter.name] = Argument(parameter.name, given, parameter.default, metadata)
    return found


def call_with(function: Callable[..., Any], arguments: Arguments, options: Mapping[str, Any], *args: Any) -> Any:
    """Calls a function with those of the options that are its own."""
    given: dict[str, Any] = {}
    groups: dict[str, tuple[type[Any], dict[str, Any]]] = {}
    for name, one in arguments.items():
        if name not in options:
            continue
        if one.group is None:
            given[one.parameter] = options[name]
        else:
            groups.setdefault(one.parameter, (one.group, {}))[1][name] = options[name]
    made = {parameter: group(**values) for parameter, (group, values) in groups.items()}
    return function(*args, **given, **made)


def describe_task(task: Any) -> dict[str, Any]:
    """What the command line needs to know of a task, as plain data: its help, its options, its operations."""
    flags, settings, encoder = {}, [], False
    sections = get_type_hints(task.config_class)
    for section in (one.name for one in dataclasses.fields(task.config_class)):
        kind = sections[section]
        kinds = get_type_hints(kind)
        encoder = encoder or "unfreeze_epochs" in kinds
        for entry in dataclasses.fields(kind):
            settings.append(f"{section}.{entry.name}")
            flag, _, value = entry.metadata.get("option", "").partition("=")
            if flag:
                help = entry.metadata["help"].partition(f"{value}: ")[2] if value else entry.metadata["help"]
                schema = setting_schema(kinds[entry.name], None, {"help": help})
                flags[flag] = {**schema, "setting": f"{section}.{entry.name}", **({"value": value} if value else {})}
    found: dict[str, Any] = {}
    for predictor in task.predictors:
        found = {name: one.describe() for name, one in operations(predictor).items()} | found
    words = {name: getattr(task, name) for name in ("summary", "details", "data_help", "dev_help")}
    return {**words, "encoder": encoder, "flags": flags, "settings": settings, "operations": found}
