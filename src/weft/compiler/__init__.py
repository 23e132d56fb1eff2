"""The compiler: from a cell's `step` to a program for the engine, with its backward pass.

    trace.py     run the step once on dummy rows and record its operations       Cell -> Equations
    rules.py     how each torch operation maps to operations of the graph
    graph.py     the intermediate representation: Graph, Node, Equations
    derive.py    transformations of equations: fused sums, dropout and zoneout masks, the derivative (reverse mode)
    lower.py     instructions, liveness and register allocation                  Graph -> Code
    build.py     all of it together                                              Cell -> Program
    listing.py   all of it as text: `python -m weft.compiler lstm`
    evaluate.py  an interpreter of the equations in torch, the reference

A graph describes one step for one row; a value is a vector of H lanes (units). Matrix products are not nodes: a product
of a value with recurrent weights is a separate `Product`, and its result enters the graph as leaves. So a program is
pointwise code in segments, with one product between two segments.

`program_of(cell)` raises `Untraceable` if a step uses an operation that the engine does not have.
"""

from weft.compiler.build import Program, StepMasks, compile_equations, program_of
from weft.compiler.derive import with_recurrent_dropout
from weft.compiler.evaluate import evaluate
from weft.compiler.trace import Untraceable, trace
