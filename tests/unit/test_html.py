"""Results as a notebook shows them: what they contain, escaped, in well-formed HTML."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from weft import html
from weft.metrics import Confusion
from weft.metrics.tagging import SpanScores, TokenScores, WordScores
from weft.tasks.classify.predictor import ClassifiedText
from weft.tasks.predictor import ResultList
from weft.tasks.tag.evaluation import TagScores
from weft.tasks.tag.predictor import SegmentedText, TaggedText
from weft.tasks.translate.predictor import Translation
from weft.text.spans import Span
from weft.training.progress import NotebookLine

EVIL = '<script>alert("x")</script>&'


def shown(result):
    """The text of a result's HTML, which has to be well-formed: every tag is closed, every character escaped."""
    text = result._repr_html_()
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    return " ".join(" ".join(root.itertext()).split()), text


def opacities(text):
    return [float(found) for found in re.findall(r"rgba\(\d+,\d+,\d+,([\d.]+)\)", text)]


def test_confusion_matrix():
    found = Confusion.of(("no", EVIL), [("no", "no"), ("no", EVIL), (EVIL, EVIL)])
    words, text = shown(found)
    assert "accuracy 0.667" in words
    assert "no 1 1" in words
    assert f"{EVIL} 0 1" in words
    assert "no 1.000 0.500 0.667 2" in words
    assert opacities(text) == [0.3, 0.3, 0.6]  # by row: a half, a half, all


def test_many_labels_have_a_list_only():
    labels = tuple(map(str, range(html.MOST_LABELS + 1)))
    words, _ = shown(Confusion.of(labels, [("3", "3")]))
    assert "Scores" in words
    assert "predicted" not in words


def test_classified_text():
    words, text = shown(ClassifiedText("good", {"bad": 0.25, "good": 0.75}, ("a", EVIL), (0.2, 0.8), 3))
    assert words.startswith("good probability 0.750 left out 3 tokens good 0.750 bad 0.250")
    assert words.endswith(f"a {EVIL}")
    assert opacities(text)[-2:] == [0.12, 0.48]


@pytest.mark.parametrize("tokens", [(), ("a",)])
def test_classified_text_of_few_tokens(tokens):
    shown(ClassifiedText("good", {"good": 1.0}, tokens, (1.0,) * len(tokens)))


def test_tagged_text():
    sentence = ("Ada", "Byron", "likes", EVIL)
    tags = ("B-PER", "I-PER", "O", "B-LOC")
    words, text = shown(TaggedText(sentence, tags, (0.9,) * 4, 0.5, (Span("PER", 0, 2), Span("LOC", 3, 4))))
    assert words == f"Ada Byron PER likes {EVIL} LOC"
    assert "I-PER: 0.900" in text
    assert len(set(re.findall(r"rgba\([\d,]+,", text))) == 2  # a colour for each label
    plain, _ = shown(TaggedText(("the", "cat"), ("DET", "NOUN"), (1.0, 1.0), 1.0, None))
    assert plain == "the DET cat NOUN"


def test_segmented_text_marks_what_is_uncertain():
    words, text = shown(SegmentedText(("束", "搜索"), (1.0, 0.5), 0.5))
    assert words == "束 搜索"
    assert opacities(text) == [0.0, 0.3]


def test_translation():
    one = Translation("va !", -1.5, -2.0, ("va", "!", "<eos>"), ("go", EVIL), ((0.9, 0.1), (0.5, 0.5), (0.0, 1.0)))
    words, text = shown(one)
    assert words.startswith("va ! log probability -2.00 score -1.50 from go")
    assert "va .90 .10 ! .50 .50 <eos> 1.00" in words
    assert opacities(text) == [0.54, 0.06, 0.3, 0.3, 0.6]
    assert "from go" not in shown(Translation("va", -1.0, -1.0, ("va",), ("go",)))[0]


def test_scores():
    spans = SpanScores.of(["B-PER", "O"], ["B-PER", "B-LOC"])
    words, _ = shown(TagScores(TokenScores.of(["B-PER", "O"], ["B-PER", "B-LOC"], [1, 1]), spans))
    assert "precision 0.500" in words
    assert "PER 1.000 1.000 1.000 1" in words
    shown(TagScores(TokenScores(), None))
    shown(spans)
    shown(WordScores.of(["B", "E"], ["S", "S"], [1]))


def test_a_list_of_results_shows_them_all():
    one = SegmentedText(("a",), (1.0,), 1.0)
    found = ResultList([one, one])
    assert found == [one, one]
    assert shown(found)[0] == "a a"
    assert shown(ResultList([ResultList([one]), []]))[0] == "a []"
    assert shown(ResultList([one] * (html.MOST_RESULTS + 3)))[0].endswith("and 3 more")


def test_progress_in_a_notebook(monkeypatch):
    updates = []
    handle = SimpleNamespace(update=lambda data, raw: updates.append(data))
    display = SimpleNamespace(display=lambda *given, **options: handle)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    line = NotebookLine()
    line.show(0.25, "epoch 1  loss 2.0", last=False)
    line.show(0.26, "too soon", last=False)
    line.show(1.0, "the end", last=True)
    assert [one["text/plain"] for one in updates] == ["epoch 1  loss 2.0", "the end"]
    assert "width:40px" in updates[0]["text/html"]
    ElementTree.fromstring(updates[0]["text/html"])
