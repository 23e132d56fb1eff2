"""Labels of tokens to compare units with: functions from the tokens of a text to one number for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from weft.errors import WeftError
from weft.text.vocabulary import EOS

TokenLabel = Callable[[Sequence[str]], Sequence[float]]

OPENING, CLOSING, STRAIGHT = "“「『«", "”」』»", '"'


def line_position(tokens: Sequence[str]) -> list[float]:
    """The number of characters since the last line break, before each token."""
    found, position = [], 0
    for token in tokens:
        found.append(float(position))
        position = 0 if "\n" in token or token == EOS else position + len(token)
    return found


def inside_quotes(tokens: Sequence[str]) -> list[float]:
    """1 inside quotation marks (straight, curly, Chinese, French), 0 outside; the marks themselves are inside."""
    found, depth, straight = [], 0, False
    for token in tokens:
        before = depth > 0 or straight
        for character in token:
            straight ^= character == STRAIGHT
            depth = max(0, depth + (character in OPENING) - (character in CLOSING))
        found.append(float(before or depth > 0 or straight))
    return found


LABELS: dict[str, TokenLabel] = {"line-position": line_position, "quotes": inside_quotes}


def read_label(path: str | Path) -> TokenLabel:
    """A label from a file: one value for each token of the corpus, separated by white space.

    Values that are not numbers are names: the label is then 1 for the most frequent name and 0 for all others.

    Raises:
        WeftError: The file cannot be read. When the label is used: it has too few values.
    """
    try:
        words = Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise WeftError(f"{path} cannot be read: {error}", expected="a text file with one value per token") from error
    try:
        values = [float(word) for word in words]
    except ValueError:
        most = max(dict.fromkeys(words), key=words.count)
        values = [float(word == most) for word in words]
    rest: Iterator[float] = iter(values)

    def label(tokens: Sequence[str]) -> list[float]:
        found = [value for _, value in zip(tokens, rest, strict=False)]
        if len(found) < len(tokens):
            raise WeftError(f"{path} has {len(values):,} values", expected="one for each token of the corpus")
        return found

    return label
