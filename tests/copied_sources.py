"""Copies of the package's source with an edit in them, to ask what a measurement depends on."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import tulle
from tulle.experiments.dependencies import Sources


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
    others = _parsed(root, but_for=path)
    path.write_text(after, encoding="utf-8")
    try:
        yield Sources(root, others)
    finally:
        path.write_text(before, encoding="utf-8")


@lru_cache(maxsize=1)
def _all_parsed(root: Path) -> Sources:
    parsed = Sources(root)
    parsed.digest()
    return parsed


def _parsed(root: Path, *, but_for: Path) -> dict[str, ast.Module]:
    """Files that were not edited need not be read again."""
    parts = but_for.relative_to(root).with_suffix("").parts
    name = ".".join(("tulle", *(parts[:-1] if parts[-1] == "__init__" else parts)))
    return {module: tree for module, tree in _all_parsed(root)._trees.items() if module != name}


_EDITS = {
    "code": lambda text: f"{text}\n\ndef _added() -> int:\n    return 1\n",
    "number": lambda text: re.sub(r"\b1\.0\b", "1.5", text, count=1),
    "comment": lambda text: f"# Reworded.\n{text}# The end.\n",
    "docstrings": lambda text: re.sub(r'^( *)"""(?=\S)', r'\1"""Reworded: ', text, flags=re.MULTILINE),
    "layout": lambda text: re.sub(r"^( +)return (\w+)$", r"\n\1return (\n\1    \2\n\1)", text, flags=re.MULTILINE),
}
