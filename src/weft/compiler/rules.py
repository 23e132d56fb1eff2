"""Rules of the tracer: how each torch operation maps to nodes of the graph, one short rule each."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from weft.compiler.trace import rule


def _each(build: Any, *names: str) -> None:
    """Adds a rule for pointwise operations: build(graph, *nodes) for every block of the broadcast arguments."""

    @rule(*names)
    def apply(recorder: Any, result: Tensor, *args: Any, **kwargs: Any) -> list[int]:
        lanes = [recorder.lanes_of(arg, result.shape) for arg in args]
        return [build(recorder.graph, *nodes, **kwargs) for nodes in zip(*lanes, strict=True)]


def _plain(op: str, *names: str) -> None:
    _each(lambda g, *nodes: g.apply(op, *nodes), *names)


for _name in (
    "mul",
    "maximum",
    "minimum",
    "lt",
    "le",
    "eq",
    "neg",
    "abs",
    "sqrt",
    "rsqrt",
    "exp",
    "log",
    "tanh",
    "sigmoid",
    "relu",
):
    _plain(_name, _name)
_each(lambda g, a: a, "clone")
_plain("stop", "detach")
_each(lambda g, a, b: g.apply("lt", b, a), "gt")
_each(lambda g, a, b: g.apply("le", b, a), "ge")
_each(lambda g, a, b: _not(g, g.apply("eq", a, b)), "ne")
_each(lambda g, a: _not(g, a), "logical_not", "bitwise_not")
_each(lambda g, a, b: g.apply("mul", a, b), "logical_and", "bitwise_and")
_each(lambda g, a, b: g.apply("maximum", a, b), "logical_or", "bitwise_or")
_each(lambda g, c, a, b: g.apply("select", c, a, b), "where")
_each(lambda g, a: g.apply("div", g.constant(1), a), "reciprocal")
_each(lambda g, a: g.apply("mul", a, a), "square")
_each(lambda g, a: g.apply("mul", a, g.apply("sigmoid", a)), "silu")
_each(lambda g, a: _hard_sigmoid(g, a), "hardsigmoid")
_each(lambda g, a: g.apply("mul", a, _hard_sigmoid(g, a)), "hardswish")
_each(lambda g, a: _mish(g, a), "mish")
_each(lambda g, a, b, w: g.apply("add", a, g.apply("mul", w, g.apply("sub", b, a))), "lerp")
_each(lambda g, a, low: g.apply("select", g.apply("lt", a, low), low, a), "clamp_min")
_each(lambda g, a, high: g.apply("select", g.apply("lt", high, a), high, a), "clamp_max")


def _not(g: Any, a: int) -> int:
    return int(g.apply("sub", g.constant(1), a))


def _hard_sigmoid(g: Any, a: int) -> int:
    """(a + 3) / 6, between 0 and 1."""
    line = g.apply("div", g.apply("add", a, g.constant(3)), g.constant(6))
    line = g.apply("select", g.apply("lt", line, g.constant(0)), g.constant(0), line)
    return int(g.apply("select", g.apply("lt", g.constant(1), line), g.constant(1), line))


def _mish(g: Any, a: int) -> int:
    """a * tanh(softplus(a)), which is a * n / (n + 2) with n = e^a * (e^a + 2); above 20 it is a."""
    power = g.apply("exp", g.apply("minimum", a, g.constant(20)))
    n = g.apply("mul", power, g.apply("add", power, g.constant(2)))
    return int(g.apply("mul", a, g.apply("div", n, g.apply("add", n, g.constant(2)))))


def _signed(name: str, swap: bool) -> None:
    """Adds a rule for a + alpha b or a - alpha b; swapped: b - alpha a."""

    @rule(name)
    def apply(recorder: Any, result: Tensor, a: Any, b: Any, alpha: float = 1) -> list[int]:
        g = recorder.graph
        first, second = (b, a) if swap else (a, b)
        pairs = zip(recorder.lanes_of(first, result.shape), recorder.lanes_of(second, result.shape), strict=True)
        op = "add" if name == "add" else "sub"
        return [g.apply(op, x, g.apply("mul", g.constant(alpha), y)) for x, y in pairs]


_signed("add", swap=False)
_signed("sub", swap=False)
_signed("rsub", swap=True)


@rule("div")
def _quotient(recorder: Any, result: Tensor, a: Any, b: Any, rounding_mode: str | None = None) -> list[int]:
    if rounding_mode is not None:
        raise recorder.refuse("div", f"with rounding_mode={rounding_mode!r} is not an operation of the engine")
    pairs = zip(recorder.lanes_of(a, result.shape), recorder.lanes_of(b, result.shape), strict=True)
    return [recorder.graph.apply("div", x, y) for x, y in pairs]


@rule("pow")
def _power(recorder: Any, result: Tensor, base: Any, exponent: Any) -> list[int]:
    g = recorder.graph
    if exponent not in (0.5, 1, 2, 3, 4, -1):
        raise recorder.refuse("pow", f"to the power {exponent}: only 0.5, -1 and 1 to 4 are")
    found = []
    for node in recorder.lanes_of(base, result.shape):
        if exponent == 0.5:
            found.append(g.apply("sqrt", node))
        elif exponent == -1:
            found.append(g.apply("div", g.constant(1), node))
        else:
            square = g.apply("mul", node, node)
            found.append(
                {1: node, 2: square, 3: g.apply("mul", square, node), 4: g.apply("mul", square, square)}[exponent]
            )
    return found


@rule("clamp", "hardtanh")
def _clamp(recorder: Any, result: Tensor, a: Any, low: Any = None, high: Any = None, **bounds: Any) -> list[int]:
    low, high = bounds.get("min", bounds.get("min_val", low)), bounds.get("max", bounds.get("max_val", high))
    g, lanes = recorder.graph, recorder.lanes_of(a, result.shape)
    if low is not None:
        pairs = zip(lanes, recorder.lanes_of(low, result.shape), strict=True)
        lanes = [g.apply("select", g.apply("lt", x, y), y, x) for x, y in pairs]
    if high is not None:
        pairs = zip(lanes, recorder.lanes_of(high, result.shape), strict=True)
        lanes = [g.apply("select", g.apply("lt", y, x), y, x) for x, y in pairs]
    return list(lanes)


@rule("softplus")
def _softplus(recorder: Any, result: Tensor, a: Any, beta: float = 1, threshold: float = 20) -> list[int]:
    g, found = recorder.graph, []
    for node in recorder.lanes_of(a, result.shape):
        scaled = g.apply("mul", g.constant(beta), node)
        # Above the threshold the curve is not selected; without the minimum its derivative would be 0 * infinity there.
        power = g.apply("exp", g.apply("minimum", scaled, g.constant(threshold)))
        curve = g.apply("div", g.apply("log", g.apply("add", g.constant(1), power)), g.constant(beta))
        found.append(g.apply("select", g.apply("lt", g.constant(threshold), scaled), node, curve))
    return found


@rule("leaky_relu")
def _leaky(recorder: Any, result: Tensor, a: Any, slope: float = 0.01) -> list[int]:
    g = recorder.graph
    return [
        g.apply("select", g.apply("lt", g.constant(0), n), n, g.apply("mul", g.constant(slope), n))
        for n in recorder.lanes_of(a, result.shape)
    ]


@rule("cat")
def _cat(recorder: Any, result: Tensor, parts: Any, dim: int = 0) -> list[int]:
    if dim % result.dim() == 0:
        raise recorder.refuse("cat", "along the rows is not an operation on one row")
    return [lane for part in parts for lane in recorder.lanes_of(part, part.shape)]


@rule("stack")
def _stack(recorder: Any, result: Tensor, parts: Any, dim: int = 0) -> list[int]:
    if dim != 1 or result.dim() != 3:
        raise recorder.refuse("stack", "in a direction other than 1 does not give blocks of H")
    return [recorder.lanes_of(part, part.shape)[0] for part in parts]


@rule("mm")
def _mm(recorder: Any, result: Tensor, a: Tensor, b: Tensor) -> list[int]:
    return list(recorder.product(a, b))


@rule("addmm")
def _addmm(
    recorder: Any, result: Tensor, bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> list[int]:
    if beta != 1 or alpha != 1:
        raise recorder.refuse("addmm", "with factors is not an operation of the engine")
    pairs = zip(recorder.product(a, b), recorder.lanes_of(bias, result.shape), strict=True)
    return [recorder.graph.apply("add", x, y) for x, y in pairs]


def _mean_of(recorder: Any, lanes: list[int]) -> int:
    """Returns the mean over several blocks of H lanes: the mean of their means."""
    g = recorder.graph
    means = [g.apply("mean", lane) for lane in lanes]
    return int(g.apply("mul", g.total(means), g.constant(1 / len(means))))


def _reduction(name: str, is_sum: bool) -> None:
    @rule(name)
    def apply(recorder: Any, result: Tensor, a: Tensor, dims: Any = None, keepdim: bool = False, **_: Any) -> list[int]:
        if dims is None or not keepdim or [d % a.dim() for d in dims] != [a.dim() - 1]:
            raise recorder.refuse(
                name, "over anything but the units, with keepdim=True, is not an operation on one row"
            )
        return [
            recorder.graph.apply(
                "mul", _mean_of(recorder, lanes), recorder.graph.constant(a.shape[-1] if is_sum else 1)
            )
            for lanes in _groups(recorder, a)
        ]


_reduction("mean", is_sum=False)
_reduction("sum", is_sum=True)


def _groups(recorder: Any, a: Tensor) -> list[list[int]]:
    """Groups blocks by the last dimension: (2, n*H) is one group of n blocks, (2, n, H) is n groups of one."""
    lanes = recorder.lanes_of(a, a.shape)
    size = a.shape[-1] // recorder.H
    return [lanes[i : i + size] for i in range(0, len(lanes), size)]


@rule("native_layer_norm")
def _layer_norm(
    recorder: Any, result: Tensor, a: Tensor, shape: Any, weight: Any, bias: Any, epsilon: float
) -> list[int]:
    if len(shape) != 1:
        raise recorder.refuse("layer_norm", f"over {len(shape)} dimensions: only over the last is")
    g, found = recorder.graph, []
    for lanes in _groups(recorder, a):
        mean = _mean_of(recorder, lanes)
        centred = [g.apply("sub", lane, mean) for lane in lanes]
        variance = _mean_of(recorder, [g.apply("mul", c, c) for c in centred])
        scale = g.apply("rsqrt", g.apply("add", variance, g.constant(epsilon)))
        found += [g.apply("mul", c, scale) for c in centred]
    for op, parameter in (("mul", weight), ("add", bias)):
        if parameter is not None:
            pairs = zip(found, recorder.lanes_of(parameter, result.shape), strict=True)
            found = [g.apply(op, x, y) for x, y in pairs]
    return found
