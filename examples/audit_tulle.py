"""Audits of tulle and of DPSL-KT: `make audit`, some minutes. The methods are audited by benchmarks/audit_bounds.py.

Prints a row for each subject and draws the attacks' curves to build/audit-*.png.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import audit_dpsl_kt

from tulle import Bounds, SparseRegressor
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import AuditResult, audit_channel, audit_mechanism, audit_model, worst_case_pairs
from tulle.local.user_side.ball import PrivUnit
from tulle.methods import HardThresholding
from tulle.methods.loss_functions import Squared
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian

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
    # Every answer on the bill, by the likelihood ratio, against the mu of the plan, on the pair of the audited bounds.
    bounds = Bounds(row_linf=1.0, label=1.0)
    method = HardThresholding(noise="gaussian")
    model = SparseRegressor(1.0, DELTA, n_nonzero=1, bounds=bounds, method=method, fit_intercept=False)
    (pair,) = [
        pair
        for pair in worst_case_pairs(Squared(), bounds.known(1), n_rows=6, n_features=1)
        if pair.name == "opposite labels on a row at the bound"
    ]
    judged: dict[str, Any] = {"judge": "gaussian", "attack": "likelihood_ratio"}
    yield (
        "hard-thresholding-gaussian",
        audit_model(model, pairs=[pair], runs=10_000, n_jobs=2, seed=0, **judged),
    )
    yield "local-hemisphere", audit_channel(PrivUnit.hemisphere(1.0, 1.0, 20), runs=1_000_000, seed=0)
    # DPSL-KT on the pair that breaks it, and its replacement.
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
