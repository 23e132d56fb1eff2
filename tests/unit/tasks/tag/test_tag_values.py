"""Taggers of series: a tag for each step of a long table, by the tagger of text with channels for words."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weft
from weft import probes
from weft.errors import WeftError
from weft.series import SeriesColumns
from weft.series.examples import read_examples
from weft.training.run import load_tensors, open_run

SMALL = {"model.hidden_size": 8, "model.embedding_dim": 8, "train.epochs": 40, "train.precision": "float32"}


def states(count=24, seed=0):
    """Pairs of values (T, 2) and tags: noise around a level that depends on the state, which changes now and then."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        steps = int(rng.integers(15, 25))
        state = (np.cumsum(rng.random(steps) < 0.15) + number) % 2
        values = np.stack([100 + 10 * state + rng.normal(size=steps), rng.normal(size=steps)], 1)
        if number % 4 == 0:
            values[3, 0] = np.nan
        found.append((values, ["high" if one else "low" for one in state]))
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return weft.train_tag(states(), tmp_path_factory.mktemp("states") / "run", SMALL, progress=False)


def test_it_learns_and_says_so(model):
    pairs = states(10, seed=1)
    found = model.evaluate(pairs)
    assert found.score() > 0.9
    assert found.words.all.count == sum(len(tags) for _, tags in pairs)
    assert "steps" in model.evaluation().lines[0]


def test_a_table_and_lists_have_the_same_tags(model, tmp_path):
    pairs = states(5, seed=2)
    lists = [np.where(np.isnan(values), None, values).tolist() for values, _ in pairs]
    expected = [one.tags for one in model.tag([values for values, _ in pairs])]
    assert [one.tags for one in model.tag(lists)] == expected
    assert [one.words[:2] for one in model.tag(lists)] == [("0", "1")] * 5
    rows = [
        [number, step, *("" if np.isnan(one) else repr(float(one)) for one in values[step]), tags[step]]
        for number, (values, tags) in enumerate(pairs)
        for step in range(len(tags))
    ]
    path = tmp_path / "long.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in [["id", "time", "a", "b", "state"], *rows]) + "\n")
    read = read_examples(str(path), SeriesColumns(), each_step=True)
    assert (read.column, read.labels) == ("state", [tags for _, tags in pairs])
    trained = weft.train_tag(str(path), tmp_path / "run", {**SMALL, "train.epochs": 1}, progress=False)
    assert trained.vocabulary.series.channels == ("a", "b")
    assert [len(one.tags) for one in trained.tag(str(path))] == [len(tags) for _, tags in pairs]
    assert trained.evaluate(str(path)).words.all.count == len(rows)


def test_a_row_alone_equals_the_row_in_a_batch(model):
    values = [one for one, _ in states(7, seed=3)]
    for one, found in zip(values, model.tag(values), strict=True):
        (alone,) = model.tag([one])
        assert alone.tags == found.tags
        assert alone.confidence == pytest.approx(found.confidence, abs=1e-6)


def test_a_resumed_training_has_the_bits_of_one_without_a_stop(tmp_path):
    settings = {**SMALL, "train.epochs": 3, "train.save_seconds": 0}
    for _ in weft.start_tag(states(), tmp_path / "straight", settings).trainer.run():
        pass
    for number, _ in enumerate(weft.start_tag(states(), tmp_path / "broken", settings).trainer.run()):
        if number == 3:
            break
    for _ in weft.resume_tag(open_run(tmp_path / "broken")).trainer.run():
        pass
    one, other = (load_tensors(tmp_path / run / "weights.safetensors").tensors for run in ("straight", "broken"))
    assert all(one[key].equal(other[key]) for key in one)


def test_the_command_writes_a_line_for_each_step(model):
    operation = model.operations["tag"]
    read = operation.read(model, [json.dumps([[100, 0.5], [110, None]])], None, {})
    (record,) = operation.results(model, read.inputs, {"n_best": 1})
    assert [line.split("\t")[0] for line in "".join(record.to_text(0)).split("\n")[:2]] == ["0", "1"]
    assert (record.to_json()["text"], record.to_json()["words"]) == ("0 1", ("0", "1"))
    assert operation.inputs.schema["items"]["minItems"] == 2


def test_look_inside_names_the_steps(model):
    text = json.dumps([[100 + step, 0.5] for step in range(6)])
    steps = tuple(map(str, range(6)))
    assert probes.evidence(model, text).steps == steps
    assert probes.posterior(model, text).steps == steps


def test_gaps_go_on_with_the_tag_before_them():
    table = {"id": [1, 1, 1], "time": [0, 1, 3], "x": [1.0, 2.0, 3.0], "tag": ["a", "b", "a"]}
    read = read_examples(table, SeriesColumns(), each_step=True)
    assert read.labels == [["a", "b", "b", "a"]]


def test_spans_and_fine_tuning(tmp_path):
    pairs = [(values, ["B-X" if tag == "high" else "O" for tag in tags]) for values, tags in states(12)]
    first = weft.train_tag(pairs, tmp_path / "spans", {**SMALL, "train.epochs": 2}, progress=False)
    assert first.vocabulary.scheme is not None
    tuned = weft.start_tag(pairs, tmp_path / "tuned", {"train.epochs": 1}, from_run=first.run)
    assert tuned.run.fields == first.run.fields


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        (states(4), {"data.task": "segments"}, "segments"),
        (states(4), {"data.word_column": "x"}, "word_column"),
        ([(np.ones(4), ["a", "b"])] * 3, {}, "4 steps and 2 tags"),
        (np.ones((3, 5)), {}, "without labels"),
    ],
)
def test_mistakes(tmp_path, source, settings, message):
    with pytest.raises(WeftError, match=message):
        weft.start_tag(source, tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()
