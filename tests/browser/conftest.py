"""A real browser without a window.

Where it or what drives it is missing, tests are skipped; with TULLE_BROWSER=required in the environment they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tulle.files.install_hints import install_hint

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def _missing(what: str) -> NoReturn:
    if os.environ.get("TULLE_BROWSER") == "required":
        pytest.fail(f"TULLE_BROWSER=required, but {what}", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven over its own protocol."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing(f"playwright is not installed: {install_hint('browser')}")
    path = os.environ.get("TULLE_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        _missing("no chromium was found: install it, or name it in TULLE_CHROMIUM")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core."""
    try:
        from axe_playwright_python.base import AXE_SCRIPT
    except ImportError:
        _missing(f"axe-core is not installed: {install_hint('browser')}")
    return str(AXE_SCRIPT)


@pytest.fixture(scope="session")
def read_pdf() -> Any:
    """Reads what was printed."""
    try:
        from pypdf import PdfReader
    except ImportError:
        _missing(f"pypdf is not installed: {install_hint('browser')}")
    return PdfReader


@dataclass
class Shown:
    """A page in the browser, with all that it complained about and asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Shown]]:
    """Opens a page from a file, as people do."""
    contexts = []

    def opened(html: str, width: int = 1280, scheme: str = "light") -> Shown:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        contexts.append(context)
        shown = Shown(context.new_page())
        shown.page.on("console", lambda message: shown.complaints.append(message.text))
        shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        shown.page.goto(path.as_uri())
        return shown

    yield opened
    for context in contexts:
        context.close()
