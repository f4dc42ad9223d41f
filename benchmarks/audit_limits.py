"""The most that any attack shows of some subjects of benchmarks/audit_bounds.py, computed: more runs cannot raise it.

python benchmarks/audit_limits.py        # adds lines to docs/pictures/audit_bounds.jsonl, seconds
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
from audit_bounds import CASES, DELTA, RUNS, Cells, measure_cells, regressor
from scipy.special import expit, ndtri

from tulle.accounting.sampled_pairs import sampled_pair
from tulle.methods import StochasticHardThresholding
from tulle.methods.loss_functions import Logistic, Squared
from tulle.trusted.events import FloatArray, SampledGaussianEvent
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import ObjectivePerturbation, price_of

# Events that are looked at: as rare as this in the one world, as sure as this in the other.
RAREST = 0.01


def best_event(first: FloatArray, second: FloatArray) -> float:
    """The largest mu of an event of two densities on a grid, of those with rates in [RAREST, 1 - RAREST]."""
    order = np.argsort(second / first)
    p, q = (np.cumsum(one[order]) / one.sum() for one in (first, second))
    kept = (np.minimum(p, q) > RAREST) & (np.maximum(p, q) < 1 - RAREST)
    return float(np.max(ndtri(p[kept]) - ndtri(q[kept])))


def limits() -> Cells:
    """Over claims as in the table, in epsilon: by the best event of any attack, on the worst rows that were found."""
    for epsilon in RUNS:
        yield ["TwoStage", epsilon], partial(_limit_of_two_stage, epsilon)
        for scheme, batch, n in itertools.product(("poisson", "without_replacement"), (2, 9), (3, 10)):
            if n == batch + 1:
                yield [f"{scheme}, {batch} of {n} rows", epsilon], partial(_limit_of_batches, epsilon, scheme, batch, n)


def _limit(shown: float, claimed: float) -> dict[str, Any]:
    shares = [gaussian_epsilon(mu, DELTA) for mu in (shown, claimed)]
    return {"mu": shown, "claimed_mu": claimed, "ratio": shares[0] / shares[1]}


def _limit_of_two_stage(epsilon: float, seed: int) -> dict[str, Any]:
    """The choice at its whole price, and the minimiser by the best event on opposite rows of the logistic loss, in one
    direction, wrong by any of several intercepts, with several curvatures of other rows."""
    case = CASES["TwoStage"]
    (planned,) = case.model(epsilon)._request(Logistic(), case.n_rows).plan_all((case.n_rows, case.n_features))
    choice, fit = (release.mechanism for release in planned.plan.releases)
    assert isinstance(fit, ObjectivePerturbation)
    events = [price_of(one)[0] for one in (choice, fit)]
    penalty, noise = 0.25 / math.expm1(fit.log_determinant), 2.0 * fit.noise.value
    found = 0.0
    for wrong, held in itertools.product((0, 1, 2, 3, 4, 6, 10, 20), (0, 0.25, 1, 4, 20)):
        theta = np.linspace(-8, 8, 20_001) * noise / (penalty + held)
        densities = []
        for sign in (1.0, -1.0):
            slope = expit(wrong - sign * theta)
            gradient = (penalty + held) * theta - sign * slope
            densities.append(np.exp(-((gradient / noise) ** 2) / 2) * (penalty + held + slope * (1 - slope)))
        found = max(found, best_event(densities[0], densities[1]))
    claimed = math.hypot(*(event.gaussian_mu() for event in events))
    return _limit(math.hypot(events[0].gaussian_mu(), found), claimed) | {"of_minimiser": found}


def _limit_of_batches(epsilon: float, scheme: Any, batch: int, n_rows: int, seed: int) -> dict[str, Any]:
    """One step: two mixtures, by the best event, and by right guesses."""
    method = StochasticHardThresholding(batch=batch, passes=batch / n_rows, sampling=scheme, step=1.0)
    (planned,) = regressor(method)(epsilon)._request(Squared(), n_rows).plan_all((n_rows, 1))
    event, _ = price_of(planned.plan.releases[0].mechanism)
    assert isinstance(event, SampledGaussianEvent)
    pair = sampled_pair(event)
    places = np.linspace(-12, 12, 40_001)
    first, second = (
        (1 - pair.rate) * np.exp(-(places**2) / 2) + pair.rate * np.exp(-((places - mean) ** 2) / 2)
        for mean in (pair.up, pair.down)
    )
    guesses = 2 * float(ndtri((1 + pair.total_variation) / 2))
    by_guesses = _limit(guesses, event.gaussian_mu())["ratio"]
    return _limit(max(best_event(first, second), guesses), event.gaussian_mu()) | {"by_guesses": by_guesses}


if __name__ == "__main__":
    measure_cells("limits", limits())
