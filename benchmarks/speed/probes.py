"""Seconds of every probe on one core: a run with 1 million weights, a text of 1,000 tokens.

python -m benchmarks.speed.probes
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import torch

import weft
from weft import probes
from weft.config import load_config
from weft.tasks import get_task

SETTINGS = [
    "model.cell=lstm",
    "model.hidden_size=448",
    "model.num_layers=1",
    "model.embedding_dim=64",
    "text.limit=60000",
]


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        task = get_task("lm")
        task.start("grammar", Path(folder) / "run", load_config(task.config_class, None, SETTINGS))
        model = weft.load(Path(folder) / "run")
        text = ("the old king sees a dog that the girl likes.\n" * 30)[:1000]
        weights = sum(parameter.numel() for parameter in model.model.parameters())
        print(f"{weights:,} weights, {len(model.text_field.encode(text)):,} tokens, one thread")
        probes.surprisal(model, text[:20])
        for name, call in (
            ("surprisal", lambda: probes.surprisal(model, text)),
            ("activations", lambda: probes.activations(model, text)),
            ("gradient flow, one prediction", lambda: probes.gradient_flow(model, text, predictions=[-1])),
            ("gradient flow, all pairs", lambda: probes.gradient_flow(model, text)),
            ("step Jacobians", lambda: probes.step_jacobians(model, text)),
            ("connectivity", lambda: probes.connectivity(model, text)),
            ("connectivity, integrated", lambda: probes.connectivity(model, text, method="integrated")),
            ("evidence", lambda: probes.evidence(model, text)),
            ("beam search", lambda: probes.beam(model, text)),
            ("units, correlation", lambda: probes.correlate_units(model, [text], "line-position")),
        ):
            began = time.perf_counter()
            call()
            print(f"{name:32} {time.perf_counter() - began:7.2f} s", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
