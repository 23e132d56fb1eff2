"""Choosing and generating: exact chances, rows with their own clocks, repeatable."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from tests.checks.steppers import check_stepper
from weft.decoding import NO_TOKEN, GeneratedRow, History, Sample, TokenChoice, advance, generate, greedy, token_engine
from weft.errors import WeftError

PROBS = torch.tensor([[0.1, 0.4, 0.2, 0.3]])


class Chain:
    """A Markov chain that also counts: its state is the token before, and how many were read."""

    def __init__(self, table):
        self.table = torch.tensor(table).log()

    def initial_state(self, rows):
        return (torch.zeros(rows, dtype=torch.long), torch.zeros(rows))

    def step(self, ids, state):
        return self.table[ids], (ids, state[1] + 1)

    def select(self, state, rows):
        return tuple(part[rows] for part in state)


CYCLE = Chain([[0.05, 0.9, 0.05, 0.0], [0.0, 0.1, 0.9, 0.0], [0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 1.0]])


def chances(choice, probs, draws=20000):
    """The exact shares of [0, 1) in which each token is chosen, on a fine grid."""
    uniforms = (torch.arange(draws) + 0.5) / draws
    chosen = choice(probs.log().expand(draws, -1), uniforms)
    return torch.bincount(chosen, minlength=probs.shape[-1]) / draws


def test_the_chain_is_a_stepper():
    check_stepper(CYCLE, vocabulary=4)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Sample(), [0.1, 0.4, 0.2, 0.3]),
        (Sample(top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (Sample(top_k=99), [0.1, 0.4, 0.2, 0.3]),
        (Sample(top_p=0.69), [0, 4 / 7, 0, 3 / 7]),
        (Sample(top_p=0.71), [0, 4 / 9, 2 / 9, 3 / 9]),
        (Sample(top_p=0.0001), [0.0, 1, 0, 0]),
        (Sample(top_k=3, top_p=0.5), [0, 4 / 7, 0, 3 / 7]),
        (Sample(temperature=0.5), [0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3]),
        (Sample(min_p=0.24), [0.1, 0.4, 0.2, 0.3]),
        (Sample(min_p=0.26), [0, 4 / 9, 2 / 9, 3 / 9]),
        (Sample(min_p=1.0), [0, 1, 0, 0]),
        (Sample(top_k=3, min_p=0.6), [0, 4 / 7, 0, 3 / 7]),
        # The entropy is 1.280 nats; 0.3 has a surprisal of 1.204, 0.2 of 1.609, 0.4 of 0.916, 0.1 of 2.303.
        (Sample(typical_p=0.29), [0, 0, 0, 1]),
        (Sample(typical_p=0.31), [0, 0, 0.4, 0.6]),
        (Sample(typical_p=0.51), [0, 4 / 9, 2 / 9, 3 / 9]),
        (Sample(typical_p=0.91), [0.1, 0.4, 0.2, 0.3]),
        # Of 4/9, 2/9 and 3/9 the entropy is 1.061 nats, and 3/9 is closest.
        (Sample(top_p=0.71, typical_p=0.3), [0, 0, 0, 1]),
    ],
)
def test_chances_are_exact(choice, expected):
    expected = torch.tensor(expected, dtype=torch.float32)
    torch.testing.assert_close(chances(choice, PROBS), expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize(
    ("choice", "scores"),
    [
        (Sample(repetition_penalty=2.0), [0.1**2, 0.4**2, 0.2, 0.3]),
        (Sample(repetition_penalty=0.5), [0.1**0.5, 0.4**0.5, 0.2, 0.3]),
        (Sample(presence_penalty=0.7), [0.1, 0.4 * math.exp(-0.7), 0.2, 0.3]),
        (Sample(frequency_penalty=-0.2), [0.1, 0.4 * math.exp(0.6), 0.2, 0.3]),
        (Sample(temperature=0.5, repetition_penalty=2.0, presence_penalty=0.1, frequency_penalty=0.2),
         [0.1**4, (0.4**2 * math.exp(-0.7)) ** 2, 0.2**2, 0.3**2]),
    ],
)  # fmt: skip
def test_penalties_count_the_text_so_far(choice, scores):
    """The prompt has token 0; token 1 has been generated three times."""
    seen, draws = {0: 0, 1: 3}, 2000
    uniforms = (torch.arange(draws) + 0.5) / draws
    chosen = choice(PROBS.log().expand(draws, -1), uniforms, [seen] * draws)
    expected = torch.tensor(scores) / sum(scores)
    torch.testing.assert_close(torch.bincount(chosen, minlength=4) / draws, expected, atol=2e-3, rtol=0)


def test_a_generated_text_does_not_repeat_itself():
    counting = Chain([[0.1, 0.3, 0.3, 0.3]] * 4)
    rows = list(zip(*generate(counting, [[0], [1]], Sample(top_k=1, frequency_penalty=2.0), tokens=8), strict=True))
    assert [sorted(row[:3]) for row in rows] == [[1, 2, 3], [1, 2, 3]]
    rows = list(zip(*generate(counting, [[1], [2, 3]], Sample(top_k=1, repetition_penalty=9), tokens=4), strict=True))
    written = [[token for token in row if token != NO_TOKEN] for row in rows]
    assert written == [[2, 3, 0, 1], [1, 0, 1, 1]]  # when every token has occurred, the most probable ones return


def test_impossible_tokens_are_never_chosen_even_at_the_edges():
    probs = torch.tensor([[0.0, 0.5, 0.5, 0.0]])
    for uniform in (0.0, 0.5, 1 - 1e-16, 0.9999999):
        assert Sample()(probs.log(), torch.tensor([uniform], dtype=torch.float64)).item() in (1, 2)


def test_greedy_takes_the_likeliest():
    assert greedy(PROBS.log(), torch.zeros(1)).tolist() == [1]
    assert list(generate(CYCLE, [[0]], greedy, tokens=4)) == [[1], [2], [0], [1]]


def test_each_row_has_its_own_clock():
    steps = list(generate(CYCLE, [[0], [0, 1, 2], [1]], greedy, tokens=3))
    assert [row for row, *_ in steps] == [1, 2, 0, NO_TOKEN, NO_TOKEN]
    assert [row for _, row, _ in steps] == [NO_TOKEN, NO_TOKEN, 0, 1, 2]
    assert [row for *_, row in steps] == [2, 0, 1, NO_TOKEN, NO_TOKEN]


def test_a_row_does_not_depend_on_the_others():
    alone = [row for (row,) in generate(CYCLE, [[0, 1]], Sample(), tokens=30, seed=5)]
    batch = [row for row, _, _ in generate(CYCLE, [[0, 1], [2], [1, 1, 2, 0]], Sample(), tokens=30, seed=5)]
    assert [token for token in alone if token != NO_TOKEN] == [token for token in batch if token != NO_TOKEN]


def test_rows_that_begin_together_are_computed_together_until_they_end():
    """One call of the model for each token, of fewer rows when some have ended."""
    sizes = []

    class Counting(Chain):
        def step(self, ids, state):
            sizes.append(len(ids))
            assert len(ids) == len(state[1])
            return super().step(ids, state)

    chain = Counting(CYCLE.table.exp().tolist())
    rows = list(zip(*generate(chain, [[0], [0, 1, 2], [1]], Sample(), tokens=20, end=3), strict=True))
    lengths = sorted(sum(token != NO_TOKEN for token in row) for row in rows)
    assert lengths[0] < lengths[-1]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 3
    assert sum(sizes) <= sum(lengths) + 3 + 2  # each row also reads its end, one row two more tokens of its prompt


def test_rows_join_and_leave():
    """A row that comes later, in another way of choosing, has the tokens that it has alone."""
    engine = token_engine(CYCLE)
    choices = [TokenChoice(Sample(), (), None), TokenChoice(greedy, ((3, -math.inf),), None)]

    def new_row(number):
        history = History(engine)
        history.append([number % 3])
        return GeneratedRow(history, choices[number % 2], limit=10 + number, seed=(1, number))

    rows, together = [], []
    for number in range(6):
        rows.append(new_row(number))
        sizes = [len(batch) for batch in advance(engine, rows, 4)]
        together.append(max(sizes))
    rows[4].abandoned, before = True, list(rows[4].history.ids)
    while not all(row.over for row in rows):
        list(advance(engine, rows, 4))
    assert rows[4].history.ids == before
    assert max(together) > 2
    for number in (0, 1, 2, 3, 5):
        alone = new_row(number)
        while not alone.over:
            list(advance(engine, [alone], 7))
        assert alone.history.ids == rows[number].history.ids
        assert (alone.count, alone.finish) == (10 + number, "length")


def test_seed_repeats_and_another_differs():
    def run(seed):
        return list(generate(CYCLE, [[0], [0]], Sample(), tokens=50, seed=seed))

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert [a for a, _ in run(1)] != [b for _, b in run(1)]


def test_end_ends_a_row_and_banned_never_appears():
    rows = list(zip(*generate(CYCLE, [[0]] * 20, Sample(), tokens=40, end=3), strict=True))
    lengths = [sum(token != NO_TOKEN for token in row) for row in rows]
    assert min(lengths) < 40
    assert not any(3 in row for row in rows)
    rows = list(generate(CYCLE, [[2]] * 20, Sample(), tokens=1, banned=[3]))
    assert rows == [[0] * 20]


def test_generated_text_follows_the_chances():
    pairs = torch.zeros(4, 4)
    for row in zip(*generate(CYCLE, [[0]] * 200, Sample(), tokens=100, banned=[3]), strict=True):
        for a, b in pairwise((0, *row)):
            pairs[a, b] += 1
    found = pairs[:2, :3] / pairs[:2].sum(-1, keepdim=True)
    torch.testing.assert_close(found, CYCLE.table.exp()[:2, :3], atol=0.03, rtol=0)


def test_nothing_to_write_or_to_read():
    assert list(generate(CYCLE, [[0]], greedy, tokens=0)) == []
    with pytest.raises(WeftError, match="no token"):
        list(generate(CYCLE, [[0], []], greedy, tokens=3))


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0}, {"temperature": math.nan}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1}, {"typical_p": 0},
     {"typical_p": math.nan}, {"min_p": -0.1}, {"min_p": 1.1}, {"repetition_penalty": 0},
     {"repetition_penalty": math.inf}, {"presence_penalty": 2.1}, {"frequency_penalty": math.nan}],
)  # fmt: skip
def test_bad_settings(settings):
    with pytest.raises(WeftError, match=next(iter(settings))):
        Sample(**settings)
