"""Fetching one file over an unreliable line: resumable, checked, and never half there under its final name.

What has arrived waits in `NAME.part` beside the target. A lock file lets one process fetch while others wait for
its result.
"""

from __future__ import annotations

import hashlib
import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from weft.errors import WeftError

Report = Callable[[int], None]
ProgressBar = Callable[[str, int], AbstractContextManager[Report]]

_TIMEOUT_SECONDS = 30.0
_MOST_CONNECTIONS = 10


class FetchError(Exception):
    """No address gave the file; what had arrived is kept for the next attempt."""


class _BrokenError(Exception):
    """One connection failed or ended early."""


class _RangeError(_BrokenError):
    """The server has no such continuation: what is here is not the beginning of its file."""


@contextmanager
def silent(label: str, size: int) -> Iterator[Report]:
    """ProgressBar that nobody sees."""
    yield lambda done: None


@contextmanager
def on_terminal(label: str, size: int) -> Iterator[Report]:
    """A bar on standard error if that is a terminal, a plain line if it is not."""
    if not sys.stderr.isatty():
        print(f"fetching {label} ({size:,} bytes)", file=sys.stderr)
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("fetching {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=size)
        yield lambda done: bar.update(task, completed=done)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fetch(urls: tuple[str, ...], target: Path, *, size: int, sha256: str, progress: ProgressBar) -> None:
    """Bring the file of this size and hash to `target` from the first address that gives it.

    Raises FetchError where no address answers, and WeftError where one serves other bytes.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f"{target.name}.lock")):
            if target.exists():  # another process was first
                return
            part = target.with_name(f"{target.name}.part")
            with progress(target.name, size) as report:
                _fetch_part(urls, part, size, sha256, report)
            part.replace(target)
    except OSError as error:
        raise WeftError(
            f"{target} cannot be written: {error.strerror or error}", hint="another folder in WEFT_CACHE"
        ) from error


def _fetch_part(urls: tuple[str, ...], part: Path, size: int, sha256: str, report: Report) -> None:
    reasons = []
    for url in urls:
        try:
            _complete(url, part, size, report)
            if sha256_of(part) != sha256:
                # The beginning may be of another version of the file, left by an older attempt.
                part.unlink()
                _complete(url, part, size, report)
        except _BrokenError as error:
            reasons.append(f"{url}: {error}")
            continue
        found = sha256_of(part)
        if found == sha256:
            return
        part.unlink()
        raise WeftError(f"{url} served a file with sha256 {found}", expected=sha256, hint="again later")
    raise FetchError("; ".join(reasons))


def _complete(url: str, part: Path, size: int, report: Report) -> None:
    """Fetch what is missing of `part`, going on after a broken connection as long as each one brings something."""
    for _ in range(_MOST_CONNECTIONS):
        before = _size(part)
        if before == size:
            return
        if before > size:
            part.unlink()
        try:
            _receive(url, part, size, report)
            return
        except _RangeError:
            part.unlink(missing_ok=True)
        except _BrokenError:
            if _size(part) <= before:
                raise
    raise _BrokenError(f"broke off {_MOST_CONNECTIONS} times")


def _receive(url: str, part: Path, size: int, report: Report) -> None:
    """One connection: append what follows the bytes already here, or start over if the server will not go on."""
    have = _size(part)
    with _connected(url, have) as response:
        goes_on = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not goes_on:
            raise _RangeError("the server answered with a range that was not asked for")
        done = have if goes_on else 0
        with part.open("ab" if goes_on else "wb") as file:
            for block in _blocks(response):
                done += len(block)
                if done > size:
                    file.truncate(0)
                    raise _BrokenError(f"the server sent more than {size} bytes")
                file.write(block)
                report(done)
    if done < size:
        raise _BrokenError(f"the connection ended after {done} of {size} bytes")


@contextmanager
def _connected(url: str, start: int) -> Iterator[http.client.HTTPResponse]:
    headers = {"User-Agent": "weft", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        kind = _RangeError if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE else _BrokenError
        raise kind(f"HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(str(getattr(error, "reason", error))) from error
    with response:
        yield response


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            block = response.read(1 << 16)
        except http.client.IncompleteRead as error:
            block = error.partial
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenError(str(error)) from error
        if not block:
            return
        yield block


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock at `path`; it goes with the process, however that ends, so no stale lock can remain."""
    with path.open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:  # it gives up after ten seconds; we do not
                    continue
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
