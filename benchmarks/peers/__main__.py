"""What users may choose instead, on the same splits: trains the peers in their own environment.

Writes benchmarks/records/peers.json.

python -m benchmarks.peers                     all rows
python -m benchmarks.peers cls/sst2            one row, or several

The environment is build/peers; it is made at the first run. A row exports its splits, a program of this folder trains
the peers on them and prints a line of JSON for each. Hyperparameters are chosen on the development data, or on a tenth
of the training texts where there is none; peers with a limit of time have the settings of their recipes. The pages made
from it have weft's side from benchmarks/records/results.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality import rows_translate
from benchmarks.quality.rows_classify import SPLITS
from benchmarks.quality.rows_lm import split_shakespeare
from benchmarks.quality.rows_tag import FILES, SETS
from benchmarks.quality.rows_tag import paths as tag_paths
from tools.pages import write_pages
from tools.records import PEERS, parts_of_peers, stamp
from weft.config import load_config
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.data import read_tagged

ROOT = Path(__file__).parents[2]
ENVIRONMENT, PROGRAMS = ROOT / "build" / "peers", Path(__file__).parent


@dataclass(frozen=True)
class PeerTask:
    """The peers of one task.

    Attributes:
        packages: what is installed for them; each may fail to build, and its peers are then left out.
        program: a file in this folder, called with the folder of the exported splits.
        export: writes the splits of a row into a folder.
        rows: names of rows in benchmarks/records/results.json.
    """

    packages: tuple[str, ...]
    program: str
    export: Callable[[str, Path], None]
    rows: tuple[str, ...]


def export_texts(row: str, folder: Path) -> None:
    train, dev, test = SPLITS[row]()
    if dev is None:
        tenth = len(train) // 10
        train, dev = train[tenth:], train[:tenth]
    for name, rows in (("train", train), ("dev", dev), ("test", test)):
        write_lines(folder / f"{name}.jsonl", ({"text": one.value, "label": one.label} for one in rows))


def export_sentences(row: str, folder: Path) -> None:
    """Words with tags; a sentence to be segmented as characters, with B-W at the beginning of a word and I-W inside."""
    config = load_config(TagConfig, sets=SETS[row]).data
    for name, path in zip(("train", "dev", "test"), tag_paths(row), strict=True):
        sentences = read_tagged(path, config).sentences
        rows: Any = ({"words": one.words, "tags": one.tags} for one in sentences)
        if config.task == "segments":
            rows = (
                {"words": one.words, "tags": ["B-W" if tag[0] in "BS" else "I-W" for tag in one.tags]}
                for one in sentences
            )
        write_lines(folder / f"{name}.jsonl", rows)


def export_shakespeare(row: str, folder: Path) -> None:
    split_shakespeare(folder)
    write_lines(folder / "limits.json", [{"minutes": 6, "threads": 1}])


def export_pairs(row: str, folder: Path) -> None:
    for name, pairs in zip(("train", "test"), rows_translate.split(), strict=True):
        write_lines(folder / f"{name}.jsonl", zip(pairs.sources, pairs.targets, strict=True))
    write_lines(folder / "limits.json", [{"minutes": 4, "threads": 1}])


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")


TORCH = "torch==2.13.0"  # the version that weft is measured with
TASKS = {
    "classification": PeerTask(
        ("scikit-learn==1.7.2", "fasttext==0.9.3"), "classify_texts.py", export_texts, tuple(SPLITS)
    ),
    "tagging": PeerTask(
        ("python-crfsuite==0.9.12", "seqeval==1.2.2", "spacy==3.8.18"),
        "tag_sentences.py",
        export_sentences,
        tuple(FILES),
    ),
    "language models": PeerTask((TORCH,), "language_models.py", export_shakespeare, ("lm/tinyshakespeare",)),
    "translation": PeerTask(
        (TORCH, "tokenizers", "sacrebleu"), "translate_pairs.py", export_pairs, ("mt/fra-eng, 4 min",)
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="names of rows; all of them if there are none")
    options = parser.parse_args()
    known = {row for task in TASKS.values() for row in task.rows}
    unknown = [row for row in options.rows if row not in known]
    if unknown:
        parser.error(f"no row {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    for task in TASKS.values():
        chosen = [row for row in task.rows if row in (options.rows or known)]
        if chosen:
            install(task.packages)
        for row in chosen:
            with tempfile.TemporaryDirectory() as folder:
                task.export(row, Path(folder))
                done = subprocess.run(
                    [python(), str(PROGRAMS / task.program), folder], stdout=subprocess.PIPE, text=True, check=True
                )
            keep(row, [json.loads(line) for line in done.stdout.splitlines()])


def python() -> str:
    return str(ENVIRONMENT / "bin" / "python")


def install(packages: tuple[str, ...]) -> None:
    if not ENVIRONMENT.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    for package in packages:
        done = subprocess.run([python(), "-m", "pip", "install", "--quiet", package], check=False)
        if done.returncode:
            print(f"{package} cannot be installed here: its peers are left out", file=sys.stderr)


def keep(row: str, found: list[dict[str, Any]]) -> None:
    """Replaces the peers of a row and writes the pages anew."""
    records = json.loads(PEERS.read_text(encoding="utf-8")) if PEERS.exists() else {}
    records[row] = [{**one, **stamp(parts_of_peers(row))} for one in found]
    PEERS.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    write_pages()


if __name__ == "__main__":
    main()
