"""Texts take linear time: every regular expression of the package, the normal forms, and every tokenizer.

A function is given texts of one repeated piece each. Where one takes long, the text is doubled twice: the time of a
linear function grows fourfold, that of a quadratic one 16-fold. Time is the processor's, of this thread alone.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from pathlib import Path

import pytest

import weft
from weft.pictures.save import SCRIPT_LETTERS
from weft.series.times import pattern_expression, pattern_parts
from weft.server.app import ENDPOINTS
from weft.tasks.fill.blanks import Blanked
from weft.tasks.tag.word_split import make_split
from weft.text.tokenizers import NORMALIZATIONS, TOKENIZERS, SubwordTokenizer, WordTokenizer, normalize_unicode

PACKAGE = Path(weft.__file__).parent
LENGTH = 4096
SUSPICIOUS = 1e-6  # seconds for a character: linear functions take less, quadratic ones more at this length
CHARACTERS = [*"aA1 \t\n-.'’_()@/*,$:\"[`<=#|", "人", "é", "\u0301", "。", "＿"]
PIECES = [
    *CHARACTERS,
    *(f"{one}{other}" for one in "a." for other in CHARACTERS if one != other),
    *("http://", "www.", "a.b@", "n't", ".zip:", "_ ", "`a=", "[]", "\u0315\u0301", "\u0323\u0301e", "\u0f73"),
]
TAILS = ("!", "a\n")


def patterns():
    """Every regular expression in the source, with the functions of `re` that it is used with."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = ".".join(("weft", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call) or not re.fullmatch(r"re\.\w+", ast.unparse(node.func)):
                continue
            function = ast.unparse(node.func).removeprefix("re.")
            if function == "escape":
                continue
            for pattern in expressions(node.args[0], vars(importlib.import_module(name))):
                flags = eval(ast.unparse(node.args[1])) if function == "compile" and node.args[1:] else 0
                yield pytest.param(pattern, flags, function, id=f"{name}:{node.lineno}")


def expressions(argument, module):
    """What the first argument of a function of `re` can be."""
    elsewhere = {
        "letters": list(SCRIPT_LETTERS.values()),
        r"""f'\\b{key}="([^"]*)"'""": [r'\bname="([^"]*)"', r'\bfilename="([^"]*)"'],
        "''.join(parts)": [
            pattern_expression(f"{date}{clock}")[0].pattern
            for date in pattern_parts()[0]
            for clock in ("", "T%H:%M:%S.%f %Z")
        ],
        "schema['pattern']": [
            part["pattern"]
            for one in ENDPOINTS
            for part in [*schemas(one.body), *schemas(one.query)]
            if "pattern" in part
        ],
    }
    written = ast.unparse(argument)
    if written in elsewhere:
        assert elsewhere[written]
        return elsewhere[written]
    if isinstance(argument, ast.IfExp):
        return [*expressions(argument.body, module), *expressions(argument.orelse, module)]
    return [eval(written, module)]  # a name that is not of the module fails here: add it above


def schemas(value):
    """All schemas inside a schema."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from schemas(part)


def cpu(function, text):
    began = time.thread_time()
    function(text)
    return time.thread_time() - began


def check_linear(function, pieces=PIECES, tails=TAILS):
    texts = [(piece * (LENGTH // len(piece)), tail) for piece in pieces for tail in tails]
    texts += [(f"http://{piece * LENGTH}", "!") for piece in pieces if len(piece) == 1]
    for text, tail in texts:
        if cpu(function, text + tail) < SUSPICIOUS * LENGTH:
            continue
        seconds = min(cpu(function, text + tail) for _ in range(3))
        growth = min(cpu(function, 4 * text + tail) for _ in range(2)) / seconds
        assert growth < 9, f"{text[:20]!r} again and again, then {tail!r}: 4 times the text, {growth:.0f} times as long"


@pytest.mark.parametrize(("pattern", "flags", "function"), list(patterns()))
def test_patterns(pattern, flags, function):
    compiled = re.compile(pattern, flags)
    use = getattr(compiled, function if function in ("match", "fullmatch", "search") else "findall")
    check_linear((lambda text: use(text.encode())) if isinstance(pattern, bytes) else use)


def test_this_test_sees_quadratic_patterns():
    with pytest.raises(AssertionError, match="as long"):
        check_linear(re.compile(r"\w+-").findall, ["a"], ["!"])


@pytest.mark.parametrize("form", NORMALIZATIONS)
def test_normal_forms(form):
    check_linear(lambda text: normalize_unicode(text, form))


def tokenizers():
    yield from (TOKENIZERS[name].from_json({"name": name}) for name in TOKENIZERS if name != SubwordTokenizer.name)
    yield WordTokenizer.train(["Ça va ? « Oui ; non »"])
    yield SubwordTokenizer.train(["".join(PIECES)] * 3, 300)


@pytest.mark.parametrize("tokenizer", list(tokenizers()), ids=lambda one: one.name)
def test_tokenizers(tokenizer):
    check_linear(lambda text: tokenizer.join(tokenizer.split(text)), tails=("",))


@pytest.mark.parametrize("whole_hyphens", [False, True])
@pytest.mark.parametrize("name", ["word", "space"])
def test_splitting_for_a_tagger(name, whole_hyphens):
    seen = {"a": 3, "...": 2, "U.S.": 3, "n't": 3}

    def split(text):
        return make_split(name, lambda word: seen.get(word, 0), whole_hyphens=whole_hyphens)(text)

    check_linear(split, tails=("",))


def test_blanks():
    check_linear(lambda text: Blanked.read(f"___ {text}"))
