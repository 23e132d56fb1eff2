"""A run directory from a stranger, or a damaged one: refused cheaply and in words, whatever its files hold."""

from __future__ import annotations

import os
import shutil
import time

import numpy as np
import pytest
import torch

import weft
from weft import cli
from weft.cli.runs import runs as list_runs
from weft.config import load_config
from weft.errors import WeftError, WeftWarning
from weft.tasks.lm import task
from weft.tasks.lm.config import LmConfig
from weft.training import build
from weft.training.run import (
    CHECKPOINT,
    CONFIG,
    DATA_RECORD,
    FIELDS,
    WEIGHTS,
    load_tensors,
    read_json,
    save_tensors,
    write_json,
)

SMALL = ["text.limit=3000", "model.hidden_size=8", "batch.size=4", "train.epochs=1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stranger") / "run"
    weft.train_lm("grammar", folder, load_config(LmConfig, sets=SMALL))
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def rewrite(path, change):
    """Change a JSON file of a run, with its hash made right again."""
    content = read_json(path)
    change(content)
    content = {name: value for name, value in content.items() if name not in ("format", "weft")}
    write_json(path, content)


@pytest.mark.parametrize("name", ["hidden_size", "embedding_dim", "num_layers"])
@pytest.mark.parametrize("size", [10**4, 10**7, 10**9, 10**30, -1, "8", None, 1.5, True])
def test_sizes_that_are_not_those_of_the_weights(run, name, size):
    rewrite(run / CONFIG, lambda content: content["config"]["model"].update({name: size}))
    began = time.process_time()
    with pytest.raises(WeftError):
        weft.load(run)
    assert time.process_time() - began < 20


@pytest.mark.parametrize("part", ["tokens", "counts", "tokenizer", "normalizer", "vocabulary"])
@pytest.mark.parametrize("value", [None, [], {}, 7, "x", [None], [["a"]], {"tokens": None}])
def test_vocabularies_that_are_none(run, part, value):
    def change(found):
        text = found["fields"]["text"]
        for inside in (text, text["vocabulary"], found["fields"], found["reading"]):
            if part in inside:
                inside[part] = value

    rewrite(run / FIELDS, change)
    try:
        weft.load(run)
    except WeftError:
        return
    assert part in ("tokens", "counts", "normalizer")  # where a value may be ignored


@pytest.mark.parametrize("error", [AttributeError, TypeError, KeyError, RuntimeError])
def test_a_defect_of_ours_is_not_reported_as_damage(run, monkeypatch, capsys, error):
    def fail(*arguments):
        raise error("ours")

    monkeypatch.setattr(task, "make_language_model", fail)
    with pytest.raises(error, match="ours"):
        weft.load(run)
    with pytest.raises(error, match="ours"):
        task.TASK.resume(run)
    monkeypatch.setattr("sys.argv", ["weft", "eval", str(run)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert "this is a defect of weft" in printed
    assert "damaged" not in printed


@pytest.mark.parametrize(
    "change", [{"step": "3"}, {"step": -1}, {"phase": 7}, {"best": None}, {"more": 1}, {"epoch": True}]
)
def test_a_state_of_training_that_is_none(run, change):
    tensors, metadata = load_tensors(run / CHECKPOINT)
    metadata["progress"].update(change)
    save_tensors(run / CHECKPOINT, tensors, metadata)
    with pytest.raises(WeftError, match=r"checkpoint\.safetensors is damaged"):
        task.TASK.resume(run)


def test_nested_json(run):
    (run / CONFIG).write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(WeftError, match="damaged"):
        weft.load(run)


@pytest.mark.parametrize("text", ["null", "[]", "3", '{"format": "2"}', '{"format": 3}', "\x00", "{"])
def test_json_of_another_kind(run, text):
    (run / CONFIG).write_text(text)
    with pytest.raises(WeftError, match="damaged"):
        weft.load(run)


@pytest.mark.parametrize("name", [CONFIG, FIELDS, WEIGHTS])
def test_pipes_and_devices(run, name):
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(WeftError, match="not a regular file"):
        weft.load(run)
    (run / name).unlink()
    (run / name).symlink_to("/dev/zero")
    with pytest.raises(WeftError, match="not a regular file"):
        weft.load(run)


def test_weights_of_another_model(run):
    tensors, metadata = load_tensors(run / WEIGHTS)
    name = next(iter(tensors))
    save_tensors(run / WEIGHTS, {**tensors, name: torch.zeros(3, 3)}, metadata)
    with pytest.raises(WeftError, match="as the settings of the run say"):
        weft.load(run)
    save_tensors(run / WEIGHTS, {key: value for key, value in tensors.items() if key != name}, metadata)
    with pytest.raises(WeftError, match="missing in the saved weights"):
        weft.load(run)


def fill_weights(path, value):
    """Every weight of a file is this value, with its hash made right again."""
    tensors, metadata = load_tensors(path)
    changed = {name: torch.full_like(one, value) if one.is_floating_point() else one for name, one in tensors.items()}
    save_tensors(path, changed, metadata)


NOT_FINITE = [float("nan"), float("inf"), -1e38, 1e20]


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("name", [WEIGHTS, CHECKPOINT])
def test_weights_that_are_not_finite(run, name, value):
    if name == CHECKPOINT:
        (run / WEIGHTS).unlink()
    fill_weights(run / name, value)
    with pytest.raises(WeftError, match="the weights are not finite"):
        weft.load(run)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Small runs of other tasks."""
    folder = tmp_path_factory.mktemp("others")
    quick = {"train.epochs": 1, "model.hidden_size": 4}
    weft.train("ngram", "grammar", folder / "ngram", {"text.limit": 2000}, progress=False)
    weft.train("hmm", "grammar", folder / "hmm", {"text.limit": 2000, "train.iterations": 1}, progress=False)
    texts = [("a good film", "pos"), ("a bad film", "neg")] * 20
    weft.train("classify", texts, folder / "classify", {**quick, "model.cell": "rnn-relu"}, progress=False)
    tagged = [(["Rome", "is"], ["B-X", "O"])] * 20
    weft.train("tag", tagged, folder / "tag", {**quick, "model.cell": "rnn-relu"}, progress=False)
    return folder


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("name", ["ngram/" + WEIGHTS, "hmm/" + WEIGHTS, "classify/linear.safetensors"])
def test_weights_of_other_tasks_that_are_not_finite(others, tmp_path, name, value):
    run = shutil.copytree(others, tmp_path / "runs") / name
    fill_weights(run, value)
    with pytest.raises(WeftError, match=r"the weights .*are not finite"):
        weft.load(run.parent)


def test_weights_that_are_too_large_for_a_cell_without_bounds(others, tmp_path):
    runs = shutil.copytree(others, tmp_path / "runs")
    fill_weights(runs / "classify" / WEIGHTS, 1e10)
    fill_weights(runs / "tag" / WEIGHTS, 1e10)
    with pytest.raises(WeftError, match="values are not finite"):
        weft.load(runs / "classify").classify(["a good film, a very good film, a good and very good film"])
    with pytest.raises(WeftError, match="values are not finite"):
        weft.load(runs / "tag").tag(["Rome is Rome is Rome is Rome is Rome is Rome"])


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damaged_data_is_noticed_by_an_evaluation(run, damage):
    file = run / "data" / "dev.tokens.npy"
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()
    with pytest.raises(WeftError, match=r"dev\.tokens\.npy is damaged|no held-out data"):
        weft.load(run).evaluate_held_out()


def test_data_with_ids_of_no_token(run):
    file = run / "data" / "dev.tokens.npy"
    from weft.data.column import write_values
    from weft.files import file_hash

    write_values(file, [np.full(50, 65535)], np.uint16)

    rewrite(run / DATA_RECORD, lambda content: content["files"].update({"dev.tokens.npy": file_hash(file)}))
    with pytest.raises(WeftError, match="token id 65535"):
        weft.load(run).evaluate_held_out()


@pytest.mark.parametrize(
    "line",
    ["[3]", '{"step": -5}', '{"step": true}', '{"step": 1e3}', '{"step": 1, "loss": 1%s}' % ("0" * 400),
     '{"step": 1, "evaluation": 3}', '{"step": 1, "evaluation": {"perplexity": "x"}}'],
)  # fmt: skip
def test_metrics_that_are_none(run, line, capsys):
    (run / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(WeftError, match=r"metrics\.jsonl is damaged"):
        weft.resume_lm(run)
    with pytest.warns(WeftWarning, match=r"left out: .*metrics\.jsonl is damaged"):
        list_runs(run.parent)
    assert "no runs" in capsys.readouterr().err


def make_sparse(path, size):
    """A file with a large hole at its end, which takes no disk."""
    try:
        os.truncate(path, size)
    except OSError as error:
        pytest.skip(f"no sparse files here: {error}")


@pytest.mark.parametrize("name", [WEIGHTS, CHECKPOINT])
def test_tensors_that_are_larger_than_the_memory(run, name):
    if name == CHECKPOINT:
        (run / WEIGHTS).unlink()
    make_sparse(run / name, 4 << 40)
    with pytest.raises(WeftError, match=r"damaged: it has 4,398,046,511,104 bytes, and this machine"):
        weft.load(run)


def test_metrics_without_an_end(run):
    make_sparse(run / "metrics.jsonl", 6 << 30)
    with pytest.raises(WeftError, match=r"metrics\.jsonl is damaged: it has 6,442,450,944 bytes, more than"):
        weft.open_run(run).metrics()


def test_a_list_of_runs_leaves_out_what_cannot_be_read(run):
    rewrite(run / CONFIG, lambda content: content["config"].update(train=3))
    with pytest.warns(WeftWarning, match="left out: .* does not hold what weft writes there"):
        list_runs(run.parent)


@pytest.mark.parametrize("name", ["a" * 300, "a" * 5000, "a\x00b", "a\udcff"])
def test_names_that_no_run_can_have(tmp_path, name):
    with pytest.raises(WeftError, match="cannot be made") as refused:
        weft.train("ngram", [["a b c"] * 20], tmp_path / name)
    assert len(str(refused.value)) < 300
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "out",
    ["", " ", ".", "..", "/", "a\0b", "\ud800x", "/dev/null", "/dev/null/x", "x" * 5000, "a/" * 3000, "file", "file/x",
     "link", "loop", "loop/x", "dangling", "/proc/x"],
)  # fmt: skip
def test_places_where_no_run_can_be(tmp_path, monkeypatch, out):
    """Each is refused in one short line, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    for name, target in (("link", "folder"), ("loop", "loop"), ("dangling", "nowhere/at/all")):
        (tmp_path / name).symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(WeftError) as refused:
        weft.train_ngram(weft.Corpus.from_texts("text", ["the cat sat. " * 50]), out, progress=False)
    assert len(str(refused.value)) < 300
    assert sorted(tmp_path.rglob("*")) == before


def test_the_name_of_a_run_has_one_row(run, capsys):
    run.rename(run.with_name("one\nrow\x85\u2028"))
    list_runs(run.parent)
    assert capsys.readouterr().out.splitlines()[1].startswith(f"{run.parent}/one\\nrow\\x85\\u2028  lm")


@pytest.mark.parametrize("option", ["--tokens=1000000000000", "--top-k=99999999999999999999"])
def test_options_that_are_too_large(run, monkeypatch, capsys, option):
    monkeypatch.setattr("sys.argv", ["weft", "generate", str(run), option])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_model_that_does_not_fit_is_refused_with_its_size(tmp_path, monkeypatch):
    out = tmp_path / "run"
    with pytest.raises(WeftError, match="needs more than 8 EiB of memory, and this machine has"):
        weft.train_lm("grammar", out, load_config(LmConfig, sets=[*SMALL, "model.hidden_size=1000000000"]))
    with pytest.raises(WeftError, match=r"needs about [\d,]+\.\d GiB of memory"):
        weft.train_lm("grammar", out, load_config(LmConfig, sets=[*SMALL, "model.hidden_size=1000000"]))
    monkeypatch.setattr(build, "memory", lambda: 10_000)
    with pytest.raises(WeftError, match="GiB of memory"):
        weft.train_lm("grammar", out, load_config(LmConfig, sets=SMALL))
    assert not out.exists()
