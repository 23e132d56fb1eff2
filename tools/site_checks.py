"""Checks the documentation site that `make docs` has built.

    python -m tools.site_checks site

- Every link leads to a page and an anchor that exist, and nothing is loaded from another host.
- Opened from a folder in chromium, without a network, the search finds typical queries (needs chromium and playwright).
- On ten pages, small and dark, large and light, axe-core finds nothing.
- The pages of docs/lab/ stand neither in the navigation nor in the search.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]

QUERIES = {  # what readers type -> a page that has to be among the first results
    "install": "install.html",
    "cpu torch": "install.html",
    "windows": "install.html",
    "no compiler": "install.html",
    "out of memory": "troubleshooting.html",
    "is not UTF-8": "troubleshooting.html",
    "diverges": "troubleshooting.html",
    "repeats itself": "troubleshooting.html",
    "wrong column": "troubleshooting.html",
    "resume": "language-model.html",
    "generate text": "language-model.html",
    "perplexity": "language-model.html",
    "sentiment": "which-task.html",
    "named entities": "which-task.html",
    "word segmentation": "tag.html",
    "csv header": "classify.html",
    "beam search": "translate.html",
    "attention": "translate.html",
    "accelerate": "accelerate.html",
    "custom cell": "cells.html",
    "PackedSequence": "accelerate.html",
    "bfloat16": "inference.html",
    "openai": "serve.html",
    "torchrun": "scale.html",
    "vanishing gradient": "gradients.html",
    "hidden Markov model": "chains.html",
    "forecast": "forecast.html",
    "time series": "forecast.html",
    "prediction intervals": "forecast.html",
    "covariates": "forecast.html",
    "anomaly": "anomalies.html",
    "false alarms": "anomalies.html",
    "sensor": "series-classification.html",
    "MASE": "series-results.html",
    "困惑度": "from-the-notes.zh.html",
    "术语": "glossary.html",
}
LOOKED_AT = ("index", "index.zh", "install", "troubleshooting", "accelerate", "classify", "gradients", "results", "cli")
LOOKED_AT += ("glossary", "api/layers", "forecast", "anomalies", "series-classification", "series-results")
AXE = ROOT / "tests" / "vendor" / "axe.min.js"
FIRST = 5  # so many results count as found


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(values["href"])
        elif "src" in values:
            self.loaded.append(values["src"])


def check_links(site: Path) -> Iterator[str]:
    """A line for each link that leads nowhere, and for each file of another host that a page loads."""

    @cache
    def page(path: Path) -> Page:
        return Page(path.read_text(encoding="utf-8"))

    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # a server shows it under any address
            continue
        where = path.relative_to(site)
        for target in (*page(path).links, *page(path).loaded):
            address = urlsplit(target)
            if address.scheme in ("http", "https", "mailto"):
                if target in page(path).loaded:
                    yield f"{where} loads {target}"
                continue
            file = (path.parent / unquote(address.path)).resolve() if address.path else path
            if target.startswith("/") or not file.is_file() or site not in file.parents:
                yield f"{where}: {target} leads nowhere in a folder"
            elif address.fragment and file.suffix == ".html" and unquote(address.fragment) not in page(file).anchors:
                yield f"{where}: {target} has no such anchor"


def check_lab(site: Path) -> Iterator[str]:
    """Pages of experiments are linked from the results, and found in no other way."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    yield from (f"search has {entry['location']}" for entry in index["docs"] if entry["location"].startswith("lab/"))


def check_search(page: Any, site: Path) -> Iterator[str]:
    """A line for each query whose page is not among the first results, for each error and each request to a host."""
    from playwright.sync_api import expect

    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"error in a page: {error}"))
    page.on("request", lambda request: request.url.startswith("file:") or problems.append(f"asks for {request.url}"))
    page.goto((site / "index.html").as_uri())
    field, results = page.locator("input[name=query]"), page.locator(".md-search-result__meta")
    for query, expected in QUERIES.items():
        for text, shown in (("", "Type to start searching"), (query, "matching document")):
            field.fill(text)
            field.dispatch_event("keyup")
            expect(results).to_contain_text(shown, timeout=30_000)
        links = page.locator(".md-search-result__item > a").evaluate_all("links => links.map(link => link.pathname)")
        pages = list(dict.fromkeys(link.rpartition("/")[2] for link in links))
        if expected not in pages[:FIRST]:
            problems.append(f"search for {query!r} does not find {expected}, but {', '.join(pages[:FIRST])}")
    yield from problems


def check_access(page: Any, site: Path) -> Iterator[str]:
    """A line for each rule of axe-core that a page breaks."""
    for width, scheme in ((400, "dark"), (1200, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        for name in LOOKED_AT:
            page.goto((site / f"{name}.html").as_uri())
            page.wait_for_function("!document.querySelector('pre > code') || document.querySelector('.md-code__nav')")
            page.evaluate(AXE.read_text(encoding="utf-8"))
            for broken in page.evaluate("axe.run()")["violations"]:
                nodes = ", ".join(str(node["target"]) for node in broken["nodes"][:3])
                yield f"{name}, {width} pixels, {scheme}: {broken['id']}: {nodes}"


def check_in_browser(site: Path, chromium: str) -> Iterator[str]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for check in (check_search, check_access):
            yield from check(browser.new_context(offline=True).new_page(), site)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    site = parser.parse_args().site.resolve()
    problems = [*check_links(site), *check_lab(site)]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium and find_spec("playwright"):
        problems += check_in_browser(site, chromium)
    else:
        print(
            "tools.site_checks: search and access were not tried, which takes chromium and playwright", file=sys.stderr
        )
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
