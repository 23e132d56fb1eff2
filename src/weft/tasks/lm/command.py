"""The commands of language models: `weft train lm`, `weft generate`, and what `weft eval` reports."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.errors import warn
from weft.tasks.command import (
    STRICT,
    Commands,
    EvaluationReport,
    Output,
    TextHelp,
    TextInput,
    name_option,
    path_option,
)

if TYPE_CHECKING:
    from weft.data.windows import Tokens
    from weft.tasks.lm.adapt import AdaptedLmPredictor
    from weft.tasks.lm.predictor import LmPredictor

TEXT_DATA = "Text: a file, a folder, .gz, .zip, - for standard input, or a name of `weft data`."
TEXT_DEV = "Held-out text; without it the end of --data is held out."
Against = Annotated[
    list[Path] | None,
    path_option(
        "--against", "Another run to compare with, on the same text or labels, or nbsvm for a classifier; repeatable."
    ),
]

ADAPT_HELP = (
    "Adapt to the text that is read: dynamic (the weights follow it), cache (of its last tokens; not for fill), "
    "or both. The run is not changed."
)
Adapt = Annotated[str | None, name_option("--adapt", ADAPT_HELP)]


def generate(
    model: LmPredictor,
    texts: Annotated[
        TextInput,
        TextHelp(
            "The beginning of the text; repeatable; - reads one prompt per line.",
            "A file with one prompt per line; - for standard input.",
            option="--prompt",
        ),
    ],
    *,
    tokens: Annotated[int, typer.Option(min=0, help="How many tokens to generate.")] = 200,
    temperature: Annotated[
        float, typer.Option(help="Sampling temperature: below 1 more conservative, above 1 more diverse.")
    ] = 0.8,
    top_k: Annotated[int, typer.Option(help="Sample from the k most probable tokens; 0: all.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="Sample from the fewest tokens whose probabilities sum to at least this.")
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Leave out tokens less probable than this times the most probable one.")
    ] = 0.0,
    typical_p: Annotated[
        float,
        typer.Option(
            help="Sample from the tokens with a surprisal closest to the entropy, the fewest whose probabilities sum "
            "to at least this."
        ),
    ] = 1.0,
    repetition_penalty: Annotated[
        float,
        typer.Option(
            help="Multiply the log-probability of tokens of the text so far, the prompt included: above 1 less "
            "repetition."
        ),
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option(help="Subtract this from the log-probability of tokens generated before.")
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="The same for each time that a token was generated before.")
    ] = 0.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the most probable token.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal texts.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop before this text; repeatable: before the first of them.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Generate to the end of the text; --tokens does not apply.")
    ] = False,
    adapt: Adapt = None,
    json: bool = False,
) -> Output:
    """Continue a prompt. A single prompt is printed as it is generated; several are generated in one batch."""
    from weft import decoding

    if adapt is not None:
        model = model.adapt(adapt)
    limit = None if until_end else tokens
    sampler = decoding.Sample(
        temperature=1.0 if greedy else temperature,
        top_k=1 if greedy else top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
    )
    prompts = texts.lines() if texts.given or texts.file is not None else [""]
    for note in model.notes(prompts):
        warn(note)
    if not prompts:
        return
    if json:
        found = model.generate_many(prompts, tokens=limit, sampler=sampler, seed=seed, stop=stop or ())
        for prompt, text in zip(prompts, found, strict=True):
            yield {"prompt": prompt, "text": text, "unknown": model.unknown(prompt)}
    elif len(prompts) == 1:
        yield model.codec.normalizer(prompts[0])
        for (piece,) in model.stream(prompts, tokens=limit, sampler=sampler, seed=seed, stop=stop or ()):
            yield piece
        yield "\n"
    else:
        for text in model.generate_many(prompts, tokens=limit, sampler=sampler, seed=seed, stop=stop or ()):
            yield f"{text}\n"


def evaluate(
    model: LmPredictor,
    data: str | None,
    *,
    against: Against = None,
    adapt: Adapt = None,
    strict: Annotated[bool, STRICT] = False,
) -> EvaluationReport:
    """Perplexity and bits per token, beside baselines; with --against, token predictions of several models."""
    from weft.tasks.compare import compare_runs
    from weft.tasks.text_task import corpus_for, encoded, held_out_tokens

    if against:
        return compare_runs(model, against, data, adapt, strict=strict)
    adapted = None if adapt is None else model.adapt(adapt)  # before the evaluation: what cannot adapt is refused
    if data is None:
        return _likelihood(model, held_out_tokens(model.run, model.codec), adapted)
    corpus = corpus_for(model.run, data, strict=strict)
    with encoded(corpus, model.codec) as tokens:
        found = _likelihood(model, tokens, adapted)
    return found._replace(record={**found.record, "left_out": corpus.left_out})


def _likelihood(model: LmPredictor, tokens: Tokens, adapted: AdaptedLmPredictor | None) -> EvaluationReport:
    from weft.tasks.lm.baselines import baselines

    found, others = model.evaluate_tokens(tokens), baselines(model, tokens)
    beside = None if adapted is None else adapted.evaluate_tokens(tokens)
    level = model.codec.tokenizer.name
    record: dict[str, Any] = {
        "tokens": found.count,
        "level": level,
        "cross_entropy": found.cross_entropy,
        "bits_per_token": found.bits_per_token,
        "perplexity": found.perplexity,
        "uniform_perplexity": len(model.codec.vocabulary),
        "signature": found.signature(level),
        "baselines": [
            {"name": name, "perplexity": other.perplexity, "cross_entropy": other.cross_entropy}
            for name, other in others
        ],
    }
    if adapted is not None and beside is not None:
        record["adapted"] = {
            **adapted.adaptation.describe(),
            "cross_entropy": beside.cross_entropy,
            "perplexity": beside.perplexity,
        }
    wide = max(len(name) for name, _ in others)
    lines = [
        f"perplexity      {found.perplexity:.3f} per {level}",
        *([] if beside is None else [f"adapted         {beside.perplexity:.3f} per {level}, while it reads the text"]),
        f"{f'bits per {level}':15} {found.bits_per_token:.3f}",
        f"tokens          {found.count:,}",
        *(
            f"{'' if number else 'baselines':16}{name:{wide}}  {other.perplexity:.3f}"
            for number, (name, other) in enumerate(others)
        ),
    ]
    return EvaluationReport(record, lines)


def text_options(
    *,
    column: Annotated[
        str | None,
        name_option("--column", "Read this column of CSV, TSV or JSON lines, a name or a number; each row is a text."),
    ] = None,
    strict: Annotated[bool, STRICT] = False,
) -> list[str]:
    """The settings that the options of `weft train` of a task on text stand for."""
    settings = [] if column is None else [f"text.column={json_format.dumps(column)}"]
    return [*settings, *(["text.strict=true"] if strict else [])]


COMMANDS = Commands(
    summary="Train a recurrent language model: it predicts the next token and generates text.",
    data=TEXT_DATA,
    dev=TEXT_DEV,
    evaluate=evaluate,
    capabilities=("generate",),
    functions=(generate,),
    train_options=text_options,
)
