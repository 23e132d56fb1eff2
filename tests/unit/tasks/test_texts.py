"""The texts that a command is given."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from weft.errors import WeftError
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.operation import operations
from weft.tasks.predictor import TaskPredictor


def lines(*texts: str, file: str | None = None) -> list[str]:
    predictor = TaskPredictor()
    return list(predictor.read_inputs(operations(LmPredictor)["generate"], texts, file).inputs)


def stands_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def test_texts_as_they_are_given_and_those_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, b"une\r\n\ndeux mots")
    assert lines("first", "-", "") == ["first", "une", "", "deux mots", ""]


def test_a_byte_that_is_no_text_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, b"fine\ncaf\xe9\n")
    with pytest.raises(WeftError, match="standard input:2"):
        lines("-")


def test_an_empty_standard_input_has_no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, b"")
    assert lines("-") == []


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a b\nc\n", encoding="utf-8")
    assert lines(file=str(file)) == ["a b", "c"]
