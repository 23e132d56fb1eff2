"""Two served models on their held-out examples: the paired tests of `weft compare`."""

from __future__ import annotations

from collections import OrderedDict

from weft.server.metrics import Metrics
from weft.server.models import LoadedModel
from weft.server.worker import Worker
from weft.tasks.runs import HeldOutComparison, compare_held_out

KEPT_COMPARISONS = 64
QUEUED_COMPARISONS = 8


class Comparisons:
    """Compares models in a thread of its own, on copies of their weights, so that they go on answering meanwhile."""

    def __init__(self) -> None:
        # No model: its batches are not counted.
        self._worker = Worker("compare", None, Metrics(), 1, QUEUED_COMPARISONS)
        self._kept: OrderedDict[tuple[str, str], HeldOutComparison] = OrderedDict()

    async def compare(self, first: LoadedModel, second: LoadedModel) -> HeldOutComparison:
        """The paired tests of two models."""
        key = f"{first.name} {first.hash}", f"{second.name} {second.hash}"
        if key not in self._kept:
            self._kept[key] = await self._worker.call(lambda: compare_held_out(first.run, second.run))
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_COMPARISONS:
            self._kept.popitem(last=False)
        return self._kept[key]

    def stop(self) -> None:
        self._worker.stop()
