"""Small runs of every task, and `weft serve` as a subprocess."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import weft

TEXT = "the cat sat on the mat.\nthe dog saw the cat.\na small cat ran to a big dog.\n" * 40
LABELLED = [("a good film", "pos"), ("a very good day", "pos"), ("a bad film", "neg"), ("a very bad day", "neg")] * 20
SPANS = [
    (["Ann", "Lee", "went", "to", "Paris", "."], ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]),
    (["Bob", "saw", "Ann", "."], ["B-PER", "O", "B-PER", "O"]),
    (["they", "live", "in", "New", "York", "."], ["O", "O", "O", "B-LOC", "I-LOC", "O"]),
] * 20
SMALL = {"model.hidden_size": 16, "model.dropout": 0.0, "train.epochs": 12, "train.learning_rate": 0.02,
         "train.warmup_steps": 2, "batch.size": 16}  # fmt: skip


class Recipe(NamedTuple):
    """How a run is trained."""

    task: str
    source: Any
    settings: dict[str, Any]
    dev: Any = None

    def changed(self, settings: Mapping[str, Any]) -> Recipe:
        """The same with other settings."""
        return self._replace(settings={**self.settings, **settings})


CORPUS = weft.Corpus.from_texts("text", [TEXT])
PAIRS = weft.Pairs(
    "pairs", ["the cat sat.", "a dog ran.", "the dog sat."] * 30, ["le chat.", "un chien.", "le chien."] * 30
)
RECIPES = {
    "lm": Recipe("lm", CORPUS, {**SMALL, "model.embedding_dim": 8, "train.epochs": 4}),
    "ngram": Recipe("ngram", CORPUS, {}),
    "hmm": Recipe(
        "hmm",
        CORPUS,
        {"model.num_states": 4, "train.iterations": 4, "train.restarts": 1, "text.tokenizer": "word"},
    ),
    "fill": Recipe("fill", CORPUS, {**SMALL, "model.embedding_dim": 16, "text.tokenizer": "word"}),
    "sentiment": Recipe("classify", LABELLED, SMALL),
    "ner": Recipe("tag", SPANS, {**SMALL, "model.embedding_dropout": 0.0, "train.epochs": 40}),
    "en-fr": Recipe("translate", PAIRS, {**SMALL, "model.hidden_size": 32, "model.embedding_dim": 32,
                    "train.ema_decay": 0.0, "train.epochs": 30, "train.evaluate_every": 30, "train.warmup_steps": 10,
                    "train.learning_rate": 0.01}, PAIRS),
}  # fmt: skip


def train_runs(folder: Path, recipes: Mapping[str, Recipe] = RECIPES) -> dict[str, Path]:
    """A small trained run of each recipe, by name."""
    for name, one in recipes.items():
        weft.train(one.task, one.source, folder / name, one.settings, dev=one.dev, progress=False)
    return {name: folder / name for name in recipes}


class Answer(NamedTuple):
    """A response: its status, its body as JSON or text, its headers."""

    status: int
    body: Any
    headers: dict[str, str]


class Served:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address.rstrip("/")
        self.port = int(self.address.rpartition(":")[2])

    def ask(self, path: str, body: Any = None, *, method: str = "", headers: dict[str, str] | None = None) -> Answer:
        """Sends a request; a body that is no bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, method=method or ("POST" if data else "GET"))
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return Answer(response.status, _value(response.read()), dict(response.headers))
        except urllib.error.HTTPError as error:
            return Answer(error.code, _value(error.read()), dict(error.headers))

    def metric(self, name: str) -> float:
        """The sum of the values of a metric."""
        lines = self.ask("/metrics").body.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0].partition(" ")[0] == name)

    def memory(self) -> int:
        """Resident bytes."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def files(self) -> int:
        """Open files and sockets."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


def _value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


@contextlib.contextmanager
def served(*arguments: str | Path, cwd: Path | None = None) -> Iterator[Served]:
    """`weft serve` on a free port; stopped by SIGTERM, after which it must exit with 0."""
    command = [sys.executable, "-m", "weft", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=cwd)
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if " at http" in line:
            break
    else:
        raise AssertionError("".join(seen))
    try:
        yield Served(process, line.split()[-1])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        rest = process.stderr.read()
        process.stderr.close()
    assert code == 0, rest
    assert "Traceback" not in rest, rest
    assert "ASGI" not in rest, rest


def wait_for(condition: Any, seconds: float, what: str) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)
