"""Finds code that nothing uses: what only tests know, and what not even they know.

Looks at names, not at types: a method counts as used when something outside methods of the same name asks any object
for that name. Functions, classes and constants of a module are followed through imports, so a namesake elsewhere does
not save them. What a library calls by inheritance is found by asking the base classes.
"""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = tuple[ast.AST, ...]


class Definition(NamedTuple):
    """Something with a name; `scope` are the functions and classes around it."""

    module: str
    scope: Scope
    name: str
    node: ast.AST

    @property
    def path(self) -> str:
        around = [each.name for each in self.scope if isinstance(each, Function | ast.ClassDef)]
        return ".".join([self.module, *around, self.name])

    @property
    def is_method(self) -> bool:
        return bool(self.scope) and isinstance(self.scope[-1], ast.ClassDef)


@dataclass
class Code:
    """What is defined and what is used in some modules."""

    definitions: list[Definition] = field(default_factory=list)
    names: dict[tuple[str, str], list[Scope]] = field(default_factory=lambda: defaultdict(list))
    attributes: dict[str, list[Scope]] = field(default_factory=lambda: defaultdict(list))
    imports: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    packages: set[str] = field(default_factory=set)

    def read(self, root: Path) -> "Code":
        for path in sorted(root.rglob("*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            if path.name == "__init__.py":
                module = module.removesuffix(".__init__")
                self.packages.add(module)
            self._walk(module, ast.parse(path.read_text()), ())
        return self

    def read_text(self, text: str) -> None:
        """Code of somebody else, who uses but defines nothing."""
        with suppress(SyntaxError):
            elsewhere = Code()
            elsewhere._walk("", ast.parse(text), ())
            for name, scopes in elsewhere.attributes.items():
                self.attributes[name] += scopes
            for origin, modules in elsewhere.imports.items():
                self.imports[origin] |= modules

    def _walk(self, module: str, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function | ast.ClassDef):
                self.definitions.append(Definition(module, scope, child.name, child))
                self._walk(module, child, (*scope, child))
            else:
                self._note(module, child, scope)
                self._walk(module, child, scope)

    def _note(self, module: str, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Assign() | ast.AnnAssign() if not scope:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for each in (part for target in targets for part in ast.walk(target)):
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                        self.definitions.append(Definition(module, scope, each.id, node))
            case ast.Attribute(attr=name, ctx=ast.Load()):
                self.attributes[name].append(scope)
            case ast.MatchClass(kwd_attrs=asked):
                for word in asked:
                    self.attributes[word].append(scope)
            case ast.Name(id=name, ctx=ast.Load()):
                self.names[module, name].append(scope)
            case ast.ImportFrom(module=str(origin), names=names):
                for alias in names:
                    self.imports[origin, alias.name].add(module)
            case ast.Constant(value=str(text)) if re.fullmatch(r"[\w\[\]., |]{1,200}", text):
                for word in re.findall(r"\w+", text):  # an annotation, perhaps
                    self.names[module, word].append((*scope, _TEXT))

    # What is used.

    def unused(self, *, doors: frozenset[str] = frozenset()) -> Iterator[str]:
        """What nobody uses; `doors` are packages whose names others take by text."""
        for found in self.definitions:
            dunder = found.name.startswith("__") and found.name.endswith("__")
            if not (dunder or found.name == "_" or self._is_used(found, doors) or _is_command(found.node)):
                yield found.path

    def _is_used(self, found: Definition, doors: frozenset[str]) -> bool:
        if found.is_method:
            return self._is_asked_for(found) or _is_inherited(found)
        if any(found.node not in scope for scope in self.names[found.module, found.name] if _is_real(scope, found)):
            return True
        return not found.scope and (self._is_imported(found.module, found.name, doors) or self._is_asked_for(found))

    def _is_asked_for(self, found: Definition) -> bool:
        asking = self.attributes[found.name]
        return not all(found.node in scope or _is_inside(found.name, scope) for scope in asking)

    def _is_imported(self, module: str, name: str, doors: frozenset[str]) -> bool:
        """Whether a module takes the name that does more than pass it on."""
        if module in doors:
            return True
        for importer in self.imports[module, name]:
            passes_on = importer in self.packages and not any(
                scope[-1:] != (_TEXT,) for scope in self.names[importer, name]
            )
            if not passes_on or self._is_imported(importer, name, doors):
                return True
        return False


_TEXT = ast.Module(body=[], type_ignores=[])
"""Where a name stands in a text."""


def _is_inside(name: str, scope: Scope) -> bool:
    """Whether this is in a method of that name, which only passes on the call."""
    return any(
        isinstance(outer, ast.ClassDef) and isinstance(inner, Function) and inner.name == name
        for outer, inner in pairwise(scope)
    )


def _is_real(scope: Scope, found: Definition) -> bool:
    """`__all__` names what a module has; only a class or a type is used by its name in a text."""
    return scope[-1:] != (_TEXT,) or (len(scope) > 1 and isinstance(found.node, ast.ClassDef | ast.Assign))


def _is_command(node: ast.AST) -> bool:
    """Whether the command line finds it by the name of its module."""
    if not isinstance(node, Function):
        return False
    called = [each.func for each in node.decorator_list if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.Attribute) and each.attr in ("command", "group") for each in called)


def _is_inherited(found: Definition) -> bool:
    """Whether a base class from elsewhere has the method, so that its library calls it."""
    ours = found.module.partition(".")[0]
    owner: object = importlib.import_module(found.module)
    for each in found.scope:
        owner = getattr(owner, getattr(each, "name", ""), None)
    bases = owner.__mro__ if isinstance(owner, type) else ()
    return any(found.name in vars(base) for base in bases if base.__module__.partition(".")[0] != ours)


def python_of(page: str) -> Iterator[str]:
    """What a page of the documentation shows in Python: blocks and single expressions."""
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+\))`", page)
    return iter([*blocks, *spans])
