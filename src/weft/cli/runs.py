"""`weft runs` and `weft compare`: the runs of a folder, and runs side by side."""

from __future__ import annotations

import json as json_format
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.errors import WeftError, unknown_name, warn

if TYPE_CHECKING:
    from weft.tasks.runs import RunSummary

_LINE_END = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
SORTS = ("path", "task", "date", "best", "weights", "state")


def runs(
    folder: Annotated[Path, typer.Argument(help="The folder to search, with all folders below it.")] = Path("runs"),
    sort: Annotated[str, typer.Option(help=f"Sort by one of: {', '.join(SORTS)}.")] = "path",
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort from the last to the first.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each run.")] = False,
) -> None:
    """List the runs in a folder: task, data, size, date, best held-out score, state."""
    from weft.tasks.runs import find_runs, summarize_run

    if sort not in SORTS:
        raise unknown_name("--sort", sort, SORTS)
    found: list[RunSummary] = []
    for path in find_runs(folder):
        try:
            found.append(summarize_run(path))
        except WeftError as error:
            warn(f"left out: {error}")
    key = {one: getattr(one, sort) for one in found}
    found.sort(key=lambda one: (key[one] is None, key[one]), reverse=reverse)
    if json:
        for one in found:
            typer.echo(json_format.dumps(next(one.records()), ensure_ascii=False))
        return
    if not found:
        typer.echo(f"no runs in {folder}", err=True)
        return
    rows = [("run", "task", "data", "weights", "date", "steps", "best", "state")]
    rows += [
        (
            one.path,
            one.task,
            Path(one.data).name if one.data else "",
            f"{one.weights:,}" if one.weights is not None else "",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(one.date)),
            f"{one.step:,}",
            f"{one.metric} {one.best:.4g}" if one.best is not None else "",
            one.state,
        )
        for one in found
    ]
    print_table(rows, right=(3, 5))


def compare_command(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run directories.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare runs: the settings that differ, their best held-out scores, and a paired test.

    Where two runs have the same held-out data, a paired bootstrap test shows whether the first run and the other differ
    significantly.
    """
    from weft.metrics.paired import RESAMPLES
    from weft.tasks.runs import compare_run_results

    found = compare_run_results(runs)
    if json:
        typer.echo(json_format.dumps(found.to_dict(), ensure_ascii=False))
        return
    names = [str(path) for path in runs]
    rows: list[tuple[str, ...]] = [("", *names)]
    rows += [("task", *found.tasks)] if len(set(found.tasks)) > 1 else []
    rows += [(name, *map(_shown, values)) for name, values in found.settings.items()]
    rows += [(name, *map(_shown, values)) for name, values in found.scores.items()]
    print_table(rows)
    shown = None
    for test in found.tests:
        if (test.first, test.second) != shown:
            typer.echo(
                f"\n{test.first} and {test.second} on {test.examples:,} held-out examples (one is a {test.unit}):"
            )
            shown = test.first, test.second
        sure = f"the {test.better} is better" if test.p_value < 0.05 else "no significant difference"
        p_value = f"p = {test.p_value:.4f}" if test.p_value else f"p < {1 / RESAMPLES}"
        typer.echo(
            f"difference of {test.metric} {test.difference:+.4f}, 95% interval {test.low:+.4f} to {test.high:+.4f}, "
            f"{p_value}: {sure}"
        )
    for note in found.notes:
        typer.echo(f"\n{note}")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def print_table(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> None:
    """Columns as wide as their longest entry. A line break in a name begins no row of its own."""
    rows = [tuple(_LINE_END.sub(lambda found: repr(found[0])[1:-1], cell) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            f"{cell:>{width}}" if column in right else f"{cell:{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())
