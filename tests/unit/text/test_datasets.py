"""Named datasets: lookup, resumable and verified downloads, and error messages."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request

import pytest

from weft.errors import WeftError
from weft.text import datasets, download
from weft.text.datasets import DATASETS, Dataset, cache_folder, locate, open_data, status
from weft.text.sources import entries

CONTENT = ("海内存知己，天涯若比邻。\n" * 9000).encode()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


class Server:
    """An HTTP server on this machine that can be told to misbehave."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.obeys_range = True
        self.cut_after: list[int] = []  # for each coming connection: close it after so many bytes
        self.pause_seconds = 0.0  # before the body
        self.redirect = ""  # where to look instead
        self.asked: list[str | None] = []  # the Range header of each request
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                outer.asked.append(wanted)
                if outer.redirect:
                    self.send_response(302)
                    self.send_header("Location", outer.redirect)
                    self.end_headers()
                    return
                start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and outer.obeys_range else 0
                if start >= len(outer.content):
                    self.send_error(416)
                    return
                body = outer.content[start:]
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(outer.content) - 1}/{len(outer.content)}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                time.sleep(outer.pause_seconds)
                self.wfile.write(body[: outer.cut_after.pop(0)] if outer.cut_after else body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/poem.txt"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("WEFT_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def poem(*urls: str) -> Dataset:
    return Dataset("poem", "a line of Wang Bo", "public domain", "poem.txt", urls, SHA256, len(CONTENT))


@pytest.fixture
def poem_online(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setitem(DATASETS, "poem", poem(server.url))
    return server


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.mark.usefixtures("poem_online")
class TestFetching:
    def test_plain(self, server: Server, cache: Path) -> None:
        path = locate("poem")
        assert path == cache / "poem.txt"
        assert path.read_bytes() == CONTENT
        assert files(cache) == ["poem.txt"]
        locate("poem")
        assert server.asked == [None]

    def test_reconnects_within_one_call(self, server: Server, cache: Path) -> None:
        server.cut_after = [1000, HALF]
        assert locate("poem").read_bytes() == CONTENT
        assert server.asked == [None, "bytes=1000-", f"bytes={1000 + HALF}-"]

    def test_resumes_in_a_later_call(self, server: Server, cache: Path) -> None:
        server.cut_after = [HALF, 0]
        with pytest.raises(WeftError, match=rf"connection ended after {HALF} of {len(CONTENT)} bytes"):
            locate("poem")
        assert files(cache) == ["poem.txt.part"]
        assert (cache / "poem.txt.part").read_bytes() == CONTENT[:HALF]
        assert locate("poem").read_bytes() == CONTENT
        assert server.asked[-1] == f"bytes={HALF}-"
        assert files(cache) == ["poem.txt"]

    def test_a_server_without_ranges_starts_over(self, server: Server, cache: Path) -> None:
        cache.mkdir()
        (cache / "poem.txt.part").write_bytes(CONTENT[:HALF])
        server.obeys_range = False
        assert locate("poem").read_bytes() == CONTENT
        assert server.asked == [f"bytes={HALF}-"]

    @pytest.mark.parametrize(
        ("left_over", "requests"),
        [
            (CONTENT, 0),
            (CONTENT + b"more", 1),
            (b"\0" * len(CONTENT), 1),
            (b"\0" * HALF, 2),
            (b"", 1),
        ],
        ids=["complete", "too long", "complete but wrong", "wrong beginning", "empty"],
    )
    def test_parts_of_earlier_attempts(self, server: Server, cache: Path, left_over: bytes, requests: int) -> None:
        cache.mkdir()
        (cache / "poem.txt.part").write_bytes(left_over)
        assert locate("poem").read_bytes() == CONTENT
        assert len(server.asked) == requests
        assert files(cache) == ["poem.txt"]

    def test_a_file_with_a_wrong_hash_is_never_stored(self, server: Server, cache: Path) -> None:
        server.content = CONTENT[:-1] + b"?"
        wrong = hashlib.sha256(server.content).hexdigest()
        with pytest.raises(WeftError, match=rf"served a file with sha256 {wrong}; expected {SHA256}"):
            locate("poem")
        assert files(cache) == []

    def test_too_many_and_too_few_bytes(self, server: Server, cache: Path) -> None:
        server.content = CONTENT + CONTENT
        with pytest.raises(WeftError, match=rf"sent more than {len(CONTENT)} bytes"):
            locate("poem")
        server.content = CONTENT[:100]
        with pytest.raises(WeftError, match="connection broke"):
            locate("poem")
        assert "poem.txt" not in files(cache)

    def test_the_next_url_is_tried(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(DATASETS, "poem", poem("http://127.0.0.1:9/poem.txt", server.url))
        assert locate("poem").read_bytes() == CONTENT

    def test_without_network(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(DATASETS, "poem", poem("http://127.0.0.1:9/poem.txt"))
        with pytest.raises(WeftError) as caught:
            locate("poem")
        message = str(caught.value)
        for part in ("http://127.0.0.1:9/poem.txt", "refused", SHA256, str(cache / "poem.txt"), "WEFT_DATA"):
            assert part in message

    def test_a_cache_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "file"))
        with pytest.raises(WeftError, match=r"cannot be written.*WEFT_CACHE"):
            locate("poem")

    def test_an_interruption_keeps_the_received_part(self, server: Server, cache: Path) -> None:
        class Stop(BaseException):
            pass

        def stop_half_way(done: int) -> None:
            if done > HALF:
                raise Stop

        @contextmanager
        def interrupting(label: str, size: int) -> Iterator[Callable[[int], None]]:
            yield stop_half_way

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(download, "on_terminal", interrupting)
            with pytest.raises(Stop):
                locate("poem")
        kept = (cache / "poem.txt.part").read_bytes()
        assert HALF < len(kept) < len(CONTENT)
        assert kept == CONTENT[: len(kept)]
        assert locate("poem").read_bytes() == CONTENT
        assert server.asked == [None, f"bytes={len(kept)}-"]

    def test_redirects_keep_to_https(self, poem_online: Server) -> None:
        poem_online.redirect = "ftp://127.0.0.1/poem.txt"
        with pytest.raises(WeftError, match=r"redirects to ftp://127\.0\.0\.1/poem\.txt, which is not http"):
            locate("poem")
        from_https = Request("https://example.org/poem.txt")
        with pytest.raises(download.ConnectionBrokenError, match="which is not https"):
            download.Redirects().redirect_request(from_https, None, 302, "", {}, "http://example.org/poem.txt")
        there = download.Redirects().redirect_request(from_https, None, 302, "", {}, "https://example.com/poem.txt")
        assert there.full_url == "https://example.com/poem.txt"

    def test_concurrent_processes_download_once(self, server: Server, cache: Path) -> None:
        server.pause_seconds = 1.0  # long enough for all of them to have started
        program = (
            "import sys; from pathlib import Path; from weft.text.download import fetch;"
            f"fetch(({server.url!r},), Path(sys.argv[1]), size={len(CONTENT)}, sha256={SHA256!r})"
        )
        target = cache / "poem.txt"
        running = [subprocess.Popen([sys.executable, "-c", program, str(target)]) for _ in range(3)]
        assert [process.wait(timeout=600) for process in running] == [0, 0, 0]
        assert target.read_bytes() == CONTENT
        assert server.asked == [None]

    def test_progress_without_a_terminal_is_logged(
        self, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with caplog.at_level("INFO", logger="weft"):
            locate("poem")
        assert caplog.messages == [f"downloading poem.txt ({len(CONTENT):,} bytes)"]
        assert capsys.readouterr().err == ""

    def test_progress_on_a_terminal_is_a_bar(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setenv("TERM", "xterm")
        locate("poem")
        assert "poem.txt" in sys.stderr.getvalue()  # type: ignore[attr-defined]


class TestLookingUp:
    @pytest.mark.parametrize("place", ["poem.txt", "lm/poem.txt", "lm/chinese/poem.txt"])
    def test_weft_data_comes_first(
        self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        monkeypatch.setitem(DATASETS, "poem", poem())
        cache.mkdir()
        (cache / "poem.txt").write_bytes(CONTENT)
        assert locate("poem") == cache / "poem.txt"
        path = tmp_path / "data" / place
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT)
        monkeypatch.setenv("WEFT_DATA", str(tmp_path / "data"))
        assert locate("poem") == path

    def test_a_file_too_deep_is_not_found(self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(DATASETS, "poem", poem())
        path = tmp_path / "data/a/b/c/poem.txt"
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT)
        monkeypatch.setenv("WEFT_DATA", str(tmp_path / "data"))
        with pytest.raises(WeftError, match="not on this machine"):
            locate("poem")

    def test_wrong_files_are_refused(self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(DATASETS, "poem", poem())
        wrong = hashlib.sha256(b"wrong").hexdigest()
        cache.mkdir()
        (cache / "poem.txt").write_bytes(b"wrong")
        with pytest.raises(WeftError, match=rf"cache.poem\.txt .*{wrong}; expected {SHA256}\. Try: delete it"):
            locate("poem")
        folder = tmp_path / "data"
        folder.mkdir()
        (folder / "poem.txt").write_bytes(b"wrong")
        monkeypatch.setenv("WEFT_DATA", str(folder))
        with pytest.raises(WeftError, match=rf"data.poem\.txt .*{wrong}; expected {SHA256}\. Try: replace it"):
            locate("poem")

    def test_mistakes(self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(WeftError, match=r"data 'timemachin' is not known.*Try: timemachine"):
            locate("timemachin")
        with pytest.raises(WeftError, match="has no file"):
            locate("grammar")
        monkeypatch.setenv("WEFT_DATA", str(tmp_path / "nowhere"))
        with pytest.raises(WeftError, match=r"WEFT_DATA is .*nowhere, which is not a folder"):
            locate("timemachine")

    def test_cache_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(Path, "home", lambda: tmp_path)
        for variable in ("WEFT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(variable, raising=False)
        for platform, place in (
            ("linux", ".cache/weft"),
            ("darwin", "Library/Caches/weft"),
            ("win32", "AppData/Local/weft/Cache"),
        ):
            monkeypatch.setattr(datasets.sys, "platform", platform)  # type: ignore[attr-defined]
            assert cache_folder() == tmp_path / place
        monkeypatch.setattr(datasets.sys, "platform", "linux")  # type: ignore[attr-defined]
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg" / "weft"
        monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "own"))
        assert cache_folder() == tmp_path / "own"

    def test_status(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(datasets, "fetch", None)  # any use of the network would fail
        monkeypatch.setitem(DATASETS, "poem", poem())
        cache.mkdir()
        (cache / "poem.txt").write_bytes(CONTENT)
        (cache / "fra-eng.zip").write_bytes(b"damaged")
        states = {entry.dataset.name: (entry.state, entry.path) for entry in status()}
        assert states == {
            "python-docs": ("embedded", None),
            "grammar": ("embedded", None),
            "grammar-fr": ("embedded", None),
            "grammar-zh": ("embedded", None),
            "timemachine": ("to fetch", None),
            "fra-eng": ("damaged", cache / "fra-eng.zip"),
            "poem": ("found", cache / "poem.txt"),
        }


def first_lines(source: str, count: int) -> list[str]:
    (document,) = open_data(source).documents()
    return [line for line, _ in zip(document.lines(), range(count), strict=False)]


@pytest.mark.usefixtures("cache")
class TestOpening:
    def test_named_file(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(DATASETS, "poem", poem())
        cache.mkdir()
        (cache / "poem.txt").write_bytes(CONTENT)
        assert open_data("poem").name == "poem"
        assert first_lines("poem", 1) == ["海内存知己，天涯若比邻。\n"]

    def test_named_archive_opens_its_member(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cache.mkdir()
        with zipfile.ZipFile(cache / "fra-eng.zip", "w") as archive:
            archive.writestr("fra-eng/_about.txt", "about\n")
            archive.writestr("fra-eng/fra.txt", "Go.\tVa !\n")
        digest = hashlib.sha256((cache / "fra-eng.zip").read_bytes()).hexdigest()
        monkeypatch.setitem(DATASETS, "fra-eng", dataclasses.replace(DATASETS["fra-eng"], sha256=digest))
        assert first_lines("fra-eng", 5) == ["Go.\tVa !\n"]

    def test_a_dataset_takes_precedence_over_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "grammar").write_text("mine\n", encoding="utf-8")
        assert first_lines("./grammar", 1) == ["mine\n"]
        assert first_lines("grammar", 1) != ["mine\n"]

    def test_paths_and_standard_input(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "notes.txt").write_text("一\n", encoding="utf-8")
        assert first_lines("notes.txt", 1) == first_lines(str(tmp_path / "notes.txt"), 1) == ["一\n"]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("二\n".encode())))
        assert first_lines("-", 1) == ["二\n"]

    def test_an_unknown_name_suggests_datasets_and_files(self, tmp_path: Path) -> None:
        (tmp_path / "timemachine2.txt").touch()
        with pytest.raises(WeftError) as caught:
            open_data("timemachin")
        assert re.search(r"neither a dataset \(python-docs, .*\) nor a file or folder here", str(caught.value))
        assert str(caught.value).endswith("Try: timemachine or ./timemachine2.txt")
        with pytest.raises(WeftError, match=r"\./timemachin does not exist|timemachin does not exist"):
            open_data("./timemachin")
        (tmp_path / "watermark").touch()  # has letters of the name, and is no likely slip for it
        with pytest.raises(WeftError, match=r"grammar does not exist$"):
            entries("grammar")

    def test_embedded_prose(self) -> None:
        lines = first_lines("python-docs", 10_000)
        assert 150_000 < sum(map(len, lines)) < 600_000
        assert len(lines) == len(set(lines))
        assert all(line.endswith("\n") and len(line.split()) >= 6 for line in lines)
        assert not any("::=" in line or ">>>" in line or "****" in line or "  " in line for line in lines)

    def test_embedded_grammar(self) -> None:
        lines = first_lines("grammar", 30_000)
        assert len(lines) == 20_000
        assert lines == first_lines("grammar", 30_000)


@pytest.mark.parametrize("name", ["timemachine", "fra-eng"])
def test_the_real_files_where_they_are(name: str) -> None:
    here = {entry.dataset.name: entry for entry in status()}[name]
    if here.state != "found":
        pytest.skip(f"{name} is not on this machine")
    assert here.path is not None
    raw = here.path.read_bytes()
    assert len(raw) == here.dataset.size
    beginnings = {"timemachine": ["The Time Machine, by H. G. Wells [1898]\n"], "fra-eng": ["Go.\tVa !\n"]}
    assert first_lines(name, 1) == beginnings[name]
