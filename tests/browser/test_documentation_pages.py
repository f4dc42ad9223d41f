"""The built documentation in a real browser: accessible in light and dark, and searches find the pages that answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from site_links import build_site
from test_report_pages import findings

PLACES = (
    *("", "scikit_learn/", "model_features/", "api/", "api/estimators/", "frank_wolfe/", "results/state/"),
    *("gallery/", "gallery/mixed_table/", "gallery/survival/", "gallery/federated/"),
    "paper/",  # with wide formulas
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The search is a worker, which a browser starts over HTTP only."""
    pytest.importorskip("material", reason="the extra docs is not installed")
    folder: Path = build_site(tmp_path_factory.mktemp("pages") / "site")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(width: int, scheme: str, address: str, browser: Any, axe: str) -> None:
    """Contrast included; no page is wider than the screen or asks another host for anything."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    found = {}
    for place in PLACES:
        page.goto(address + place)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
        found[place] = findings(page, axe)
    context.close()
    assert {place: rules for place, rules in found.items() if rules} == {}
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []


def test_wide_formulas_are_scrolled(address: str, browser: Any) -> None:
    """On a phone some are wider than their place, and each can be reached by keyboard."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(address + "paper/")
    found = page.locator(".formula").evaluate_all(
        "all => all.map(one => [one.scrollWidth > one.clientWidth, one.tabIndex])"
    )
    context.close()
    assert len(found) >= 5
    assert any(wide for wide, _ in found)
    assert {index for _, index in found} == {0}


@pytest.mark.parametrize(
    ("words", "pages"),
    [
        ("pandas", {"raw_tables"}),
        ("categorical", {"raw_tables", "schema"}),
        ("imbalanced", {"model_features"}),
        ("class_weight", {"model_features"}),
        ("missing values", {"raw_tables", "schema", "private_preprocessing", "out_of_core"}),
    ],
)
def test_the_first_result_answers(words: str, pages: set[str], address: str, browser: Any) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 844})
    page = context.new_page()
    page.goto(address)
    page.locator("input.md-search__input").click()
    page.keyboard.type(words)
    first = page.locator(".md-search-result__link").first
    first.wait_for(timeout=20_000)
    page.wait_for_timeout(500)  # results are sorted again with each letter
    place = first.get_attribute("href").split("?")[0].removeprefix(address).strip("/")
    context.close()
    assert place in pages
