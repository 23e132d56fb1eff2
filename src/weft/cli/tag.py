"""`weft tag` and `weft train tag`: the tag of each word, or the words of a text without spaces."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.output import output
from weft.cli.tagged import Written, segmented_lines, tagged_lines, tagged_table
from weft.cli.texts import given_texts, lines_of
from weft.cli.train import ConfigFile, Json, Out, Resume, Sets, ShowConfig, run_training, train
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.tasks.tag.knowledge import TagScores
    from weft.tasks.tag.predictor import Tagging

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
    from weft.tasks.tag.task import TAG

    given = [*(sets or [])]
    if column is not None:
        given.append(f"data.tag_column={json.dumps(column)}")
    if segment:
        given.append("data.task=segments")
    run_training(TAG, out, data, dev, config, given, resume, json_output, show_config)


def tag(
    run: Annotated[Path, typer.Argument(help="A run directory of `weft train tag`.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; - reads one sentence a line.")] = None,
    file: Annotated[
        str | None, typer.Option(help="A file with one sentence a line, or with --columns a table.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="How texts are cut into words: word, as print has it; space, at spaces alone.  [default: word]"
        ),
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="What is read is a table, a word a row: CoNLL-U or other columns.")
    ] = False,
    column: Annotated[
        str | None,
        typer.Option(
            help="--columns: put the tags there. Without it: where the run's were in CoNLL-U, else in a new one."
        ),
    ] = None,
    inline: Annotated[bool, typer.Option("--inline", help="Write word/TAG, a sentence a line.")] = False,
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence", help="Write how sure the model is of each tag, or of both ends of each word it found."
        ),
    ] = False,
    n_best: Annotated[int, typer.Option(min=1, help="How many ways to tag each sentence.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write there instead of to standard output.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print a JSON line for each sentence.")] = False,
) -> None:
    """Tag the words of each sentence, or cut it into words if the model was trained to.

    Tags are written as columns: word, tag. A blank line stays one. A table of CoNLL-U is given back with its column
    filled in, any other one with a column added, as conlleval reads it.
    """
    from weft.tasks import load_as
    from weft.tasks.tag.predictor import Tagging

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
    if columns and split is not None:
        raise WeftError("--columns reads a table, and --split is for texts", expected="one of the two")
    if column is not None and not columns:
        raise WeftError("there is a --column without --columns", expected="a table that has it")
    model = load_as(run, Tagging, "tag")
    written = Written(inline, confidence, n_best, json_output)
    if columns:
        lines = tagged_table(model, file or "-", column, written)
    elif model.task == "segments":
        if split is not None:
            raise WeftError(f"{run} finds words itself", expected="no --split")
        lines = segmented_lines(model, _texts(texts or [], file), written)
    else:
        if split != "space" and model.unspaced:
            _say(
                f"{run} was trained on words such as {model.unspaced}, and text is cut into single characters: "
                "put spaces between words and give --split space"
            )
        lines = tagged_lines(model, _texts(texts or [], file), split or "word", written)
    with output(out) as stream:
        for line in lines:
            stream.write(line)


def _texts(given: list[str], file: str | None) -> list[str]:
    """The texts as they are given; those of a file or of standard input, one a line."""
    if file is not None:
        return lines_of(file)
    if not all(one.strip() for one in given):
        raise WeftError("the text is empty", expected="at least one word")
    return given_texts(given)


def show_scores(model: Tagging, data: str | None, column: str | None, json_output: bool) -> None:
    """What `weft eval` prints for a tagger."""
    from weft.metrics.tagging import WordScores

    if data:
        read = model.read(data, column=column or "")
        for note in read.notes:
            _say(note)
        found = model.score(read.sentences)
    elif column is not None:
        raise WeftError("there is a --column without --data", expected="the table that has it")
    else:
        found = model.measure_held_out()
    if json_output:
        record: dict[str, Any] = {"score": found.score(), **found.metrics(), "signature": found.signature()}
        if not isinstance(found, WordScores) and found.spans is not None:
            record["kinds"] = {kind: vars(one) | {"f1": one.f1} for kind, one in sorted(found.spans.labels.items())}
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
            typer.echo(f"  {name:13}  {hits.accuracy:.4f} of {hits.count:,}")


def _show_tags(found: TagScores) -> None:
    from weft.text.conll import count_noun

    typer.echo(f"accuracy         {found.words.accuracy:.4f} of {count_noun(found.words.all.count, 'word')}")
    for name, hits in (("known words", found.words.known), ("unknown words", found.words.unknown)):
        if hits.count:
            typer.echo(f"  {name:13}  {hits.accuracy:.4f} of {hits.count:,}")
    if found.spans is None:
        return
    kinds = sorted(found.spans.labels.items())
    wide = max([8, *(len(kind) for kind, _ in kinds)])
    typer.echo(f"\n{'spans':{wide}}  precision  recall      F1  there are   found")
    for kind, one in [*kinds, ("all", found.spans.all)]:
        numbers = f"{one.precision:9.4f}  {one.recall:6.4f}  {one.f1:6.4f}  {one.true:9,}  {one.predicted:6,}"
        typer.echo(f"{kind:{wide}}  {numbers}")


def _say(message: str) -> None:
    print(f"weft: {message}", file=sys.stderr, flush=True)
