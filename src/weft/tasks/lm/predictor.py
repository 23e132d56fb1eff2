"""Language models: train one on text, load it, let it write, measure it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from weft.cells import State
from weft.config import from_dict
from weft.data.windows import WINDOWS, Tokens
from weft.decoding import NO_TOKEN, Sample, Sampler, Stepper, generate
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.nn.bptt import unroll
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.model import LanguageModel
from weft.tasks.task import (
    Text,
    Training,
    device,
    encoded,
    held_out,
    resume_training,
    start_training,
    text_task,
)
from weft.text.arguments import check_text, check_texts
from weft.text.codec import Codec, StreamingDecoder
from weft.text.corpus import Corpus
from weft.text.vocabulary import RESERVED
from weft.training.run import Run
from weft.training.trainer import Evaluation, Trainer

DEFAULT_SAMPLER = Sample(temperature=0.8)


def start_language(source: str | Corpus, out: str | Path, config: LmConfig, *, dev: str | None = None) -> Training:
    """Prepare the text, make the run directory with all that resuming needs, and stand before the first step."""
    return start_training(LANGUAGE, source, out, config, dev=dev)


def train_language(
    source: str | Corpus, out: str | Path, config: LmConfig | None = None, *, dev: str | None = None
) -> Language:
    """Train a language model to the end, in silence, and load it. `start_language` lets you watch."""
    training = start_language(source, out, config or LmConfig(), dev=dev)
    for _ in training.trainer.run():
        pass
    return load_language(training.run)


def resume_language(run: Run, config: LmConfig | None = None, *, source: str | None = None) -> Training:
    """Stand where the run's last save stood; see `resume_training`."""
    return resume_training(LANGUAGE, run, config, source=source)


def _prepare(run: Run, config: LmConfig, text: Text) -> tuple[Trainer, State]:
    stream = WINDOWS[config.batch.sampling](text.train, config.batch.size, config.batch.seq_length, config.train.seed)
    model = LanguageModel(len(text.codec.vocabulary), config.model).to(device(config.train.device))
    way = unroll(config.bptt.method, steps=config.bptt.steps, keep=config.bptt.keep_probability)
    dev = text.dev

    def evaluate() -> Evaluation:
        assert dev is not None
        likelihood = model.measure(dev)
        return Evaluation(
            likelihood.cross_entropy, {"nats": likelihood.cross_entropy, "perplexity": likelihood.perplexity}
        )

    trainer = Trainer(
        model,
        stream,
        lambda window, state: model.loss(window, state, unroll=way),
        config.train,
        evaluate=evaluate if dev is not None else None,
        run=run,
    )
    return trainer, model.initial_state(config.batch.size)


LANGUAGE = text_task("lm", LmConfig, _prepare)


class TokenModel(Stepper, Protocol):
    """What a language model is, whatever is inside: it tells the next token, and how well it does so on a text."""

    @property
    def reads(self) -> str:
        """What `guess` goes by: "before" or "both sides"."""
        ...

    def measure(self, tokens: Tokens) -> Likelihood:
        """How well it foretells each token but the first from those before it."""
        ...

    def guess(self, tokens: Tokens) -> TokenPredictions:
        """How well it tells each token but the first from all that it `reads`."""
        ...


@dataclass(frozen=True)
class Language:
    """A trained language model, ready for use."""

    run: Run
    model: TokenModel
    codec: Codec

    def generate(
        self, prompt: str = "", *, tokens: int = 200, sampler: Sampler = DEFAULT_SAMPLER, seed: int = 0
    ) -> str:
        """The prompt and what follows it."""
        return self.generate_many([prompt], tokens=tokens, sampler=sampler, seed=seed)[0]

    def generate_many(
        self, prompts: Iterable[str], *, tokens: int = 200, sampler: Sampler = DEFAULT_SAMPLER, seed: int = 0
    ) -> list[str]:
        """Every prompt and what follows it, written in one batch."""
        prompts = check_texts(prompts)
        starts = [self.prompt_ids(prompt) for prompt in prompts]
        rows = [list(start) for start in starts]
        for new in self._new_tokens(starts, tokens, sampler, seed):
            for row, token in zip(rows, new, strict=True):
                row += [token] if token != NO_TOKEN else []
        decode = self.codec.decode
        # The prompt as it was given, with what the model could not read still in it.
        begins = [self.codec.normalizer(prompt) for prompt in prompts]
        return [
            begin + decode(row)[len(decode(start)) :] for begin, row, start in zip(begins, rows, starts, strict=True)
        ]

    def stream(
        self, prompts: Iterable[str], *, tokens: int = 200, sampler: Sampler = DEFAULT_SAMPLER, seed: int = 0
    ) -> Iterator[list[str]]:
        """What follows each prompt, piece by piece as it is written: a piece for every row and step, perhaps empty."""
        starts = [self.prompt_ids(prompt) for prompt in check_texts(prompts)]
        writers = [StreamingDecoder(self.codec, start) for start in starts]
        for new in self._new_tokens(starts, tokens, sampler, seed):
            yield [writer.push(token) if token != NO_TOKEN else "" for writer, token in zip(writers, new, strict=True)]
        yield [writer.rest() for writer in writers]

    def _new_tokens(
        self, starts: Sequence[Sequence[int]], tokens: int, sampler: Sampler, seed: int
    ) -> Iterator[list[int]]:
        # A model that never met <eos> has no notion of an end; the others may stop at one.
        vocabulary = self.codec.vocabulary
        end = vocabulary.eos_id if vocabulary.counts[vocabulary.eos_id] else None
        banned = [vocabulary.id(token) for token in RESERVED if vocabulary.id(token) != end]
        return generate(self.model, starts, sampler, tokens=tokens, seed=seed, banned=banned, end=end)

    def prompt_ids(self, prompt: str) -> list[int]:
        """The prompt as the model reads it. An empty one starts a line, or a word where the text has no lines."""
        vocabulary = self.codec.vocabulary
        if not check_text(prompt, "the prompt"):
            return [vocabulary.id(next((one for one in ("\n", " ") if one in vocabulary), vocabulary.tokens[-1]))]
        ids = self.codec.encode(prompt)
        if not ids:
            raise WeftError(
                f"nothing is left of the prompt {prompt!r} as the model reads text",
                expected=f"text with some of: {' '.join(vocabulary.tokens[len(RESERVED) :][:12])}",
            )
        return ids

    def unknown(self, prompt: str) -> list[str]:
        """The tokens of the prompt that the model does not know and reads as <unk>."""
        return self.codec.unknown(prompt)

    def measure(self, source: str | Corpus) -> Likelihood:
        """How well the model foretells a text: a path, the name of a data set, or a Corpus."""
        with encoded(source, self.codec) as tokens:
            return self.measure_tokens(tokens)

    def measure_held_out(self) -> Likelihood:
        """The same for the part of its own text that the model was not trained on."""
        return self.measure_tokens(held_out(self.run, self.codec))

    def measure_tokens(self, tokens: Tokens) -> Likelihood:
        return self.model.measure(tokens)

    @property
    def reads(self) -> str:
        return self.model.reads

    def guess(self, tokens: Tokens) -> TokenPredictions:
        return self.model.guess(tokens)


def load_language(run: Run) -> Language:
    """The model of a run, with its best weights (or its newest, while there are no best ones)."""
    codec = Codec.from_json(run.vocabulary)
    model = LanguageModel(len(codec.vocabulary), from_dict(LmConfig, run.config).model)
    model.load_state_dict(run.weights())
    return Language(run, model.eval(), codec)
