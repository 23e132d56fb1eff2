"""Detection of a text's language by character n-grams."""

from __future__ import annotations

import json

import pytest

import weft
from weft.errors import WeftError
from weft.tasks.translate.language_detection import PROFILES_FILE, LanguageProfile, load_profiles
from weft.text.grammars.trilingual import text
from weft.training.run import open_run, read_json, write_json


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    pairs = weft.Pairs("pairs", ["the cat sat.", "a dog ran."] * 20, ["le chat.", "un chien."] * 20)
    out = tmp_path_factory.mktemp("runs") / "en-fr"
    weft.start_translate(pairs, out, {"model.hidden_size": 4, "model.embedding_dim": 4}, dev=pairs)
    return open_run(out)


@pytest.mark.parametrize("other", ["french", "chinese"])
def test_held_out_sentences_are_told_apart(other):
    sides = list(zip(*(line.split("\t") for line in text(other, 500, seed=3).splitlines()), strict=True))
    profiles = [LanguageProfile.fit(side[100:]) for side in sides]
    for side, texts in enumerate(sides):
        right = [profiles[side].log_prob(text) > profiles[1 - side].log_prob(text) for text in texts[:100]]
        assert sum(right) >= 98
    restored = [LanguageProfile.from_json(json.loads(json.dumps(one.to_json()))) for one in profiles]
    assert [one.log_prob("a cat") for one in restored] == [one.log_prob("a cat") for one in profiles]
    assert len(json.dumps([one.to_json() for one in profiles])) < 100_000


def test_a_run_keeps_both_languages(run):
    source, target = load_profiles(run)
    assert source.log_prob("the dog") > target.log_prob("the dog")
    assert source.log_prob("le chien") < target.log_prob("le chien")
    assert source.log_prob("") == pytest.approx(target.log_prob(""), abs=3)


@pytest.mark.parametrize("content", [
    {}, {"source": {"counts": {"a": -1}, "totals": [1, 1, 1]}},
    {"source": {"counts": {"abcd": 1}, "totals": [1, 1, 1]}},
    {"source": {"counts": [], "totals": [1, 1, 1]}}, {"source": {"counts": {}, "totals": [1]}},
])  # fmt: skip
def test_a_damaged_file_is_refused(run, content):
    good = read_json(run.path / PROFILES_FILE)
    content = {side: content.get(side, good["target"]) for side in ("source", "target") if content}
    try:
        write_json(run.path / PROFILES_FILE, content)
        with pytest.raises(WeftError, match=r"languages.json is damaged"):
            load_profiles(run)
    finally:
        (run.path / PROFILES_FILE).unlink()
        assert load_profiles(run) is None
        write_json(run.path / PROFILES_FILE, {side: good[side] for side in ("source", "target")})
