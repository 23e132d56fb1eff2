"""The command of n-gram models: `weft train ngram`. Other commands are those of any language model."""

from __future__ import annotations

from weft.tasks.command import Commands
from weft.tasks.lm.command import TEXT_DATA, TEXT_DEV, evaluate, text_options

COMMANDS = Commands(
    summary="Train an n-gram language model by counting: a strong, fast baseline.",
    data=TEXT_DATA,
    dev=TEXT_DEV,
    evaluate=evaluate,
    capabilities=("generate",),
    train_options=text_options,
    plain_options=(),
)
