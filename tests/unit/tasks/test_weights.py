"""The weights of every trained task after 20 steps, as hashes: a change of structure must not change a bit of them.

The bits depend on the build of the engine, and on what torch and MKL choose for a CPU. The build for AVX2 computes the
same on every x86 CPU that has it, and torch, oneDNN and MKL have modes of which the same holds: with these the weights
are compared everywhere. Those of the best build are compared on a CPU for which they are recorded.

Where a change of what is computed is meant, `python -m tests.unit.tasks.test_weights` writes both records anew.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from tests.paths import ROOT
from weft.config import load_config
from weft.engine import description
from weft.machine import variants
from weft.tasks import get_task
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.fill.config import FillConfig
from weft.tasks.hmm.config import HmmConfig
from weft.tasks.lm.config import LmConfig
from weft.tasks.ngram.config import NgramConfig
from weft.tasks.tag.config import TagConfig
from weft.tasks.translate.config import TranslateConfig
from weft.text.corpus import Corpus
from weft.training.run import WEIGHTS, load_tensors

RECORD = ROOT / "tests" / "weights.json"
STEPS = 20
EVERYWHERE = {"WEFT_ENGINE": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
              "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"}  # fmt: skip

SMALL = [
    *("text.limit=4000", "model.hidden_size=24", "model.embedding_dim=12", "model.dropout=0.3"),
    *("train.learning_rate=0.004", "train.ema_decay=0.9"),
]
CASES: dict[str, tuple[Any, list[str]]] = {
    "lm": (LmConfig, [*SMALL, "batch.size=4", "batch.seq_length=9", "model.num_layers=2"]),
    "lm gru": (LmConfig, [*SMALL, "batch.size=4", "batch.seq_length=9", "model.cell=gru", "bptt.method=truncated"]),
    "fill": (FillConfig, ["text.limit=4000", "model.hidden_size=24", "model.embedding_dim=24", "batch.size=4"]),
    "classify": (
        ClassifyConfig,
        ["text.limit=400", "model.hidden_size=24", "model.embedding_dim=12", "model.pooling=attention"],
    ),
    "tag": (TagConfig, ["model.hidden_size=24"]),
    "segment": (TagConfig, ["model.hidden_size=24", "data.task=segments"]),
    "translate": (
        TranslateConfig,
        [
            "text.limit=600",
            "model.hidden_size=24",
            "model.embedding_dim=12",
            "model.dropout=0.1",
            "train.learning_rate=0.003",
            "train.optimizer=adamw",
        ],
    ),
    "translate muon": (
        TranslateConfig,
        ["text.limit=600", "model.hidden_size=24", "model.embedding_dim=12", "model.dropout=0.1"],
    ),
}
SOURCES = {"translate": "grammar-fr", "translate muon": "grammar-fr"}


def machine() -> str:
    """What the bits depend on."""
    if EVERYWHERE.items() <= os.environ.items():
        return f"x86; torch {torch.__version__}; {description()}"
    names = [line.split(":")[1].strip() for line in _cpu() if line.startswith("model name")]
    engine = description().replace("avx512_bf16", "avx512")  # they differ in low precision only
    return f"{names[0] if names else platform.machine()}; torch {torch.__version__}; {engine}"


def _cpu() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []


def trained_hash(name: str, folder: Path) -> str:
    kind, sets = CASES[name]
    source = (
        tagged_sentences() if name == "tag" else _segmented() if name == "segment" else SOURCES.get(name, "grammar")
    )
    task = get_task({"lm gru": "lm", "segment": "tag", "translate muon": "translate"}.get(name, name))
    config = load_config(kind, sets=[*sets, "train.epochs=60", "train.precision=float32"])
    training = task.start(source, folder / "run", config)
    steps = sum(1 for _ in itertools.islice((step for step in training.trainer.run() if not step.note), STEPS))
    assert steps == STEPS
    return hash_of(training.model.state_dict())


def counted_hash(name: str, folder: Path) -> str:
    config: Any = load_config(NgramConfig, sets=["text.limit=4000"])
    if name == "hmm":
        config = load_config(HmmConfig, sets=["text.limit=4000", "train.iterations=20", "model.num_states=5"])
    (weft.train_ngram if name == "ngram" else weft.train_hmm)("grammar", folder / "run", config)  # type: ignore[arg-type]
    return hash_of(load_tensors(folder / "run" / WEIGHTS).tensors)


def tagged_sentences(count: int = 60) -> list[tuple[list[str], list[str]]]:
    """Sentences in which capitalised words are spans."""
    words = ["the", "Old", "man", "saw", "New", "York", "and", "a", "small", "Dog", "near", "Rome", "today"]
    rows = [[words[(row * 7 + place * 3) % len(words)] for place in range(3 + row % 6)] for row in range(count)]
    return [(row, ["B-X" if word[0].isupper() else "O" for word in row]) for row in rows]


def _segmented() -> Corpus:
    words = ["我们", "在", "这里", "看", "电影院", "的", "书"]
    rows = [[words[(row * 5 + place * 3) % len(words)] for place in range(2 + row % 5)] for row in range(60)]
    return Corpus.from_texts("words", ["\n".join(" ".join(row) for row in rows)])


def hash_of(tensors: Any) -> str:
    digest = hashlib.sha256()
    for tensor in tensors.values():  # by their order, so that names may change
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _found(name: str, folder: Path) -> str:
    return counted_hash(name, folder) if name in ("ngram", "hmm") else trained_hash(name, folder)


ALL = (*CASES, "ngram", "hmm")


@pytest.mark.parametrize("name", ALL)
def test_weights_stay_what_they_are(name: str, tmp_path: Path) -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    if name not in record.get(machine(), {}):
        pytest.skip(f"no weights of {name} are recorded for this machine ({machine()})")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert _found(name, tmp_path) == record[machine()][name]
    finally:
        torch.set_num_threads(threads)


def weights_everywhere() -> dict[str, dict[str, str]]:
    """The hashes of all tasks that every x86 CPU with AVX2 computes, by a process that is set to that."""
    command = [sys.executable, "-m", "tests.unit.tasks.test_weights", "print"]
    done = subprocess.run(
        command, env={**os.environ, **EVERYWHERE}, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.skipif("avx2" not in variants(), reason="this CPU has no AVX2")
def test_weights_are_the_same_on_every_cpu() -> None:
    ((name, found),) = weights_everywhere().items()
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    if name not in record:
        pytest.skip(f"no weights are recorded for {name}")
    assert found == record[name]


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {}
    for one in ALL:
        with tempfile.TemporaryDirectory() as folder:
            found[one] = _found(one, Path(folder))
    if sys.argv[1:] == ["print"]:
        print(json.dumps({machine(): found}))
    else:
        old = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        new = {**old, machine(): found, **(weights_everywhere() if "avx2" in variants() else {})}
        RECORD.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
