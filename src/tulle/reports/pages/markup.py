"""HTML by construction: text that is not `Markup` is escaped wherever it is put."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# C0 and C1 controls but tab and newline, line and paragraph separators: no text needs them, and parsers differ on them.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")
_VOID = {"br", "col", "hr", "meta"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Text as HTML; Markup stays what it is. Controls and halves of characters become the replacement character."""
    if isinstance(text, Markup):
        return text
    whole = _CONTROLS.sub("\ufffd", text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return Markup(html.escape(whole, quote=True))


def join_markup(parts: Iterable[str], between: str = "") -> Markup:
    """The parts, escaped where they are text, one after another."""
    return Markup(between.join(escaped(part) for part in parts))


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """An element with its children. An attribute that is None is left out, one of "" has no value.

    `class_` and `for_` stand for class and for, and underscores inside a name for hyphens.
    """
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value == "" else f'="{escaped(str(value))}"')
        for name, value in attributes.items()
        if value is not None
    )
    inside = "" if tag in _VOID else f"{join_markup(children)}</{tag}>"
    return Markup(f"<{tag}{written}>{inside}")


def breakable(name: str) -> Markup:
    """A name that may be parted after underscores, dots, slashes and hyphens where a line ends."""
    return Markup(re.sub(r"(?<=[^\W_])([_./-]+)(?=[^\W_])", r"\1<wbr>", escaped(name)))
