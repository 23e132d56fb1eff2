"""BLEU: the sentence score by hand, and the corpus scores against sacrebleu."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from tests.checks.metrics import check_metric
from weft.errors import WeftError
from weft.metrics import Translations, count_matches, precisions, sentence_bleu

tokens = st.lists(st.sampled_from("abc"), max_size=8)
LABEL, PREDICTION = ["A", "B", "C", "D", "E", "F"], ["A", "B", "B", "C", "D"]


class TestNotes:
    def test_the_worked_example(self):
        assert precisions(LABEL, PREDICTION, 4) == [4 / 5, 3 / 4, 1 / 3, 0]
        assert count_matches(LABEL, PREDICTION, 3) == (1, 3)
        expected = math.exp(1 - 6 / 5) * (4 / 5) ** (1 / 2) * (3 / 4) ** (1 / 4) * (1 / 3) ** (1 / 8)
        assert sentence_bleu(LABEL, PREDICTION, 3) == pytest.approx(expected)
        assert sentence_bleu(LABEL, PREDICTION, 4) == 0

    def test_brevity(self):
        assert sentence_bleu(LABEL, ["A", "B"], 2) == math.exp(1 - 6 / 2)

    def test_longer_than_the_label(self):
        assert sentence_bleu(["a", "b"], ["a", "b", "c"], 2) == pytest.approx((2 / 3) ** 0.5 * (1 / 2) ** 0.25)

    def test_each_match_counts_once(self):
        assert precisions(["a", "b"], ["a", "a", "a"], 1) == [1 / 3]

    @pytest.mark.parametrize(
        ("label", "prediction", "k", "score"),
        [
            (["va", "!"], ["va"], 2, 0.0),  # too short for any 2-gram, where the label has one
            (["va"], ["va"], 4, 1.0),  # there was none to find
            (["va"], ["viens"], 2, 0.0),
            (["va", "!"], [], 2, 0.0),
            ([], ["va"], 2, 0.0),
            ([], [], 2, 1.0),
        ],
    )
    def test_short_predictions(self, label, prediction, k, score):
        assert sentence_bleu(label, prediction, k) == score

    @given(tokens, tokens, st.integers(1, 5))
    def test_from_zero_to_one(self, label, prediction, k):
        assert 0 <= sentence_bleu(label, prediction, k) <= 1
        assert sentence_bleu(label, label, k) == 1

    @given(tokens.filter(len), tokens.filter(len), st.integers(1, 4))
    def test_equals_the_formula(self, label, prediction, k):
        """With n-grams as they were counted before sets: each of the prediction's takes one of the label's away."""
        if len(prediction) < k:
            return
        score = math.exp(min(0, 1 - len(label) / len(prediction)))
        for n in range(1, k + 1):
            left = [label[at : at + n] for at in range(len(label) - n + 1)]
            hits = 0
            for at in range(len(prediction) - n + 1):
                if prediction[at : at + n] in left:
                    left.remove(prediction[at : at + n])
                    hits += 1
            score *= (hits / (len(prediction) - n + 1)) ** (1 / 2**n)
        assert sentence_bleu(label, prediction, k) == pytest.approx(score)

    def test_no_n_gram(self):
        with pytest.raises(WeftError, match="the longest n-gram is 0"):
            sentence_bleu(["a"], ["a"], 0)


PREDICTIONS = ["Le chat dort dans le jardin.", "Elle aime les vieux livres !", "Il pleut."]
REFERENCES = ["Le chat dort dans un jardin.", "Elle aime les livres anciens !", "Il pleut."]
OTHERS = ["Le chat dort au jardin.", "Elle aime les vieux livres !", "La pluie tombe."]


class TestCorpus:
    def test_equals_sacrebleu(self):
        found = Translations.of(PREDICTIONS, REFERENCES)
        assert found.bleu == found.score() == sacrebleu.corpus_bleu(PREDICTIONS, [REFERENCES]).score
        assert found.chrf == sacrebleu.corpus_chrf(PREDICTIONS, [REFERENCES]).score
        assert 0 < found.bleu < 100
        assert found.exact == 1 / 3

    def test_signature(self):
        version = sacrebleu.__version__
        assert Translations.of(PREDICTIONS, REFERENCES).signature() == (
            f"BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version} "
            f"chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version} sentences:3"
        )

    def test_several_references(self):
        both = list(zip(REFERENCES, OTHERS, strict=True))
        found = Translations.of(PREDICTIONS, both)
        assert found.bleu == sacrebleu.corpus_bleu(PREDICTIONS, [REFERENCES, OTHERS]).score
        assert found.chrf == sacrebleu.corpus_chrf(PREDICTIONS, [REFERENCES, OTHERS]).score
        assert found.exact == 2 / 3
        assert "nrefs:2" in found.signature()
        assert found.bleu > Translations.of(PREDICTIONS, REFERENCES).bleu

    def test_more_references_for_some(self):
        some = [REFERENCES[0], [REFERENCES[1], OTHERS[1]], REFERENCES[2]]
        streams = [REFERENCES, [None, OTHERS[1], None]]
        found = Translations.of(PREDICTIONS, some)
        assert found.bleu == sacrebleu.corpus_bleu(PREDICTIONS, streams).score
        assert "nrefs:var" in found.signature()

    def test_chinese_is_split_into_characters(self):
        predictions, references = ["三只小猫在桥上睡觉。"], ["三只小狗在桥上睡觉。"]
        found = Translations.of(predictions, references)
        assert found.bleu == sacrebleu.corpus_bleu(predictions, [references], tokenize="zh").score > 0
        assert "tok:zh" in found.signature()
        assert "tok:13a" in Translations.of(predictions, references, tokenize="13a").signature()

    def test_parts_add_up(self):
        whole = Translations.of(PREDICTIONS, REFERENCES)
        parts = [Translations.of(PREDICTIONS[:1], REFERENCES[:1]), Translations.of(PREDICTIONS[1:], REFERENCES[1:])]
        check_metric(whole, parts)
        with pytest.raises(WeftError, match="expected the same tokenizer"):
            _ = whole + Translations.of(["a"], ["a"], tokenize="char")

    @given(st.lists(st.text("ab .", min_size=1), min_size=1), st.randoms())
    def test_from_zero_to_a_hundred(self, references, random):
        predictions = random.sample(references, len(references))
        found = Translations.of(predictions, references)
        assert 0 <= found.bleu <= 100
        assert 0 <= found.chrf <= 100
        assert 0 <= found.exact <= 1

    def test_perfect(self):
        perfect = Translations.of(REFERENCES, REFERENCES)
        assert (perfect.bleu, perfect.chrf, perfect.exact) == (100, 100, 1)

    def test_exact_ignores_white_space(self):
        assert Translations.of(["Ça va ?", "Ça va?", "ça va ?"], ["Ça va\u202f?"] * 3).exact == 1 / 3

    def test_nothing(self):
        assert Translations.of([""], ["a"]).bleu == 0
        empty = Translations.of([], [])
        assert all(math.isnan(score) for score in (empty.bleu, empty.chrf, empty.exact))
        assert "sentences:0" in empty.signature()

    def test_mistakes(self):
        with pytest.raises(WeftError, match="2 predictions and references for 1 sentences"):
            Translations.of(["a", "b"], ["a"])
        with pytest.raises(WeftError, match="sentence 2 has no reference"):
            Translations.of(["a", "b"], ["a", []])


def test_sacrebleu_is_loaded_only_when_a_corpus_is_scored():
    script = "import sys, weft, weft.metrics; assert 'sacrebleu' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
