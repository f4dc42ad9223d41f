"""Which page or section of the built documentation is how many clicks from its start page."""

from __future__ import annotations

from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

# A place in the documentation: a page, by the folder that it is built into ("" for the start page), and a section ("":
# its top).
Place = tuple[str, str]


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
