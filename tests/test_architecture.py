"""The shape of the package: trusted code is small and rests on itself, imports point down, files are short.

The rules: docs/architecture.md.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tulle

SOURCE = Path(tulle.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {
    ".".join(("tulle", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in FILES
}

# Each package may import those of its own line and of the lines above.
LAYERS = (
    ("trusted",),
    ("accounting", "ledgers", "files", "fast", "monitoring"),
    ("backends", "schema"),
    ("methods", "transfer", "reports", "preprocessing", "inference"),
    ("estimators", "tuning", "survival"),
    ("local", "federated"),
    ("audit", "datasets"),
    ("experiments",),
    ("cli",),
)
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}

# Of the trusted package, and of the log of its entry point: a method holds no rows.
NOT_FOR_METHODS = ("rows", "curator", "fit", "randomness", "logged_account")
FROM_THE_CURATOR = "tulle.trusted.curator.Ask"  # a type, without rows

MOST_TRUSTED_LINES = 3200
MOST_LINES = 500

# To be resolved: modules that are still too long. Nothing may be added.
TOO_LONG: set[str] = set()


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def imported(source: str) -> Iterator[str]:
    """What a module imports, wherever in its text, for type checkers too: "package.module.name" each."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not resolved here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def violations(package: str, source: str) -> list[str]:
    """The imports of a module of `package` that point up, or to rows where the module is a method's."""
    found = []
    for name in imported(source):
        parts = name.split(".")
        if parts[0] != "tulle":
            continue
        there = parts[1] if len(parts) > 1 else ""
        if there not in LEVEL:
            if there not in ("__version__", ""):
                found.append(f"{name} is not imported from its own module")
        elif LEVEL[there] > LEVEL[package]:
            found.append(f"{name} points up")
        elif (
            package in ("methods", "transfer", "inference")
            and there in ("trusted", "monitoring")
            and set(parts[2:3]) & set(NOT_FOR_METHODS)
        ):
            found += [f"{name} is out of a method's reach"] * (name != FROM_THE_CURATOR)
    return found


def package_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def test_the_root_holds_three_files() -> None:
    assert {path.name for path in SOURCE.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}
    assert {path.name for path in SOURCE.iterdir() if list(path.glob("*.py"))} == set(LEVEL)


def test_the_trusted_package_is_small() -> None:
    assert sum(lines_of(path) for path in (SOURCE / "trusted").rglob("*.py")) <= MOST_TRUSTED_LINES


def test_imports_point_down() -> None:
    found = {
        str(path.relative_to(SOURCE)): wrong
        for path in FILES
        if package_of(path) and (wrong := violations(package_of(path), path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_no_file_is_long() -> None:
    assert {str(path.relative_to(SOURCE)) for path in FILES if lines_of(path) > MOST_LINES} == TOO_LONG


def test_no_base_name_is_used_twice() -> None:
    """But for `__init__` and the commands in cli/, which are named as users type them."""
    names = Counter(path.stem for path in FILES if package_of(path) != "cli" and path.stem != "__init__")
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("package", "planted"),
    [
        ("trusted", "from tulle.fast.kernels import draw"),
        ("trusted", "def late():\n    from tulle.ledgers.ledger import Ledger"),
        ("trusted", "if TYPE_CHECKING:\n    import tulle.methods.auto"),
        ("fast", "from tulle.backends import disk"),
        ("methods", "from tulle.trusted.rows import Rows"),
        ("methods", "from tulle.trusted import curator"),
        ("methods", "from tulle.trusted.curator import Ask, Curator"),
        ("methods", "import tulle.trusted.fit as f"),
        ("methods", "from tulle.monitoring.logged_account import open_logged_account"),
        ("estimators", "from tulle import Bounds"),
    ],
)
def test_a_planted_import_is_found(package: str, planted: str) -> None:
    clean = "import numpy as np\nfrom tulle.trusted.curator import Ask\nfrom tulle.trusted.plan import Plan\n"
    assert violations(package, clean) == []
    assert violations(package, clean + planted) != []


def first_imports(module: str, source: str) -> set[str]:
    """The modules of tulle that a module imports as it is loaded: not inside functions, nor for type checkers."""
    found: set[str] = set()
    open_nodes: list[ast.AST] = [ast.parse(source)]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            open_nodes += node.orelse
            continue
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        open_nodes += ast.iter_child_nodes(node)
    return found & MODULES.keys() - {module}


def cycle_in(imports: dict[str, set[str]]) -> list[str]:
    """Modules that wait for each other's imports; [] where there are none."""
    waiting = dict(imports)
    while ready := [name for name, needed in waiting.items() if not needed & waiting.keys()]:
        for name in ready:
            del waiting[name]
    return sorted(waiting)


def test_no_modules_import_each_other() -> None:
    assert cycle_in({name: first_imports(name, path.read_text("utf-8")) for name, path in MODULES.items()}) == []


def test_a_planted_cycle_is_found() -> None:
    first, second = "tulle.trusted.plan", "tulle.trusted.events"
    planted = {
        first: first_imports(first, "import math\nfrom tulle.trusted import events\n"),
        second: first_imports(second, "class Event:\n    from tulle.trusted.plan import Plan\n"),
    }
    assert cycle_in(planted) == [second, first]
    late = "if TYPE_CHECKING:\n    import tulle.trusted.plan\ndef f():\n    import tulle.trusted.plan\n"
    assert cycle_in(planted | {second: first_imports(second, late)}) == []
