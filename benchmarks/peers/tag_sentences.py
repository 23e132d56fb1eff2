"""Peers of tagging: CRFsuite with the usual features of words or characters, and spaCy.

Called by benchmarks/peers/__main__.py in an environment of its own, with a folder that has train, dev and test.jsonl:
sentences of words with tags, or of characters with the tags of the words they are in. Prints a line of JSON for each
peer: accuracy, or F1 of spans if the tags are spans, on the test sentences with the settings that were best on the
development sentences.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pycrfsuite
from seqeval.metrics import f1_score

EPOCHS, MOST_SECONDS = 12, 240  # of spaCy, in CPU time: about what weft takes for the largest set
CRF_SETTINGS = ({"c1": 0.0, "c2": 0.1}, {"c1": 0.1, "c2": 0.01}, {"c1": 0.5, "c2": 0.01})


class Sentence(NamedTuple):
    words: list[str]
    tags: list[str]


Part = list[Sentence]
Predict = Callable[[Sequence[Sequence[str]]], list[list[str]]]


def read(folder: str, name: str) -> Part:
    content = (Path(folder) / f"{name}.jsonl").read_text(encoding="utf-8")
    return [Sentence(**json.loads(line)) for line in content.split("\n") if line]


def are_spans(part: Part) -> bool:
    return any(tag.startswith("B-") for one in part for tag in one.tags)


def score(predict: Predict, part: Part) -> float:
    truth, found = [one.tags for one in part], predict([one.words for one in part])
    if are_spans(part):
        return float(f1_score(truth, found))
    pairs = [(a, b) for one, other in zip(truth, found, strict=True) for a, b in zip(one, other, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


def shape(word: str) -> str:
    kinds = "".join("X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word)
    return "".join(kind for place, kind in enumerate(kinds) if kinds[place - 1 : place] != kind)


def word_features(words: Sequence[str]) -> Iterator[list[str]]:
    """Of each word: itself, its shape, prefixes and suffixes; of its neighbours: words and shapes; pairs of words."""
    padded = ["<2>", "<1>", *words, "<1>", "<2>"]
    lower, shapes = [word.lower() for word in padded], [shape(word) for word in padded]
    for at in range(2, len(words) + 2):
        word = lower[at]
        yield [
            "bias",
            f"s0={shapes[at]}",
            *(f"w{place:+}={lower[at + place]}" for place in (-2, -1, 0, 1, 2)),
            *(f"s{place:+}={shapes[at + place]}" for place in (-1, 1)),
            *(f"p{n}={word[:n]}" for n in (1, 2, 3, 4)),
            *(f"e{n}={word[-n:]}" for n in (1, 2, 3, 4)),
            f"w-1w={lower[at - 1]}|{word}",
            f"ww+1={word}|{lower[at + 1]}",
        ]


def character_features(characters: Sequence[str]) -> Iterator[list[str]]:
    """Of each character: n-grams of up to three characters around it, and kinds of characters."""
    padded = ["<2>", "<1>", *characters, "<1>", "<2>"]
    kinds = [shape(one) if len(one) == 1 and one.isascii() else one if len(one) > 1 else "c" for one in padded]
    for at in range(2, len(characters) + 2):
        around = padded[at - 2 : at + 3]
        grams = [(n, begin) for n in (1, 2, 3) for begin in range(6 - n)]
        yield [
            "bias",
            f"kinds={''.join(kinds[at - 1 : at + 2])}",
            *(f"{n},{begin}={''.join(around[begin : begin + n])}" for n, begin in grams),
        ]


def crfsuite(train: Part, settings: dict[str, float]) -> Predict:
    segments = all(len(word) == 1 for one in train for word in one.words)
    features = character_features if segments else word_features
    trainer = pycrfsuite.Trainer(verbose=False)
    for one in train:
        trainer.append(list(features(one.words)), one.tags)
    trainer.set_params({**settings, "max_iterations": 100, "feature.possible_transitions": True})
    file = Path(tempfile.mkdtemp()) / "model"
    trainer.train(str(file))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(file))  # it reads the file as long as it lives
    return lambda sentences: [tagger.tag(list(features(words))) for words in sentences]


def spacy_tagger(train: Part, dev: Part) -> tuple[Predict, str]:
    """spaCy's tagger or entity recognizer with its default network; the epoch that is best on `dev`."""
    import spacy
    from spacy.tokens import Doc
    from spacy.training import Example, biluo_tags_to_spans, iob_to_biluo
    from spacy.util import fix_random_seed, minibatch

    fix_random_seed(1)
    spans = are_spans(train)
    nlp = spacy.blank("xx")
    nlp.add_pipe("ner" if spans else "tagger")

    def example(one: Sentence) -> Example:
        truth = Doc(nlp.vocab, words=one.words)
        if spans:
            truth.set_ents(biluo_tags_to_spans(truth, iob_to_biluo(one.tags)))
        else:
            for token, tag in zip(truth, one.tags, strict=True):
                token.tag_ = tag
        return Example(Doc(nlp.vocab, words=one.words), truth)

    def tags_of(doc: Doc) -> list[str]:
        if not spans:
            return [token.tag_ for token in doc]
        return [f"{token.ent_iob_}-{token.ent_type_}" if token.ent_iob_ in "BI" else "O" for token in doc]

    def predict(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        docs = [Doc(nlp.vocab, words=list(words)) for words in sentences]
        return [tags_of(doc) for doc in nlp.pipe(docs, batch_size=64)]

    examples = [example(one) for one in train]
    optimizer = nlp.initialize(lambda: examples)
    best, kept, order, began = -1.0, b"", random.Random(1), time.process_time()
    for epoch in range(1, EPOCHS + 1):
        order.shuffle(examples)
        for batch in minibatch(examples, 32):
            nlp.update(batch, sgd=optimizer, drop=0.2)
        found = score(predict, dev)
        if found > best:
            best, kept, chosen = found, nlp.to_bytes(), epoch
        if time.process_time() - began > MOST_SECONDS:
            break
    nlp.from_bytes(kept)
    return predict, f"epoch {chosen} of {epoch}, dropout 0.2"


def report(model: str, predict: Predict, test: Part, seconds: float, settings: str) -> None:
    found = {"model": model, "score": round(score(predict, test), 4), "seconds": round(seconds, 1)}
    print(json.dumps({**found, "settings": settings}), flush=True)


def main(folder: str) -> None:
    train, dev, test = (read(folder, name) for name in ("train", "dev", "test"))
    tried = []
    for settings in CRF_SETTINGS:
        began = time.process_time()
        predict = crfsuite(train, settings)
        tried.append((score(predict, dev), predict, time.process_time() - began, settings))
    _, predict, seconds, settings = max(tried, key=lambda one: one[0])
    report("CRFsuite", predict, test, seconds, ", ".join(f"{name}={value}" for name, value in settings.items()))
    if all(len(word) == 1 for one in train for word in one.words):
        return  # spaCy has no trainable segmenter of its own for characters
    began = time.process_time()
    predict, words = spacy_tagger(train, dev)
    report("spaCy", predict, test, time.process_time() - began, words)


if __name__ == "__main__":
    main(sys.argv[1])
