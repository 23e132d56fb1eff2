"""Runs the examples of a documentation page as a reader would, and compares what they print with what the page shows.

    python -m tests.pages docs/page.md            run in the current folder, report every difference
    python -m tests.pages --update docs/page.md   write what was printed into the page

All ```python blocks of a page share one interpreter. A ```console block holds commands (`$ ...`) and what they print. A
```text block right after a python block is what that block prints. In what is shown, `...` stands for anything, and a
decimal fraction may differ by one in its last digit: results of training depend on the instruction set.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import traceback
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from tests.program import weft

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```[^\S\n]*$", flags=re.M | re.S)
FREE = re.compile(r"(\d+\.\d+|\.\.\.)")  # what need not be printed exactly as shown


class Example(NamedTuple):
    """A block that runs, and where in the page the text it prints is shown."""

    language: str  # python or console
    code: str
    shown: str
    span: tuple[int, int] | None  # of `shown` in the page; None: what it prints is not shown


def examples(page: str, *, console: bool = True) -> list[Example]:
    """The blocks of a page that run, in order."""
    found = []
    fences = list(FENCE.finditer(page))
    for fence, after in zip_longest(fences, fences[1:]):
        language, code = fence.groups()
        if language == "python":
            follows = after is not None and after[1] == "text" and not page[fence.end() : after.start()].strip()
            shown, span = (after[2], after.span(2)) if follows else ("", None)
            found.append(Example(language, code, shown, span))
        elif language == "console" and console:
            found.append(Example(language, code, code, fence.span(2)))
    return found


def same(shown: str, printed: str) -> bool:
    """Whether the text shown is the text printed, `...` and last digits aside."""
    pattern, decimals = "", []
    for part in FREE.split(shown.rstrip()):
        if part == "...":
            pattern += ".*?"
        elif FREE.fullmatch(part):
            decimals.append(part)
            pattern += rf"(\d+\.\d{{{len(part.partition('.')[2])}}})"
        else:
            pattern += re.escape(part)
    match = re.fullmatch(pattern, printed.rstrip(), flags=re.S)
    return match is not None and all(
        abs(float(one) - float(other)) < 1.5 * 10.0 ** -len(one.partition(".")[2])
        for one, other in zip(decimals, match.groups(), strict=True)
    )


def run_console(code: str) -> str:
    """The block again, with what its commands print now. `weft` and `python` are those of this interpreter."""
    lines = []
    for command in re.findall(r"^\$ ((?:.*\\\n)*.*)\n", code, flags=re.M):
        done = run_command(command)
        if done.returncode:
            raise SystemExit(f"{command}\nexited with {done.returncode}:\n{done.stdout}{done.stderr}")
        lines.append(f"$ {command}\n{done.stdout}")
    return "".join(lines)


def run_command(command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command: one of `weft` alone in this process, others in a shell."""
    words = shlex.split(command.replace("\\\n", " "))
    if words[0] == "weft" and not {"|", ">", "&&"} & set(words):
        return weft(*words[1:], columns=100)
    python = f'"{sys.executable}"'
    return subprocess.run(
        ["bash", "-c", f'set -e; weft() {{ {python} -m weft "$@"; }}; python() {{ {python} "$@"; }}\n{command}'],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "100"},
        check=False,
    )


def run(page: str) -> list[tuple[Example, str]]:
    """Every example with what it printed (of a console block: the block as it would be shown)."""
    names: dict[str, object] = {"__name__": "__main__"}
    results = []
    for example in examples(page):
        if example.language == "console":
            results.append((example, run_console(example.code)))
            continue
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(example.code, "<page>", "exec"), names)
        except Exception:
            sys.exit(f"{example.code}\n{traceback.format_exc()}")
        results.append((example, output.getvalue()))
    return results


def updated(page: str, results: list[tuple[Example, str]]) -> str:
    for example, printed in reversed(results):
        if example.span and not same(example.shown, printed):
            page = page[: example.span[0]] + printed + page[example.span[1] :]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--update", action="store_true", help="write what was printed into the page")
    options = parser.parse_args()
    text = options.page.read_text(encoding="utf-8")
    results = run(text)
    if options.update:
        options.page.write_text(updated(text, results), encoding="utf-8")
        return
    for example, printed in results:
        if example.span and not same(example.shown, printed):
            sys.exit(f"{example.code}\nprints\n\n{printed}\nand the page shows\n\n{example.shown}")


if __name__ == "__main__":
    main()
