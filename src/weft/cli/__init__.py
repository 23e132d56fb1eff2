"""The command line: each command parses here and works in weft.service. Heavy imports wait until one runs."""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from typing import Annotated

import typer

from weft.cli.classify import classify
from weft.cli.data import data
from weft.cli.demo import demo
from weft.cli.evaluate import evaluate
from weft.cli.fill import fill
from weft.cli.generate import generate
from weft.cli.tag import tag
from weft.cli.train import train
from weft.cli.translate import translate
from weft.errors import WeftError

app = typer.Typer(
    name="weft",
    help="Recurrent sequence models on your own text: train, generate, classify, tag, translate, fill, measure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(demo)
app.add_typer(train, name="train")
app.command(name="eval")(evaluate)
app.command()(generate)
app.command()(fill)
app.command()(classify)
app.command()(tag)
app.command()(translate)
app.add_typer(data, name="data")

# How a system refuses what is written to an open stream: a full disk, a full share of it, too large a file, a broken
# disk, a stream that is not for writing.
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        import weft
        from weft.engine import description

        typer.echo(f"weft {weft.__version__} (torch {version('torch')}; {description()})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The program `weft`: a user's mistake is one message and exit code 2, never a traceback."""
    _share_the_cores()
    warnings.showwarning = lambda message, *_, **__: print(f"weft: {message}", file=sys.stderr)
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # now, while a disk that is full can still be told of
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        _write_no_more()  # whoever read our output has gone
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except OSError as error:
        if error.filename is not None or error.errno not in _REFUSED:
            raise
        _write_no_more()
        print(f"weft: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _share_the_cores() -> None:
    """Threads that have nothing to do soon sleep.

    Those of GNU's OpenMP, torch's and the engine's alike, would look out for work for milliseconds by default, and two
    trainings on one machine would mostly wait for each other.
    It is read once, when torch is loaded. What the user says stands.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _write_no_more() -> None:
    """What is still in standard output's buffer goes nowhere; else Python complains once more as it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
