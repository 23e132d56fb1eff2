"""The settings of a translator that are chosen by the number of pairs and the time limit ("auto").

The rule is in docs/translate.md ("What is chosen for you").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from weft.cells import find_cell
from weft.config import auto_settings, resolve_auto
from weft.tasks.lm.recipe import OPERATIONS
from weft.tasks.translate.config import TranslateConfig, TranslateModelConfig
from weft.training.devices import choose_precision
from weft.training.distributed import current_workers

# Floating point operations per second of a thread. Steps of sentences are shorter than those of a language model, and
# their attention, optimizer and evaluations count: 73e9 and 92e9 to 105e9 were measured for all pairs of fra-eng.
TRANSLATION_SPEED = {"float32": 70e9, "bf16": 95e9}
EPOCHS, MANY_PAIRS = 4, 160_000  # the fewest epochs, and the number of pairs from which on there are no more
SMALL_DATA_EPOCHS = 40  # the most
WITH_TIME_LIMIT = 2  # times as many epochs at most: usually the time ends the training
HIGHEST_DROPOUT, SMALL_DATA_PAIRS = 0.4, 10_000


class PairWorkload(NamedTuple):
    """What the settings are chosen for."""

    pairs: int  # to train on
    tokens: int  # of their targets
    vocabulary_size: int  # of the target


def epochs_for(pairs: int) -> int:
    """4 for 160,000 pairs; twice as many for a quarter of them.

    >>> [epochs_for(pairs) for pairs in (1_000, 10_000, 40_000, 1_000_000)]
    [40, 16, 8, 4]
    """
    wanted = round(EPOCHS * math.sqrt(MANY_PAIRS / max(1, pairs)))
    return max(EPOCHS, min(SMALL_DATA_EPOCHS, wanted))


def dropout_for(pairs: int, passes: float) -> float:
    """For 10,000 pairs or fewer 0.1 for 4 passes over them, and 0.1 more each time these double.

    Four times as many pairs halve it: they say more than dropout does about what holds in general.

    >>> [dropout_for(10_000, passes) for passes in (1, 4, 8, 16, 1000)]
    [0.0, 0.1, 0.2, 0.3, 0.4]
    >>> [dropout_for(pairs, 8) for pairs in (1_000, 10_000, 40_000, 160_000)]
    [0.2, 0.2, 0.1, 0.05]
    """
    by_passes = 0.1 * math.log2(max(1.0, passes / 2))
    return round(min(HIGHEST_DROPOUT, by_passes * math.sqrt(min(1.0, SMALL_DATA_PAIRS / max(1, pairs)))), 2)


def passes_within(seconds: float, work: PairWorkload, model: TranslateModelConfig) -> float:
    """The passes over the pairs that this much time of one float32 thread is expected to allow."""
    decoder = find_cell(model.cell).blocks * model.hidden_size * (model.embedding_dim + model.hidden_size)
    weights = 2 * decoder + work.vocabulary_size * model.embedding_dim  # the encoder has about as many as the decoder
    return seconds * TRANSLATION_SPEED["float32"] / (max(1, work.tokens) * OPERATIONS * weights)


def choose_for_pairs(config: TranslateConfig, work: PairWorkload) -> tuple[TranslateConfig, str]:
    """Chooses the settings that are "auto"; returns all of them, and a line that says which were chosen, and why."""
    names, config = auto_settings(config), choose_precision(config)
    train = config.train
    most = epochs_for(work.pairs) * (WITH_TIME_LIMIT if train.minutes else 1)
    # Whoever gives the number of epochs may want the model to memorise a few pairs.
    passes = float(most if "train.epochs" in names else EPOCHS)
    if train.minutes:
        threads = torch.get_num_threads() * current_workers().size
        speed = TRANSLATION_SPEED[train.precision] / TRANSLATION_SPEED["float32"]
        passes = min(passes, passes_within(60 * train.minutes * threads * speed, work, config.model))
    chosen = {"train.epochs": most, "model.dropout": dropout_for(work.pairs, passes)}
    words = {
        "train.epochs": f"{'at most ' if train.minutes else ''}{most} epochs",
        "model.dropout": f"dropout {chosen['model.dropout']:g}",
        "train.precision": f"precision {train.precision}",
    }
    shown = [text for name, text in words.items() if name in names]
    reason = f"{work.pairs:,} pairs" + (f" and {train.minutes:g} minutes" if train.minutes else "")
    return resolve_auto(config, chosen), f"{', '.join(shown)}: chosen for {reason}" if shown else ""
