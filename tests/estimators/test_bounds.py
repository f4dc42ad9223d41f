"""Bounds: validated, filled in from each other, obeyed by clipped rows, or estimated privately and on the bill."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import chisquare

from tulle import SparseClassifier
from tulle.backends.known_bounds import KnownBounds
from tulle.estimators.bounds import GRID, Bounds, estimate_quantiles, quantile_releases
from tulle.ledgers.ledger import BudgetExceededError, Ledger
from tulle.methods import HardThresholding
from tulle.methods.loss_functions import Logistic, Squared
from tulle.trusted.accountants import epsilon
from tulle.trusted.curator import Curator
from tulle.trusted.facts import PublicFacts
from tulle.trusted.intake import select_first_rows
from tulle.trusted.plan import Budget, Plan
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows

ALPHA = 1e-5


class TestValidation:
    @pytest.mark.parametrize("name", ["row_l2", "row_linf", "label"])
    @pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "1", True])
    def test_bounds_are_finite_and_positive(self, name: str, value: object) -> None:
        with pytest.raises(ValueError, match=rf"Bounds\({name}=\.\.\.\) must be a finite number > 0"):
            Bounds(**{name: value})

    @pytest.mark.parametrize("name", ["estimate_share", "quantile"])
    @pytest.mark.parametrize("value", [0.0, 1.0, -0.5, 2, math.nan, None, True])
    def test_shares_lie_strictly_between_0_and_1(self, name: str, value: object) -> None:
        with pytest.raises(ValueError, match=rf"Bounds\({name}=\.\.\.\) must lie strictly between 0 and 1"):
            Bounds(**{name: value})

    @pytest.mark.parametrize("value", [0, -1, 1.5, None, "2"])
    def test_a_person_has_at_least_one_row(self, value: object) -> None:
        with pytest.raises(ValueError, match=r"Bounds\(rows_per_person=\.\.\.\) must be an integer >= 1"):
            Bounds(rows_per_person=value)  # type: ignore[arg-type]

    def test_numpys_numbers_are_numbers(self) -> None:
        assert Bounds(row_l2=np.float32(2), rows_per_person=np.int64(3)).known(4).row_l2 == 2.0


class TestMissingAndKnown:
    @pytest.mark.parametrize(
        ("bounds", "missing"),
        [
            (Bounds(), ("row_l2", "row_linf", "label")),
            (Bounds(row_l2=1.0), ("label",)),
            (Bounds(row_linf=1.0), ("label",)),
            (Bounds(normalise=True), ("label",)),
            (Bounds(label=1.0), ("row_l2", "row_linf")),
            (Bounds(row_l2=1.0, label=1.0), ()),
        ],
    )
    def test_missing(self, bounds: Bounds, missing: tuple[str, ...]) -> None:
        assert bounds.missing(("row_l2", "row_linf", "label")) == missing
        assert bounds.missing(()) == ()

    @pytest.mark.parametrize(
        ("bounds", "found", "expected"),
        [
            (Bounds(row_l2=3.0), {}, (3.0, 3.0, math.inf)),
            (Bounds(row_linf=0.5), {}, (1.0, 0.5, math.inf)),
            (Bounds(row_l2=3.0, row_linf=0.5), {}, (1.0, 0.5, math.inf)),
            (Bounds(row_l2=0.7, row_linf=0.5), {}, (0.7, 0.5, math.inf)),
            (Bounds(row_l2=0.2, row_linf=0.5, label=9.0), {}, (0.2, 0.2, 9.0)),
            (Bounds(normalise=True), {}, (1.0, 1.0, math.inf)),
            (Bounds(row_l2=4.0, normalise=True), {}, (4.0, 4.0, math.inf)),
            (Bounds(), {"row_l2": 8.0, "row_linf": 5.0, "label": 2.0}, (8.0, 5.0, 2.0)),
            (Bounds(label=1.0), {"row_l2": 8.0, "row_linf": 1.0, "label": 2.0}, (2.0, 1.0, 1.0)),
            (Bounds(), {}, (math.inf, math.inf, math.inf)),
        ],
    )
    def test_known_fills_in_one_norm_from_the_other(
        self, bounds: Bounds, found: dict[str, float], expected: tuple[float, ...]
    ) -> None:
        known = bounds.known(4, found)
        assert (known.row_l2, known.row_linf, known.label) == expected


@pytest.mark.parametrize("storage", [np.array, sp.csr_array], ids=["dense", "csr"])
@given(data=st.data())
def test_clipped_rows_obey_all_bounds(storage: Any, data: st.DataObject) -> None:
    """Whatever the rows: entries, norms and labels; and what happens to a row depends on that row alone."""
    entry = st.sampled_from([0.0, 0.1, -0.5, 1.0, 30.0, -1e10, 1e200, 1e-200, 2.7e-162]) | st.floats(-3, 3)
    X = np.array(data.draw(st.lists(st.lists(entry, min_size=3, max_size=3), min_size=2, max_size=5)))
    bound = st.sampled_from([0.3, 1.0, 4.0])
    bounds = Bounds(
        row_l2=data.draw(st.none() | bound),
        row_linf=data.draw(bound),
        label=data.draw(bound),
        normalise=data.draw(st.booleans()),
    )
    known = bounds.known(3)
    y = X[:, 0] * 2

    def clipped(chosen: slice) -> tuple[np.ndarray, np.ndarray]:
        rows = Rows(storage(X[chosen]), y[chosen])
        known.clip(rows, Squared())
        (block,) = rows.blocks
        return block.margins(np.eye(3), 0.0), block.targets

    after, targets = clipped(slice(None))
    assert np.all(np.abs(after) <= known.row_linf * (1 + 1e-12))
    assert np.all(np.linalg.norm(after, axis=1) <= known.row_l2 * (1 + 1e-12))
    assert np.all(np.abs(targets) <= known.label)
    alone, target = clipped(slice(0, 1))
    np.testing.assert_array_equal(alone[0], after[0])
    assert target[0] == targets[0]


def test_labels_of_classes_are_not_clipped() -> None:
    rows = Rows(np.zeros((3, 1)), np.array([0.0, 1.0, 2.0]))
    KnownBounds(1.0, 1.0, 0.5, False).clip(rows, Logistic())
    np.testing.assert_array_equal(rows.blocks[0].targets, [0.0, 1.0, 2.0])


class TestPeople:
    @given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=30), st.integers(1, 4))
    def test_the_first_rows_of_each_person_count(self, groups: list[str], limit: int) -> None:
        seen: dict[str, int] = {}
        expected = []
        for person in groups:
            seen[person] = seen.get(person, 0) + 1
            expected.append(seen[person] <= limit)
        np.testing.assert_array_equal(select_first_rows(groups, limit), expected)

    @pytest.mark.parametrize("groups", [[3, 1, 3, 3, 1], np.array(["x", "y", "x", "x", "y"]), [2.5, -1, 2.5, 2.5, -1]])
    def test_ids_of_any_kind(self, groups: Any) -> None:
        np.testing.assert_array_equal(select_first_rows(groups, 1), [True, True, False, False, False])


def public(n: int, rows_per_unit: int = 1) -> PublicFacts:
    return PublicFacts(n, 1, 1, Squared(), None, math.inf, math.inf, math.inf, False, rows_per_unit)


class TestPrivateQuantile:
    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_the_releases_cost_what_they_say(self, count: int) -> None:
        releases = quantile_releases(("row_l2", "row_linf", "label")[:count], 0.3)
        assert epsilon(Plan((), releases), 0.0) == pytest.approx(0.3)
        assert len(releases) == count

    @pytest.mark.parametrize("unit", [1, 4])
    @pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
    def test_the_law_is_the_exponential_mechanism(self, factor: float, accepted: bool, unit: int) -> None:
        """softmax of epsilon score / (2 rows per unit), by chi-square on the cells in reach (alpha = 1e-5)."""
        values = np.repeat(np.array([0.9, 1.3, 1.9, 2.7, 3.8, 5.0, 8.0]), [4, 3, 4, 3, 3, 2, 3])
        n, quantile, spent, draws = len(values), 0.6, 0.5 * unit, 3000
        rows = Rows(values[:, None], np.zeros(n))
        counts = np.array([(values <= t).sum() for t in GRID])
        below = np.r_[0, counts[:-1]]
        scores = -np.maximum(np.maximum(quantile * n - counts, below - quantile * n), 0)
        probabilities = softmax(spent * scores / (2 * unit))
        plan = Plan((), quantile_releases(("row_l2",), spent / factor))
        generator = keyed_generator(1)
        found = [
            estimate_quantiles(Curator(rows, public(n, unit), plan, generator).ask, ("row_l2",), quantile)["row_l2"]
            for _ in range(draws)
        ]
        observed = np.array([found.count(value) for value in GRID])
        assert observed.sum() == draws
        likely = probabilities > 0.02
        o, e = (np.r_[x[likely], x[~likely].sum()] for x in (observed, draws * probabilities))
        assert (chisquare(o, e).pvalue > ALPHA) is np.bool_(accepted)


class TestEstimate:
    @pytest.fixture(scope="class")
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(20_000, 3)) * np.array([1.0, 5.0, 0.1])
        return X, rng.standard_t(3, 20_000) * 7

    @pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
    @pytest.mark.parametrize("storage", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"])
    def test_close_to_the_true_quantile(
        self, data: tuple[np.ndarray, np.ndarray], quantile: float, storage: Any
    ) -> None:
        """The right cell of the grid, or one next to it that holds nearly the same rank."""
        X, y = data
        bounds = Bounds.estimate(storage(X), y, epsilon=1.0, quantile=quantile, random_state=0)
        truth = {
            "row_l2": np.linalg.norm(X, axis=1),
            "row_linf": np.abs(X).max(axis=1),
            "label": np.abs(y),
        }
        for name, values in truth.items():
            found = getattr(bounds, name)
            # The cell below the value found must not already hold clearly more than the quantile, nor it clearly less:
            # within 2 × 3 × log(cells × 1e4) / epsilon ranks but once in 1e4.
            ranks = 6 * math.log(len(GRID) * 1e4) / len(values)
            assert np.mean(values <= found) >= quantile - ranks
            assert np.mean(values <= found / math.sqrt(2)) <= quantile + ranks

    def test_parameters_travel(self, data: tuple[np.ndarray, np.ndarray]) -> None:
        X, _ = data
        bounds = Bounds.estimate(X, epsilon=1.0, quantile=0.7, rows_per_person=3, random_state=0)
        assert (bounds.quantile, bounds.rows_per_person, bounds.label) == (0.7, 3, None)

    def test_seeded_is_reproducible_and_unseeded_is_not(self) -> None:
        X = np.ones((4, 1))
        again = [Bounds.estimate(X, epsilon=1e-3, random_state=1) for _ in range(2)]
        assert again[0] == again[1]
        assert len({Bounds.estimate(X, epsilon=1e-3).row_l2 for _ in range(40)}) > 1

    def test_is_within_its_bill(self, data: tuple[np.ndarray, np.ndarray]) -> None:
        X, y = data
        with Ledger(Budget(1.0)) as ledger:
            Bounds.estimate(X, y, epsilon=0.6, random_state=0)
            assert ledger.epsilon == pytest.approx(0.6)
            with pytest.raises(BudgetExceededError):
                Bounds.estimate(X, y, epsilon=0.6, random_state=0)
        assert ledger.epsilon == pytest.approx(0.6)

    def test_two_estimates_of_one_seed_in_a_ledger_have_different_noise(self) -> None:
        X = np.ones((4, 1))
        with Ledger(Budget(1.0)):
            found = {Bounds.estimate(X, epsilon=1e-3, random_state=1).row_l2 for _ in range(20)}
        assert len(found) > 1

    @pytest.mark.parametrize("spent", [0, -1.0, math.inf, math.nan, None])
    def test_epsilon_is_checked(self, spent: Any) -> None:
        with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
            Bounds.estimate(np.ones((3, 1)), epsilon=spent)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_estimated_bounds_and_gaussian_releases_are_one_budget(epsilon: float) -> None:
    """Bounds at a tenth of epsilon cost a few per cent of noise, where adding epsilons up costs more than a tenth."""
    X = np.random.default_rng(0).normal(size=(400, 5))
    y = np.where(X[:, 0] > 0, 1, -1)
    method = HardThresholding(noise="gaussian", n_iter=5)
    fits = {}
    for name, bounds in (("declared", Bounds(row_l2=3.0)), ("estimated", Bounds())):
        model = SparseClassifier(epsilon, 1e-5, method=method, bounds=bounds, n_nonzero=2, classes=[-1, 1]).fit(X, y)
        assert 0.99 * epsilon < model.privacy_.epsilon <= epsilon
        fits[name] = model.privacy_
    noise = [report.bill[-1].noise_per_sensitivity for report in fits.values()]
    assert 1.0 < noise[1] / noise[0] < 1.06
    assert "added up" not in str(fits["estimated"])


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_any_share_for_bounds_leaves_a_budget(share: float, epsilon: float) -> None:
    """Where composing would leave less than adding epsilons up, or nothing, they are added up."""
    X = np.random.default_rng(0).normal(size=(300, 4))
    y = np.where(X[:, 0] > 0, 1, -1)
    model = SparseClassifier(
        epsilon,
        1e-5,
        method=HardThresholding(noise="gaussian", n_iter=3),
        bounds=Bounds(estimate_share=share),
        n_nonzero=2,
        classes=[-1, 1],
    ).fit(X, y)
    assert 0.99 * epsilon < model.privacy_.epsilon <= epsilon
