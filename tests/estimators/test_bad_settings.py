"""Settings of estimators and methods that cannot be: a clear error before anything is billed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import test_bad_input
from pairwise import reduce_to_pairs
from sklearn.linear_model import Lasso, LogisticRegression
from test_bad_input import BOUNDS, LABELS, D, N, X, both, with_entry

from tulle import Bounds, Ledger, SparseClassifier, SparseRegressor
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import (
    CoordinateDescent,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    StochasticHardThresholding,
)
from tulle.methods.feasible_sets import Box, CappedL1Ball, KSupportBall, L1Ball, L2Ball, LqBall, Polytope, Simplex
from tulle.methods.loss_functions import Huber, Logistic, Poisson, Squared
from tulle.transfer.public_features import GaussianFeatures, UniformFeatures

generators, no_noise = test_bad_input.generators, test_bad_input.no_noise


@reduce_to_pairs()
@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        (
            {"method": "magic"},
            ValueError,
            "method='magic' is unknown; choose one of ['auto', 'fit_again', 'screen_refine', 'two_stage', "
            "'hard_thresholding', 'stochastic_hard_thresholding', 'frank_wolfe', 'coordinate_descent', "
            "'knowledge_transfer'], or pass an object",
        ),
        (
            {"method": 3},
            TypeError,
            "method=3 is not a method: it lacks assumptions, bounds_wanted, default_nonzero, describe, doubt, "
            "failed_conditions, infer, n_iterations, n_passes, n_thresholds, only_published, published, publishes_rho, "
            "releases, resolve, run, signal_to_noise, split, takes_offsets, teach, with_columns, with_public; derive "
            "it from tulle.methods.base.MethodBase",
        ),
        ({"loss": "magic"}, ValueError, "loss='magic' is unknown for "),
        ({"loss": 3}, TypeError, "the loss 3 lacks kind, curvature"),
        ({"calibration": "magic"}, ValueError, "calibration must be 'rigorous' or 'published', got 'magic'"),
        ({"n_nonzero": 0}, ValueError, "n_nonzero must be an integer >= 1 or None, got 0"),
        ({"n_nonzero": -3}, ValueError, "n_nonzero must be an integer >= 1 or None, got -3"),
        ({"n_nonzero": 2.0}, ValueError, "n_nonzero must be an integer >= 1 or None, got 2.0"),
        ({"n_nonzero": "all"}, ValueError, "n_nonzero must be an integer >= 1 or None, got 'all'"),
        (
            {"random_state": "seed"},
            ValueError,
            "random_state must be None, an integer >= 0, a RandomState or a Generator",
        ),
        ({"random_state": 1.5}, ValueError, "random_state must be None, an integer >= 0, a RandomState or a Generator"),
        ({"random_state": np.random}, ValueError, "random_state must be None, an integer >= 0, a RandomState"),
        ({"random_state": -1}, ValueError, "random_state"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_unknown_settings(cls: Any, epsilon: float | None, parameters: Any, error: Any, message: str) -> None:
    """Settings of the front door, each with what may be chosen instead, with and without privacy."""
    with pytest.raises(error, match=re.escape(message)):
        cls(**{"epsilon": epsilon, "bounds": BOUNDS, **parameters}).fit(X, LABELS[cls])


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("cls", "loss", "message"),
    [
        (SparseClassifier, "squared", "loss='squared' is unknown for classification; choose one of ['logistic'"),
        (SparseRegressor, "logistic", "loss='logistic' is unknown for regression; choose one of ['squared'"),
        (SparseClassifier, Squared(), "the loss Squared() is for regression; this estimator does classification"),
        (SparseRegressor, Logistic(), "the loss Logistic() is for classification; this estimator does regression"),
    ],
)
def test_a_loss_of_the_other_kind(cls: Any, loss: Any, message: str) -> None:
    """Losses of regression do not classify, and the other way round."""
    with pytest.raises(ValueError, match=re.escape(message)):
        cls(loss=loss, bounds=BOUNDS).fit(X, LABELS[cls])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Huber(0.0), "Huber's threshold must be a finite number > 0, got 0.0"),
        (lambda: Huber(np.nan), "Huber's threshold must be a finite number > 0, got nan"),
        (lambda: Poisson(0.0), "Poisson's cap must lie in (0, 100], got 0.0"),
        (lambda: Poisson(1e3), "Poisson's cap must lie in (0, 100], got 1000.0"),
    ],
    ids=["huber-0", "huber-nan", "poisson-0", "poisson-1000"],
)
def test_parameters_of_losses(make: Any, message: str) -> None:
    """Thresholds and caps."""
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("n_iter", value, "must be an integer >= 1") for value in (0, -1, 2.5, "many")),
        *(("step", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf, "long")),
        *(("clip", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf)),
        *(("clip_decay", value, "must lie in (0, 1]") for value in (0, 1.5, np.nan)),
        *(
            ("noise", value, "must be one of ('auto', 'gaussian', 'selection', 'laplace')")
            for value in ("exponential", None)
        ),
        *(("selection_share", value, "must lie in (0, 1)") for value in (0, 1, np.nan)),
        *(("penalty", value, "must be a finite number >= 0") for value in (-0.1, np.nan, np.inf)),
        *(("ball", value, "must be a finite number > 0") for value in (0, -1.0, np.nan)),
        ("published_rule", "theorem_1", "must be one of ('remark_5.3', 'corollary_5.6', 'corollary_5.8', 'ldp')"),
        *(("published_constant", value, "must be a finite number > 0") for value in (0, -1.0, np.inf)),
        *(("weight_norm", value, "must be a finite number > 0") for value in (0, -1.0, np.inf)),
        *(("label_noise", value, "must be a finite number >= 0") for value in (-1.0, np.nan)),
    ],
    ids=str,
)
def test_parameters_of_hard_thresholding(cls: Any, name: str, value: Any, message: str) -> None:
    """Each parameter of the method, with its name, its range and the value in the message."""
    wanted = f"HardThresholding({name}=...) {message}, got {value!r}"
    with pytest.raises(ValueError, match=re.escape(wanted)):
        cls(method=HardThresholding(**{name: value}), bounds=BOUNDS).fit(X, LABELS[cls])


IN_STEPS = [
    *(("n_iter", value, "must be an integer >= 1") for value in (0, -1, 2.5)),
    *(("clip", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf)),
    *(("noise", value, "must be one of ('auto', 'selection', 'gaussian')") for value in ("laplace", None)),
    ("engine", "fast", "must be one of ('auto', 'incremental', 'plain')"),
]
OF_FRANK_WOLFE = [
    ("n_iter", "many", "must be an integer >= 1 or 'theorem'"),
    *(("radius", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf, "wide", True)),
    *(("selection", value, "must be one of ('gumbel', 'laplace', 'permute_and_flip')") for value in ("max", None)),
]
OF_COORDINATE_DESCENT = [
    ("n_iter", "many", "must be an integer >= 1"),
    *(("block", value, "must be an integer >= 1") for value in (0, -1, 2.5, "all")),
    *(("step", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf, "long")),
    *(("last_clip", value, "must lie in (0, 1]") for value in (0, 1.5, np.nan)),
    *(("selection_share", value, "must lie in (0, 1)") for value in (0, 1, np.nan, None)),
]
ON_BATCHES = [
    ("variant", "saga", "must be one of ('sgd', 'scsg', 'svrg')"),
    ("variant", None, "must be one of ('sgd', 'scsg', 'svrg')"),
    *(("batch", value, "must be an integer >= 1") for value in (0, -1, 2.5, "half", True)),
    *(("snapshot_batch", value, "must be an integer >= 1") for value in (0, 2.5, "half", True)),
    *(("passes", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf, "many", True)),
    *(
        ("sampling", value, "must be one of ('poisson', 'without_replacement', 'shuffled')")
        for value in ("bootstrap", 1, True)
    ),
    *(("option", value, "must be one of ('I', 'II')") for value in ("III", 1, None)),
    *(("schedule_seed", value, "must be an integer >= 0") for value in (-1, 0.5, None, "now")),
    *(("memory", value, "must be an integer >= 1") for value in (0, 2.5, "all")),
    *(("step", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf, "long")),
    *(("damping", value, "must lie in [0, 1)") for value in (-0.1, 1, np.nan, None)),
    *(("average", value, "must lie in [0, 1]") for value in (-0.1, 1.1, np.nan, None, True)),
    *(("clip", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf)),
    *(("difference_clip", value, "must lie in (0, 2]") for value in (0, 2.1, np.nan, None)),
    *(("penalty", value, "must be a finite number >= 0") for value in (-0.1, np.nan, np.inf)),
    *(("lazy_noise", value, "must be one of (True, False)") for value in ("yes", None)),
    *(("published_constants", value, "must be one of ('printed', 'intended')") for value in ("both", None)),
]

OF_KNOWLEDGE_TRANSFER = [
    *(("variant", value, "must be one of ('sparse', 'dense', 'published')") for value in ("kt", None)),
    *(("perturbation", value, "must be one of ('objective', 'output')") for value in ("gradient", None)),
    *(("noise", value, "must be one of ('auto', 'gaussian', 'selection')") for value in ("laplace", None)),
    *(("unshrink", value, "must be one of ('auto', True, False)") for value in ("yes", None)),
    *(("n_public", value, "must be an integer >= 2") for value in (1, 0, 2.5, "all", True)),
    *(("directions", value, "must be an integer >= 1") for value in (0, -1, 2.5, "all", True)),
    *(("n_iter", value, "must be an integer >= 1") for value in (0, -1, 2.5, None)),
    *(("student_iter", value, "must be an integer >= 1") for value in (0, -1, 2.5, "many")),
    *(("screening_share", value, "must lie in (0, 1)") for value in (0, 1, np.nan, "half")),
    *(
        (name, value, "must be a finite number > 0")
        for name in ("clip", "slope_clip", "gradient_bound", "sparse_eigenvalue", "teacher_step", "student_step")
        for value in (0, -1.0, np.nan, np.inf, "long", True)
    ),
    *(
        (name, value, "must lie in [1e-100, 1e100]")
        for name in ("row_bound", "penalty")
        for value in (0, -1.0, 1e-101, 1e101, np.nan, np.inf, "long", True)
    ),
    *(("published_constant", value, "must be a finite number > 0") for value in (0, -1.0, np.inf, None)),
    *(("student", value, "must be 'auto', 'ight', None or an estimator") for value in ("lasso", "")),
]


@reduce_to_pairs()
@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize(
    ("method", "name", "value", "message"),
    [
        *((FrankWolfe, *case) for case in (*IN_STEPS, *OF_FRANK_WOLFE)),
        *((CoordinateDescent, *case) for case in (*IN_STEPS, *OF_COORDINATE_DESCENT)),
        *((StochasticHardThresholding, *case) for case in ON_BATCHES),
        *((KnowledgeTransfer, *case) for case in OF_KNOWLEDGE_TRANSFER),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_parameters_of_methods(cls: Any, epsilon: Any, method: Any, name: str, value: Any, message: str) -> None:
    """Each parameter, with its name, its range and the value in the message."""
    wanted = f"{method.__name__}({name}=...) {message}, got {value!r}"
    with pytest.raises(ValueError, match=re.escape(wanted)):
        cls(epsilon, method=method(**{name: value}), bounds=BOUNDS).fit(X, LABELS[cls])


@reduce_to_pairs()
@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        (
            {"feasible": 3.0},
            TypeError,
            "FrankWolfe(feasible=...) must be an object of tulle.methods.feasible_sets, got 3.0",
        ),
        ({"feasible": L1Ball}, TypeError, "FrankWolfe(feasible=...) must be an object of tulle.methods.feasible_sets"),
        ({"feasible": L1Ball(1.0), "radius": 1.0}, ValueError, "`feasible` has a radius of its own"),
        *(
            ({"feasible": feasible, "noise": "selection"}, ValueError, "has no vertices to choose among; use noise=")
            for feasible in (L2Ball(1.0), LqBall(1.0), Box(1.0), CappedL1Ball(1.0, 2), KSupportBall(1.0, 2))
        ),
        (
            {"feasible": Polytope(vertices=np.eye(D))},
            ValueError,
            "the polytope's vertices have 5 entries, but the model has 6 parameters (5 features and the constant "
            "column); fit_intercept=False leaves the constant column out",
        ),
        ({"feasible": Polytope(vertices=np.eye(9)), "noise": "gaussian"}, ValueError, "vertices have 9 entries"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_sets_that_frank_wolfe_cannot_use(cls: Any, epsilon: Any, parameters: Any, error: Any, message: str) -> None:
    """Things that are no sets, two radii, sets without vertices, polytopes in another space."""
    with pytest.raises(error, match=re.escape(message)):
        cls(epsilon, method=FrankWolfe(**parameters), bounds=BOUNDS).fit(X, LABELS[cls])


NARROW, BROKEN = np.ones((9, D - 1)), with_entry(np.ones((9, D)), np.nan)
ENDLESS = with_entry(np.ones((9, D)), np.inf)


@reduce_to_pairs()
@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("variant", ["sparse", "dense", "published"])
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        pytest.param(
            {"features": NARROW}, ValueError, "the public features have 4 columns, the private rows 5", id="narrow"
        ),
        pytest.param({"features": sp.csr_array(NARROW)}, ValueError, "the public features have 4 columns", id="csr"),
        pytest.param({"features": BROKEN}, ValueError, "Input public features contains NaN", id="nan"),
        pytest.param({"features": ENDLESS}, ValueError, "Input public features contains infinity", id="inf"),
        pytest.param(
            {"features": sp.csr_array(BROKEN)}, ValueError, "Input public features contains NaN", id="nan csr"
        ),
        pytest.param({"features": X[:1].copy()}, ValueError, "Found array with 1 sample(s)", id="one row"),
        pytest.param({"features": X[0].copy()}, ValueError, "Expected 2D array, got 1D array instead", id="1-d"),
        pytest.param({"features": 3.0}, ValueError, "Expected 2D array, got scalar array instead", id="a number"),
        pytest.param({"features": "uniform"}, TypeError, "are a distribution such as UniformFeatures", id="a word"),
        pytest.param({"student": Lasso}, TypeError, "is a class; pass an object, Lasso()", id="a class"),
        pytest.param(
            {"features": GaussianFeatures(np.eye(4))},
            ValueError,
            "GaussianFeatures(covariance=...) is for 4 features, not 5",
            id="a law of other rows",
        ),
        pytest.param(
            {"features": GaussianFeatures(1.0, np.zeros(6))},
            ValueError,
            "GaussianFeatures(mean=...) is for 6 features, not 5",
            id="a mean of other rows",
        ),
        pytest.param(
            {"features": UniformFeatures(), "student": 3},
            TypeError,
            "KnowledgeTransfer(student=...) must have a fit method and, after it, coef_; got 3",
            id="no student",
        ),
    ],
)
def test_public_features_and_students_that_cannot_be_used(
    cls: Any, epsilon: Any, variant: Any, parameters: Any, error: Any, message: str
) -> None:
    """Rows of another width, broken ones, too few, laws of other features, and things that learn nothing."""
    with pytest.raises(error, match=re.escape(message)):
        cls(epsilon, method=KnowledgeTransfer(variant, **parameters), bounds=BOUNDS).fit(X, LABELS[cls])


@reduce_to_pairs()
@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"variant": "published"}, "KnowledgeTransfer(variant='published') answers on public features; give features="),
        ({"student": "ight"}, "KnowledgeTransfer(student=...) learns from public features; give features="),
        ({"student": SparseRegressor(None)}, "KnowledgeTransfer(student=...) learns from public features"),
        (
            {"variant": "published", "features": UniformFeatures(), "penalty": 0.0},
            "takes the noise of the paper's corollary 4.7, which divides by a sparse eigenvalue of the loss; give "
            "sparse_eigenvalue=...",
        ),
        (
            {"variant": "published", "features": UniformFeatures(), "penalty": -1.0},
            "KnowledgeTransfer(penalty=...) must be a finite number >= 0, got -1.0",
        ),
        *(
            ({"variant": variant, "penalty": 0.1}, "derives its penalty from the privacy budget; leave penalty=None")
            for variant in ("sparse", "dense")
        ),
        (
            {"perturbation": "output", "penalty": 0.0},
            "KnowledgeTransfer(penalty=...) must lie in [1e-100, 1e100], got 0.0",
        ),
        *(
            (
                {"variant": variant, "teacher_step": 0.7},
                "KnowledgeTransfer(teacher_step=...) is for variant='published'",
            )
            for variant in ("sparse", "dense")
        ),
        *(
            (
                {"variant": "published", "features": UniformFeatures(), "student": SparseRegressor(None), name: value},
                "are for student='ight', not for one of your own",
            )
            for name, value in (("student_iter", 3), ("student_step", 0.3))
        ),
    ],
    ids=lambda value: ", ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_settings_of_knowledge_transfer_that_do_not_go_together(
    cls: Any, epsilon: Any, parameters: Any, message: str
) -> None:
    """A student without lessons, answers without questions, penalties that nobody asked for or that are missing."""
    with pytest.raises(ValueError, match=re.escape(message)):
        cls(epsilon, method=KnowledgeTransfer(**parameters), bounds=BOUNDS).fit(X, LABELS[cls])


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("variant", ["sparse", "dense", "published"])
def test_a_regression_takes_no_classifier_for_a_student(variant: Any) -> None:
    """Classes of numbers would be learnt, and called predictions."""
    method = KnowledgeTransfer(variant, UniformFeatures(), student=LogisticRegression())
    with pytest.raises(ValueError, match="is a classifier, and this is a regression"):
        SparseRegressor(1.0, method=method, bounds=BOUNDS).fit(X, LABELS[SparseRegressor])


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("variant", ["sparse", "dense"])
def test_no_paper_prints_noise_for_the_sound_variants(cls: Any, variant: Any) -> None:
    """calibration="published" says which variant has some, and what keeps the promise."""
    message = f"no paper prints noise for variant={variant!r}; use calibration='rigorous' for sound noise, or variant="
    model = cls(method=KnowledgeTransfer(variant), calibration="published", bounds=BOUNDS)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(X, LABELS[cls])


@both
@pytest.mark.usefixtures("no_noise")
def test_the_published_teacher_needs_a_delta(cls: Any) -> None:
    """The paper's formulas hold log(1 / delta)."""
    model = cls(1.0, 0.0, method=KnowledgeTransfer("published", UniformFeatures()), bounds=BOUNDS)
    with pytest.raises(ValueError, match="the published noise needs delta > 0"):
        model.fit(X, LABELS[cls])


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_snapshots_are_on_no_fewer_rows_than_steps(cls: Any, epsilon: Any) -> None:
    """With what both were, defaults included."""
    for parameters, message in (
        ({"snapshot_batch": 5, "batch": 6}, "snapshot_batch=5 must be at least batch=6"),
        ({"snapshot_batch": 5, "batch": 600}, f"snapshot_batch=5 must be at least batch={N}"),
    ):
        method = StochasticHardThresholding("scsg", **parameters)
        with pytest.raises(ValueError, match=message):
            cls(epsilon, method=method, bounds=BOUNDS).fit(X, LABELS[cls])


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    "scale",
    [
        np.ones(D - 1),
        np.ones((1, D)),
        2.0,
        np.zeros(D),
        -np.ones(D),
        *np.array([[np.inf], [np.nan], [1e200]]) * np.ones(D),
    ],
)
def test_scales_of_features(cls: Any, scale: Any) -> None:
    """One positive number for each feature, whose squares are numbers too."""
    with pytest.raises(ValueError, match=r"must hold a number within \[1e-100, 1e100\] for each of the 5 features"):
        cls(method=CoordinateDescent(feature_scale=scale), bounds=BOUNDS).fit(X, LABELS[cls])


STEPWISE = {
    "frank_wolfe-selection": FrankWolfe(n_iter=6, noise="selection"),
    "frank_wolfe-gaussian": FrankWolfe(n_iter=6, noise="gaussian"),
    "frank_wolfe-simplex": FrankWolfe(n_iter=6, noise="selection", selection="permute_and_flip", feasible=Simplex(1.0)),
    "frank_wolfe-polytope": FrankWolfe(n_iter=6, noise="selection", feasible=Polytope(vertices=np.eye(D + 1))),
    "coordinate_descent-selection": CoordinateDescent(n_iter=6, noise="selection"),
    "coordinate_descent-gaussian": CoordinateDescent(n_iter=6, noise="gaussian"),
    "coordinate_descent-units": CoordinateDescent(n_iter=6, noise="selection", feature_scale=np.arange(1.0, D + 1)),
    "on batches-sgd": StochasticHardThresholding(batch=20, passes=2.0),
    "on batches-scsg": StochasticHardThresholding("scsg", passes=2.0, sampling="without_replacement"),
    "on batches-svrg": StochasticHardThresholding("svrg", passes=3.0, sampling="shuffled"),
}
stepwise = pytest.mark.parametrize("method", STEPWISE.values(), ids=STEPWISE)


@both
@stepwise
@pytest.mark.usefixtures("no_noise")
def test_the_methods_of_many_steps_refuse_what_others_refuse(cls: Any, method: Any) -> None:
    """NaN, inf, wrong shapes, one class, one row, epsilon <= 0, delta = 1: before noise is drawn."""
    y = LABELS[cls]
    for rows, labels, budget, message in (
        (with_entry(X, np.nan), y, (1.0, 1e-5), "Input X contains NaN"),
        (sp.csr_array(with_entry(X, np.inf)), y, (1.0, 1e-5), "Input X contains infinity"),
        (X, with_entry(y, np.nan), (1.0, 1e-5), "Input y contains NaN"),
        (X[:, 0], y, (1.0, 1e-5), "Expected 2D array"),
        (X[:-1], y, (1.0, 1e-5), "inconsistent numbers of samples"),
        (X[:1], y[:1], (1.0, 1e-5), "minimum of 2 is required"),
        (X, y, (0.0, 1e-5), "epsilon must be a finite number > 0"),
        (X, y, (-1.0, 1e-5), "epsilon must be a finite number > 0"),
        (X, y, (1.0, 1.0), r"delta must lie in \[0, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            cls(*budget, method=method, bounds=BOUNDS).fit(rows, labels)
    if cls is SparseClassifier:
        with pytest.raises(ValueError, match="at least two classes"):
            cls(method=method, bounds=BOUNDS).fit(X, np.ones(N))


@both
@stepwise
def test_the_methods_of_many_steps_warn_of_a_large_delta(cls: Any, method: Any) -> None:
    """delta >= 1/n."""
    with pytest.warns(PrivacyWarning, match=r"delta = 0.5 is not below 1 / \(number of rows\)"):
        cls(1.0, 0.5, method=method, bounds=BOUNDS).fit(X, LABELS[cls])


@reduce_to_pairs()
@both
@stepwise
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("bounds", [BOUNDS, Bounds(normalise=True), None], ids=["declared", "normalise", "none"])
def test_the_methods_of_many_steps_take_empty_rows_and_constant_columns(
    cls: Any, method: Any, convert: Any, epsilon: float | None, bounds: Any
) -> None:
    """Rows of zeros, columns of zeros and of one value, and nothing but zeros, give finite weights."""
    rows = X.copy()
    rows[:10] = 0.0
    rows[:, 1] = 0.0
    rows[10:, 2] = 3.0
    for some in (rows, np.zeros((N, D))):
        model = cls(epsilon, n_nonzero=3, method=method, bounds=bounds).fit(convert(some), LABELS[cls])
        assert np.all(np.isfinite(model.coef_))
        assert np.all(np.isfinite(model.intercept_))


@both
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("size", [1e-300, 1e100, 1e300])
@pytest.mark.parametrize("make", [L1Ball, Simplex, L2Ball, LqBall, Box, CappedL1Ball, KSupportBall, None])
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:.*no better than guessing:UserWarning")
def test_absurd_radii_are_refused_or_give_finite_weights(
    cls: Any, epsilon: float | None, size: float, make: Any, generators: list[Any]
) -> None:
    """An error comes before noise is drawn, or else the model is finite and its promise holds."""
    try:
        parameters = {"radius": size} if make is None else {"feasible": make(size)}
        model = cls(epsilon, method=FrankWolfe(n_iter=5, **parameters), bounds=BOUNDS).fit(X, LABELS[cls])
    except ValueError:
        assert generators == []
        return
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.intercept_))
    assert epsilon is None or 0.99 < model.privacy_.epsilon <= 1


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    "method",
    [
        FrankWolfe(noise="gaussian"),
        CoordinateDescent(noise="selection"),
        *(StochasticHardThresholding(variant) for variant in ("sgd", "scsg", "svrg")),
    ],
    ids=str,
)
def test_delta_0_needs_choices_alone(method: Any) -> None:
    """Gaussian noise on gradients or on the values that are moved by is never purely private."""
    with pytest.raises(ValueError, match=r"no amount of noise on .* with delta = 0 use pure mechanisms only"):
        SparseRegressor(1.0, 0.0, method=method, bounds=BOUNDS).fit(X, LABELS[SparseRegressor])


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    "method",
    [
        *(HardThresholding(noise=noise) for noise in ("gaussian", "selection", "laplace", "auto")),
        StochasticHardThresholding(),
        StochasticHardThresholding("scsg"),
    ],
    ids=str,
)
def test_published_noise_needs_a_delta(method: Any) -> None:
    """The papers' formulas hold log(1 / delta)."""
    model = SparseClassifier(1.0, 0.0, method=method, bounds=BOUNDS, calibration="published")
    with pytest.raises(ValueError, match="the published noise needs delta > 0"):
        model.fit(X, LABELS[SparseClassifier])


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        pytest.param(np.arange(N - 1), r"groups has shape \(59,\) for 60 rows; pass one person id per row", id="short"),
        pytest.param(np.arange(N + 1), r"groups has shape \(61,\) for 60 rows; pass one person id per row", id="long"),
        pytest.param([], r"groups has shape \(0,\) for 60 rows; pass one person id per row", id="empty"),
        pytest.param(np.zeros((N, 2)), "groups", id="2-d"),
        pytest.param(7, "groups", id="number"),
    ],
)
def test_groups_of_a_wrong_shape(cls: Any, groups: Any, message: str) -> None:
    """One person id per row, or a message that speaks of groups."""
    with pytest.raises((TypeError, ValueError), match=message):
        cls(bounds=BOUNDS).fit(X, LABELS[cls], groups=groups)


@pytest.mark.parametrize("cap", [1.0, None, (1.0, 1e-5)], ids=repr)
def test_a_ledger_takes_a_budget(cap: Any) -> None:
    """A number is no cap: it has no delta."""
    with pytest.raises(TypeError, match=r"Ledger\(cap\) takes a Budget, for example Budget\(3\.0, 1e-5\); got "):
        Ledger(cap)
