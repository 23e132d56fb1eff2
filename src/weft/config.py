"""Settings: frozen dataclasses, read strictly from a TOML file and from `--set section.key=value`.

Every setting has a default, a type, a line of help and, where it matters, a range or a list of choices. An
unknown key, a wrong type or a value out of range is an error that names the key and the nearest right one.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from weft.errors import WeftError, unknown_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Config = TypeVar("Config")
Value = TypeVar("Value", bool, int, float, str)


def setting(
    default: Value,
    help: str,
    *,
    choices: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
) -> Value:
    """A dataclass field with its help and the values it takes (`low` and `high` included)."""
    metadata = {"help": help, "choices": tuple(choices), "low": low, "high": high}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class TextConfig:
    level: str = setting("char", "what a token is", choices=("char", "word", "subword"))
    normal_form: str = setting("NFC", "Unicode normalisation", choices=("NFC", "NFKC", "none"))
    lower: bool = setting(False, "turn text to lower case")
    letters_only: bool = setting(False, "turn every run of other characters than a-z, A-Z into one space")
    min_count: int = setting(1, "tokens seen less often become <unk>", low=1)
    max_size: int = setting(0, "largest vocabulary, reserved symbols included; 0: no limit (subword: 2000)", low=0)
    limit: int = setting(0, "read only so many tokens; 0: all", low=0)
    holdout: float = setting(0.1, "share of the text's end held out when no --dev is given", low=0, high=0.9)


@dataclass(frozen=True)
class ModelConfig:
    cell: str = setting("lstm", "the recurrent cell, a name of weft.cells.CELLS")
    hidden: int = setting(256, "hidden units of each layer", low=1)
    layers: int = setting(1, "layers", low=1)
    embedding: int = setting(0, "numbers that stand for a token; 0: its one-hot vector", low=0)
    tied: bool = setting(False, "use the embedding as the output weights too (needs embedding = hidden)")
    dropout: float = setting(0.3, "share of a layer's outputs dropped while training", low=0, high=0.95)
    residual: bool = setting(False, "add a layer's input to its output")
    bidirectional: bool = setting(False, "read from both ends (refused where it would see the answer)")


@dataclass(frozen=True)
class BatchConfig:
    size: int = setting(32, "rows of a batch", low=1)
    steps: int = setting(35, "steps of a row", low=1)
    sampling: str = setting(
        "sequential",
        "sequential: adjacent batches continue each other, state carried; random: windows anywhere, fresh state",
        choices=("sequential", "random"),
    )


@dataclass(frozen=True)
class BpttConfig:
    method: str = setting(
        "full",
        "how far gradients flow: full window; each prediction exactly `steps` back; cut at random, unbiased",
        choices=("full", "truncated", "randomized"),
    )
    steps: int = setting(16, "truncated: steps a gradient flows back", low=1)
    keep: float = setting(0.9, "randomized: chance that a gradient goes on to the step before", low=0.01, high=1)


@dataclass(frozen=True)
class TrainConfig:
    epochs: int = setting(20, "passes over the text", low=0)
    minutes: float = setting(0.0, "stop after so many minutes of training; 0: no limit", low=0)
    optimizer: str = setting("adamw", "the optimizer", choices=("sgd", "adam", "adamw"))
    rate: float = setting(0.004, "learning rate", low=0)
    momentum: float = setting(0.0, "sgd: momentum", low=0, high=0.999)
    weight_decay: float = setting(0.01, "adamw: weight decay", low=0)
    schedule: str = setting("cosine", "course of the learning rate", choices=("constant", "cosine", "plateau"))
    warmup: int = setting(50, "cosine: steps until the full rate", low=0)
    plateau_factor: float = setting(
        0.5, "plateau: the rate's factor when held-out loss stops falling", low=0.01, high=1
    )
    plateau_patience: int = setting(1, "plateau: evaluations without a better one before it falls", low=0)
    clip: float = setting(1.0, "largest global norm of the gradient; 0: not clipped", low=0)
    patience: int = setting(0, "stop after so many evaluations without a better one; 0: never", low=0)
    evaluate_every: int = setting(0, "steps between evaluations; 0: after each epoch", low=0)
    save_seconds: float = setting(20.0, "seconds between saves of everything a resumed run needs", low=0)
    seed: int = setting(1, "seed of all randomness", low=0)
    device: str = setting("cpu", "where to train: cpu, cuda, cuda:1, mps, ...")


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    embedding: int = setting(128, "numbers that stand for a token; 0: its one-hot vector", low=0)


@dataclass(frozen=True)
class LanguageTrainConfig(TrainConfig):
    epochs: int = setting(26, "passes over the text", low=0)


@dataclass(frozen=True)
class LanguageConfig:
    """The settings of `weft train lm`."""

    text: TextConfig = field(default_factory=TextConfig)
    model: LanguageModelConfig = field(default_factory=LanguageModelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    bptt: BpttConfig = field(default_factory=BpttConfig)
    train: LanguageTrainConfig = field(default_factory=LanguageTrainConfig)


@dataclass(frozen=True)
class FillTextConfig(TextConfig):
    level: str = setting("word", "what a token is, and so a blank", choices=("char", "word", "subword"))
    lower: bool = setting(True, "turn text to lower case")
    min_count: int = setting(2, "tokens seen less often become <unk>", low=1)


@dataclass(frozen=True)
class FillModelConfig(ModelConfig):
    hidden: int = setting(128, "hidden units of each layer, in each direction", low=1)
    embedding: int = setting(128, "numbers that stand for a token; 0: its one-hot vector", low=0)
    tied: bool = setting(True, "use the embedding as the output weights too (needs embedding = hidden)")
    bidirectional: bool = setting(True, "read what stands after a blank too; false: only what stands before it")


@dataclass(frozen=True)
class FillBatchConfig:
    size: int = setting(16, "rows of a batch", low=1)
    steps: int = setting(32, "tokens of a row", low=2)
    blanks: float = setting(
        0.2, "share of a row's tokens shown as blanks, so that a text with several is nothing new", low=0, high=0.5
    )


@dataclass(frozen=True)
class FillConfig:
    """The settings of `weft train fill`."""

    text: FillTextConfig = field(default_factory=FillTextConfig)
    model: FillModelConfig = field(default_factory=FillModelConfig)
    batch: FillBatchConfig = field(default_factory=FillBatchConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class NgramModelConfig:
    order: int = setting(5, "tokens of the longest n-gram: one is told from the order - 1 before it", low=1, high=50)


@dataclass(frozen=True)
class NgramConfig:
    """The settings of `weft train ngram`."""

    text: TextConfig = field(default_factory=TextConfig)
    model: NgramModelConfig = field(default_factory=NgramModelConfig)


@dataclass(frozen=True)
class HmmModelConfig:
    states: int = setting(32, "hidden states", low=1)


@dataclass(frozen=True)
class HmmTrainConfig:
    iterations: int = setting(50, "most steps of Baum-Welch in a run", low=0)
    tolerance: float = setting(1e-4, "a run ends when a step gains fewer nats a token", low=0)
    smoothing: float = setting(0.01, "added to every count, so that nothing is impossible", low=0)
    restarts: int = setting(1, "runs from different random models, of which the best is kept", low=1)
    length: int = setting(500, "tokens of the sequences that the text is cut into", low=2)
    seed: int = setting(1, "seed of all randomness", low=0)


@dataclass(frozen=True)
class HmmConfig:
    """The settings of `weft train hmm`."""

    text: TextConfig = field(default_factory=TextConfig)
    model: HmmModelConfig = field(default_factory=HmmModelConfig)
    train: HmmTrainConfig = field(default_factory=HmmTrainConfig)


def load_config(
    kind: type[Config], file: Path | None = None, sets: Iterable[str] = (), *, base: Mapping[str, Any] | None = None
) -> Config:
    """Defaults, then `base`, then the TOML file, then each `section.key=value` in turn."""
    values: dict[str, Any] = copy.deepcopy(dict(base or {}))
    for section, part in ({} if file is None else _read_toml(file)).items():
        values[section] = {**values.get(section, {}), **part} if isinstance(part, dict) else part
    for assignment in sets:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise WeftError(
                f"--set {assignment!r} has no key and value", expected="section.key=value", hint="--set train.rate=0.01"
            )
        _put(values, key.strip().split("."), _parse_value(text.strip()), assignment)
    return from_dict(kind, values)


def from_dict(kind: type[Config], values: Mapping[str, Any], prefix: str = "") -> Config:
    """The nested mapping as the dataclass, strictly: no unknown key, no wrong type, nothing out of range."""
    types = get_type_hints(kind)
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown_name("setting", prefix + name, [prefix + known for known in fields])
        if dataclasses.is_dataclass(types[name]):
            if not isinstance(value, Mapping):
                raise WeftError(f"{prefix}{name} is {value!r}", expected=f"a section, such as [{prefix}{name}]")
            made[name] = from_dict(types[name], value, f"{prefix}{name}.")
        else:
            made[name] = _checked(prefix + name, value, types[name], fields[name].metadata)
    return kind(**made)


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as nested plain values, for JSON."""
    return dataclasses.asdict(config)


def to_toml(config: Any) -> str:
    """The configuration as a commented TOML file, ready to be edited and given to `--config`."""
    lines = []
    for section in dataclasses.fields(config):
        lines.append(f"[{section.name}]")
        part = getattr(config, section.name)
        for entry in dataclasses.fields(part):
            value = getattr(part, entry.name)
            text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else value
            choices = f" ({', '.join(entry.metadata['choices'])})" if entry.metadata["choices"] else ""
            lines.append(f"{entry.name} = {text}  # {entry.metadata['help']}{choices}")
        lines.append("")
    return "\n".join(lines)


def changed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """The keys whose values differ, as {"section.key": (old, new)}."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found.update(changed(before, after, f"{prefix}{name}."))
        elif before != after:
            found[prefix + name] = (before, after)
    return found


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        return values
    except OSError as error:
        raise WeftError(f"configuration file {file}: {error.strerror}", expected="a readable TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WeftError(f"configuration file {file}: {error}", expected="TOML") from error


def _parse_value(text: str) -> Any:
    """The text as a TOML value where it is one (3, 0.1, true, "x"), else as it stands (lstm)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(values: dict[str, Any], path: Sequence[str], value: Any, assignment: str) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise WeftError(f"--set {assignment!r} goes below {name!r}, which is a value", expected="section.key=value")
    values[path[-1]] = value


_TYPES: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
}


def _checked(key: str, value: Any, kind: type, limits: Mapping[str, Any]) -> Any:
    accepted, words = _TYPES[kind]
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise WeftError(f"{key} is {value!r}", expected=words)
    if limits["choices"] and value not in limits["choices"]:
        raise unknown_name(key, str(value), limits["choices"])
    low, high = limits["low"], limits["high"]
    too_low, too_high = low is not None and not value >= low, high is not None and not value <= high
    if too_low or too_high or (kind is float and value in (float("inf"), float("-inf"))):
        bounds = f"{low} to {high}" if high is not None else f"{low} or more"
        raise WeftError(f"{key} is {value}", expected=bounds if low is not None else "a finite number")
    return kind(value)
