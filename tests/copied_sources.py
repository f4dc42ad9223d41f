"""Copies of the package's source with an edit in them, to ask what a measurement depends on."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import tulle
from tulle.experiments.dependencies import Sources

T = TypeVar("T")


def copied(folder: Path) -> Path:
    """A copy of the package's source; its root."""
    source = Path(tulle.__file__).parent
    return Path(shutil.copytree(source, folder / "tulle", ignore=shutil.ignore_patterns("__pycache__", "*.csv")))


@contextmanager
def edited(root: Path, file: str, how: str = "code") -> Iterator[Sources]:
    """The sources of a copy while one file of it is edited."""
    path = root / file
    before = path.read_text(encoding="utf-8")
    after = _EDITS[how](before)
    assert after != before
    others = _all_parsed(root)
    name = _module_of(path.relative_to(root))
    path.write_text(after, encoding="utf-8")
    try:
        # Files that were not edited need not be read again.
        yield Sources(root, _but_for(name, others._trees), _codes=_but_for(name, others._codes))
    finally:
        path.write_text(before, encoding="utf-8")


@lru_cache(maxsize=1)
def _all_parsed(root: Path) -> Sources:
    parsed = Sources(root)
    parsed.digest()
    return parsed


def _module_of(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(("tulle", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _but_for(name: str, of: dict[str, T]) -> dict[str, T]:
    return {module: found for module, found in of.items() if module != name}


def move(root: Path, moves: Mapping[str, str]) -> None:
    """Move modules and packages of a copy, and have all imports and messages follow."""
    for file in sorted(root.rglob("*.py")):
        file.write_text(_redirected(file.read_text(encoding="utf-8"), moves), encoding="utf-8")
    for old, new in moves.items():
        before, after = (root.joinpath(*name.split(".")[1:]) for name in (old, new))
        after.parent.mkdir(parents=True, exist_ok=True)
        ending = "" if before.is_dir() else ".py"
        before.with_name(f"{before.name}{ending}").rename(after.with_name(f"{after.name}{ending}"))


def _redirected(text: str, moves: Mapping[str, str]) -> str:
    """The text of a module after moves. Imports are put in the order of the new names, as a formatter does."""
    lines = text.split("\n")
    for node in reversed([node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]):
        if any(f"{node.module}.{alias.name}" in moves for alias in node.names):
            single = []
            for alias in node.names:
                folder, _, name = moves.get(f"{node.module}.{alias.name}", f"{node.module}.{alias.name}").rpartition(
                    "."
                )
                single.append(f"from {folder} import {name} as {alias.asname or alias.name}")
            indent = " " * node.col_offset
            lines[node.lineno - 1 : node.end_lineno] = [f"{indent}{'; '.join(sorted(single))}"] + [""] * (
                (node.end_lineno or node.lineno) - node.lineno
            )
    for old, new in moves.items():
        lines = [re.sub(rf"\b{re.escape(old)}\b", new, line) for line in lines]
    first = [k for k, line in enumerate(lines) if line.startswith("from tulle")]
    alone = [k for k in first if not lines[k].endswith("(")]
    for k, line in zip(alone, sorted(lines[k] for k in alone), strict=True):
        lines[k] = line
    return "\n".join(lines)


_EDITS = {
    "code": lambda text: f"{text}\n\ndef _added() -> int:\n    return 1\n",
    "number": lambda text: re.sub(r"\b1\.0\b", "1.5", text, count=1),
    "comment": lambda text: f"# Reworded.\n{text}# The end.\n",
    "docstrings": lambda text: re.sub(r'^( *)"""(?=\S)', r'\1"""Reworded: ', text, flags=re.MULTILINE),
    "layout": lambda text: re.sub(r"^( +)return (\w+)$", r"\n\1return (\n\1    \2\n\1)", text, flags=re.MULTILINE),
}
