"""The tables of docs/cells-compared.md from the records of benchmarks/quality/cells_compared.py."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "cells-compared.md"
BEGIN, END = "<!-- tables: written by benchmarks/quality/cells_compared.py -->", "<!-- end of tables -->"


def write_page(
    records: Mapping[str, Any],
    sizes: Mapping[str, tuple[int, int]],
    rates: Sequence[float],
    seconds: Mapping[str, float],
) -> None:
    """Writes the tables between their marks.

    Args:
        records: the results by key, such as "words/6 s/time/gru/2".
        sizes: units and parameters of each cell's stack.
        rates: the grid of learning rates.
        seconds: CPU seconds of training, by the kind of text.
    """
    blocks = [table(kind, records, sizes, rates, of) for kind, of in seconds.items() if f"{kind}/speed" in records]
    blocks = [layer_table(records["layers"]), *blocks] if "layers" in records else blocks
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + "\n\n".join([BEGIN, *blocks, END]) + rest.partition(END)[2], encoding="utf-8")


def layer_table(times: Mapping[str, float]) -> str:
    """The speed of one layer of each cell with the same number of units, fastest first."""
    lines = [
        "### Speed of a layer",
        "",
        "CPU milliseconds forward and backward, 256 inputs, 256 units, 32 rows of 35 steps, one thread; medians.",
        "",
        "| cell | ms | lstm / cell |",
        "| --- | --- | --- |",
    ]
    for cell in sorted(times, key=lambda cell: times[cell]):
        lines.append(f"| {_name(cell)} | {times[cell]} | {times['lstm'] / times[cell]:.2f} |")
    return "\n".join(lines)


def _name(cell: str) -> str:
    return f"**{cell}**" if cell in ("lstm", "gru") else cell


def table(
    kind: str,
    records: Mapping[str, Any],
    sizes: Mapping[str, tuple[int, int]],
    rates: Sequence[float],
    seconds: float,
) -> str:
    """One kind of text: a row for each cell, best first by its nats at equal time."""
    speeds, start = records[f"{kind}/speed"], f"{kind}/{seconds:g} s"
    lines = {}
    for cell, (units, _) in sizes.items():
        if not (tried := tried_rates(records, start, cell, rates)):  # not measured yet
            continue
        rate = min(tried, key=lambda one: tried[one])
        runs = _runs(records, f"{start}/rate/{cell}/{rate}") + _runs(records, f"{start}/time/{cell}/")
        lines[cell] = (
            statistics.mean(runs) if runs else math.inf,
            f"| {_name(cell)} | {units} | {speeds[cell]:,} | {_mean(runs)} |",
        )
    body = [line for _, line in sorted(lines.values())]
    counts = {1 + len(_runs(records, f"{start}/time/{cell}/")) for cell in lines} or {0}
    seeds = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    shown = "one seed" if counts == {1} else f"mean ± half the range of {seeds} seeds"
    return "\n".join(
        [
            f"### {kind.capitalize()}",
            "",
            f"{seconds:g} CPU seconds of training; nats per token on the test text, {shown}.",
            "",
            "| cell | units | tokens/s | nats |",
            "| --- | --- | --- | --- |",
            *body,
        ]
    )


def tried_rates(records: Mapping[str, Any], start: str, cell: str, rates: Sequence[float]) -> dict[float, float]:
    """The loss on the development text of each learning rate that was tried."""
    return {rate: records[key]["dev"] for rate in rates if (key := f"{start}/rate/{cell}/{rate}") in records}


def next_rate(tried: Mapping[float, float], rates: Sequence[float], first: float) -> float | None:
    """The learning rate to try next, until both neighbours of the best one were tried; None: there is none.

    >>> next_rate({0.2: 3.0, 0.4: 2.5}, (0.1, 0.2, 0.4, 0.8), 0.2), next_rate({0.2: 3.0, 0.4: 3.5}, (0.2, 0.4), 0.2)
    (0.8, None)
    """
    if not tried:
        return first
    best = rates.index(min(tried, key=lambda rate: tried[rate]))
    neighbours = (rates[place] for place in (best + 1, best - 1) if 0 <= place < len(rates))
    return next((rate for rate in neighbours if rate not in tried), None)


def _runs(records: Mapping[str, Any], prefix: str) -> list[float]:
    return [value["test"] for key, value in sorted(records.items()) if key.startswith(prefix)]


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {(max(values) - min(values)) / 2:.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"
