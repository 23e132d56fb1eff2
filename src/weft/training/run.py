"""The run directory: everything about a trained model, in files of open formats.

    config.json             format number, task, all settings
    fields.json             the fields of its examples, such as the vocabulary of a text; how the data were read
    weights.safetensors     the best weights so far
    weights-2.safetensors   of an ensemble: its second member, and so on; a mixture has its members in parts/
    ngram.safetensors       of a language model with `model.ngram_order`: the n-gram model of its training text
    checkpoint.safetensors  the latest weights and everything else that resuming needs
    linear.safetensors      of a classifier: its linear n-gram models
    languages.json          of a translator: character n-grams of both languages, to detect a text's language
    metrics.jsonl           a line for every report and evaluation
    lock                    held by the process that trains the run (weft.training.lock)
    data/                   the columns of the data, such as train.text.npy, for resuming; may be deleted after training

Nothing is ever unpickled. Files are written atomically: beside their place, then renamed, so a kill at any moment
leaves either the old file or the new one. Every file carries a hash of its content, so damage is detected. Only what
reads or writes tensors imports torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from safetensors import SafetensorError, safe_open

import weft
from weft.data.field import Field
from weft.errors import WeftError, check_path, short_repr
from weft.files import file_hash, write_atomically
from weft.machine import memory
from weft.metrics.metric import LONGEST_NAME, Metric

if TYPE_CHECKING:
    from torch import Tensor

_Value = TypeVar("_Value")
_Field = TypeVar("_Field", bound=Field[Any])

FORMAT = 3  # increased when a run of one format cannot be read as the other

CONFIG, FIELDS, METRICS = "config.json", "fields.json", "metrics.jsonl"
WEIGHTS, CHECKPOINT = "weights.safetensors", "checkpoint.safetensors"
DATA_FOLDER, DATA_RECORD = "data", "data/record.json"

LARGEST_WEIGHT = 1e15
LARGEST_JSON = 1 << 28  # bytes; a larger file is not one of ours, and is not read
LARGEST_NUMBER = 1 << 53  # of the metrics


class Saved(NamedTuple):
    """The contents of a safetensors file of a run."""

    tensors: dict[str, Tensor]
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run directory that exists and whose settings and fields have been read."""

    path: Path
    task: str  # the name of its task: "lm", "classify", ...
    config: dict[str, Any] = field(repr=False)  # all settings, by section
    fields: dict[str, Any] = field(repr=False)  # what describes the fields of its examples, by name
    reading: dict[str, Any] = field(default_factory=dict, repr=False)  # how its data were read
    from_run: dict[str, Any] | None = field(default=None, repr=False)  # what a fine-tuned run started from
    custom_cells: dict[str, str] = field(default_factory=dict, repr=False)  # names in the settings -> class names
    metric: Metric | None = field(default=None, repr=False)  # the held-out metric of its task, by which runs are listed
    package: str = field(default="", repr=False)  # that its task comes from, if not weft's own; only ever shown
    loss: Metric | None = field(default=None, repr=False)  # what it is trained by
    member: int = field(default=0, repr=False)  # of an ensemble, the only one to load; 0: all

    def file(self, name: str) -> Path:
        """The path of a file of the run; the weights are those of the member."""
        return self.path / (f"weights-{self.member}.safetensors" if name == WEIGHTS and self.member > 1 else name)

    def save(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        """Saves tensors and metadata as the safetensors file `name`."""
        with writing_run(self.path):
            save_tensors(self.file(name), tensors, metadata)

    def load(self, name: str) -> Saved:
        """Loads the safetensors file `name`."""
        return load_tensors(self.file(name))

    def weights(self) -> dict[str, Tensor]:
        """Returns the best weights; before the first evaluation the latest, averaged if there is an EMA.

        Raises:
            WeftError: they are not finite.
        """
        if self.has(WEIGHTS):
            return finite_weights(self.file(WEIGHTS), self.load(WEIGHTS).tensors)
        saved = self.load(CHECKPOINT).tensors
        return finite_weights(self.path / CHECKPOINT, with_prefix(saved, "model.") | with_prefix(saved, "ema."))

    def field(self, name: str, kind: type[_Field]) -> _Field:
        """Returns a field of its examples."""
        return self.decode(lambda fields: cast(_Field, kind.from_json(fields[name])))

    def column_names(self, *fields: str) -> tuple[str, ...]:
        """Returns the columns of the table that fields were read from; "" for data that was no table."""
        return tuple(self.reading.get("columns", {}).get(name, "") for name in fields)

    def decode(self, make: Callable[[dict[str, Any]], _Value]) -> _Value:
        """Returns what `make` makes of its fields."""
        with decoding(self.path / FIELDS):
            return make(self.fields)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of what `weights` returns, from the file's header alone."""
        if self.has(WEIGHTS):
            return tensor_shapes(self.file(WEIGHTS))
        found = tensor_shapes(self.path / CHECKPOINT)
        return with_prefix(found, "model.") | with_prefix(found, "ema.")

    def weight_files(self) -> list[Path]:
        """Returns the files of weights: those of members, of n-grams and of a mixture's parts too."""
        found = [*self.path.glob("*.safetensors"), *self.path.glob("parts/*/*.safetensors")]
        return sorted(path for path in found if path.name != CHECKPOINT or not (path.parent / WEIGHTS).exists())

    def weights_hash(self) -> str:
        """Returns a hash of the fields and of all weights, which equal trainings have too."""
        digest = hashlib.sha256(_json_hash(self.fields).encode())
        for path in self.weight_files():
            with _opened(path) as file:
                digest.update(f"{path.relative_to(self.path)} {file.metadata()['sha256']}".encode())
        return digest.hexdigest()

    def data_file(self, name: str) -> Path:
        """Returns the path of a data file, such as "data/dev.tokens.npy", whose content has the recorded hash.

        Raises:
            WeftError: the file is missing or its content has changed.
        """
        files = read_json(self.path / DATA_RECORD).get("files")
        digest = files.get(Path(name).name) if isinstance(files, dict) else None
        if not isinstance(digest, str):
            raise _damaged(self.path / DATA_RECORD, f"it has no hash of {name}")
        check_file(self.path / name, digest)
        return self.path / name

    def has(self, name: str) -> bool:
        """Whether the run has a file of that name."""
        return self.file(name).exists()

    def report(self, record: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl."""
        with writing_run(self.path), (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Returns the records of the training so far, one for every report and evaluation."""
        path = self.path / METRICS
        if not path.exists():
            return []
        _small_size(path)
        try:
            with path.open(encoding="utf-8") as file:
                # A kill may have truncated the last line.
                return [_checked_record(json.loads(line)) for line in file if line.endswith("\n")]
        except (ValueError, TypeError, RecursionError) as error:
            raise _damaged(path, "it is not lines of JSON as weft writes them") from error

    def drop_metrics_after(self, step: int) -> None:
        """Removes the metrics of steps that a resumed run will repeat."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        with writing_run(self.path):
            write_atomically(self.path / METRICS, "".join(json.dumps(record) + "\n" for record in kept).encode())

    def change(self, **fields: Any) -> Run:
        """Writes other settings, or what it is trained by, and returns the run with them."""
        with writing_run(self.path):
            return _write_config(replace(self, **fields))


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A folder beside `path` that becomes `path` when the block is complete; a failure leaves nothing.

    Raises:
        WeftError: the path exists already or cannot be written.
    """
    check_new(path)
    beside = _partial(path)
    shutil.rmtree(beside, ignore_errors=True)  # left behind by a killed process
    new_parents = [parent for parent in path.parents if not parent.exists()]
    try:
        beside.mkdir(parents=True)
        yield beside
        beside.replace(path)
    except OSError as error:
        raise WeftError(
            f"{path} cannot be written: {error.strerror or error}", expected="a folder with write permission"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        if not path.exists():
            for parent in new_parents:
                with suppress(OSError):  # somebody else has put something there
                    parent.rmdir()


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def write_run(
    folder: Path,
    task: str,
    config: Mapping[str, Any],
    content: Mapping[str, Any],
    *,
    from_run: dict[str, Any] | None = None,
    custom_cells: Mapping[str, str] | None = None,
    metric: Metric | None = None,
    package: str = "",
) -> Run:
    """Writes what every run directory has; `content` is that of fields.json, what `Task.read` returns."""
    write_json(folder / FIELDS, content)
    cells, fields, reading = dict(custom_cells or {}), dict(content["fields"]), dict(content["reading"])
    return _write_config(Run(folder, task, dict(config), fields, reading, from_run, cells, metric, package))


def _write_config(run: Run) -> Run:
    optional: dict[str, Any] = {name: getattr(run, name) for name in ("package", "from_run", "custom_cells")}
    optional |= {name: metric.to_json() for name, metric in (("metric", run.metric), ("loss", run.loss)) if metric}
    content = {"task": run.task, "config": run.config, **{name: value for name, value in optional.items() if value}}
    write_json(run.path / CONFIG, content)
    return run


def check_new(path: Path) -> None:
    """Refuses a path that exists already, or cannot be that of a run."""
    try:
        str(path).encode("utf-8")  # files of tensors have no other names
        if not path.exists():
            with suppress(FileNotFoundError, NotADirectoryError):
                _partial(path).lstat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is no name of a folder in UTF-8"
        raise WeftError(f"{short_repr(str(path))} cannot be made: {reason}", expected="another `out`") from error
    if path.exists():
        is_run = (path / CONFIG).exists()
        raise WeftError(
            f"{path} exists already{'' if is_run else ' and is not a run'}",
            expected="a new folder",
            hint="another `out`" + (f", or `resume` to continue {path}" if is_run else ""),
        )


def open_run(path: str | Path) -> Run:
    """Opens a run directory, to look at its settings and metrics. `weft.load` loads its model.

    Args:
        path: The run directory.

    Returns:
        The run. Its files are read when they are asked for.

    Raises:
        WeftError: If there is no run at the path, or it is damaged or of another format.
    """
    path = check_path(path, "the run directory")
    if not (path / CONFIG).exists():
        what = f"has no {CONFIG}" if path.is_dir() else "is not a run directory"
        raise WeftError(f"{path} {what}", expected="a folder made by `weft train`")
    content, stored = read_json(path / CONFIG), read_json(path / FIELDS)
    task, package, config = content.get("task"), content.get("package", ""), content.get("config")
    if not isinstance(task, str) or not isinstance(config, dict):
        raise _damaged(path / CONFIG, "it names no task and settings")
    if not all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in (task, package)):
        raise _damaged(path / CONFIG, "its task or package is not a name")
    cells = content.get("custom_cells", {})
    if not isinstance(cells, dict) or not all(isinstance(name, str) for name in cells.values()):
        raise _damaged(path / CONFIG, "its custom cells are not names")
    try:
        metric, loss = (Metric.from_json(content[name]) if name in content else None for name in ("metric", "loss"))
    except ValueError as error:
        raise _damaged(path / CONFIG, f"its metric is none: {error}") from error
    fields, reading = stored.get("fields"), stored.get("reading")
    if not isinstance(fields, dict) or not isinstance(reading, dict):
        raise _damaged(path / FIELDS, "it has no fields")
    columns, notes = reading.get("columns", {}), reading.get("notes", [])
    texts = (*columns.values(), reading.get("description", "")) if isinstance(columns, dict) else (None,)
    if not isinstance(notes, list) or not all(isinstance(text, str) for text in (*texts, *notes)):
        raise _damaged(path / FIELDS, "it does not say how the data were read")
    return Run(path, task, config, fields, reading, content.get("from_run"), cells, metric, package, loss)


@contextmanager
def writing_run(path: Path) -> Iterator[None]:
    """Reports an error of the operating system, such as a full disk, by the name of the run that is written."""
    try:
        yield
    except OSError as error:
        raise WeftError(
            f"{path} cannot be written: {error.strerror or error}",
            expected="write permission and free disk space",
            hint=f"`resume` afterwards: {path} is as it was at its last checkpoint",
        ) from error


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turns the content of a file into objects: what goes wrong is damage, since a run may come from a stranger.

    The block does nothing else, so that no defect of ours is taken for damage.

    Raises:
        WeftError: the content is valid JSON or tensors, but not what this file of a run has.
    """
    try:
        yield
    except WeftError:  # some are a ValueError, too
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, f"it does not hold what weft writes there ({type(error).__name__}: {error})") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    body = {"format": FORMAT, "weft": weft.__version__, **content}
    write_atomically(path, json.dumps({**body, "sha256": _json_hash(body)}, ensure_ascii=False, indent=1).encode())


def read_json(path: Path) -> dict[str, Any]:
    _small_size(path)
    try:
        body: dict[str, Any] = json.loads(path.read_bytes())
        if not isinstance(body, dict) or not isinstance(body["format"], int):
            raise TypeError
        _check_format(path, body["format"])
        if body.pop("sha256") != _json_hash(body):
            raise _damaged(path, "its content does not match its hash")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, "it is not JSON as weft writes it") from error
    return body


def _checked_record(record: Any) -> dict[str, Any]:
    """A line of the metrics: the number of its step, and numbers that a float can hold."""
    if not isinstance(record, dict) or type(record.get("step")) is not int or record["step"] < 0:
        raise TypeError
    evaluation = record.get("evaluation") or {}
    if not isinstance(evaluation, dict):
        raise TypeError
    for value in (*record.values(), *evaluation.values()):
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            raise ValueError
    if not all(isinstance(value, int | float) for value in evaluation.values()):
        raise TypeError
    return record


def _small_size(path: Path) -> None:
    """Refuses a file that is larger than any that weft writes."""
    size = _regular_size(path)
    if size > LARGEST_JSON:
        raise _damaged(path, f"it has {size:,} bytes, more than {LARGEST_JSON:,}")


def _regular_size(path: Path) -> int:
    """The size of a regular file. A pipe would block its reader, and a device may have no end."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise WeftError(
            f"{path} is missing", expected="a whole run directory", hint="train again, or copy the run anew"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise _damaged(path, "it is not a regular file")
    return status.st_size


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    from safetensors.torch import save as to_bytes

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(metadata)
    write_atomically(
        path, to_bytes(plain, {"format": str(FORMAT), "content": text, "sha256": _tensor_hash(plain, text)})
    )


def load_tensors(path: Path) -> Saved:
    with _opened(path, "pt") as file:
        header = file.metadata() or {}
        _check_format(path, int(header["format"]))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is not a dict)
        if header["sha256"] != _tensor_hash(tensors, header["content"]):
            raise _damaged(path, "its content does not match its hash")
        content = json.loads(header["content"])
        if not isinstance(content, dict):
            raise TypeError
        return Saved(tensors, content)


@contextmanager
def _opened(path: Path, framework: str = "numpy") -> Iterator[Any]:
    """A safetensors file; what goes wrong while it is read is reported as one error."""
    size, most = _regular_size(path), memory()
    if size > most:
        raise _damaged(path, f"it has {size:,} bytes, and this machine {most:,} of memory")
    try:
        with safe_open(path, framework) as file:
            yield file
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, MemoryError, OSError) as error:
        raise _damaged(path, "it is cut short or not a safetensors file of a run") from error


def finite_weights(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights of a file; refuses those whose products would overflow, or that are no numbers."""
    for name, tensor in tensors.items():
        largest = float(tensor.abs().max()) if tensor.is_floating_point() and tensor.numel() else 0.0
        if not largest <= LARGEST_WEIGHT:
            raise WeftError(
                f"{path}: the weights are not finite: {name} has values up to {largest:g}",
                expected=f"the weights of a trained model, below {LARGEST_WEIGHT:g}",
                hint="copy the run anew, or train again",
            )
    return tensors


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Reads the shapes of the tensors of a safetensors file, and not the tensors."""
    with _opened(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def read_metadata(path: Path) -> dict[str, Any]:
    """Reads the metadata of a safetensors file of a run, and not the tensors; their hash is not checked."""
    with _opened(path) as file:
        return dict(json.loads((file.metadata() or {})["content"]))


_hashes: dict[tuple[int, int, int, int], str] = {}  # of data files, by file, size and time of change


def check_file(path: Path, sha256: str) -> None:
    """Refuses a file of the run whose content has changed."""
    if not path.exists():
        raise WeftError(f"{path} is missing", expected="the encoded data that training started with", hint="train anew")
    _regular_size(path)
    status = path.stat()
    identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if identity not in _hashes:
        _hashes[identity] = file_hash(path)
    if _hashes[identity] != sha256:
        raise _damaged(path, "its content does not match its hash")


def _json_hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _tensor_hash(tensors: Mapping[str, Tensor], content: str) -> str:
    import torch

    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def _check_format(path: Path, number: int) -> None:
    if number != FORMAT:
        age, hint = ("an older", "train again, or use the weft that wrote it")
        if number > FORMAT:
            age, hint = ("a newer", "pip install --upgrade weft")
        raise WeftError(f"{path} has format {number}, written by {age} weft", expected=f"format {FORMAT}", hint=hint)


def _damaged(path: Path, how: str) -> WeftError:
    return WeftError(
        f"{path} is damaged: {how}", expected="the file as it was written", hint="copy the run anew, or train again"
    )


def with_prefix(named: Mapping[str, _Value], prefix: str) -> dict[str, _Value]:
    """Selects the entries whose names begin with the prefix, and strips it."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
