"""The battery of fields passes for each, and fails for fields with one defect."""

from __future__ import annotations

import numpy as np
import pytest

from tests.checks.fields import check_field
from weft.data.values import Values
from weft.text.config import TextConfig
from weft.text.fields import Label, Tags
from weft.text.spans import SCHEMES
from weft.text.text_field import Text

SERIES = np.random.default_rng(0).normal(3.0, 7.0, (9, 2))
CASES = {
    "text": (Text, TextConfig(tokenizer="word", min_count=1), ["the cat sat", "a cat"], "the cat", ("the", "cat")),
    "characters": (Text, TextConfig(), ["猫 cat"], "cat猫", ("c", "a", "t", "猫")),
    "label": (Label, None, ["no", "yes", "no"], "yes", ("yes",)),
    "tags": (Tags, None, [["DET", "N"], ["V"]], ("N", "V"), ("N", "V")),
    "spans": (Tags, SCHEMES["bio"], [["B-X", "O"]], ("O", "B-X", "I-X"), ("O", "B-X", "I-X")),
    "values": (Values, ["speed", "load"], [SERIES, SERIES[:3]], SERIES[:4], ("1", "2", "3", "4")),
}


@pytest.mark.parametrize("case", CASES)
def test_field(case, tmp_path):
    check_field(*CASES[case], tmp_path)


class EncodesOneStepLess(Values):
    def encode(self, value):
        return super().encode(value)[:-1]


class DecodesWithoutMeans(Values):
    def decode(self, row):
        return super().decode(row) - np.asarray(self.means)


class ForgetsItsChannels(Values):
    def to_json(self):
        return {**super().to_json(), "channels": list(super().to_json()["channels"])[::-1]}


class NamesFromZero(Values):
    def names(self, value):
        return tuple(str(step) for step in range(len(value)))


class AllowsAnything(Values):
    @property
    def schema(self):
        return {"type": "number"}


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (EncodesOneStepLess, "have names"),
        (DecodesWithoutMeans, "decodes to"),
        (ForgetsItsChannels, "another one"),
        (NamesFromZero, "the steps are"),
        (AllowsAnything, "the schema refuses"),
    ],
)
def test_field_mutants_fail(mutant, message, tmp_path):
    with pytest.raises(AssertionError, match=message):
        check_field(mutant, *CASES["values"][1:], tmp_path)
