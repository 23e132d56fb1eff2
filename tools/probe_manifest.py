"""Writes what is made of the registry of probes: the manifest that `weft look --help` reads, the table of docs/look.md.

python tools/probe_manifest.py       a test checks that both are current
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from weft.cli.look import MANIFEST
from weft.probes.parts import PARTS
from weft.probes.registry import describe_probes

PAGE = Path(__file__).parents[1] / "docs" / "look.md"
TABLE = re.compile(r"\| `--show` \|.*?\n\n", re.DOTALL)


def manifest() -> str:
    """A line for each probe."""
    found = describe_probes()
    lines = [f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in found["probes"].items()]
    probes = ",\n".join(lines)
    return f'{{"files": {json.dumps(found["files"])},\n"probes": {{\n{probes}\n}}}}\n'


def table(probes: dict[str, Any]) -> str:
    """The table of probes: what each shows, its own options, and the tasks whose runs it takes."""
    lines = ["| `--show` | what it is | options | runs |", "| --- | --- | --- | --- |"]
    for name, one in probes.items():
        flags = [schema["x-flag"] for schema in {**one["options"], **one["drawing"]}.values() if schema["x-flag"]]
        options = ", ".join(f"`{flag}`" for flag in flags)
        lines.append(f"| `{name}` | {one['about']} | {options} | {PARTS[one['part']][1]} |")
    return "\n".join(lines) + "\n\n"


def page() -> str:
    """docs/look.md with the table of today's probes."""
    return TABLE.sub(lambda _: table(describe_probes()["probes"]), PAGE.read_text(encoding="utf-8"), count=1)


if __name__ == "__main__":
    MANIFEST.write_text(manifest(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
