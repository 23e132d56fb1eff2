"""`weft plot`: training curves of runs, also while they train."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.errors import WeftError, unknown_name

if TYPE_CHECKING:
    from weft.pictures import Curves

SECONDS = 2.0  # between two looks at the files with --follow


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or what weft backtest --json has written.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="What to plot: train_cross_entropy, grad_norm, learning_rate, or a held-out metric."),
    ] = None,
    smooth: Annotated[float, typer.Option(min=0, max=0.999, help="Smoothing of training curves, 0 for none.")] = 0.6,
    follow: Annotated[bool, typer.Option("--follow", help="Draw again while the runs train, until Ctrl-C.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this .html, .svg, .png or .json file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plot training and held-out curves, the gradient norm and the learning rate of runs, in one figure each.

    Of a backtest: the true values and the forecasts of each series.
    """
    from weft.cli.look import write
    from weft.pictures.save import check_suffix

    if out is not None:
        check_suffix(out)
    if follow and (out is not None or json):
        raise WeftError("--follow with --out or --json", expected="one of them: --follow draws in the terminal")
    if follow:
        _follow(runs, metric, smooth)
        return
    backtests = [run for run in runs if run.is_file()]
    if backtests and (len(backtests) < len(runs) or metric):
        raise WeftError(f"{backtests[0]} is the result of a backtest", expected="such files alone, without --metric")
    figures, data = _read_backtests(backtests) if backtests else _read(runs, metric, smooth)
    write(", ".join(run.name for run in runs), list(figures), data, out, as_json=json)


def _read_backtests(files: list[Path]) -> tuple[list[Curves], list[Any]]:
    from weft.tasks.forecast.backtest import backtest_figures

    try:
        records = [json_format.loads(file.read_text(encoding="utf-8")) for file in files]
    except (ValueError, RecursionError) as error:
        raise WeftError(f"{files[0]} is no JSON: {error}", expected="what weft backtest --json has written") from error
    return [figure for record in records for figure in backtest_figures(record)], records


def _read(runs: list[Path], wanted: list[str] | None, smooth: float) -> tuple[list[Curves], list[Any]]:
    from weft.tasks.curves import curve_figures
    from weft.tasks.runs import metric_curves

    curves = [metric_curves(run) for run in runs]
    names = list(dict.fromkeys(name for one in curves for name in one))
    if not names:
        raise WeftError(f"{runs[0]} has no metrics yet", expected="a run that has been trained for some steps")
    for name in wanted or ():
        if name not in names:
            raise unknown_name("--metric", name, names)
    figures = curve_figures(curves, wanted, smooth)
    shown = wanted or names
    return figures, [one[name].to_dict() for one in curves for name in shown if name in one]


def _follow(runs: list[Path], metric: list[str] | None, smooth: float) -> None:
    from weft.pictures import print_figure
    from weft.terminal import TerminalConsole
    from weft.training.lock import is_locked

    console = TerminalConsole(highlight=False)
    while True:
        figures, _ = _read(runs, metric, smooth)
        if console.is_terminal:
            console.clear()
        for figure in figures[:2]:
            print_figure(console, figure)
        console.file.flush()  # a pipe shows each drawing at once
        if not any(is_locked(run) for run in runs):
            return
        time.sleep(SECONDS)
