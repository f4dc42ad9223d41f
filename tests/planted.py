"""A planted bug, as tests/mutants.py plants it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Attributes
    ----------
    name : str
    history : str
        Where this bug was met: a paper, a library, a class of code.
    old, new : str
        The patch; `old` occurs exactly once in the package, or in `at`.
    tests : tuple of str
        The tests that must catch it (pytest node ids).
    needs : str
        A package of an extra without which these tests cannot run; "" for none.
    at : str
        The function, class or method ("Class.method") whose text is patched; "" where `old` is unique without it.
    """

    name: str
    history: str
    old: str
    new: str
    tests: tuple[str, ...]
    needs: str = ""
    at: str = ""

    def find(self, root: Path) -> tuple[Path, int]:
        """The file under `root` and the position in it where the patch goes.

        A place is found by its text, never by the name of its file: modules may move and be split.
        """
        return self.find_in(texts_of(root))

    def find_in(self, texts: dict[Path, str]) -> tuple[Path, int]:
        """As `find`, where the files are read already."""
        found = []
        for path, text in texts.items():
            if self.old not in text:
                continue
            spans = spans_of(text, self.at) if self.at else [(0, len(text))]
            for start, end in spans:
                place = text.find(self.old, start, end)
                while place >= 0:
                    found.append((path, place))
                    place = text.find(self.old, place + 1, end)
        if self.old == self.new or len(found) != 1:
            where = f" in {self.at}" if self.at else ""
            raise ValueError(f"{self.name!r}: {self.old!r} occurs {len(found)} times{where}")
        return found[0]

    def plant(self, root: Path) -> Path:
        """Patch the package under `root`; the patched file."""
        path, place = self.find(root)
        text = path.read_text(encoding="utf-8")
        path.write_text(text[:place] + self.new + text[place + len(self.old) :], encoding="utf-8")
        return path


def texts_of(root: Path) -> dict[Path, str]:
    """The text of every module under `root`."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}


def spans_of(text: str, name: str) -> Iterator[tuple[int, int]]:
    """Where in a module's text the definitions called `name` (function, class or "Class.method") begin and end."""
    lines = text.splitlines(keepends=True)

    def search(node: ast.AST, prefix: str) -> Iterator[tuple[int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                if prefix + child.name == name:
                    yield sum(map(len, lines[: child.lineno - 1])), sum(map(len, lines[: child.end_lineno]))
                yield from search(child, f"{prefix}{child.name}.")
            else:
                yield from search(child, prefix)

    yield from search(ast.parse(text), "")
