"""The CRF against enumeration over all K^T sequences of tags: values, gradients, constraints, lengths."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from weft.errors import WeftError
from weft.nn.crf import CRF, TagConstraints, bio_constraints, bioes_constraints

B, T, K = 4, 4, 3
LENGTHS = torch.tensor([3, 4, 1, 2])


def layer(allowed=None, *, tags=K, dtype=torch.float64):
    torch.manual_seed(5)
    crf = CRF(tags, allowed).to(dtype)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_()
    return crf


def scores(seed=1, *, rows=B, steps=T, tags=K, dtype=torch.float64):
    numbers = torch.randn(rows, steps, tags, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for row, length in enumerate(LENGTHS[:rows]):
        numbers[row, length:] = torch.nan  # nobody may look there
    return numbers.to(dtype).requires_grad_()


def paths(crf, numbers, length):
    """Every allowed path of one row and its score, differentiable."""
    for path in itertools.product(range(crf.tags), repeat=length):
        if length == 0:
            yield path, numbers.new_zeros(())
            continue
        moves = list(itertools.pairwise(path))
        allowed = crf.start_allowed[path[0]] and crf.end_allowed[path[-1]]
        if allowed and all(crf.transition_allowed[a, b] for a, b in moves):
            total = crf.start[path[0]] + crf.end[path[-1]]
            total = total + sum(numbers[t, h] for t, h in enumerate(path))
            yield path, total + sum(crf.transition[a, b] for a, b in moves)


NOT_TWICE = TagConstraints(
    torch.tensor([True, True, False]), ~torch.eye(3, dtype=torch.bool), torch.tensor([True, False, True])
)


@pytest.mark.parametrize("allowed", [None, NOT_TWICE])
def test_partition_and_gradients(allowed):
    crf, numbers = layer(allowed), scores()
    found = crf.log_partition(numbers, LENGTHS)
    rows = [torch.stack([s for _, s in paths(crf, numbers[row], n)]) for row, n in enumerate(LENGTHS.tolist())]
    expected = torch.stack([row.logsumexp(0) for row in rows])
    torch.testing.assert_close(found, expected)
    weights = torch.tensor([0.3, -2.0, 1.7, 0.9], dtype=torch.float64)
    sources = [numbers, *crf.parameters()]
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), sources),
        torch.autograd.grad((expected * weights).sum(), sources),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_gradcheck():
    crf = layer(NOT_TWICE)
    numbers = torch.randn(2, 3, K, dtype=torch.float64).requires_grad_()
    lengths = torch.tensor([3, 2])

    def function(numbers, *parameters):
        return torch.func.functional_call(
            crf, dict(zip(("start", "transition", "end"), parameters, strict=True)), (numbers, lengths)
        )

    crf.forward = crf.log_partition
    assert torch.autograd.gradcheck(function, (numbers, *crf.parameters()))


@pytest.mark.parametrize("allowed", [None, NOT_TWICE])
def test_likelihood_marginals_best(allowed):
    crf, numbers = layer(allowed), scores(2)
    tags = torch.tensor([[0, 2, 0, 9], [1, 0, 1, 2], [0, 9, 9, 9], [1, 2, -5, 9]])  # what stands past the end is no tag
    log_likelihood = crf.log_likelihood(numbers, tags, LENGTHS)
    marginals = crf.marginals(numbers, LENGTHS)
    best, ranked = crf.decode(numbers, LENGTHS), crf.n_best(numbers, 100, LENGTHS)
    three = crf.n_best(numbers, 3, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        all_paths = [(path, s.item()) for path, s in paths(crf, numbers[row], length)]
        log_z = math.log(sum(math.exp(s) for _, s in all_paths))
        chances = {path: s - log_z for path, s in all_paths}
        assert log_likelihood[row].item() == pytest.approx(chances[tuple(tags[row, :length].tolist())])
        expected = torch.zeros(T, K, dtype=torch.float64)
        for path, log_prob in chances.items():
            for t, h in enumerate(path):
                expected[t, h] += math.exp(log_prob)
        torch.testing.assert_close(marginals[row], expected)
        order = sorted(chances, key=chances.get, reverse=True)
        assert [tuple(path.tags) for path in ranked[row]] == order
        assert [path.log_prob for path in ranked[row]] == pytest.approx([chances[path] for path in order])
        assert three[row] == ranked[row][:3]
        assert tuple(best[row].tags) == order[0]
        assert best[row].log_prob == pytest.approx(chances[order[0]])


@pytest.mark.parametrize("allowed", [None, NOT_TWICE])
def test_the_chance_of_a_stretch_is_that_of_all_paths_through_it(allowed):
    crf, numbers = layer(allowed), scores(4)
    wanted = []
    for row, length in enumerate(LENGTHS.tolist()):
        path = [[0, 2, 0, 1], [1, 0, 1, 2], [0, 1, 0, 1], [1, 2, 1, 0]][row][:length]
        wanted.append((path, list(itertools.combinations(range(length + 1), 2))))
    found = crf.segment_probabilities(numbers, wanted, LENGTHS)
    for row, (path, stretches) in enumerate(wanted):
        all_paths = [(one, s.item()) for one, s in paths(crf, numbers[row], len(path))]
        total = sum(math.exp(s) for _, s in all_paths)
        for (begin, end), chance in zip(stretches, found[row], strict=True):
            through = sum(math.exp(s) for one, s in all_paths if list(one[begin:end]) == path[begin:end])
            assert chance == pytest.approx(through / total)


def test_float32_gives_float32():
    crf, numbers = layer(dtype=torch.float32), scores(dtype=torch.float32)
    tags = torch.zeros(B, T, dtype=torch.int64)
    loss = -crf.log_likelihood(numbers, tags, LENGTHS).sum()
    loss.backward()
    assert loss.dtype == numbers.grad.dtype == crf.transition.grad.dtype == torch.float32
    double = -layer().log_likelihood(scores(), tags, LENGTHS).sum()
    assert loss.item() == pytest.approx(double.item(), rel=1e-5)


def test_a_row_alone_is_a_row_in_a_batch():
    crf, numbers = layer(NOT_TWICE), scores(3)
    together = crf.log_partition(numbers, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = crf.log_partition(numbers[row : row + 1, :length])
        torch.testing.assert_close(alone[0], together[row], rtol=1e-13, atol=1e-13)


def test_empty_rows():
    crf = layer()
    lengths = torch.tensor([0, 2, 0, 0])
    tags = torch.zeros(B, T, dtype=torch.int64)
    found = crf.log_likelihood(scores(), tags, lengths)
    assert found[[0, 2, 3]].tolist() == [0, 0, 0]
    assert [len(path.tags) for path in crf.decode(scores(), lengths)] == lengths.tolist()


def test_training_learns_tags_that_only_their_neighbours_tell():
    """Every place looks the same: only transitions can learn that tags alternate."""
    crf = CRF(2)
    tags = torch.tensor([[0, 1] * 5, [1, 0] * 5])
    optimizer = torch.optim.Adam(crf.parameters(), 0.1)
    for _ in range(60):
        loss = -crf.log_likelihood(torch.zeros(2, 10, 2), tags).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.0  # a coin for the first tag is 0.69
    hint = torch.zeros(1, 6, 2)
    hint[0, 3, 1] = 1.0
    assert crf.decode(hint)[0].tags == [0, 1, 0, 1, 0, 1]


def test_bio():
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    allowed = bio_constraints(tags)
    assert allowed.start.tolist() == [True, True, False, True, False]
    assert allowed.end.all()
    may = {(tags[a], tags[b]) for a, b in allowed.transition.nonzero().tolist()}
    assert ("O", "I-PER") not in may
    assert ("B-PER", "I-LOC") not in may
    assert ("B-PER", "I-PER") in may
    assert ("I-PER", "I-PER") in may
    assert len(may) == 25 - 2 * 3


def test_bioes():
    tags = ["O", "S-X", "B-X", "I-X", "E-X", "B-Y", "E-Y"]
    allowed = bioes_constraints(tags)
    names = [tag for tag, yes in zip(tags, allowed.start.tolist(), strict=True) if yes]
    assert names == ["O", "S-X", "B-X", "B-Y"]
    names = [tag for tag, yes in zip(tags, allowed.end.tolist(), strict=True) if yes]
    assert names == ["O", "S-X", "E-X", "E-Y"]
    may = {(tags[a], tags[b]) for a, b in allowed.transition.nonzero().tolist()}
    after = {tag: {b for a, b in may if a == tag} for tag in tags}
    assert after["B-X"] == after["I-X"] == {"I-X", "E-X"}
    assert after["B-Y"] == {"E-Y"}
    assert after["O"] == after["S-X"] == after["E-Y"] == {"O", "S-X", "B-X", "B-Y"}


def test_constrained_paths_are_always_allowed():
    tags = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    crf = layer(bio_constraints(tags), tags=5)
    numbers = torch.randn(30, 8, 5, dtype=torch.float64) * 3
    for path in crf.decode(numbers):
        for before, after in itertools.pairwise(["O", *(tags[tag] for tag in path.tags)]):
            assert not after.startswith("I") or before[1:] == after[1:]


def test_mistakes():
    crf = layer(NOT_TWICE)
    with pytest.raises(WeftError, match=r"row 0, \[0, 0, 1\]"):
        crf.log_likelihood(scores(), torch.tensor([[0, 0, 1, 0]] * 4), LENGTHS)
    with pytest.raises(WeftError, match=r"expected \(B, T, 3\)"):
        crf.log_partition(torch.zeros(1, 2, 5))
    with pytest.raises(WeftError, match="lengths are"):
        crf.log_partition(torch.zeros(1, 2, 3), torch.tensor([3]))
    with pytest.raises(WeftError, match="no sequence of 1 tags"):
        layer(
            TagConstraints(
                torch.tensor([True, False, False]), torch.ones(3, 3).bool(), torch.tensor([False, True, True])
            )
        ).decode(torch.zeros(1, 1, 3))
    with pytest.raises(WeftError, match="'Q-X'"):
        bio_constraints(["O", "Q-X"])
    with pytest.raises(WeftError, match="booleans"):
        CRF(3, TagConstraints(torch.ones(3), torch.ones(3, 3).bool(), torch.ones(3).bool()))


# --- mutants --------------------------------------------------------------------------------------------------------


class NoStart(CRF):
    def masked(self):
        _, transition, end = super().masked()
        return torch.zeros_like(self.start), transition, end


class Swapped(CRF):
    def masked(self):
        start, transition, end = super().masked()
        return start, transition.t(), end


class PastTheEnd(CRF):
    def log_partition(self, scores, lengths=None):
        return super().log_partition(scores.nan_to_num(0.0), None)


@pytest.mark.parametrize("mutant", [NoStart, Swapped, PastTheEnd])
def test_mutants_are_noticed(mutant, monkeypatch):
    monkeypatch.setitem(globals(), "CRF", mutant)
    with pytest.raises(AssertionError):
        test_partition_and_gradients(None)
    with pytest.raises(AssertionError):
        test_likelihood_marginals_best(None)
