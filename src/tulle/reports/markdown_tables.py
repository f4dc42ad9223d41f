"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns line up in plain text, too."""
    rows = [[cell.replace("|", "\\|") for cell in line] for line in (header, *lines)]
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(len(header))]
    padded = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    return "\n".join([padded[0], "| " + " | ".join("-" * width for width in widths) + " |", *padded[1:]])
