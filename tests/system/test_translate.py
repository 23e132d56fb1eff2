"""Translating as a user does it: train, translate, measure, resume, and what goes wrong."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import zipfile

import pytest

from tests.program import check_kill_and_resume, run_script, succeeds, weft
from weft.cli import main

FRENCH = {"cat": "chat", "dog": "chien", "bird": "merle", "red": "rouge", "big": "vaste", "sees": "voit", "has": "a"}
SMALL = [
    *("--set", "text.tokenizer=word", "--set", "model.hidden_size=32", "--set", "model.embedding_dim=32"),
    *(
        "--set",
        "model.cell=gru",
        "--set",
        "train.learning_rate=0.01",
        "--set",
        "train.warmup_steps=20",
        "--set",
        "batch.max_tokens=150",
    ),
    *("--set", "text.holdout=0.15", "--set", "train.ema_decay=0.9"),
]


GRAMMAR = [
    *("text.tokenizer=word", "text.holdout=0.02", "model.cell=lstm", "model.hidden_size=128", "model.embedding_dim=64"),
    *(
        "model.dropout=0.05",
        "batch.max_tokens=800",
        "train.epochs=3",
        "train.learning_rate=0.008",
        "train.warmup_steps=30",
    ),
    *("train.warmup_steps=30", "train.ema_decay=0.98", "train.evaluate_every=100000"),
]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Sentences whose adjective changes places."""
    lines = [
        f"the {adjective} {one} {verb} the {other}.\tle {FRENCH[one]} {FRENCH[adjective]} {FRENCH[verb]} "
        f"le {FRENCH[other]}."
        for one, other, verb, adjective in itertools.product(
            ("cat", "dog", "bird"), ("cat", "dog", "bird"), ("sees", "has"), ("red", "big")
        )
    ]
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def runs(pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    epochs = ["--set", "train.epochs=150", "--set", "train.evaluate_every=100"]
    done = succeeds("train", "translate", "--data", pairs, "--out", folder / "fr", *SMALL, *epochs, "--json")
    (folder / "fr.json").write_text(done.stdout, encoding="utf-8")
    plain = ["--set", "model.decoder=context", "--set", "train.epochs=1", "--set", "text.max_tokens=8"]
    succeeds("train", "translate", "--data", pairs, "--out", folder / "context", *SMALL, *plain)
    (folder / "book.txt").write_text("i am hungry .\n" * 100, encoding="utf-8")
    succeeds("train", "ngram", "--data", folder / "book.txt", "--out", folder / "ngram")
    return folder


def test_training_says_how_good_it_is(runs):
    found = json.loads((runs / "fr.json").read_text(encoding="utf-8"))
    assert found["end"] == "finished"
    assert found["held_out_exact"] >= 0.8
    assert found["held_out_bleu"] > 80
    assert found["held_out_perplexity"] < 1.5


def test_translations_come_a_line_for_a_line(runs):
    text = "the red dog sees the cat.\n\nthe big cat has the bird.\n"
    lines = succeeds("translate", runs / "fr", "-", stdin=text).stdout.split("\n")
    assert lines == ["le chien rouge voit le chat.", "", "le chat vaste a le merle.", ""]
    assert succeeds("translate", runs / "fr", "the red dog sees the cat.", "--beam", 1).stdout.strip() == lines[0]


def test_a_file_in_and_a_file_out(runs, tmp_path):
    """However long a line is, it stays one."""
    sentence = "the red dog sees the cat."
    file, out = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_text(f"{sentence}\n\n{'the red dog ' * 100_000}\n{sentence}", encoding="utf-8")
    done = succeeds("translate", runs / "fr", "--file", file, "--out", out)
    assert done.stdout == ""
    first, blank, long, last = out.read_text(encoding="utf-8").split("\n")[:-1]
    assert first == last == "le chien rouge voit le chat."
    assert blank == ""
    assert long
    assert "has 300000 tokens; only the first 100" in done.stderr
    again = weft("translate", runs / "fr", sentence, "--file", file)
    assert again.returncode == 2
    assert "there are texts and a --file" in again.stderr


def test_n_best_and_attention(runs):
    options = ["--n-best", 3, "--json", "--attention", "--length-penalty", 0.5]
    done = succeeds("translate", runs / "fr", "the red dog sees the zebra.", *options)
    assert "does not know 'zebra'" in done.stderr
    found = json.loads(done.stdout)
    assert found["unknown"] == ["zebra"]
    assert len(found["translations"]) == 3
    scores = [one["score"] for one in found["translations"]]
    assert scores == sorted(scores, reverse=True)
    for one in found["translations"]:
        assert one["score"] == pytest.approx(one["log_prob"] / len(one["tokens"]) ** 0.5)
        assert "<unk>" not in one["text"]
        assert one["source"] == ["the", "red", "dog", "sees", "the", "zebra", ".", "<eos>"]
        assert [len(weights) for weights in one["attention"]] == [8] * len(one["tokens"])
        assert all(sum(weights) == pytest.approx(1, abs=1e-5) for weights in one["attention"])
    words = succeeds("translate", runs / "fr", "the red dog sees the cat.", "--attention", "--n-best", 2).stdout
    assert re.search(r"^ +-\d\.\d+  le chien rouge voit le chat\.\n +le +<- ", words)
    assert re.search(r"\n +chien +<- dog (0\.[5-9]|1\.)", words)


def test_measures(runs, pairs):
    found = json.loads(succeeds("eval", runs / "fr", "--data", pairs, "--json").stdout)
    assert found["pairs"] == 36
    assert found["exact"] > 0.9
    assert found["bleu"] > 95
    assert found["chrf"] > 95
    assert "tok:13a" in found["signature"]
    words = succeeds("eval", runs / "fr", "--beam", 1).stdout
    assert re.search(r"BLEU +\d+\.\d\d\nchrF +\d+\.\d\d\nexact match +\d+\.\d\d%\n5 pairs, beam 1; BLEU\|", words)


def test_it_learns_the_grammar(tmp_path):
    """Gender, number and elision, on sentences that are not among those it was trained on."""
    from weft.config import load_config
    from weft.tasks.translate.config import TranslateConfig
    from weft.tasks.translate.task import train_translate

    model = train_translate("grammar-fr", tmp_path / "run", load_config(TranslateConfig, None, GRAMMAR))
    found = model.evaluate_held_out()
    assert len(found) == 400
    assert found.exact >= 0.85
    assert found.bleu > 94


def test_the_same_from_python(runs, tmp_path):
    script = f"""
import weft
from weft.tasks.translate.task import start_translate
model = weft.load({str(runs / "fr")!r})
assert model.translate(["the red dog sees the cat."], beam=5) == ["le chien rouge voit le chat."]
assert model.translate([]) == []
assert model.evaluate_held_out().exact >= 0.8
pairs = weft.Pairs("mine", ["a b", "b a", "a a"], ["x y", "y x", "x x"])
config = weft.load_config(
    weft.TranslateConfig, None, {{"text.tokenizer": "word", "model.hidden_size": 8, "model.embedding_dim": 8}}
)
other = weft.train_translate(pairs, {str(tmp_path / "mine")!r}, config, dev=pairs)
assert len(other.evaluate_held_out()) == 3
found = other.n_best(["a b c"], 2, copy_unknown=True, attention=True)
assert len(found[0]) == 2 and "<unk>" not in found[0][0].text
"""
    run_script(script)


def test_too_long_sources(runs, pairs, tmp_path):
    """In training they are left out and counted; at translation they are cut, and it is said."""
    done = succeeds("translate", runs / "context", "the red dog sees the cat and the dog and the bird.")
    assert "has 13 tokens; only the first 8 are translated (text.max_tokens=8)" in done.stderr
    asked = tmp_path / "asked.tsv"
    asked.write_text("the red dog sees the cat and the dog and the bird.\tle chien\n")
    done = succeeds("eval", runs / "context", "--data", asked)
    assert "has 13 tokens; only the first 8 are translated (text.max_tokens=8)" in done.stderr
    longer = tmp_path / "longer.tsv"
    longer.write_text(pairs.read_text(encoding="utf-8") + "one two three four five six seven eight nine\tun deux\n")
    options = [*SMALL, "--set", "train.epochs=0", "--set", "text.max_tokens=8", "--set", "text.holdout=0"]
    done = succeeds("train", "translate", "--data", longer, "--out", tmp_path / "run", *options)
    assert "36 pairs to train on" in done.stderr
    assert "1 pairs of more than 8 tokens left out" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["translate", "FR"], ["no text to translate", "weft translate RUN"]),
        (["translate", "NGRAM", "hello"], ["'ngram'", "weft train translate"]),
        (["generate", "FR"], ["'translate'", "weft train lm"]),
        (["translate", "CONTEXT", "the cat.", "--attention"], ["model.decoder=context", "attend_after"]),
        (["translate", "CONTEXT", "the cat.", "--copy-unknown"], ["model.decoder=context", "attend_after"]),
        (["train", "translate", "--data", "SHORT", "--out", "NEW"], ["has 3 lines", "has 2", "equal numbers"]),
        (["train", "translate", "--data", "HALF", "--out", "NEW", "--strict"], ["target side", "empty"]),
        (
            ["train", "translate", "--data", "FULL", "--out", "NEW", "--set", "text.max_tokens=2"],
            ["more than 2 tokens"],
        ),
        (["train", "translate", "--data", "FULL", "--out", "NEW", "--set", "model.attention=dott"], ["scaled_dot"]),
        (["train", "translate", "--out", "NGRAM", "--resume"], ["'ngram'", "weft train translate"]),
        (["train", "translate", "--out", "NEW"], ["--data is missing", "--data grammar-fr"]),
        (
            ["train", "translate", "--data", "FULL", "--out", "HALF"],
            ["exists already and is not a run", "another --out"],
        ),
        (["train", "translate", "--data", "ZIP", "--out", "NEW"], ["has 2 texts", "pairs.zip:b.txt"]),
    ],
)
def test_mistakes(arguments, words, runs, tmp_path, monkeypatch, capsys):
    """The command itself, in this process: ten more starts of Python would tell no more."""
    (tmp_path / "a.en").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "a.fr").write_text("un\ndeux\n", encoding="utf-8")
    (tmp_path / "half.tsv").write_text("one\tun\ntwo\t\n", encoding="utf-8")
    (tmp_path / "full.tsv").write_text("one two three\tun deux trois\n" * 3, encoding="utf-8")
    places = {"FR": runs / "fr", "CONTEXT": runs / "context", "NGRAM": runs / "ngram", "NEW": tmp_path / "new"}
    places |= {"SHORT": f"{tmp_path / 'a.en'},{tmp_path / 'a.fr'}", "HALF": tmp_path / "half.tsv"}
    with zipfile.ZipFile(tmp_path / "pairs.zip", "w") as archive:
        archive.writestr("a.txt", "about these pairs\n")
        archive.writestr("b.txt", "one\tun\n")
    places |= {"FULL": tmp_path / "full.tsv", "ZIP": tmp_path / "pairs.zip"}
    given = [str(places.get(argument, argument)) for argument in arguments]
    if given[:2] == ["train", "translate"] and "--resume" not in given:
        given += ["--set", "text.tokenizer=word"]
    monkeypatch.setattr(sys, "argv", ["weft", *given])
    with pytest.raises(SystemExit) as end:
        main()
    out, message = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert message.startswith("weft: ")
    assert all(word in message for word in words), message
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_a_kill_and_a_resume_end_in_the_same_weights(pairs, tmp_path):
    """Dropout, guesses and batches are drawn at random, and a resumed run draws the same ones."""
    settings = [
        *SMALL,
        "--set",
        "train.epochs=12",
        "--set",
        "train.save_seconds=0.05",
        "--set",
        "train.scheduled_sampling=0.5",
    ]
    check_kill_and_resume(tmp_path, "train", "translate", "--data", pairs, *settings)
