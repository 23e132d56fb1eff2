"""The commands of tagging: `weft train tag`, `weft tag`, and what `weft eval` reports."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from weft.errors import WeftError, warn
from weft.tasks.command import STRICT, Commands, EvaluationReport, Output, TextHelp, TextInput, name_option

if TYPE_CHECKING:
    from weft.metrics.tagging import WordScores
    from weft.tasks.tag.evaluation import TagScores
    from weft.tasks.tag.predictor import SegmentedText, TaggedText, TagPredictor


class Style(NamedTuple):
    """How results are written."""

    inline: bool
    confidence: bool
    n_best: int
    json: bool


def tag(
    model: TagPredictor,
    texts: Annotated[
        TextInput,
        TextHelp(
            "Texts; - reads one sentence per line.",
            "A file with one sentence per line, or with --columns a table.",
            missing="there is no text to tag",
            example='weft tag RUN "some text", or weft tag RUN --file sentences.txt',
        ),
    ],
    *,
    split: Annotated[
        str | None,
        typer.Option(
            help="How to split texts into words: word, by the word tokenizer; space, at spaces.  [default: word]"
        ),
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="The input is a table with one word per row: CoNLL-U or other columns.")
    ] = False,
    column: Annotated[
        str | None,
        name_option(
            "--column",
            "--columns: put the tags there. Without it: in CoNLL-U where the training tags were, else in a new column.",
        ),
    ] = None,
    inline: Annotated[bool, typer.Option("--inline", help="Write word/TAG, one sentence per line.")] = False,
    confidence: Annotated[
        bool,
        typer.Option("--confidence", help="Write the probability of each tag, or of each segmented word."),
    ] = False,
    n_best: Annotated[int, typer.Option(min=1, help="How many tag sequences to write for each sentence.")] = 1,
    json: bool = False,
) -> Output:
    """Tag the words of each sentence, or segment it into words if the model was trained to.

    Tags are written as columns: word, tag. A blank line stays blank. A CoNLL-U table is returned with its tag column
    filled in, any other table with a column added, as conlleval reads it.
    """
    style = Style(inline, confidence, n_best, json)
    if columns:
        if texts.given and texts.given != ("-",):
            raise WeftError(
                "--columns reads a table, and texts are given", expected="--file TABLE, or - for standard input"
            )
        if split is not None:
            raise WeftError("--columns reads a table, and --split is for texts", expected="one of the two")
        return _table(model, texts.file or "-", column, style)
    if column is not None:
        raise WeftError("there is a --column without --columns", expected="a table that has it")
    if not all(text.strip() for text in texts.given):
        raise WeftError("the text is empty", expected="at least one word")
    if model.task == "segments":
        if split is not None:
            raise WeftError(f"{model.run.path} segments text into words itself", expected="no --split")
        return _segmented(model, texts.lines(), style)
    for note in model.notes(split or "word"):
        warn(note)
    return _tagged(model, texts.lines(), split or "word", style)


def _tagged(model: TagPredictor, texts: Sequence[str], split: str, style: Style) -> Output:
    """The tags of each text. A blank text stays blank, so that input and output lines correspond."""
    for text, paths in zip(texts, model.n_best(texts, style.n_best, split=split), strict=True):
        yield from _sentence(text, paths, model.vocabulary.scheme is not None, style)


def _sentence(text: str, paths: list[TaggedText], spans: bool, style: Style) -> Output:
    if style.json:
        yield tagged_record(text, paths, spans, style.n_best)
        return
    for number, path in enumerate(paths, start=1):
        head = f"{number}\t{path.probability:.4f}" if style.n_best > 1 else ""
        probabilities = [f"{value:.4f}" for value in path.confidence]
        rows = zip(path.words, path.tags, *([probabilities] if style.confidence else []), strict=True)
        if style.inline:
            yield f"{head}{head and chr(9)}{' '.join(map('/'.join, rows))}\n"
        else:
            yield from [f"# {head}\n"] if head else []
            yield from ("\t".join(row) + "\n" for row in rows)
            yield "\n"
    if not paths:
        yield "\n"


def tagged_record(text: str, paths: list[TaggedText], spans: bool, n_best: int) -> dict[str, Any]:
    """Tags as `--json` writes them; a blank text has no paths."""
    blank = {"tags": [], "confidence": [], **({"spans": []} if spans else {}), "probability": 1.0}
    return _record(text, paths[0].words if paths else (), [_tags(path) for path in paths] or [blank], n_best)


def segmented_record(text: str, paths: list[SegmentedText], n_best: int) -> dict[str, Any]:
    """Words as `--json` writes them; a blank text has no paths."""
    listed: list[dict[str, Any]] = [
        {
            "words": path.words,
            "confidence": [round(value, 6) for value in path.confidence],
            "probability": path.probability,
        }
        for path in paths
    ] or [{"words": (), "confidence": [], "probability": 1.0}]
    return _record(text, listed[0]["words"], listed, n_best)


def _record(text: str, words: Sequence[str], paths: list[dict[str, Any]], n_best: int) -> dict[str, Any]:
    return {"text": text, "words": words, **paths[0], **({"n_best": paths} if n_best > 1 else {})}


def _tags(path: TaggedText) -> dict[str, Any]:
    record: dict[str, Any] = {"tags": path.tags, "confidence": [round(value, 6) for value in path.confidence]}
    if path.spans is not None:
        record["spans"] = [{**span._asdict(), "words": path.words[span.start : span.end]} for span in path.spans]
    return {**record, "probability": path.probability}


def _segmented(model: TagPredictor, texts: Sequence[str], style: Style) -> Output:
    """The words of each text, one line for each segmentation. A blank text stays blank."""
    if not (style.confidence or style.json or style.n_best > 1):
        # without probabilities, which take longer
        yield from (f"{' '.join(words)}\n" for words in model.segment(texts))
        return
    for text, paths in zip(texts, model.segment_n_best(texts, style.n_best), strict=True):
        yield from _words(text, paths, style)


def _words(text: str, paths: list[SegmentedText], style: Style) -> Output:
    if style.json:
        yield segmented_record(text, paths, style.n_best)
        return
    for number, path in enumerate(paths, start=1):
        head = f"{number}\t{path.probability:.4f}\t" if style.n_best > 1 else ""
        pairs = zip(path.words, path.confidence, strict=True)
        yield head + " ".join(f"{word}/{value:.4f}" if style.confidence else word for word, value in pairs) + "\n"
    if not paths:
        yield "\n"


def _table(model: TagPredictor, source: str, column: str | None, style: Style) -> Output:
    """A table with its tags; or its sentences, in another style."""
    if not (style.inline or style.json or style.n_best > 1):
        yield from model.tag_table(source, column=column or "", confidence=style.confidence)
        return
    sentences = model.read_table(source)
    for words, paths in zip(sentences, model.n_best(sentences, style.n_best), strict=True):
        yield from _sentence(" ".join(words), paths, model.vocabulary.scheme is not None, style)


def evaluate(
    model: TagPredictor,
    data: str | None,
    *,
    column: Annotated[
        str | None,
        name_option("--column", "The column of the tags in --data, if it is not that of the training data."),
    ] = None,
    strict: Annotated[bool, STRICT] = False,
) -> EvaluationReport:
    """Accuracy, and F1 of spans or of words."""
    from weft.metrics.tagging import WordScores

    notes: list[str] = []
    left_out = {}
    if data is not None:
        read = model.read(data, column=column or "", strict=strict)
        notes, found, left_out = read.notes, model.score(read.sentences), {"left_out": read.left_out}
    elif column is not None:
        raise WeftError("there is a --column without --data", expected="the table that has it")
    else:
        found = model.evaluate_held_out()
    record: dict[str, Any] = {"score": found.score(), **found.metrics(), **left_out, "signature": found.signature()}
    if isinstance(found, WordScores):
        return EvaluationReport(record, list(_word_lines(found)), notes)
    if found.spans is not None:
        record["labels"] = {label: vars(one) | {"f1": one.f1} for label, one in sorted(found.spans.labels.items())}
    return EvaluationReport(record, list(_tag_lines(found)), notes)


def _word_lines(found: WordScores) -> Iterator[str]:
    yield f"word F1          {found.words.f1:.4f}"
    yield f"precision        {found.words.precision:.4f}"
    yield f"recall           {found.words.recall:.4f}"
    for name, hits in (("known words", found.known), ("unknown words", found.unknown)):
        if hits.count:
            yield f"  {name:13}  {hits.accuracy:.4f} of {hits.count:,}"


def _tag_lines(found: TagScores) -> Iterator[str]:
    from weft.text.conll import count_noun

    yield f"accuracy         {found.words.accuracy:.4f} of {count_noun(found.words.all.count, 'word')}"
    for name, hits in (("known words", found.words.known), ("unknown words", found.words.unknown)):
        if hits.count:
            yield f"  {name:13}  {hits.accuracy:.4f} of {hits.count:,}"
    if found.spans is None:
        return
    kinds = sorted(found.spans.labels.items())
    wide = max([8, *(len(kind) for kind, _ in kinds)])
    yield ""
    yield f"{'spans':{wide}}  precision  recall      F1       true   found"
    for kind, one in [*kinds, ("all", found.spans.all)]:
        numbers = f"{one.precision:9.4f}  {one.recall:6.4f}  {one.f1:6.4f}  {one.true:9,}  {one.predicted:6,}"
        yield f"{kind:{wide}}  {numbers}"


def train_options(
    *,
    column: Annotated[
        str | None,
        name_option("--column", "The column of the tags: a name of CoNLL-U, a number from 1, or -1 for the last."),
    ] = None,
    segment: Annotated[bool, typer.Option("--segment", help="Learn to segment text into words.")] = False,
    strict: Annotated[bool, STRICT] = False,
) -> list[str]:
    """The settings that the options of `weft train tag` stand for."""
    settings = [] if column is None else [f"data.tag_column={json_format.dumps(column)}"]
    settings += ["data.task=segments"] if segment else []
    return [*settings, *(["data.strict=true"] if strict else [])]


COMMANDS = Commands(
    summary="Train a tagger: it predicts the tag of each word or, with --segment, where words begin and end.",
    details="Tags may be parts of speech or any others; spans in BIO, BIOES and similar schemes are detected.",
    data="Tagged sentences: CoNLL-U or other columns, CSV, JSON lines, also as .gz or in a .zip, - for standard input, "
    "or grammar. With --segment: text with spaces between words, or CoNLL-U.",
    dev="Held-out sentences; without it a random part of --data is held out.",
    evaluate=evaluate,
    capabilities=("tag",),
    functions=(tag,),
    train_options=train_options,
    takes_encoder=True,
)
