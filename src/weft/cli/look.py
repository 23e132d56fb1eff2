"""`weft look`: what happens inside a trained model. Its views and their options are those of the registry of probes."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import json as json_format
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.commands import Parameter, as_command, keyword, own_parameters
from weft.errors import WeftError, unknown_name

if TYPE_CHECKING:
    from weft.pictures import Figure
    from weft.probes import ProbeResult

MANIFEST = Path(__file__).parents[1] / "probes" / "manifest.json"  # written by tools/probe_manifest.py
KINDS: dict[str, Any] = {"integer": int, "number": float, "string": str, "boolean": bool, "array": list[str]}


def described_probes() -> dict[str, Any]:
    """The probes as data, from the manifest, for importing them takes torch; only with a file that it does not know."""
    spec = importlib.util.find_spec("weft.probes")
    assert spec is not None
    files = {path.stem for folder in spec.submodule_search_locations or () for path in Path(folder).glob("*.py")}
    manifest = json_format.loads(MANIFEST.read_text(encoding="utf-8"))
    if not files <= {"__init__", *manifest["files"]}:
        from weft.probes.registry import describe_probes

        manifest = describe_probes()
    found: dict[str, Any] = manifest["probes"]
    return found


def probe_options(described: dict[str, Any]) -> list[Parameter]:
    """The options of all probes; their help says whose they are."""
    schemas: dict[str, dict[str, Any]] = {}
    helps: dict[str, dict[str, list[str]]] = {}
    for probe, one in described.items():
        for name, schema in {**one["options"], **one["drawing"]}.items():
            if schema["x-flag"]:
                default = f" [default: {schema['default']}]" if schema.get("default") else ""
                schemas[name] = schema
                helps.setdefault(name, {}).setdefault(schema["description"] + default, []).append(probe)
    found = []
    for name, schema in schemas.items():
        help = " ".join(f"({', '.join(owners)}) {text}" for text, owners in helps[name].items())
        least = schema["minimum"] if schema.get("minimum", -1) >= 0 else None
        option = typer.Option(schema["x-flag"], min=least, help=help, show_default=False)
        found.append(keyword(name, Annotated[KINDS[schema["type"]] | None, option], None))
    return found


def make_look() -> Callable[..., None]:
    """The command, with the options of all probes."""
    described = described_probes()
    own = own_parameters(look)
    names = f"What to show: {', '.join(described)}. Without it, what suits the run's task."
    show = keyword("show", Annotated[list[str] | None, typer.Option(help=names)], None)
    parameters = [*own[:2], show, *probe_options(described), *own[3:]]
    return as_command(functools.partial(look), "look", inspect.getdoc(look) or "", parameters)


def look(
    run: Annotated[Path, typer.Argument(help="A run directory of any task.")],
    text: Annotated[str | None, typer.Argument(help="The text to look at; - for standard input.")] = None,
    show: list[str] | None = None,
    against: Annotated[Path | None, typer.Option(help="(surprisal) A second run, laid over the same text.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of TEXT is a text of its own.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this .html, .svg, .png or .json file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **options: Any,
) -> None:
    """Look inside a model: surprisal, gates, gradients through time, influence, attention, beam search, units.

    In a terminal the result is coloured text and small plots; elsewhere tab-separated values. `--out look.html` writes
    one page that needs no network.
    """
    from weft.pictures.save import check_suffix
    from weft.probes import compare_surprisal
    from weft.probes.registry import all_probes
    from weft.tasks import load

    for name in show or ():
        if name not in all_probes():
            raise unknown_name("--show", name, tuple(all_probes()))
    if out is not None:
        check_suffix(out)
    model, second = load(run), None if against is None else load(against)
    if second is not None and (show or ["surprisal"]) != ["surprisal"]:
        raise WeftError(f"--against with --show {', '.join(show or ())}", expected="--show surprisal")
    given = sys.stdin.read() if text == "-" else text
    texts: list[str | None] = [line for line in (given or "").splitlines() if line.strip()] if lines else [given]
    if not texts:
        raise WeftError("--lines, and there is no line with text", expected="TEXT, or - for standard input")
    wanted = show or (["surprisal"] if second is not None else _suitable(model, texts[0]))
    chosen = {name: value for name, value in options.items() if value is not None}
    results: list[ProbeResult] = []
    figures: list[Figure] = []
    for number, one in enumerate(texts, start=1):
        for name in wanted:
            probe = all_probes()[name]
            if one is None and probe.describe()["text"] == "required":
                raise WeftError(f"--show {name} needs a text", expected="one", hint=f"weft look {run} 'The value of'")
            found = probe.look(model, one, chosen) if second is None else (compare_surprisal(model, second, one or ""),)
            drawn = probe.draw(found, chosen)
            results += found
            if len(texts) > 1:
                drawn = [dataclasses.replace(figure, title=f"{number}. {figure.title}") for figure in drawn]
            figures += drawn
    title = f"{run.name}: {', '.join(wanted)}"
    write(title, figures, [one.to_dict() for one in results], out, as_json=json)


def _suitable(model: Any, text: str | None) -> list[str]:
    """What suits a model: by the parts that it has."""
    from weft.probes.parts import inspect

    try:
        parts = inspect(model, text or "")
    except WeftError:
        if text is not None:
            raise
        parts = None
    if parts is not None and parts.series is not None:
        return ["forecast"]
    if text is None or parts is None:
        raise WeftError("there is no text to look at", expected="TEXT, or - for standard input")
    if parts.attention is not None and parts.search is not None:
        return ["attention", "beam"]
    if parts.chain is not None:
        return ["posterior"]
    return ["evidence"] if parts.attention is not None else ["surprisal"] if parts.scores is not None else ["beam"]


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
        typer.echo(json_format.dumps(data, ensure_ascii=False))
    else:
        console = TerminalConsole(highlight=False)
        for figure in figures:
            print_figure(console, figure)
