"""The tagger: its loss adds up, a sentence alone is what it is in a batch, its chances are those of enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.checks.models import check_model
from weft.data.buckets import pad, take
from weft.data.column import Column
from weft.errors import WeftError
from weft.tasks.tag.augmentation import MentionReplacement
from weft.tasks.tag.config import TagDataConfig, TagModelConfig
from weft.tasks.tag.encoder import TokenEmbedding, collate, make_encoder
from weft.tasks.tag.evaluation import PRIOR_STD, calibrate, evaluate_tagger, evaluate_with_loss
from weft.tasks.tag.lexicon import TEXT_LEXICONS
from weft.tasks.tag.model import (
    OUTPUTS,
    NeighbourWordLoss,
    SoftmaxOutput,
    TaggedBatch,
    Tagger,
    forbid_continuation,
    tag_constraints,
)
from weft.tasks.tag.vocabulary import TaggerVocabulary
from weft.text.conll import TaggedSentence
from weft.text.fields import Tags
from weft.text.spans import SCHEMES, WORD_SCHEME, tags_to_spans, tags_to_words, words_to_tags
from weft.training.run import WEIGHTS, read_metadata

WORDS = [["The", "cat", "sleeps"], ["a"], ["the", "big", "cat", "sees", "a", "cat"], ["big", "a"]]
SMALL = {"hidden_size": 5, "embedding_dim": 4, "char_dim": 3, "shape_dim": 2, "char_hidden_size": 2}
SMALL |= {"bigram_dim": 3, "match_dim": 2}
TAGS = ("O", "B-X", "I-X")
KINDS = ("O", "B-X", "I-X", "B-Y", "I-Y")
SPANS = [[1, 2, 0], [3], [0, 3, 4, 0, 1, 1], [1, 0]]  # tags of WORDS


def made(task="tags", tags=TAGS, scheme=SCHEMES["bio"], **settings):
    """A small model, and its sentences encoded with tags that keep to the scheme."""
    torch.manual_seed(3)
    sentences = [list("".join(words)) if task == "segments" else words for words in WORDS]
    tagged = [TaggedSentence(tuple(words), ("S",) * len(words), "", (1,) * len(words)) for words in sentences]
    lexicon = TEXT_LEXICONS[task].build(tagged, TagDataConfig(min_bigram_count=1))
    model = Tagger(lexicon, tags, scheme, TagModelConfig(**(SMALL | settings)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.5)
    columns = {name: Column.from_rows(rows) for name, rows in lexicon.encode(sentences).items()}
    columns["tags"] = Column.from_rows(
        [number % 3 if number % 3 < 2 else 2 for number in range(len(w))] for w in sentences
    )
    return model, columns


def batch(columns, rows):
    rows = np.array(rows)
    return TaggedBatch(collate(columns, rows), take(columns["tags"], rows).ids)


@pytest.mark.parametrize("output", ["crf", "softmax"])
@pytest.mark.parametrize("task", ["tags", "segments"])
def test_the_battery(task, output):
    model, columns = made(task, output=output, num_layers=2)
    model.double()
    check_model(model, batch(columns, [0, 1, 2, 3]), [batch(columns, rows) for rows in ([2], [0, 3], [1])])


def test_a_mutant_that_sees_padding_fails_the_battery():
    model, columns = made()
    model.double()
    read = model.encode
    model.encode = lambda inputs: read(inputs).tensor() * (1 + 0.1 * inputs.ids.shape[1])  # the batch's width leaks in
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
    lexicon = TEXT_LEXICONS["tags"].build([TaggedSentence(tuple(w), (), "", ()) for w in WORDS], TagDataConfig())
    columns = {name: Column.from_rows(rows) for name, rows in lexicon.encode([["tac", "slab"]]).items()}
    inputs = collate(columns, np.array([0]))
    assert inputs.ids.tolist() == [[0, 0]]
    one, other = model.eval().encoder(inputs).tensor()[0]
    alike = SMALL["embedding_dim"] + SMALL["shape_dim"]
    assert one[:alike].equal(other[:alike])
    assert not one.allclose(other)


@torch.no_grad()
def test_runs_without_matches_are_read():
    """A lexicon that looks up no words, and the columns that it encoded."""
    sentences = [TaggedSentence(tuple(words), ("S",) * len(words), "", ()) for words in WORDS]
    saved = TEXT_LEXICONS["segments"].build(sentences, TagDataConfig()).to_json()
    saved["match_length"] = 0
    old = TEXT_LEXICONS["segments"].from_json(saved)
    columns = {name: Column.from_rows(rows) for name, rows in old.encode(WORDS).items()}
    assert "matches" not in columns
    model = Tagger(old, TAGS, SCHEMES["bio"], TagModelConfig(**SMALL))
    columns["tags"] = Column.from_rows(SPANS)
    assert model(collate(columns, np.arange(4))).shape == (4, 6, 3)


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


@pytest.mark.parametrize("output", ["crf", "softmax"])
@pytest.mark.parametrize("spaces", ["abcd", "ab cd", "a b c d", "abc d"])
@torch.no_grad()
def test_ways_to_cut_keep_to_spaces_and_are_those_of_enumeration(spaces, output):
    """Every way there is, once, with its share of the ways that a space allows; so are the chances of single words."""
    letters = ("B", "M", "E", "S")
    torch.manual_seed(5)
    crf, scores = OUTPUTS[output](4, tag_constraints(letters, WORD_SCHEME)), torch.randn(1, 4, 4)
    starts = [int(not at) for piece in spaces.split() for at in range(len(piece))]
    apart = forbid_continuation(scores, torch.tensor([starts]), letters)
    weight = {}
    for cuts in itertools.product([False, True], repeat=3):
        words = "".join(f" {one}" if cut else one for one, cut in zip("abcd", (False, *cuts), strict=True)).split()
        if all(cut or not start for cut, start in zip(cuts, starts[1:], strict=True)):
            tags = torch.tensor([[letters.index(tag) for tag in words_to_tags(words)]])
            weight[tuple(words)] = math.exp(float(crf.score(scores, tags)))
    total = sum(weight.values())
    ways = crf.n_best(apart, 50)[0]
    found = {tuple(tags_to_words("abcd", [letters[tag] for tag in way.tags])): math.exp(way.log_prob) for way in ways}
    assert len(ways) == len(found) == len(weight) == 2 ** (3 - spaces.count(" "))
    assert found == pytest.approx({words: one / total for words, one in weight.items()}, abs=1e-6)
    best = max(found, key=found.get)
    ends = list(itertools.accumulate(map(len, best), initial=0))
    stretches = list(itertools.pairwise(ends))
    (chances,) = crf.segment_probabilities(apart, [(ways[0].tags, stretches)])
    for (begin, end), chance in zip(stretches, chances, strict=True):
        same = [one for words, one in weight.items() if (begin, end) in places(words)]
        assert chance == pytest.approx(sum(same) / total, abs=1e-6)


def places(words):
    return list(itertools.pairwise(itertools.accumulate(map(len, words), initial=0)))


def is_legal(path):
    return all(tag != 2 or (place and path[place - 1] in (1, 2)) for place, tag in enumerate(path))


@torch.no_grad()
def test_softmax_loss_is_that_of_each_tag():
    scores, tags, lengths = torch.randn(2, 3, 3), torch.tensor([[0, 1, 2], [2, 0, 0]]), torch.tensor([3, 1])
    output = SoftmaxOutput(3, tag_constraints(TAGS, SCHEMES["bio"]))
    expected = [scores[0].log_softmax(-1)[[0, 1, 2], [0, 1, 2]].sum(), scores[1, 0].log_softmax(-1)[2]]
    torch.testing.assert_close(output.log_likelihood(scores, tags, lengths), torch.stack(expected))
    assert not any(parameter.requires_grad for parameter in output.parameters())


def test_schemes_say_what_may_follow():
    closing = tag_constraints(["B", "M", "E", "S"], SCHEMES["bmes"])
    assert closing.transition.int().tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 1]]
    assert closing.start.int().tolist() == [1, 0, 0, 1]
    assert closing.end.int().tolist() == [0, 0, 1, 1]
    assert tag_constraints(["NOUN"], None) is None


def test_rare_words_are_forgotten_now_and_then():
    embedding = TokenEmbedding([0, 1, 99], 2, alpha=1.0)
    ids = torch.tensor([1, 2]).repeat(4000, 1)
    rare, common = (embedding(ids).tensor() == embedding.weight[0]).all(-1).float().mean(0).tolist()
    assert rare == pytest.approx(0.5, abs=0.05)
    assert common == pytest.approx(0.01, abs=0.01)
    assert embedding.eval()(ids).tensor().equal(embedding.weight[ids])
    assert TokenEmbedding([0, 1], 2, alpha=0.0)(ids[:, :1]).tensor().ne(embedding.weight[0]).any()


@pytest.mark.parametrize("task", ["tags", "segments"])
def test_something_must_be_read(task):
    with pytest.raises(WeftError, match=r"model.embedding_dim and model\.\w+ are both 0"):
        made(task, embedding_dim=0, char_dim=0, bigram_dim=0)
    for nothing in (
        {"embedding_dim": 0},
        {"char_dim": 0, "bigram_dim": 0},
        {"shape_dim": 0},
        {"match_dim": 0},
    ):
        model, columns = made(task, **nothing)
        assert model.loss(batch(columns, [0, 2])).count > 0


def test_readers_say_how_wide_they_are():
    for task in TEXT_LEXICONS:
        model, columns = made(task)
        found = make_encoder(TEXT_LEXICONS[task].build([], TagDataConfig()), TagModelConfig(**SMALL))
        assert (
            model.encoder(collate(columns, np.array([0]))).shape[-1] == model.encoder.output_size == found.output_size
        )


@given(st.lists(st.lists(st.integers(1, 9), max_size=5), min_size=1, max_size=6), st.data())
def test_taking_rows_is_padding_them(rows, data):
    column = Column.from_rows(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    found, expected = take(column, np.array(chosen)), pad([rows[row] for row in chosen])
    assert found.ids.equal(expected.ids)
    assert found.lengths.equal(expected.lengths)


def balanced(output="crf", strange=()):
    """A model that sees O nearly everywhere, and what `balance` makes of it on sentences that are full of spans."""
    model, columns = made(output=output, tags=KINDS)
    columns["tags"] = Column.from_rows(SPANS)
    knowledge = TaggerVocabulary(
        TEXT_LEXICONS["tags"].build([], TagDataConfig()), Tags(KINDS, SCHEMES["bio"], tuple(strange))
    )
    model.scores.bias.data[0] += 2.0
    model.span_start_bias.fill_(9.0)  # of an earlier evaluation
    if strange:
        columns["tags"].values[3] = len(KINDS)  # the sentence of one word
    calibrate(model, knowledge, columns)
    return model, columns


@pytest.mark.parametrize("output", ["crf", "softmax"])
@torch.no_grad()
def test_as_many_spans_are_expected_as_there_are(output):
    """Where the likelihood is greatest, true and expected beginnings differ by what the spread pulls back."""
    model, columns = balanced(output)
    inputs = collate(columns, np.arange(4))
    inside = torch.arange(6) < inputs.lengths[:, None]
    shares = model.output.marginals(model(inputs), inputs.lengths)[inside].sum(0)
    for begin, count in ((1, 4), (3, 2)):
        pull = float(model.span_start_bias[begin]) / PRIOR_STD**2
        assert count - float(shares[begin]) == pytest.approx(pull, abs=1e-2)
        assert pull > 0.1
    assert not model.span_start_bias[[0, 2, 4]].any(), "only what begins a span is leaned to"


@torch.no_grad()
def test_a_lean_is_not_fitted_to_tags_that_training_lacks():
    some, columns = balanced(strange=["B-Z"])
    assert some.span_start_bias[1] > 0
    assert not some.span_start_bias.allclose(balanced()[0].span_start_bias)
    every = TaggerVocabulary(
        TEXT_LEXICONS["tags"].build([], TagDataConfig()), Tags(("O",), SCHEMES["bio"], ("B-Z", "I-Z", "B-Q", "I-Q"))
    )
    calibrate(some, every, columns)
    assert not some.span_start_bias.any(), "there is nothing to begin"


@pytest.mark.parametrize("output", ["crf", "softmax"])
@torch.no_grad()
def test_the_held_out_loss_is_that_of_the_sentences_with_known_tags(output):
    model, columns = made(tags=KINDS, output=output, neighbour_loss_weight=0.0)
    columns["known"] = Column.from_rows([1] * len(words) for words in WORDS)
    columns["tags"] = Column.from_rows(SPANS)
    vocabulary = TaggerVocabulary(
        TEXT_LEXICONS["tags"].build([], TagDataConfig()), Tags(KINDS, SCHEMES["bio"], ("B-Z",))
    )
    model.eval()
    scores, cross_entropy = evaluate_with_loss(model, vocabulary, columns)
    assert scores == evaluate_tagger(model, vocabulary, columns)
    every = model.loss(batch(columns, range(4)))
    assert cross_entropy == pytest.approx(float(every.total) / every.count, rel=1e-5)
    columns["tags"] = Column.from_rows([*SPANS[:3], [5, 0]])  # the last sentence begins with B-Z
    known = model.loss(batch(columns, range(3)))
    assert evaluate_with_loss(model, vocabulary, columns)[1] == pytest.approx(
        float(known.total) / known.count, rel=1e-5
    )
    columns["tags"] = Column.from_rows([5] * len(words) for words in WORDS)
    assert math.isnan(evaluate_with_loss(model, vocabulary, columns)[1])


def test_of_epochs_with_equal_scores_that_of_the_lowest_loss_is_kept(tmp_path):
    """No held-out span is found at all: the weights of the first epoch would serve worse than later ones."""
    sentences = [(["Ann", "went", "to", "Rome"], ["B-PER", "O", "O", "B-LOC"])] * 20
    held_out = [(["zzz", "qqq", "vvv"], ["O", "B-LOC", "O"])]
    small = {f"model.{name}": value for name, value in SMALL.items()}
    settings = {**small, "model.span_calibration": False, "train.epochs": 4, "train.learning_rate": 0.002}
    model = weft.train_tag(sentences, tmp_path / "run", settings, dev=held_out, progress=False)
    evaluated = [record for record in model.run.metrics() if "evaluation" in record]
    assert [record["evaluation"]["f1"] for record in evaluated] == [0.0] * 4
    assert [record["best"] for record in evaluated] == [True] * 4
    assert read_metadata(model.run.file(WEIGHTS))["step"] == evaluated[-1]["step"]


@torch.no_grad()
def test_training_does_not_see_the_lean():
    model, columns = balanced()
    model.dropout = model.embedding_dropout = 0.0
    encoder = model.encoder
    for embedding in (encoder.words, encoder.shapes, encoder.characters):
        embedding.dropout_rate.zero_()
    inputs = collate(columns, np.array([0]))
    trained, used = model.train()(inputs), model.eval()(inputs)
    torch.testing.assert_close(trained, used - model.span_start_bias)


def test_words_beside_are_told_from_each_side():
    """One by one: what stands at t ahead tells word t + 1, what stands at t going back tells word t - 1."""
    torch.manual_seed(0)
    neighbours = NeighbourWordLoss(3, 5)
    outputs, lengths = torch.randn(3, 4, 6), [4, 1, 2]
    ids = torch.tensor([[4, 1, 7, 2], [3, 0, 0, 0], [2, 4, 0, 0]])  # 7 is past the words told apart
    expected = 0.0
    for row, length in enumerate(lengths):
        told = [number if number < 5 else 0 for number in ids[row].tolist()]
        for t in range(length - 1):
            expected -= neighbours.next_word(outputs[row, t, :3]).log_softmax(-1)[told[t + 1]]
            expected -= neighbours.previous_word(outputs[row, t + 1, 3:]).log_softmax(-1)[told[t]]
    torch.testing.assert_close(neighbours(outputs, ids, torch.tensor(lengths)), expected)
    assert neighbours(outputs[1:2], ids[1:2], torch.tensor([1])) == 0, "nothing stands beside a single word"


@pytest.mark.parametrize("layers", [1, 2])
@torch.no_grad()
def test_what_tells_a_word_has_not_seen_it(layers):
    model, columns = made(num_layers=layers)
    model.eval()
    seen = []
    model.neighbour_loss.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0][0]))

    def outputs(place=None):
        """Both halves of what the words beside are told from, where the word at the place is another one."""
        rows = batch(columns, [0])
        if place is not None:
            rows.inputs.ids[0, place] = 0
        model.loss(rows)
        return seen[-1].split(SMALL["hidden_size"], -1)

    ahead, back = outputs()
    (last, _), (_, first) = outputs(2), outputs(0)
    assert ahead[:2].equal(last[:2])
    assert ahead[2].ne(last[2]).any()
    assert back[1:].equal(first[1:])
    assert back[0].ne(first[0]).any()


def test_words_beside_are_told_only_where_tags_are_spans():
    assert made()[0].neighbour_loss is not None
    assert made(neighbour_loss_weight=0.0)[0].neighbour_loss is None
    assert made(scheme=None)[0].neighbour_loss is None
    assert made("segments")[0].neighbour_loss is not None
    (with_them, columns), (without, _) = made(neighbour_loss_weight=0.5), made(neighbour_loss_weight=0.0)
    for model in (with_them, without):
        model.eval()
    without.load_state_dict({name: t for name, t in with_them.state_dict().items() if "neighbour_loss" not in name})
    rows = batch(columns, [0, 1, 2])
    outputs = with_them.stack(with_them.encoder(rows.inputs), lengths=rows.inputs.lengths)[0]
    more = 0.5 * with_them.neighbour_loss(outputs, rows.inputs.ids, rows.inputs.lengths)
    torch.testing.assert_close(with_them.loss(rows).total, without.loss(rows).total + more)


def test_spans_are_swapped_for_others_of_their_kind():
    """What is between spans stays; what stands for a span is one of its kind, whole, and each of them in its turn."""
    _, columns = made(tags=KINDS)
    columns["tags"] = Column.from_rows(SPANS)
    swaps = MentionReplacement(columns, KINDS, 1.0)
    names = {"X": {("The", "cat"), ("a",), ("cat",), ("big",)}, "Y": {("a",), ("big", "cat")}}
    text = [word for words in WORDS for word in words]
    spelled = dict(zip(columns["forms"].values.tolist(), text, strict=True))
    seen = {"X": set(), "Y": set()}
    for _ in range(60):
        drawn = swaps.sample(np.array([2, 0]))
        for row, original in ((0, 2), (1, 0)):
            words = [spelled[form] for form in drawn["forms"][row].tolist()]
            spans = tags_to_spans([KINDS[number] for number in drawn["tags"][row].tolist()])
            assert [span.label for span in spans] == {2: ["Y", "X", "X"], 0: ["X"]}[original]
            for span in spans:
                seen[span.label].add(tuple(words[span.start : span.end]))
            inside = {place for span in spans for place in range(span.start, span.end)}
            rest = [word for place, word in enumerate(words) if place not in inside]
            assert rest == {2: ["the", "sees"], 0: ["sleeps"]}[original]
            for name in ("words", "shapes"):  # numbers that belong to the word move with it
                whole = dict(zip(text, columns[name].values.tolist(), strict=True))
                assert drawn[name][row].tolist() == [whole[word] for word in words]
    assert seen == names


def test_spans_stay_unless_they_are_swapped():
    _, columns = made(tags=KINDS)
    columns["tags"] = Column.from_rows(SPANS)
    rows = np.array([3, 1, 2])
    drawn = MentionReplacement(columns, KINDS, 0.0).sample(rows)
    for name in ("words", "shapes", "forms", "tags"):
        for at, row in enumerate(rows):
            assert drawn[name][at].tolist() == columns[name][row].tolist()
    torch.manual_seed(5)
    half = MentionReplacement(columns, KINDS, 0.5)
    drawn = [half.sample(np.array([1]))["words"][0].tolist() for _ in range(400)]
    assert sum(one != columns["words"][1].tolist() for one in drawn) == pytest.approx(100, abs=30)  # half of the halves
    torch.manual_seed(5)
    assert drawn == [half.sample(np.array([1]))["words"][0].tolist() for _ in range(400)], "chance is torch's"
