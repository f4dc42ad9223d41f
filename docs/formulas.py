"""Formulas of the pages: LaTeX between dollar signs becomes MathML when the pages are built.

Browsers show MathML without a script, and viewers of repositories show the same LaTeX in the Markdown: ``$x_1$`` in a
line, and ``$$`` on lines of their own around a formula that stands alone. Code is left as it is.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert

_ALONE = re.compile(r"^\$\$\n(.+?)\n\$\$$", re.DOTALL | re.M)
# Blocks of code, code in a line and comments come first, and stay.
_IN_LINE = re.compile(
    r"^```.*?^```$|^(?: {4}|\t).*?$|(?P<ticks>`+).+?(?<!`)(?P=ticks)(?!`)|<!--.*?-->"
    r"|\$(?! )(?P<latex>[^$\n]+?)(?<! )\$(?!\d)",
    re.DOTALL | re.M,
)
# Markdown leaves a word of letters and digits as it is, so that a formula travels through it in this form.
_PACKED = re.compile(r"(?:<p>)?xformula(?P<kind>alone|inline)x(?P<text>[0-9a-f]+)x(?:</p>)?")


class FormulaError(ValueError):
    """A formula that cannot be typeset."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take formulas out of Markdown's reach."""
    # Display formulas first: a line of one may be indented.
    markdown = _ALONE.sub(lambda found: f"\n{_packed('alone', found[1])}\n", markdown)
    markdown = _IN_LINE.sub(lambda found: _packed("inline", found["latex"]) if found["latex"] else found[0], markdown)
    if found := re.search(r"^#+ .*xformula.*$", markdown, re.M):
        raise FormulaError(f"headings have no formulas, since they are shown in menus: {found[0].partition('xf')[0]}…")
    return markdown


def on_page_content(html_of_page: str, **_: Any) -> str:
    """Put formulas back, as MathML."""
    return _PACKED.sub(_typeset, html_of_page)


def to_mathml(latex: str, display: str = "inline") -> str:
    """A formula in MathML; an error where a command of it is not known."""
    # Primes as letters are as high as the font has them; as exponents they would be tiny where no font has mathematics.
    latex = latex.replace("''", "″").replace("'", "′")
    text = str(convert(latex, display=display)).replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # has the law of
    try:
        letters = "".join(ElementTree.fromstring(text).itertext())
    except ElementTree.ParseError:  # an environment whose columns are not known
        letters = "\\"
    if "\\" in letters:
        raise FormulaError(f"this formula has a command that cannot be typeset: {latex}")
    return text


def _packed(kind: str, latex: str) -> str:
    return f"xformula{kind}x{latex.encode().hex()}x"


def _typeset(found: re.Match[str]) -> str:
    latex = bytes.fromhex(found["text"]).decode()
    if found["kind"] == "inline":
        # A paragraph that is one formula keeps its tags.
        before, after = ("<p>" if found[0].startswith("<p>") else ""), ("</p>" if found[0].endswith("</p>") else "")
        return f"{before}{to_mathml(latex)}{after}"
    # Scrolled sideways where it is wide, and then reached by keyboard.
    return f'<div class="formula" tabindex="0" role="group" aria-label="Formula">{to_mathml(latex, "block")}</div>'
