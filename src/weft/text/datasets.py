"""Named datasets: embedded texts, and public files that are downloaded once and verified.

A file is looked up in $WEFT_DATA, then in the user's cache, then downloaded. Its sha256 is always checked before use.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from weft.errors import WeftError, check_path, short_repr, unknown_name
from weft.files import file_hash
from weft.text.corpus import Corpus
from weft.text.download import FetchError, fetch


@dataclass(frozen=True)
class Dataset:
    """A named dataset: a public file identified by its hash, or a text that is generated and needs no file."""

    name: str
    description: str
    licence: str
    filename: str = ""
    urls: tuple[str, ...] = ()
    sha256: str = ""
    size: int = 0
    member: str = ""  # the text within the file, if it is an archive
    parallel: bool = False  # whether its lines are pairs of a sentence and its translation
    text: Callable[[], str] | None = None


# What generates a text is loaded when it is wanted: every command that reads a text imports this module.


def _python_docs() -> str:
    from weft.text import python_docs

    return python_docs.prose()


def _english() -> str:
    from weft.text.grammars import english

    return english.ENGLISH.text(20_000, seed=0)


def _pairs(language: str) -> str:
    from weft.text.grammars import trilingual

    return trilingual.text(language, 20_000, seed=0)


DATASETS = {
    "python-docs": Dataset(
        name="python-docs",
        description="prose of Python's own language reference, one paragraph per line (embedded)",
        licence="PSF License",
        text=_python_docs,
    ),
    "grammar": Dataset(
        name="grammar",
        description="20,000 sentences of a small grammar with known entropy (embedded)",
        licence="Apache-2.0",
        text=_english,
    ),
    "grammar-fr": Dataset(
        name="grammar-fr",
        description="20,000 different English sentences of a small grammar with their French translations (embedded)",
        licence="Apache-2.0",
        text=lambda: _pairs("french"),
        parallel=True,
    ),
    "grammar-zh": Dataset(
        name="grammar-zh",
        description="the same English sentences with their Chinese translations (embedded)",
        licence="Apache-2.0",
        text=lambda: _pairs("chinese"),
        parallel=True,
    ),
    "timemachine": Dataset(
        name="timemachine",
        description="The Time Machine by H. G. Wells",
        licence="public domain",
        filename="timemachine.txt",
        urls=("http://d2l-data.s3-accelerate.amazonaws.com/timemachine.txt",),
        sha256="8424dbd9532ac81f7e5f0b6add90e6952baea29158309d7d1bf3884f4e12c516",
        size=178_979,
    ),
    "fra-eng": Dataset(
        name="fra-eng",
        description="English sentences with their French translations, from tatoeba.org via manythings.org",
        licence="CC BY 2.0 FR",
        filename="fra-eng.zip",
        urls=("http://d2l-data.s3-accelerate.amazonaws.com/fra-eng.zip",),
        sha256="fa96382b2c8b609e1662654c1e6e6baeb8d30b3bf63dfb4a5a261cc36347df13",
        size=3_420_152,
        member="fra-eng/fra.txt",
        parallel=True,
    ),
}


def cache_folder() -> Path:
    """The folder of downloaded files: $WEFT_CACHE, or the default of the platform."""
    if chosen := os.environ.get("WEFT_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "weft"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "weft" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def locate(name: str) -> Path:
    """The path of the verified file of a dataset, which is downloaded into the cache if necessary.

    Raises:
        WeftError: if the name is unknown, the download fails, or the file has another sha256.
    """
    if name not in DATASETS:
        raise unknown_name("data", name, DATASETS)
    dataset = DATASETS[name]
    if dataset.text is not None:
        raise WeftError(f"{name} is generated and has no file", hint=f"open_data({name!r})")
    for path in _candidates(dataset):
        if path.is_file():
            return _verified(dataset, path)
    cached = cache_folder() / dataset.filename
    try:
        fetch(dataset.urls, cached, size=dataset.size, sha256=dataset.sha256)
    except FetchError as error:
        raise WeftError(
            f"{name} is not on this machine and could not be downloaded ({error})",
            expected=f"{dataset.filename} with sha256 {dataset.sha256}",
            hint=f"put it at {cached} or into the folder $WEFT_DATA, or try again with a network: the download resumes",
        ) from error
    return _verified(dataset, cached)


def _candidates(dataset: Dataset) -> Iterator[Path]:
    """Where the file may be, in the order of lookup."""
    if chosen := os.environ.get("WEFT_DATA"):
        folder = Path(chosen)
        if not folder.is_dir():
            raise WeftError(f"WEFT_DATA is {chosen}, which is not a folder")
        for depth in ("", "*/", "*/*/"):
            yield from sorted(folder.glob(depth + dataset.filename))
    yield cache_folder() / dataset.filename


def _verified(dataset: Dataset, path: Path) -> Path:
    try:
        found = file_hash(path)
    except OSError as error:
        raise WeftError(f"{path} cannot be read: {error.strerror or error}") from error
    if found == dataset.sha256:
        return path
    cached = path.parent == cache_folder()
    raise WeftError(
        f"{path} is not {dataset.name}: its sha256 is {found}",
        expected=dataset.sha256,
        hint="delete it to download it again" if cached else "replace it, or remove it from $WEFT_DATA",
    )


def open_data(source: str | Path, *, encoding: str = "utf-8") -> Corpus:
    """Open the text that a `--data` value names: `-`, a name in DATASETS, or a path.

    A dataset takes precedence over a file of the same name in the working directory, which is `./name`. `encoding` is
    that of files.
    """
    if not isinstance(source, str | Path):
        raise WeftError(
            f"the data is {short_repr(source)}",
            expected="a name or a path",
            hint='Corpus.from_texts("mine", [text, ...])',
        )
    check_path(source, "the data")
    if isinstance(source, str) and source in DATASETS:
        dataset = DATASETS[source]
        if dataset.text is not None:
            return Corpus.from_texts(dataset.name, [dataset.text()])
        file = locate(dataset.name)
        corpus = Corpus.open(f"{file}:{dataset.member}" if dataset.member else file)
        return dataclasses.replace(corpus, name=dataset.name)
    path, name = Path(source), str(source)
    is_bare_word = path.name == name and ":" not in name and name != "-"
    if is_bare_word and not path.exists():
        names = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.5)
        files = difflib.get_close_matches(name, [entry.name for entry in Path().iterdir()], n=2)
        raise WeftError(
            f"{source} is neither a dataset ({', '.join(DATASETS)}) nor a file or folder here",
            expected="a name or a path",
            hint=" or ".join([*names, *(f"./{name}" for name in files)]),
        )
    return Corpus.open(source, encoding=encoding)


class Status(NamedTuple):
    """Whether a dataset is available. `path` is where its file was found, intact or damaged."""

    dataset: Dataset
    state: Literal["embedded", "found", "damaged", "to fetch"]
    path: Path | None


def status() -> list[Status]:
    """The status of every dataset, without network access."""
    return [_status(dataset) for dataset in DATASETS.values()]


def _status(dataset: Dataset) -> Status:
    if dataset.text is not None:
        return Status(dataset, "embedded", None)
    path = next((path for path in _candidates(dataset) if path.is_file()), None)
    if path is None:
        return Status(dataset, "to fetch", None)
    return Status(dataset, "found" if file_hash(path) == dataset.sha256 else "damaged", path)
