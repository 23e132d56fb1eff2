"""Results of the tasks on real data with default settings; writes docs/results.json and the table in docs/results.md.

python -m benchmarks.results                      all rows, all seeds
python -m benchmarks.results cls/sst2             one row, or several
python -m benchmarks.results cls/sst2 --seed 2    one seed
python -m benchmarks.results --list               the rows, and which records are missing or older than the code
python -m benchmarks.results --outdated           only those; what was interrupted continues there
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.rows import Row

MODULES = ("rows_lm", "rows_classify", "rows_tag", "rows_translate")
DOCS = Path(__file__).parents[1] / "docs"
RECORDS, PAGE = DOCS / "results.json", DOCS / "results.md"
TASKS = {"lm": "lm", "cls": "classify", "tag": "tag", "mt": "translate"}  # by the first part of a row's name
# Parts of the package that no training of a row reads, beside the other tasks' folders.
UNUSED = ("cli", "pictures", "probes", "server", "sklearn.py", "tuning.py", "tasks/fill", "tasks/hmm", "tasks/mix")
BEGIN, END = "<!-- rows: written by benchmarks/results.py -->", "<!-- end of rows -->"


def all_rows() -> dict[str, Row]:
    return {
        name: row for module in MODULES for name, row in importlib.import_module(f"benchmarks.{module}").ROWS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="names of rows; all of them if there are none")
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument("--list", action="store_true", help="print names, goals and the state of each seed")
    parser.add_argument("--outdated", action="store_true", help="only seeds without a record of the present code")
    options = parser.parse_args()
    rows = all_rows()
    if options.list:
        for name, row in rows.items():
            states = ", ".join(f"{seed} {state(name, seed)}" for seed in row.seeds)
            bound = "at most" if row.lower_is_better else "at least"
            print(f"{name:32} {'' if row.goal is None else f'{bound} {row.goal}'}  seeds: {states}")
        return
    unknown = [name for name in options.rows if name not in rows]
    if unknown:
        parser.error(f"no row {unknown[0]!r}; there are: {', '.join(rows)}")
    for name in options.rows or rows:
        for seed in rows[name].seeds if options.seed is None else (options.seed,):
            if options.outdated and state(name, seed) == "current":
                continue
            with tempfile.TemporaryDirectory() as folder:
                result = rows[name].run(Path(folder), seed)
            record = {
                "row": name,
                "seed": seed,
                "metric": result.metric,
                "score": round(result.score, 4),
                "goal": rows[name].goal,
                "minutes": round(result.seconds / 60, 2),
                "threads": result.threads,
                "commit": commit(),
                "metrics": result.metrics,
            }
            print(json.dumps(record), flush=True)
            keep(record)


def commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=DOCS, check=False
    )
    return found.stdout.strip() or "unknown"


def state(name: str, seed: int) -> str:
    """Whether the record of a row and seed is missing, outdated or current: no commit since has changed its code."""
    records = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else []
    found = [one["commit"] for one in records if (one["row"], one["seed"]) == (name, seed)]
    if not found:
        return "missing"
    since = subprocess.run(
        ["git", "log", "--format=%h", f"{found[0]}..HEAD", "--", *measured_code(name)],
        capture_output=True,
        text=True,
        cwd=DOCS.parent,
        check=False,
    )
    return "current" if since.returncode == 0 and not since.stdout.strip() else "outdated"


def measured_code(name: str) -> list[str]:
    """The code that a row measures, as git names paths: the package without the tasks of other rows."""
    own = TASKS[name.partition("/")[0]]
    # Translation shares the recipe of language models.
    others = [f"tasks/{task}" for task in TASKS.values() if task not in (own, "lm")]
    return ["src/weft", *(f":(exclude)src/weft/{path}" for path in (*UNUSED, *others))]


def keep(record: dict[str, Any]) -> None:
    """Replace the record of the same row and seed, and rewrite the table."""
    records = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else []
    records = [one for one in records if (one["row"], one["seed"]) != (record["row"], record["seed"])]
    records = sorted([*records, record], key=lambda one: (one["row"], one["seed"]))
    unfinished = RECORDS.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(RECORDS)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(records)}\n{END}{after}", encoding="utf-8")


def table(records: list[dict[str, Any]]) -> str:
    rows = all_rows()
    lines = ["| data | metric | seed | score | goal | minutes | also |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for one in records:
        also = ", ".join(f"{name} {_short(value)}" for name, value in one["metrics"].items())
        reached = one["row"] not in rows or rows[one["row"]].reached(one["score"])
        goal = "" if one["goal"] is None else f"{one['goal']}{'' if reached else ' (not reached)'}"
        threads = "" if one["threads"] == 2 else f" ({one['threads']} thread{'s' if one['threads'] != 1 else ''})"
        lines.append(
            f"| {one['row']} | {one['metric']} | {one['seed']} | **{_short(one['score'])}** | {goal} "
            f"| {one['minutes']:.1f}{threads} | {also} |"
        )
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value).replace("|", "\\|")


if __name__ == "__main__":
    main()
