"""Options, paths and messages of the program, in this process: as quick as a function call."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.cli import main
from weft.cli.messages import for_command_line
from weft.config import load_config
from weft.tasks import TASKS, describe
from weft.text import python_docs
from weft.training.devices import find_device

TINY = ["--set", "model.hidden_size=8", "--set", "model.embedding_dim=8", "--set", "batch.seq_length=16"]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "book.txt"
    file.write_text("It was the best of times, it was the worst of times.\n" * 40, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def run(book, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "lm"
    config = load_config(weft.LmConfig, None, ["model.hidden_size=8", "model.embedding_dim=8", "train.epochs=1"])
    weft.train_lm(str(book), out, config)
    return out


@pytest.fixture
def program(monkeypatch, capsys):
    """Run the program; returns (exit code, standard output, standard error)."""

    def call(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["weft", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    return call


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["train", "lm", "--data", "", "--out", "NEW"], "--data"),
        (["train", "lm", "--data", "BOOK", "--out", ""], "--out"),
        (["train", "lm", "--data", "BOOK", "--dev", "", "--out", "NEW"], "--dev"),
        (["train", "lm", "--data", "BOOK", "--out", "NEW", "--config", ""], "--config"),
        (["train", "tag", "--data", "grammar", "--out", "NEW", "--column", ""], "--column"),
        (["eval", ""], "RUN"),
        (["eval", "RUN", "--data", ""], "--data"),
        (["eval", "RUN", "--against", ""], "--against"),
        (["generate", ""], "RUN"),
        (["generate", "RUN", "--file", ""], "--file"),
        (["generate", "RUN", "--out", ""], "--out"),
        (["demo", "--out", " "], "--out"),
    ],
)
def test_an_empty_path_is_refused_by_the_name_of_its_option(
    arguments, option, program, run, book, tmp_path, monkeypatch
):
    monkeypatch.chdir(run)  # the folder that an empty path would mean
    places = {"BOOK": book, "RUN": run, "NEW": tmp_path / "new"}
    code, out, err = program(*(places.get(argument, argument) for argument in arguments))
    assert (code, out) == (2, "")
    assert f"{option} is empty" in err, err


def test_an_empty_path_is_refused_in_python(run, book, tmp_path, monkeypatch):
    monkeypatch.chdir(run)
    calls = [
        lambda: weft.load(""),
        lambda: weft.Corpus.open(""),
        lambda: weft.start_lm("", tmp_path / "new"),
        lambda: weft.start_lm(str(book), ""),
        lambda: weft.start_lm(str(book), tmp_path / "new", dev=""),
        lambda: weft.start_classify("", tmp_path / "new"),
        lambda: weft.start_tag("", tmp_path / "new"),
        lambda: weft.start_translate("", tmp_path / "new"),
        lambda: weft.resume_lm(""),
        lambda: weft.load(run).evaluate(""),
        lambda: load_config(weft.LmConfig, ""),
    ]
    for call in calls:
        with pytest.raises(weft.WeftError, match="is empty"):
            call()
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.name == "nt", reason="no SIGPIPE")
def test_a_reader_that_leaves_ends_the_program_as_the_signal_would(run):
    command = [sys.executable, "-m", "weft", "generate", str(run), "--tokens", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(20)) == 20
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_generate_has_every_option_of_sampling(program, run):
    options = {"temperature": 0.9, "top_k": 9, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.9,
               "repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.1}  # fmt: skip
    assert list(options) == [field.name for field in dataclasses.fields(weft.Sample)]
    known = describe("lm")["operations"]["generate"]["options"]
    assert {name: known[name]["default"] for name in options} == {**vars(weft.Sample()), "temperature": 0.8}
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    code, out, err = program("generate", run, "--prompt", "It was", "--tokens", 30, "--seed", 2, *flags)
    assert (code, out) == (
        0,
        weft.load(run).generate("It was", tokens=30, seed=2, sampler=weft.Sample(**options)) + "\n",
    ), err
    assert "repetition_penalty is 0.0" in program("generate", run, "--repetition-penalty", 0)[2]


def test_plain_options_stand_for_settings(program):
    plain = [
        "--epochs",
        3,
        "--minutes",
        2.5,
        "--batch-size",
        7,
        "--learning-rate",
        1e-5,
        "--seed",
        9,
        "--device",
        "cuda:1",
    ]
    for task in TASKS:
        known = describe(task)["flags"]
        given = [one for name, value in zip(plain[::2], plain[1::2], strict=True) for one in (name, value)
                 if name in known]  # fmt: skip
        code, out, err = program("train", task, *given, "--threads", 1, "--show-config")
        assert code == 0, err
        lines = ["epochs = 3", "minutes = 2.5", "size = 7", "learning_rate = 1e-05", "seed = 9", 'device = "cuda:1"']
        shown = [line for option, line in zip(plain[::2], lines, strict=True) if option in known]
        assert shown or task == "ngram"
        for line in shown:
            assert f"\n{line}  #" in out, (task, line)


@pytest.mark.parametrize(
    ("task", "option", "settings"),
    [
        ("classify", "--label-column", "--set data.label_column=VALUE"),
        ("classify", "--column", "--set data.text_column=VALUE or --set data.label_column=VALUE"),
        ("lm", "--weight-decay=1", "--set train.weight_decay=VALUE"),
    ],
)
def test_an_unknown_option_that_is_a_setting_is_refused_with_it(task, option, settings, program, tmp_path):
    code, out, err = program("train", task, "--data", "x", "--out", tmp_path / "run", option, "a")
    assert (code, out) == (2, "")
    flag = option.partition("=")[0]
    assert err == f"weft: there is no option {flag}; expected an option, or a setting. Try: {settings}\n"
    assert "No such option: --zzz" in program("train", task, "--zzz", "1")[2]


def test_every_neural_task_has_all_plain_options():
    for task in ("lm", "fill", "classify", "tag", "translate"):
        options = {"--epochs", "--minutes", "--batch-size", "--learning-rate", "--seed", "--members", "--device",
                   "--precision"}  # fmt: skip
        assert options <= set(describe(task)["flags"])


def test_completion_for_shells(program):
    code, out, _ = program("--help")
    assert code == 0
    assert "--install-completion" in out
    environment = {**os.environ, "_WEFT_COMPLETE": "complete_bash", "COMP_WORDS": "weft tr", "COMP_CWORD": "1"}
    starter = "import sys; sys.argv[0] = 'weft'; from weft.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", starter], env=environment, capture_output=True, text=True, check=False)
    assert sorted(done.stdout.split()) == ["train", "translate"], done.stderr


def test_messages_name_arguments_in_python_and_options_in_the_program(program, run, book, tmp_path):
    with pytest.raises(weft.WeftError) as refused:
        weft.start_lm(str(book), run)
    assert "another `out`, or `resume` to continue" in str(refused.value)
    assert "--" not in str(refused.value)
    code, _, err = program("train", "lm", "--data", book, "--out", run)
    assert code == 2
    assert "another --out, or --resume to continue" in err
    with pytest.raises(weft.WeftError, match=r"`train\.minutes=VALUE`"):
        load_config(weft.LmConfig, sets={"train.minuts": 3})
    code, _, err = program("train", "lm", "--data", book, "--out", tmp_path / "new", "--set", "train.minuts=3")
    assert "Try: --set train.minutes=VALUE" in err
    with pytest.raises(weft.WeftError, match=r"`train\.device=cpu`"):
        find_device("warp")
    with pytest.raises(weft.WeftError, match="`sampler=greedy`"):
        weft.Sample(temperature=0)
    assert "Try: --greedy" in program("generate", run, "--temperature", "0")[2]


def test_no_message_of_the_library_names_an_option():
    """Only the command line knows options; the library names arguments and settings."""
    found = []
    for path in Path(weft.__file__).parent.rglob("*.py"):
        if path.parent.name != "cli":
            lines = path.read_text(encoding="utf-8").splitlines()
            found += [f"{path.name}: {line.strip()}" for line in lines if "WeftError(" in line and " --" in line]
            found += [f"{path.name}: {line.strip()}" for line in lines if "hint=" in line and "--set" in line]
    assert found == []


def test_expressions_in_backticks_are_translated():
    assert for_command_line("`source=PATH`, `data.task=segments`") == "--data PATH, --segment"
    assert for_command_line("`weft train lm` and `x`, `text.lower`") == "`weft train lm` and `x`, text.lower"


def test_advice_after_divergence_is_a_usual_learning_rate(program, book, tmp_path):
    options = ["--out", tmp_path / "new", *TINY, "--set", "train.clip_norm=0", "--set", "train.optimizer=sgd"]
    code, _, err = program("train", "lm", "--data", book, *options, "--learning-rate", 1e30)
    assert code == 2
    assert "--set train.learning_rate=0.004)" in err, err


def test_runs_that_have_other_tokens_are_told_in_one_sentence(program, run, book, tmp_path):
    other = tmp_path / "lower"
    config = load_config(weft.LmConfig, None, ["model.hidden_size=8", "train.epochs=1", "text.lower=true"])
    weft.train_lm(str(book), other, config)
    code, _, err = program("eval", run, "--against", other)
    assert code == 2
    assert "the same `text` settings. Try: train it again with --set text.lower=false" in err, err


def test_time_covers_reading_and_a_run_out_of_time_takes_no_step(program, book, tmp_path):
    out = tmp_path / "late"
    code, shown, err = program("train", "lm", "--data", book, "--out", out, *TINY, "--minutes", 1e-5, "--json")
    assert code == 0
    assert "before the first step" in err, err
    result = json.loads(shown)
    assert (result["end"], result["steps"]) == ("time is up", 0)
    assert result["seconds"] > 0
    resumed = json.loads(program("train", "lm", "--out", out, "--resume", "--json")[1])
    assert (resumed["end"], resumed["steps"]) == ("time is up", 0)
    more = json.loads(program("train", "lm", "--out", out, "--resume", "--json", "--minutes", 1, "--epochs", 1)[1])
    assert more["end"] == "finished"


def test_the_last_evaluation_and_checkpoint_fit_into_the_time(book, tmp_path):
    config = load_config(weft.LmConfig, None, ["model.hidden_size=8", "train.minutes=0.02", "train.epochs=100000"])
    training = weft.start_lm(str(book), tmp_path / "run", config)
    steps = list(training.trainer.run())
    assert steps[-1].end == "time is up"
    assert training.trainer.progress.reserve > 0
    again = weft.resume_lm(tmp_path / "run")
    assert list(again.trainer.run()) == []
    assert again.trainer.progress.step == steps[-1].number


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """A tiny run of every other task that reads texts."""
    folder = tmp_path_factory.mktemp("others")
    tiny = {"model.hidden_size": 8, "model.embedding_dim": 8, "train.epochs": 1}
    pairs = weft.Pairs("few", ["one two", "three", "four five"] * 4, ["un deux", "trois", "quatre cinq"] * 4)
    weft.train_translate(pairs, folder / "translate", {**tiny, "text.tokenizer": "space"})
    weft.train_classify([("good day", "a"), ("bad night", "b")] * 5, folder / "classify", tiny)
    words = [(("a", "dog", "runs"), ("D", "N", "V")), (("the", "cat"), ("D", "N"))] * 5
    weft.train_tag(words, folder / "tag", tiny)
    weft.train_fill(weft.Corpus.from_texts("text", ["a dog runs home\n" * 400]), folder / "fill", tiny)
    return folder


@pytest.mark.parametrize("command", ["translate", "classify", "tag", "fill"])
@pytest.mark.parametrize("options", [["-"], ["--file", "-"], ["-", "--json"]])
def test_empty_standard_input_gives_empty_output(command, options, program, others):
    assert program(command, others / command, *options)[:2] == (0, "")


def test_no_prompts_give_no_texts(program, run):
    assert program("generate", run, "--prompt", "-")[:2] == (0, "")
    assert program("tag", run, "--columns", "-")[0] == 2


def test_an_empty_table_gives_an_empty_table(program, others):
    assert program("tag", others / "tag", "--columns", "-")[:2] == (0, "")


@pytest.mark.parametrize("command", ["translate", "classify", "tag", "fill"])
def test_a_missing_text_is_named(command, program, others):
    code, out, err = program(command, others / command)
    assert (code, out) == (2, "")
    assert f"there is no text to {command}; expected texts, or a --file" in err


def test_generation_stops_at_a_text_or_at_the_end(program, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("number,body\n" + "".join(f"{at},one two three\n" for at in range(200)), encoding="utf-8")
    out = tmp_path / "rows"
    enough = ["--set", "model.hidden_size=32", "--set", "model.dropout=0", "--batch-size", 8, "--epochs", 25]
    code, _, err = program("train", "lm", "--data", table, "--column", "body", "--out", out, *TINY, *enough)
    assert code == 0, err
    assert "looks like a table" not in err
    code, ended, _ = program("generate", out, "--prompt", "one", "--until-end", "--greedy")
    assert (code, ended) == (0, "one two three\n")
    assert program("generate", out, "--prompt", "one", "--greedy", "--stop", " th", "--stop", "w")[1] == "one t\n"
    code, _, err = program("train", "lm", "--data", table, "--out", tmp_path / "raw", *TINY, "--epochs", 1)
    assert code == 0
    assert "rows.csv looks like a table and is read as plain text" in err
    assert "--column NAME reads one of its columns (number, body)" in err


def test_a_tagger_of_prose_is_refused_with_how_it_was_understood(program, tmp_path):
    words = python_docs.prose().split()[:400]
    prose = tmp_path / "prose.txt"
    prose.write_text("".join(f"{one} {two}\n" for one, two in itertools.pairwise(words)), encoding="utf-8")
    code, _, err = program("train", "tag", "--data", prose, "--out", tmp_path / "run")
    assert code == 2
    assert "does not look like tagged words" in err
    assert "--column NUMBER" in err
    assert f"the word {words[0]!r} with the tag {words[1]!r}" in err


def test_a_device_that_is_not_there(program, run):
    for command in (("eval", run), ("generate", run)):
        code, _, err = program(*command, "--device", "warp")
        assert code == 2
        assert "device is 'warp'" in err
        assert "Try: --device cpu" in err
    code, out, _ = program("eval", run, "--device", "cpu")
    assert code == 0
    assert "perplexity" in out


def test_a_blank_as_other_models_write_it_and_the_beginning_of_a_translation(program, others):
    code, filled, _ = program("fill", others / "fill", "a ___ runs")
    assert code == 0
    assert {program("fill", others / "fill", f"a {mask} runs")[1] for mask in ("<mask>", "[MASK]")} == {filled}
    token = weft.load(others / "translate").fields.target.vocabulary.tokens[-1]
    code, translated, err = program("translate", others / "translate", "one two", "--prefix", token)
    assert code == 0, err
    assert translated.startswith(token.strip())


def test_options_that_a_model_has_not_are_refused_by_name(program, run):
    for option, value, able in (("--column", "2", "tag"), ("--beam", "3", "translate")):
        code, _, err = program("eval", run, option, value)
        assert (code, f"which has no {option}; expected a run of `weft train {able}`" in err) == (2, True), err
