"""`weft look`: what happens inside a trained model."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.errors import WeftError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.pictures import Figure
    from weft.probes import ProbeResult

    Found = tuple[list[ProbeResult], list[Figure]]

VIEWS = (
    "surprisal",
    "gates",
    "states",
    "gradient",
    "jacobian",
    "terms",
    "connectivity",
    "attention",
    "beam",
    "posterior",
    "units",
    "evidence",
    "confusion",
)
PIECE = 2000  # characters of a corpus that are read at a time


def look(
    run: Annotated[Path, typer.Argument(help="A run directory of any task.")],
    text: Annotated[str | None, typer.Argument(help="The text to look at; - for standard input.")] = None,
    show: Annotated[
        list[str] | None,
        typer.Option(help=f"What to show: {', '.join(VIEWS)}. Without it, what suits the run's task."),
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Only this layer, from 0 (the lowest); -1 is the top.")] = None,
    direction: Annotated[str | None, typer.Option(help="Only this direction: forward or backward.")] = None,
    stack: Annotated[str | None, typer.Option(help="Only this stack, such as encoder or decoder.")] = None,
    unit: Annotated[int | None, typer.Option(help="(gates, states, units) Only this unit, from 0.")] = None,
    gate: Annotated[str | None, typer.Option(help="(gates, states, gradient) Only this gate or state.")] = None,
    position: Annotated[int, typer.Option(help="(terms, evidence) The position or prediction; -1 is the last.")] = -1,
    method: Annotated[str, typer.Option(help="(connectivity) gradient or integrated.")] = "gradient",
    beam: Annotated[int, typer.Option(min=1, help="(beam) The beam width.")] = 5,
    data: Annotated[
        str | None,
        typer.Option(help="(units) A corpus to search; (confusion) labelled data: a path or the name of a data set."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="(units) quotes, line-position, or a file with one value per token.")
    ] = None,
    phrase: Annotated[str | None, typer.Option(help="(units) A part of TEXT: units that are on only there.")] = None,
    against: Annotated[Path | None, typer.Option(help="(surprisal) A second run, laid over the same text.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of TEXT is a text of its own.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this .html, .svg, .png or .json file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look inside a model: surprisal, gates, gradients through time, influence, attention, beam search, units.

    In a terminal the result is coloured text and small plots; elsewhere tab-separated values. `--out look.html` writes
    one page that needs no network.
    """
    from weft.pictures.save import check_suffix
    from weft.tasks import load

    for name in show or ():
        if name not in VIEWS:
            raise unknown_name("--show", name, VIEWS)
    if out is not None:
        check_suffix(out)
    model = load(run)
    given = _read_text(text)
    if against is not None and (show or ["surprisal"]) != ["surprisal"]:
        raise WeftError(f"--against with --show {', '.join(show or ())}", expected="--show surprisal")
    texts = _lines(given) if lines else [given]
    wanted = show or (["surprisal"] if against is not None else _suitable(model, texts[0]))
    options = {"layer": layer, "direction": direction, "stack": stack}
    results: list[ProbeResult] = []
    figures: list[Figure] = []
    second = None if against is None else load(against)
    for number, one in enumerate(texts, start=1):
        for name in wanted:
            if name == "units":
                found = _units(model, one, data, label, phrase, unit, options)
            elif name == "confusion":
                found = _confusion(model, data)
            elif second is not None:
                found = _laid_over(model, second, _needed(one, run, name))
            else:
                found = _probe(model, name, _needed(one, run, name), options, (unit, gate, position, method, beam))
            results += found[0]
            figures += [_numbered(figure, number) for figure in found[1]] if len(texts) > 1 else found[1]
    title = f"{run.name}: {', '.join(wanted)}"
    write(title, figures, [one.to_dict() for one in results], out, as_json=json)


def _read_text(text: str | None) -> str | None:
    return sys.stdin.read() if text == "-" else text


def _lines(text: str | None) -> list[str | None]:
    found: list[str | None] = [line for line in (text or "").splitlines() if line.strip()]
    if not found:
        raise WeftError("--lines, and there is no line with text", expected="TEXT, or - for standard input")
    return found


def _numbered(figure: Figure, number: int) -> Figure:
    return dataclasses.replace(figure, title=f"{number}. {figure.title}")


def _confusion(model: Any, data: str | None) -> Found:
    from weft import probes
    from weft.pictures import views

    matrix = probes.confusion(model, data)
    return [matrix], views.confusion_figures(matrix)


def _laid_over(first: Any, second: Any, text: str) -> Found:
    from weft import probes
    from weft.pictures import views

    compared = probes.compare_surprisal(first, second, text)
    return [compared], views.surprisal_comparison_figures(compared)


def _needed(text: str | None, run: Path, name: str) -> str:
    if text is None:
        raise WeftError(f"--show {name} needs a text", expected="one", hint=f"weft look {run} 'The value of'")
    return text


def _suitable(model: Any, text: str | None) -> list[str]:
    """What suits a model: by the parts that it has."""
    from weft.probes.parts import inspect

    if text is None:
        raise WeftError("there is no text to look at", expected="TEXT, or - for standard input")
    parts = inspect(model, text)
    if parts.attention is not None and parts.search is not None:
        return ["attention", "beam"]
    if parts.chain is not None:
        return ["posterior"]
    return ["evidence"] if parts.attention is not None else ["surprisal"] if parts.scores is not None else ["beam"]


def _probe(model: Any, name: str, text: str, layers: dict[str, Any], options: tuple[Any, ...]) -> Found:
    from weft import probes
    from weft.pictures import views

    unit, gate, position, method, beam = options
    if name == "surprisal":
        surprisal = probes.surprisal(model, text)
        return [surprisal], views.surprisal_figures(surprisal)
    if name in ("gates", "states"):
        activations = probes.activations(model, text, **layers)
        return [activations], views.activation_figures(activations, gates=name == "gates", gate=gate, unit=unit)
    if name == "gradient":
        flow = probes.gradient_flow(model, text)
        return [flow], views.gradient_figures(views.select_layers(flow, **layers), gate=gate)
    if name == "jacobian":
        jacobians = probes.step_jacobians(model, text, **layers)
        return list(jacobians), views.jacobian_figures(jacobians)
    if name == "terms":
        terms = probes.gradient_terms(model, text, position=position, **layers)
        return list(terms), views.term_figures(terms)
    if name == "connectivity":
        influence = probes.connectivity(model, text, method=method)
        return [influence], views.connectivity_figures(influence)
    if name == "evidence":
        evidence = probes.evidence(model, text, prediction=position)
        return [evidence], views.evidence_figures(evidence)
    if name == "attention":
        attention = probes.attention(model, text)
        return [attention], views.attention_figures(attention)
    if name == "beam":
        search = probes.beam(model, text, width=beam)
        return [search], views.beam_figures(search)
    posterior = probes.posterior(model, text)
    return [posterior], views.posterior_figures(posterior)


def _units(
    model: Any,
    text: str | None,
    data: str | None,
    label: str | None,
    phrase: str | None,
    unit: int | None,
    layers: dict[str, Any],
) -> Found:
    """Units: on a phrase of the text, by their correlation with a label, or the best passages of one unit."""
    from weft import probes
    from weft.pictures import views
    from weft.probes.labels import LABELS, read_label

    if phrase is not None:
        selected = probes.select_units(model, text or "", phrase)
        return [selected], views.unit_figures(selected)
    texts = _pieces(model, data) if data is not None else iter([text] if text else [])
    if label is not None:
        given = label if label in LABELS else read_label(label)
        correlated = probes.correlate_units(model, texts, given, name=label)
        return [correlated], views.unit_figures(correlated)
    if unit is None:
        raise WeftError("--show units needs a unit, a label or a phrase", expected="one", hint="--unit 3 --data my.txt")
    layers = {name: value for name, value in layers.items() if value is not None}
    passages = probes.top_passages(model, texts, unit=unit, **layers)
    return [passages], views.unit_figures(passages)


def _pieces(model: Any, source: str) -> Iterator[str]:
    """A corpus in pieces: whole lines up to PIECE characters for a model of running text, otherwise single lines."""
    from weft.tasks import get_task
    from weft.tasks.text_task import TextTask
    from weft.text.datasets import open_data

    running = isinstance(get_task(model.run.task), TextTask)
    piece = ""
    for document in open_data(source).documents():
        for line in document.lines():
            if not running:
                if line.strip():
                    yield line.strip()
                continue
            if piece and len(piece) + len(line) > PIECE:
                yield piece
                piece = ""
            piece += line
    if piece.strip():
        yield piece


def write(title: str, figures: list[Figure], data: Any, out: Path | None, *, as_json: bool) -> None:
    """Figures to a file by its name, or to the terminal; data as JSON where that is asked for."""
    from weft.cli.output import output
    from weft.pictures import print_figure
    from weft.pictures.save import content
    from weft.terminal import TerminalConsole

    if out is not None:
        body = content(out, title, figures, data)
        with output(out) as stream:
            stream.buffer.write(body)
        typer.echo(f"wrote {out}", err=True)
    elif as_json:
        import json

        typer.echo(json.dumps(data, ensure_ascii=False))
    else:
        console = TerminalConsole(highlight=False)
        for figure in figures:
            print_figure(console, figure)
