"""Which module defines a symbol, so that proof pages can name code without saying where it stands.

How a page writes a symbol:

- In backticks: a class, function or constant at the top of a module by its name, a member as `Class.member` with the
  class that defines or inherits it. No module goes before it.
- Where several modules define the name, the package goes before it, a folder that holds one of them only:
  `local.Server`, `federated.Server`.
- A function ends in `()`, as in `calibrate()`; without that a name in lower case is a parameter or part of a formula.
- In indented pseudo-code backticks are not needed for a name with a capital inside, or a class with its member:
  ClippedGradient, User.answer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "tulle"

# A dotted name that begins with one of these belongs to another library.
OTHER_LIBRARIES = ("dp_accounting", "scipy", "warnings")

_IN_BACKTICKS = re.compile(r"`((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\(\))?)`")
# Two letters at least, so that the `C`, `M_j` and `G_m` of formulas are not meant.
_CAPITAL = re.compile(r"_?[A-Z][A-Za-z]\w*")
_PSEUDO_CODE = re.compile(r"^ {4,}.*$", re.M)
_IN_PSEUDO_CODE = re.compile(
    r"(?<![\w.])(?:[a-z_]+\.)?_?(?:[A-Z]\w*[a-z]\w*[A-Z]\w*(?:\.[a-z_]\w*)?|[A-Z][A-Za-z]\w*\.[a-z_]\w*)"
)
_MODULE_PATH = re.compile(r"\btulle(?:\.[A-Za-z_]\w*)+|[\w/]+\.py\b")
_NOT_OF_THE_PACKAGE = ("docs/", "examples/", "tests/")


class SymbolError(LookupError):
    """A written symbol that no module defines, or more than one."""


@dataclass(frozen=True)
class Symbol:
    """A definition at the top of a module and, if it is a class, what its body says."""

    name: str
    module: str
    packages: tuple[str, ...]
    bases: tuple[str, ...] = ()
    members: frozenset[str] = field(default=frozenset(), repr=False)
    abstract: frozenset[str] = field(default=frozenset(), repr=False)


class SymbolIndex:
    """The symbols that the Python files of a package define, read from their syntax trees."""

    def __init__(self, root: Path = PACKAGE) -> None:
        self._root = root

    @cached_property
    def symbols(self) -> dict[str, tuple[Symbol, ...]]:
        """The definitions of each name, one for each module that has it."""
        found: dict[str, dict[str, Symbol]] = {}
        for path in sorted(self._root.rglob("*.py")):
            packages = path.parent.relative_to(self._root).parts
            module = ".".join((self._root.name, *packages, path.stem)).removesuffix(".__init__")
            for symbol in _symbols(ast.parse(path.read_text(encoding="utf-8")).body, module, packages):
                found.setdefault(symbol.name, {})[module] = symbol
        return {name: tuple(of_modules.values()) for name, of_modules in found.items()}

    def find(self, written: str) -> tuple[Symbol, ...]:
        """The symbols that a name may mean; for a member, the classes that have it."""
        parts = written.removesuffix("()").split(".")
        found: list[Symbol] = []
        if len(parts) <= 2:
            found += self._in_package(parts[-1], parts[:-1])
        if len(parts) in (2, 3):
            classes = self._in_package(parts[-2], parts[:-2])
            found += [symbol for symbol in classes if any(parts[-1] in base.members for base in self.lineage(symbol))]
        return tuple(found)

    def resolve(self, written: str) -> Symbol:
        found = self.find(written)
        if not found:
            raise SymbolError(f"no module defines {written}")
        if len(found) > 1:
            modules = ", ".join(symbol.module for symbol in found)
            raise SymbolError(f"{written} is defined in {modules}: write the package before it")
        return found[0]

    def lineage(self, symbol: Symbol) -> list[Symbol]:
        """The class and, in the order of the bases, all that it inherits from within the package."""
        line = [symbol]
        for name in symbol.bases:
            bases = self.symbols.get(name, ())
            # A module's own class hides one of another module.
            for base in [base for base in bases if base.module == symbol.module] or bases:
                line += [ancestor for ancestor in self.lineage(base) if ancestor not in line]
        return line

    def concrete_subclasses(self, base: str) -> list[Symbol]:
        """The subclasses of a class, itself left out, that leave no abstract method open."""
        root = self.resolve(base)
        return [
            symbol
            for symbols in self.symbols.values()
            for symbol in symbols
            if symbol != root and root in self.lineage(symbol) and not self._open(symbol)
        ]

    def shortest(self, symbol: Symbol) -> str:
        """How a page writes a symbol at the top of a module, without the () of a function."""
        for written in (symbol.name, *(f"{package}.{symbol.name}" for package in symbol.packages)):
            if self.find(written) == (symbol,):
                return written
        raise SymbolError(f"{symbol.module} has no package that tells its {symbol.name} from others: rename it")

    def _in_package(self, name: str, packages: Sequence[str]) -> list[Symbol]:
        return [symbol for symbol in self.symbols.get(name, ()) if all(part in symbol.packages for part in packages)]

    def _open(self, symbol: Symbol) -> set[str]:
        """The abstract methods that neither the class nor a class before the one that asks for them defines."""
        defined: set[str] = set()
        missing: set[str] = set()
        for ancestor in self.lineage(symbol):
            missing |= ancestor.abstract - defined
            defined |= ancestor.members - ancestor.abstract
        return missing


def written_symbols(text: str) -> set[str]:
    """The symbols that a page names."""
    in_backticks = {name for name in _IN_BACKTICKS.findall(text) if _is_symbol(name)}
    return in_backticks.union(*(_IN_PSEUDO_CODE.findall(line) for line in _PSEUDO_CODE.findall(text)))


def module_paths(text: str) -> set[str]:
    """What ties a page to the place of a module: dotted paths from `tulle` on, and paths of source files."""
    return {path for path in _MODULE_PATH.findall(text) if not path.startswith(_NOT_OF_THE_PACKAGE)}


def _is_symbol(name: str) -> bool:
    first, *others = name.split(".")
    if others and first in OTHER_LIBRARIES:
        return False
    return bool(others) or name.endswith("()") or _CAPITAL.fullmatch(name) is not None


def _symbols(body: Iterable[ast.stmt], module: str, packages: tuple[str, ...]) -> Iterator[Symbol]:
    for statement in _flat(body):
        if isinstance(statement, ast.ClassDef):
            bases = tuple(name for base in statement.bases if (name := _last_name(base)))
            inside = list(_flat(statement.body))
            members = frozenset(name for part in inside for name in _defined(part))
            abstract = frozenset(name for part in inside if _is_abstract(part) for name in _defined(part))
            yield Symbol(statement.name, module, packages, bases, members, abstract)
        else:
            yield from (Symbol(name, module, packages) for name in _defined(statement))


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, those under `if` and `try` included."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _flat([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            handlers = [part for handler in statement.handlers for part in handler.body]
            yield from _flat([*statement.body, *handlers, *statement.orelse, *statement.finalbody])
        else:
            yield statement


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            # `x.y = 1` and `x[0] = 1` define nothing: their names are read.
            yield from (
                node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            )


def _is_abstract(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef) and any(
        _last_name(decorator) == "abstractmethod" for decorator in statement.decorator_list
    )


def _last_name(expression: ast.expr) -> str:
    """`Query` of `Query`, `queries.Query` and `Query[T]`."""
    if isinstance(expression, ast.Subscript):
        return _last_name(expression.value)
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


INDEX = SymbolIndex()
