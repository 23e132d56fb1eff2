"""The battery of cells and layers.

It uses the public contracts only, so a new cell or a faster engine is tested by naming it. Values and gradients are
compared with a second, independent implementation of the equations (row by row, block by block, in float64, sharing
nothing with the code under test), with torch.nn where torch has the same cell, and with finite differences. Sizes are
unequal and biases random, because equal sizes and zeros hide swapped gates. Every failure names the violated property.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.checks.comparisons import close, flat, gradients, identical, reachable
from tests.checks.equations import EQUATIONS, TORCH, Equations
from weft.cells import (
    Cell,
)
from weft.nn import Bidirectional, Recurrent, Stack, map_state

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
SIZES = [(3, 5, 4, 7), (19, 4, 6, 17), (1, 1, 1, 1)]  # B, T, I, H; 17 and 19 cross the width of a vector register


@dataclasses.dataclass
class Projection:
    """The input or recurrent projection of the reference equations."""

    cell: Cell
    weight: str
    bias: str

    def __call__(self, k: int, vector: Tensor) -> Tensor:
        rows = slice(k * self.cell.hidden_size, (k + 1) * self.cell.hidden_size)
        return getattr(self.cell, self.weight)[rows] @ vector + getattr(self.cell, self.bias)[rows]


@dataclasses.dataclass
class Bench:
    """A cell class, the layers that run it, the tolerances, and reproducible inputs."""

    cell_class: type[Cell]
    layer: Callable[..., Recurrent]
    bidirectional: Callable[..., Bidirectional]
    stack: Callable[..., Stack]
    equations: Equations | None
    dtype: torch.dtype
    atol: float
    rtol: float

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(3)

    def normal(self, *shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=self.random, dtype=torch.float64)
        return numbers.to(self.dtype).requires_grad_()

    def cell(self, input_size: int, hidden_size: int) -> Cell:
        """Returns a cell with random parameters, biases included."""
        cell = self.cell_class(input_size, hidden_size).to(self.dtype)
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=self.random, dtype=torch.float64) * 1.4 - 0.7)
        return cell

    def state(self, layer: Any, rows: int) -> Any:
        return reachable(
            map_state(
                lambda part: (self.normal(*part.shape) * 0.5).detach().requires_grad_(), layer.initial_state(rows)
            )
        )

    def lengths(self, rows: int, steps: int) -> Tensor:
        """Returns lengths that include half, full, zero, one, and then all others."""
        return torch.tensor(([steps // 2, steps, 0, 1] + list(range(steps + 1)) * rows)[:rows])

    def close(self, what: str, actual: Tensor, expected: Tensor) -> None:
        close(what, actual, expected, atol=self.atol, rtol=self.rtol)

    def all_close(self, what: str, actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
        assert len(actual) == len(expected), f"{what}: {len(actual)} tensors, expected {len(expected)}"
        for a, b in zip(actual, expected, strict=True):
            self.close(what, a, b)

    def step_row(self, cell: Cell, x: Tensor, state: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], dict]:
        """Computes one step of one row by the reference equations, or by the cell itself if there are none."""
        if self.equations is None:
            new, gates = cell.step(cell.project(x[None]), cell.state_type(*(part[None] for part in state)))
            return tuple(part[0] for part in new), {name: gate[0] for name, gate in gates._asdict().items()}

        W, U = Projection(cell, "weight_ih", "bias_ih"), Projection(cell, "weight_hh", "bias_hh")
        return self.equations(W, U, x, *state)

    def reference(
        self, cell: Cell, x: Tensor, state: Any, lengths: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...], list[Tensor], dict[str, Tensor]]:
        """Runs row by row over the row's own steps. Returns outputs, final state, all states and all gates."""
        B, T, H = x.shape[0], x.shape[1], cell.hidden_size
        zeros = x.new_zeros(H)
        last, states, gates = [], [], []
        for row in range(B):
            now = tuple(part[row] for part in state)
            size = T if lengths is None else int(lengths[row])
            row_states: list[Any] = [tuple(zeros for _ in now)] * T
            row_gates: list[Any] = [None] * T
            for t in reversed(range(size)) if reverse else range(size):
                now, row_gates[t] = self.step_row(cell, x[row, t], now)
                row_states[t] = now
            last.append(now)
            states.append(row_states)
            gates.append(row_gates)
        names = next(found for row in gates for found in row if found is not None).keys()
        all_states = [
            torch.stack([torch.stack([states[row][t][k] for t in range(T)]) for row in range(B)])
            for k in range(len(state))
        ]
        all_gates = {
            name: torch.stack(
                [torch.stack([gates[b][t][name] if gates[b][t] else zeros for t in range(T)]) for b in range(B)]
            )
            for name in names
        }
        return all_states[0], tuple(torch.stack(parts) for parts in zip(*last, strict=True)), all_states, all_gates


def double(module: nn.Module) -> Any:
    return copy.deepcopy(module).double()


def double_leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().double().requires_grad_()


def check_parameters(bench: Bench) -> None:
    cell = bench.cell(4, 7)
    rows = cell.blocks * 7
    shapes = {"weight_ih": (rows, 4), "weight_hh": (rows, 7), "bias_ih": (rows,), "bias_hh": (rows,)}
    found = {name: tuple(parameter.shape) for name, parameter in cell.named_parameters()}
    ours = [name for name in found if name in shapes]
    assert {"weight_ih", "bias_ih"} <= set(ours), f"parameters: {ours} lack weight_ih or bias_ih"
    assert ours == [name for name in shapes if name in found], f"parameters: order is {ours}, not torch's"
    for name in ours:
        assert found[name] == shapes[name], f"parameters: {name} is {found[name]}, expected {shapes[name]}"
    for base, make in TORCH.items():
        if issubclass(bench.cell_class, base):
            theirs = {name[: -len("_l0")]: tuple(p.shape) for name, p in make(4, 7).named_parameters()}
            assert list(found.items()) == list(theirs.items()), "parameters: not those of torch.nn"


def check_initial_state(bench: Bench) -> None:
    cell = bench.cell(4, 7)
    start = cell.initial_state(3)
    assert type(start) is cell.state_type, f"initial_state: a {type(start).__name__}, not a {cell.state_type.__name__}"
    assert start._fields[0] == "h", f"initial_state: h is not the first field of {start._fields}"
    for part in start:
        assert part.shape == (3, 7), f"initial_state: shape {tuple(part.shape)}, expected (3, 7)"
        assert part.dtype == bench.dtype, f"initial_state: {part.dtype}, expected {bench.dtype}"
        assert not part.any(), "initial_state: not zero"


def check_step(bench: Bench) -> None:
    """A step follows the equations; gates are named, in range, and those of the step; a call is one step."""
    cell, x = bench.cell(4, 7), bench.normal(5, 4)
    state = bench.state(cell, 5)
    before = copy.deepcopy(state)
    projected = cell.project(x)
    assert projected.shape == (5, cell.blocks * 7), f"project: shape {tuple(projected.shape)}"
    new, gates = cell.step(projected, state)
    assert type(new) is cell.state_type, f"step: state is a {type(new).__name__}"
    assert isinstance(gates, tuple), "step: gates are not a NamedTuple"
    assert gates._fields, "step: no gates"
    identical("step changed the state it was given", state, before)
    for name, gate in gates._asdict().items():
        assert gate.shape == (5, 7), f"gate {name}: shape {tuple(gate.shape)}"
        low, high = gate.min().item(), gate.max().item()
        if name in ("i", "f", "o", "r", "z"):
            assert 0 <= low <= high <= 1, f"gate {name}: runs from {low:.3g} to {high:.3g}, not within 0 to 1"
    reference = [bench.step_row(cell, x[row], tuple(part[row] for part in state)) for row in range(5)]
    for k, name in enumerate(new._fields):
        bench.close(f"step: {name}", new[k], torch.stack([row[k] for row, _ in reference]))
    assert set(gates._fields) == set(reference[0][1]), f"gates: {gates._fields}, expected {tuple(reference[0][1])}"
    for name in gates._fields:
        bench.close(f"gate {name}", getattr(gates, name), torch.stack([row[name] for _, row in reference]))
    called = cell(x, state if len(state) > 1 else state[0])
    bench.all_close("calling the cell is not its step", called if len(new) > 1 else [called], new)
    zeros = cell(x)
    expected, _ = cell.step(projected, cell.initial_state(5))
    bench.all_close("calling the cell without a state", zeros if len(new) > 1 else [zeros], expected)


def check_equations(bench: Bench) -> None:
    """A layer computes the equations over time: both directions, with and without lengths, values and gradients."""
    for B, T, input_size, H in SIZES:
        cell, x = bench.cell(input_size, H), bench.normal(B, T, input_size)
        state = bench.state(cell, B)
        twin, x_twin, state_twin = double(cell), double_leaf(x), map_state(double_leaf, state)
        sources, sources_twin = [x, *state, *cell.parameters()], [x_twin, *state_twin, *twin.parameters()]
        for reverse in (False, True):
            layer = bench.layer(cell, reverse=reverse)
            for lengths in (None, bench.lengths(B, T) if B > 1 else torch.tensor([T])):
                what = f"{'backward' if reverse else 'forward'} {'with' if lengths is not None else 'without'} lengths"
                outputs, last = layer(x, state, lengths=lengths)
                expected, last_twin, states, gates = bench.reference(twin, x_twin, state_twin, lengths, reverse=reverse)
                assert type(last) is cell.state_type, f"{what}: final state is a {type(last).__name__}"
                assert outputs.dtype == bench.dtype, f"{what}: outputs are {outputs.dtype}"
                bench.close(f"{what}: outputs", outputs, expected)
                bench.all_close(f"{what}: final state", last, last_twin)
                # gradients of the outputs alone, of the final state alone, and of both
                for part, results, results_twin in (
                    ("outputs", [outputs], [expected]),
                    ("final state", list(last), list(last_twin)),
                    ("all", [outputs, *last], [expected, *last_twin]),
                ):
                    bench.all_close(
                        f"{what}: gradient of {part}",
                        gradients(results, sources),
                        gradients(results_twin, sources_twin),
                    )
                recording = layer.record(x, state, lengths=lengths)
                bench.all_close(f"{what}: states of the recording", recording.states, states)
                for name, gate in recording.gates._asdict().items():
                    bench.close(f"{what}: gate {name} of the recording", gate, gates[name])


def check_torch(bench: Bench) -> None:
    """A layer equals torch.nn's layer with the same weights."""
    base = next((base for base in bench.cell_class.__mro__ if base in TORCH), None)
    if base is not None:
        cell, x = bench.cell(4, 7), bench.normal(3, 5, 4)
        theirs = TORCH[base](4, 7, batch_first=True).double()
        for name, parameter in cell.named_parameters():
            theirs.get_parameter(f"{name}_l0").data.copy_(parameter.data)
        state = bench.state(cell, 3)
        x_twin, state_twin = double_leaf(x), map_state(double_leaf, state)
        parts = [part[None] for part in state_twin]
        expected, last_twin = theirs(x_twin, tuple(parts) if len(parts) > 1 else parts[0])
        last_twin = [part[0] for part in (last_twin if len(parts) > 1 else (last_twin,))]
        outputs, last = bench.layer(cell)(x, state)
        bench.close("torch.nn: outputs", outputs, expected)
        bench.all_close("torch.nn: final state", last, last_twin)
        bench.all_close(
            "torch.nn: gradients",
            gradients([outputs, *last], [x, *state, *cell.parameters()]),
            gradients([expected, *last_twin], [x_twin, *state_twin, *theirs.parameters()]),
        )


def check_no_state(bench: Bench) -> None:
    """A state of None is the zero state, bitwise."""
    cell, x = bench.cell(4, 7), bench.normal(3, 5, 4)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        for lengths in (None, bench.lengths(3, 5)):
            zeros = layer.initial_state(3)
            identical("state None is not zeros", layer(x, lengths=lengths), layer(x, zeros, lengths=lengths))
            identical(
                "state None is not zeros in recording",
                layer.record(x, lengths=lengths),
                layer.record(x, zeros, lengths=lengths),
            )


def check_rows(bench: Bench) -> None:
    """A row gives the same result alone and in a batch, whatever the other rows contain."""
    cell, x = bench.cell(4, 7), bench.normal(6, 5, 4)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        state = bench.state(layer, 6)
        for lengths in (None, bench.lengths(6, 5)):
            outputs, last = layer(x, state, lengths=lengths)
            for row in range(6):
                one = slice(row, row + 1)
                alone, last_alone = layer(
                    x[one],
                    map_state(lambda part, one=one: part[one], state),
                    lengths=None if lengths is None else lengths[one],
                )
                bench.close("a row alone: outputs", alone, outputs[one])
                bench.all_close("a row alone: final state", last_alone, [part[one] for part in last])


def check_split(bench: Bench) -> None:
    """A run in two parts with the state carried over equals one run, in values and gradients."""
    cell, x = bench.cell(4, 7), bench.normal(3, 5, 4)
    layer = bench.layer(cell)
    state = bench.state(layer, 3)
    sources = [x, *state, *cell.parameters()]
    for lengths in (None, bench.lengths(3, 5)):
        outputs, last = layer(x, state, lengths=lengths)
        for cut in (0, 1, 3, 5):
            early = late = None
            if lengths is not None:
                early, late = lengths.clamp(max=cut), (lengths - cut).clamp(min=0)
            first, middle = layer(x[:, :cut], state, lengths=early)
            second, end = layer(x[:, cut:], middle, lengths=late)
            joined = torch.cat([first, second], 1)
            bench.close(f"split at {cut}: outputs", joined, outputs)
            bench.all_close(f"split at {cut}: final state", end, last)
            bench.all_close(
                f"split at {cut}: gradients", gradients([joined, *end], sources), gradients([outputs, *last], sources)
            )


def check_padding(bench: Bench) -> None:
    """Outputs are zero past the length, final states are the row's own; NaN and inf in the padding has no effect."""
    cell, x, lengths = bench.cell(4, 7), bench.normal(7, 5, 4), bench.lengths(7, 5)
    padding = torch.arange(5) >= lengths[:, None]
    assert (lengths == 0).any(), "the battery itself: no empty row"
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        state = bench.state(layer, 7)
        outputs, last = layer(x, state, lengths=lengths)
        assert not outputs[padding].any(), "padding: outputs past the length are not zero"
        for before, after in zip(state, last, strict=True):
            identical("padding: an empty row changed its state", after[lengths == 0], before[lengths == 0])
        expected = gradients([outputs, *last], [x, *state, *cell.parameters()])
        assert not expected[0][padding].any(), "padding: a gradient reaches it"
        for poison in (float("nan"), float("inf"), -float("inf"), 1e30):
            bad = x.detach().masked_fill(padding[..., None], poison).requires_grad_()
            result = layer(bad, state, lengths=lengths.int())
            identical(f"padding: {poison} reaches the outputs or the final state", result, (outputs, last))
            identical(
                f"padding: {poison} reaches the recording",
                layer.record(bad, state, lengths=lengths),
                layer.record(x, state, lengths=lengths),
            )
            found = gradients([result[0], *result[1]], [bad, *state, *cell.parameters()])
            bench.all_close(f"padding: {poison} reaches the gradients", found, expected)
        whole = torch.full((7,), 5)
        bench.close("lengths that are all of it", layer(x, state, lengths=whole)[0], layer(x, state)[0])


def check_reverse(bench: Bench) -> None:
    """The reverse layer equals the forward layer over each row's own steps in reverse order."""
    cell, x, lengths = bench.cell(4, 7), bench.normal(6, 5, 4), bench.lengths(6, 5)
    ahead, back = bench.layer(cell), bench.layer(cell, reverse=True)
    state = bench.state(ahead, 6)

    def turned(values: Tensor) -> Tensor:
        rows = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(values, lengths.tolist(), strict=True)]
        return torch.stack(rows)

    outputs, last = back(x, state, lengths=lengths)
    expected, last_ahead = ahead(turned(x), state, lengths=lengths)
    bench.close("reverse is not forward on reversed rows: outputs", outputs, turned(expected))
    bench.all_close("reverse is not forward on reversed rows: final state", last, last_ahead)


def check_ids(bench: Bench) -> None:
    """Token ids equal one-hot vectors, in values and gradients; ids in the padding are arbitrary."""
    cell = bench.cell(6, 7)
    ids = torch.randint(6, (4, 5), generator=bench.random)
    one_hot = nn.functional.one_hot(ids, 6).to(bench.dtype)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        state = bench.state(layer, 4)
        for lengths in (None, bench.lengths(4, 5)):
            given = ids if lengths is None else ids.masked_fill(torch.arange(5) >= lengths[:, None], -1)
            before = given.clone()
            outputs, last = layer(given, state, lengths=lengths)
            expected, last_expected = layer(one_hot, state, lengths=lengths)
            bench.close("token ids are not one-hot: outputs", outputs, expected)
            bench.all_close("token ids are not one-hot: final state", last, last_expected)
            sources = [*state, *cell.parameters()]
            bench.all_close(
                "token ids are not one-hot: gradients",
                gradients([outputs, *last], sources),
                gradients([expected, *last_expected], sources),
            )
            identical("ids were changed", given, before)


def check_purity(bench: Bench) -> None:
    """Inputs are not modified; strides, no_grad and the mode have no effect; repeated runs agree."""
    cell, x, lengths = bench.cell(4, 7), bench.normal(3, 5, 4), bench.lengths(3, 5)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        state = bench.state(layer, 3)
        for given in (None, lengths):
            before = copy.deepcopy((x, state, given))
            result = layer(x, state, lengths=given)
            gradients([result[0], *result[1]], [x, *state])
            identical("the layer changed its inputs", (x, state, given), before)
            identical("the same run twice differs", layer(x, state, lengths=given), result)
            with torch.no_grad():
                quiet = layer.eval()(x, state, lengths=given)
                strided = x.transpose(0, 1).contiguous().transpose(0, 1)
                wide = map_state(lambda part: torch.stack([part, part], -1)[..., 0], state)
                spread = layer(strided, wide, lengths=given)
            bench.all_close("without gradients", [quiet[0], *quiet[1]], [result[0], *result[1]])
            bench.all_close("with other strides", [spread[0], *spread[1]], [result[0], *result[1]])


def check_deep(bench: Bench) -> None:
    """A stack equals its layers run one after another, also with two directions of different sizes and with lengths."""
    B, T = 5, 4
    cells = [bench.cell(3, 6), bench.cell(6, 5), bench.cell(5, 2)]
    x, lengths = bench.normal(B, T, 3), bench.lengths(B, T)
    stack = bench.stack([bench.layer(cell) for cell in cells])
    for given in (None, lengths):
        state = bench.state(stack, B)
        twins, below, sources_twin = double(nn.ModuleList(cells)), double_leaf(x), []
        sources_twin.append(below)
        last_twin: list[Tensor] = []
        for twin, part in zip(twins, state, strict=True):
            before = map_state(double_leaf, part)
            sources_twin.extend(before)
            below, after, _, _ = bench.reference(twin, below, before, given)
            last_twin.extend(after)
        sources_twin.extend(twins.parameters())
        _compare_stack(bench, "deep", stack, x, state, given, below, last_twin, sources_twin)

    pairs = [(bench.cell(3, 6), bench.cell(3, 4)), (bench.cell(10, 2), bench.cell(10, 5))]
    stack = bench.stack([bench.bidirectional(*pair) for pair in pairs])
    assert stack.output_size == 7, f"deep bidirectional: output_size is {stack.output_size}, expected 7"
    for given in (None, lengths):
        state = bench.state(stack, B)
        twins, below = double(nn.ModuleList(cell for pair in pairs for cell in pair)), double_leaf(x)
        sources_twin, last_twin = [below], []
        for number, part in enumerate(state):
            sides = []
            for direction in (0, 1):
                before = map_state(double_leaf, part[direction])
                sources_twin.extend(before)
                side, after, _, _ = bench.reference(
                    twins[2 * number + direction], below, before, given, reverse=bool(direction)
                )
                sides.append(side)
                last_twin.extend(after)
            below = torch.cat(sides, -1)
        sources_twin.extend(twins.parameters())
        _compare_stack(bench, "deep bidirectional", stack, x, state, given, below, last_twin, sources_twin)


def _compare_stack(
    bench: Bench,
    what: str,
    stack: Stack,
    x: Tensor,
    state: Any,
    lengths: Tensor | None,
    expected: Tensor,
    last_expected: list[Tensor],
    sources_expected: list[Tensor],
) -> None:
    outputs, last = stack(x, state, lengths=lengths)
    bench.close(f"{what}: outputs", outputs, expected)
    bench.all_close(f"{what}: final state", flat(last), last_expected)
    bench.all_close(
        f"{what}: gradients",
        gradients([outputs, *flat(last)], [x, *flat(state), *stack.parameters()]),
        gradients([expected, *last_expected], sources_expected),
    )
    top = stack.record(x, state, lengths=lengths)[-1]
    sides = [top] if hasattr(top, "states") else list(top)
    bench.close(f"{what}: recording", torch.cat([side.states.h for side in sides], -1), outputs)
    identical(
        f"{what}: None is not zeros", stack(x, lengths=lengths), stack(x, stack.initial_state(len(x)), lengths=lengths)
    )


def check_differences(bench: Bench) -> None:
    """Gradients agree with finite differences, in float64."""
    if bench.dtype != torch.float64:
        return
    cell, x = bench.cell(2, 3), bench.normal(2, 3, 2)
    names = [f"cell.{name}" for name, _ in cell.named_parameters()]
    state = bench.state(cell, 2)
    for reverse in (False, True):
        layer = bench.layer(cell, reverse=reverse)
        for lengths in (None, torch.tensor([1, 3])):

            def run(x, *rest, layer=layer, lengths=lengths):
                now, values = type(state)(*rest[: len(state)]), rest[len(state) :]
                weights = dict(zip(names, values, strict=True))
                outputs, last = functional_call(layer, weights, (x, now), {"lengths": lengths})
                return outputs, *last

            inputs = (x, *state, *(p.detach().requires_grad_() for p in cell.parameters()))
            try:
                torch.autograd.gradcheck(run, inputs)
            except RuntimeError as error:  # gradcheck's own
                raise AssertionError(f"gradients are not the finite differences: {error}") from None


CELL_CHECKS = (
    check_parameters,
    check_initial_state,
    check_step,
    check_equations,
    check_torch,
    check_no_state,
    check_rows,
    check_split,
    check_padding,
    check_reverse,
    check_ids,
    check_purity,
    check_deep,
    check_differences,
)


def check_cell(
    cell_class: type[Cell],
    *,
    layer: Callable[..., Recurrent] = Recurrent,
    bidirectional: Callable[..., Bidirectional] = Bidirectional,
    stack: Callable[..., Stack] = Stack,
    equations: Equations | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float64, torch.float32),
    atol: float | None = None,
    rtol: float | None = None,
) -> None:
    """Checks a cell and the layers that run it.

    The reference equations are those given, else those above of the nearest base class, else the cell's own step, one
    row at a time; in the last case only the layers are tested, not the equations.
    """
    if equations is None:
        equations = next((EQUATIONS[base] for base in cell_class.__mro__ if base in EQUATIONS), None)
    for dtype in dtypes:
        near = TOLERANCE[dtype]
        bench = Bench(
            cell_class,
            layer,
            bidirectional,
            stack,
            equations,
            dtype,
            atol=near if atol is None else atol,
            rtol=near if rtol is None else rtol,
        )
        for check in CELL_CHECKS:
            try:
                check(bench)
            except AssertionError as error:
                raise AssertionError(f"{cell_class.__name__}, {dtype}, {check.__name__}: {error}") from error
