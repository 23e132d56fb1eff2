"""`weft data`: the named data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.commands import path_option
from weft.errors import WeftError

data = typer.Typer(help="List and fetch named data sets; encode text.", no_args_is_help=True, rich_markup_mode=None)


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


@data.command(name="encode")
def encode_data(
    source: Annotated[str, typer.Argument(help="A text: a file, a folder, an archive, a name, or - .")],
    out: Annotated[Path, path_option("--out", "The folder of the shards.")],
    task: Annotated[str, typer.Option(help="The task whose text settings are the defaults: lm, fill.")] = "lm",
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the text, as text.tokenizer=word; repeatable.")
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Million characters, from the start, that the vocabulary is built from.")
    ] = 20,
    shard: Annotated[int, typer.Option(min=1, help="Million tokens in a shard.")] = 64,
) -> None:
    """Encode a text once for many runs, in shards that need not fit into memory: `weft train lm --data OUT`.

    The same command continues an encoding that was interrupted.
    """
    from weft.config import load_config
    from weft.tasks import get_task
    from weft.tasks.text_task import open_corpus
    from weft.text.shards import write_shards

    config = load_config(get_task(task).config_class, None, sets or [])
    if not hasattr(getattr(config, "text", None), "column"):
        raise WeftError(f"the task {task!r} does not train on one long text", expected="lm or fill")
    corpus = open_corpus(source, config.text.column, strict=config.text.strict)
    found = write_shards(corpus, config.text, out, shard_tokens=shard * 1_000_000, sample_characters=sample * 1_000_000)
    tokens = sum(one["tokens"] for one in found.index["shards"])
    typer.echo(
        f"{out}: {tokens:,} {found.text_field.tokenizer.name} tokens in {len(found.index['shards'])} shards, "
        f"vocabulary of {len(found.text_field.vocabulary):,} from the first {sample} million characters"
    )
