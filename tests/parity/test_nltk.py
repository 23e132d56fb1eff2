"""Interpolated Kneser-Ney with one discount gives the probabilities of nltk."""

from __future__ import annotations

import math

import numpy as np
import pytest

from weft.tasks.kneser_ney import kneser_ney

lm = pytest.importorskip("nltk.lm", reason="nltk is not installed")

START = "<s>"
TEXT = (
    "in the beginning the heaven was void and the darkness was upon the face of the deep and the spirit moved "
    "upon the face of the waters and the light was good and the darkness was night and the evening was the first day"
)


def theirs(tokens, order, discount):
    """nltk's model on the same n-grams: those inside the text, and those before which the text begins."""
    padded = [START, *tokens]
    grams = [tuple(tokens[i : i + n]) for n in range(1, order + 1) for i in range(len(tokens) - n + 1)]
    grams += [tuple(padded[:n]) for n in range(2, order + 1)]
    model = lm.KneserNeyInterpolated(order, discount=discount)
    model.fit([grams], vocabulary_text=sorted(set(tokens)))
    return model


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("level", ["word", "char"])
def test_perplexity(order, level):
    tokens = TEXT.split() if level == "word" else list(TEXT[:90])
    names = sorted(set(tokens))
    ids = np.array([names.index(token) for token in tokens])
    rng = np.random.default_rng(order)
    # Half of it met, half of it shuffled: contexts of all lengths that are known, half known and not known.
    test = np.concatenate([ids[5:25], rng.permutation(ids)[:30]])
    model, peer = kneser_ney(ids, len(names), order, discount=0.3), theirs(tokens, order, 0.3)
    words = [names[i] for i in test]
    scores = [peer.score(words[t], words[max(0, t - order + 1) : t]) for t in range(1, len(words))]
    likelihood = model.evaluate(test)
    assert likelihood.nats == pytest.approx(-sum(map(math.log, scores)), rel=1e-12)
    assert likelihood.count == len(scores)
