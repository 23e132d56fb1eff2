"""The recursions against enumeration over all K^T paths, compiled and plain, with everything that can be forbidden."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.chains import NO_STATE, Chains, kernel, n_best, reference

HOMES = [
    pytest.param(reference, id="plain"),
    pytest.param(
        kernel, id="compiled", marks=pytest.mark.skipif(kernel.library() is None, reason="the core is not built here")
    ),
]
INF = math.inf


def random_chains(seed, K, lengths, *, spread=1.0, forbidden=0.0, kinds=None):
    """Chains with gaps between them, out of order, with NaN where nobody may look."""
    random = torch.Generator().manual_seed(seed)

    def scores(*shape):
        numbers = torch.randn(shape, generator=random, dtype=torch.float64) * spread
        numbers[torch.rand(shape, generator=random) < forbidden] = -INF
        return numbers

    begins, place = [], 1
    for length in lengths:
        begins.append(place)
        place += length + 1
    total = place + 1
    if kinds is None:
        table, ids = scores(total, K), torch.arange(total)
        used = {begin + t for begin, length in zip(begins, lengths, strict=True) for t in range(length)}
        table[[place for place in range(total) if place not in used]] = torch.nan
    else:
        table, ids = scores(kinds, K), torch.randint(kinds, (total,), generator=random)
    whole = {"dtype": torch.int64}
    return Chains(
        scores(K), scores(K, K), scores(K), table, ids, torch.tensor(begins, **whole), torch.tensor(lengths, **whole)
    )


def paths_of(chains, row):
    """Every path with its score."""
    begin, T = int(chains.begins[row]), int(chains.lengths[row])
    rows = [chains.table[chains.ids[begin + t]].tolist() for t in range(T)]
    start, transition, end = chains.start.tolist(), chains.transition.tolist(), chains.end.tolist()
    for path in itertools.product(range(chains.states), repeat=T):
        score = sum(rows[t][h] for t, h in enumerate(path)) + sum(transition[a][b] for a, b in itertools.pairwise(path))
        yield path, score + start[path[0]] + end[path[-1]] if T else 0.0


def log_sum(values):
    most = max(values, default=-INF)
    return most if most == -INF else most + math.log(sum(math.exp(value - most) for value in values))


def enumerate_row(chains, row):
    """log_z, the posterior and cavity of each place, and expected counts: from all the paths."""
    K, T, begin = chains.states, int(chains.lengths[row]), int(chains.begins[row])
    paths = list(paths_of(chains, row))
    log_z = log_sum([score for _, score in paths])
    posterior, cavity = torch.zeros(T, K, dtype=torch.float64), torch.zeros(T, K, dtype=torch.float64)
    pairs = torch.zeros(K, K, dtype=torch.float64)
    if log_z > -INF:
        for path, score in paths:
            share = math.exp(score - log_z)
            for t, h in enumerate(path):
                posterior[t, h] += share
            for a, b in itertools.pairwise(path):
                pairs[a, b] += share
        for t in range(T):
            own = chains.table.clone()
            own[chains.ids[begin + t]] = 0  # only right where no other place shares the row: the caller sees to it
            twin = Chains(chains.start, chains.transition, chains.end, own, *place_parts(chains))
            logs = [[score for path, score in paths_of(twin, row) if path[t] == h] for h in range(K)]
            total = log_sum([log_sum(log) for log in logs])
            cavity[t] = torch.tensor([math.exp(log_sum(log) - total) for log in logs], dtype=torch.float64)
    return log_z, posterior, cavity, pairs


def place_parts(chains):
    return chains.ids, chains.begins, chains.lengths


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=torch.float64), rtol=tolerance, atol=tolerance)


CASES = {
    "plain": {"K": 3, "lengths": [4, 0, 1, 5, 2]},
    "one state": {"K": 1, "lengths": [3, 1]},
    "nine states": {"K": 9, "lengths": [3, 2]},
    "forbidden": {"K": 4, "lengths": [4, 3, 2, 1, 4], "forbidden": 0.3},
    "much forbidden": {"K": 3, "lengths": [4, 3, 2, 1, 5], "forbidden": 0.6},
    "wide": {"K": 3, "lengths": [5, 4, 3], "spread": 300.0},
    "wide and forbidden": {"K": 3, "lengths": [5, 4, 5, 5], "spread": 800.0, "forbidden": 0.3},
}


def check_sums(home, chains):
    found, posterior = home.posterior(chains)
    weights = torch.linspace(0.5, 2.0, chains.rows, dtype=torch.float64)
    expected = home.expect(chains, weights)
    table, pairs = torch.zeros_like(chains.table), torch.zeros_like(chains.transition)
    first, last = torch.zeros_like(chains.start), torch.zeros_like(chains.end)
    for row in range(chains.rows):
        begin, T = int(chains.begins[row]), int(chains.lengths[row])
        log_z, shares, around, row_pairs = enumerate_row(chains, row)
        for result in (found, home.partition(chains), expected):
            close(result.log_z[row], log_z)
        close(posterior[begin : begin + T], shares)
        close(home.cavity(chains)[1][begin : begin + T], around)
        assert (found.dead[row] >= 0) == (log_z == -INF)
        table.index_add_(0, chains.ids[begin : begin + T], shares * weights[row])
        pairs += row_pairs * weights[row]
        if T:
            first, last = first + shares[0] * weights[row], last + shares[-1] * weights[row]
    close(expected.table, table)
    close(expected.transition, pairs)
    close(expected.start, first)
    close(expected.end, last)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_sums(home, case, seed):
    check_sums(home, random_chains(seed, **CASES[case]))


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_viterbi(home, case, seed):
    chains = random_chains(seed, **CASES[case])
    states, score = home.viterbi(chains)
    for row in range(chains.rows):
        begin, T = int(chains.begins[row]), int(chains.lengths[row])
        path, best = max(paths_of(chains, row), key=lambda pair: pair[1])
        close(score[row], best)
        assert states[begin : begin + T].tolist() == ([NO_STATE] * T if best == -INF else list(path))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [1, 3, 10_000])
def test_n_best_are_all_paths_sorted(case, count):
    chains = random_chains(7, **CASES[case])
    for row, found in enumerate(n_best(chains, count)):
        paths = sorted((-score, path) for path, score in paths_of(chains, row) if score > -INF)[:count]
        assert [tuple(path) for _, path in found] == [path for _, path in paths]
        assert [score for score, _ in found] == pytest.approx([-score for score, _ in paths])


@pytest.mark.parametrize("home", HOMES)
def test_what_is_far_behind_may_come_back(home):
    """Two worlds that never meet: the first leads by 1200 nats at the start, and loses by 30 nats a step after it."""
    T = 100
    apart = torch.tensor([[0.0, -INF], [-INF, 0.0]], dtype=torch.float64)
    scores = torch.tensor([[0.0, -1200.0]] + [[-30.0, 0.0]] * (T - 1), dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)
    chains = Chains.padded(zero, apart, zero, scores[None], None)
    found, posterior = home.posterior(chains)
    close(found.log_z, [-1200.0])
    close(posterior, [[0.0, 1.0]] * T)
    close(home.expect(chains, torch.ones(1, dtype=torch.float64)).transition, [[0, 0], [0, T - 1]])


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("score", [0.0, -3.0, 5.0])
def test_long_chains_of_equal_scores(home, score):
    """K^T paths of the same score: far more than any number can hold, and far less."""
    K, T = 12, 2000
    equal = torch.full((K,), score, dtype=torch.float64)
    chains = Chains.padded(equal, equal.expand(K, K), equal, equal.expand(1, T, K), None)
    close(home.partition(chains).log_z, [T * math.log(K) + score * (2 * T + 1)], 1e-12)


@pytest.mark.parametrize("home", HOMES)
def test_the_place_where_a_chain_breaks_off_is_named(home):
    scores = torch.zeros(3, 4, 2, dtype=torch.float64)
    scores[0, 2] = -INF
    scores[1, 0] = -INF
    zero = torch.zeros(2, dtype=torch.float64)
    log_z, dead = home.partition(Chains.padded(zero, torch.zeros(2, 2), zero, scores, None))
    assert dead.tolist() == [2, 0, -1]
    assert log_z.isneginf().tolist() == [True, True, False]


@pytest.mark.skipif(kernel.library() is None, reason="the core is not built here")
@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 70),
    st.lists(st.integers(0, 30), max_size=6),
    st.sampled_from([0.1, 3.0, 100.0]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([None, 7]),
)
def test_compiled_equals_plain(seed, K, lengths, spread, forbidden, kinds):
    chains = random_chains(seed, K, lengths, spread=spread, forbidden=forbidden, kinds=kinds)
    weights = torch.rand(len(lengths), dtype=torch.float64)
    for one, other in (
        (kernel.partition(chains), reference.partition(chains)),
        (kernel.expect(chains, weights), reference.expect(chains, weights)),
    ):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    for name in ("posterior", "cavity"):
        a, b = getattr(kernel, name)(chains)[1], getattr(reference, name)(chains)[1]
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(kernel.viterbi(chains).score, reference.viterbi(chains).score, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("home", HOMES)
def test_a_chain_alone_is_a_chain_among_others(home):
    chains = random_chains(3, 5, [7, 3, 9, 1, 12], kinds=4)
    together = home.posterior(chains)[1]
    for row in range(chains.rows):
        places = slice(int(chains.begins[row]), int(chains.begins[row] + chains.lengths[row]))
        alone, shares = home.posterior(chains.chain(row))
        close(alone.log_z, home.partition(chains).log_z[row : row + 1], 1e-13)
        close(shares[places], together[places], 1e-13)


# --- mutants: one thing wrong each, and enumeration notices ------------------------------------------------------


def mutate(chains, **changes):
    parts = {name: getattr(chains, name) for name in Chains.__dataclass_fields__}
    return Chains(**{**parts, **changes})


class Mutant:
    """The plain recursions on a problem that has one thing wrong."""

    def __init__(self, change):
        self.change = change

    def __getattr__(self, name):
        return lambda chains, *rest: getattr(reference, name)(self.change(chains), *rest)


MUTANTS = {
    "no initial distribution": lambda c: mutate(c, start=torch.zeros_like(c.start)),
    "transition the other way round": lambda c: mutate(c, transition=c.transition.t().contiguous()),
    "no end": lambda c: mutate(c, end=torch.zeros_like(c.end)),
    "one place too few": lambda c: mutate(c, lengths=(c.lengths - 1).clamp(min=0)),
    "places shifted": lambda c: mutate(c, begins=c.begins - 1),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_noticed(name):
    chains = random_chains(1, 3, [4, 3, 2], kinds=None)
    with pytest.raises(AssertionError):
        check_sums(Mutant(MUTANTS[name]), chains)
    score = Mutant(MUTANTS[name]).viterbi(chains).score
    best = [max(score for _, score in paths_of(chains, row)) for row in range(3)]
    with pytest.raises(AssertionError):
        close(score, best)
