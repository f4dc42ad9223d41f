"""The built documentation, and how many clicks each page or section is from its start page."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

from pages import ROOT

# A place in the documentation: a page, by the folder that it is built into ("" for the start page), and a section ("":
# its top).
Place = tuple[str, str]


def build_site(folder: Path) -> Path:
    """Build the pages into a folder. A link or an anchor that leads nowhere stops the build."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        address = dict(attributes).get("href") if tag == "a" else None
        if address:
            self.found.append(address)


def read_links(site: Path) -> dict[str, set[Place]]:
    """The places that each page links to, navigation included."""
    links: dict[str, set[Place]] = {}
    for file in site.rglob("index.html"):
        page = file.parent.relative_to(site).as_posix().removeprefix(".")
        parser = _Links()
        parser.feed(file.read_text(encoding="utf-8"))
        links[page] = set()
        for address in parser.found:
            whole, section = urldefrag(urljoin(f"http://site/{page}/" if page else "http://site/", address))
            if whole.startswith("http://site/"):
                links[page].add((unquote(urlparse(whole).path).strip("/"), unquote(section)))
    return links


def count_clicks(links: dict[str, set[Place]], avoid: Iterable[str] = ()) -> dict[Place, int]:
    """The least number of links from the top of the start page to each place; pages to `avoid` are not passed."""
    clicks: dict[Place, int] = {("", ""): 0}
    front, seen = [""], {"", *avoid}
    distance = 0
    while front:
        distance += 1
        reached: list[str] = []
        for page in front:
            for place in links.get(page, set()):
                clicks.setdefault(place, distance)
                if place[0] not in seen:
                    seen.add(place[0])
                    reached.append(place[0])
        front = reached
    return clicks
