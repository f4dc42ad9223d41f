"""The page on dense regression counts what its results say, and the page of the default how constants were chosen."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from pages import ROOT, loaded

PAGE = ROOT / "docs/results/dense-regression.md"
WINS = loaded("docs/results/wins.py")
SCORES = WINS.scores("dense-regression")


def counted(method: str) -> Any:
    """In how many cells the default wins, ties and loses."""
    return WINS.counted(SCORES, method)


def test_wins_ties_and_losses_are_counted() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    wins, ties, losses = counted("AdaSSP")
    assert f"than AdaSSP in {wins} of 64 cells; {ties} are ties and none is a loss" in page
    assert losses == 0
    wins, ties, losses = counted("AdaSSP, zero-out")
    assert f"wins {wins} cells of 64 against AdaSSP ({ties} ties, {losses} loss)" in page
    wins, ties, losses = counted("iterative Hessian mixing, zero-out")
    assert f"{wins} against iterative Hessian mixing ({ties} ties, {losses} loss)" in page
    wins, ties, losses = counted("DP-SGD on all features")
    assert f"it wins {wins} cells, ties in {ties} and loses {losses}" in page
    assert f"({counted('objective perturbation on all features')[1]} ties)" in page


def test_figures_of_single_cells() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for data, method, epsilon, digits in (
        ("Ames, log price of houses", WINS.DEFAULT, "0.5", 2),
        ("Spanish households, share of food", WINS.DEFAULT, "0.5", 2),
        ("wives, hours worked", WINS.DEFAULT, "4.0", 2),
        ("wives, hours worked", "iterative Hessian mixing, zero-out", "4.0", 2),
        ("wives, hours worked", "least squares, no privacy", "", 2),
    ):
        assert f"{fmean(SCORES[data, method, epsilon].values()):.{digits}f}" in page


# Names of the page, in the order of its table.
SETS = {
    "Ames": "ames",
    "Spanish households": "budget_food",
    "Card": "card",
    "College distance": "college_distance",
    "computers": "computers",
    "CPS 1988": "cps1988",
    "diamonds": "diamonds",
    "elevation": "elevation",
    "Botswana": "fertil2",
    "college": "gpa2",
    "wives, hours": "health_insurance",
    "401(k)": "k401ksubs",
    "mothers, hours": "labsup",
    "NMES 1988": "nmes1988",
    "RAND experiment": "randhie",
    "two-year colleges": "twoyear",
    "young men": "wagepan",
}


def test_regrets_of_constants_are_those_of_the_measured_grid() -> None:
    script = loaded("benchmarks/regression_constants.py")
    page = (ROOT / "docs/fit_again.md").read_text(encoding="utf-8")
    found = script.left_out()
    assert set(found) == {*SETS.values(), "synthetic_linear"}
    for name, key in SETS.items():
        own, before = found[key]
        assert f"| {name} | {100 * own:.0f} % | {100 * before:.0f} % |" in page
    assert f"the rule is {100 * found['synthetic_linear'][0]:.0f} % behind the best setting" in page
    ahead = script.cells_with_rescaling_ahead()
    cells = len(script.read()[0])
    assert f"in {cells - len(ahead)} of {cells} cells" in page
    assert {name for name, _ in ahead} == {"fertil2", "synthetic_linear"}
    worst, median = max(found[key][0] for key in SETS.values()), sorted(found[key][0] for key in SETS.values())[8]
    toml = (ROOT / "src/tulle/experiments/published/dense-regression.toml").read_text(encoding="utf-8")
    assert (
        f"at most {100 * worst:.0f} % behind the best constants for it, and {100 * median:.0f} % in the median" in toml
    )
