"""The run directory: all there is to know of a trained model, in files that anything can read.

    config.json          format number, task, every setting
    vocabulary.json      normalisation, tokenizer, tokens and their counts
    weights.safetensors  the best weights so far
    last.safetensors     the newest weights and all else a resumed run needs
    metrics.jsonl        a line for every report and evaluation
    data/                the encoded text, for resuming; may be deleted once training is over

Nothing is ever unpickled. A file is written beside its place and renamed into it, so that a kill at any moment
leaves the old one or the new one whole, and it carries a hash of its content, so that damage is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

import weft
from weft.errors import WeftError

FORMAT = 1  # raised when an older weft could not read what a newer one writes

CONFIG, VOCABULARY, METRICS = "config.json", "vocabulary.json", "metrics.jsonl"
BEST, LAST = "weights.safetensors", "last.safetensors"


class Saved(NamedTuple):
    """What a safetensors file of a run holds."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run directory that exists and is whole."""

    path: Path
    task: str
    config: dict[str, Any]
    vocabulary: dict[str, Any]

    def save(self, name: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        save_tensors(self.path / name, tensors, facts)

    def load(self, name: str) -> Saved:
        return load_tensors(self.path / name)

    def weights(self) -> dict[str, Tensor]:
        """The best weights, or while there are none the newest, as running means where these are kept."""
        if self.has(BEST):
            return self.load(BEST).tensors
        saved = self.load(LAST).tensors
        return below(saved, "model.") | below(saved, "average.")

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def report(self, record: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a last one cut short by a kill is left out."""
        file = self.path / METRICS
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def forget_after(self, step: int) -> None:
        """Take back the metrics of steps that a resumed run will do again."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        _write(self.path / METRICS, "".join(json.dumps(record) + "\n" for record in kept).encode())

    def change_config(self, config: Mapping[str, Any]) -> Run:
        """The same run with other settings, written down."""
        write_json(self.path / CONFIG, {"task": self.task, "config": config})
        return Run(self.path, self.task, dict(config), self.vocabulary)


def create_run(
    path: Path,
    *,
    task: str,
    config: Mapping[str, Any],
    fill: Callable[[Path], Mapping[str, Any]],
) -> Run:
    """A new run directory, there all at once or not at all.

    `fill` puts into the folder what else belongs there and gives what vocabulary.json is to hold.
    """
    check_free(path)
    beside = path.with_name(f".{path.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)  # what a kill may have left
    try:
        beside.mkdir(parents=True)
        write_json(beside / CONFIG, {"task": task, "config": config})
        vocabulary = fill(beside)
        write_json(beside / VOCABULARY, vocabulary)
        beside.replace(path)
    except OSError as error:
        raise WeftError(
            f"{path} cannot be written: {error.strerror or error}", expected="a folder I may write to"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Run(path, task, dict(config), dict(vocabulary))


def check_free(path: Path) -> None:
    """Refuse a path where something is already."""
    if (path / CONFIG).exists():
        hint = f"another --out, or --resume to go on with {path}"
        raise WeftError(f"{path} is already there", expected="a new folder", hint=hint)
    if path.exists():
        raise WeftError(f"{path} is already there, and is no run", expected="a new folder", hint="another --out")


def open_run(path: str | Path) -> Run:
    """The run in that directory; what is missing, damaged or too new is said by name."""
    path = Path(path)
    if not path.is_dir():
        raise WeftError(f"{path} is not a run directory", expected="a folder made by `weft train`")
    if not (path / CONFIG).exists():
        raise WeftError(f"{path} has no {CONFIG}", expected="a folder made by `weft train`")
    content = read_json(path / CONFIG)
    return Run(path, content["task"], content["config"], read_json(path / VOCABULARY))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    body = {"format": FORMAT, "weft": weft.__version__, **content}
    _write(path, json.dumps({**body, "sha256": _json_hash(body)}, ensure_ascii=False, indent=1).encode())


def read_json(path: Path) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(path.read_bytes())
        _check_format(path, body["format"])
        if body.pop("sha256") != _json_hash(body):
            raise _damaged(path, "its content does not match its hash")
    except FileNotFoundError as error:
        raise WeftError(f"{path} is missing", expected="a whole run directory") from error
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, "it is not JSON as weft writes it") from error
    return body


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts)
    _write(path, to_bytes(plain, {"format": str(FORMAT), "facts": text, "sha256": _tensor_hash(plain, text)}))


def load_tensors(path: Path) -> Saved:
    if not path.exists():
        raise WeftError(
            f"{path} is missing", expected="a whole run directory", hint="train again, or copy the run anew"
        )
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            _check_format(path, int(metadata["format"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is not a dict)
        if metadata["sha256"] != _tensor_hash(tensors, metadata["facts"]):
            raise _damaged(path, "its content does not match its hash")
        return Saved(tensors, json.loads(metadata["facts"]))
    except (SafetensorError, KeyError, ValueError) as error:
        raise _damaged(path, "it is cut short or not a safetensors file of a run") from error


def file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_file(path: Path, sha256: str) -> None:
    """Refuse a file of the run that is not what it was."""
    if not path.exists():
        raise WeftError(f"{path} is missing", expected="the encoded text that training started with", hint="train anew")
    if file_hash(path) != sha256:
        raise _damaged(path, "its content does not match its hash")


def _write(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.partial")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _json_hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _tensor_hash(tensors: Mapping[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def _check_format(path: Path, number: int) -> None:
    if number > FORMAT:
        raise WeftError(
            f"{path} has format {number}, written by a newer weft",
            expected=f"format {FORMAT} or older",
            hint="pip install --upgrade weft",
        )


def _damaged(path: Path, how: str) -> WeftError:
    return WeftError(
        f"{path} is damaged: {how}", expected="the file as it was written", hint="copy the run anew, or train again"
    )


def below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose names begin with the prefix, by what follows it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
