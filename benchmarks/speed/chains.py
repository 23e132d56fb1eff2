"""Speed of chain models: HMM against hmmlearn, CRF against pytorch-crf. Writes benchmarks/records/chains.json.

    python -m benchmarks.speed.chains [--rounds 15] [--threads N] [--write]

All run alternately in one process, and the median time of the rounds counts, so the machine should be idle otherwise.
hmmlearn is single-threaded; ours and pytorch-crf use torch's threads (`--threads 1` for one). The results are compared
before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
import torchcrf
from hmmlearn.hmm import CategoricalHMM

from tools.pages import write_pages
from tools.records import machine, stamp, write
from weft.nn.crf import CRF
from weft.tasks.hmm.baum_welch import improve, random_hmm
from weft.tasks.hmm.model import HMM
from weft.tasks.kneser_ney import modified_kneser_ney

SEQUENCES, LENGTH = 1000, 100

Timings = dict[str, dict[str, float]]  # operation -> library -> seconds


def measure(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median time of each function in seconds; the functions alternate."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in times.items()}


def theirs(model: HMM, implementation: str) -> CategoricalHMM:
    peer = CategoricalHMM(model.states, n_features=model.size, implementation=implementation, n_iter=1, init_params="")
    peer.startprob_, peer.transmat_, peer.emissionprob_ = (part.numpy() for part in model.tensors().values())
    return peer


def hmm(states: int, size: int, rounds: int) -> Timings:
    true, model = random_hmm(states, size, seed=1), random_hmm(states, size, seed=2)
    sequences = [true.sample(LENGTH, seed=seed)[1].numpy() for seed in range(SEQUENCES)]
    X, lengths = np.concatenate(sequences)[:, None], [LENGTH] * SEQUENCES
    peers = {"hmmlearn scaling": "scaling", "hmmlearn log": "log"}

    def posterior() -> Any:
        return model.posterior(sequences)

    def iteration() -> HMM:
        return improve(model, sequences)[0]

    def their_iteration(implementation: str) -> CategoricalHMM:
        return theirs(model, implementation).fit(X, lengths)

    for implementation in peers.values():
        peer = theirs(model, implementation)
        np.testing.assert_allclose(torch.cat(posterior()), peer.predict_proba(X, lengths), atol=1e-9)
        log_prob, path = peer.decode(X, lengths)
        ours = model.viterbi(sequences)
        np.testing.assert_allclose(sum(one.log_prob for one in ours), log_prob, rtol=1e-9)
        assert (torch.cat([one.states for one in ours]).numpy() == path).mean() > 0.9999  # except for ties
        fitted = their_iteration(implementation)
        found = iteration()
        np.testing.assert_allclose(found.transition, fitted.transmat_, atol=1e-9)
        np.testing.assert_allclose(found.emission, fitted.emissionprob_, atol=1e-9)
    make = {name: (lambda kind=kind: theirs(model, kind)) for name, kind in peers.items()}
    return {
        f"posterior, K {states}, V {size}": measure(
            {"weft": posterior}
            | {name: (lambda peer=peer: peer().predict_proba(X, lengths)) for name, peer in make.items()},
            rounds,
        ),
        f"one Baum-Welch iteration, K {states}, V {size}": measure(
            {"weft": iteration} | {name: (lambda kind=kind: their_iteration(kind)) for name, kind in peers.items()},
            rounds,
        ),
        f"Viterbi, K {states}, V {size}": measure(
            {"weft": lambda: model.viterbi(sequences)}
            | {name: (lambda peer=peer: peer().decode(X, lengths)) for name, peer in make.items()},
            rounds,
        ),
    }


def crf(rounds: int) -> Timings:
    B, T, K = 32, 50, 20
    torch.manual_seed(0)
    ours, peer = CRF(K), torchcrf.CRF(K, batch_first=True)
    with torch.no_grad():
        peer.start_transitions.copy_(ours.start)
        peer.transitions.copy_(ours.transition)
        peer.end_transitions.copy_(ours.end)
    scores = torch.randn(B, T, K, requires_grad=True)
    tags, lengths = torch.randint(K, (B, T)), torch.randint(10, T + 1, (B,))
    lengths[0] = T
    mask = torch.arange(T) < lengths[:, None]

    def our_step() -> Any:
        loss = -ours.log_likelihood(scores, tags, lengths).sum()
        return loss, *torch.autograd.grad(loss, [scores, *ours.parameters()])

    def their_step() -> Any:
        loss = -peer(scores, tags, mask, reduction="sum")
        parameters = [peer.start_transitions, peer.transitions, peer.end_transitions]
        return loss, *torch.autograd.grad(loss, [scores, *parameters])

    for a, b in zip(our_step(), their_step(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)
    assert [path.tags for path in ours.decode(scores, lengths)] == peer.decode(scores, mask)
    return {
        "CRF forward + backward, 32 x 50, 20 tags": measure({"weft": our_step, "pytorch-crf": their_step}, rounds),
        "CRF Viterbi, 32 x 50, 20 tags": measure(
            {"weft": lambda: ours.decode(scores, lengths), "pytorch-crf": lambda: peer.decode(scores, mask)}, rounds
        ),
    }


def ngram() -> tuple[float, float, int]:
    """Time in seconds and memory of the process in gigabytes for 2 million tokens at order 5; number of n-grams."""
    tokens = np.minimum(np.random.default_rng(0).zipf(1.2, 2_000_000) - 1, 19_999).astype(np.uint16)
    begin = time.perf_counter()
    model = modified_kneser_ney(tokens, 20_000, 5)
    seconds = time.perf_counter() - begin
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, len(model)


def record(table: Timings, counted: tuple[float, float, int], rounds: int) -> dict[str, Any]:
    """What benchmarks/records/chains.json keeps."""
    operations = [
        {
            "work": work,
            "milliseconds": {name: round(seconds * 1e3, 3) for name, seconds in times.items()},
            "ratios": {name: round(seconds / times["weft"], 2) for name, seconds in times.items()},
        }
        for work, times in table.items()
    ]
    seconds, gigabytes, count = counted
    versions = machine()
    for name in ("numpy", "hmmlearn", "pytorch-crf"):
        versions["versions"] += f", {name} {version(name)}"
    return {
        "command": "python -m benchmarks.speed.chains --write",
        **stamp(f"benchmarks/speed/chains.py::{name}" for name in ("hmm", "crf", "ngram")),
        **versions,
        "rounds": rounds,
        "operations": operations,
        "ngrams": {"seconds": round(seconds, 2), "count": count, "gigabytes": round(gigabytes, 3)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, help="number of torch threads; default: torch's own")
    parser.add_argument("--write", action="store_true", help="write the record and its page")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    counted = ngram()  # first, so that peak memory is that of the n-gram model
    table = hmm(8, 50, arguments.rounds) | hmm(32, 1000, arguments.rounds) | crf(arguments.rounds)
    found = record(table, counted, arguments.rounds)
    print(json.dumps(found, indent=1))
    if arguments.write:
        write("chains", found)
        write_pages()


if __name__ == "__main__":
    main()
