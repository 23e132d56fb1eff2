"""`weft generate`: text from a trained model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.texts import given_texts


def generate(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="How the text begins; repeatable; - reads one prompt a line.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=0, help="How many tokens to write.")] = 200,
    temperature: Annotated[float, typer.Option(help="Below 1 safer, above 1 wilder.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Choose among the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Choose among the fewest tokens with this much probability.")] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same text.")] = 0,
    json_output: Annotated[bool, typer.Option("--json", help="Print a JSON line for each prompt.")] = False,
) -> None:
    """Write on from a prompt. One prompt appears as it is written; several are written in one batch."""
    from weft.decoding import Sample
    from weft.decoding import greedy as greedy_sampler
    from weft.tasks import load_as
    from weft.tasks.lm.predictor import Language

    sampler = greedy_sampler if greedy else Sample(temperature, top_k, top_p)
    language = load_as(run, Language, "lm")
    prompts = given_texts(prompt or [""])
    unknown = [language.unknown(one) for one in prompts]
    for one, missing in zip(prompts, unknown, strict=True):
        if missing:
            names = ", ".join(map(repr, missing))
            print(f"weft: the model does not know {names} in the prompt {one!r}, and reads <unk>", file=sys.stderr)
    if json_output:
        texts = language.generate_many(prompts, tokens=tokens, sampler=sampler, seed=seed)
        for one, text, missing in zip(prompts, texts, unknown, strict=True):
            typer.echo(json.dumps({"prompt": one, "text": text, "unknown": missing}, ensure_ascii=False))
    elif len(prompts) == 1:
        typer.echo(language.codec.normalizer(prompts[0]), nl=False)
        for (piece,) in language.stream(prompts, tokens=tokens, sampler=sampler, seed=seed):
            sys.stdout.write(piece)
            sys.stdout.flush()
        typer.echo()
    else:
        for text in language.generate_many(prompts, tokens=tokens, sampler=sampler, seed=seed):
            typer.echo(text)
