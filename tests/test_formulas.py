"""Formulas of the pages: LaTeX becomes MathML, code stays, and an unknown command stops the build."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from pages import PAGES, ROOT
from test_docs import loaded

pytest.importorskip("latex2mathml", reason="the extra docs is not installed")

FORMULAS = loaded("docs/formulas.py")
SHOWN = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]


def built(markdown: str) -> str:
    """As the hooks change a page whose Markdown is HTML already."""
    return str(FORMULAS.on_page_content(FORMULAS.on_page_markdown(markdown)))


def test_a_formula_in_a_line() -> None:
    html = built("<p>If $n_1 < 2$ and $d$ are small.</p>")
    assert html.startswith("<p>If <math ")
    assert "<msub><mi>n</mi><mn>1</mn></msub><mo>&#x0003C;</mo><mn>2</mn>" in html
    assert html.count("<math") == html.count("</math>") == 2
    assert html.endswith("</math> are small.</p>")


def test_a_formula_that_stands_alone() -> None:
    """It can be scrolled, and reached by keyboard; the paragraph that Markdown makes of it goes."""
    packed = FORMULAS.on_page_markdown("before\n\n$$\n\\frac{a}{b}\n$$\n\nafter")
    (word,) = re.findall(r"^xformula\w+$", packed, re.M)
    html = FORMULAS.on_page_content(f"<p>before</p>\n<p>{word}</p>\n<p>after</p>")
    assert html.startswith('<p>before</p>\n<div class="formula" tabindex="0" role="group" aria-label="Formula"><math ')
    assert "<mfrac>" in html
    assert 'display="block"' in html
    assert html.endswith("</math></div>\n<p>after</p>")


@pytest.mark.parametrize(
    "code",
    ["`$x$`", "```console\n$ ls $HOME$\n```", "    $x$ = 1", "<!-- $x$ -->", "costs $5, or $ 6 $", "`` ` $x$ ``"],
)
def test_code_and_money_stay(code: str) -> None:
    assert built(code) == code


@pytest.mark.parametrize("latex", [r"\nosuchcommand{x}", r"\begin{aligned} a &= b \end{aligned}"])
def test_an_unknown_command_stops_the_build(latex: str) -> None:
    with pytest.raises(FORMULAS.FormulaError, match="cannot be typeset"):
        built(f"$$\n{latex}\n$$")


def test_headings_have_no_formulas() -> None:
    """Menus and the search would show them packed."""
    with pytest.raises(FORMULAS.FormulaError, match="headings"):
        built("## About $x$")


def test_primes_and_laws() -> None:
    html = built("$f''(x) \\sim D'$")
    assert "<mi>f</mi><mi>″</mi>" in html
    assert "<mo>&#x0223C;</mo><mi>D</mi><mi>′</mi>" in html


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_formula_of_the_pages_can_be_typeset() -> None:
    """And each dollar sign outside of code belongs to one: an odd one would be shown as it is."""
    count = 0
    for page in SHOWN:
        packed = FORMULAS.on_page_markdown(page.read_text(encoding="utf-8"))
        for kind, text in re.findall(r"xformula(alone|inline)x([0-9a-f]+)x", packed):
            count += 1
            mathml = FORMULAS.to_mathml(bytes.fromhex(text).decode(), {"alone": "block"}.get(kind, kind))
            tags = _Tags()
            tags.feed(mathml)
            assert tags.open == [], page.name
        prose = re.sub(r"^```.*?^```$|`+[^`]+`+|^ {4}.*?$", "", packed, flags=re.DOTALL | re.M)
        assert "$" not in prose, page.name
    assert count > 40
