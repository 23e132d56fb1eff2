"""weft: Recurrent sequence models for your own text and time series, fast on an ordinary CPU.

    import weft
    model = weft.train_lm("my.txt", "runs/mine")
    print(model.generate("Once upon"))
    print(weft.load("runs/mine").evaluate("other.txt").perplexity)
    print(weft.train_fill("my.txt", "runs/blanks").fill("i ___ hungry", n=5))
    print(weft.train_translate("pairs.tsv", "runs/fr").translate(["I am home."]))

Shapes, here and everywhere: B rows, T steps, I input, H hidden, G gate blocks, V vocabulary, L layers,
D directions, S source steps, K beam width, R = B*K. Batch first.

The public names are listed once, in `__init__.pyi`. Each is imported when it is first used: `import weft` does not load
torch.
"""

import ast
import importlib
from pathlib import Path

__version__ = "0.1.0"


def _read_stub():
    """The module of every public name, from the imports of the stub."""
    tree = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


_MODULES = _read_stub()
__all__ = ["__version__", *_MODULES]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    if _MODULES[name] == __name__:
        return importlib.import_module(f"{__name__}.{name}")  # a package, such as weft.nn
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__():
    return sorted(__all__)
