"""Figures 1 and 2 of LDP-IHT: label-private regression against users, optimality gaps against rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from tulle.datasets import Split
from tulle.experiments import gaps
from tulle.experiments import label_error as labels
from tulle.experiments.catalogue import Published, published
from tulle.experiments.cells import Cell, Finished
from tulle.experiments.dependencies import sources
from tulle.experiments.examples import Examples
from tulle.experiments.gaps import AUTO, BEST, DEFAULT, DP_IHT, PRINTED, Gaps
from tulle.experiments.label_error import CHOSEN, GAUSSIAN, Labels, Study, label_problem
from tulle.experiments.optimality import Objective, promising_supports, support_of, swapped
from tulle.experiments.reproduction import experiment
from tulle.experiments.varied import Varied
from tulle.local.estimators.label_private import LabelPrivateSparseRegressor
from tulle.local.user_side.label_randomisers import GaussianLabel

FIGURE_1, FIGURE_2 = published("ldp-iht-figure1"), published("ldp-iht-figure2")


def finished(cell: Cell, failed: str = "", **values: Any) -> Finished:
    return Finished(cell, {name.replace("_", " "): value for name, value in values.items()}, 0.1, failed)


def curve(task: Labels | Gaps, found: list[Finished], panel: str, name: str) -> dict[float, tuple[float, float, str]]:
    """The points of one series of the one panel whose name and y begin and end so."""
    ((chosen,)) = [one for one in task.panels(found) if f"{one.name} {one.y}" == panel]
    (series,) = [one for one in chosen.series if one.name == name]
    return {point.x: (point.mean, point.error or 0.0, point.note) for point in series.points}


# --- which cells there are -------------------------------------------------------------------------------------------


def test_one_quantity_at_a_time_leaves_its_usual_value() -> None:
    varied = Varied({"p": 1000, "ε": 1.0}, {"p": [250, 1000], "ε": [1.0, 2.0]})
    assert varied.settings() == [{"p": 250, "ε": 1.0}, {"p": 1000, "ε": 1.0}, {"p": 1000, "ε": 2.0}]
    assert [title for title, _ in varied.panels()] == ["p varies; ε = 1", "ε varies; p = 1,000"]
    with pytest.raises(ValueError, match="k varies but has no usual value"):
        Varied({"p": 1}, {"k": [1]})


@pytest.mark.parametrize(
    ("of", "count"),
    # 9 settings × 5 numbers of users × 10 trials × 4 methods; 4 × (7 settings × 5 trials × 4 methods + 5 searches) × 2
    [(FIGURE_1, 2700), (FIGURE_2, 1160)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_cells_are_named_once_and_the_fast_ones_are_among_them(of: Published, count: int) -> None:
    cells = experiment(of).cells()
    assert len(set(cells)) == len(cells) == count
    fast = experiment(of.faster()).cells()
    assert len(fast) < 100
    assert set(fast) < set(cells)


def test_data_of_one_trial_follow_each_other() -> None:
    """Both kinds keep the last data set alone."""
    for of in (FIGURE_1, FIGURE_2):
        names = [cell.data for cell in experiment(of).cells()]
        changes = sum(one != other for one, other in pairwise(names))
        assert changes == len(set(names)) - 1


def test_cells_depend_on_their_own_settings_alone(covertype: None) -> None:
    def changed(task: type[Labels] | type[Gaps], of: Published, method: str, **settings: Any) -> bool:
        cell = next(cell for cell in task(of).cells() if cell.method == method)
        other = task(replace(of, settings={**of.settings, **settings}))
        assert task(of).depends(cell) == task(of).depends(cell)
        return other.depends(cell) != task(of).depends(cell)

    assert changed(Labels, FIGURE_1, CHOSEN, noise=0.1)
    assert not changed(Labels, FIGURE_1, CHOSEN, users=[2000], steps=[0.3])
    assert changed(Gaps, FIGURE_2, BEST, searched=[5000])
    assert changed(Gaps, FIGURE_2, PRINTED, clip=0.5)
    assert not changed(Gaps, FIGURE_2, DP_IHT, searched=[5000])
    assert not changed(Gaps, FIGURE_2, AUTO, steps=7)
    assert changed(Gaps, FIGURE_2, AUTO, penalty=0.1)


def test_code_that_cells_depend_on_has_the_methods_and_no_others() -> None:
    label, gap = (
        sources().needed(task.sources(task.cells()[0])) for task in (experiment(FIGURE_1), experiment(FIGURE_2))
    )
    assert {
        "tulle.local.estimators.label_private",
        "tulle.local.user_side.label_randomisers",
        "tulle.local.server_side.noisy_labels",
    } <= label
    others = ("auto", "screen_refine", "two_stage", "frank_wolfe", "coordinate_descent", "knowledge_transfer")
    assert label.isdisjoint(f"tulle.methods.{name}" for name in others)
    assert {"tulle.methods.hard_thresholding", "tulle.methods.auto", "tulle.experiments.optimality"} <= gap
    assert not any(name.startswith("tulle.local") for name in gap)


# --- labels ----------------------------------------------------------------------------------------------------------


def test_label_problems_are_drawn_as_the_paper_says() -> None:
    study = Study(4000, 50, 20)
    X, y, weights = label_problem(study, 0.05, 3)
    assert X.shape == (4000, 50)
    assert set(np.unique(X)) == {-1.0, 1.0}
    assert abs(X.mean()) < 5 / math.sqrt(X.size)  # five standard deviations
    drawn = weights[weights != 0]
    assert len(drawn) == 20
    assert drawn.min() >= 0
    assert 0.5 < drawn.max() <= 1
    noise = y - X @ weights
    assert 0.049 < np.abs(noise).max() <= 0.05 + 1e-12
    assert noise.std() == pytest.approx(0.05 / math.sqrt(3), rel=0.05)
    assert not np.array_equal(label_problem(study, 0.05, 4).y, y)


def small_labels() -> Labels:
    settings = {
        "users": [600, 9600],
        "usual": {"p": 20, "s*": 3, "ε": 4.0},
        "varied": {"p": [20, 30]},
        "noise": 0.05,
        "steps": [0.2],
    }
    return Labels(replace(FIGURE_1, trials=2, settings=settings))


def test_labels_run_alike_twice_prove_their_epsilon_and_learn_from_more_users() -> None:
    task = small_labels()
    found = [finished(cell, **task.run(cell)) for cell in task.cells()]
    assert len(found) == 2 * 2 * 2 * 4
    assert task.run(found[-1].cell)["score"] == found[-1].values["score"]
    assert all(one.values["proved"] <= 4.0 * (1 + 1e-9) for one in found)
    chosen = curve(task, found, "p varies; s* = 3, ε = 4 relative error", f"{CHOSEN}, p = 30")
    gaussian = curve(task, found, "p varies; s* = 3, ε = 4 relative error", f"{GAUSSIAN}, p = 30")
    assert chosen[9600][0] < 0.7 * chosen[600][0]
    assert chosen[9600][0] < gaussian[9600][0]


def test_methods_get_the_same_rows_and_the_settings_that_the_paper_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise differs from method to method; the fit as printed takes ⌈log(n/p)⌉ steps from normal weights, stays in the
    unit ball and refits nothing."""
    asked: dict[str, dict[str, Any]] = {}
    rows = []

    class Spy(LabelPrivateSparseRegressor):
        def fit(self, X: Any, y: Any) -> LabelPrivateSparseRegressor:
            asked[cell.method] = self.get_params()
            rows.append((X, y))
            return super().fit(X, y)

    monkeypatch.setattr(labels, "LabelPrivateSparseRegressor", Spy)
    task = small_labels()
    for cell in task.cells()[:4]:
        task.run(cell)
    chosen, gaussian, printed, from_zero = asked.values()
    assert [one["randomiser"] for one in asked.values()] == ["auto", "gaussian", "gaussian", "gaussian"]
    assert [one["refit"] for one in asked.values()] == [True, True, False, False]
    for one, start in ((printed, "normal"), (from_zero, "zero")):
        assert (one["step"], one["n_iter"]) == (0.2, math.ceil(math.log(600 / 20)))
        assert (one["ball"], one["start"]) == (1.0, start)
    assert chosen["ball"] is gaussian["ball"] is None
    assert chosen["step"] is gaussian["step"] is None
    for one in asked.values():
        assert (one["epsilon"], one["delta"], one["n_nonzero"]) == (4.0, 1e-3, 3)
        assert one["bounds"].label == math.sqrt(3) + 1
    assert len({one["random_state"] for one in asked.values()}) == 4
    assert all(np.array_equal(X, rows[0][0]) and np.array_equal(y, rows[0][1]) for X, y in rows)


def test_label_panels_have_means_and_standard_errors() -> None:
    task = small_labels()
    found = [
        finished(cell, score=1.0 + 2 * cell.trial, proved=4.0)
        for cell in task.cells()
        if (cell.method, cell.data) == (CHOSEN, "p = 20, s* = 3, n = 600")
    ]
    found += [finished(replace(found[0].cell, data="p = 20, s* = 3, n = 9,600"), score=5.0, proved=4.0)]
    found += [finished(replace(found[0].cell, method=GAUSSIAN), failed="ValueError: no")]
    (panel,) = task.panels(found)
    assert (panel.x, panel.y, panel.log_x, panel.log_y) == ("users n", "relative error", True, True)
    assert [series.name for series in panel.series] == [f"{CHOSEN}, p = 20"]  # failed cells are left out
    assert panel.series[0].role == "honest"
    points = curve(task, found, "p varies; s* = 3, ε = 4 relative error", f"{CHOSEN}, p = 20")
    assert points == {600: (2.0, 1.0, ""), 9600: (5.0, 0.0, "")}


def test_so_few_steps_do_not_forget_a_normal_start() -> None:
    """The paper's T = ⌈log(n/p)⌉ steps end further off from normal weights than from 0, and without the projection onto
    the unit ball far beyond the zero model's error."""
    study, rng = Study(8000, 1000, 10), np.random.default_rng(0)
    X, y, weights = label_problem(study, 0.05, 0)
    bound = math.sqrt(study.s) + 1
    sent = np.clip(y, -bound, bound) + rng.normal(0, bound * GaussianLabel(1.0, bound, 1e-3).scale, study.n)

    def error(w: Any, ball: float) -> float:
        for _ in range(math.ceil(math.log(study.n / study.p))):
            w = w - 0.2 * X.T @ (X @ w - sent) / study.n
            w[np.argsort(-np.abs(w))[study.s :]] = 0
            w *= min(1.0, ball / np.linalg.norm(w))
        return float(np.linalg.norm(w - weights) / np.linalg.norm(weights))

    start = rng.normal(size=study.p)
    assert error(np.zeros(study.p), 1.0) < error(start, 1.0) < 1.2
    assert error(start, math.inf) > 2


# --- optimality gaps -------------------------------------------------------------------------------------------------


def drawn_rows(n: int, p: int, seed: int = 0) -> Examples:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.6)
    margins = X[:, :4] @ np.array([2.0, -1.5, 1.0, 0.7])
    return Examples(sp.csr_array(X), (rng.random(n) < 1 / (1 + np.exp(-3 * margins))).astype(float))


@pytest.fixture
def covertype(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A few drawn rows in the place of the real ones."""
    rows = drawn_rows(400, 12)
    dense = rows.X.toarray()
    monkeypatch.setattr(gaps, "load_covertype", lambda: Split(dense[:300], rows.y[:300], dense[300:], rows.y[300:]))
    monkeypatch.setattr(gaps, "source_digest", lambda loader: "")
    caches = (gaps.covertype, gaps.covertype_digest, gaps._objective)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def small_gaps() -> Gaps:
    settings = {
        **FIGURE_2.settings,
        "rows": [200, 400],
        "usual": {"k": 3, "p": 12, "ε": 4.0},
        "varied": {"ε": [1.0, 4.0]},
        "steps": 20,
        "searched": [100, 200],
        "swapped": 300,
    }
    return Gaps(replace(FIGURE_2, trials=2, settings=settings))


@pytest.mark.parametrize(("penalty", "in_ball"), [(1e-3, False), (1e-3, True), (0.3, True)])
def test_minimisers_are_those_of_scipy(penalty: float, in_ball: bool) -> None:
    """Inside the ball, on its edge, and where the penalty alone keeps them inside."""
    rows, support = drawn_rows(300, 8), (0, 1, 2, 5)
    objective = Objective.on(rows, penalty, in_ball)
    dense = rows.X.toarray()
    Z = dense / np.maximum(np.linalg.norm(dense, axis=1), 1e-300)[:, None] * np.where(rows.y == 1, 1.0, -1.0)[:, None]

    def loss(theta: Any) -> float:
        return float(np.log1p(np.exp(-Z[:, list(support)] @ theta)).mean() + penalty / 2 * theta @ theta)

    if in_ball:
        limits = {"type": "ineq", "fun": lambda theta: 1 - theta @ theta}
        known = minimize(loss, np.zeros(4), method="SLSQP", constraints=limits, options={"ftol": 1e-14})
    else:
        known = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
    w = objective.minimiser(support)
    np.testing.assert_allclose(w[list(support)], known.x, atol=2e-4)
    assert objective.value(w) == pytest.approx(known.fun, abs=1e-9)
    assert objective.logistic(w) == pytest.approx(known.fun - penalty / 2 * w @ w, abs=1e-7)
    assert (np.linalg.norm(w) > 0.999) == (penalty < 0.1)  # otherwise the ball is never felt
    assert support_of(w) == support


def test_gradients_are_slopes_of_the_objective() -> None:
    objective = Objective.on(drawn_rows(100, 5), 0.1, False)
    w, at = np.array([0.5, -0.2, 0.0, 1.0, 0.3]), 1e-6
    slopes = [(objective.value(w + at * e) - objective.value(w - at * e)) / (2 * at) for e in np.eye(5)]
    np.testing.assert_allclose(objective.gradient(w), slopes, atol=1e-7)


@pytest.mark.parametrize("in_ball", [False, True])
def test_the_search_finds_the_best_of_all_supports(in_ball: bool) -> None:
    rows = drawn_rows(200, 8, seed=1)
    objective = Objective.on(rows, 1e-3, in_ball)
    least = objective.value(objective.best(combinations(range(8), 3)))
    found = objective.best(promising_supports(rows, 3, 1e-3, 50, in_ball))
    assert objective.value(found) == pytest.approx(least, abs=1e-10)
    poor = objective.minimiser((5, 6, 7))
    assert objective.value(swapped(objective, poor)) < objective.value(poor) - 0.01


def test_gaps_run_alike_twice_and_none_is_negative(covertype: None) -> None:
    task = small_gaps()
    found = [finished(cell, **task.run(cell)) for cell in task.cells()]
    assert dict(found[-1].values) == task.run(found[-1].cell)
    for one in found:
        if one.cell.method != BEST:
            assert one.values["refit objective"] <= one.values["objective"] + 1e-9
            assert one.values["nonzero"] <= 3
            assert (one.values["proved"] > one.cell.epsilon) == (one.cell.method == PRINTED)
    panels = task.panels(found)
    assert [panel.y for panel in panels] == ["optimality gap", "excess logistic loss", "optimality gap"]
    for panel in panels[::2]:
        assert len(panel.series) == 8
        assert all(point.mean >= 0 for series in panel.series for point in series.points)
        assert {s.role for s in panel.series if s.name.startswith(PRINTED)} == {"unsound"}
        assert all(p.note.startswith("true ε ") for s in panel.series if s.role == "unsound" for p in s.points)


def test_weights_of_auto_are_scaled_into_the_ball(covertype: None) -> None:
    task = small_gaps()
    cells = [cell for cell in task.cells() if (cell.method, cell.trial) == (AUTO, 0)]
    lengths = {}
    for cell in cells:
        values = task.run(cell)
        squared = (values["objective"] - values["logistic"]) * 2 / FIGURE_2.settings["penalty"]
        lengths.setdefault(cell.data.split(",")[0], []).append(math.sqrt(squared))
    assert max(lengths["unit ball"]) <= 1 + 1e-6
    assert max(lengths["no ball"]) > 1.5


def test_gaps_are_above_the_best_that_any_cell_found() -> None:
    """The least F is that of a refit here; an unsound point says its true ε."""
    data, task = "no ball, k = 3, p = 12, n = 200", small_gaps()
    best = finished(Cell(data, BEST, None, 0), objective=0.5, logistic=0.45)
    fits = [
        finished(
            Cell(data, method, 4.0, trial),
            objective=0.7 + 0.2 * trial,
            logistic=0.3,
            refit_objective=0.4 if method == DEFAULT else 0.6,
            refit_logistic=0.35,
            proved=13.351 if method == PRINTED else 4.0,
        )
        for method in (DP_IHT, PRINTED, DEFAULT, AUTO)
        for trial in range(2)
    ]
    title = "no ball, as printed; ε varies; k = 3, p = 12"
    gap, logistic = (f"{title} {y}" for y in ("optimality gap", "excess logistic loss"))
    for method in (DP_IHT, PRINTED):
        ((x, (mean, error, note)),) = curve(task, [best, *fits], gap, f"{method}, ε = 4").items()
        assert (x, mean, error) == (200, pytest.approx(0.4), pytest.approx(0.1))
        assert note == ("true ε 13.4" if method == PRINTED else "")
    assert curve(task, [best, *fits], logistic, f"{DP_IHT}, ε = 4")[200][0] == pytest.approx(-0.05)
    without = [one for one in fits if one.cell.method != DEFAULT]
    assert curve(task, [best, *without], gap, f"{DP_IHT}, ε = 4")[200][0] == pytest.approx(0.3)
    # Without the search no w* is known, and no gap is shown.
    lost = finished(best.cell, failed="MemoryError: much")
    assert not any(panel.series for panel in task.panels([lost, *fits]))
    unproved = [
        replace(one, values={**one.values, "proved": "inf"}) if one.cell.method == PRINTED else one for one in fits
    ]
    assert curve(task, [best, *unproved], gap, f"{PRINTED}, ε = 4")[200][2] == "no ε is proved"


def test_too_many_rows_are_refused_and_missing_data_is_named(covertype: None, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_gaps()
    more = Gaps(replace(task.of, settings={**task.of.settings, "rows": [500]}))
    with pytest.raises(ValueError, match="Covertype has 400 rows, but 500 are requested"):
        more.run(more.cells()[1])
    monkeypatch.undo()
    gaps.covertype_digest.cache_clear()
    monkeypatch.delenv("TULLE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"covtype\.data\.gz"):
        task.files_digest(task.cells()[0])
