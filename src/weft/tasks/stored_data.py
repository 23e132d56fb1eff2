"""The folder data/ of a run: the encoded examples, their origin and their hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from weft.text.corpus import Corpus
from weft.text.parallel import Pairs
from weft.training.run import DATA_FOLDER, DATA_RECORD, file_hash, write_json

# Stores the encoded examples in the folder data/ of a new run; returns the content of vocabulary.json.
StoreData: TypeAlias = Callable[[Path], Mapping[str, Any]]


def store_data(store: StoreData, folder: Path, source: Any, dev: Any) -> Mapping[str, Any]:
    """Fills data/ of a new run and records its origin and hashes; returns the vocabulary."""
    data = folder / DATA_FOLDER
    data.mkdir()
    vocabulary = store(data)
    files = {file.name: file_hash(file) for file in sorted(data.iterdir())}
    write_json(folder / DATA_RECORD, {"source": _name(source), "dev": _name(dev), "files": files})
    return vocabulary


def _name(source: Any) -> str | None:
    """The path or name by which a source was given, or its own name, if it has one."""
    if isinstance(source, Corpus | Pairs):
        return source.name
    return str(source) if isinstance(source, str | Path) else None
