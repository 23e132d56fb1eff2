"""CoNLL files and segmented text: reading, and errors by file and line."""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from types import SimpleNamespace

import pytest

from weft.errors import WeftError
from weft.tasks.tag.config import TagDataConfig
from weft.tasks.tag.data import as_characters, cut_long, read_like, read_tagged, unknown_tags
from weft.tasks.tag.lexicon import LONGEST_WORD, CharacterLexicon, WordLexicon, match_ids, shape
from weft.text.conll import ConllFormat, TaggedSentence, open_segmented, open_sentences
from weft.text.corpus import Corpus
from weft.text.fields import Tags
from weft.text.left_out import LeftOut
from weft.text.spans import SCHEMES

CONLLU = """\
# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tE\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tD\t_\t5\tdet\t_\t_
4.1\tgran\t_\tADJ\t_\t_\t_\t_\t_\t_
5\tmar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_

# sent_id = 2
1\t#tag\t_\tX\tX\t_\t0\troot\t_\t_
"""


def written(tmp_path, text, name="data.conll"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(path, *arguments):
    return [(one.words, one.tags) for one in open_sentences(path, *arguments)]


class TestReading:
    def test_conllu(self, tmp_path):
        path = written(tmp_path, CONLLU, "a.conllu")
        one, two = open_sentences(path)
        assert one.words == ("vamos", "nos", "a", "el", "mar")
        assert one.tags == ("VERB", "PRON", "ADP", "DET", "NOUN")
        assert one.lines == (4, 5, 7, 8, 10)
        assert one.where(4) == f"{path}:10"
        assert two.words == ("#tag",)
        assert read(path, "xpos") == read(path, "5") == read(path, "-6") == read(path, "XPOS")
        assert open_sentences(path, "deprel", "lemma")[0].words[1] == "nosotros"

    def test_conllu_is_detected_without_its_suffix(self, tmp_path):
        assert read(written(tmp_path, CONLLU, "a.txt")) == read(written(tmp_path, CONLLU, "a.conllu"))

    def test_blank_lines_may_hold_white_space_and_a_hash_may_be_a_word(self, tmp_path):
        text = "#yes\tO\nNew\tB-L\n\t\nYork\tI-L\n \t \n\n\nx\tO"
        expected = [(("#yes", "New"), ("O", "B-L")), (("York",), ("I-L",)), (("x",), ("O",))]
        assert read(written(tmp_path, text)) == expected

    @pytest.mark.parametrize(
        ("text", "words", "line"),
        [
            ("# id 1 domain=en\na _ _ O\nb _ _ B-X\n\n# id 2 domain=en\nc _ _ O\n", "a b|c", 6),
            ("\n# one\n# two\na\tO\n\n# three\tfour\nb\tO\n", "a|b", 7),
            ("# id\na X\n# X\n", "a #", 3),  # not before a sentence
            ("# NN O\n1 CD O\n", "# 1", 2),  # # is a word
            ("a\tO\n\n#\tO\n", "a|#", 3),
        ],
    )
    def test_comments_of_other_tables(self, text, words, line, tmp_path):
        found = open_sentences(written(tmp_path, text))
        assert "|".join(" ".join(one.words) for one in found) == words
        assert found[-1].lines[-1] == line

    def test_a_line_between_documents_is_no_word_and_ends_a_sentence(self, tmp_path):
        text = "-DOCSTART- O\na O\n-DOCSTART- O\n\nb O\n"
        assert [words for words, _ in read(written(tmp_path, text))] == [("a",), ("b",)]

    def test_spaces_and_many_columns(self, tmp_path):
        text = "-DOCSTART- -X- -X- O\n\nEU  NNP B-NP B-ORG\nrejects VBZ B-VP O \n"
        path = written(tmp_path, text)
        assert read(path) == [(("EU", "rejects"), ("B-ORG", "O"))]
        assert read(path, "2") == [(("EU", "rejects"), ("NNP", "VBZ"))]

    def test_a_word_with_a_space_between_tabs(self, tmp_path):
        assert read(written(tmp_path, "New York\tL\r\nhas\tO\r\n")) == [(("New York", "has"), ("L", "O"))]

    def test_archives_and_standard_input(self, tmp_path, monkeypatch):
        with gzip.open(tmp_path / "a.conllu.gz", "wt", encoding="utf-8") as file:
            file.write(CONLLU)
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("deep/a.conllu", CONLLU)
        expected = read(written(tmp_path, CONLLU, "a.conllu"))
        assert read(tmp_path / "a.conllu.gz") == read(f"{tmp_path}/a.zip:deep/a.conllu") == expected
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(CONLLU.encode())))
        assert read("-") == expected
        assert read(Corpus.from_texts("mine", [CONLLU, "1\tHi\t_\tINTJ" + "\t_" * 6])) == [
            *expected,
            (("Hi",), ("INTJ",)),
        ]

    def test_pairs_in_memory(self):
        assert read([(["a", "b"], "XY"), ([], [])]) == [(("a", "b"), ("X", "Y"))]

    def test_the_grammar_has_both_kinds_of_tags(self):
        (words, tags), *_ = read("grammar")
        assert len(words) == len(tags)
        assert {"NOUN", "VERB", "PUNCT"} <= {tag for _, row in read("grammar") for tag in row}
        chunks = read_tagged("grammar", TagDataConfig(tag_column="chunk", invalid_spans="refuse"))
        assert chunks.scheme == SCHEMES["bio"]
        assert Tags.fit([one.tags for one in chunks.sentences], chunks.scheme).tags[:3] == ("O", "B-BEING", "I-BEING")

    def test_segmented_text(self, tmp_path):
        path = written(tmp_path, "我们 去　图书馆\n\n  好 。 \n", "a.txt")
        one, two = open_segmented(path)
        assert one.words == ("我们", "去", "图书馆")
        assert two == TaggedSentence(("好", "。"), (), path, (3, 3))
        characters = as_characters(one)
        assert "".join(characters.tags) == "BESBME"
        assert characters.lines == (1,) * 6
        assert [one.words for one in open_segmented(written(tmp_path, CONLLU, "a.conllu"))][1] == ("#tag",)
        assert open_segmented("grammar")[0].words == open_sentences("grammar")[0].words


MISTAKES = {
    "ragged": ("a\tX\nb\tY\nc\n", "", [":3:", "1 column", "2 as in line 1", "tabs"]),
    "ragged in the middle": ("a X\n\nb Y Z\n", "", [":3:", "3 columns", "separated by spaces"]),
    "no such number": ("a\tX\n", "3", ["no column 3", "1 to 2"]),
    "no such name": ("a\tX\n", "upos", ["no column 'upos'", "no names", "1 to 2"]),
    "the words twice": ("a\tX\n", "1", ["both the words and the tags"]),
    "one column": ("a\nb\n", "", ["both the words and the tags", "a word and its tag"]),
    "empty tag": ("a\tX\nb\t\n", "", [":2:", "the tag is empty"]),
    "empty word": ("\tX\n", "", [":1:", "the word is empty"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_tables(name, tmp_path):
    text, column, words = MISTAKES[name]
    path = written(tmp_path, text)
    with pytest.raises(WeftError) as caught:
        open_sentences(path, column, left_out=LeftOut("data.strict", strict=True))
    assert all(word in str(caught.value) for word in [path, *words]), caught.value


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        (CONLLU, "upps", ["'upps'", "Try: upos"]),
        (CONLLU.replace("5\tmar\tmar\tNOUN", "5\tmar\tNOUN"), "", [":10:", "9 columns", "10 of CoNLL-U"]),
        (CONLLU.replace("5\tmar", "five\tmar"), "", [":10:", "'five'"]),
        (CONLLU, "feats", ["feats has only _", "column=upos"]),
    ],
)
def test_mistakes_in_conllu(text, column, words, tmp_path):
    with pytest.raises(WeftError) as caught:
        open_sentences(written(tmp_path, text, "a.conllu"), column)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_conll_file_is_refused_as_segmented_text(tmp_path):
    with pytest.raises(WeftError, match=r"data.conll:1 has tabs, as 2 of 3 lines do: this is CoNLL"):
        open_segmented(written(tmp_path, "a\tX\nb\tY\n\nc d\n"))
    assert len(open_segmented(written(tmp_path, "a\tb c\nd e\nf g\n"))) == 3
    with pytest.raises(WeftError, match="column 2 of the tags is given, and segmentation has no tags"):
        read_tagged("grammar", TagDataConfig(task="segments", tag_column=2))


def test_replacing_a_value_keeps_the_rest_of_the_line():
    layout = ConllFormat((), False, 3, 1)
    assert layout.put(" a  b\t c ", 1, "X") == " a  X\t c "
    assert layout.put("a  b\t c ", 2, "X") == "a  b\t X "
    assert layout.add("a  b\t c ", "X") == "a  b\t c X"
    tabs = layout._replace(tabs=True)
    assert tabs.put("a b\t\tc", 1, "X") == "a b\tX\tc"
    assert tabs.add("a b\t", "X") == "a b\t\tX"


def test_other_mistakes(tmp_path):
    with pytest.raises(WeftError, match="only blank lines"):
        open_sentences(written(tmp_path, " \n\t\n"))
    with pytest.raises(WeftError, match="no sentences"):
        open_sentences(written(tmp_path, "# only = comments\n", "a.conllu"))
    with pytest.raises(WeftError, match="sentence 2 has 1 word and 2 tags"):
        open_sentences([("a", "X"), ("b", "XY")])
    with pytest.raises(WeftError, match="'pos' is not known"):
        open_sentences("grammar", "pos")


class TestSpans:
    def test_invalid_spans_are_repaired_with_a_note_or_refused(self, tmp_path):
        path = written(tmp_path, "a\tO\nb\tI-X\n\nc\tI-Y\nd\tB-Y\n")
        found = read_tagged(path, TagDataConfig())
        assert [one.tags for one in found.sentences] == [("O", "B-X"), ("B-Y", "B-Y")]
        (note,) = found.notes
        assert note.startswith(f"{path}:2: I-X after O is read as B-X")
        assert "1 more" in note
        with pytest.raises(WeftError, match=r":2: I-X after O; expected B-X, by the scheme bio.*invalid_spans=repair"):
            read_tagged(path, TagDataConfig(invalid_spans="refuse"))

    def test_mixed_tags_are_named_by_line(self, tmp_path):
        path = written(tmp_path, "a\tO\nb\tB-PER\n\nc\tX\n")
        with pytest.raises(WeftError, match=r"data.conll:4: the tag X is not a span tag, but .*data.conll:2 has B-PER"):
            read_tagged(path, TagDataConfig())

    def test_evaluation_data_is_repaired_like_held_out_data(self, tmp_path):
        path = written(tmp_path, "a\tB-X\nb\tI-X\nc\tB-X\n")
        found = read_like(path, TagDataConfig(), SCHEMES["bioes"])
        assert found.sentences[0].tags == ("B-X", "E-X", "S-X")
        assert found.notes == [f"{path}:2: I-X after B-X is read as E-X"]
        assert read_like(path, TagDataConfig(), None).sentences[0].tags == ("B-X", "I-X", "B-X")

    def test_an_inside_that_begins_the_text(self, tmp_path):
        path = written(tmp_path, "c\tI-Y\nd\tI-Y\n")
        with pytest.raises(WeftError, match=r":1: I-Y after the beginning; expected B-Y"):
            read_tagged(path, TagDataConfig(invalid_spans="refuse"))

    def test_mixed_schemes_are_refused(self, tmp_path):
        path = written(tmp_path, "a\tB-X\nb\tE-X\n\nc\tB-X\nd\tI-X\ne\tO\n")
        with pytest.raises(WeftError, match=r":5: I-X ends a span, as in BIO, but .*:2 has E-X, as in BIOES"):
            read_tagged(path, TagDataConfig())
        assert read_tagged(path, TagDataConfig(scheme="bioes")).sentences[1].tags == ("B-X", "E-X", "O")
        assert read_tagged(path, TagDataConfig(scheme="none")).scheme is None
        with pytest.raises(WeftError, match=r"data.conll:3: the tag S-X is of another scheme .*data.conll:2 has L-X"):
            read_tagged(written(tmp_path, "a\tB-X\nb\tL-X\nc\tS-X\n"), TagDataConfig())

    def test_a_tag_of_another_scheme(self, tmp_path):
        path = written(tmp_path, "a\tB-X\nb\tE-X\n")
        for call in (
            lambda: read_tagged(path, TagDataConfig(scheme="bio")),
            lambda: read_like(path, TagDataConfig(), SCHEMES["bio"]),
        ):
            with pytest.raises(WeftError, match=r":2: the tag is 'E-X'; .*the scheme is bio"):
                call()

    def test_tags_cover_all_letters_of_all_labels(self):
        sentences = [TaggedSentence(("a", "b"), ("B-Y", "I-Y"), "", (1, 2)), TaggedSentence(("a",), ("B-X",), "", (3,))]
        assert Tags.fit([one.tags for one in sentences], SCHEMES["bio"]).tags == ("O", "B-X", "I-X", "B-Y", "I-Y")
        assert Tags.fit([["S"]], SCHEMES["bmes"]).tags == ("B", "M", "E", "S")
        assert unknown_tags(sentences, ["B-Y", "I-Y"]) == {"B-X": ":3"}

    def test_long_sentences_are_cut_and_spans_with_them(self):
        sentence = TaggedSentence(tuple("abcde"), ("B-X", "I-X", "I-X", "O", "O"), "f", (1, 2, 3, 4, 5))
        notes = []
        found = cut_long([sentence, sentence], 2, SCHEMES["bio"], notes)
        assert [one.tags for one in found[:3]] == [("B-X", "I-X"), ("B-X", "O"), ("O",)]
        assert found[1].where(0) == "f:3"
        assert notes == ["f:1: a sentence of 5 words is split into parts of 2 (and 1 more)"]
        assert cut_long([sentence], 5, SCHEMES["bio"], notes) == [sentence]


class TestLexicons:
    def test_words_are_lower_case_and_their_characters_are_not(self):
        sentences = [TaggedSentence(("The", "the", "Cat"), (), "", (1, 2, 3))]
        lexicon = WordLexicon.build(sentences, TagDataConfig())
        rows = lexicon.encode([["the", "The", "THE", "dog"], ["The"]])
        assert rows["words"] == [[4, 4, 4, 0], [4]]
        assert rows["forms"] == [[0, 1, 2, 3], [1]]
        characters = lexicon.characters
        assert rows["spelling"][1] == characters.encode("The") != rows["spelling"][0]
        assert lexicon.known(TaggedSentence(("cAt", "dog"), (), "", (1, 2))) == [1, 0]
        assert WordLexicon.from_json(lexicon.to_json()) == lexicon

    def test_urls_mentions_and_numbers_share_placeholders(self):
        words = ("Call", "555-1234", "@someone", "http://t.co/x1", "@")
        lexicon = WordLexicon.build([TaggedSentence(words, (), "", (1,) * 5)], TagDataConfig())
        others = ("call", "555-9876", "@Other", "HTTPS://a.b", "www.c.d")
        rows = lexicon.encode([words, others])["words"]
        assert rows[0][:4] == rows[1][:4]
        assert rows[1][3] == rows[1][4]
        assert 0 not in rows[0] + rows[1]
        assert rows[0][4] != rows[0][2]
        assert lexicon.known(TaggedSentence(("@new", "12", "1234"), (), "", (1, 2, 3))) == [1, 0, 0]

    def test_how_often_words_were_seen(self):
        words = ("U.S.", "u.s.", "@someone", "http://t.co/x1", "10", "<unk>")
        lexicon = WordLexicon.build([TaggedSentence(words, (), "", (1,) * 6)], TagDataConfig())
        assert [lexicon.count(word) for word in ("U.s.", "@someone", "www.a.b", "27", "new", "<unk>")] == [
            2,
            0,
            0,
            1,
            0,
            0,
        ]

    def test_words_that_print_does_not_show(self):
        def built(*words):
            return WordLexicon.build([TaggedSentence(words, (), "", (1,) * len(words))], TagDataConfig()).unspaced

        assert built("看似", "簡單", "簡單", "，") == "簡單"
        assert built("a", "北", "京") is None
        assert built(*"abcdefghijklmnopqrstuvwxyz", "北京") is None, "one of them does no harm"

    def test_what_words_look_like(self):
        found = [shape(word) for word in ("Empire", "I", "NBA", "iPhone7", "@weft", "2,017", "北京", "ﬁ", "")]
        assert found == ["Xxx", "X", "XX", "xXxxd", "@@", "d,dd", "cc", "x", ""]
        lexicon = WordLexicon.build([TaggedSentence(("The", "cat"), (), "", (1, 2))], TagDataConfig())
        one, two = lexicon.encode([["Dog", "dog", "DOG"]])["shapes"][0][:2]
        assert lexicon.shapes.decode([one, two]) == ["Xxx", "xx"]
        assert lexicon.encode([["DOG"]])["shapes"] == [[0]]

    def test_a_word_without_end_is_read_at_its_ends(self):
        lexicon = WordLexicon.build([TaggedSentence(("ab",), (), "", (1,))], TagDataConfig())
        (spelling,) = lexicon.encode([["a" * 10**6 + "b"]])["spelling"]
        assert len(spelling) == LONGEST_WORD
        assert spelling[-2:] == lexicon.characters.encode("ab")

    def test_pairs_reach_over_the_edges(self):
        sentence = as_characters(TaggedSentence(("我们", "去"), (), "", (1, 1)))
        lexicon = CharacterLexicon.build([sentence], TagDataConfig(min_bigram_count=1))
        (pairs,) = lexicon.encode(["我们去"])["pairs"]
        assert lexicon.pairs.decode(pairs) == ["\n我", "我们", "们去", "去\n"]
        assert lexicon.known(as_characters(TaggedSentence(("我", "们去"), (), "", (1, 1)))) == [0, 0]
        assert lexicon.known(sentence) == [1, 1]
        assert CharacterLexicon.from_json(lexicon.to_json()) == lexicon

    def test_training_words_match_except_where_they_are_alone(self):
        """A training sentence has the matches that it would have without itself; case and width are those looked up."""
        sentences = [TaggedSentence(words, (), "", (1,) * len(words)) for words in (("ＡＢ", "c"), ("ab", "cd"))]
        tagged = [as_characters(one) for one in sentences]
        lexicon = CharacterLexicon.build(tagged, TagDataConfig(normalization="NFKC", match_length=3))
        both = match_ids("abcd", {"ab", "cd"}, 3)
        assert lexicon.encode(["abCd"])["matches"] == [both]
        assert both == [9, 3, 9, 3], "longest match 2, of 3: begins and ends"
        alone = match_ids("abcd", {"ab"}, 3)
        assert lexicon.encode_training(tagged)["matches"] == [alone[:3], alone]

    def test_places_do_not_move(self):
        """The ligature becomes two letters in NFKC, and lower case may be longer: then the character stays."""
        lexicon = CharacterLexicon("NFKC", True, *[CharacterLexicon.build([], TagDataConfig()).words] * 2, (), 0)
        assert lexicon.read("Ａﬁİ") == ["a", "ﬁ", "İ"]
