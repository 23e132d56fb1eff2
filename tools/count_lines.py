"""How large weft is: the lines of src by package, and how many of them are code.

    python tools/count_lines.py             the working tree
    python tools/count_lines.py COMMIT      a commit (HEAD~20, a tag), then what the working tree has more or less
    python tools/count_lines.py A B         the same for two commits

Lines are all lines of a file. Code is what remains without blank lines, comments and docstrings. Code of others
(page/vendor) and pictures are not counted; data is: the rules of a grammar are part of the program wherever they stand.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
KINDS = {
    "Python": (".py", ".pyi"),
    "C++": (".cpp", ".hpp"),
    "page": (".js", ".css", ".html"),
    "data": (".json", ".tsv", ".csv", ".txt", ".toml"),
}
COMMENTS = {"C++": r"//[^\n]*|/\*.*?\*/", "page": r"(?m:^\s*//[^\n]*)|/\*.*?\*/|<!--.*?-->", "data": r"(?m:^#[^\n]*)"}

Count = Counter[tuple[str, str, str]]  # (package, kind, "lines" or "code") -> how many


def code_lines(kind: str, text: str) -> int:
    """The lines of a file without blank lines, comments and docstrings."""
    if kind != "Python":
        text = re.sub(COMMENTS[kind], "", text, flags=re.DOTALL)
        return sum(bool(line.strip()) for line in text.splitlines())
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            lines.update(range(token.start[0], token.end[0] + (token.type != tokenize.ENDMARKER)))
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            lines.difference_update(range(body[0].lineno, (body[0].end_lineno or 0) + 1))
    return len(lines)


def files_of(commit: str | None) -> Iterator[tuple[PurePosixPath, str]]:
    """The files below src/weft that are under version control, of a commit or of the working tree."""
    if commit is None:
        listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard", "src/weft"], cwd=ROOT)
        for name in sorted(set(listed.decode().split())):
            if (ROOT / name).is_file() and kind_of(PurePosixPath(name)):
                yield PurePosixPath(name), (ROOT / name).read_text(encoding="utf-8")
        return
    packed = subprocess.check_output(["git", "archive", "--format=tar", commit, "src/weft"], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if member.isfile() and kind_of(path):
                content = archive.extractfile(member)
                assert content is not None
                yield path, content.read().decode("utf-8")


def kind_of(path: PurePosixPath) -> str | None:
    """The row in KINDS of a file that is counted."""
    if "vendor" in path.parts:
        return None
    return next((kind for kind, endings in KINDS.items() if path.suffix in endings), None)


def count(commit: str | None) -> Count:
    """The lines of a commit, or of the working tree."""
    found: Count = Counter()
    for path, text in files_of(commit):
        kind = kind_of(path)
        assert kind is not None
        package = path.parts[2] if len(path.parts) > 3 else "weft"
        for total in (package, "all"):
            found[total, kind, "lines"] += len(text.splitlines())
            found[total, kind, "code"] += code_lines(kind, text)
    return found


def table(found: Count, before: Count | None = None) -> Iterator[str]:
    """Lines and code of every package by kind, and in all; with `before`, what has come or gone since."""
    packages = sorted({package for package, _, _ in (found | (before or Counter()))} - {"all"})
    yield " " * 10 + "".join(f"{kind:>17}" for kind in (*KINDS, "in all")) + ("   since" if before else "")
    yield " " * 10 + f"{'lines':>10}{'code':>7}" * (len(KINDS) + 1)
    for package in (*packages, "all"):
        sums = [sum(found[package, kind, what] for kind in KINDS) for what in ("lines", "code")]
        cells = [found[package, kind, what] for kind in KINDS for what in ("lines", "code")] + sums
        row = "".join(f"{number or '':>{10 if not column % 2 else 7}}" for column, number in enumerate(cells))
        if before is not None:
            gone = [sum(before[package, kind, what] for kind in KINDS) for what in ("lines", "code")]
            row += f"{sums[0] - gone[0]:>+8}{sums[1] - gone[1]:>+7}"
        yield f"{package:10}{row}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    commits = parser.parse_args().commits
    if len(commits) > 2:
        parser.error("expected at most two commits")
    counts = [count(commit) for commit in commits] or [count(None)]
    names = commits or ["working tree"]
    if len(commits) == 1:
        counts, names = [*counts, count(None)], [*names, "working tree"]
    for place, (name, found) in enumerate(zip(names, counts, strict=True)):
        print(f"{name}:", *table(found, counts[0] if place else None), "", sep="\n")


if __name__ == "__main__":
    main()
