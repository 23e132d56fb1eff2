"""The engine: runs recurrent cells over time in C++, forward and backward, on all cores that torch may use.

`run_layers` runs the compiled program of a cell (weft.compiler); it returns None where the engine cannot run it, and
the caller then runs the same equations in torch. `Embedded` is a lazy embedding lookup that layers can read. `Stream`
takes single steps and samples. `dropout`, `variational_dropout`, `embed`, `linear_cross_entropy`, `TopK` and
`OptimizerStep` are fused versions of what surrounds a layer; `linear` is torch's in the engine's precision.
"""

from weft.abi import StepSize
from weft.engine.cells import check_lengths, materialize, run_layers
from weft.engine.cross_entropy import linear_cross_entropy
from weft.engine.dropout import NO_DROPOUT, Dropout, dropout, variational_dropout
from weft.engine.embedding import Embedded, Part, drop_ids, embed
from weft.engine.heads import Pass
from weft.engine.int8 import float_copy, is_quantized, quantize_cell
from weft.engine.kept import freeze_weights, keep_weights, packed_bytes, unfreeze_weights
from weft.engine.library import EngineWarning, library, outside_of_transforms, peak_flops, transformed
from weft.engine.linear import linear
from weft.engine.optimizer import Hyperparameters, OptimizerStep, ParameterTensors
from weft.engine.over_time import over_time
from weft.engine.precision import PRECISIONS, precision, rounds_to_bfloat16, set_default_precision
from weft.engine.prepared import prepared_layers, run_prepared
from weft.engine.stream import Stream, StreamLayers, can_stream
from weft.engine.threads import reproducible, thread_count
from weft.engine.top_k import TopK
from weft.machine import engine_description as description
