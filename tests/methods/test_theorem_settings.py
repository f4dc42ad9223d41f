"""What the papers' theorems prescribe: values by hand, and errors that name what is missing before any question."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import fits
import numpy as np
import pytest
from fits import D, RecordingCurator, problem

from tulle import Bounds, Budget, SparseRegressor
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import HardThresholding, KnowledgeTransfer, StochasticHardThresholding
from tulle.methods.loss_functions import Squared
from tulle.transfer.public_features import UniformFeatures

recorder = fits.recorder
facts = partial(fits.facts, loss=Squared(), label=1.0)
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")
BOUNDS = Bounds(row_l2=math.sqrt(D), row_linf=1.0, label=4.0)
UNIFORM = UniformFeatures(-1, 1)
transfer = partial(KnowledgeTransfer, "published", UNIFORM)


# --- DP-IGHT ---------------------------------------------------------------------------------------------------------


def test_ight_s_step_and_sparsity() -> None:
    """η = C / (β + μ) and s = C κ² s*: 0.5 / (3 + 1.5) and 2 · 2² · 3."""
    method = HardThresholding(
        5, "theorem", smoothness=3.0, strong_convexity=1.5, true_nonzero=3, step_constant=0.5, nonzero_constant=2.0
    )
    assert method.default_nonzero(facts()) == 24
    assert method.default_nonzero(facts(n_features=20)) == 20
    assert method.settings(facts(n_nonzero=24)).step == pytest.approx(0.5 / 4.5, rel=1e-15)
    assert not method.settings(facts()).damped
    assert HardThresholding(step="theorem", smoothness=2.0, strong_convexity=2.0).settings(facts()).step == 0.25
    with pytest.raises(ValueError, match=r"n_nonzero=23 is below the theorem's C κ² s\* = 24; give n_nonzero=None"):
        method.settings(facts(n_nonzero=23))


def test_a_fit_of_ight_takes_them() -> None:
    X, y = problem("regression")
    settings: dict[str, Any] = {"n_iter": 4, "smoothness": 0.5, "strong_convexity": 0.25, "noise": "gaussian"}
    method = HardThresholding(step="theorem", true_nonzero=2, **settings)
    model = SparseRegressor(4.0, method=method, bounds=BOUNDS, random_state=0).fit(X, y)
    same = HardThresholding(step=1 / 0.75, **settings)
    again = SparseRegressor(4.0, n_nonzero=8, method=same, bounds=BOUNDS, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert len(model.support_) == 8
    assert "steps of size 1.333" in model.privacy_.method


# --- DP-SGD-HT and DP-SCSG-HT ----------------------------------------------------------------------------------------


def test_sgd_s_number_of_steps() -> None:
    """T = C log(n² ε² / log(1/δ)), by hand: n = 1000, ε = 1, δ = 1e-5."""
    T = math.log(1000**2 / math.log(1e5))
    assert 11.3 < T < 11.4
    method = StochasticHardThresholding("sgd", 100, passes="theorem", step=0.1)
    assert method.settings(facts()).n_steps == 12
    assert StochasticHardThresholding(
        "sgd", 7, passes="theorem", iteration_constant=10.0
    ).settings(facts()).n_steps == math.ceil(10 * T)  # fmt: skip
    # From the note on corollary 4.4.1: 15 at n = 3e3 and 44 at n = 1e9.
    for n, steps in ((3_000, 15), (10**9, 44)):
        budget = Budget(2.0 if n == 3_000 else 10.0, 1e-5)
        assert method.settings(facts(n_rows=n, budget=budget)).n_steps == steps
    assert method.settings(facts(n_rows=2, budget=Budget(0.1, 0.5))).n_steps == 1


def test_scsg_s_batches() -> None:
    """B / b = sqrt(k), rounded; B = n for DP-SVRG-HT."""
    scsg = StochasticHardThresholding("scsg", 40, "theorem", passes=5.0, step=0.1)
    assert scsg.settings(facts(n_nonzero=25)).snapshot_batch == 200
    assert scsg.settings(facts(n_nonzero=30)).snapshot_batch == round(40 * math.sqrt(30)) == 219
    assert scsg.settings(facts(n_nonzero=1)).snapshot_batch == 40
    svrg = StochasticHardThresholding("svrg", "theorem", passes=5.0, step=0.1).settings(facts(n_nonzero=25))
    assert (svrg.batch, svrg.snapshot_batch) == (200, 1000)
    assert set(svrg.lengths) == {5}


# --- DPSL-KT ---------------------------------------------------------------------------------------------------------


def test_transfer_s_steps_and_penalty() -> None:
    """λ = c1 sqrt(s log d log(1/δ) / (n ε)); η1 = C λ / β̄², η2 = C / β̃ with β̃ = 1/3 for uniform features."""
    public = facts(n_nonzero=10, as_published=True)
    method = transfer(
        penalty="section_5", published_constant=0.3, teacher_step="theorem", student_step="theorem", smoothness=2.0,
        step_constant=0.5,
    )  # fmt: skip
    penalty = 0.3 * math.sqrt(10 * math.log(100) * math.log(1e5) / 1000)
    teacher = method._ight(public)
    assert teacher.penalty == pytest.approx(penalty, rel=1e-14)
    assert teacher.step == pytest.approx(0.5 * penalty / 4, rel=1e-14)
    assert method._learner("ight", public).step == pytest.approx(1.5, rel=1e-14)
    default = transfer(published_constant=0.3)
    assert default._ight(public).penalty == teacher.penalty  # what it is by default, too


def test_the_figures_of_theorem_4_5_do_not_fix_its_penalty() -> None:
    """Why it is not offered: two printed values fit λ² = 2 sqrt(log d log(1/δ)) / (n ε) with d = 2 and s = 1, which
    says nothing of its dependence on s, γ and |θ*|."""
    for n, printed in ((1_000, 0.075), (10_000, 0.024)):
        assert round(math.sqrt(2 * math.sqrt(math.log(2) * math.log(1e5)) / n), 3) == printed
        assert round(math.sqrt(math.log(2) * math.log(1e5) / n), 3) != printed  # section 5's with c1 = 1


# --- what cannot be evaluated ----------------------------------------------------------------------------------------

MISSING: dict[str, tuple[Any, str]] = {
    "β and μ": (
        HardThresholding(3, "theorem"),
        r"step='theorem'\) cannot be evaluated without smoothness=... \(β.*and strong_convexity=... \(μ",
    ),
    "μ": (HardThresholding(3, "theorem", smoothness=1.0), r"without strong_convexity=... \(μ"),
    "κ": (HardThresholding(3, true_nonzero=2, smoothness=1.0), r"C κ² s\* weights.*without strong_convexity"),
    "β below μ": (
        HardThresholding(3, true_nonzero=2, smoothness=1.0, strong_convexity=2.0),
        "must be at least strong_convexity=2",
    ),
    "T of DP-IGHT": (HardThresholding("theorem"), r"n_iter='theorem'\) is not offered.*give a number"),  # type: ignore[arg-type]
    "η of DP-SGD-HT": (StochasticHardThresholding(step="theorem"), r"step='theorem'\) is not offered"),  # type: ignore[arg-type]
    "b of DP-SGD-HT": (
        StochasticHardThresholding(batch="theorem"),
        r"batch='theorem'\) cannot be evaluated without variant='svrg'",
    ),
    "b of DP-SCSG-HT": (StochasticHardThresholding("scsg", None, "theorem"), r"without batch=... \(b"),
    "B of DP-SGD-HT": (StochasticHardThresholding("sgd", 10, "theorem"), "without variant='scsg'"),
    "J of DP-SCSG-HT": (
        StochasticHardThresholding("scsg", 10, 40, passes="theorem"),
        r"passes='theorem'\).*without variant='sgd'",
    ),
    "β̄": (transfer(penalty=0.1, teacher_step="theorem"), r"teacher_step='theorem'\).*without smoothness=... \(β̄"),
    "λ": (transfer(penalty=0, sparse_eigenvalue=1.0, teacher_step="theorem", smoothness=1.0), "without a penalty > 0"),
    "theorem 4.5": (transfer(penalty="theorem_4.5"), "without the formula of λ in theorem 4.5 of the paper"),
    "corollary 4.9": (transfer(penalty="corollary_4.9"), "without the formula of λ in corollary 4.9 of the paper"),
    "corollary 4.12": (transfer(penalty="corollary_4.12"), "without the formula of λ in corollary 4.12 of the paper"),
    "another name": (transfer(penalty="section_6"), "must be a finite number >= 0"),
    "a name elsewhere": (KnowledgeTransfer("sparse", penalty="section_5"), "must lie in"),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_cannot_be_evaluated_names_what_is_missing(recorder: type[RecordingCurator], name: str) -> None:
    X, y = problem("regression")
    method, message = MISSING[name]
    calibration = "published" if method.only_published else "rigorous"
    model = SparseRegressor(1.0, n_nonzero=3, method=method, bounds=BOUNDS, calibration=calibration)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not recorder.asked


@pytest.mark.parametrize(("budget", "missing"), [(None, "a privacy budget"), (Budget(1.0), "a delta > 0")])
def test_a_number_of_steps_needs_a_budget(budget: Budget | None, missing: str) -> None:
    with pytest.raises(ValueError, match=f"passes='theorem'.*without {missing}.*give passes a number"):
        StochasticHardThresholding(batch=10, passes="theorem").settings(facts(budget=budget))


def test_a_published_fit_by_the_theorem_s_steps_is_billed_as_before() -> None:
    X, y = problem("regression")
    method = transfer(penalty="section_5", teacher_step="theorem", student_step="theorem", smoothness=1.0, n_iter=5)
    with pytest.warns(PrivacyWarning):
        model = SparseRegressor(
            1.0, n_nonzero=3, method=method, bounds=BOUNDS, calibration="published", random_state=0
        ).fit(X, y)
    assert model.privacy_.epsilon == math.inf
