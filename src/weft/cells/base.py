"""The cell contract: parameters, input projection, states, and the checks of custom cells."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, ClassVar, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn import functional as F

from weft.errors import TensorError, WeftError

_Kind = TypeVar("_Kind", bound=type)


def from_iterable(kind: _Kind) -> _Kind:
    """Lets a NamedTuple of tensors be built from one iterable of its fields, too, as torch rebuilds tuples."""
    make, size = kind.__new__, len(kind._fields)  # type: ignore[attr-defined]

    def new(cls: type, *fields: Any, **named: Any) -> Any:
        if len(fields) == 1 and not named and isinstance(fields[0], tuple | list | Iterator):
            items = tuple(fields[0])
            # The one field of a HiddenState is a tuple where a function of tensors gives tuples: a shape, for example.
            if size > 1 or isinstance(fields[0], Iterator) or (len(items) == 1 and isinstance(items[0], Tensor)):
                fields = items
        return make(cls, *fields, **named)

    kind.__new__ = new  # type: ignore[assignment,method-assign]  # typing.NamedTuple allows none in the class
    return kind


def labelled(**labels: str) -> Callable[[_Kind], _Kind]:
    """Sets the `labels` of a state or gate type. (In the class, a type checker would take them for a field.)"""

    def label(kind: _Kind) -> _Kind:
        kind.labels = labels  # type: ignore[attr-defined]
        return kind

    return label


@from_iterable
@labelled(h="hidden state")
class HiddenState(NamedTuple):
    """The state of a cell that has a hidden state only."""

    h: Tensor  # (B, H)


@from_iterable
@labelled(h="hidden state", c="memory cell")
class LSTMState(NamedTuple):
    """The state of a cell that has a hidden state and a memory cell."""

    h: Tensor  # (B, H)
    c: Tensor  # (B, H)


@from_iterable
@labelled(u="candidate")
class Candidate(NamedTuple):
    """The gates of a cell that has none: its candidate value alone."""

    u: Tensor  # (B, H)


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def traced_as_one_call(forward: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Makes a module a leaf of torch.fx.symbolic_trace, as torch.nn's modules are: its `forward` is not traced."""

    @wraps(forward)
    def leaf(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        for value in (*given, *named.values()):
            if isinstance(value, Proxy):
                target = value.tracer.path_of_module(given[0])  # type: ignore[attr-defined]
                return value.tracer.create_proxy("call_module", target, given[1:], named)  # type: ignore[return-value]
        return forward(*given, **named)

    return leaf


# NamedTuples of (B, H) tensors. Their types may have `labels`, such as {"f": "forget gate"}, for pictures and pages.
State = Any  # h first: HiddenState, LSTMState, or a custom one
Gates = Any


class Cell(nn.Module, ABC):
    """Base class of all cells.

    A subclass defines `blocks` and `step`, and `state_type` if its state is more than `h`. The constructor and the call
    are those of torch.nn's cells.

    Args:
        input_size: I, the number of input features.
        hidden_size: H, the number of hidden units.
        bias: whether the cell has biases. Without them `bias_ih` and `bias_hh` are zeros that are no parameters.
        device: of the parameters, as in torch.nn.
        dtype: of the parameters, as in torch.nn.

    Attributes:
        blocks: G, the number of gate blocks of H rows in each projection.
        state_type: the NamedTuple type of the state; its first field is `h`, the output.
        computed: the names of properties that hold weights computed from parameters, such as a block-diagonal matrix.
            The engine computes them once for all steps.
        head_type: the class of the smaller cells, its heads, that a cell with block-diagonal recurrent weights consists
            of. The engine runs each by itself, on the weights that `head_parameters` returns. It is not inherited,
            since a subclass may have a step of its own.
        heads: how many they are.

    Raises:
        WeftError: a size is out of range.
    """

    blocks: ClassVar[int]
    state_type: ClassVar[type] = HiddenState
    computed: ClassVar[tuple[str, ...]] = ()
    head_type: ClassVar[type[Cell] | None] = None
    heads: int = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if input_size < 1 or hidden_size < 0:
            raise WeftError(
                f"{name}: input_size={input_size}, hidden_size={hidden_size}",
                expected="an input_size of 1 or more, a hidden_size of 0 or more",
            )
        check_blocks(name, self)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self.blocks * hidden_size
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden_size, device=device, dtype=dtype))
        self.bias_ih: Tensor
        self.bias_hh: Tensor
        for name in ("bias_ih", "bias_hh"):
            if bias:
                self.register_parameter(name, nn.Parameter(torch.empty(rows, device=device, dtype=dtype)))
            else:  # the equations read zeros; state_dict has none, as torch's
                self.register_buffer(name, torch.zeros(rows, device=device, dtype=dtype), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters from U(-1/sqrt(H), 1/sqrt(H)), as torch.nn does."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def project(self, x: Tensor) -> Tensor:
        """Computes the input projection of every gate block.

        Args:
            x: (..., I) features, or (...) token ids. A token id stands for its one-hot vector.

        Returns:
            (..., G*H).
        """
        if x.is_floating_point():
            return F.linear(x, self.weight_ih, self.bias_ih)
        return F.embedding(x, self.weight_ih.t()) + self.bias_ih

    def recur(self, h: Tensor) -> Tensor:
        """Computes the recurrent projection of every gate block: (B, H) to (B, G*H)."""
        return F.linear(h, self.weight_hh, self.bias_hh)

    def head_parameters(self) -> list[dict[str, Tensor]]:
        """Returns the parameters of each head, by the names that `head_type` has for them."""
        raise NotImplementedError(f"{type(self).__name__} declares no heads")

    def initial_state(self, rows: int) -> State:
        """Returns the zero state for a batch of `rows`."""
        size = len(self.state_type._fields)  # type: ignore[attr-defined]
        return self.state_type(*(self.weight_ih.new_zeros(rows, self.hidden_size) for _ in range(size)))

    @abstractmethod
    def step(self, x_proj: Tensor, state: State) -> tuple[State, Gates]:
        """Computes one step for all rows.

        Args:
            x_proj: (B, G*H), the input projection.
            state: the state before the step, a `state_type` of (B, H) tensors.

        Returns:
            The state after the step and the gates, two NamedTuples of (B, H) tensors.
        """

    @traced_as_one_call
    def forward(self, input: Tensor, hx: State | Tensor | None = None) -> Tensor | State:
        """Takes one step, as torch.nn's cells do.

        Args:
            input: (B, I) features or (B,) token ids; (I,) for a single row.
            hx: `h`, a tuple of all parts of the state, or None for zeros; (B, H) each, or (H,) for a single row.

        Returns:
            `h'` if the state is `h` alone, otherwise the new state (`h', c'` for the LSTM).
        """
        check_cell(type(self).__name__, self)
        x, state = input, hx
        ids = not x.is_floating_point()
        single = x.dim() == 1 and not ids
        if x.dim() != (1 if ids or single else 2) or not (ids or x.shape[-1] == self.input_size):
            raise TensorError(
                f"{type(self).__name__}: input is {tuple(x.shape)}",
                expected=f"(B, {self.input_size}) because input_size={self.input_size}, or (B,) token ids",
                hint=f"weft.nn.Recurrent(cell) for sequences (B, T, {self.input_size})" if x.dim() == 3 else "",
            )
        x = x[None] if single else x
        if state is None:
            state = self.initial_state(x.shape[0])
        else:
            parts = (state,) if isinstance(state, Tensor) else tuple(state)
            if len(parts) == len(self.state_type._fields):  # type: ignore[attr-defined]
                state = self.state_type(*(part[None] if single else part for part in parts))
            check_state(self, state, x.shape[0])
        new, _ = self.step(self.project(x), state)
        new = type(new)(*(part[0] for part in new)) if single else new
        return new if len(new) > 1 else new[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class InputGatedCell(Cell):
    """Base class of the cells without recurrent weights: gates and candidate read the input alone.

    `bias_ih` is their only bias. A step is pointwise: the products with the input are computed for all steps at once,
    and the loop over time has none.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        del self.weight_hh, self.bias_hh


def check_blocks(name: str, cell: Cell | type[Cell]) -> None:
    """Refuses a cell without a number of gate blocks."""
    if not isinstance(getattr(cell, "blocks", None), int) or cell.blocks < 1:
        raise WeftError(
            f"{name}: the class attribute `blocks` is {getattr(cell, 'blocks', 'missing')}",
            expected="G, the number of gate blocks of the cell, 1 or more",
            hint=f"class {name}(Cell): blocks = 2",
        )


def check_state(cell: Cell, state: State, rows: int) -> None:
    """Refuses a state of another type or shape, which torch would broadcast or read past its end.

    Raises:
        TensorError: `state` is not a `cell.state_type` of (rows, H) tensors.
    """
    shape = (rows, cell.hidden_size)
    shapes = [tuple(getattr(part, "shape", ())) for part in (state if isinstance(state, tuple) else (state,))]
    if type(state) is not cell.state_type or any(each != shape for each in shapes):
        names = ", ".join(cell.state_type._fields)  # type: ignore[attr-defined]
        raise TensorError(
            f"{type(cell).__name__}: state is {type(state).__name__} of {', '.join(map(str, shapes))}",
            expected=f"{cell.state_type.__name__} of {shape}, or None for zeros",
            hint="" if type(state) is cell.state_type else f"{cell.state_type.__name__}({names})",
        )


CHECKED: set[type] = set()  # classes whose step keeps the contract


def check_cell(owner: str, cell: Any) -> None:
    """Checks, once for each cell class, that `cell` is a cell and that its `step` keeps the contract.

    The layers call it before the first step, so a custom cell fails with the same message with and without the engine.

    Args:
        owner: the name of the caller, for the message.
        cell: what was passed as the cell.

    Raises:
        WeftError: `cell` is not an instance of `Cell`, or `step` does not return a state and gates.
    """
    kind = type(cell)
    if kind in CHECKED:
        return
    check_instance(owner, cell)
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():  # a mode would see this step, too
        return
    devices = [cell.weight_ih.device] if cell.weight_ih.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices):  # a step may draw random numbers
        state = cell.initial_state(2)
        result = cell.step(state.h.new_zeros(2, cell.blocks * cell.hidden_size), state)
    name, state_name = kind.__name__, cell.state_type.__name__
    hint = f"return {state_name}({', '.join(cell.state_type._fields)}), gates"
    if not isinstance(result, tuple) or hasattr(result, "_fields") or len(result) != 2:
        raise WeftError(f"{name}.step returns {_describe(result)}", expected="a pair: state, gates", hint=hint)
    new, gates = result
    if type(new) is not cell.state_type:
        raise WeftError(
            f"{name}.step returns {_describe(new)} as the state",
            expected=f"{state_name}, the cell's state_type",
            hint=hint,
        )
    if not (isinstance(gates, tuple) and hasattr(gates, "_fields") and all(isinstance(g, Tensor) for g in gates)):
        raise WeftError(
            f"{name}.step returns {_describe(gates)} as the gates",
            expected="a NamedTuple of tensors (B, H), such as weft.cells.Candidate(u)",
            hint=hint,
        )
    for part in (new, gates):
        labels = getattr(type(part), "labels", {})
        if not isinstance(labels, Mapping) or not set(labels) <= set(part._fields):
            raise WeftError(
                f"{type(part).__name__}: labels is {labels!r}"[:200],
                expected=f"a dict from some of {', '.join(part._fields)} to what they are called",
                hint=f'labels = {{"{part._fields[0]}": "..."}}',
            )
    shape = (2, cell.hidden_size)
    for part, value in zip(new._fields, new, strict=True):
        if not isinstance(value, Tensor) or tuple(value.shape) != shape:
            raise WeftError(
                f"{name}.step returns {_describe(value)} as `{part}` of the state for a batch of 2",
                expected=f"a tensor of {shape}, (B, H) as in the state it received",
            )
    CHECKED.add(kind)


def check_instance(owner: str, cell: Any) -> None:
    """Refuses anything but an instance of `Cell`.

    Raises:
        WeftError: `cell` is a class, a name, or something else.
    """
    if isinstance(cell, Cell):
        return
    if isinstance(cell, type) and issubclass(cell, Cell):
        raise WeftError(
            f"{owner}: cell is the class {cell.__name__}",
            expected="an instance of it",
            hint=f"{cell.__name__}(input_size, hidden_size)",
        )
    raise WeftError(
        f"{owner}: cell is {_describe(cell)}",
        expected="an instance of a weft.cells.Cell",
        hint='weft.nn.make_stack("lstm", input_size, hidden_size) builds layers by the name of a cell',
    )


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {tuple(value.shape)}"
    if value is None or isinstance(value, (str, int, float)):
        return repr(value)
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
