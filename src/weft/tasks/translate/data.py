"""Sentence pairs: read, split into training and held-out pairs, encoded and stored in a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.data.buckets import Ragged, hold_out, save_columns
from weft.errors import WeftError
from weft.tasks.fine_tuning import warn_new_tokens
from weft.tasks.plausibility import check_pairs
from weft.tasks.stored_data import StoreData
from weft.tasks.translate.config import TranslateConfig
from weft.text.parallel import PairCodec, Pairs, build_pair_codec, open_pairs
from weft.text.tokenizers import Normalizer
from weft.training.run import DATA_FOLDER, Run

TRAIN_PAIRS, DEV_PAIRS = f"{DATA_FOLDER}/train.npz", f"{DATA_FOLDER}/dev.json"

PairSource = str | Pairs  # a path, the name of a data set, or Pairs


def read_pairs(source: PairSource, config: TranslateConfig) -> Pairs:
    """Pairs from a path or the name of a data set; Pairs are returned as they are."""
    text = config.text
    if isinstance(source, Pairs):
        return source
    return open_pairs(source, source_column=text.source_column, target_column=text.target_column)


def store_pairs(
    source: PairSource, dev: PairSource | None, config: TranslateConfig, known: PairCodec | None = None
) -> StoreData:
    """Reads pairs to train on and to hold out; returns what encodes and stores them in a run.

    Equal sources stay on one side, with all their translations, so that no held-out source occurs in training.
    """
    pairs = read_pairs(source, config)
    if config.text.limit:
        pairs = Pairs(pairs.name, pairs.sources[: config.text.limit], pairs.targets[: config.text.limit])
    if not len(pairs):
        raise WeftError(f"{pairs.name} has no pairs", expected="sentences with their translations")
    check_pairs(pairs)
    if dev is not None:
        train, held = pairs, read_pairs(dev, config)
    else:
        read = Normalizer(config.text.normalization, config.text.lower, config.text.letters_only)
        # Sources that differ in spaces only are equal.
        keys = ["".join(read(text).split()) for text in pairs.sources]
        rows, held_rows = hold_out(keys, config.text.holdout, config.train.seed)
        train, held = _rows(pairs, rows), _rows(pairs, held_rows)

    def store(data: Path) -> Mapping[str, Any]:
        codec = known or build_pair_codec(config.text, train)
        if known is not None:
            sides = ((codec.source, train.sources), (codec.target, train.targets))
            warn_new_tokens(Counter(token for side, texts in sides for text in texts for token in side.unknown(text)))
        columns = {
            "source": Ragged.from_rows(map(codec.source.encode, train.sources)),
            "target": Ragged.from_rows(map(codec.target.encode, train.targets)),
        }
        save_columns(data.parent / TRAIN_PAIRS, columns)
        if len(held):  # as text, since that is what translations are compared with
            text = json.dumps({"sources": held.sources, "targets": held.targets}, ensure_ascii=False)
            (data.parent / DEV_PAIRS).write_text(text, encoding="utf-8")
        return codec.to_json()

    return store


def _rows(pairs: Pairs, rows: Sequence[int]) -> Pairs:
    return Pairs(pairs.name, [pairs.sources[row] for row in rows], [pairs.targets[row] for row in rows])


def held_out_pairs(run: Run) -> Pairs:
    """The held-out pairs of a run."""
    if not run.has(DEV_PAIRS):
        raise WeftError(f"{run.path} has no held-out pairs", expected="pairs to evaluate on", hint="`source=PATH`")
    try:
        text = json.loads(run.data_file(DEV_PAIRS).read_text(encoding="utf-8"))
        return Pairs(f"held out of {run.path}", text["sources"], text["targets"])
    except (ValueError, KeyError, TypeError) as error:
        raise WeftError(
            f"{run.path / DEV_PAIRS} is damaged: {error}",
            expected="the held-out pairs of the run",
            hint="`source=PATH`",
        ) from error
