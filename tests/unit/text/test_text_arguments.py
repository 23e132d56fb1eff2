"""Texts passed from Python: any iterable of strings, and errors for everything else."""

from __future__ import annotations

import pytest

from weft.errors import WeftError
from weft.text.arguments import check_text, check_texts
from weft.text.corpus import Corpus
from weft.text.datasets import open_data
from weft.text.parallel import Pairs


def test_texts_of_any_kind() -> None:
    for texts in (["a", "b"], ("a", "b"), (one for one in "ab"), {"a": 1, "b": 2}.keys()):
        assert check_texts(texts) == ["a", "b"]
    assert check_texts(iter(())) == []


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("abc", "the texts are a single str, 'abc'"),
        (5, "the texts are 5"),
        (None, "the texts are None"),
        (["a", None], "text 2 is None"),
        ([["a"]], r"text 1 is \['a'\]"),
        (b"abc", "text 1 is 97"),
        (["a", "x" * 100, list(range(100))], r"text 3 is \[0, 1.*\.\.\."),
    ],
)
def test_invalid_texts_are_refused(texts, words) -> None:  # type: ignore[no-untyped-def]
    for take in (check_texts, lambda texts: Corpus.from_texts("mine", texts)):
        with pytest.raises(WeftError, match=words):
            take(texts)
    with pytest.raises(WeftError, match=r"the sources of mine are .*a list of strings"):
        Pairs("mine", texts, ["a"])


def test_a_single_text_with_its_name() -> None:
    assert check_text("a") == "a"
    with pytest.raises(WeftError, match=r"the prompt is \['a'\]; expected a str"):
        check_text(["a"], "the prompt")  # type: ignore[arg-type]
    for source in (5, None, ["a text"]):
        with pytest.raises(WeftError, match=r"the data is .*a name or a path.*Corpus\.from_texts"):
            open_data(source)  # type: ignore[arg-type]
