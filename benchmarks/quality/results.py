"""Results of the tasks on real data with default settings.

Writes benchmarks/records/results.json and the pages made from it.

python -m benchmarks.quality.results                      all rows, all seeds
python -m benchmarks.quality.results cls/sst2             one row, or several
python -m benchmarks.quality.results cls/sst2 --seed 2    one seed
python -m benchmarks.quality.results --list               the rows, and which records are missing or outdated
python -m benchmarks.quality.results --outdated           only those; what was interrupted continues there
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.quality.rows import Row
from tools.pages import write_pages
from tools.records import TASKS, changed, parts_of_row, stamp

MODULES = ("rows_lm", "rows_classify", "rows_tag", "rows_translate")


def all_rows() -> dict[str, Row]:
    return {
        name: row
        for module in MODULES
        for name, row in importlib.import_module(f"benchmarks.quality.{module}").ROWS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="names of rows; all of them if there are none")
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument("--list", action="store_true", help="print names, goals and the state of each seed")
    parser.add_argument("--outdated", action="store_true", help="only seeds whose record is missing or outdated")
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
                **stamp(parts_of_row(name)),
                "metrics": result.metrics,
            }
            print(json.dumps(record), flush=True)
            keep(record)


def recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(TASKS.read_text(encoding="utf-8")) if TASKS.exists() else []
    return found


def state(name: str, seed: int) -> str:
    """Whether the record of a row and seed is missing, outdated or current."""
    found = [one for one in recorded() if (one["row"], one["seed"]) == (name, seed)]
    return "missing" if not found else "outdated" if changed(found[0]) else "current"


def keep(record: dict[str, Any]) -> None:
    """Replaces the record of the same row and seed, and writes the pages anew."""
    records = [one for one in recorded() if (one["row"], one["seed"]) != (record["row"], record["seed"])]
    records = sorted([*records, record], key=lambda one: (one["row"], one["seed"]))
    unfinished = TASKS.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(TASKS)
    write_pages()


if __name__ == "__main__":
    main()
