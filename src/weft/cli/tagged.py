"""How `weft tag` writes what it found: columns, inline, JSON, or a table given back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.tasks.tag.predictor import SegmentedText, TaggedText, Tagging
    from weft.text.conll import ConllFormat, ConllTable


class Written(NamedTuple):
    """What is written of each sentence."""

    inline: bool
    confidence: bool
    n_best: int
    json_output: bool


def tagged_lines(model: Tagging, texts: Sequence[str], split: str, written: Written) -> Iterator[str]:
    """The lines for each text. A blank text stays blank, so that what is read and what is written go together."""
    found = iter(model.n_best([text for text in texts if text.strip()], written.n_best, split=split))
    for text in texts:
        yield from _sentence(text, next(found) if text.strip() else [], model.knowledge.scheme is not None, written)


def _sentence(text: str, ways: list[TaggedText], spans: bool, written: Written) -> Iterator[str]:
    if written.json_output:
        nothing = {"tags": [], "confidence": [], **({"spans": []} if spans else {}), "probability": 1.0}
        yield _json(text, ways[0].words if ways else (), [_way(way) for way in ways] or [nothing], written)
        return
    for number, way in enumerate(ways, start=1):
        head = f"{number}\t{way.probability:.4f}" if written.n_best > 1 else ""
        sure = [f"{one:.4f}" for one in way.confidence]
        rows = zip(way.words, way.tags, *([sure] if written.confidence else []), strict=True)
        if written.inline:
            yield f"{head}{head and chr(9)}{' '.join(map('/'.join, rows))}\n"
        else:
            yield from [f"# {head}\n"] if head else []
            yield from ("\t".join(row) + "\n" for row in rows)
            yield "\n"
    if not ways:
        yield "\n"


def _json(text: str, words: Sequence[str], ways: list[dict[str, Any]], written: Written) -> str:
    record = {"text": text, "words": words, **ways[0], **({"n_best": ways} if written.n_best > 1 else {})}
    return json.dumps(record, ensure_ascii=False) + "\n"


def _way(way: TaggedText) -> dict[str, Any]:
    record: dict[str, Any] = {"tags": way.tags, "confidence": [round(one, 6) for one in way.confidence]}
    if way.spans is not None:
        record["spans"] = [{**span._asdict(), "words": way.words[span.start : span.end]} for span in way.spans]
    return {**record, "probability": way.probability}


def segmented_lines(model: Tagging, texts: Sequence[str], written: Written) -> Iterator[str]:
    """The words of each text, a line for each way to cut it. A blank text stays blank."""
    given = [text for text in texts if text.strip()]
    if not (written.confidence or written.json_output or written.n_best > 1):
        found = iter(model.segment(given))  # how sure it is takes longer to tell
        yield from (f"{' '.join(next(found))}\n" if text.strip() else "\n" for text in texts)
        return
    ways = iter(model.segment_n_best(given, written.n_best))
    for text in texts:
        yield from _words(text, next(ways) if text.strip() else [], written)


def _words(text: str, ways: list[SegmentedText], written: Written) -> Iterator[str]:
    if written.json_output:
        listed = [
            {
                "words": one.words,
                "confidence": [round(sure, 6) for sure in one.confidence],
                "probability": one.probability,
            }
            for one in ways
        ] or [{"words": (), "confidence": [], "probability": 1.0}]
        yield _json(text, listed[0]["words"], listed, written)  # type: ignore[arg-type]
        return
    for number, way in enumerate(ways, start=1):
        head = f"{number}\t{way.probability:.4f}\t" if written.n_best > 1 else ""
        pairs = zip(way.words, way.confidence, strict=True)
        yield head + " ".join(f"{word}/{sure:.4f}" if written.confidence else word for word, sure in pairs) + "\n"
    if not ways:
        yield "\n"


def tagged_table(model: Tagging, source: str, column: str | None, written: Written) -> Iterator[str]:
    """A table given back with the tags in it; or its sentences as those of a text are."""
    from weft.config import from_dict
    from weft.tasks.tag.config import TagConfig
    from weft.text.conll import read_conll, table_sentences
    from weft.text.corpus import Corpus

    if model.task == "segments":
        raise WeftError(f"{model.run.path} finds words, and is to read a table of them", expected="text without spaces")
    config = from_dict(TagConfig, model.run.config).data
    last = "\n"
    for document in Corpus.open(source).documents():
        table = read_conll(document)
        sentences = [one.words for one in table_sentences(table, words=str(config.word_column), tagged=False)]
        if written.inline or written.json_output or written.n_best > 1:
            for words, ways in zip(sentences, model.n_best(sentences, written.n_best), strict=True):
                yield from _sentence(" ".join(words), ways, model.knowledge.scheme is not None, written)
            continue
        wanted = column or (str(config.tag_column) or "upos" if table.format.conllu else "")
        into = table.format.find(wanted, document.location) if wanted else None
        if last.strip():  # one sentence does not go on from file to file
            yield "\n" if last.endswith(("\n", "\r")) else "\n\n"
        for last in _filled(table, into, model.tag(sentences), model.knowledge.scheme is not None, written.confidence):
            yield last


def _filled(
    table: ConllTable, into: int | None, found: list[TaggedText], spans: bool, confidence: bool
) -> Iterator[str]:
    """The lines of a table, each word's with its tag: in the column `into`, or after the last one."""
    from weft.text.conll import EMPTY_FIELD

    cells: dict[int, tuple[str, str]] = {}
    for rows, one in zip(table.sentences, found, strict=True):
        sure = (f"{chance:.4f}" for chance in one.confidence)
        cells |= dict(zip(rows, zip(one.tags, sure, strict=True), strict=True))
    if into is None:
        # As wide as the other rows, or no reader would take the table.
        cells |= dict.fromkeys(table.breaks, ("O" if spans else "-X-", EMPTY_FIELD))
    for number, line in enumerate(table.lines, start=1):
        if number not in cells:
            yield line
            continue
        bare = line.rstrip("\r\n")
        tag, chance = cells[number]
        row = table.format.add(bare, tag) if into is None else table.format.put(bare, into, tag)
        if confidence:
            row = _with_confidence(table.format, row, chance)
        yield row + line[len(bare) :]


def _with_confidence(layout: ConllFormat, row: str, chance: str) -> str:
    """CoNLL-U has a column for whatever it has no column for."""
    if not layout.conllu:
        return layout.add(row, chance)
    from weft.text.conll import CONLLU, EMPTY_FIELD

    at = CONLLU.index("misc")
    others = [
        one for one in layout.split(row)[at].split("|") if one != EMPTY_FIELD and not re.match("Confidence=", one)
    ]
    return layout.put(row, at, "|".join([*others, f"Confidence={chance}"]))
