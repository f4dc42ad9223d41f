"""Hard thresholding and knowledge transfer with delta = 0: every release is purely private and epsilons add up."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import fits
import numpy as np
import pytest
from fits import RecordingCurator, assert_storage_does_not_matter, facts, model_for, problem

from tulle import Bounds, Budget, SparseClassifier, SparseRegressor
from tulle.methods import HardThresholding, KnowledgeTransfer
from tulle.methods.noise_scales import tellable_directions
from tulle.transfer.public_features import UniformFeatures
from tulle.trusted.accountants import epsilon
from tulle.trusted.mechanisms import Gaussian, Laplace, TopK
from tulle.trusted.objectives import Minimiser
from tulle.trusted.rows import Rows

recorder = fits.recorder
PURE = facts(budget=Budget(1.0, 0.0), n_nonzero=5)


@pytest.mark.parametrize("noise", ["auto", "selection", "laplace"])
@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("size", [0.1, 1.0, 20.0])
def test_delta_0_proves_epsilon_and_nothing_more(noise: Any, n_classes: int, size: float) -> None:
    """(epsilon, 0) is proved by adding up, nearly all of it is used, and no release needs a delta."""
    target = fits.target_of(n_classes)
    X, y = problem(target, n_classes=n_classes)
    model = model_for(target, size, HardThresholding(noise=noise), delta=0.0, n_nonzero=3).fit(X, y)
    assert model.privacy_.delta == 0
    assert 0.999 * size < model.privacy_.epsilon <= size
    assert model.privacy_.accountant == "pure composition"


@pytest.mark.parametrize("method", ["hard_thresholding", "auto"])
@pytest.mark.parametrize("estimator", [SparseClassifier, SparseRegressor])
def test_by_name_and_by_default(method: str, estimator: Any) -> None:
    """The methods that are named "hard_thresholding" and "auto" fit with delta = 0, with estimated bounds too."""
    X, y = problem(fits.target_of(2 * (estimator is SparseClassifier)))
    model = estimator(1.0, 0.0, method=method, bounds=Bounds(), random_state=0).fit(X, y)
    assert (model.privacy_.epsilon, model.privacy_.delta) == (pytest.approx(1.0, abs=1e-6), 0.0)
    assert "hard thresholding" in model.privacy_.method


@pytest.mark.parametrize("noise", ["selection", "laplace"])
@pytest.mark.parametrize("step", [None, 0.5])
def test_what_is_asked_equals_the_plan(recorder: type[RecordingCurator], noise: Any, step: float | None) -> None:
    X, y = problem("classification")
    method = HardThresholding(noise=noise, step=step)
    model = model_for("classification", 1.0, method, delta=0.0, n_nonzero=3).fit(X, y)
    planned = {release.name: release.count for release in method.releases(recorder.facts[-1])}
    assert Counter(asked.name for asked in recorder.asked) == planned
    assert {line.release: line.count for line in model.privacy_.bill} == planned
    assert set(planned) == ({"select", "values"} if noise == "selection" else {"step"}) | (
        {"curvature"} if step is None else set()
    )


def test_shares_of_epsilon_are_those_asked_for() -> None:
    """Choices, values and curvature cost selection_share, its rest and damping, in parts of epsilon."""
    method = HardThresholding(noise="selection", selection_share=0.7, damping=0.1, n_iter=4)
    select, values, curvature = method.releases(PURE)
    whole = epsilon((select, values, curvature), 0.0)
    parts = [epsilon([release], 0.0) / whole for release in (select, values, curvature)]
    np.testing.assert_allclose(parts, [0.9 * 0.7, 0.9 * 0.3, 0.1], rtol=1e-9)
    assert [type(release.mechanism) for release in (select, values, curvature)] == [TopK, Laplace, Laplace]


def test_laplace_noise_without_a_delta_of_0_is_purely_private_too() -> None:
    """noise="laplace" never draws Gaussian noise; the other kinds do as long as there is a delta."""
    for noise, kind in (("laplace", Laplace), ("gaussian", Gaussian)):
        assert {type(r.mechanism) for r in HardThresholding(noise=noise).releases(facts(n_nonzero=5))} == {kind}


@pytest.mark.parametrize(
    ("noise", "kept"), [("laplace", 100), ("selection", 50)], ids=["on the whole step", "on chosen coordinates"]
)
def test_the_noise_has_the_scale_of_its_l1_sensitivity(noise: Any, kept: int) -> None:
    """Rows that hold nothing: weights are noise. Its mean magnitude is sqrt(coordinates) 2 C / (n epsilon) of its part.

    2,000 draws err by 2.3 % in standard deviation: 2/3 and 3/2 of the scale fail, and a true scale fails once in 1e9.
    """
    d, n, share = 100, 50, 0.5
    method = HardThresholding(noise=noise, n_iter=1, step=1.0, clip=0.5, selection_share=share)
    drawn = []
    for seed in range(20 * d // kept):
        model = SparseClassifier(
            1.0, 0.0, n_nonzero=kept, method=method, bounds=Bounds(row_l2=2.0), fit_intercept=False, random_state=seed
        ).fit(np.zeros((n, d)), np.arange(n) % 2)
        drawn.append(model.coef_[model.coef_ != 0])
    magnitudes = np.abs(np.concatenate(drawn))
    scale = math.sqrt(d) * 2 * 0.5 * 2.0 / n
    if noise == "selection":  # on half of the features a row is clipped to 1.25 sqrt(1/2) of its bound
        scale = math.sqrt(kept + 1) * 2 * 0.5 * (2.0 * 1.25 * math.sqrt(kept / d)) / (n * (1 - share))
    assert len(magnitudes) > 1_900
    assert scale * 0.85 < magnitudes.mean() < scale * 1.15
    # Laplace's law, not another one of that mean: half of the magnitudes are below log(2) scales.
    assert np.median(magnitudes) == pytest.approx(math.log(2) * magnitudes.mean(), rel=0.15)


@pytest.mark.parametrize("noise", ["selection", "laplace"])
def test_dense_csr_and_csc_give_the_same_weights(noise: Any) -> None:
    X, y = problem("regression", n=200)
    X[np.abs(X) < 0.5] = 0.0
    assert_storage_does_not_matter(model_for("regression", 50.0, HardThresholding(noise=noise), delta=0.0), X, y)


def test_gaussian_noise_is_refused_and_so_is_published_noise() -> None:
    X, y = problem("classification")
    laplace = HardThresholding(noise="laplace")
    with pytest.raises(ValueError, match=r"noise='gaussian'\) cannot give delta = 0; use noise='selection'"):
        model_for("classification", 1.0, HardThresholding(noise="gaussian"), delta=0.0).fit(X, y)
    with pytest.raises(ValueError, match="published noise needs delta > 0"):
        model_for("classification", 1.0, laplace, delta=0.0, calibration="published").fit(X, y)
    with pytest.raises(ValueError, match="no paper prints noise for noise='laplace'"):
        model_for("classification", 1.0, laplace, calibration="published").fit(X, y)


@pytest.mark.parametrize(
    ("d", "s", "row_l2", "selection"),
    [(1000, 10, math.sqrt(1000 / 3), True), (100, 5, 5.0, True), (12, 6, 1.0, False), (47_236, 500, 1.0, False)],
)
def test_auto_noise_compares_l1_sensitivities(d: int, s: int, row_l2: float, selection: bool) -> None:
    """s choices that share epsilon, 2 s row_linf, against Laplace noise on all features, sqrt(d) row_l2."""
    public = facts(budget=Budget(1.0, 0.0), n_features=d, n_nonzero=s, row_l2=row_l2, row_linf=1.0)
    assert HardThresholding().settings(public).selection is selection


def test_fewer_weights_are_kept_by_default() -> None:
    """With delta = 0 the noise on a score grows with s, with a delta as sqrt(s)."""
    few, many = (HardThresholding().default_nonzero(facts(budget=Budget(1.0, delta))) for delta in (0.0, 1e-5))
    assert 1 < few < many
    assert HardThresholding().default_nonzero(facts(budget=Budget(4.0, 0.0), n_rows=10**6)) == 100


@pytest.mark.parametrize(("target", "least"), [("classification", 0.8), ("regression", 0.9)])
def test_it_learns(target: str, least: float) -> None:
    """Three of 12 features, 3,000 rows, epsilon = 1 and delta = 0."""
    X, y = problem(target, n=3_000)
    bounds = Bounds(row_l2=2.2, row_linf=1.0, label=3.0)
    model = model_for(target, 1.0, "hard_thresholding", delta=0.0, n_nonzero=3, bounds=bounds).fit(X, y)
    assert model.score(X, y) > least


# --- knowledge transfer ----------------------------------------------------------------------------------------------

FEATURES = UniformFeatures(-1, 1)


@pytest.mark.parametrize("variant", ["sparse", "dense"])
@pytest.mark.parametrize("perturbation", ["objective", "output"])
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_a_teacher_with_delta_0_is_purely_private(
    recorder: type[RecordingCurator], variant: Any, perturbation: Any, n_classes: int
) -> None:
    """Its noise goes on the minimiser, by Laplace's law; what was asked is the plan; the student costs nothing."""
    target = fits.target_of(n_classes)
    X, y = problem(target, n_classes=n_classes)
    loss = "squared_hinge" if n_classes else "squared"
    method = KnowledgeTransfer(variant, FEATURES, n_public=50, student=None, perturbation=perturbation)
    model = model_for(target, 1.0, method, delta=0.0, n_nonzero=3, loss=loss).fit(X, y)
    assert (model.privacy_.delta, model.privacy_.accountant) == (0.0, "pure composition")
    assert 0.999 < model.privacy_.epsilon <= 1.0
    planned = method.releases(recorder.facts[-1])
    assert Counter(asked.name for asked in recorder.asked) == {release.name: release.count for release in planned}
    assert {type(release.mechanism) for release in planned} <= {TopK, Laplace}


def test_noise_on_a_teacher_has_the_scale_of_its_l1_sensitivity() -> None:
    """Rows that hold nothing: the minimiser is 0, and the teacher is noise of scale sqrt(d) 2 tau K / (n lambda eps).

    2,000 draws err by 2.3 % in standard deviation: 2/3 and 3/2 of the scale fail.
    """
    d, n = 100, 50
    method = KnowledgeTransfer(
        "dense", perturbation="output", slope_clip=0.5, row_bound=2.0, penalty=0.1, student=None, directions=None
    )
    drawn = [
        SparseClassifier(
            1.0, 0.0, n_nonzero=d, method=method, bounds=Bounds(row_l2=2.0), fit_intercept=False, random_state=seed
        )
        .fit(np.zeros((n, d)), np.arange(n) % 2)
        .coef_
        for seed in range(20)
    ]
    scale = math.sqrt(d) * 2 * 0.5 * 2.0 / (n * 0.1)
    assert scale * 0.85 < np.abs(drawn).mean() < scale * 1.15


def test_a_teacher_on_rows_in_a_row_bound_moves_so_far_in_l1() -> None:
    """One row of equal entries, turned around, moves the minimiser by nearly its l1 sensitivity."""
    d, penalty = 4, 50.0
    public = facts(n_rows=1, n_features=d, n_nonzero=d, row_l2=1.0, fit_intercept=False)
    query = Minimiser(np.arange(d), 0.1, 1.0, penalty, np.zeros(d), itself=True)
    row = np.full((1, d), 0.5)
    answers = [query.evaluate(Rows(x, np.ones(1)), public).to_dense() for x in (row, -row)]
    moved, declared = float(np.abs(answers[0] - answers[1]).sum()), query.sensitivity(public).l1
    assert 0.99 * declared < moved <= declared


def test_fewer_directions_with_delta_0() -> None:
    few, many = (tellable_directions(facts(n_rows=10_000, budget=Budget(1.0, delta))) for delta in (0.0, 1e-5))
    assert (few, many) == (27, 191)


def test_a_student_learns_from_a_purely_private_teacher() -> None:
    """Three of 12 features, 4,000 rows, epsilon = 2 and delta = 0."""
    X, y = problem("regression", n=4_000)
    bounds = Bounds(row_l2=2.2, row_linf=1.0, label=3.0)
    method = KnowledgeTransfer("sparse", FEATURES)
    model = model_for("regression", 2.0, method, delta=0.0, n_nonzero=3, bounds=bounds).fit(X, y)
    assert model.score(X, y) > 0.85
