"""`weft eval`: how good a trained model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    data: Annotated[
        str | None, typer.Option(help="Text to measure on; without it the run's own held-out text.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a language model: perplexity and bits per token on text it has not seen."""
    from weft.service import load

    language = load(run)
    likelihood = language.measure(data) if data else language.measure_held_out()
    level, size = language.codec.tokenizer.level, len(language.codec.vocabulary)
    if json_output:
        result = {
            "tokens": likelihood.count,
            "level": level,
            "nats_per_token": likelihood.nats_per_token,
            "bits_per_token": likelihood.bits_per_token,
            "perplexity": likelihood.perplexity,
            "uniform_perplexity": size,
            "signature": likelihood.signature(level),
        }
        typer.echo(json.dumps(result))
        return
    typer.echo(f"perplexity      {likelihood.perplexity:.3f} per {level} (guessing blindly: {size})")
    typer.echo(f"bits per {level:7}{likelihood.bits_per_token:.3f}")
    typer.echo(f"tokens          {likelihood.count:,}")
