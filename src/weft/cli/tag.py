"""`weft tag` and `weft train tag`: the tag of each word, or the words of a text without spaces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.output import output
from weft.cli.texts import given_texts, lines_of
from weft.cli.train import ConfigFile, Json, Out, Resume, Sets, ShowConfig, run_training, train
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.service.tag import TaggedText, Tagging
    from weft.service.tagged import TagScores
    from weft.text.columns import Block, Layout

Sentences = Annotated[
    str | None,
    typer.Option(
        help="Tagged sentences: CoNLL-U or other columns, also as .gz or in a .zip, - for standard input, or grammar. "
        "With --segment: text with spaces between words, or CoNLL-U."
    ),
]
HeldOut = Annotated[str | None, typer.Option(help="Held-out sentences; without it some of --data, by chance.")]


@train.command(name="tag")
def train_tag(
    out: Out = None,
    data: Sentences = None,
    dev: HeldOut = None,
    column: Annotated[
        str | None, typer.Option(help="The column of the tags: a name of CoNLL-U, a number from 1, or -1 for the last.")
    ] = None,
    segment: Annotated[bool, typer.Option("--segment", help="Learn to find the words of a text.")] = False,
    config: ConfigFile = None,
    sets: Sets = None,
    resume: Resume = False,
    json_output: Json = False,
    show_config: ShowConfig = False,
) -> None:
    """Train a tagger: it learns to tell the tag of each word, or with --segment where words begin and end.

    Tags may be parts of speech or whatever else a word has; spans as BIO or BIOES are known by their letters.
    With --resume the same command can be given again and again: it goes on where it stopped.
    """
    from weft.service.tag import TAG

    given = [*(sets or [])]
    if column is not None:
        given.append(f"data.column={json.dumps(column)}")
    if segment:
        given.append("data.task=segments")
    run_training(TAG, out, data, dev, config, given, resume, json_output, show_config)


def tag(
    run: Annotated[Path, typer.Argument(help="A run directory of `weft train tag`.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; - reads one sentence a line.")] = None,
    file: Annotated[
        str | None, typer.Option(help="A file with one sentence a line, or with --columns a table.")
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="What is read is a table, a word a row: CoNLL-U or other columns.")
    ] = False,
    inline: Annotated[bool, typer.Option("--inline", help="Write word/TAG, a sentence a line.")] = False,
    n_best: Annotated[int, typer.Option(min=1, help="How many ways to tag each sentence.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write there instead of to standard output.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print a JSON line for each sentence.")] = False,
) -> None:
    """Tag the words of each sentence, or cut it into words if the model was trained to.

    Tags are written as columns: word, tag. A table of CoNLL-U is given back with its column filled in, any other one
    with a column added, as conlleval reads it.
    """
    from weft.service import load_as
    from weft.service.tag import Tagging

    if (not texts) == (file is None):
        raise WeftError(
            "there are texts and a --file" if texts else "there is no text to tag",
            expected="one of the two",
            hint='weft tag RUN "some text", or weft tag RUN --file sentences.txt',
        )
    if columns and texts and texts != ["-"]:
        raise WeftError(
            "--columns reads a table, and texts are given", expected="--file TABLE, or - for standard input"
        )
    model = load_as(run, Tagging, "tag")
    if columns:
        lines = _table(model, file or "-", inline, n_best, json_output)
    elif model.task == "segments":
        lines = _segmented(model, _texts(texts or [], file), n_best, json_output)
    else:
        lines = _tagged(
            model, [text for text in _texts(texts or [], file) if text.strip()], inline, n_best, json_output
        )
    with output(out) as stream:
        for line in lines:
            stream.write(line + "\n")


def _texts(given: list[str], file: str | None) -> list[str]:
    """The texts as they are given; those of a file or of standard input, one a line."""
    if file is not None:
        return lines_of(file)
    if not all(one.strip() for one in given):
        raise WeftError("the text is empty", expected="at least one word")
    return given_texts(given)


def _tagged(model: Tagging, texts: Any, inline: bool, n_best: int, json_output: bool) -> Iterator[str]:
    for ways in model.n_best(texts, n_best):
        if json_output:
            yield json.dumps(_record(ways), ensure_ascii=False)
            continue
        for number, way in enumerate(ways, start=1):
            head = f"{number}\t{way.probability:.4f}" if n_best > 1 else ""
            if inline:
                text = " ".join(f"{word}/{tag}" for word, tag in zip(way.words, way.tags, strict=True))
                yield f"{head}\t{text}" if head else text
            else:
                if head:
                    yield f"# {head}"
                yield from (f"{word}\t{tag}" for word, tag in zip(way.words, way.tags, strict=True))
                yield ""


def _record(ways: list[TaggedText]) -> dict[str, Any]:
    found = [_way(way) for way in ways]
    return {"words": ways[0].words, **found[0], **({"n_best": found} if len(found) > 1 else {})}


def _way(way: TaggedText) -> dict[str, Any]:
    record: dict[str, Any] = {"tags": way.tags, "confidence": [round(one, 6) for one in way.confidence]}
    if way.spans is not None:
        record["spans"] = [{**span._asdict(), "words": way.words[span.begin : span.end]} for span in way.spans]
    return {**record, "probability": way.probability}


def _segmented(model: Tagging, texts: list[str], n_best: int, json_output: bool) -> Iterator[str]:
    found = iter(model.segment_n_best([text for text in texts if text.strip()], n_best))
    for text in texts:
        ways = next(found) if text.strip() else []  # a blank line stays one, so that lines still belong together
        if json_output:
            listed = [{"words": words, "probability": probability} for words, probability in ways]
            if listed:
                record = {"text": text, **listed[0], **({"n_best": listed} if n_best > 1 else {})}
                yield json.dumps(record, ensure_ascii=False)
        elif n_best > 1:
            yield from (
                f"{number}\t{chance:.4f}\t{' '.join(words)}" for number, (words, chance) in enumerate(ways, start=1)
            )
        else:
            yield " ".join(ways[0][0]) if ways else ""


def _table(model: Tagging, source: str, inline: bool, n_best: int, json_output: bool) -> Iterator[str]:
    """A table given back with the tags in it; or its sentences as those of a text are."""
    from weft.config import TagConfig, from_dict
    from weft.text.columns import read_blocks
    from weft.text.corpus import Corpus

    if model.task == "segments":
        raise WeftError(f"{model.run.path} finds words, and is to read a table of them", expected="text without spaces")
    config = from_dict(TagConfig, model.run.config).data
    for document in Corpus.open(source).documents():
        layout, blocks = read_blocks(document)
        at = layout.find(str(config.words) or ("form" if layout.conllu else "1"), document.place)
        sentences = [[fields[at] for fields in block.rows.values()] for block in blocks]
        if inline or json_output or n_best > 1:
            yield from _tagged(model, sentences, inline, n_best, json_output)
            continue
        into = layout.find(str(config.column) or "upos", document.place) if layout.conllu else None
        for block, found in zip(blocks, model.tag(sentences), strict=True):
            yield from _filled(block, layout, into, found)
            yield ""


def _filled(block: Block, layout: Layout, into: int | None, found: TaggedText) -> Iterator[str]:
    """The lines of a sentence, each word's with its tag: in the column `into`, or after the last one."""
    tags = iter(found.tags)
    for number, line in enumerate(block.lines):
        if number not in block.rows:
            yield line
        elif into is None:
            yield f"{line}{chr(9) if layout.tabs else ' '}{next(tags)}"
        else:
            fields = list(block.rows[number])
            fields[into] = next(tags)
            yield "\t".join(fields)


def show_scores(model: Tagging, data: str | None, json_output: bool) -> None:
    """What `weft eval` prints for a tagger."""
    from weft.metrics.tagging import WordScores

    if data:
        read = model.read(data)
        for note in read.notes:
            print(f"weft: {note}", file=sys.stderr, flush=True)
        found = model.score(read.sentences)
    else:
        found = model.measure_held_out()
    if json_output:
        record: dict[str, Any] = {"score": found.score(), **found.facts(), "signature": found.signature()}
        if not isinstance(found, WordScores) and found.spans is not None:
            record["kinds"] = {kind: vars(one) | {"f1": one.f1} for kind, one in sorted(found.spans.kinds.items())}
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    if isinstance(found, WordScores):
        _show_words(found)
    else:
        _show_tags(found)


def _show_words(found: Any) -> None:
    typer.echo(f"word F1          {found.words.f1:.4f}")
    typer.echo(f"precision        {found.words.precision:.4f}")
    typer.echo(f"recall           {found.words.recall:.4f}")
    for name, hits in (("known words", found.known), ("unknown words", found.unknown)):
        if hits.count:
            typer.echo(f"  {name:13}  {hits.share:.4f} of {hits.count:,}")


def _show_tags(found: TagScores) -> None:
    typer.echo(f"accuracy         {found.words.accuracy:.4f} of {found.words.all.count:,} words")
    for name, hits in (("known words", found.words.known), ("unknown words", found.words.unknown)):
        if hits.count:
            typer.echo(f"  {name:13}  {hits.share:.4f} of {hits.count:,}")
    if found.spans is None:
        return
    kinds = sorted(found.spans.kinds.items())
    wide = max([8, *(len(kind) for kind, _ in kinds)])
    typer.echo(f"\n{'spans':{wide}}  precision  recall      F1  there are   found")
    for kind, one in [*kinds, ("all", found.spans.all)]:
        numbers = f"{one.precision:9.4f}  {one.recall:6.4f}  {one.f1:6.4f}  {one.true:9,}  {one.found:6,}"
        typer.echo(f"{kind:{wide}}  {numbers}")
