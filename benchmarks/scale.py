"""The efficiency of several workers: measured for 1 and 2 processes here, predicted for 2 to 64 machines.

    python -m benchmarks.scale            measure, then predict (some minutes on an idle machine)

Measured: the time of a training step of a language model with one process of two threads, and with two processes of one
thread each, which share the work of the same batch. The exchange goes through the loopback interface.

The cost model of a step with W machines, of which each computes 1/W of the batch:

    T(W) = fixed + compute / W + 2 (W - 1) / W * bytes / bandwidth + 2 (W - 1) * latency

`fixed` is what every machine does whole: the update of the weights. `compute` is the rest of a step of one machine;
`bytes` is the gradient, 4 for each weight. The two exchanges are an all-to-all and an all-gather; in each a machine
sends (W - 1)/W of the gradient. Weak scaling keeps the batch of each machine instead: compute is not divided. The model
is checked by a simulation, which sends every message over links that each carry one message at a time, and by the
measured exchange.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

STEPS, WARM = 8, 3
MACHINES = (2, 4, 8, 16, 32, 64)
NETWORKS = {"1 Gbit/s": (0.117e9, 100e-6), "10 Gbit/s": (1.17e9, 50e-6)}  # bytes a second of payload, seconds


class Size(NamedTuple):
    name: str
    vocabulary: int
    hidden: int
    embedding: int
    layers: int
    rows: int


SIZES = (
    Size("small", 100, 256, 128, 1, 64),
    Size("medium", 10_000, 512, 256, 1, 64),
    Size("large", 10_000, 1024, 512, 2, 64),
)


class Cost(NamedTuple):
    """What a step costs on one machine, in seconds, and the gradient in bytes."""

    fixed: float
    compute: float
    size: int


def step_seconds(cost: Cost, machines: int, bandwidth: float, latency: float, *, weak: bool) -> float:
    """The cost model."""
    exchange = 2 * (machines - 1) / machines * cost.size / bandwidth + 2 * (machines - 1) * latency
    return cost.fixed + cost.compute / (1 if weak else machines) + (exchange if machines > 1 else 0.0)


def simulate(cost: Cost, machines: int, bandwidth: float, latency: float, *, weak: bool) -> float:
    """A step message by message: in both exchanges each machine sends a piece to each other one, in turn.

    A machine sends one message at a time and receives one message at a time.
    """
    ready = [cost.compute / (1 if weak else machines)] * machines
    for _ in range(2):  # all-to-all, all-gather
        sending, receiving = list(ready), list(ready)
        for distance in range(1, machines):
            for sender in range(machines):
                receiver = (sender + distance) % machines
                begin = max(sending[sender], receiving[receiver])
                sending[sender] = receiving[receiver] = begin + latency + cost.size / machines / bandwidth
        ready = [max(one, other) for one, other in zip(sending, receiving, strict=True)]
    return max(ready) + cost.fixed


def worker(size: Size, threads: int, slices: int) -> dict[str, float]:
    """Trains some steps in this process, one of those that the environment names."""
    import numpy as np
    import torch

    from weft.config import load_config
    from weft.data.windows import SequentialWindows
    from weft.tasks.lm.config import LmConfig
    from weft.tasks.lm.model import LanguageModel
    from weft.training.distributed import Workers
    from weft.training.trainer import Trainer

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    sets = {
        "model.hidden_size": size.hidden,
        "model.embedding_dim": size.embedding,
        "model.num_layers": size.layers,
        "train.epochs": 1000,
        "train.slices": slices,
    }
    config = load_config(LmConfig, None, sets)
    tokens = np.random.default_rng(0).integers(4, size.vocabulary, size.rows * 35 * (STEPS + WARM + 2))
    model = LanguageModel(size.vocabulary, config.model)
    trainer = Trainer(
        model,
        SequentialWindows(tokens, size.rows, 35, 1),
        lambda window, state: model.loss(window, state),
        config.train,
    )
    spent = {"exchange": 0.0, "update": 0.0}

    def timed(name: str, function: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                spent[name] += time.perf_counter() - began

        return run

    if isinstance(trainer.workers, Workers) and not trainer.workers.alone:
        trainer.workers.exchange = timed("exchange", trainer.workers.exchange)  # type: ignore[method-assign]
        trainer.workers.collect = timed("exchange", trainer.workers.collect)  # type: ignore[method-assign]
    trainer._update = timed("update", trainer._update)  # type: ignore[method-assign]
    seconds, parts = [], []
    began = time.perf_counter()
    for _, _step in zip(range(STEPS + WARM), trainer.run(), strict=False):
        now = time.perf_counter()
        seconds.append(now - began)
        parts.append(dict(spent))
        spent.update(exchange=0.0, update=0.0)
        began = now
    weights = sum(parameter.numel() for parameter in model.parameters())
    found = {name: statistics.median(part[name] for part in parts[WARM:]) for name in spent}
    return {"step": statistics.median(seconds[WARM:]), "weights": weights, **found}


def measure(size: Size, workers: int, threads: int) -> dict[str, float]:
    """The median step of `workers` processes of `threads` threads."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(workers), "LOCAL_WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": str(threads)}
    call = [sys.executable, "-m", "benchmarks.scale", "worker", size.name, str(threads), str(workers)]
    processes = [
        subprocess.Popen(call, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(workers)
    ]
    outputs = [process.communicate()[0] for process in processes]
    result: dict[str, float] = json.loads(outputs[0])
    return result


def main() -> None:
    print("Measured here: one process of 2 threads, two processes of 1 thread, the same batch of 64 x 35 tokens.\n")
    head = "model      weights    1 x 2 threads   1 x 1 thread   2 x 1 thread   exchange   ratio to 1 x 2 threads"
    print(head)
    costs = {}
    for size in SIZES:
        both, one, two = measure(size, 1, 2), measure(size, 1, 1), measure(size, 2, 1)
        costs[size.name] = Cost(both["update"], both["step"] - both["update"], int(4 * both["weights"]))
        cells = [f"{value['step'] * 1e3:9.1f} ms" for value in (both, one, two)]
        print(
            f"{size.name:8} {int(both['weights']):10,}   {cells[0]}   {cells[1]}   {cells[2]}   "
            f"{two['exchange'] * 1e3:6.1f} ms   {both['step'] / two['step']:.2f}",
            flush=True,
        )
        bandwidth = costs[size.name].size / max(1e-9, two["exchange"])
        own = Cost(two["update"], one["step"] - one["update"], costs[size.name].size)
        predicted, simulated = (function(own, 2, bandwidth, 0.0, weak=False) for function in (step_seconds, simulate))
        print(
            f"{'':8} 2 x 1 thread predicted from 1 x 1 thread: {predicted * 1e3:.1f} ms, simulated "
            f"{simulated * 1e3:.1f} ms, measured {two['step'] * 1e3:.1f} ms"
        )
    for weak in (False, True):
        kind = "the batch of each machine stays (weak scaling)" if weak else "the batch stays (strong scaling)"
        print(f"\nPredicted efficiency, machines like this one, {kind}; in brackets by simulation.\n")
        print("model    network    " + "".join(f"{machines:>14}" for machines in MACHINES))
        for size in SIZES:
            for network, (bandwidth, latency) in NETWORKS.items():
                cells = []
                for machines in MACHINES:
                    cost = costs[size.name]
                    alone = cost.fixed + cost.compute
                    efficiency = [
                        alone / (function(cost, machines, bandwidth, latency, weak=weak) * (1 if weak else machines))
                        for function in (step_seconds, simulate)
                    ]
                    cells.append(f"{efficiency[0]:6.0%} ({efficiency[1]:.0%})".rjust(14))
                print(f"{size.name:8} {network:10} " + "".join(cells))


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        chosen = next(size for size in SIZES if size.name == sys.argv[2])
        found = worker(chosen, int(sys.argv[3]), max(1, int(sys.argv[4])))
        if os.environ["RANK"] == "0":
            print(json.dumps(found))
        from weft.training.distributed import current_workers

        current_workers().leave()
    else:
        main()
