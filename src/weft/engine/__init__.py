"""The engine: any cell over time, in C++.

A cell's program (weft.program) runs over time in a small C++ core, forward and back, on all cores torch may use.
`run_layers` runs it, or says that it cannot here: then the caller runs the same equations as torch.
`Stream` takes single steps and samples; `dropout`, `drop_rows` and `embed` are torch's, without masks in memory.
"""

from weft.engine.cells import Pass, check_lengths, run_layers
from weft.engine.library import description, library
from weft.engine.noise import drop_rows, dropout, embed
from weft.engine.stream import Stream, can_stream

__all__ = [
    "Pass",
    "Stream",
    "can_stream",
    "check_lengths",
    "description",
    "drop_rows",
    "dropout",
    "embed",
    "library",
    "run_layers",
]
