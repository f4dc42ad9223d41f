"""Audits of tulle and of DPSL-KT: `make audit`, a few minutes.

Prints a row for each subject and draws the attacks' curves to build/audit-*.png.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import audit_dpsl_kt
import numpy as np

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import AuditResult, Pair, audit_channel, audit_mechanism, audit_model
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.channel import Channel
from tulle.local.user_side.label_randomisers import (
    GaussianLabel,
    Hybrid,
    LaplaceLabel,
    Piecewise,
    RandomisedResponse,
    TwoPoint,
)
from tulle.methods import (
    CoordinateDescent,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    StochasticHardThresholding,
)
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.sampling import SCHEMES

OUTPUT = Path(__file__).resolve().parent.parent / "build"
DELTA = 1e-5


def audits() -> Iterator[tuple[str, AuditResult]]:
    """Run all audits, one after the other."""
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        noise = NoisePerSensitivity(1 / gaussian_mu(epsilon, DELTA))
        yield (
            f"gaussian-{epsilon:g}",
            audit_mechanism(Gaussian(noise), delta=DELTA, claimed=epsilon, runs=10_000_000, seed=0),
        )
    # Defaults with Gaussian noise; and a plan with nearly all cost for choosing one feature among 6, since values
    # are Gaussian answers like those of the first.
    choosing = HardThresholding(noise="selection", selection_share=0.95, damping=0.0, n_iter=1)
    methods = {"gaussian": (HardThresholding(noise="gaussian"), 1), "selection": (choosing, 6)}
    for name, (method, n_features) in methods.items():
        bounds = Bounds(row_linf=1.0, label=1.0)
        model = SparseRegressor(1.0, DELTA, n_nonzero=1, bounds=bounds, method=method, fit_intercept=False)
        yield (
            f"hard-thresholding-{name}",
            audit_model(model, n_features=n_features, runs=40_000, pilot_runs=4_000, n_jobs=2, seed=0),
        )
    # The Gaussian judge tests the mu of a plan: of the defaults above, and of one feature's noisy moments.
    moments = ScreenRefine(
        1, "selection", refinement="statistics", screening_share=0.02, start_share=0.0, rescale_share=0.0
    )
    gaussian = {"hard-thresholding": (HardThresholding(noise="gaussian"), 4_000), "screen-refine": (moments, 400)}
    for name, (judged, pilot) in gaussian.items():
        model = SparseRegressor(
            1.0, DELTA, n_nonzero=1, bounds=Bounds(row_linf=1.0, label=1.0), method=judged, fit_intercept=False
        )
        yield (
            f"{name}-gaussian-judge",
            audit_model(model, n_features=1, judge="gaussian", runs=20_000, pilot_runs=pilot, n_jobs=2, seed=0),
        )
    # The same for screen and refine: nearly all of the cost for fitting one feature, or for choosing one among 6.
    for name, share, n_features in (("refinement", 0.02, 1), ("choice", 0.95, 6)):
        part = ScreenRefine(1, "selection", screening_share=share, start_share=0.0, rescale_share=0.0)
        classifier = SparseClassifier(
            1.0, DELTA, n_nonzero=1, bounds=Bounds(row_linf=1.0), method=part, fit_intercept=False
        )
        yield (
            f"screen-refine-{name}",
            audit_model(classifier, n_features=n_features, runs=40_000, pilot_runs=4_000, n_jobs=2, seed=0),
        )
    # One choice between the two vertices of one feature; one step of coordinate descent, a choice and a value.
    steps = {"frank-wolfe": FrankWolfe(1.0, n_iter=1, noise="selection"), "coordinate-descent": CoordinateDescent(1)}
    for name, one_step in steps.items():
        model = SparseRegressor(
            1.0, DELTA, n_nonzero=1, bounds=Bounds(row_linf=1.0, label=1.0), method=one_step, fit_intercept=False
        )
        yield name, audit_model(model, n_features=1, runs=40_000, pilot_runs=4_000, n_jobs=2, seed=0)
    # One step on two rows of four; for shuffled rows, both steps of an epoch. One row is like the others or has the
    # opposite gradient. A larger delta: the event that distinguishes batches with the row is rare.
    X, others = np.ones((4, 1)), np.full(3, -1.0)
    pair = Pair("a row against or with all others", X, np.r_[1.0, others], X, np.r_[-1.0, others])
    for scheme in SCHEMES:
        passes = 1.0 if scheme == "shuffled" else 0.5
        on_batches = StochasticHardThresholding(batch=2, passes=passes, sampling=scheme, step=1.0)
        model = SparseRegressor(
            3.0, 0.01, n_nonzero=1, bounds=Bounds(row_linf=1.0, label=1.0), method=on_batches, fit_intercept=False
        )
        yield (
            f"stochastic-{scheme.replace('_', '-')}",
            audit_model(model, n_features=1, runs=20_000, pilot_runs=16, pairs=[pair], n_jobs=2, seed=0),
        )
    # Every local channel, on two opposite values of one user.
    channels: dict[str, Channel] = {
        "priv-unit": PrivUnit.best(1.0, 1.0, 20),
        "hemisphere": PrivUnit.hemisphere(1.0, 1.0, 20),
        "two-point": TwoPoint(1.0, 1.0),
        "piecewise": Piecewise(1.0, 1.0),
        "hybrid": Hybrid(1.0, 1.0),
        "laplace-label": LaplaceLabel(1.0, 1.0),
        "gaussian-label": GaussianLabel(1.0, 1.0, DELTA),
        "randomised-response": RandomisedResponse(1.0, 1.0, 4),
    }
    for name, channel in channels.items():
        yield f"local-{name}", audit_channel(channel, runs=1_000_000, seed=0)
    # A teacher on one feature, noise on its minimiser; then DPSL-KT on the pair that breaks it, and its replacement.
    teacher = KnowledgeTransfer("dense", perturbation="output")
    model = SparseRegressor(
        1.0, DELTA, n_nonzero=1, bounds=Bounds(row_linf=1.0, label=1.0), method=teacher, fit_intercept=False
    )
    yield "transfer-teacher", audit_model(model, n_features=1, runs=40_000, pilot_runs=4_000, n_jobs=2, seed=0)
    yield "transfer-sparse", audit_dpsl_kt.audit(audit_dpsl_kt.sound, runs=20_000)
    yield "dpsl-kt-as-published", audit_dpsl_kt.audit(audit_dpsl_kt.published)
    yield "dpsl-kt-unpenalised", audit_dpsl_kt.audit(audit_dpsl_kt.unpenalised)


def main() -> None:
    OUTPUT.mkdir(exist_ok=True)
    figures = f"{'audited':>8} {'possible':>8} {'runs':>11} {'seconds':>7}"
    print(f"{'subject':<32} {'claimed':>7} {'judge':>8} {figures}  verdict")
    for name, result in audits():
        verdict = "FALSE" if result.refuted else "no violation found"
        print(
            f"{name:<32} {result.claimed:>7g} {result.judge:>8} {result.epsilon:>8.3f} {result.best_possible:>8.3f} "
            f"{result.runs:>11,} {result.seconds:>7.1f}  {verdict}",
            flush=True,
        )
        if result.epsilon_any is not None:
            print(f"{'  on the same runs':<32} {result.claimed:>7g} {'any':>8} {result.epsilon_any:>8.3f}")
        result.plot(OUTPUT / f"audit-{name}.png")


if __name__ == "__main__":
    main()
