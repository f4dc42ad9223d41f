"""Zero-out adjacency: no answer moves further than its share, and nothing is printed where that is not proved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle import Bounds, Budget, PrivateSearch, SparseClassifier, SparseRegressor
from tulle.accounting.zcdp import total_mu
from tulle.accounting.zero_out import HALF, zero_out_epsilon, zero_out_share
from tulle.audit import replay
from tulle.methods import CoordinateDescent, FrankWolfe, HardThresholding, StochasticHardThresholding
from tulle.methods.loss_functions import facts_without_model
from tulle.methods.zero_out_releases import zero_out_shares
from tulle.reports.words import LABELS_DECLARED
from tulle.trusted.accountants import epsilon
from tulle.trusted.clipped_sum import ClippedSum, RowFunction, SeenRows
from tulle.trusted.curator import Curator
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import Exact, Gaussian, Laplace, Mechanism, ObjectivePerturbation, SampledGaussian, TopK
from tulle.trusted.plan import Plan, Release
from tulle.trusted.queries import Affine, Magnitudes, Query, VertexScores
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampling

N, D = 60, 4

# Every setting of the methods that have shares, by what they ask.
COVERED: dict[str, Callable[[], Any]] = {
    "step": lambda: HardThresholding(n_iter=3, noise="gaussian"),
    "step, not damped": lambda: HardThresholding(n_iter=3, noise="gaussian", step=0.5),
    "selection": lambda: HardThresholding(n_iter=3, noise="selection"),
    "penalty": lambda: HardThresholding(n_iter=3, noise="gaussian", penalty=0.1),
    "frank wolfe": lambda: FrankWolfe(noise="gaussian"),
    "coordinate descent": lambda: CoordinateDescent(noise="gaussian"),
}


def rows_of(seed: int, n_classes: int = 2) -> tuple[FloatArray, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    X = rng.standard_cauchy((N, D)) * 10.0 ** rng.integers(-3, 4)
    return X, rng.integers(0, n_classes, N)


def model_of(method: Any, classes: int = 2, **more: Any) -> SparseClassifier:
    bounds = Bounds(row_l2=2.0, row_linf=1.0)
    settings = {"n_nonzero": 2, "bounds": bounds, "classes": list(range(classes)), **more}
    return SparseClassifier(1.0, 1e-5, method=method, **settings)


@dataclass(frozen=True)
class Given(RowFunction):
    """The features of each row, as they are."""

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        return seen.columns(np.arange(public.n_features), math.inf)


def answer(query: Query, X: FloatArray, active: Any, public: PublicFacts) -> FloatArray:
    return np.asarray(query.evaluate(Rows(X.copy(), np.zeros(len(X)), active), public))


ANY = st.floats(allow_nan=False, allow_infinity=False, width=64)
FORMS = [
    {"norm": norm, "times": "one", "non_negative": sign, "shape": (D, 1)}
    for norm in ("l2", "linf", "each")
    for sign in (False, True)
] + [{"norm": "l2", "times": "itself", "shape": (D * (D + 1) // 2, 1)}]


class TestShares:
    @pytest.mark.parametrize("form", FORMS)
    @given(rows=st.lists(st.lists(ANY, min_size=D, max_size=D), min_size=2, max_size=6), level=st.floats(1e-3, 1e3))
    @settings(max_examples=60, deadline=None)
    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_no_zero_out_neighbour_exceeds_them(self, form: Any, rows: list[list[float]], level: float) -> None:
        """Of a row function without bounds: each unit counts as nothing in turn."""
        X = np.array(rows)
        public = facts_without_model(len(X), D, 1)
        query = ClippedSum(Given(), level=level, **form)
        share, allowed = zero_out_share(query), query.sensitivity(public)
        assert share is not None
        whole = answer(query, X, None, public)
        norms = {"l2": (np.linalg.norm, allowed.l2), "linf": (lambda move: np.abs(move).max(), allowed.linf)}
        measure, most = norms["linf" if form["norm"] == "linf" else "l2"]
        for k in range(len(X)):
            active = np.arange(len(X)) != k
            moved = float(measure(whole - answer(query, X, active, public)))
            assert moved <= share * most * (1 + 1e-9)

    @pytest.mark.parametrize("form", FORMS)
    def test_are_reached(self, form: Any) -> None:
        """No smaller share is true: a long row moves an answer by all of it, but for roundings."""
        X, public = np.zeros((3, D)), facts_without_model(3, D, 1)
        X[0] = 1e6 if form["norm"] == "each" else [1e6, *[0] * (D - 1)]
        query = ClippedSum(Given(), level=2.0, **form)
        share, allowed = zero_out_share(query), query.sensitivity(public)
        moved = answer(query, X, None, public) - answer(query, X, np.array([False, True, True]), public)
        size, most = np.linalg.norm(moved), allowed.l2
        if form["norm"] == "linf":
            size, most = np.abs(moved).max(), allowed.linf
        assert share is not None
        assert size == pytest.approx(share * most, rel=1e-9)

    def test_of_other_queries_there_are_none(self) -> None:
        inner = ClippedSum(Given(), (D, 1), 1.0, "linf", "one")
        assert zero_out_share(inner) == HALF
        assert zero_out_share(Affine(inner, np.zeros((D, 1)), -3.0)) == HALF
        assert zero_out_share(Magnitudes(inner)) == HALF
        assert zero_out_share(VertexScores(inner, np.eye(D))) is None
        assert zero_out_share(type("Own", (ClippedSum,), {})(Given(), (D, 1), 1.0)) is None


class TestMethods:
    @pytest.mark.parametrize("classes", [2, 3])
    @pytest.mark.parametrize("name", list(COVERED))
    def test_what_is_asked_has_the_share_that_is_vouched_for(
        self, name: str, classes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[str, Query]] = []
        ask = Curator.ask

        def watched(self: Curator, release: str, query: Query, then: Any = None) -> Any:
            asked.append((release, query.resolve(self._public)))
            return ask(self, release, query, then)

        monkeypatch.setattr(Curator, "ask", watched)
        model = model_of(COVERED[name](), classes).fit(*rows_of(0, classes))
        shares = zero_out_shares(COVERED[name]())
        assert {release for release, _ in asked} <= set(shares)
        for release, query in asked:
            found = zero_out_share(query)
            assert found is not None
            assert found <= shares[release]
        assert model.privacy_.zero_out is not None
        assert model.privacy_.zero_out < model.privacy_.epsilon

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("name", list(COVERED))
    def test_a_fit_replayed_without_one_unit_moves_by_no_more(self, name: str, seed: int) -> None:
        """With the same noisy answers, where a row of any size gets a label that does not count."""
        X, y = rows_of(seed)
        X[0] *= 1e8
        without = np.where(np.arange(N) == 0, 7, y)

        def fit(X: Any, y: Any, ask: Any) -> Any:
            return model_of(COVERED[name]()).fit(X, y).coef_

        result = replay(fit, (X, y), (X, without))
        assert len(result.changes) == result.answers > 0
        for change in result.changes:
            one_number = change.exact is not None and change.exact.size == 1  # the curvature, of numbers >= 0
            assert change.ratio <= (1.0 if one_number else HALF) * (1 + 1e-9)

    def test_a_subclass_has_none(self) -> None:
        assert zero_out_shares(HardThresholding())
        assert not zero_out_shares(type("Own", (HardThresholding,), {})())


class TestEpsilon:
    def test_is_that_of_half_the_mu(self) -> None:
        """But for the rounding to a grid, one part in 4096."""
        plan = Plan((Release("gradient", Gaussian(NoisePerSensitivity(5.0)), 9),))
        found = zero_out_epsilon(plan, {"gradient": HALF}, 100, 1e-6)
        assert found is not None
        mu = total_mu(plan)
        assert mu == pytest.approx(3 / 5)
        assert gaussian_epsilon(0.3, 1e-6) < found <= gaussian_epsilon(0.3 * (1 + 2**-12), 1e-6) * (1 + 1e-6)

    def test_a_share_of_one_costs_what_it_cost(self) -> None:
        plan = Plan((Release("curvature", Gaussian(NoisePerSensitivity(5.0)), 1),))
        assert zero_out_epsilon(plan, {"curvature": 1.0}, 1, 1e-6) == epsilon(plan, 1e-6)

    @pytest.mark.parametrize(
        "mechanism",
        [
            Laplace(NoisePerSensitivity(5.0)),
            ObjectivePerturbation(NoisePerSensitivity(5.0), 0.1),
            Exact(),
            SampledGaussian(NoisePerSensitivity(5.0), Sampling("poisson", 1000, 10)),
            type("Own", (Gaussian,), {})(NoisePerSensitivity(5.0)),
            Gaussian(NoisePerSensitivity(1e-7)),
            Gaussian(NoisePerSensitivity(2.0**15)),
            TopK(NoisePerSensitivity(0.0)),
        ],
    )
    def test_of_other_releases_there_is_none(self, mechanism: Mechanism) -> None:
        known = Release("step", Gaussian(NoisePerSensitivity(5.0)), 1)
        shares = {"step": HALF, "other": HALF}
        assert zero_out_epsilon(Plan((known,)), shares, 100, 1e-6) is not None
        assert zero_out_epsilon(Plan((known, Release("other", mechanism, 1))), shares, 100, 1e-6) is None

    def test_of_a_release_that_nobody_vouches_for_there_is_none(self) -> None:
        known, other = (Release(name, Gaussian(NoisePerSensitivity(5.0)), 1) for name in ("step", "other"))
        assert zero_out_epsilon(Plan((known, other)), {"step": HALF}, 100, 1e-6) is None
        assert zero_out_epsilon(Plan((known,), (other,)), {"step": HALF}, 100, 1e-6) is None
        assert zero_out_epsilon(Plan((known,)), {"step": 0.4}, 100, 1e-6) is None
        assert zero_out_epsilon(Plan(()), {}, 100, 1e-6) is None


class TestReports:
    """Where it is not proved for every release, a report holds none."""

    @pytest.mark.parametrize(
        ("method", "more"),
        [
            ("fit_again", {}),
            ("screen_refine", {}),
            ("auto", {}),
            (StochasticHardThresholding(), {}),
            (HardThresholding(n_iter=3, noise="laplace"), {}),
            (HardThresholding(n_iter=3, noise="gaussian"), {"bounds": None}),
            (HardThresholding(n_iter=3, noise="gaussian"), {"class_weight": "balanced"}),
            (FrankWolfe(noise="selection"), {}),
            (CoordinateDescent(noise="selection"), {}),
        ],
    )
    @pytest.mark.filterwarnings("ignore")
    def test_nothing_is_claimed(self, method: Any, more: dict[str, Any]) -> None:
        report = model_of(method, **more).fit(*rows_of(1)).privacy_
        assert LABELS_DECLARED in report.assumptions
        assert report.zero_out is None
        assert "zero-out" not in str(report)

    @pytest.mark.filterwarnings("ignore")
    def test_what_is_proved_of_a_trial_is_not_claimed_of_a_search(self) -> None:
        X, y = np.random.default_rng(0).uniform(-1, 1, (400, D)), np.arange(400) % 2
        trial = SparseClassifier(method=HardThresholding(n_iter=2, noise="gaussian"), bounds=Bounds(row_linf=1.0))
        search = PrivateSearch(trial, {"n_nonzero": [1, 2]}, Budget(4.0, 1e-5), n_trials=2, random_state=0)
        report = search.fit(X, y).best_estimator_.privacy_
        assert (report.zero_out, report.mu, report.rho, report.renyi) == (None, None, None, ())

    def test_a_fit_without_privacy_has_no_figure(self) -> None:
        X, y = np.random.default_rng(0).uniform(-1, 1, (50, D)), np.arange(50) / 50
        report = SparseRegressor(epsilon=None, method="hard_thresholding").fit(X, y).privacy_
        assert (report.zero_out, report.mu, report.bounds) == (None, None, ())
