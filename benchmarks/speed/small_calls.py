"""Calls of small layers: single steps from a Python loop, short sequences of one row, and training of small batches.

weft's layers, those with torch's interface and those with weft's, frozen and not, and torch's take turns in one
process, on one thread. A turn is half a millisecond of calls, so that other processes seldom interrupt it; the time is
that of the fastest tenth of all turns. Nothing is written.

    python -m benchmarks.speed.small_calls [--turns 200] [--train]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import weft
from weft.cells import CELLS
from weft.nn import Recurrent

Work = Callable[[], Any]
TURN = 0.0005  # seconds
LAYERS = {"lstm": (nn.LSTM, weft.nn.LSTM), "gru": (nn.GRU, weft.nn.GRU)}
TRAINED = ((32, 64, 10), (64, 1, 1), (64, 8, 16))  # H, rows, steps


def in_turns(works: dict[str, Work], turns: int) -> dict[str, float]:
    """Seconds of a call of each, in the fastest tenth of its turns."""
    counts, taken = {}, {name: list[float]() for name in works}
    for name, work in works.items():
        for _ in range(20):
            work()
        start = time.perf_counter()
        work()
        counts[name] = max(1, int(TURN / (time.perf_counter() - start)))
    for _ in range(turns):
        for name, work in works.items():
            work()  # its code and data return to the caches
            start = time.perf_counter()
            for _ in range(counts[name]):
                work()
            taken[name].append((time.perf_counter() - start) / counts[name])
    return {name: sorted(times)[len(times) // 10] for name, times in taken.items()}


def contestants(kind: str, size: int, *, frozen: bool) -> dict[str, nn.Module]:
    """torch's layer and weft's of the same interface, which read (T, B, I), and `Recurrent`, which reads (B, T, I)."""
    theirs_type, ours_type = LAYERS[kind]
    theirs, cell = theirs_type(size, size), CELLS[kind](size, size)
    modules: dict[str, nn.Module] = {"torch": theirs}
    for freezes in (False, True) if frozen else (False,):
        ours, layer = ours_type(size, size), Recurrent(CELLS[kind](size, size) if freezes else cell)
        ours.load_state_dict(theirs.state_dict())
        layer.cell.load_state_dict({name.removesuffix("_l0"): value for name, value in theirs.state_dict().items()})
        if freezes:
            weft.freeze(ours)
            weft.freeze(layer)
        named = ", frozen" if freezes else ""
        modules |= {f"weft.nn.{kind.upper()}{named}": ours, f"Recurrent{named}": layer}
    return modules


def row(title: str, taken: dict[str, float]) -> str:
    others = [f"{seconds * 1e6:.1f} (**{taken['torch'] / seconds:.1f}**)" for seconds in list(taken.values())[1:]]
    return f"| {title} | {taken['torch'] * 1e6:.1f} | {' | '.join(others)} |"


def head(modules: dict[str, nn.Module]) -> str:
    names = [name.replace("weft.nn.GRU", "weft.nn.LSTM and GRU") for name in modules]
    return f"\n| microseconds (torch / weft) | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}"


def inference(turns: int) -> None:
    print(head(contestants("gru", 8, frozen=True)))
    for size in (8, 32, 64):
        for kind in LAYERS:
            modules = contestants(kind, size, frozen=True)
            for steps in (1, 10, 50):
                x = torch.randn(1, steps, size)
                works: dict[str, Work] = {}
                with torch.no_grad():
                    for name, module in modules.items():
                        given = x if isinstance(module, Recurrent) else x.transpose(0, 1).contiguous()
                        _, state = module(given)
                        works[name] = lambda module=module, given=given, state=state: module(given, state)
                    taken = in_turns(works, turns)
                print(row(f"{kind.upper()}, H {size}, one row, {steps} step{'s' * (steps > 1)}", taken), flush=True)


def training(turns: int) -> None:
    print(head(contestants("gru", 8, frozen=False)))
    for size, rows, steps in TRAINED:
        for kind in LAYERS:
            works: dict[str, Work] = {}
            for name, module in contestants(kind, size, frozen=False).items():
                x = torch.randn(*((rows, steps) if isinstance(module, Recurrent) else (steps, rows)), size)
                parameters = list(module.parameters())

                def train(module: nn.Module = module, x: torch.Tensor = x, parameters: Any = parameters) -> None:
                    for parameter in parameters:
                        parameter.grad = None
                    module(x)[0].sum().backward()

                works[name] = train
            print(
                row(f"{kind.upper()}, H {size}, {rows} rows, {steps} steps, train", in_turns(works, turns)), flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=200, help="of each layer")
    parser.add_argument("--train", action="store_true", help="training only")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gc.disable()
    if not given.train:
        inference(given.turns)
    training(given.turns)


if __name__ == "__main__":
    main()
