"""Frank-Wolfe: the method it is without noise, the set it stays in, and the paper's noise.

What it has in common with coordinate descent is in test_stepwise_methods.py.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import (
    BUT_POISSON,
    FRANK_WOLFE,
    VERTICES,
    Array,
    D,
    RecordingCurator,
    facts,
    model_for,
    problem,
    run_without_noise,
    signed,
    slopes_of,
    the_examples_of_the_rule,
    to_digits,
)
from pairwise import reduce_to_pairs
from scipy.special import expit
from sklearn.base import clone

from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import FrankWolfe
from tulle.methods.feasible_sets import Box, CappedL1Ball, KSupportBall, L1Ball, L2Ball, LqBall, Polytope, Simplex
from tulle.methods.frank_wolfe import SELECTIONS
from tulle.methods.loss_functions import LOSSES, Softmax, Squared
from tulle.methods.theorem_settings import theorem_n_iter
from tulle.trusted.accountants import epsilon
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import LaplaceMax, price_of
from tulle.trusted.plan import Release

pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

recorder = fits.recorder


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_choices_can_be_purely_private(selection: Any, kind: str) -> None:
    """delta = 0 is for noisy maxima, which "auto" then takes."""
    X, y = problem(kind)
    model = model_for(kind, 1.0, FrankWolfe(n_iter=6, selection=selection), delta=0.0).fit(X, y)
    assert model.privacy_.delta == 0
    assert 0.99 < model.privacy_.epsilon <= 1
    assert [line.release for line in model.privacy_.bill] == ["vertex"]


@pytest.mark.parametrize("n_classes", [3, 4])
def test_a_choice_for_each_class_is_a_choice_more(n_classes: int) -> None:
    """k choices a step cost as k times as many steps of one output."""
    outputs = price_of(FrankWolfe(n_iter=5, noise="selection").releases(facts(loss=Softmax(n_classes)))[0].mechanism)
    assert outputs == (price_of(FrankWolfe(n_iter=5, noise="selection").releases(facts())[0].mechanism)[0], n_classes)
    X, y = problem("classification", n_classes=n_classes)
    several = model_for("classification", 1.0, FrankWolfe(n_iter=5, noise="selection")).fit(X, y)
    two = model_for("classification", 1.0, FrankWolfe(n_iter=5 * n_classes, noise="selection")).fit(X, y > 1)
    noises = [model.privacy_.bill[0].noise_per_sensitivity for model in (several, two)]
    assert noises[0] == pytest.approx(noises[1], rel=1e-6)


# --- without noise ---------------------------------------------------------------------------------------------------


def top(g: Array, k: int) -> Array:
    return np.where(np.abs(g) >= np.sort(np.abs(g))[-k], g, 0.0)


def spike(g: Array, j: Any, height: float) -> Array:
    return height * (np.arange(len(g)) == j)


# Linear oracles of radius 2 for one vector, written down from the definitions of the sets.
ORACLES: dict[str, Callable[[Array], Array]] = {
    "l1": lambda g: spike(g, np.abs(g).argmax(), -2.0 * np.sign(g[np.abs(g).argmax()])),
    "simplex": lambda g: spike(g, g.argmin(), 2.0),
    "polytope": lambda g: VERTICES[(VERTICES[:, : len(g)] @ g).argmin(), : len(g)],
    "capped": lambda g: -2.0 / 4 * np.sign(top(g, 4)),
    "l2": lambda g: -2.0 * g / np.linalg.norm(g),
    "lq": lambda g: -2.0 * np.sign(g) * np.abs(g) ** (1 / 0.3) / (np.abs(g) ** (1.3 / 0.3)).sum() ** (1 / 1.3),
    "box": lambda g: -2.0 * np.sign(g),
    "ksupport": lambda g: -2.0 * top(g, 3) / np.linalg.norm(top(g, 3)),
}
SETS = {name: FRANK_WOLFE[f"gaussian-{name}"]["feasible"] for name in ORACLES}
EXACT: dict[str, tuple[dict[str, Any], str]] = {
    "radius": ({"noise": "selection", "radius": 2.0}, "l1"),
    "laplace": ({"noise": "selection", "feasible": L1Ball(2.0), "selection": "laplace"}, "l1"),
    "permute_and_flip": ({"noise": "selection", "radius": 2.0, "selection": "permute_and_flip"}, "l1"),
    **{name: ({"noise": "selection", "feasible": SETS[name]}, name) for name in ("simplex", "polytope")},
    **{f"gaussian-{name}": ({"noise": "gaussian", "feasible": SETS[name], "averaging": False}, name) for name in SETS},
    "averaged-l1": ({"noise": "gaussian", "feasible": L1Ball(2.0)}, "l1"),
    "averaged-l2": ({"noise": "gaussian", "feasible": L2Ball(2.0)}, "l2"),
}


def plain_frank_wolfe(
    X: Array,
    slopes: Callable[[Array], Array],
    oracle: Callable[[Array], Array],
    *,
    n_iter: int,
    constant: float,
    averaged: bool = False,
    outputs: int = 1,
) -> Array:
    """The paper's loop on plain arrays, with a constant column: weights of shape (parameters, outputs).

    It starts from 0; where 0 is not in the set, from the first vertex.
    """
    A = np.column_stack([X, np.full(len(X), constant)]) if constant else X
    w = np.zeros((A.shape[1], outputs))
    if oracle is ORACLES["simplex"]:
        w[0] = 2.0
    if oracle is ORACLES["polytope"]:
        w[:] = VERTICES[0, : A.shape[1], None]
    g = np.zeros_like(w)
    for t in range(1, n_iter + 1):
        new = A.T @ slopes(A @ w) / len(A)
        g = (1 - t ** (-2 / 3)) * g + t ** (-2 / 3) * new if averaged else new
        mu = 2 / (t + 2)
        w = (1 - mu) * w + mu * np.apply_along_axis(oracle, 0, g)
    return w


@reduce_to_pairs()
@pytest.mark.parametrize("loss", BUT_POISSON)
@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_it_is_the_non_private_method(
    recorder: type[RecordingCurator], loss: str, case: str, fit_intercept: bool
) -> None:
    """epsilon=None is Frank-Wolfe with steps 2/(t + 2), to 1e-10, for every set, loss and kind of noise."""
    parameters, name = EXACT[case]
    if name == "polytope" and not fit_intercept:
        parameters = {**parameters, "feasible": Polytope(vertices=VERTICES[:, :D])}
    X, y = problem(loss)
    method = FrankWolfe(n_iter=9, **parameters)
    model = model_for(loss, None, method, n_nonzero=D, loss=loss, bounds=None, fit_intercept=fit_intercept).fit(X, y)
    constant = method.settings(recorder.facts[-1]).intercept_value
    assert (constant > 0) == fit_intercept
    averaged = parameters["noise"] == "gaussian" and method.averaging
    w = plain_frank_wolfe(X, slopes_of(loss, y), ORACLES[name], n_iter=9, constant=constant, averaged=averaged)
    np.testing.assert_allclose(np.ravel(model.coef_), w[:D, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.ravel(model.intercept_), constant * w[D:].sum(), rtol=0, atol=1e-10)
    assert np.count_nonzero(w) >= 1


@pytest.mark.parametrize("case", ["radius", "simplex", "polytope", "gaussian-l1", "gaussian-l2", "averaged-l1"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_without_noise_on_three_classes(recorder: type[RecordingCurator], case: str, loss: str) -> None:
    """One vertex for each class in a step: softmax, and one against the rest."""
    X, y = problem("classification", n_classes=3)
    slopes = slopes_of(loss, y, n_classes=3)
    parameters, name = EXACT[case]
    method = FrankWolfe(n_iter=9, **parameters)
    model = model_for("classification", None, method, n_nonzero=D, loss=loss, bounds=None).fit(X, y)
    constant = method.settings(recorder.facts[-1]).intercept_value
    averaged = parameters["noise"] == "gaussian" and method.averaging
    w = plain_frank_wolfe(X, slopes, ORACLES[name], n_iter=9, constant=constant, averaged=averaged, outputs=3)
    np.testing.assert_allclose(model.coef_, w[:D].T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, constant * w[D], rtol=0, atol=1e-10)


@reduce_to_pairs()
@pytest.mark.parametrize("case", ["radius", "laplace", "simplex", "polytope", "gaussian-l1", "gaussian-l2"])
@pytest.mark.parametrize("loss", BUT_POISSON)
@pytest.mark.parametrize("clip", [0.2, 1e6])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_private_plan_without_its_noise(case: str, loss: str, clip: float, convert: Any) -> None:
    """With a budget's settings and noise times 0: the non-private method on slopes clipped row by row.

    A row's contribution is cut to clip × row bound, in ℓ∞ for choices and in ℓ2 for gradients; the large clip cuts
    nothing, since bounds on slopes at the public weights hold.
    """
    parameters, name = EXACT[case]
    X, y = problem(loss)
    a, linf = 0.25, np.abs(X).max(axis=1)
    two = 1.001 * float(np.linalg.norm(X, axis=1).max())
    public = facts(n_rows=len(X), n_features=D, n_nonzero=D, loss=LOSSES[loss](), row_l2=two, row_linf=1.0, label=5.0)
    method = FrankWolfe(n_iter=15, clip=clip, **parameters)
    method.settings = lambda public: replace(FrankWolfe.settings(method, public), intercept_value=a)  # type: ignore
    weights = run_without_noise(method, public, convert(X), signed(loss, y))
    unclipped = slopes_of(loss, y)

    def slopes(m: Array) -> Array:
        if parameters["noise"] == "selection":
            cap = clip * 1.0 / np.maximum(linf, a)
        else:
            cap = clip * math.hypot(two, a) / np.hypot(np.linalg.norm(X, axis=1), a)
        return np.clip(unclipped(m), -cap[:, None], cap[:, None])

    w = plain_frank_wolfe(X, slopes, ORACLES[name], n_iter=15, constant=a)
    np.testing.assert_allclose(weights[:, 0], np.append(w[:D, 0], a * w[D, 0]), rtol=0, atol=1e-10)


def test_clipping_changes_the_model_of_the_test_above() -> None:
    """The small clip of the test above is not without effect."""
    X, y = problem("regression")
    free, cut = (
        plain_frank_wolfe(X, slopes, ORACLES["l1"], n_iter=15, constant=0.25)
        for slopes in (slopes_of("squared", y), lambda m: np.clip(m - y[:, None], -0.2, 0.2))
    )
    assert not np.allclose(free, cut, atol=1e-2)


@pytest.mark.parametrize("noise", ["selection", "gaussian"])
def test_the_steps_are_2_over_t_plus_2(noise: Any) -> None:
    """On one feature that explains all, every vertex is the same: |w_T| is radius × (1 - product of t/(t + 2)).

    After one step 2/3 of the radius, after two 5/6; steps of 2/(t + 1) would reach all of it at once.
    """
    X = np.linspace(-1, 1, 40)[:, None]
    for n_iter, part in ((1, 2 / 3), (2, 5 / 6), (3, 9 / 10), (10, 1 - 2 / (11 * 12))):
        method = FrankWolfe(n_iter=n_iter, noise=noise, feasible=L1Ball(3.0))
        model = SparseRegressor(None, method=method, fit_intercept=False).fit(X, 100 * X[:, 0])
        assert model.coef_[0] == pytest.approx(3.0 * part, rel=1e-12)


def test_it_converges_without_privacy() -> None:
    """On a ball that holds the truth in its inside, 3000 steps predict labels to 3 % of their variance."""
    X, y = problem("regression", n=400)
    for parameters in ({"radius": 6.0}, {"noise": "gaussian", "feasible": L2Ball(3.0)}, {"feasible": L1Ball(6.0)}):
        model = SparseRegressor(None, n_nonzero=D, method=FrankWolfe(n_iter=3000, **parameters)).fit(X, y)
        assert model.score(X, y) > 0.97


# --- the rows' format ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_float32_is_close_to_float64(convert: Any) -> None:
    """Rows in single precision lead to the same vertices without noise, at weights that differ by their rounding."""
    X, y = problem("regression", n=300)
    model = SparseRegressor(None, method=FrankWolfe(n_iter=40, radius=6.0), n_nonzero=D)
    double, single = (clone(model).fit(convert(X.astype(dtype)), y) for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=0, atol=1e-6)
    assert np.count_nonzero(double.coef_) > 2


# --- sparsity and the set --------------------------------------------------------------------------------------------


def norm_in_set(feasible: Any, w: Array) -> float:
    """How far out a point lies: at most 1 in the set."""
    size, r = np.abs(w), feasible.radius
    if isinstance(feasible, CappedL1Ball):
        return float(max(size.sum() / r, size.max() * feasible.k / r))
    if isinstance(feasible, KSupportBall):  # mixtures of vectors with |v|_2 <= r and k non-zeros
        return float(max(np.linalg.norm(w) / r, size.sum() / (r * math.sqrt(feasible.k))))
    if isinstance(feasible, Box):
        return float(size.max() / r)
    q = {L2Ball: 2.0, LqBall: getattr(feasible, "q", 0.0)}.get(type(feasible), 1.0)
    return float((size**q).sum() ** (1 / q) / r)


@pytest.mark.parametrize(
    "variant",
    [
        "gumbel", "laplace", "permute_and_flip", "simplex", "gaussian", "gaussian-radius", "gaussian-l1",
        "gaussian-simplex", "gaussian-capped", "gaussian-l2", "gaussian-lq", "gaussian-box", "gaussian-ksupport",
    ],
)  # fmt: skip
@pytest.mark.parametrize("n_iter", [1, 5, 40])
def test_weights_lie_in_the_set(recorder: type[RecordingCurator], variant: str, n_iter: int) -> None:
    """Whatever the noise, weights stay in the set; noise pushes them far towards its border."""
    X, y = problem("regression")
    method = FrankWolfe(n_iter=n_iter, **FRANK_WOLFE[variant])
    model = model_for("regression", 0.05, method, n_nonzero=D, fit_intercept=False).fit(X, y)
    feasible = method.settings(recorder.facts[-1]).feasible
    assert 0 < norm_in_set(feasible, model.coef_) <= 1 + 1e-9
    if isinstance(feasible, Simplex):
        assert np.all(model.coef_ >= 0)
        assert model.coef_.sum() == pytest.approx(2.0, rel=1e-9)
    if n_iter == 1:
        assert norm_in_set(feasible, model.coef_) >= 2 / 3 - 1e-9


def test_weights_lie_in_the_polytope() -> None:
    """Every output is a mixture of vertices: coordinates over independent vertices say so."""
    vertices = np.random.default_rng(3).normal(size=(D, D))
    for noise in ("selection", "gaussian"):
        method = FrankWolfe(n_iter=6, noise=noise, feasible=Polytope(vertices=vertices))
        X, y = problem("classification", n_classes=3)
        model = model_for("classification", 0.1, method, n_nonzero=D, fit_intercept=False).fit(X, y)
        shares = np.linalg.solve(vertices.T, model.coef_.T)
        assert np.all(shares >= -1e-9)
        np.testing.assert_allclose(shares.sum(axis=0), 1.0, rtol=1e-9)


def test_the_intercept_is_kept_whatever_its_size() -> None:
    """One weight is kept among twelve; the intercept survives beside it, and there is none without a column for it."""
    X, y = problem("regression", n=300)
    y = y + 3.0
    model = SparseRegressor(None, n_nonzero=1, method=FrankWolfe(radius=8.0)).fit(X, y)
    assert np.count_nonzero(model.coef_) == 1
    assert model.intercept_ > 1.0
    assert SparseRegressor(None, n_nonzero=1, method="frank_wolfe", fit_intercept=False).fit(X, y).intercept_ == 0.0


# --- the paper's noise -----------------------------------------------------------------------------------------------

# privacy.md section 5: epsilon, delta, T, published Laplace scale in units of L1 c / n, the provable epsilon of it, the
# rigorous scale for Laplace noise, to the digits given there. Its epsilon is for T choices; the last column is for the
# T - 1 that Algorithm 2 makes. The column for Gumbel noise is lower than there (1 at 1e-5, T = 400: 161.6): choices are
# taken together now.
TABLE = """
.5 1e-5 50  135.7 .74  194.5 100.3      .731
1  1e-5 10  30.3  1.31 39.7  24.2       1.18
1  1e-5 50  67.9  1.59 103.0 53.2       1.57
1  1e-5 400 191.9 1.62 297.6 149.7      1.62
2  1e-5 50  33.9  3.44 55.1  28.4       3.39
4  1e-5 50  17.0  7.58 29.7  15.4       7.56
4  1e-5 400 48.0  7.96 86.1  43.4       7.95
8  1e-5 50  8.5   17.7 16.3  8.6        17.4
1  1e-2 50  42.9  1.31 53.0  26.8       1.31
8  1e-2 50  5.4   23.6 11.3  5.8        23.0
8  1e-2 400 15.2  25.1 32.6  16.4       25.0
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:3]))


def lasso(row: list[str], calibration: Any, **method: Any) -> SparseRegressor:
    """A fit of fewer than 1 / delta rows, so that delta itself causes no warning."""
    X, y = problem("regression", n=50)
    model = SparseRegressor(
        float(row[0]),
        float(row[1]),
        method=FrankWolfe(n_iter=int(row[2]), noise="selection", **method),
        calibration=calibration,
        bounds=Bounds(row_linf=1.0, label=3.0),
    )
    return model.fit(X, y)


@each_row
def test_the_published_noise_and_what_it_proves(recorder: type[RecordingCurator], row: list[str]) -> None:
    """The paper's scale, the epsilon that it really has in the report, and a warning that it is more than asked."""
    with pytest.warns(PrivacyWarning, match=f"published noise for epsilon = {float(row[0]):g} proves only epsilon = "):
        model = lasso(row, "published", radius=2.0)
    line = model.privacy_.bill[0]
    assert line.mechanism == "noisy max (Laplace)"
    assert 2 * line.noise_per_sensitivity == to_digits(row[3])
    assert line.count == int(row[2]) - 1
    assert model.privacy_.epsilon == to_digits(row[7])
    every = Release("vertex", LaplaceMax(NoisePerSensitivity(line.noise_per_sensitivity)), int(row[2]))
    assert epsilon((every,), float(row[1])) == to_digits(row[4])
    assert model.privacy_.asked == (float(row[0]), float(row[1]))
    # L1 = K (c K + B) for the squared loss with its 1/2: nothing is clipped, and the scale drawn is the paper's own.
    L1, c, n = 1.0 * (2.0 * 1.0 + 3.0), 2.0, 50
    drawn = [line.noise_per_sensitivity * asked.sensitivity.linf for asked in recorder.asked]
    assert len(drawn) == model.n_iter_ == int(row[2]) - 1
    np.testing.assert_allclose(
        drawn, L1 * c * math.sqrt(8 * int(row[2]) * math.log(1 / float(row[1]))) / (n * float(row[0])), rtol=1e-9
    )


@each_row
@pytest.mark.parametrize(("selection", "column"), [("laplace", 5), ("permute_and_flip", 5), ("gumbel", 6)])
def test_the_rigorous_noise_is_the_specifications(row: list[str], selection: Any, column: int) -> None:
    """Calibrated scales in the same units are those of the table, up to half a percent and its digits."""
    model = lasso(row, "rigorous", selection=selection)
    wanted = float(row[column])
    places = len(row[column].partition(".")[2])
    assert 2 * model.privacy_.bill[0].noise_per_sensitivity == pytest.approx(
        wanted, rel=0.005, abs=0.505 * 10.0**-places
    )
    assert 0.99 * float(row[0]) < model.privacy_.epsilon <= float(row[0])


@pytest.mark.parametrize("loss", BUT_POISSON)
@pytest.mark.parametrize(
    "feasible", [L1Ball(2.0), Simplex(2.0), Polytope(vertices=VERTICES)], ids=["l1", "simplex", "own"]
)
def test_nothing_is_clipped_as_published(recorder: type[RecordingCurator], loss: str, feasible: Any) -> None:
    """The clip is the largest slope that a row can have in the set."""
    X, y = problem(loss, n=50)
    method = FrankWolfe(n_iter=3, noise="selection", feasible=feasible)
    bounds = Bounds(row_linf=1.0, label=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        model_for(loss, 4.0, method, loss=loss, bounds=bounds, calibration="published").fit(X, y)
    reach = feasible.radius
    largest = {"squared": reach + 3, "huber": 1.0, "logistic": float(expit(reach)), "squared_hinge": 1 + reach}[loss]
    assert method.settings(recorder.facts[-1]).clip == pytest.approx(largest, rel=1e-12)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_published_choice_is_laplace_and_the_report_says_so(selection: Any) -> None:
    """Whatever choice is asked for, the paper's noise is Laplace, on the bill and in the line on the method."""
    with pytest.warns(PrivacyWarning):
        report = lasso(ROWS[2], "published", selection=selection).privacy_
    assert report.calibration == "published"
    assert [line.mechanism for line in report.bill] == ["noisy max (Laplace)"]
    assert "MORE than requested" in " ".join(str(report).split())
    assert "(laplace)" in report.method


@pytest.mark.parametrize(
    ("parameters", "n_classes", "delta", "message"),
    [
        ({"noise": "selection"}, 2, 0.0, "the published noise needs delta > 0"),
        (
            {"noise": "gaussian"},
            2,
            1e-5,
            "the paper prints noise for choosing vertices, .* use noise='selection' and a",
        ),
        ({"feasible": L2Ball(1.0)}, 2, 1e-5, "the paper prints noise for choosing vertices"),
        ({"noise": "selection"}, 3, 1e-5, "the paper prints noise .* of a model with one output"),
    ],
    ids=["delta-0", "gaussian", "l2", "three-classes"],
)
def test_what_the_paper_prints_no_noise_for(parameters: Any, n_classes: int, delta: float, message: str) -> None:
    """Refused with words."""
    X, y = problem("classification", n_classes=n_classes)
    model = model_for("classification", 1.0, FrankWolfe(**parameters), delta=delta, calibration="published")
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


# --- the theorem's T -------------------------------------------------------------------------------------------------

LASSO = FrankWolfe(radius=1.0, noise="selection", n_iter="theorem")


@pytest.mark.parametrize(("n", "steps"), [(1000, 159), (16_000, 1008)])
@pytest.mark.parametrize("as_published", [False, True])
def test_the_theorem_s_number_of_steps(n: int, steps: int, as_published: bool) -> None:
    """(Gamma n eps / (L1 |C|_1))^(2/3) by hand on the paper's domain: Gamma = 4, L1 = 1 + 1, |C|_1 = 1, eps = 1."""
    public = facts(n_rows=n, loss=Squared(), label=1.0, as_published=as_published, fit_intercept=False)
    method = LASSO if as_published else clone(LASSO).set_params(clip=2.0)
    settings = method.settings(public)
    assert settings.n_iter == steps == math.ceil((4 * n * 1.0 / 2) ** (2 / 3))
    assert settings.n_choices == steps - as_published
    assert method.releases(public)[0].count == method.n_iterations(public) == steps - as_published


def test_the_theorem_s_number_of_steps_follows_its_quantities() -> None:
    """Logistic loss: Gamma = (c K)², L1 = K sigmoid(c K); eight times as many rows are four times as many steps."""
    public = facts(n_rows=4000, budget=Budget(2.0, 1e-5), row_l2=50.0, as_published=True, fit_intercept=False)
    for c, K, n in product((0.5, 3.0), (1.0, 2.0), (4000, 32_000)):
        method = FrankWolfe(radius=c, noise="selection", n_iter="theorem")
        found = method.settings(replace(public, row_linf=K, n_rows=n)).n_iter
        assert found == max(2, math.ceil(((c * K) ** 2 * n * 2.0 / (K * expit(c * K) * c)) ** (2 / 3)))
    assert theorem_n_iter(10, 1e-3, 1e-3, 1.0) == 2


@pytest.mark.parametrize(
    ("method", "changes", "missing"),
    [
        (LASSO, {"budget": None}, "a privacy budget"),
        (LASSO, {"estimated": True}, r"declared bounds \(row_linf, and label for a regression\)"),
        (LASSO, {"row_linf": math.inf, "row_l2": math.inf}, r"finite bound on the entries of rows \(row_linf\)"),
        (LASSO, {"loss": Squared(), "budget": None}, "a privacy budget.*a bound on the slopes of rows"),
        (FrankWolfe(noise="gaussian", n_iter="theorem"), {}, "a set with vertices and noise='selection'"),
        (FrankWolfe(feasible=L2Ball(1.0), n_iter="theorem"), {}, "a set with vertices and noise='selection'"),
    ],
    ids=["budget", "estimated", "entries", "slopes", "gaussian", "l2"],
)
def test_a_theorem_that_cannot_be_evaluated_says_what_is_missing(
    method: FrankWolfe, changes: dict[str, Any], missing: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"n_iter='theorem'\) cannot be evaluated without .*{missing}.*or give n_iter a number"
    ):
        method.settings(facts(**changes))


def test_numbers_of_steps_that_are_none() -> None:
    """One iterate is the start alone where the paper's T is meant; without a paper it is a step."""
    with pytest.raises(ValueError, match="T - 1 vertices are chosen: it must be at least 2, got 1"):
        FrankWolfe(n_iter=1, noise="selection").settings(facts(as_published=True))
    assert FrankWolfe(n_iter=1).settings(facts()).n_choices == 1
    with pytest.raises(ValueError, match=r"FrankWolfe\(n_iter=...\) must be an integer >= 1 or 'theorem', got 'lemma'"):
        FrankWolfe(n_iter="lemma").settings(facts())  # type: ignore[arg-type]


def test_a_fit_takes_the_theorem_s_number_of_steps() -> None:
    """With either calibration; bounds that are not declared are refused before anything is asked."""
    X, y = problem("regression", n=200)
    for calibration, choices in (("published", -1), ("rigorous", 0)):
        model = SparseRegressor(
            1.0, 1e-5, method=LASSO, bounds=Bounds(row_linf=1.0, label=4.0), calibration=calibration, n_nonzero=D
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            report = model.fit(X, y).privacy_
        L1 = 5.0 if calibration == "published" else 0.5
        assert report.bill[0].count == math.ceil((4 * 200 / L1) ** (2 / 3)) + choices
    with pytest.raises(ValueError, match="cannot be evaluated without declared bounds"):
        SparseRegressor(1.0, 1e-5, method=LASSO).fit(X, y)


# --- sensitivities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "feasible", [L1Ball(2.0), Simplex(2.0), Polytope(vertices=2.0 * np.eye(D + 1))], ids=["l1", "simplex", "own"]
)
def test_the_sensitivity_of_scores_is_twice_clip_entry_and_radius_over_n(
    recorder: type[RecordingCurator], feasible: Any
) -> None:
    """2 × slope × row_linf × radius / n for the logistic loss at the start, by hand, for all three numberings.

    The slope is at most 1/2 at weights 0, and sigmoid(row_linf × radius) at a vertex.
    """
    X, y = problem("classification", n=150)
    method = FrankWolfe(n_iter=2, noise="selection", feasible=feasible, clip=7.0)
    model_for("classification", 1.0, method, bounds=Bounds(row_l2=3.0, row_linf=0.5)).fit(X, y)
    wanted = 2 * float(expit(0.5 * np.abs(feasible.start((D + 1, 1))).sum())) * 0.5 * 2.0 / 150
    assert recorder.asked[0].sensitivity.linf == pytest.approx(wanted, rel=0.05)  # levels move in steps of 2^(1/16)
    assert recorder.asked[0].sensitivity.linf >= wanted * (1 - 1e-12)


# --- defaults --------------------------------------------------------------------------------------------------------


@the_examples_of_the_rule
def test_auto_noise_on_sets_of_the_users_own(d: int, s: int, row_l2: float, row_linf: float, selection: bool) -> None:
    """The default set follows the rule of n_nonzero weights, a set with vertices one without n_nonzero; a set without
    vertices has no choice."""
    public = facts(n_features=d, n_nonzero=s, row_l2=row_l2, row_linf=row_linf)
    assert FrankWolfe().settings(public).selection is selection
    for method in (FrankWolfe(radius=2.0), FrankWolfe(feasible=Simplex(2.0))):
        own = row_linf * math.sqrt(math.log(2 * (d + 1)) / 2) < row_l2
        assert method.settings(public).selection is own
    assert not FrankWolfe(feasible=L2Ball(1.0)).settings(public).selection


def test_the_line_on_the_method_is_short() -> None:
    """The report gives the set in a few words, also a polytope of many vertices."""
    polytope = Polytope(vertices=np.random.default_rng(0).normal(size=(500, 101)))
    for feasible in (None, L1Ball(1.0), Box(1.0), polytope):
        words = FrankWolfe(feasible=feasible).describe(facts())
        assert "\n" not in words
        assert len(words) < 250


# --- bounds that are estimated ---------------------------------------------------------------------------------------


@reduce_to_pairs()
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("parameters", [{}, {"radius": 3.0}, {"feasible": L1Ball(3.0), "noise": "selection"}], ids=str)
@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("ledger", [False, True])
def test_bounds_of_any_size_can_be_estimated(scale: float, parameters: dict[str, Any], kind: str, ledger: bool) -> None:
    """The number of steps may depend on bounds that are found; no error may come once noise is drawn."""
    X, y = problem(kind, n=2000, d=50)
    model = model_for(kind, 1.0, FrankWolfe(**parameters), bounds=None)
    with Ledger(Budget(3.0, 1e-5)) if ledger else contextlib.nullcontext():
        model.fit(X if kind == "regression" else scale * X, scale * y if kind == "regression" else y)
    assert 0.99 < model.privacy_.epsilon <= 1
    assert np.all(np.isfinite(model.coef_))


# --- accuracy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [
        {"noise": "selection", "radius": 4.0},
        {"noise": "selection", "radius": 4.0, "selection": "laplace"},
        {"noise": "selection", "radius": 4.0, "selection": "permute_and_flip"},
        {"noise": "gaussian"},
        {},
    ],
    ids=["gumbel", "laplace", "permute_and_flip", "gaussian", "default"],
)
def test_an_easy_regression_is_learnt(parameters: dict[str, Any]) -> None:
    """20,000 rows, 60 features, three that count, epsilon = 2: their support in five seeds of five, and R² > 0.7.

    Seeds are fixed; of 40 others none fails in any case (a false-alarm rate below 8 % at 95 % confidence).
    """
    X, y = problem("regression", n=20_000, d=60, seed=1)
    bounds = Bounds(row_linf=1.0, row_l2=5.5, label=4.0)
    for seed in range(5):
        model = SparseRegressor(2.0, n_nonzero=3, method=FrankWolfe(**parameters), bounds=bounds, random_state=seed)
        model.fit(X, y)
        assert model.support_.tolist() == [0, 3, 7]
        assert model.score(X, y) > 0.7


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize(
    ("parameters", "everything"),
    [
        ({}, False),
        ({"noise": "selection", "radius": 12.0}, True),
        ({"noise": "gaussian", "feasible": L2Ball(4.0)}, True),
    ],
    ids=["default", "selection", "gaussian"],
)
def test_an_easy_classification_is_learnt(loss: str, parameters: dict[str, Any], everything: bool) -> None:
    """20,000 rows, 60 features, three that count, epsilon = 2, where guessing has 57 %.

    On sets that are large enough the support and at least 90 % right; by default no wrong feature and 85 %.
    Seeds are fixed; of 40 others none fails in any case (a false-alarm rate below 8 % at 95 % confidence).
    """
    X, y = problem("regression", n=20_000, d=60, seed=1)
    labels = y > 0
    bounds = Bounds(row_linf=1.0, row_l2=5.5)
    for seed in range(3):
        model = SparseClassifier(
            2.0, n_nonzero=3, method=FrankWolfe(**parameters), loss=loss, bounds=bounds, random_state=seed
        ).fit(X, labels)
        assert set(model.support_) <= {0, 3, 7}
        assert len(model.support_) >= (3 if everything else 2)
        assert model.score(X, labels) > (0.9 if everything else 0.85)


def test_a_simplex_finds_the_mixture() -> None:
    """Labels that are a mixture of features with shares 0.6, 0.3 and 0.1: weights within 0.1 of them at epsilon = 4."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 1, (20_000, 30))
    y = X[:, [2, 5, 9]] @ [0.6, 0.3, 0.1]
    method = FrankWolfe(feasible=Simplex(1.0), noise="selection", n_iter=60)
    model = SparseRegressor(
        4.0, n_nonzero=30, method=method, bounds=Bounds(row_linf=1.0, label=1.0), fit_intercept=False, random_state=0
    ).fit(X, y)
    truth = np.zeros(30)
    truth[[2, 5, 9]] = 0.6, 0.3, 0.1
    assert np.abs(model.coef_ - truth).max() < 0.1
