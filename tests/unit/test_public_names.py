"""Names: the public ones are listed once and exist; one name means one thing in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import weft

PACKAGE = Path(weft.__file__).parent

# Names that are defined in more than one module, and why.
REPEATED = {
    "COMMANDS": "every task's command.py has one",
    "TASK": "every task's task.py has one",
    "evaluate": "every task's command.py has one; and the compiler's, of a graph",
    "generate": "the function, and the command of that name",
    "translate": "the command, and the grammars' own translation",
    **dict.fromkeys(["cavity", "expect", "partition", "posterior", "viterbi"], "chains: the kernel and its reference"),
    **dict.fromkeys(["Phrase", "sentence"], "grammars: each language has its own"),
    **dict.fromkeys(["Node", "Rule", "Segment"], "of a graph or its program; of a grammar, an optimizer, a chain"),
}


def definitions(path: Path) -> set[str]:
    """The public classes, functions and constants that a file defines at its top level."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            found |= {name.id for name in names if isinstance(name, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def test_public_names_exist():
    assert len(set(weft.__all__)) == len(weft.__all__)
    for name in weft.__all__:
        assert getattr(weft, name) is not None, name
    assert "train_lm" in dir(weft)


def test_a_name_is_defined_once():
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in definitions(path):
            places[name].append(str(path.relative_to(PACKAGE)))
    repeated = {name: files for name, files in places.items() if len(files) > 1}
    assert {name: files for name, files in repeated.items() if name not in REPEATED} == {}
    assert set(REPEATED) <= set(repeated), "a name of the list is defined once by now: take it out"
