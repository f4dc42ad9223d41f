"""The skeleton of a page, its style, and the parts that pages share: sections, tables, notices, bars."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime

import tulle
from tulle.reports.pages.markup import Markup, element, join_markup
from tulle.reports.report import About

# Colours by scheme. Text on `paper`, `card`, `loud` and `quiet` has a contrast of 4.5 or more, marks have 3 or more on
# paper and card; tests/reports/test_pages.py computes it.
PALETTE = {
    "light": {
        "paper": "#ffffff",
        "card": "#f5f6f8",
        "ink": "#1b2330",
        "soft": "#535d6d",
        "line": "#d5d9e0",
        "edge": "#868f9e",
        "link": "#0a5a9c",
        "mark": "#0a5a9c",
        "other": "#b04a00",
        "band": "#cfe0ef",
        "forbidden": "#fbeade",
        "loud": "#fdecea",
        "loud_ink": "#8c1510",
        "loud_edge": "#c0281f",
        "quiet": "#eef4fa",
        "banner": "#8c1510",
        "banner_ink": "#ffffff",
    },
    "dark": {
        "paper": "#14181f",
        "card": "#1d232d",
        "ink": "#e8ebf0",
        "soft": "#adb6c4",
        "line": "#353e4c",
        "edge": "#7b8798",
        "link": "#86c1f5",
        "mark": "#6db3f2",
        "other": "#f0a163",
        "band": "#24425e",
        "forbidden": "#33271f",
        "loud": "#3a1a1b",
        "loud_ink": "#ffb9b2",
        "loud_edge": "#f0685f",
        "quiet": "#1b2836",
        "banner": "#7d1712",
        "banner_ink": "#ffffff",
    },
}
# Lines of a chart, distinguished by marker as well as colour.
SERIES = {
    "light": ("#0a5a9c", "#b04a00", "#1a7a3c", "#8a3fa8", "#9a6a00", "#b3245e", "#0b7c82", "#5b6470"),
    "dark": ("#6db3f2", "#f0a163", "#6fcf8e", "#d09bea", "#e0bd55", "#f48fb5", "#5fc9cf", "#b3bcc9"),
}

_HASH = re.compile(r"(?:sha[0-9]+[:=] ?)?\b[0-9a-fA-F]{32,}\b")


def _colours(scheme: str) -> str:
    named = {**PALETTE[scheme], **{f"series{k}": colour for k, colour in enumerate(SERIES[scheme])}}
    return "".join(f"--{name.replace('_', '-')}:{colour};" for name, colour in named.items())


def _in_one_line(style: str) -> str:
    return re.sub(r"\n\s*", "", style)


_DRAWING = """
:root{
 font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans","Liberation Sans",Arial,sans-serif
}
svg text{fill:var(--ink);font-size:12.5px;font-variant-numeric:tabular-nums}
svg .soft{fill:var(--soft);font-size:12px}
svg .halo{paint-order:stroke;stroke:var(--paper);stroke-width:5px;stroke-linejoin:round}
svg .strong{font-weight:650}
svg .grid{stroke:var(--line);stroke-width:1}
svg .frame{stroke:var(--edge);stroke-width:1.2;fill:none}
svg .leader{stroke:var(--soft);stroke-width:1;fill:none}
svg .curve{fill:none;stroke-width:2.2;stroke-linejoin:round}
svg .whisker{stroke-width:1.4}
svg .reference{stroke:var(--soft);stroke-width:1.6;fill:none}
svg .dashed{stroke-dasharray:7 5}
svg .dotted{stroke-dasharray:1.5 4.5;stroke-linecap:round}
svg .attack{stroke:var(--mark)}
svg .claim{stroke:var(--other)}
svg .band{fill:var(--band)}
svg .forbidden{fill:var(--forbidden)}
svg .proved{fill:var(--mark);stroke:var(--mark)}
svg .asked{fill:var(--paper);stroke:var(--ink);stroke-width:2}
svg .curve.series,svg .whisker,svg .cross{stroke:var(--series)}
svg .cross{fill:none;stroke-width:2}
svg .marker{stroke:var(--series);fill:var(--series)}
svg .marker.open{fill:none;stroke-width:2}
svg .marker.hollow{fill:var(--paper);stroke-width:1.8}
svg .bold{stroke-width:2.8}
svg .thin{stroke-width:1.5}
svg .title{font-size:16px;font-weight:650}
svg .alarm{fill:var(--loud-ink);font-weight:650}
svg .ground{fill:var(--paper)}
"""
_STYLE = """
*{box-sizing:border-box}
html:has(.banner){scroll-padding-top:4rem}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.55;overflow-wrap:anywhere;
 font-size:1rem;font-variant-numeric:lining-nums}
.column{max-width:47rem;margin:0 auto;padding-inline:1.25rem}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999rem;top:0;background:var(--paper);padding:.6rem 1rem;z-index:3}
.skip:focus{left:0}
.banner{position:sticky;top:0;z-index:2;background:var(--banner);color:var(--banner-ink)}
.banner p{margin:0;padding:.45rem 1rem;text-align:center;font-size:.9rem}
.banner strong{letter-spacing:.04em}
.top{padding-top:2.75rem;padding-bottom:1.5rem}
.kind{margin:0 0 .35rem;color:var(--soft);font-size:.875rem;font-weight:600;letter-spacing:.02em}
h1,h2,h3{line-height:1.22;text-wrap:balance;font-weight:650}
h1{font-size:clamp(1.65rem,1.2rem + 2vw,2.3rem);margin:0 0 1.4rem;letter-spacing:-.012em}
h2{font-size:1.35rem;margin:0 0 .9rem;letter-spacing:-.006em}
h3{font-size:1.06rem;margin:1.9rem 0 .6rem}
p{margin:0 0 .9rem}
section{padding:2rem 0 1.1rem;border-top:1px solid var(--line)}
ul,ol{padding-left:1.2rem;margin:0 0 1rem}
li{margin:.35rem 0}
.soft,figcaption{color:var(--soft);font-size:.9rem}
.lead{font-size:1.16rem;line-height:1.5}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(13rem,100%),1fr));gap:1rem 1.6rem;margin:0}
.facts dt{color:var(--soft);font-size:.84rem}
.facts dd{margin:.1rem 0 0}
.terms{margin:0 0 1rem}
.terms dt{color:var(--soft);font-size:.9rem}
.terms dd{margin:.1rem 0 .75rem}
.figures{display:grid;grid-template-columns:1fr 1fr;gap:.9rem;margin:0 0 1.3rem}
.figures>div{background:var(--card);border-radius:.6rem;padding:.9rem 1.1rem 1rem}
.figures dt{color:var(--soft);font-size:.9rem}
.figures dd{margin:.15rem 0 0;font-size:.95rem}
.figures .large{font-size:1.7rem;font-weight:650;line-height:1.2;font-variant-numeric:tabular-nums}
.figures .proved{background:var(--quiet)}
.notice{border-left:.3rem solid var(--edge);background:var(--card);border-radius:0 .5rem .5rem 0;
 padding:.85rem 1.1rem;margin:0 0 1.1rem}
.notice p{margin:.25rem 0 0}
.notice h3{margin:0;font-size:1.02rem}
.loud{background:var(--loud);border-color:var(--loud-edge)}
.loud h3{color:var(--loud-ink)}
.scroll{position:relative;overflow-x:auto;margin:0 0 1.1rem}
table{border-collapse:collapse;width:100%;font-size:.94rem}
caption{text-align:left;color:var(--soft);font-size:.9rem;padding:0 0 .5rem}
caption span{display:block;position:sticky;left:0;max-width:calc(100vw - 2rem)}
th,td{text-align:left;vertical-align:top;padding:.5rem .75rem .5rem 0;border-bottom:1px solid var(--line)}
th:last-child,td:last-child{padding-right:0}
thead .n{white-space:normal}
thead th{color:var(--soft);font-size:.84rem;font-weight:600;vertical-align:bottom}
tbody th{font-weight:600;min-width:7rem}
.fixed tbody th{min-width:8rem;position:sticky;left:0;background:var(--paper)}
.slim{max-width:28rem}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
.under{display:block;color:var(--soft);font-size:.86rem;font-weight:400}
.best{font-weight:700}
.bars{width:34%;min-width:5rem}
.track{display:block;position:relative;height:.8rem;margin-top:.4rem}
.track.filled{background:var(--card);border-radius:.2rem}
.bar{position:absolute;top:0;bottom:0;background:var(--mark);border-radius:.15rem;min-width:2px}
.bar.negative{background:var(--other)}
.axis{position:absolute;left:50%;top:-.3rem;bottom:-.3rem;width:1px;background:var(--edge)}
.track,.bar,.axis,.banner,.banner p,.notice,.figures>div,.mark{
 print-color-adjust:exact;-webkit-print-color-adjust:exact}
figure{margin:0 0 1.2rem}
svg{display:block;width:100%;height:auto}
svg.wide{max-width:47rem}
svg.narrow{display:none}
details{margin:0 0 1rem}
summary{cursor:pointer;color:var(--link);padding:.3rem 0}
details[open]>summary{margin-bottom:.5rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.86rem}
pre{background:var(--card);border-radius:.5rem;padding:.8rem 1rem;white-space:pre-wrap}
.signature{display:none}
.sign{border:1px solid var(--edge);border-radius:.5rem;padding:1rem 1.2rem}
.sign .terms{margin:0}
.checks li::before{content:"";display:inline-block;width:.75rem;height:.75rem;margin-right:.5rem;
 border:1px solid var(--edge);border-radius:.1rem}
.mark{display:inline-block;white-space:nowrap;margin-top:.25rem;font-weight:400;
 border-radius:.25rem;padding:.05rem .4rem;font-size:.86rem;background:var(--card)}
.mark.proved{background:var(--quiet)}
.mark.uncovered{background:var(--loud);color:var(--loud-ink)}
footer p{border-top:1px solid var(--line);padding:1.1rem 0 1.5rem;color:var(--soft);font-size:.88rem}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media screen and (max-width:34rem){
 .column{padding-inline:1rem}
 .facts{gap:.55rem}
 .facts>div{display:grid;grid-template-columns:8rem 1fr;gap:.6rem}
 .facts dt{padding-top:.12rem}
 .facts dd{margin:0}
 .top{padding-top:1.8rem}
 .figures{gap:.6rem}
 .figures>div{padding:.75rem .8rem}
 .figures .large{font-size:1.35rem}
 table{font-size:.9rem}
 th,td{padding-right:.55rem}
 :not(.fixed)>table tbody th{min-width:6rem}
 .bars{min-width:3.6rem}
}
@media screen and (max-width:40rem){
 svg.wide{display:none}
 svg.narrow{display:block;max-width:27rem}
}
@media print{
 @page{size:A4;margin:16mm 18mm 17mm}
 html{font-size:10pt}
 body{line-height:1.42}
 .column{max-width:none;padding-inline:0}
 .skip,summary::marker{display:none}
 .internal{display:table;width:100%}
 .internal .banner{display:table-header-group;position:static;break-inside:avoid}
 .banner{background:none}
 .banner p{background:var(--banner);padding:1.2mm 3mm;margin-bottom:5mm}
 .top{padding-top:0}
 section{padding:5mm 0 2mm}
 h2,h3,h2+p,h3+p,caption,.kind{break-after:avoid}
 figure,.notice,.figures,tr,li,.sign,.slim,dl>div{break-inside:avoid}
 thead{display:table-header-group}
 .scroll{overflow:visible}
 svg.wide{max-width:160mm}
 .signature{display:grid;grid-template-columns:1fr 1fr;gap:13mm 10mm;margin:16mm 0 0}
 .signature div{border-top:1px solid var(--ink);padding-top:1.5mm}
 th,td{padding-top:1mm;padding-bottom:1mm}
 a{color:inherit}
}
"""
# What charts look like, on a page and in a file of their own.
DRAWING = (
    f":root{{color-scheme:light dark;{_colours('light')}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_colours('dark')}}}}}"
    + "".join(f".s{k}{{--series:var(--series{k})}}" for k in range(len(SERIES["light"])))
    + _in_one_line(_DRAWING)
)
STYLE = DRAWING + _in_one_line(_STYLE)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def page(
    *,
    about: About | None,
    kind: str,
    title: str,
    facts: Sequence[tuple[str, str]],
    body: str,
    banner: str = "",
    foot: str = "",
) -> str:
    """A whole page.

    Parameters
    ----------
    about : About or None
        Its title is the page's, if it has one. None: no head and no signature.
    kind : str
        What kind of page this is, above the title.
    title : str
        The title where `about` has none.
    facts : sequence of (str, str)
        Facts under the title, in addition to those of `about`.
    body : Markup
        The sections.
    banner : str, default=""
        The banner on every screen and every printed sheet; "" for none.
    foot : str, default=""
        At the foot of every printed sheet, next to its number.
    """
    heading = (about.title.strip() if about is not None else "") or title
    stated = [] if about is None else _stated(about, internal=bool(banner))
    top = element(
        "header",
        element("p", kind, class_="kind"),
        element("h1", element("bdi", heading)),
        element("dl", *(_fact(name, value) for name, value in (*stated, *facts)), class_="facts"),
        class_="top column",
    )
    parts = [
        element("a", "Skip to the report", class_="skip", href="#report"),
        element("aside", element("p", _emphasised(banner)), class_="banner", aria_label="Not for release")
        if banner
        else "",
        top,
        element("main", body, id="report", class_="column", tabindex="-1"),
        element(
            "footer",
            element(
                "p",
                f"Made with tulle {tulle.__version__}. This page is one file: it loads nothing and runs no script.",
            ),
            class_="column",
        ),
    ]
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="robots", content="noindex") if banner else "",
        element("title", f"{'NOT FOR RELEASE: ' if banner else ''}{heading}"),
        element("style", Markup(STYLE + _sheets(heading, foot))),
    ]
    document = element(
        "html", element("head", *head), element("body", *parts, class_="internal" if banner else None), lang="en"
    )
    return f"<!doctype html>\n{document}\n"


# Letters that fit on one line of a sheet next to the page number.
_LONGEST_HEAD = 80


def _sheets(heading: str, foot: str) -> str:
    """The running head and foot of printed sheets, with page numbers."""
    short = heading if len(heading) <= _LONGEST_HEAD else f"{heading[:_LONGEST_HEAD]}…"
    boxes = (
        f"@top-left{{content:{_css_string(short)};{_SMALL}}}"
        f"@bottom-left{{content:{_css_string(foot)};{_SMALL}}}"
        f'@bottom-right{{content:"Page " counter(page) " of " counter(pages);{_SMALL}}}'
    )
    return f"@page{{{boxes}}}"


_SMALL = 'font:8pt system-ui,"Liberation Sans",sans-serif;color:#535d6d'


def _css_string(text: str) -> str:
    """Text as a string of CSS inside of HTML: every character but plain letters, digits and blanks is a number."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    plain = (one if one.isascii() and (one.isalnum() or one == " ") else f"\\{ord(one):06x}" for one in whole)
    return f'"{"".join(plain)}"'


def _emphasised(banner: str) -> Markup:
    first, _, rest = banner.partition(".")
    return join_markup([element("strong", f"{first}."), rest])


def _fact(name: str, value: str) -> Markup:
    return element("div", element("dt", name), element("dd", element("bdi", value)))


def _stated(about: About, internal: bool) -> list[tuple[str, str]]:
    stated = (
        *([("Requested by", about.asked_by)] if internal else []),
        ("Purpose", about.purpose),
        ("Made", _moment(about.made)),
        ("Data", about.data),
    )
    # Missing fields are shown, so that the person who signs can ask about them.
    return [(name, value.strip() or "not stated") for name, value in stated]


def _moment(made: str) -> str:
    """A date and time, to the minute, with its time zone; text that is none stays as it is."""
    try:
        moment = datetime.fromisoformat(made)
    except ValueError:
        return made
    if len(made) <= len("2026-01-01"):
        return made
    return f"{moment:%Y-%m-%d %H:%M} {moment.tzname() or ''}".strip()


def without_hashes(text: str) -> str:
    """Text with long hexadecimal numbers left out: the hash of a file of private rows depends on every row."""
    return _HASH.sub("[hash omitted]", text)


def section(name: str, title: str, *parts: str) -> Markup:
    """A part of the page under its heading; `name` is its anchor."""
    return element(
        "section", element("h2", title, id=f"{name}-title"), *parts, id=name, aria_labelledby=f"{name}-title"
    )


def notice(title: str, *text: str, loud: bool = True) -> Markup:
    """A box that cannot be overlooked; `loud` for what must be known before signing."""
    heading = element("h3", element("span", "Attention: ", class_="hidden") if loud else "", title)
    return element("div", heading, *(element("p", line) for line in text), class_="notice loud" if loud else "notice")


def listing(items: Sequence[str], tag: str = "ul") -> Markup:
    """A list of sentences."""
    return element(tag, *(element("li", item) for item in items))


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric: Collection[int] = (),
    bars: int | None = None,
    form: str = "",
) -> Markup:
    """A table that scrolls inside itself where it is too wide. The first cell of a row is its heading.

    Parameters
    ----------
    caption : str
    head : sequence of str
    rows : sequence of sequence of str
    numeric : collection of int, default=()
        The columns of figures.
    bars : int or None, default=None
        The column of bars.
    form : {"", "fixed", "slim"}, default=""
        "fixed": the first column stays where it is while the others scroll. "slim": no wider than two figures need.
    """
    classes = {**dict.fromkeys(numeric, "n"), **({} if bars is None else {bars: "bars"})}

    def heading(cell: str, column: int) -> Markup:
        return element("th", cell, scope="col", class_=classes.get(column))

    def line(row: Sequence[str]) -> Markup:
        cells = (element("td", cell, class_=classes.get(k)) for k, cell in enumerate(row[1:], start=1))
        return element("tr", element("th", row[0], scope="row"), *cells)

    written = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *(heading(cell, k) for k, cell in enumerate(head)))),
        element("tbody", *(line(row) for row in rows)),
    )
    return element("div", written, class_=f"scroll {form}".strip(), role="region", aria_label=caption, tabindex="0")


def bar(share: float) -> Markup:
    """A bar from 0 to a share of the cell, in [0, 1]; decoration next to the figure that says the same."""
    drawn = element("span", class_="bar", style=f"left:0;width:{100 * share:.2f}%")
    return element("span", drawn, class_="track filled", aria_hidden="true")


def signed_bar(share: float) -> Markup:
    """A bar from the middle of the cell, to the right for a positive share and to the left for a negative one."""
    width = 50 * abs(share)
    left = 50 - width if share < 0 else 50
    drawn = element("span", class_="bar negative" if share < 0 else "bar", style=f"left:{left:.2f}%;width:{width:.2f}%")
    return element("span", drawn, element("span", class_="axis"), class_="track", aria_hidden="true")
