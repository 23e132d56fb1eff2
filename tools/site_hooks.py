"""Hooks of the documentation site: pages of the reference are made when it is built, equations become MathML.

So pages need no script and no network. mkdocs calls the functions by their names.
"""

from __future__ import annotations

import html
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.reference_pages import PAGES

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.S)
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]+)(?:#[^)]*)?\)")

SECTION = re.compile(
    r'(<nav class="md-nav" data-md-level="\d+") aria-labelledby="\w+"'
    r"( [^>]*>\s*<label [^>]*>\s*<span [^>]*></span>\s*)([^<]*\S)"
)
HOW_TO = ("Start", "For torch users", "Tasks")  # sections of the navigation


def on_files(files: Files, *, config: Any) -> None:
    """Adds the pages of the reference."""
    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links to files outside of docs/ become plain text. Search has how-to pages first, and leaves lab/ out."""
    folder = posixpath.dirname(page.file.src_uri)
    section = page.ancestors[-1].title if page.ancestors else page.title
    page.meta["search"] = {"exclude": True} if folder == "lab" else {"boost": 3 if section in HOW_TO else 1}

    def plain(match: re.Match[str]) -> str:
        outside = posixpath.normpath(posixpath.join(folder, match[2])).startswith("..")
        return match[1] if outside else match[0]

    return LINK.sub(plain, markdown)


def on_page_content(html_text: str, **_: Any) -> str:
    def equation(match: re.Match[str]) -> str:
        display = "block" if match[2] == "[" else "inline"
        return convert(html.unescape(match[3]).strip(), display=display)

    return EQUATION.sub(equation, html_text)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """What the theme leaves out for screen readers: the language of a page, names of its parts."""
    language = "zh-Hans" if ".zh." in page.file.src_uri else "en"
    output = output.replace('<html lang="en"', f'<html lang="{language}"', 1)  # also for fonts and hyphenation
    output = output.replace(' role="dialog">', ' role="dialog" aria-label="Search">', 1)
    return SECTION.sub(r'\1 aria-label="Section: \3"\2\3', output)
