"""The settings of a language model that are chosen by the amount of text and the time limit ("auto").

`choose_recipe` is the rule, which docs/defaults.md explains. It reads the number of training tokens, the size of the
vocabulary, the time limit, the number of threads and the precision, and no other property of the machine: with
`train.precision` given, the same command chooses the same settings everywhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple

import torch

from weft.cells import find_cell
from weft.config import auto_settings, dotted, resolve_auto, to_dict
from weft.nn.adaptive_softmax import SHORTER, default_cutoffs
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.model import SMALL_VOCABULARY, default_cell, is_adaptive
from weft.training.devices import PRECISION, fastest_precision
from weft.training.distributed import current_workers

CELL = "model.cell"
LONG = 3600.0  # seconds from which on the length of a training is announced
EFFICIENCY = 0.8  # of training, relative to large matrix products
SPEED = {"float32": 90e9, "bf16": 160e9}  # operations per second of a thread: what a time limit stands for
OPERATIONS = 6  # for each weight and token: a multiplication and an addition, forward, and twice that backward
SIZES = (64, 96, 128, 192, 256, 384, 512, 640, 768, 1024)  # of hidden layers
LARGEST_WITHOUT_LIMIT = 512
TOKENS_PER_WEIGHT = 3  # that a time limit has to allow to be read, for each recurrent weight
WEIGHTS_PER_TOKEN = 4  # recurrent weights at most, for each token of the text: more of them memorise it
CHARACTER_DIM = 128  # of embeddings at most, for vocabularies of up to SMALL_VOCABULARY tokens
MOST_EPOCHS = 40
NGRAM_ORDER, WORD_NGRAM_ORDER = 7, 3  # for vocabularies of up to SMALL_VOCABULARY tokens, and for larger ones
MOST_COUNTED = 4_000_000  # tokens of a text whose n-grams are counted


class Workload(NamedTuple):
    """What a recipe is chosen for."""

    tokens: int  # to train on
    vocabulary_size: int
    minutes: float = 0.0  # of the time limit; 0: none
    threads: int = 1
    precision: str = "float32"
    blocks: int = 4  # gate blocks of the cell
    layers: int = 1
    adaptive: bool = False  # whether the output layer is an adaptive softmax

    def recurrent_weights(self, hidden_size: int, embedding_dim: int) -> int:
        inputs = (embedding_dim or self.vocabulary_size) + (self.layers - 1) * hidden_size
        return self.blocks * hidden_size * (inputs + self.layers * hidden_size)

    def output_weights(self, hidden_size: int, embedding_dim: int) -> float:
        """The weights of the output layer that a token reads, on average."""
        if not self.adaptive:
            return float(hidden_size * self.vocabulary_size)
        dim, edges = embedding_dim or hidden_size, (*default_cutoffs(self.vocabulary_size), self.vocabulary_size)
        read = float(dim * edges[0])
        for index in range(1, len(edges)):
            # By Zipf's law the ids of a range are as frequent as the logarithm of its ends is long.
            frequency = math.log(edges[index] / edges[index - 1]) / math.log(self.vocabulary_size)
            read += frequency * (edges[index] - edges[index - 1]) * dim / SHORTER**index
        return read

    def epoch_seconds(self, hidden_size: int, embedding_dim: int) -> float:
        """The seconds that one pass over the text is expected to take."""
        weights = self.recurrent_weights(hidden_size, embedding_dim) + self.output_weights(hidden_size, embedding_dim)
        return self.tokens * OPERATIONS * weights / (self.threads * SPEED[self.precision])

    def embedding_dim(self, hidden_size: int) -> int:
        return min(CHARACTER_DIM, hidden_size) if self.vocabulary_size <= SMALL_VOCABULARY else hidden_size

    def fits(self, hidden_size: int) -> bool:
        """Whether the text has enough tokens for a size, and the time limit can train it."""
        dim = self.embedding_dim(hidden_size)
        weights, in_time = self.recurrent_weights(hidden_size, dim), hidden_size <= LARGEST_WITHOUT_LIMIT
        if self.minutes:
            in_time = self.tokens * self.passes(hidden_size, dim) >= TOKENS_PER_WEIGHT * weights
        return in_time and weights <= WEIGHTS_PER_TOKEN * self.tokens

    def passes(self, hidden_size: int, embedding_dim: int) -> float:
        """The passes over the text that the time limit is expected to allow."""
        return 60 * self.minutes / self.epoch_seconds(hidden_size, embedding_dim)


class Recipe(NamedTuple):
    hidden_size: int
    embedding_dim: int
    dropout: float
    learning_rate: float
    weight_decay: float
    epochs: int
    ngram_order: int


_TRAIN = ("learning_rate", "weight_decay", "epochs")
SETTINGS = {name: f"{'train' if name in _TRAIN else 'model'}.{name}" for name in Recipe._fields}


def choose_recipe(work: Workload, given: Mapping[str, float] | None = None) -> Recipe:
    """Chooses the settings for an amount of data and time.

    Args:
        work: the data and the time.
        given: settings of the recipe by dotted names that are fixed; the others are chosen to go with them.

    >>> recipe = choose_recipe(Workload(tokens=1_000_000, vocabulary_size=65, minutes=6))
    >>> recipe.hidden_size, recipe.dropout, recipe.learning_rate, recipe.epochs, recipe.ngram_order
    (512, 0.1, 0.0042, 12, 7)
    """
    given = given or {}
    characters = work.vocabulary_size <= SMALL_VOCABULARY
    # The largest size that the text has enough tokens for and that the time limit can train.
    hidden_size = int(given.get("model.hidden_size", max(filter(work.fits, SIZES), default=SIZES[0])))
    embedding_dim = int(given.get("model.embedding_dim", work.embedding_dim(hidden_size)))
    # 12 epochs for a million tokens; half as many for eight times the text.
    chosen_epochs = max(1, min(MOST_EPOCHS, round(12 * math.pow(1e6 / work.tokens, 1 / 3))))
    epochs = int(given.get("train.epochs", chosen_epochs))
    passes = min(epochs, work.passes(hidden_size, embedding_dim)) if work.minutes else epochs
    # None up to two passes; 0.1 more each time the passes double, 0.2 for words, whose embeddings memorise faster.
    dropout = (0.1 if characters else 0.2) * math.log2(max(1.0, passes / 2))
    # 0.006 for 256 units, 0.004 if the tokens are words; larger layers need smaller steps.
    learning_rate = (0.006 if characters else 0.004) * math.sqrt(256 / hidden_size)
    # In a limited time the network alone needs long to learn the rare words and phrases of a small text.
    counts = work.minutes and work.tokens <= MOST_COUNTED
    ngram_order = (NGRAM_ORDER if characters else WORD_NGRAM_ORDER) if counts else 0
    return Recipe(
        hidden_size,
        embedding_dim,
        dropout=given.get("model.dropout", round(min(0.5, max(0.0, dropout)), 2)),
        learning_rate=given.get("train.learning_rate", min(0.01, float(f"{learning_rate:.2g}"))),
        # For words less, since it would shrink their rare embeddings.
        weight_decay=given.get("train.weight_decay", 0.1 if characters else 0.01),
        epochs=epochs,
        ngram_order=int(given.get("model.ngram_order", ngram_order)),
    )


def choose_settings(config: LmConfig, tokens: int, vocabulary_size: int) -> tuple[LmConfig, str]:
    """Chooses the settings that are "auto".

    Returns:
        All settings, and lines that say which were chosen, and for what, and if training will take hours.
    """
    names, train, threads = set(auto_settings(config)), config.train, torch.get_num_threads() * current_workers().size
    cell = default_cell(vocabulary_size) if CELL in names else config.model.cell
    work = Workload(
        tokens=max(1, tokens),
        vocabulary_size=vocabulary_size,
        minutes=train.minutes,
        threads=threads,
        precision=fastest_precision(train.device) if PRECISION in names else train.precision,
        blocks=find_cell(cell).blocks,
        layers=config.model.num_layers,
        adaptive=is_adaptive(vocabulary_size, config.model.softmax),
    )
    given = {name: value for name, value in dotted(to_dict(config)).items() if name in {*SETTINGS.values()} - names}
    recipe = choose_recipe(work, given)
    lines = [_describe(work, recipe, names, cell), "" if work.minutes else _announce(work, recipe)]
    chosen = {SETTINGS[name]: value for name, value in recipe._asdict().items()}
    chosen |= {CELL: cell, PRECISION: work.precision}
    return resolve_auto(config, chosen), "\n".join(filter(None, lines))


def _describe(work: Workload, recipe: Recipe, names: set[str], cell: str) -> str:
    passes = work.passes(recipe.hidden_size, recipe.embedding_dim)
    ngrams = f"interpolated with {recipe.ngram_order}-grams" if recipe.ngram_order else ""
    words = {
        "hidden_size": f"hidden {recipe.hidden_size}",
        "embedding_dim": f"embedding {recipe.embedding_dim}",
        "dropout": f"dropout {recipe.dropout:g}",
        "learning_rate": f"learning rate {recipe.learning_rate:g}",
        "weight_decay": f"weight decay {recipe.weight_decay:g}",
        "epochs": f"{'at most ' if work.minutes else ''}{recipe.epochs} epochs",
        "ngram_order": ngrams,
    }
    settings = {CELL: f"cell {cell}", **{SETTINGS[name]: text for name, text in words.items()}}
    settings[PRECISION] = f"precision {work.precision}"
    shown = [text for name, text in settings.items() if name in names and text]
    if not shown:
        return ""
    reason = f"{work.tokens:,} tokens"
    if work.minutes:
        reason += f" and {work.minutes:g} minutes on {work.threads} thread{'s' * (work.threads > 1)}"
        reason += f", which should suffice for {min(passes, recipe.epochs):.2g} epochs"
    return f"{', '.join(shown)}: chosen for {reason}"


def _announce(work: Workload, recipe: Recipe) -> str:
    """How long a training of hours will take, and what would be faster; empty for shorter ones."""
    seconds = recipe.epochs * work.epoch_seconds(recipe.hidden_size, recipe.embedding_dim)
    if seconds < LONG / 4:  # even on a much slower machine
        return ""
    seconds *= SPEED["float32"] / _measured_speed()
    if seconds < LONG:
        return ""
    return (
        f"{recipe.epochs} epochs of {work.tokens:,} tokens with {recipe.hidden_size} hidden units will take about "
        f"{seconds / 3600:,.1f} hours. Faster: `train.minutes=30` chooses settings for half an hour, "
        "`text.limit=1000000` reads less text"
    )


def _measured_speed() -> float:
    """Floating point operations per second of a thread, as training has them; from large matrix products."""
    size, best = 512, float("inf")
    a = torch.ones(size, size)
    for _ in range(5):
        began = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - began)
    return EFFICIENCY * 2 * size**3 / best / torch.get_num_threads()
