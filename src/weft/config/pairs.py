"""Settings of parallel text, which every task on pairs has in common."""

from __future__ import annotations

from dataclasses import dataclass

from weft.config.common import TextConfig
from weft.config.strict import setting


@dataclass(frozen=True)
class PairTextConfig(TextConfig):
    level: str = setting("subword", "what a token is", choices=("char", "word", "space", "subword"))
    joint: bool = setting(True, "subword: both sides share their pieces (other tokens are never shared)")
    source_column: int = setting(1, "tab-separated data: the column to translate from", low=1)
    target_column: int = setting(2, "tab-separated data: the column to translate to", low=1)
