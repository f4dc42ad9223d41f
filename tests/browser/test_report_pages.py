"""Pages as a browser shows them: silent, self-contained, readable at every width and by everybody, whole on paper."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from page_samples import ABOUT, COMPARISON, REPORT, audit, fitted, hostile, released, three_classes

from tulle.reports.number_format import format_rounded_up
from tulle.reports.pages import audit_page, comparison_page, fingerprint, fit_page
from tulle.reports.report import About, BillLine

WIDTHS = (390, 1280)
NOT_FOR_RELEASE = "NOT FOR RELEASE"
Show = Callable[..., Any]


def _warned() -> Any:
    report = replace(REPORT, epsilon=41.2, calibration="published", seeded=True, floating_point_slack=1e-4)
    return released([1.0, -2.0], report=replace(report, mu=4.0, zero_out=18.3))


MAKE: dict[str, Callable[[], str]] = {
    "public": lambda: fit_page(fitted(), ABOUT, audit=audit()),
    "internal": lambda: fit_page(fitted(), ABOUT, audit=audit(), comparison=COMPARISON, internal=True),
    "warned": lambda: fit_page(_warned(), About(), audit=audit() | {"claimed": 0.01, "refuted": True}),
    "hostile": lambda: fit_page(hostile(), About(title="<script>alert(1)</script>" + "x" * 500)),
    "classes": lambda: fit_page(three_classes(), ABOUT),
    "comparison": lambda: comparison_page(COMPARISON, ABOUT),
    "audit": lambda: audit_page(audit(), "x" * 500),
}
every_page = pytest.mark.parametrize("name", list(MAKE))


def planted(page: str, old: str, new: str) -> str:
    """A page with a defect."""
    assert old in page
    return page.replace(old, new, 1)


# --- silence ----------------------------------------------------------------------------------------------------------


@every_page
def test_a_page_complains_about_nothing_and_asks_for_nothing(name: str, show: Show) -> None:
    """No message on the console, no breach of the page's policy, no request but for the file itself."""
    shown = show(MAKE[name]())
    assert shown.complaints == []
    assert [url.partition(":")[0] for url in shown.requests] == ["file"]


@pytest.mark.parametrize(
    ("defect", "complaint"),
    [
        ("<script>document.title = 'run'</script>", "script"),
        ('<img alt="" src="http://localhost:9/x.png">', "img-src"),
        ('<link rel="stylesheet" href="http://localhost:9/x.css">', "style-src"),
    ],
)
def test_what_a_page_must_not_do_is_stopped_and_seen(defect: str, complaint: str, show: Show) -> None:
    """The policy works, and the test above can fail."""
    shown = show(planted(MAKE["public"](), "</main>", f"{defect}</main>"))
    assert shown.page.title() == ABOUT.title
    assert any(complaint in words for words in shown.complaints)


# --- width ------------------------------------------------------------------------------------------------------------


def overflow(page: Any) -> int:
    """By how much the page is wider than its window."""
    return int(page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth"))


@every_page
@pytest.mark.parametrize("width", [320, *WIDTHS])
def test_a_page_never_scrolls_sideways(name: str, width: int, show: Show) -> None:
    """Long names, wide tables and charts stay inside, with everything unfolded."""
    page = show(MAKE[name](), width).page
    page.evaluate("document.querySelectorAll('details').forEach(found => { found.open = true })")
    assert overflow(page) <= 0


def test_a_page_that_scrolls_sideways_is_seen(show: Show) -> None:
    wide = planted(MAKE["public"](), "</main>", '<p style="width:500px">wide</p></main>')
    assert overflow(show(wide, 390).page) > 0


@pytest.mark.parametrize("width", WIDTHS)
def test_one_drawing_of_each_chart_is_shown(width: int, show: Show) -> None:
    page = show(MAKE["internal"](), width).page
    assert page.locator("figure").count() == 5
    assert page.locator("svg:visible").count() == 5
    assert page.locator("svg.narrow:visible").count() == (5 if width == 390 else 0)


def mislaid(page: Any) -> list[str]:
    """Labels of charts that are cut off by their drawing, and pairs of which one lies on the other."""
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width).map(svg => ({
            frame: svg.getBoundingClientRect().toJSON(),
            labels: [...svg.querySelectorAll('text')].map(
                text => ({words: text.textContent, ...text.getBoundingClientRect().toJSON()}))}))"""
    )
    found = []
    for drawing in boxes:
        frame, labels = drawing["frame"], drawing["labels"]
        for label in labels:
            across = frame["left"] - 1 <= label["left"] and label["right"] <= frame["right"] + 1
            if not across or label["bottom"] > frame["bottom"] + 1:
                found.append(f"{label['words']} is cut")
        for k, one in enumerate(labels):
            for other in labels[:k]:
                across = min(one["right"], other["right"]) - max(one["left"], other["left"])
                down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
                if across > 1 and down > 5:  # boxes hold room above and below the letters
                    found.append(f"{one['words']} lies on {other['words']}")
    return found


@every_page
@pytest.mark.parametrize("width", WIDTHS)
def test_no_words_of_a_chart_are_cut_or_overlap(name: str, width: int, show: Show) -> None:
    """Every label lies inside its drawing, and no two lie on each other."""
    assert mislaid(show(MAKE[name](), width).page) == []


# --- everybody --------------------------------------------------------------------------------------------------------


def findings(page: Any, axe: str) -> list[str]:
    """What axe-core finds wrong: rule, impact and place."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)")
    return [f"{rule['impact']} {rule['id']}: {[node['target'] for node in rule['nodes']][:3]}" for rule in found]


@every_page
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(name: str, width: int, scheme: str, show: Show, axe: str) -> None:
    """Neither serious nor minor, contrast included."""
    page = show(MAKE[name](), width, scheme).page
    page.evaluate("document.querySelectorAll('details').forEach(found => { found.open = true })")
    assert findings(page, axe) == []


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("</main>", '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="></main>', "image-alt"),
        ('<p class="lead">', '<p style="color:#bbb">', "color-contrast"),
        ('role="img" aria-labelledby="', 'role="img" data-nothing="', "svg-img-alt"),
        ('lang="en"', "", "html-has-lang"),
    ],
)
def test_axe_finds_planted_defects(old: str, new: str, rule: str, show: Show, axe: str) -> None:
    page = planted(MAKE["public"](), old, new)
    if rule == "svg-img-alt":  # a title inside is a name too
        page = page.replace('<title id="epsilon-scale-wide-title">The scale of ε</title>', "")
    assert any(rule in finding for finding in findings(show(page).page, axe))


def test_the_colours_follow_the_reader(show: Show) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = (show(MAKE["public"](), 390, scheme).page.evaluate(ground) for scheme in ("light", "dark"))
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 24, 31)")


def test_a_keyboard_is_enough(show: Show) -> None:
    """The first stop skips to the report; a table that is too wide can be focused and scrolled."""
    page = show(MAKE["comparison"](), 390).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "report"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "region"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowRight")
    for _ in range(100):  # scrolling is smooth; the page's policy lets no script wait inside it
        page.wait_for_timeout(50)
        if page.evaluate("document.activeElement.scrollLeft") > 0:
            return
    pytest.fail("the arrow key did not scroll the table")


@pytest.mark.parametrize("name", ["internal", "comparison"])
@pytest.mark.parametrize("width", WIDTHS)
def test_an_internal_page_says_so_wherever_one_reads(name: str, width: int, show: Show) -> None:
    page = show(MAKE[name](), width).page
    for share in (0, 0.5, 1):
        page.evaluate(f"window.scrollTo(0, {share} * document.scrollingElement.scrollHeight)")
        top = page.evaluate("document.elementFromPoint(window.innerWidth / 2, 12).closest('aside').textContent")
        assert NOT_FOR_RELEASE in top


# --- paper ------------------------------------------------------------------------------------------------------------


def sheets(page: Any, read_pdf: Any) -> list[str]:
    """The text of each sheet of a page printed by its own style, all of A4."""
    printed = read_pdf(io.BytesIO(page.pdf(prefer_css_page_size=True, print_background=False)))
    for sheet in printed.pages:
        assert [float(side) for side in sheet.mediabox[2:]] == pytest.approx([595, 842], abs=1.5)
    return [" ".join(sheet.extract_text().split()) for sheet in printed.pages]


@every_page
def test_every_sheet_of_an_internal_page_says_so(name: str, show: Show, read_pdf: Any) -> None:
    """And no sheet of a public one."""
    texts = sheets(show(MAKE[name](), scheme="dark").page, read_pdf)
    internal = name in ("internal", "comparison")
    assert len(texts) >= 2
    assert [NOT_FOR_RELEASE in text for text in texts] == [internal] * len(texts)


def test_a_sheet_that_does_not_say_so_is_seen(show: Show, read_pdf: Any) -> None:
    page = planted(MAKE["internal"](), "display:table-header-group;position:static", "position:static")
    said = [NOT_FOR_RELEASE in text for text in sheets(show(page).page, read_pdf)]
    assert said[0]
    assert not all(said)


@every_page
def test_sheets_are_numbered_and_have_a_running_head(name: str, show: Show, read_pdf: Any) -> None:
    texts = sheets(show(MAKE[name]()).page, read_pdf)
    head = {"public": ABOUT.title, "internal": ABOUT.title, "classes": ABOUT.title, "comparison": ABOUT.title}.get(name)
    for number, text in enumerate(texts, start=1):
        assert f"Page {number} of {len(texts)}" in text
        assert head is None or head in text


@pytest.mark.parametrize("lines", [0, 3, 7, 11, 15, 19, 23])
@pytest.mark.parametrize("name", ["public", "warned", "hostile", "classes"])
def test_what_is_signed_is_on_the_sheet_of_the_signature(name: str, lines: int, show: Show, read_pdf: Any) -> None:
    """Wherever sheets end: title, ε and the whole fingerprint are beside the lines to sign on."""
    model, title = {
        "public": (fitted(), ABOUT.title),
        "warned": (_warned(), ABOUT.title),
        "hostile": (hostile(), "y" * 400),
        "classes": (three_classes(), ABOUT.title),
    }[name]
    more = tuple(f"A further assumption, number {k}." for k in range(lines))
    report = replace(model.privacy_, assumptions=(*model.privacy_.assumptions, *more))
    changed = copy.copy(model)
    changed.privacy_ = report
    texts = sheets(show(fit_page(changed, replace(ABOUT, title=title))).page, read_pdf)
    (signed,) = [text for text in texts if "Checked by" in text]
    assert "Signature" in signed
    assert "replace-one adjacency" in signed
    assert f"ε = {format_rounded_up(report.epsilon)}" in signed.replace("\u00a0", " ")
    assert fingerprint(model) in signed.replace(" ", "")
    assert (
        title[:60].replace(" ", "")
        in signed.replace(" ", "").partition("CheckedbyDate")[0].rpartition("Form")[0][-400:]
    )


def test_paper_has_every_row_and_lines_to_sign_on(show: Show, read_pdf: Any) -> None:
    texts = " ".join(sheets(show(MAKE["internal"]()).page, read_pdf))
    for row in COMPARISON["rows"]:
        assert f"{row['mean']:.3f}" in texts
    for line in fitted().privacy_.bill:
        assert line.mechanism in texts
    assert "Checked by" in texts
    assert "Signature" in texts


def test_tables_are_not_cut_between_their_lines(show: Show, read_pdf: Any) -> None:
    """A line of the bill and its mechanism are on the same sheet, wherever the sheet ends."""
    bill = [BillLine(f"release {k}", f"mechanism {k};", 1, 1.0, 0.1) for k in range(120)]
    model = released([1.0], report=replace(REPORT, bill=tuple(bill)))
    texts = sheets(show(fit_page(model, ABOUT)).page, read_pdf)
    assert len(texts) >= 4
    for k in range(120):
        assert any(f"release {k} " in text and f"mechanism {k};" in text for text in texts), k
    heads = [text for text in texts if re.search(r"release \d", text)]
    # The bill comes first, then what each release tells: every sheet repeats the head of its table.
    assert all("Noise / sensitivity" in text or "In plain words" in text for text in heads)
    assert sum("Noise / sensitivity" in text for text in heads) >= 3
