"""The commands of fill-in-the-blank: `weft train fill`, `weft fill`, and what `weft eval` reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from weft.errors import warn
from weft.tasks.command import STRICT, Commands, EvaluationReport, Output, TextHelp, TextInput
from weft.tasks.lm.command import TEXT_DATA, TEXT_DEV, Adapt, Against, text_options

if TYPE_CHECKING:
    from weft.tasks.fill.predictor import Answer, FillPredictor


def fill(
    model: FillPredictor,
    texts: Annotated[
        TextInput,
        TextHelp(
            "Texts with blanks, such as 'i ___ hungry'; - reads one text per line.",
            missing="there is no text to fill",
            example='weft fill RUN "i ___ hungry"',
        ),
    ],
    *,
    n_best: Annotated[int, typer.Option(min=1, help="How many answers to show.")] = 5,
    tokens: Annotated[
        int, typer.Option(min=0, help="How many tokens a blank stands for; 0: as many as it has underscores.")
    ] = 1,
    width: Annotated[int, typer.Option(min=1, help="Beam width where several tokens are missing.")] = 100,
    adapt: Adapt = None,
    json: bool = False,
) -> Output:
    """Fill the blanks of a text: the most probable answers, each with its probability. An empty line stays empty."""
    if adapt is not None:
        model = model.adapt(adapt)
    for number, text in enumerate(texts.lines()):
        if not text.strip():
            yield {"text": text, "answers": [], "unknown": []} if json else "\n"
            continue
        for note in model.notes([text]):
            warn(note)
        answers = model.fill(text, n_best, tokens=tokens, width=width)
        if json:
            yield {"text": text, "answers": [asdict(answer) for answer in answers], "unknown": model.unknown(text)}
        else:
            yield ("\n" if number else "") + _table(answers) + "\n"


def _table(answers: list[Answer]) -> str:
    """A line for each answer: its probability, the content of the blanks, the whole text."""
    fills = [" | ".join(part if part.strip() else repr(part) for part in answer.fills) for answer in answers]
    wide = max(map(len, fills))
    lines = (
        f"{answer.probability:7.2%}  {fill:{wide}}  {answer.text}" for answer, fill in zip(answers, fills, strict=True)
    )
    return "\n".join(line.replace("\n", "\\n") for line in lines)


def evaluate(
    model: FillPredictor,
    data: str | None,
    *,
    against: Against = None,
    adapt: Adapt = None,
    strict: Annotated[bool, STRICT] = False,
) -> EvaluationReport:
    """Predictions of a hidden token, beside baselines and other runs."""
    from weft.tasks.compare import compare_runs

    return compare_runs(model, against or [], data, adapt, strict=strict)


COMMANDS = Commands(
    summary="Train a fill-in-the-blank model: it predicts a token from the text on both sides of it.",
    data=TEXT_DATA,
    dev=TEXT_DEV,
    evaluate=evaluate,
    capabilities=("fill",),
    functions=(fill,),
    train_options=text_options,
    takes_encoder=True,
)
