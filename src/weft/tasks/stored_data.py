"""The folder data/ of a run: the columns of its examples, their origin and their hashes.

The columns of a part of the data, such as the texts and labels of the held-out examples, have names that begin with the
part: data/dev.text.npy, data/dev.label.npy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.data.column import Array, Column, open_column, write_column
from weft.errors import WeftError
from weft.files import file_hash
from weft.text.corpus import Corpus
from weft.text.parallel import Pairs
from weft.training.run import DATA_FOLDER, DATA_RECORD, Run, decoding, read_json, write_json

TRAIN_PART, DEV_PART = "train", "dev"  # the examples to train on, and the held-out ones


def data_folder(folder: Path) -> Path:
    """Makes the folder data/ of a new run."""
    data = folder / DATA_FOLDER
    data.mkdir()
    return data


def store(folder: Path, part: str, columns: Mapping[str, Column | Iterable[Sequence[Any] | Array]]) -> None:
    """Writes the columns of a part of the data in the folder data/ of a new run."""
    for name, rows in columns.items():
        write_column(folder / f"{part}.{name}.npy", rows)


def is_stored(run: Run, part: str) -> bool:
    """Whether a run has a part of its data. The folder may have been deleted after training."""
    return any((run.path / DATA_FOLDER).glob(f"{part}.*"))


def stored(run: Run, part: str, ids: Mapping[str, int] | None = None) -> dict[str, Column]:
    """The columns of a part of a run's data by name, each compared with its recorded hash.

    `ids` are columns that the part must have, of integers from 0 to below a number.

    Raises:
        WeftError: the run has no such part, or a file is missing or damaged.
    """
    if part == DEV_PART and not is_stored(run, part):
        raise WeftError(f"{run.path} has no held-out data", expected="data to evaluate on", hint="`source=PATH`")
    files = read_json(run.path / DATA_RECORD).get("files")
    names = [name for name in files if name.startswith(f"{part}.")] if isinstance(files, dict) else []
    paths = [run.data_file(f"{DATA_FOLDER}/{Path(name).name}") for name in names]
    columns = {path.name[len(part) + 1 : -len(".npy")]: path for path in paths if path.suffix == ".npy"}
    opened = {name: open_column(path) for name, path in columns.items() if not name.endswith(".ends")}
    with decoding(run.path / DATA_FOLDER):
        for name, below in (ids or {}).items():
            values = opened[name].values
            if values.ndim != 1 or values.dtype.kind not in "iu" or not ((values >= 0) & (values < below)).all():
                raise ValueError(f"{part}.{name} are no integers below {below}")
    return opened


def write_data_record(folder: Path, source: Any, dev: Any) -> None:
    """Records in a new run where its data comes from, and the hashes of the files in data/."""
    files = {file.name: file_hash(file) for file in sorted((folder / DATA_FOLDER).iterdir())}
    write_json(folder / DATA_RECORD, {"source": _name(source), "dev": _name(dev), "files": files})


def _name(source: Any) -> str | None:
    """The path or name by which a source was given, or its own name, if it has one."""
    if isinstance(source, Corpus | Pairs):
        return source.name
    return str(source) if isinstance(source, str | Path) else None
