"""Translation: train a translator on sentence pairs, load it, let it translate, measure it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.cells import State
from weft.data.buckets import Buckets, IntArray, Ragged, hold_out, load_columns, save_columns, take
from weft.errors import WeftError
from weft.tasks.task import Prepared, Store, Task, Training, device, resume_training, start_training
from weft.tasks.translate.config import TranslateConfig
from weft.tasks.translate.model import Sentences
from weft.tasks.translate.predictor import (
    DEV,
    END,
    Translating,
    held_out_pairs,
    load_translate,
    make_model,
    opened,
)
from weft.text.parallel import PairCodec, Pairs, build_pair_codec
from weft.text.tokenizers import Normalizer
from weft.training.loss import Loss
from weft.training.run import Run
from weft.training.trainer import Evaluation, Trainer

TRAIN = "data/train.npz"


def start_translate(
    source: str | Pairs, out: str | Path, config: TranslateConfig, *, dev: str | Pairs | None = None
) -> Training:
    """Prepare the pairs, make the run directory with all that resuming needs, and stand before the first step."""
    return start_training(TRANSLATE, source, out, config, dev=dev)


def train_translate(
    source: str | Pairs, out: str | Path, config: TranslateConfig | None = None, *, dev: str | Pairs | None = None
) -> Translating:
    """Train a translator to the end, in silence, and load it. `start_translate` lets you watch."""
    training = start_translate(source, out, config or TranslateConfig(), dev=dev)
    for _ in training.trainer.run():
        pass
    return load_translate(training.run)


def resume_translate(run: Run, config: TranslateConfig | None = None, *, source: str | None = None) -> Training:
    """Stand where the run's last save stood; see `resume_training`."""
    return resume_training(TRANSLATE, run, config, source=source)


def _open(source: str | Pairs, dev: str | Pairs | None, config: TranslateConfig) -> Store:
    """Equal sources stay on one side, with all their translations: else the model would be asked what it was told."""
    pairs = opened(source, config)
    if config.text.limit:
        pairs = Pairs(pairs.name, pairs.sources[: config.text.limit], pairs.targets[: config.text.limit])
    if not len(pairs):
        raise WeftError(f"{pairs.name} has no pairs", expected="sentences with their translations")
    if dev is not None:
        train, held = pairs, opened(dev, config)
    else:
        read = Normalizer(config.text.normalization, config.text.lower, config.text.letters_only)
        # With or without a space before a full stop, it is the same source.
        keys = ["".join(read(text).split()) for text in pairs.sources]
        rows, held_rows = hold_out(keys, config.text.holdout, config.train.seed)
        train, held = _rows(pairs, rows), _rows(pairs, held_rows)

    def store(data: Path) -> Mapping[str, Any]:
        codec = build_pair_codec(config.text, train)
        columns = {
            "source": Ragged.from_rows(map(codec.source.encode, train.sources)),
            "target": Ragged.from_rows(map(codec.target.encode, train.targets)),
        }
        save_columns(data / Path(TRAIN).name, columns)
        if len(held):  # as text, since that is what translations are compared with
            text = json.dumps({"sources": held.sources, "targets": held.targets}, ensure_ascii=False)
            (data / Path(DEV).name).write_text(text, encoding="utf-8")
        return codec.to_json()

    return store


def _rows(pairs: Pairs, rows: Sequence[int]) -> Pairs:
    return Pairs(pairs.name, [pairs.sources[row] for row in rows], [pairs.targets[row] for row in rows])


def _prepare(run: Run, config: TranslateConfig) -> Prepared:
    codec = PairCodec.from_json(run.vocabulary)
    columns = load_columns(run.path / TRAIN)
    lengths = np.stack([columns[name].lengths for name in ("source", "target")], 1)
    full = lengths.min(1) > 0  # else of one side nothing is left as the model reads text
    if not full.any():
        raise WeftError(
            "of every pair to train on, nothing is left on a side as the model reads text",
            expected="letters that the settings of the text let through",
            hint="--set text.letters_only=false",
        )
    short = np.flatnonzero(full & (lengths.max(1) <= config.text.max_tokens))
    if not len(short):
        raise WeftError(
            f"every pair to train on ({full.sum():,}) has more than {config.text.max_tokens} tokens on a side",
            expected="some that have fewer",
            hint=f"--set text.max_tokens={int(lengths[full].max(1).min())}",
        )

    sources, targets = (columns[name].with_end(END) for name in ("source", "target"))

    def collate(numbers: IntArray) -> Sentences:
        rows = short[numbers]
        return Sentences(take(sources, rows), take(targets, rows))

    buckets = Buckets(lengths[short] + 1, config.batch.max_tokens, config.batch.size, config.train.seed, collate)
    model = make_model(codec, config).to(device(config.train.device))
    dev = held_out_pairs(run) if run.has(DEV) else None
    translating = Translating(run, model, codec, config)

    def objective(batch: Sentences, carried: State) -> Loss:
        done = trainer.progress.step / max(1, trainer.total)
        return model.loss(
            batch, smoothing=config.train.label_smoothing, sampling=config.train.scheduled_sampling * done
        )

    def evaluate() -> Evaluation:
        assert dev is not None
        likelihood, found = translating.likelihood(dev), translating.measure(dev, beam=1)
        facts = {"bleu": found.bleu, "exact": found.exact, "perplexity": likelihood.perplexity}
        return Evaluation(likelihood.cross_entropy, {"nats": likelihood.cross_entropy, **facts})

    trainer = Trainer(model, buckets, objective, config.train, evaluate=None if dev is None else evaluate, run=run)
    sizes = [len(codec.source.vocabulary), *([] if codec.joint else [len(codec.target.vocabulary)])]
    about = (
        f"{len(short):,} pairs to train on ({lengths[short, 0].sum():,} and {lengths[short, 1].sum():,} "
        f"{codec.source.tokenizer.name} tokens), {0 if dev is None else len(dev):,} held out, "
        f"{'joint vocabulary' if codec.joint else 'vocabularies'} of {' and '.join(f'{size:,}' for size in sizes)}"
    )
    if left := int(full.sum()) - len(short):
        about += f"; {left:,} pairs of more than {config.text.max_tokens} tokens left out"
    if empty := int((~full).sum()):
        about += f"; {empty:,} pairs of which nothing is left on a side left out"
    return Prepared(trainer, None, about)


TRANSLATE = Task("translate", TranslateConfig, _open, _prepare, "bleu", sample="grammar-fr")
