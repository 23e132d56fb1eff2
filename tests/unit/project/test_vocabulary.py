"""Source and documentation use the field's terms: private words of earlier versions must not return.

`FORBIDDEN` maps patterns to the term to use instead. They match whole words, case-insensitively. Ordinary words that
are wrong only in some contexts are not listed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

FOLDERS = ("src", "docs", "benchmarks", "examples", "tools")
SUFFIXES = (".py", ".hpp", ".cpp", ".h", ".md", ".toml")

FORBIDDEN = {
    r"foretells?|foretold|foretelling": "predict",
    r"told": "predicted, reported, given",
    r"guessing blindly": "uniform baseline",
    r"likeliest": "top-k, most probable",
    r"the way back": "backward pass, gradient",
    r"\w*_stays": "beta1, beta2, ema_decay",
    r"fates": "dropout masks",
    r"running means?": "exponential moving average (EMA)",
    r"numbers that stand for": "embedding dimension",
    r"by heart": "memorize",
    r"how readily|as readily": "span-start bias, calibration",
    r"as print has it|the print of": "word tokenizer, typography",
    r"kinder to|kinder way": "favours",
    r"mends?|mended|mending": "repair",
    r"sub-words?": "subword",
    r"nats_per_(token|text)|readout_nats": "cross_entropy, linear_cross_entropy",
    r"measure_held_out|measure_tokens": "evaluate_held_out, evaluate_tokens",
    r"(train|start|resume)_language|Language(Model|Train)?Config": "train_lm, LmConfig, ...",
    r"SequentialStream|RandomStream": "SequentialWindows, RandomWindows",
}
PATTERN = re.compile("|".join(rf"\b(?:{pattern})\b" for pattern in FORBIDDEN), re.IGNORECASE)


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return sorted([*found, *ROOT.glob("README*")])


def test_no_private_words() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; use {instead(match[0])}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for match in PATTERN.finditer(line)
    ]
    assert not places, "\n".join(places)


def instead(word: str) -> str:
    return next(term for pattern, term in FORBIDDEN.items() if re.fullmatch(pattern, word, re.IGNORECASE))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("how well it Foretold tokens", "Foretold"),
        ("gradients on the way back", "the way back"),
        ("mean_stays = 0.9", "mean_stays"),
        ("class Fates:", "Fates"),
        ("the likeliest ids", "likeliest"),
    ],
)
def test_private_words_are_found(text: str, word: str) -> None:
    found = PATTERN.search(text)
    assert found
    assert found[0] == word
    assert instead(word)


def test_ordinary_words_pass() -> None:
    assert not PATTERN.search("the recommended value stays constant; an enhancement of the threshold")
