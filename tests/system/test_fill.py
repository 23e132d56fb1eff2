"""Filling blanks as a user does it: train, fill, compare, resume, and what goes wrong."""

from __future__ import annotations

import json
import os
import random
import re

import pytest

from tests.program import REFUSED, check_kill_and_resume, fails, run_script, succeeds
from weft.tasks import load

SMALL = [
    *("--set", "model.hidden_size=24", "--set", "model.embedding_dim=24", "--set", "model.dropout=0.1"),
    *("--set", "batch.size=8", "--set", "batch.seq_length=12", "--set", "train.learning_rate=0.02"),
]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Sentences whose second word is told by the last one, and by nothing before it."""
    random.seed(0)
    lines = random.choices(["i am hungry .", "i was late .", "we were tired .", "we are happy ."], k=400)
    file = tmp_path_factory.mktemp("text") / "book.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def runs(book, tmp_path_factory):
    """Two that fill, one of them blind to the right, and a language model, all on the same words."""
    folder = tmp_path_factory.mktemp("runs")
    train = ["--data", book, *SMALL, "--set", "train.epochs=6"]
    done = succeeds("train", "fill", "--out", folder / "both", *train, "--json")
    result = json.loads(done.stdout)
    assert result["end"] == "finished"
    assert result["held_out_perplexity"] < 2
    succeeds("train", "fill", "--out", folder / "before", *train, "--set", "model.bidirectional=false")
    words = ["--set", "text.tokenizer=word", "--set", "text.lower=true", "--set", "text.min_count=2"]
    succeeds("train", "lm", "--out", folder / "lm", *train, *words)
    return folder


def test_fill(runs):
    done = succeeds("fill", runs / "both", "i ___ hungry .", "we ___ tired .")
    first, second = done.stdout.split("\n\n")
    assert len(first.splitlines()) == 5
    assert re.match(r" +\d+\.\d\d%  am +i am hungry \.", first)
    assert re.match(r" +\d+\.\d\d%  were +we were tired \.", second)


def test_json_and_standard_input(runs):
    done = succeeds("fill", runs / "both", "-", "--json", "--n-best", 2, stdin="I ___ LATE .\n\n___ are happy .\n")
    one, blank, two = map(json.loads, done.stdout.splitlines())
    assert blank == {"text": "", "answers": [], "unknown": []}, "a line for each line"
    assert one["text"] == "I ___ LATE ."
    assert one["unknown"] == []
    assert one["answers"][0]["text"] == "I was LATE .", "the text as it was given"
    assert two["answers"][0]["fills"] == ["we"]
    assert 0.9 < sum(answer["probability"] for answer in two["answers"]) <= 1
    assert len(two["answers"]) == 2


def test_several_blanks_and_blanks_at_the_ends(runs):
    found = load(runs / "both").fill("___ ___ hungry ___\nwe are happy .")
    assert found[0].fills == ("i", "am", ".")
    assert found[0].text == "i am hungry .\nwe are happy ."
    chances = [answer.probability for answer in found]
    assert chances == sorted(chances, reverse=True)
    joined = json.loads(succeeds("fill", runs / "both", "we ___ .", "--tokens", 2, "--json").stdout)["answers"]
    assert {answer["fills"][0] for answer in joined[:2]} == {"were tired", "are happy"}


def test_unknown_words_are_said_and_read_all_the_same(runs):
    done = succeeds("fill", runs / "both", "i ___ zebra", "--n-best", 1)
    assert "does not know 'zebra'" in done.stderr
    assert done.stdout.strip().endswith("zebra")


def test_the_right_side_pays_in_one_table(runs):
    against = ["--against", runs / "before", "--against", runs / "lm"]
    found = json.loads(succeeds("eval", runs / "both", *against, "--json").stdout)
    blind, frequent, before, lm, both = found["compared"]
    assert [line["context"] for line in found["compared"]] == ["none", "none", "left", "left", "both"]
    assert both["perplexity"] == found["perplexity"]
    assert both["perplexity"] < 0.8 * min(before["perplexity"], lm["perplexity"])
    assert both["accuracy"] > max(before["accuracy"], lm["accuracy"])
    assert before["perplexity"] == pytest.approx(lm["perplexity"], rel=0.15)
    assert max(before["perplexity"], lm["perplexity"]) < frequent["perplexity"] < blind["perplexity"]
    assert found["signature"] == f"masked token|per:word|tokens:{found['tokens']}"
    words = succeeds("eval", runs / "both", "--data", "-", stdin="i am hungry .").stdout
    assert re.search(r"uniform baseline +none +\d+\.\d\d", words)
    assert re.search(r"both +both", words)
    assert "(3 tokens)" in words


def test_the_same_from_python(runs):
    script = f"""
import math, weft
{REFUSED}
model = weft.load({str(runs / "both")!r})
best = model.fill("i ___ hungry .", n=3)
assert len(best) == 3 and best[0].fills == ("am",) and best[0].text == "i am hungry .", best
everything = model.fill("i ___ hungry ___", n=10**6)
assert math.isclose(sum(one.probability for one in everything), 1, rel_tol=1e-6)
assert model.evaluate_held_out().accuracy > 0.7
assert model.evaluate(weft.Corpus.from_texts("mine", ["i am late ."])).likelihood.count == 3
refused(model.fill, 5, None, ["i ___ hungry ."])
refused(model.unknown, 5, None, ["i ___ hungry ."])
refused(model.evaluate, 5, None)
assert model.evaluate(["i am late ."]).likelihood.count == 3
"""
    run_script(script)


def test_chinese_characters(tmp_path):
    text = "我很饿，我可以吃半头猪。你不饿，你可以走。\n" * 60
    level = ["--set", "text.tokenizer=char", *SMALL, "--set", "train.epochs=8"]
    succeeds("train", "fill", "--data", "-", "--out", tmp_path / "zh", *level, stdin=text)
    found = succeeds("fill", tmp_path / "zh", "我___饿，", "你_ _ _饿，", "--json", "--n-best", 1).stdout
    one, two = (json.loads(line)["answers"][0]["text"] for line in found.splitlines())
    assert (one, two) == ("我很饿，", "你不饿，")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fill", "BOTH", "i am hungry"], ["no blank", "___"]),
        (["fill", "BOTH"], ["no text", "___"]),
        (["fill", "LM", "i ___ hungry"], ["lm", "weft train fill"]),
        (["generate", "BOTH"], ["fill", "weft train lm"]),
        (["train", "fill", "--out", "LM", "--resume"], ["'lm'", "weft train fill"]),
        (
            ["train", "fill", "--data", "BOOK", "--out", "NEW", "--set", "model.hidden_size=7"],
            ["model.tied", "_size=7"],
        ),
        (["eval", "BOTH", "--against", "CHARS"], ["other tokens", "--set text.tokenizer=word"]),
    ],
)
def test_mistakes(arguments, words, runs, book, tmp_path):
    if "CHARS" in arguments:
        succeeds("train", "lm", "--data", book, "--out", tmp_path / "chars", *SMALL, "--set", "train.epochs=0")
    places = {"BOTH": runs / "both", "LM": runs / "lm", "BOOK": book, "NEW": tmp_path / "new"}
    places |= {"CHARS": tmp_path / "chars"}
    message = fails(*(places.get(argument, argument) for argument in arguments), cwd=tmp_path)
    assert all(word in message for word in words), message
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_a_kill_and_a_resume_end_in_the_same_weights(book, tmp_path):
    """The blanks of a row are drawn at random, and a resumed run draws the same ones."""
    settings = [*SMALL, "--set", "train.epochs=30", "--set", "train.save_seconds=0.05"]
    check_kill_and_resume(tmp_path, "train", "fill", "--data", book, *settings)
