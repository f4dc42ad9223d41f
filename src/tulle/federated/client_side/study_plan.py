"""What a client releases in a study: the noisy answers of all of its rounds, calibrated once and billed at once."""

from __future__ import annotations

import math
from dataclasses import replace

from tulle.accounting.calibration import calibrate
from tulle.federated.messages import RefusedError
from tulle.federated.terms import Terms
from tulle.trusted.curator import LARGEST_SUM
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import SampledGaussian
from tulle.trusted.plan import Plan, Release
from tulle.trusted.sampling import Sampling

STEP, SNAPSHOT = "local step", "snapshot"


def plan_study(terms: Terms, n_rows: int, rows_per_person: int) -> Plan:
    """All answers of a client with so many rows: K R steps and, where the terms have snapshots, R snapshots.

    The noises of both are multiplied by one factor, so that all answers together meet the budget. Steps come first.
    """
    batches = Sampling("poisson", n_rows, min(terms.batch or n_rows, n_rows), rows_per_person)
    planned = [Release(STEP, SampledGaussian(NoisePerSensitivity(1.0), batches), terms.steps)]
    if terms.snapshot_batch is not None:
        large = Sampling("poisson", n_rows, terms.count_snapshot_rows(n_rows), rows_per_person)
        ratio = compute_noise_ratio(terms, n_rows)
        planned.append(Release(SNAPSHOT, SampledGaussian(NoisePerSensitivity(ratio), large), terms.rounds))
    budget = terms.budget
    return Plan(tuple(one.scaled(0.0) for one in planned) if budget is None else calibrate(planned, budget))


def compute_noise_ratio(terms: Terms, n_rows: int) -> float:
    """The noise of a snapshot over that of a step, each per sensitivity: with it the noise of all answers of a round
    together is least, as in StochasticHardThresholding."""
    batch = min(terms.batch or n_rows, n_rows)
    return terms.count_snapshot_rows(n_rows) / batch * math.sqrt(terms.difference_clip / terms.local_steps)


def plan_rounds_left(plan: Plan, terms: Terms, answered: int) -> Plan:
    """The answers of a study's plan that are left when so many rounds were answered: R - answered of its R parts."""
    left = terms.rounds - answered
    return Plan(tuple(replace(release, count=release.count // terms.rounds * left) for release in plan.releases))


def get_noise(plan: Plan, name: str) -> float:
    """The noise per sensitivity of the release of this name; 0 where there is none."""
    return next((release.mechanism.noise.value for release in plan.releases if release.name == name), 0.0)


def check_range(terms: Terms, n_rows: int) -> None:
    """Raise unless it is known that sums over rows do not overflow, at any weights."""
    # A difference of two clipped gradients is at most twice as long as one.
    most = terms.model.level(terms.clip) * (1 if terms.snapshot_batch is None else 2)
    if not n_rows * most < LARGEST_SUM:
        raise RefusedError("terms", "the clip and the bounds are so large that sums over rows could overflow")
