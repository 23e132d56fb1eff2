"""`weft eval`: how good a trained model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.classify import show_measure
from weft.cli.tag import show_scores
from weft.cli.translate import print_scores
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.tasks.compare import Guesser
    from weft.tasks.lm.predictor import Language


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    data: Annotated[
        str | None, typer.Option(help="Text to measure on; without it the run's own held-out text.")
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="Another run on the same text to compare with; repeatable.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="A tagger: the column of the tags in --data, if it is not the one of training.")
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="A translator: translations looked for side by side.")] = 5,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a model on text it has not seen.

    A language model: perplexity and bits per token. A classifier: accuracy, F1 and which label was taken for
    which. A tagger: accuracy, and F1 of spans or of words. A translator: BLEU, chrF and exact matches. A model that
    fills blanks, or any model --against others: how well each tells a hidden token, in one table.
    """
    from weft.tasks import load
    from weft.tasks.compare import Guesser
    from weft.tasks.lm.predictor import Language

    model = load(run)
    if column is not None and model.run.task != "tag":
        raise WeftError(f"{run} is a run of the task {model.run.task!r}", expected="a tagger for --column")
    if not isinstance(model, Guesser):
        if against:
            raise WeftError(
                f"{run} is a run of the task {model.run.task!r}, which is held against no other",
                expected="no --against",
            )
        if model.run.task == "classify":
            show_measure(model, data, json_output)
        elif model.run.task == "tag":
            show_scores(model, data, column, json_output)
        else:
            print_scores(model, data, beam, json_output)
    elif isinstance(model, Language) and not against:
        _likelihood(model, data, json_output)
    else:
        _comparison(model, [load(other) for other in against or []], data, json_output)


def _likelihood(language: Language, data: str | None, json_output: bool) -> None:
    from weft.tasks.lm.baselines import baselines
    from weft.tasks.task import encoded, held_out

    if data:
        with encoded(data, language.codec) as tokens:
            likelihood, beside = language.measure_tokens(tokens), baselines(language, tokens)
    else:
        tokens = held_out(language.run, language.codec)
        likelihood, beside = language.measure_tokens(tokens), baselines(language, tokens)
    level, size = language.codec.tokenizer.name, len(language.codec.vocabulary)
    if json_output:
        result = {
            "tokens": likelihood.count,
            "level": level,
            "cross_entropy": likelihood.cross_entropy,
            "bits_per_token": likelihood.bits_per_token,
            "perplexity": likelihood.perplexity,
            "uniform_perplexity": size,
            "signature": likelihood.signature(level),
            "beside": [
                {"name": name, "perplexity": other.perplexity, "cross_entropy": other.cross_entropy}
                for name, other in beside
            ],
        }
        typer.echo(json.dumps(result))
        return
    typer.echo(f"perplexity      {likelihood.perplexity:.3f} per {level}")
    typer.echo(f"bits per {level:7}{likelihood.bits_per_token:.3f}")
    typer.echo(f"tokens          {likelihood.count:,}")
    wide = max(len(name) for name, _ in beside)
    for number, (name, other) in enumerate(beside):
        typer.echo(f"{'' if number else 'beside it':16}{name:{wide}}  {other.perplexity:.3f}")


def _comparison(model: Guesser, others: list[Guesser], data: str | None, json_output: bool) -> None:
    from weft.tasks.compare import compare
    from weft.tasks.task import encoded, held_out

    if data:
        with encoded(data, model.codec) as tokens:
            lines = compare(model, others, tokens)
    else:
        lines = compare(model, others, held_out(model.run, model.codec))
    level = model.codec.tokenizer.name
    if json_output:
        rows = [
            {
                "name": line.name,
                "reads": line.reads,
                "perplexity": line.guesses.likelihood.perplexity,
                "cross_entropy": line.guesses.likelihood.cross_entropy,
                "accuracy": line.guesses.accuracy,
            }
            for line in lines
        ]
        last = lines[-1].guesses
        head = {"tokens": last.likelihood.count, "level": level, "signature": last.signature(level)}
        typer.echo(json.dumps({**head, **rows[-1], "compared": rows}))
        return
    title = f"a hidden {level}, told by"
    wide = max(len(title), *(len(line.name) for line in lines))
    typer.echo(f"{title:{wide}}  {'from':10}  perplexity  accuracy")
    for line in lines:
        found = line.guesses
        typer.echo(f"{line.name:{wide}}  {line.reads:10}  {found.likelihood.perplexity:10.2f}  {found.accuracy:8.1%}")
    typer.echo(f"({lines[-1].guesses.likelihood.count:,} tokens)")
