"""Normalization and tokenizers: exact cases, and the properties that streaming relies on."""

from __future__ import annotations

import gzip
import json
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.paths import REAL_DATA
from weft.errors import WeftError
from weft.text.tokenizers import (
    TOKENIZERS,
    CharTokenizer,
    Normalizer,
    SpaceTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
    WordTokenizer,
    tokenizer_from_json,
)
from weft.text.vocabulary import RESERVED

DATA = REAL_DATA
WIKITEXT = DATA / "lm" / "wikitext-2" / "test.txt.gz"

# Free text rarely hits the rules, so half of the examples are made of the characters that the rules are about.
PIECES = [
    *"aZ09_ \t\n\r'’\"“”‘.,:;!?()-—/…%$+&<>",
    *("中", "文", "か", "\u3099", "。", "，", "「", "」", "！", "\u3000", "１", "．", "한", "々"),
    *("é", "\u0301", "\u030c", "J", "Σ", "İ", "ﬁ", "ि", "न", "\u200d", "\ufe0f", "👩", "💻", "\u2028", "\x1c", "\x85"),
    *("don't", "3.14", "1,000", "\r\n", "10:30", "3rd", "<unk>", "\ufeff"),
]
texts = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
normalizers = st.builds(
    Normalizer, form=st.sampled_from(["NFC", "NFKC", "none"]), lower=st.booleans(), letters_only=st.booleans()
)

TRAINING = "The cat sat on the mat. 猫坐在垫子上。\n  A cat, the cat; 猫和猫。\n\tTabs\there  \n \n\n" * 20
SUBWORD = SubwordTokenizer.train(TRAINING.splitlines(keepends=True), 90)
GAPS = WordTokenizer((("!", "\u202f"), ("«", " ")))
EVERY: list[Tokenizer] = [
    CharTokenizer(),
    WordTokenizer(),
    WordTokenizer((("!", "\u202f"), ("«", " "))),
    SpaceTokenizer(),
    WhitespaceTokenizer(),
    SUBWORD,
]
every_tokenizer = pytest.mark.parametrize("tokenizer", EVERY, ids=lambda tokenizer: tokenizer.name)


class TestNormalizer:
    @pytest.mark.parametrize(
        ("normalizer", "text", "expected"),
        [
            (Normalizer(), "cafe\u0301", "café"),
            (Normalizer(), "a\r\nb\rc\n", "a\nb\nc\n"),
            (Normalizer("none"), "cafe\u0301 ﬁ", "cafe\u0301 ﬁ"),
            (Normalizer("NFKC"), "ﬁ Ａ１ ，", "fi A1 ,"),
            (Normalizer(lower=True), "ÉCOLE 中文\n", "école 中文\n"),
            (Normalizer(lower=True), "J\u030c", "\u01f0"),
            (Normalizer(letters_only=True), "The Time\n\n--Machine!\n", "The Time Machine"),
            (Normalizer(lower=True, letters_only=True), "  I don't\t中文 know 42 ", "i don t know"),
            (Normalizer(letters_only=True), "中文。\n42\n", ""),
            (Normalizer(), "", ""),
        ],
    )
    def test_cases(self, normalizer: Normalizer, text: str, expected: str) -> None:
        assert normalizer(text) == expected

    @given(normalizers, texts)
    def test_line_by_line_equals_the_whole_text(self, normalizer: Normalizer, text: str) -> None:
        assert "".join(normalizer.lines(text.splitlines(keepends=True))) == normalizer(text)

    @given(st.sampled_from(["NFC", "NFKC"]), texts)
    def test_equals_unicodedata_normalize(self, form: str, text: str) -> None:
        whole = unicodedata.normalize(form, text.replace("\r\n", "\n").replace("\r", "\n"))  # type: ignore[arg-type]
        assert Normalizer(form)(text) == whole

    @given(texts)
    def test_letters_only_line_by_line(self, text: str) -> None:
        kept = "".join(c if c.isascii() and c.isalpha() else " " for c in text)
        assert Normalizer("none", lower=True, letters_only=True)(text) == " ".join(kept.split()).lower()

    @given(normalizers)
    def test_json(self, normalizer: Normalizer) -> None:
        assert Normalizer.from_json(json.loads(json.dumps(normalizer.to_json()))) == normalizer

    def test_mistakes(self) -> None:
        with pytest.raises(WeftError, match=r"normalization 'NFX' is not known.*Try: NFC"):
            Normalizer("NFX")
        with pytest.raises(WeftError, match="a stored normalizer is"):
            Normalizer.from_json({"form": "NFC", "lower": "yes", "letters_only": False})


class TestEveryTokenizer:
    @every_tokenizer
    @given(text=texts)
    @example(text="word \n\n  next ' line\n")
    def test_tokens_of_lines_are_tokens_of_the_text(self, tokenizer: Tokenizer, text: str) -> None:
        lines = [line + "\n" for line in text.split("\n")]
        whole = "".join(lines)
        assert [token for line in lines for token in tokenizer.split(line)] == tokenizer.split(whole)

    @every_tokenizer
    @given(text=texts)
    def test_tokens_of_letters_only_stream(self, tokenizer: Tokenizer, text: str) -> None:
        normalizer = Normalizer(letters_only=True)
        pieces = normalizer.lines(text.splitlines(keepends=True))
        assert [t for piece in pieces for t in tokenizer.split(piece)] == tokenizer.split(normalizer(text))

    @every_tokenizer
    @given(text=texts)
    def test_splitting_the_text_before_a_space_keeps_the_tokens(self, tokenizer: Tokenizer, text: str) -> None:
        left, space, right = text.partition(" ")
        left = left.rstrip() + "x"
        assert tokenizer.split(left) + tokenizer.split(space + right) == tokenizer.split(left + space + right)

    @every_tokenizer
    def test_json(self, tokenizer: Tokenizer) -> None:
        again = tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
        assert again == tokenizer
        assert again.split("The cat. 猫。\n") == tokenizer.split("The cat. 猫。\n")
        assert TOKENIZERS[tokenizer.name] is type(tokenizer)

    def test_unknown_tokenizer(self) -> None:
        with pytest.raises(WeftError, match=r"tokenizer 'wrod' is not known.*Try: word"):
            tokenizer_from_json({"name": "wrod"})


@given(texts)
def test_char_tokenizer_is_lossless(text: str) -> None:
    tokens = CharTokenizer().split(text)
    assert len(tokens) == len(text)
    assert CharTokenizer().join(tokens) == text


class TestWords:
    words = WordTokenizer()

    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            ("I don't know.", ["I", "don't", "know", "."]),
            ("it’s o'clock", ["it’s", "o'clock"]),
            ("the dogs' tails", ["the", "dogs", "'", "tails"]),
            ("3.14 1,000 10:30 3rd 2,", ["3.14", "1,000", "10:30", "3rd", "2", ","]),
            ("3.5年 2023年", ["3.5", "年", "2023", "年"]),
            ("我爱Python！", ["我", "爱", "Python", "！"]),
            ("日本語です。", ["日", "本", "語", "で", "す", "。"]),
            ("한국어 문장", ["한국어", "문장"]),
            ("हिन्दी में", ["हिन्दी", "में"]),
            ("a\n\n b\tc\u3000d", ["a", "\n", "\n", "b", "c", "d"]),
            ("time-traveller...", ["time", "-", "traveller", ".", ".", "."]),
            ("i ___ hungry", ["i", "___", "hungry"]),
            ("cafe\u0301!", ["cafe\u0301", "!"]),
            ("", []),
        ],
    )
    def test_split(self, text: str, tokens: list[str]) -> None:
        assert self.words.split(text) == tokens

    @pytest.mark.parametrize(
        "text",
        [
            "He came (late), saw [it]; and left: why?! No idea…",
            'She said, "Go on," and "stop."',
            "'That,' said he, 'is a dog.'",
            "the dogs' tails\n'quoted'\n",
            "the end of it.'\n\n'And then?'\n",
            "“Well,” he said—and left.",
            "他说：“你好，世界！”然后走了。\n第二行。",
            "我用 Python 写代码，很好（真的）。",
            "「はい」と言った。",
            "It cost $5, or 50% of 10.",
            "a well-known and/or unknown thing -- perhaps".replace(" -- ", "--"),
            "Wait... what?",
            "中国……很大",
            "他说“好”了",
            "she said; 他说, 中 (x)",
        ],
    )
    def test_join_restores_typographic_spacing(self, text: str) -> None:
        assert self.words.join(self.words.split(text)) == text

    @given(texts)
    @example("a ' b")
    @example("a' 'b - ' c")
    @example("don ' t 3 . 5 , 6")
    @example("か \u3099 x \u0301y -\u0301 ( \u0301")
    @example("1 : 2 ' \"' a")
    def test_split_is_the_inverse_of_join(self, text: str) -> None:
        tokens = self.words.split(text)
        assert self.words.split(self.words.join(tokens)) == tokens

    @given(texts)
    def test_split_loses_only_white_space(self, text: str) -> None:
        assert "".join(self.words.split(text)).replace("\n", "") == "".join(text.split())

    def test_join_takes_reserved_tokens_as_words(self) -> None:
        assert self.words.join(["the", "<unk>", "sat", "."]) == "the <unk> sat."


class TestSubwords:
    @given(st.text(alphabet=sorted(set(TRAINING))))
    def test_join_is_exact_over_the_alphabet(self, text: str) -> None:
        tokens = SUBWORD.split(text)
        assert SUBWORD.join(tokens) == text
        assert "<unk>" not in tokens

    def test_learns_whole_words_with_their_space(self) -> None:
        assert SUBWORD.split("A cat, the cat") == ["A", " cat", ",", " the", " cat"]

    def test_unseen_characters_are_unknown_one_by_one(self) -> None:
        assert SUBWORD.split("猫狗鸟\n") == ["猫", "<unk>", "<unk>", "\n"]

    def test_the_text_unk_is_only_text(self) -> None:
        tokens = SubwordTokenizer.train(["<unk> a\n"], 12).split("<unk>")
        assert "".join(tokens) == "<unk>"
        assert len(tokens) > 1

    def test_training_repeats_exactly(self) -> None:
        assert SubwordTokenizer.train(TRAINING.splitlines(keepends=True), 90) == SUBWORD
        assert SubwordTokenizer.train([TRAINING], 90) == SUBWORD

    def test_size_is_a_bound(self) -> None:
        small = SubwordTokenizer.train(TRAINING.splitlines(keepends=True), 50)
        learned = json.loads(small.model)["model"]["vocab"]
        assert len({*RESERVED, *learned}) == 50, "reserved tokens included"
        assert learned["<unk>"] == 0

    def test_mistakes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(
            WeftError, match=r"size is 9, but the text has 6 different characters; expected a size of 10"
        ):
            SubwordTokenizer.train(["床前明月光\n"], 9)
        with pytest.raises(WeftError, match="subword size is 4; expected more than the 4"):
            SubwordTokenizer.train(["a"], 4)
        with pytest.raises(WeftError, match="no text to train"):
            SubwordTokenizer.train(["", ""], 10)
        with pytest.raises(WeftError, match="cannot be read"):
            tokenizer_from_json({"name": "subword", "model": "{"})
        with pytest.raises(WeftError, match="has no model"):
            tokenizer_from_json({"name": "subword"})
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(WeftError, match="pip install tokenizers"):
            SubwordTokenizer.train(["abc"], 10)


class TestWhitespace:
    def test_line_ends_are_eos_and_nothing_else_is_split(self) -> None:
        text = " the U.S. @-@ led <unk> , 3 @,@ 000 \n \n = Title = \n"
        tokens = [
            "the",
            "U.S.",
            "@-@",
            "led",
            "<unk>",
            ",",
            "3",
            "@,@",
            "000",
            "<eos>",
            "<eos>",
            "=",
            "Title",
            "=",
            "<eos>",
        ]
        assert WhitespaceTokenizer().split(text) == tokens
        assert WhitespaceTokenizer().join(tokens) == "the U.S. @-@ led <unk> , 3 @,@ 000\n\n= Title =\n"

    @given(texts)
    def test_split_is_the_inverse_of_join(self, text: str) -> None:
        tokens = WhitespaceTokenizer().split(text)
        assert WhitespaceTokenizer().split(WhitespaceTokenizer().join(tokens)) == tokens

    @pytest.mark.skipif(not WIKITEXT.is_file(), reason=f"{WIKITEXT} is not there")
    def test_wikitext_has_the_tokens_of_the_literature(self) -> None:
        with gzip.open(WIKITEXT, "rt", encoding="utf-8") as file:
            assert len(WhitespaceTokenizer().split(file.read())) == 245_569
