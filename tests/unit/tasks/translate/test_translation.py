"""A translator in use: batches give what single sentences give, unknown words are copied, long sources cut."""

from __future__ import annotations

import inspect
import math
import random

import numpy as np
import pytest
import torch

from weft import decoding as decode
from weft.config import load_config
from weft.data.column import Column
from weft.errors import WeftError, WeftWarning
from weft.files import file_hash
from weft.tasks.stored_data import DEV_PART, store
from weft.tasks.translate.config import TranslateConfig
from weft.tasks.translate.data import held_out_pairs
from weft.tasks.translate.model import Translator
from weft.tasks.translate.predictor import (
    END,
    TranslatePredictor,
    make_translator,
    most_tokens,
    sentences,
    split_whole,
)
from weft.tasks.translate.task import start_translate, train_translate
from weft.text.parallel import Pairs, fit_pair_fields
from weft.text.vocabulary import UNK
from weft.training.run import DATA_RECORD, Run, read_json, write_json

PAIRS = Pairs(
    "few",
    ["the cat sees the dog.", "the dog has a red cat.", "a bird!", "the cat has the bird, the dog has it."],
    ["le chat voit le chien.", "le chien a un chat rouge.", "un oiseau !", "le chat a l'oiseau, le chien l'a."],
)


def translating(*sets, seed=0, spread=1.0):
    config = load_config(TranslateConfig, None, ["model.hidden_size=12", "model.embedding_dim=8", *sets])
    text_field = fit_pair_fields(config.text, PAIRS)
    torch.manual_seed(seed)
    model: Translator = make_translator(text_field, config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    return TranslatePredictor(Run("nowhere", "translate", {}, {}), model, text_field, config)


@pytest.mark.parametrize("level", ["word", "char", "subword"])
def test_a_batch_gives_what_sentences_give_alone(level):
    found = translating(f"text.tokenizer={level}", "text.max_vocab_size=60")
    texts = [*PAIRS.sources, "a cat!", "the", "the dog sees a dog."]
    together = found.n_best(texts, 3, beam=4, attention=True)
    for text, best in zip(texts, together, strict=True):
        (alone,) = found.n_best([text], 3, beam=4, attention=True)
        assert [one.text for one in best] == [one.text for one in alone]
        for one, other in zip(best, alone, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            torch.testing.assert_close(torch.tensor(one.attention), torch.tensor(other.attention))
            assert len(one.tokens) <= most_tokens(len(one.source))
    assert found.translate(texts, beam=4) == [best[0].text for best in together]


def test_the_score_is_that_of_the_model():
    found = translating("text.tokenizer=word")
    (best,) = found.n_best(PAIRS.sources[:1], 5, beam=5, length_penalty=0.6)
    for one in best:
        ids = found.fields.target.vocabulary.encode(one.tokens)
        ended = one.tokens[-1] == "<eos>"
        batch = sentences([found.fields.source.encode(PAIRS.sources[0])], [ids[:-1] if ended else ids])
        nats = found.model.token_losses(batch)[0, : len(ids)].sum().item()
        assert one.log_prob == pytest.approx(-nats, abs=1e-3)
        assert one.score == pytest.approx(one.log_prob / len(one.tokens) ** 0.6)


def test_unknown_words_are_copied_from_where_attention_looks():
    text = "the zebra sees the dog."
    for seed in range(20):
        found = translating("text.tokenizer=word", seed=seed)
        with torch.no_grad():
            found.model.bias[found.fields.target.vocabulary.unk_id] = 1e3  # it writes nothing else
        (best,) = found.n_best([text], 1, copy_unknown=True, attention=True)[0]
        if any(weights[-1] == max(weights) for weights in best.attention):  # the end is never copied
            break
    else:
        pytest.fail("no model looks at the end most")
    assert best.source == ("the", "zebra", "sees", "the", "dog", ".", "<eos>")
    expected = [best.source[weights[:-1].index(max(weights[:-1]))] for weights in best.attention]
    assert list(best.tokens) == expected
    assert UNK not in best.text
    assert UNK not in found.translate([text])[0]


def test_strange_characters_of_subwords_are_themselves():
    text_field = translating("text.max_vocab_size=60").fields.source
    for text in ("the ξat sees.", "ξξ the", "日本 cat ☃", "the cat", "", "<unk> cat ξ"):
        tokens = split_whole(text_field, text)
        assert "".join(tokens) == text
        assert text_field.vocabulary.encode(tokens) == text_field.encode(text)


@pytest.mark.parametrize("decoder", ["attend_after", "attend_before"])
def test_recorded_attention_equals_that_of_the_whole_translation(decoder):
    """The weights are kept during the search; the decoder would give the same for the finished translation."""
    found = translating("text.tokenizer=word", f"model.decoder={decoder}")
    texts = [*PAIRS.sources, "a cat!", "the dog"]
    for text, best in zip(texts, found.n_best(texts, 3, beam=4, attention=True), strict=True):
        source = found.fields.source.encode(text)
        for one in best:
            assert len(one.attention) == len(one.tokens)
            target = found.fields.target.vocabulary.encode(token for token in one.tokens if token != "<eos>")
            whole = found.model.attention_weights(sentences([source], [target]))[0, : len(one.tokens)]
            torch.testing.assert_close(torch.tensor(one.attention), whole)


def test_translating_with_attention_decodes_once(monkeypatch):
    found = translating("text.tokenizer=word")
    monkeypatch.setattr(Translator, "attention_weights", lambda *_: pytest.fail("the source is encoded again"))
    assert found.n_best(["the cat."], 1, attention=True)[0][0].attention


def test_long_source_is_cut():
    found = translating("text.tokenizer=word", "text.max_tokens=4")
    with pytest.warns(WeftWarning, match="has 6 tokens; only the first 4"):
        long, short = found.n_best(["the cat sees the dog.", "a cat sees it"], 1)
    assert (long[0].cut, short[0].cut) == (2, 0)
    assert long[0].source == ("the", "cat", "sees", "the", "<eos>")
    assert long[0].text == found.translate(["the cat sees the"])[0]


def test_cut_sources_are_a_warning():
    """From Python and in an evaluation; what is printed is the caller's choice."""
    found = translating("text.tokenizer=word", "text.max_tokens=4")
    long = ["the red dog sees the dog.", "a red dog sees a dog.", "a cat"]
    expected = "'the red dog sees'... has 7 tokens; only the first 4 are translated (text.max_tokens=4); so for 1 more"
    for call in (lambda: found.evaluate(Pairs("long", long, ["le chien"] * 3)), lambda: found.translate(long)):
        with pytest.warns(WeftWarning) as caught:
            call()
        assert [str(one.message) for one in caught] == [expected]


def test_a_translation_is_as_long_as_its_source_allows():
    found = translating("text.tokenizer=word")
    with torch.no_grad():
        found.model.bias[END] = -1e3  # it never ends by itself
    short, long = found.n_best(["the cat", "the cat sees the dog. the dog sees the cat."], 1)
    assert (len(short[0].tokens), len(long[0].tokens)) == (2 * 3 + 10, 2 * 13 + 10)


def test_defaults_of_the_search_and_of_the_decoder():
    """alpha 1, width 5, attention after the step."""
    found = translating("text.tokenizer=word")
    assert found.config.model.decoder == "attend_after"
    assert translating("text.tokenizer=word").config.model.attention == "dot"
    best = found.n_best(PAIRS.sources, 3)
    again = found.n_best(PAIRS.sources, 3, beam=5, length_penalty=1.0)
    assert [[one.score for one in some] for some in best] == [[one.score for one in some] for some in again]
    for some in best:
        for one in some:
            assert one.score == pytest.approx(one.log_prob / len(one.tokens))
    assert inspect.signature(decode.beam_search).parameters["alpha"].default == 0.75


def test_a_file_is_translated_in_batches_of_similar_length(monkeypatch):
    found = translating("text.tokenizer=word")
    seen = []

    def translate(self, sources, options):
        seen.append([len(source.ids) for source in sources])
        return [[source.ids] for source in sources]

    monkeypatch.setattr(TranslatePredictor, "translate_batch", translate)
    generator = random.Random(1)
    texts = ["cat " * generator.randint(1, 60) for _ in range(6000)]
    given = found.n_best(texts, 1)
    assert [len(ids) for (ids,) in given] == [len(text.split()) + 1 for text in texts]
    assert len(seen) > 5
    assert sum(max(some) * len(some) for some in seen) < 1.1 * sum(map(sum, seen))  # by chance nearly twice as much


def test_settings_of_training_reach_the_loss_and_the_batches(tmp_path, monkeypatch):
    given = []
    loss = Translator.loss

    def watched(self, batch, **how):
        sizes = batch.sources.ids.numel(), len(batch.targets.lengths)
        given.append((how["label_smoothing"], how["scheduled_sampling"], *sizes))
        return loss(self, batch, **how)

    monkeypatch.setattr(Translator, "loss", watched)
    sets = ["text.tokenizer=word", "text.holdout=0", "model.hidden_size=4", "model.embedding_dim=4", "train.epochs=5"]
    sets += ["train.label_smoothing=0.2", "train.scheduled_sampling=0.5", "batch.max_tokens=40", "batch.size=3"]
    many = Pairs("many", PAIRS.sources * 4, PAIRS.targets * 4)
    training = start_translate(many, tmp_path / "run", load_config(TranslateConfig, None, sets))
    steps = list(training.trainer.run())
    assert {smoothing for smoothing, *_ in given} == {0.2}
    sampling = [share for _, share, *_ in given]
    assert sampling == [pytest.approx(0.5 * number / len(steps)) for number in range(len(steps))]
    assert all(tokens <= 40 and rows <= 3 for *_, tokens, rows in given)
    assert max(tokens for *_, tokens, _ in given) > 20


def test_a_trained_model_copies_names_that_it_does_not_know(tmp_path):
    """Ten words, each with its translation, and one name a sentence that comes nowhere else."""
    generator = random.Random(1)

    def sentences(count):
        rows = [[f"w{generator.randrange(10)}" for _ in range(generator.randint(3, 6))] for _ in range(count)]
        for number, row in enumerate(rows):
            row[generator.randrange(len(row))] = f"name{count}{number}"
        return Pairs("names", [" ".join(row) for row in rows], [" ".join(row).replace("w", "W") for row in rows])

    sets = [
        "text.tokenizer=space",
        "text.min_count=2",
        "text.holdout=0",
        "model.hidden_size=48",
        "model.embedding_dim=16",
    ]
    sets += ["model.cell=gru", "model.embedding_dim=16", "model.dropout=0", "batch.max_tokens=300"]
    sets += ["train.epochs=30", "train.learning_rate=0.01", "train.warmup_steps=5"]
    model = train_translate(sentences(800), tmp_path / "run", load_config(TranslateConfig, None, sets))
    asked = sentences(40)
    right = [
        sum(map(str.__eq__, model.translate(asked.sources, copy_unknown=copies), asked.targets))
        for copies in (True, False)
    ]
    assert right[0] >= 32
    assert right[1] == 0, "without it a translation never has an unknown word in it"


def test_held_out_pairs_that_are_damaged(tmp_path):
    sets = ["text.tokenizer=word", "text.holdout=0.3"]
    sets += ["model.hidden_size=4", "model.embedding_dim=4"]
    run = start_translate(PAIRS, tmp_path / "run", load_config(TranslateConfig, None, sets)).run
    data, record = run.path / "data", read_json(run.path / DATA_RECORD)
    columns = [
        ({"source": Column(np.zeros(3))}, "held-out pairs of .* are damaged"),
        ({"source": Column(np.full(3, 0xFF, np.uint8))}, "held-out pairs of .* are damaged"),
        ({"source": Column.from_texts(["a"] * 99)}, "one target for each source"),
    ]
    for damage, message in columns:
        store(data, DEV_PART, damage)
        files = {name: file_hash(data / name) for name in record["files"] if (data / name).exists()}
        write_json(run.path / DATA_RECORD, {**record, "files": files})
        with pytest.raises(WeftError, match=message):
            held_out_pairs(run)
    (data / "dev.target.npy").write_bytes(b"")
    with pytest.raises(WeftError, match=r"dev\.target\.npy is damaged"):
        held_out_pairs(run)


def test_pairs_of_which_nothing_is_left_are_left_out(tmp_path):
    sets = [
        "text.tokenizer=word",
        "text.letters_only=true",
        "text.holdout=0",
        "model.hidden_size=4",
        "model.embedding_dim=4",
    ]
    config = load_config(TranslateConfig, None, sets)
    some = Pairs("some", [*PAIRS.sources, "123"], [*PAIRS.targets, "abc"])
    assert "; 1 pairs of which nothing is left on a side" in start_translate(some, tmp_path / "a", config).summary
    with pytest.raises(WeftError, match="of every pair to train on, nothing is left"):
        start_translate(Pairs("none", ["123", "x"], ["abc", "456"]), tmp_path / "b", config)


def test_measures_are_of_every_pair():
    found = translating("text.tokenizer=word")
    doubled = Pairs("twice", PAIRS.sources * 2, PAIRS.targets + [text.upper() for text in PAIRS.targets])
    scores = found.evaluate(doubled)
    assert len(scores) == 8
    assert scores.predictions[:4] == scores.predictions[4:]
    whole, parts = (
        found.likelihood(doubled),
        [found.likelihood(Pairs("", [s], [t])) for s, t in zip(doubled.sources, doubled.targets, strict=True)],
    )
    assert whole.count == sum(part.count for part in parts)
    assert whole.nats == pytest.approx(sum(part.nats for part in parts), rel=1e-5)


def test_empty_text_and_no_text():
    found = translating("text.tokenizer=word")
    assert found.translate([]) == []
    alone = found.translate(["the cat"])[0]
    assert found.translate(["", "the cat", " \n"]) == ["", alone, ""]
    assert found.n_best([""], 3, beam=3) == [[]]
    assert found.likelihood(Pairs("none", [], [])).count == 0


def test_mistakes():
    found = translating("text.tokenizer=word", "model.decoder=state")
    for option in ("attention", "copy_unknown"):
        with pytest.raises(WeftError, match=r"model.decoder=state.*attend_after"):
            found.n_best(["the cat"], 1, **{option: True})
    with pytest.raises(WeftError, match=r"width 2 for the 3 best"):
        found.n_best(["the cat"], 3, beam=2)
    for wrong in ({"beam": 0}, {"beam": 2.0}, {"length_penalty": math.nan}, {"length_penalty": -1}):
        with pytest.raises(WeftError, match=rf"translate: {next(iter(wrong))} is .*expected a"):
            found.translate(["the cat"], **wrong)


def test_texts_of_any_kind_and_what_is_none():
    found = translating("text.tokenizer=word")
    assert found.translate(text for text in PAIRS.sources) == found.translate(PAIRS.sources)
    assert found.translate(["the cat", None, ""])[1:] == ["", ""]
    for given in ("one text", 5, None, ["the cat", 5], [["the cat"]]):
        with pytest.raises(WeftError, match=r"expected a (list of )?str"):
            found.translate(given)
    for given in (5, None, ["the cat"]):
        with pytest.raises(WeftError, match="expected a str"):
            found.unknown(given)


def test_references_are_written_as_the_model_writes(monkeypatch):
    """Tokens between spaces are the notes' form of text: what is right counts as right, whatever print looks like."""
    found = translating("text.tokenizer=space", "text.lower=true")
    pairs = Pairs("one", ["Go."], ["Va\u202f!"])
    monkeypatch.setattr(TranslatePredictor, "translate", lambda self, texts, **how: ["va !"] * len(texts))
    assert found.evaluate(pairs).exact == 1
    printed = translating("text.tokenizer=word")
    assert printed.evaluate(pairs).exact == 0  # print is held against print


def test_sources_that_are_read_alike_are_held_out_together(tmp_path):
    """Go! and go! are one sentence to a model in lower case: it must not be asked on one what the other told it."""
    names = [f"word{number}" for number in range(60)]
    forms = [form for name in names for form in (f"{name} !", f"{name.upper()} !", f"{name}\u00a0!", f"{name}!")]
    pairs = Pairs("pairs", forms, ["oui", "non"] * 120)
    sets = [
        "text.tokenizer=space",
        "text.lower=true",
        "text.holdout=0.3",
        "model.hidden_size=4",
        "model.embedding_dim=4",
    ]
    training = start_translate(pairs, tmp_path / "run", load_config(TranslateConfig, None, sets))
    held = ["".join(source.lower().split()) for source in held_out_pairs(training.run).sources]
    assert len(held) == 4 * 18
    assert all(held.count(source) == 4 for source in held)
