"""Why the published knowledge transfer is not private: every figure of docs/proofs/published_transfer.md."""

from __future__ import annotations

import csv
import math
import sys
from typing import Any

import numpy as np
import pytest
from pages import ROOT, cells

from tulle import SparseRegressor
from tulle.methods import HardThresholding
from tulle.trusted.gaussian import gaussian_epsilon

PAGE = ROOT / "docs/proofs/published_transfer.md"


@pytest.fixture(scope="module")
def picture() -> Any:
    """docs/pictures/support_swap.py, which holds the pair of the example too."""
    pytest.importorskip("matplotlib")
    sys.path[:0] = [str(ROOT / "docs/pictures"), str(ROOT / "examples")]
    try:
        import support_swap
    finally:
        del sys.path[:2]
    return support_swap


class TestPair:
    def test_meets_every_assumption(self, picture: Any) -> None:
        (X, y), (_, other) = picture.neighbours()
        assert np.array_equal(X.T @ X, len(y) * np.eye(2))
        assert max(np.abs(X).max(), np.abs(y).max(), np.abs(other).max()) <= 1
        assert (y != other).sum() == 1

    @pytest.mark.parametrize("penalty", [1.0, 0.0])
    def test_hard_thresholding_finds_the_sparse_minimiser_and_it_jumps(self, picture: Any, penalty: float) -> None:
        found = []
        for X, y in picture.neighbours():
            method = HardThresholding(n_iter=3, noise="gaussian", penalty=penalty)
            model = SparseRegressor(None, n_nonzero=1, method=method, fit_intercept=False).fit(X, y)
            assert np.allclose(model.coef_, picture.sparse_teacher(X, y, penalty), rtol=0, atol=1e-12)
            found.append(model.coef_)
        t = 0.501 / (1 + penalty)
        assert np.allclose(found, [[t, 0.0], [0.0, t]], rtol=0, atol=1e-12)

    def test_sparse_minimiser_is_the_best_of_a_grid(self, picture: Any) -> None:
        for X, y in picture.neighbours():
            best = picture.sparse_teacher(X, y, 1.0)

            def objective(theta: Any, X: Any = X, y: Any = y) -> float:
                return float(((y - X @ theta) ** 2).mean() / 2 + theta @ theta / 2)

            grid = [t * axis for t in np.linspace(-1, 1, 801) for axis in np.eye(2)]
            assert objective(best) <= min(map(objective, grid))

    def test_first_order_condition_fails_across_supports(self, picture: Any) -> None:
        """The inner product that a convex set would keep from being negative is -0.125."""
        (X, y), (_, other) = picture.neighbours()
        here, there = picture.sparse_teacher(X, y, 1.0), picture.sparse_teacher(X, other, 1.0)
        gradient = X.T @ (X @ here - y) / len(y) + here
        assert gradient @ (there - here) == pytest.approx(-0.125, abs=5e-4)

    def test_gamma_holds_for_all_data(self) -> None:
        """|theta| <= sqrt(v) / (v + 1) <= 1/2 for lambda = 1, so that no gradient entry is above 1.5."""
        v = np.linspace(0, 1, 10_001)
        assert (np.sqrt(v) / (v + 1)).max() <= 0.5

    def test_table_is_true(self) -> None:
        rows = cells("proofs/published_transfer.md", "n | claimed ε, δ")
        assert len(rows) == 5
        for n, claimed, penalty, bound, distance, times, proved in rows:
            size, (epsilon, delta), ridge = int(n), map(float, claimed.split(",")), float(penalty.split()[0])
            gamma = 1.5 if ridge else 2.0
            printed = 2 * gamma / (size * (ridge or 1.0))
            true = math.sqrt(2) * (0.5 + 1 / size) / (1 + ridge)
            mu = true / printed * epsilon / math.sqrt(2 * math.log(2.5 / delta))
            assert float(bound) == pytest.approx(printed, abs=1e-12)
            assert float(distance) == pytest.approx(true, abs=5.1e-5)
            assert float(times) == pytest.approx(true / printed, abs=0.51)
            assert float(proved) == pytest.approx(gaussian_epsilon(mu, delta), abs=0.051)

    def test_text_is_true(self) -> None:
        """sigma = 0.273 and 23.7 standard deviations, in the first line of the table."""
        sigma = math.sqrt(8 * 1000 / 3 * 1.5**2 * math.log(2.5e5)) / 1000
        assert sigma == pytest.approx(0.273, abs=5e-4)
        assert math.sqrt(1000 / 3) * math.sqrt(2) * 0.2505 / sigma == pytest.approx(23.7, abs=0.05)
        ratio = math.sqrt(2) * 501 / (2 * 1.5 * 2)
        assert ratio == pytest.approx(118, abs=0.5)


class TestRandomNeighbours:
    def test_teachers_are_those_of_tulle(self, picture: Any) -> None:
        """The picture trains many neighbours at once, to the same weights as `HardThresholding` each by itself."""
        rng = np.random.default_rng(0)
        X, y = rng.uniform(-1, 1, (60, 30)), rng.normal(size=60)
        replaced, rows, labels = rng.integers(0, 60, 3), rng.uniform(-1, 1, (3, 30)), rng.normal(size=3)
        for penalty in (0.0, 0.7):
            together = picture.teachers(X, y, replaced, rows, labels, 4, penalty)
            for k in range(3):
                own, targets = X.copy(), y.copy()
                own[replaced[k]], targets[replaced[k]] = rows[k], labels[k]
                method = HardThresholding(n_iter=picture.STEPS, penalty=penalty)
                alone = SparseRegressor(None, n_nonzero=4, method=method, fit_intercept=False).fit(own, targets)
                assert np.allclose(together[:, k], alone.coef_, rtol=0, atol=1e-9)

    def test_table_is_the_measured_one(self) -> None:
        with (ROOT / "docs/pictures/support_swap.csv").open(newline="") as file:
            measured = [row for row in csv.DictReader(file) if row["what"] == "neighbour"]
        rows = cells("proofs/published_transfer.md", "s | λ")
        assert len(rows) == 6
        for s, penalty, share, spread, *beyond in rows:
            mine = [row for row in measured if row["weights_kept"] == s and float(row["penalty"]) == float(penalty)]
            assert len(mine) == 400
            changed = np.array([row["support_changed"] == "1" for row in mine])
            of_set = [changed[[row["data_set"] == str(k) for row in mine]].mean() for k in range(20)]
            assert float(share.rstrip(" %")) == pytest.approx(100 * changed.mean(), abs=0.051)
            assert spread == f"{100 * min(of_set):.0f} to {100 * max(of_set):.0f} %"
            if float(penalty) == 0:
                assert beyond == ["", "", ""]
                continue
            over = np.array([float(row["distance"]) / float(row["bound"]) for row in mine])
            assert float(beyond[0].rstrip(" %")) == pytest.approx(100 * (over > 1).mean(), abs=0.051)
            assert float(beyond[1]) == pytest.approx(over.max(), abs=0.0051)
            assert float(beyond[2]) == pytest.approx(over[~changed].max(), abs=0.0051)

    def test_sliding_label_is_the_measured_one(self, picture: Any) -> None:
        """The middle panel: within the bound while the support stays, 0.354 once it changes."""
        sparse, dense = picture.sliding_label(np.array([-0.5, -0.001, 0.001, 1.0]))
        bound = picture.claimed_bound(1000, 1, 1.5, 1.0)
        assert bound == pytest.approx(0.003)
        assert max(sparse[:2].max(), dense.max()) <= bound
        assert sparse[2:] == pytest.approx([0.354, 0.354], abs=5e-4)
