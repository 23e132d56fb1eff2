"""Data that do not look like a task's are reported before training starts, with how they were understood."""

from __future__ import annotations

import json
import warnings

import pytest

import weft
from weft.tasks.plausibility import (
    check_labelled,
    check_pairs,
    check_plain_text,
    check_tagged,
    check_tokenization,
)
from weft.tasks.text_task import open_corpus
from weft.text import python_docs
from weft.text.conll import open_sentences
from weft.text.corpus import Corpus

PROSE = python_docs.prose().replace(chr(34), "").split()[:600]
TINY = {"model.hidden_size": 8, "model.embedding_dim": 8, "train.epochs": 1}


def write(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_prose_is_not_tagged_words(tmp_path):
    file = write(tmp_path / "prose.txt", [" ".join(PROSE[at : at + 2]) for at in range(0, 600, 2)])
    with pytest.raises(weft.WeftError) as refused:
        weft.start_tag(file, tmp_path / "run")
    message = str(refused.value)
    assert "prose.txt does not look like tagged words" in message
    assert f"prose.txt:1 is read as the word {PROSE[0]!r} with the tag {PROSE[1]!r}" in message
    assert "300 words" in message
    assert not (tmp_path / "run").exists()


def test_tags_of_a_grammar_are_plausible():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tagged(open_sentences("grammar")[:20])


def test_one_long_sentence_and_a_single_tag_are_odd():
    tagged = [f"{word} {'NV'[at % 2]}" for at, word in enumerate(PROSE)]
    with pytest.warns(weft.WeftWarning, match="all 600 words are one sentence, because no blank line"):
        check_tagged(open_sentences([([line.split()[0] for line in tagged], [line.split()[1] for line in tagged])]))
    with pytest.warns(weft.WeftWarning, match="all 60 words have this tag"):
        check_tagged(open_sentences([(PROSE[:30], ["X"] * 30)] * 2))


def test_prose_is_not_texts_with_labels(tmp_path):
    lines = [" ".join(PROSE[at : at + 6]) for at in range(0, 600, 6)]
    with pytest.raises(weft.WeftError) as refused:
        weft.start_classify(write(tmp_path / "prose.txt", lines), tmp_path / "run")
    assert f"prose.txt:1 is read as the label {PROSE[0]!r} of the text" in str(refused.value)
    assert "labels that recur" in str(refused.value)


def test_labels_that_all_differ_are_refused_and_chosen_ones_are_odd(tmp_path):
    with pytest.raises(weft.WeftError, match="6 labels for 6 texts"):
        weft.start_classify([(f"text {at}", f"label{at}") for at in range(6)], tmp_path / "run")
    with pytest.warns(weft.WeftWarning, match="most labels do not recur"):
        check_labelled(list("abcdef"), "this", chosen=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_labelled([*"ab" * 30, "c", "d"], "this", chosen=False)
        check_labelled(list("abc"), "this", chosen=False)


def test_equal_sides_are_no_translations(tmp_path):
    sentences = [" ".join(PROSE[at : at + 5]) for at in range(0, 100, 5)]
    file = write(tmp_path / "same.tsv", [f"{one}\t{one}" for one in sentences])
    with pytest.raises(weft.WeftError, match="20 of 20 pairs have two equal sides; expected sentences with their"):
        weft.start_translate(file, tmp_path / "run")
    with pytest.raises(weft.WeftError, match="no tab in"):
        weft.start_translate(write(tmp_path / "prose.txt", sentences), tmp_path / "run")
    with pytest.warns(weft.WeftWarning, match="all 20 pairs have the same target"):
        check_pairs(weft.Pairs("one", sentences, ["x"] * 20))


@pytest.fixture
def tables(tmp_path):
    rows = [(at, " ".join(PROSE[at : at + 8]) + ", and more") for at in range(120)]
    write(tmp_path / "a.csv", ["id,body", *(f'{at},"{text}"' for at, text in rows)])
    write(tmp_path / "a.jsonl", [json.dumps({"id": at, "body": text}) for at, text in rows])
    return tmp_path


def test_a_table_as_plain_text_is_reported_with_its_columns(tables):
    for name in ("a.csv", "a.jsonl"):
        with pytest.warns(weft.WeftWarning, match=r"looks like a table .*`column=NAME` .*\(id, body\)"):
            check_plain_text(weft.Corpus.open(str(tables / name)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_plain_text(weft.Corpus.from_texts("plain", ["a, b, c\nd, e\n"]))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_column_is_the_text(name, tables):
    corpus = open_corpus(str(tables / name), "body")
    texts = ["".join(document.lines()) for document in corpus.documents()]
    assert len(texts) == 120
    assert texts[0] == " ".join(PROSE[:8]) + ", and more"
    assert open_corpus(str(tables / "a.csv"), "2").name == corpus.name.replace(".jsonl", ".csv")
    with pytest.raises(weft.WeftError, match=r"column 'bdy' is not known.*`column=body`"):
        open_corpus(str(tables / name), "bdy")


def test_a_model_of_a_column_is_evaluated_on_that_column_and_knows_where_a_text_ends(tables):
    model = weft.train_lm(str(tables / "a.csv"), tables / "run", {**TINY, "text.column": "body", "text.holdout": 0})
    assert "{" not in model.text_field.vocabulary
    assert model.evaluate(str(tables / "a.jsonl")).count == model.evaluate(str(tables / "a.csv")).count
    text = model.generate("the", tokens=None, seed=1)
    assert text.startswith("the")
    with pytest.raises(weft.WeftError, match="expected CSV, TSV or JSON lines"):
        model.evaluate(weft.Corpus.from_texts("plain", ["no table here"]))


def test_generation_stops_before_a_text_or_at_the_end(tables):
    config = {**TINY, "train.epochs": 3, "batch.size": 4}
    model = weft.train_lm(weft.Corpus.from_texts("one", ["one two three\n" * 200]), tables / "run", config)
    whole = model.generate("one", tokens=60, seed=2)
    stop = whole[13:15]
    cut = model.generate("one", tokens=60, seed=2, stop=stop)
    assert cut == "one" + whole[3:].partition(stop)[0]
    assert model.generate_many(["one", "two"], tokens=20, seed=2, stop=["\x00"])[0] == whole[:23]
    pieces = list(model.stream(["one"], tokens=60, seed=2, stop=[stop, "never"]))
    assert "one" + "".join(piece for (piece,) in pieces) == cut
    with pytest.raises(weft.WeftError, match="does not know where a text ends"):
        model.generate("one", tokens=None)
    with pytest.raises(weft.WeftError, match="a `stop` text is empty"):
        model.generate("one", stop="")


@pytest.mark.parametrize(
    ("tokenizer", "warns"), [("word", True), ("space", True), ("whitespace", False), ("char", False)]
)
def test_pretokenized_text_is_reported(tokenizer, warns):
    corpus = Corpus.from_texts("wiki", ["the U.S. @-@ led <unk>\n" * 3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_tokenization(corpus, tokenizer)
    assert [("@-@, <unk>" in str(one.message), "text.tokenizer=whitespace" in str(one.message)) for one in caught] == (
        [(True, True)] if warns else []
    )
