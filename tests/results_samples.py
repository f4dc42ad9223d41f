"""Results for tests of tables, pictures and pages; all figures are made up."""

from __future__ import annotations

import math

import numpy as np

from tulle.reports.series import Panel, Point, Results, Role, Series

PAPER = "Wang and Gu, Differentially private iterative gradient hard thresholding for sparse learning (IJCAI 2019)"
COMMAND = "tulle reproduce dp-ight-figure1 --trials 10"
MACHINE = (("tulle", "0.1.0"), ("python", "3.11.2"), ("numpy", "2.2.1"), ("cores", 2), ("platform", "Linux x86_64"))
EPSILONS = (2.0, 4.0, 6.0, 8.0, 10.0)


def falling(
    name: str, role: Role, at_one: float, floor: float, *, xs: tuple[float, ...] = EPSILONS, seed: int = 0
) -> Series:
    """A series that falls from about `at_one` towards a floor."""
    rng = np.random.default_rng([seed, len(name), ord(role[0])])
    points = []
    for x in xs:
        mean = floor + (at_one - floor) / x**0.8 * float(rng.uniform(0.9, 1.1))
        error = None if role == "paper" else 0.04 * mean * float(rng.uniform(0.5, 1.5))
        points.append(Point(x, mean, error, f"true ε {2.43 * x:.4g}" if role == "unsound" else ""))
    return Series(name, role, tuple(points))


def level(name: str, mean: float, *, xs: tuple[float, ...] = EPSILONS, error: float | None = None) -> Series:
    return Series(name, "reference", tuple(Point(x, mean, error) for x in xs))


def figure1() -> Results:
    """Four panels of nine series; one method is far off in two of them."""
    names = [
        f"{kind}, n = {n:,}, d = {d:,}, s = 10"
        for kind in ("linear", "logistic")
        for n, d in ((1000, 1000), (5000, 10000))
    ]
    panels = []
    for k, name in enumerate(names):
        wild = 30.0 if k % 2 else 1.6
        series = (
            falling("DP-IGHT, paper's noise, oracle-tuned", "unsound", 0.6, 0.08, seed=k),
            falling("DP-IGHT, oracle-tuned", "oracle", 1.0, 0.3, seed=k),
            falling("DP-IGHT, defaults", "honest", 1.2, 0.35, seed=k),
            falling("DP-IGHT, PrivateSearch", "honest", 1.3, 0.4, seed=k),
            falling("Two stage, paper's noise", "unsound", 1.5, 0.6, seed=k),
            falling("Frank-Wolfe, paper's noise", "unsound", wild, 0.9, seed=k),
            falling("Screen and refine, defaults", "honest", 0.9, 0.12, seed=k),
            level("without privacy", 0.05, error=0.002),
            level("null model", 1.0),
        )
        panels.append(Panel(name, "ε", "relative error", series))
    return Results(
        "dp-ight-figure1",
        "DP-IGHT, figure 1: relative error of the weights on synthetic data",
        PAPER,
        COMMAND,
        10,
        "",
        tuple(panels),
        ("The paper draws these curves and prints no numbers.", "Two stage is named after Kifer, Smith and Thakurta."),
        ("DP-IGHT (ε = 2): rows were clipped",),
        (),
        MACHINE,
    )


def table3() -> Results:
    """One panel of thirteen series, some of which guess; a point is missing, and one has no error."""
    series = [
        Series("IGHT, printed", "paper", tuple(Point(x, 0.0646) for x in EPSILONS)),
        falling("DP-IGHT, printed", "paper", 0.3, 0.1),
        falling("Two stage, printed", "paper", 0.4, 0.2),
        falling("Frank-Wolfe, printed", "paper", 0.35, 0.19),
        falling("DP-IGHT, paper's noise, oracle-tuned", "unsound", 0.32, 0.09),
        falling("DP-IGHT, oracle-tuned", "oracle", 0.6, 0.2),
        falling("DP-IGHT, defaults", "honest", 0.65, 0.25),
        Series("Two stage, paper's noise", "unsound", tuple(Point(x, 0.5, 0.0, "true ε ∞") for x in EPSILONS)),
        Series("Two stage, sound", "honest", tuple(Point(x, 0.4961, 0.004) for x in EPSILONS)),
        falling("Frank-Wolfe, paper's noise", "unsound", 0.4, 0.2),
        falling("Screen and refine, defaults", "honest", 0.5, 0.12, xs=EPSILONS[1:]),
        level("without privacy", 0.0612, error=0.0),
        level("null model", 0.4783),
    ]
    return Results(
        "dp-ight-table3",
        "DP-IGHT, table 3: test error on RCV1",
        PAPER,
        "tulle reproduce dp-ight-table3",
        10,
        "Rows marked “printed” are on LIBSVM's RCV1 (20,242 training and 20,000 test rows). All others were run on a "
        "substitute, the RCV1 subset: other documents of the same collection, 20,242 training and 3,566 test rows.",
        (Panel("RCV1 subset, s = 500", "ε", "test error", tuple(series)),),
        ("Step sizes, numbers of steps and clipping bounds are tulle's defaults.",),
        machine=MACHINE,
        failed=("Frank-Wolfe (ε = 2), trial 3: the step is not finite",),
    )


def curves() -> Results:
    """Six panels of curves over many places, spanning decades; some reach 0, which no logarithm has."""
    xs = tuple(float(round(10 ** (4 * k / 9))) for k in range(10))
    panels = []
    for k, data in enumerate(("a9a", "rcv1", "golub", "covertype", "gisette", "news20")):

        def curve(name: str, role: Role, rate: float, floor: float, k: int = k) -> Series:
            points = [Point(x, floor + math.exp(-rate * x / (10 + k)), 0.1 * floor) for x in xs]
            return Series(name, role, tuple(points))

        series = (
            curve("Greedy coordinate descent, printed", "paper", 1.0, 1e-3),
            curve("Greedy coordinate descent, paper's noise", "unsound", 1.1, 2e-3),
            curve("Greedy coordinate descent, sound", "honest", 0.3, 2e-2),
            curve("Frank-Wolfe, sound", "honest", 0.2, 5e-2),
            Series("without noise", "reference", tuple(Point(x, math.exp(-x / 20) if x < 3000 else 0.0) for x in xs)),
        )
        panels.append(Panel(f"{data}, λ = 0.01", "passes over the rows", "gap to the minimum", series, True, True))
    return Results(
        "gcd-figure2",
        "Greedy coordinate descent, figure 2: gap against passes",
        PAPER,
        "tulle reproduce gcd-figure2",
        5,
        "",
        tuple(panels),
        machine=MACHINE,
    )


def one_place() -> Results:
    """One place, fourteen series of as many methods, values spanning decades, no errors."""
    roles: tuple[Role, ...] = ("paper", "unsound", "oracle", "honest")
    series = [Series(f"method {k}, as {roles[k % 4]}", roles[k % 4], (Point(1.0, 10.0 ** (k - 7)),)) for k in range(14)]
    return Results(
        "one", "One place", "A paper", "tulle reproduce one", 1, "", (Panel("data", "ε", "loss", tuple(series)),)
    )


def hostile() -> Results:
    """Names that attack a page, and figures that are none."""
    bad = "<script>alert(1)</script> \"'&|` " + "x" * 300
    points = (Point(1.0, math.nan, math.nan, bad), Point(2.0, math.inf, math.inf, "true ε inf"), Point(3.0, -1.0, 0.1))
    series = (Series(bad, "honest", points), Series("<b>", "reference", ()), Series("*a*", "paper", points[2:]))
    panels = (
        Panel(bad, "<i>", bad, series, True, True),
        Panel("nothing", "ε", "error", ()),
        Panel("]]>", "&", "<", series),
    )
    machine = ((bad, bad),)
    return Results("<u>", bad, bad, bad, 1, bad, panels, (bad,), (bad,), (bad,), machine)


def eight_panels() -> Results:
    """Eight panels of one series each, two of them with negative values, one all alike."""
    panels = [
        Panel(
            f"data {k}",
            "ε",
            "R²",
            (Series("method", "honest", tuple(Point(x, 0.1 * k - 0.2 * j, 0.05) for j, x in enumerate(EPSILONS))),),
        )
        for k in range(7)
    ]
    panels.append(Panel("alike", "ε", "R²", (level("null model", 0.0),)))
    return Results("eight", "Eight panels", "A paper", "tulle reproduce eight", 3, "", tuple(panels))


EVERY = {
    "figure1": figure1,
    "table3": table3,
    "curves": curves,
    "one place": one_place,
    "hostile": hostile,
    "eight panels": eight_panels,
}
