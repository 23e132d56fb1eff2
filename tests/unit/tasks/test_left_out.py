"""Rows that lack a text, a label or a translation: left out and counted in one line, or refused."""

from __future__ import annotations

import json
import warnings

import pytest

import weft
from tests.program import fails, succeeds
from weft.errors import WeftError, WeftWarning
from weft.tasks.classify.config import ClassifyDataConfig
from weft.tasks.classify.readers import read_labelled, read_texts
from weft.tasks.tag.config import TagDataConfig
from weft.tasks.tag.data import read_tagged
from weft.tasks.text_task import open_corpus
from weft.text.parallel import open_pairs
from weft.training.run import open_run

TINY = {"model.hidden_size": 4, "model.embedding_dim": 4, "train.epochs": 1}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def rows(n):
    return [(f"a text of some words number {at}", "ab"[at % 2]) for at in range(n)]


def left_out(call, words):
    """The result of a call that leaves rows out and says so in one line."""
    with pytest.warns(WeftWarning) as caught:
        found = call()
    (line,) = [str(one.message) for one in caught]
    assert {one.filename for one in caught} == {__file__}, "the line that called weft, not one of weft's"
    assert line.startswith(f"left out {words}"), line
    assert "\n" not in line
    return found


HOLES = "text,label\n" + "".join(
    f"{'' if at in (3, 9) else text},{'' if at in (5, 7) else label}\n" for at, (text, label) in enumerate(rows(12))
)


def test_rows_of_a_table_without_a_text_or_a_label_are_counted(tmp_path):
    path = write(tmp_path / "m.csv", HOLES)
    found = left_out(
        lambda: read_labelled(path, ClassifyDataConfig()),
        f"4 of 12 rows (no text: 2, no label: 2): {path}:5, {path}:7, {path}:9, ...; `data.strict=true` refuses them",
    )
    assert (len(found.rows), found.left_out) == (8, 4)
    assert [(row.value, row.label) for row in found.rows] == [
        row for at, row in enumerate(rows(12)) if at not in (3, 5, 7, 9)
    ]
    with pytest.raises(WeftError, match=r"m\.csv:5: the text is empty; expected a text for every label"):
        read_labelled(path, ClassifyDataConfig(strict=True))


def test_more_than_half_is_an_error(tmp_path):
    head, *lines = HOLES.splitlines()
    path = write(tmp_path / "m.csv", "\n".join([head, *lines[:8], ",a", ",b", "x,", "y,", "z,"]))
    with pytest.raises(
        WeftError, match=r"incomplete: 8 of 13 rows \(no text: 3, no label: 5\).*at most half.*text_column"
    ):
        read_labelled(path, ClassifyDataConfig())
    left_out(
        lambda: read_labelled([("a", "x"), (None, "y")], ClassifyDataConfig()), "1 of 2 rows (no text: 1): example 2"
    )


def test_what_is_no_row_is_not_counted(tmp_path):
    """Excel writes rows of separators around a table. Line numbers are those of the file."""
    text = ",,\ntext,label,\n" + "".join(f"{text},{label},\n" for text, label in rows(10)) + ",,\n\n,,\nlast,,\n"
    path = write(tmp_path / "m.csv", text)
    found = left_out(lambda: read_labelled(path, ClassifyDataConfig()), f"1 of 11 rows (no label: 1): {path}:16")
    assert len(found.rows) == 10


def test_a_column_that_is_mostly_empty_is_no_label(tmp_path):
    """It has the fewest distinct values."""
    lines = [f"{at},{text},{'seen' if at == 7 else ''},{label}" for at, (text, label) in enumerate(rows(30))]
    found = read_labelled(write(tmp_path / "m.csv", "\n".join(["n,words,note,kind", *lines])), ClassifyDataConfig())
    assert (
        "text from column 'words' (the longest texts), label from column 'kind' (2 distinct values;"
        in found.description
    )


def test_still_refused_by_line(tmp_path):
    for name, line, words in (
        ("m.csv", "a,b,c", "m.csv:14 has 3 columns"),
        ("m.csv", "a", "m.csv:14 has 1 columns"),
        ("m.csv", 'x,"a', "m.csv:1.*unexpected end"),
    ):
        with pytest.raises(WeftError, match=words):
            read_labelled(write(tmp_path / name, HOLES + line), ClassifyDataConfig())
    (tmp_path / "m.csv").write_bytes(HOLES.encode() + b"caf\xe9,a\n")
    with pytest.raises(WeftError, match=r"m\.csv:14: byte 0xe9"):
        read_labelled(str(tmp_path / "m.csv"), ClassifyDataConfig())


def test_pairs_that_lack_a_side(tmp_path):
    path = write(tmp_path / "p.tsv", "Go.\tVa !\nHi.\t\n\n\tOui.\nNo.\tNon.\n")
    pairs = left_out(lambda: open_pairs(path), f"2 of 4 pairs (no target: 1, no source: 1): {path}:2, {path}:4")
    assert (pairs.sources, pairs.targets, pairs.left_out) == (["Go.", "No."], ["Va !", "Non."], 2)
    with pytest.raises(WeftError, match="the target side of"):
        open_pairs(path, strict=True)
    with pytest.raises(WeftError, match="incomplete: 2 of 3 pairs"):
        open_pairs(write(tmp_path / "p.tsv", "Go.\tVa !\nHi.\t\n\tOui.\n"))


def test_sentences_that_lack_a_tag(tmp_path):
    path = write(tmp_path / "t.conll", "the\tDET\ncat\tNOUN\n\nthe\tDET\ndog\t\n\na\tDET\ndog\tNOUN\n")
    found = left_out(lambda: read_tagged(path, TagDataConfig()), f"1 of 3 sentences (no tag: 1): {path}:5")
    assert [one.words for one in found.sentences] == [("the", "cat"), ("a", "dog")]
    assert found.left_out == 1
    with pytest.raises(WeftError, match=r"t\.conll:5: the tag is empty"):
        read_tagged(path, TagDataConfig(strict=True))
    pairs = [(["a"], ["X"]), (["b"], None), (["c", None], ["X", "Y"]), (["d"], ["Y"])]
    found = left_out(
        lambda: read_tagged(pairs, TagDataConfig()), "2 of 4 sentences (no tag: 1, no word: 1): sentence 2"
    )
    assert len(found.sentences) == 2


def test_texts_of_a_column_that_are_empty(tmp_path):
    lines = [json.dumps({"id": at, "body": f"text {at}" if at != 2 else " "}) for at in range(4)]
    path = write(tmp_path / "c.jsonl", "\n".join([*lines, '{"id": 4}']))
    corpus = left_out(lambda: open_corpus(path, "body"), f"2 of 5 rows (no text: 2): {path}:3, {path}:5")
    assert (len(list(corpus.documents())), corpus.left_out) == (3, 2)
    with pytest.raises(WeftError, match=r"c\.jsonl:3: the text is empty"):
        open_corpus(path, "body", strict=True)


def test_predictions_keep_a_line_for_each_row(tmp_path):
    path = write(tmp_path / "m.csv", "id,review\n1,nice\n2,\n,\n\n4,bad\n")
    assert read_texts(path, "review", ClassifyDataConfig()).rows == ["nice", "", "", "bad"]
    path = write(tmp_path / "m.csv", 'review\nnice\n""\nbad\n')
    assert read_texts(path, "review", ClassifyDataConfig()).rows == ["nice", "", "bad"]
    path = write(tmp_path / "m.jsonl", '{"review": "nice"}\n{"id": 2}\n{"review": null}\n')
    assert read_texts(path, "review", ClassifyDataConfig()).rows == ["nice", "", ""]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each task, trained on tables with holes; and the same tables."""
    folder = tmp_path_factory.mktemp("runs")
    data = {
        "classify": write(folder / "m.csv", HOLES),
        "tag": write(folder / "t.conll", "the\tDET\ncat\tNOUN\n\nthe\tDET\ndog\t\n\na\tDET\ndog\tNOUN\n" * 4),
        "translate": write(folder / "p.tsv", "Go.\tVa !\nHi.\t\nNo.\tNon.\nYes.\tOui.\n" * 3),
        "lm": write(
            folder / "c.csv",
            "id,body\n" + "".join(f"{at},{'' if at == 4 else 'some text that is long enough'}\n" for at in range(9)),
        ),
    }
    column = {"text.column": "body"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeftWarning)
        weft.train("classify", data["classify"], folder / "classify", {**TINY, "model.wide": False}, progress=False)
        weft.train("tag", data["tag"], folder / "tag", {**TINY, "train.epochs": 1}, progress=False)
        weft.train(
            "translate", data["translate"], folder / "translate", {**TINY, "text.tokenizer": "char"}, progress=False
        )
        weft.train("lm", data["lm"], folder / "lm", {**TINY, **column, "batch.size": 2}, progress=False)
    return folder, data


@pytest.mark.parametrize(("task", "count"), [("classify", 4), ("tag", 4), ("translate", 3), ("lm", 1)])
def test_the_record_of_an_evaluation_has_their_number(task, count, runs):
    folder, data = runs
    done = succeeds("eval", folder / task, "--data", data[task], "--json")
    assert json.loads(done.stdout)["left_out"] == count
    assert done.stderr.count("left out") == 1
    assert "--strict refuses them" in done.stderr
    assert "is empty" in fails("eval", folder / task, "--data", data[task], "--strict")
    column = ["--column", "body"] if task == "lm" else []
    new = folder / f"{task}-strict"
    assert "is empty" in fails("train", task, "--data", data[task], "--out", new, "--strict", *column)
    assert not new.exists()


def test_labels_that_occur_once_and_conflicts_are_reported(tmp_path):
    """One line each, with numbers; nothing is removed."""
    examples = [*rows(40), *rows(4), ("one more text", "c"), (rows(1)[0][0], "b")]
    with pytest.warns(WeftWarning) as caught:
        training = weft.start_classify(examples, tmp_path / "run", {**TINY, "model.wide": False})
    assert [str(one.message) for one in caught] == [
        "1 of 3 labels occur once: 'c'; what occurs once is learnt or measured, not both",
        "1 of 41 different texts have several labels, as in example 1 and example 46",
    ]
    assert "5 of 46 texts repeat others" in training.summary
    assert sum(open_run(tmp_path / "run").fields["label"]["labels"].values()) > 30


def test_labels_that_all_occur_once_are_reported(tmp_path):
    tiny = {**TINY, "model.wide": False, "text.min_count": 1}
    with pytest.warns(WeftWarning, match="^all 2 labels occur once: 'x', 'y'; what occurs once is learnt or measured"):
        weft.start_classify([("some text", "x"), ("another one", "y")], tmp_path / "run", tiny)


def test_texts_that_are_held_out_and_trained_on_are_reported(tmp_path):
    """Where the held-out data is given; weft itself holds out no text that it trains on."""
    tiny = {**TINY, "model.wide": False}
    with pytest.warns(
        WeftWarning, match="^2 of 3 held-out texts are in the training data, too: the score is optimistic$"
    ):
        weft.start_classify(rows(20), tmp_path / "a", tiny, dev=[*rows(2), ("another text", "a")])
    tagged = [((word, "x"), ("A", "B")) for word in "abcdefgh"]
    with pytest.warns(WeftWarning) as caught:
        weft.start_tag(tagged, tmp_path / "b", TINY, dev=[(("a", "x"), ("A", "A")), (("z",), ("A",))])
    assert [str(one.message).partition(",")[0] for one in caught] == [
        "1 of 2 held-out sentences are in the training data",
        "1 of 9 different sentences have several labels",
    ]
    pairs = [("go now", "va"), ("come here", "viens"), ("no way", "non")] * 3
    with pytest.warns(WeftWarning, match="^1 of 2 held-out sources are in the training data"):
        weft.start_translate(pairs, tmp_path / "c", {**TINY, "text.tokenizer": "char"}, dev=[pairs[0], ("yes", "oui")])
    texts, small = ["a text of some words"] * 9 + ["another"], {**TINY, "batch.size": 1, "batch.seq_length": 5}
    with pytest.warns(WeftWarning, match="^1 of 1 held-out texts are in the training data"):
        weft.start_lm(texts, tmp_path / "d", small, dev=["another"])
    with pytest.warns(WeftWarning, match="^8 of 10 texts repeat others: those at the end"):
        weft.start_lm(texts, tmp_path / "e", small)
