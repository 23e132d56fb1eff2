"""The public names of the package: listed once, all of them exist."""

from __future__ import annotations

import weft


def test_public_names_exist():
    assert len(set(weft.__all__)) == len(weft.__all__)
    for name in weft.__all__:
        assert getattr(weft, name) is not None, name
    assert "train_lm" in dir(weft)
