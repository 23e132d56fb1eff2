"""Perplexity: special cases, and exact sums."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from tests.checks.metrics import check_metric
from weft.metrics import Likelihood, TokenPredictions
from weft.training.loss import count_predictions


def measured(log_probs, targets):
    return Likelihood(float(F.nll_loss(log_probs, targets, reduction="sum")), len(targets))


def test_a_perfect_model_has_perplexity_one():
    targets = torch.tensor([2, 0, 1, 1])
    assert measured(F.one_hot(targets, 3).double().log(), targets).perplexity == 1.0


def test_a_true_token_of_probability_zero_makes_it_infinite():
    probabilities = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    assert measured(probabilities.log(), torch.tensor([0, 1])).perplexity == math.inf


@pytest.mark.parametrize("size", [2, 28, 1000])
def test_a_uniform_model_has_the_size_of_the_vocabulary(size):
    log_probs = torch.full((7, size), -math.log(size), dtype=torch.float64)
    likelihood = measured(log_probs, torch.randint(size, (7,)))
    assert likelihood.perplexity == pytest.approx(size)
    assert likelihood.bits_per_token == pytest.approx(math.log2(size))


def test_overflow_is_infinite_and_no_tokens_are_nan():
    assert Likelihood(1e9, 1).perplexity == math.inf
    assert math.isnan(Likelihood(0.0, 0).perplexity)


def test_sums_not_means():
    check_metric(Likelihood(13.5, 33), [Likelihood(3.0, 2), Likelihood(10.0, 30), Likelihood(0.5, 1)])
    assert Likelihood(1.0, 4).signature("char") == "perplexity|per:char|tokens:4"


def test_token_predictions_add_up_and_count_correct_ones():
    torch.manual_seed(0)
    logits, targets = torch.randn(20, 5), torch.randint(5, (20,))
    whole = count_predictions(logits, targets)
    check_metric(
        whole, [count_predictions(logits[:3], targets[:3]), count_predictions(logits[3:], targets[3:])], atol=1e-4
    )
    assert whole.accuracy == (logits.argmax(-1) == targets).double().mean().item()
    assert whole.likelihood.perplexity == pytest.approx(measured(logits.log_softmax(-1), targets).perplexity)
    assert whole.signature("word") == "masked token|per:word|tokens:20"
    assert math.isnan(TokenPredictions(Likelihood(0.0, 0), 0).accuracy)
