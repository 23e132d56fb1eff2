"""The settings of text: how it is normalised and cut into tokens, and how much of it is held out."""

from __future__ import annotations

from dataclasses import dataclass

from weft.config import setting


@dataclass(frozen=True)
class TextConfig:
    level: str = setting("char", "what a token is", choices=("char", "word", "space", "subword"))
    normal_form: str = setting("NFC", "Unicode normalisation", choices=("NFC", "NFKC", "none"))
    lower: bool = setting(False, "turn text to lower case")
    letters_only: bool = setting(False, "turn every run of other characters than a-z, A-Z into one space")
    min_count: int = setting(1, "tokens seen less often become <unk>", low=1)
    max_size: int = setting(0, "largest vocabulary, reserved symbols included; 0: no limit (subword: 2000)", low=0)
    limit: int = setting(0, "read only so many tokens; 0: all", low=0)
    holdout: float = setting(0.1, "share of the text's end held out when no --dev is given", low=0, high=0.9)


@dataclass(frozen=True)
class PairTextConfig(TextConfig):
    level: str = setting("subword", "what a token is", choices=("char", "word", "space", "subword"))
    joint: bool = setting(True, "subword: both sides share their pieces (other tokens are never shared)")
    source_column: int = setting(1, "tab-separated data: the column to translate from", low=1)
    target_column: int = setting(2, "tab-separated data: the column to translate to", low=1)
