"""The efficiency of several workers: measured for 1 and 2 processes here, predicted for 2 to 64 machines.

    python -m benchmarks.speed.scale            measure, then predict (some minutes on an idle machine)

Measured: the time of a training step of a language model with one process of two threads, and with two processes of one
thread each, which share the work of the same batch. The exchange goes through the loopback interface, whose bandwidth
and latency are measured by themselves.

The cost model of a step with W machines, of which each computes 1/W of the batch:

    T(W) = fixed + compute / W + 2 (W - 1) / W * bytes / bandwidth + 2 (W - 1) * latency

`fixed` is what every machine does whole: the update of the weights. `compute` is the rest of a step of one machine;
`bytes` is the gradient, 4 for each weight. The two exchanges are an all-to-all and an all-gather; in each a machine
sends (W - 1)/W of the gradient. Weak scaling keeps the batch of each machine instead: compute is not divided. The model
is checked by the measured steps of two processes, and by a simulation that sends every message over links that each
carry one message at a time, between machines whose steps vary as much as the measured ones.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

STEPS, WARM = 9, 2
EXCHANGES = (1 << 14, 1 << 18, 1 << 20, 1 << 22)  # values of the gradients with which the loopback is measured
SIMULATED = 20  # steps of a simulation
PAYS = 0.5  # the efficiency below which more machines do not pay
COLUMNS = (
    *("model", "weights", "1 x 2 threads", "1 x 1 thread", "2 x 1 thread"),
    *("exchange", "efficiency", "cost model", "simulation", "spread"),
)
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
    spread: float = 0.0  # standard deviation of a step, relative to the step


def step_seconds(cost: Cost, machines: int, bandwidth: float, latency: float, *, weak: bool) -> float:
    """The cost model."""
    exchange = 2 * (machines - 1) / machines * cost.size / bandwidth + 2 * (machines - 1) * latency
    return cost.fixed + cost.compute / (1 if weak else machines) + (exchange if machines > 1 else 0.0)


def simulate(cost: Cost, machines: int, bandwidth: float, latency: float, *, weak: bool) -> float:
    """The mean of steps message by message: in both exchanges each machine sends a piece to each other one, in turn.

    A machine sends one message at a time and receives one message at a time. The slowest machine holds up the others.
    """
    generator, total = random.Random(1), 0.0
    for _ in range(SIMULATED):
        ready = [
            cost.compute / (1 if weak else machines) * max(0.5, generator.gauss(1, cost.spread))
            for _ in range(machines)
        ]
        for _ in range(2 if machines > 1 else 0):  # all-to-all, all-gather
            sending, receiving = list(ready), list(ready)
            for distance in range(1, machines):
                for sender in range(machines):
                    receiver = (sender + distance) % machines
                    begin = max(sending[sender], receiving[receiver])
                    sending[sender] = receiving[receiver] = begin + latency + cost.size / machines / bandwidth
            ready = [max(one, other) for one, other in zip(sending, receiving, strict=True)]
        total += max(ready) + cost.fixed
    return total / SIMULATED


def exchange_seconds() -> list[float]:
    """The shortest time of the exchange of a step between these processes, for each size of `EXCHANGES`."""
    import torch

    from weft.training.distributed import current_workers
    from weft.training.slices import sum_slices

    workers, found = current_workers(), []
    for size in EXCHANGES:
        gradient, seconds = torch.ones(size), []
        for _ in range(STEPS + WARM):
            workers.synchronize()
            began = time.perf_counter()
            sum_slices(workers, workers.size, iter([gradient.clone()]), [0.0], like=gradient)
            seconds.append(time.perf_counter() - began)
        found.append(min(seconds[WARM:]))
    return found


def fit_network(seconds: list[float]) -> tuple[float, float]:
    """Bandwidth and latency of the cost model for two processes that fit the measured exchanges best."""
    import numpy as np

    # 2 (W - 1) / W * bytes / bandwidth + 2 (W - 1) * latency, for W = 2; relative errors are minimized.
    sizes = np.array([4.0 * size for size in EXCHANGES])
    columns = np.stack([sizes, np.full(len(sizes), 2.0)], 1) / np.array(seconds)[:, None]
    (inverse, latency), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)
    return 1 / max(inverse, 1e-12), max(0.0, float(latency))


def worker(size: Size, threads: int, slices: int) -> dict[str, float]:
    """Trains some steps in this process, one of those that the environment names."""
    import numpy as np
    import torch

    from weft.config import load_config
    from weft.data.windows import SequentialWindows
    from weft.tasks.lm.config import LmConfig
    from weft.tasks.lm.model import LanguageModel
    from weft.tasks.lm.recipe import choose_settings
    from weft.training.distributed import Workers
    from weft.training.gradient_descent import GradientDescent
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
    tokens = np.random.default_rng(0).integers(4, size.vocabulary, size.rows * 35 * (STEPS + WARM + 2))
    config, _ = choose_settings(load_config(LmConfig, None, sets), len(tokens), size.vocabulary)
    model = LanguageModel(size.vocabulary, config.model)
    phase = GradientDescent(
        model,
        SequentialWindows(tokens, size.rows, 35, 1),
        lambda window, state: model.loss(window, state),
        config.train,
    )
    trainer = Trainer([lambda: phase])
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
    phase._update = timed("update", phase._update)  # type: ignore[method-assign]
    seconds, parts = [], []
    began = time.perf_counter()
    for _, _step in zip(range(STEPS + WARM), trainer.run(), strict=False):
        now = time.perf_counter()
        seconds.append(now - began)
        parts.append(dict(spent))
        spent.update(exchange=0.0, update=0.0)
        began = now
    weights = sum(parameter.numel() for parameter in model.parameters())
    early = model._output_weight().numel() + model.bias.numel()  # complete before the recurrent layers' backward pass
    found = {name: min(part[name] for part in parts[WARM:]) for name in spent}
    low, middle, high = statistics.quantiles(seconds[WARM:], n=4)
    spread = (high - low) / 1.35 / middle  # of a normal distribution with these quartiles
    step = min(seconds[WARM:])  # what else runs on the machine only makes steps slower
    return {"step": step, "spread": spread, "weights": weights, "early": early / weights, **found}


def start_workers(workers: int, threads: int, *arguments: str) -> Any:
    """What rank 0 of `workers` processes of `threads` threads prints, read as JSON."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(workers), "LOCAL_WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": str(threads)}
    call = [sys.executable, "-m", "benchmarks.speed.scale", "worker", *arguments]
    processes = [
        subprocess.Popen(call, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(workers)
    ]
    outputs = [process.communicate()[0] for process in processes]
    return json.loads(outputs[0])


def measure(size: Size, workers: int, threads: int) -> dict[str, float]:
    """The fastest step of `workers` processes of `threads` threads."""
    found: dict[str, float] = start_workers(workers, threads, size.name, str(threads), str(workers))
    return found


def print_measured() -> dict[str, Cost]:
    """Measures and prints the steps of 1 and 2 processes. Returns what a step of each model costs here."""
    bandwidth, latency = fit_network(start_workers(2, 1, "exchange"))
    print(f"Loopback between two processes: {bandwidth / 1e9:.2f} GB/s, {latency * 1e6:.0f} us per message.\n")
    print("One process of 2 threads, two processes of 1 thread: ms for a step of the same batch of 64 x 35 tokens.\n")
    print(f"| {' | '.join(COLUMNS)} |")
    print("| --- " * len(COLUMNS) + "|")
    costs, early = {}, []
    for size in SIZES:
        both, one, two = measure(size, 1, 2), measure(size, 1, 1), measure(size, 2, 1)
        volume = int(4 * both["weights"])
        costs[size.name] = Cost(both["update"], both["step"] - both["update"], volume, both["spread"])
        own = Cost(one["update"], one["step"] - one["update"], volume, one["spread"])
        expected = [call(own, 2, bandwidth, latency, weak=False) for call in (step_seconds, simulate)]
        values = [both["step"], one["step"], two["step"], two["exchange"]]
        cells = [f"{1e3 * value:.1f}" for value in values] + [f"{both['step'] / two['step']:.2f}"]
        cells += [f"{1e3 * value:.1f}" for value in expected] + [f"{one['spread']:.1%}"]
        print(f"| {size.name} | {int(both['weights']):,} | {' | '.join(cells)} |", flush=True)
        saved = min(both["early"] * two["exchange"], two["step"]) / two["step"]
        early.append(f"{size.name} {both['early']:.0%} of the weights, {saved:.1%} of the step")
    print(f"\nWhat an exchange during the backward pass could save at most: {'; '.join(early)}.")
    return costs


def efficiency(cost: Cost, machines: int, network: str, *, weak: bool, call: Any = step_seconds) -> float:
    alone = cost.fixed + cost.compute
    return float(alone / (call(cost, machines, *NETWORKS[network], weak=weak) * (1 if weak else machines)))


def print_predicted(costs: dict[str, Cost], *, weak: bool) -> None:
    kind = "the batch of each machine stays (weak scaling)" if weak else "the batch stays (strong scaling)"
    print(f"\nPredicted efficiency, machines like this one, {kind}; in brackets by simulation.\n")
    print("| model | network | " + " | ".join(map(str, MACHINES)) + " | pays up to |")
    print("| --- " * (3 + len(MACHINES)) + "|")
    for name, cost in costs.items():
        for network in NETWORKS:
            cells = [
                " (".join(
                    f"{efficiency(cost, one, network, weak=weak, call=call):.0%}" for call in (step_seconds, simulate)
                )
                for one in MACHINES
            ]
            paying = [one for one in range(2, 1001) if efficiency(cost, one, network, weak=weak) >= PAYS]
            last = "1" if not paying else "1000 or more" if max(paying) == 1000 else str(max(paying))
            print(f"| {name} | {network} | " + " | ".join(f"{cell})" for cell in cells) + f" | {last} |")


def print_smaller(costs: dict[str, Cost]) -> None:
    """What sending less would give: the gradient in 16 bits, one value in 100, or the weights every 8 steps."""
    print("\nPredicted efficiency of 8 machines, the batch of each stays, if less were sent.\n")
    print("| model | network | all of it | 16 bits | one value in 100 | every 8th step |")
    print("| --- " * 6 + "|")
    for name, cost in costs.items():
        for network in NETWORKS:
            halved, sparse = (
                cost._replace(size=cost.size // 2),
                cost._replace(size=2 * cost.size // 100),
            )  # with indices
            cells = [efficiency(one, 8, network, weak=True) for one in (cost, halved, sparse)]
            rare = (7 * (cost.fixed + cost.compute) + step_seconds(cost, 8, *NETWORKS[network], weak=True)) / 8
            cells.append((cost.fixed + cost.compute) / rare)
            print(f"| {name} | {network} | " + " | ".join(f"{cell:.0%}" for cell in cells) + " |")


def main() -> None:
    costs = print_measured()
    for weak in (False, True):
        print_predicted(costs, weak=weak)
    print_smaller(costs)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        from weft.training.distributed import current_workers

        if sys.argv[2] == "exchange":
            result: Any = exchange_seconds()
        else:
            chosen = next(size for size in SIZES if size.name == sys.argv[2])
            result = worker(chosen, int(sys.argv[3]), max(1, int(sys.argv[4])))
        if os.environ["RANK"] == "0":
            print(json.dumps(result))
        current_workers().leave()
    else:
        main()
