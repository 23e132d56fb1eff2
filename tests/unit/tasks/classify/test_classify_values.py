"""Classifiers of series: how examples are read, what models read of them, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import weft
from tests.checks.models import check_model
from weft import probes
from weft.errors import WeftError
from weft.nn.channels import ChannelLayer
from weft.series import SeriesColumns
from weft.series.examples import read_examples
from weft.server.errors import RequestError
from weft.server.operations import served_operations
from weft.tasks import get_task
from weft.tasks.classify.config import ClassifyConfig, ClassifyModelConfig
from weft.tasks.classify.convolutions import KERNEL_LENGTH, TRIPLES, ConvolutionKernels
from weft.tasks.classify.model import Classifier, LabelledBatch
from weft.tasks.example_kind import choose_input
from weft.training.run import load_tensors, open_run

SMALL = {
    "model.hidden_size": 8,
    "model.embedding_dim": 8,
    "train.epochs": 25,
    "batch.size": 8,
    "train.precision": "float32",
}


def waves(count=40, seed=0):
    """Pairs of a series of two channels, unequal in length, and its label: slow or quick waves."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        steps = int(rng.integers(20, 35))
        quick = number % 2
        phase = rng.uniform(0, 6)
        wave = np.sin(np.arange(steps) * (1.5 if quick else 0.5) + phase)
        values = np.stack([1000 + 50 * wave, rng.normal(size=steps)], 1)
        if number % 5 == 0:
            values[rng.integers(steps), 0] = np.nan
        found.append((values, "quick" if quick else "slow"))
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return weft.train_classify(waves(), tmp_path_factory.mktemp("waves") / "run", SMALL, progress=False)


def test_it_learns_and_says_so(model):
    found = model.evaluate(waves(30, seed=1))
    assert found.accuracy > 0.9
    assert model.input.field.channels == ("y1", "y2")
    assert model.input.field.means[0] == pytest.approx(1000, abs=10)
    record = model.evaluation().to_json()
    assert record["series"] == 4
    assert "texts" not in record


def test_every_form_of_the_same_data_gives_the_same_labels(model, tmp_path):
    pairs = waves(6, seed=2)
    expected = [one.probabilities for one in model.classify([values for values, _ in pairs])]
    lists = [np.where(np.isnan(values), None, values).tolist() for values, _ in pairs]
    assert [one.probabilities for one in model.classify(lists)] == expected
    rows = [
        [number, step, *("" if np.isnan(one) else repr(float(one)) for one in values[step]), label]
        for number, (values, label) in enumerate(pairs)
        for step in range(len(values))
    ]
    path = tmp_path / "long.csv"
    text = "\n".join(",".join(map(str, row)) for row in [["id", "time", "a", "b", "label"], *rows])
    path.write_text(text + "\n")
    read = read_examples(str(path), SeriesColumns())
    assert read.labels == [label for _, label in pairs]
    assert [one.probabilities for one in model.classify(list(read.series))] == expected
    assert [one.text for one in model.classify(list(read.series))] == list("012345")


def test_a_row_alone_equals_the_row_in_a_batch(model):
    values = [one for one, _ in waves(9, seed=3)]
    together = model.classify(values)
    for one, found in zip(values, together, strict=True):
        (alone,) = model.classify([one])
        assert alone.label == found.label
        assert alone.probability == pytest.approx(found.probability, abs=1e-6)
    parts = [model.input.parts(model.input.given([one], model.layout).values[0]) for one in values]
    features = model.wide.kernels.of(parts)
    assert all((model.wide.kernels.of([part])[0] == row).all() for part, row in zip(parts, features, strict=True))


def test_what_stands_in_the_padding_and_under_the_mask_changes_nothing():
    torch.manual_seed(0)
    settings = ClassifyModelConfig(hidden_size=5, embedding_dim=4)
    network = Classifier(ChannelLayer(2, settings.embedding_dim, settings.embedding_dropout), 3, settings).eval()
    x, lengths = torch.randn(3, 6, 2), torch.tensor([6, 2, 4])
    x[0, 1, 0] = torch.nan
    other = x.clone()
    other[1, 2:] = torch.nan
    other[2, 4:] = 1e6
    assert network(x, lengths).logits.equal(network(other, lengths).logits)
    assert network(x, lengths).logits.isfinite().all()
    # A layer that has seen no missing value reads one as the mean.
    filled = x.nan_to_num(0.0)
    assert network(x, lengths).logits.equal(network(filled, lengths).logits)


@pytest.mark.parametrize("embedding_dim", [0, 4])
def test_battery(embedding_dim):
    torch.manual_seed(1)
    settings = ClassifyModelConfig(hidden_size=5, embedding_dim=embedding_dim, embedding_dropout=0.2)
    network = Classifier(ChannelLayer(2, settings.embedding_dim, settings.embedding_dropout), 3, settings)
    x = torch.randn(4, 9, 2)
    lengths, labels = torch.tensor([9, 3, 7, 1]), torch.tensor([0, 2, 1, 1])
    batch = LabelledBatch(x, lengths, labels)
    parts = [LabelledBatch(*(part[begin:end] for part in batch)) for begin, end in ((0, 1), (1, 4))]
    check_model(network, batch, parts)


def test_features_are_shares_of_responses_above_thresholds():
    """Compared with loops over kernels, steps and channels."""
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(steps, 3)) for steps in (17, 9, 30)]
    kernels = ConvolutionKernels.fit(series, seed=3)
    (found,) = kernels.of([series[1]])
    assert len(found) == kernels.size
    expected = []
    x = series[1].astype(np.float32)
    for place, dilation in enumerate(kernels.dilations.tolist()):
        for column in range(kernels.thresholds.shape[2]):
            for kernel, places in enumerate(TRIPLES.tolist()):
                threshold = kernels.thresholds[place, kernel, column]
                if np.isnan(threshold):
                    continue
                channels = [one for one in kernels.channels[place, kernel].tolist() if one < 3]
                above = 0
                for step in range(len(x)):
                    total = 0.0
                    for offset in range(KERNEL_LENGTH):
                        at = step + (offset - KERNEL_LENGTH // 2) * dilation
                        if 0 <= at < len(x):
                            total += (2 if offset in places else -1) * float(x[at, channels].sum())
                    above += total > threshold
                expected.append(above / len(x))
    assert np.mean(np.abs(found - expected) < 1e-6) > 0.999  # sums in another order may fall on the other side


def test_a_resumed_training_has_the_bits_of_one_without_a_stop(tmp_path):
    settings = {**SMALL, "train.epochs": 3, "train.save_seconds": 0}
    for _ in weft.start_classify(waves(), tmp_path / "straight", settings).trainer.run():
        pass
    for number, _ in enumerate(weft.start_classify(waves(), tmp_path / "broken", settings).trainer.run()):
        if number == 7:
            break
    for _ in weft.resume_classify(open_run(tmp_path / "broken")).trainer.run():
        pass
    for name in ("weights.safetensors", "linear.safetensors"):
        one, other = (load_tensors(tmp_path / run / name).tensors for run in ("straight", "broken"))
        assert one.keys() == other.keys()
        assert all(one[key].nan_to_num().equal(other[key].nan_to_num()) for key in one), name


def test_fine_tuning_keeps_the_channels(model, tmp_path):
    tuned = weft.start_classify(waves(20, seed=4), tmp_path / "tuned", {"train.epochs": 1}, from_run=model.run)
    assert tuned.run.fields["series"] == model.run.fields["series"]
    with pytest.raises(WeftError, match="3 channels"):
        weft.start_classify(
            [(np.ones((9, 3)), "quick"), (np.ones((9, 3)), "slow")], tmp_path / "other", from_run=model.run
        )


def test_ensembles_and_a_network_alone(tmp_path):
    settings = {**SMALL, "train.members": 2, "train.epochs": 2, "model.wide": False}
    found = weft.train_classify(waves(), tmp_path / "run", settings, progress=False)
    assert found.wide is None
    assert len(found.classify([waves(1)[0][0]])) == 1


def test_look_inside_names_the_steps(model):
    text = json.dumps([[1000 + 10 * step, 0.5] for step in range(8)])
    steps = tuple(map(str, range(8)))
    found = probes.evidence(model, text)
    assert (found.steps, found.ngrams, len(found.integrated)) == (steps, None, 8)
    assert found.prediction in ("quick", "slow")
    assert probes.activations(model, text).layers[0].steps == steps
    assert probes.gradient_flow(model, text).layers[0].steps == steps


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ([("a text", "x")], "text"),
        (waves(2), "series"),
        ((np.zeros((2, 5)), ["a", "b"]), "series"),
        ({"text": ["one", "two"], "label": ["a", "b"]}, "text"),
        ({"id": [1, 1, 2, 2], "x": [0.5, 1, 2, 3], "label": ["a", "a", "b", "b"]}, "series"),
    ],
)
def test_what_the_examples_are(source, kind):
    assert choose_input(source, ClassifyConfig().data) == kind


def test_arrays_have_their_channels_first_as_in_other_libraries():
    values = np.arange(24.0).reshape(2, 3, 4)
    read = read_examples((values, [1, 2.0]), SeriesColumns())
    assert read.labels == ["1", "2"]
    assert (read.series.series[1].target == values[1].T).all()


def test_a_table_with_a_row_for_each_series(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("label,t1,t2,t3,t4\nu,1,2,3,4\nv,2,3,4,\n")
    read = read_examples(str(path), SeriesColumns())
    assert [one.target[:, 0].tolist() for one in read.series] == [[1, 2, 3, 4], [2, 3, 4]]
    assert (read.labels, read.places[1]) == (["u", "v"], f"{path}:3")


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        (waves(), {"model.word_vectors": "x.txt"}, "word_vectors"),
        (waves(), {"data.teacher": "runs/x"}, "teacher"),
        ([("a b", "x"), ("c d", "y")], {"data.input": "series"}, "a b.*expected numbers"),
        ([(np.ones(9), "x")] * 3, {}, "all 3 examples have the label"),
        ({"id": [1, 1], "x": [1.0, 2.0], "label": ["a", "b"]}, {}, "'a' and 'b'"),
        (np.ones((3, 9)), {}, "without labels"),
    ],
)
def test_mistakes(tmp_path, source, settings, message):
    with pytest.raises(WeftError, match=message):
        weft.start_classify(source, tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


def test_wrong_values_to_classify(model):
    with pytest.raises(WeftError, match="channels"):
        model.classify([[1, 2, 3]])
    with pytest.raises(WeftError, match="`column`"):
        model.read_inputs(model.operations["classify"], (), "x.csv", column="a")
    with pytest.raises(WeftError, match=r"step 2 of channel 'y1' is 1e\+60; expected values as in the training"):
        model.classify([[[1, 2], [1e60, 2]]])


def test_a_request_with_values_has_a_label_as_answer(model):
    served = served_operations(get_task("classify"), model.run, model)["classify"]
    options = served.read_options({})
    value = [[1000, 0.5], [1010.5, None], [990, 1]]
    served.check_inputs([value], options)
    (record,) = served.predict([value], options)
    assert record["label"] in ("quick", "slow")
    for wrong in ("a text", [[1, 2, 3]], [[1, "a"]]):
        with pytest.raises(RequestError):
            served.check_inputs([wrong], options)


def test_what_a_table_contains_is_said(tmp_path):
    rows = [f"{series},{step},{np.sin(step + series)},{'ab'[series % 2]}" for series in range(12) for step in range(9)]
    (tmp_path / "x.csv").write_text("\n".join(["id,time,x,label", *rows]) + "\n")
    started = weft.start_classify(tmp_path / "x.csv", tmp_path / "run", {**SMALL, "model.wide": False})
    assert "x.csv contains series (by its columns)" in started.summary


def test_requests_have_the_schema_of_the_series(model):
    (inputs,) = [one.inputs for one in model.operations.values() if one.name == "classify"]
    assert inputs.schema["type"] == "array"
    assert inputs.schema["items"]["minItems"] == 2
