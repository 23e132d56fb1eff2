"""A translator in use: batches give what single sentences give, unknown words are copied, long sources cut."""

from __future__ import annotations

import pytest
import torch

from weft.config import TranslateConfig, load_config
from weft.errors import WeftError
from weft.models.translator import Translator
from weft.run import Run
from weft.service.translate import start_translate
from weft.service.translation import Translating, held_out_pairs, make_model, most_tokens, sentences, split_whole
from weft.text.parallel import Pairs, make_codecs
from weft.text.vocabulary import UNK

PAIRS = Pairs(
    "few",
    ["the cat sees the dog.", "the dog has a red cat.", "a bird!", "the cat has the bird, the dog has it."],
    ["le chat voit le chien.", "le chien a un chat rouge.", "un oiseau !", "le chat a l'oiseau, le chien l'a."],
)


def translating(*sets, seed=0, spread=1.0):
    config = load_config(TranslateConfig, None, ["model.hidden=12", "model.embedding=8", *sets])
    codec = make_codecs(config.text, PAIRS)
    torch.manual_seed(seed)
    model: Translator = make_model(codec, config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    return Translating(Run("nowhere", "translate", {}, {}), model, codec, config)


@pytest.mark.parametrize("level", ["word", "char", "subword"])
def test_a_batch_gives_what_sentences_give_alone(level):
    found = translating(f"text.level={level}", "text.max_size=60")
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
    found = translating("text.level=word")
    (best,) = found.n_best(PAIRS.sources[:1], 5, beam=5, length_penalty=0.6)
    for one in best:
        ids = found.codec.target.vocabulary.encode(one.tokens)
        ended = one.tokens[-1] == "<eos>"
        batch = sentences([found.codec.source.encode(PAIRS.sources[0])], [ids[:-1] if ended else ids])
        nats = found.model.nats(batch)[0, : len(ids)].sum().item()
        assert one.log_prob == pytest.approx(-nats, abs=1e-3)
        assert one.score == pytest.approx(one.log_prob / len(one.tokens) ** 0.6)


def test_unknown_words_are_copied_from_where_attention_looks():
    found = translating("text.level=word")
    with torch.no_grad():
        found.model.bias[found.codec.target.vocabulary.unk_id] = 1e3  # it writes nothing else
    text = "the zebra sees the dog."
    (best,) = found.n_best([text], 1, copy_unknown=True, attention=True)[0]
    assert best.source == ("the", "zebra", "sees", "the", "dog", ".", "<eos>")
    expected = [best.source[weights[:-1].index(max(weights[:-1]))] for weights in best.attention]
    assert list(best.tokens) == expected
    assert UNK not in best.text
    assert UNK not in found.translate([text])[0]


def test_strange_characters_of_subwords_are_themselves():
    codec = translating("text.max_size=60").codec.source
    for text in ("the ξat sees.", "ξξ the", "日本 cat ☃", "the cat", "", "<unk> cat ξ"):
        tokens = split_whole(codec, text)
        assert "".join(tokens) == text
        assert codec.vocabulary.encode(tokens) == codec.encode(text)


def test_a_long_source_is_cut_and_says_so():
    found = translating("text.level=word", "text.max_tokens=4")
    long, short = found.n_best(["the cat sees the dog.", "a cat sees it"], 1)
    assert (long[0].cut, short[0].cut) == (2, 0)
    assert long[0].source == ("the", "cat", "sees", "the", "<eos>")
    assert long[0].text == found.translate(["the cat sees the"])[0]


def test_measures_are_of_every_pair():
    found = translating("text.level=word")
    doubled = Pairs("twice", PAIRS.sources * 2, PAIRS.targets + [text.upper() for text in PAIRS.targets])
    scores = found.measure(doubled)
    assert len(scores) == 8
    assert scores.predictions[:4] == scores.predictions[4:]
    whole, parts = (
        found.likelihood(doubled),
        [found.likelihood(Pairs("", [s], [t])) for s, t in zip(doubled.sources, doubled.targets, strict=True)],
    )
    assert whole.count == sum(part.count for part in parts)
    assert whole.nats == pytest.approx(sum(part.nats for part in parts), rel=1e-5)


def test_empty_text_and_no_text():
    found = translating("text.level=word")
    assert found.translate([]) == []
    assert isinstance(found.translate([""])[0], str)


def test_mistakes():
    found = translating("text.level=word", "model.decoder=state")
    for option in ("attention", "copy_unknown"):
        with pytest.raises(WeftError, match=r"model.decoder=state.*attend_after"):
            found.n_best(["the cat"], 1, **{option: True})
    with pytest.raises(WeftError, match=r"width 2 for the 3 best"):
        found.n_best(["the cat"], 3, beam=2)


def test_texts_of_any_kind_and_what_is_none():
    found = translating("text.level=word")
    assert found.translate(text for text in PAIRS.sources) == found.translate(PAIRS.sources)
    for given in ("one text", 5, None, ["the cat", None], [["the cat"]]):
        with pytest.raises(WeftError, match=r"expected a (list of )?text"):
            found.translate(given)
    for given in (5, None, ["the cat"]):
        with pytest.raises(WeftError, match="expected a text"):
            found.unknown(given)


def test_references_are_written_as_the_model_writes(monkeypatch):
    """Tokens between spaces are the notes' form of text: what is right counts as right, whatever print looks like."""
    found = translating("text.level=space", "text.lower=true")
    pairs = Pairs("one", ["Go."], ["Va\u202f!"])
    monkeypatch.setattr(Translating, "translate", lambda self, texts, **how: ["va !"] * len(texts))
    assert found.measure(pairs).exact == 1
    printed = translating("text.level=word")
    assert printed.measure(pairs).exact == 0  # print is held against print


def test_sources_that_are_read_alike_are_held_out_together(tmp_path):
    """Go! and go! are one sentence to a model in lower case: it must not be asked on one what the other told it."""
    names = [f"word{number}" for number in range(60)]
    pairs = Pairs("pairs", [*(f"{name} !" for name in names), *(f"{name.upper()} !" for name in names)], ["oui"] * 120)
    sets = ["text.level=space", "text.lower=true", "text.holdout=0.3", "model.hidden=4", "model.embedding=4"]
    training = start_translate(pairs, tmp_path / "run", load_config(TranslateConfig, None, sets))
    held = [source.lower() for source in held_out_pairs(training.run).sources]
    assert len(held) == 36
    assert all(held.count(source) == 2 for source in held)
