"""`weft fill`: what is missing in a text."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.texts import given_texts
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.tasks.fill.predictor import Answer


def fill(
    run: Annotated[Path, typer.Argument(help="A run directory of `weft train fill`, or of `weft train hmm`.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Text with blanks, such as 'i ___ hungry'; - reads one text a line.")
    ] = None,
    n_best: Annotated[int, typer.Option(min=1, help="How many answers to show.")] = 5,
    tokens: Annotated[
        int, typer.Option(min=0, help="How many tokens a blank stands for; 0: as many as it has underscores.")
    ] = 1,
    width: Annotated[int, typer.Option(min=1, help="Ways kept while several blanks are filled.")] = 100,
    json_output: Annotated[bool, typer.Option("--json", help="Print a JSON line for each text.")] = False,
) -> None:
    """Fill the blanks of a text: the likeliest answers, each with its probability."""
    from weft.tasks.fill.predictor import open_filling

    if not texts:
        raise WeftError("there is no text to fill", expected="text with a blank", hint='weft fill RUN "i ___ hungry"')
    model = open_filling(run)
    for number, text in enumerate(text for text in given_texts(texts) if text.strip()):
        unknown = model.unknown(text)
        if unknown:
            names = ", ".join(map(repr, unknown))
            print(f"weft: the model does not know {names} in {text!r}, and reads <unk>", file=sys.stderr)
        answers = model.fill(text, n_best, tokens=tokens, width=width)
        if json_output:
            record = {"text": text, "answers": [asdict(answer) for answer in answers], "unknown": unknown}
            typer.echo(json.dumps(record, ensure_ascii=False))
        else:
            typer.echo(("\n" if number else "") + _in_words(answers))


def _in_words(answers: list[Answer]) -> str:
    """A line for each: its probability, what goes into the blanks, the whole text."""
    fills = [" | ".join(part if part.strip() else repr(part) for part in answer.fills) for answer in answers]
    wide = max(map(len, fills))
    lines = (
        f"{answer.probability:7.2%}  {fill:{wide}}  {answer.text}" for answer, fill in zip(answers, fills, strict=True)
    )
    return "\n".join(line.replace("\n", "\\n") for line in lines)
