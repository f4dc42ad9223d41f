"""One delta: what is printed is all of it, finite precision included, and never more than was asked for."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.ledgers.currencies import GaussianCurrency, RenyiCurrency
from tulle.methods import METHODS, CoordinateDescent, FrankWolfe
from tulle.trusted.accountants import MOST_ARITHMETIC, best_accountant, proof, prove
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.gaussian import gaussian_delta
from tulle.trusted.mechanisms import Gaussian, GumbelMax, Laplace, SampledGaussian, Sensitivity
from tulle.trusted.plan import Plan, Release, compose
from tulle.trusted.sampling import Sampling

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
sys.path.insert(0, str(PICTURES))
import one_delta  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 6))
Y = (X[:, 0] > 0).astype(int)


def on_demand(noise: float, count: int, candidates: int = 1000, rows: int = 20_000) -> Plan:
    mechanism = GumbelOnDemand(NoisePerSensitivity(noise), 1, candidates, rows)
    return Plan((Release("vertex", mechanism, count),))


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("epsilon", [1.0, 10.0, 16.0])
def test_a_fit_prints_the_delta_that_was_asked_for_and_takes_none_of_it_for_finite_precision(
    method: str, epsilon: float
) -> None:
    report = SparseClassifier(epsilon, 1e-6, method=method, bounds=Bounds(row_linf=1.0)).fit(X, Y).privacy_
    assert report.delta == 1e-6
    assert report.floating_point_slack == 0.0
    assert 0.99 * epsilon < report.epsilon <= epsilon
    assert json.loads(report.to_json())["delta"] == 1e-6
    assert "without rounding errors" in str(report)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.4])
def test_a_proof_leaves_room_in_delta_for_finite_precision(share: float) -> None:
    """The ideal law keeps to delta - slack, and slack is at least (1 + exp(epsilon)) tv."""
    plan = on_demand(30.0, 200)
    ideal = best_accountant(compose(plan.releases), 1e-6)[0]
    delta = (1 + math.exp(ideal)) * plan.inexact / share
    epsilon, slack = proof(plan, delta)[0], prove(plan, delta)[1]
    assert 0 < slack < delta
    assert slack >= (1 + math.exp(epsilon)) * plan.inexact * (1 - 1e-12)
    assert epsilon >= best_accountant(compose(plan.releases), delta - slack)[0] * (1 - 1e-12)
    assert epsilon > best_accountant(compose(plan.releases), delta)[0]


def test_nothing_is_proved_where_finite_precision_outweighs_delta() -> None:
    plan = on_demand(30.0, 200)
    assert proof(plan, plan.inexact)[0] == math.inf
    assert proof(on_demand(0.01, 200), 1e-6)[0] == math.inf


@pytest.mark.parametrize("currency", [GaussianCurrency(Budget(2.0, 1e-5)), RenyiCurrency(Budget(2.0, 1e-5), 12.0)])
def test_a_ledger_counts_what_finite_precision_takes_of_its_delta(currency: GaussianCurrency | RenyiCurrency) -> None:
    exact, inexact = Plan((Release("vertex", GumbelMax(NoisePerSensitivity(50.0)), 100),)), on_demand(50.0, 100)
    promise = (1.0, 1e-6)
    extra = currency.share(inexact, promise) - currency.share(exact, promise)
    taken = (1 + math.exp(2.0)) * inexact.inexact / 1e-5
    assert extra >= taken * (1 - 1e-9) > 0


def test_shares_of_a_gaussian_ledger_leave_room_for_arithmetic() -> None:
    """With a share s of mu² the delta at the cap's epsilon is at most s times the cap's."""
    for cap in (Budget(0.5, 1e-8), Budget(2.0, 1e-5), Budget(10.0, 1e-6)):
        mu = GaussianCurrency(cap).mu
        for share in np.linspace(0.01, 0.99, 50):
            assert gaussian_delta(cap.epsilon, math.sqrt(share) * mu) <= share * cap.delta
    # Where that does not hold, such a plan has no price.
    assert math.isinf(GaussianCurrency(Budget(1e-3, 0.1)).share(on_demand(50.0, 1), (1.0, 1e-6)))
    assert math.isfinite(GaussianCurrency(Budget(1e-3, 0.1)).share(Plan((Release("x", Gaussian(), 1),)), (1.0, 1e-6)))


@pytest.mark.parametrize("method", [FrankWolfe, CoordinateDescent])
def test_scores_on_demand_are_refused_where_they_would_take_more_than_a_tenth_of_delta(
    method: type[FrankWolfe | CoordinateDescent],
) -> None:
    rows = sp.csr_array(np.where(RNG.random((400, 6)) < 0.5, X, 0.0))

    def fit(epsilon: float, engine: str) -> SparseClassifier:
        chosen = method(n_iter=8, noise="selection", engine=engine)
        model = SparseClassifier(epsilon, 1e-6, method=chosen, bounds=Bounds(row_linf=1.0), fit_intercept=False)
        return model.fit(rows, Y)

    report = fit(1.0, "incremental").privacy_
    assert report.delta == 1e-6
    assert 0 < report.floating_point_slack <= MOST_ARITHMETIC * 1e-6
    assert "included in the stated δ" in str(report)
    with Ledger(Budget(100.0, 1e-5)) as ledger:
        with pytest.raises(ValueError, match="engine='plain'"):
            fit(16.0, "incremental")
        assert ledger.fits == []
    assert fit(16.0, "plain").privacy_.floating_point_slack == 0.0


def test_the_printed_epsilon_is_the_largest_over_all_plans_that_bounds_can_lead_to() -> None:
    """Published noise of two plans that prove different epsilons: which one was taken depends on private answers."""
    scales = np.where(RNG.random((500, 1)) < 0.5, 1, 0.05)
    rows = RNG.uniform(-1, 1, (500, 40)) * scales
    rows[:, 0] *= 6
    labels = (rows[:, 0] > 0).astype(int)

    def told(seed: int) -> float:
        model = SparseClassifier(1.0, 1e-6, method="two_stage", calibration="published", random_state=seed)
        with pytest.warns(UserWarning, match="published noise"):
            return float(model.fit(rows, labels).privacy_.epsilon)

    assert len({told(seed) for seed in range(12)}) == 1


def test_a_regressor_with_estimated_bounds_prints_one_delta() -> None:
    with pytest.warns(UserWarning, match="too few to estimate"):
        report = SparseRegressor(4.0, 1e-6, random_state=0).fit(X, X[:, 0]).privacy_
    assert (report.delta, report.floating_point_slack) == (1e-6, 0.0)


def test_the_table_of_all_sets_is_what_plans_say() -> None:
    with (PICTURES / "one_delta.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(one_delta.SETS) * len(METHODS) * len(one_delta.EPSILONS)
    for line in lines:
        assert float(line["delta_printed"]) <= float(line["delta_asked"])
        assert float(line["for_finite_precision"]) <= MOST_ARITHMETIC * float(line["delta_asked"])
    for line in lines[::17]:
        again = one_delta.line(line["data"], line["method"], float(line["epsilon"]))
        assert [str(value) for value in again] == list(line.values())


def test_rounding_is_counted_on_top_of_what_a_unit_adds_to_a_batch() -> None:
    """A batch with a unit is compared with the same batch without it: half the sensitivity, and all of the rounding."""
    for count in (1, 7, 10_000):
        of_batches = SampledGaussian(NoisePerSensitivity(3.0), Sampling("poisson", 100, 10))
        grid, scale = of_batches.grid_and_scale(Sensitivity(l2=2.0), count)
        assert scale >= 3.0 * 2.0 * (1.0 + grid * math.sqrt(count)) * (1 - 1e-15)
        grid, scale = Gaussian(NoisePerSensitivity(3.0)).grid_and_scale(Sensitivity(l2=2.0), count)
        assert scale >= 3.0 * (2.0 + grid * math.sqrt(count)) * (1 - 1e-15)
        grid, scale = Laplace(NoisePerSensitivity(3.0)).grid_and_scale(Sensitivity(l1=2.0), count)
        assert scale >= 3.0 * (2.0 + grid * count) * (1 - 1e-15)
