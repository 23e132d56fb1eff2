"""`weft serve`: trained models over HTTP, and a page."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from weft.cli.commands import as_command, option_of, own_parameters
from weft.config import setting_schema
from weft.errors import WeftError
from weft.server.config import ServerConfig

LARGEST_KEY = 4096  # bytes


def _read_key(key: str | None, file: Path | None) -> str | None:
    """The API key: of the command line, of a file, or of the environment."""
    if file is None:
        return key or os.environ.get("WEFT_API_KEY") or None
    if key is not None:
        raise WeftError("there are both --api-key and --api-key-file", expected="one of them")
    try:
        with file.open("rb") as opened:
            found = opened.read(LARGEST_KEY).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise WeftError(f"the key cannot be read from {file}: {reason}", expected="a file with one line") from error
    if not found or len(found.splitlines()) != 1:
        raise WeftError(f"{file} is no file with a key", expected="one line that is not empty")
    return found


def make_serve() -> Callable[..., None]:
    """The command, with an option for each setting of the server that has one."""
    hints = get_type_hints(ServerConfig)
    settings = [
        option_of(flag, setting_schema(hints[one.name], one.default, one.metadata))
        for one in dataclasses.fields(ServerConfig)
        if (flag := one.metadata.get("option"))
    ]
    return as_command(
        functools.partial(serve), "serve", inspect.getdoc(serve) or "", [*own_parameters(serve), *settings]
    )


def serve(
    runs: Annotated[
        list[str], typer.Argument(help="Run directories, or NAME=RUN; a model's name is that of its folder.")
    ],
    open: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    runs_folder: Annotated[
        Path | None, typer.Option("--runs", help="A folder of runs whose training curves the page shows.")
    ] = None,
    sessions: Annotated[Path | None, typer.Option(help="A folder to save sessions in.")] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the key that clients have to send; or the variable WEFT_API_KEY.", show_default=False
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(help="The key itself; programs like ps show it to other users.", show_default=False),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines use the models without a key.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name of this server in the Host header; repeatable.")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Matrix products of recurrent layers: float32, or bf16 with float32 sums.")
    ] = "float32",
    **settings: Any,
) -> None:
    """Serve models over HTTP: OpenAI, Hugging Face, LibreTranslate and Ollama clients, and a page.

    Listens on this machine only, unless --host says otherwise. SIGTERM and Ctrl-C finish the running requests.
    """
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise WeftError(
            "the server is not installed", expected="its packages", hint="pip install 'weft[serve]'"
        ) from error
    from weft.engine import set_default_precision
    from weft.server.models import model_names
    from weft.server.program import run_server

    if runs_folder is not None and not runs_folder.is_dir():
        raise WeftError(f"{runs_folder} is not a folder", expected="a folder with runs")
    set_default_precision(precision)  # of all threads
    key, hosts = _read_key(api_key, api_key_file), tuple(allow_host or ())
    config = ServerConfig(api_key=key, allowed_hosts=hosts, runs=runs_folder, sessions=sessions, **settings)
    run_server(model_names(runs), config, open_page=open, insecure=insecure)
