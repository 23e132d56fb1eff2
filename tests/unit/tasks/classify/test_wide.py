"""The n-gram models beside the network: their features, their optimum, their mixture, and what a run stores of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import shutil
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import weft
from weft.errors import WeftError, WeftWarning
from weft.tasks.classify import task
from weft.tasks.classify.linear import (
    FITS,
    IDF,
    IDF_C,
    LOGISTIC,
    NBSVM,
    LinearProblem,
    fit_idf_logistic,
    fit_logistic,
    fit_nbsvm,
    log_count_ratios,
    softmax_loss,
    squared_hinge,
)
from weft.tasks.classify.mixing import (
    CROSS_FITTED_TEXTS,
    DEFAULT_PRIOR,
    MixturePrior,
    MixtureWeights,
    fit_blend,
    fit_mixture,
    fit_prior,
)
from weft.tasks.classify.ngram_features import (
    PASSAGE,
    NgramKeys,
    TextKeys,
    binary_features,
    most_frequent,
    mostly_long,
    scaled_features,
)
from weft.tasks.classify.predictor import compare_classifiers
from weft.tasks.classify.task import TASK, epochs_for_texts
from weft.tasks.classify.wide import (
    LINEAR_FILE,
    blended,
    fitted_scores,
    folds,
    held_out_scores,
    is_worthwhile,
    join_fitted,
)
from weft.training.run import WEIGHTS, load_tensors, save_tensors

CLASS_WEIGHTS = torch.tensor([0.5, 2.0, 1.25])
WORDS = ["good", "bad", "film", "book", "a", "the", "not", "very", "!", "好", "书", "很"]


def texts_and_labels(count=60, labels=3, seed=0):
    rng = random.Random(seed)
    texts = [[rng.choice(WORDS) for _ in range(rng.randint(1, 9))] for _ in range(count)]
    return texts, torch.tensor([(text.count("good") + 2 * text.count("bad")) % labels for text in texts])


def spelled_out(tokens):
    """The features of a text by their definition, as names."""
    found = {("t", token) for token in tokens} | {("t", *pair) for pair in itertools.pairwise(tokens)}
    for n in (3, 4):
        runs = zip(*(tokens[start:] for start in range(n)), strict=False)
        found |= {("t", *run) for run in runs if all(len(token) == 1 for token in run)}
    for word in (f"<{token}>" for token in tokens if len(token) > 1):
        found |= {("c", word[i : i + n]) for n in (3, 4, 5) for i in range(len(word) - n + 1)}
    return found


def test_features_are_those_of_the_definition():
    texts, _ = texts_and_labels(200)
    names, reader = {}, NgramKeys(characters=True)
    for text in texts:
        keys = reader.of(text)
        assert len(keys.tokens) + len(keys.characters) == len(spelled_out(text))
        names[frozenset(np.concatenate(keys).tolist())] = frozenset(spelled_out(text))
        assert {one.key for one in reader.occurrences(text)} == set(np.concatenate(keys).tolist())
    by_key, by_name = [set().union(*sets) for sets in (names, names.values())]
    assert len(by_key) == len(by_name)  # one key for each name
    assert [len(one) for one in names] == [len(one) for one in names.values()]


def test_a_long_text_has_the_ngrams_of_its_beginning_and_end_too():
    reader = NgramKeys(characters=True)
    words = [f"w{number}" for number in range(2 * PASSAGE + 1)]
    short, long = reader.of(words[:-1]), reader.of(words)
    assert not len(short.beginning)
    assert not len(short.end)
    assert len(long.beginning) == len(long.end) == PASSAGE + PASSAGE - 1  # tokens and pairs
    assert len(set(np.concatenate(long).tolist())) == sum(map(len, long))  # no key is in two groups
    swapped = reader.of(words[PASSAGE + 1 :] + words[PASSAGE : PASSAGE + 1] + words[:PASSAGE])
    assert not np.isin(long.end, swapped.end).any()
    moved = reader.of([*words[:PASSAGE], "new", "words", *words[PASSAGE:]])
    assert (moved.beginning == long.beginning).all()
    assert (moved.end == long.end).all()
    found = [one for one in reader.occurrences(words) if one.key in set(long.end.tolist())]
    assert {(one.begin, one.end) for one in found if one.end - one.begin == 1} == {
        (place, place + 1) for place in range(PASSAGE + 1, 2 * PASSAGE + 1)
    }
    assert {one.key for one in reader.occurrences(words)} == set(np.concatenate(long).tolist())


def test_groups_have_length_one():
    reader = NgramKeys(characters=True)
    keys = [reader.of(["good", "film", "good"]), reader.of(["好", "书", "ab"])]
    features = scaled_features(keys, most_frequent(keys, 100))
    first = features.values[: features.offsets[1]].square().sum()
    assert torch.isclose(first, torch.tensor(2.0))
    few = len(keys[1].characters) / len(keys[1].tokens)  # fewer character n-grams than token n-grams
    assert torch.isclose(features.values[features.offsets[1] :].square().sum(), torch.tensor(1 + few))


def dense(features, size):
    ends = [*features.offsets[1:].tolist(), len(features.ids)]
    matrix = torch.zeros(len(ends), size, dtype=torch.float64)
    for row, (begin, end) in enumerate(zip(features.offsets.tolist(), ends, strict=True)):
        matrix[row, features.ids[begin:end].long()] = features.values[begin:end].double()
    return matrix


def problem(loss, decay):
    texts, labels = texts_and_labels()
    reader = NgramKeys(characters=True)
    keys = [reader.of(text) for text in texts]
    known = most_frequent(keys, 150)  # fewer than there are
    features = scaled_features(keys, known)
    ratios = log_count_ratios(features, labels, 3, len(known))
    offset = torch.randn(len(texts), 3, generator=torch.Generator().manual_seed(1))
    return (
        LinearProblem(features, ratios, labels, decay, loss, offset, CLASS_WEIGHTS),
        dense(features, len(known)),
        labels,
    )


def test_log_count_ratios_by_hand():
    rows, labels = [[0, 1], [0], [1, 2]], torch.tensor([0, 0, 1])
    ids, offsets = torch.tensor([0, 1, 0, 1, 2], dtype=torch.int32), torch.tensor([0, 2, 3], dtype=torch.int32)
    found = log_count_ratios(
        type(binary_features([], np.zeros(1, np.uint64)))(ids, offsets, torch.ones(5)), labels, 2, 3
    )
    counts = np.array(
        [[1 + sum(f in row for row, y in zip(rows, labels, strict=True) if y == k) for k in (0, 1)] for f in range(3)]
    )
    shares = counts / counts.sum(0)
    expected = np.log(shares[:, :1] / shares[:, 1:]) * [1, -1]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["cross-entropy", "hinge"])
def test_solution_is_the_optimum(name):
    """By autograd on dense matrices in double precision: no step from the solution lowers the objective."""
    loss, decay = {"cross-entropy": (softmax_loss, 1e-3), "hinge": (squared_hinge, 1e-2)}[name]
    one, matrix, labels = problem(loss, decay)
    weights, bias = (part.double().requires_grad_() for part in one.solve())
    logits = matrix @ (weights * one.ratios.double()) + bias + one.offset.double()
    if name == "hinge":
        signs = 2 * F.one_hot(labels, 3) - 1
        fit = (1 - signs * logits).clamp(min=0).square().sum(1) @ CLASS_WEIGHTS[labels].double()
        fit = fit / CLASS_WEIGHTS[labels].sum()
    else:
        fit = F.cross_entropy(logits, labels, CLASS_WEIGHTS.double())
    (fit + decay / 2 * weights.square().sum()).backward()
    assert max(weights.grad.abs().max(), bias.grad.abs().max()) < 2e-4


def test_contributions_add_up():
    texts, labels = texts_and_labels()
    texts[0] = [word for text in texts for word in text]  # long
    reader = NgramKeys(characters=True)
    keys = [reader.of(text) for text in texts]
    for model in (fit_logistic(keys, labels, 3), fit_nbsvm(keys, labels, 3)):
        for text in texts[:10]:
            total = model.contributions(text).sum(0) + model.bias
            torch.testing.assert_close(total, model.logits([text])[0], rtol=1e-4, atol=1e-4)


def test_fine_tuning_adds_to_a_model():
    texts, labels = texts_and_labels()
    reader = NgramKeys(characters=True)
    keys = [reader.of(text) for text in texts]
    first = fit_logistic(keys, labels, 3)
    again = fit_logistic(keys[:1], labels[:1], 3, start=first)  # one text: nearly all is kept
    others = [text for text in texts if not spelled_out(text) & spelled_out(texts[0])][:5]
    old, new = first.logits(others), again.logits(others)
    torch.testing.assert_close(new - again.bias, old - first.bias, rtol=1e-4, atol=1e-4)


def test_mixture_is_the_optimum():
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(200, 4, 3, generator=generator, dtype=torch.float64)
    labels = (parts @ torch.tensor([1.0, 2.0, 0.3], dtype=torch.float64)).argmax(1)
    weights = torch.tensor(fit_mixture(parts, labels), dtype=torch.float64).requires_grad_()
    prior = DEFAULT_PRIOR.texts / 2 * (weights - torch.tensor(MixtureWeights(), dtype=torch.float64)).square().sum()
    (F.cross_entropy(parts @ weights, labels, reduction="sum") + prior).backward()
    assert weights.grad.abs().max() < 1e-3
    assert weights[1] > weights[0] > weights[2]
    assert fit_mixture(parts[:0], labels[:0]) == MixtureWeights()
    wrong = fit_mixture(-parts, labels)
    assert min(wrong) >= 0  # a model that misleads is left out, not inverted
    alone = parts[:20] * torch.tensor([5.0, 0.1, 0.1], dtype=torch.float64)
    assert fit_mixture(alone, alone[..., 0].argmax(1)).network > 0.9  # a network that is right needs no n-grams
    few = torch.tensor([[[1.0, -1.0, -1.0], [-1.0, 1.0, 1.0]]], dtype=torch.float64).expand(2, 2, 3)
    assert fit_mixture(few, torch.zeros(2).long()).logistic > 0.4  # two texts say too little to leave them out


def test_cross_fitted_prior():
    """The weights of the n-gram models are those of the training texts, and few texts cannot add a useless network."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(500, 3, 2, generator=generator, dtype=torch.float64)
    labels = (scores @ torch.tensor([2.0, 0.2], dtype=torch.float64)).argmax(1)
    prior = fit_prior(scores, labels)
    assert prior.centre.network == 0
    assert prior.centre.logistic > 1.5 > 0.7 > prior.centre.nbsvm
    assert fit_mixture(torch.zeros(0, 3, 3, dtype=torch.float64), labels[:0], prior=prior) == prior.centre
    noise = torch.randn(20, 3, 1, generator=generator, dtype=torch.float64)
    found = fit_mixture(torch.cat([noise, scores[:20]], -1), labels[:20], prior=prior)
    assert found.network < 0.1
    assert abs(found.logistic - prior.centre.logistic) < 0.2


def test_cross_fitting_scores_each_text_by_models_of_others():
    texts, _ = texts_and_labels(60)
    reader = NgramKeys(characters=True)
    keys = [reader.of(text) for text in [*texts, *texts]]  # every text twice
    found = folds(keys)
    assert sorted(row for _, inside in found for row in inside) == list(range(len(keys)))
    for others, inside in found:
        assert sorted([*others, *inside]) == list(range(len(keys)))
        assert not {keys[row].tokens.tobytes() for row in others} & {keys[row].tokens.tobytes() for row in inside}
    assert is_worthwhile(keys, 3, held_out=10)
    assert not is_worthwhile(keys, 3, held_out=1000)
    assert not is_worthwhile(keys[:10], 3, held_out=10)


PAIRS = [(f"{' '.join(text)}", str(int(label))) for text, label in zip(*texts_and_labels(120, 2), strict=True)]
SMALL = {"train.epochs": 1, "model.hidden_size": 8, "model.embedding_dim": 8}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return weft.train_classify(PAIRS, tmp_path_factory.mktemp("wide") / "run", SMALL, progress=False)


def test_prediction_is_the_mixture(trained):
    texts = [text for text, _ in PAIRS[:20]]
    alone = type(trained)(trained.run, trained.model, trained.input, trained.labels)
    network = torch.tensor([list(one.probabilities.values()) for one in alone.classify(texts)]).double().log()
    tokens = [trained.text_field.tokenizer.split(trained.text_field.normalizer(text)) for text in texts]
    parts = torch.cat([network[..., None], trained.wide.scores(tokens)], -1)
    expected = (parts @ torch.tensor(trained.mixture, dtype=torch.float64)).softmax(-1)
    found = torch.tensor([list(one.probabilities.values()) for one in trained.classify(texts)])
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)
    assert trained.mixture != MixtureWeights()  # fitted
    evidence = weft.probes.evidence(trained, texts[0])
    assert abs(evidence.probability - float(expected[0].max())) < 1e-4
    labels = [trained.labels.index(name) for name in (evidence.prediction, evidence.against)]
    added = (trained.wide.contributions(evidence.steps) @ torch.tensor(trained.mixture[1:]).double())[:, labels]
    assert evidence.ngrams == pytest.approx((added[:, 0] - added[:, 1]).tolist())
    for place in range(len(evidence.steps)):  # occlusion is of the mixture, not of its network alone
        (changed,) = trained.classify([" ".join(evidence.steps[:place] + evidence.steps[place + 1 :])])
        before, after = (
            math.log(one.probabilities[evidence.prediction] / one.probabilities[evidence.against])
            for one in (trained.classify([texts[0]])[0], changed)
        )
        assert evidence.occlusion[place] == pytest.approx(before - after, abs=1e-4)


def test_occlusion_of_a_long_text_leaves_out_what_was_read(trained):
    """The places of its last tokens are those of the whole text, and without any token it has the label frequencies."""
    config = {**trained.run.config, "data": {**trained.run.config["data"], "max_tokens": 4}}
    model = dataclasses.replace(trained, run=dataclasses.replace(trained.run, config=config))
    words = ["good", "bad", "film", "book", "a", "the", "not"]
    inspection = TASK.inspect(model, " ".join(words))
    found = inspection.without([range(0), range(3, 4), range(1, 3)])
    expected = [words, words[:-1], [words[0], *words[2:5], words[6]]]
    torch.testing.assert_close(found, model.predict(expected)[0])
    alone = TASK.inspect(model, "good").without([range(1)])
    assert alone[0].exp().tolist() == pytest.approx(list(model.prior.values()))


def test_nbsvm_is_compared(trained):
    report = compare_classifiers(trained, ["nbsvm"], None)
    assert report.record["compared"][0]["accuracy"] == TASK.resume(trained.run).trainer.phase.baselines()["NB-SVM"]
    assert report.record["accuracy"] == trained.evaluate_held_out().accuracy


def test_no_wide_path(tmp_path):
    model = weft.train_classify(PAIRS, tmp_path / "run", {**SMALL, "model.wide": False}, progress=False)
    assert model.wide is None
    assert not (tmp_path / "run" / LINEAR_FILE).exists()
    with pytest.raises(WeftError, match="without linear models"):
        compare_classifiers(model, ["nbsvm"], None)


@pytest.mark.parametrize("kind", [LOGISTIC, NBSVM])
def test_a_file_of_a_stranger(trained, kind, tmp_path):
    run = Path(shutil.copytree(trained.run.path, tmp_path / "run"))
    tensors, metadata = load_tensors(run / LINEAR_FILE)
    keys, weights, bias = (tensors[f"{kind}.{name}"] for name in ("keys", "weights", "bias"))
    wrong = [
        {"weights": weights[:, :1]},
        {"keys": keys.flip(0)},
        {"bias": bias * float("nan")},
        {"keys": keys.float()},
        {"weights": None},
    ]
    for change in wrong:
        changed = {**tensors, **{f"{kind}.{name}": value for name, value in change.items()}}
        save_tensors(run / LINEAR_FILE, {name: value for name, value in changed.items() if value is not None}, metadata)
        with pytest.raises(WeftError):
            weft.load(run)
    (run / LINEAR_FILE).unlink()
    with pytest.raises(WeftError, match="missing"):
        weft.load(run)


def test_a_resume_repeats_no_model_that_is_fitted(trained, tmp_path):
    assert max(step.number for step in weft.start_classify(PAIRS, tmp_path / "whole", SMALL).steps() if step.note) == 14
    training = weft.start_classify(PAIRS, tmp_path / "run", SMALL)
    for number in range(1, 15):
        steps = training.steps()
        step = next(steps)
        assert (step.note, step.number, step.total) == ("linear models of n-grams", number, 14)
        with pytest.warns(WeftWarning, match="the network of .* is not trained"):
            assert weft.load(tmp_path / "run").classify(["good"])[0].label  # the network as it was made
        steps.close()
        training = weft.resume_classify(tmp_path / "run")
    assert not [step for step in training.steps() if step.note]
    for name in (LINEAR_FILE, WEIGHTS):
        ours, others = (load_tensors(path / name).tensors for path in (tmp_path / "run", trained.run.path))
        assert all(torch.equal(ours[key], others[key]) for key in others)


def test_the_linear_models_are_counted_by_the_time_limit(tmp_path, monkeypatch):
    monkeypatch.setitem(FITS, LOGISTIC, lambda *args, **options: time.sleep(0.2) or fit_logistic(*args, **options))
    training = weft.start_classify(PAIRS, tmp_path / "run", {**SMALL, "train.minutes": 0.01})
    with pytest.warns(WeftWarning) as said:
        steps = list(training.steps())
    assert "preparing the data took" in str(said[0].message)
    assert "is not trained: its linear models of n-grams predict alone" in str(said[1].message)
    assert all(step.note for step in steps)
    assert steps[-1].seconds > 1
    assert not training.run.has(WEIGHTS)
    (evaluation,) = training.run.metrics()  # of the linear models
    assert evaluation["step"] == 0
    assert training.trainer.progress.best_metrics == evaluation["evaluation"]
    with pytest.warns(WeftWarning, match="linear models of n-grams predict alone"):
        model = weft.load(training.run.path)
    assert model.mixture.network == 0 < model.mixture.logistic
    assert model.evaluate_held_out().accuracy == evaluation["evaluation"]["accuracy"] > 0.8
    for parameter in model.model.parameters():  # whatever the network computes
        parameter.data.fill_(3.0)
    assert model.evaluate_held_out().accuracy == evaluation["evaluation"]["accuracy"]
    more = list(weft.resume_classify(training.run.path, {"train.minutes": 0}).steps())
    assert more[-1].best  # the first evaluation of the mixture, whatever the score of the linear models
    assert weft.load(training.run.path).mixture.network > 0


def test_an_untrained_network_without_linear_models_is_named(tmp_path):
    with pytest.warns(WeftWarning, match="run is not trained$"):
        model = weft.train_classify(PAIRS, tmp_path / "run", {**SMALL, "model.wide": False, "train.epochs": 0})
    assert model.wide is None


def test_final_models_are_fitted_to_the_drawn_texts_too(tmp_path):
    """A word of held-out texts only is a feature of the stored models; with given held-out texts it is not."""
    pairs = [(f"{text} w{number}x", label) for number, (text, label) in enumerate(PAIRS)]
    words = [NgramKeys(characters=False).of([f"w{number}x"]).tokens[0] for number in range(len(pairs))]
    drawn = weft.train_classify(pairs, tmp_path / "drawn", SMALL, progress=False)
    given = weft.train_classify(pairs[10:], tmp_path / "given", SMALL, dev=pairs[:10], progress=False)
    assert np.isin(words, drawn.wide.nbsvm.keys).all()
    assert np.isin(words, given.wide.nbsvm.keys).tolist() == [False] * 10 + [True] * (len(pairs) - 10)
    before, after = (
        held_out_scores(given.run, 10).scores,
        given.wide.scores([given.input.parts(text) for text, _ in pairs[:10]]),
    )
    torch.testing.assert_close(before, after)


def test_few_texts_are_read_more_often(tmp_path):
    training = weft.start_classify(PAIRS, tmp_path / "run", {**SMALL, "train.epochs": "auto"})
    assert training.run.config["train"]["epochs"] == 20 == epochs_for_texts(108, 32)
    assert training.choice == "20 epochs: chosen for 108 texts"
    assert epochs_for_texts(10**6, 32) == 6


@pytest.mark.parametrize("seed", [1, 2])
def test_forty_lines_make_a_useful_classifier(seed, tmp_path):
    """The four held-out texts neither drop the n-gram models nor stop the training: a word decides new texts, too."""
    things = (
        "film book meal hotel song game phone train show coat chair class lunch beach garden lamp car town play soup"
    )
    pairs = [
        (f"the {thing} was {word}", label)
        for thing in things.split()
        for word, label in (("good", "praise"), ("bad", "blame"))
    ]
    model = weft.train_classify(pairs, tmp_path / "run", {"train.seed": seed}, progress=False)
    new = [("the river was good", "praise"), ("the river was bad", "blame"), ("a good day", "praise"), ("bad", "blame")]
    found = model.classify([text for text, _ in new])
    assert [one.label for one in found] == [label for _, label in new]
    assert min(one.probability for one in found) > 0.8
    assert min(model.mixture.logistic, model.mixture.nbsvm) > 0.05


def test_a_cross_fitted_prior_gives_way_later():
    """Held-out texts that prefer the network by 3 to 6 nats replace a prior that rests on no other texts."""
    labels, truth = torch.arange(30) % 2, F.one_hot(torch.arange(30) % 2, 2).double()
    ngrams = (0.3 * truth).log_softmax(-1)

    def weight_of_ngrams(certainty: float, prior: MixturePrior) -> float:
        network = (certainty * truth).log_softmax(-1)
        return fit_mixture(torch.stack([network, ngrams, ngrams], -1), labels, None, prior).logistic

    centre = MixtureWeights(0.0, 0.9, 0.1)
    few, many = MixturePrior(centre, 30.0), MixturePrior(centre, CROSS_FITTED_TEXTS)
    given_up = [
        [weight_of_ngrams(certainty, prior) < 0.5 for certainty in (0.3, 0.6, 0.9, 1.5, 4.0)] for prior in (few, many)
    ]
    assert [one[0] for one in given_up] == [False, False]
    assert [one[-1] for one in given_up] == [True, True]
    assert sum(given_up[1]) < sum(given_up[0])


def test_a_second_logistic_regression_of_long_texts_only():
    def keys_of(length: int) -> TextKeys:
        return NgramKeys(characters=True).of([f"word{n}" for n in range(length)])

    assert mostly_long([keys_of(81), keys_of(200), keys_of(80)])
    assert not mostly_long([keys_of(81), keys_of(80)])
    assert not mostly_long([])


def test_blend_of_two_logistic_regressions():
    """The stored regression is the weighted sum of two, in the shares that texts of neither prefer."""
    texts, labels = texts_and_labels(200, 2)
    keys = [NgramKeys(characters=True).of(text) for text in texts]
    parts = [fit(keys[:100], labels[:100], 2) for fit in (fit_logistic, fit_idf_logistic, fit_nbsvm)]
    fitted = dict(zip((LOGISTIC, IDF, NBSVM), parts, strict=True))
    scores = fitted_scores(fitted, keys[100:])
    for share in (0.0, 0.3, 1.0):
        torch.testing.assert_close(
            join_fitted(fitted, share).scores(texts[100:]), blended(scores, share), rtol=1e-4, atol=1e-5
        )
    truth = F.one_hot(labels[100:], 2).double().add(0.01).log()
    noise = scores[torch.randperm(100, generator=torch.Generator().manual_seed(1))]
    assert fit_blend(torch.stack([truth, noise[..., 1], noise[..., 2]], -1), labels[100:]) < 0.1
    assert fit_blend(torch.stack([noise[..., 0], truth, noise[..., 2]], -1), labels[100:]) > 0.6
    assert abs(fit_blend(scores[:0], labels[:0]) - 1 / 7) < 1e-9  # no texts: the shares of the prior


def test_weights_by_inverse_document_frequency_are_the_optimum():
    texts, labels = texts_and_labels()
    keys = [NgramKeys(characters=True).of(text) for text in texts]
    model = fit_idf_logistic(keys, labels, 3)
    ids, offsets, values = scaled_features([text.only_tokens() for text in keys], model.keys)
    rows = torch.bucketize(torch.arange(len(ids)), offsets.long(), right=True) - 1
    dense = torch.zeros(len(texts), len(model.keys)).index_put((rows, ids.long()), values, accumulate=True)
    frequency = (dense > 0).sum(0)
    assert not model.weights[frequency < 2].any()
    inputs = (dense * (((1 + len(texts)) / (1 + frequency)).log() + 1))[:, frequency > 1]
    scale = inputs.square().sum(1).mean().rsqrt()
    factors = scale * (((1 + len(texts)) / (1 + frequency)).log() + 1)[frequency > 1, None]
    weights = (model.weights[frequency > 1] / factors).double().requires_grad_()
    bias = model.bias.double().requires_grad_()
    fit = F.cross_entropy((scale * inputs).double() @ weights + bias, labels)
    (fit + weights.square().sum() / (2 * IDF_C * len(texts))).backward()
    assert max(weights.grad.abs().max(), bias.grad.abs().max()) < 2e-4
    assert weights.abs().max() > 0.1


def test_a_training_with_many_labels_says_what_takes_long(tmp_path, monkeypatch):
    monkeypatch.setattr(task, "COSTLY_LABELS", 2)
    examples = [(f"{word} film", label) for label, word in (("a", "good"), ("b", "bad"), ("c", "long"))] * 8
    settings = {"train.epochs": 1, "model.hidden_size": 4}
    with pytest.warns(WeftWarning, match=r"3 labels: the linear models .*`model\.wide=false` leaves them out"):
        weft.train_classify(examples, tmp_path / "run", settings, progress=False)
    monkeypatch.setattr(task, "COSTLY_LABELS", 3)
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        weft.train_classify(examples, tmp_path / "few", settings, progress=False)
    assert not any("linear models" in str(one.message) for one in others)
