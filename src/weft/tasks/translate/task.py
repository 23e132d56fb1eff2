"""The translation task: how an encoder-decoder is trained and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.cells import State
from weft.config import from_dict
from weft.data.buckets import Buckets, take
from weft.data.column import IntArray
from weft.errors import WeftError
from weft.metrics import BLEU_SCORE, CROSS_ENTROPY
from weft.tasks.inspection import Inspection
from weft.tasks.members import load_members
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, is_stored, stored
from weft.tasks.task import Task
from weft.tasks.translate.config import TranslateConfig
from weft.tasks.translate.data import held_out_pairs, store_pairs
from weft.tasks.translate.inspection import inspect_translate
from weft.tasks.translate.model import TranslationBatch, TranslatorMixture
from weft.tasks.translate.predictor import END, TranslatePredictor, make_translator, pair_metrics
from weft.tasks.translate.recipe import PairWorkload, choose_for_pairs
from weft.text.parallel import PairFields, PairSource
from weft.training.build import build_model
from weft.training.devices import find_device
from weft.training.gradient_descent import GradientDescent
from weft.training.loss import Loss
from weft.training.run import Run
from weft.training.step import Evaluation


class TranslateTask(Task[PairSource, TranslateConfig, TranslatePredictor]):
    """Trains an encoder-decoder with attention on sentences and their translations."""

    name = "translate"
    summary = "Train a translator on sentences and their translations."
    data_help = (
        "Pairs: a tab-separated file, CSV, JSON lines, two files as a.en,a.fr, .gz, a member of a .zip, - for "
        "standard input, or a name of `weft data`."
    )
    dev_help = "Held-out pairs; without it some sources of --data are held out."
    predictors = (TranslatePredictor,)
    config_class = TranslateConfig
    inputs = ("text",)
    metric = BLEU_SCORE
    sample = "grammar-fr"

    def read(
        self,
        source: PairSource,
        dev: PairSource | None,
        config: TranslateConfig,
        folder: Path,
        origin: Run | None = None,
    ) -> Mapping[str, Any]:
        known = None if origin is None else origin.decode(PairFields.from_json)
        return store_pairs(source, dev, config, folder, known)

    def choose(self, run: Run, config: TranslateConfig) -> tuple[TranslateConfig, str]:
        targets, fields = stored(run, TRAIN_PART)["target"], run.decode(PairFields.from_json)
        work = PairWorkload(len(targets), len(targets.values) + len(targets), len(fields.target.vocabulary))
        return choose_for_pairs(config, work)

    def build(self, run: Run, config: TranslateConfig) -> GradientDescent:
        fields = run.decode(PairFields.from_json)
        below = {side: len(getattr(fields, side).vocabulary) for side in ("source", "target")}
        columns = stored(run, TRAIN_PART, below)
        lengths = np.stack([columns[name].lengths for name in ("source", "target")], 1)
        full = lengths.min(1) > 0  # else of one side nothing is left as the model reads text
        if not full.any():
            raise WeftError(
                "of every pair to train on, nothing is left on a side as the model reads text",
                expected="letters that the settings of the text let through",
                hint="`text.letters_only=false`",
            )
        short = np.flatnonzero(full & (lengths.max(1) <= config.text.max_tokens))
        if not len(short):
            raise WeftError(
                f"every pair to train on ({full.sum():,}) has more than {config.text.max_tokens} tokens on a side",
                expected="some that have fewer",
                hint=f"`text.max_tokens={int(lengths[full].max(1).min())}`",
            )

        def collate(numbers: IntArray) -> TranslationBatch:
            rows = short[numbers]
            return TranslationBatch(*(take(columns[name], rows, end=END) for name in ("source", "target")))

        buckets = Buckets(lengths[short] + 1, config.batch.max_tokens, config.batch.size, config.train.seed, collate)
        model = build_model(lambda: make_translator(fields, config)).to(find_device(config.train.device))
        dev = held_out_pairs(run) if is_stored(run, DEV_PART) else None
        predictor = TranslatePredictor(run, model, fields, config)

        def objective(batch: TranslationBatch, carried: State) -> Loss:
            return model.loss(
                batch,
                label_smoothing=config.train.label_smoothing,
                scheduled_sampling=config.train.scheduled_sampling * phase.done,
            )

        def evaluate() -> Evaluation:
            assert dev is not None
            metrics = pair_metrics(predictor, dev)
            return Evaluation.by(CROSS_ENTROPY, metrics)

        sizes = [len(fields.source.vocabulary), *([] if fields.joint else [len(fields.target.vocabulary)])]
        description = (
            f"{len(short):,} pairs to train on ({lengths[short, 0].sum():,} and {lengths[short, 1].sum():,} "
            f"{fields.source.tokenizer.name} tokens), {0 if dev is None else len(dev):,} held out, "
            f"{'joint vocabulary' if fields.joint else 'vocabularies'} of {' and '.join(f'{size:,}' for size in sizes)}"
        )
        if reading := run.reading.get("description"):
            description += f" ({reading})"
        if left := int(full.sum()) - len(short):
            description += f"; {left:,} pairs of more than {config.text.max_tokens} tokens left out"
        if empty := int((~full).sum()):
            description += f"; {empty:,} pairs of which nothing is left on a side left out"
        held_out = None if dev is None else evaluate
        phase = GradientDescent(model, buckets, objective, config.train, evaluate=held_out, description=description)
        return phase

    def load(self, run: Run) -> TranslatePredictor:
        fields, config = run.decode(PairFields.from_json), from_dict(TranslateConfig, run.config)
        model = load_members(run, lambda: make_translator(fields, config), TranslatorMixture)
        return TranslatePredictor(run, model, fields, config)

    def inspect(self, predictor: TranslatePredictor, text: str) -> Inspection:
        return inspect_translate(predictor, text)


TASK = TranslateTask()
start_translate, train_translate, resume_translate = TASK.start, TASK.train, TASK.resume
