"""A cell's equations as a small vector program, and its derivative.

`program_of(cell)` watches the cell's step run once, joins what belongs together, derives the way back and gives
code for the engine. It raises `Untraceable` where a step cannot be written as one.
"""

from weft.compiler.build import Program, StepMasks, compile_equations, program_of
from weft.compiler.derive import with_recurrent_dropout
from weft.compiler.evaluate import evaluate
from weft.compiler.trace import Untraceable, trace

__all__ = [
    "Program",
    "StepMasks",
    "Untraceable",
    "compile_equations",
    "evaluate",
    "program_of",
    "trace",
    "with_recurrent_dropout",
]
