"""The tagging task: tags of words or of steps of series, or word segmentation. How a tagger is trained and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from weft.cells import State
from weft.config import auto_settings, from_dict, resolve_auto
from weft.data.buckets import Buckets, take
from weft.data.column import IntArray
from weft.data.inputs import InputKind
from weft.metrics import CROSS_ENTROPY, TAGGING_SCORE
from weft.tasks.config import EPOCHS_SETTING
from weft.tasks.example_kind import kind_of_examples
from weft.tasks.inspection import Inspection
from weft.tasks.members import load_members
from weft.tasks.pretraining import SHARED_LAYERS, PretrainedLayers, layer_groups, shared_settings, take_over_stack
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, is_stored
from weft.tasks.tag.augmentation import MentionReplacement
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.data import load_sentences, store_tagged, tagger_corpus
from weft.tasks.tag.encoder import collate
from weft.tasks.tag.evaluation import calibrate, evaluate_with_loss, tag_metrics
from weft.tasks.tag.inspection import inspect_tag
from weft.tasks.tag.model import TaggedBatch, Tagger, TaggerMixture
from weft.tasks.tag.predictor import TagPredictor
from weft.tasks.tag.vocabulary import TaggerVocabulary
from weft.tasks.task import Task
from weft.tasks.text_task import CorpusSource, open_corpus
from weft.text.conll import SentenceSource, count_noun
from weft.text.corpus import Corpus
from weft.text.spans import OUTSIDE
from weft.text.text_field import Text
from weft.training.build import build_model
from weft.training.devices import choose_precision, find_device
from weft.training.gradient_descent import GradientDescent
from weft.training.loss import Loss
from weft.training.run import Run
from weft.training.step import Evaluation

TEXT_EPOCHS = 14
SERIES_STEPS, SERIES_EPOCH_LIMIT = 400, 100  # a training on series has as many steps at least, but not more epochs


class TagTask(Task[SentenceSource, TagConfig, TagPredictor]):
    """Trains a recurrent model with a CRF to tag the words of a sentence, or to find the words of a text."""

    name = "tag"
    summary = (
        "Train a tagger: it predicts the tag of each word or of each step of a series, or, with --segment, where words "
        "begin and end."
    )
    details = "Tags may be parts of speech or any others; spans in BIO, BIOES and similar schemes are detected."
    data_help = (
        "Tagged sentences: CoNLL-U or other columns, CSV, JSON lines, also as .gz or in a .zip, - for standard input, "
        "or grammar. With --segment: text with spaces between words, or CoNLL-U. Series: "
        "a table with a row for each step, with columns of id, time, values and tag."
    )
    dev_help = "Held-out sentences; without it a random part of --data is held out."
    predictors = (TagPredictor,)
    config_class = TagConfig
    encoder_defaults: ClassVar[Mapping[str, Any]] = {}
    inputs = ("text", "series")
    metric = TAGGING_SCORE

    def read(
        self,
        source: SentenceSource,
        dev: SentenceSource | None,
        config: TagConfig,
        folder: Path,
        origin: Run | None = None,
    ) -> Mapping[str, Any]:
        known = words = None
        if origin is not None and origin.task == self.name:
            known = origin.decode(TaggerVocabulary.from_json)
        elif origin is not None:
            words = origin.field("text", Text).vocabulary
        return store_tagged(source, dev, config, folder, known, words)

    def encoder_settings(self, encoder: Run) -> dict[str, Any]:
        text = {f"data.{name}": encoder.config["text"][name] for name in ("normalization", "lower")}
        task = "segments" if encoder.config["text"]["tokenizer"] == "char" else "tags"
        return {**text, "data.task": task, **shared_settings(encoder, {"model": SHARED_LAYERS})}

    def pretraining_text(self, config: TagConfig) -> dict[str, Any]:
        data = config.data
        tokenizer = "char" if data.task == "segments" else "whitespace"
        text = {"tokenizer": tokenizer, "normalization": data.normalization, "lower": data.lower, "min_count": 2}
        return {f"text.{name}": value for name, value in text.items()}

    def pretraining_corpus(self, raw: CorpusSource, source: SentenceSource, config: TagConfig) -> Corpus:
        return tagger_corpus(open_corpus(raw), source, config.data)

    def take_over(self, model: Tagger, encoder: PretrainedLayers) -> None:
        assert model.encoder.words is not None
        model.encoder.words.weight.data.copy_(encoder.embedding)
        take_over_stack(model.stack, encoder)

    def kind_of(self, source: Any, config: TagConfig) -> InputKind | None:
        return kind_of_examples(source, config.data)

    def choose(self, run: Run, config: TagConfig) -> tuple[TagConfig, str]:
        config, vocabulary = choose_precision(config), run.decode(TaggerVocabulary.from_json)
        if EPOCHS_SETTING not in auto_settings(config):
            return config, ""
        if vocabulary.series is None:
            return resolve_auto(config, {EPOCHS_SETTING: TEXT_EPOCHS}), ""
        lengths = load_sentences(run, TRAIN_PART, vocabulary)["words"].lengths
        batches = math.ceil(int(lengths.sum()) / config.batch.max_tokens)
        epochs = min(max(TEXT_EPOCHS, math.ceil(SERIES_STEPS / batches)), SERIES_EPOCH_LIMIT)
        return resolve_auto(config, {EPOCHS_SETTING: epochs}), f"{epochs} epochs: chosen for {len(lengths):,} series"

    def build(self, run: Run, config: TagConfig) -> GradientDescent:
        vocabulary = run.decode(TaggerVocabulary.from_json)
        columns = load_sentences(run, TRAIN_PART, vocabulary)
        dev = load_sentences(run, DEV_PART, vocabulary) if is_stored(run, DEV_PART) else None
        model = build_model(lambda: make_tagger(vocabulary, config)).to(find_device(config.train.device))
        spans_of_words = vocabulary.scheme is not None and vocabulary.lexicon.task == "tags"
        replacement = (
            MentionReplacement(columns, vocabulary.tags, config.batch.mention_replacement)
            if config.batch.mention_replacement and spans_of_words
            else None
        )

        def batch(rows: IntArray) -> TaggedBatch:
            sampled, chosen = (replacement.sample(rows), np.arange(len(rows))) if replacement else (columns, rows)
            return TaggedBatch(collate(sampled, chosen), take(sampled["tags"], chosen).ids)

        def objective(batch: TaggedBatch, carried: State) -> Loss:
            return model.loss(batch)

        def evaluate() -> Evaluation:
            assert dev is not None
            if config.model.span_calibration and vocabulary.scheme and OUTSIDE in vocabulary.tags:
                calibrate(model, vocabulary, dev)
            scores, cross_entropy = evaluate_with_loss(model, vocabulary, dev)
            return Evaluation.by(TAGGING_SCORE, tag_metrics(scores), cross_entropy)

        lengths = columns["words"].lengths
        data = Buckets(lengths, config.batch.max_tokens, config.batch.size, config.train.seed, batch)
        groups = layer_groups(model, [model.stack], model.encoder.words, config.train)
        held_out = None if dev is None else evaluate
        unit = {"tags": "word", "series": "step"}.get(vocabulary.lexicon.task, "character")
        noun = "sentence" if vocabulary.series is None else "series"
        held = count_noun(0 if dev is None else len(dev["words"]), noun)
        description = (
            f"{count_noun(len(lengths), noun)} of {count_noun(int(lengths.sum()), unit)} to train on, "
            f"{held} held out, {count_noun(len(vocabulary.tags), 'tag')}"
            f"{f' in {vocabulary.scheme.name.upper()}' if vocabulary.scheme else ''}, "
            + (
                f"vocabulary of {len(vocabulary.lexicon.words):,}"
                if vocabulary.series is None
                else count_noun(len(vocabulary.series.channels), "channel")
            )
        )
        notes = [f"note: {note}" for note in run.reading.get("notes", ())]
        return GradientDescent(
            model,
            data,
            objective,
            config.train,
            evaluate=held_out,
            groups=groups,
            description="\n".join([*notes, description]),
            loss=CROSS_ENTROPY.of(unit),
        )

    def load(self, run: Run) -> TagPredictor:
        vocabulary = run.decode(TaggerVocabulary.from_json)
        config = from_dict(TagConfig, run.config)
        model = load_members(run, lambda: make_tagger(vocabulary, config), TaggerMixture)
        return TagPredictor(run, model, vocabulary)

    def inspect(self, predictor: TagPredictor, text: str) -> Inspection:
        return inspect_tag(predictor, text)


def make_tagger(vocabulary: TaggerVocabulary, config: TagConfig) -> Tagger:
    """The model for a vocabulary, with random weights."""
    return Tagger(vocabulary.lexicon, vocabulary.tags, vocabulary.scheme, config.model)


TASK = TagTask()
start_tag, train_tag, resume_tag = TASK.start, TASK.train, TASK.resume
