"""The interface of Python and the C++ core: every record and enumeration, declared here and nowhere else.

`header()` is the same in C++; `setup.py` writes it to engine/core/records.hpp before it compiles the core
(`python -m weft.abi` does, too). A call has one record of named fields. Python packs it into memory, eight bytes for
each field, and the core reads that memory as a structure. Where a call has lists, further records follow the first one,
and each list's length is a field of a record before it. `layout()` is a hash of all declarations; a library whose hash
differs was built from others and is refused (engine/library.py).

Shapes: B rows, T steps, I input, H hidden, G gate blocks, V vocabulary, E embedding. This module imports no part of
weft and nothing that must be installed.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import struct
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, get_type_hints

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

HEADER = Path(__file__).parent / "engine" / "core" / "records.hpp"

Record = TypeVar("Record", bound=tuple[Any, ...])
Enumeration = TypeVar("Enumeration", bound=IntEnum)
Fields = ParamSpec("Fields")
_records: dict[Any, dict[str, str]] = {}  # the fields of each, with their types in C++
_enumerations: list[type[IntEnum]] = []


def record(kind: type[Record]) -> type[Record]:
    """Declares a record."""
    types = get_type_hints(kind, include_extras=True)
    _records[kind] = {name: types[name].__metadata__[0] for name in kind._fields}  # type: ignore[attr-defined]
    return kind


def enumeration(kind: type[Enumeration]) -> type[Enumeration]:
    """Declares an enumeration, whose members count from 0. Those in capitals are constants of the core's namespace."""
    assert [*kind] == [*range(len(kind))], f"{kind.__name__}: members are not numbered in their order"
    _enumerations.append(kind)
    return kind


def values_of(kind: Callable[Fields, Any]) -> Callable[Fields, tuple[int, ...]]:
    """A function of a record's fields that gives their values in order. It is several times as fast as the class."""
    return _function(kind, "({},)")  # type: ignore[no-any-return]


def packer(kind: Callable[Fields, Any]) -> Callable[Fields, bytes]:
    """A function of a record's fields that gives the record as the core reads it."""
    codes = "".join("d" if of == "double" else "q" for of in _records[kind].values())
    return _function(kind, "pack({})", pack=struct.Struct(codes).pack)  # type: ignore[no-any-return]


def _function(kind: Any, body: str, **known: Any) -> Any:
    names = ", ".join(kind._fields)
    return eval(f"lambda {names}: {body.format(names)}", known)


def layout() -> int:
    """A hash of the names, types and order of all members and fields, below 2^64."""
    named = [(kind.__name__, *kind.__members__) for kind in _enumerations]
    texts = [*named, *((kind.__name__, *fields.items()) for kind, fields in _records.items())]
    return int.from_bytes(hashlib.sha256(repr(texts).encode()).digest()[:8], "little")


def header() -> str:
    """All declarations in C++, with their comments."""
    texts = [f"constexpr uint64_t kLayout = {layout():#x};"]
    for kind in _enumerations:
        keyword = "enum" if next(iter(kind.__members__)).isupper() else "enum class"
        members = _with_comments(kind, {name: f"{name}," for name in kind.__members__})
        texts.append(f"{_comment(kind)}{keyword} {kind.__name__} : int64_t {{\n{members}}};")
    texts.append("namespace abi {")
    for kind, fields in _records.items():
        declared = _with_comments(kind, {name: f"{of} {name};" for name, of in fields.items()})
        texts.append(f"{_comment(kind)}template <typename T>\nstruct {kind.__name__} {{\n{declared}}};")
    first = (
        "// Generated from src/weft/abi.py when the core is built: change it there.\n// clang-format off\n#pragma once"
    )
    return "\n\n".join(
        [first, "#include <cstdint>", "namespace weft {", *texts, "}  // namespace abi", "}  // namespace weft\n"]
    )


def _comment(kind: type) -> str:
    return "".join(f"// {line}".rstrip() + "\n" for line in (inspect.getdoc(kind) or "").split("\n"))


def _with_comments(kind: type, declarations: dict[str, str]) -> str:
    """Declarations of members or fields, with what Python's source says above or beside each."""
    lines = []
    for line in inspect.getsource(kind).splitlines():
        found = re.match(r"    (?:(\w+)(?:: \w+| = \d+))?(?:\s*# (.*))?$", line)
        if found and found[1] in declarations:
            lines.append(f"    {declarations[found[1]]}" + (f"  // {found[2]}" if found[2] else ""))
        elif found and found[2] and not found[1]:
            lines.append(f"    // {found[2]}")
    return "".join(line + "\n" for line in lines)


def write_header() -> None:
    """Writes records.hpp, unless it is there as it should be."""
    text = header()
    if not HEADER.exists() or HEADER.read_text(encoding="utf-8") != text:
        HEADER.write_text(text, encoding="utf-8")


@enumeration
class Status(IntEnum):
    """What every function of the core returns."""

    ok = 0
    out_of_memory = 1
    id_out_of_range = 2  # a token id is outside of the vocabulary
    length_out_of_range = 3  # a length is negative or longer than there are steps
    cannot_sample = 4  # a stream without ids or without an output layer
    failed = 5


@enumeration
class Precision(IntEnum):
    """The precision of matrix products, whose sums are of the type of the values."""

    exact = 0  # of the values as they are
    bfloat16 = 1  # of operands rounded to bfloat16
    int8 = 2  # of operands rounded to int8 with a scale for each row; it has no backward pass


@enumeration
class Buffer(IntEnum):
    """Where the values of a program are; docs/engine.md has a table with who writes and who reads each.

    A token is a step of a row, without padding. R are the rows of a task, which have local buffers.
    """

    INPUT = 0  # (tokens, G*H) the projected input; by id (V, G*H); projected in the loop (some rows, G*H)
    GATES = 1  # (tokens, G*H) kept for the backward pass, in the memory of INPUT
    EXTRA = 2  # (tokens, extra*H) kept, beside that
    VECTORS = 3  # (vectors and sums of them, H) parameters that are used element by element
    OUTPUT = 4  # (B, T, sum of H) h of each step
    ROW_MASK = 5  # (B, H) recurrent dropout
    STEP_MASK = 6  # (B, T, states*H) zoneout
    STATE = 7  # (R, states*H) before a step
    NEW_STATE = 8  # (R, states*H) after it
    PRODUCT = 9  # (R, blocks*H of each product) the sums of a product
    OPERAND = 10  # (R, products*H) what a product multiplies, where that is no state
    SCRATCH = 11  # (R, scratch*H) values of one segment that a later one reads
    D_OUTPUT = 12  # gradients from here on: (B, T, sum of H)
    D_STATE = 13  # (R, states*H) of the state after a step
    D_NEW_STATE = 14  # (R, states*H) of the state before it
    D_PRODUCT = 15  # (R, blocks*H of each product)
    D_OPERAND = 16  # (R, H of each product)
    D_INPUT = 17  # (tokens, G*H)
    D_PRODUCTS = 18  # (tokens, d_products*H) of blocks whose gradient is not one of D_INPUT
    OPERANDS = 19  # (tokens, operands*H) no gradient: operands that the backward pass computes again


@enumeration
class Op(IntEnum):
    """Operations of a program, on vectors of H lanes (core/interpreter.hpp)."""

    copy = 0
    add = 1
    sub = 2
    mul = 3
    div = 4
    maximum = 5
    minimum = 6
    lt = 7  # comparisons give 1 or 0
    le = 8
    eq = 9
    neg = 10
    abs = 11
    sqrt = 12
    rsqrt = 13
    exp = 14
    log = 15
    tanh = 16
    sigmoid = 17
    relu = 18
    mean = 19  # over the lanes, on every lane
    select = 20  # b where a != 0, else c
    multiply_add = 21  # a * b + c
    d_tanh = 22  # a * (1 - b * b)
    d_sigmoid = 23  # a * b * (1 - b)
    accumulate = 24  # adds to a sum over rows and steps
    mean_product = 25  # mean of a * b


@record
class ProgramHeader(NamedTuple):
    """weft_new_program: a cell's step, forward and backward.

    The header; for each product a ProductHeader and its ProductBlocks; backward_order indices; three times code (to
    run, to train, backward): a CodeHeader, Places, constants, and for each segment a SegmentHeader, loads, stores,
    Instructions; then ParameterShapes, VectorSources, vector_sums lists, InputVectors, WeightGradients, input_sums
    indices, vector_gradients lists. A list is a ListHeader and its indices.
    """

    hidden_size: Int  # H
    blocks: Int  # of H columns in the projected input
    states: Int  # parts of the state
    products: Int
    backward_order: Int  # indices of products, in the order of the backward pass
    parameters: Int  # weight_ih and bias_ih are the first two
    vectors: Int  # parameters that are used element by element
    vector_sums: Int  # further rows of the table of vectors: sums of some of the first
    input_vectors: Int  # vectors that are added to the bias of the projected input
    extra: Int  # blocks a token that training keeps beside the projected input
    d_products: Int  # blocks a token of gradients of products
    operands: Int  # blocks a token of operands that are computed again
    weight_gradients: Int
    input_sums: Int  # for each input block the sum that is its bias's gradient, or -1
    vector_gradients: Int  # for each vector the sums that make up its gradient
    program: OutputHandle  # where the handle goes


@record
class ProductHeader(NamedTuple):
    blocks: Int
    state: Int  # the part of the state that is the operand as it stands, or -1
    operand_buffer: Int  # where the backward pass finds the operand of all steps
    operand_part: Int
    operand_block: Int


@record
class ProductBlock(NamedTuple):
    input_block: Int  # what the product is added to: a block of the projected input, or -1
    vector: Int  # or a row of the table of vectors, or -1
    parameter: Int  # the weight: H rows of this parameter from `start` on, or columns if it is transposed
    start: Int
    transposed: Int


@record
class CodeHeader(NamedTuple):
    places: Int
    constants: Int  # doubles
    sums: Int  # over rows and steps
    registers: Int
    segments: Int  # one more than there are products
    whole_rows: Int  # whether an instruction needs all units of a row at once


@record
class Place(NamedTuple):
    buffer: Int
    part: Int  # which product, for the buffers that have one part a product
    block: Int


@record
class SegmentHeader(NamedTuple):
    loads: Int  # indices of places
    stores: Int
    instructions: Int


@record
class Instruction(NamedTuple):
    op: Int
    uniform: Int  # the same on all lanes of a row
    target: Int  # entries of the table of places, constants, sums and registers
    a: Int
    b: Int
    c: Int


@record
class ParameterShape(NamedTuple):
    elements: Int
    row: Int  # elements in a row


@record
class VectorSource(NamedTuple):
    parameter: Int
    start: Int
    single: Int  # one element for all units


@record
class InputVector(NamedTuple):
    block: Int
    vector: Int


@record
class WeightGradient(NamedTuple):
    product: Int
    buffer: Int  # the place of the gradient of its first block
    part: Int
    block: Int
    blocks: Int
    parameter: Int
    start: Int
    transposed: Int


@record
class ListHeader(NamedTuple):
    length: Int


@record
class RunCall(NamedTuple):
    """weft_forward, weft_backward: layers over time.

    The call; if there are tables, an EmbeddingInput and its Tables; for each layer a Layer and its Directions; then
    addresses: for each direction its parameters and its states before; for each direction its states after, or backward
    their gradients; and backward for each direction the gradients of its parameters and of its states before. A state's
    part is (B, H).
    """

    is_double: Int
    threads: Int
    rows: Int  # B
    steps: Int  # T
    lengths: InputInts  # (B), or 0: every row has T steps
    ids: InputInts  # (B, T) token ids that the first layer reads
    x: Output  # (B, T, I) or the values that it reads; neither, if it reads tables
    d_x: Output  # (B, T, I) their gradient
    # Embedded rows (B, T, E); for each layer, to train, what each direction keeps for the backward pass, and its
    # outputs (B, T, sum of H), except those of the last.
    memory: Output
    d_memory: Output  # gradients of the embedded rows, if any is wanted, and of the outputs in `memory`
    outputs: Output  # (B, T, sum of H) of the last layer
    d_outputs: Output  # their gradient: (B, T, sum of H) with rows d_outputs_stride apart
    d_outputs_stride: Int  # 0: one value for all
    train: Int  # whether values are kept for the backward pass
    precision: Int  # of products: Precision; those of doubles are exact
    half_kept: Int  # whether what directions keep is in bfloat16: two values in the place of one
    tables: Int
    layers: Int


@record
class Layer(NamedTuple):
    directions: Int  # passes side by side over the same rows
    keep: Int  # dropout on what it reads: keep probability times 2^32; 0: no dropout
    seed: Int


@record
class Direction(NamedTuple):
    program: Handle
    inputs: Int  # features of x, or the size of the vocabulary
    reverse: Int  # each row from its own end to its beginning
    row_mask: Output  # (B, H)
    step_mask: Output  # (B, T, states * H)
    weights: Handle  # of weft_pack_weights, which a forward pass reads that does not train; 0: it reads the parameters


@record
class PackWeightsCall(NamedTuple):
    """weft_pack_weights: the weights of a cell as streams and layers read them, until weft_free_weights.

    The call and the addresses of the cell's parameters, which are copied.
    """

    is_double: Int
    program: Handle  # which must outlive the weights
    inputs: Int
    by_id: Int  # whether it reads token ids
    precision: Int  # of products: Precision; those of doubles are exact
    bytes: OutputInts  # that the weights take
    weights: OutputHandle  # where the handle goes


@record
class EmbeddingCall(NamedTuple):
    """weft_embedding: rows of tables side by side, and dropout.

    The call, an EmbeddingInput, Tables. Backward, `values` and the tables are gradients.
    """

    is_double: Int
    threads: Int
    backward: Int
    positions: Int  # how many rows are read from each table: B * T
    steps: Int  # T
    values: Output  # (B, T, E)
    tables: Int


@record
class EmbeddingInput(NamedTuple):
    dropout_width: Int  # dropout is on the first columns
    keep: Int  # keep probability times 2^32; 0: no dropout
    seed: Int
    shared_over_time: Int  # the same mask at all steps of a row


@record
class Table(NamedTuple):
    values: Output  # (rows, width)
    rows: Int
    width: Int
    ids: InputInts  # (B, T), or 0: the number of the batch row
    accumulate: Int  # backward: the gradient is added to what is there
    zero_probability: Input  # (rows): how often each id is read as 0
    seed: Int  # of the draws for that


@record
class DropoutCall(NamedTuple):
    """weft_dropout"""

    is_double: Int
    threads: Int
    rows: Int
    steps: Int  # 0: each of rows * width elements for itself; else the same mask at all steps of a row
    width: Int
    keep: Int  # keep probability times 2^32
    seed: Int
    source: Input  # (rows, steps, width) or (rows, width)
    target: Output  # the same shape


@record
class CrossEntropyCall(NamedTuple):
    """weft_cross_entropy, weft_cross_entropy_backward: an output layer and its loss."""

    is_double: Int
    threads: Int
    rows: Int  # B
    steps: Int  # T
    inputs: Int  # I
    classes: Int  # V
    x: Input  # (B, T, I)
    weight: Input  # (V, I)
    bias: Input  # (V) or 0
    targets: InputInts  # (B, T)
    lengths: InputInts  # (B), or 0: every row has T steps
    ignore_index: Int  # the target of positions that have no loss
    keep: Int  # dropout on x: keep probability times 2^32; 0: no dropout
    seed: Int
    shared_over_time: Int  # the same mask at all steps of a row
    label_smoothing: Float
    precision: Int  # of products: Precision; those of doubles are exact
    sum: Int  # whether only the sum of all losses is wanted
    losses: Output  # (B, T), or one value
    d_logits: Output  # (targets that count, V): the derivative of each loss; 0: no backward pass
    d_losses: Input  # backward: (B, T), d_losses_stride apart
    d_losses_stride: Int  # 1, or 0: one value for all
    d_x: Output
    d_weight: Output
    d_bias: Output


@record
class PackCall(NamedTuple):
    """weft_pack_output_layer, weft_top_k"""

    is_double: Int
    threads: Int
    classes: Int  # V
    inputs: Int  # I
    weight: Input  # (V, I)
    bias: Input  # (V) or 0
    packed: Output  # (I + 1) * V elements, V rounded up to 64


@record
class TopKCall(NamedTuple):
    is_double: Int
    threads: Int
    rows: Int  # R
    inputs: Int  # I
    classes: Int  # V
    k: Int
    x: Input  # (R, I)
    packed: Output  # as weft_pack_output_layer has filled it
    values: Output  # (R, k) log-probabilities, best first
    ids: OutputInts  # (R, k)


@record
class ParameterState(NamedTuple):
    """weft_gradient_norm, weft_optimizer_step"""

    size: Int  # elements of each
    weight: Output
    gradient: Input
    exp_avg: Output  # moving average of the gradient, or momentum; 0: the gradient itself counts
    exp_avg_sq: Output  # moving average of its square; 0: no Adam
    ema: Output  # moving average of the weight, or 0


@record
class StepSize(NamedTuple):
    size: Float
    bias_correction: Float  # the root of 1 - beta2^step


@record
class NormCall(NamedTuple):
    is_double: Int
    threads: Int
    parameters: Int
    states: InputAny  # ParameterStates
    norm: OutputDoubles  # L2 norm of all gradients as one vector


@record
class OptimizerCall(NamedTuple):
    is_double: Int
    threads: Int
    parameters: Int
    states: InputAny  # ParameterStates
    sizes: InputAny  # a StepSize for each
    gradient_scale: Float
    weight_scale: Float  # 1 - rate * weight decay
    beta1: Float
    beta2: Float
    eps: Float
    ema_decay: Float


@record
class StreamCall(NamedTuple):
    """weft_new_stream, weft_stream_step, weft_stream_sample

    The call and a StreamLayer for each layer. The output layer is copied.
    """

    is_double: Int
    rows: Int  # B
    by_id: Int  # whether the first layer reads token ids
    layers: Int
    vocabulary: Int  # V; 0: no output layer
    weight: Input  # (V, H)
    bias: Input  # (V) or 0
    precision: Int  # of the output layer: Precision; that of doubles is exact
    stream: OutputHandle  # where the handle goes


@record
class StreamLayer(NamedTuple):
    weights: Handle  # of weft_pack_weights


@record
class StreamStepCall(NamedTuple):
    """The call; the addresses of the parts of all layers' states before, each (B, H), and of those after."""

    stream: Handle
    threads: Int
    x: InputAny  # ids (B) or values (B, I)
    result: Handle  # logits (B, V) or, without an output layer, (B, H)


@record
class SampleCall(NamedTuple):
    """The call; the addresses of the parts of all layers' states, which change in place."""

    stream: Handle
    threads: Int
    ids: OutputInts  # (B): the tokens to read first; changes
    steps: Int  # N
    uniforms: InputDoubles  # (B, N) in [0, 1)
    temperature: Float
    top_k: Int  # 0: all
    top_p: Float
    min_p: Float  # 0: all
    typical_p: Float  # 1: all
    repetition_penalty: Float
    presence_penalty: Float
    frequency_penalty: Float
    bias_count: Int
    bias_ids: InputInts
    bias: InputDoubles  # what is added to the log-probabilities of these ids; -infinity: never chosen
    seen_begins: InputInts  # (B + 1): where the tokens of each row's text so far begin; 0: no penalties
    seen_ids: InputInts
    seen_counts: InputInts  # how often each was generated; 0: only the prompt has it
    end: Int  # the token that ends a row, or -1
    tokens: OutputInts  # (B, N), -1 from a row's end on


@record
class PeakCall(NamedTuple):
    """weft_peak"""

    threads: Int
    flops: OutputDoubles  # additions and multiplications a second


@record
class ChainProblem(NamedTuple):
    """weft_chain_sum: a ChainProblem and ChainResults; weft_chain_viterbi: a ChainProblem and a ViterbiResults.

    B chains over P positions, K states, N rows of scores. Scaled scores are exp(score - peak), rows padded to a
    multiple of 8 and aligned to 64 bytes.
    """

    rows: Int  # B
    states: Int  # K
    threads: Int
    positions: Int  # P
    table_rows: Int  # N
    rows_are_shared: Int  # 0 where no two positions have the same row of the table
    begins: InputInts  # (B) the first position of each chain
    lengths: InputInts  # (B)
    ids: InputInts  # (P) the row of the table at each position
    start: InputDoubles  # (K) log scores
    transition: InputDoubles  # (K, K) from, to
    end: InputDoubles  # (K)
    table: InputDoubles  # (N, K)
    start_scaled: InputDoubles
    transition_scaled: InputDoubles
    transposed_scaled: InputDoubles  # to, from
    end_scaled: InputDoubles
    table_scaled: InputDoubles
    table_peaks: InputDoubles  # (N)
    start_end_peak: Float  # the peaks of start and end together
    transition_peak: Float
    weights: InputDoubles  # (B) what each chain counts for in the sums, or 0: 1


@record
class ChainResults(NamedTuple):
    log_z: OutputDoubles  # (B)
    dead: OutputInts  # (B) the position in the chain from which on no path is possible, or -1
    posterior: OutputDoubles  # (P, K)
    cavity: OutputDoubles  # (P, K) the same without the position's own score
    first: OutputDoubles  # weighted sums: (K)
    pairs: OutputDoubles  # (K, K)
    last: OutputDoubles  # (K)
    table: OutputDoubles  # (N, K)


@record
class ViterbiResults(NamedTuple):
    transition_padded: InputDoubles  # (K, K padded to a multiple of 8 with -inf), aligned to 64 bytes
    states: OutputInts  # (P)
    score: OutputDoubles  # (B)


if __name__ == "__main__":
    write_header()
