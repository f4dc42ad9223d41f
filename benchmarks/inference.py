"""Coverage of the intervals of private fits: the values of docs/intervals.md.

    python benchmarks/inference.py coverage [--simulations 500] [--cells fixed] [--into results.json]
    python benchmarks/inference.py real [--simulations 200]
    python benchmarks/inference.py hazard [--simulations 100]
    python benchmarks/inference.py time
    python benchmarks/inference.py tables    # of docs/intervals.md and survival.md, from docs/pictures/inference_*.json

`coverage`: n = 2,000, 10,000 and 50,000 rows, epsilon 0.5, 1 and 4, three losses, with 10 features that are fixed and
10 that are chosen among 200. Features are even on [-1, 1]; half of ten weights are zero (of 200, all but five). The
truth for chosen features is their fit to a million other rows. `real`: subsamples of Covertype and a9a (needs
TULLE_DATA), with the fit to all rows as truth. Results are written after each cell, and cells that are there already
with as many simulations are not run again. Data sets are made here, so that every figure may be printed.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.datasets import load_a9a, load_covertype, load_w8a
from tulle.survival import SparseHazard

ROWS, EPSILONS, LOSSES = (2_000, 10_000, 50_000), (0.5, 1.0, 4.0), ("logistic", "squared", "poisson")
WEIGHTS = np.array([-0.3, 0.475, -0.65, 0.825, -1.0])
INTERCEPT = 0.3
# Counts have a mean of 1.4 and are below 10, except one in a thousand; other targets are within 5 of 0.
POISSON_SCALE, LABELS = 0.4, {"logistic": None, "squared": 5.0, "poisson": 10.0}
LEVEL = 0.95

Drawn = tuple[np.ndarray, np.ndarray]


def draw(loss: str, n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Rows and targets; only the first five columns matter."""
    X = rng.uniform(-1, 1, (n, d))
    margins = X[:, : len(WEIGHTS)] @ WEIGHTS + INTERCEPT
    if loss == "logistic":
        return X, rng.random(n) < expit(margins)
    if loss == "squared":
        return X, margins + rng.standard_normal(n)
    return X, rng.poisson(np.exp(POISSON_SCALE * margins)).astype(float)


def model(loss: str, epsilon: float | None, bounds: Bounds, **settings: Any) -> Any:
    if loss == "logistic":
        return SparseClassifier(epsilon, bounds=bounds, inference=True, **settings)
    return SparseRegressor(epsilon, loss=loss, bounds=bounds, inference=True, **settings)


def weights_of(fitted: Any) -> np.ndarray:
    return np.asarray(fitted.inference_.estimates)


class Truth:
    """The weights that a subset of the features has in the population."""

    def __init__(self, loss: str) -> None:
        self._loss = loss
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Columns beyond the fifth are independent of all else: their weights are 0."""
        real = tuple(int(feature) for feature in features if feature < len(WEIGHTS))
        if real not in self._known:
            scale = POISSON_SCALE if self._loss == "poisson" else 1.0
            if len(real) == len(WEIGHTS) or self._loss == "squared":
                found = np.append(scale * WEIGHTS[list(real)], scale * INTERCEPT)
            else:
                X, y = draw(self._loss, 1_000_000, len(WEIGHTS), np.random.default_rng(77))
                fitted = model(self._loss, None, Bounds()).fit(X[:, list(real)] if real else X[:, :1] * 0, y)
                found = weights_of(fitted)[-len(real) - 1 :]
            self._known[real] = found
        known = self._known[real]
        weights = np.zeros(len(features) + 1)
        weights[-1] = known[-1]
        weights[np.flatnonzero(features < len(WEIGHTS))] = known[:-1]
        return weights


def simulate(
    fit: Callable[[int], tuple[Any, np.ndarray]], simulations: int, plain: Callable[[int], Any] | None = None
) -> dict[str, Any]:
    """Coverage and widths over simulations; `fit(seed)` gives a model and the truth of its weights."""
    covered, null, widths, shares, printed, ratios = [], [], [], [], 0.0, []
    of_each: dict[int, list[bool]] = {}
    opened: list[bool] = []
    for seed in range(simulations):
        fitted, truth = fit(seed)
        pairs = list(zip(fitted.summary(LEVEL).lines, truth))
        shown = [(line, true) for line, true in pairs if not np.isnan(line.low)]
        for place, (line, true) in enumerate(pairs):
            if not np.isnan(line.low):
                of_each.setdefault(place, []).append(bool(line.low <= true <= line.high))
        printed += len(shown) / len(pairs)
        if not shown:
            continue
        lines = [line for line, _ in shown]
        inside = [line.low <= true <= line.high for line, true in shown]
        covered.append(float(np.mean(inside)))
        null += [line.p_value < 0.05 for line, true in shown if true == 0]
        opened += [bool(np.isinf(line.low) or np.isinf(line.high)) for line in lines]
        widths.append(_width(lines))
        shares.append(float(np.median([line.privacy_share for line in lines])))
        if plain is not None and seed < 20:
            reference = plain(seed).summary(LEVEL).lines
            ratios.append(widths[-1] / _width(reference))
    if not printed:
        return {"simulations": simulations, "printed": 0.0}
    return {
        "simulations": simulations,
        "printed": printed / simulations,
        "coverage": float(np.mean(covered)),
        # Intervals of one fit depend on each other: the error is that of a mean over fits.
        "coverage_error": float(np.std(covered) / np.sqrt(len(covered))),
        "null": float(np.mean(null)) if null else None,
        "null_count": len(null),
        "open": float(np.mean(opened)),
        "width": float(np.nanmedian(widths)),
        "privacy_share": float(np.median(shares)),
        # Of the weights that are often printed: the one that is covered least.
        "least": min((float(np.mean(found)) for found in of_each.values() if len(found) >= 50), default=None),
        **({"width_ratio": float(np.nanmedian(ratios))} if np.isfinite(ratios).any() else {}),
    }


def _width(lines: Any) -> float:
    """The median width of intervals that are open to no side; NaN where there is none."""
    found = [line.high - line.low for line in lines if np.isfinite(line.high - line.low)]
    return float(np.median(found)) if found else float("nan")


def coverage_cell(loss: str, n: int, epsilon: float, kind: str, simulations: int) -> dict[str, Any]:
    d = 10 if kind == "fixed" else 200
    truth = Truth(loss)
    bounds = Bounds(row_linf=1.0, label=LABELS[loss])

    def data(seed: int) -> Drawn:
        return draw(loss, n, d, np.random.default_rng((seed, n, d)))

    def fit(seed: int) -> tuple[Any, np.ndarray]:
        settings = {} if kind == "fixed" else {"n_nonzero": 10}
        fitted = model(loss, epsilon, bounds, random_state=seed, **settings).fit(*data(seed))
        return fitted, truth(fitted.inference_.features)

    def plain(seed: int) -> Any:
        X, y = data(seed)
        return model(loss, None, Bounds()).fit(X[:, :10], y)

    return simulate(fit, simulations, plain)


REAL = ("covertype", "covertype soils", "a9a", "a9a others", "w8a")


def real_data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows, seven to ten columns that lie in [-1, 1], and two classes."""
    if name == "covertype":
        X, y, *_ = load_covertype()
        # Without the three of the hill's shade, which nearly determine each other. `load_covertype` has them in [0, 1],
        # and elevations, of 2,000 to 4,000 metres, in [0.5, 1].
        X = 2 * np.asarray(X[:, [0, 1, 2, 3, 4, 5, 9]], dtype=float) - 1
        X[:, 0] = 2 * X[:, 0] - 1
        return X, y == 1
    if name == "w8a":
        data = load_w8a()
        X, y = sp.vstack([data.X_train, data.X_test]), np.r_[data.y_train, data.y_test]
    else:
        X, y, *_ = load_covertype() if name == "covertype soils" else load_a9a()
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    if name == "covertype soils":  # indicators of areas and of soils
        X, y = X[:, 10:], np.where(y == 1, 1, -1)
    # Columns that are in 5 to 60 % of the rows, of which none follows from the others: the first ten, or the next.
    first = 10 * (name == "a9a others")
    kept: list[int] = []
    for j in range(X.shape[1]):
        if 0.05 < X[:, j].mean() < 0.6 and len(kept) < first + 10:
            values = np.linalg.eigvalsh(np.corrcoef(X[:, [*kept, j]].T)) if kept else np.ones(1)
            kept += [j] * bool(values[0] > 0.3)
    return X[:, kept[first : first + 10]], y > 0


@functools.cache
def real_data_and_truth(name: str, loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = real_data(name)
    target = y if loss == "logistic" else 2.0 * y - 1
    return X, target, weights_of(model(loss, None, Bounds()).fit(X, target))


def real_cell(name: str, loss: str, n: int, epsilon: float, simulations: int) -> dict[str, Any]:
    X, y, full = real_data_and_truth(name, loss)
    bounds = Bounds(row_linf=1.0, label=1.0 if loss == "squared" else None)

    def draw_rows(seed: int) -> Drawn:
        rows = np.random.default_rng((seed, n)).integers(len(y), size=n)  # with replacement: the rows are the truth
        return X[rows], y[rows]

    def fit(seed: int) -> tuple[Any, np.ndarray]:
        return model(loss, epsilon, bounds, random_state=seed).fit(*draw_rows(seed)), full

    return simulate(fit, simulations, lambda seed: model(loss, None, Bounds()).fit(*draw_rows(seed)))


HAZARD_WEIGHTS = np.array([1.5, -1.0, 0.0])
PEOPLE = (2_000, 10_000, 40_000)


def hazard_cell(n: int, epsilon: float, simulations: int) -> dict[str, Any]:
    """Six periods, three features in [-0.58, 0.58]; times follow the hazards that the model has."""
    edges, level = np.arange(0, 181, 30), -2.5

    def fit(seed: int) -> tuple[Any, np.ndarray]:
        rng = np.random.default_rng((seed, n, 3))
        X = rng.uniform(-1, 1, (n, 3)) / 3**0.5
        hazards = expit(level + X @ HAZARD_WEIGHTS)
        periods = rng.geometric(hazards) - 1  # of the event
        leaves = rng.integers(1, 13, n)  # after so many periods observation ends
        event = (periods < leaves) & (periods < 6)
        time_of = np.where(event, 30 * periods + 15, 30 * np.minimum(leaves, 6))
        y = np.column_stack([time_of, event])
        return SparseHazard(edges, epsilon, random_state=seed).fit(X, y), HAZARD_WEIGHTS

    return simulate(fit, simulations)


def time_cells() -> None:
    """Seconds of a fit with intervals over those of one without, the best of five each."""
    for loss, d in itertools.product(LOSSES, (10, 50, 200)):
        X, y = draw(loss, 50_000, d, np.random.default_rng(0))
        bounds, found = Bounds(row_linf=1.0, label=LABELS[loss]), []
        for inference in (False, True):
            best = np.inf
            for seed in range(5):
                started = time.perf_counter()
                model(loss, 1.0, bounds, random_state=seed).set_params(inference=inference).fit(X, y)
                best = min(best, time.perf_counter() - started)
            found.append(best)
        print(f"{loss:<9} d = {d:<4} {found[1]:.3f} s, {found[1] / found[0]:.2f} times a fit without", flush=True)


def run(cells: dict[str, Callable[[], dict[str, Any]]], simulations: int, into: Path | None) -> None:
    known: dict[str, Any] = json.loads(into.read_text()) if into is not None and into.exists() else {}
    for name, cell in cells.items():
        if known.get(name, {}).get("simulations", 0) < simulations:
            started = time.perf_counter()
            known[name] = cell()
            known[name]["seconds"] = round(time.perf_counter() - started, 1)
            if into is not None:
                into.parent.mkdir(parents=True, exist_ok=True)
                into.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        print(f"{name:<34}", describe(known[name]), flush=True)


def describe(cell: dict[str, Any]) -> str:
    if not cell["printed"]:
        return "no intervals"
    null = "" if cell["null"] is None else f"P(p < 0.05) {cell['null']:.3f}, "
    ratio = f", {cell['width_ratio']:.2f} times as wide as without privacy" if "width_ratio" in cell else ""
    return (
        f"coverage {cell['coverage']:.3f} ± {cell['coverage_error']:.3f}, least {cell.get('least')}, {null}printed "
        f"{cell['printed']:.2f}, "
        f"width {cell['width']:.3g}{ratio}"
    )


DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = {"coverage": DOCS / "intervals.md", "real": DOCS / "intervals.md", "hazard": DOCS / "survival.md"}
MEASURED = {name: DOCS / "pictures" / f"inference_{name}.json" for name in PAGES}


def _shown(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    if not cell["printed"]:
        return "no intervals"
    printed = "" if cell["printed"] > 0.995 else f", printed {100 * cell['printed']:.0f} %"
    null = "" if cell["null"] is None else f", P {100 * cell['null']:.1f} %"
    ratio = f", width × {cell['width_ratio']:.2f}" if "width_ratio" in cell else ""
    least = "" if cell.get("least") is None else f" (least {100 * cell['least']:.0f})"
    opened = "" if cell.get("open", 0.0) < 0.005 else f", open {100 * cell['open']:.0f} %"
    return f"**{100 * cell['coverage']:.1f} %**{least}{null}{ratio}{opened}{printed}"


def tables() -> dict[str, list[str]]:
    """The tables of the page, from what was measured."""
    cells = {name: json.loads(path.read_text()) for name, path in MEASURED.items()}
    epsilons = " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
    rule = " | ".join(["---"] * len(EPSILONS))
    coverage = [f"| features | loss | n | {epsilons} |", f"| --- | --- | --- | {rule} |"]
    for kind, loss, n in itertools.product(("fixed", "chosen"), LOSSES, ROWS):
        row = [_shown(cells["coverage"].get(f"{kind} {loss} n={n} eps={epsilon:g}")) for epsilon in EPSILONS]
        words = "10 fixed" if kind == "fixed" else "10 chosen among 200"
        coverage.append(f"| {words} | {loss} | {n:,} | {' | '.join(row)} |")
    real = [f"| rows | loss | n | {epsilons} |", f"| --- | --- | --- | {rule} |"]
    for name, loss, n in itertools.product(REAL, LOSSES[:2], (10_000, 30_000)):
        row = [_shown(cells["real"].get(f"{name} {loss} n={n} eps={epsilon:g}")) for epsilon in EPSILONS]
        real.append(f"| {name} | {loss} | {n:,} | {' | '.join(row)} |")
    hazard = ["| people | ε = 1 | ε = 4 |", "| --- | --- | --- |"]
    for n in PEOPLE:
        found = [cells["hazard"][f"hazard n={n} eps={epsilon:g}"] for epsilon in (1.0, 4.0)]
        shown = [f"{_shown(cell)}, median width {cell['width']:.2g}" for cell in found]
        hazard.append(f"| {n:,} | {' | '.join(shown)} |")
    return {"coverage": coverage, "real": real, "hazard": hazard}


def write_tables() -> None:
    for name, lines in tables().items():
        text = PAGES[name].read_text(encoding="utf-8")
        start, end = f"<!-- table: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        PAGES[name].write_text(before + start + "\n" + "\n".join(lines) + "\n\n" + end + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("coverage", "real", "hazard", "time", "tables"))
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--cells", default="", help="only cells whose name has this text")
    parser.add_argument("--into", type=Path, help="JSON file to write results to, and to resume from")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.what == "time":
        return time_cells()
    if arguments.what == "tables":
        return write_tables()
    count = arguments.simulations
    cells: dict[str, Callable[[], dict[str, Any]]] = {}
    if arguments.what == "coverage":
        for kind, loss, n, epsilon in itertools.product(("fixed", "chosen"), LOSSES, ROWS, EPSILONS):

            def cell(loss: str = loss, n: int = n, epsilon: float = epsilon, kind: str = kind) -> dict[str, Any]:
                return coverage_cell(loss, n, epsilon, kind, count)

            cells[f"{kind} {loss} n={n} eps={epsilon:g}"] = cell
    elif arguments.what == "hazard":
        for n, epsilon in itertools.product(PEOPLE, (1.0, 4.0)):
            cells[f"hazard n={n} eps={epsilon:g}"] = functools.partial(hazard_cell, n, epsilon, count)
    else:
        for name, loss, n, epsilon in itertools.product(REAL, LOSSES[:2], (10_000, 30_000), EPSILONS):

            def of_rows(name: str = name, loss: str = loss, n: int = n, epsilon: float = epsilon) -> dict[str, Any]:
                return real_cell(name, loss, n, epsilon, count)

            cells[f"{name} {loss} n={n} eps={epsilon:g}"] = of_rows
    run({name: cell for name, cell in cells.items() if arguments.cells in name}, count, arguments.into)


if __name__ == "__main__":
    main()
