"""Sentence pairs: read, split into training and held-out pairs, encoded and stored in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.data.buckets import hold_out
from weft.data.column import Column
from weft.errors import WeftError
from weft.tasks.origin import warn_new_tokens
from weft.tasks.plausibility import check_pairs, repeated, report_shared
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, store, stored
from weft.tasks.translate.config import TranslateConfig
from weft.tasks.translate.language_detection import store_profiles
from weft.text.parallel import PairFields, Pairs, PairSource, fit_pair_fields, open_pairs
from weft.text.tokenizers import Normalizer
from weft.training.run import Run


def read_pairs(source: PairSource, config: TranslateConfig, *, like: Sequence[str] = (), strict: bool = False) -> Pairs:
    """Pairs as `open_pairs` reads them with these settings."""
    text = config.text
    return open_pairs(
        source,
        source_column=text.source_column,
        target_column=text.target_column,
        like=like,
        strict=strict or text.strict,
    )


def store_pairs(
    source: PairSource,
    dev: PairSource | None,
    config: TranslateConfig,
    folder: Path,
    known: PairFields | None = None,
) -> Mapping[str, Any]:
    """Reads pairs to train on and to hold out, and stores them; returns the vocabulary of the run.

    Equal sources stay on one side, with all their translations, so that no held-out source occurs in training. `known`
    are the tokens of a run that is fine-tuned.
    """
    pairs = read_pairs(source, config)
    if config.text.limit:
        pairs = _rows(pairs, range(min(config.text.limit, len(pairs))))
    if not len(pairs):
        raise WeftError(f"{pairs.name} has no pairs", expected="sentences with their translations")
    check_pairs(pairs)
    if dev is not None:
        train, held = pairs, read_pairs(dev, config, like=pairs.columns)
        report_shared(train.sources, held.sources, "sources")
    else:
        read = Normalizer(config.text.normalization, config.text.lower, config.text.letters_only)
        # Sources that differ in spaces only are equal.
        keys = ["".join(read(text).split()) for text in pairs.sources]
        rows, held_rows = hold_out(keys, config.text.holdout, config.train.seed)
        train, held = _rows(pairs, rows), _rows(pairs, held_rows)
    fields = known or fit_pair_fields(config.text, train)
    if known is not None:
        sides = ((fields.source, train.sources), (fields.target, train.targets))
        warn_new_tokens(Counter(token for side, texts in sides for text in texts for token in side.unknown(text)))
    encoded = {"source": map(fields.source.encode, train.sources), "target": map(fields.target.encode, train.targets)}
    store(folder, TRAIN_PART, encoded)
    store_profiles(folder.parent, train)
    if len(held):  # as text, since that is what translations are compared with
        store(folder, DEV_PART, {"source": Column.from_texts(held.sources), "target": Column.from_texts(held.targets)})
    again = repeated(list(zip(pairs.sources, pairs.targets, strict=True)), "pairs")
    description = "; ".join(filter(None, (pairs.reading, again)))
    names = dict(zip(("source", "target"), pairs.columns, strict=False))
    return {"fields": fields.to_json(), "reading": {"columns": names, "description": description}}


def _rows(pairs: Pairs, rows: Sequence[int]) -> Pairs:
    return replace(pairs, sources=[pairs.sources[row] for row in rows], targets=[pairs.targets[row] for row in rows])


def held_out_pairs(run: Run) -> Pairs:
    """The held-out pairs of a run."""
    columns = stored(run, DEV_PART)
    try:
        return Pairs(f"held out of {run.path}", columns["source"].texts(), columns["target"].texts())
    except (ValueError, KeyError) as error:
        raise WeftError(
            f"the held-out pairs of {run.path} are damaged: {error}", expected="texts", hint="`source=PATH`"
        ) from error
