"""Tagging words and finding words: train a tagger, load it, let it tag, measure it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.buckets import Buckets, Numbers, hold_out, in_batches, load_columns, save_columns, take
from weft.cells import State
from weft.config import from_dict
from weft.config.tag import TagConfig
from weft.crf import TagPath
from weft.errors import WeftError
from weft.metrics.tagging import WordScores
from weft.models.base import Loss
from weft.models.swap import Swaps
from weft.models.tagger import TaggedBatch, Tagger
from weft.models.words import collate
from weft.run import Run
from weft.service.tagged import Knowledge, TagScores, balance, measure
from weft.service.training import DATA, Prepared, Store, Task, Training, device, resume_training, start_training
from weft.text.columns import Sentence, Source
from weft.text.lexicon import LEXICONS
from weft.text.spans import OUTSIDE, Span, join_words, read_spans
from weft.text.tagged import Reading, all_tags, cut_long, read_gold, read_tagged, unknown_tags
from weft.text.words import WordTokenizer
from weft.train import Evaluation, Trainer

TRAIN, DEV = "train.npz", "dev.npz"


def start_tag(source: Source, out: str | Path, config: TagConfig, *, dev: Source | None = None) -> Training:
    """Read the sentences, make the run directory with all that resuming needs, and stand before the first step."""
    return start_training(TAG, source, out, config, dev=dev)


def train_tag(
    source: Source, out: str | Path, config: TagConfig | None = None, *, dev: Source | None = None
) -> Tagging:
    """Train a tagger to the end, in silence, and load it. `start_tag` lets you watch."""
    training = start_tag(source, out, config or TagConfig(), dev=dev)
    for _ in training.trainer.run():
        pass
    return load_tag(training.run)


def resume_tag(run: Run, config: TagConfig | None = None, *, source: str | None = None) -> Training:
    """Stand where the run's last save stood; see `resume_training`."""
    return resume_training(TAG, run, config, source=source)


def _open(source: Source, dev: Source | None, config: TagConfig) -> Store:
    data = config.data
    read = read_tagged(source, data)
    train, notes = read.sentences, list(read.notes)
    tags = all_tags(train, read.scheme)
    if dev is not None:
        held, strange = _open_dev(dev, config, read, tags, notes)
    else:
        strange = {}
        rows, held_rows = hold_out([one.words for one in train], data.holdout, config.train.seed)
        train, held = [read.sentences[row] for row in rows], [read.sentences[row] for row in held_rows]
    train = cut_long(train, data.longest, read.scheme, notes)
    lexicon = LEXICONS[data.task].build(train, data)
    knowledge = Knowledge(lexicon, tags, read.scheme, tuple(strange), tuple(notes))

    def store(folder: Path) -> Mapping[str, Any]:
        save_columns(folder / TRAIN, knowledge.encode_tagged(train))
        if held:
            save_columns(folder / DEV, knowledge.encode_tagged(held))
        return knowledge.to_json()

    return store


def _open_dev(
    dev: Source, config: TagConfig, read: Reading, tags: Sequence[str], notes: list[str]
) -> tuple[list[Sentence], dict[str, str]]:
    held = read_tagged(dev, config.data, like=read.scheme)
    strange = unknown_tags(held.sentences, tags)
    if strange and config.data.unknown_tags == "refuse":
        tag, where = next(iter(strange.items()))
        raise WeftError(
            f"{where}: the tag {tag!r} is not among those trained on"
            + (f" (nor are {len(strange) - 1} more)" if len(strange) > 1 else ""),
            expected=f"one of: {', '.join(tags)}",
            hint="--set data.unknown_tags=count to count them as wrong",
        )
    notes += held.notes + _strange(strange)
    return held.sentences, strange


def _strange(found: Mapping[str, str]) -> list[str]:
    return [f"{where}: the tag {tag!r}, which training lacks, counts as wrong" for tag, where in found.items()]


def _prepare(run: Run, config: TagConfig) -> Prepared:
    knowledge = Knowledge.from_json(run.vocabulary)
    columns = load_columns(run.path / DATA / TRAIN)
    dev = load_columns(run.path / DATA / DEV) if run.has(f"{DATA}/{DEV}") else None
    model = Tagger(knowledge.lexicon, knowledge.tags, knowledge.scheme, config.model).to(device(config.train.device))
    spans_of_words = knowledge.scheme is not None and knowledge.lexicon.task == "tags"
    swaps = Swaps(columns, knowledge.tags, config.batch.swap) if config.batch.swap and spans_of_words else None

    def batch(rows: Numbers) -> TaggedBatch:
        drawn, chosen = (swaps.draw(rows), np.arange(len(rows))) if swaps else (columns, rows)
        return TaggedBatch(collate(drawn, chosen), take(drawn["tags"], chosen).ids)

    def objective(batch: TaggedBatch, carried: State) -> Loss:
        return model.loss(batch)

    def evaluate() -> Evaluation:
        assert dev is not None
        if config.model.balance and knowledge.scheme and OUTSIDE in knowledge.tags:
            balance(model, knowledge, dev)
        scores = measure(model, knowledge, dev)
        return Evaluation(-scores.score(), {"score": scores.score(), **scores.facts()})

    lengths = columns["words"].lengths
    data = Buckets(lengths, config.batch.tokens, config.batch.rows, config.train.seed, batch)
    trainer = Trainer(model, data, objective, config.train, evaluate=None if dev is None else evaluate, run=run)
    unit = "words" if knowledge.lexicon.task == "tags" else "characters"
    about = (
        f"{len(lengths):,} sentences of {int(lengths.sum()):,} {unit} to train on, "
        f"{0 if dev is None else len(dev['words']):,} sentences held out, {len(knowledge.tags)} tags"
        f"{f' in {knowledge.scheme.name.upper()}' if knowledge.scheme else ''}, "
        f"vocabulary of {len(knowledge.lexicon.words):,}"
    )
    return Prepared(trainer, None, "\n".join([*(f"note: {note}" for note in knowledge.notes), about]))


TAG: Task[TagConfig] = Task("tag", TagConfig, _open, _prepare, "score", "words")


@dataclass(frozen=True)
class TaggedText:
    """Words with their tags; how sure the model is of each, and of all of them together."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    confidence: tuple[float, ...]
    probability: float
    spans: tuple[Span, ...] | None  # where the tags are spans


Text = str | Sequence[str]


@dataclass(frozen=True)
class Tagging:
    """A trained tagger, ready for use."""

    run: Run
    model: Tagger
    knowledge: Knowledge

    @property
    def task(self) -> str:
        return self.knowledge.lexicon.task

    @property
    def tags(self) -> tuple[str, ...]:
        return self.knowledge.tags

    def tag(self, texts: Iterable[Text]) -> list[TaggedText]:
        """The likeliest tags of each text: a list of words, or plain text, which is cut into words first."""
        return [best for (best,) in self.n_best(texts, 1)]

    def n_best(self, texts: Iterable[Text], n: int) -> list[list[TaggedText]]:
        """The `n` likeliest sequences of tags of each text, likeliest first; fewer where there are fewer."""
        self._is("tags", "tag", "segment")
        if n < 1:
            raise WeftError(f"{n} sequences of tags are wanted", expected="1 or more")
        split = WordTokenizer().split
        words = [[word for word in split(text) if word.strip()] if isinstance(text, str) else text for text in texts]
        return [
            [self._tagged(row, path, shares) for path in paths]
            for row, (paths, shares) in zip(words, self._paths(words, n), strict=True)
        ]

    def segment(self, texts: Iterable[str]) -> list[list[str]]:
        """The words of each text; where it has white space, a word ends."""
        return [best for ((best, _),) in self.segment_n_best(texts, 1)]

    def segment_n_best(self, texts: Iterable[str], n: int) -> list[list[tuple[list[str], float]]]:
        """The `n` likeliest ways to cut each text into words, with their probabilities, likeliest first."""
        self._is("segments", "segment", "tag")
        pieces = [text.split() for text in texts]
        characters = ["".join(row) for row in pieces]
        found = []
        for row, text, (paths, _) in zip(pieces, characters, self._paths(characters, n), strict=True):
            starts = np.cumsum([0, *map(len, row)]).tolist()
            ways = [([self.tags[tag] for tag in path.tags], path.log_prob) for path in paths]
            found.append([(join_words(text, tags, starts), math.exp(log_prob)) for tags, log_prob in ways])
        return found

    @torch.no_grad()
    def _paths(self, words: Sequence[Sequence[str]], n: int) -> list[tuple[list[TagPath], Numbers]]:
        """The likeliest tags of each text, and the chance of each tag at each place (T, K)."""
        for number, row in enumerate(words, start=1):
            if not len(row):
                raise WeftError(f"text {number} of {len(words)} is empty", expected="at least one word")
        columns = self.knowledge.encode(words)
        self.model.eval()

        def run(rows: Numbers) -> list[tuple[list[TagPath], Numbers]]:
            inputs = collate(columns, rows)
            scores, output = self.model(inputs), self.model.output
            if n == 1:
                paths = [[path] for path in output.decode(scores, inputs.lengths)]
            else:
                paths = output.n_best(scores, n, inputs.lengths)
            shares = output.marginals(scores, inputs.lengths).cpu().numpy()
            return [(one, shares[row, : len(one[0].tags)]) for row, one in enumerate(paths)]

        return in_batches(columns["words"].lengths, run)

    def _tagged(self, words: Sequence[str], path: TagPath, shares: Numbers) -> TaggedText:
        tags = tuple(self.tags[number] for number in path.tags)
        confidence = shares[np.arange(len(tags)), path.tags].tolist()
        spans = tuple(read_spans(tags)) if self.knowledge.scheme else None
        return TaggedText(tuple(words), tags, tuple(confidence), math.exp(path.log_prob), spans)

    def _is(self, task: str, what: str, other: str) -> None:
        if self.task != task:
            raise WeftError(
                f"{self.run.path} was trained for {self.task}, and is to {what}",
                expected=f"a model trained with data.task={task}",
                hint=f".{other}(...)",
            )

    def read(self, source: Source) -> Reading:
        """Sentences to measure on, and notes on those of their tags that the model cannot give."""
        config = from_dict(TagConfig, self.run.config).data
        gold = read_gold(source, config, self.knowledge.scheme)
        return Reading(gold, self.knowledge.scheme, _strange(unknown_tags(gold, self.tags)))

    def score(self, sentences: Sequence[Sentence]) -> TagScores | WordScores:
        """How good the model's tags are, held against the sentences' own."""
        knowledge = self.knowledge._replace(strange=tuple(unknown_tags(sentences, self.tags)))
        return measure(self.model, knowledge, knowledge.encode_tagged(sentences))

    def measure(self, source: Source) -> TagScores | WordScores:
        """How good the model's tags are on other sentences: a path, a name, a Corpus, or (words, tags) pairs."""
        return self.score(self.read(source).sentences)

    def measure_held_out(self) -> TagScores | WordScores:
        """The same for the sentences that were held out while training."""
        if not self.run.has(f"{DATA}/{DEV}"):
            raise WeftError(f"{self.run.path} holds out nothing", expected="data to measure on", hint="--data PATH")
        return measure(self.model, self.knowledge, load_columns(self.run.path / DATA / DEV))


def load_tag(run: Run) -> Tagging:
    """The model of a run, with its best weights (or its newest, while there are no best ones)."""
    knowledge = Knowledge.from_json(run.vocabulary)
    config = from_dict(TagConfig, run.config)
    model = Tagger(knowledge.lexicon, knowledge.tags, knowledge.scheme, config.model)
    model.load_state_dict(run.weights())
    return Tagging(run, model.eval(), knowledge)
