"""Draws decision_chart.svg, which docs/deciding.md shows: which method for which data.

python docs/pictures/decision_chart.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

# Questions from top to bottom; the answer that leads aside, and where it leads. Text lines, the first one bold.
QUESTIONS: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (
        ("May one place see all rows?", "a hospital, a bank, a company"),
        "no",
        (
            "tulle.local",
            "labels private: LabelPrivateSparseClassifier, …Regressor",
            "whole rows private: LocalSparseRegressor",
        ),
    ),
    (
        ("Are rows enough for ε?", "see the table of rows; tulle warns too"),
        "no",
        ("Fewer features, more rows, or a larger ε", "no method learns from too few rows"),
    ),
    (
        ("Are there public rows of the kind,", "with or without labels?"),
        "yes",
        (
            "fit(X, y, public=rows)",
            "directions from public rows, labels from private ones",
        ),
    ),
    (
        ("Must weights lie in a given set?", "an ℓ1 budget, a simplex, a polytope"),
        "yes",
        ('method="frank_wolfe"', "the private LASSO; entries bounded by row_linf"),
    ),
    (
        ("Many fits under one cap?", "folds, months, departments"),
        "yes",
        ('method="hard_thresholding"', "purely Gaussian releases add up best in a ledger"),
    ),
    (
        ("Can rows be read a few times only?", "they are many, or slow to read"),
        "yes",
        ('method="stochastic_hard_thresholding"', "random batches, about three passes"),
    ),
)
LAST = (
    'method="auto"',
    "fit, keep, fit again on text, classes and sparse rows;",
    "hard thresholding on dense regressions",
)

WIDTH, LEFT, BOX, ASIDE, STEP, HEIGHT = 980, 20, 330, 470, 96, 58
STYLE = """
  .paper { fill: #ffffff } .box { fill: #eef4fa; stroke: #2c6fa6 } .end { fill: #eef7ee; stroke: #2f7d46 }
  .line { stroke: #5f6b76; stroke-width: 1.5; fill: none } .head { fill: #5f6b76 } text { fill: #1c2733 }
  .small { font-size: 13px } .bold { font-weight: 600; font-size: 15px } .answer { font-size: 13px; font-style: italic }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #14191f } .box { fill: #1d2c3a; stroke: #6fb1e6 } .end { fill: #1c3023; stroke: #74c48a }
    .line { stroke: #9aa7b4 } .head { fill: #9aa7b4 } text { fill: #e6edf3 }
  }
"""


def box(x: float, y: float, width: float, lines: tuple[str, ...], kind: str) -> str:
    height = HEIGHT if len(lines) < 3 else HEIGHT + 18
    parts = [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>']
    for number, line in enumerate(lines):
        style = "small" if number else "bold"
        parts.append(f'<text class="{style}" x="{x + 14}" y="{y + 24 + 20 * number}">{escape(line)}</text>')
    return "".join(parts)


def arrow(x1: float, y1: float, x2: float, y2: float, answer: str, place: tuple[float, float]) -> str:
    return (
        f'<path class="line" d="M{x1} {y1} L{x2} {y2}" marker-end="url(#tip)"/>'
        f'<text class="answer" x="{place[0]}" y="{place[1]}">{answer}</text>'
    )


def chart() -> str:
    """The chart as SVG."""
    parts, y = [], 20.0
    for lines, answer, aside in QUESTIONS:
        middle = y + HEIGHT / 2
        parts.append(box(LEFT, y, BOX, lines, "box"))
        parts.append(box(ASIDE, y - (9 if len(aside) > 2 else 0), WIDTH - ASIDE - LEFT, aside, "end"))
        parts.append(arrow(LEFT + BOX, middle, ASIDE - 4, middle, answer, (LEFT + BOX + 40, middle - 7)))
        other = {"yes": "no", "no": "yes"}[answer]
        below = y + HEIGHT
        parts.append(arrow(LEFT + 60, below, LEFT + 60, y + STEP - 4, other, (LEFT + 70, below + 23)))
        y += STEP
    parts.append(box(LEFT, y, BOX + 70, LAST, "end"))
    height = y + HEIGHT + 40
    title = "Which method: six questions, each of which leads to a method or to the next question"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'font-family="system-ui, sans-serif"><title>{title}</title><style>{STYLE}</style>'
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">'
        '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
        f'<rect class="paper" width="{WIDTH}" height="{height:g}"/>' + "\n".join(parts) + "</svg>\n"
    )


if __name__ == "__main__":
    (Path(__file__).parent / "decision_chart.svg").write_text(chart(), encoding="utf-8")
