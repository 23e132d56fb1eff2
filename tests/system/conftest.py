"""Runs that several files serve: they are trained once."""

from __future__ import annotations

import pytest

from tests.serving import train_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A small run of every task, by name; nobody may change them."""
    return train_runs(tmp_path_factory.mktemp("runs"))
