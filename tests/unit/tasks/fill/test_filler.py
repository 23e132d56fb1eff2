"""The model that fills blanks: it never sees the answer, and its probabilities are what enumeration gives."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tests.checks.models import check_model
from weft.cells import CELLS
from weft.data.windows import Passage
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError
from weft.tasks.fill.config import FillModelConfig
from weft.tasks.fill.model import Filler

V = 11


def config(**settings):
    return FillModelConfig(**{"hidden_size": 6, "embedding_dim": 5, "tied": False, "dropout": 0.3, **settings})


SHAPES = {
    "one-hot": config(cell="gru", embedding_dim=0),
    "deep": config(cell="lstm", num_layers=3),
    "tied": config(cell="rnn", embedding_dim=6, tied=True, residual=True, num_layers=2),
    "before only": config(cell="lstm", num_layers=2, bidirectional=False),
}


def model_of(shape="deep", size=V, seed=0):
    torch.manual_seed(seed)
    model = Filler(size, SHAPES[shape] if isinstance(shape, str) else shape).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)  # no zero biases, and states that depend on every token
    return model


def rows(count=5, steps=7, seed=0, size=V):
    return torch.randint(size, (count, steps), generator=torch.Generator().manual_seed(seed))


def log_probs(model, ids, **options):
    return model(ids, **options).log_softmax(-1).detach()


@pytest.mark.parametrize("shape", SHAPES)
def test_battery(shape):
    torch.manual_seed(1)
    model = Filler(V, SHAPES[shape])
    ids = rows(5, 40)
    shown, lengths = ids.clone(), torch.tensor([40, 3, 17, 40, 1])
    shown[:, ::7] = model.blank
    targets = ids.masked_fill(torch.arange(40) >= lengths[:, None], IGNORE_INDEX)
    passage = Passage(shown, targets, lengths)
    parts = [Passage(*(part[begin:end] for part in passage)) for begin, end in ((0, 1), (1, 5))]
    check_model(model, passage, parts)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 3])
def test_the_answer_does_not_leak(cell, layers):
    """Whatever stands at a place, its own prediction stays the same to the last bit; others' predictions change."""
    model = model_of(config(cell=cell, num_layers=layers, residual=True))
    ids = rows()
    before = log_probs(model, ids)
    for place in range(ids.shape[1]):
        other = ids.clone()
        other[:, place] = (other[:, place] + 1) % V
        blank = ids.clone()
        blank[:, place] = model.blank
        for changed in (other, blank):
            after = log_probs(model, changed)
            assert torch.equal(after[:, place], before[:, place])
            for neighbour in {place - 1, place + 1} & set(range(ids.shape[1])):
                assert not torch.equal(after[:, neighbour], before[:, neighbour])


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_no_gradient_from_the_answer_to_its_prediction(layers, monkeypatch):
    """Row t, column s: how the prediction at t depends on the token at s. The diagonal is exactly zero."""
    model = model_of(config(num_layers=layers))
    ids = rows(1, 6)
    embedded = model.embedding(ids).detach().requires_grad_()
    monkeypatch.setattr("weft.tasks.fill.model.embed", lambda *_: embedded)
    logits = model(ids)
    flow = torch.stack(
        [
            torch.autograd.grad(logits[0, t].square().sum(), embedded, retain_graph=True)[0][0].norm(dim=-1)
            for t in range(6)
        ]
    )
    assert torch.equal(flow.diagonal(), torch.zeros(6, dtype=flow.dtype))
    assert (flow[~torch.eye(6, dtype=torch.bool)] > 0).all()


def test_a_stack_of_bidirectional_layers_would_leak():
    """Why the directions are kept apart: shifting the outputs of such a stack hides nothing from two layers on."""
    from weft.nn import make_stack

    def changes(layers):
        torch.manual_seed(0)
        stack = make_stack("gru", V, 6, layers=layers, bidirectional=True)
        ids = rows()
        other = ids.clone()
        other[:, 3] = (other[:, 3] + 1) % V
        one, two = stack(ids)[0], stack(other)[0]
        return bool((one - two)[:, 2, :6].any() or (one - two)[:, 4, 6:].any())

    assert not changes(1)
    assert changes(2)


def test_it_is_the_two_stacks_run_on_either_side():
    """Every prediction from scratch: the forward stack over what is before, the reverse stack over what is after."""
    model, ids = model_of("deep"), rows(3, 6)
    whole = log_probs(model, ids)
    nothing = torch.zeros(3, 6, dtype=torch.float64)
    x = model.embedding(ids)
    for t in range(6):
        before = model.forward_stack(x[:, :t])[0][:, -1] if t else nothing
        after = model.backward_stack(x[:, t + 1 :])[0][:, 0] if t < 5 else nothing
        expected = model.readout(torch.cat([before, after], -1)).log_softmax(-1)
        torch.testing.assert_close(whole[:, t], expected)


def test_one_side_is_blind_to_the_other():
    model, ids = model_of("before only"), rows()
    other = ids.clone()
    other[:, 4:] = (other[:, 4:] + 1) % V
    assert torch.equal(log_probs(model, ids)[:, :5], log_probs(model, other)[:, :5])


def test_a_row_alone_and_what_stands_in_the_padding():
    model, ids, lengths = model_of("deep"), rows(4, 7), torch.tensor([7, 2, 1, 5])
    together = log_probs(model, ids, lengths=lengths)
    other = ids.clone()
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(together[row, :length], log_probs(model, ids[row : row + 1, :length])[0])
        other[row, length:] = 0
    inside = torch.arange(7) < lengths[:, None]
    assert torch.equal(together[inside], log_probs(model, other, lengths=lengths)[inside])


def joint(model, ids, fills):
    """The joint probability by its definition, one blank after the other."""
    row, total = list(ids), 0.0
    for place, fill in zip([p for p, token in enumerate(ids) if token == model.blank], fills, strict=True):
        total += log_probs(model, torch.tensor([row]))[0, place, fill].item()
        row[place] = fill
    return total


@pytest.mark.parametrize("ids", [[3, 1, 3], [3], [3, 0, 1, 2, 3], [0, 3, 3, 1], [3, 3, 3]])
def test_best_is_what_enumeration_finds(ids):
    """Three tokens, so that all ways can be tried; blanks in the middle, at both ends, side by side, and alone."""
    model = model_of("deep", size=3)
    blanks = ids.count(model.blank)
    ways = {fills: joint(model, ids, fills) for fills in itertools.product(range(3), repeat=blanks)}
    assert sum(map(math.exp, ways.values())) == pytest.approx(1)
    found = model.fill_blanks(ids, n=50, width=50)
    assert len(found) == len(ways), "asked for more than there is, it gives all there is"
    assert [way.ids for way in found] == sorted(ways, key=ways.get, reverse=True)
    assert [way.log_prob for way in found] == pytest.approx(sorted(ways.values(), reverse=True))
    assert model.fill_blanks(ids, n=2, width=50) == found[:2]


def test_one_blank_is_exact_however_narrow_the_search():
    model, ids = model_of("deep"), [4, 2, V, 7, 1]
    found = model.fill_blanks(ids, n=V, width=1)
    expected = log_probs(model, torch.tensor([ids]))[0, 2].sort(descending=True)
    assert [way.ids[0] for way in found] == expected.indices.tolist()
    assert [way.log_prob for way in found] == pytest.approx(expected.values.tolist())


def test_long_texts_are_read_in_parts(monkeypatch):
    model, ids = model_of("deep"), [4, V, 2, V, 7]
    whole = model.fill_blanks(ids, n=20, width=20)
    monkeypatch.setattr("weft.tasks.fill.model.MAX_TOKENS", 12)  # two rows at a time
    parts = model.fill_blanks(ids, n=20, width=20)
    assert [way.ids for way in parts] == [way.ids for way in whole]
    assert [way.log_prob for way in parts] == pytest.approx([way.log_prob for way in whole])


def test_without_the_shift_it_would_leak(monkeypatch):
    """The leak test is not blind: a model that looks at the place itself fails it."""
    model, ids = model_of("deep"), rows()
    monkeypatch.setattr("weft.tasks.fill.model.F.pad", lambda shifted, _: torch.cat([shifted, shifted[:, -1:]], 1))
    other = ids.clone()
    other[:, 3] = (other[:, 3] + 1) % V
    assert not torch.equal(log_probs(model, ids)[:, 3], log_probs(model, other)[:, 3])


def test_banned_tokens_leave_their_probability_to_the_others():
    model, ids = model_of("deep"), [4, V, 7, V]
    found = model.fill_blanks(ids, n=999, width=999, banned=[0, 3])
    assert len(found) == (V - 2) ** 2
    assert not {0, 3} & {token for way in found for token in way.ids}
    assert sum(math.exp(way.log_prob) for way in found) == pytest.approx(1)


def test_hiding_draws_a_share_and_leaves_the_batch_alone():
    model, ids = model_of("one-hot"), rows(400, 50)
    torch.manual_seed(0)
    before = ids.clone()
    shown = model.mask_tokens(ids, 0.1)
    assert torch.equal(ids, before)
    hidden = shown == model.blank
    assert hidden.double().mean().item() == pytest.approx(0.1, abs=0.01)
    assert hidden.double().mean(1).max() <= 0.4
    assert torch.equal(shown[~hidden], ids[~hidden])
    assert torch.equal(model.mask_tokens(ids, 0.0), ids)


def test_it_learns_what_only_the_right_side_tells():
    """In rows a b a b ..., shifted at random, with noise before: the left side says nothing of the first token."""
    torch.manual_seed(0)
    both, before = (
        Filler(4, config(cell="gru", hidden_size=8, dropout=0.0, bidirectional=sides)) for sides in (True, False)
    )
    ids = torch.randint(4, (64, 2)).repeat_interleave(2, 1)  # each token twice: x x y y
    nats = {}
    for model in (both, before):
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        for _ in range(80):
            loss = model.loss(Passage(ids, ids))
            optimizer.zero_grad()
            (loss.total / loss.count).backward()
            optimizer.step()
        nats[model] = (loss.total / loss.count).item()
    assert nats[both] < 0.05
    assert nats[before] > 0.4


def test_mistakes():
    with pytest.raises(WeftError, match=r"model.embedding_dim=5, model.hidden_size=6.*model.tied=false"):
        Filler(V, config(tied=True))
    with pytest.raises(WeftError, match=r"'lstn' is not known.*Try: lstm"):
        Filler(V, config(cell="lstn"))
