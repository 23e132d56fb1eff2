"""n-gram and HMM runs by the command line: trained, measured beside what there is to beat, written from."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

from tests.program import fails, run_script, start, succeeds


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "book.txt"
    file.write_text("It was the best of times, it was the worst of times.\n" * 60, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def runs(book, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    trained = {
        "ngram": succeeds(
            "train", "ngram", "--data", book, "--out", folder / "ngram", "--set", "model.order=4", "--json"
        ),
        "hmm": succeeds(
            "train", "hmm", "--data", book, "--out", folder / "hmm", "--set", "model.num_states=20", "--json"
        ),
    }
    return {name: (folder / name, json.loads(done.stdout)) for name, done in trained.items()}


def test_training_says_how_good_it_is(runs):
    assert runs["ngram"][1]["held_out_perplexity"] < 1.5
    assert runs["ngram"][1]["end"] == "finished"
    assert runs["hmm"][1]["held_out_perplexity"] < 12
    assert runs["hmm"][1]["steps"] > 2


@pytest.mark.parametrize("task", ["ngram", "hmm"])
def test_eval_and_generate_as_for_any_language_model(runs, book, task):
    run, result = runs[task]
    assert {path.name for path in run.iterdir()} >= {"config.json", "fields.json", "weights.safetensors", "data"}
    measured = json.loads(succeeds("eval", run, "--json").stdout)
    assert measured["perplexity"] == pytest.approx(result["held_out_perplexity"])
    names = [one["name"] for one in measured["baselines"]]
    assert names == (["uniform baseline"] if task == "ngram" else ["5-gram of the same text", "uniform baseline"])
    text = succeeds("generate", run, "--prompt", "It was the b", "--greedy", "--tokens", 4).stdout
    assert text.startswith("It was the b")
    assert task == "hmm" or text == "It was the best \n"


def test_eval_in_words(runs, book):
    words = succeeds("eval", runs["hmm"][0], "--data", book).stdout
    assert re.search(r"perplexity +\d+\.\d+ per char", words)
    assert re.search(r"baselines +5-gram of the same text +\d+\.\d+", words)
    assert re.search(r"uniform baseline +\d+\.\d+", words)


def test_a_recurrent_model_beside_an_ngram(book, tmp_path):
    small = [
        "--set",
        "model.hidden_size=8",
        "--set",
        "batch.size=4",
        "--set",
        "batch.seq_length=16",
        "--set",
        "train.epochs=1",
    ]
    succeeds("train", "lm", "--data", book, "--out", tmp_path / "lm", *small)
    names = [one["name"] for one in json.loads(succeeds("eval", tmp_path / "lm", "--json").stdout)["baselines"]]
    assert names == ["5-gram of the same text", "uniform baseline"]
    for file in (tmp_path / "lm" / "data").iterdir():
        file.unlink()
    kept = json.loads(succeeds("eval", tmp_path / "lm", "--data", book, "--json").stdout)
    assert [one["name"] for one in kept["baselines"]] == ["uniform baseline"]


def test_the_grammar_itself_is_the_best_there_is(tmp_path):
    settings = ["--set", "text.tokenizer=word", "--set", "text.limit=30000"]
    succeeds("train", "ngram", "--data", "grammar", "--out", tmp_path / "g", *settings)
    measured = json.loads(succeeds("eval", tmp_path / "g", "--json").stdout)
    best, blind = measured["baselines"]
    assert (best["name"], blind["name"]) == ("true distribution", "uniform baseline")
    assert 5 < best["perplexity"] < measured["perplexity"] < blind["perplexity"]
    assert blind["perplexity"] == pytest.approx(measured["uniform_perplexity"])


def test_an_hmm_among_models_that_fill_blanks(book, runs, tmp_path):
    table = json.loads(succeeds("eval", runs["hmm"][0], "--against", runs["ngram"][0], "--json").stdout)
    contexts = {row["name"]: row["context"] for row in table["compared"]}
    assert contexts[str(runs["hmm"][0])] == "both"
    assert contexts[str(runs["ngram"][0])] == "left"
    assert all(0 <= row["accuracy"] <= 1 for row in table["compared"])


def test_an_hmm_fills_blanks_itself(runs):
    done = succeeds("fill", runs["hmm"][0], "It was the ___est of times", "--n-best", "2", "--json")
    answers = json.loads(done.stdout)["answers"]
    assert {answer["fills"][0] for answer in answers} <= set("Itwashebtofmr,. ")
    assert 1 >= answers[0]["probability"] >= answers[1]["probability"] > 0
    assert answers[0]["text"] == f"It was the {answers[0]['fills'][0]}est of times"


def test_from_python(book, tmp_path):
    script = f"""
import weft
text = {str(book)!r}
ngram = weft.train_ngram(text, "ngram", weft.load_config(weft.NgramConfig, None, ["model.order=3"]))
assert ngram.model.order == 3
assert weft.load("ngram").evaluate(text) == ngram.evaluate(text)
hmm = weft.train_hmm(text, "hmm", weft.load_config(weft.HmmConfig, None, ["model.num_states=3", "train.iterations=3"]))
assert weft.load("hmm").evaluate_held_out() == hmm.evaluate_held_out()
for model in (ngram, hmm):
    texts = [model.generate("It", tokens=20, sampler=weft.Sample(0.8), seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert model.generate_many(["It", "was"], tokens=20, seed=1)[0] == texts[0]
"""
    run_script(script, cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "ngram", "--data", "BOOK"], ["--out is missing"]),
        (["train", "hmm", "--out", "NEW"], ["--data is missing"]),
        (["train", "ngram", "--data", "BOOK", "--out", "NGRAM"], ["exists already"]),
        (["train", "ngram", "--data", "BOOK", "--out", "NEW", "--set", "model.order=0"], ["model.order is 0"]),
        (
            ["train", "hmm", "--data", "BOOK", "--out", "NEW", "--set", "model.num_state=3"],
            ["Try: --set model.num_states=VALUE"],
        ),
        (["train", "lm", "--resume", "--data", "BOOK", "--out", "NGRAM"], ["task 'ngram'"]),
    ],
)
def test_mistakes(arguments, words, runs, book, tmp_path):
    places = {"BOOK": book, "NEW": tmp_path / "new", "NGRAM": runs["ngram"][0]}
    message = fails(*(places.get(argument, argument) for argument in arguments), cwd=tmp_path)
    assert all(word in message for word in words), message
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_ctrl_c_keeps_the_best_hmm_so_far(book, tmp_path):
    out = tmp_path / "run"
    endless = ["--set", "train.iterations=1000000", "--set", "train.tolerance=0", "--set", "train.restarts=1000"]
    training = start("train", "hmm", "--data", book, "--out", out, *endless)
    while not (out / "metrics.jsonl").exists() or len((out / "metrics.jsonl").read_text().splitlines()) < 3:
        time.sleep(0.05)
    training.send_signal(signal.SIGINT)
    _, stderr = training.communicate(timeout=600)
    assert training.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert json.loads(succeeds("eval", out, "--json").stdout)["perplexity"] < 40


def test_show_config():
    assert "order = 5" in succeeds("train", "ngram", "--show-config").stdout
    assert "states = 7" in succeeds("train", "hmm", "--show-config", "--set", "model.num_states=7").stdout
