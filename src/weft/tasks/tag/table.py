"""Tagging a table in a file: one word per row, the tags in one of its columns or in a new one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.config import from_dict
from weft.errors import WeftError
from weft.tasks.tag.config import TagConfig
from weft.text.conll import CONLLU, EMPTY_FIELD, ConllFormat, ConllTable, read_conll, table_sentences
from weft.text.corpus import Corpus, open_documents

if TYPE_CHECKING:
    from weft.tasks.tag.predictor import TaggedText, TagPredictor


class TableToTag(NamedTuple):
    """A table and the words of its sentences."""

    table: ConllTable
    words: list[tuple[str, ...]]


def read_tables(model: TagPredictor, source: str | Path | Corpus) -> Iterator[TableToTag]:
    """The tables of a source, one for each file."""
    if model.task == "segments":
        raise WeftError(
            f"{model.run.path} segments text, and is given a table of words", expected="text without spaces"
        )
    config = from_dict(TagConfig, model.run.config).data
    documents = source.documents() if isinstance(source, Corpus) else open_documents(source)
    for document in documents:
        if document.is_blank():
            continue
        table = read_conll(document)
        yield TableToTag(
            table, [one.words for one in table_sentences(table, words=str(config.word_column), tagged=False)]
        )


def write_tables(
    model: TagPredictor, tables: Iterable[TableToTag], found: Sequence[TaggedText], column: str, confidence: bool
) -> Iterator[str]:
    """The lines of tables, with the tags of all their sentences; see `TagPredictor.tag_table`."""
    trained = str(from_dict(TagConfig, model.run.config).data.tag_column)
    last, rest = "\n", iter(found)
    for table, words in tables:
        wanted = column or (trained or "upos" if table.format.conllu else "")
        into = table.format.find(wanted, table.location) if wanted else None
        if last.strip():  # a sentence does not continue from one file to the next
            yield "\n" if last.endswith(("\n", "\r")) else "\n\n"
        for last in _tagged_lines(
            table, into, list(islice(rest, len(words))), model.vocabulary.scheme is not None, confidence
        ):
            yield last


def _tagged_lines(
    table: ConllTable, into: int | None, found: Sequence[TaggedText], spans: bool, confidence: bool
) -> Iterator[str]:
    """The lines of a table with the tag of each word in the column `into`, or after the last one."""
    cells: dict[int, tuple[str, str]] = {}
    for rows, one in zip(table.sentences, found, strict=True):
        probabilities = (f"{value:.4f}" for value in one.confidence)
        cells |= dict(zip(rows, zip(one.tags, probabilities, strict=True), strict=True))
    if into is None:
        # Lines between documents get a column too, because readers expect rows of equal width.
        cells |= dict.fromkeys(table.breaks, ("O" if spans else "-X-", EMPTY_FIELD))
    for number, line in enumerate(table.lines, start=1):
        if number not in cells:
            yield line
            continue
        bare = line.rstrip("\r\n")
        tag, probability = cells[number]
        row = table.format.add(bare, tag) if into is None else table.format.put(bare, into, tag)
        if confidence:
            row = _with_confidence(table.format, row, probability)
        yield row + line[len(bare) :]


def _with_confidence(layout: ConllFormat, row: str, probability: str) -> str:
    """CoNLL-U keeps what it has no column for in MISC; other tables get a column."""
    if not layout.conllu:
        return layout.add(row, probability)
    misc = CONLLU.index("misc")
    others = [
        one for one in layout.split(row)[misc].split("|") if one != EMPTY_FIELD and not re.match("Confidence=", one)
    ]
    return layout.put(row, misc, "|".join([*others, f"Confidence={probability}"]))
