"""Lowering: from a graph to code for the engine, with storage for every value and an order of instructions.

Code is divided into segments, with one product between two segments. A value is stored in the place that it must be
written to anyway (a new state, a stored value, the operand of a product), else in a register of the tile, or in scratch
memory if a later segment uses it. A place is (buffer, part, block); the engine maps it to an address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.abi import Buffer, Op
from weft.compiler.graph import Graph

_WITH_PRODUCT = {"add": "multiply_add", "mean": "mean_product"}  # operations that fuse with a multiplication


class Place(NamedTuple):
    """A block of H elements in a buffer of the engine."""

    buffer: Buffer
    part: int  # the product, in buffers with a part for each product
    block: int


class Instruction(NamedTuple):
    """An operation on entries of the table (see `Code`)."""

    op: Op
    target: int
    args: tuple[int, ...]
    uniform: bool = False  # the result is the same on all lanes


@dataclass
class Segment:
    """The instructions between two products, and the places that they load and store."""

    instructions: list[Instruction] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)


@dataclass
class Code:
    """Segments of instructions. Operands are indices into one table: places, constants, sums over rows, registers."""

    places: list[Place]
    constants: list[float]
    sums: int
    registers: int
    segments: list[Segment]


def lower(
    graph: Graph,
    place_of_leaf: Callable[[str, tuple[float, ...]], Place],
    segment_of_leaf: Callable[[str, tuple[float, ...]], int],
    segments: int,
    targets: dict[int, list[Place]],
    sums: list[int],
) -> Code:
    """Generates code.

    Args:
        graph: the graph.
        place_of_leaf: maps a leaf (operation, key) to the place that holds it.
        segment_of_leaf: maps a leaf to the first segment in which it is available.
        segments: the number of segments.
        targets: the nodes to store, with their places.
        sums: the nodes to accumulate over all rows.
    """
    return _Lowering(graph, place_of_leaf, segment_of_leaf, segments, targets, sums).code()


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        place_of_leaf: Callable[[str, tuple[float, ...]], Place],
        segment_of_leaf: Callable[[str, tuple[float, ...]], int],
        segments: int,
        targets: dict[int, list[Place]],
        sums: list[int],
    ) -> None:
        self.graph, self.sums, self.count = graph, sums, segments
        self.place_of_leaf = place_of_leaf
        self.targets = {number: list(places) for number, places in targets.items()}
        results = [*targets, *sums]
        self.uses = graph.uses(results)
        self.segment: dict[int, int] = {}
        for number, node in enumerate(graph.nodes):
            if self.uses[number]:
                first = 0 if node.op == "constant" else segment_of_leaf(node.op, node.key) if not node.args else 0
                self.segment[number] = max([first, *(self.segment[a] for a in node.args)])
        self.fused = self._fuse()
        self._keep_across_segments()
        self.places: list[Place] = []
        self.constants: list[float] = []

    def _fuse(self) -> dict[int, tuple[int, ...]]:
        """Fuses add(mul(a, b), c) and mean(mul(a, b)) to one instruction if the multiplication has no other use."""
        fused: dict[int, tuple[int, ...]] = {}
        inner: set[int] = set()
        for number, node in enumerate(self.graph.nodes):
            if node.op not in _WITH_PRODUCT or number not in self.segment:
                continue
            for i, arg in enumerate(node.args):
                inside = self.graph.nodes[arg]
                alone = self.uses[arg] == 1 and arg not in self.targets and self.segment[arg] == self.segment[number]
                if inside.op == "mul" and alone and arg not in fused:
                    fused[number] = (*inside.args, *node.args[:i], *node.args[i + 1 :])
                    inner.add(arg)
                    break
        self.inner = inner
        return fused

    def args(self, number: int) -> tuple[int, ...]:
        return self.fused.get(number, self.graph.nodes[number].args)

    def _keep_across_segments(self) -> None:
        scratch = 0
        for number in sorted(self.segment):
            if number in self.inner:
                continue
            for arg in self.args(number):
                node = self.graph.nodes[arg]
                if node.args and self.segment[arg] < self.segment[number] and not self.targets.get(arg):
                    self.targets[arg] = [Place(Buffer.SCRATCH, 0, scratch)]
                    scratch += 1

    def code(self) -> Code:
        # Entries: places are 0.., constants 10^6.., sums 2*10^6.., registers 3*10^6.. until all counts are known.
        segments, most = [], 0
        for s in range(self.count):
            segment, registers = self._segment(s)
            segments.append(segment)
            most = max(most, registers)
        bases = [0, len(self.places), len(self.places) + len(self.constants)]
        bases.append(bases[-1] + len(self.sums))

        def entry(number: int) -> int:
            return bases[number // 10**6] + number % 10**6

        for segment in segments:
            segment.instructions = [
                i._replace(target=entry(i.target), args=tuple(map(entry, i.args))) for i in segment.instructions
            ]
        return Code(self.places, self.constants, len(self.sums), most, segments)

    def _place(self, place: Place) -> int:
        if place not in self.places:
            self.places.append(place)
        return self.places.index(place)

    def _segment(self, s: int) -> tuple[Segment, int]:
        mine = [n for n in sorted(self.segment) if self.segment[n] == s and n not in self.inner]
        out, located = Segment(), dict[int, int]()
        steps = [n for n in mine if self.graph.nodes[n].args]
        last_use = {arg: i for i, n in enumerate(steps) for arg in self.args(n)}
        summed = [n for n in self.sums if self.segment[n] == s]
        last_use |= dict.fromkeys(summed, len(steps))
        free: list[int] = []
        registers = 0

        def locate(number: int) -> int:
            """Returns the table entry that holds a value."""
            node = self.graph.nodes[number]
            if number in located:
                return located[number]
            if node.op == "constant":
                if node.key[0] not in self.constants:
                    self.constants.append(node.key[0])
                return 10**6 + self.constants.index(node.key[0])
            place = self.targets[number][0] if node.args else self.place_of_leaf(node.op, node.key)
            located[number] = self._place(place)
            if located[number] not in out.loads:
                out.loads.append(located[number])
            return located[number]

        def write(number: int, places: list[Place]) -> None:
            for place in places:
                entry = self._place(place)
                out.stores.append(entry)
                out.instructions.append(Instruction(Op.copy, entry, (locate(number),)))

        for number in mine:  # copy leaves to their targets before anything is overwritten
            if not self.graph.nodes[number].args:
                write(number, self.targets.get(number, []))
        for i, number in enumerate(steps):
            sources = tuple(locate(arg) for arg in self.args(number))
            for arg in set(self.args(number)):
                if last_use[arg] == i and located.get(arg, 0) >= 3 * 10**6:
                    free.append(located[arg])
            places = self.targets.get(number, [])
            if places:
                target = self._place(places[0])
                out.stores.append(target)
            elif free:
                target = free.pop()
            else:
                target = 3 * 10**6 + registers
                registers += 1
            located[number] = target
            op = self.graph.nodes[number].op
            op = _WITH_PRODUCT[op] if number in self.fused else "copy" if op == "stop" else op
            out.instructions.append(Instruction(Op[op], target, sources, number in self.graph.uniform))
            write(number, places[1:])
        for i, number in enumerate(self.sums):
            if number in summed:
                out.instructions.append(Instruction(Op.accumulate, 2 * 10**6 + i, (locate(number),)))
        return out, registers
