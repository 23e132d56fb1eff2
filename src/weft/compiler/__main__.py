"""`python -m weft.compiler CELL`: step, graph, derivative and instructions of a cell."""

from __future__ import annotations

import argparse
import sys

from weft.cells import find_cell, load_cell
from weft.compiler.listing import listing
from weft.errors import WeftError

SIZE = 8  # of input and state: what is printed does not depend on it


def print_listing(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m weft.compiler", description="What the compiler makes of a cell.")
    parser.add_argument("cell", metavar="CELL", help="a name, such as lstm, or FILE.py:CLASS, which is executed")
    name = parser.parse_args(arguments).cell
    try:
        kind = load_cell(name, "CELL") if ":" in name or name.endswith(".py") else find_cell(name)
        sys.stdout.write(listing(kind(SIZE, SIZE)))
    except WeftError as error:
        sys.exit(_stop(error))


def _stop(error: WeftError) -> int:
    print(f"python -m weft.compiler: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    print_listing()
