"""Opens what a user names as a source of text: a file, folder, archive or standard input, as streams of bytes."""

from __future__ import annotations

import codecs
import difflib
import gzip
import io
import os
import re
import shutil
import stat
import sys
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast

from weft.errors import WeftError, check_path

TEXT_SUFFIXES = (".txt", ".text", ".md")
STANDARD_INPUT = "standard input"
EXPANSION, EXPANSION_FREE = 100, 1 << 24  # how many times a packed text may expand; bytes that it may have anyway


class TextSource(NamedTuple):
    """One text: its name within the source, its location for error messages, and a function that opens it."""

    name: str
    location: str
    open_bytes: Callable[[], BinaryIO]


def entries(source: str) -> list[TextSource]:
    """List the texts of a path, of `archive.zip:member`, or of `-` for standard input, in a fixed order."""
    check_path(source, "the source")
    if source == "-":
        return [_standard_input()]
    try:
        return _named(source)
    except OSError as error:
        raise _system_error(source, error) from error


def _named(source: str) -> list[TextSource]:
    path = Path(source)
    if path.is_dir():
        return _folder(path)
    if path.exists():
        mode = path.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise _device(source)
        if stat.S_ISFIFO(mode):
            with path.open("rb") as pipe:
                return [_spooled(path.name, pipe)]
        return _zip_members(path) if path.suffix.lower() == ".zip" else [_plain(path.name, path)]
    archive = re.match(r"(.*?\.zip):(.+)", source, re.IGNORECASE | re.DOTALL)
    if archive and Path(archive[1]).is_file():
        return [_zip_member(Path(archive[1]), archive[2])]
    raise _missing(Path(archive[1]) if archive else path)


@contextmanager
def reading(location: str, open_bytes: Callable[[], BinaryIO]) -> Iterator[BinaryIO]:
    """Open a stream as a context manager, and convert errors of reading and decompressing to WeftError."""
    try:
        with open_bytes() as stream:
            yield stream
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise WeftError(f"{location} is damaged or not of the type its name says: {error}") from error
    except RuntimeError as error:  # zipfile: the archive is encrypted, or its compression method is not supported
        raise WeftError(f"{location} cannot be unpacked: {error}") from error
    except OSError as error:
        raise _system_error(location, error) from error


def binary_error(location: str, line: int) -> WeftError:
    return WeftError(f"{location}:{line}: NUL byte, not plain text", expected="UTF-8 text")


def decoded(stream: BinaryIO, location: str, encoding: str, newline: str | None) -> io.TextIOWrapper:
    """A stream as text; a byte order mark of UTF-8 is left out."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise WeftError(
            f"the encoding of {location} is {encoding!r}",
            expected="an encoding of Python",
            hint="utf-8, latin-1, gb18030",
        ) from None
    return io.TextIOWrapper(stream, encoding="utf-8-sig" if name == "utf-8" else name, newline=newline)


def encoding_error(location: str, open_bytes: Callable[[], BinaryIO], encoding: str = "utf-8") -> WeftError:
    """Find the first line that is not UTF-8, and infer its likely encoding."""
    if codecs.lookup(encoding).name != "utf-8":
        return WeftError(f"{location} is not {encoding} text", expected="another encoding, or UTF-8")
    with reading(location, open_bytes) as stream:
        start = stream.read(1 << 13)
    wide = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    if b"\0" in start and not wide:
        return binary_error(location, start[: start.index(b"\0")].count(b"\n") + 1)
    # Latin-1 maps every byte to one character, so lines are counted exactly as in a text file.
    with reading(location, open_bytes) as stream, io.TextIOWrapper(stream, encoding="latin-1") as lines:
        for number, line in enumerate(lines, start=1):
            raw = line.encode("latin-1")
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError as error:
                encoding = "UTF-16" if wide else _likely_encoding(raw)
                return WeftError(
                    f"{location}:{number}: byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8",
                    expected="UTF-8 text",
                    hint=f"iconv -f {encoding} -t UTF-8 FILE > NEW-FILE, if it is {encoding}",
                )
    raise AssertionError(f"{location} failed to decode once, but not twice")


def _likely_encoding(raw: bytes) -> str:
    """Chinese text in GB18030 has bytes above 0x7f in pairs; Western European text has single ones."""
    runs = re.findall(rb"[\x80-\xff]+", raw)
    return "GB18030" if all(len(run) % 2 == 0 for run in runs) else "WINDOWS-1252"


def _system_error(location: str, error: OSError) -> WeftError:
    return WeftError(f"{location} cannot be read: {error.strerror or error}")


def _missing(path: Path) -> WeftError:
    folder = path.parent
    if not folder.is_dir():
        return WeftError(f"{path} does not exist, nor does the folder {folder}")
    near = difflib.get_close_matches(path.name, sorted(entry.name for entry in folder.iterdir()), n=3)
    return WeftError(f"{path} does not exist", hint=", ".join(str(folder / name) for name in near))


def _device(source: str) -> WeftError:
    return WeftError(f"{source} is a device", expected="a file, a folder, or a pipe", hint="-, for standard input")


def _standard_input() -> TextSource:
    status = os.fstat(0)
    if stat.S_ISCHR(status.st_mode) and not (os.isatty(0) or os.path.samestat(status, Path(os.devnull).stat())):
        raise _device(STANDARD_INPUT)
    return _spooled(STANDARD_INPUT, sys.stdin.buffer)


def _spooled(location: str, stream: BinaryIO) -> TextSource:
    """Copy a stream that can be read only once to a file that is deleted with its last reader."""
    descriptor, name = tempfile.mkstemp(prefix="weft-")
    spool = _Spool(Path(name))
    with os.fdopen(descriptor, "wb") as copy:
        shutil.copyfileobj(stream, copy)
    return TextSource(location, location, spool.open)


class _Spool:
    def __init__(self, path: Path) -> None:
        self.path = path
        weakref.finalize(self, path.unlink, missing_ok=True)

    def open(self) -> BinaryIO:
        return self.path.open("rb")


class _LimitedGzip(gzip.GzipFile):
    """A gzip stream that refuses to expand far beyond what text does."""

    def __init__(self, path: Path) -> None:
        self._location, self._file, self._count = str(path), path.open("rb"), 0
        super().__init__(fileobj=self._file, mode="rb")

    def close(self) -> None:
        super().close()
        self._file.close()

    def read1(self, size: int = -1) -> bytes:
        return self._counted(super().read1(size))

    def read(self, size: int | None = -1) -> bytes:
        return self._counted(super().read(-1 if size is None else size))

    def _counted(self, block: bytes) -> bytes:
        self._count += len(block)
        check_expansion(self._location, self._file.tell(), self._count)
        return block


def check_expansion(location: str, packed: int, unpacked: int) -> None:
    """Refuse a file that expands far more than text does, before it fills the memory or the disk."""
    if unpacked > EXPANSION_FREE and unpacked > EXPANSION * packed:
        raise WeftError(
            f"{location}: {packed:,} bytes expand to {unpacked:,} or more",
            expected=f"text or numbers, which expand less than {EXPANSION} times",
            hint="unpack it yourself, if it is what you want to read",
        )


def _plain(name: str, path: Path) -> TextSource:
    if path.suffix.lower() == ".gz":
        return TextSource(name, str(path), lambda: cast(BinaryIO, _LimitedGzip(path)))
    return TextSource(name, str(path), lambda: path.open("rb"))


def _is_text(path: Path | PurePosixPath) -> bool:
    inner = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return inner.suffix.lower() in TEXT_SUFFIXES


def _folder(folder: Path) -> list[TextSource]:
    found: dict[str, Path] = {}
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if _is_text(path) and path.is_file() and not any(part.startswith(".") for part in inside.parts):
            found[inside.as_posix()] = path
    if not found:
        raise WeftError(
            f"the folder {folder} has no text files",
            expected=f"files that end in {', '.join(TEXT_SUFFIXES)}, or those with .gz",
            hint="a single file by its path, whatever its suffix",
        )
    return [_plain(name, found[name]) for name in sorted(found)]


def _zip_names(archive: Path) -> list[str]:
    with reading(str(archive), lambda: archive.open("rb")) as stream, zipfile.ZipFile(stream) as opened:
        return sorted(opened.namelist())


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"


def _zip_members(archive: Path) -> list[TextSource]:
    names = _zip_names(archive)
    texts = [name for name in names if PurePosixPath(name).suffix.lower() in TEXT_SUFFIXES]
    texts = [name for name in texts if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))]
    if not texts:
        raise WeftError(
            f"{archive} has no text members; it has {_some(names)}",
            expected=f"members that end in {', '.join(TEXT_SUFFIXES)}",
            hint=f"{archive}:MEMBER for a member with another suffix",
        )
    return [_zip_entry(archive, name) for name in texts]


def _zip_member(archive: Path, member: str) -> TextSource:
    names = _zip_names(archive)
    folder = member.rstrip("/") + "/"
    inside = [name for name in names if name.startswith(folder) and name != folder]
    if inside or folder in names:
        raise WeftError(
            f"{member} is a folder in {archive}, with {_some(inside)}", expected="one member that is a file"
        )
    if member not in names:
        files = [name for name in names if not name.endswith("/")]
        near = difflib.get_close_matches(member, files, n=1, cutoff=0.5)
        raise WeftError(
            f"{archive} has no member {member}; it has {_some(files)}", hint=f"{archive}:{near[0]}" if near else ""
        )
    return _zip_entry(archive, member)


def _zip_entry(archive: Path, member: str) -> TextSource:
    def open_member() -> BinaryIO:
        # The stream keeps the file of the archive open, so the archive may be closed before it.
        with zipfile.ZipFile(archive) as opened:
            info = opened.getinfo(member)
            check_expansion(f"{archive}:{member}", info.compress_size, info.file_size)
            return cast(BinaryIO, opened.open(member))

    return TextSource(member, f"{archive}:{member}", open_member)
