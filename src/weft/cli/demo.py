"""`weft demo`: the whole story in about a minute."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.config import LanguageConfig
    from weft.service.language import Language

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
    language = _train("python-docs", out, _config(epochs=14))
    for title, text in (
        ("It writes (chance sharpened a little, temperature 0.6)", _written(language, 0.6)),
        ("and more freely (temperature 1.0)", _written(language, 1.0)),
    ):
        typer.echo(f"\n   {title}:\n\n   {text}")
    measured, size = language.measure_held_out(), len(language.codec.vocabulary)
    typer.echo(
        f"\n   On text it has not seen: perplexity {measured.perplexity:.2f} per character, "
        f"{measured.bits_per_token:.2f} bits. Guessing blindly would be {size}."
    )


def _grammar(out: Path) -> None:
    from weft.text.corpus import Corpus
    from weft.text.grammar import ENGLISH

    typer.echo("\n2. Another learns a grammar whose true entropy is known, so the best possible score is too.\n")
    language = _train("grammar", out, _config(epochs=1))
    fresh = ENGLISH.text(500, seed=1)
    # The line break in front stands for the end of the sentence before, so that every character counts.
    measured = language.measure(Corpus.from_texts("fresh sentences", ["\n" + fresh]))
    best = ENGLISH.best(fresh).perplexity_per_character
    typer.echo(f"\n   It writes:  {language.generate(tokens=120, seed=1).strip().splitlines()[0]}")
    typer.echo(
        f"   On fresh sentences: perplexity {measured.perplexity:.3f} per character; "
        f"no model can be better than {best:.3f}, and {len(language.codec.vocabulary)} is guessing blindly."
    )


def _config(epochs: int) -> LanguageConfig:
    from weft.config import LanguageConfig, load_config

    return load_config(LanguageConfig, None, [f"train.epochs={epochs}", "train.minutes=0.6"])


def _train(name: str, out: Path, config: LanguageConfig) -> Language:
    from weft.cli.train import describe, walk
    from weft.service.language import load_language, start_language

    training = start_language(name, out, config)
    typer.echo(f"   {describe(training)}", err=True)
    walk(training)
    return load_language(training.run)


def _written(language: Language, temperature: float) -> str:
    from weft.decode import Sample

    text = language.generate(PROMPT, tokens=220, choose=Sample(temperature), seed=3)
    return " ".join(text.split())
