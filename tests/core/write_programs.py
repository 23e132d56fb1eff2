"""Writes programs of cells for tests/core/values.cpp: python -m tests.core.write_programs FILE

Numbers of 64 bits: how many cells; for each its inputs, its parameters' sizes and its program as the core reads it, the
last two with their lengths before them.
"""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

from examples.own_cell import OWN_CELLS
from weft.cells import CELLS
from weft.compiler import program_of
from weft.engine.encode import encode
from weft.engine.plan import Plan

# A name, inputs and units. The first two are the layers of a stream.
SIZES = [("lstm", 23, 48), ("gru", 48, 48), ("rnn", 16, 37), ("gru-reset-before", 23, 64), ("layer-norm-lstm", 8, 48)]
SIZES += [("slstm", 16, 37), ("peephole-lstm", 23, 32), ("mogrifier-lstm", 16, 24)]


def main(path: str) -> None:
    words = array("q", [len(SIZES)])
    for name, inputs, hidden in SIZES:
        cell = {**CELLS, **OWN_CELLS}[name](inputs, hidden)
        plan = Plan(program_of(cell), cell)
        program = encode(plan.program, plan.names, plan.shapes, handle=0)
        sizes = [shape.numel() for shape in plan.shapes]
        words.extend([inputs, len(sizes), *sizes, len(program), *program])
    Path(path).write_bytes(words.tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
