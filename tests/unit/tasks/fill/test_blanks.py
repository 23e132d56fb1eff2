"""Texts with blanks: how they are written, what a model reads of them, and what comes back."""

from __future__ import annotations

import pytest

from weft.errors import WeftError
from weft.tasks.fill.blanks import Blanked
from weft.text.config import TextConfig
from weft.text.corpus import Corpus
from weft.text.text_field import Text, store_corpus

ENGLISH = "I am hungry, I could eat half a pig.\nHow hungry are you?\n" * 20
CHINESE = "我很饿。我能吃半头猪。\n" * 20


def text_field(tmp_path, text=ENGLISH, **settings) -> Text:
    return store_corpus(TextConfig(**settings), Corpus.from_texts("t", [text]), None, tmp_path)[0]


def read(text_field, text, tokens=1):
    """What the model reads, with _ for a blank."""
    size = len(text_field.vocabulary)
    return [(*text_field.vocabulary.tokens, "_")[token] for token in Blanked.read(text).ids(text_field, size, tokens)]


@pytest.mark.parametrize(
    ("text", "pieces", "underscores"),
    [
        ("i ___ hungry", ("i ", " hungry"), (3,)),
        ("___", ("", ""), (3,)),
        ("_____ and ___", ("", " and ", ""), (5, 3)),
        ("______ ___", ("", " ", ""), (6, 3)),
        ("我_ _ _饿了", ("我", "饿了"), (3,)),
        ("我＿＿＿饿了", ("我", "饿了"), (3,)),
        ("a _ _ _ _ b __ c", ("a ", " b __ c"), (4,)),
    ],
)
def test_what_is_a_blank(text, pieces, underscores):
    assert Blanked.read(text) == Blanked(pieces, underscores)


@pytest.mark.parametrize("text", ["", "no blank", "snake_case __init__", "_ _"])
def test_what_is_none(text):
    with pytest.raises(WeftError, match="no blank"):
        Blanked.read(text)


def test_words(tmp_path):
    words = text_field(tmp_path, tokenizer="word", lower=True)
    assert read(words, "I ___ hungry, zebra") == ["i", "_", "hungry", ",", "<unk>"]
    assert read(words, "___ ___") == ["_", "_"]
    blanked = Blanked.read("I ___ Hungry, zebra")
    assert blanked.unknown(words) == ["zebra"]
    assert blanked.filled(words, ["was"]) == "I was Hungry, zebra", "the text as it was given"


def test_characters(tmp_path):
    characters = text_field(tmp_path, tokenizer="char")
    assert read(characters, "a ___ p") == ["a", " ", "_", " ", "p"]
    assert read(characters, "a p___.", tokens=2) == ["a", " ", "p", "_", "_", "."]
    assert read(characters, "h____y", tokens=0) == ["h", "_", "_", "_", "_", "y"]


def test_a_space_beside_a_blank_stays_where_only_letters_are_kept(tmp_path):
    letters = text_field(tmp_path, tokenizer="char", lower=True, letters_only=True)
    assert read(letters, "I, ___ H.") == ["i", " ", "_", " ", "h"]
    assert read(letters, " a___\nh") == ["a", "_", " ", "h"]


@pytest.mark.parametrize("level", ["char", "word"])
def test_chinese(tmp_path, level):
    assert read(text_field(tmp_path, CHINESE, tokenizer=level), "我___饿。") == ["我", "_", "饿", "。"]


def test_sub_words_bring_their_own_space(tmp_path):
    pytest.importorskip("tokenizers")
    pieces = text_field(tmp_path, tokenizer="subword", max_vocab_size=60)
    whole = read(pieces, "I ___ hungry")
    assert whole[:2] == ["I", "_"]
    assert whole[2].startswith(" ")
    assert Blanked.read("I ___ hungry").filled(pieces, [" am"]) == "I am hungry"


def test_a_blank_of_less_than_no_token(tmp_path):
    with pytest.raises(WeftError, match="tokens is -1"):
        Blanked.read("___").widths(-1)
