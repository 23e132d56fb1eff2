"""The folder data/ of a run: the encoded examples, their origin and their hashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.text.corpus import Corpus
from weft.text.parallel import Pairs
from weft.training.run import DATA_FOLDER, DATA_RECORD, file_hash, write_json


def data_folder(folder: Path) -> Path:
    """Makes the folder data/ of a new run."""
    data = folder / DATA_FOLDER
    data.mkdir()
    return data


def write_data_record(folder: Path, source: Any, dev: Any) -> None:
    """Records in a new run where its data comes from, and the hashes of the files in data/."""
    files = {file.name: file_hash(file) for file in sorted((folder / DATA_FOLDER).iterdir())}
    write_json(folder / DATA_RECORD, {"source": _name(source), "dev": _name(dev), "files": files})


def _name(source: Any) -> str | None:
    """The path or name by which a source was given, or its own name, if it has one."""
    if isinstance(source, Corpus | Pairs):
        return source.name
    return str(source) if isinstance(source, str | Path) else None
