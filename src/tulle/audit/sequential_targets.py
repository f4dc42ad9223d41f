"""Audits that stop when they are sure, of a model of tulle, an estimator of any library, a mechanism and a channel."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from tulle.audit.channel_audit import channel_runs
from tulle.audit.claimed_curves import Profile
from tulle.audit.estimator_audit import Worlds, fit_and_pair
from tulle.audit.mechanism_audit import mechanism_runs
from tulle.audit.neighbours import Pair
from tulle.audit.runner import time_left
from tulle.audit.sequential import SequentialResult, audit_sequentially, bet_on_runs, check_bets, read_bet
from tulle.audit.targets import ModelAudit
from tulle.backends.known_bounds import KnownBounds
from tulle.local.user_side.channel import Channel
from tulle.trusted.mechanisms import Mechanism

# The delta of a pilot that ranks pairs by mu, which is the same at any.
_PILOT_DELTA = 1e-5


def audit_model_sequentially(
    model: Any,
    *,
    n_rows: int = 6,
    n_features: int = 2,
    claimed: float | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    most_runs: int = 20_000,
    pilot_runs: int = 200,
    confidence: float = 0.95,
    pairs: Sequence[Pair] | None = None,
    seed: int | None = None,
    n_jobs: int = 1,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> SequentialResult:
    """Audit a `SparseClassifier` or `SparseRegressor` on the worst pair found, and stop as soon as the claim is
    refuted.

    Parameters
    ----------
    model : estimator
        Unfitted, with a budget (epsilon not None).
    n_rows, n_features, claimed, judge, claimed_mu, claimed_range, claimed_curve, pairs
        As in `audit_model`: the claim is the model's epsilon at its delta, or the mu or the range of its plan. A curve
        must be a list of pairs (epsilon, delta).
    most_runs : int, default=20_000
        Fits in each world after which the audit gives up, at least 24.
    pilot_runs : int, default=200
        Fits in each world and on each candidate pair, to choose the pair; they are not counted.
    confidence, seed, n_jobs, seconds, folder, verbose
        As in `audit_sequentially`.

    Returns
    -------
    SequentialResult
    """
    claims = {"claimed": claimed, "claimed_mu": claimed_mu}
    claims |= {"claimed_range": claimed_range, "claimed_curve": claimed_curve}
    audit = ModelAudit.of(model, n_rows, n_features, pairs, judge, **claims)
    claim = audit.judge.curve(audit.epsilon, audit.request.delta)
    check_bets(claim, confidence, most_runs)
    subject, what, left = audit.on_worst_pair(
        pilot_runs, confidence, n_jobs=n_jobs, folder=folder, verbose=verbose, seconds=seconds
    )
    return bet_on_runs(
        subject,
        claim,
        what,
        confidence=confidence,
        most_runs=most_runs,
        seed=seed,
        n_jobs=n_jobs,
        seconds=left,
        folder=folder,
        verbose=verbose,
    )


def audit_estimator_sequentially(
    estimator: Any,
    pair: Pair | Worlds | None = None,
    *,
    claimed: float | None = None,
    delta: float | None = None,
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    task: str | None = None,
    row_l2: float = 1.0,
    row_linf: float = math.inf,
    label: float = 1.0,
    n_rows: int = 6,
    n_features: int = 2,
    released: Callable[[Any], Any] | None = None,
    pilot_runs: int = 200,
    confidence: float = 0.95,
    most_runs: int = 20_000,
    max_differing_rows: int = 1,
    seed: int | None = None,
    n_jobs: int = 1,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> SequentialResult:
    """Audit an estimator of any library on the worst of some pairs, and stop as soon as the claim is refuted.

    Parameters
    ----------
    estimator, pair, task, row_l2, row_linf, label, n_rows, n_features, released, pilot_runs
        As in `audit_estimator`.
    claimed, delta, claimed_mu, claimed_range, claimed_curve
        As in `audit_sequentially`: pass one claim.
    confidence, most_runs, max_differing_rows, seed, n_jobs, seconds, folder, verbose
        As in `audit_sequentially`.

    Returns
    -------
    SequentialResult
    """
    start = time.monotonic()
    claims: dict[str, Any] = {
        "claimed": claimed,
        "delta": delta,
        "claimed_mu": claimed_mu,
        "claimed_range": claimed_range,
        "claimed_curve": claimed_curve,
    }
    check_bets(read_bet(*claims.values()), confidence, most_runs)
    running: dict[str, Any] = {"seed": seed, "n_jobs": n_jobs, "folder": folder, "verbose": verbose}
    running |= {"max_differing_rows": max_differing_rows}
    fit, chosen = fit_and_pair(
        estimator,
        pair,
        released=released,
        task=task,
        bounds=KnownBounds(row_l2, row_linf, label, normalise=False),
        size=(n_rows, n_features),
        runs=pilot_runs,
        **pilot_claim(claimed, delta),
        **running,
    )
    running |= {"confidence": confidence, "most_runs": most_runs, **claims}
    return audit_sequentially(fit, *chosen, seconds=time_left(seconds, start), **running)


def pilot_claim(claimed: float | None, delta: float | None) -> dict[str, Any]:
    """By what a pilot ranks pairs: the epsilon at the claimed delta, or how well a pair is told apart, as a mu."""
    if claimed is not None:
        return {"judge": "any", "claimed": claimed, "delta": delta}
    return {"judge": "gaussian", "claimed_mu": 0.0, "delta": _PILOT_DELTA}


def audit_mechanism_sequentially(
    mechanism: Mechanism,
    *,
    claimed: float | None = None,
    delta: float | None = None,
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    confidence: float = 0.95,
    most_runs: int = 20_000,
    seed: int | None = None,
    n_jobs: int = 1,
    verbose: int = 0,
) -> SequentialResult:
    """Audit one use of a mechanism on answers that are one sensitivity apart, and stop as soon as the claim is refuted.

    Parameters
    ----------
    mechanism : Mechanism
        Gaussian, Laplace or TopK, with its noise.
    claimed, delta, claimed_mu, claimed_range, claimed_curve
        As in `audit_sequentially`: pass one claim.
    confidence, most_runs, seed, n_jobs, verbose
        As in `audit_sequentially`.

    Returns
    -------
    SequentialResult
    """
    claim = read_bet(claimed, delta, claimed_mu, claimed_range, claimed_curve)
    subject, what = mechanism_runs(mechanism)
    running: dict[str, Any] = {"confidence": confidence, "most_runs": most_runs, "seed": seed}
    return bet_on_runs(subject, claim, what, n_jobs=n_jobs, verbose=verbose, **running)


def audit_channel_sequentially(
    channel: Channel,
    first: Any = None,
    second: Any = None,
    *,
    claimed: float | None = None,
    confidence: float = 0.95,
    most_runs: int = 20_000,
    seed: int | None = None,
    n_jobs: int = 1,
    verbose: int = 0,
) -> SequentialResult:
    """Audit a local randomiser, two values of one user, and stop as soon as the claim is refuted.

    Parameters
    ----------
    channel, first, second, claimed
        As in `audit_channel`: the claim is the channel's epsilon, where none is passed, at the channel's delta.
    confidence, most_runs, seed, n_jobs, verbose
        As in `audit_sequentially`.

    Returns
    -------
    SequentialResult
    """
    subject, what = channel_runs(channel, first, second)
    claim = Profile(((channel.epsilon if claimed is None else claimed, channel.delta),))
    running: dict[str, Any] = {"confidence": confidence, "most_runs": most_runs, "seed": seed}
    return bet_on_runs(subject, claim, what, n_jobs=n_jobs, verbose=verbose, **running)
