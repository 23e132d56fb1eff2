"""The tables of docs/cells-compared.md from the records of benchmarks/cells_compared.py."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "cells-compared.md"
BEGIN, END = "<!-- tables: written by benchmarks/cells_compared.py -->", "<!-- end of tables -->"


def write_page(
    records: Mapping[str, Any],
    sizes: Mapping[str, tuple[int, int]],
    rates: Sequence[float],
    seconds: Mapping[str, float],
) -> None:
    """Writes the tables between their marks.

    Args:
        records: the results by key, such as "words/8 s/time/gru/2".
        sizes: units and parameters of each cell's stack.
        rates: the grid of learning rates.
        seconds: CPU seconds of training, by the kind of text.
    """
    blocks = [table(kind, records, sizes, rates, of) for kind, of in seconds.items() if f"{kind}/speed" in records]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + "\n\n".join([BEGIN, *blocks, END]) + rest.partition(END)[2], encoding="utf-8")


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
    for cell, (units, parameters) in sizes.items():
        tried = [rate for rate in rates if f"{start}/rate/{cell}/{rate}" in records]
        rate = min(tried, key=lambda rate: records[f"{start}/rate/{cell}/{rate}"]) if tried else "-"
        runs = _runs(records, f"{start}/time/{cell}/")
        same = _runs(records, f"{start}/tokens/{cell}/") if cell != "lstm" else runs[:1]
        name = f"**{cell}**" if cell in ("lstm", "gru") else cell
        lines[cell] = (
            statistics.mean(runs) if runs else math.inf,
            f"| {name} | {units} | {parameters:,} | {speeds[cell]:,} | {speeds[cell] / speeds['lstm']:.2f} | {rate} | "
            f"{_mean(runs)} | {_mean(same)} |",
        )
    body = [line for _, line in sorted(lines.values())]
    counts = {len(_runs(records, f"{start}/time/{cell}/")) for cell in sizes}
    seeds = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return "\n".join(
        [
            f"### {kind.capitalize()}",
            "",
            f"{seconds:g} CPU seconds of training; nats per token on the test text, mean ± half the range of {seeds} "
            "seeds. At equal tokens: one seed, as many steps as the LSTM takes in that time.",
            "",
            "| cell | units | parameters of the stack | tokens/s | times lstm | learning rate | at equal time | "
            "at equal tokens |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *body,
        ]
    )


def _runs(records: Mapping[str, Any], prefix: str) -> list[float]:
    return [value for key, value in sorted(records.items()) if key.startswith(prefix)]


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {(max(values) - min(values)) / 2:.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"
