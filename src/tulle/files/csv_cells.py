"""CSV files as tulle writes them: text that a spreadsheet would run as a formula is written as text.

A cell of text that begins with =, +, -, @, a tab or a line break is given a leading apostrophe, which spreadsheets take
as the mark of text. Numbers stay as they are, also if they are text, such as "-1.5". Names of features, classes and
clients come from files of other people: opening a table of weights must not run what one of them wrote.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

# The second half are the wide forms of the first four, which some spreadsheets treat alike.
_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|nan)")


def defuse(cell: Any) -> Any:
    """The cell as it is written: text that begins like a formula with an apostrophe before it, all else unchanged.

    Text that begins with apostrophes before such a character is given one more, so that no two cells are written alike.
    """
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell):
        return cell
    return f"'{cell}" if cell.lstrip("'").lstrip(" ").startswith(_BEGINS_FORMULA) else cell


def write_csv(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A CSV table as text: floats with all their digits, None as nothing, formulas defused.

    Parameters
    ----------
    header : sequence of str
        Names of the columns; none for further lines of a table.
    lines : iterable of sequences
        Text, numbers or None.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for line in (header, *lines) if header else lines:
        writer.writerow([defuse(cell) for cell in line])
    return text.getvalue()
