"""The documentation as tests read it."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


# A fenced block: its language and its text.
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.M)


def whole(command: str) -> bool:
    return not command.endswith("\\") and command.count('"') % 2 == 0


def commands(text: str) -> Iterator[tuple[str, int, str]]:
    """Each command of a console block, its exit code and the output that is printed below it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.splitlines()
        # A line that ends in a backslash, or within quotes, goes on in the next.
        length = next(k for k in range(1, len(lines) + 1) if whole("\n".join(lines[:k])))
        command = "\n".join(lines[:length])
        code = re.search(r"# exit (\d+)$", command)
        yield command, int(code[1]) if code else 0, "\n".join(lines[length:]).strip()


def cells(page: str, first: str) -> list[list[str]]:
    """The rows of the table on a page of docs/ whose first headings are `first`."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    start = next(k for k, line in enumerate(lines) if re.match(rf"\| {re.escape(first)} *\|", line))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def reference_names() -> dict[str, frozenset[str]]:
    """The modules of the reference in docs/api, with the names that its pages ask for; none: all public ones."""
    found: dict[str, frozenset[str]] = {}
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for module, names in re.findall(r"<!-- api: ([\w.]+)(?:: ([\w, ]+))? -->", page.read_text(encoding="utf-8")):
            found[module] = found.get(module, frozenset()) | frozenset(filter(None, names.split(", ")))
    return found


def loaded(path: str) -> Any:
    """A script of the documentation, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module
