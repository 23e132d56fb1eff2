"""Writes src/weft/tasks/descriptions.json: what the command line has to know of the tasks before it imports torch.

python tools/describe_tasks.py

A test checks that it is current.
"""

from __future__ import annotations

import json
from typing import Any

from weft.tasks import COMBINED, DESCRIPTIONS, TASKS, get_kind
from weft.tasks.operation import describe_task


def descriptions() -> str:
    """The content of the file: a line for each option of training and each operation."""
    return _lines({name: describe_task(get_kind(name)) for name in (*TASKS, *COMBINED)}, 3) + "\n"


def _lines(value: Any, depth: int) -> str:
    if depth == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = ",\n".join(f"{json.dumps(key)}: {_lines(part, depth - 1)}" for key, part in value.items())
    return f"{{\n{inner}\n}}"


if __name__ == "__main__":
    DESCRIPTIONS.write_text(descriptions(), encoding="utf-8")
