"""The interface of the C++ core: one named record for each call, as core/abi.hpp declares it and explains its fields.

A record is packed into memory, eight bytes for each field, and the core reads that memory as a structure. `layout()`
hashes the names, types and order of all fields and enumerations. The core has such a hash of its own declarations, and
a library whose hash differs is refused (engine/library.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, get_type_hints

from weft.compiler import lower

# What a field holds, with its type in C++, where T is the type of the values: float or double. An address that is 0
# stands for what is not there or not wanted.
Int = Annotated[int, "int64_t"]
Float = Annotated[float, "double"]
Input = Annotated[int, "const T*"]
Output = Annotated[int, "T*"]
InputInts = Annotated[int, "const int64_t*"]
OutputInts = Annotated[int, "int64_t*"]
InputDoubles = Annotated[int, "const double*"]
OutputDoubles = Annotated[int, "double*"]
InputAny = Annotated[int, "const void*"]
OutputAny = Annotated[int, "void*"]
Handle = Annotated[int, "void*"]
OutputHandle = Annotated[int, "void**"]

Record = TypeVar("Record", bound=tuple[Any, ...])
Fields = ParamSpec("Fields")
_texts: list[str] = []  # of all declarations, as C++ has them
_formats: dict[Any, str] = {}  # of all records, for `struct`


def record(kind: type[Record]) -> type[Record]:
    """Registers a record: its layout, and how it is packed."""
    types = {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}
    _texts.append(kind.__name__ + "{" + "".join(f"{of} {name};" for name, of in types.items()) + "}")
    _formats[kind] = "".join("d" if of == "double" else "q" for of in types.values())
    return kind


def values_of(kind: Callable[Fields, Any]) -> Callable[Fields, tuple[int, ...]]:
    """A function of a record's fields that gives their values in order. It is several times as fast as the class."""
    return _function(kind, "({},)")  # type: ignore[no-any-return]


def packer(kind: Callable[Fields, Any]) -> Callable[Fields, bytes]:
    """A function of a record's fields that gives the record as the core reads it."""
    return _function(kind, "pack({})", pack=struct.Struct(_formats[kind]).pack)  # type: ignore[no-any-return]


def _function(kind: Any, body: str, **known: Any) -> Any:
    names = ", ".join(kind._fields)
    return eval(f"lambda {names}: {body.format(names)}", known)


def layout() -> int:
    """The sum of the 64-bit FNV-1a hashes of all declarations, which are read without white space."""
    total = 0
    for text in _texts:
        value = 0xCBF29CE484222325
        for byte in text.replace(" ", "").encode():
            value = (value ^ byte) * 0x100000001B3 % 2**64
        total += value
    return total % 2**64


class Status(IntEnum):
    """What every function of the core returns."""

    ok = 0
    out_of_memory = 1
    id_out_of_range = 2
    length_out_of_range = 3
    cannot_sample = 4
    failed = 5


def _enumeration(name: str, members: dict[str, int]) -> None:
    """Registers an enumeration, whose members count from 0."""
    assert list(members.values()) == list(range(len(members))), f"{name}: members are not numbered in their order"
    _texts.append(name + "{" + ",".join(members) + "}")


class Precision(IntEnum):
    """The precision of matrix products."""

    exact = 0
    bfloat16 = 1
    int8 = 2


_enumeration("Precision", {precision.name: precision.value for precision in Precision})
_enumeration("Status", {status.name: status.value for status in Status})
# The compiler of programs numbers operations and buffers; the names must be the core's.
_enumeration("Op", {name: code for name, code in lower.OPCODES.items() if name != "stop"})
_enumeration("Buffer", {name: value for name, value in vars(lower).items() if name.isupper() and type(value) is int})


# weft_forward, weft_backward: layers over time


@record
class RunCall(NamedTuple):
    is_double: Int
    threads: Int
    rows: Int
    steps: Int
    lengths: InputInts
    ids: InputInts
    x: Output
    d_x: Output
    memory: Output
    d_memory: Output
    outputs: Output
    d_outputs: Output
    d_outputs_stride: Int
    train: Int
    precision: Int
    tables: Int
    layers: Int


@record
class Layer(NamedTuple):
    directions: Int
    keep: Int
    seed: Int


@record
class Direction(NamedTuple):
    program: Handle
    inputs: Int
    reverse: Int
    row_mask: Output
    step_mask: Output


# weft_embedding: rows of tables side by side, and dropout


@record
class EmbeddingCall(NamedTuple):
    is_double: Int
    threads: Int
    backward: Int
    positions: Int
    steps: Int
    values: Output
    tables: Int


@record
class EmbeddingInput(NamedTuple):
    dropout_width: Int
    keep: Int
    seed: Int
    shared_over_time: Int


@record
class Table(NamedTuple):
    values: Output
    rows: Int
    width: Int
    ids: InputInts
    accumulate: Int
    zero_probability: Input
    seed: Int


# weft_dropout


@record
class DropoutCall(NamedTuple):
    is_double: Int
    threads: Int
    rows: Int
    steps: Int
    width: Int
    keep: Int
    seed: Int
    source: Input
    target: Output


# weft_cross_entropy, weft_cross_entropy_backward: an output layer and its loss


@record
class CrossEntropyCall(NamedTuple):
    is_double: Int
    threads: Int
    rows: Int
    steps: Int
    inputs: Int
    classes: Int
    x: Input
    weight: Input
    bias: Input
    targets: InputInts
    lengths: InputInts
    ignore_index: Int
    keep: Int
    seed: Int
    shared_over_time: Int
    label_smoothing: Float
    precision: Int
    sum: Int
    losses: Output
    d_logits: Output
    d_losses: Input
    d_losses_stride: Int
    d_x: Output
    d_weight: Output
    d_bias: Output


# weft_pack_output_layer, weft_top_k


@record
class PackCall(NamedTuple):
    is_double: Int
    threads: Int
    classes: Int
    inputs: Int
    weight: Input
    bias: Input
    packed: Output


@record
class TopKCall(NamedTuple):
    is_double: Int
    threads: Int
    rows: Int
    inputs: Int
    classes: Int
    k: Int
    x: Input
    packed: Output
    values: Output
    ids: OutputInts


# weft_gradient_norm, weft_optimizer_step


@record
class ParameterState(NamedTuple):
    size: Int
    weight: Output
    gradient: Input
    exp_avg: Output
    exp_avg_sq: Output
    ema: Output


@record
class StepSize(NamedTuple):
    size: Float
    bias_correction: Float


@record
class NormCall(NamedTuple):
    is_double: Int
    threads: Int
    parameters: Int
    states: InputAny
    norm: OutputDoubles


@record
class OptimizerCall(NamedTuple):
    is_double: Int
    threads: Int
    parameters: Int
    states: InputAny
    sizes: InputAny
    gradient_scale: Float
    weight_scale: Float
    beta1: Float
    beta2: Float
    eps: Float
    ema_decay: Float


# weft_new_stream, weft_stream_step, weft_stream_sample


@record
class StreamCall(NamedTuple):
    is_double: Int
    rows: Int
    by_id: Int
    layers: Int
    vocabulary: Int
    weight: Input
    bias: Input
    precision: Int
    stream: OutputHandle


@record
class StreamLayer(NamedTuple):
    program: Handle
    inputs: Int


@record
class StreamStepCall(NamedTuple):
    stream: Handle
    threads: Int
    x: InputAny
    result: OutputAny


@record
class SampleCall(NamedTuple):
    stream: Handle
    threads: Int
    ids: OutputInts
    steps: Int
    uniforms: InputDoubles
    temperature: Float
    top_k: Int
    top_p: Float
    min_p: Float
    typical_p: Float
    repetition_penalty: Float
    presence_penalty: Float
    frequency_penalty: Float
    bias_count: Int
    bias_ids: InputInts
    bias: InputDoubles
    seen_begins: InputInts
    seen_ids: InputInts
    seen_counts: InputInts
    end: Int
    tokens: OutputInts


# weft_peak


@record
class PeakCall(NamedTuple):
    threads: Int
    flops: OutputDoubles


# weft_chain_sum: a ChainProblem and ChainResults; weft_chain_viterbi: a ChainProblem and a ViterbiResults


@record
class ChainProblem(NamedTuple):
    rows: Int
    states: Int
    threads: Int
    positions: Int
    table_rows: Int
    rows_are_shared: Int
    begins: InputInts
    lengths: InputInts
    ids: InputInts
    start: InputDoubles
    transition: InputDoubles
    end: InputDoubles
    table: InputDoubles
    start_scaled: InputDoubles
    transition_scaled: InputDoubles
    transposed_scaled: InputDoubles
    end_scaled: InputDoubles
    table_scaled: InputDoubles
    table_peaks: InputDoubles
    start_end_peak: Float
    transition_peak: Float
    weights: InputDoubles


@record
class ChainResults(NamedTuple):
    log_z: OutputDoubles
    dead: OutputInts
    posterior: OutputDoubles
    cavity: OutputDoubles
    first: OutputDoubles
    pairs: OutputDoubles
    last: OutputDoubles
    table: OutputDoubles


@record
class ViterbiResults(NamedTuple):
    transition_padded: InputDoubles
    states: OutputInts
    score: OutputDoubles
