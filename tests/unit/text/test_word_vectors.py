"""Word vectors from text files."""

from __future__ import annotations

import pytest

from weft.errors import WeftError
from weft.text.vocabulary import Vocabulary
from weft.text.word_vectors import read_word_vectors

VOCABULARY = Vocabulary.build({"cat": 3, "dog": 2, "new york": 1, "axolotl": 1})
GLOVE = "the 1 2 3\ncat 0.5 -1 1e-3\nnew york 4 5 6\n<unk> 9 9 9\ncat 7 7 7\ndog 1 1 1 \n"


@pytest.mark.parametrize("head", ["", "6 3\n"])
def test_word2vec_and_glove(head, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(head + GLOVE, encoding="utf-8")
    found = read_word_vectors(str(path), VOCABULARY)
    assert dict(zip([VOCABULARY.tokens[i] for i in found.ids], found.values.tolist(), strict=True)) == {
        "cat": pytest.approx([0.5, -1, 1e-3]),  # the first of two
        "new york": [4, 5, 6],
        "dog": [1, 1, 1],
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("cat 1 2\ndog 1\n", [":2 has 1 values", "2 in every line"]),
        ("cat 1 x\n", [":1", "a word and its vector"]),
        ("cat 1 nan\n", [":1", "not finite"]),
        ("cow 1 2\n", ["none of the 4 tokens"]),
        ("cat\n", [":1 has 0 values"]),
    ],
)
def test_mistakes(content, words, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(WeftError) as caught:
        read_word_vectors(str(path), VOCABULARY)
    assert all(word in str(caught.value) for word in words), caught.value
