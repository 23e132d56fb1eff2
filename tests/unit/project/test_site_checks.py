"""The checks of the documentation site find what they are for."""

from __future__ import annotations

import json

from tools.site_checks import QUERIES, check_lab, check_links

LINKS = {
    '<a href="other.html#there">': None,
    '<a href="https://example.org">': None,
    '<img src="sub/../other.html">': None,
    '<a href="nowhere.html">': "nowhere.html leads nowhere in a folder",
    '<a href="other.html#gone">': "other.html#gone has no such anchor",
    '<a href="/other.html">': "/other.html leads nowhere in a folder",
    '<a href=".">': ". leads nowhere in a folder",
    '<script src="https://example.org/x.js">': "loads https://example.org/x.js",
    '<link rel="stylesheet" href="https://example.org/x.css">': "loads https://example.org/x.css",
}


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "other.html").write_text('<h2 id="there"></h2>')
    for link, problem in LINKS.items():
        (tmp_path / "index.html").write_text(link)
        found = list(check_links(tmp_path))
        assert len(found) == (problem is not None), (link, found)
        assert problem is None or problem in found[0]


def test_experiments_are_not_searched(tmp_path):
    (tmp_path / "search").mkdir()
    index = {"docs": [{"location": "cells.html#gates"}, {"location": "lab/dropout.html"}]}
    (tmp_path / "search" / "search_index.json").write_text(json.dumps(index))
    assert list(check_lab(tmp_path)) == ["search has lab/dropout.html"]


def test_twenty_queries_are_tried():
    assert len(QUERIES) >= 20
