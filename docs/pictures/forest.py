"""Draws docs/pictures/forest.svg and hazard_forest.svg: ratios of the made-up patients of docs/intervals.md and
docs/survival.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tulle.reports.pages.forest import forest_chart

HERE = Path(__file__).resolve().parent

# The page's own styles, in the colours of a light screen.
_STYLE = """
text{font:13px system-ui,sans-serif;fill:#1c2530}.soft{fill:#5a6673}.grid{stroke:#e3e7ec}.frame{stroke:#8a96a3}
.reference{stroke:#5a6673}.dashed{stroke-dasharray:5 4}.whisker{stroke:#0b5cad;stroke-width:1.6}.marker{fill:#0b5cad}
"""


def chart(summary: Any) -> str:
    """The wide form of the report's chart, as a file of its own."""
    drawn = re.search(r'<svg class="wide".*?</svg>', forest_chart(summary), re.DOTALL)
    assert drawn is not None
    opening = '<svg xmlns="http://www.w3.org/2000/svg" width="700" class="wide"'
    body = drawn.group().replace('<svg class="wide"', opening, 1)
    return re.sub(
        "(<svg[^>]*>)", rf"\1<style>{_STYLE}</style><rect width='700' height='400' fill='#fff'/>", body, count=1
    )


def fitted_summary(page: str) -> Any:
    """The summary that a page prints, by the page's own code; of features as the model takes them."""
    text = (HERE.parent / page).read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], found)
    return found["model"].summary(names=found["schema"].get_feature_names_out(), ratios=True)


if __name__ == "__main__":
    for name, page in (("forest", "intervals.md"), ("hazard_forest", "survival.md")):
        (HERE / f"{name}.svg").write_text(chart(fitted_summary(page)) + "\n", encoding="utf-8")
