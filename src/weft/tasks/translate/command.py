"""The commands of translation: `weft train translate`, `weft translate`, and what `weft eval` reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from weft.errors import warn
from weft.tasks.command import STRICT, Commands, EvaluationReport, Output, TextHelp, TextInput

if TYPE_CHECKING:
    from weft.tasks.translate.predictor import TranslatePredictor, Translation

Beam = Annotated[int, typer.Option(min=1, help="Beam width; 1: greedy search.")]


def translate(
    model: TranslatePredictor,
    texts: Annotated[
        TextInput,
        TextHelp(
            "Sentences to translate; - reads one per line from standard input.",
            "Sentences to translate, one per line: a path, .gz, or - for standard input.",
            missing="there is no text to translate",
            example='weft translate RUN "I am home.", or weft translate RUN --file sentences.txt',
        ),
    ],
    *,
    beam: Beam = 5,
    length_penalty: Annotated[
        float,
        typer.Option(
            min=0, help="Exponent of the length in the score log P / length^x; larger favours longer outputs."
        ),
    ] = 1.0,
    n_best: Annotated[int, typer.Option(min=1, help="How many translations to show of each, with scores.")] = 1,
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="Replace an unknown word by the source word it attends to most.")
    ] = False,
    attention: Annotated[
        bool, typer.Option("--attention", help="Show which source tokens each token attends to.")
    ] = False,
    json: bool = False,
) -> Output:
    """Translate sentences: one line for each, in their order."""
    sentences = texts.lines()
    found = model.n_best(
        sentences,
        n_best,
        beam=max(beam, n_best),
        length_penalty=length_penalty,
        copy_unknown=copy_unknown,
        attention=attention,
    )
    for number, (text, best) in enumerate(zip(sentences, found, strict=True)):
        for note in model.notes([text]):
            warn(note)
        if json:
            yield {"source": text, "translations": [asdict(one) for one in best], "unknown": model.unknown(text)}
        elif n_best == 1 and not attention:
            yield (best[0].text.replace("\n", " ") if best else "") + "\n"
        else:
            yield ("\n" if number else "") + "\n".join(_lines(one, attention) for one in best) + "\n"


def _lines(found: Translation, attention: bool) -> str:
    """The score and the translation; with attention, a line for each token and the source tokens it attends to."""
    lines = [f"{found.score:8.4f}  {found.text}"]
    if attention:
        wide = max(map(len, found.tokens))
        for token, weights in zip(found.tokens, found.attention, strict=True):
            top = sorted(range(len(weights)), key=lambda place: -weights[place])[:3]
            sources = "   ".join(f"{found.source[place].strip()} {weights[place]:.2f}" for place in top)
            lines.append(f"{'':10}{token.strip():{wide}}  <- {sources}")
    return "\n".join(lines)


def evaluate(
    model: TranslatePredictor, data: str | None, *, beam: Beam = 5, strict: Annotated[bool, STRICT] = False
) -> EvaluationReport:
    """BLEU, chrF and exact matches."""
    pairs = None if data is None else model.read(data, strict=strict)
    found = model.evaluate_held_out(beam=beam) if pairs is None else model.evaluate(pairs, beam=beam)
    scores = {"bleu": found.bleu, "chrf": found.chrf, "exact": found.exact}
    lines = [
        f"BLEU         {found.bleu:.2f}",
        f"chrF         {found.chrf:.2f}",
        f"exact match  {found.exact:.2%}",
        f"{len(found):,} pairs, beam {beam}; {found.signature()}",
    ]
    left_out = {} if pairs is None else {"left_out": pairs.left_out}
    record = {"pairs": len(found), **left_out, "beam": beam, **scores, "signature": found.signature()}
    return EvaluationReport(record, lines, [f"{data}: {pairs.reading}"] if pairs and pairs.reading else [])


def pair_options(*, strict: Annotated[bool, STRICT] = False) -> list[str]:
    """The settings that the options of `weft train translate` stand for."""
    return ["text.strict=true"] if strict else []


COMMANDS = Commands(
    summary="Train a translator on sentences and their translations.",
    data="Pairs: a tab-separated file, CSV, JSON lines, two files as a.en,a.fr, .gz, a member of a .zip, - for "
    "standard input, or a name of `weft data`.",
    dev="Held-out pairs; without it some sources of --data are held out.",
    evaluate=evaluate,
    capabilities=("translate",),
    functions=(translate,),
    train_options=pair_options,
)
