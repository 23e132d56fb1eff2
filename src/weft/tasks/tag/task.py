"""Tagging words and finding words: how a tagger is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.cells import State
from weft.data.buckets import Buckets, IntArray, hold_out, load_columns, save_columns, take
from weft.errors import WeftError
from weft.tasks.tag.augmentation import Swaps
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.data import Reading, all_tags, cut_long, read_like, read_tagged, strange_notes, unknown_tags
from weft.tasks.tag.encoder import collate
from weft.tasks.tag.knowledge import HELD_OUT, Knowledge, balance, measure
from weft.tasks.tag.lexicon import LEXICONS
from weft.tasks.tag.model import TaggedBatch, Tagger
from weft.tasks.tag.predictor import Tagging, load_tag
from weft.tasks.task import DATA, Prepared, Store, Task, Training, device, resume_training, start_training
from weft.text.conll import Source, TaggedSentence, count_noun
from weft.text.spans import OUTSIDE
from weft.training.loss import Loss
from weft.training.run import Run
from weft.training.trainer import Evaluation, Trainer

TRAIN = f"{DATA}/train.npz"


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
    train = cut_long(train, data.max_length, read.scheme, notes)
    lexicon = LEXICONS[data.task].build(train, data)
    knowledge = Knowledge(lexicon, tags, read.scheme, tuple(strange), tuple(notes))

    def store(folder: Path) -> Mapping[str, Any]:
        save_columns(folder.parent / TRAIN, knowledge.encode_tagged(train))
        if held:
            save_columns(folder.parent / HELD_OUT, knowledge.encode_tagged(held))
        return knowledge.to_json()

    return store


def _open_dev(
    dev: Source, config: TagConfig, read: Reading, tags: Sequence[str], notes: list[str]
) -> tuple[list[TaggedSentence], dict[str, str]]:
    held = read_like(dev, config.data, read.scheme)
    strange = unknown_tags(held.sentences, tags)
    if strange and config.data.unknown_tags == "refuse":
        tag, where = next(iter(strange.items()))
        raise WeftError(
            f"{where}: the tag {tag!r} is not among those trained on"
            + (f" (nor {count_noun(len(strange) - 1, 'other')})" if len(strange) > 1 else ""),
            expected=f"one of: {', '.join(tags)}",
            hint="--set data.unknown_tags=count to count them as wrong",
        )
    notes += held.notes + strange_notes(strange)
    return held.sentences, strange


def _prepare(run: Run, config: TagConfig) -> Prepared:
    knowledge = Knowledge.from_json(run.vocabulary)
    columns = load_columns(run.path / TRAIN)
    dev = load_columns(run.path / HELD_OUT) if run.has(HELD_OUT) else None
    model = Tagger(knowledge.lexicon, knowledge.tags, knowledge.scheme, config.model).to(device(config.train.device))
    spans_of_words = knowledge.scheme is not None and knowledge.lexicon.task == "tags"
    swaps = (
        Swaps(columns, knowledge.tags, config.batch.mention_replacement)
        if config.batch.mention_replacement and spans_of_words
        else None
    )

    def batch(rows: IntArray) -> TaggedBatch:
        drawn, chosen = (swaps.draw(rows), np.arange(len(rows))) if swaps else (columns, rows)
        return TaggedBatch(collate(drawn, chosen), take(drawn["tags"], chosen).ids)

    def objective(batch: TaggedBatch, carried: State) -> Loss:
        return model.loss(batch)

    def evaluate() -> Evaluation:
        assert dev is not None
        if config.model.span_calibration and knowledge.scheme and OUTSIDE in knowledge.tags:
            balance(model, knowledge, dev)
        scores = measure(model, knowledge, dev)
        return Evaluation(-scores.score(), {"score": scores.score(), **scores.metrics()})

    lengths = columns["words"].lengths
    data = Buckets(lengths, config.batch.max_tokens, config.batch.size, config.train.seed, batch)
    trainer = Trainer(model, data, objective, config.train, evaluate=None if dev is None else evaluate, run=run)
    unit = "word" if knowledge.lexicon.task == "tags" else "character"
    held = count_noun(0 if dev is None else len(dev["words"]), "sentence")
    about = (
        f"{count_noun(len(lengths), 'sentence')} of {count_noun(int(lengths.sum()), unit)} to train on, "
        f"{held} held out, {count_noun(len(knowledge.tags), 'tag')}"
        f"{f' in {knowledge.scheme.name.upper()}' if knowledge.scheme else ''}, "
        f"vocabulary of {len(knowledge.lexicon.words):,}"
    )
    notes = [f"note: {note}" for note in knowledge.notes]
    return Prepared(trainer, None, "\n".join([*notes, about]), f"{unit}s")


TAG: Task[TagConfig] = Task("tag", TagConfig, _open, _prepare, "score")
