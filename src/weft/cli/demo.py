"""`weft demo`: the whole story in about a minute."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.tasks.lm.config import LmConfig
    from weft.tasks.lm.predictor import Language

MARK = "made-by-weft-demo"  # a file that tells the demo's own folder, which it may replace, from anybody else's
PROMPT = "The value of"


def demo(
    out: Annotated[Path, typer.Option(help="Where the demo puts its two run directories.")] = Path("runs/demo"),
) -> None:
    """The whole story in about a minute, on text that every Python carries.

    Trains a character model on the prose of Python's language reference, lets it write, and says how good it is;
    then trains another on sentences of a grammar whose entropy is known, and compares it with the best possible.
    """
    if out.exists() and not (out / MARK).exists():
        raise WeftError(f"{out} is there and not the demo's own", expected="a new folder", hint="--out runs/demo2")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).write_text("weft demo replaces this folder each time it runs.\n", encoding="utf-8")
    _prose(out / "prose")
    _grammar(out / "grammar")
    typer.echo(
        f"\nYour own text:  weft train lm --data my.txt --out runs/mine"
        f"\n                weft generate {out / 'prose'} --prompt 'A function'"
        f"\n                weft eval {out / 'prose'}"
    )


def _prose(out: Path) -> None:
    typer.echo("1. A character model learns the prose of Python's language reference.\n")
    language = _train("python-docs", out, _config(epochs=7))
    for title, text in (
        ("It writes (chance sharpened a little, temperature 0.6)", _written(language, 0.6)),
        ("and more freely (temperature 1.0)", _written(language, 1.0)),
    ):
        typer.echo(f"\n   {title}:\n\n   {text}")
    _beside(language, "text it has not seen")


def _grammar(out: Path) -> None:
    typer.echo("\n2. Another learns a grammar whose true entropy is known, so the best possible score is too.\n")
    language = _train("grammar", out, _config(epochs=1))
    typer.echo(f"\n   It writes:  {language.generate(tokens=120, seed=1).strip().splitlines()[0]}")
    _beside(language, "sentences it has not seen")


def _beside(language: Language, what: str) -> None:
    """How good it is on its held-out text, beside what it has to beat and what nobody can."""
    from weft.tasks.lm.baselines import Baseline, baselines
    from weft.tasks.task import held_out

    tokens = held_out(language.run, language.codec)
    rows = [Baseline("this model", language.measure_tokens(tokens)), *baselines(language, tokens)]
    typer.echo(f"\n   Perplexity per character on {what}:\n")
    for name, likelihood in sorted(rows, key=lambda row: row.likelihood.perplexity):
        typer.echo(f"   {name:26} {likelihood.perplexity:7.3f}")


def _config(epochs: int) -> LmConfig:
    from weft.config import load_config
    from weft.tasks.lm.config import LmConfig

    # Fewer passes than the default has, so with less against overfitting.
    quick = ["model.cell=gru", "model.dropout=0.1", "batch.seq_length=32", "train.learning_rate=0.005"]
    return load_config(LmConfig, None, [*quick, f"train.epochs={epochs}", "train.minutes=0.7"])


def _train(name: str, out: Path, config: LmConfig) -> Language:
    from weft.cli.train import describe, walk
    from weft.tasks.lm.predictor import load_language, start_language

    training = start_language(name, out, config)
    typer.echo(f"   {describe(training)}", err=True)
    walk(training)
    return load_language(training.run)


def _written(language: Language, temperature: float) -> str:
    from weft.decoding import Sample

    text = language.generate(PROMPT, tokens=220, sampler=Sample(temperature), seed=3)
    return " ".join(text.split())
