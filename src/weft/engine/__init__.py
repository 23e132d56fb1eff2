"""The engine: any cell over time, in C++.

A cell's program (weft.program) runs over time in a small C++ core, forward and back, on all cores torch may use.
`run_layers` runs it, or says that it cannot here: then the caller runs the same equations as torch.
`Embedded` is what layers may read instead of a tensor: rows of tables, not yet written out.
`Stream` takes single steps and samples; `dropout`, `drop_rows` and `embed` are torch's, without masks in memory;
`readout_nats` is an output layer with its cross-entropy, `Likeliest` one that tells its best ids, and `Updates` is a
step of an optimizer.
"""

from weft.engine.abi import StepSize
from weft.engine.cells import Pass, check_lengths, run_layers, written
from weft.engine.embedding import Embedded, Part, embed, forget
from weft.engine.library import EngineWarning, description, library, peak_flops
from weft.engine.likeliest import Likeliest
from weft.engine.noise import NOTHING, Drop, drop_rows, dropout
from weft.engine.readout import readout_nats
from weft.engine.stream import Stream, can_stream
from weft.engine.update import Moved, Rates, Updates

__all__ = [
    "NOTHING",
    "Drop",
    "Embedded",
    "EngineWarning",
    "Likeliest",
    "Moved",
    "Part",
    "Pass",
    "Rates",
    "StepSize",
    "Stream",
    "Updates",
    "can_stream",
    "check_lengths",
    "description",
    "drop_rows",
    "dropout",
    "embed",
    "forget",
    "library",
    "peak_flops",
    "readout_nats",
    "run_layers",
    "written",
]
