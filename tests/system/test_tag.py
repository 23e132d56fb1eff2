"""Tagging as a user does it: train, tag, segment, measure, resume, and what goes wrong."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
import subprocess

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

import weft
import weft.training.run
from tests.program import command
from weft.cli import app
from weft.cli.messages import for_command_line
from weft.config import load_config
from weft.errors import WeftError
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.predictor import SegmentedText
from weft.tasks.tag.task import resume_tag, start_tag
from weft.text.conll import open_sentences
from weft.text.grammars import english as grammar

SMALL = [
    *("--set", "model.hidden_size=24", "--set", "model.embedding_dim=16", "--set", "model.char_dim=8"),
    *("--set", "model.char_hidden_size=12", "--set", "model.bigram_dim=16", "--set", "train.learning_rate=0.02"),
    *("--set", "batch.max_tokens=300", "--set", "train.ema_decay=0.9", "--set", "train.warmup_steps=5"),
    *("--set", "model.dropout=0.1", "--set", "model.embedding_dropout=0.1", "--set", "model.word_dropout_alpha=0.2"),
]


def invoke(*arguments, stdin=None):
    """The command in this process, which is much quicker than a new one; test_as_a_program has that."""
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


def succeeds(*arguments, stdin=None):
    done = invoke(*arguments, stdin=stdin)
    assert done.exit_code == 0, (done.stderr, done.exception)
    return done


def fails(*arguments, stdin=None):
    done = invoke(*arguments, stdin=stdin)
    assert isinstance(done.exception, WeftError), (done.exit_code, done.stderr, done.exception)
    assert done.stdout == ""
    return for_command_line(str(done.exception))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The grammar's sentences as CoNLL-U, as a table of chunks, and as text with spaces."""
    folder = tmp_path_factory.mktemp("tagged")
    rng = random.Random(1)
    sentences = [grammar.ENGLISH.sample(rng) for _ in range(400)]
    rows = lambda one: enumerate(zip(one.words, one.tags, strict=True), start=1)  # noqa: E731
    blank = "\t_" * 6
    conllu = "".join(
        f"# text = {one.text}\n"
        + "".join(f"{at}\t{word}\t_\t{tag}{blank}\n" for at, (word, tag) in rows(one))
        + f"{len(one.words)}.1\tghost\t_\tX{blank}\n\n"
        for one in sentences
    )
    with gzip.open(folder / "train.conllu.gz", "wt", encoding="utf-8") as file:
        file.write(conllu)
    chunks = open_sentences("grammar", "chunk")
    lines = ["".join(f"{w}\t{t}\n" for w, t in zip(one.words, one.tags, strict=True)) for one in chunks]
    (folder / "chunks.txt").write_text("\t\n".join(lines[:400]), encoding="utf-8")
    (folder / "dev.txt").write_text("\n".join(lines[400:460]), encoding="utf-8")
    text = "".join(" ".join(one.words) + "\n" for one in sentences)
    (folder / "words.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def runs(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train = [*SMALL, "--set", "train.epochs=3"]
    done = succeeds("train", "tag", "--data", files / "train.conllu.gz", "--out", folder / "pos", *train, "--json")
    result = json.loads(done.stdout)
    assert result["end"] == "finished"
    assert result["held_out_score"] == result["held_out_accuracy"] > 0.9
    assert re.search(r"360 sentences of [\d,]+ words to train on, 40 sentences held out, 10 tags", done.stderr)
    spans = ["--data", files / "chunks.txt", "--dev", files / "dev.txt", "--set", "data.invalid_spans=refuse"]
    done = succeeds("train", "tag", *spans, "--out", folder / "ner", *train)
    assert "7 tags in BIO" in done.stderr
    assert re.search(r"held-out score 0\.\d+ at step", done.stdout)
    succeeds("train", "tag", "--segment", "--data", files / "words.txt", "--out", folder / "seg", *train)
    return folder


def test_raw_text_to_columns_inline_and_json(runs):
    done = succeeds("tag", runs / "pos", "The cat sees a light.", "the zebra sleeps .")
    assert done.stdout.split("\n\n")[0] == "The\tDET\ncat\tNOUN\nsees\tVERB\na\tDET\nlight\tNOUN\n.\tPUNCT"
    done = succeeds("tag", runs / "pos", "-", "--inline", stdin="the cat sleeps .\n\nshe waits .\n")
    assert done.stdout == "the/DET cat/NOUN sleeps/VERB ./PUNCT\n\nshe/PRON waits/VERB ./PUNCT\n"
    found = json.loads(succeeds("tag", runs / "ner", "the cat sees a light .", "--json", "--n-best", 3).stdout)
    assert found["words"] == ["the", "cat", "sees", "a", "light", "."]
    assert found["spans"][0] == {"label": "BEING", "start": 0, "end": 2, "words": ["the", "cat"]}
    assert len(found["confidence"]) == 6
    assert all(0 < one <= 1 for one in found["confidence"])
    chances = [way["probability"] for way in found["n_best"]]
    assert len(chances) == 3
    assert chances == sorted(chances, reverse=True)
    assert found["probability"] == chances[0]
    assert found["n_best"][1]["tags"] != found["tags"]


def test_columns_come_back_with_tags(runs, files, tmp_path):
    table = (
        "# a comment\n1-2\tcats\t_\t_" + "\t_" * 6 + "\n1\tthe\t_\t_" + "\t_" * 6 + "\n2\tcat\tx\t_" + "\t_" * 6 + "\n"
    )
    (tmp_path / "in.conllu").write_text(table, encoding="utf-8")
    out = tmp_path / "out.conllu"
    done = succeeds("tag", runs / "pos", "--file", tmp_path / "in.conllu", "--columns", "--out", out)
    assert done.stdout == ""
    lines = out.read_text(encoding="utf-8").split("\n")
    assert lines[0] == "# a comment"
    assert lines[1].startswith("1-2\tcats\t_\t_\t")
    assert [line.split("\t")[3] for line in lines[2:4]] == ["DET", "NOUN"]
    assert lines[3].split("\t")[2] == "x"
    done = succeeds("tag", runs / "ner", "-", "--columns", stdin="the NN\ncat NN\n\nsleeps NN\n")
    assert done.stdout == "the NN B-BEING\ncat NN I-BEING\n\nsleeps NN O\n"
    done = succeeds("tag", runs / "ner", "-", "--columns", "--inline", stdin="the\tNN\ncat\tNN\n")
    assert done.stdout == "the/B-BEING cat/I-BEING\n"


def test_a_line_in_is_a_line_out(runs):
    """Blank lines too, in every form, so that what comes out can be laid beside what went in."""
    lines = "\nthe cat sleeps .\n\n  \nshe waits .\n"
    done = succeeds("tag", runs / "ner", "-", "--inline", stdin=lines)
    assert [bool(line) for line in done.stdout.splitlines()] == [False, True, False, False, True]
    done = succeeds("tag", runs / "ner", "-", stdin=lines)
    assert [len(part.splitlines()) for part in re.split(r"(?<=\n)\n|^\n", done.stdout)] == [0, 4, 0, 0, 3, 0]
    for run, text in ((runs / "ner", "she waits ."), (runs / "seg", "shewaits.")):
        done = succeeds("tag", run, "-", "--json", stdin=f"\n{text}\n \n")
        blank, one, other = map(json.loads, done.stdout.splitlines())
        assert (one["text"], one["words"]) == (text, ["she", "waits", "."])
        assert (blank["text"], blank["words"], blank["confidence"], blank["probability"]) == ("", [], [], 1)
        assert other["text"] == " "
        assert blank.keys() == one.keys()


def test_tables_and_notes_from_python(runs, tmp_path):
    """What the command does, the predictor does."""
    (tmp_path / "in.txt").write_text("the NN\ncat NN\n\nsleeps NN\n", encoding="utf-8")
    model = weft.load(runs / "ner")
    assert "".join(model.tag_table(tmp_path / "in.txt")) == "the NN B-BEING\ncat NN I-BEING\n\nsleeps NN O\n"
    assert "".join(model.tag_table(tmp_path / "in.txt", column="2")) == "the B-BEING\ncat I-BEING\n\nsleeps O\n"
    assert model.read_table(tmp_path / "in.txt") == [("the", "cat"), ("sleeps",)]
    assert model.notes() == []
    with pytest.raises(WeftError, match="segments text, and is given a table"):
        list(weft.load(runs / "seg").tag_table(tmp_path / "in.txt"))


def test_tables_come_back_as_they_were(runs, tmp_path):
    table = "# id 1 domain=en\r\n-DOCSTART- -X-\r\n\r\n\r\nthe  NN \r\ncat NN\r\n\n# id 2\nsleeps NN"
    (tmp_path / "in.txt").write_bytes(table.encode())
    out = tmp_path / "out.txt"
    succeeds("tag", runs / "ner", "--file", tmp_path / "in.txt", "--columns", "--out", out)
    expected = table.replace("-X-", "-X- O").replace("the  NN ", "the  NN B-BEING").replace("cat NN", "cat NN I-BEING")
    assert out.read_bytes().decode() == expected + " O"
    assert [one.tags for one in open_sentences(out)] == [("B-BEING", "I-BEING"), ("O",)], "it can be read again"
    succeeds("tag", runs / "ner", "--file", tmp_path / "in.txt", "--columns", "--column", 2, "--out", out)
    expected = (
        table.replace("the  NN", "the  B-BEING").replace("cat NN", "cat I-BEING").replace("sleeps NN", "sleeps O")
    )
    assert out.read_bytes().decode() == expected
    row = "1\tthe\t_\tX\tY\t_\t_\t_\t_\tSpaceAfter=No\n"
    done = succeeds("tag", runs / "pos", "-", "--columns", "--column", "xpos", "--confidence", stdin=f"\n\n{row}\n\n")
    pattern = row.replace("Y", "DET").replace("No", r"No\|Confidence=[01]\.\d{4}")
    assert re.fullmatch(f"\n\n{pattern}\n\n", done.stdout)


def test_two_files_do_not_become_one_sentence(runs, tmp_path):
    for name, text in (("a.txt", "the NN"), ("b.txt", "cat NN\n"), ("c.txt", "dog NN\n\n"), ("d.txt", "the NN\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = succeeds("tag", runs / "pos", "--file", tmp_path, "--columns")
    assert done.stdout == "the NN DET\n\ncat NN NOUN\n\ndog NN NOUN\n\nthe NN DET\n"


def test_confidence_on_request(runs):
    number = r"[01]\.\d{4}"
    done = succeeds("tag", runs / "pos", "the cat", "--confidence")
    assert re.fullmatch(rf"the\tDET\t{number}\ncat\tNOUN\t{number}\n\n", done.stdout)
    done = succeeds("tag", runs / "pos", "the cat", "--confidence", "--inline")
    assert re.fullmatch(rf"the/DET/{number} cat/NOUN/{number}\n", done.stdout)
    done = succeeds("tag", runs / "seg", "thecat", "--confidence")
    assert re.fullmatch(rf"the/{number} cat/{number}\n", done.stdout)
    (one, *_) = weft.load(runs / "seg").segment_n_best(["thecatsleeps."], 3)[0]
    assert one.words == ("the", "cat", "sleeps", ".")
    assert 0 < one.probability <= min(one.confidence) <= 1


def test_words_between_spaces(runs, tmp_path):
    text = "the @JohnSmith's cat. sees weft@example.org"
    done = succeeds("tag", runs / "pos", text, "--split", "space")
    assert [line.split("\t")[0] for line in done.stdout.splitlines() if line] == text.split()
    assert done.stderr == ""
    (found,) = weft.load(runs / "pos").tag([text], split="space")
    assert list(found.words) == text.split()
    (found,) = weft.load(runs / "pos").tag([text])
    assert found.words == ("the", "@JohnSmith", "'", "s", "cat", ".", "sees", "weft@example.org")


def test_a_model_of_words_that_print_does_not_show_says_so(tmp_path):
    sentences = [(["看似", "簡單", "，", "不", "簡單"], ["VERB", "ADJ", "PUNCT", "ADV", "ADJ"])] * 3
    few = load_config(TagConfig, sets=[*SMALL[1::2], "train.epochs=0", "data.holdout=0"])
    weft.train_tag(sentences, tmp_path / "zh", few)
    done = succeeds("tag", tmp_path / "zh", "簡單 而且 ，", "--inline")
    assert [word.split("/")[0] for word in done.stdout.split()] == ["簡單", "而", "且", "，"]
    assert done.stderr.count("\n") == 1
    assert "words such as 簡單" in done.stderr
    assert "--split space" in done.stderr
    done = succeeds("tag", tmp_path / "zh", "簡單 而且 ，", "--inline", "--split", "space")
    assert [word.split("/")[0] for word in done.stdout.split()] == ["簡單", "而且", "，"]
    assert done.stderr == ""


def test_one_of_a_thing_is_not_called_several(tmp_path):
    few = [*SMALL, "--set", "train.epochs=1", "--set", "data.holdout=0"]
    done = succeeds("train", "tag", "--data", "-", "--out", tmp_path / "one", *few, stdin="a X\n")
    assert "1 sentence of 1 word to train on, 0 sentences held out, 1 tag, vocabulary of 5" in done.stderr
    assert "words/s" in done.stderr
    done = succeeds("train", "tag", "--segment", "--data", "-", "--out", tmp_path / "two", *few, stdin="a b\nc\n")
    assert "2 sentences of 3 characters" in done.stderr
    assert "characters/s" in done.stderr
    assert "words/s" not in done.stderr


def test_segmentation(runs):
    done = succeeds("tag", runs / "seg", "-", stdin="thecatsleeps.\n\nsheseesthe dog.\n")
    assert done.stdout == "the cat sleeps .\n\nshe sees the dog .\n"
    found = json.loads(succeeds("tag", runs / "seg", "thedogwaits.", "--json", "--n-best", 2).stdout)
    assert found["words"] == ["the", "dog", "waits", "."]
    assert len(found["n_best"]) == 2
    ways = succeeds("tag", runs / "seg", "thedogwaits.", "--n-best", 2).stdout.splitlines()
    assert re.fullmatch(r"1\t(0\.\d{4}|1\.0000)\tthe dog waits \.", ways[0])
    found = weft.load(runs / "seg").segment_n_best(["she s ees", "a"], 9)
    assert len({one.words for one in found[0]}) == len(found[0]) == 9, "no way twice"
    assert all(set(itertools.accumulate(map(len, one.words))) >= {3, 4} for one in found[0]), "a space ends a word"
    assert found[1] == [SegmentedText(("a",), (pytest.approx(1),), pytest.approx(1))]


def test_eval(runs, files):
    words = succeeds("eval", runs / "pos", "--data", "-", stdin="the DET\nzebra NOUN\n\nshe PRON\n").stdout
    assert re.search(r"accuracy +\d\.\d{4} of 3 words", words)
    assert re.search(r"unknown words +\d\.\d{4} of 1", words)
    found = json.loads(succeeds("eval", runs / "ner", "--data", files / "dev.txt", "--json").stdout)
    assert found["score"] == found["f1"] > 0.8
    assert set(found["labels"]) == {"BEING", "THING", "PLACE"}
    assert "read:conlleval" in found["signature"]
    table = succeeds("eval", runs / "ner").stdout
    assert re.search(r"^all +0\.\d+ +0\.\d+ +0\.\d+", table, flags=re.M)
    found = json.loads(succeeds("eval", runs / "seg", "--json").stdout)
    assert found["f1"] > 0.9
    done = succeeds("eval", runs / "pos", "--data", "-", stdin="the DET\ncat STRANGE\n")
    assert "standard input:2: the tag 'STRANGE', which is not in the training data, counts as wrong" in done.stderr
    assert "0.5000 of 2 words" in done.stdout


def test_eval_mends_what_is_broken_and_looks_where_it_is_told(runs, files, tmp_path):
    rows = "the\tB-BEING\ncat\tI-BEING\nsees\tO\nme\tB-BEING\n\n"
    few = [*SMALL, "--set", "train.epochs=0", "--set", "data.scheme=bioes", "--set", "data.holdout=0"]
    succeeds("train", "tag", "--data", "-", "--out", tmp_path / "bioes", *few, stdin=rows)
    done = succeeds("eval", tmp_path / "bioes", "--data", "-", "--json", stdin=rows)
    assert "standard input:2: I-BEING after B-BEING is read as E-BEING" in done.stderr
    assert "counts as wrong" not in done.stderr
    assert json.loads(done.stdout)["labels"]["BEING"]["true"] == 2
    table = "the\tDET\tx\ncat\tNOUN\ty\n"
    assert "1.0000 of 2 words" in succeeds("eval", runs / "pos", "--data", "-", "--column", 2, stdin=table).stdout
    message = fails("eval", runs / "pos", "--data", "-", stdin=table)
    assert "standard input:1: the tag is 'x', and like all others here it is not among the training tags" in message
    assert "--column" in message
    assert "the tag is 'O', and like all" in fails("eval", runs / "pos", "--data", "-", stdin="the O\ncat O\n")
    assert "of 2 words" in succeeds("eval", runs / "ner", "--data", "-", stdin="the O\ncat O\n").stdout
    strange = "the\tDET\n" + "".join(f"cat\tX{number}\n" for number in range(14))
    done = succeeds("eval", runs / "pos", "--data", "-", stdin=strange)
    assert done.stderr.count("\n") == 11
    assert done.stderr.endswith("so do 4 more tags\n")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: model.tag("abc"), ["the texts are a str", "tag([text])"]),
        (lambda model: model.tag(None), ["the texts are a NoneType"]),
        (lambda model: model.tag([5]), ["text 1 of 1 is a int"]),
        (lambda model: model.tag(["a", b"b"]), ["text 2 of 2 is a bytes"]),
        (lambda model: model.tag([["a", 1]]), ["word 2 of text 1 is a int"]),
        (lambda model: model.tag(["a", ["b", ""]]), ["word 2 of text 2 is empty"]),
        (lambda model: model.tag([["a", " "]]), ["word 2 of text 1 is empty"]),
        (lambda model: model.n_best(["a"], 0), ["n is 0", "1 or more"]),
        (lambda model: model.tag(["a"], split="blank"), ["split 'blank' is not known", "word, space"]),
    ],
)
def test_what_is_no_text(call, words, runs):
    with pytest.raises(weft.WeftError) as caught:
        call(weft.load(runs / "pos"))
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("given", "words"),
    [("ab", "the texts are a str"), ([["a"]], "text 1 of 1 is a list"), ([5], "is a int")],
)
def test_what_is_no_text_to_segment(given, words, runs):
    for call in (weft.load(runs / "seg").segment, lambda texts: weft.load(runs / "seg").segment_n_best(texts, 2)):
        with pytest.raises(weft.WeftError, match=words):
            call(given)


def test_the_same_from_python(runs):
    model = weft.load(runs / "pos")
    one, two = model.tag([["the", "cat"], "She sleeps."])
    assert one.tags == ("DET", "NOUN")
    assert two.words == ("She", "sleeps", ".")
    assert one.spans is None
    assert 0 < one.probability <= min(one.confidence) <= 1
    assert model.evaluate([(["the", "cat"], ["DET", "NOUN"])]).words.accuracy == 1
    assert model.evaluate_held_out().score() > 0.9
    assert weft.load(runs / "seg").segment(["thecat sleeps."]) == [["the", "cat", "sleeps", "."]]
    for call in (lambda: model.segment(["x"]), lambda: weft.load(runs / "seg").tag(["x"])):
        with pytest.raises(weft.WeftError, match="was trained for"):
            call()
    one, *blank = model.tag(["the cat", "", None, [], " "])
    assert one.tags == ("DET", "NOUN")
    assert [(text.words, text.tags, text.probability) for text in blank] == [((), (), 1.0)] * 4
    assert [part.shape for part in model.marginals(["the cat", ""])] == [(2, len(model.tags)), (0, len(model.tags))]
    assert weft.load(runs / "seg").segment(["", "thecat", None]) == [[], ["the", "cat"], []]
    assert [len(found) for found in weft.load(runs / "seg").segment_n_best(["thecat", " "], 2)] == [2, 0]


def test_in_batches_as_alone(runs):
    model = weft.load(runs / "ner")
    texts = [one.words for one in open_sentences("grammar")[:40]]
    for one, text in zip(model.tag(texts), texts, strict=True):
        (alone,) = model.tag([text])
        assert one.tags == alone.tags
        assert one.confidence == pytest.approx(alone.confidence, abs=1e-4)


def test_a_sentence_of_100_000_words(runs, tmp_path):
    """It is tagged whole, and cut for training, with a note."""
    words = ["the", "cat", "sees", "a", "dog"] * 20_000
    (found,) = weft.load(runs / "pos").tag([words])
    assert len(found.tags) == 100_000
    assert found.tags[:5] == found.tags[-5:] == ("DET", "NOUN", "VERB", "DET", "NOUN")
    (cut,) = weft.load(runs / "seg").segment(["thecatsees" * 10_000])
    assert "".join(cut) == "thecatsees" * 10_000
    rows = "".join(f"{word}\tX\n" for word in words) + "\nthe\tX\n"
    few = [*SMALL, "--set", "train.epochs=0", "--set", "data.holdout=0"]
    done = succeeds("train", "tag", "--data", "-", "--out", tmp_path / "run", *few, stdin=rows)
    assert "standard input:1: a sentence of 100,000 words is split into parts of 1,000" in done.stderr
    assert "101 sentences of 100,001 words" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["--column", "upps"], "1\ta\ta\tX\t_\t_\t_\t_\t_\t_\n", ["'upps'", "Try: upos"]),
        (["--column", "3"], "a X\nb Y\n", ["standard input has no column 3", "1 to 2"]),
        ([], "a X\nb\n", ["standard input:2:", "1 column", "2 as in line 1"]),
        ([], "\n \n", ["standard input", "blank"]),
        ([], "a B-X\nb E-X\n\nc B-X\nd O\n", ["standard input:4:", "as in BIO", "as in BIOES"]),
        (["--set", "data.invalid_spans=refuse"], "a O\nb I-X\n", ["standard input:2: I-X after O", "expected B-X"]),
        (["--dev", "DEV"], "a X\nb Y\n", ["dev.txt:1: the tag 'B-BEING'", "one of: X, Y", "unknown_tags=count"]),
        (
            [],
            "a O\nb B-PER\n\nc X\n",
            ["standard input:4: the tag X is not a span tag", "standard input:2 has B-PER"],
        ),
        (["--segment", "--column", "2"], "a b\n", ["column 2 of the tags is given", "--segment, or a column"]),
        (["--segment"], "a\tX\nb\tY\n", ["standard input:1 has tabs", "this is CoNLL", "without --segment"]),
        (["--set", "data.scheme=iob"], "a X\n", ["data.scheme", "bio"]),
        (["--set", "model.embedding_dim=0", "--set", "model.char_dim=0"], "a X\n", ["both 0"]),
    ],
)
def test_mistakes_of_training(arguments, stdin, words, files, tmp_path):
    arguments = [files / "dev.txt" if argument == "DEV" else argument for argument in arguments]
    message = fails("train", "tag", "--data", "-", "--out", tmp_path / "new", *arguments, stdin=stdin)
    assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tag", "POS"], ["no text", "weft tag RUN"]),
        (["tag", "POS", ""], ["empty"]),
        (["tag", "POS", "a", "--columns"], ["--columns reads a table"]),
        (["tag", "POS", "a", "--file", "x"], ["one of the two"]),
        (["tag", "SEG", "--file", "WORDS", "--columns"], ["segments text"]),
        (["tag", "POS", "a", "--column", "2"], ["--column without --columns"]),
        (["tag", "POS", "--file", "PLAIN", "--columns", "--split", "space"], ["--split is for texts"]),
        (["tag", "SEG", "ab", "--split", "space"], ["to segment", "no --split"]),
        (["tag", "POS", "ab", "--split", "blank"], ["'blank' is not known"]),
        (["eval", "SEG", "--data", "WORDS", "--column", "2"], ["segments text", "no --column"]),
        (["eval", "POS", "--column", "2"], ["--column without --data"]),
        (["tag", "POS", "--file", "nowhere.txt"], ["nowhere.txt"]),
        (["generate", "POS"], ["'tag'", "weft train lm"]),
        (["eval", "POS", "--against", "SEG"], ["has no --against"]),
        (["eval", "NER", "--data", "PLAIN"], ["plain.txt:1: the tag is 'X'", "the scheme is bio"]),
        (["train", "tag", "--out", "POS", "--resume", "--segment"], ["data.task=tags"]),
    ],
)
def test_mistakes(arguments, words, runs, files, tmp_path):
    (tmp_path / "plain.txt").write_text("a\tX\n", encoding="utf-8")
    places = {"POS": runs / "pos", "NER": runs / "ner", "SEG": runs / "seg", "WORDS": files / "words.txt"}
    places["PLAIN"] = tmp_path / "plain.txt"
    message = fails(*(places.get(argument, argument) for argument in arguments))
    assert all(word in message for word in words), message


def test_as_a_program(runs, files):
    """One of each in a process of its own: what a shell sees."""
    tag = command("tag", runs / "seg")
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 600}
    done = subprocess.run([*tag, "-"], input="thecatsleeps.\n", check=True, **options)
    assert done.stdout == "the cat sleeps .\n"
    done = subprocess.run([*tag, ""], check=False, **options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "weft: the text is empty; expected at least one word\n"


def test_a_stop_and_a_resume_end_in_the_same_weights(files, tmp_path):
    """Words are forgotten at random and weights averaged; a resumed run does both as it would have."""
    config = load_config(TagConfig, sets=[*SMALL[1::2], "train.epochs=2", "model.num_layers=2"])
    source = str(files / "chunks.txt")
    straight = start_tag(source, tmp_path / "straight", config)
    for _ in straight.trainer.run():
        pass
    stopped = start_tag(source, tmp_path / "stopped", config)
    for step in stopped.trainer.run():
        if step.number == 17:
            stopped.trainer.stop()
    assert step.end == "interrupted"
    assert step.number < step.total
    for _ in resume_tag(weft.training.run.open_run(tmp_path / "stopped")).trainer.run():
        pass
    for name in ("weights.safetensors", "checkpoint.safetensors"):
        one, other = load_file(tmp_path / "straight" / name), load_file(tmp_path / "stopped" / name)
        assert one.keys() == other.keys()
        assert any("ema" in key for key in one) or name == "weights.safetensors"
        assert all(one[key].equal(other[key]) for key in one), name
