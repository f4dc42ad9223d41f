"""The pages in docs/results show what was measured, and say what the tables say."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from pages import ROOT

from tulle.experiments.catalogue import names, published
from tulle.reports.series import from_dict, table

RESULTS = ROOT / "docs" / "results"
PAGES = sorted(RESULTS.glob("*.md"))
SHOWN = re.compile(r"<!-- results: ([\w-]+) -->")
# Evidence stands on the page of the table that it is about.
EVIDENCE = "-evidence"
# There is no chance in printed noise, and a study of many clients takes minutes of a GPU.
FEWER_TRIALS = {"noise": 0, "federated": 3, "clients": 3}


def of_page(page: Path) -> list[str]:
    return SHOWN.findall(page.read_text(encoding="utf-8"))


def test_every_table_and_figure_is_shown_once() -> None:
    """One page each; evidence is shown with the table that it is about."""
    shown = [name for page in PAGES for name in of_page(page)]
    assert sorted(shown) == sorted(names())
    for page in PAGES:
        for name in of_page(page):
            assert name.removesuffix(EVIDENCE) == page.stem


@pytest.mark.parametrize("name", names())
def test_results_are_whole(name: str) -> None:
    """At least five trials, or as many as such a kind has, no failed cell, and files that say the same."""
    folder = RESULTS / name
    values = json.loads((folder / "reproduction.json").read_text(encoding="utf-8"))
    of = published(name)
    assert values["trials"] >= FEWER_TRIALS.get(of.kind, 5)
    assert values["failed"] == []
    assert values["command"].startswith(f"tulle reproduce {name}")
    results = from_dict(values)
    assert (folder / "table.md").read_text(encoding="utf-8") == table(results)
    assert {panel.name for panel in of.data} <= {panel.name for panel in results.panels} or of.kind == "curves"
    picture = (folder / "figure.svg").read_text(encoding="utf-8")
    page = (folder / "page.html").read_text(encoding="utf-8")
    for text in (picture, page, (folder / "table.md").read_text(encoding="utf-8")):
        # Every table and picture says where data is a substitute, and at which δ its ε are meant.
        assert " ".join(results.substitute.split()) in words(text)
        assert results.promise == of.promised()
        assert results.promise.startswith("δ = ")
        assert results.promise in words(text)


def words(text: str) -> str:
    """What a reader sees, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.mark.parametrize("page", [page for page in PAGES if of_page(page)], ids=lambda page: page.stem)
def test_figures_in_the_text_are_those_of_the_tables(page: Path) -> None:
    """A number with three decimals or more, wherever it stands in a verdict, is in one of the page's tables."""
    text = SHOWN.sub("", page.read_text(encoding="utf-8"))
    tables = "".join((RESULTS / name / "table.md").read_text(encoding="utf-8") for name in of_page(page))
    figures = re.findall(r"(?<![\d.])\d+\.\d{3,}(?!\d)", text)
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", tables)] == []


def test_the_list_names_every_page() -> None:
    """With a link to each."""
    text = (RESULTS / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w-]+)\.md\)", text))
    assert {page.stem for page in PAGES} - {"index"} <= linked
