"""What a server counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZE_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each combination of labels, which nobody asks for


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self._registry = everything = CollectorRegistry()
        self.requests = Counter("weft_requests", "Requests by route, method and status.", ["route", "method", "status"],
                                registry=everything)  # fmt: skip
        self.latency = Histogram("weft_request_seconds", "Seconds from a request to the end of its response.",
                                 ["route", "method"], buckets=LATENCY_BOUNDS, registry=everything)  # fmt: skip
        self.batches = Histogram("weft_batch_size", "Texts or sequences that were computed together.", ["model"],
                                 buckets=SIZE_BOUNDS, registry=everything)  # fmt: skip
        self.tokens = Counter("weft_tokens", "Tokens that were generated.", ["model"], registry=everything)
        self.cancelled = Counter("weft_cancelled", "Requests whose client went away; without a model, before one was "
                                 "asked.", ["model"], registry=everything)  # fmt: skip
        self.queue = Gauge("weft_queue_length", "Requests that wait.", ["model"], registry=everything)
        self.sequences = Gauge("weft_sequences", "Sequences that are being generated.", ["model"], registry=everything)
        self.sessions = Gauge("weft_sessions", "Sessions that are kept.", registry=everything)

    def text(self) -> bytes:
        """All values in the text format."""
        return generate_latest(self._registry)
