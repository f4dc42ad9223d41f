"""Audits of a model of tulle in one run: one fit on rows that are canaries, judged by the published weights."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.audit.judged_runs import check_levels
from tulle.audit.one_run import judge_one_run
from tulle.audit.own_ledger import AuditLedger
from tulle.audit.result import AuditResult
from tulle.audit.targets import ModelAudit, check_model
from tulle.estimators.request import run_fit
from tulle.trusted.events import FloatArray


def audit_model_in_one_run(
    model: Any,
    *,
    canaries: int = 1_000,
    claimed: float | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    guesses: int | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    verbose: int = 0,
) -> AuditResult:
    """Audit one fit of a `SparseClassifier` or `SparseRegressor` with its method, bounds and budget.

    The data set has as many features as rows. Each row has one entry, as large as the bounds allow, in a feature of its
    own, and one of two opposite labels. The weight of its feature is the score by which the label is guessed.

    Parameters
    ----------
    model : estimator
        Unfitted, with a budget (epsilon not None).
    canaries : int, default=1000
        Rows, and features, at least 2. With more of them smaller violations are seen: see `one_run_power`.
    claimed, judge, claimed_mu, claimed_range, claimed_curve
        As in `audit_model`: where nothing is passed, the model's epsilon, or with other judges than "any" the mu or
        range of its plan. A `claimed_curve` that is a function is refused.
    guesses : int or None, default=None
        As in `audit_one_run`; None chooses at most `n_nonzero` of the model, as a weight of 0 says nothing.
    confidence : float, default=0.95
        In (0, 1).
    seed : int or None, default=None
        For a result that can be repeated.
    verbose : int, default=0
        1 prints the power before the fit.

    Returns
    -------
    AuditResult
    """
    check_model(model)
    if not (isinstance(canaries, int) and canaries >= 2):
        raise ValueError(f"canaries must be a whole number >= 2, got {canaries!r}")
    claim = {"claimed": claimed, "claimed_mu": claimed_mu}
    claim |= {"claimed_range": claimed_range, "claimed_curve": claimed_curve}
    audit = ModelAudit.of(model, canaries, canaries, (), judge, **claim)
    request, loss = audit.request, audit.request.loss
    check_levels(confidence, request.delta)
    bounds = request.bounds.known(canaries)
    entry = min(bounds.row_l2, bounds.row_linf)
    X = sp.csr_array(sp.eye(canaries)) * (entry if entry < math.inf else 1.0)
    label = bounds.label if loss.kind == "regression" and bounds.label < math.inf else 1.0
    yes, no = (0.0, 1.0) if loss.n_outputs > 1 else (label, -label)

    def fit(X: Any, targets: FloatArray, rng: np.random.Generator) -> FloatArray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these rows are made up, for any n and d
            fitted = run_fit(replace(request, seed=int(rng.integers(2**63))), X, targets, ledgers=(AuditLedger(),))
        return fitted.weights if fitted.teacher is None else fitted.teacher

    def score(weights: FloatArray) -> FloatArray:
        own = weights[:canaries]
        return np.asarray(own[:, 0] - own[:, 1] if loss.n_outputs > 1 else own[:, 0])

    fit.__name__ = f"{audit.name}.fit"
    return judge_one_run(
        fit,
        ((X, np.full(canaries, yes)), (X, np.full(canaries, no))),
        score,
        audit.judge,
        delta=request.delta,
        claimed=audit.epsilon,
        guesses=guesses,
        confidence=confidence,
        seed=seed,
        verbose=verbose,
        most_guesses=request.n_nonzero,  # a weight of 0 says nothing about its row
        what=f"{audit.name}, {canaries:,} canaries, each with a feature of its own and a label by a coin",
    )
