"""Tables and paragraphs as HTML for notebooks: escaped text, no script, no style sheet, nothing from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_RESULTS_DEPEND_ON = "nothing"


def html_table(head: Sequence[str], body: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table; the first cell of each line is its name.

    Parameters
    ----------
    head : sequence of str
    body : iterable of sequences of str
    caption : str, default=""
    """
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in body
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>"


def html_paragraphs(texts: Iterable[str]) -> str:
    """Each text as a paragraph."""
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)


def html_facts(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """A title in bold, and a table of two columns without a head."""
    rows = "".join(
        f'<tr><th scope="row" style="text-align: left; vertical-align: top">{html.escape(name)}</th>'
        f'<td style="text-align: left">{html.escape(text)}</td></tr>'
        for name, text in facts
    )
    return f"<p><strong>{html.escape(title)}</strong></p><table><tbody>{rows}</tbody></table>"


def html_details(title: str, texts: Iterable[str]) -> str:
    """A list that a click opens."""
    items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return f"<details><summary>{html.escape(title)}</summary><ul>{items}</ul></details>"
