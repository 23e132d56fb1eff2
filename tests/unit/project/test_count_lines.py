"""tools/count_lines.py: what counts as code."""

from __future__ import annotations

from tools.count_lines import code_lines

PYTHON = '''"""A module's docstring
has two lines."""

# A comment.
TEXT = """a
b"""  # data, and no docstring


def add(a, b):
    """The sum."""
    return (
        a + b
    )
'''


def test_blank_lines_comments_and_docstrings_are_no_code():
    assert code_lines("Python", PYTHON) == 2 + 1 + 3
    assert code_lines("C++", "// one\n/* two\nthree */\n\nint four = 4;  // five\n") == 1
    assert code_lines("page", "<!-- one\ntwo -->\n<a href='https://three'>\n  // four\n") == 1
    assert code_lines("data", "# one\nword\tnoun\n") == 1
