"""An extension of the API reference: examples of docstrings, and options of operations and probes.

Doctests that stand in the text of a docstring become its examples. `Annotated[int, Option("How many.")]`, also by a
name such as `OnlyUnit`, is shown as `int`, and its help as that of the argument.
"""

from __future__ import annotations

import ast
import textwrap
from typing import Any

from griffe import Docstring, Expr, ExprCall, ExprName, ExprSubscript, ExprTuple, Extension, Function, Module, Object


def with_examples(text: str) -> str:
    """Moves every paragraph that begins with `>>>` to an Examples section at the end."""
    paragraphs = text.split("\n\n")
    doctests = [part for part in paragraphs if part.startswith(">>>")]
    if not doctests:
        return text
    rest = [part for part in paragraphs if not part.startswith(">>>")]
    return "\n\n".join([*rest, "Examples:\n" + textwrap.indent("\n\n".join(doctests), "    ")])


def resolved(annotation: Any, package: Module) -> Any:
    """The `Annotated[...]` that a name stands for; any other annotation as it is."""
    if isinstance(annotation, ExprName) and annotation.canonical_path.startswith(f"{package.path}."):
        named = package.modules_collection.get_member(annotation.canonical_path)
        return resolved(named.value, package) if named.is_attribute and _annotated(named.value) else annotation
    return annotation


def option_help(annotation: Any) -> str:
    """The help of the `Option` of an `Annotated`, where it stands there."""
    for part in annotation.slice.elements[1:]:
        if isinstance(part, ExprCall) and part.canonical_path.endswith(".Option"):
            text = str(part.arguments[0])
            return str(ast.literal_eval(text)) if text[0] in "\"'" else ""
    return ""


def with_arguments(text: str, helps: dict[str, str]) -> str:
    """A docstring with the arguments that it does not describe itself."""
    missing = {name: help for name, help in helps.items() if help and f"    {name}: " not in text}
    lines = "".join(f"    {name}: {help}\n" for name, help in missing.items())
    if not missing or "Args:\n" in text:
        return text.replace("Args:\n", f"Args:\n{lines}", 1)
    return f"{text.rstrip()}\n\nArgs:\n{lines}"


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
                helps = {}
                for parameter in member.parameters:
                    annotation = resolved(parameter.annotation, package)
                    if _annotated(annotation):
                        helps[parameter.name] = option_help(annotation)
                        parameter.annotation = annotation.slice.elements[0]
                if helps:
                    member.docstring = member.docstring or Docstring("", parent=member)
                    member.docstring.value = with_arguments(member.docstring.value, helps)
            elif member.is_class or member.is_module:
                self._walk(member, package)
