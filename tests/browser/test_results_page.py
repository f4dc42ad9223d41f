"""Results as a browser shows them, on their page and as a picture: silent, whole and readable by everybody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from results_samples import EVERY, figure1, table3
from test_report_pages import WIDTHS, findings, mislaid, overflow, planted, sheets

from tulle.reports.pages import figure_svg, results_page
from tulle.reports.series import mean_words

Show = Callable[..., Any]
every_page = pytest.mark.parametrize("name", list(EVERY))


def unfolded(page: Any) -> Any:
    page.evaluate("document.querySelectorAll('details').forEach(found => { found.open = true })")
    return page


@every_page
def test_a_page_complains_about_nothing_and_asks_for_nothing(name: str, show: Show) -> None:
    shown = show(results_page(EVERY[name]()))
    assert shown.complaints == []
    assert [url.partition(":")[0] for url in shown.requests] == ["file"]


@every_page
@pytest.mark.parametrize("width", [320, *WIDTHS])
def test_a_page_never_scrolls_sideways(name: str, width: int, show: Show) -> None:
    assert overflow(unfolded(show(results_page(EVERY[name]()), width).page)) <= 0


@every_page
@pytest.mark.parametrize("width", WIDTHS)
def test_no_words_of_a_chart_are_cut_or_overlap(name: str, width: int, show: Show) -> None:
    assert mislaid(show(results_page(EVERY[name]()), width).page) == []


@every_page
def test_no_words_of_a_picture_are_cut_or_overlap(name: str, show: Show) -> None:
    shown = show(figure_svg(EVERY[name]()))
    assert mislaid(shown.page) == []
    assert shown.complaints == []


def test_words_that_lie_on_others_are_seen(show: Show) -> None:
    """The tests above can fail."""
    page = results_page(figure1()).replace(">null model</text>", ">null model and a lot more of it, much more</text>")
    assert any("null model" in found for found in mislaid(show(page, 390).page))


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(name: str, scheme: str, show: Show, axe: str) -> None:
    assert findings(unfolded(show(results_page(EVERY[name]()), 390, scheme).page), axe) == []


def test_axe_finds_a_planted_defect(show: Show, axe: str) -> None:
    page = planted(results_page(figure1()), "<figcaption>", '<figcaption style="color:#bbb">')
    assert any("color-contrast" in finding for finding in findings(show(page).page, axe))


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 31)")])
def test_a_picture_has_its_own_ground_and_follows_the_reader(scheme: str, ground: str, show: Show) -> None:
    page = show(figure_svg(figure1()), scheme=scheme).page
    assert page.evaluate("getComputedStyle(document.querySelector('.ground')).fill") == ground


def test_a_table_that_is_too_wide_scrolls_inside_its_box(show: Show) -> None:
    page = show(results_page(table3()), 390).page
    assert page.evaluate("(box => box.scrollWidth - box.clientWidth)(document.querySelector('.scroll'))") > 0
    page.evaluate("document.querySelector('.scroll').scrollLeft = 1000")
    assert page.evaluate("document.querySelector('.scroll').scrollLeft") > 0
    assert page.evaluate("document.querySelector('tbody th').getBoundingClientRect().left") >= 0


def test_paper_has_every_figure(show: Show, read_pdf: Any) -> None:
    texts = " ".join(sheets(show(results_page(table3()), scheme="dark").page, read_pdf))
    for one in table3().panels[0].series:
        assert all(mean_words(point, one.role) in texts for point in one.points)
    assert "substitute" in texts
