"""The texts that a command is given: as they stand on the command line, or one a line in a file or standard input."""

from __future__ import annotations


def given_texts(given: list[str]) -> list[str]:
    """The texts of the command line; `-` stands for those of standard input."""
    found: list[str] = []
    for one in given:
        found += lines_of("-") if one == "-" else [one]
    return found


def lines_of(source: str) -> list[str]:
    """The lines of a file, or of standard input for `-`; mistakes in it are named by line."""
    from weft.text.corpus import Corpus
    from weft.text.tables import numbered_lines

    return [line for document in Corpus.open(source).documents() for _, line in numbered_lines(document)]
