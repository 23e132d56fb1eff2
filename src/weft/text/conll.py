"""Readers of tagged sentences: CoNLL-U, other CoNLL formats, and segmented text.

CoNLL formats have one word per line in columns, and a blank line after each sentence. CoNLL-U is recognized by its file
name or its ten columns; its columns have names, and ranges (3-4) and empty nodes (8.1) are skipped. Other formats have
numbered columns, separated by tabs or spaces. Errors state file and line.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import WeftError, short_repr, unknown_name
from weft.text.columns import read_rows
from weft.text.corpus import Corpus, Document
from weft.text.dataframes import cell_text, from_python, is_missing
from weft.text.datasets import open_data
from weft.text.left_out import LeftOut
from weft.text.spans import SCHEMES, Span, spans_to_tags
from weft.text.word_tables import WordTable, open_word_table, table_rows, word_table

if TYPE_CHECKING:
    from weft.text.grammars.pcfg import Node

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
GRAMMAR = ("form", "upos", "chunk")  # the columns of the embedded grammar's sentences
GRAMMAR_SENTENCES = 5000
EMPTY_FIELD = "_"  # an empty field of CoNLL-U

_ID = re.compile(r"\d+([-.]\d+)?")
_COMMENT = "# "
_DOCUMENT = "-DOCSTART-"  # CoNLL 2003's line between documents


def count_noun(count: int, noun: str) -> str:
    """A count with its noun.

    >>> count_noun(1, "tag"), count_noun(1000, "sentence")
    ('1 tag', '1,000 sentences')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class TaggedSentence(NamedTuple):
    """A sentence of words with tags (empty if none were read), and its location for error messages."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    location: str
    lines: tuple[int, ...]  # the line number of each word

    def where(self, word: int) -> str:
        """The location of the word at index `word`, as file:line."""
        return f"{self.location}:{self.lines[word]}"


class ConllFormat(NamedTuple):
    """The columns of a file: their names (empty if they have none), their separator and their number."""

    names: tuple[str, ...]
    tabs: bool
    width: int
    line: int  # the line from which the format was detected

    @property
    def conllu(self) -> bool:
        return self.names == CONLLU

    def split(self, line: str) -> list[str]:
        return line.split("\t") if self.tabs else re.split(r"[ \t]+", line.strip(" \t"))

    def put(self, line: str, at: int, value: str) -> str:
        """Replace the value of one column of a line; everything else stays unchanged."""
        pieces = re.split("(\t)" if self.tabs else r"([ \t]+)", line)
        first = int(not self.tabs and not pieces[0])  # leading white space yields an empty first piece
        pieces[2 * (at + first)] = value
        return "".join(pieces)

    def add(self, line: str, value: str) -> str:
        """Append a column to a line."""
        return f"{line}\t{value}" if self.tabs else line.rstrip(" \t") + f" {value}"

    def find(self, column: str, location: str) -> int:
        """The index of a column given by its name, or by its number from 1, or from the end as -1."""
        if re.fullmatch(r"-?\d+", column):
            number = int(column)
            if not 1 <= abs(number) <= self.width:
                raise WeftError(
                    f"{location} has no column {number}",
                    expected=f"1 to {self.width}, or -1 for the last",
                    hint="`column=NUMBER`",
                )
            return number - 1 if number > 0 else self.width + number
        if not self.names:
            raise WeftError(
                f"{location} has no column {column!r}: its {self.width} columns have no names",
                expected=f"a number from 1 to {self.width}, or -1 for the last",
                hint="`column=NUMBER`",
            )
        if column.lower() not in self.names:
            raise unknown_name(f"{location}: column", column, self.names)
        return self.names.index(column.lower())


class ConllTable(NamedTuple):
    """The content of a CoNLL file, complete enough to write the file back unchanged."""

    location: str
    format: ConllFormat
    lines: list[str]  # all lines, with their line ends
    sentences: list[dict[int, list[str]]]  # per sentence, the fields of each word by line number, from 1
    breaks: dict[int, list[str]]  # the fields of the lines between documents, by line number


def read_conll(document: Document) -> ConllTable:
    """Read a CoNLL file, whose rows all have as many columns as the first one."""
    lines = list(document.own_lines())
    bare = [line.rstrip("\r\n") for line in lines]
    format = detect_format(document, bare)
    table = ConllTable(document.location, format, lines, [], {})
    is_comment = _comments(format, bare)
    sentence: dict[int, list[str]] = {}

    def end() -> None:
        nonlocal sentence
        if sentence:
            table.sentences.append(sentence)
        sentence = {}

    for number, line in enumerate(bare, start=1):
        if not line.strip():
            end()
            continue
        if is_comment(line, first=not sentence):
            continue
        fields = format.split(line)
        if len(fields) != format.width:
            raise _ragged(document.location, number, len(fields), format)
        if fields[0] == _DOCUMENT:
            end()
            table.breaks[number] = fields
        elif not format.conllu or _is_word(fields[0], f"{document.location}:{number}"):
            sentence[number] = fields
    end()
    return table


def detect_format(document: Document, lines: Sequence[str]) -> ConllFormat:
    """Detect the format from the first row that is not a comment."""
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    number, line = next((row for row in rows if not row[1].startswith("#")), rows[0])
    if is_conllu(document.name, line):
        return ConllFormat(CONLLU, True, len(CONLLU), number)
    number, line = next((row for row in rows if not row[1].startswith(_COMMENT)), rows[0])
    tabs = "\t" in line
    return ConllFormat((), tabs, len(line.split("\t") if tabs else line.split()), number)


def _comments(format: ConllFormat, lines: Sequence[str]) -> Callable[..., bool]:
    """A predicate that decides whether a line is a comment, given whether it precedes the `first` row of a sentence.

    Outside of CoNLL-U # may be a word. The line is a comment if its number of columns differs from that of the rows, or
    if no row has its last field.
    """
    if format.conllu:
        return lambda line, first: line.startswith("#")
    rows = [line for line in lines if line.strip() and not line.startswith(_COMMENT)]
    last = {format.split(line)[-1] for line in rows} if len(rows) < len(lines) else set()

    def is_comment(line: str, first: bool) -> bool:
        if not (first and line.startswith(_COMMENT)):
            return False
        fields = format.split(line)
        return len(fields) != format.width or fields[-1] not in last

    return is_comment


def is_conllu(name: str, line: str) -> bool:
    """Whether a file with this name and this first row is CoNLL-U."""
    fields = line.split("\t")
    return ".conllu" in name.lower() or (len(fields) == len(CONLLU) and bool(_ID.fullmatch(fields[0])))


def _is_word(identity: str, where: str) -> bool:
    """Whether the ID of a CoNLL-U row is that of a word, not of a range or an empty node."""
    if not _ID.fullmatch(identity):
        raise WeftError(f"{where}: the first column is {identity!r}", expected="an ID such as 3, 3-4 or 8.1")
    return identity.isdigit()


def _ragged(location: str, line: int, found: int, format: ConllFormat) -> WeftError:
    how = "separated by tabs" if format.tabs else "separated by spaces"
    what = "of CoNLL-U" if format.conllu else f"as in line {format.line}"
    return WeftError(
        f"{location}:{line}: the row has {count_noun(found, 'column')}", expected=f"{format.width} {what}, {how}"
    )


def table_sentences(
    table: ConllTable, column: str = "", words: str = "", *, tagged: bool = True, left_out: LeftOut | None = None
) -> list[TaggedSentence]:
    """The sentences of a CoNLL file.

    Args:
        table: the file.
        column: the column of the tags, a name or a number; empty: UPOS of CoNLL-U, else the last.
        words: the column of the words; empty: FORM of CoNLL-U, else the first.
        tagged: whether to read tags.
        left_out: counts the sentences that lack a word or a tag; None: these are refused.
    """
    left_out = LeftOut("data.strict", strict=True) if left_out is None else left_out
    location, format = table.location, table.format
    word_at = format.find(words or ("form" if format.conllu else "1"), location)
    tag_at = format.find(column or ("upos" if format.conllu else "-1"), location) if tagged else 0
    if tagged and tag_at == word_at:
        raise WeftError(
            f"{location}: column {word_at + 1} is given for both the words and the tags",
            expected="two different columns",
            hint="`column=NUMBER`" if format.width > 1 else "a word and its tag in each row",
        )
    found = []
    for rows in table.sentences:
        for line, fields in rows.items():
            lack = "word" if not fields[word_at].strip() else "tag" if tagged and not fields[tag_at].strip() else ""
            if lack:
                left_out.add(f"{location}:{line}", lack)
                break
        else:
            tags = tuple(fields[tag_at] for fields in rows.values()) if tagged else ()
            words_of = tuple(fields[word_at] for fields in rows.values())
            found.append(TaggedSentence(words_of, tags, location, tuple(rows)))
    if found and tagged and format.conllu and all(tag == EMPTY_FIELD for sentence in found for tag in sentence.tags):
        raise WeftError(
            f"{location}: column {CONLLU[tag_at]} has only {EMPTY_FIELD}",
            expected="a column with tags",
            hint="`column=xpos`" if CONLLU[tag_at] == "upos" else "`column=upos`",
        )
    return found


def segmented_sentences(document: Document) -> list[TaggedSentence]:
    """Sentences of a segmented text: one per line with spaces between words, or the words of CoNLL-U."""
    rows = ((number, line) for number, line in enumerate(document.lines(), start=1) if line.strip())
    ahead = next((line for _, line in rows if not line.startswith("#")), "")
    if is_conllu(document.name, ahead.rstrip("\r\n")):
        sentences = table_sentences(read_conll(document), tagged=False)
        return [one._replace(words=tuple("".join(word.split()) for word in one.words)) for one in sentences]
    found = []
    tabs: list[int] = []
    for number, line in enumerate(document.lines(), start=1):
        if words := tuple(line.split()):
            found.append(TaggedSentence(words, (), document.location, (number,) * len(words)))
            if "\t" in line.strip():
                tabs.append(number)
    if 2 * len(tabs) > len(found):
        raise WeftError(
            f"{document.location}:{tabs[0]} has tabs, as {len(tabs):,} of {len(found):,} lines do: this is CoNLL",
            expected="for `data.task=segments`, one sentence per line with spaces between words, or CoNLL-U",
            hint="without `data.task=segments`, to train a tagger of words",
        )
    return found


# A path, a name, a Corpus, (words, tags) pairs, or a table of Python.
SentenceSource = str | Path | Corpus | Iterable[Any]


def open_sentences(
    source: SentenceSource,
    column: str = "",
    words: str = "",
    *,
    left_out: LeftOut | None = None,
    notes: list[str] | None = None,
) -> list[TaggedSentence]:
    """Read tagged sentences. Those that lack a word or a tag are left out and reported.

    Args:
        source: a path, `-` for standard input, the name `grammar`, a Corpus, (words, tags) pairs, or a table: a
            DataFrame, a data set, a dict of columns, dicts.
        column: the column of the tags; see `table_sentences`, and `word_table` for CSV, JSON lines and Python.
        words: the column of the words.
        left_out: counts the sentences that are left out.
        notes: is added how a table was read.
    """
    left_out = LeftOut("data.strict", strict=False, rows="sentences") if left_out is None else left_out
    found: list[TaggedSentence] = []
    if isinstance(source, str) and source == "grammar":
        return _grammar(column or "upos")
    if isinstance(source, str | Path | Corpus):
        for document in _documents(source):
            table = open_word_table(document, column, words)
            if table is None:
                found += table_sentences(read_conll(document), column, words, left_out=left_out)
            else:
                found += _of_table(table, document.location, left_out, notes)
    else:
        data = from_python(source, "the sentences", "a path, a list of pairs of words and tags, or a DataFrame")
        if isinstance(data, list):
            found = _of_pairs(data, left_out)
        else:
            found = _of_table(word_table(data, column, words), data.kind, left_out, notes)
    left_out.report(len(found) + left_out.count, "`column=NAME`, if the tags are in another column")
    return _not_empty(found, source)


def _of_table(table: WordTable, location: str, left_out: LeftOut, notes: list[str] | None) -> list[TaggedSentence]:
    if notes is not None:
        notes.append(table.reading)
    return [TaggedSentence(words, tags, location, rows) for words, tags, rows in table_rows(table, location, left_out)]


def _of_pairs(pairs: list[Any], left_out: LeftOut) -> list[TaggedSentence]:
    found = []
    for at, pair in enumerate(pairs, start=1):
        place = f"sentence {at}"
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise WeftError(f"{place} is {short_repr(pair)}", expected="a pair of words and their tags")
        one, tags = (() if is_missing(side) else tuple(cell_text(value) or "" for value in side) for side in pair)
        lack = "word" if tags and not (one and all(one)) else "tag" if one and not (tags and all(tags)) else ""
        if lack:
            left_out.add(place, lack)
        elif len(one) != len(tags):
            raise WeftError(
                f"{place} has {count_noun(len(one), 'word')} and {count_noun(len(tags), 'tag')}",
                expected="as many of both",
            )
        elif one:
            found.append(TaggedSentence(one, tags, place, tuple(range(1, len(one) + 1))))
    return found


def open_segmented(source: SentenceSource, left_out: LeftOut | None = None) -> list[TaggedSentence]:
    """Read segmented sentences from a path, `-` for standard input, the name `grammar`, or a Corpus.

    From Python also texts with spaces between words (a list, a Series), or a table with a column of them.
    """
    left_out = LeftOut("data.strict", strict=False, rows="sentences") if left_out is None else left_out
    if isinstance(source, str) and source == "grammar":
        return [one._replace(tags=()) for one in _grammar("upos")]
    if isinstance(source, str | Path | Corpus):
        return _not_empty([one for each in _documents(source) for one in segmented_sentences(each)], source)
    found = []
    for number, text in enumerate(read_rows(source).texts(), start=1):
        if words := tuple(text.split()):
            found.append(TaggedSentence(words, (), "text", (number,) * len(words)))
        else:
            left_out.add(f"text {number}", "text", expected="words with spaces between them")
    left_out.report(len(found) + left_out.count)
    return _not_empty(found, "the texts")


def _documents(source: str | Path | Corpus) -> Iterable[Document]:
    corpus = source if isinstance(source, Corpus) else open_data(str(source))
    return [document for document in corpus.documents() if not document.is_blank()]


def _not_empty(sentences: list[TaggedSentence], source: object) -> list[TaggedSentence]:
    if not sentences:
        name = source.name if isinstance(source, Corpus) else source if isinstance(source, str | Path) else "the data"
        raise WeftError(f"{name} has no sentences", expected="at least one")
    return sentences


def _grammar(column: str) -> list[TaggedSentence]:
    """Sentences of the embedded grammar, tagged with parts of speech or with noun phrase chunks."""
    if column not in GRAMMAR[1:]:
        raise unknown_name("grammar: column", column, GRAMMAR[1:])
    from weft.text.grammars.english import ENGLISH

    rng = random.Random(0)
    found = []
    for number in range(1, GRAMMAR_SENTENCES + 1):
        words, tags, _, tree = ENGLISH.sample(rng)
        if column == "chunk":
            tags = tuple(spans_to_tags(_phrases(tree, 0), len(words), SCHEMES["bio"]))
        found.append(TaggedSentence(words, tags, "grammar", (number,) * len(words)))
    return found


def _phrases(node: Node, start: int) -> Iterator[Span]:
    """The innermost noun phrases below a node, labelled BEING, THING or PLACE."""
    from weft.text.grammars.pcfg import Leaf

    for child in node.children:
        width = 1 if isinstance(child, Leaf) else sum(1 for _ in child.leaves())
        label = {"bare": "BEING", "name": "BEING", "thing": "THING", "spot": "PLACE"}.get(child.symbol.split(".")[0])
        if label:
            yield Span(label, start, start + width)
        elif not isinstance(child, Leaf):
            yield from _phrases(child, start)
        start += width
