"""sample_weight, class_weight, offset, always and feature_groups at the front door. See docs/model_features.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, r2_score

from tulle import (
    Bounds,
    Budget,
    Ledger,
    PrivatePipeline,
    PrivateSearch,
    SparseClassifier,
    SparseRegressor,
    load,
    save,
)
from tulle.backends.weighted_rows import WeightedRows
from tulle.methods import (
    CoordinateDescent,
    FitAgain,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    StochasticHardThresholding,
)
from tulle.methods.loss_functions import Squared
from tulle.preprocessing import PrivateScaler
from tulle.trusted.curator import Curator

N, D = 400, 5
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
MARGIN = 2 * X[:, 0] - X[:, 1] + 0.5
LABELS = RNG.uniform(size=N) < 1 / (1 + np.exp(-MARGIN))
NUMBERS = MARGIN + 0.3 * RNG.standard_normal(N)
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0])).astype(float)
WEIGHTS = RNG.uniform(0, 1, N)
OFFSETS = RNG.uniform(-2, 2, N)
BOUNDS = Bounds(row_linf=1.0, label=4.0, offset=2.0)
# Every way to fit, by a method that takes any loss of one output.
METHODS: dict[str, Any] = {
    "auto": "auto",
    "fit_again": FitAgain(),
    "screen_refine gaussian": ScreenRefine(noise="gaussian"),
    "screen_refine selection": ScreenRefine(noise="selection"),
    "two_stage": "two_stage",
    "hard_thresholding gaussian": HardThresholding(n_iter=3, noise="gaussian"),
    "hard_thresholding selection": HardThresholding(n_iter=3, noise="selection"),
    "stochastic": StochasticHardThresholding(passes=1.0, batch=50),
    "stochastic svrg": StochasticHardThresholding("svrg", passes=2.0, batch=50),
    "frank_wolfe": FrankWolfe(n_iter=4),
    "frank_wolfe incremental": FrankWolfe(n_iter=4, noise="selection", engine="incremental"),
    "coordinate_descent": CoordinateDescent(n_iter=4),
    "coordinate_descent incremental": CoordinateDescent(n_iter=4, noise="selection", engine="incremental"),
}
OF_ONE_LOSS = {"logistic": LABELS, "squared_hinge": LABELS, "squared": NUMBERS, "huber": NUMBERS, "poisson": COUNTS}


def model(loss: str, epsilon: float | None = 2.0, **settings: Any) -> Any:
    kind = SparseClassifier if OF_ONE_LOSS[loss] is LABELS else SparseRegressor
    settings = {"bounds": BOUNDS, "random_state": 1, **settings}
    if kind is SparseClassifier:
        settings = {"classes": [False, True], **settings}
    return kind(epsilon, loss=loss, **settings)


def weights_of(fitted: Any) -> Any:
    return np.append(np.ravel(fitted.coef_), fitted.intercept_)


# --- what weights and offsets mean ---


def test_without_noise_it_is_the_weighted_fit_of_scikit_learn() -> None:
    """Of the logistic loss: scikit-learn's optimum, its penalty nearly off."""
    expected = LogisticRegression(C=1e8, tol=1e-10, max_iter=10_000).fit(X, LABELS, sample_weight=WEIGHTS)
    found = SparseClassifier(None, method=HardThresholding(n_iter=600), n_nonzero=D).fit(
        X, LABELS, sample_weight=WEIGHTS
    )
    np.testing.assert_allclose(weights_of(found), weights_of(expected), atol=2e-3)
    screened = SparseClassifier(None, method="screen_refine", n_nonzero=D).fit(X, LABELS, sample_weight=WEIGHTS)
    np.testing.assert_allclose(weights_of(screened), weights_of(expected), atol=2e-2)  # its penalty is not off
    unweighted = LogisticRegression(C=1e8, tol=1e-10, max_iter=10_000).fit(X, LABELS)
    assert np.abs(weights_of(found) - weights_of(unweighted)).max() > 0.05, "weights make a difference here"


@pytest.mark.parametrize("refinement", ["objective", "statistics"])
def test_without_noise_it_is_the_weighted_least_squares_fit_with_offsets(refinement: Any) -> None:
    expected = LinearRegression().fit(X, NUMBERS - OFFSETS, sample_weight=WEIGHTS)
    method = ScreenRefine(refinement=refinement)
    found = SparseRegressor(None, method=method, n_nonzero=D).fit(X, NUMBERS, sample_weight=WEIGHTS, offset=OFFSETS)
    np.testing.assert_allclose(weights_of(found), weights_of(expected), atol=2e-3)
    np.testing.assert_allclose(found.predict(X, OFFSETS), found.predict(X) + OFFSETS)
    assert found.score(X, NUMBERS, offset=OFFSETS) == r2_score(NUMBERS, found.predict(X, OFFSETS))
    weighted = found.score(X, NUMBERS, WEIGHTS, OFFSETS)
    assert weighted == r2_score(NUMBERS, found.predict(X, OFFSETS), sample_weight=WEIGHTS)


@pytest.mark.parametrize("method", ["hard_thresholding", "screen_refine", "fit_again"])
@pytest.mark.parametrize("loss", ["poisson", "logistic", "squared_hinge"])
def test_without_noise_offsets_are_added_to_margins(loss: str, method: str) -> None:
    """At the minimum the gradient of the weighted loss with offsets is 0, but for a small penalty's part."""
    y = OF_ONE_LOSS[loss]
    found = model(loss, None, method=method, n_nonzero=D, bounds=Bounds(offset=2.0))
    found.fit(X, y, offset=OFFSETS, sample_weight=WEIGHTS)
    margins = X @ np.ravel(found.coef_) + found.intercept_ + OFFSETS
    sign = 2.0 * (y > 0) - 1
    slopes = {
        "poisson": np.exp(margins) - y,
        "logistic": -sign / (1 + np.exp(sign * margins)),
        "squared_hinge": -sign * np.maximum(0, 1 - sign * margins),
    }[loss]
    gradient = np.column_stack([X, np.ones(N)]).T @ (WEIGHTS * slopes) / N
    assert np.abs(gradient).max() < 2e-3
    start = np.column_stack([X, np.ones(N)]).T @ slopes / N
    assert np.abs(start).max() > 0.005, "without the weights it is not"
    if loss == "poisson":
        np.testing.assert_allclose(found.predict(X, OFFSETS), np.exp(margins))
    else:
        np.testing.assert_allclose(found.decision_function(X, OFFSETS), margins)
        assert found.score(X, y, offset=OFFSETS) == accuracy_score(y, margins > 0)
    if loss == "logistic":
        np.testing.assert_allclose(found.predict_proba(X, OFFSETS)[:, 1], 1 / (1 + np.exp(-margins)))
        np.testing.assert_allclose(found.predict_log_proba(X, OFFSETS), np.log(found.predict_proba(X, OFFSETS)))


@dataclass(frozen=True)
class HalfSquared(Squared):
    """A loss of a user's own: objective perturbation may not use it."""

    def slope(self, margins: Any, targets: Any) -> Any:
        return 0.5 * super().slope(margins, targets)


def test_a_loss_of_the_users_own_takes_weights_and_offsets() -> None:
    """Added to margins: nothing says that it is a loss of residuals."""
    own = SparseRegressor(2.0, loss=HalfSquared(), bounds=BOUNDS, random_state=1)
    fitted = own.fit(X, NUMBERS, sample_weight=WEIGHTS, offset=OFFSETS)
    said = " ".join(fitted.privacy_.assumptions)
    assert "added to their margins" in said
    assert "HalfSquared() is the user's own" in said
    np.testing.assert_allclose(fitted.predict(X, OFFSETS), fitted.predict(X) + OFFSETS)
    exact = SparseRegressor(None, loss=HalfSquared(), method=HardThresholding(n_iter=300), n_nonzero=D)
    expected = LinearRegression().fit(X, NUMBERS - OFFSETS, sample_weight=WEIGHTS)
    exact.fit(X, NUMBERS, sample_weight=WEIGHTS, offset=OFFSETS)
    np.testing.assert_allclose(weights_of(exact), weights_of(expected), atol=2e-3)


# The first of these methods ask how long margins are of all rows alike, to find a unit.
ALL_ROWS = ("auto", "fit_again", "screen_refine gaussian", "screen_refine selection")
# Rows without weights are followed along a path: answers of the same law, from other draws.
FOLLOWED = ("frank_wolfe incremental", "coordinate_descent incremental")


@pytest.mark.parametrize("loss", OF_ONE_LOSS)
@pytest.mark.parametrize("method", [name for name in METHODS if name not in ALL_ROWS + FOLLOWED])
def test_a_weight_of_zero_is_a_row_that_counts_as_nothing(method: str, loss: str) -> None:
    """The same noise, the same model as where the row has no label; and all weights of 1 change nothing."""
    y = OF_ONE_LOSS[loss]
    out = np.arange(N) % 3 == 0
    unlabelled = np.where(out, 7, y) if y is LABELS else np.ma.array(y, mask=out)

    def fit(labels: Any, weights: Any = None) -> Any:
        return weights_of(model(loss, method=METHODS[method]).fit(X, labels, sample_weight=weights))

    np.testing.assert_allclose(fit(y, np.where(out, 0.0, 5.0)), fit(unlabelled), atol=1e-6)
    np.testing.assert_allclose(fit(y, np.ones(N)), fit(y), atol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("cls", [FrankWolfe, CoordinateDescent])
def test_faster_code_for_rows_without_weights_stands_back(cls: Any, loss: str) -> None:
    """Which follows margins and slopes of sparse rows along a path, and knows of no weight."""
    fits = [
        model(loss, method=cls(n_iter=30, noise="selection", engine=engine)).fit(
            sp.csr_array(X), OF_ONE_LOSS[loss], sample_weight=np.where(X[:, 0] > 0, 1.0, 0.0), offset=OFFSETS
        )
        for engine in ("plain", "incremental")
    ]
    # The engine's finite precision takes a part of delta, and the noise is a little larger.
    np.testing.assert_allclose(weights_of(fits[0]), weights_of(fits[1]), atol=5e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", OF_ONE_LOSS)
def test_every_method_takes_weights_and_offsets_and_the_bill_is_the_plan(method: str, loss: str) -> None:
    """Nothing more is spent than without them, and dense rows are as sparse ones."""
    y, given = OF_ONE_LOSS[loss], {"sample_weight": WEIGHTS, "offset": OFFSETS}
    dense = model(loss, method=METHODS[method], n_nonzero=3).fit(X, y, **given)
    sparse = model(loss, method=METHODS[method], n_nonzero=3).fit(sp.csr_array(X), y, **given)
    np.testing.assert_allclose(weights_of(dense), weights_of(sparse), atol=1e-6)
    plain = model(loss, method=METHODS[method], n_nonzero=3).fit(X, y)
    assert [line.release for line in dense.privacy_.bill] == [line.release for line in plain.privacy_.bill]
    assert 0.99 * 2.0 <= dense.privacy_.epsilon <= 2.0
    if "frank_wolfe" not in method:  # whose vertices can be the same
        assert np.abs(weights_of(dense) - weights_of(plain)).max() > 1e-6


@pytest.mark.parametrize("method", ["hard_thresholding", "coordinate_descent", "stochastic_hard_thresholding"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_several_classes_take_weights(method: str, loss: str) -> None:
    y = np.arange(N) % 3
    settings: dict[str, Any] = {
        "loss": loss,
        "method": method,
        "bounds": BOUNDS,
        "random_state": 1,
        "classes": [0, 1, 2],
    }
    weighted = SparseClassifier(2.0, **settings).fit(X, y, sample_weight=WEIGHTS)
    assert np.abs(weighted.coef_ - SparseClassifier(2.0, **settings).fit(X, y).coef_).max() > 1e-6
    named = SparseClassifier(2.0, class_weight={2: 0.5, 0: 1.0}, **settings).fit(X, y)
    by_row = SparseClassifier(2.0, **settings).fit(X, y, sample_weight=np.where(y == 2, 0.5, 1.0))
    np.testing.assert_allclose(named.coef_, by_row.coef_, atol=1e-9)


def test_extreme_weights_and_offsets_are_clipped_one_by_one() -> None:
    """Below 0 counts as 0, above 1 as 1, and an offset beyond its bound as the bound."""
    weights = np.tile([-3.0, 0.0, 0.5, 1.0, 1e300], N // 5)
    offsets = np.tile([1e300, -1e9, 2.0, -2.0, 0.25], N // 5)
    one = model("logistic").fit(X, LABELS, sample_weight=weights, offset=offsets)
    other = model("logistic").fit(X, LABELS, sample_weight=np.clip(weights, 0, 1), offset=np.clip(offsets, -2, 2))
    assert np.array_equal(weights_of(one), weights_of(other))
    np.testing.assert_array_equal(one.decision_function(X, offsets), one.decision_function(X, np.clip(offsets, -2, 2)))


def test_the_report_says_what_was_declared() -> None:
    fitted = model("poisson").fit(X, COUNTS, sample_weight=WEIGHTS, offset=OFFSETS)
    said = " ".join(fitted.privacy_.assumptions)
    assert "each clipped to [0, 1]" in said
    assert "the sum of weights was not looked at" in said
    assert "offsets, clipped to 2 (declared) and added to their margins" in said
    assert "weighted_rows" in said
    assert "user's own" not in said
    shifted = model("squared").fit(X, NUMBERS, offset=OFFSETS)
    assert "taken off their targets" in " ".join(shifted.privacy_.assumptions)


# --- weights of classes ---


def test_class_weights_are_weights_of_rows_the_largest_being_one() -> None:
    named = model("logistic", class_weight={True: 40.0, False: 10.0}).fit(X, LABELS)
    by_row = model("logistic").fit(X, LABELS, sample_weight=np.where(LABELS, 1.0, 0.25))
    assert np.array_equal(weights_of(named), weights_of(by_row))
    assert "the largest scaled to 1: 0.25, 1." in " ".join(named.privacy_.assumptions)
    both = model("logistic", class_weight={True: 40.0, False: 10.0}).fit(X, LABELS, sample_weight=WEIGHTS)
    product = model("logistic").fit(X, LABELS, sample_weight=WEIGHTS * np.where(LABELS, 1.0, 0.25))
    assert np.array_equal(weights_of(both), weights_of(product))
    alone = model("logistic", class_weight={False: 0.5}).fit(X, LABELS)  # 1 for the class that is not named
    by_row = model("logistic").fit(X, LABELS, sample_weight=np.where(LABELS, 1.0, 0.5))
    assert np.array_equal(weights_of(alone), weights_of(by_row))


@pytest.mark.parametrize("method", [name for name in METHODS if "stochastic" not in name])
@pytest.mark.parametrize("bounds", [Bounds(row_linf=1.0), Bounds(row_linf=1.0, rows_per_person=2), None], ids=str)
def test_balanced_counts_are_on_the_plan_and_the_bill(method: str, bounds: Bounds | None) -> None:
    rare = np.arange(N) % 20 == 0
    with Ledger(Budget(10.0, 1e-3)) as ledger:
        fitted = model("logistic", class_weight="balanced", method=METHODS[method], bounds=bounds).fit(X, rare)
    lines = [line.release for line in fitted.privacy_.bill]
    assert lines.count("class counts") == 1
    assert 0.99 * 2.0 <= fitted.privacy_.epsilon <= 2.0
    assert len(ledger.fits) == 1
    assert "from noisy counts" in " ".join(fitted.privacy_.assumptions)


@pytest.mark.parametrize("rows_per_person", [1, 3])
def test_balanced_weights_follow_from_the_noisy_answer(rows_per_person: int, monkeypatch: Any) -> None:
    """And from public numbers: counts below twice their noise are raised to it."""
    answers, used = [], []
    ask, carry = Curator.ask, WeightedRows.carry

    def recorded(curator: Any, name: str, query: Any, then: Any = None) -> Any:
        answer = ask(curator, name, query, then)
        if name == "class counts":
            answers.append(answer[:, 0].copy())
        return answer

    def carried(rows: Any, class_weights: Any = None) -> None:
        used.append(class_weights)
        carry(rows, class_weights)

    monkeypatch.setattr(Curator, "ask", recorded)
    monkeypatch.setattr(WeightedRows, "carry", carried)
    bounds = Bounds(row_linf=1.0, rows_per_person=rows_per_person)
    fitted = model("logistic", 0.5, class_weight="balanced", bounds=bounds).fit(X, np.arange(N) % 50 == 0)
    (line,) = [line for line in fitted.privacy_.bill if line.release == "class counts"]
    noise = line.noise_per_sensitivity * math.sqrt(2) * rows_per_person / N
    counts = np.maximum(answers[0], 2 * noise)
    np.testing.assert_allclose(used[0].factors, counts.min() / counts, rtol=1e-9)
    assert not np.allclose(answers[0], [0.98, 0.02], atol=1e-4), "noise was added"


@pytest.mark.parametrize("n_classes", [2, 3])
def test_balanced_without_noise_is_that_of_scikit_learn(n_classes: int) -> None:
    """Weights in proportion to 1 / count: the same as by hand, the largest 1."""
    y = (np.arange(N) % 10 == 0) + (np.arange(N) % 3 == 1 if n_classes == 3 else 0) + 0
    y = np.minimum(y, n_classes - 1)
    counts = np.bincount(y)
    settings: dict[str, Any] = {"method": "hard_thresholding", "n_nonzero": D, "classes": list(range(n_classes))}
    found = SparseClassifier(None, class_weight="balanced", **settings).fit(X, y)
    by_hand = SparseClassifier(None, **settings).fit(X, y, sample_weight=counts.min() / counts[y])
    np.testing.assert_allclose(found.coef_, by_hand.coef_, atol=1e-9)


def test_balanced_classes_are_told_apart_where_one_is_rare() -> None:
    """3 % of the rows: without weights nearly nobody is predicted to be of the rare class."""
    rng = np.random.default_rng(5)
    wide = rng.uniform(-1, 1, (20_000, D))
    rare = rng.uniform(size=20_000) < 1 / (1 + np.exp(4.5 - 3 * wide[:, 0]))
    plain, balanced = (
        SparseClassifier(2.0, class_weight=weight, classes=[False, True], bounds=Bounds(row_linf=1.0), random_state=2)
        .fit(wide, rare)
        .predict(wide)
        for weight in (None, "balanced")
    )
    assert balanced[rare].mean() > 0.6 > 0.2 > plain[rare].mean()
    assert balanced[~rare].mean() < 0.4


# --- refusals, before anything is billed ---


def strange(row: int, cell: Any) -> Any:
    values = [1.0] * N
    values[row] = cell
    return values


IN_FIVES = [0, 0, 1, 1, 1]
NO_OFFSET, FAR = Bounds(row_linf=1.0, label=4.0), Bounds(row_linf=1.0, label=4.0, offset=31)


REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "a weight that is NaN": ("logistic", {}, {"sample_weight": strange(3, math.nan)}, r"weight contains NaN \(row 3\)"),
    "a missing weight": ("squared", {}, {"sample_weight": strange(3, None)}, r"sample_weight contains NaN \(row 3\)"),
    "an infinite weight": ("logistic", {}, {"sample_weight": strange(5, math.inf)}, r"infinity .*\(row 5\)"),
    "a word": ("logistic", {}, {"sample_weight": strange(5, "secret")}, r"sample_weight contains text.* \(row 5\)"),
    "too few weights": ("logistic", {}, {"sample_weight": np.ones(N - 1)}, "399 numbers for 400 rows"),
    "a table of weights": ("logistic", {}, {"sample_weight": np.ones((N, 2))}, "1d array"),
    "one number": ("logistic", {}, {"sample_weight": 1.0}, "1d array"),
    "an infinite offset": ("poisson", {}, {"offset": strange(7, -math.inf)}, r"offset contains infinity .*\(row 7\)"),
    "an offset that is NaN": ("squared", {}, {"offset": strange(7, math.nan)}, r"offset contains NaN \(row 7\)"),
    "too many offsets": ("squared", {}, {"offset": np.ones(N + 1)}, "401 numbers for 400 rows"),
    "an offset without a bound": ("poisson", {"bounds": NO_OFFSET}, {"offset": OFFSETS}, r"needs a bound .*Bounds\("),
    "an offset too far": ("poisson", {"bounds": FAR}, {"offset": OFFSETS}, "at most 30"),
    "an offset and a teacher": ("logistic", {"method": KnowledgeTransfer()}, {"offset": OFFSETS}, "takes no offsets"),
    "a class of no name": ("logistic", {"class_weight": {"yes": 2.0}}, {}, "names 'yes', which is none of the classes"),
    "a negative class weight": ("logistic", {"class_weight": {True: -1.0}}, {}, "finite numbers >= 0"),
    "an infinite class weight": ("logistic", {"class_weight": {True: math.inf}}, {}, "finite numbers >= 0"),
    "classes of no weight": ("logistic", {"class_weight": {True: 0, False: 0}}, {}, "one must be larger"),
    "another word": ("logistic", {"class_weight": "even"}, {}, "'balanced'"),
    "a list of class weights": ("logistic", {"class_weight": [1, 2]}, {}, "dict, 'balanced' or None"),
    "balanced, purely": ("logistic", {"class_weight": "balanced", "delta": 0.0}, {}, "delta > 0"),
    "balanced, in rho": ("logistic", {"class_weight": "balanced", "rho": 0.1, "epsilon": 1.0}, {}, "budget in epsilon"),
    "always, of no name": ("logistic", {"always": ["age"]}, {}, "always names 'age'"),
    "always, beyond the last": ("logistic", {"always": [D]}, {}, "there are 5, counted from 0"),
    "always, below 0": ("logistic", {"always": [-1]}, {}, "counted from 0"),
    "always, a word": ("logistic", {"always": "age"}, {}, "sequence of features"),
    "always, a fraction": ("logistic", {"always": [0.5]}, {}, "whole numbers or names"),
    "always, more than are kept": ("logistic", {"always": [0, 1], "n_nonzero": 1}, {}, "n_nonzero=1"),
    "always, in coordinates": ("squared", {"always": [0], "method": "coordinate_descent"}, {}, "takes no always="),
    "always, in two stages": ("squared", {"always": [0], "method": "two_stage"}, {}, "takes no always="),
    "all chosen already": (
        "squared", {"always": [0], "n_nonzero": 1, "method": ScreenRefine(noise="selection")}, {}, "at least one"
    ),
    "groups too short": ("logistic", {"feature_groups": [0, 0, 1]}, {}, "one label for each of the 5 features"),
    "groups of two kinds": ("logistic", {"feature_groups": [0, 0, "a", "a", 1]}, {}, "all whole numbers or all"),
    "groups that share": ("logistic", {"feature_groups": {"a": [0, 1], "b": [1]}}, {}, "into 'a' and 'b'"),
    "groups of a schema": ("logistic", {"feature_groups": "schema"}, {}, "begins with a tulle.Schema"),
    "groups, chosen one by one": (
        "logistic", {"feature_groups": IN_FIVES, "method": HardThresholding(noise="selection")}, {}, "single features"
    ),
    "groups twice": (
        "logistic", {"feature_groups": IN_FIVES, "method": HardThresholding(groups=IN_FIVES)}, {}, "given already"
    ),
    "always and public rows": ("logistic", {"always": [0]}, {"public": X[:50] + 1.0}, "takes no always="),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_had_is_refused_before_anything_is_billed(case: str) -> None:
    loss, settings, given, words = REFUSED[case]
    with Ledger(Budget(10.0, 1e-3)) as ledger, pytest.raises((ValueError, TypeError), match=words) as refused:
        model(loss, **settings).fit(X, OF_ONE_LOSS[loss], **given)
    assert not ledger.fits
    assert "secret" not in str(refused.value)


def test_offsets_are_for_one_margin() -> None:
    y = np.arange(N) % 3
    several = SparseClassifier(2.0, bounds=BOUNDS, classes=[0, 1, 2])
    with Ledger(Budget(10.0, 1e-3)) as ledger, pytest.raises(ValueError, match="two classes"):
        several.fit(X, y, offset=OFFSETS)
    assert not ledger.fits
    with pytest.raises(ValueError, match="two classes"):
        several.fit(X, y).predict(X, OFFSETS)
    with pytest.raises(ValueError, match="offset contains NaN"):
        model("logistic").fit(X, LABELS).predict(X, np.full(N, math.nan))
    with pytest.raises(ValueError, match=r"Bounds\(offset="):
        model("logistic", bounds=Bounds(row_linf=1.0)).fit(X, LABELS).predict(X, OFFSETS)


def test_a_search_and_a_student_leave_no_setting_out() -> None:
    search = PrivateSearch(model("logistic", class_weight={True: 2.0}), {"n_nonzero": [1, 2]}, Budget(1.0, 1e-5))
    with pytest.raises(ValueError, match="PrivateSearch takes no class_weight"):
        search.fit(X, LABELS)
    student = KnowledgeTransfer(student=SparseRegressor(None, always=[0]), features=X[:50] + 1.0)
    with pytest.raises(ValueError, match="takes no always"):
        model("squared", method=student).fit(X, NUMBERS)


# --- pipelines ---


def test_a_pipeline_takes_weights_and_offsets() -> None:
    steps = [("scale", PrivateScaler()), ("model", SparseClassifier(classes=[False, True], bounds=Bounds(offset=2.0)))]
    pipeline = PrivatePipeline(steps, 2.0, random_state=0)
    fitted = pipeline.fit(X * 100, LABELS, sample_weight=WEIGHTS, offset=OFFSETS)
    assert 0.99 * 2.0 <= fitted.privacy_.epsilon <= 2.0
    assert "each clipped to [0, 1]" in " ".join(fitted.privacy_.assumptions)
    margins = fitted.decision_function(X * 100, OFFSETS)
    np.testing.assert_allclose(margins, fitted.decision_function(X * 100) + OFFSETS)
    assert np.array_equal(fitted.predict(X * 100, OFFSETS), margins > 0)
    assert fitted.predict_proba(X * 100, OFFSETS).shape == (N, 2)
    assert fitted.score(X * 100, LABELS, offset=OFFSETS) == accuracy_score(LABELS, margins > 0)
    plain = PrivatePipeline(steps, 2.0, random_state=0).fit(X * 100, LABELS)
    assert np.abs(weights_of(plain.model_) - weights_of(fitted.model_)).max() > 1e-3


# --- saved models ---


@pytest.mark.parametrize(
    "settings",
    [
        {"class_weight": "balanced"},
        {"class_weight": {False: 0.5, True: 2}},
        {"always": np.array([0, 2])},
        {"feature_groups": {"a": [0, 1]}, "always": (3,)},
        {"feature_groups": np.array([0, 0, 1, 1, 2])},
        {"bounds": Bounds(row_linf=1.0, offset=1.5)},
    ],
    ids=str,
)
def test_a_model_is_saved_with_its_settings(settings: dict[str, Any], tmp_path: Path) -> None:
    fitted = model("logistic", **settings).fit(X, LABELS)
    save(fitted, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    for name, value in settings.items():
        found = getattr(again, name)
        assert found == (value if not isinstance(value, (np.ndarray, tuple)) else list(value))
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    assert np.array_equal(weights_of(again.set_params(random_state=1).fit(X, LABELS)), weights_of(fitted))


def test_a_model_without_them_is_saved_as_before(tmp_path: Path) -> None:
    """So that an older tulle can read it."""
    save(model("logistic", bounds=Bounds(row_linf=1.0)).fit(X, LABELS), tmp_path / "model.npz")
    header = bytes(np.load(tmp_path / "model.npz")["header"]) if "header" in np.load(tmp_path / "model.npz") else b""
    content = header or (tmp_path / "model.npz").read_bytes()
    for name in (b"class_weight", b"always", b"feature_groups", b'"offset"'):
        assert name not in content
