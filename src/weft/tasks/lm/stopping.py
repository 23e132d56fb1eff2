"""Where a generated text stops: before the first of some texts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from weft.errors import WeftError
from weft.text.arguments import check_texts


class StopText:
    """Ends a growing text before the first stop text that is complete; holds back what may be the beginning of one.

    How the text is cut into pieces changes nothing. The time of a piece depends on its length, not on that of the stop
    texts (the algorithm of Knuth, Morris and Pratt).

    >>> text = StopText(["END"])
    >>> text.push("to the E"), text.push("nglish"), text.push(" EN"), text.push("D of"), text.ended
    ('to the ', 'English', ' ', '', True)
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self.stops, self.held, self.ended = tuple(stops), "", False
        self._borders = [_borders(stop) for stop in self.stops]
        self._matched = [0] * len(self.stops)  # of each stop text: how much of it the text ends with

    def push(self, piece: str) -> str:
        """Add text and return what is final."""
        if self.ended:
            return ""
        text = self.held + piece
        for end, character in enumerate(piece, len(self.held) + 1):
            complete = 0
            for number, (stop, borders) in enumerate(zip(self.stops, self._borders, strict=True)):
                matched = self._matched[number]
                while matched and stop[matched] != character:
                    matched = borders[matched]
                matched += stop[matched] == character
                self._matched[number] = matched
                if matched == len(stop):
                    complete = max(complete, matched)
            if complete:
                self.held, self.ended = "", True
                return text[: end - complete]
        final = len(text) - max(self._matched, default=0)
        self.held = text[final:]
        return text[:final]

    def rest(self) -> str:
        """Return what is still held back: the text has ended without a stop text."""
        piece, self.held = self.held, ""
        return piece


@lru_cache(maxsize=64)
def _borders(text: str) -> tuple[int, ...]:
    """Of the first n characters, for each n: how many of them both begin and end it, fewer than all.

    >>> _borders("aabaa")
    (0, 0, 1, 0, 1, 2)
    """
    borders, border = [0], 0
    for at, character in enumerate(text):
        while border and text[border] != character:
            border = borders[border]
        border += bool(at) and text[border] == character
        borders.append(border)
    return tuple(borders)


def check_stops(stop: str | Iterable[str]) -> tuple[str, ...]:
    """One stop text or several as a tuple; empty ones are refused."""
    stops = (stop,) if isinstance(stop, str) else tuple(check_texts(stop))
    if not all(stops):
        raise WeftError("a `stop` text is empty", expected="text before which to stop")
    return stops
