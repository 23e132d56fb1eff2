"""Texts without labels, labelled by a teacher: which are read, what is trained on, what is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import weft
from tests.program import fails, succeeds
from weft.tasks.classify.self_training import LABELLED_TIMES
from weft.tasks.classify.wide import held_out_scores, load_wide
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, stored
from weft.text.fields import Label

GOOD, BAD = ["fine fun", "a fine film", "great fun", "so great"], ["dull", "a dull film", "so bad", "bad and long"]
LABELLED = [(text, "good") for text in GOOD] + [(text, "bad") for text in BAD]
SMALL = {"model.hidden_size": 8, "model.embedding_dim": 8, "text.min_count": 1, "train.epochs": 2}
UNLABELLED = ["a great day", "what a bad day", "", "a fine film", "great and fine", "long dull long", "dull and bad"]
HELD_OUT = [("dull and bad", "bad"), ("fine and great", "good")]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    weft.train("classify", LABELLED * 4, folder / "teacher", {**SMALL, "train.epochs": 8}, progress=False)
    return folder / "teacher"


def fitted(training):
    """The run with its linear models; its network is not trained."""
    any(not step.note for step in training.steps())
    return training.run


def taught(teacher, folder, texts=UNLABELLED, **settings):
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    given = {**SMALL, "data.unlabelled": str(folder / "texts.txt"), "data.teacher": str(teacher), **settings}
    return fitted(weft.start_classify(LABELLED, folder / "run", given, dev=HELD_OUT))


def test_texts_are_trained_on_with_the_labels_of_the_teacher(teacher, tmp_path):
    run = taught(teacher, tmp_path)
    model, columns = weft.load(run.path), stored(run, TRAIN_PART)
    labels = [run.field("label", Label).labels[place] for place in columns["label"].values]
    read = [model.text_field.decode(columns["text"][row].tolist()) for row in range(len(labels))]
    expected = weft.load(teacher).classify(["a great day", "what a bad day", "great and fine", "long dull long"])
    assert dict(zip(read[-4:], labels[-4:], strict=True)) == {" ".join(one.tokens): one.label for one in expected}
    assert Counter(read) == Counter([text for text, _ in LABELLED] * LABELLED_TIMES + read[-4:])
    assert run.field("label", Label).counts == {"bad": 4, "good": 4}  # of the labelled texts alone
    assert f"4 texts have the labels that {teacher} predicts" in run.reading["description"]
    held = stored(run, DEV_PART)["text"]
    assert [model.text_field.decode(held[row].tolist()) for row in range(len(held))] == [text for text, _ in HELD_OUT]


def test_the_ngram_models_learn_what_only_unlabelled_texts_have(teacher, tmp_path):
    texts = ["great marvel", "fine marvel", "marvel and fun", "dull boredom", "bad boredom", "so bad boredom"] * 4
    with_them = load_wide(taught(teacher, tmp_path, texts)).nbsvm
    (alone := tmp_path / "alone").mkdir()
    without = load_wide(fitted(weft.start_classify(LABELLED, alone / "run", SMALL, dev=HELD_OUT))).nbsvm
    for word, label in (("marvel", "good"), ("boredom", "bad")):
        place = ["bad", "good"].index(label)
        logits = with_them.logits([[word]])[0] - with_them.bias
        assert logits[place] > logits[1 - place]
        assert np.allclose(without.logits([[word]])[0] - without.bias, 0)


def test_labels_of_a_teacher_do_not_set_the_weights_of_the_mixture(teacher, tmp_path):
    many = [f"{text} {number}" for number in range(12) for text, _ in LABELLED]
    run = taught(teacher, tmp_path, many)
    assert not held_out_scores(run, len(HELD_OUT)).prior.is_cross_fitted


def test_a_table_is_read_by_its_text_column_and_says_so(teacher, tmp_path):
    (tmp_path / "few.csv").write_text("".join(["text,label\n", *(f"{t},{y}\n" for t, y in LABELLED)]), encoding="utf-8")
    (tmp_path / "more.csv").write_text("number,text\n1,a great day\n2,what a bad day\n", encoding="utf-8")
    given = {**SMALL, "data.unlabelled": str(tmp_path / "more.csv"), "data.teacher": str(teacher)}
    with pytest.warns(weft.WeftWarning, match="its column 'text'"):
        run = weft.start_classify(str(tmp_path / "few.csv"), tmp_path / "run", given, dev=HELD_OUT).run
    assert "2 texts have the labels" in run.reading["description"]


def test_what_is_refused(teacher, tmp_path):
    for missing in ("data.teacher", "data.unlabelled"):
        with pytest.raises(weft.WeftError, match="given alone"):
            taught(teacher, tmp_path, **{missing: ""})
    with pytest.raises(weft.WeftError, match="no texts beside"):
        taught(teacher, tmp_path, ["a fine film", ""])
    other = weft.train("classify", [("a", "x"), ("b", "y")] * 8, tmp_path / "other", SMALL, progress=False)
    with pytest.raises(weft.WeftError, match="has the labels x, y"):
        taught(other.run.path, tmp_path)
    lm = weft.Corpus.from_texts("text", ["the cat sat on the mat. " * 40])
    sizes = {"model.hidden_size": 8, "model.embedding_dim": 8, "batch.size": 2, "batch.seq_length": 5}
    weft.train("lm", lm, tmp_path / "lm", {**sizes, "train.epochs": 1}, progress=False)
    with pytest.raises(weft.WeftError, match="run of the task 'lm'"):
        taught(tmp_path / "lm", tmp_path)


def test_the_command(teacher, tmp_path):
    data, texts = tmp_path / "few.tsv", tmp_path / "texts.txt"
    data.write_text("".join(f"{label}\t{text}\n" for text, label in LABELLED * 3), encoding="utf-8")
    texts.write_text("a great day\nwhat a bad day\n", encoding="utf-8")
    command = ["train", "classify", "--data", data, "--out", tmp_path / "run", "--unlabelled", texts]
    small = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    found = succeeds(*command, "--teacher", teacher, *small)
    assert "2 texts have the labels that" in found.stderr
    assert "given alone" in fails("train", "classify", "--data", data, "--out", tmp_path / "x", "--unlabelled", texts)
