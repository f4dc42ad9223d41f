"""The built pages: answers are as many clicks from the start page as docs/tasks.md says, the search has the words that
people look for, and nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pages import ROOT, cells
from site_links import Place, build_site, count_clicks, read_links

ROWS = cells("tasks.md", "no.")


def answer(row: list[str]) -> Place:
    """The first place that a row of the table names."""
    found = re.search(r"\]\((\w+)\.md(?:#([\w-]+))?\)", row[2])
    assert found is not None, row
    return found[1], found[2] or ""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the extra docs is not installed")
    return build_site(tmp_path_factory.mktemp("pages") / "site")


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


# --- search and appearance -------------------------------------------------------------------------------------------

# Where the heading of a section has the words.
SEARCHED = {
    "pandas": "raw_tables/#a-pandas-dataframe",
    "categorical": "raw_tables/#categorical-columns",
    "imbalanced": "model_features/#imbalanced-classes",
    "class_weight": "model_features/#class_weight",
    "missing values": "raw_tables/#missing-values",
    "threshold": "gallery/unequal_classes/#the-threshold-from-costs",
    "hazard ratios": "gallery/survival/#hazard-ratios",
}


@pytest.mark.parametrize(("words", "place"), SEARCHED.items())
def test_the_search_has_the_words_in_a_heading(words: str, place: str, site: Path) -> None:
    """The search puts titles first. The section exists, has the words in its title, and has text."""
    entries = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    (found,) = (entry for entry in entries if entry["location"] == place)
    assert words in re.sub(r"<[^>]+>", "", found["title"]).lower()
    assert len(found["text"]) > 100


def test_there_are_seven_groups() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    groups = re.findall(r"^  - (.+):$", text[text.index("\nnav:") : text.index("\nextra_css:")], re.M)
    assert groups == ["Get started", "Guides", "Methods", "Privacy", "Scale and federated", "Reference", "Results"]


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Neither scripts nor styles, fonts or pictures."""
    loading = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?:https?:)?//|<link[^>]*\shref=[\"']?(?:https?:)?//"
    )
    assert loading.search('<script src="https://cdn.example/x.js">')
    assert loading.search("<link rel=stylesheet href=//fonts.example/a.css>")
    pages = list(site.rglob("index.html"))
    assert len(pages) > 100
    assert [page for page in pages if loading.search(page.read_text(encoding="utf-8"))] == []


def test_notebooks_are_pages_with_their_pictures(site: Path) -> None:
    """Each notebook is a page, which shows its pictures and links to the notebook itself."""
    for notebook in (ROOT / "docs" / "gallery").glob("*.ipynb"):
        folder = site / "gallery" / notebook.stem
        page = (folder / "index.html").read_text(encoding="utf-8")
        pictures = re.findall(rf'src="\.\./({notebook.stem}_\d\.png)"', page)
        assert pictures
        assert all((site / "gallery" / name).is_file() for name in pictures)
        assert f'href="../{notebook.name}"' in page
        assert (site / "gallery" / notebook.name).is_file()
        assert f'src="{pictures[0]}"' in (site / "gallery" / "index.html").read_text(encoding="utf-8")


def test_code_of_the_build_is_not_among_the_pages(site: Path) -> None:
    kinds = (".py", ".pyc", ".toml", "matplotlibrc")
    assert [file for file in site.rglob("*") if file.name.endswith(kinds)] == []


def test_no_page_of_the_reference_is_huge(site: Path) -> None:
    """The whole reference on one page was 440 kB."""
    sizes = {page.parent.name: page.stat().st_size for page in (site / "api").rglob("index.html")}
    assert len(sizes) >= 15
    assert max(sizes.values()) < 150_000
