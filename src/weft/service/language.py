"""Language models: train one on text, load it, let it write, measure it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from weft.batch import STREAMS, Tokens, evaluation_windows
from weft.bptt import unroll
from weft.config import LanguageConfig, changed, from_dict, to_dict
from weft.decode import NOTHING, Choice, Sample, generate
from weft.errors import WeftError
from weft.metrics import Likelihood
from weft.models.language import LanguageModel
from weft.run import LAST, Run, check_file, check_free, create_run, file_hash, read_json, save_tensors, write_json
from weft.text.codec import Codec, Writer, prepare
from weft.text.corpus import Corpus, encode_corpus, open_tokens
from weft.text.datasets import open_data
from weft.text.vocabulary import RESERVED
from weft.train import Evaluation, Trainer

DEFAULT_CHOICE = Sample(temperature=0.8)

TRAIN, DEV, FACTS = "data/train.bin", "data/dev.bin", "data/facts.json"


@dataclass(frozen=True)
class Training:
    """A training made ready: walk through `trainer.run()`."""

    run: Run
    trainer: Trainer
    model: LanguageModel
    codec: Codec
    train_tokens: int
    dev_tokens: int


def start_language(
    source: str | Corpus, out: str | Path, config: LanguageConfig, *, dev: str | None = None
) -> Training:
    """Prepare the text, make the run directory with all that resuming needs, and stand before the first step."""
    check_free(Path(out))  # before the text is read, which may take a while
    corpus = source if isinstance(source, Corpus) else open_data(source)
    held_out = open_data(dev) if dev else None

    def fill(folder: Path) -> dict[str, Any]:
        (folder / "data").mkdir()
        codec = prepare(config.text, corpus, held_out, folder / "data")
        files = {name: file_hash(folder / name) for name in (TRAIN, DEV) if (folder / name).exists()}
        write_json(folder / FACTS, {"source": getattr(source, "name", source), "dev": dev, "files": files})
        training = _training(Run(folder, "lm", to_dict(config), codec.to_json()))
        save_tensors(folder / LAST, *training.trainer.state())
        return codec.to_json()

    return resume_language(create_run(Path(out), task="lm", config=to_dict(config), fill=fill))


def train_language(
    source: str | Corpus, out: str | Path, config: LanguageConfig | None = None, *, dev: str | None = None
) -> Language:
    """Train a language model to the end, in silence, and load it. `start_language` lets you watch."""
    training = start_language(source, out, config or LanguageConfig(), dev=dev)
    for _ in training.trainer.run():
        pass
    return load_language(training.run)


def resume_language(run: Run, config: LanguageConfig | None = None, *, source: str | None = None) -> Training:
    """Stand where the run's last save stood, with other training settings if a configuration is given.

    The text is the run's own copy; a `source` is only compared with the name of the one it was made from.
    """
    if config is not None:
        run = _change_training(run, config)
    facts = read_json(run.path / FACTS)
    if source is not None and source != facts["source"]:
        raise WeftError(
            f"{run.path} was begun on {facts['source']}, and is to go on with {source}",
            expected="the same text, or no --data at all, since the run keeps its own copy",
        )
    for name, digest in facts["files"].items():
        check_file(run.path / name, digest)
    saved = run.load(LAST)
    training = _training(run)
    rows = from_dict(LanguageConfig, run.config).batch.size
    training.trainer.restore(saved.tensors, saved.facts, carried=training.model.start(rows))
    run.forget_after(training.trainer.place.step)
    return training


def _change_training(run: Run, config: LanguageConfig) -> Run:
    differences = changed(run.config, to_dict(config))
    fixed = [key for key in differences if not key.startswith("train.") or key == "train.optimizer"]
    if fixed:
        before, after = differences[fixed[0]]
        raise WeftError(
            f"{run.path} was begun with {fixed[0]}={before}, and is to go on with {after}",
            expected="only settings under train. to change, and not the optimizer",
            hint="a new run in another --out",
        )
    return run.change_config(to_dict(config)) if differences else run


def _training(run: Run) -> Training:
    config = from_dict(LanguageConfig, run.config)
    codec = Codec.from_json(run.vocabulary)
    size = len(codec.vocabulary)
    train = open_tokens(run.path / TRAIN, size)
    dev = open_tokens(run.path / DEV, size) if run.has(DEV) else None
    stream = STREAMS[config.batch.sampling](train, config.batch.size, config.batch.steps, config.train.seed)
    torch.manual_seed(config.train.seed)
    model = LanguageModel(size, config.model).to(device(config.train.device))
    way = unroll(config.bptt.method, steps=config.bptt.steps, keep=config.bptt.keep)

    def evaluate() -> Evaluation:
        assert dev is not None
        likelihood = measure(model, dev)
        return Evaluation(
            likelihood.nats_per_token, {"nats": likelihood.nats_per_token, "perplexity": likelihood.perplexity}
        )

    trainer = Trainer(
        model,
        stream,
        lambda window, state: model.loss(window, state, unroll=way),
        config.train,
        evaluate=evaluate if dev is not None else None,
        run=run,
    )
    return Training(run, trainer, model, codec, len(train), 0 if dev is None else len(dev))


def device(name: str) -> torch.device:
    """The named device, tried out."""
    try:
        found = torch.device(name)
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise WeftError(
            f"train.device is {name!r}: {reason}", expected="a device of this machine", hint="cpu"
        ) from error
    return found


@torch.no_grad()
def measure(model: LanguageModel, tokens: Tokens) -> Likelihood:
    """How well the model foretells the tokens, each from all that stand before it."""
    model.eval()
    total, state = Likelihood(0.0, 0), None
    for window in evaluation_windows(tokens):
        loss = model.loss(window, state)
        total, state = total + Likelihood(float(loss.total), loss.count), loss.state
    return total


@dataclass(frozen=True)
class Language:
    """A trained language model, ready for use."""

    run: Run
    model: LanguageModel
    codec: Codec

    def generate(self, prompt: str = "", *, tokens: int = 200, choose: Choice = DEFAULT_CHOICE, seed: int = 0) -> str:
        """The prompt and what follows it."""
        return self.generate_many([prompt], tokens=tokens, choose=choose, seed=seed)[0]

    def generate_many(
        self, prompts: Sequence[str], *, tokens: int = 200, choose: Choice = DEFAULT_CHOICE, seed: int = 0
    ) -> list[str]:
        """Every prompt and what follows it, written in one batch."""
        starts = [self.prompt_ids(prompt) for prompt in prompts]
        rows = [list(start) for start in starts]
        for new in self._new_tokens(starts, tokens, choose, seed):
            for row, token in zip(rows, new, strict=True):
                row += [token] if token != NOTHING else []
        decode = self.codec.decode
        # The prompt as it was given, with what the model could not read still in it.
        begins = [self.codec.normalizer(prompt) for prompt in prompts]
        return [
            begin + decode(row)[len(decode(start)) :] for begin, row, start in zip(begins, rows, starts, strict=True)
        ]

    def stream(
        self, prompts: Sequence[str], *, tokens: int = 200, choose: Choice = DEFAULT_CHOICE, seed: int = 0
    ) -> Iterator[list[str]]:
        """What follows each prompt, piece by piece as it is written: a piece for every row and step, perhaps empty."""
        starts = [self.prompt_ids(prompt) for prompt in prompts]
        writers = [Writer(self.codec, start) for start in starts]
        for new in self._new_tokens(starts, tokens, choose, seed):
            yield [writer.push(token) if token != NOTHING else "" for writer, token in zip(writers, new, strict=True)]
        yield [writer.rest() for writer in writers]

    def _new_tokens(
        self, starts: Sequence[Sequence[int]], tokens: int, choose: Choice, seed: int
    ) -> Iterator[list[int]]:
        # A model that never met <eos> has no notion of an end; the others may stop at one.
        vocabulary = self.codec.vocabulary
        end = vocabulary.eos_id if vocabulary.counts[vocabulary.eos_id] else None
        banned = [vocabulary.id(token) for token in RESERVED if vocabulary.id(token) != end]
        return generate(self.model.eval(), starts, choose, tokens=tokens, seed=seed, banned=banned, end=end)

    def prompt_ids(self, prompt: str) -> list[int]:
        """The prompt as the model reads it. An empty one starts a line, or a word where the text has no lines."""
        vocabulary = self.codec.vocabulary
        if not prompt:
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
        corpus = source if isinstance(source, Corpus) else open_data(source)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tokens.bin"
            encode_corpus(corpus, self.codec.normalizer, self.codec.tokenizer, self.codec.vocabulary, file)
            return self.measure_tokens(open_tokens(file, len(self.codec.vocabulary)))

    def measure_held_out(self) -> Likelihood:
        """The same for the part of its own text that the model was not trained on."""
        if not self.run.has(DEV):
            raise WeftError(f"{self.run.path} holds out no text", expected="text to measure on", hint="--data PATH")
        return self.measure_tokens(open_tokens(self.run.path / DEV, len(self.codec.vocabulary)))

    def measure_tokens(self, tokens: Tokens) -> Likelihood:
        return measure(self.model, tokens)


def load_language(run: Run) -> Language:
    """The model of a run, with its best weights (or its newest, while there are no best ones)."""
    codec = Codec.from_json(run.vocabulary)
    model = LanguageModel(len(codec.vocabulary), from_dict(LanguageConfig, run.config).model)
    model.load_state_dict(run.weights())
    return Language(run, model.eval(), codec)
