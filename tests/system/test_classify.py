"""Classification as a user does it: train, label, measure, resume, and what goes wrong."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import weft
from tests import program
from tests.program import succeeds
from weft.cli import main
from weft.config import load_config
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.model import Classifier, LabelledBatch, TokenLayer
from weft.tasks.stored_data import stored
from weft.training.run import open_run

SETTINGS = [
    *("text.min_count=1", "model.hidden_size=12", "model.embedding_dim=12", "model.word_dropout=0.05"),
    *(
        "model.embedding_dropout=0.1",
        "model.dropout=0.1",
        "batch.size=8",
        "train.learning_rate=0.02",
        "train.epochs=12",
        "train.warmup_steps=5",
    ),
]
SMALL = list(itertools.chain.from_iterable(("--set", one) for one in SETTINGS))


def config(*sets):
    return load_config(ClassifyConfig, sets=[*SETTINGS, *sets])


def make_pairs():
    """Whether something is good depends on whether it is not, and the rest is no matter."""
    things, ways = ["the film", "this book", "the soup", "their song"], ["really", "often", "to me", "as ever"]
    found = []
    for thing, way, verdict, negation, end in itertools.product(
        things, ways, ["good", "bad"], ["", "", "not "], [".", "!"]
    ):
        label = "pos" if (verdict == "good") == (negation == "") else "neg"
        found.append((f"{thing} was {negation}{way} {verdict}{end}", label))
    random.Random(0).shuffle(found)
    return found


PAIRS = make_pairs()


@pytest.fixture
def command(monkeypatch, capsys):
    """The program in this process: arguments to (exit code, standard output, standard error)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["weft", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("classify")


@pytest.fixture(scope="module")
def train_file(folder):
    stream = io.StringIO()
    csv.writer(stream).writerows([("id", "remark", "verdict"), *((n, *pair) for n, pair in enumerate(PAIRS))])
    (folder / "train.csv").write_text(stream.getvalue(), encoding="utf-8")
    return folder / "train.csv"


@pytest.fixture(scope="module")
def run(folder, train_file):
    arguments = ["train", "classify", "--data", train_file, "--out", folder / "run", *SMALL, "--json"]
    done = succeeds(*arguments)
    assert "2 labels" in done.stderr
    assert (
        "text from column 'remark' (the longest texts), label from column 'verdict' "
        "(2 distinct values; --set data.label_column=NAME selects another)" in done.stderr
    )
    assert json.loads(done.stdout)["held_out_accuracy"] >= 0.9
    return folder / "run"


def test_labels_with_probabilities(run, command):
    code, out, err = command("classify", run, "the soup was to me good", "the soup was not to me good")
    assert (code, err) == (0, "")
    one, two = (line.split("\t") for line in out.splitlines())
    assert (one[0], two[0]) == ("pos", "neg")
    assert 0.5 < float(one[1]) <= 1
    assert one[2] == "the soup was to me good"
    code, out, _ = command("classify", run, "the soup was to me good", "--probabilities", "--weights")
    label, _, *chances, weights, text = out.strip().split("\t")
    assert text == "the soup was to me good"
    shares = dict(part.split("=") for part in chances)
    assert list(shares) == ["neg", "pos"]
    assert sum(map(float, shares.values())) == pytest.approx(1, abs=1e-3)
    assert max(shares, key=lambda name: float(shares[name])) == label
    assert [part.split("=")[0] for part in weights.split()] == ["the", "soup", "was", "to", "me", "good"]
    assert sum(float(part.split("=")[1]) for part in weights.split()) == pytest.approx(1, abs=0.01)


def test_a_text_that_is_the_name_of_a_file_and_one_of_unknown_words(run, command, train_file):
    code, out, err = command("classify", run, train_file)
    assert (code, out.split("\t")[-1]) == (0, f"{train_file}\n")
    assert f"weft: '{train_file}' is read as a text; --file {train_file} reads the file of that name\n" in err
    code, _, err = command("classify", run, "zzz qqq", "the soup was good")
    assert (code, err) == (0, "weft: text 1 had no token that the model knows: each is read as <unk>\n")


def test_standard_input_and_empty_lines(run):
    """A line in is a line out, so that the two can be laid side by side; an empty one has no label."""
    done = succeeds("classify", run, "-", "--json", stdin="the film was really bad\n\nTHE SOUP was ever so good\n")
    one, two, three = map(json.loads, done.stdout.splitlines())
    assert one["label"] == "neg"
    assert three["text"] == "THE SOUP was ever so good"
    assert "text 2 had no text: there is no prediction" in done.stderr
    assert two == {"text": "", "label": None, "probabilities": {}}
    done = succeeds("classify", run, "-", "--probabilities", "--weights", stdin="\nthe film was really bad\n")
    blank, line = (line.split("\t") for line in done.stdout.split("\n")[:2])
    assert blank == [""] * len(line)


def test_a_file_in_and_a_file_out(run, train_file, command, tmp_path):
    out = tmp_path / "told.tsv"
    code, printed, _ = command("classify", run, "--file", train_file, "--column", "remark", "--out", out)
    assert (code, printed) == (0, "")
    told = [line.split("\t") for line in out.read_text(encoding="utf-8").splitlines()]
    assert [line[2] for line in told] == [text for text, _ in PAIRS]
    right = sum(line[0] == label for line, (_, label) in zip(told, PAIRS, strict=True))
    found = json.loads(command("eval", run, "--data", train_file, "--json")[1])
    assert found["accuracy"] == pytest.approx(right / len(PAIRS))
    assert sorted(tmp_path.iterdir()) == [out]
    code, _, err = command("classify", run, "--file", train_file, "--out", tmp_path / "none" / "told.tsv")
    assert (code, "cannot be written" in err) == (2, True)


def test_a_table_is_known_by_its_column_of_texts(run, train_file, command, tmp_path):
    given = command("classify", run, "--file", train_file, "--column", "remark")
    code, out, err = command("classify", run, "--file", train_file)
    assert (code, out) == given[:2]
    assert "train.csv: the texts are its column 'remark', as in the training data" in err
    (tmp_path / "other.csv").write_text("id,review\n1,the soup was good\n", encoding="utf-8")
    code, out, err = command("classify", run, "--file", tmp_path / "other.csv")
    assert (code, len(out.splitlines())) == (0, 2)
    assert "other.csv is read as one text per line: there is no column 'remark'" in err


def test_results_that_cannot_be_written_are_one_message(run, tmp_path):
    """A disk that is full is told of; a reader who has gone is not."""
    (tmp_path / "many.txt").write_text("the soup was good\n" * 3000, encoding="utf-8")
    for given in (["the soup was good"], ["--file", tmp_path / "many.txt"]):
        arguments = program.command("classify", run, *given)
        if Path("/dev/full").exists():
            with Path("/dev/full").open("w") as full:
                done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, timeout=600)
            assert (done.returncode, done.stderr) == (2, f"weft: the output cannot be written: {os.strerror(28)}\n")
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(arguments, stdout=write, stderr=subprocess.PIPE, text=True, timeout=600)
        os.close(write)
        assert done.returncode != 0
        assert done.stderr == ""


def test_labels_and_tokens_with_spaces_can_be_read_back(command, tmp_path):
    pairs = [(text, {"pos": "very good", "neg": "not good = bad"}[label]) for text, label in PAIRS]
    model = weft.train_classify(pairs, tmp_path / "run", config("text.tokenizer=char", "train.epochs=0"))
    text = "so = good\tas this"
    (found,) = model.classify([text])
    _, out, _ = command("classify", tmp_path / "run", text, "--probabilities", "--weights")
    label, _, *chances, weights, shown = out.rstrip("\n").split("\t")
    assert (label, shown) == (found.label, "so = good as this")
    told = {name: float(value) for name, _, value in (part.rpartition("=") for part in chances)}
    assert told == pytest.approx(found.probabilities, abs=1e-4)
    tokens = [part.rpartition("=")[0] for part in weights.split(" ")]
    assert tuple(token.encode().decode("unicode_escape") for token in tokens) == found.tokens


def test_eval(run, command, tmp_path):
    (tmp_path / "test.tsv").write_text("remark\tverdict\nthe soup was really bad\tneg\n", encoding="utf-8")
    code, out, err = command("eval", run, "--data", tmp_path / "test.tsv")
    assert code == 0
    assert "test.tsv: read as tab-separated, with a header: text from column 'remark'" in err
    table = [line.split() for line in out.splitlines()]
    assert ["accuracy", "1.0000"] in table
    assert ["macro", "F1", "1.0000"] in table
    assert ["neg", "1.0000", "1.0000", "1.0000", "1"] in table
    assert ["neg", "1", "0"] in table
    held_out = json.loads(command("eval", run, "--json")[1])
    assert held_out["texts"] == sum(map(sum, held_out["confusion"])) > 5
    assert held_out["labels"][0]["label"] == "neg"


def test_a_dev_file_that_is_read_otherwise_is_told_of(train_file, tmp_path):
    (tmp_path / "dev.txt").write_text("pos it was good, I say\nneg it was bad, you say\n", encoding="utf-8")
    told = {}
    for name in (train_file, tmp_path / "dev.txt"):
        told[name] = weft.start_classify(
            train_file, tmp_path / f"run {name.name}", config("train.epochs=0"), dev=name
        ).trainer.phase.description
    text = "text from column 'remark' (the longest texts)"
    label = "label from column 'verdict' (2 distinct values; `data.label_column=NAME` selects another)"
    first = f"read as CSV, with a header: {text}, {label}"
    assert f"({first}; " in told[train_file]
    assert f"({first}; held out: read as lines with a label and a text: " in told[tmp_path / "dev.txt"]


def test_a_text_of_100000_tokens(run, command, tmp_path):
    """Its middle is left out, and that is said; the two ends are read."""
    long = "the soup was not really good " + "and so on " * 33_330
    (tmp_path / "long.txt").write_text(f"{long}\n", encoding="utf-8")
    code, out, err = command("classify", run, "--file", tmp_path / "long.txt", "--json", "--weights")
    assert code == 0
    assert "text 1 had more than 2,000 tokens: only the first and last 1,000 were read" in err
    assert len(json.loads(out)["weights"]) == 2000
    (result,) = weft.load(run).classify([long])
    assert result.left_out == len(long.split()) - 2000
    assert result.tokens[:4] == ("the", "soup", "was", "not")
    training = weft.start_classify([*PAIRS[:30], (long, "neg")], tmp_path / "run", config("train.epochs=1"))
    assert "1 texts cut to 2,000 tokens" in training.summary
    assert [step.end for step in training.trainer.run()][-1] == "finished"


def test_the_same_from_python(tmp_path):
    model = weft.train_classify(
        PAIRS, tmp_path / "run", config("train.class_weights=balanced", "model.pooling=attention")
    )
    one, two = model.classify(["the film was not often bad.", "the film was often bad."])
    assert (one.label, two.label) == ("pos", "neg")
    assert list(one.probabilities) == ["neg", "pos"]
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert one.probability == max(one.probabilities.values())
    assert one.tokens == ("the", "film", "was", "not", "often", "bad", ".")
    assert sum(one.weights) == pytest.approx(1)
    assert model.evaluate(PAIRS).accuracy > 0.9
    assert model.classify([]) == []
    assert model.classify(text for text in ["the film was not often bad.", "the film was often bad."]) == [one, two]
    for given in ("one text", 5, None, [5], [("one",)]):
        with pytest.raises(weft.WeftError, match=r"expected a (list of )?str"):
            model.classify(given)
    for given in (5, None, [("the film was bad.",)], ["the film was bad."]):
        with pytest.raises(weft.WeftError, match=r"expected a (path|pair)"):
            model.evaluate(given)
    # results come in the order of the texts, and batches change none of them
    texts = [text * (1 + number % 5) for number, (text, _) in enumerate(PAIRS)]
    for text, together in zip(texts[:7], model.classify(texts), strict=False):
        assert model.classify([text])[0].probabilities == pytest.approx(together.probabilities, abs=1e-5)


def test_equal_texts_stay_on_one_side_and_no_label_is_only_held_out(tmp_path):
    pairs = [*PAIRS, *PAIRS, ("once only", "rare")]
    for seed in range(3):
        settings = config("text.holdout=0.5", f"train.seed={seed}", "train.epochs=0")
        with pytest.warns(weft.WeftWarning, match="1 of 3 labels occur once: 'rare'"):
            run = weft.start_classify(pairs, tmp_path / str(seed), settings).run
        counts = run.fields["label"]["labels"]
        assert counts["rare"] == 1
        assert 0.3 < sum(counts.values()) / len(pairs) < 0.7
        train, dev = (stored(run, part)["text"] for part in ("train", "dev"))
        assert len(train) + len(dev) == len(pairs)
        assert not {tuple(ids) for ids in train} & {tuple(ids) for ids in dev}


def test_word_vectors_to_begin_with(tmp_path):
    (tmp_path / "vectors.txt").write_text("3 12\n" + "".join(
        f"{word} {' '.join(str(number + place) for place in range(12))}\n"
        for number, word in enumerate(["good", "bad", "zebra"])
    ), encoding="utf-8")  # fmt: skip
    settings = config(f"model.word_vectors={tmp_path / 'vectors.txt'}")
    training = weft.start_classify(PAIRS, tmp_path / "run", settings)
    assert "vectors for 2 of " in training.summary
    vocabulary = weft.load(tmp_path / "run").text_field.vocabulary
    weight = training.model.embedding.weight
    assert weight[vocabulary.id("bad")].tolist() == [1 + place for place in range(12)]
    assert weight[vocabulary.id("film")].std() > 0
    with pytest.raises(weft.WeftError, match=r"model\.embedding_dim is 8.*have 12 dimensions.*model\.embedding_dim=12"):
        weft.start_classify(PAIRS, tmp_path / "two", config(*settings_of(settings), "model.embedding_dim=8"))
    assert not (tmp_path / "two").exists()


def settings_of(settings):
    return [f"model.word_vectors={settings.model.word_vectors}"]


def test_a_break_and_a_resume_end_in_the_same_weights(tmp_path):
    """All noise is on: what is dropped after the break is what would have been dropped."""
    settings = config(
        "model.recurrent_dropout=0.2",
        "model.num_layers=2",
        "train.ema_decay=0.9",
        "train.save_seconds=0",
        "train.epochs=3",
    )
    for _ in weft.start_classify(PAIRS, tmp_path / "straight", settings).trainer.run():
        pass
    for step in weft.start_classify(PAIRS, tmp_path / "broken", settings).trainer.run():
        if step.number == 19:
            break
    resumed = weft.resume_classify(open_run(tmp_path / "broken"))
    assert resumed.trainer.progress.step == 19
    for _ in resumed.trainer.run():
        pass
    for name in ("weights.safetensors", "checkpoint.safetensors"):
        one, other = load_file(tmp_path / "straight" / name), load_file(tmp_path / "broken" / name)
        assert one.keys() == other.keys()
        assert all(one[key].equal(other[key]) for key in one), name


def test_class_weights_multiply_the_loss():
    torch.manual_seed(0)
    settings = ClassifyConfig().model
    model = Classifier(TokenLayer(5, settings), 2, settings).eval()
    batch = LabelledBatch(torch.tensor([[4], [4], [4]]), torch.tensor([1, 1, 1]), torch.tensor([0, 0, 1]))
    plain, weighted = model.loss(batch).total, model.loss(batch, torch.tensor([0.75, 1.5])).total
    nats = -model(batch.values, batch.lengths).logits.log_softmax(-1)[range(3), batch.labels]
    assert plain.item() == pytest.approx(nats.sum().item())
    assert weighted.item() == pytest.approx((0.75 * nats[0] + 0.75 * nats[1] + 1.5 * nats[2]).item())


def test_class_weights_by_label(tmp_path):
    """A label that counts fifty times as much is thought likelier; what is not named counts 1."""
    told = {}
    for number, setting in enumerate(["none", "pos=50", "neg=50"]):
        sets = config(f"train.class_weights={setting}", "train.epochs=2", "text.min_count=80")
        model = weft.train_classify(PAIRS, tmp_path / str(number), sets)
        told[setting] = sum(one.probabilities["pos"] for one in model.classify(text for text, _ in PAIRS)) / len(PAIRS)
    assert told["neg=50"] < told["none"] - 0.05 < told["none"] + 0.05 < told["pos=50"]


ROWS = "".join(f"{label}\t{text}\n" for text, label in PAIRS[:20])


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (ROWS + "pos\n", [], ["train.tsv:21 has 1 columns", "2, as in line 1"]),
        (ROWS + "pos\t\n", ["--strict"], ["train.tsv:21: the text is empty"]),
        (
            ROWS + "pos\t!!\n",
            ["--strict", "--set", "text.letters_only=true"],
            ["train.tsv:21: the text '!!' has no tokens"],
        ),
        ("pos\tgood\npos\tfine\n", [], ["all 2 examples have the label 'pos'", "two labels"]),
        (ROWS, ["--set", "data.text_column=remark"], ["column 'remark' is not known"]),
        (ROWS, ["--set", "data.text_column=7"], ["data.text_column is 7", "2 columns"]),
        (ROWS, ["--dev", "DEV_PART"], ["dev.tsv:2 has the label 'meh'", "'neg', 'pos'"]),
        (ROWS, ["--set", "train.class_weights=balancd"], ["class_weights is 'balancd'", "none, balanced, or numbers"]),
        (ROWS, ["--set", "train.class_weights=pso=2"], ["label 'pso' is not known", "neg, pos", "Try: pos"]),
        (ROWS, ["--set", "train.class_weights=pos=two"], ["'pos' has the weight 'two'", "above 0"]),
        (ROWS, ["--set", "train.class_weights=pos=2, neg=0"], ["'neg' has the weight '0'", "above 0"]),
        (ROWS, ["--set", "model.pooling=maxi"], ["model.pooling", "Try: --set model.pooling=max"]),
        (ROWS + "a\x0bb\tas ever\n", [], ["train.tsv:21: the label 'a\\x0bb' contains a tab or a line break"]),
        (ROWS, ["--set", "model.word_vectors=nowhere.txt"], ["nowhere.txt does not exist"]),
        (ROWS, ["--set", "text.min_count=99"], ["min_count"]),
    ],
)
def test_mistakes_in_training(content, options, words, command, tmp_path, monkeypatch):
    (tmp_path / "train.tsv").write_text(content, encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("pos\tgood as ever\nmeh\tso so as ever\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    given = [tmp_path / "dev.tsv" if one == "DEV_PART" else one for one in options]
    code, out, err = command(
        "train", "classify", "--data", tmp_path / "train.tsv", "--out", tmp_path / "run", *SMALL, *given
    )
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.tsv", "train.tsv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["classify", "RUN"], ["no text to classify", "--file"]),
        (["classify", "RUN", "one", "--file", "TEST"], ["texts and a --file"]),
        (["classify", "RUN", "one", "--column", "2"], ["--column without a --file"]),
        (["classify", "RUN", "--file", "TEST", "--column", "9"], ["--column is 9", "2 columns"]),
        (["eval", "RUN", "--data", "TEST"], ["test.tsv:2 has the label 'meh'", "'neg', 'pos'"]),
        (["eval", "RUN", "--against", "RUN"], ["in its own encoding", "--data FILE"]),
        (["generate", "RUN"], ["'classify'", "weft train lm"]),
        (["train", "classify", "--out", "NEW"], ["--data is missing", "grammar"]),
        (["train", "classify", "--out", "NEW", "--data", "python-docs"], ["without labels"]),
    ],
)
def test_mistakes_in_use(arguments, words, run, command, tmp_path):
    (tmp_path / "test.tsv").write_text("pos\tgood as ever\nmeh\tso so as ever\n", encoding="utf-8")
    places = {"RUN": run, "TEST": tmp_path / "test.tsv", "NEW": tmp_path / "new"}
    code, out, err = command(*(places.get(one, one) for one in arguments))
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
    assert not (tmp_path / "new").exists()


def test_an_empty_file_of_a_folder_is_left_out(tmp_path):
    for number, (text, label) in enumerate([*PAIRS[:20], ("\n", "pos")]):
        (tmp_path / "data" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / label / f"{number}.txt").write_text(text, encoding="utf-8")
    with pytest.raises(weft.WeftError, match=r"20\.txt: the text is empty"):
        weft.start_classify(tmp_path / "data", tmp_path / "run", config("data.strict=true"))
    with pytest.warns(weft.WeftWarning, match=r"left out 1 of 21 rows \(no text: 1\): .*20\.txt"):
        weft.start_classify(tmp_path / "data", tmp_path / "run", config())


def test_chinese_characters_are_words(tmp_path):
    pairs = [
        (f"这家{place}{'不' if number % 2 else '很'}好。", "差" if number % 2 else "好")
        for number, place in enumerate(["酒店", "饭馆", "书店"] * 20)
    ]
    model = weft.train_classify(pairs, tmp_path / "run", config())
    assert [one.label for one in model.classify(["这家酒店不好。", "这家书店很好。"])] == ["差", "好"]
    assert model.classify(["不好"])[0].tokens == ("不", "好")


@pytest.mark.parametrize("level", ["char", "subword"])
def test_other_tokens(level, tmp_path):
    if level == "subword":
        pytest.importorskip("tokenizers")
    sets = [f"text.tokenizer={level}", "train.epochs=1", *(["text.max_vocab_size=300"] if level == "subword" else [])]
    model = weft.train_classify(PAIRS, tmp_path / "run", config(*sets))
    (one,) = model.classify(["the film was bad."])
    assert "".join(one.tokens).replace("▁", " ").strip() == "the film was bad."
    assert len(one.weights) == len(one.tokens)
