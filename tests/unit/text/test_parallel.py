"""Parallel text: every kind of source, errors by file and line, and lossless fields."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import REAL_DATA
from weft.errors import WeftError, WeftWarning
from weft.text.config import PairTextConfig
from weft.text.parallel import PairFields, Pairs, fit_pair_fields, open_pairs
from weft.text.tokenizers import SpaceTokenizer, WordTokenizer

TABLE = "Go.\tVa !\tCC-BY 2.0\nI'm home.\tJe suis chez moi.\tCC-BY 2.0\n"
SOURCES, TARGETS = ["Go.", "I'm home."], ["Va !", "Je suis chez moi."]
FRENCH = ["L'eau est-elle bonne ?", "« Oui », dit-il ; c'est vrai !", "Va-t'en ! Quoi ?!", "Il y a 20 % de pluie."]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def sides(pairs: Pairs) -> tuple[list[str], list[str]]:
    return pairs.sources, pairs.targets


class TestSources:
    def test_table(self, tmp_path):
        path = write(tmp_path / "x.tsv", TABLE)
        pairs = open_pairs(path)
        assert sides(pairs) == (SOURCES, TARGETS)
        assert (len(pairs), pairs.name) == (2, str(path))
        assert sides(pairs.swapped()) == (TARGETS, SOURCES)

    def test_columns(self, tmp_path):
        path = write(tmp_path / "x.tsv", "1\tVa !\tx\tGo.\n2\tJe suis chez moi.\tx\tI'm home.\n")
        assert sides(open_pairs(path, source_column=4, target_column=2)) == (SOURCES, TARGETS)

    def test_two_files(self, tmp_path):
        left, right = write(tmp_path / "a.en", "Go.\nI'm home.\n"), tmp_path / "b.fr.gz"
        right.write_bytes(gzip.compress(b"Va !\r\nJe suis chez moi."))
        assert sides(open_pairs(f"{left},{right}")) == (SOURCES, TARGETS)

    def test_an_existing_file_with_a_comma_takes_precedence(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write(Path("a"), "Go.\n")
        write(Path("b"), "Va !\n")
        assert open_pairs("a,b").targets == ["Va !"]
        write(Path("a,b"), "one\tun\n")
        assert open_pairs("a,b").targets == ["un"]

    def test_archives(self, tmp_path):
        one, two = tmp_path / "one.zip", tmp_path / "two.zip"
        for path, names in ((one, ["folder/fra.txt", "image.png"]), (two, ["fra.txt", "about.txt", "c.en", "c.fr"])):
            with zipfile.ZipFile(path, "w") as archive:
                for name in names:
                    archive.writestr(name, TABLE if name.endswith("fra.txt") else "about\n")
        assert sides(open_pairs(one)) == (SOURCES, TARGETS)
        assert sides(open_pairs(f"{two}:fra.txt")) == (SOURCES, TARGETS)
        assert sides(open_pairs(f"{two}:c.en,{two}:c.fr")) == (["about"], ["about"])
        with pytest.raises(WeftError, match=re.escape("has 2 texts: about.txt, fra.txt; expected one file of pairs")):
            open_pairs(two)

    def test_standard_input(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TABLE.encode())))
        assert sides(open_pairs("-")) == (SOURCES, TARGETS)

    def test_white_space_and_lines_blank_on_both_sides(self, tmp_path):
        path = write(tmp_path / "x.tsv", "\n Go.\u202f\tVa !\t\n\t\n  \t \nI'm home.\tJe suis chez moi.\n\n")
        assert sides(open_pairs(path)) == (SOURCES, TARGETS)

    def test_a_line_of_a_million_characters_is_one_line(self, tmp_path):
        long = "word " * 300_000
        left, right = write(tmp_path / "a", f"{long}\nGo.\n"), write(tmp_path / "b", "mot\nVa !\n")
        assert open_pairs(f"{left},{right}").targets == ["mot", "Va !"]

    @given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)] * 2), min_size=1))
    def test_written_pairs_are_read_back(self, tmp_path_factory, rows):
        path = tmp_path_factory.mktemp("x") / "x"
        write(path, "".join(f"{source}\t{target}\n" for source, target in rows))
        assert list(zip(*sides(open_pairs(path)), strict=True)) == rows


class TestMistakes:
    def refused(self, source: object, message: str, **columns: int) -> None:
        with pytest.raises(WeftError) as caught:
            open_pairs(str(source), **columns)
        assert message in str(caught.value)

    def test_no_tab(self, tmp_path):
        path = write(tmp_path / "x.tsv", "Go.\tVa !\nI'm home. Je suis chez moi.\n")
        self.refused(path, f'{path}:2: no tab in "I\'m home. Je suis chez moi."')

    def test_too_few_columns(self, tmp_path):
        path = write(tmp_path / "x.tsv", TABLE + "Hi.\tSalut.\n")
        self.refused(path, f"{path}:3: 2 columns in 'Hi.\\tSalut.'; expected at least 3", target_column=3)

    @pytest.mark.parametrize(
        ("line", "side"), [("Go.\t\n", "target"), ("Go.\t \u00a0\tx\n", "target"), ("\tGo.\n", "source")]
    )
    def test_an_empty_side(self, tmp_path, line, side):
        path = write(tmp_path / "x.tsv", "Go.\tVa !\n" + line)
        self.refused(path, f"{path}:2: the {side} side of 'Go.' is empty", strict=True)
        with pytest.warns(
            WeftWarning, match=rf"left out 1 of 2 pairs \(no {side}: 1\): .*x\.tsv:2; `text.strict=true`"
        ):
            pairs = open_pairs(path)
        assert (pairs.sources, pairs.left_out) == (["Go."], 1)

    def test_an_empty_side_of_two_files_is_named_by_its_file(self, tmp_path):
        left, right = write(tmp_path / "a", "Go.\nHi.\n"), write(tmp_path / "b", "Va !\n\n")
        self.refused(f"{left},{right}", f"{right}:2: the target side of 'Hi.' is empty", strict=True)
        self.refused(f"{right},{left}", f"{right}:2: the source side of 'Hi.' is empty", strict=True)

    def test_line_counts_that_differ(self, tmp_path):
        left, right = write(tmp_path / "a", "Go.\nHi.\nNo.\n"), write(tmp_path / "b", "Va !\nSalut.\n")
        self.refused(f"{left},{right}", f"{left} has 3 lines and {right} has 2; expected equal numbers")

    def test_not_utf8(self, tmp_path):
        path = tmp_path / "x.tsv"
        path.write_bytes(b"Go.\tVa !\nWell\tTr\xe8s bien\n")
        self.refused(path, f"{path}:2: byte 0xe8 at position")

    @pytest.mark.parametrize(("text", "what"), [("", "is empty"), ("\n \n", "has only blank lines")])
    def test_empty(self, tmp_path, text, what):
        path, full = write(tmp_path / "x.tsv", text), write(tmp_path / "y", "Go.\n")
        self.refused(path, f"{path} {what}")
        self.refused(f"{full},{path}", f"{path} {what}")

    def test_a_table_of_blank_cells(self, tmp_path):
        path = write(tmp_path / "x.tsv", "\t\tnote\n")
        self.refused(path, f"{path} has no pairs")

    def test_what_is_not_there(self, tmp_path):
        here = write(tmp_path / "small.en", "Go.\n")
        self.refused(tmp_path / "b.tsv", "b.tsv does not exist")
        self.refused(f"{here},{tmp_path / 'small.fr'}", f"{tmp_path / 'small.fr'} does not exist. Try: {here}")
        self.refused("a.en,", "a.en, is neither a file nor two files separated by a comma")
        self.refused("a,b,c", "expected SOURCE-FILE,TARGET-FILE")
        self.refused("fra-en", "Try: fra-eng")

    def test_columns_that_cannot_be(self, tmp_path):
        path = write(tmp_path / "x.tsv", TABLE)
        self.refused(path, "the source column is 0; expected an integer of at least 1", source_column=0)
        self.refused(path, "source and target are both column 2", source_column=2)

    def test_text_that_is_not_parallel(self):
        self.refused("grammar", "grammar is a text without translations; expected pairs. Try: `source=grammar-fr`")

    def test_sides_of_unequal_length(self):
        with pytest.raises(WeftError, match="3 has 2 sources and 1 targets"):
            Pairs("3", ["a", "b"], ["c"])


class TestTextFields:
    PAIRS = Pairs("small", ["Is the water good?", "Yes!", "Go away!", "It rains."] * 3, FRENCH * 3)

    @pytest.mark.parametrize("level", ["char", "word", "space", "subword"])
    @pytest.mark.parametrize("joint", [True, False])
    def test_decode_inverts_encode_and_fields_are_restored_from_json(self, level, joint):
        fields = fit_pair_fields(PairTextConfig(tokenizer=level, joint=joint, max_vocab_size=120), self.PAIRS)
        again = PairFields.from_json(json.loads(json.dumps(fields.to_json())))
        assert again == fields
        assert again.joint is fields.joint is (joint and level == "subword")
        for text_field, texts in ((again.source, self.PAIRS.sources), (again.target, self.PAIRS.targets)):
            for text in texts:
                ids = text_field.encode(text)
                assert text_field.vocabulary.unk_id not in ids
                if level == "space":  # its tokens stand apart, as the notes write them
                    assert text_field.encode(text_field.decode(ids)) == ids
                else:
                    assert text_field.decode(ids) == text

    def test_word_vocabularies_are_separate(self):
        fields = fit_pair_fields(PairTextConfig(tokenizer="word"), self.PAIRS)
        assert "water" in fields.source.vocabulary
        assert "water" not in fields.target.vocabulary

    def test_joint_subwords_are_trained_on_both_sides(self):
        text_field = fit_pair_fields(PairTextConfig(tokenizer="subword", max_vocab_size=150), self.PAIRS).source
        assert not text_field.unknown("water pluie")


class TestPrint:
    def test_french_gaps_are_learned(self):
        words = WordTokenizer.train(FRENCH)
        assert dict(words.gaps) == {"!": " ", "%": " ", ";": " ", "?": " ", "«": " ", "»": " "}
        assert [words.join(words.split(text)) for text in FRENCH] == FRENCH

    def test_the_most_frequent_gap_wins(self):
        assert WordTokenizer.train(["Va\u202f!", "Va\u202f!", "Va !", "Go!"]).gaps == (("!", "\u202f"),)
        assert WordTokenizer.train(["Go!", "Go! Now?", "Va !", "10:30 :", "at 10: go", "a: b", "b: c"]).gaps == ()

    def test_english_and_chinese_learn_nothing(self):
        assert WordTokenizer.train(["“Is it?” she asked: yes; 100% sure!", "他说：“不！”"]).gaps == ()

    @given(st.text(st.sampled_from("ab'’-.,;:!?%«»()\"“” \u00a0\u202f\n1猫，。")))
    def test_split_inverts_join(self, text):
        words = WordTokenizer.train(FRENCH)
        assert words.split(words.join(words.split(text))) == words.split(text)

    def test_stored_gaps(self):
        words = WordTokenizer.train(FRENCH)
        assert WordTokenizer.from_json(json.loads(json.dumps(words.to_json()))) == words
        assert WordTokenizer.from_json({"name": "word"}) == WordTokenizer()  # as stored before there were gaps
        for wrong in ({"!": "x"}, {"!": "\n"}, {"!": 3}, ["!"]):
            with pytest.raises(WeftError, match="gaps of a stored"):
                WordTokenizer.from_json({"gaps": wrong})


def by_hand(text: str) -> list[str]:
    """The preprocessing of the study notes, character by character."""
    text = text.replace("\u202f", " ").replace("\u00a0", " ").lower()
    spaced = ""
    for place, character in enumerate(text):
        if character in ",.!?" and place and text[place - 1] != " ":
            spaced += " "
        spaced += character
    return spaced.split(" ")


class TestSpaces:
    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            ("Va\u202f!", "va !"),
            ("Va\u00a0!", "va !"),
            ("Go.", "go ."),
            ("Well, yes!?", "well , yes ! ?"),
            ("Hm... no", "hm . . . no"),
            ("j'ai «\u00a0faim\u00a0».", "j'ai « faim » ."),
            ("3.14", "3 .14"),
        ],
    )
    def test_cases(self, text, tokens):
        assert SpaceTokenizer().split(text.lower()) == tokens.split(" ") == by_hand(text)
        assert SpaceTokenizer().join(SpaceTokenizer().split(text.lower())) == tokens

    @given(st.lists(st.text("abé'«,.!?", min_size=1), min_size=1).map(" ".join))
    def test_equals_the_reference_implementation(self, text):
        assert SpaceTokenizer().split(text.lower()) == by_hand(text)


DATA = REAL_DATA


@pytest.mark.skipif(
    not (DATA / "mt" / "fra-eng" / "fra-eng.zip").is_file(), reason="fra-eng.zip is not on this machine"
)
def test_the_real_pairs(monkeypatch):
    monkeypatch.setenv("WEFT_DATA", str(DATA))
    pairs = open_pairs("fra-eng")
    assert len(pairs) == 167_130
    assert (pairs.sources[0], pairs.targets[0]) == ("Go.", "Va !")
    some = [
        re.sub(r"\s", " ", text) for text in pairs.targets[::50]
    ]  # a few have thin spaces, which the notes leave in
    for text in some:
        assert SpaceTokenizer().split(text.lower()) == [token for token in by_hand(text) if token]
    words = WordTokenizer.train(pairs.targets)
    assert sum(words.join(words.split(text)) == text for text in some) > 0.98 * len(some)


@pytest.mark.parametrize(("sources", "targets", "side"), [(["a", " "], ["b", "c"], "source"), (["a"], [""], "target")])
def test_pairs_made_by_hand_have_both_sides(sources: list[str], targets: list[str], side: str) -> None:
    with pytest.raises(WeftError, match=rf"mine: the {side} side of pair \d .*expected text on both sides"):
        Pairs("mine", sources, targets)
