"""Counters and histograms in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZE_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Labels = tuple[tuple[str, str], ...]


class Counter:
    """A number that only grows, for each combination of labels."""

    kind = "counter"

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help, self._lock = name, help, threading.Lock()
        self.values: dict[Labels, float] = defaultdict(float)

    def add(self, amount: float = 1.0, **labels: str) -> None:
        with self._lock:
            self.values[tuple(labels.items())] += amount

    def lines(self) -> Iterator[str]:
        for labels, value in sorted(self.values.items()):
            yield f"{self.name}{_written(labels)} {value:.0f}"


class Gauge:
    """A value that is read when it is asked for."""

    kind = "gauge"

    def __init__(self, name: str, help: str, read: Callable[[], dict[Labels, float]]) -> None:
        self.name, self.help, self.read = name, help, read

    def lines(self) -> Iterator[str]:
        for labels, value in sorted(self.read().items()):
            yield f"{self.name}{_written(labels)} {value:g}"


class Histogram:
    """Counts of values up to each of some bounds."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self.name, self.help, self.bounds, self._lock = name, help, tuple(bounds), threading.Lock()
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = defaultdict(float)

    def add(self, value: float, **labels: str) -> None:
        key = tuple(labels.items())
        with self._lock:
            counts = self.counts.setdefault(key, [0] * (len(self.bounds) + 1))
            counts[next((at for at, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))] += 1
            self.sums[key] += value

    def lines(self) -> Iterator[str]:
        for labels, counts in sorted(self.counts.items()):
            total = 0
            for bound, count in zip((*map("{:g}".format, self.bounds), "+Inf"), counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_written((*labels, ('le', bound)))} {total}"
            yield f"{self.name}_sum{_written(labels)} {self.sums[labels]:.6f}"
            yield f"{self.name}_count{_written(labels)} {total}"


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self.requests = Counter("weft_requests_total", "Requests by route, method and status.")
        self.latency = Histogram(
            "weft_request_seconds", "Seconds from a request to the end of its response.", LATENCY_BOUNDS
        )
        self.batches = Histogram("weft_batch_size", "Texts or sequences that were computed together.", SIZE_BOUNDS)
        self.tokens = Counter("weft_tokens_total", "Tokens that were generated.")
        self.cancelled = Counter("weft_cancelled_total", "Requests whose client went away.")
        self.gauges: list[Gauge] = []

    def text(self) -> str:
        """All values in the text format."""
        lines: list[str] = []
        counters: list[Counter | Histogram | Gauge] = [self.requests, self.latency, self.batches, self.tokens]
        for one in [*counters, self.cancelled, *self.gauges]:
            lines += [f"# HELP {one.name} {one.help}", f"# TYPE {one.name} {one.kind}", *one.lines()]
        return "\n".join(lines) + "\n"


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
