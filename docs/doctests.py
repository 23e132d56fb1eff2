"""An extension of the API reference: examples of docstrings, and types without what only the commands read.

Doctests that stand in the text of a docstring become its examples. `Annotated[int, Option(...)]`, also by a name
such as `OnlyUnit`, is shown as `int`.
"""

from __future__ import annotations

import textwrap
from typing import Any

from griffe import Expr, ExprName, ExprSubscript, ExprTuple, Extension, Function, Module, Object


def with_examples(text: str) -> str:
    """Moves every paragraph that begins with `>>>` to an Examples section at the end."""
    paragraphs = text.split("\n\n")
    doctests = [part for part in paragraphs if part.startswith(">>>")]
    if not doctests:
        return text
    rest = [part for part in paragraphs if not part.startswith(">>>")]
    return "\n\n".join([*rest, "Examples:\n" + textwrap.indent("\n\n".join(doctests), "    ")])


def plain(annotation: Any, package: Module) -> Any:
    """The type that `Annotated` holds; any other annotation as it is."""
    if isinstance(annotation, ExprName) and annotation.canonical_path.startswith(f"{package.path}."):
        named = package.modules_collection.get_member(annotation.canonical_path)
        return plain(named.value, package) if named.is_attribute and _annotated(named.value) else annotation
    return annotation.slice.elements[0] if _annotated(annotation) else annotation


def _annotated(expression: Any) -> bool:
    return (
        isinstance(expression, ExprSubscript)
        and isinstance(expression.left, Expr)
        and expression.left.canonical_name == "Annotated"
        and isinstance(expression.slice, ExprTuple)
    )


class Doctests(Extension):
    """griffe calls `on_object` for everything it finds in the package."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_examples(obj.docstring.value)

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """griffe calls it when the whole package is read."""
        self._walk(pkg, pkg)

    def _walk(self, parent: Object, package: Module) -> None:
        for member in parent.members.values():
            if member.is_alias:
                continue
            if isinstance(member, Function):
                for parameter in member.parameters:
                    parameter.annotation = plain(parameter.annotation, package)
            elif member.is_class or member.is_module:
                self._walk(member, package)
