"""Checks a run directory by what docs/formats.md says, without weft: python tools/check_run.py RUN...

Prints a line for each file. Exit code 1: a file is missing, cut short, or does not match its hash.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 3
TENSORS = {  # the types of safetensors: their bytes, and their names in a hash
    "F64": (8, "torch.float64"), "F32": (4, "torch.float32"), "F16": (2, "torch.float16"),
    "BF16": (2, "torch.bfloat16"), "I64": (8, "torch.int64"), "I32": (4, "torch.int32"),
    "I16": (2, "torch.int16"), "I8": (1, "torch.int8"), "U8": (1, "torch.uint8"), "BOOL": (1, "torch.bool"),
}  # fmt: skip


class DamageError(Exception):
    """A file is not as the page says."""


def require(condition: object, why: str) -> None:
    if not condition:
        raise DamageError(why)


def check_json(path: Path) -> dict[str, Any]:
    """A JSON file: its format number, and its hash without the hash itself."""
    content = json.loads(path.read_text(encoding="utf-8"))
    require(isinstance(content, dict) and content.get("format") == FORMAT, f"it has not format {FORMAT}")
    expected = content.pop("sha256", None)
    require(hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest() == expected, "its hash is wrong")
    return content


def check_tensors(path: Path) -> dict[str, Any]:
    """A safetensors file: its layout, and the hash of metadata, names, types, shapes and bytes."""
    stored = path.read_bytes()
    require(len(stored) >= 8, "it is cut short")
    (size,) = struct.unpack("<Q", stored[:8])
    require(8 + size <= len(stored), "its header is cut short")
    header, data = json.loads(stored[8 : 8 + size]), memoryview(stored)[8 + size :]
    metadata = header.pop("__metadata__", {})
    require(metadata.get("format") == str(FORMAT), f"it has not format {FORMAT}")
    digest, end = hashlib.sha256(metadata["content"].encode()), 0
    for name in sorted(header):
        entry = header[name]
        item, kind = TENSORS[entry["dtype"]]
        start, stop = entry["data_offsets"]
        require(0 <= start <= stop <= len(data), f"{name} lies outside of the file")
        require(stop - start == item * math.prod(entry["shape"]), f"the size of {name} does not fit its shape")
        digest.update(f"{name} {kind} {tuple(entry['shape'])}".encode())
        digest.update(data[start:stop])
        end = max(end, stop)
    require(end == len(data), "it is cut short, or longer than its tensors")
    require(digest.hexdigest() == metadata["sha256"], "its hash is wrong")
    return dict(json.loads(metadata["content"]))


def check_data(path: Path, expected: str) -> None:
    """A file of the data: its hash; of a column that it is an array of numbers, and that ends fit the values."""
    require(hashlib.sha256(path.read_bytes()).hexdigest() == expected, "its hash is wrong")
    if path.suffix != ".npy":
        return
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    require(array.dtype.kind in "iufb" and array.ndim, "it is not an array of numbers")
    if path.name.endswith(".ends.npy"):
        values = np.load(path.with_name(path.name.replace(".ends.", ".")), mmap_mode="r", allow_pickle=False)
        ordered = bool((np.diff(array, prepend=0) >= 0).all())
        require(ordered and array[-1:].sum() == len(values), "its ends do not fit the values")


def check_metrics(path: Path) -> None:
    """A line of JSON for each record, of which a kill may have truncated the last one."""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            record = json.loads(line)
            require(type(record.get("step")) is int and record["step"] >= 0, "a record has no step")


def check_run(run: Path) -> list[str]:
    """Prints a line for each file of a run; returns the names of those that are damaged."""
    checks: dict[Path, Any] = {run / name: check_json for name in ("config.json", "fields.json")}
    checks |= dict.fromkeys(run.glob("languages.json"), check_json)
    checks |= dict.fromkeys(sorted(run.glob("**/*.safetensors")), check_tensors)
    if not (run / "parts").exists():
        checks[run / "checkpoint.safetensors"] = check_tensors
    checks |= dict.fromkeys(sorted(run.glob("parts/*/*.json")), check_json)
    if (run / "metrics.jsonl").exists():
        checks[run / "metrics.jsonl"] = check_metrics
    record = run / "data" / "record.json"
    if record.exists():  # the data may be deleted after training
        checks[record] = check_json
        for name, expected in json.loads(record.read_text(encoding="utf-8"))["files"].items():
            checks[run / "data" / Path(name).name] = partial(check_data, expected=expected)
    damaged = []
    for path, check in checks.items():
        try:
            check(path)
            verdict = "as it was written"
        except (DamageError, OSError, ValueError, KeyError, TypeError) as error:
            verdict = f"damaged: {error}"
            damaged.append(path.name)
        print(f"{path}: {verdict}")
    return damaged


if __name__ == "__main__":
    if len(sys.argv) < 2 or "--help" in sys.argv:
        sys.exit(__doc__)
    damage = [check_run(Path(name)) for name in sys.argv[1:]]
    sys.exit(1 if any(damage) else 0)
