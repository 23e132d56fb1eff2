"""The command of hidden Markov models: `weft train hmm`. Other commands are those of lm and fill."""

from __future__ import annotations

from weft.tasks.command import Commands
from weft.tasks.lm.command import TEXT_DATA, TEXT_DEV, evaluate, text_options

COMMANDS = Commands(
    summary="Train a hidden Markov model by Baum-Welch: it predicts a token from its left context, or from both sides.",
    data=TEXT_DATA,
    dev=TEXT_DEV,
    evaluate=evaluate,
    capabilities=("generate", "fill"),
    train_options=text_options,
    plain_options=("minutes", "seed"),
)
