"""`weft data`: the named data sets."""

from __future__ import annotations

import json
from typing import Annotated

import typer

data = typer.Typer(help="List and fetch named data sets.", no_args_is_help=True, rich_markup_mode=None)


@data.command(name="list")
def list_data(json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the data sets that `--data` knows by name, and where each one is."""
    from weft.text.datasets import status

    for dataset, state, path in status():
        if json_output:
            record = {"name": dataset.name, "state": state, "path": str(path) if path else None}
            record |= {"licence": dataset.licence, "description": dataset.description}
            typer.echo(json.dumps(record))
        else:
            where = f"{state} at {path}" if path else state
            typer.echo(f"{dataset.name:12} {dataset.description} [{dataset.licence}]\n{'':12} {where}")


@data.command(name="fetch")
def fetch_data(name: Annotated[str, typer.Argument(help="A name of `weft data list`.")]) -> None:
    """Fetch a data set, verify it, and print its path."""
    from weft.text.datasets import DATASETS, locate

    if name in DATASETS and DATASETS[name].text is not None:
        typer.echo(f"{name} is embedded: nothing to fetch")
    else:
        typer.echo(locate(name))
