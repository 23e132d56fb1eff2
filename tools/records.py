"""Records of measurements: what one says beside its figures, and whether it is outdated.

A record is JSON. Beside its figures it has the command that measured them, the commit, the date of that commit, and
`depends`: the parts of the repository that the figures depend on, each with a digest of what it was at that commit. A
record is outdated when a digest is no longer the same. So pages are written, and marked, without the history of git.

A part is "FILE" or "FILE::NAME": of a Python file the definition of that name ("outer.inner": of a function inside
another one) with all that it uses in the same file, without comments and docstrings; of tests/weights.json the weights
of that task by machine.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import platform
import subprocess
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "records"
TASKS, PEERS = RECORDS / "results.json", RECORDS / "peers.json"
WEIGHTS = "tests/weights.json"

# By the beginning of a row's name, the first that fits: the function that measures it, and its tasks in WEIGHTS.
MEASURED_BY = {
    "lm/tinyshakespeare": ("benchmarks/quality/rows_lm.py::shakespeare", "lm"),
    "lm/timemachine": ("benchmarks/quality/rows_lm.py::time_machine", "lm"),
    "lm/wikitext-2": ("", "lm gru"),
    "cls/": ("benchmarks/quality/rows_classify.py::classify.run", "classify"),
    "tag/zh_gsdsimp, ": ("benchmarks/quality/rows_tag.py::ensemble.run", "segment"),
    "tag/zh_gsdsimp": ("benchmarks/quality/rows_tag.py::row.run", "segment"),
    "tag/en_ewt, ": ("benchmarks/quality/rows_tag.py::ensemble.run", "tag"),
    "tag/wnut17, ": ("benchmarks/quality/rows_tag.py::ensemble.run", "tag"),
    "tag/": ("benchmarks/quality/rows_tag.py::row.run", "tag"),
    "mt/fra-eng, notes": ("benchmarks/quality/rows_translate.py::notes", "translate"),
    "mt/fra-eng, 4 min, ": ("benchmarks/quality/rows_translate.py::four_minutes.run", "translate"),
    "mt/fra-eng, 1,000 pairs": ("benchmarks/quality/rows_translate.py::some_pairs.run", "translate muon"),
    "mt/fra-eng, 10,000 pairs": ("benchmarks/quality/rows_translate.py::some_pairs.run", "translate muon"),
    "mt/fra-eng, 30,000 pairs": ("benchmarks/quality/rows_translate.py::some_pairs.run", "translate muon"),
    "mt/fra-eng": ("benchmarks/quality/rows_translate.py::all_pairs", "translate muon"),
}
PEERS_MEASURED_BY = {"cls": "classify_texts", "tag": "tag_sentences", "lm": "language_models", "mt": "translate_pairs"}

Read = Callable[[str], str | None]  # the text of a file of the repository, None: there is none


def read(name: str) -> Any:
    """A record of benchmarks/records, by its name without .json."""
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def write(name: str, record: Mapping[str, Any]) -> None:
    """Writes a record of benchmarks/records."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (RECORDS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def stamp(parts: Iterable[str]) -> dict[str, Any]:
    """What a record says beside its figures: commit, date of the commit, and digests of the parts it depends on."""
    shown = subprocess.run(
        ["git", "show", "-s", "--format=%h %cs", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    commit, date = shown.stdout.split() or ("unknown", "unknown")
    return {"commit": commit, "date": date, "depends": {part: digest(part) for part in parts}}


def machine() -> dict[str, str]:
    """The machine and the versions that a measurement ran with, as a record has them."""
    import torch

    from weft import engine

    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())
    realtime = hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    name = f"{cpu}, {torch.get_num_threads()} threads, {engine.description()}"
    return {
        "machine": f"{name}, real-time priority" if realtime else name,
        "versions": f"torch {torch.__version__}, Python {platform.python_version()}",
    }


def parts_of_row(row: str) -> list[str]:
    """What a row of benchmarks/records/results.json depends on."""
    program, task = next(found for start, found in MEASURED_BY.items() if row.startswith(start))
    return [*([program] if program else []), f"{WEIGHTS}::{task}"]


def parts_of_peers(row: str) -> list[str]:
    """What the peers of a row in benchmarks/records/peers.json depend on."""
    return [f"benchmarks/peers/{PEERS_MEASURED_BY[row.partition('/')[0]]}.py"]


def changed(record: Mapping[str, Any]) -> list[str]:
    """The parts that a record depends on and that have changed since it was measured."""
    return [part for part, before in record["depends"].items() if not same(before, digest(part))]


def same(before: Any, now: Any) -> bool:
    """Whether two digests agree; weights do if they are equal on each machine that both have, and there is one."""
    if isinstance(before, dict) and isinstance(now, dict):
        both = before.keys() & now.keys()
        return bool(both) and all(before[machine] == now[machine] for machine in both)
    return before is not None and before == now


def read_file(path: str) -> str | None:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.exists() else None


def digest(part: str, read: Read = read_file) -> Any:
    """What a part is now: a hash; the hashes of a task's weights by machine; None if it is not there."""
    path, _, name = part.partition("::")
    text = read(path)
    if text is None:
        return None
    if path == WEIGHTS:
        return {machine: weights[name] for machine, weights in json.loads(text).items() if name in weights}
    code = text if not name else "\n".join(definitions(text, name))
    return hashlib.sha256(plain(code).encode()).hexdigest()[:16] if code else None


def definitions(source: str, name: str) -> list[str]:
    """The source of the definition of a name and of all definitions of the file that it uses, in their order."""
    lines, found = source.splitlines(), {}
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: node for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    outer, _, inner = name.partition(".")
    if inner and outer in found:
        functions = (one for one in ast.walk(found[outer]) if isinstance(one, ast.FunctionDef))
        found |= {f"{outer}.{one.name}": one for one in functions}
    used: set[str] = set()
    todo = [name]
    while todo:
        if (one := todo.pop()) in found and one not in used:
            used.add(one)
            todo += [part.id for part in ast.walk(found[one]) if isinstance(part, ast.Name)]
    spans = {
        (min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]), node.end_lineno)
        for key, node in found.items()
        if key in used
    }
    return [textwrap.dedent("\n".join(lines[start - 1 : end])) for start, end in sorted(spans)]


def plain(code: str) -> str:
    """Code without comments, docstrings, white space and braces, which some Pythons split differently in f-strings."""
    kept: list[str] = []
    begins = True  # of a statement
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            begins = True
        elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER):
            if not (begins and token.type == tokenize.STRING):
                kept.append(token.string)
            begins = False
    return "".join("".join(kept).replace("{", "").replace("}", "").split())
