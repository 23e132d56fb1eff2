"""The program as a user runs it: by subprocess, with its output, its messages and its exit codes."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import time

import pytest
from safetensors.torch import load_file

from tests.program import REFUSED, fails, run_script, start, succeeds, weft

SMALL = [
    "--set",
    "model.hidden_size=16",
    "--set",
    "batch.size=4",
    "--set",
    "batch.seq_length=16",
    "--set",
    "model.dropout=0.2",
]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "book.txt"
    file.write_text("It was the best of times, it was the worst of times.\n" * 60, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def run(book, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "first"
    done = succeeds("train", "lm", "--data", book, "--out", out, *SMALL, "--set", "train.epochs=12", "--json")
    result = json.loads(done.stdout)
    assert result["end"] == "finished"
    assert result["held_out_perplexity"] < 8
    assert re.search(r"epoch 12 .*loss .*perplexity .*held-out perplexity .*tokens/s .*left", done.stderr)
    return out


def test_a_run_directory_has_what_it_should(run):
    assert {path.name for path in run.iterdir()} == {
        "config.json",
        "fields.json",
        "weights.safetensors",
        "checkpoint.safetensors",
        "metrics.jsonl",
        "lock",
        "data",
    }
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sum("evaluation" in line for line in lines) == 12


def test_eval(run, book):
    held_out = json.loads(succeeds("eval", run, "--json").stdout)
    assert held_out["perplexity"] < 8
    assert held_out["uniform_perplexity"] > 15
    assert held_out["signature"] == f"perplexity|per:char|tokens:{held_out['tokens']}"
    words = succeeds("eval", run, "--data", book).stdout
    assert re.search(r"perplexity +\d+\.\d+ per char", words)
    piped = json.loads(succeeds("eval", run, "--data", "-", "--json", stdin=book.read_text()).stdout)
    assert piped["tokens"] == len(book.read_text()) - 1


def test_generate(run):
    first = succeeds("generate", run, "--prompt", "It was", "--tokens", 30, "--seed", 4)
    assert first.stdout.startswith("It was")
    assert len(first.stdout) >= 36
    assert succeeds("generate", run, "--prompt", "It was", "--tokens", 30, "--seed", 4).stdout == first.stdout
    as_json = json.loads(succeeds("generate", run, "--prompt", "It was", "--tokens", 30, "--seed", 4, "--json").stdout)
    assert as_json == {"prompt": "It was", "text": first.stdout[:-1], "unknown": []}


def test_many_prompts_in_one_batch(run):
    done = succeeds("generate", run, "--prompt", "-", "--json", "--greedy", "--tokens", 9, stdin="It\nwas the best\n")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["prompt"] for line in lines] == ["It", "was the best"]
    assert [len(line["text"]) - len(line["prompt"]) for line in lines] == [9, 9]
    alone = json.loads(succeeds("generate", run, "--prompt", "It", "--json", "--greedy", "--tokens", 9).stdout)
    assert alone == lines[0]


def test_unknown_characters_in_a_prompt_are_reported(run):
    done = succeeds("generate", run, "--prompt", "It中 wäs", "--tokens", 3)
    assert "'中', 'ä'" in done.stderr
    assert done.stdout.startswith("It中 wäs")


def test_the_same_from_python(run):
    script = f"""
import weft
{REFUSED}
model = weft.load({str(run)!r})
text = model.generate("It was", tokens=20, sampler=weft.greedy)
assert text.startswith("It was") and len(text) == 26, text
assert "".join(piece for (piece,) in model.stream(["It was"], tokens=20, sampler=weft.greedy)) == text[6:]
many = model.generate_many(["It was", "the"], tokens=20, sampler=weft.Sample(0.5, top_k=3), seed=2)
again = model.generate_many((one for one in ["It was", "the"]), tokens=20, sampler=weft.Sample(0.5, top_k=3), seed=2)
assert again == many
refused(model.generate_many, "the", 5, None, ["the", 5])
refused(lambda given: list(model.stream(given)), "the", 5, None, ["the", None])
refused(model.generate, 5, None, ["the"])
refused(model.evaluate, 5, None)
assert model.evaluate(["the"]).count == 2
assert many[0] == model.generate("It was", tokens=20, sampler=weft.Sample(0.5, top_k=3), seed=2)
assert model.evaluate(weft.Corpus.from_texts("mine", ["It was the best of times."])).count == 24
assert len(model.generate(tokens=5)) == 5
"""
    run_script(script)


def test_standard_input_words_chinese_and_gz(tmp_path):
    text = "我很饿。我能吃半头猪。" * 40
    succeeds("train", "lm", "--data", "-", "--out", tmp_path / "zh", *SMALL, "--set", "train.epochs=2", stdin=text)
    written = succeeds("generate", tmp_path / "zh", "--prompt", "我很", "--tokens", 12).stdout
    assert written.startswith("我很")
    assert set(written.strip()) <= set(text)
    with gzip.open(tmp_path / "words.txt.gz", "wt", encoding="utf-8") as file:
        file.write("the cat sat on the mat, and the dog didn't.\n" * 40)
    words = [*SMALL, "--set", "text.tokenizer=word", "--set", "train.epochs=1", "--set", "model.embedding_dim=8"]
    succeeds("train", "lm", "--data", tmp_path / "words.txt.gz", "--out", tmp_path / "w", *words)
    assert json.loads(succeeds("eval", tmp_path / "w", "--json").stdout)["level"] == "word"


def test_config_file_and_show_config(tmp_path, book):
    shown = succeeds("train", "lm", "--show-config", "--set", "model.cell=gru").stdout
    assert 'cell = "gru"' in shown
    file = tmp_path / "mine.toml"
    file.write_text(shown, encoding="utf-8")
    succeeds(
        "train", "lm", "--data", book, "--out", tmp_path / "r", "--config", file, *SMALL, "--set", "train.epochs=1"
    )
    assert json.loads((tmp_path / "r" / "config.json").read_text())["config"]["model"]["cell"] == "gru"


def test_data_list_and_fetch():
    lines = [json.loads(line) for line in succeeds("data", "list", "--json").stdout.splitlines()]
    assert {"timemachine", "fra-eng", "python-docs", "grammar"} <= {line["name"] for line in lines}
    assert "embedded" in succeeds("data", "fetch", "grammar").stdout
    assert "Try: timemachine" in fails("data", "fetch", "timemashine")


def test_version_and_help():
    assert re.match(r"weft \d+\.\d+\.\d+", succeeds("--version").stdout)
    assert "train" in succeeds("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "lm", "--data", "BOOK"], ["--out is missing"]),
        (["train", "lm", "--out", "NEW"], ["--data is missing"]),
        (["train", "lm", "--data", "nowhere.txt", "--out", "NEW"], ["nowhere.txt"]),
        (["train", "lm", "--data", "BOOK", "--out", "RUN"], ["exists already", "--resume"]),
        (["train", "lm", "--data", "BOOK", "--out", "NEW", "--set", "train.minutse=1"], ["minutse", "train.minutes"]),
        (
            ["train", "lm", "--data", "BOOK", "--out", "NEW", "--set", "train.learn_rate=1"],
            ["train.learn_rate", "learning_rate"],
        ),
        (["train", "lm", "--data", "BOOK", "--out", "NEW", "--set", "model.cell=lstn"], ["lstn", "Try: lstm"]),
        (["train", "lm", "--data", "BOOK", "--out", "NEW", "--set", "model.bidirectional=true"], ["fill"]),
        (
            ["train", "lm", "--data", "BOOK", "--out", "NEW", "--set", "batch.seq_length=9999"],
            ["tokens", "seq_length="],
        ),
        (
            ["train", "lm", "--data", "BOOK", "--out", "RUN", "--resume", "--set", "model.hidden_size=9"],
            ["hidden_size=16"],
        ),
        (["train", "lm", "--data", "other.txt", "--out", "RUN", "--resume"], ["other.txt", "same data"]),
        (
            ["train", "lm", "--data", "BOOK", "--out", "NEW", "--set", "train.device=warp"],
            ["'warp'", "Try: --set train.device=cpu"],
        ),
        (["train", "lm", "--data", "EMPTY", "--out", "NEW"], ["empty.txt", "empty"]),
        (["train", "lm", "--data", "LATIN", "--out", "NEW"], ["latin.txt:2"]),
        (["train", "lm", "--data", "BOOK", "--out", "NEW", "--config", "no.toml"], ["no.toml"]),
        (["eval", "nowhere"], ["nowhere", "run directory"]),
        (["generate", "RUN", "--temperature", "0"], ["temperature"]),
        (["generate", "RUN", "--top-p", "2"], ["--top-p", "equal to 1"]),
        (["generate", "BROKEN"], ["weights.safetensors", "damaged"]),
    ],
)
def test_mistakes(arguments, words, run, book, tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in run.iterdir():
        if file.is_file():
            content = file.read_bytes()
            (broken / file.name).write_bytes(content[:-100] if file.name == "weights.safetensors" else content)
    places = {"BOOK": book, "RUN": run, "NEW": tmp_path / "new", "BROKEN": broken}
    places |= {"EMPTY": tmp_path / "empty.txt", "LATIN": tmp_path / "latin.txt"}
    message = fails(*(places.get(argument, argument) for argument in arguments), cwd=tmp_path)
    assert all(word in message for word in words), message
    assert not any(path.name.startswith((".new", "new")) for path in tmp_path.iterdir()), "something was half written"


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(book, tmp_path):
    out = tmp_path / "run"
    training = start("train", "lm", "--data", book, "--out", out, *SMALL, "--set", "train.epochs=9999")
    while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_text():
        time.sleep(0.05)
    training.send_signal(signal.SIGINT)
    stdout, stderr = training.communicate(timeout=600)
    assert training.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert f"To resume: weft train lm --out {out} --resume" in stderr
    steps = int(re.search(r"interrupted after (\d+) steps", stdout).group(1))
    again = weft("train", "lm", "--out", out, "--resume", "--set", "train.minutes=0.001")
    assert f"after step {steps}" in again.stderr
    assert "time is up" in again.stdout


def stamp(run):
    """When the run was last saved."""
    file = run / "checkpoint.safetensors"
    return file.stat().st_mtime_ns if file.exists() else 0


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_kills_and_resumes_end_in_the_same_weights(book, tmp_path):
    """kill -9 at random moments; what comes out equals an undisturbed run, bit for bit."""
    command = ["train", "lm", "--data", book, *SMALL, "--set", "train.epochs=120", "--set", "train.save_seconds=0.05"]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    succeeds(*command, "--out", straight)
    random.seed(0)
    saves = []
    for kill in range(5):
        training = start(*command, "--out", killed, "--resume")
        if kill % 3:  # somewhere in the training
            before = stamp(killed)
            while training.poll() is None and stamp(killed) == before:
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.3))
        else:  # somewhere in start-up and preparation, too
            time.sleep(random.uniform(0.2, 2))
        assert training.poll() is None, training.communicate()
        training.kill()
        training.communicate()
        saves.append(stamp(killed))
    assert len(set(saves)) > 2, "the kills did not fall into the training"
    done = succeeds(*command, "--out", killed, "--resume")
    assert re.search(r"after step [1-9]", done.stderr)
    for name in ("weights.safetensors", "checkpoint.safetensors"):
        one, other = load_file(straight / name), load_file(killed / name)
        assert one.keys() == other.keys()
        assert all(one[key].equal(other[key]) for key in one), name

    def lines(path):
        return [{**json.loads(line), "seconds": 0} for line in (path / "metrics.jsonl").read_text().splitlines()]

    assert lines(straight) == lines(killed)
