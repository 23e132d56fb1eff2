"""The command line. The commands are made from the tasks; heavy imports wait until one runs."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from weft.cli.commands import make_command
from weft.cli.data import data
from weft.cli.demo import demo
from weft.cli.evaluate import make_evaluate
from weft.cli.look import look
from weft.cli.messages import for_command_line
from weft.cli.plot import plot
from weft.cli.runs import compare_command, runs
from weft.cli.train import make_train
from weft.errors import WeftError, WeftWarning
from weft.tasks import TASKS, get_commands

# Errors of writing to an open stream: a full disk or quota, too large a file, a broken disk, a stream not for writing.
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _Program(TyperGroup):
    """The group of all commands. It ends by the signal's code when the reader of our output has gone."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
            return result
        except BrokenPipeError:  # here, because click would exit with 1
            _discard_output()
            raise typer.Exit(128 + signal.SIGPIPE) from None


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        import weft
        from weft.engine import description

        typer.echo(f"weft {weft.__version__} (torch {version('torch')}; {description()})")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    context.with_resource(shown_warnings())


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Prints weft's warnings, each once, as lines `weft: ...` on standard error."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
        if issubclass(category, WeftWarning):
            print(f"weft: {for_command_line(str(message))}", file=sys.stderr, flush=True)
        else:
            previous(message, category, *place, **rest)

    with warnings.catch_warnings():
        previous = warnings.showwarning
        warnings.simplefilter("default", WeftWarning)
        warnings.showwarning = show
        yield


def make_app() -> typer.Typer:
    """The program, with the commands of every task in the table of tasks."""
    app = typer.Typer(
        name="weft",
        help="Recurrent sequence models on your own text: train, generate, classify, tag, translate, fill, evaluate.",
        no_args_is_help=True,
        cls=_Program,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    app.command()(demo)
    app.add_typer(make_train(), name="train")
    app.command("eval")(make_evaluate())
    for task in TASKS:
        for function in get_commands(task).functions:
            app.command(function.__name__)(make_command(function))
    for command in (look, plot, runs):
        app.command()(command)
    app.command("compare")(compare_command)
    app.add_typer(data, name="data")
    return app


app = make_app()


def main() -> None:
    """The program `weft`. A user's error is one message and exit code 2, never a traceback."""
    _let_idle_threads_sleep()
    _show_log()
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # now, while an error of a full disk can still be reported
    except WeftError as error:
        print(f"weft: {for_command_line(str(error))}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        _discard_output()  # the reader of our output has gone
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except OSError as error:
        if error.filename is not None or error.errno not in _REFUSED:
            raise
        _discard_output()
        print(f"weft: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _let_idle_threads_sleep() -> None:
    """Lets idle OpenMP threads sleep soon instead of spinning for milliseconds.

    Without this, two training runs on one machine mostly wait for each other. GNU's OpenMP reads it once, when torch is
    loaded. A setting of the user's own takes precedence.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _show_log() -> None:
    """Show the log messages of the library, such as the start of a download, on standard error."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("weft").setLevel(logging.INFO)


def _discard_output() -> None:
    """Discards what is buffered for standard output, or Python would fail once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
