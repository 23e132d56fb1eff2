"""`weft demo`: train, generate and evaluate in about a minute."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.commands import path_option
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.tasks.lm.config import LmConfig
    from weft.tasks.lm.predictor import LmPredictor

DEMO_MARKER = "made-by-weft-demo"  # marks a folder that the demo made and may replace
PROMPT = "The value of"


def demo(
    out: Annotated[Path, path_option("--out", "Where to put the demo's two run directories.")] = Path("runs/demo"),
) -> None:
    """Train, generate and evaluate in about a minute, on text that comes with every Python.

    Trains a character model on the prose of Python's language reference, generates text and evaluates the model; then
    trains another on sentences of a grammar whose entropy is known, and compares it with the best possible score.
    """
    if out.exists() and not (out / DEMO_MARKER).exists():
        raise WeftError(f"{out} exists and was not made by the demo", expected="a new folder", hint="--out runs/demo2")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / DEMO_MARKER).write_text("weft demo replaces this folder each time it runs.\n", encoding="utf-8")
    _prose(out / "prose")
    _grammar(out / "grammar")
    _pictures(out / "prose")
    typer.echo(
        f"\nYour own text:  weft train lm --data my.txt --out runs/mine"
        f"\n                weft generate {out / 'prose'} --prompt 'A function'"
        f"\n                weft eval {out / 'prose'}"
        f"\n                weft look {out / 'prose'} 'The value of the expression'"
    )


def _prose(out: Path) -> None:
    typer.echo("1. A character model learns the prose of Python's language reference.\n")
    model = _train("python-docs", out, _config(epochs=7))
    for title, text in (
        ("It generates (temperature 0.6)", _sample(model, 0.6)),
        ("and with more diversity (temperature 1.0)", _sample(model, 1.0)),
    ):
        typer.echo(f"\n   {title}:\n\n   {text}")
    _compare(model, "held-out text")


def _grammar(out: Path) -> None:
    typer.echo("\n2. Another learns a grammar whose true entropy is known, and with it the best possible score.\n")
    model = _train("grammar", out, _config(epochs=1))
    typer.echo(f"\n   It generates:  {model.generate(tokens=120, seed=1).strip().splitlines()[0]}")
    _compare(model, "held-out sentences")


def _pictures(run: Path) -> None:
    """A page with what the first model did while it trained and what it does on a sentence."""
    from weft import probes
    from weft.pictures import to_html
    from weft.tasks import load
    from weft.tasks.curves import curve_figures

    model, text = load(run), f"{PROMPT} the expression is the object that the name refers to."
    figures = [
        *curve_figures([probes.metric_curves(run)])[:1],
        *probes.surprisal(model, text).figures(),
        *probes.activations(model, text).gate_figures(gate="z"),
        *probes.gradient_flow(model, text).figures()[:1],
        *probes.connectivity(model, text).figures()[:1],
    ]
    page = run / "look.html"
    page.write_text(to_html("Inside the model of Python's prose", figures), encoding="utf-8")
    typer.echo(f"\n3. Pictures of what happens inside the first model: {page}")


def _compare(model: LmPredictor, what: str) -> None:
    """Its perplexity on its held-out text, beside baselines and the true entropy."""
    from weft.tasks.lm.predictor import Baseline, baselines
    from weft.tasks.text_task import held_out_tokens

    tokens = held_out_tokens(model.run, model.text_field)
    rows = [Baseline("this model", model.evaluate_tokens(tokens)), *baselines(model, tokens)]
    typer.echo(f"\n   Perplexity per character on {what}:\n")
    for name, likelihood in sorted(rows, key=lambda row: row.likelihood.perplexity):
        typer.echo(f"   {name:26} {likelihood.perplexity:7.3f}")


def _config(epochs: int) -> LmConfig:
    from weft.config import load_config
    from weft.tasks.lm.config import LmConfig

    # Fewer epochs than by default, so less regularization.
    quick = ["model.cell=gru", "model.dropout=0.1", "batch.seq_length=32", "train.learning_rate=0.005"]
    quick.append("model.ngram_order=0")  # a network alone, beside the n-gram model
    return load_config(LmConfig, None, [*quick, f"train.epochs={epochs}", "train.minutes=0.7"])


def _train(name: str, out: Path, config: LmConfig) -> LmPredictor:
    from weft.cli.train import train_with_progress
    from weft.tasks.lm.task import TASK

    training = TASK.start(name, out, config)
    typer.echo(f"   {training.summary}", err=True)
    train_with_progress(training)
    return TASK.load(training.run)


def _sample(model: LmPredictor, temperature: float) -> str:
    from weft.decoding import Sample

    text = model.generate(PROMPT, tokens=220, sampler=Sample(temperature), seed=3)
    return " ".join(text.split())
