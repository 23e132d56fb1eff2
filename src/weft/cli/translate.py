"""`weft train translate` and `weft translate`: sentences into another language."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.output import output
from weft.cli.texts import given_texts, lines_of
from weft.cli.train import ConfigFile, Json, Out, Resume, Sets, ShowConfig, run_training, train
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.tasks.translate.predictor import Translating, Translation

PairData = Annotated[
    str | None,
    typer.Option(
        help="Pairs: a tab-separated file, two files as a.en,a.fr, .gz, a member of a .zip, - for standard input, "
        "or a name of `weft data`."
    ),
]
PairDev = Annotated[str | None, typer.Option(help="Held-out pairs; without it some sources of --data are held out.")]


@train.command(name="translate")
def train_translate(
    out: Out = None,
    data: PairData = None,
    dev: PairDev = None,
    config: ConfigFile = None,
    sets: Sets = None,
    resume: Resume = False,
    json_output: Json = False,
    show_config: ShowConfig = False,
) -> None:
    """Train a translator on sentences and their translations.

    With --resume the same command can be given again and again: it goes on where it stopped.
    """
    from weft.tasks.translate.task import TRANSLATE

    run_training(TRANSLATE, out, data, dev, config, sets or [], resume, json_output, show_config)


def translate(
    run: Annotated[Path, typer.Argument(help="A run directory of `weft train translate`.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Sentences to translate; - reads one a line from standard input.")
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="Sentences to translate, one a line: a path, .gz, or - for standard input.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A file for the translations, instead of standard output.")] = None,
    beam: Annotated[int, typer.Option(min=1, help="Translations looked for side by side; 1: greedy.")] = 5,
    length_penalty: Annotated[
        float, typer.Option(min=0, help="The score is log P / length to this power: more is kinder to long ones.")
    ] = 0.75,
    n_best: Annotated[int, typer.Option(min=1, help="How many translations to show of each, with scores.")] = 1,
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="Copy the most attended source word where one is not known.")
    ] = False,
    attention: Annotated[
        bool, typer.Option("--attention", help="Show which source token each token comes from.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print a JSON line for each sentence.")] = False,
) -> None:
    """Translate sentences: a line for each, in their order."""
    from weft.tasks import load_as
    from weft.tasks.translate.predictor import Translating

    if (not texts) == (file is None):
        raise WeftError(
            "there is no text to translate" if not texts else "there are texts and a --file",
            expected="one of the two",
            hint='weft translate RUN "I am home.", or weft translate RUN --file sentences.txt',
        )
    with output(out) as stream:  # first, so that a place that cannot be written is told of at once
        model = load_as(run, Translating, "translate")
        sentences = given_texts(texts or []) if file is None else lines_of(file)
        found = model.n_best(
            sentences,
            n_best,
            beam=max(beam, n_best),
            length_penalty=length_penalty,
            copy_unknown=copy_unknown,
            attention=attention,
        )
        for number, (text, best) in enumerate(zip(sentences, found, strict=True)):
            _warn(model, text)
            if json_output:
                record = {"source": text, "translations": [asdict(one) for one in best], "unknown": model.unknown(text)}
                line = json.dumps(record, ensure_ascii=False)
            elif n_best == 1 and not attention:
                line = best[0].text.replace("\n", " ") if best else ""
            else:
                line = ("\n" if number else "") + "\n".join(_in_words(one, attention) for one in best)
            stream.write(line + "\n")


def _warn(model: Translating, text: str) -> None:
    """Say what of a sentence is not known."""
    if unknown := model.unknown(text):
        names = ", ".join(map(repr, unknown))
        print(f"weft: the model does not know {names} in {text!r}, and reads <unk>", file=sys.stderr)


def _in_words(found: Translation, attention: bool) -> str:
    """The score and the translation; with attention, a line for each token and where it comes from."""
    lines = [f"{found.score:8.4f}  {found.text}"]
    if attention:
        wide = max(map(len, found.tokens))
        for token, weights in zip(found.tokens, found.attention, strict=True):
            most = sorted(range(len(weights)), key=lambda place: -weights[place])[:3]
            places = "   ".join(f"{found.source[place].strip()} {weights[place]:.2f}" for place in most)
            lines.append(f"{'':10}{token.strip():{wide}}  <- {places}")
    return "\n".join(lines)


def print_scores(model: Translating, data: str | None, beam: int, json_output: bool) -> None:
    """What `weft eval` prints of a translator."""
    found = model.measure(data, beam=beam) if data else model.measure_held_out(beam=beam)
    scores = {"bleu": found.bleu, "chrf": found.chrf, "exact": found.exact}
    if json_output:
        typer.echo(json.dumps({"pairs": len(found), "beam": beam, **scores, "signature": found.signature()}))
        return
    typer.echo(f"BLEU         {found.bleu:.2f}")
    typer.echo(f"chrF         {found.chrf:.2f}")
    typer.echo(f"exact match  {found.exact:.2%}")
    typer.echo(f"{len(found):,} pairs, beam {beam}; {found.signature()}")
