"""What a measurement depends on in the code: the modules that it names and all that those import.

The graph is read from the source, without running it. Checksums are of contents: a module's is of its syntax tree, in
which each import of another module of the package stands as that module's checksum, under the name that it is given
here. So neither a module's name nor its folder counts, and code can be moved without measuring everything again; nor
do comments, docstrings and layout.

A module says itself how results depend on it where that is not by its code and all its imports. `_RESULTS_DEPEND_ON`
at its top level is

    "nothing"         it shows results or keeps them, and decides none; nor do the modules of the package that it opens
    "names"           it hands names on: a result depends on the modules that define those which others import from it
    "code and names"  the same, and its own code counts: which class a name means is said there
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeGuard

_RESULTS_DEPEND_ON = "nothing"
_DECLARATION = "_RESULTS_DEPEND_ON"
_DECLARATIONS = ("nothing", "names", "code and names")


@lru_cache(maxsize=1)
def sources() -> Sources:
    """The source of this package, as it was when it was first asked for."""
    import tulle

    return Sources(Path(tulle.__file__).parent)


@dataclass(frozen=True)
class _Code:
    """The code of a module without names of other modules, and the modules that its imports lead to, in its order."""

    text: str
    imports: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Sources:
    """The modules of a package, and what each imports of the others.

    Attributes
    ----------
    root : path
        The folder of the package, of the package's name.
    """

    root: Path
    _trees: dict[str, ast.Module] = field(default_factory=dict, repr=False)
    _declarations: dict[str, str | None] = field(default_factory=dict, repr=False)
    _codes: dict[str, _Code] = field(default_factory=dict, repr=False)
    _closures: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    _hashes: dict[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def _paths(self) -> dict[str, Path]:
        found = {}
        for path in self.root.rglob("*.py"):
            parts = (self.root.name, *path.relative_to(self.root).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    def digest(self, modules: Sequence[str] | None = None) -> str:
        """A checksum of the code of some modules and of all that they import; None: of all that can change a result.

        The order of the modules counts: each has its part in the measurement.
        """
        if modules is None:
            hashes = sorted(self._hash(name) for name in self._paths if self._counts(name))
        else:
            self.needed(modules)  # refuses modules that are not there
            hashes = [self._hash(name) for name in dict.fromkeys(modules) if self._counts(name)]
        return _sha256("\n".join(hashes))

    def needed(self, modules: Iterable[str]) -> set[str]:
        """The names of some modules and of all that they import, as far as results depend on them."""
        found: set[str] = set()
        waiting = list(modules)
        while waiting:
            name = waiting.pop()
            if name not in self._paths:
                raise ValueError(f"there is no module {name} to depend on")
            if name not in found and self._counts(name):
                found.add(name)
                waiting += self._imports_of(name)
        return found

    # --- checksums ---

    def _hash(self, name: str) -> str:
        """The checksum of a module and of all that it imports.

        Modules that import each other get theirs together: at first of each one's code alone, then again and again with
        the last ones of those that it imports. Two circles of n modules that differ anywhere, in code or in who imports
        whom, differ after 2n rounds (each round but the last tells apart at least one more of the 2n modules).
        """
        if name not in self._hashes:
            circle = [other for other in self._closure(name) if name in self._closure(other)]
            known = {
                other: self._hash(other)
                for member in circle
                for other in self._imports_of(member)
                if other not in circle and self._counts(other)
            }
            latest = dict.fromkeys(circle, "")
            for _ in range(2 * len(circle)):
                latest = {member: self._combine(member, {**known, **latest}) for member in circle}
            members = sorted(latest.values())
            self._hashes.update({member: _sha256(repr((own, members))) for member, own in latest.items()})
        return self._hashes[name]

    def _closure(self, name: str) -> frozenset[str]:
        if name not in self._closures:
            self._closures[name] = frozenset(self.needed([name]))
        return self._closures[name]

    def _combine(self, name: str, known: dict[str, str]) -> str:
        code = self._code(name)
        imports = [[known[other] for other in places if other in known] for places in code.imports]
        return _sha256(repr((code.text, imports)))

    def _imports_of(self, name: str) -> Iterator[str]:
        return (other for places in self._code(name).imports for other in places)

    # --- what modules say of themselves ---

    def _counts(self, name: str) -> bool:
        return name in self._count

    @cached_property
    def _count(self) -> set[str]:
        """All modules whose code results may depend on."""
        nothing = [name for name in self._paths if self._declared(name) == "nothing"]
        passed_over = tuple(f"{name}." for name in nothing)
        return {
            name for name in self._paths if self._declared(name) != "names" and not f"{name}.".startswith(passed_over)
        }

    def _declared(self, name: str) -> str | None:
        if name not in self._declarations:
            found = [node for node in self._tree(name).body if _is_declaration(node)]
            said = [node.value.value if isinstance(node.value, ast.Constant) else None for node in found]
            if found and (len(found) > 1 or said[0] not in _DECLARATIONS):
                raise ValueError(f"{name}, line {found[-1].lineno}: {_DECLARATION} must be one of {_DECLARATIONS}")
            self._declarations[name] = str(said[0]) if found else None
        return self._declarations[name]

    def _tree(self, name: str) -> ast.Module:
        if name not in self._trees:
            self._trees[name] = ast.parse(self._paths[name].read_text(encoding="utf-8"))
        return self._trees[name]

    # --- the code of one module ---

    def _code(self, name: str) -> _Code:
        if name not in self._codes:
            imports: list[tuple[str, ...]] = []
            text = self._text(name, self._tree(name), imports)
            follows = self._declared(name) is None
            self._codes[name] = _Code(_sha256(text), tuple(imports) if follows else ())
        return self._codes[name]

    def _text(self, name: str, node: Any, imports: list[tuple[str, ...]]) -> str:
        """A part of a syntax tree, without names of modules of the package; those that it imports are added to a list.

        Imports count wherever they stand, except those for type checkers.
        """
        if isinstance(node, list):
            parts = []
            # Imports that stand together are sorted by name of module, so their order changes with moves.
            for together, group in groupby(node, key=lambda one: isinstance(one, (ast.Import, ast.ImportFrom))):
                if together:
                    parts += self._imports_text(name, list(group), imports)
                else:
                    parts += [self._text(name, one, imports) for one in group if not _is_passed_over(one)]
            return f"[{', '.join(parts)}]"
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return self._text(name, node.orelse, imports)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return repr(self._without_modules(name, node))
        if not isinstance(node, ast.AST):
            return repr(node)
        if isinstance(node, ast.JoinedStr):
            # Some versions of Python put an empty string behind the last value of a nested format.
            node = ast.JoinedStr([one for one in node.values if getattr(one, "value", None) != ""])
        said = (
            f"{key}={self._text(name, value, imports)}"
            for key, value in ast.iter_fields(node)
            # Later versions of Python add fields, which are empty where code does not use them; whether a name is
            # read or written is said by its place.
            if isinstance(node, ast.Constant) or not (value is None or value == [] or key == "ctx")
        )
        return f"{type(node).__name__}({', '.join(said)})"

    def _without_modules(self, name: str, node: ast.Constant) -> str:
        """A string in which modules of the package have no names, as in a message that says where to look."""

        def unnamed(found: re.Match[str]) -> str:
            parts = found[0].split(".")
            ends = (k for k in range(len(parts), 1, -1) if ".".join(parts[:k]) in self._paths)
            return ".".join(["<module>", *parts[end:]]) if (end := next(ends, 0)) else found[0]

        text = str(node.value)
        if text != self.root.name and text.rstrip(".") in self._paths:
            raise ValueError(f"{name}, line {node.lineno}: the string {text!r} cannot be followed; import the module")
        return re.sub(rf"\b{re.escape(self.root.name)}(?:\.\w+)+", unnamed, text)

    def _imports_text(
        self, name: str, nodes: list[ast.Import | ast.ImportFrom], imports: list[tuple[str, ...]]
    ) -> list[str]:
        """Imports that stand together: those of other packages as they are, then the package's own by local name."""
        foreign, own = [], []
        for node in nodes:
            for alias in node.names:
                module = (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
                if not getattr(node, "level", 0) and module.partition(".")[0] != self.root.name:
                    foreign.append(f"{type(node).__name__}({module}, {ast.dump(alias)})")
                else:
                    own.append((alias.asname or alias.name, *self._places(name, node, alias)))
        for local, wanted, places in sorted(own, key=lambda one: one[0]):
            foreign.append(f"own({local}={wanted})")
            imports.append(places)
        return foreign

    def _places(self, name: str, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> tuple[str, tuple[str, ...]]:
        """The name that an import takes from a module, "" for the module itself, and the modules that it leads to."""
        if isinstance(node, ast.Import):
            if alias.asname is None or alias.name == self.root.name:
                # Later code would name the module by its place.
                raise ValueError(
                    f"{name}, line {node.lineno}: import the modules of {self.root.name} that are needed, each under a "
                    "name of its own"
                )
            return "", (self._known(name, node, alias.name),)
        if not node.level and f"{node.module}.{alias.name}" in self._paths:
            return "", (f"{node.module}.{alias.name}",)
        places = () if node.level or alias.name == "*" else tuple(self._definers(str(node.module), alias.name))
        is_version = node.module == self.root.name and alias.name == "__version__"
        if not places and not is_version:
            raise ValueError(
                f"{name}, line {node.lineno}: {alias.name} cannot be followed; import it from its own module"
            )
        return alias.name, places

    def _known(self, name: str, node: ast.stmt, module: str) -> str:
        if module not in self._paths:
            raise ValueError(f"{name}, line {node.lineno}: there is no module {module} to depend on")
        return module

    def _definers(self, module: str, wanted: str) -> Iterator[str]:
        """The module that a name is imported from, if its code counts, and those that define what it hands on."""
        if module not in self._paths:
            return
        declared = self._declared(module)
        if declared != "names":
            yield module
        if declared in ("names", "code and names"):
            for other in self._tree(module).body:
                if isinstance(other, ast.ImportFrom) and not other.level:
                    for alias in other.names:
                        if (alias.asname or alias.name) == wanted:
                            yield from self._definers(str(other.module), alias.name)


def _is_declaration(node: ast.AST) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and [getattr(one, "id", "") for one in node.targets] == [_DECLARATION]


def _is_passed_over(node: Any) -> bool:
    """Whether a statement does nothing when it runs: a docstring, also one of a constant, `pass`, or a declaration."""
    says = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return says or isinstance(node, ast.Pass) or _is_declaration(node)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
