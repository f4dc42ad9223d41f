"""The search of a log for cells of private rows, in all ways that code writes them."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any

# Of a record: when and where it was made.
_PLACE = ("created", "msecs", "relativeCreated", "thread", "threadName", "process", "processName", "pathname", "lineno")


class Kept(logging.Handler):
    """Keeps all that a handler could write of each record."""

    def __init__(self) -> None:
        super().__init__(level=logging.NOTSET)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        every = (f"{name}={value}" for name, value in vars(record).items() if name not in _PLACE)
        self.lines.append(f"{record.getMessage()} {{{' '.join(every)}}}")


@contextlib.contextmanager
def kept_log() -> Iterator[list[str]]:
    """Every record of tulle that is logged meanwhile, at any level."""
    logger, handler = logging.getLogger("tulle"), Kept()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def forms_of(cell: Any, digits: int = 4) -> set[str]:
    """How a cell may be written: a number with so many digits or more, a word in other letters and encodings."""
    if isinstance(cell, str):
        coded = {cell.encode().hex(), repr(cell.encode())[2:-1], json.dumps(cell)[1:-1]}
        return {cell, cell.lower(), cell.upper(), cell.title(), cell[::-1], *coded}
    number = float(cell)
    forms = {repr(number), str(cell), f"{number:,}", f"{number:e}", number.hex(), f"{number:f}"}
    for shown in range(digits, 12):
        forms |= {f"{number:.{shown}g}", f"{number:.{shown - 1}e}"}
    if abs(number) >= 1000:
        forms |= {f"{number:.0f}", f"{number:,.0f}", f"{int(number)}"}
    return {form for form in forms if sum(letter.isdigit() for letter in form) >= digits}


def leaks(text: str, cells: Iterable[Any], digits: int = 4) -> list[str]:
    """The forms of cells that are in a text."""
    return sorted(form for cell in cells for form in forms_of(cell, digits) if form in text)
