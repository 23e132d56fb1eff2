"""`weft mix`: language models interpolated, as one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.commands import name_option, path_option
from weft.errors import WeftError


def mix_command(
    runs: Annotated[list[Path], typer.Argument(help="Runs of lm, ngram or hmm with the same vocabulary.")],
    out: Annotated[Path | None, path_option("--out", "The run directory to create.")] = None,
    data: Annotated[
        str | None,
        name_option("--data", "Held-out text to fit the weights to; without it that of the first run that has one."),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Mix without a neural cache.")] = False,
    cache_size: Annotated[int, typer.Option(min=1, help="Tokens that the cache holds.")] = 2000,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Interpolate language models: a recurrent one, an n-gram model, and a cache of the text just read.

    The weights are fitted to held-out text. The result is a run with copies of its parts: `weft eval`, `weft generate`,
    `weft look` and `weft serve` take it.
    """
    from weft.tasks.mix.task import mix

    if out is None:
        raise WeftError("--out is missing", expected="a directory for the mixture", hint="--out runs/mixed")
    found = mix(runs, out, source=data, cache=not no_cache, cache_size=cache_size)
    rows = [*((part.name, part.weight, part.likelihood) for part in found.parts), (str(out), 1.0, found.likelihood)]
    if json_output:
        parts = [
            {"name": name, "weight": weight, "perplexity": None if one.nats == float("inf") else one.perplexity}
            for name, weight, one in rows
        ]
        typer.echo(json.dumps({"run": str(out), "held_out_perplexity": found.likelihood.perplexity, "parts": parts}))
        return
    wide = max(len(name) for name, _, _ in rows)
    typer.echo(f"{'part':{wide}}  weight  held-out perplexity")
    for name, weight, one in rows:
        typer.echo(f"{name:{wide}}  {weight:6.3f}  {one.perplexity:19.3f}")
    typer.echo(f"({found.likelihood.count:,} tokens, to which the weights were fitted)")
