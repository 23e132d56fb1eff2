"""Raw text split into words: URLs stay whole, training words are kept, and no character is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import WeftError
from weft.tasks.tag.word_split import TokenizedWords, make_split
from weft.text.word_tokenizer import WordTokenizer


def split(text, *seen):
    return TokenizedWords(lambda word: seen.count(word.lower()))(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RT @JohnSmith: #nowplaying http://t.co/abc", "RT @JohnSmith : #nowplaying http://t.co/abc"),
        ("(see www.a.org/x_(y)?q=1&r=2#z).", "( see www.a.org/x_(y)?q=1&r=2#z ) ."),
        ("HTTPS://A.B/c, http://a.b. http://a.b/…", "HTTPS://A.B/c , http://a.b . http://a.b/…"),
        ("mail a.b+c@d-e.co.uk.", "mail a.b+c@d-e.co.uk ."),
        ("看http://a.b/c，好", "看 http://a.b/c ， 好"),
        ("#1 is #2nd, C# is a#b", "# 1 is #2nd , C # is a # b"),
        ("e@ @ # www. a@b", "e @ @ # www . a @ b"),
        ("It's 3.5 km (2 miles)", "It's 3.5 km ( 2 miles )"),
        ("हिन्दी है।", "हिन्दी है ।"),
    ],
)
def test_addresses_and_names_stay_whole(text, words):
    assert split(text) == words.split()


@pytest.mark.parametrize(
    ("text", "seen", "words"),
    [
        ("In the U.S., ...", ["u.s.", "..."], "In the U.S. , ..."),
        ("wait... :) !!!", ["...", ":)"], "wait ... :) ! ! !"),
        ("She said no. Mr. No", ["no", "no", "no.", "mr.", "mr.", "mr"], "She said no . Mr. No"),
        ("I don't; dog's, dogs' o'clock", ["n't", "'s", "o'clock"], "I do n't ; dog 's , dogs ' o'clock"),
        ("don’t it’s", ["n't", "it’s"], "do n’t it’s"),
        ("l'homme d'or", ["l'"], "l' homme d'or"),
        ("看似 簡單 看似簡單", ["看似"], "看似 簡 單 看 似 簡 單"),
    ],
)
def test_words_of_training_are_kept(text, seen, words):
    assert split(text, *seen) == words.split()


def test_what_stands_between_spaces():
    assert make_split("space", lambda word: 0)(" 看似\t簡單 ，  a.b, ") == ["看似", "簡單", "，", "a.b,"]
    with pytest.raises(WeftError, match=r"split 'spaces' is not known.*Try: space"):
        make_split("spaces", lambda word: 0)


@given(
    st.text(alphabet="aB1.,'’@#:/(看)-! \n\u0301…", max_size=30),
    st.lists(st.text("aB1.'’看-!", min_size=1, max_size=3)),
)
def test_no_character_is_lost(text, seen):
    words = split(text, *seen)
    assert "".join(words) == "".join(text.split())
    assert all(word and not any(map(str.isspace, word)) for word in words)


@given(st.text(alphabet="aB1.,'’:(看)-! é\u0301…", max_size=30))
def test_without_training_words_print_decides(text):
    assert split(text) == [word for piece in text.split() for word in WordTokenizer().split(piece)]


def test_long_pieces_take_no_longer():
    """No pattern looks at every pair of characters."""
    for text in (
        "a-" * 50_000,
        "(" * 100_000,
        "http://" + "!" * 100_000,
        "a@b" * 20_000,
        "x." * 50_000,
        "www.!" * 9_000,
    ):
        assert "".join(split(text)) == text
