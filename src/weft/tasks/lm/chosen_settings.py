"""Chooses the settings of a new language model that are "auto", and says before training what was chosen."""

from __future__ import annotations

import time

import torch

from weft.cells import find_cell
from weft.config import auto_settings, dotted, resolve_auto, to_dict
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.model import default_cell, is_adaptive
from weft.tasks.lm.recipe import SETTINGS, SPEED, Recipe, Workload, choose_recipe
from weft.training.devices import PRECISION, fastest_precision
from weft.training.distributed import current_workers

CELL = "model.cell"
LONG = 3600.0  # seconds from which on the length of a training is announced
EFFICIENCY = 0.8  # of training, relative to large matrix products


def choose_settings(config: LmConfig, tokens: int, vocabulary_size: int) -> tuple[LmConfig, str]:
    """Chooses the settings that are "auto".

    Args:
        config: the settings; those that are not "auto" stay as they are.
        tokens: the number of tokens to train on.
        vocabulary_size: V.

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
    chosen = {**recipe.settings(), CELL: cell, PRECISION: work.precision}
    return resolve_auto(config, chosen), "\n".join(filter(None, lines))


def _describe(work: Workload, recipe: Recipe, names: set[str], cell: str) -> str:
    passes = work.passes(recipe.hidden_size, recipe.embedding_dim)
    words = {
        "hidden_size": f"hidden {recipe.hidden_size}",
        "embedding_dim": f"embedding {recipe.embedding_dim}",
        "dropout": f"dropout {recipe.dropout:g}",
        "learning_rate": f"learning rate {recipe.learning_rate:g}",
        "weight_decay": f"weight decay {recipe.weight_decay:g}",
        "epochs": f"at most {recipe.epochs} epochs" if work.minutes else f"{recipe.epochs} epochs",
    }
    if recipe.ngram_order:
        words["ngram_order"] = f"interpolated with {recipe.ngram_order}-grams"
    shown = [f"cell {cell}"] if CELL in names else []
    shown += [text for name, text in words.items() if SETTINGS[name] in names]
    if PRECISION in names:
        shown.append(f"precision {work.precision}")
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
