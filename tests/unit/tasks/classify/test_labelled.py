"""Labelled texts from every kind of file, what is guessed of them, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import REAL_DATA
from weft.config import load_config, to_toml
from weft.errors import WeftError, WeftWarning
from weft.tasks.classify.config import ClassifyConfig, ClassifyDataConfig
from weft.tasks.classify.readers import ExampleLayout, grammar_examples, read_labelled, read_texts
from weft.text.fields import ordered_labels
from weft.text.tables import read_table

PAIRS = [(f"text number {number}, so to say", ("good", "bad", "mixed")[number % 3]) for number in range(30)]
AUTO = ClassifyDataConfig()


def tsv(pairs=PAIRS, head=""):
    return head + "".join(f"{label}\t{text}\n" for text, label in pairs)


def quoted(pairs=PAIRS, head=None, delimiter=","):
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows([*([head] if head else []), *pairs])
    return stream.getvalue()


def jsonl(pairs=PAIRS, text="text", label="label"):
    return "".join(json.dumps({"id": n, label: one[1], text: one[0]}) + "\n" for n, one in enumerate(pairs))


def written(tmp_path, content, name="data.txt"):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return str(path)


def pairs_of(found):
    return [(row.value, row.label) for row in found.rows]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", tsv()),
        ("plain", tsv()),
        ("a.tsv", tsv(head="label\ttext_a\n")),
        ("a.tsv", tsv(head="verdict\tremark\n")),
        ("a.tsv", "".join(f"{n}\t{text}\t{label}\n" for n, (text, label) in enumerate(PAIRS))),
        ("a.csv", quoted()),
        ("a.csv", quoted(head=["Review", "Sentiment"])),
        ("plain.txt", quoted(head=["review", "stars"])),
        ("a.csv", quoted(delimiter=";")),
        ("a.jsonl", jsonl()),
        ("plain", jsonl(text="review", label="sentiment")),
        ("plain", "".join(f"{label} {text}\n" for text, label in PAIRS)),
        ("plain", "".join(f"__label__{label} {text}\n\n" for text, label in PAIRS)),
        ("a.txt", "\ufeff" + tsv().replace("\n", "\r\n")),
    ],
)
def test_formats_headers_and_columns_are_guessed(name, content, tmp_path):
    assert pairs_of(read_labelled(written(tmp_path, content, name), AUTO)) == PAIRS


SAID = ["pos it was good, I say", "neg it was bad, you say", "pos it was fine, they say", "neg it was dull, we say"]
FORMS = {"lines with a label and a text": "lines", "CSV": "csv", "tab-separated": "tsv", "JSON lines": "jsonl"}


def form_of(found):
    return FORMS[re.match(r"read as ([^,:]+)", found.description)[1]]


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_one_comma_in_every_line_does_not_make_a_table(rows, tmp_path):
    found = read_labelled(written(tmp_path, "\n".join(SAID[:rows])), AUTO)
    assert pairs_of(found) == [(line[4:], line[:3]) for line in SAID[:rows]]
    assert form_of(found) == "lines"


@pytest.mark.parametrize(
    ("form", "lines", "labels"),
    [
        ("lines", [*SAID, "pos a good one, I say", "neg a bad one, I say"], "pos neg"),  # an end of a text recurs
        ("lines", [f"{a} one, {b}" for a in ("pos", "neg") for b in ("he said", "she said")], "pos neg"),
        ("lines", ["pos good,nice", "neg bad,ugly", "pos fine,fair"], "pos neg"),  # no space, but no recurring end
        ("csv", ["so good,pos", "so bad,neg"], "pos neg"),
        ("csv", ["good,so nice", "bad,so ugly"], "good bad"),
        ("csv", ["pos, it was nice", "neg, it was not"], "pos neg"),  # the first word has the comma
        ("csv", ["I like it,good", "I hate it,bad", "The end,mixed"] * 3, "good bad mixed"),  # fewer first words
        ("csv", ["I like it, good", "We hate it, bad", "The end, good", "No way, bad"], "good bad"),
        ("csv", ['"it was nice, really","good"', '"it was bad, really","bad"'], "good bad"),
        ("csv", ['"it was nice, really",good', "it was bad,bad"], "good bad"),
        ("csv", ['"it was nice","good"', '"it was bad","bad"'], "good bad"),
    ],
)
def test_lines_or_csv(form, lines, labels, tmp_path):
    """By what recurs, by quotes, and by the space that follows a comma in a text."""
    found = read_labelled(written(tmp_path, "\n".join(lines)), AUTO)
    assert form_of(found) == form
    assert {row.label for row in found.rows} == set(labels.split())
    assert len(found.rows) == len(lines)


def test_known_labels_say_how_a_later_file_is_written(tmp_path):
    like = ExampleLayout("text", "label", ("good", "bad"))
    for content in ("so nice,good\n", "so nice, good\nso ugly, bad\n", "good so nice, well\nbad so ugly, well\n"):
        found = read_labelled(written(tmp_path, content), AUTO, like)
        assert [row.value.split(",")[0] for row in found.rows] == ["so nice", "so ugly"][: len(found.rows)]


FEW = [("a good film", "good"), ("a bad film", "bad"), ("so very good", "good"), ("so very bad", "bad")]


@pytest.mark.parametrize(
    ("head", "rows", "names"),
    [
        (("remark", "verdict"), FEW, True),
        (("评论", "情感"), FEW, True),
        (("remark", "sentiment"), FEW[:1], True),  # a usual name
        (("id", "remark", "verdict"), [(str(number), *pair) for number, pair in enumerate(FEW)], True),
        (("remark", "verdict"), FEW[:2], True),
        (("remark", "verdict"), FEW[:1], False),  # nothing tells them apart
        (("fine", "good"), FEW, False),  # a label that does
        (("it was so so then", "mixed"), FEW, False),  # a text is not a name
        (("so so", "mixed"), FEW, False),
        (("dreadful", "mixed"), [(text[:6], label) for text, label in FEW], False),  # nor longer than the texts
    ],
)
def test_names_over_few_rows(head, rows, names, tmp_path):
    found = read_labelled(written(tmp_path, quoted(rows, head=head), "a.csv"), AUTO)
    assert len(found.rows) == len(rows) + (not names)
    assert ("with a header" in found.description) == names
    assert len({row.label for row in found.rows}) == len({row[-1] for row in rows}) + (not names and head[-1] != "good")


def test_labels_are_of_one_line(tmp_path):
    for label in ("a\tb", "a\nb", "a\u2028b"):
        with pytest.raises(WeftError, match=r"a\.jsonl:2: the label '.*' contains a tab or a line break"):
            read_labelled(written(tmp_path, jsonl([("x", "pos"), ("y", label)]), "a.jsonl"), AUTO)
        with pytest.raises(WeftError, match="example 2: the label"):
            read_labelled([("x", "pos"), ("y", label)], AUTO)
    (tmp_path / "folders" / "a\tb").mkdir(parents=True)
    (tmp_path / "folders" / "a\tb" / "x.txt").write_text("x", encoding="utf-8")
    with pytest.raises(WeftError, match=r"x\.txt: the label"):
        read_labelled(tmp_path / "folders", AUTO)


def test_archives_and_folders(tmp_path):
    with gzip.open(tmp_path / "a.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(tsv())
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("inner/a.csv", quoted())
    for text, label in PAIRS:
        (tmp_path / "folders" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "folders" / label / f"{text}.txt").write_text(text, encoding="utf-8")
    assert pairs_of(read_labelled(tmp_path / "a.tsv.gz", AUTO)) == PAIRS
    assert pairs_of(read_labelled(f"{tmp_path}/a.zip:inner/a.csv", AUTO)) == PAIRS
    assert sorted(pairs_of(read_labelled(tmp_path / "folders", AUTO))) == sorted(PAIRS)
    (tmp_path / "folders" / "stray.txt").write_text("stray", encoding="utf-8")
    with pytest.raises(WeftError, match="in no folder"):
        read_labelled(tmp_path / "folders", AUTO)
    (tmp_path / "folders" / "stray.txt").unlink()
    (tmp_path / "folders" / "good" / "empty.txt").write_text(" \n", encoding="utf-8")
    with pytest.warns(WeftWarning, match=r"left out 1 of 31 rows \(no text: 1\): .*empty\.txt; `data\.strict=true`"):
        found = read_labelled(tmp_path / "folders", AUTO)
    assert sorted(pairs_of(found)) == sorted(PAIRS)


def test_columns_by_name_and_number(tmp_path):
    rows = [("good", "a title", "the text itself", "7"), ("bad", "another", "other text", "8")] * 10
    path = written(tmp_path, quoted(rows, head=["class", "title", "text", "size"]), "a.csv")
    assert pairs_of(read_labelled(path, AUTO))[0] == ("the text itself", "good")
    named = ClassifyDataConfig(text_column="title", label_column="size")
    assert pairs_of(read_labelled(path, named))[0] == ("a title", "7")
    assert pairs_of(read_labelled(path, ClassifyDataConfig(text_column=2, label_column="4")))[0] == ("a title", "7")
    assert len(read_labelled(path, ClassifyDataConfig(text_column=2, label_column=4, header="no")).rows) == 21
    assert "column 'title'" in read_labelled(path, named).description


def test_a_later_file_is_read_as_the_first_was(tmp_path):
    """A test file may be small, and have a label that is not among the most frequent values."""
    like = ExampleLayout("remark", "verdict", ("good", "bad"))
    for content in ("remark\tverdict\nnice\tgood\n", "nice\tgood\n", "id\tremark\tverdict\n1\tnice\tgood\n"):
        assert pairs_of(read_labelled(written(tmp_path, content, "t.tsv"), AUTO, like)) == [("nice", "good")]
    # no header, though the first text is a usual name of a column
    assert len(read_labelled(written(tmp_path, "text\tbad\nnice\tgood\n", "t.tsv"), AUTO, like).rows) == 2


@pytest.mark.parametrize(
    ("name", "content", "settings", "words"),
    [
        ("a.tsv", "good\tone\nbad\ttwo\tthree\n", {}, ["a.tsv:2 has 3 columns", "2, as in line 1", "tab"]),
        ("a.csv", 'x,"one\ntwo"\n\ny,b,c\n', {}, ["a.csv:4 has 3 columns", "quoted"]),
        ("a.csv", 'x,"one\ny,two\n', {}, ["a.csv:2", "unexpected end"]),
        ("a.tsv", tsv(head="label\ttext\n"), {"text_column": "txet"}, ["column 'txet'", "Try: text"]),
        ("a.tsv", tsv(), {"label_column": 3}, ["data.label_column is 3", "2 columns"]),
        ("a.tsv", tsv(), {"text_column": "review", "header": "no"}, ["no names", "number from 1"]),
        ("a.tsv", tsv(), {"text_column": 1, "label_column": 1}, ["both column 1", "two different columns"]),
        ("a.tsv", "one\ntwo\n", {}, ["one column"]),
        ("a.tsv", "good\tone\n\ttwo\n", {"strict": True}, ["a.tsv:2", "label is empty"]),
        ("a.tsv", "text\ttext\nnice\tgood\n", {"header": "yes"}, ["a.tsv:1", "'text'"]),
        ("a.tsv", "label\ttext\n", {}, ["no examples"]),
        ("a.tsv", "".join(f"{n}\ttext {n}\n" for n in range(30)), {}, ["no column", "column 1", "30 in 30 rows"]),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', {"strict": True}, ["a.jsonl:2: the label is empty"]),
        ("a.jsonl", '{"text": "a", "label": 1}\n[1, 2]\n', {}, ["a.jsonl:2", "list", "object"]),
        ("a.jsonl", '{"text": "a", \n', {}, ["a.jsonl:1", "object per line"]),
        ("a.jsonl", '{"text": "a", "label": null}\n', {}, ["1 of 1 rows (no label: 1)", "a.jsonl:1", "at most half"]),
        (
            "a.json",
            '[\n  {"text": "a", "label": 1}\n]\n',
            {},
            ["a.json:1", "not a single array", "jq -c"],
        ),
        ("a.json", '[{"text": "a", "label": 1}]\n', {}, ["a.json:1 is a JSON list", "not a single array", "jq -c"]),
        ("a.json", '{\n  "text": "a"\n}\n', {}, ["a.json:1 is not valid JSON", "one object per line"]),
    ],
)
def test_mistakes_are_named_by_file_and_line(name, content, settings, words, tmp_path):
    with pytest.raises(WeftError) as caught:
        read_labelled(written(tmp_path, content, name), ClassifyDataConfig(**settings))
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([], ["no examples"]),
        (["text"], ["example 1 is 'text'", "pair"]),
        ([("a", "b"), ("c",)], ["example 2"]),
        ([("a", 1.5)], ["label 1.5"]),
        ([(1, "a")], ["example 1 is (1, 'a')"]),
        ([("a", None)], ["1 of 1 rows (no label: 1): example 1"]),
        ([("a", " ")], ["1 of 1 rows (no label: 1): example 1"]),
        (5, ["the examples are 5", "a path, or a list"]),
        (None, ["the examples are None", "a path, or a list"]),
        ("timemachine", ["without labels", "grammar"]),
        ("no-such-file", ["neither a dataset"]),
    ],
)
def test_sources_that_are_no_examples(source, words):
    with pytest.raises(WeftError) as caught:
        read_labelled(source, AUTO)
    assert all(word in str(caught.value) for word in words), caught.value


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))


@given(st.lists(st.tuples(cells.filter(str.strip), st.sampled_from(["pos", "neg"])), min_size=1, max_size=8))
def test_csv_and_json_keep_every_text(tmp_path_factory, pairs):
    """Whatever stands in a text, quotes and line ends and tabs too, it comes back, but for white space at its ends."""
    folder = tmp_path_factory.mktemp("csv")
    expected = [(text.strip(), label) for text, label in pairs]
    given_columns = ClassifyDataConfig(text_column=1, label_column=2, header="no")
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(pairs)
    assert pairs_of(read_labelled(written(folder, stream.getvalue(), "a.csv"), given_columns)) == expected
    assert pairs_of(read_labelled(written(folder, jsonl(pairs), "a.jsonl"), AUTO)) == expected


def test_a_line_of_two_million_characters_is_one_text(tmp_path):
    long = "word " * 400_000
    for name, content in (("a.tsv", f"x\t{long}\ny\tb\n"), ("a.csv", f'x,"{long}"\ny,b\n')):
        assert [len(row.value) for row in read_labelled(written(tmp_path, content, name), AUTO).rows] == [1999999, 1]


def test_texts_without_labels(tmp_path):
    assert read_texts(written(tmp_path, "one\n\n two \n"), None, AUTO) == (["one", "", " two "], [])
    path = written(tmp_path, quoted([("1", "a, b"), ("2", "c")], head=["id", "text"]), "a.csv")
    assert read_texts(path, "text", AUTO) == read_texts(path, "2", AUTO) == (["a, b", "c"], [])
    with pytest.raises(WeftError, match="`column`: column 'txt'"):
        read_texts(path, "txt", AUTO)


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.csv", 'id,remark\n1,"a, b"\n2,c\n', ["a, b", "c"]),
        ("a.csv", "remark\nc\n", ["c"]),
        ("a.txt", 'id;remark\n1;"a; b"\n', ["a; b"]),
        ("a.tsv", "remark\tid\nc\t1\n", ["c"]),
        ("plain", "id\tremark\n1\tc\n", ["c"]),
        ("a.jsonl", '{"remark": "c", "id": 1}\n', ["c"]),
        ("plain", '{"id": 1, "remark": "c"}\n', ["c"]),
    ],
)
def test_a_table_with_the_column_that_the_model_knows(name, content, texts, tmp_path):
    found = read_texts(written(tmp_path, content, name), None, AUTO, ExampleLayout("remark", "verdict"))
    assert found.rows == texts
    (note,) = found.notes
    assert "column 'remark', as in the training data" in note


@pytest.mark.parametrize(
    ("name", "content", "noted"),
    [
        ("a.csv", "id,review\n1,nice\n", True),
        ("a.jsonl", '{"review": "nice"}\n', True),
        ("a.txt", "1\tnice\n2\tso so\n", True),
        ("a.txt", "remark\nthis is a remark, id\n", False),  # one cell is no table
        ("a.txt", "a remark, and more\nthe end\n", False),
    ],
)
def test_what_is_no_such_table_is_read_by_lines_and_that_is_said(name, content, noted, tmp_path):
    for like in (ExampleLayout("remark", "verdict"), ExampleLayout(), None):
        found = read_texts(written(tmp_path, content, name), None, AUTO, like)
        assert found.rows == content.splitlines()
        assert ["one text per line" in note for note in found.notes] == [True] * noted


def test_grammar_examples_have_the_number_of_the_first_subject():
    examples = grammar_examples(300, seed=3)
    assert examples == grammar_examples(300, seed=3)
    verbs = {"singular": {"sleeps", "sings", "waits"}, "plural": {"sleep", "sing", "wait"}}
    short = [one for one in examples if len(one.value.split()) == 3 and one.value.split()[0] in ("the", "some", "a")]
    assert {one.label for one in short} == {"singular", "plural"}
    for one in short:
        last = one.value.rstrip(".").split()[-1]
        assert last not in verbs["plural" if one.label == "singular" else "singular"]
    mixed = [one for one in examples if " that " in one.value and one.label == "plural"]
    assert any(" sees " in one.value or " likes " in one.value for one in mixed), (
        "verbs of the other number stand between"
    )


def test_labels_in_order():
    assert ordered_labels(["b", "a", "b", "10"]) == ("10", "a", "b")
    assert ordered_labels(["2", "10", "-1"]) == ("-1", "2", "10")


def test_a_document_may_end_without_a_line_end(tmp_path):
    from weft.text.corpus import Corpus

    (document,) = Corpus.open(written(tmp_path, "a\tb\nc\td", "x.tsv")).documents()
    assert read_table(document, "auto", "auto", names=set()).rows == [(1, ["a", "b"]), (2, ["c", "d"])]


def test_columns_are_set_by_name_or_number(tmp_path):
    config = load_config(ClassifyConfig, sets=["data.text_column=2", "data.label_column=stars"])
    assert (config.data.text_column, config.data.label_column) == (2, "stars")
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert load_config(ClassifyConfig, file) == config
    with pytest.raises(WeftError, match=r"data\.text_column is 1\.5; expected a name or an integer"):
        load_config(ClassifyConfig, sets=["data.text_column=1.5"])


FOLDER = REAL_DATA / "cls"


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the real data is not at {FOLDER}; WEFT_DATA says where it is")
@pytest.mark.parametrize(
    ("name", "count", "text"),
    [
        ("sst2/stsa.binary.dev", 872, "one long string of cliches ."),
        ("chnsenticorp/dev.tsv.gz", 1200, "這間酒店環境和服務態度亦算不錯"),
        ("imdb-subset/dev.tsv.gz", 1000, ""),
        ("sentiment-labelled-sentences/yelp_labelled.txt", 1000, "Wow... Loved this place."),
    ],
)
def test_real_files(name, count, text):
    found = read_labelled(FOLDER / name, AUTO)
    assert len(found.rows) == count
    assert {row.label for row in found.rows} == {"0", "1"}
    assert found.rows[0].value.startswith(text)


def test_several_text_columns_are_joined(tmp_path):
    path = tmp_path / "news.csv"
    path.write_text("title,body,topic\n" + "".join(f"head {n},text {n},{'ab'[n % 2]}\n" for n in range(6)))
    both = ClassifyDataConfig(text_column="title,body", label_column="topic")
    found = read_labelled(path, both)
    assert pairs_of(found)[1] == ("head 1 text 1", "b")
    assert pairs_of(
        read_labelled(path, ClassifyDataConfig(text_column="1, 2", label_column=3, header="yes"))
    ) == pairs_of(found)
    assert read_texts(str(path), None, AUTO, found.layout).rows[1] == "head 1 text 1"  # as in the training data
    assert pairs_of(read_labelled(path, AUTO, found.layout)) == pairs_of(found)
    assert read_texts(str(path), "body,title", AUTO).rows[1] == "text 1 head 1"
    with pytest.raises(WeftError, match="both column 'topic'"):
        read_labelled(path, ClassifyDataConfig(text_column="title,topic", label_column="topic"))


def test_labels_are_cut_and_files_decoded(tmp_path):
    path = tmp_path / "questions.label"
    path.write_bytes("".join(f"NUM:date où {n} ?\nLOC:city café {n} ?\n" for n in range(5)).encode("latin-1"))
    with pytest.raises(WeftError, match="is not UTF-8"):
        read_labelled(path, AUTO)
    found = read_labelled(path, ClassifyDataConfig(format="lines", label_separator=":", encoding="latin-1"))
    assert pairs_of(found)[:2] == [("où 0 ?", "NUM"), ("café 0 ?", "LOC")]
    with pytest.raises(WeftError, match="is 'klingon'; expected an encoding"):
        read_labelled(path, ClassifyDataConfig(encoding="klingon"))
    with pytest.raises(WeftError, match="is not ascii text"):
        read_labelled(path, ClassifyDataConfig(encoding="ascii"))


def test_texts_of_a_table_without_names_are_read_as_eval_reads_them(tmp_path):
    path = tmp_path / "new.tsv"
    path.write_text("good\tone text\nbad\tanother text\n")
    like = ExampleLayout(labels=("good", "bad"))
    assert read_texts(str(path), None, AUTO, like).rows == ["one text", "another text"]
    path.write_text("what\tone text\nbad\tanother text\n")  # an unknown label: these are lines
    assert read_texts(str(path), None, AUTO, like).rows == ["what\tone text", "bad\tanother text"]
    (tmp_path / "lines").write_text("good is this\nbad is that\n")  # few lines may begin with such a word
    assert len(read_texts(str(tmp_path / "lines"), None, AUTO, like).rows[0].split()) == 3
