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
DAY_HOURS, SERIES_HOURS, NOISE_KEPT = (
    24,
    14 * 24,
    0.8,
)  # of the generated series; the share of the noise that stays each hour


def demo(
    out: Annotated[Path, path_option("--out", "Where to put the demo's run directories.")] = Path("runs/demo"),
) -> None:
    """Train, generate and evaluate in about a minute, on text that comes with every Python.

    Trains a character model on the prose of Python's language reference, generates text and evaluates the model; then
    trains another on sentences of a grammar whose entropy is known, and compares it with the best possible score; and
    forecasts series of a known law.
    """
    if out.exists() and not (out / DEMO_MARKER).exists():
        raise WeftError(f"{out} exists and was not made by the demo", expected="a new folder", hint="--out runs/demo2")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / DEMO_MARKER).write_text("weft demo replaces this folder each time it runs.\n", encoding="utf-8")
    _prose(out / "prose")
    _grammar(out / "grammar")
    _series(out / "series")
    _pictures(out / "prose")
    typer.echo(
        f"\nYour own text:  weft train lm --data my.txt --out runs/mine"
        f"\n                weft generate {out / 'prose'} --prompt 'A function'"
        f"\n                weft eval {out / 'prose'}"
        f"\n                weft look {out / 'prose'} 'The value of the expression'"
        f"\nYour own series: weft train forecast --data sales.csv --horizon 24 --out runs/sales"
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


def _series(out: Path) -> None:
    """A forecast of series that are a trend, a daily wave and a noise that decays: the best possible one is known."""
    import numpy as np

    from weft.pictures import print_figure
    from weft.probes import forecast
    from weft.tasks.forecast.task import train_forecast
    from weft.terminal import TerminalConsole

    typer.echo(
        "\n3. A forecaster learns hourly series of a known law: a trend, a daily wave, and a noise that decays.\n"
    )
    random, hours, count = np.random.default_rng(1), np.arange(SERIES_HOURS + DAY_HOURS), 40
    noise = np.zeros((count, len(hours)))
    for hour in hours[1:]:
        noise[:, hour] = NOISE_KEPT * noise[:, hour - 1] + random.normal(0, 1, count)
    law = 20 + 0.01 * hours + 5 * np.sin(2 * np.pi * (hours / DAY_HOURS + random.random((count, 1))))
    true = law + noise
    table = {
        "unique_id": np.repeat([f"series {number}" for number in range(1, count + 1)], SERIES_HOURS).tolist(),
        "ds": (np.datetime64("2026-01-01T00", "s") + 3600 * np.tile(hours[:SERIES_HOURS], count)).astype("M8[us]"),
        "y": true[:, :SERIES_HOURS].ravel(),
    }
    model = train_forecast(table, out, {"model.kind": "linear"}, horizon=DAY_HOURS, season=DAY_HOURS)
    best = law[:, SERIES_HOURS:] + noise[:, SERIES_HOURS - 1 : SERIES_HOURS] * NOISE_KEPT ** np.arange(1, DAY_HOURS + 1)
    forecasts = {
        "this model": np.stack([one.values[:, 0] for one in model.forecast()]),
        "the law, the best possible": best,
        "seasonal naive": true[:, SERIES_HOURS - DAY_HOURS : SERIES_HOURS],
    }
    errors = {name: float(np.abs(found - true[:, SERIES_HOURS:]).mean()) for name, found in forecasts.items()}
    console = TerminalConsole(highlight=False)
    if console.is_terminal:
        typer.echo("")
        print_figure(console, forecast(model, steps=3 * DAY_HOURS).figures()[0])
    typer.echo("\n   Mean absolute error of the next 24 hours, which it has not seen:\n")
    for name, error in sorted(errors.items(), key=lambda item: item[1]):
        typer.echo(f"   {name:26} {error:7.3f}")


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
    typer.echo(f"\n4. Pictures of what happens inside the first model: {page}")


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
