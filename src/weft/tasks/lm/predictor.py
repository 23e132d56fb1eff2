"""A trained language model in use: it generates text and is evaluated beside baselines: the uniform distribution,
an n-gram model of its own text, the true entropy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

import numpy as np

from weft.config import setting
from weft.data.windows import Tokens
from weft.decoding import NO_TOKEN, Sample, Sampler, Stepper, generate
from weft.decoding.generation import StopText, check_stops
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.tasks.kneser_ney import modified_kneser_ney
from weft.tasks.operation import (
    EvaluationData,
    EvaluationReport,
    Operation,
    OperationInputs,
    Option,
    ReadInputs,
    Strict,
    operation,
)
from weft.tasks.predictor import NO_OPTIONS, ResultList
from weft.tasks.stored_data import TRAIN_PART, is_stored
from weft.tasks.text_task import TextPredictor, corpus_for, encoded, held_out_tokens, part_tokens, unknown_note
from weft.text.arguments import check_text, check_texts
from weft.text.columns import read_rows
from weft.text.tables import TEXT_NAMES
from weft.text.text_field import StreamingDecoder
from weft.text.vocabulary import EOS, RESERVED
from weft.training.run import DATA_RECORD, read_json

if TYPE_CHECKING:
    from weft.tasks.lm.adapt import AdaptedLmPredictor, CacheConfig, DynamicConfig

LONGEST_TEXT = 100_000  # of a text that is generated to its end
DEFAULT_SAMPLER = Sample(temperature=0.8)

Against = Annotated[
    tuple[str, ...],
    Option("Another run to compare with, on the same text or labels, or nbsvm for a classifier; repeatable."),
]
Adapt = Annotated[
    str | None,
    Option(
        "Adapt to the text that is read: dynamic (the weights follow it), cache (of its last tokens; not for fill), "
        "or both. The run is not changed.",
        requests=(),
    ),
]


@dataclass(frozen=True)
class Sampling(Sample):
    """How the operation `generate` samples."""

    temperature: float = DEFAULT_SAMPLER.temperature
    greedy: bool = setting(False, "always take the most probable token")

    def __post_init__(self) -> None:
        if not self.greedy:
            super().__post_init__()

    def sample(self) -> Sample:
        given = {entry.name: getattr(self, entry.name) for entry in fields(Sample)}
        return Sample(**(given | {"temperature": 1.0, "top_k": 1} if self.greedy else given))


DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True)
class GeneratedText:
    """A prompt and the text that begins with it, which may be in the making."""

    prompt: str
    pieces: Iterable[str]
    unknown: Sequence[str]

    def to_text(self, number: int) -> Iterator[str]:
        yield from self.pieces
        yield "\n"

    def to_json(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "text": "".join(self.pieces), "unknown": self.unknown}


class NextTokenModel(Stepper, Protocol):
    """A model of the next token, as a part of an interpolation."""

    def token_log_probs(self, tokens: Tokens) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The log-probability of each token but the first of (N,), given those before it: (N - 1,)."""
        ...

    def next_probs(self, tokens: Tokens) -> Iterable[np.ndarray[Any, np.dtype[Any]]]:
        """The probabilities (T, V) of every token after each of (N,) but the last, for some of them at a time."""
        ...


class TokenModel(NextTokenModel, Protocol):
    """A language model of any kind: recurrent, n-gram, HMM."""

    @property
    def context(self) -> str:
        """The context of `predict_tokens`: "left" or "both"."""
        ...

    def evaluate(self, tokens: Tokens) -> Likelihood:
        """The likelihood of each token but the first, given those before it."""
        ...

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """Predicts each token but the first from its context."""
        ...


@dataclass(frozen=True, repr=False)
class LmPredictor(TextPredictor[Likelihood]):
    """A trained language model, ready for use."""

    model: TokenModel

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int | None = 200,
        sampler: Sampler = DEFAULT_SAMPLER,
        seed: int = 0,
        stop: str | Iterable[str] = (),
    ) -> str:
        """Continues a prompt.

        Args:
            prompt: The beginning of the text. An empty one starts a new line.
            tokens: How many tokens to generate at most; None: to the end of the text, which a model knows that was
                trained on several texts.
            sampler: `weft.greedy`, or `weft.Sample(temperature, top_k, top_p)`.
            seed: Equal seeds give equal texts.
            stop: A text, or several, before the first of which generation stops.

        Returns:
            The prompt and its continuation.
        """
        return self.generate_many(
            [check_text(prompt, "the prompt")], tokens=tokens, sampler=sampler, seed=seed, stop=stop
        )[0]

    def generate_many(
        self,
        prompts: Iterable[Any],
        *,
        tokens: int | None = 200,
        sampler: Sampler = DEFAULT_SAMPLER,
        seed: int = 0,
        stop: str | Iterable[str] = (),
    ) -> ResultList[str]:
        """Continues every prompt, in one batch. See `generate`.

        `prompts` may be a list, Series, array or generator, or a table such as a DataFrame with a column `prompt` or
        one of text. A missing prompt is an empty one.
        """
        given = read_rows(prompts, names=("prompt", *TEXT_NAMES))
        prompts = given.texts()
        # The prompt as it was given, unknown characters included.
        begins = [self.text_field.normalizer(prompt) for prompt in prompts]
        if stops := check_stops(stop):
            pieces = self.stream(prompts, tokens=tokens, sampler=sampler, seed=seed, stop=stops)
            rests = ["".join(row) for row in zip(*pieces, strict=True)]
        else:
            starts, decode = [self.prompt_ids(prompt) for prompt in prompts], self.text_field.decode
            rows = [list(start) for start in starts]
            for new in self._new_tokens(starts, tokens, sampler, seed):
                for row, token in zip(rows, new, strict=True):
                    row += [token] if token != NO_TOKEN else []
            rests = [decode(row)[len(decode(start)) :] for row, start in zip(rows, starts, strict=True)]
        return ResultList((begin + rest for begin, rest in zip(begins, rests, strict=True)), index=given.index)

    @operation(
        "generate",
        OperationInputs(
            "The beginning of the text; repeatable; - reads one prompt per line.",
            "A file with one prompt per line; - for standard input.",
            option="--prompt",
        ),
    )
    def generate_texts(
        self,
        prompts: Iterable[str],
        *,
        tokens: Annotated[int, Option("How many tokens to generate.", min=0)] = 200,
        sampling: Sampling = DEFAULT_SAMPLING,
        seed: Annotated[int, Option("Random seed; equal seeds give equal texts.", min=0)] = 0,
        stop: Annotated[tuple[str, ...], Option("Stop before this text; repeatable: before the first of them.")] = (),
        until_end: Annotated[
            bool, Option("Generate to the end of the text; --tokens does not apply.", requests=())
        ] = False,
        adapt: Adapt = None,
    ) -> Iterator[GeneratedText]:
        """Continue a prompt. A single prompt is printed as it is generated; several are generated in one batch."""
        model = self if adapt is None else self.adapt(adapt)
        prompts, limit, sampler = list(prompts), None if until_end else tokens, sampling.sample()
        if len(prompts) == 1:
            rest = (piece for (piece,) in model.stream(prompts, tokens=limit, sampler=sampler, seed=seed, stop=stop))
            yield GeneratedText(
                prompts[0], chain([self.text_field.normalizer(prompts[0])], rest), self.unknown(prompts[0])
            )
        elif prompts:
            found = model.generate_many(prompts, tokens=limit, sampler=sampler, seed=seed, stop=stop)
            for prompt, text in zip(prompts, found, strict=True):
                yield GeneratedText(prompt, [text], self.unknown(prompt))

    def stream(
        self,
        prompts: Iterable[str],
        *,
        tokens: int | None = 200,
        sampler: Sampler = DEFAULT_SAMPLER,
        seed: int = 0,
        stop: str | Iterable[str] = (),
    ) -> Iterator[list[str]]:
        """Continues every prompt and yield the text as it is generated: per step one piece for each, perhaps empty."""
        starts = [self.prompt_ids(prompt) for prompt in check_texts(prompts)]
        writers = [StreamingDecoder(self.text_field, start) for start in starts]
        stops = check_stops(stop)
        texts = [StopText(stops) for _ in starts]
        for new in self._new_tokens(starts, tokens, sampler, seed):
            pieces = [
                writer.push(token) if token != NO_TOKEN else "" for writer, token in zip(writers, new, strict=True)
            ]
            yield [text.push(piece) for text, piece in zip(texts, pieces, strict=True)]
            if all(text.ended for text in texts):
                return
        yield [text.push(writer.rest()) + text.rest() for text, writer in zip(texts, writers, strict=True)]

    def _new_tokens(
        self, starts: Sequence[Sequence[int]], tokens: int | None, sampler: Sampler, seed: int
    ) -> Iterator[list[int]]:
        if tokens is None and self.end_id is None:
            raise WeftError(
                f"{self.run.path} was trained on one text and does not know where a text ends",
                expected="a number of `tokens`, or a run trained on several texts: a folder, or a column of a table",
                hint="`tokens=200`",
            )
        tokens = LONGEST_TEXT if tokens is None else tokens
        return generate(self.model, starts, sampler, tokens=tokens, seed=seed, banned=self.banned_ids, end=self.end_id)

    @property
    def end_id(self) -> int | None:
        """The id that ends a text: <eos>, if it occurred in training between texts, not as the end of each line."""
        vocabulary = self.text_field.vocabulary
        between_texts = vocabulary.counts[vocabulary.eos_id] and self.text_field.tokenizer.line_end != EOS
        return vocabulary.eos_id if between_texts else None

    @property
    def banned_ids(self) -> list[int]:
        """The reserved tokens that are never generated."""
        vocabulary = self.text_field.vocabulary
        used = EOS if self.text_field.tokenizer.line_end == EOS or self.end_id is not None else None
        return [vocabulary.id(token) for token in RESERVED if token != used]

    def prompt_ids(self, prompt: str) -> list[int]:
        """The ids of a prompt. An empty one is a line break, or a space where the training text has no lines."""
        vocabulary = self.text_field.vocabulary
        if not check_text(prompt, "the prompt"):
            starts = (self.text_field.tokenizer.line_end, " ")
            return [vocabulary.id(next((one for one in starts if one in vocabulary), vocabulary.tokens[-1]))]
        ids = self.text_field.encode(prompt)
        if not ids:
            raise WeftError(
                f"nothing is left of the prompt {prompt!r} as the model reads text",
                expected=f"text with some of: {' '.join(vocabulary.tokens[len(RESERVED) :][:12])}",
            )
        return ids

    def unknown(self, prompt: str) -> list[str]:
        """The tokens of a prompt that are not in the vocabulary and are read as <unk>."""
        return self.text_field.unknown(prompt)

    def read_inputs(self, operation: Operation, texts: Sequence[str], file: str | None) -> ReadInputs:
        read = super().read_inputs(operation, texts, file)
        return read if texts or file is not None else ReadInputs([""])

    def notes(self, prompts: Iterable[str], options: Mapping[str, Any] = NO_OPTIONS) -> list[str]:
        return [unknown_note(unknown, f"the prompt {one!r}") for one in prompts if (unknown := self.unknown(one))]

    def adapt(
        self,
        method: str = "both",
        *,
        dynamic: DynamicConfig | None = None,
        cache: CacheConfig | None = None,
        cache_weight: float | None = None,
    ) -> AdaptedLmPredictor:
        """A model that adapts to the text it reads. This one, and its run, are not changed.

        Args:
            method: "dynamic": dynamic evaluation, the weights follow the text; "cache": a neural cache of the last
                tokens; "both".
            dynamic: Parameters of dynamic evaluation. None: the defaults, with a learning rate fitted to the run's
                held-out text.
            cache: Parameters of the cache. None: fitted to the run's held-out text.
            cache_weight: The weight of the cache, where `cache` is given.

        Returns:
            An LmPredictor. `evaluate` predicts each token from the text before it, and adapts to it afterwards.
            `generate` adapts to the prompt.

        Raises:
            WeftError: This is not a recurrent model, or the run has no stored text.

        Example:
            model = weft.load("runs/mine")
            print(model.evaluate("other.txt").perplexity, model.adapt("both").evaluate("other.txt").perplexity)
        """
        from weft.tasks.lm.adapt import adapt

        return adapt(self, method, dynamic=dynamic, cache=cache, cache_weight=cache_weight)

    @operation("evaluate", command="eval")
    def evaluation(
        self, data: EvaluationData = None, *, against: Against = (), adapt: Adapt = None, strict: Strict = False
    ) -> EvaluationReport:
        """Perplexity and bits per token, beside baselines; with `against`, token predictions of several models."""
        from weft.tasks.compare import compare_runs

        if against:
            return compare_runs(self, against, data, adapt, strict=strict)
        adapted = None if adapt is None else self.adapt(adapt)  # before the evaluation: what cannot adapt is refused
        if data is None:
            return self._likelihood_report(held_out_tokens(self.run, self.text_field), adapted, {})
        corpus = corpus_for(self.run, data, strict=strict)
        with encoded(corpus, self.text_field) as tokens:
            return self._likelihood_report(tokens, adapted, {"left_out": corpus.left_out})

    def _likelihood_report(
        self, tokens: Tokens, adapted: AdaptedLmPredictor | None, more: Mapping[str, Any]
    ) -> EvaluationReport:
        found, others = self.evaluate_tokens(tokens), baselines(self, tokens)
        beside = None if adapted is None else adapted.evaluate_tokens(tokens)
        level = self.text_field.tokenizer.name
        record: dict[str, Any] = {
            "tokens": found.count,
            "level": level,
            **found.metrics(),
            "bits_per_token": found.bits_per_token,
            "uniform_perplexity": len(self.text_field.vocabulary),
            "signature": found.signature(level),
            "baselines": [{"name": name, **other.metrics()} for name, other in others],
            **more,
        }
        lines = [f"perplexity      {found.perplexity:.3f} per {level}"]
        if adapted is not None and beside is not None:
            record["adapted"] = {**adapted.adaptation.describe(), **beside.metrics()}
            lines.append(f"adapted         {beside.perplexity:.3f} per {level}, while it reads the text")
        wide = max(len(name) for name, _ in others)
        lines += [f"{f'bits per {level}':15} {found.bits_per_token:.3f}", f"tokens          {found.count:,}"]
        for number, (name, other) in enumerate(others):
            lines.append(f"{'' if number else 'baselines':16}{name:{wide}}  {other.perplexity:.3f}")
        return self.report(record, lines)

    def score_tokens(self, tokens: Tokens) -> Likelihood:
        return self.model.evaluate(tokens)


ORDER = 5
BASELINE_TOKENS = 5_000_000  # counted at most, so that the baseline takes no longer than the evaluation
GRAMMAR_DATASET = "grammar"  # the data set whose entropy is known


class Baseline(NamedTuple):
    """A likelihood of the same text to compare with."""

    name: str
    likelihood: Likelihood


def baselines(model: LmPredictor, tokens: Tokens) -> list[Baseline]:
    """The baselines that exist for this model and this text, the strongest first."""
    run, size, count = model.run, len(model.text_field.vocabulary), len(tokens) - 1
    found = [_entropy(model, tokens)] if run.has(DATA_RECORD) else []
    if run.task != "ngram" and is_stored(run, TRAIN_PART):  # the text may have been deleted
        train = part_tokens(run, TRAIN_PART, size)
        part = f" of its first {BASELINE_TOKENS:,} tokens" if len(train) > BASELINE_TOKENS else " of the same text"
        ngram = modified_kneser_ney(train[:BASELINE_TOKENS], size, ORDER)
        found.append(Baseline(f"{ORDER}-gram{part}", ngram.evaluate(tokens)))
    return [*filter(None, found), Baseline("uniform baseline", Likelihood(count * math.log(size), count))]


def _entropy(model: LmPredictor, tokens: Tokens) -> Baseline | None:
    """The entropy of the embedded grammar on the whole lines of a text, if the run was trained on that grammar."""
    from weft.text.grammars.english import ENGLISH

    if read_json(model.run.path / DATA_RECORD)["source"] != GRAMMAR_DATASET:
        return None
    text = model.text_field.decode(tokens.tolist())
    lines = text[text.find("\n") + 1 : text.rfind("\n") + 1]
    if not lines:
        return None
    nats, count = ENGLISH.likelihood(lines).nats, len(model.text_field.encode(lines))
    return Baseline("true distribution", Likelihood(nats, count)) if math.isfinite(nats) else None
