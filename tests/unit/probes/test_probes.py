"""The probes on runs of every task, and their numbers against independent ones."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import weft
from tests.checks.probes import check_probes
from weft import probes
from weft.config import load_config
from weft.decoding import beam_search
from weft.decoding.beam_search import beam_tree
from weft.errors import WeftError
from weft.nn import Recurrent
from weft.probes.jacobian import step_jacobian, unrolled_jacobian
from weft.probes.laid_over import align_tokens
from weft.probes.parts import get_network, unknown_tokens
from weft.probes.registry import all_probes
from weft.probes.units import find_phrase, inside_quotes, line_position, read_label
from weft.server.figure_words import translate_figure
from weft.tasks import get_task
from weft.tasks.inspection import Inspection, Network

TEXT = "the king sees a dog"
SETTINGS = {
    "lm": ("grammar", ["model.hidden_size=8", "model.num_layers=2", "model.cell=lstm", "text.limit=4000"]),
    "fill": ("grammar", ["model.hidden_size=6", "model.embedding_dim=6", "text.limit=4000", "text.min_count=1"]),
    "classify": ("grammar", ["model.hidden_size=6", "model.pooling=attention", "model.embedding_dim=5"]),
    "tag": ("grammar", ["model.hidden_size=6", "model.embedding_dim=5"]),
    "translate": ("grammar-fr", ["model.hidden_size=8", "model.embedding_dim=6"]),
}


def start(task, folder, *settings):
    """A run with random weights: nothing is trained."""
    source, own = SETTINGS[task]
    config = load_config(get_task(task).config_class, None, [*own, *settings])
    get_task(task).start(source, folder, config)
    return weft.load(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    found = {task: start(task, folder / task) for task in SETTINGS}
    limit = ["text.limit=3000", "text.tokenizer=word"]
    for task, own in (("ngram", []), ("hmm", ["model.num_states=3", "train.iterations=3"])):
        config = load_config(get_task(task).config_class, None, [*limit, *own])
        found[task] = get_task(task).train("grammar", folder / task, config)
    return found


def to_double(network, model):
    """The network in float64, for finite differences."""
    module = model.model.double()
    return replace(network, embeddings=network.embeddings.double()), module


@pytest.mark.parametrize("task", SETTINGS)
def test_every_recurrent_task_keeps_the_battery(task, tmp_path):
    settings = [] if task != "translate" else ["model.decoder=attend_before"]
    model = start(task, tmp_path / task, *settings)
    network, _ = to_double(get_network(model, TEXT), model)
    check_probes(network, initial=task != "translate")


PROBES = {
    "surprisal": {"lm", "ngram", "hmm", "fill"},
    "activations": set(SETTINGS),
    "gradient_flow": set(SETTINGS),
    "step_jacobians": set(SETTINGS),
    "gradient_terms": set(SETTINGS),
    "connectivity": set(SETTINGS),
    "evidence": set(SETTINGS),
    "attention": {"classify", "translate"},
    "beam": {"lm", "ngram", "hmm", "translate"},
    "posterior": {"hmm", "tag"},
}


@pytest.mark.parametrize(("name", "task"), list(itertools.product(PROBES, [*SETTINGS, "ngram", "hmm"])))
def test_every_probe_answers_or_refuses(name, task, models):
    probe = getattr(probes, name)
    if task not in PROBES[name]:
        with pytest.raises(WeftError, match=f"is a run of the task '{task}': it "):
            probe(models[task], TEXT)
        return
    found = probe(models[task], TEXT)
    for one in found if isinstance(found, tuple) else (found,):
        json.dumps(one.to_dict(), allow_nan=False)
        records = list(one.records())
        assert records
        assert all(record.keys() == records[0].keys() for record in records) or name in ("activations", "gradient_flow")


def test_surprisal_is_the_likelihood_of_the_text(models):
    for task in ("lm", "ngram", "hmm"):
        model = models[task]
        found = probes.surprisal(model, TEXT, top=3)
        expected = model.evaluate_tokens(np.array(model.text_field.encode(TEXT)))
        assert found.context == "left"
        assert math.isnan(found.nats[0])
        assert np.nansum(found.nats) == pytest.approx(expected.nats, rel=1e-5)
        assert all(len(one) == 3 for one in found.alternatives[1:])
        assert (found.entropy[1:] >= 0).all()
    assert probes.surprisal(models["fill"], TEXT).context == "both"


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm", "two-gates"])
def test_the_explicit_sum_is_the_gradient(cell):
    """dh_t/dw = sum over s of products of Jacobians, against autograd through the whole run."""
    torch.manual_seed(1)
    layer = Recurrent(weft.CELLS[cell](3, 4)).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    x = torch.randn(1, 5, 3).double()
    states = layer.record(x).states
    after = [type(states)(*parts) for parts in zip(*(part.unbind(1) for part in states), strict=True)]
    before = [layer.initial_state(1), *after[:-1]]
    norms, total = unrolled_jacobian(layer, [x[:, t] for t in range(4, -1, -1)], before[::-1])
    outputs, _ = layer(x)
    rows = [
        torch.cat([one.flatten() for one in torch.autograd.grad(value, layer.cell.parameters(), retain_graph=True)])
        for value in outputs[0, 4]
    ]
    assert len(norms) == 5
    torch.testing.assert_close(total, torch.stack(rows), rtol=1e-9, atol=1e-12)


def test_step_jacobian_by_finite_differences():
    torch.manual_seed(2)
    layer = Recurrent(weft.CELLS["lstm"](3, 4)).double()
    state = type(layer.initial_state(1))(torch.randn(1, 4).double(), torch.randn(1, 4).double())
    x = torch.randn(1, 3).double()
    jacobian = step_jacobian(layer, layer.cell.project(x), state)

    def after(flat):
        new, _ = layer.cell.step(layer.cell.project(x), type(state)(flat[None, :4], flat[None, 4:]))
        return torch.cat(tuple(new), -1)[0]

    flat = torch.cat(tuple(state), -1)[0]
    moves = torch.eye(8).double() * 1e-6
    expected = torch.stack([(after(flat + move) - after(flat - move)) / 2e-6 for move in moves], 1)
    torch.testing.assert_close(jacobian, expected, rtol=1e-6, atol=1e-8)


def test_terms_and_jacobians_have_names(models):
    (low, high) = probes.gradient_terms(models["lm"], TEXT, position=4)
    assert (low.name.layer, high.name.layer) == (0, 1)
    assert low.positions == (0, 1, 2, 3, 4)
    assert low.weights == sum(p.numel() for p in models["lm"].model.stack.layers[0].parameters())
    (one,) = probes.step_jacobians(models["lm"], TEXT, layer=1)
    assert (one.radius <= one.norm + 1e-6).all()
    backward = probes.gradient_terms(models["tag"], TEXT, position=0, layer=0, direction="backward")[0]
    assert backward.positions == (4, 3, 2, 1, 0)


def test_large_layers_have_no_explicit_sum(tmp_path):
    model = start("lm", tmp_path / "large", "model.hidden_size=64", "model.num_layers=1")
    with pytest.raises(
        WeftError, match=r"each term would take .* GB; expected at most 20,000 weights\. Try: the view `gradient`"
    ):
        probes.gradient_terms(model, TEXT)
    assert probes.gradient_flow(model, TEXT, predictions=[-1]).predictions == (len(TEXT) - 2,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: probes.activations(m["lm"], TEXT, layer=5), "there is no layer 5; expected one of: 0, 1"),
        (lambda m: probes.activations(m["lm"], TEXT, direction="backward"), "there is no direction 'backward'"),
        (lambda m: probes.activations(m["lm"], TEXT, stack="encoder"), "there is no stack 'encoder'"),
        (lambda m: probes.gradient_flow(m["lm"], TEXT, predictions=[99]), "there is no prediction 99"),
        (lambda m: probes.gradient_terms(m["lm"], TEXT, position=99), "there is no position 99"),
        (lambda m: probes.surprisal(m["lm"], ""), "has 0 tokens as the model reads it"),
        (lambda m: probes.connectivity(m["lm"], TEXT, method="magic"), "the method is 'magic'"),
        (lambda m: probes.surprisal(m["lm"], 3), "the text is a int"),
        (lambda m: probes.surprisal("runs/mine", TEXT), "is no loaded run"),
        (lambda m: probes.top_passages(m["lm"], [TEXT], unit=99), "has no unit 99; expected 0 to 7"),
        (lambda m: probes.top_passages(m["lm"], [], unit=0), "the corpus is empty"),
        (lambda m: probes.correlate_units(m["lm"], [TEXT], "rhyme"), "the label is 'rhyme'"),
        (lambda m: probes.select_units(m["lm"], TEXT, "queen"), "is not made of whole tokens"),
        (lambda m: probes.beam(m["lm"], TEXT, width=0), "the beam width is 0"),
    ],
)
def test_mistakes_have_one_message(call, message, models):
    with pytest.raises(WeftError, match=message):
        call(models)


def test_a_decoder_without_attention(tmp_path):
    model = start("translate", tmp_path / "state", "model.decoder=state")
    with pytest.raises(WeftError, match=r"it has no attention: it was trained with model.decoder=state"):
        probes.attention(model, TEXT)


def test_attention_rows_sum_to_one(models):
    for task in ("classify", "translate"):
        found = probes.attention(models[task], TEXT)
        assert found.weights.shape == (len(found.queries), len(found.steps))
        np.testing.assert_allclose(found.weights.sum(1), 1, rtol=1e-5)


class Bigrams:
    """A stepper of random bigrams."""

    def __init__(self, size=6, seed=0):
        self.table = torch.randn(size, size, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)

    def initial_state(self, rows):
        return torch.zeros(rows, 1)

    def step(self, ids, state):
        return self.table[ids], state

    def select(self, state, rows):
        return state[rows]


@pytest.mark.parametrize(("seed", "width", "alpha"), list(itertools.product(range(5), (1, 3), (0.0, 0.75))))
def test_the_beam_tree_is_the_search(seed, width, alpha):
    given = {"width": width, "end": 2, "alpha": alpha, "banned": [5], "n_best": 1}
    tree = beam_tree(Bigrams(seed=seed), [0], tokens=6, **given)
    (expected,) = beam_search(Bigrams(seed=seed), [[0]], tokens=[6], **given)
    assert list(tree.results) == expected
    for number, node in enumerate(tree.nodes):
        assert node.parent < number
        above = tree.nodes[node.parent].log_prob if node.parent >= 0 else 0.0
        before = tree.nodes[node.parent].id if node.parent >= 0 else 0
        assert node.log_prob == pytest.approx(above + float(Bigrams(seed=seed).table[before, node.id]))
        assert node.id != 5
        assert node.reason
        assert node.parent < 0 or tree.nodes[node.parent].status == "kept"
    for step in {node.step for node in tree.nodes}:
        kept = [node.log_prob for node in tree.nodes if node.step == step and node.status != "outranked"]
        dropped = [node.log_prob for node in tree.nodes if node.step == step and node.status == "outranked"]
        assert len(kept) <= width
        assert not dropped or max(dropped) <= min(kept)
    best = max((node for node in tree.nodes if node.status in ("ended", "cut")), key=lambda node: node.score)
    assert best.score == pytest.approx(expected[0].score)


def test_the_best_hypothesis_is_marked(models):
    found = probes.beam(models["translate"], TEXT, width=2)
    path = [one for one in found.hypotheses if one.best]
    assert [one.step for one in path] == list(range(1, len(path) + 1))
    ends = path[-1].status == "ended"
    assert tuple(one.token for one in path[: -1 if ends else None]) == found.result
    assert path[-1].score == pytest.approx(found.score)


@pytest.mark.parametrize("name", ["translate", "lm"])
def test_a_beam_goes_on_from_a_prefix(models, name):
    """The hypotheses after a prefix are those below it in the tree of the whole search, with the same probabilities."""
    model = models[name]
    whole = probes.beam(model, TEXT, width=3).hypotheses
    first = next(one for one in whole if one.best)
    below = {one.token: one.log_prob - first.log_prob for one in whole if one.parent == whole.index(first)}
    after = probes.beam(model, TEXT, width=3, prefix=[first.token]).hypotheses
    found = {one.token: one.log_prob for one in after if one.parent < 0}
    assert found.keys() == below.keys()
    assert all(found[token] == pytest.approx(value, abs=1e-5) for token, value in below.items())
    with pytest.raises(WeftError, match=r"the token 'never-seen' is not in the vocabulary"):
        probes.beam(model, TEXT, prefix=["never-seen"])


def test_posterior_of_an_hmm_by_enumeration(models):
    model, text = models["hmm"], "the king sees"
    hmm, ids = model.model, model.text_field.encode(text)
    found = probes.posterior(model, text)
    T, K = len(ids), hmm.states
    shares, total, best = np.zeros((T, K)), 0.0, (0.0, ())
    for path in itertools.product(range(K), repeat=T):
        p = float(hmm.initial[path[0]]) * math.prod(float(hmm.transition[a, b]) for a, b in itertools.pairwise(path))
        p *= math.prod(float(hmm.emission[state, one]) for state, one in zip(path, ids, strict=True))
        total, best = total + p, max(best, (p, path))
        for t, state in enumerate(path):
            shares[t, state] += p
    np.testing.assert_allclose(found.marginals, shares / total, atol=1e-9)
    assert found.log_likelihood == pytest.approx(math.log(total))
    assert found.viterbi == best[1]
    assert found.viterbi_log_prob == pytest.approx(math.log(best[0] / total))
    emitted = hmm.emission[:, ids].T.log().numpy()
    held = found.forward + emitted + found.backward
    np.testing.assert_allclose(np.log(np.exp(held).sum(1)), found.log_likelihood, rtol=1e-9)


def test_posterior_of_a_tagger(models):
    found = probes.posterior(models["tag"], TEXT)
    (tagged,) = models["tag"].tag([TEXT])
    assert tuple(found.states[state] for state in found.viterbi) == tagged.tags
    np.testing.assert_allclose(found.marginals.sum(1), 1, rtol=1e-6)
    confidence = found.marginals[np.arange(len(found.steps)), found.viterbi]
    np.testing.assert_allclose(confidence, tagged.confidence, rtol=1e-5)


def test_evidence_by_hand(models):
    model = models["classify"]
    network = get_network(model, TEXT)
    found = probes.evidence(model, TEXT)
    (whole,) = model.classify([TEXT])
    assert found.prediction == whole.label
    assert found.probability == pytest.approx(whole.probability, rel=1e-4)
    np.testing.assert_allclose(found.pooling, whole.weights, rtol=1e-4)
    order = network.logits(network.embeddings)[0, 0].argsort(descending=True)
    assert found.against == network.classes[order[1]]

    def odds(text):
        probabilities = model.classify([text])[0].probabilities
        return math.log(probabilities[found.prediction] / probabilities[found.against])

    without = " ".join(word for place, word in enumerate(found.steps) if place != 2)
    assert found.occlusion[2] == pytest.approx(odds(TEXT) - odds(without), abs=1e-5)


def test_evidence_of_a_tagger_by_hand(models):
    network = get_network(models["tag"], TEXT)
    found = probes.evidence(models["tag"], TEXT, position=1)
    x = network.embeddings.clone()
    x[0, 2] = 0
    target, against = network.targets[1], list(network.classes).index(found.against)
    before, after = (network.logits(one)[0, 1].log_softmax(-1).tolist() for one in (network.embeddings, x))
    expected = before[target] - before[against] - after[target] + after[against]
    assert found.occlusion[2] == pytest.approx(expected, abs=1e-5)


def test_the_colours_of_evidence_begin_at_one(models):
    found = probes.evidence(models["classify"], TEXT)
    weak, strong = (replace(found, occlusion=scale * found.occlusion) for scale in (1e-3, 1e6))
    assert weak.figures()[0].limits == (-1.0, 1.0)
    assert strong.figures()[0].limits[1] == pytest.approx(np.abs(strong.occlusion).max())
    ngrams = replace(found, ngrams=100 + found.integrated)
    assert [figure.title.split(":")[0] for figure in ngrams.figures()][:3] == [
        "N-grams", "Occlusion", "Integrated gradients"
    ]  # fmt: skip
    less = replace(found, ngrams=0 * found.integrated).figures()
    assert [figure.title.split(" ")[0] for figure in less][:3] == ["Occlusion:", "Integrated", "N-grams:"]
    assert "through the network alone" in less[1].title


def test_evidence_does_not_saturate(models):
    """A prediction of 100 % has evidence like one of 60 %, in a fixed proportion to its logits."""
    model = models["classify"]
    modest = probes.evidence(model, TEXT)
    output = model.model.output
    before = {name: value.clone() for name, value in output.state_dict().items()}
    try:
        with torch.no_grad():
            for parameter in output.parameters():
                parameter *= 1000
        certain = probes.evidence(model, TEXT)
    finally:
        output.load_state_dict(before)
    assert certain.probability == pytest.approx(1)
    for name in ("occlusion", "integrated"):
        values, largest = getattr(modest, name), np.abs(getattr(modest, name)).max()
        assert largest > 1e-4
        np.testing.assert_allclose(getattr(certain, name), 1000 * values, atol=10 * largest)


def test_evidence_where_no_other_class_is_possible(monkeypatch):
    network = Network(("a", "b"), torch.ones(1, 2, 3), lambda x: x.sum((1, 2))[:, None, None], ("x",), (0,), ("x",), {})
    monkeypatch.setattr(
        sys.modules["weft.probes.evidence"], "inspect", lambda model, text: Inspection(network=lambda: network)
    )
    found = probes.evidence(None, "a b")
    assert (found.prediction, found.against, found.probability) == ("x", "", 1)
    assert not found.occlusion.any()
    assert not found.integrated.any()


def test_units(models):
    model, corpus = models["lm"], [f"{TEXT}.\n" * 3, "a dog sees the king.\n"]
    found = probes.top_passages(model, corpus, unit=2, layer=0, count=2)
    states = [probes.activations(model, text, layer=0).layers[0].states["h"][:, 2] for text in corpus]
    assert found.passages[0].values[found.passages[0].peak] == pytest.approx(max(map(max, states)), rel=1e-4)
    assert found.passages[0].steps[found.passages[0].peak] == corpus[found.passages[0].text][found.passages[0].position]
    correlated = probes.correlate_units(model, corpus, "line-position")
    strongest = correlated.units[0]
    assert len(correlated.units) == 16
    layer = [probes.activations(model, text, layer=strongest.layer).layers[0].states["h"] for text in corpus]
    x = np.concatenate([part[:, strongest.unit] for part in layer])
    y = [position for text in corpus for line in text.splitlines() for position in range(len(line) + 1)]
    assert correlated.correlations[0] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-4)
    selected = probes.select_units(model, TEXT, "king", threshold=0.0)
    for one in selected.units:
        h = one.sign * probes.activations(model, TEXT, layer=one.unit.layer).layers[0].states["h"][:, one.unit.unit]
        assert (h[4:8] >= 0).all()
        assert max(h[3], h[8]) < 0


def test_phrases_and_labels():
    assert find_phrase(["the", " king", " sees"], "king sees") == (1, 3)
    assert line_position(list("ab\nc")) == [0, 1, 2, 0]
    assert inside_quotes(list('a"b"c')) == [0, 1, 1, 1, 0]
    assert inside_quotes(list("说「好」。")) == [0, 1, 1, 1, 0]


def test_labels_from_a_file(tmp_path, models):
    path = tmp_path / "labels.txt"
    path.write_text(" ".join("1" if one == " " else "0" for one in TEXT), encoding="utf-8")
    found = probes.correlate_units(models["lm"], [TEXT], read_label(path), name="space")
    assert found.label == "space"
    with pytest.raises(WeftError, match="19 values; expected one for each token"):
        probes.correlate_units(models["lm"], [TEXT, TEXT], read_label(path))


def test_without_pandas_the_message_says_so(models, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(WeftError, match="pandas is not installed"):
        probes.surprisal(models["lm"], TEXT).to_dataframe()


def test_two_models_on_one_text(models):
    """A model of characters and a model of words, laid over the words."""
    text = "the king sees a dog ."
    found = probes.compare_surprisal(models["lm"], models["ngram"], text)
    own, its = probes.surprisal(models["lm"], text), probes.surprisal(models["ngram"], text)
    assert "".join(found.steps).split() == text.split()
    assert len(found.steps) == 6
    np.testing.assert_allclose(found.second_nats, its.nats)
    assert math.isnan(found.difference[0])
    np.testing.assert_allclose(found.first_nats[1], own.nats[4:9].sum())
    np.testing.assert_allclose(found.first_nats[1:].sum(), own.nats[4:].sum())
    np.testing.assert_allclose(found.difference[1:], its.nats[1:] - found.first_nats[1:])
    with pytest.raises(WeftError, match=r"the models read different text: 'Theking' and 'theking'"):
        align_tokens(["The", "king"], ["the", "king"])


@pytest.mark.parametrize(
    ("one", "other", "tokens", "starts"),
    [
        (["a", "b"], ["a", "b"], ("a", "b"), ([0, 1], [0, 1])),
        (["ab", "c"], ["a", "bc"], ("abc",), ([0], [0])),
        (["国王", "看见"], ["国", "王", "看", "见"], ("国王", "看见"), ([0, 1], [0, 2])),
        (["a", " ", "b", "\n"], ["a", "b"], ("a ", "b\n"), ([0, 2], [0, 1])),
    ],
)
def test_tokens_of_two_tokenizers(one, other, tokens, starts):
    assert align_tokens(one, other) == (tokens, starts)
    assert align_tokens(other, one)[1] == starts[::-1]


def test_a_batch_of_texts(models):
    texts = [TEXT, "a dog"]
    batch = probes.probe_texts(lambda text: probes.surprisal(models["lm"], text), texts)
    alone = [probes.surprisal(models["lm"], text).to_dict() for text in texts]
    assert batch.to_dict()["results"] == [[one] for one in alone]
    assert [record["text"] for record in batch.records()] == [0] * len(TEXT) + [1] * len("a dog")
    layers = probes.probe_texts(lambda text: probes.step_jacobians(models["lm"], text), texts)
    assert [len(found) for found in layers.results] == [2, 2]
    with pytest.raises(WeftError, match="the texts are one string"):
        probes.probe_texts(lambda text: probes.surprisal(models["lm"], text), TEXT)


def test_confusion(models):
    for task in ("classify", "tag"):
        found = probes.confusion(models[task])
        scores = models[task].evaluate_held_out()
        assert found.accuracy == pytest.approx(scores.score())
        assert found.counts.trace() / found.counts.sum() == pytest.approx(found.accuracy)
    given = probes.confusion(models["classify"], [("the king sees a dog .", "singular")])
    assert found.labels == models["tag"].tags
    assert given.counts[given.labels.index("singular")].sum() == given.counts.sum() == 1
    with pytest.raises(WeftError, match="it has no labels to confuse"):
        probes.confusion(models["lm"])


def test_every_result_is_a_table(models):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for name, tasks in PROBES.items():
        found = getattr(probes, name)(models[min(tasks)], "the king")
        one = found[0] if isinstance(found, tuple) else found
        table, records = one.to_dataframe(), list(one.records())
        assert isinstance(table, pandas.DataFrame)
        assert len(table) == len(records)
        assert set(table.columns) == {key for record in records for key in record}


@pytest.mark.parametrize("task", ["ngram", "classify", "translate"])
def test_tokens_of_a_text_that_a_model_reads_as_unknown(models, task):
    assert unknown_tokens(models[task], "zqx") == (["zqx"] if task != "translate" else ["z"])


def test_a_table_without_pandas(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(WeftError, match=r"pandas is not installed; expected pandas. Try: pip install pandas"):
        probes.surprisal(models["lm"], TEXT).to_dataframe()


@pytest.mark.parametrize("task", ["lm", "classify", "tag", "translate", "hmm"])
def test_figures_of_probes_have_words_in_chinese(models, task):
    """What weft writes into them is translated, in whole; tokens, numbers and labels of data are not."""
    for name, probe in all_probes().items():
        text, options = (TEXT, {"unit": 1, "phrase": None}) if name == "units" else (TEXT, {})
        try:
            figures = probe.draw(probe.look(models[task], text, options), options)
        except WeftError:
            continue  # not a probe of this model
        for figure in figures:
            chinese = translate_figure(figure, "zh")
            for field in ("title", "label", "x_label", "y_label", "row_title", "column_title"):
                english = getattr(figure, field, "")
                assert len(english) < 2 or re.search("[\u4e00-\u9fff]", getattr(chinese, field)), (name, english)
