"""Download of one file: resumable, verified by its sha256, and atomic.

The received part is stored in `NAME.part` next to the target. A lock file lets one process download while others wait.
"""

from __future__ import annotations

import http.client
import logging
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.files import file_hash

Report = Callable[[int], None]

_logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 30.0
_MAX_CONNECTIONS = 10


class FetchError(Exception):
    """No URL served the file; the received part is kept for the next attempt."""


class ConnectionBrokenError(Exception):
    """A connection failed or ended early."""


class _RangeError(ConnectionBrokenError):
    """The server cannot resume: the received part is not the beginning of its file."""


@contextmanager
def on_terminal(label: str, size: int) -> Iterator[Report]:
    """A progress bar on standard error if it is a terminal; otherwise a log message."""
    if not sys.stderr.isatty():
        _logger.info("downloading %s (%s bytes)", label, f"{size:,}")
        yield lambda done: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    from weft.terminal import TerminalConsole

    columns = (TextColumn("downloading {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=TerminalConsole(stderr=True)) as bar:
        task = bar.add_task(label, total=size)
        yield lambda done: bar.update(task, completed=done)


def fetch(urls: tuple[str, ...], target: Path, *, size: int, sha256: str) -> None:
    """Download a file of this size and hash to `target` from the first URL that serves it.

    Raises:
        FetchError: if no URL serves the file.
        WeftError: if a URL serves other content, or the file cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f"{target.name}.lock")):
            if target.exists():  # another process has downloaded it
                return
            part = target.with_name(f"{target.name}.part")
            with on_terminal(target.name, size) as report:
                _fetch_part(urls, part, size, sha256, report)
            part.replace(target)
    except OSError as error:
        raise WeftError(
            f"{target} cannot be written: {error.strerror or error}", hint="another folder in $WEFT_CACHE"
        ) from error


def _fetch_part(urls: tuple[str, ...], part: Path, size: int, sha256: str, report: Report) -> None:
    reasons = []
    for url in urls:
        try:
            _complete(url, part, size, report)
            if file_hash(part) != sha256:
                # The received part may belong to another version of the file, from an earlier attempt.
                part.unlink()
                _complete(url, part, size, report)
        except ConnectionBrokenError as error:
            reasons.append(f"{url}: {error}")
            continue
        found = file_hash(part)
        if found == sha256:
            return
        part.unlink()
        raise WeftError(f"{url} served a file with sha256 {found}", expected=sha256, hint="again later")
    raise FetchError("; ".join(reasons))


def _complete(url: str, part: Path, size: int, report: Report) -> None:
    """Complete `part`; reconnect after a broken connection as long as each connection makes progress."""
    for _ in range(_MAX_CONNECTIONS):
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
        except ConnectionBrokenError:
            if _size(part) <= before:
                raise
    raise ConnectionBrokenError(f"the connection broke {_MAX_CONNECTIONS} times")


def _receive(url: str, part: Path, size: int, report: Report) -> None:
    """One connection: append to the received part, or start over if the server does not support ranges."""
    have = _size(part)
    with _connected(url, have) as response:
        resumes = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not resumes:
            raise _RangeError("the server sent a range that was not requested")
        done = have if resumes else 0
        with part.open("ab" if resumes else "wb") as file:
            for block in _blocks(response):
                done += len(block)
                if done > size:
                    file.truncate(0)
                    raise ConnectionBrokenError(f"the server sent more than {size} bytes")
                file.write(block)
                report(done)
    if done < size:
        raise ConnectionBrokenError(f"the connection ended after {done} of {size} bytes")


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects of https to https only, so that nobody on the way learns, or chooses, what is fetched."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if urllib.parse.urlsplit(newurl).scheme not in (req.type, "https"):
            raise ConnectionBrokenError(f"it redirects to {newurl[:100]}, which is not {req.type}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _connected(url: str, start: int) -> Iterator[http.client.HTTPResponse]:
    headers = {"User-Agent": "weft", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        opener = urllib.request.build_opener(Redirects)
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        kind = _RangeError if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE else ConnectionBrokenError
        raise kind(f"HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionBrokenError(str(getattr(error, "reason", error))) from error
    with response:
        yield response


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            block = response.read(1 << 16)
        except http.client.IncompleteRead as error:
            block = error.partial
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionBrokenError(str(error)) from error
        if not block:
            return
        yield block


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`. The lock ends with the process, so no stale lock can remain."""
    with path.open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:  # msvcrt gives up after ten seconds; we do not
                    continue
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
