"""An interpreter of equations in torch: the reference for the engine, and the fallback on other devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from weft.compiler.graph import Equations

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "neg": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "log": torch.log,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "stop": torch.Tensor.detach,
    "lt": lambda a, b: (a < b).to(a.dtype),
    "le": lambda a, b: (a <= b).to(a.dtype),
    "eq": lambda a, b: (a == b).to(a.dtype),
    "select": lambda c, a, b: torch.where(c != 0, a, b),
    "mean": lambda a: a.mean(-1, keepdim=True).expand_as(a),
}


def evaluate(
    equations: Equations,
    parameter: Callable[[str], Tensor],
    x_proj: Tensor,
    state: Sequence[Tensor],
    row_mask: Tensor | None = None,
    step_mask: Tensor | None = None,
) -> list[Tensor]:
    """Computes one step.

    Args:
        equations: the traced equations of a cell.
        parameter: maps a parameter's name to its value.
        x_proj: (B, G*H), the input projection.
        state: the state before the step, (B, H) each.
        row_mask: (B, H), the recurrent dropout mask, if the equations use one.
        step_mask: (B, states * H), the zoneout mask of this step, if the equations use one.

    Returns:
        The state after the step.
    """
    H = equations.hidden_size
    values: list[Tensor] = []
    products: dict[int, Tensor] = {}

    def leaf(op: str, key: Sequence[float]) -> Tensor:
        if op == "constant":
            return x_proj.new_full((x_proj.shape[0], H), key[0])
        n = int(key[0]) if key else 0
        if op == "x":
            return x_proj[:, n * H : (n + 1) * H]
        if op == "state":
            return state[n]
        if op == "vector":
            name, start, single = equations.vectors[n]
            return parameter(name).reshape(-1)[start : start + (1 if single else H)].expand(x_proj.shape[0], H)
        if op == "row_mask":
            assert row_mask is not None
            return row_mask
        if op == "step_mask":
            assert step_mask is not None
            return step_mask[:, n * H : (n + 1) * H]
        assert op == "product", op
        if n not in products:
            product = equations.products[n]
            rows = [
                parameter(name)[:, start : start + H].t() if turned else parameter(name)[start : start + H]
                for name, start, turned in product.weights
            ]
            products[n] = values[product.operand] @ torch.cat(rows).t()
        return products[n][:, int(key[1]) * H : (int(key[1]) + 1) * H]

    for node in equations.graph.nodes:
        args = [values[a] for a in node.args]
        values.append(_FUNCTIONS[node.op](*args) if args else leaf(node.op, node.key))
    return [values[output] for output in equations.outputs]
