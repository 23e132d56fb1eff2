"""Where results go: links are followed, pipes written into, folders refused, and a file is there when it is whole."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weft.cli.output import output
from weft.errors import WeftError


def write(path: Path, text: str = "new\n") -> None:
    with output(path) as stream:
        stream.write(text)


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv"
    path.write_text("old\n")
    path.chmod(0o640)
    with output(path) as stream:
        stream.write("new\n")
        assert path.read_text() == "old\n"
    assert path.read_text() == "new\n"
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(TypeError), output(path) as stream:
        stream.writelines(["half", 2])  # type: ignore[list-item]
    assert path.read_text() == "new\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(there: bool, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link, second = tmp_path / "far" / "target", tmp_path / "link", tmp_path / "second"
    if there:
        target.write_text("old\n")
    link.symlink_to(target)
    second.symlink_to("link")
    write(second)
    assert (second.is_symlink(), link.is_symlink(), target.is_symlink()) == (True, True, False)
    assert target.read_text() == "new\n"
    assert list((tmp_path / "far").iterdir()) == [target]


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        read: list[str] = []
        reader = threading.Thread(target=lambda read=read: read.append(pipe.read_text()), daemon=True)
        reader.start()
        write(path)
        reader.join(timeout=10)
        assert read == ["new\n"]
        assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="there is no /dev/stdout")
def test_standard_output_by_its_name_is_written_into(tmp_path: Path) -> None:
    """It is a link to a pipe, or to a file that may have no name any more. By a link, to put no real one at risk."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    code = "import pathlib, weft.cli.output as o\nwith o.output(pathlib.Path('link')) as s: s.write('new')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "new"
    with (tmp_path / "nameless").open("w+") as file:
        (tmp_path / "nameless").unlink()
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True, cwd=tmp_path)
        file.seek(0)
        assert file.read() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    assert (tmp_path / "link").is_symlink()


def test_what_cannot_be_written_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "round").symlink_to("round")
    before = sorted(tmp_path.iterdir())
    for path in (".", "", "folder", "link", str(tmp_path)):
        with pytest.raises(WeftError, match=r"is a folder; expected a file\. Try: --out"):
            write(Path(path))
    for path in ("none/out", "round", "folder/" + "x" * 300):
        with pytest.raises(WeftError, match="cannot be written"):
            write(Path(path))
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(WeftError, match="standard output is closed"), output(None):
        pass
    assert sorted(tmp_path.iterdir()) == before
    assert not list((tmp_path / "folder").iterdir())
