"""What a measurement depends on in the code: the modules that it names and all that those import.

The graph is read from the source, without running it. Comments, docstrings and layout do not count, so that a page can
be reworded without measuring everything again.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

# What shows results or keeps them, or hands names on, and decides none.
_BOOKKEEPING = (
    "tulle.cli",
    "tulle.pages",
    "tulle.datasets.where",
    "tulle.experiments.averages",
    "tulle.experiments.catalogue",
    "tulle.experiments.dependencies",
    "tulle.experiments.progress",
    "tulle.experiments.reproduction",
    "tulle.experiments.results",
    "tulle.experiments.runner",
)
# Lists of what there is: of what they name, a measurement depends on what it says itself.
_REGISTRIES = ("tulle", "tulle.datasets", "tulle.methods")


@lru_cache(maxsize=1)
def sources() -> Sources:
    """The source of this package, as it was when it was first asked for."""
    return Sources(Path(__file__).parent.parent)


@dataclass(frozen=True, eq=False)
class Sources:
    """The modules of a package called tulle, and what each imports of the others.

    Attributes
    ----------
    root : path
        The folder of the package.
    """

    root: Path
    _trees: dict[str, ast.Module] = field(default_factory=dict, repr=False)
    _imports: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    _codes: dict[str, str] = field(default_factory=dict, repr=False)
    _digests: dict[tuple[str, ...], str] = field(default_factory=dict, repr=False)

    @cached_property
    def _paths(self) -> dict[str, Path]:
        found = {}
        for path in self.root.rglob("*.py"):
            parts = ("tulle", *path.relative_to(self.root).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    def digest(self, modules: Iterable[str] | None = None) -> str:
        """A checksum of the code of some modules and of all that they import; None: of all that can change a result."""
        chosen = tuple(sorted({*self._paths} if modules is None else {*modules}))
        if chosen not in self._digests:
            digest = hashlib.sha256()
            for name in sorted(self.needed(chosen)):
                digest.update(f"{name} {self._code(name)}\n".encode())
            self._digests[chosen] = digest.hexdigest()
        return self._digests[chosen]

    def needed(self, modules: Iterable[str]) -> set[str]:
        """The names of some modules and of all that they import, as far as results depend on them."""
        found: set[str] = set()
        waiting = list(modules)
        while waiting:
            name = waiting.pop()
            if name not in self._paths:
                raise ValueError(f"there is no module {name} to depend on")
            if name in found or not _counts(name):
                continue
            found.add(name)
            if name not in _REGISTRIES:
                waiting += self._imports_of(name)
        return found

    def _imports_of(self, name: str) -> tuple[str, ...]:
        if name not in self._imports:
            self._imports[name] = tuple(self._imported(name, self._tree(name).body))
        return self._imports[name]

    def _code(self, name: str) -> str:
        if name not in self._codes:
            self._codes[name] = hashlib.sha256(ast.dump(self._tree(name)).encode()).hexdigest()
        return self._codes[name]

    def _tree(self, name: str) -> ast.Module:
        """A module without its docstrings."""
        if name not in self._trees:
            tree = ast.parse(self._paths[name].read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                    node.body = node.body[1:] or [ast.Pass()]
            self._trees[name] = tree
        return self._trees[name]

    def _imported(self, name: str, body: Iterable[ast.AST]) -> Iterator[str]:
        """The modules that a module imports, wherever in its text, but for type checkers."""
        for node in body:
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                yield from self._imported(name, node.orelse)
            elif isinstance(node, ast.Import):
                if any(alias.name == "tulle" for alias in node.names):
                    raise ValueError(f"{name}, line {node.lineno}: import the modules of tulle that are needed")
                yield from (alias.name for alias in node.names if alias.name in self._paths)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield from self._places(name, node, alias.name)
            else:
                yield from self._imported(name, ast.iter_child_nodes(node))

    def _places(self, name: str, node: ast.ImportFrom, wanted: str) -> Iterator[str]:
        """Where `from module import wanted` leads: a submodule, or the module and whoever defines what it hands on."""
        module = node.module or ""
        if (
            node.level
            or wanted == "*"
            or (module == "tulle" and f"tulle.{wanted}" not in self._paths and wanted != "__version__")
        ):
            raise ValueError(f"{name}, line {node.lineno}: {wanted} cannot be followed; import it from its own module")
        if f"{module}.{wanted}" in self._paths:
            yield f"{module}.{wanted}"
        elif module in self._paths:
            yield module
            if module in _REGISTRIES:
                yield from (
                    str(other.module)
                    for other in self._tree(module).body
                    if isinstance(other, ast.ImportFrom) and wanted in [alias.name for alias in other.names]
                    if other.module in self._paths
                )


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _counts(name: str) -> bool:
    handing_on = name in ("tulle", "tulle.datasets")
    return not handing_on and not any(name == part or name.startswith(f"{part}.") for part in _BOOKKEEPING)
