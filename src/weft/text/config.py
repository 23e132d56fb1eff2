"""Settings of text: normalization, tokenizer, vocabulary and held-out part."""

from __future__ import annotations

from dataclasses import dataclass

from weft.config import Settings, setting

NORMALIZATIONS = ("NFC", "NFKC", "none")


@dataclass(frozen=True)
class TextConfig(Settings):
    """The `text` section of the tasks that read one text."""

    tokenizer: str = setting(
        "char",
        "unit of a token; whitespace: text that is tokenized already",
        choices=("char", "word", "space", "whitespace", "subword"),
    )
    normalization: str = setting("NFC", "Unicode normalization form", choices=NORMALIZATIONS)
    lower: bool = setting(False, "convert text to lower case")
    letters_only: bool = setting(False, "replace every run of characters other than a-z, A-Z by one space")
    min_count: int = setting(1, "replace tokens with a lower count by <unk>", low=1)
    max_vocab_size: int = setting(
        0, "maximum vocabulary size, reserved tokens included; 0: no limit (subword: 2000)", low=0
    )
    limit: int = setting(0, "number of tokens to read; 0: all", low=0)
    holdout: float = setting(
        0.1, "fraction of the text, at its end, held out for evaluation without --dev", low=0, high=0.9
    )


@dataclass(frozen=True)
class CorpusConfig(TextConfig):
    """The `text` section of the tasks that read one long text."""

    column: str = setting(
        "", "column of the text in CSV, TSV or JSON lines, a name or a number; empty: plain text", option="--column"
    )
    strict: bool = setting(False, "refuse rows without a text; else they are left out and counted", option="--strict")


@dataclass(frozen=True)
class PairTextConfig(TextConfig):
    """The `text` section of tasks that read parallel text."""

    tokenizer: str = "subword"
    joint: bool = setting(True, "subword: share one vocabulary between source and target")
    source_column: int | str = setting(
        "",
        "column of the source sentence: a name, or a number from 1; empty: the first, in a table with names inferred",
    )
    target_column: int | str = setting(
        "",
        "column of the target sentence: a name, or a number from 1; empty: the second, in a table with names inferred",
    )
    strict: bool = setting(
        False, "refuse pairs of which a side is empty; else they are left out and counted", option="--strict"
    )
