"""Models that start from the layers of a language model: what they take over, and how they are trained then."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from tests.program import check_kill_and_resume, fails, succeeds
from weft.config import dotted
from weft.data.windows import Window
from weft.nn import make_stack
from weft.tasks import get_task
from weft.tasks.config import LayerRates, ModelConfig
from weft.tasks.lm.model import AdaptiveLanguageModel, LanguageModel
from weft.tasks.pretraining import ENCODER_RATES, layer_groups, load_encoder, take_over_stack
from weft.text.config import CorpusConfig
from weft.text.shards import write_shards
from weft.text.text_field import Text
from weft.training.optimizer import Adam, LayerGroups, Optimizer
from weft.training.run import CHECKPOINT, open_run, with_prefix

RAW = weft.Corpus.from_texts("raw", ["a good day and a bad night , the dog runs and the cat sleeps\n" * 40])
LM = {
    "text.tokenizer": "word",
    "text.lower": True,
    "model.backward": True,
    "model.embedding_dim": 6,
    "model.hidden_size": 6,
    "batch.size": 4,
    "batch.seq_length": 8,
    "train.epochs": 1,
    "train.learning_rate": 0.02,
}
DATA = {
    "classify": [("good day", "a"), ("bad night", "b"), ("the good cat", "a"), ("bad dog !", "b")] * 6,
    "tag": [(("a", "dog", "runs"), ("D", "N", "V")), (("the", "Cat"), ("D", "N"))] * 8,
    "fill": weft.Corpus.from_texts("text", ["the dog runs and the bad cat sleeps all day\n" * 60]),
}
QUICK = {"train.epochs": 6, "batch.size": 8}


def tokens_of(path):
    return open_run(path).field("text", Text).vocabulary.tokens


def layers_of(name, model):
    """The embedding (V, E) and the stacks of a model."""
    if name == "fill":
        return model.embedding.weight[: model.blank], [model.forward_stack, model.backward_stack]
    return (model.encoder.words if name == "tag" else model.embedding).weight, [model.stack]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    for name, settings in {
        "plain": {},
        "deep": {"model.num_layers": 2, "model.softmax": "adaptive", "model.cell": "gru"},
        "tied": {"model.tied": True},
    }.items():
        weft.train("lm", RAW, folder / name, {**LM, **settings}, progress=False)
    weft.train("lm", RAW, folder / "forward", {**LM, "model.backward": False}, progress=False)
    return folder


@pytest.mark.filterwarnings("ignore::weft.WeftWarning")
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("kind", ["plain", "deep", "tied"])
def test_layers_and_vocabulary_are_those_of_the_encoder(name, kind, encoders, tmp_path):
    training = get_task(name).start(DATA[name], tmp_path / "new", QUICK, encoder=encoders / kind)
    source, lm = open_run(encoders / kind), weft.load(encoders / kind, weft.LmPredictor)
    embedding, stacks = layers_of(name, training.model)
    assert torch.equal(embedding, lm.model.embedding_table())
    saved = {key: value for stack in stacks for key, value in stack.named_parameters()}
    sides = (("forward", lm.model.stack), ("backward", lm.model.backward_stack))
    for number, (side, theirs) in enumerate(sides):
        for depth, layer in enumerate(theirs.layers):
            for key, weight in layer.cell.named_parameters():
                own = (
                    dict(stacks[number].layers[depth].cell.named_parameters())[key]
                    if len(stacks) == 2
                    else saved[f"layers.{depth}.{side}_layer.cell.{key}"]
                )
                columns = weight.shape[-1]
                begin = lm.model.stack.output_size if depth and side == "backward" and len(stacks) == 1 else 0
                taken = own[:, begin : begin + columns] if key == "weight_ih" else own
                assert torch.equal(taken, weight), (side, depth, key)
                if key == "weight_ih":  # whatever else the layer reads has no influence yet
                    assert own.count_nonzero() == weight.count_nonzero()
    tokens = source.fields["text"]["vocabulary"]["tokens"]
    kept = training.run.fields
    assert (kept["words"]["words"] if name == "tag" else kept["text"]["vocabulary"])["tokens"] == tokens
    assert training.run.from_run["path"] == str(encoders / kind)
    assert training.run.from_run["task"] == "lm"
    checkpoint = with_prefix(training.run.load(CHECKPOINT).tensors, "model.")
    assert all(torch.equal(checkpoint[key], value) for key, value in training.model.state_dict().items())
    recorded = dotted(training.run.config)
    for key, value in {**ENCODER_RATES, **get_task(name).encoder_defaults}.items():
        assert recorded[key] == value
    assert list(training.steps())
    get_task(name).load(open_run(tmp_path / "new"))  # needs nothing of the encoder's directory


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_bidirectional_stack_computes_what_both_directions_of_the_encoder_do(cell, layers, tmp_path):
    weft.train("lm", RAW, tmp_path / "lm", {**LM, "model.cell": cell, "model.num_layers": layers}, progress=False)
    lm, encoder = weft.load(tmp_path / "lm", weft.LmPredictor).model, load_encoder(open_run(tmp_path / "lm"))
    stack = make_stack(cell, 9, 6, layers=layers, bidirectional=True)
    take_over_stack(stack, encoder)
    ids = torch.randint(0, lm.vocabulary_size, (3, 7))
    x = torch.cat([lm.embed(ids), torch.randn(3, 7, 3)], -1)  # the further features have no influence yet
    with torch.no_grad():
        expected = torch.cat([lm.stack(x[..., :6])[0], lm.backward_stack(x[..., :6])[0]], -1)
        torch.testing.assert_close(stack(x)[0], expected)


@pytest.mark.parametrize("kind", [LanguageModel, AdaptiveLanguageModel])
def test_the_backward_loss_is_that_of_the_reversed_text(kind):
    torch.manual_seed(0)
    model = kind(9, ModelConfig(hidden_size=5, embedding_dim=4, dropout=0.0), backward=True).double().train()
    ids = torch.randint(0, 9, (2, 6))
    loss = model.loss(Window(ids[:, :-1], ids[:, 1:], True))
    left = F.cross_entropy(model(ids[:, :-1])[0].transpose(1, 2), ids[:, 1:], reduction="sum")
    mirror = make_stack("lstm", 4, 5).double()
    mirror.load_state_dict(model.backward_stack.state_dict())
    outputs, _ = mirror(model.embed(ids[:, :-1].flip(1)))
    right = F.cross_entropy(model.logits(outputs[:, :-1]).transpose(1, 2), ids[:, :-1].flip(1)[:, 1:], reduction="sum")
    torch.testing.assert_close(loss.total, left + right)
    assert loss.count == 2 * 5 + 2 * 4
    evaluated = model.eval().loss(Window(ids[:, :-1], ids[:, 1:], True))
    torch.testing.assert_close(evaluated.total, left)
    assert evaluated.count == 2 * 5


def test_when_groups_are_unfrozen():
    groups = LayerGroups([[], [], []], 0.5, 2.0)
    counts = [groups.active(step, epoch_steps=3, total=100) for step in (0, 5, 6, 11, 12, 99)]
    assert counts == [1, 1, 2, 2, 3, 3]
    short = [groups.active(step, epoch_steps=3, total=8) for step in range(8)]
    assert short == [1, 1, 2, 2, 3, 3, 3, 3], "the second half trains all"
    assert LayerGroups([[], []], 0.5, 0.0).active(0, epoch_steps=3, total=100) == 2
    assert LayerGroups([[]], 0.5, 1.0).active(0, epoch_steps=3, total=100) == 1


@pytest.mark.parametrize("kind", ["adamw", "torch"])
def test_steps_with_rates_of_their_own_are_those_of_torch(kind, monkeypatch):
    if kind == "torch":
        monkeypatch.setattr("weft.training.optimizer.OptimizerStep.of", lambda moved: None)
    torch.manual_seed(1)
    ours = [nn.Parameter(torch.randn(3, 4)) for _ in range(4)]
    theirs = [nn.Parameter(one.detach().clone()) for one in ours]
    factors = [1.0, 0.4, 0.4, 0.16]
    groups = [{"params": [one], "lr": 0.1 * factor} for one, factor in zip(theirs, factors, strict=True)]
    optimizer, peer = Optimizer(ours, [Adam(0.2)] * 4, factors), torch.optim.AdamW(groups, weight_decay=0.2)
    for step in range(4):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            frozen = number == 3 and step < 2
            one.grad = None if frozen else torch.randn_like(one)
            other.grad = None if frozen else one.grad.clone()
        norm = nn.utils.clip_grad_norm_(theirs, 0.5)
        assert optimizer.step(0.1, clip_norm=0.5) == pytest.approx(float(norm), rel=1e-5)
        peer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore::weft.WeftWarning")
@pytest.mark.parametrize("name", DATA)
def test_groups_and_what_moves_when(name, encoders, tmp_path):
    settings = {**QUICK, "train.unfreeze_epochs": 1.0, "train.ema_decay": 0.9, "model.num_layers": 2}
    training = get_task(name).start(DATA[name], tmp_path / "new", settings, encoder=encoders / "deep")
    phase = training.trainer.phase
    groups = phase.groups
    assert len(groups.groups) == 4  # new layers, two recurrent ones, embedding
    assert sorted(map(id, phase.parameters)) == sorted(id(one) for group in groups.groups for one in group)
    embedding, stacks = layers_of(name, training.model)
    assert [one.data_ptr() for one in groups.groups[3]] == [embedding.data_ptr()]
    tops = {id(one) for stack in stacks for one in stack.layers[1].parameters()}
    assert {id(one) for one in groups.groups[1]} == tops
    factors = dict(zip(map(id, phase.parameters), phase.optimizer.rate_factors, strict=True))
    for number, group in enumerate(groups.groups):
        assert {factors[id(one)] for one in group} == {0.4**number}
    copies = [[one.detach().clone() for one in group] for group in groups.groups]
    seen = set()
    for step in training.steps():
        if step.note:
            continue
        active = groups.active(step.number - 1, epoch_steps=phase.data.batches, total=step.total)
        seen.add(active)
        for number, (group, before) in enumerate(zip(groups.groups, copies, strict=True)):
            same = [torch.equal(one, old) for one, old in zip(group, before, strict=True)]
            # Word dropout and masks may leave single parameters out of a step.
            assert all(same) if number >= active else not all(same), (step.number, number)
            if number >= active:
                average = [phase.ema[key] for key, one in phase.trained.items() if any(one is p for p in group)]
                assert all(torch.equal(one, old) for one, old in zip(average, before, strict=True))
    assert seen == {1, 2, 3, 4}
    assert all(parameter.requires_grad for parameter in phase.parameters)


def test_models_without_these_settings_have_no_groups():
    stack = make_stack("lstm", 3, 4)
    assert layer_groups(stack, [stack], None, LayerRates()) is None
    groups = layer_groups(stack, [stack], None, LayerRates(layer_decay=0.5))
    assert [len(group) for group in groups.groups] == [0, 4]


@pytest.mark.filterwarnings("ignore::weft.WeftWarning")
def test_what_does_not_fit_is_refused(encoders, tmp_path):
    new, examples = tmp_path / "new", DATA["classify"]

    def refused(match, settings=None, *, task="classify", encoder=encoders / "plain", **others):
        with pytest.raises(weft.WeftError, match=match):
            get_task(task).start(DATA[task], new, settings, encoder=encoder, **others)
        assert not new.exists()

    refused("trained with cell=lstm, and the new model has model.cell=gru", {"model.cell": "gru"})
    refused("trained with hidden_size=6, and the new model has model.hidden_size=7", {"model.hidden_size": 7})
    refused("trained with lower=True, and the new model has text.lower=False", {"text.lower": False})
    refused("trained with lower=True, and the new model has data.lower=False", {"data.lower": False}, task="tag")
    refused("reads forward only", encoder=encoders / "forward")
    refused("reads forward only", encoder=encoders / "forward", task="tag")
    refused("both given", from_run=encoders / "plain")
    refused("`encoder` and `model.word_vectors`", {"model.word_vectors": "vectors.txt"})
    model = weft.train("classify", examples, tmp_path / "own", {**QUICK, "train.epochs": 1}, progress=False)
    refused("run of the task 'classify'; expected a language model.*from_run=RUN", encoder=model.run)
    for name in ("lm", "translate"):
        with pytest.raises(weft.WeftError, match=f"'{name}' cannot start from an encoder; expected classify, tag"):
            weft.train(name, RAW, new, encoder=encoders / "plain")
    weft.train("lm", RAW, tmp_path / "one-hot", {**LM, "model.embedding_dim": 0}, progress=False)
    refused("reads one-hot vectors", encoder=tmp_path / "one-hot")
    left = get_task("classify").start(
        examples, new, {**QUICK, "model.bidirectional": False}, encoder=encoders / "forward"
    )
    assert torch.equal(left.model.embedding.weight, weft.load(encoders / "forward").model.embedding.weight)
    left.lock.release()


@pytest.mark.filterwarnings("ignore::weft.WeftWarning")
def test_pretraining_and_training_in_one_call(tmp_path):
    settings = {"model.embedding_dim": 8, "model.hidden_size": 4, "text.min_count": 1, **QUICK}
    model = weft.train("classify", DATA["classify"], tmp_path / "run", settings, pretrain=RAW_LONG, progress=False)
    encoder = open_run(tmp_path / "run.lm")
    assert model.run.from_run["path"] == str(tmp_path / "run.lm")
    assert encoder.config["model"]["backward"]
    assert encoder.config["text"]["lower"]
    assert model.classify(["good day"])[0].label in "ab"
    with pytest.raises(weft.WeftError, match="both given"):
        weft.train("classify", DATA["classify"], tmp_path / "x", pretrain=RAW_LONG, encoder=encoder, progress=False)


def test_an_encoder_of_a_tagger_reads_words_as_the_tagged_sentences_have_them(tmp_path):
    tagged = [(("I", "do", "n't", "see", "the", "U.S.", "zebu", "."), tuple("PVNVDNN."))] * 8
    raw = weft.Corpus.from_texts("raw", ["They don't see the <unk> dogs of the U.S.\n" * 250])
    settings = {"model.embedding_dim": 8, "model.hidden_size": 4, **QUICK}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no word of the sentences is unknown to the encoder
        model = weft.train("tag", tagged, tmp_path / "run", settings, pretrain=raw, progress=False)
    words = tokens_of(tmp_path / "run.lm")
    assert {"do", "n't", "u.s.", "zebu", "they", "dogs"} <= set(words)
    assert not {"don't", "unk", "<"} & set(words)
    assert model.tag(["They don't see"])[0].words == ("They", "do", "n't", "see")


def test_an_encoder_of_a_segmenter_and_of_a_classifier_knows_the_characters_and_words_of_the_examples(tmp_path):
    sizes = {"model.embedding_dim": 8, "model.hidden_size": 4, **QUICK}
    segmented = tmp_path / "segmented.txt"
    segmented.write_text("他 喜欢 鲸鱼\n" * 8, encoding="utf-8")
    raw = weft.Corpus.from_texts("raw", ["他们也喜欢我们\n" * 200])
    weft.train("tag", str(segmented), tmp_path / "s", {**sizes, "data.task": "segments"}, pretrain=raw, progress=False)
    assert {"鲸", "鱼", "们"} <= set(tokens_of(tmp_path / "s.lm"))
    weft.train("classify", DATA["classify"], tmp_path / "c", sizes, pretrain=RAW_NIGHT, progress=False)
    assert {"cat", "!", "night"} <= set(tokens_of(tmp_path / "c.lm"))


@pytest.mark.filterwarnings("ignore::weft.WeftWarning")
def test_encoded_raw_text(tmp_path):
    text = CorpusConfig(tokenizer="word", lower=True, min_count=2)
    write_shards(RAW_LONG, text, tmp_path / "shards")
    sizes = {"model.embedding_dim": 8, "model.hidden_size": 4, **QUICK}
    weft.train("classify", DATA["classify"], tmp_path / "c", sizes, pretrain=str(tmp_path / "shards"), progress=False)
    assert "!" not in tokens_of(tmp_path / "c.lm")  # of the labelled texts only
    assert "night" in tokens_of(tmp_path / "c.lm")


RAW_NIGHT = weft.Corpus.from_texts("raw", ["a bad night and a good day\n" * 250])
RAW_LONG = weft.Corpus.from_texts("raw", ["a good day and a bad night , the dog runs and the cat sleeps\n" * 150])


def test_the_commands(tmp_path):
    raw, labelled = tmp_path / "raw.txt", tmp_path / "labelled.tsv"
    raw.write_text("a good day and a bad night , the dog runs and the cat sleeps\n" * 150, encoding="utf-8")
    labelled.write_text("".join(f"{label}\t{text}\n" for text, label in DATA["classify"]), encoding="utf-8")
    sizes = ["--set", "model.embedding_dim=8", "--set", "model.hidden_size=4", "--epochs", "2"]
    begun = ["train", "classify", "--data", labelled]
    first = succeeds(*begun, "--out", tmp_path / "run", "--pretrain", raw, *sizes, "--set", "text.min_count=1")
    assert "run.lm: finished" in first.stderr
    assert open_run(tmp_path / "run").from_run["path"] == str(tmp_path / "run.lm")
    again = succeeds(*begun, "--out", tmp_path / "other", "--encoder", tmp_path / "run.lm", "--epochs", "2", "--json")
    assert '"end": "finished"' in again.stdout
    message = fails(*begun, "--out", tmp_path / "x", "--encoder", tmp_path / "run.lm", "--set", "model.cell=gru")
    assert "trained with cell=lstm" in message
    assert "--set model.cell=lstm" in message
    piped = ["train", "classify", "--data", "-", "--out", tmp_path / "x", "--pretrain", raw]
    assert "reads the data twice" in fails(*piped)
    both = ["--encoder", tmp_path / "run.lm", "--pretrain", raw]
    assert "--pretrain is given with" in fails(*begun, "--out", tmp_path / "x", *both)
    resumed = [*begun, "--encoder", tmp_path / "run.lm", "--epochs", "14", "--set", "train.unfreeze_epochs=3"]
    check_kill_and_resume(tmp_path, *resumed, "--batch-size", "2", "--set", "train.save_seconds=0")
