"""What notebooks show of reports, ledgers and summaries, and the plots of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tulle import Bounds, Budget, FileLedger, Ledger, SparseClassifier
from tulle.files.notebook_html import html_details, html_facts, html_paragraphs, html_table
from tulle.reports.plots import plot_bill, plot_ledger, plot_weights

BAD = "<script src='https://example.org'>&"


@pytest.fixture(scope="module")
def model() -> Any:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 4))
    fitted = SparseClassifier(4.0, n_nonzero=4, bounds=Bounds(row_linf=1.0), inference=True, random_state=0)
    return fitted.fit(X, X[:, 0] + 0.5 * rng.normal(size=600) > 0)


@pytest.fixture
def ledger(tmp_path: Path) -> FileLedger:
    FileLedger.create(tmp_path / "ledger", "visits", Budget(3.0, 1e-5))
    kept = FileLedger(tmp_path / "ledger", "visits", analyst=BAD, purpose="a test")
    X = np.random.default_rng(1).uniform(-1, 1, (300, 3))
    with kept:
        for epsilon in (0.2, 0.4):
            SparseClassifier(epsilon, classes=[False, True], bounds=Bounds(row_linf=1.0)).fit(X, X[:, 0] > 0)
    return kept


def _check(html: str) -> None:
    assert "<script" not in html
    assert "http" not in html.replace("&#x27;https://example.org&#x27;", "")
    assert html.count("<table") == html.count("</table>") > 0


def test_all_text_is_escaped() -> None:
    for html in (
        html_table([BAD], [[BAD, BAD]], BAD),
        html_facts(BAD, [(BAD, BAD)]),
        html_paragraphs([BAD]),
        html_details(BAD, [BAD]),
    ):
        assert "<script" not in html
        assert "&lt;script" in html


def test_a_report_in_a_notebook_has_the_words_of_the_printed_one(model: Any) -> None:
    html = model.privacy_._repr_html_()
    _check(html)
    for line in model.privacy_.bill:
        assert f'<th scope="row">{line.release}</th>' in html
    assert f"ε = {model.privacy_.asked[0]:g}" in html
    for text in model.privacy_.who_saw_what:
        assert text.split("&")[0][:40] in html


def test_a_summary_in_a_notebook(model: Any) -> None:
    html = model.summary()._repr_html_()
    _check(html)
    assert html.count('<th scope="row">') == 5
    assert "600 rows" in html


def test_ledgers_in_a_notebook(ledger: FileLedger) -> None:
    html = ledger._repr_html_()
    _check(html)
    assert "&lt;script" in html
    assert "visits: cap epsilon = 3" in html
    assert html.count("SparseClassifier.fit") == 2
    with Ledger(Budget(1.0, 1e-5)) as in_memory:
        pass
    assert "proved so far epsilon = 0" in in_memory._repr_html_()


@pytest.fixture
def axes() -> Any:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    yield pyplot.subplots()[1]
    pyplot.close("all")


def test_weights_have_a_line_each(model: Any, axes: Any) -> None:
    ax = plot_weights(model, ax=axes)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x0", "x1", "x2", "x3", "(intercept)"]
    line = model.summary().lines[1]
    ends = [list(drawn.get_xdata()) for drawn in ax.get_lines()]
    assert [line.low, line.high] in ends
    assert [line.estimate] in ends
    assert "2 of 5 are shown" in plot_weights(model.summary(), largest=2).get_xlabel()
    with pytest.raises(ValueError, match="at least 1"):
        plot_weights(model, largest=0)


def test_an_open_interval_has_an_arrow(axes: Any) -> None:
    class Line:
        name, estimate, low, high = "x", 2.0, 0.5, np.inf

    class Summary:
        lines, scale, level, null_value = (Line,), "odds ratio", 0.95, 1.0

    ax = plot_weights(Summary(), ax=axes)
    assert [drawn.get_marker() for drawn in ax.get_lines()].count(">") == 1
    assert ax.get_xscale() == "log"


def test_a_bill_has_a_bar_for_each_release(model: Any, axes: Any) -> None:
    ax = plot_bill(model, ax=axes)
    assert [bar.get_width() for bar in ax.patches] == [line.epsilon_alone for line in model.privacy_.bill]
    X = np.eye(4)
    with pytest.raises(ValueError, match="no epsilon is proved"):
        plot_bill(SparseClassifier(None).fit(X, [0, 1, 0, 1]))


def test_a_ledger_rises_to_its_share(ledger: FileLedger, axes: Any) -> None:
    ax = plot_ledger(ledger, ax=axes)
    assert ax.get_lines()[0].get_ydata()[-1] == pytest.approx(100 * ledger.share)
    assert ax.get_xlabel() == "time (UTC)"
    empty = plot_ledger(Ledger(Budget(1.0, 1e-5)))
    assert list(empty.get_lines()[0].get_ydata()) == [0]
