"""Parallel text: pairs of a sentence and its translation, and the text fields of the two sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import WeftError, short_repr
from weft.text.columns import ChosenColumns, Role, choose_columns, column_length, is_name, joined_cells
from weft.text.config import PairTextConfig
from weft.text.corpus import Corpus, Document
from weft.text.dataframes import cell_text, from_python, is_missing, is_series, to_list
from weft.text.datasets import DATASETS, open_data
from weft.text.left_out import LeftOut
from weft.text.subword_tokenizer import SubwordTokenizer
from weft.text.tables import Table, format_by_suffix, location_of, read_table
from weft.text.text_field import Text


@dataclass(frozen=True)
class Pairs:
    """Source sentences and their translations: lists, or Series of pandas and polars. Neither side of a pair is empty.

    >>> pairs = Pairs("two", ["Go.", "I'm home."], ["Va !", "Je suis chez moi."])
    >>> len(pairs), pairs.swapped().sources[0]
    (2, 'Va !')
    """

    name: str
    sources: list[str] = field(repr=False)
    targets: list[str] = field(repr=False)
    left_out: int = field(default=0, repr=False)  # rows of the data of which a side was empty
    columns: tuple[str, ...] = field(default=(), repr=False)  # of a table, of source and target
    reading: str = field(default="", repr=False)  # how a table was read

    def __post_init__(self) -> None:
        for side in ("sources", "targets"):
            texts = getattr(self, side)
            if is_series(texts):
                object.__setattr__(self, side, texts := to_list(texts))
            if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
                raise WeftError(f"the {side} of {self.name} are {short_repr(texts)}", expected="a list of strings")
        if len(self.sources) != len(self.targets):
            raise WeftError(
                f"{self.name} has {len(self.sources)} sources and {len(self.targets)} targets",
                expected="one target for each source",
            )
        for number, sides in enumerate(zip(self.sources, self.targets, strict=True), start=1):
            if not (sides[0].strip() and sides[1].strip()):
                side, other = ("target", sides[0]) if sides[0].strip() else ("source", sides[1])
                raise WeftError(
                    f"{self.name}: the {side} side of pair {number} ({other[:40]!r}) is empty",
                    expected="text on both sides",
                )

    def __len__(self) -> int:
        return len(self.sources)

    def swapped(self) -> Pairs:
        """The pairs of the opposite translation direction."""
        return Pairs(self.name, self.targets, self.sources)


PairSource = str | Path | Pairs | Iterable[Any]  # a path, the name of a data set, Pairs, pairs, or a table of Python


def open_pairs(
    source: PairSource,
    *,
    source_column: int | str = "",
    target_column: int | str = "",
    like: Sequence[str] = (),
    strict: bool = False,
) -> Pairs:
    """Open the parallel text that a `--data` value names, or that Python gives.

    White space at both ends of a sentence is removed, and lines that are blank on both sides are skipped. Pairs of
    which one side is empty are left out and reported.

    Args:
        source: a name in DATASETS; a tab-separated file, CSV or JSON lines; or two files with equal numbers of lines,
            as `source.en,target.fr`. A file may be plain, .gz, a member of a .zip (`archive.zip:folder/name.txt`), or
            `-` for standard input. From Python also Pairs, pairs of strings, or a table: a DataFrame, a data set, a
            dict of columns, dicts.
        source_column: the column of the source sentence, by name, or by number from 1. Without it the first, or, in a
            table whose columns have names, that with a usual name, or the first of the two with the longest texts.
        target_column: the column of the target sentence; without it the second, or as above.
        like: the names of both columns of the training data, which are read where none are given.
        strict: refuse pairs of which one side is empty.
    """
    if isinstance(source, Pairs):
        return source
    chosen = (source_column, target_column)
    for role, column in zip(("source", "target"), chosen, strict=True):
        if not is_name(column) and column != "" and int(column) < 1:
            raise WeftError(f"the {role} column is {column}", expected="an integer of at least 1")
    reading = _PairReading(chosen, like, LeftOut("text.strict", strict=strict, rows="pairs"))
    if not isinstance(source, str | Path):
        return reading.read_python(source)
    name = str(source)
    if "," in name and name not in DATASETS and not Path(name).exists():
        return reading.read_two_files(name)
    if name in DATASETS and not DATASETS[name].parallel:
        raise WeftError(f"{name} is a text without translations", expected="pairs", hint="`source=grammar-fr`")
    corpus = open_data(name)
    document = _only_document(corpus)
    named = any(map(is_name, chosen))
    if named or format_by_suffix(document) in ("csv", "jsonl"):
        return reading.read_table(read_table(document, "auto", "yes" if named else "auto", names={*_NAMES, *like}))
    return reading.read_lines(corpus.name, document, int(source_column or 1), int(target_column or 2))


# Usual names of the columns, in order of preference.
SOURCE_NAMES = ("source", "src", "source_text", "input")
TARGET_NAMES = ("target", "tgt", "target_text", "translation", "output")
_ROLES = ("source", "target")
_NAMES = frozenset((*SOURCE_NAMES, *TARGET_NAMES))


def _only_document(corpus: Corpus) -> Document:
    documents = list(corpus.documents())
    if len(documents) > 1:
        names = ", ".join(document.name for document in documents[:5])
        likely = next((document for document in documents if "\t" in next(document.lines(), "")), documents[0])
        raise WeftError(
            f"{corpus.name} has {len(documents)} texts: {names}{', ...' if len(documents) > 5 else ''}",
            expected="one file of pairs",
            hint=likely.location,
        )
    return documents[0]


def _lines(document: Document) -> list[str]:
    return "".join(document.lines()).removesuffix("\n").split("\n")


class _PairReading:
    """Pairs while they are read, from the columns that are set (empty: none), or those `like` the training data's."""

    def __init__(self, columns: tuple[int | str, int | str], like: Sequence[str], left_out: LeftOut) -> None:
        self.columns, self.like, self.left_out = columns, like, left_out
        self.sources: list[str] = []
        self.targets: list[str] = []

    def result(self, name: str, expected: str, columns: tuple[str, ...] = (), reading: str = "") -> Pairs:
        total = len(self.sources) + self.left_out.count
        if not total:
            raise WeftError(f"{name} has no pairs", expected=expected)
        hint = "`text.source_column=NAME` and `text.target_column=NAME`, if they are in other columns"
        count = self.left_out.report(total, hint if reading else "")
        return Pairs(name, self.sources, self.targets, left_out=count, columns=columns, reading=reading)

    def add(self, source: str, target: str, source_place: str, target_place: str) -> None:
        """A pair, unless a side of it is empty; nothing if both are."""
        source, target = source.strip(), target.strip()
        if source and target:
            self.sources.append(source)
            self.targets.append(target)
        elif source or target:
            place, side, other = (target_place, "target", source) if source else (source_place, "source", target)
            given = f"{place}: the {side} side of {other[:40]!r} is empty"
            self.left_out.add(place, side, given=given, expected="text on both sides, or on neither")

    def read_two_files(self, name: str) -> Pairs:
        halves = name.split(",")
        if len(halves) != 2 or not all(halves):
            raise WeftError(
                f"{name} is neither a file nor two files separated by a comma",
                expected="SOURCE-FILE,TARGET-FILE",
                hint="a.en,b.fr",
            )
        left, right = (_only_document(Corpus.open(half)) for half in halves)
        sources, targets = _lines(left), _lines(right)
        if len(sources) != len(targets):
            raise WeftError(
                f"{left.location} has {len(sources)} lines and {right.location} has {len(targets)}",
                expected="equal numbers of lines, each the translation of the other",
            )
        for number, sides in enumerate(zip(sources, targets, strict=True), start=1):
            self.add(*sides, f"{left.location}:{number}", f"{right.location}:{number}")
        return self.result(name, "text on both sides")

    def read_lines(self, name: str, document: Document, source_column: int, target_column: int) -> Pairs:
        if source_column == target_column:
            raise WeftError(f"source and target are both column {source_column}", expected="two different columns")
        most = max(source_column, target_column)
        for number, line in enumerate(_lines(document), start=1):
            columns = line.split("\t")
            place = f"{document.location}:{number}"
            if number == 1 and len(columns) > 1 and {cell.strip().lower() for cell in columns} <= _NAMES:
                continue  # a header
            if len(columns) < most:
                if not line.strip():
                    continue
                raise _short_line(place, line, len(columns), most)
            self.add(columns[source_column - 1], columns[target_column - 1], place, place)
        return self.result(name, f"text in columns {source_column} and {target_column}")

    def read_table(self, table: Table) -> Pairs:
        source, target = self._choose(table)
        for row in table.rows:
            place = location_of(table, row)
            self.add(joined_cells(row, source.places), joined_cells(row, target.places), place, place)
        reading = f"source from {source.describe(table)}, target from {target.describe(table)}"
        names = tuple(table.names[one.places[0]] for one in (source, target)) if table.names else ()
        reading = f"read as {table.description}: {reading}"
        return self.result(table.location, "a source and a target in a row", names, reading)

    def read_python(self, source: Iterable[Any]) -> Pairs:
        data = from_python(source, "the pairs", "a path, weft.Pairs, a list of pairs, or a DataFrame")
        if not isinstance(data, list):
            return self.read_table(data.table())
        for number, pair in enumerate(data, start=1):
            sides = pair if isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2 else (pair,)
            if len(sides) != 2 or not all(isinstance(side, str) or is_missing(side) for side in sides):
                raise WeftError(f"pair {number} is {short_repr(pair)}", expected="a sentence and its translation")
            one, other = (cell_text(side) or "" for side in sides)
            self.add(one, other, f"pair {number}", f"pair {number}")
        return self.result("the pairs", "sentences with their translations")

    def _choose(self, table: Table) -> tuple[ChosenColumns, ChosenColumns]:
        """The columns of source and target: as set, as in the training data, by usual names, or by their texts."""
        if table.width < 2:
            raise WeftError(f"{table.location} has one column", expected="a source and a target in every row")
        sides = zip(_ROLES, self.columns, self.like or ("", ""), (SOURCE_NAMES, TARGET_NAMES), strict=True)
        roles = [Role(name, column, f"text.{name}_column", like, usual) for name, column, like, usual in sides]
        source, target = choose_columns(table, *roles)
        taken = {place for chosen in (source, target) if chosen for place in chosen.places}
        free, missing = [place for place in range(table.width) if place not in taken], (not source) + (not target)
        longest = sorted(free, key=lambda place: -column_length(table, place))[:missing]
        why = "the longest texts" if len(free) > missing else "the only other one" if taken else "the order"
        others = (ChosenColumns([place], why) for place in sorted(longest))  # in the order of the table
        return source or next(others), target or next(others)


def _short_line(location: str, line: str, columns: int, most: int) -> WeftError:
    start = line[:40] + "..." * (len(line) > 40)
    if columns == 1:
        return WeftError(
            f"{location}: no tab in {start!r}",
            expected="source and translation separated by a tab",
            hint="SOURCE-FILE,TARGET-FILE, if each side is in its own file",
        )
    return WeftError(f"{location}: {columns} columns in {start!r}", expected=f"at least {most}, separated by tabs")


@dataclass(frozen=True)
class PairFields:
    """The text fields of source and target; with a joint vocabulary both are the same object."""

    source: Text
    target: Text

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def to_json(self) -> dict[str, Any]:
        sides = {"source": self.source} if self.joint else {"source": self.source, "target": self.target}
        return {name: side.to_json() for name, side in sides.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PairFields:
        source = Text.from_json(data["source"])
        return cls(source, Text.from_json(data["target"]) if "target" in data else source)


def fit_pair_fields(config: PairTextConfig, pairs: Pairs) -> PairFields:
    """Build the text fields of both sides from the pairs. Only subword vocabularies can be joint."""
    if config.joint and config.tokenizer == SubwordTokenizer.name:
        fields = Text.fit(pairs.sources + pairs.targets, config)
        return PairFields(fields, fields)
    return PairFields(Text.fit(pairs.sources, config), Text.fit(pairs.targets, config))
