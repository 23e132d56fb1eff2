"""Where a generated text stops: before the first of some texts."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import WeftError
from weft.text.arguments import check_texts


class StopText:
    """Ends a growing text before the first of some stop texts; holds back what may be the beginning of one.

    >>> text = StopText(["END"])
    >>> text.push("to the E"), text.push("nglish"), text.push(" EN"), text.push("D of"), text.ended
    ('to the ', 'English', ' ', '', True)
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self.stops, self.held, self.ended = tuple(stops), "", False

    def push(self, piece: str) -> str:
        """Add text and return what is final."""
        if self.ended:
            return ""
        text, self.held = self.held + piece, ""
        places = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if places:
            self.ended = True
            return text[: min(places)]
        most = max(
            (size for stop in self.stops for size in range(1, len(stop)) if text.endswith(stop[:size])), default=0
        )
        self.held = text[len(text) - most :]
        return text[: len(text) - most]

    def rest(self) -> str:
        """Return what is still held back: the text has ended without a stop text."""
        piece, self.held = self.held, ""
        return piece


def check_stops(stop: str | Iterable[str]) -> tuple[str, ...]:
    """One stop text or several as a tuple; empty ones are refused."""
    stops = (stop,) if isinstance(stop, str) else tuple(check_texts(stop))
    if not all(stops):
        raise WeftError("a `stop` text is empty", expected="text before which to stop")
    return stops
