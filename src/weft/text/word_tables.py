"""Tagged sentences in tables: a sentence in a row, as lists or with spaces, or a word in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from weft.errors import WeftError
from weft.text.columns import ChosenColumns, Role, choose_columns, usual_column
from weft.text.corpus import Document
from weft.text.dataframes import Columns, cell_text, plain_value
from weft.text.left_out import LeftOut
from weft.text.tables import Table, format_by_suffix, json_objects, read_table

# Usual names of the columns, in order of preference.
WORD_NAMES = ("words", "tokens", "word", "token", "form")
TAG_NAMES = ("tags", "ner_tags", "pos_tags", "upos", "tag", "pos", "labels", "label")
SENTENCE_NAMES = ("sentence_id", "sentence", "sent_id", "sentence #", "sentence_idx", "sentence_number")
_NAMES = frozenset((*WORD_NAMES, *TAG_NAMES, *SENTENCE_NAMES))


class SentenceRows(NamedTuple):
    """The words and tags of a sentence, and what the row of each word is called."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    rows: tuple[Any, ...]


class WordTable(NamedTuple):
    """A table of words and tags. A value is a list, or text; None is missing."""

    rows: Sequence[Any]  # what each row is called
    words: list[Any]
    tags: list[Any]
    sentences: list[str | None] | None  # the sentence of each row, where a column names it
    are_lines: bool  # whether the rows are lines of a file, where a gap ends a sentence
    reading: str


def open_word_table(document: Document, tags: str, words: str) -> WordTable | None:
    """The table of CSV or JSON lines; None if a document is neither, by its suffix. See `word_table`."""
    format = format_by_suffix(document)
    if format == "jsonl":
        objects = json_objects(document)
        names = tuple(dict.fromkeys(name for _, record in objects for name in record))
        values = [[record.get(name) for _, record in objects] for name in names]
        return word_table(Columns(document.location, names, values, [number for number, _ in objects]), tags, words)
    table = read_table(document, "csv", "auto", names=_NAMES) if format == "csv" else None
    if table is None or not table.rows or table.width < 2:
        return None
    values = [list(column) for column in zip(*(cells for _, cells in table.rows), strict=True)]
    data = Columns(document.location, table.names, values, [number for number, _ in table.rows])
    return word_table(data, tags, words)._replace(are_lines=True)


def word_table(data: Columns, tags: str, words: str) -> WordTable:
    """The columns of words and tags of a table: as set, with a usual name, or the first and the last one."""
    table = Table(data.kind, "columns", data.names, [(0, [None] * len(data.values))])
    if table.width < 2:
        raise WeftError(f"{data.kind} has one column", expected="words and their tags")
    sentences = usual_column(table, SENTENCE_NAMES) if table.width > 2 else None
    free = [place for place in range(table.width) if place != sentences]
    roles = (
        Role("words", words, "data.word_column", "", WORD_NAMES),
        Role("tags", tags, "data.tag_column", "", TAG_NAMES),
    )
    found = choose_columns(table, *roles)
    chosen = [
        found[0] or ChosenColumns(free[:1], "the first"),
        found[1] or ChosenColumns(free[-1:], "the last"),
    ]
    if chosen[0].places[0] == chosen[1].places[0]:
        raise WeftError(
            f"{data.kind}: words and tags are both {chosen[0].title(table)}",
            expected="two different columns",
            hint="`column=NAME`",
        )
    values = [[_value(value) for value in data.values[one.places[0]]] for one in chosen]
    names_of = None if sentences is None else [cell_text(value) for value in data.values[sentences]]
    reading = f"{data.kind}: words from {chosen[0].describe(table)}, tags from {chosen[1].describe(table)}"
    return WordTable(data.rows, values[0], values[1], names_of, False, reading)


def _value(value: Any) -> Any:
    """A value as text or as a list of texts; None if it is missing."""
    value = plain_value(value)
    return [cell_text(one) for one in value] if isinstance(value, list) else value


def table_rows(table: WordTable, location: str, left_out: LeftOut) -> list[SentenceRows]:
    """The sentences of a table. Those that lack a word or a tag are left out."""
    found = []
    for rows, words, tags in _sentences(table):
        place = f"{location}:{table.rows[rows[0]]}"
        lack = "word" if not words or not all(map(_full, words)) else "tag" if not all(map(_full, tags)) else ""
        if lack or not tags:
            left_out.add(place, lack or "tag")
        elif len(words) != len(tags):
            raise WeftError(f"{place} has {len(words)} words and {len(tags)} tags", expected="as many of both")
        else:
            labels = tuple(table.rows[row] for row in rows)
            found.append(SentenceRows(tuple(words), tuple(tags), labels * (len(words) // len(rows))))
    return found


def _full(value: str | None) -> bool:
    return bool(value and value.strip())


def _sentences(table: WordTable) -> Iterator[tuple[list[int], list[Any], list[Any]]]:
    """The rows, words and tags of each sentence."""
    words, tags = table.words, table.tags
    if not any(isinstance(value, list) for value in (*words, *tags)):
        words, tags = ([(value or "").split() for value in column] for column in (words, tags))
        fits = all(len(one) == len(two) for one, two in zip(words, tags, strict=True) if one and two)
        if not fits or max(map(len, words), default=0) < 2:
            yield from _sentences_of_words(table)
            return
    for row, (one, two) in enumerate(zip(words, tags, strict=True)):
        if one or two:
            yield [row], one or [], two or []


def _sentences_of_words(table: WordTable) -> Iterator[tuple[list[int], list[Any], list[Any]]]:
    """Sentences of which each word has a row.

    A sentence ends where its name changes; if it has none, at an empty row, or at a gap between the lines of a file.
    """
    rows: list[int] = []
    last = None
    for row, pair in enumerate(zip(table.words, table.tags, strict=True)):
        blank = not any(map(_full, pair))
        if table.sentences is None:
            new = blank or (table.are_lines and row > 0 and table.rows[row] != table.rows[row - 1] + 1)
        else:  # a name may stand at the first word only
            name = table.sentences[row]
            new, last = _full(name) and name != last, name or last
        if new and rows:
            yield rows, [table.words[one] for one in rows], [table.tags[one] for one in rows]
            rows = []
        if not blank:
            rows.append(row)
    if rows:
        yield rows, [table.words[one] for one in rows], [table.tags[one] for one in rows]
