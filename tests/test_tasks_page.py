"""docs/tasks.md: every answer is there, and as many clicks from the start page of the built pages as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, cells
from site_links import Place, count_clicks, read_links

ROWS = cells("tasks.md", "no.")


def answer(row: list[str]) -> Place:
    """The first place that a row of the table names."""
    found = re.search(r"\]\((\w+)\.md(?:#([\w-]+))?\)", row[2])
    assert found is not None, row
    return found[1], found[2] or ""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages. A link or an anchor that leads nowhere stops the build."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("pages") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_there_are_twenty_tasks() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 21))
    assert len({row[1] for row in ROWS}) == 20


def test_clicks_are_those_of_the_built_pages(site: Path) -> None:
    """No path through the list itself counts; nothing is further than three clicks away."""
    links = read_links(site)
    clicks = count_clicks(links, avoid=("tasks",))
    counted = {row[1]: clicks.get(answer(row)) for row in ROWS}
    assert counted == {row[1]: int(row[3]) for row in ROWS}
    assert max(counted.values()) <= 3  # type: ignore[type-var]
    assert count_clicks(links)["tasks", ""] == 1


def test_clicks_are_counted_as_stated() -> None:
    """By the shortest way; a section of a page that one link leads to directly is as near as the page; not through
    pages that are left out."""
    links: dict[str, set[Place]] = {
        "": {("a", ""), ("list", ""), ("b", "far")},
        "a": {("a", "section"), ("c", "")},
        "list": {("d", "")},
        "c": {("d", "")},
    }
    clicks = count_clicks(links, avoid=("list",))
    assert clicks["b", "far"] == clicks["a", ""] == 1
    assert clicks["a", "section"] == clicks["c", ""] == 2
    assert clicks["d", ""] == 3
    assert count_clicks(links)["d", ""] == 2
    assert ("b", "") not in clicks
