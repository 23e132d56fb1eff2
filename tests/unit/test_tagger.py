"""The tagger: its loss adds up, a sentence alone is what it is in a batch, its chances are those of enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.checks import check_model
from weft.buckets import Ragged, pad, take
from weft.config import TagDataConfig, TagModelConfig
from weft.errors import WeftError
from weft.models.tagger import Softmax, TaggedBatch, Tagger, allowed_tags
from weft.models.words import Embedding, collate, make_reader
from weft.text.columns import Sentence
from weft.text.lexicon import LEXICONS
from weft.text.spans import SCHEMES

WORDS = [["The", "cat", "sleeps"], ["a"], ["the", "big", "cat", "sees", "a", "cat"], ["big", "a"]]
SMALL = {"hidden": 5, "embedding": 4, "characters": 3, "character_hidden": 2, "pairs": 3}
TAGS = ("O", "B-X", "I-X")


def made(task="tags", tags=TAGS, scheme=SCHEMES["bio"], **settings):
    """A small model, and its sentences encoded with tags that keep to the scheme."""
    torch.manual_seed(3)
    sentences = [list("".join(words)) if task == "segments" else words for words in WORDS]
    tagged = [Sentence(tuple(words), ("S",) * len(words), "", (1,) * len(words)) for words in sentences]
    lexicon = LEXICONS[task].build(tagged, TagDataConfig(pair_count=1))
    model = Tagger(lexicon, tags, scheme, TagModelConfig(**(SMALL | settings)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.5)
    columns = {name: Ragged.of(rows) for name, rows in lexicon.encode(sentences).items()}
    columns["tags"] = Ragged.of([number % 3 if number % 3 < 2 else 2 for number in range(len(w))] for w in sentences)
    return model, columns


def batch(columns, rows):
    rows = np.array(rows)
    return TaggedBatch(collate(columns, rows), take(columns["tags"], rows).ids)


@pytest.mark.parametrize("output", ["crf", "softmax"])
@pytest.mark.parametrize("task", ["tags", "segments"])
def test_the_battery(task, output):
    model, columns = made(task, output=output, layers=2)
    model.double()
    check_model(model, batch(columns, [0, 1, 2, 3]), [batch(columns, rows) for rows in ([2], [0, 3], [1])])


def test_a_mutant_that_sees_padding_fails_the_battery():
    model, columns = made()
    model.double()
    forward = model.forward
    model.forward = lambda inputs: forward(inputs) * (1 + 0.1 * inputs.ids.shape[1])  # the batch's width leaks in
    with pytest.raises(AssertionError, match="do not add up"):
        check_model(model, batch(columns, [0, 1, 2, 3]), [batch(columns, rows) for rows in ([2], [0, 3], [1])])


@pytest.mark.parametrize("task", ["tags", "segments"])
@torch.no_grad()
def test_a_sentence_alone_is_what_it_is_in_a_batch(task):
    model, columns = made(task)
    model.eval()
    together = model(collate(columns, np.array([0, 1, 2, 3])))
    for row in range(4):
        alone = model(collate(columns, np.array([row])))[0]
        torch.testing.assert_close(together[row, : len(alone)], alone)


@torch.no_grad()
def test_words_are_told_apart_by_their_spelling():
    """Two words that were never seen have one number, but not one spelling."""
    model, _ = made()
    lexicon = LEXICONS["tags"].build([Sentence(tuple(w), (), "", ()) for w in WORDS], TagDataConfig())
    columns = {name: Ragged.of(rows) for name, rows in lexicon.encode([["tac", "slab"]]).items()}
    inputs = collate(columns, np.array([0]))
    assert inputs.ids.tolist() == [[0, 0]]
    one, other = model.eval().reader(inputs)[0]
    assert one[: SMALL["embedding"]].equal(other[: SMALL["embedding"]])
    assert not one.allclose(other)


def test_a_word_that_comes_twice_is_spelled_once():
    _, columns = made()
    inputs = collate(columns, np.array([2, 3, 1]))
    assert len(inputs.spelling.ids) == 5, "the big cat sees a"
    spelled = inputs.spelling.ids[inputs.forms[0, 2]]
    assert spelled.equal(inputs.spelling.ids[inputs.forms[0, 5]])


@pytest.mark.parametrize("output", ["crf", "softmax"])
@torch.no_grad()
def test_tags_and_chances_are_those_of_enumeration(output):
    model, columns = made(output=output)
    model.eval()
    inputs = collate(columns, np.array([0]))
    scores = model(inputs)
    crf = model.output
    legal = [path for path in itertools.product(range(3), repeat=3) if is_legal(path)]
    weight = {path: float(crf.score(scores, torch.tensor([path]))) for path in legal}
    best = max(weight, key=weight.get)
    total = math.log(sum(map(math.exp, weight.values())))
    ways = crf.n_best(scores, 50, inputs.lengths)[0]
    assert len(ways) == len(legal) < 27
    assert ways[0].tags == list(best) == crf.decode(scores, inputs.lengths)[0].tags
    for way in ways:
        assert way.log_prob == pytest.approx(weight[tuple(way.tags)] - total, abs=1e-5)
    shares = crf.marginals(scores, inputs.lengths)[0]
    if output == "softmax":
        torch.testing.assert_close(shares, scores[0].softmax(-1))
    else:
        for place, tag in itertools.product(range(3), range(3)):
            chance = sum(math.exp(weight[path] - total) for path in legal if path[place] == tag)
            assert float(shares[place, tag]) == pytest.approx(chance, abs=1e-5)


def is_legal(path):
    return all(tag != 2 or (place and path[place - 1] in (1, 2)) for place, tag in enumerate(path))


@torch.no_grad()
def test_softmax_loss_is_that_of_each_tag():
    scores, tags, lengths = torch.randn(2, 3, 3), torch.tensor([[0, 1, 2], [2, 0, 0]]), torch.tensor([3, 1])
    output = Softmax(3, allowed_tags(TAGS, SCHEMES["bio"]))
    expected = [scores[0].log_softmax(-1)[[0, 1, 2], [0, 1, 2]].sum(), scores[1, 0].log_softmax(-1)[2]]
    torch.testing.assert_close(output.log_likelihood(scores, tags, lengths), torch.stack(expected))
    assert not any(parameter.requires_grad for parameter in output.parameters())


def test_schemes_say_what_may_follow():
    closing = allowed_tags(["B", "M", "E", "S"], SCHEMES["bmes"])
    assert closing.transition.int().tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 1]]
    assert closing.start.int().tolist() == [1, 0, 0, 1]
    assert closing.end.int().tolist() == [0, 0, 1, 1]
    assert allowed_tags(["NOUN"], None) is None


def test_rare_words_are_forgotten_now_and_then():
    embedding = Embedding([0, 1, 99], 2, forget=1.0)
    ids = torch.tensor([1, 2]).repeat(4000, 1)
    rare, common = (embedding(ids) == embedding.weight[0]).all(-1).float().mean(0).tolist()
    assert rare == pytest.approx(0.5, abs=0.05)
    assert common == pytest.approx(0.01, abs=0.01)
    assert embedding.eval()(ids).equal(embedding.weight[ids])
    assert Embedding([0, 1], 2, forget=0.0)(ids[:, :1]).ne(embedding.weight[0]).any()


@pytest.mark.parametrize("task", ["tags", "segments"])
def test_something_must_be_read(task):
    with pytest.raises(WeftError, match=r"model.embedding and model\.\w+ are both 0"):
        made(task, embedding=0, characters=0, pairs=0)
    for nothing in ({"embedding": 0}, {"characters": 0, "pairs": 0}):
        model, columns = made(task, **nothing)
        assert model.loss(batch(columns, [0, 2])).count > 0


def test_readers_say_how_wide_they_are():
    for task in LEXICONS:
        model, columns = made(task)
        found = make_reader(LEXICONS[task].build([], TagDataConfig()), TagModelConfig(**SMALL))
        assert model.reader(collate(columns, np.array([0]))).shape[-1] == model.reader.output_size == found.output_size


@given(st.lists(st.lists(st.integers(1, 9), max_size=5), min_size=1, max_size=6), st.data())
def test_taking_rows_is_padding_them(rows, data):
    column = Ragged.of(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    found, expected = take(column, np.array(chosen)), pad([rows[row] for row in chosen])
    assert found.ids.equal(expected.ids)
    assert found.lengths.equal(expected.lengths)
