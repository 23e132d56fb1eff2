"""Parallel text: pairs of a sentence and its translation, and the codecs of the two sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.text.arguments import short_repr
from weft.text.codec import Codec, build_codec
from weft.text.config import PairTextConfig
from weft.text.corpus import Corpus, Document
from weft.text.datasets import DATASETS, open_data
from weft.text.subword_tokenizer import SubwordTokenizer


@dataclass(frozen=True)
class Pairs:
    """Source sentences and their translations. Neither side of a pair is empty.

    >>> pairs = Pairs("two", ["Go.", "I'm home."], ["Va !", "Je suis chez moi."])
    >>> len(pairs), pairs.swapped().sources[0]
    (2, 'Va !')
    """

    name: str
    sources: list[str] = field(repr=False)
    targets: list[str] = field(repr=False)

    def __post_init__(self) -> None:
        for side, texts in (("sources", self.sources), ("targets", self.targets)):
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


def open_pairs(source: str | Path, *, source_column: int = 1, target_column: int = 2) -> Pairs:
    """Open the parallel text that a `--data` value names.

    White space at both ends of a sentence is removed, and lines that are blank on both sides are skipped.

    Args:
        source: a name in DATASETS; a tab-separated file; or two files with equal numbers of lines, as
            `source.en,target.fr`. A file may be plain, .gz, a member of a .zip (`archive.zip:folder/name.txt`), or `-`
            for standard input.
        source_column: the column of the source sentence in a tab-separated file, from 1.
        target_column: the column of the target sentence.
    """
    for role, column in (("source", source_column), ("target", target_column)):
        if column < 1:
            raise WeftError(f"the {role} column is {column}", expected="an integer of at least 1")
    if source_column == target_column:
        raise WeftError(f"source and target are both column {source_column}", expected="two different columns")
    name = str(source)
    if "," in name and name not in DATASETS and not Path(name).exists():
        return _two_files(name)
    corpus = open_data(name)
    pairs = _table(corpus.name, _only_document(corpus), source_column, target_column)
    if not len(pairs):
        raise WeftError(f"{corpus.name} has no pairs", expected=f"text in columns {source_column} and {target_column}")
    return pairs


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


def _two_files(name: str) -> Pairs:
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
    pairs = Pairs(name, [], [])
    for number, sides in enumerate(zip(sources, targets, strict=True), start=1):
        _add(pairs, *sides, f"{left.location}:{number}", f"{right.location}:{number}")
    return pairs


def _table(name: str, document: Document, source_column: int, target_column: int) -> Pairs:
    pairs = Pairs(name, [], [])
    most = max(source_column, target_column)
    for number, line in enumerate(_lines(document), start=1):
        columns = line.split("\t")
        location = f"{document.location}:{number}"
        if len(columns) < most:
            if not line.strip():
                continue
            raise _short_line(location, line, len(columns), most)
        _add(pairs, columns[source_column - 1], columns[target_column - 1], location, location)
    return pairs


def _short_line(location: str, line: str, columns: int, most: int) -> WeftError:
    start = line[:40] + "..." * (len(line) > 40)
    if columns == 1:
        return WeftError(
            f"{location}: no tab in {start!r}",
            expected="source and translation separated by a tab",
            hint="SOURCE-FILE,TARGET-FILE, if each side is in its own file",
        )
    return WeftError(f"{location}: {columns} columns in {start!r}", expected=f"at least {most}, separated by tabs")


def _add(pairs: Pairs, source: str, target: str, source_location: str, target_location: str) -> None:
    source, target = source.strip(), target.strip()
    if source and target:
        pairs.sources.append(source)
        pairs.targets.append(target)
    elif source or target:
        location, side, other = (target_location, "target", source) if source else (source_location, "source", target)
        raise WeftError(
            f"{location}: the {side} side of {other[:40]!r} is empty", expected="text on both sides, or on neither"
        )


@dataclass(frozen=True)
class PairCodec:
    """The codecs of source and target; with a joint vocabulary both are the same object."""

    source: Codec
    target: Codec

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def to_json(self) -> dict[str, Any]:
        if self.joint:
            return {"joint": self.source.to_json()}
        return {"source": self.source.to_json(), "target": self.target.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PairCodec:
        if "joint" in data:
            codec = Codec.from_json(data["joint"])
            return cls(codec, codec)
        return cls(Codec.from_json(data["source"]), Codec.from_json(data["target"]))


def build_pair_codec(config: PairTextConfig, pairs: Pairs) -> PairCodec:
    """Build the codecs of both sides from the pairs. Only subword vocabularies can be joint."""
    if config.joint and config.tokenizer == SubwordTokenizer.name:
        codec = build_codec(config, pairs.sources + pairs.targets)
        return PairCodec(codec, codec)
    return PairCodec(build_codec(config, pairs.sources), build_codec(config, pairs.targets))
