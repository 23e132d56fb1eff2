"""Plain text as a stream of lines: from files, folders, archives, standard input, or strings in memory.

A corpus can be read any number of times and is never held in memory. Errors state file and line.
"""

from __future__ import annotations

import io
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from weft.data.column import Array, open_values, write_values
from weft.errors import WeftError
from weft.text import sources
from weft.text.arguments import check_texts
from weft.text.tokenizers import Normalizer, Tokenizer
from weft.text.vocabulary import EOS, Vocabulary

LONGEST_UNBROKEN = 1 << 20  # that is not split
LONGEST_UNSPLIT = 1 << 26  # that cannot be split
BLOCK_SIZE = 1 << 16
QUIET_SECONDS, PAUSE_SECONDS = 2.0, 5.0  # before the first report of progress, and between two
_LINES = 256  # lines between two looks at the clock
_LOG = logging.getLogger("weft")
_TOKENS_CHECKED = 1 << 24


@dataclass(frozen=True)
class Document:
    """One text of a corpus; `location` names it in error messages."""

    name: str
    location: str
    open_bytes: Callable[[], BinaryIO] = field(repr=False)
    encoding: str = field(default="utf-8", repr=False)

    @classmethod
    def of_text(cls, text: str, name: str) -> Document:
        """A text in memory, by the name that messages call it."""
        return cls(name, name, _bytes_of(text))

    def lines(self) -> Iterator[str]:
        """Iterate over the lines, each with its "\\n"; the last one may have none.

        All conventions of line ends are converted. A line of more than a million characters is split before a space,
        so that a text without line ends still streams; this does not change its tokens.
        """
        return self._lines(newline=None)

    def own_lines(self) -> Iterator[str]:
        """Iterate over the lines with their original line ends, so that the file can be reproduced exactly."""
        return self._lines(newline="")

    def _lines(self, newline: str | None) -> Iterator[str]:
        number, pace = 1, _Pace(self.location)
        try:
            with (
                sources.reading(self.location, self.open_bytes) as stream,
                sources.decoded(stream, self.location, self.encoding, newline) as text,
            ):
                for line in _pieces(text, self.location):
                    if "\0" in line:
                        raise sources.binary_error(self.location, number)
                    yield line
                    number += line.endswith(("\n", "\r"))
                    if number % _LINES == 0:
                        pace.report(number)
        except UnicodeDecodeError:
            # The decoder works in blocks and does not know lines, so the position is searched for here.
            raise sources.encoding_error(self.location, self.open_bytes, self.encoding) from None

    def is_blank(self) -> bool:
        return not any(line.strip() for line in self.lines())


class _Pace:
    """Logs how far a long text has been read, so that nobody waits without a word."""

    def __init__(self, location: str) -> None:
        self.location, self.due = location, time.perf_counter() + QUIET_SECONDS

    def report(self, lines: int) -> None:
        now = time.perf_counter()
        if now >= self.due:
            _LOG.info("reading %s: line %s", self.location, f"{lines:,}")
            self.due = now + PAUSE_SECONDS


def _pieces(text: io.TextIOWrapper, location: str) -> Iterator[str]:
    held = ""
    while piece := text.readline(LONGEST_UNBROKEN):
        held += piece
        if not held.endswith("\n") and len(held) >= LONGEST_UNBROKEN:
            # Before the first space of a run, where every tokenizer has a token boundary.
            cut = len(held[: held.rfind(" ") + 1].rstrip())
            if cut:
                yield held[:cut]
            held = held[cut:]
            if len(held) > LONGEST_UNSPLIT:
                raise WeftError(
                    f"{location} has more than {LONGEST_UNSPLIT:,} characters without a space or a line end",
                    expected="plain text",
                    hint="line ends between its sentences, if it is text",
                )
        else:
            yield held
            held = ""
    if held:
        yield held


@dataclass(frozen=True)
class Corpus:
    """A named collection of documents. At least one of them is not blank.

    >>> corpus = Corpus.from_texts("two", ["one line\\nanother", "再来一行\\n"])
    >>> [list(document.lines()) for document in corpus.documents()]
    [['one line\\n', 'another'], ['再来一行\\n']]
    """

    name: str
    _documents: tuple[Document, ...] = field(repr=False)
    left_out: int = field(default=0, repr=False)  # rows of a table without a text
    column: str = field(default="", repr=False)  # of a table, where the texts stand; empty: it has no names
    reading: str = field(default="", repr=False)  # how a table was read

    @classmethod
    def open(cls, source: str | Path, *, encoding: str = "utf-8") -> Corpus:
        """Open the text at `source`.

        Args:
            source: a file (plain or .gz), a folder (all .txt, .text and .md files below it, also as .gz, except hidden
                ones), a .zip (its text members; a single one as `archive.zip:folder/name.txt`), or `-` for standard
                input.
            encoding: the encoding of its files.

        Raises:
            WeftError: if it cannot be read or is blank.
        """
        found = open_documents(source, encoding)
        return cls._checked(str(source) if str(source) != "-" else sources.STANDARD_INPUT, found)

    @classmethod
    def from_texts(cls, name: str, texts: Iterable[str]) -> Corpus:
        """Make a corpus from strings, one document each."""
        documents = []
        for number, text in enumerate(check_texts(texts), start=1):
            label = f"{name} {number}"
            documents.append(Document.of_text(text, label))
        if not documents:
            raise WeftError(f"{name} has no texts", expected="at least one")
        return cls._checked(name, documents)

    @classmethod
    def _checked(cls, name: str, documents: list[Document]) -> Corpus:
        """Leave out blank documents; a corpus of blank documents only is an error."""
        written = tuple(document for document in documents if not document.is_blank())
        if written:
            return cls(name, written)
        places = ", ".join(document.location for document in documents[:3])
        more = f" and {len(documents) - 3} more" if len(documents) > 3 else ""
        first = next(documents[0].lines(), None)
        state = "is empty" if len(documents) == 1 and first is None else "has only blank lines"
        raise WeftError(f"{places}{more} {state}", expected="some text")

    def documents(self) -> Iterator[Document]:
        return iter(self._documents)

    def __add__(self, other: Corpus) -> Corpus:
        """The documents of both."""
        return Corpus(f"{self.name} and {other.name}", self._documents + other._documents)

    def with_lines(self, change: Callable[[str], str]) -> Corpus:
        """The corpus with each line changed; `change` is given a line without its end.

        A document is held in memory while it is read.

        >>> shouted = Corpus.from_texts("one", ["one line\\nanother"]).with_lines(str.upper)
        >>> [list(document.lines()) for document in shouted.documents()]
        [['ONE LINE\\n', 'ANOTHER\\n']]
        """

        def changed(document: Document) -> BinaryIO:
            return io.BytesIO("".join(f"{change(line.rstrip(chr(10)))}\n" for line in document.lines()).encode())

        documents = (Document(one.name, one.location, partial(changed, one)) for one in self._documents)
        return Corpus(self.name, tuple(documents))


def open_documents(source: str | Path, encoding: str = "utf-8") -> list[Document]:
    """The documents at `source`, blank ones included; see `Corpus.open`."""
    return [Document(*entry, encoding) for entry in sources.entries(str(source))]


def _bytes_of(text: str) -> Callable[[], BinaryIO]:
    # A lone surrogate cannot be encoded as UTF-8; errors="replace" would hide it.
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise WeftError(f"a text has the lone surrogate {text[error.start]!r}", expected="Unicode text") from error
    return lambda: io.BytesIO(encoded)


def _blocks(document: Document, normalizer: Normalizer) -> Iterator[str]:
    """The normalized document in blocks of whole lines, large enough to make the overhead per call negligible."""
    lines: list[str] = []
    size = 0
    for line in normalizer.lines(document.lines()):
        lines.append(line)
        size += len(line)
        if size >= BLOCK_SIZE:
            yield "".join(lines)
            lines, size = [], 0
    if lines:
        yield "".join(lines)


def token_blocks(corpus: Corpus, normalizer: Normalizer, tokenizer: Tokenizer) -> Iterator[list[str]]:
    """All tokens of the corpus in blocks, with "<eos>" between documents."""
    started = False
    for document in corpus.documents():
        separator = [EOS] if started else []
        for block in _blocks(document, normalizer):
            tokens = tokenizer.split(block)
            if tokens:
                yield separator + tokens if separator else tokens
                separator, started = [], True
    if not started:
        raise WeftError(
            f"{corpus.name} is empty after normalization",
            hint="`text.letters_only=false`" if normalizer.letters_only else "other data",
        )


def count_tokens(corpus: Corpus, normalizer: Normalizer, tokenizer: Tokenizer) -> Counter[str]:
    """Count the tokens of a corpus, including the "<eos>" between documents."""
    counts: Counter[str] = Counter()
    for tokens in token_blocks(corpus, normalizer, tokenizer):
        counts.update(tokens)
    return counts


def id_type(vocabulary_size: int) -> type[np.uint16] | type[np.uint32]:
    """The narrowest unsigned integer type that holds all ids."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


def encode_corpus(
    corpus: Corpus, normalizer: Normalizer, tokenizer: Tokenizer, vocabulary: Vocabulary, path: Path
) -> int:
    """Writes the ids of all tokens, with "<eos>" between documents, as a column; returns the number of tokens.

    Ids have 16 bits if the vocabulary fits, else 32.
    """
    width = id_type(len(vocabulary))
    blocks = token_blocks(corpus, normalizer, tokenizer)
    return write_values(path, (np.array(vocabulary.encode(tokens), width) for tokens in blocks), width)


def open_tokens(path: Path, vocabulary_size: int) -> Array:
    """Memory-maps the ids (N,) that `encode_corpus` wrote."""
    tokens = open_values(path)
    check_token_ids(tokens, vocabulary_size, str(path))
    return tokens


def check_token_ids(tokens: Array, vocabulary_size: int, place: str) -> None:
    """Refuses values that are no ids of tokens: they would be read as other memory."""
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not len(tokens):
        raise WeftError(f"{place} has {len(tokens)} values of type {tokens.dtype}", expected="token ids, at least one")
    for begin in range(0, len(tokens), _TOKENS_CHECKED):
        block = tokens[begin : begin + _TOKENS_CHECKED]
        for id in (int(block.min()), int(block.max())):
            if not 0 <= id < vocabulary_size:
                raise WeftError(f"{place} has the token id {id}", expected=f"ids below {vocabulary_size}")
