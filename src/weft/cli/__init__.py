"""The command line. The commands are made from the tasks; heavy imports wait until one runs."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from weft.cli.cells import with_cells
from weft.cli.commands import make_command, make_commands
from weft.cli.data import data
from weft.cli.demo import demo
from weft.cli.elsewhere import to_click
from weft.cli.look import make_look
from weft.cli.messages import for_command_line
from weft.cli.mix import mix_command
from weft.cli.plot import plot
from weft.cli.runs import compare_command, runs
from weft.cli.serve import make_serve
from weft.cli.train import make_train
from weft.cli.tune import make_tune
from weft.errors import WeftError, WeftWarning
from weft.tasks import tasks_with
from weft.tasks.elsewhere import installed_tasks
from weft.training.environment import LOST_CODE, LostWorkerError, in_group, is_first, is_first_here

# Errors of writing to an open stream: a full disk or quota, too large a file, a broken disk, a stream not for writing.
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_NO_MEMORY = "DefaultCPUAllocator: can't allocate memory"  # torch's RuntimeError
DEFECT = (
    "this is a defect of weft, and not of what it was given; please report it as an issue of weft's repository, with "
    "the lines above and the command"
)

# Commands that load no model with cells. All others have the option --cell; so has `plot`, which is called beside them.
WITHOUT_CELLS = ("demo", "runs", "list", "fetch", "encode", "ngram", "hmm")


class _Program(TyperGroup):
    """The group of all commands. It ends by the signal's code when the reader of our output has gone."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        with shown_warnings():
            known = own is not None or tasks_with(cmd_name)  # of tasks from other packages, too
        return own if own is not None or not known else to_click(cmd_name, make_command(cmd_name))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        if names := installed_tasks():
            formatter.write_paragraph()
            formatter.write_text(f"Tasks of other packages, as weft train TASK --help: {', '.join(names)}.")

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
        from weft.machine import engine_description

        typer.echo(f"weft {weft.__version__} (torch {version('torch')}; {engine_description()})")
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
        if not is_first():
            return  # rank 0 prints it
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
        help="Recurrent sequence models for your own text and time series, fast on an ordinary CPU.",
        no_args_is_help=True,
        cls=_Program,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    app.command()(demo)
    app.add_typer(make_train(), name="train")
    app.add_typer(make_tune(), name="tune")
    for command in make_commands():
        app.command()(command)
    for command in (make_look(), plot, runs, make_serve()):
        app.command()(command)
    app.command("compare")(compare_command)
    app.command("mix")(mix_command)
    app.add_typer(data, name="data")
    for group in (app, *(part.typer_instance for part in app.registered_groups)):
        for registered in group.registered_commands if group is not None else ():
            assert registered.callback is not None
            if (registered.name or registered.callback.__name__) not in WITHOUT_CELLS:
                registered.callback = with_cells(registered.callback)
    return app


app = make_app()


def main() -> None:
    """The program `weft`. A user's error is one message and exit code 2, never a traceback."""
    _escape_controls()
    _set_environment()
    # The log messages of the library, such as the start of a download.
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("weft").setLevel(logging.INFO if is_first() else logging.ERROR)
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # now, while an error of a full disk can still be reported
    except LostWorkerError as error:
        if is_first_here():
            print(f"weft: {for_command_line(str(error))}", file=sys.stderr)
        _end_now(LOST_CODE)
    except WeftError as error:
        if is_first():
            print(f"weft: {for_command_line(str(error))}", file=sys.stderr)
        _end_now(2) if in_group() else sys.exit(2)
    except BrokenPipeError:
        _discard_output()  # the reader of our output has gone
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except OSError as error:
        if error.filename is not None or error.errno not in _REFUSED:
            _report_defect()
        _discard_output()
        print(f"weft: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and _NO_MEMORY not in str(error):
            _report_defect()
        print("weft: there is not enough memory for this; expected smaller inputs, or smaller values of options",
              file=sys.stderr)  # fmt: skip
        sys.exit(2)
    except Exception:
        _report_defect()


def _report_defect() -> NoReturn:
    """Ends the program after an exception that is a defect: of weft, or of a custom cell."""
    traceback.print_exc()
    if cell := _failing_cell(sys.exc_info()[2]):
        print(f"weft: this error is in the custom cell {cell}, and not in weft", file=sys.stderr)
        sys.exit(2)
    print(f"weft: {DEFECT}", file=sys.stderr)
    sys.exit(1)


def _failing_cell(place: TracebackType | None) -> str:
    """The custom cell in whose own code an exception was raised, with file and line; "" if in none."""
    cells: Any = sys.modules.get("weft.cells")
    found = ""
    for frame, line in traceback.walk_tb(place) if cells else ():
        cell, code = next(iter(frame.f_locals.values()), None), frame.f_code
        if isinstance(cell, cells.Cell) and cells.is_custom(type(cell)):
            own = {
                kind.__module__ for kind in type(cell).__mro__ if issubclass(kind, cells.Cell) and cells.is_custom(kind)
            }
            if frame.f_globals.get("__name__") in own:
                found = f"{type(cell).__name__} ({code.co_filename}, line {line}, in {code.co_name})"
    return found


def _end_now(code: int) -> None:
    """Ends a worker at once: the threads of a process group that has lost others would wait for them."""
    sys.stderr.flush()
    os._exit(code)


def _escape_controls() -> None:
    """Shows control characters in results and messages escaped on a terminal: they may be a stranger's."""
    if any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr)):
        from weft.terminal import escape_standard_streams  # not before, for rich takes a while to load

        escape_standard_streams()


def _set_environment() -> None:
    """Sets what libraries read when they are loaded, unless the user has: idle OpenMP threads sleep soon.

    Without that, two training runs on one machine mostly wait for each other, as idle threads spin for milliseconds.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if in_group():  # torch reports lost workers by exceptions alone
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _discard_output() -> None:
    """Discards what is buffered for standard output, or Python would fail once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
