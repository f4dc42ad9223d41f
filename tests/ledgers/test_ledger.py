"""A ledger bills every fit while it is open, and stops the one that would pass its cap before noise is drawn."""

from __future__ import annotations

import copy
import math
import os
import pickle
import re
import subprocess
import sys
from contextlib import suppress
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import tulle.estimators.bounds
import tulle.trusted.curator
import tulle.trusted.fit
from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor, private_score
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.files.error_messages import PrivacyWarning
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import HardThresholding
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import Exact, Gaussian, Laplace
from tulle.trusted.plan import Plan, PlanError, Release

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (200, 10))
Y = (X[:, 0] > 0).astype(int)
BOUNDS = Bounds(row_l2=2.0)
DELTA = 1e-5
NOISES = ("gaussian", "selection", "default")
PUBLIC = DummyClassifier(strategy="constant", constant=1).fit(X, Y)


def model(epsilon: float | None = 0.5, noise: Any = "gaussian", **parameters: Any) -> SparseClassifier:
    """A private classifier that costs (epsilon, 1e-5)."""
    method: Any = "auto" if noise == "default" else HardThresholding(noise=noise)
    settings = {"n_nonzero": 3, "bounds": BOUNDS, "method": method, **parameters}
    return SparseClassifier(epsilon, DELTA, **settings)


@pytest.fixture
def no_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to draw noise fails the test."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("a generator was made: noise would have been drawn")

    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", refuse)


# --- bills -----------------------------------------------------------------------------------------------------------


# Objective perturbation, which the default method rests on, has no price in Gaussian mu²: it is billed in another
# currency, and so is everything after it.
METHODS = [HardThresholding(noise="gaussian"), HardThresholding(noise="selection"), "auto", "screen_refine"]


@pytest.mark.parametrize("method", METHODS, ids=["gaussian", "selection", "default", "screen_refine"])
def test_every_fit_and_every_clone_is_billed(method: Any) -> None:
    """Refits and clones each have a line; nothing is billed outside of the block."""
    with Ledger(Budget(10.0, DELTA)) as ledger:
        assert ledger.epsilon == ledger.share == 0
        fitted = model(method=method).fit(X, Y)
        once = ledger.epsilon
        fitted.fit(X, Y)
        clone(fitted).fit(X, Y)
        SparseRegressor(0.5, DELTA, bounds=Bounds(row_l2=2.0, label=1.0), method=method).fit(X, Y)
    assert [what for what, _ in ledger.fits] == ["SparseClassifier.fit"] * 3 + ["SparseRegressor.fit"]
    assert 0 < once < ledger.epsilon < 10
    spent = ledger.epsilon
    fitted.fit(X, Y)
    assert ledger.epsilon == spent
    assert "SparseRegressor.fit" in str(ledger)
    printed = re.search(r"proved so far epsilon = (\S+) ", str(ledger))
    assert printed is not None
    assert ledger.epsilon * (1 - 1e-8) <= float(printed.group(1)) <= ledger.epsilon * 1.001  # never rounded down


def test_the_default_method_and_gaussian_noise_share_a_currency() -> None:
    """Objective perturbation has a price in mu²: in either order both fit, and cost what their squares add up to."""
    default, gaussian = model(method="auto"), model(method="hard_thresholding")
    spent = []
    for order in ((default, gaussian), (gaussian, default)):
        with Ledger(Budget(10.0, DELTA)) as ledger:
            for one in order:
                one.fit(X, Y)
        assert len(ledger.fits) == 2
        spent.append(ledger.epsilon)
    assert spent[0] == pytest.approx(spent[1], rel=1e-6)
    assert default.privacy_.epsilon < spent[0] < default.privacy_.epsilon + gaussian.privacy_.epsilon


@pytest.mark.parametrize(("epsilon", "least"), [(0.5, 33), (1.0, 9)])
def test_how_many_default_fits_a_ledger_holds(epsilon: float, least: int) -> None:
    """Under a cap of (3, 1e-5), with delta = 1e-6 each: three times as many as with the sums of their epsilons."""
    fits = 0
    with Ledger(Budget(3.0, 1e-5)), suppress(BudgetExceededError):
        while fits < 100:
            SparseClassifier(epsilon, 1e-6, n_nonzero=3, bounds=BOUNDS).fit(X, Y)
            fits += 1
    assert least <= fits < 100


@pytest.mark.parametrize("method", ["auto", "screen_refine", "two_stage"])
@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["declared", "estimated"])
def test_fits_by_objective_perturbation_compose_below_their_sum(method: Any, bounds: Bounds | None) -> None:
    """Each adds to the bill, 25 of them cost less than 25 epsilon, and never less than the dearest alone."""
    with Ledger(Budget(20.0, DELTA)) as ledger:
        seen = [0.0]
        for _ in range(25):
            model(0.5, method=method, bounds=bounds).fit(X, Y)
            seen.append(ledger.epsilon)
    assert np.all(np.diff(seen) > 0)
    assert 0.5 < ledger.epsilon < 0.7 * 25 * 0.5


@pytest.mark.parametrize("k", [1, 2, 7, 25])
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_gaussian_fits_compose_exactly(k: int, epsilon: float) -> None:
    """k fits with Gaussian noise are one of sqrt(k) mu: the exact composition, and not k times epsilon."""
    with Ledger(Budget(20.0, DELTA)) as ledger:
        for _ in range(k):
            model(epsilon).fit(X, Y)
    exact = gaussian_epsilon(math.sqrt(k) * gaussian_mu(epsilon, DELTA), DELTA)
    assert ledger.epsilon == pytest.approx(exact, rel=1e-6)
    assert k == 1 or ledger.epsilon < 0.95 * k * epsilon


@pytest.mark.parametrize("noise", NOISES)
def test_folds_are_billed(noise: Any) -> None:
    """Five folds, five lines; the clones that cross_val_score makes cannot hide."""
    with Ledger(Budget(20.0, DELTA)) as ledger:
        cross_val_score(model(noise=noise), X, Y, cv=5, error_score="raise")
    assert len(ledger.fits) == 5


def test_folds_in_other_threads_are_billed() -> None:
    """joblib's threading backend: every fold has its own line and they add up as in one thread."""
    with Ledger(Budget(20.0, DELTA)) as ledger, joblib.parallel_config(backend="threading", n_jobs=2):
        cross_val_score(model(), X, Y, cv=8, error_score="raise")
    assert len(ledger.fits) == 8
    assert ledger.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(8) * gaussian_mu(0.5, DELTA), DELTA), rel=1e-6)


def test_a_grid_search_and_a_pipeline_are_billed() -> None:
    """Every candidate on every fold, and the refit on all rows."""
    search = GridSearchCV(
        make_pipeline(FunctionTransformer(), model()),
        {"sparseclassifier__method__n_iter": [2, 5]},
        cv=3,
        error_score="raise",
    )
    with Ledger(Budget(20.0, DELTA)) as ledger:
        search.fit(X, Y)
    assert len(ledger.fits) == 2 * 3 + 1


def test_estimating_bounds_is_billed() -> None:
    """Bounds.estimate has a line of its own, and counts against the cap."""
    with Ledger(Budget(1.0, DELTA)) as ledger:
        Bounds.estimate(X, epsilon=0.25)
        assert [what for what, _ in ledger.fits] == ["Bounds.estimate"]
        assert 0 < ledger.epsilon < 1
        with pytest.raises(BudgetExceededError, match=r"Bounds\.estimate would take the ledger to"):
            Bounds.estimate(X, Y, epsilon=50.0)
    assert len(ledger.fits) == 1


@pytest.mark.usefixtures("no_generator")
def test_estimating_bounds_past_the_cap_draws_no_noise() -> None:
    """The refusal comes first."""
    with Ledger(Budget(1.0, DELTA)) as ledger, pytest.raises(BudgetExceededError, match="nothing was released"):
        Bounds.estimate(X, Y, epsilon=50.0)
    assert ledger.fits == []


def test_published_noise_is_billed_at_its_true_epsilon() -> None:
    """A fit with the papers' noise for epsilon = 4 costs 4.84 in the ledger, so that a cap of 4 refuses it."""
    published = model(4.0, calibration="published")
    with Ledger(Budget(10.0, DELTA)) as ledger, pytest.warns(PrivacyWarning, match="proves only epsilon = 4.84"):
        published.fit(X, Y)
    assert ledger.epsilon == pytest.approx(4.84, abs=0.005)
    with (
        Ledger(Budget(4.0, DELTA)) as small,
        pytest.warns(PrivacyWarning, match="proves only"),
        pytest.raises(BudgetExceededError, match="of its cap"),
    ):
        published.fit(X, Y)
    assert small.fits == []


# --- the cap ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["declared", "estimated"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_single_fit_may_spend_the_whole_cap(noise: Any, bounds: Bounds | None, epsilon: float) -> None:
    """epsilon and delta equal to the cap's pass, with declared and with estimated bounds."""
    with Ledger(Budget(epsilon, DELTA)) as ledger:
        model(epsilon, noise, bounds=bounds).fit(X, Y)
        # Declared bounds: nothing is left. Estimated ones are added up in the fit but composed in the ledger.
        assert (0.99 if bounds else 0.9) * epsilon < ledger.epsilon <= epsilon
        with pytest.raises(BudgetExceededError, match="would take the ledger to"):
            model((0.05 if bounds else 0.9) * epsilon, noise, bounds=bounds).fit(X, Y)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["declared", "estimated"])
def test_a_fit_past_the_cap_draws_no_noise_and_bills_nothing(
    request: pytest.FixtureRequest, noise: Any, bounds: Bounds | None
) -> None:
    """The message says how far it would go, what is spent, and what to do; the ledger stays as it was."""
    with Ledger(Budget(1.0, DELTA)) as ledger:
        model(0.9, noise, bounds=bounds).fit(X, Y)
        before = (list(ledger.fits), ledger.epsilon, ledger.share)
        request.getfixturevalue("no_generator")
        unfitted = model(0.9, noise, bounds=bounds)
        with pytest.raises(
            BudgetExceededError,
            match=r"SparseClassifier\.fit would take the ledger to 1\d\d\.\d % of its cap \(epsilon = 1, "
            r"delta = 1e-05; .* % is spent\); nothing was released\. Lower this fit's epsilon, or do without it",
        ):
            unfitted.fit(X, Y)
        assert (ledger.fits, ledger.epsilon, ledger.share) == before
        assert not hasattr(unfitted, "coef_")


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["declared", "estimated"])
def test_the_proved_epsilon_never_passes_the_cap(noise: Any, bounds: Bounds | None) -> None:
    """Fits of one size until the ledger refuses: what is proved grows, and ends at or below the cap."""
    seen = [0.0]
    with Ledger(Budget(2.0, DELTA)) as ledger:
        for _ in range(200):
            try:
                model(0.3, noise, bounds=bounds).fit(X, Y)
            except BudgetExceededError:
                break
            seen.append(ledger.epsilon)
        else:
            pytest.fail("200 fits at 0.3 passed a cap of 2")
    assert np.all(np.diff(seen) > 0)
    assert max(seen) <= 2.0
    assert len(ledger.fits) >= 6  # basic composition alone would allow six


def test_a_mixture_of_fits_stays_below_the_cap() -> None:
    """Gaussian and selection noise, estimated bounds and Bounds.estimate in one ledger."""
    with Ledger(Budget(5.0, DELTA)) as ledger:
        for epsilon, noise, bounds in ((0.5, "selection", BOUNDS), (0.5, "gaussian", None), (1.0, "gaussian", BOUNDS)):
            model(epsilon, noise, bounds=bounds).fit(X, Y)
        Bounds.estimate(X, epsilon=0.1)
        with pytest.raises(BudgetExceededError):
            model(5.0).fit(X, Y)
    assert len(ledger.fits) == 4
    # What all four prove together by adding up is 2.1 at 3e-5; in any currency, at least the dearest is in.
    assert 1.0 <= ledger.epsilon <= 5.0


@pytest.mark.usefixtures("no_generator")
@pytest.mark.parametrize("delta", [DELTA, 0.0], ids=["approximate", "pure"])
def test_a_fit_without_privacy_is_refused(delta: float) -> None:
    """epsilon=None would pass any cap."""
    with Ledger(Budget(1e6, delta)) as ledger, pytest.raises(BudgetExceededError, match="nothing was released"):
        model(None).fit(X, Y)
    assert ledger.fits == []


def test_a_delta_above_the_cap_is_refused_or_paid_for() -> None:
    """A fit at a laxer delta than the cap's is billed by its noise, at the cap's delta."""
    lax = SparseClassifier(1.0, 1e-3, method=HardThresholding(noise="gaussian"), bounds=BOUNDS)
    with Ledger(Budget(1.0, DELTA)) as ledger, pytest.raises(BudgetExceededError):
        lax.fit(X, Y)
    assert ledger.fits == []
    with Ledger(Budget(5.0, DELTA)) as larger:
        lax.fit(X, Y)
    assert larger.epsilon == pytest.approx(gaussian_epsilon(gaussian_mu(1.0, 1e-3), DELTA), rel=1e-6)
    assert larger.epsilon > 1.3


def test_a_refused_first_fit_leaves_no_trace() -> None:
    """A ledger that has refused bills later fits exactly as a fresh one does."""
    spent = []
    for refuse_first in (False, True):
        with Ledger(Budget(3.0, DELTA)) as ledger:
            if refuse_first:
                with pytest.raises(BudgetExceededError):
                    model(None).fit(X, Y)
            for _ in range(5):
                model(0.5).fit(X, Y)
            spent.append(ledger.epsilon)
    assert spent[0] == spent[1]


@pytest.mark.parametrize("random_state", ["seed", -1])
def test_bad_settings_are_not_billed(random_state: Any) -> None:
    """An error in the settings releases nothing, so it costs nothing."""
    with Ledger(Budget(3.0, DELTA)) as ledger, pytest.raises(ValueError, match=r"random_state|non-negative"):
        model(random_state=random_state).fit(X, Y)
    assert ledger.fits == []


def test_bad_labels_for_estimating_bounds_are_not_billed() -> None:
    """Labels of another length are refused before anything is billed."""
    with Ledger(Budget(3.0, DELTA)) as ledger, pytest.raises(ValueError, match=r".+"):
        Bounds.estimate(X, Y[:-1], epsilon=0.5)
    assert ledger.fits == []


@pytest.mark.parametrize("noise", ["gaussian", "objective"])
def test_a_plan_that_was_not_billed_is_refused(noise: str) -> None:
    """A method whose plan, after its bounds are estimated, costs more than any that it showed before."""

    def plan(scale: float) -> Plan:
        mechanism = Gaussian if noise == "gaussian" else Laplace
        return Plan((Release("answer", mechanism(NoisePerSensitivity(scale)), 1),))

    promise = (0.5, DELTA)
    with Ledger(Budget(3.0, DELTA)) as ledger:
        number = ledger.bill("a fit", [plan(20.0), plan(10.0)], promise)
        ledger.confirm(plan(10.0), promise, number)
        ledger.confirm(plan(20.0), promise, number)
        with pytest.raises(PlanError, match="in a way that was not billed"):
            ledger.confirm(plan(9.0), promise, number)


def test_all_noise_comes_from_the_keyed_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks about private rows: an ordinary generator's future can be told from its past."""
    streams = []
    made = tulle.trusted.curator.Curator.__init__

    def noted(self: Any, rows: Any, public: Any, plan: Any, generator: Any, *more: Any) -> None:
        streams.append(type(generator.bit_generator).__name__)
        made(self, rows, public, plan, generator, *more)

    monkeypatch.setattr(tulle.trusted.curator.Curator, "__init__", noted)
    for seed in (None, 3):
        for release in (
            lambda seed=seed: model(random_state=seed).fit(X, Y),
            lambda seed=seed: Bounds.estimate(X, epsilon=0.5, random_state=seed),
            lambda seed=seed: private_score(PUBLIC, X, Y, epsilon=0.5, random_state=seed),
        ):
            streams.clear()
            release()
            assert set(streams) == {"AESCounter"}


# --- nesting, seeds, life cycle --------------------------------------------------------------------------------------


def test_nested_ledgers_both_bill() -> None:
    """A fit inside two ledgers has a line in each; outside of the inner one, in the outer alone."""
    with Ledger(Budget(5.0, DELTA)) as outer:
        model().fit(X, Y)
        with Ledger(Budget(2.0, DELTA)) as inner:
            model().fit(X, Y)
        model().fit(X, Y)
    assert (len(outer.fits), len(inner.fits)) == (3, 1)
    assert inner.epsilon < outer.epsilon


@pytest.mark.usefixtures("no_generator")
@pytest.mark.parametrize(("outer_cap", "inner_cap"), [(5.0, 0.1), (0.1, 5.0)], ids=["inner-refuses", "outer-refuses"])
def test_a_fit_that_one_of_two_ledgers_refuses_is_billed_to_none(outer_cap: float, inner_cap: float) -> None:
    """Nothing was released, so neither ledger is charged, whichever of them said no."""
    with (
        Ledger(Budget(outer_cap, DELTA)) as outer,
        Ledger(Budget(inner_cap, DELTA)) as inner,
        pytest.raises(BudgetExceededError),
    ):
        model(1.0).fit(X, Y)
    assert inner.fits == []
    assert outer.fits == []


def test_a_seed_gives_each_fit_in_a_ledger_its_own_noise() -> None:
    """Same model, same rows, same seed: two fits in a ledger differ, and the whole ledger can be repeated."""
    runs = []
    for _ in range(2):
        with Ledger(Budget(5.0, DELTA)):
            runs.append([model(random_state=7).fit(X, Y).coef_ for _ in range(3)])
    first, second, third = runs[0]
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)
    np.testing.assert_array_equal(runs[0], runs[1])


def test_an_exception_in_the_body_closes_the_ledger() -> None:
    """Fits after the failed block are not billed, and the bill up to it stands."""
    ledger = Ledger(Budget(5.0, DELTA))

    def body() -> None:
        with ledger:
            model().fit(X, Y)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert "TULLE_LEDGER_PROCESS" not in os.environ
    model().fit(X, Y)
    assert len(ledger.fits) == 1


def test_a_ledger_can_be_opened_again_and_goes_on() -> None:
    """What was spent before is still spent."""
    ledger = Ledger(Budget(1.0, DELTA))
    with ledger:
        model(0.9).fit(X, Y)
    with ledger, pytest.raises(BudgetExceededError):
        model(0.9).fit(X, Y)
    assert len(ledger.fits) == 1


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_ledger_cannot_be_copied(how: Any) -> None:
    """Two copies of a ledger would each believe in the whole cap."""
    with pytest.raises(TypeError, match="a Ledger cannot be copied or sent to another process"):
        how(Ledger(Budget(1.0, DELTA)))


# --- other processes -------------------------------------------------------------------------------------------------


def test_folds_in_other_processes_are_refused() -> None:
    """loky workers cannot write in this ledger: the fold fails with a message that says what to do."""
    with (
        Ledger(Budget(20.0, DELTA)) as ledger,
        pytest.raises(BudgetExceededError, match=r"n_jobs=1.*threading backend"),
    ):
        cross_val_score(model(), X, Y, cv=2, n_jobs=2, error_score="raise")
    assert ledger.fits == []


def fresh_workers() -> None:
    """Ends the worker processes that joblib keeps, so that the next call starts new ones."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def test_other_processes_may_fit_again_once_the_ledger_is_closed() -> None:
    """Workers that some other work started under an open ledger are not stuck with it afterwards."""
    fresh_workers()
    with Ledger(Budget(20.0, DELTA)):
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-i) for i in range(4)) == [0, 1, 2, 3]
    scores = cross_val_score(model(), X, Y, cv=2, n_jobs=2, error_score="raise")
    assert np.all(np.isfinite(scores))


def test_clones_made_in_a_worker_of_earlier_are_refused_too() -> None:
    """Workers that were started before the ledger, and a meta-estimator that clones the model over there."""
    fresh_workers()
    cross_val_score(model(), X, Y, cv=2, n_jobs=2, error_score="raise")  # starts workers outside of any ledger
    classes = np.arange(len(X)) % 3
    with Ledger(Budget(20.0, DELTA)) as ledger:
        try:
            cross_val_score(OneVsRestClassifier(model()), X, classes, cv=KFold(2), n_jobs=2, error_score="raise")
        except BudgetExceededError:
            return
    assert len(ledger.fits) == 6, "six fits were neither refused nor billed"


def test_a_process_started_under_an_open_ledger_is_refused() -> None:
    """A child process cannot write in the ledger of its parent; once that is closed, it may fit."""
    code = (
        "import numpy as np\nfrom tulle import Bounds, SparseClassifier\n"
        "SparseClassifier(bounds=Bounds(row_l2=1.0)).fit(np.eye(20), np.arange(20) % 2)\nprint('fitted')"
    )
    with Ledger(Budget(20.0, DELTA)) as ledger:
        inside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    outside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert inside.returncode != 0
    assert "BudgetExceededError: a ledger is open in another process" in inside.stderr
    assert "fitted" not in inside.stdout
    assert ledger.fits == []
    assert outside.stdout.strip() == "fitted", outside.stderr


def test_a_ledger_protects_one_kind_of_unit() -> None:
    """Costs for rows and for people with several rows do not add up: the second kind is refused, unbilled."""
    with Ledger(Budget(20.0, DELTA)) as ledger:
        model().fit(X, Y)
        with pytest.raises(ValueError, match=r"protects units of 1 row\(s\) and SparseClassifier\.fit units of 3"):
            model(bounds=Bounds(row_l2=2.0, rows_per_person=3)).fit(X, Y)
    assert len(ledger.fits) == 1


def test_a_refusal_never_advises_another_ledger_or_cap() -> None:
    """A cap that is raised whenever it is reached protects nobody."""
    for cap, plan, promise in (
        (Budget(1.0, 1e-5), Plan((Release("x", Gaussian(NoisePerSensitivity(0.5)), 1),)), (9.0, 1e-5)),
        (Budget(1.0, 0.0), Plan((Release("x", Gaussian(NoisePerSensitivity(0.5)), 1),)), (0.5, 1e-5)),
        (Budget(1.0, 1e-5), Plan((Release("x", Exact(), 1),)), (math.inf, 0.0)),
    ):
        with pytest.raises(BudgetExceededError) as refusal:
            Ledger(cap).quote("a fit", [plan], promise, 1)
        advice = str(refusal.value).rpartition("nothing was released. ")[2]
        assert advice
        assert "ledger" not in advice.replace("the ledger's first fit", "")
        assert "cap" not in advice
