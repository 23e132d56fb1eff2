"""The CRF on ordinary batches: what pytorch-crf gives, values and gradients."""

from __future__ import annotations

import pytest
import torch

from weft.nn.crf import CRF

torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")

B, T, K = 7, 19, 5


@pytest.fixture
def both():
    torch.manual_seed(1)
    ours, theirs = CRF(K).double(), torchcrf.CRF(K, batch_first=True).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_()
        theirs.start_transitions.copy_(ours.start)
        theirs.transitions.copy_(ours.transition)
        theirs.end_transitions.copy_(ours.end)
    scores = (2 * torch.randn(B, T, K, dtype=torch.float64)).requires_grad_()
    lengths = torch.tensor([T, 1, 7, 12, T, 3, 2])
    return ours, theirs, scores, torch.randint(K, (B, T)), lengths, torch.arange(T) < lengths[:, None]


def test_log_likelihood_and_gradients(both):
    ours, theirs, scores, tags, lengths, mask = both
    found = ours.log_likelihood(scores, tags, lengths)
    expected = theirs(scores, tags, mask, reduction="none")
    torch.testing.assert_close(found, expected)
    weights = torch.linspace(-1, 2, B, dtype=torch.float64)
    parameters = [theirs.start_transitions, theirs.transitions, theirs.end_transitions]
    for a, b in zip(
        torch.autograd.grad((found * weights).sum(), [scores, *ours.parameters()]),
        torch.autograd.grad((expected * weights).sum(), [scores, *parameters]),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_viterbi(both):
    ours, theirs, scores, _, lengths, mask = both
    assert [path.tags for path in ours.decode(scores, lengths)] == theirs.decode(scores, mask)
