"""A probe on a batch of texts: one result for each, and one table of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from weft.errors import WeftError
from weft.probes.result import ProbeResult


@dataclass(frozen=True, eq=False)
class ProbeBatch(ProbeResult):
    """The results of one probe on several texts.

    Attributes:
        texts: The N texts.
        results: For each text its results: one, or one for each layer.
    """

    probe = "batch"

    texts: tuple[str, ...]
    results: tuple[tuple[ProbeResult, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        results = [[one.to_dict() for one in found] for found in self.results]
        return {"probe": self.probe, "texts": list(self.texts), "results": results}

    def records(self) -> Iterator[dict[str, Any]]:
        for number, found in enumerate(self.results):
            for one in found:
                for record in one.records():
                    yield {"text": number, **record}


def probe_texts(probe: Callable[[str], ProbeResult | tuple[ProbeResult, ...]], texts: Iterable[str]) -> ProbeBatch:
    """Runs a probe on each of several texts; the result of a text does not depend on the others.

    Args:
        probe: A probe of a text: `lambda text: probes.surprisal(model, text)`.
        texts: The texts.

    Raises:
        WeftError: The texts are one string, or a text is refused by the probe.
    """
    if isinstance(texts, str):
        raise WeftError("the texts are one string", expected="a list of texts", hint="[text]")
    read = tuple(texts)
    found = [probe(text) for text in read]
    return ProbeBatch(read, tuple(one if isinstance(one, tuple) else (one,) for one in found))
