"""The engine: any cell over time, in C++.

A cell's program (weft.program) runs over time in a small C++ core, forward and back, on all cores torch may use.
`takes` says whether it can run here, `run_layers` runs; where it cannot, the caller runs the same equations as torch.
"""

from weft.engine.cells import Pass, run_layers, takes
from weft.engine.library import description, library
from weft.engine.noise import drop_rows, dropout, embed
from weft.engine.stream import Stream, can_stream

__all__ = [
    "Pass",
    "Stream",
    "can_stream",
    "description",
    "drop_rows",
    "dropout",
    "embed",
    "library",
    "run_layers",
    "takes",
]
