"""Peers of text classification: NB-SVM, logistic regression and linear SVC of scikit-learn, and fastText.

Called by benchmarks/peers/__main__.py in an environment of its own, with a folder that has train, dev and test.jsonl.
Prints a line of JSON for each peer: its accuracy on the test texts with the settings that were best on the development
texts.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

TOKEN = r"[^\W\d_]+(?:'[a-z]+)?|\d+|[^\w\s]"
HAN = re.compile(r"([㐀-鿿])")
Part = tuple[list[str], list[str]]
Predict = Callable[[list[str]], list[str]]


def read(folder: str, name: str) -> Part:
    content = (Path(folder) / f"{name}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in content.split("\n") if line]  # splitlines would split texts at U+0085
    return [HAN.sub(r" \1 ", row["text"].lower()) for row in rows], [row["label"] for row in rows]


def accuracy(predict: Predict, part: Part) -> float:
    texts, labels = part
    return float(np.mean([one == other for one, other in zip(predict(texts), labels, strict=True)]))


def linear(kind: Any, vectorizer: Any, c: float, train: Part) -> Predict:
    texts, labels = train
    model = kind(C=c, max_iter=1000).fit(vectorizer.fit_transform(texts), labels)
    return lambda new: model.predict(vectorizer.transform(new)).tolist()


def nbsvm(train: Part, *, c: float, n: int, beta: float = 0.25) -> Predict:
    """Wang and Manning 2012: binary n-grams times log-count ratios, interpolated weights, one against the others."""
    texts, labels = train
    counter = CountVectorizer(ngram_range=(1, n), binary=True, token_pattern=TOKEN)
    features = counter.fit_transform(texts).astype(float)
    names, truth = sorted(set(labels)), np.array(labels)
    weights, biases = [], []
    for name in names:
        inside = np.asarray(features[truth == name].sum(0))[0] + 1
        outside = np.asarray(features[truth != name].sum(0))[0] + 1
        ratio = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
        model = LinearSVC(C=c, max_iter=2000).fit(sparse.csr_matrix(features.multiply(ratio)), truth == name)
        own = model.coef_[0]
        weights.append(((1 - beta) * np.abs(own).mean() + beta * own) * ratio)
        biases.append(beta * model.intercept_[0])
    matrix, bias = np.array(weights).T, np.array(biases)

    def predict(new: list[str]) -> list[str]:
        return [names[place] for place in (counter.transform(new) @ matrix + bias).argmax(1)]

    return predict


def fasttext(train: Part, *, epoch: int, lr: float, word_ngrams: int) -> Predict:
    import fasttext as peer

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.txt"
        rows = (f"__label__{label} {' '.join(re.findall(TOKEN, text))}\n" for text, label in zip(*train, strict=True))
        file.write_text("".join(rows), encoding="utf-8")
        model = peer.train_supervised(
            str(file), epoch=epoch, lr=lr, wordNgrams=word_ngrams, bucket=500_000, thread=1, seed=1, verbose=0
        )

    def predict(new: list[str]) -> list[str]:
        # Not model.predict, which fails with NumPy 2.
        pairs = (model.f.predict(" ".join(re.findall(TOKEN, text)) + "\n", 1, 0.0, "strict") for text in new)
        return [found[0][1].removeprefix("__label__") if found else "" for found in pairs]

    return predict


def searches() -> dict[str, list[tuple[str, Callable[[Part], Predict]]]]:
    """The peers, each with its settings to choose from."""
    found: dict[str, list[tuple[str, Callable[[Part], Predict]]]] = {}
    found["NB-SVM (scikit-learn)"] = [
        (f"C={c}, n-grams to {n}", lambda train, c=c, n=n: nbsvm(train, c=c, n=n))
        for c, n in itertools.product((0.1, 1.0), (2, 3))
    ]
    for name, kind in (("logistic regression", LogisticRegression), ("linear SVC", LinearSVC)):
        found[f"{name} (scikit-learn)"] = [
            (
                f"tf-idf, C={c}, n-grams to {n}",
                lambda train, c=c, n=n, kind=kind: linear(
                    kind, TfidfVectorizer(ngram_range=(1, n), token_pattern=TOKEN, sublinear_tf=True), c, train
                ),
            )
            for c, n in itertools.product((0.3, 1.0, 10.0), (2, 3))
        ]
    try:
        import fasttext as _  # noqa: F401
    except ImportError:
        return found
    found["fastText"] = [
        (
            f"epoch={e}, lr={lr}, wordNgrams={n}",
            lambda train, e=e, lr=lr, n=n: fasttext(train, epoch=e, lr=lr, word_ngrams=n),
        )
        for e, lr, n in itertools.product((10, 25), (0.2, 0.5), (2, 3))
    ]
    return found


def main(folder: str) -> None:
    train, dev, test = (read(folder, name) for name in ("train", "dev", "test"))
    for model, settings in searches().items():
        scored = [(accuracy(fit(train), dev), number) for number, (_, fit) in enumerate(settings)]
        name, fit = settings[max(scored, key=lambda one: (one[0], -one[1]))[1]]
        began = time.process_time()
        predict = fit(train)
        seconds = time.process_time() - began
        score = accuracy(predict, test)
        record = {"model": model, "score": round(score, 4), "seconds": round(seconds, 1), "settings": name}
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
