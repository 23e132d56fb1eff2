"""The commands of mixtures: those of any language model. `weft mix` makes one (`weft.cli.mix`)."""

from __future__ import annotations

from weft.tasks.command import Commands
from weft.tasks.lm.command import TEXT_DATA, TEXT_DEV, evaluate

COMMANDS = Commands(
    summary="Interpolate language models.",
    data=TEXT_DATA,
    dev=TEXT_DEV,
    evaluate=evaluate,
    capabilities=("generate",),
    plain_options=(),
)
