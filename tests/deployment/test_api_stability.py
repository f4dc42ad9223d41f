"""docs/api_stability.md has every public module and every package, with names that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from pages import ROOT, cells, reference_names

LEVELS = ("stable", "provisional", "internal")
PACKAGE = ROOT / "src" / "tulle"
# Modules and names of the reference.
PUBLIC = reference_names()


def listed() -> dict[str, tuple[str, frozenset[str]]]:
    """The level of each module of the page, and the names that it covers."""
    rows = cells("api_stability.md", "module | level")
    found = {module.strip("`"): (level, frozenset(re.findall(r"`(\w+)`", names))) for module, level, names in rows}
    assert len(found) == len(rows)
    return found


def file_of(module: str) -> Path:
    path = ROOT / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_every_package_and_every_public_module_is_listed() -> None:
    """So that each module has a level: its own, or that of its package."""
    levels = listed()
    packages = {f"tulle.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")} | {"tulle"}
    assert len(packages) > 20
    assert packages <= set(levels)
    assert {module for module, (level, _) in levels.items() if level != "internal"} == set(PUBLIC)
    assert {level for level, _ in levels.values()} == set(LEVELS)
    assert list(levels) == sorted(levels)


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_names_are_those_of_the_reference(module: str) -> None:
    """A level without names covers all names of the module, which the reference then has on one page or several."""
    named = listed()[module][1]
    if named or not PUBLIC[module]:
        assert named == PUBLIC[module]
    else:
        assert PUBLIC[module] == set(importlib.import_module(module).__all__) - {"__version__"}


def test_listed_modules_exist_with_their_names() -> None:
    for module, (_, names) in listed().items():
        assert file_of(module).exists(), module
        if names:
            assert names <= set(dir(importlib.import_module(module))), module
