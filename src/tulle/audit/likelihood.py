"""The likelihood ratio of everything that a plan released, by an attacker who knows both data sets.

Given the earlier answers, a method asks the same question on either data set. The attacker evaluates it on both, knows
how the noise was drawn, and adds up the logarithms of the two densities at the answer. Nothing but answers, public
facts and the two data sets enters, so that the number is one more function of what was released, and a bound that is
counted on it is valid. Where the mechanisms do what they claim, no other statistic tells the data sets apart better
(Neyman and Pearson). Random batches are secret: the density is then a mixture over all batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax, logsumexp

from tulle.estimators.request import PlannedFit
from tulle.trusted.curator import Ask, Curator
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import (
    Exact,
    Gaussian,
    Laplace,
    Mechanism,
    NoisyMax,
    ObjectivePerturbation,
    Sensitivity,
    Then,
    TopK,
)
from tulle.trusted.objectives import PenalisedSum
from tulle.trusted.plan import Plan, Release
from tulle.trusted.queries import Query
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampling

# Batches that are gone through one by one; with more of them their answers are left out of the ratio.
_MOST_BATCHES = 64


class KnownWorlds:
    """Both data sets of an audit, as an attacker knows them: what would have been answered without noise.

    Parameters
    ----------
    planned : PlannedFit
    worlds : pair of Rows
        Clipped as in a fit.
    """

    def __init__(self, planned: PlannedFit, worlds: tuple[Rows, Rows]) -> None:
        self._mechanisms = {release.name: release.mechanism for release in planned.plan.releases}
        self._public = planned.public
        self._everybody = [_exact_answers(rows, planned.public, self._mechanisms) for rows in worlds]
        self._batches: dict[str, tuple[FloatArray, list[list[Ask]], PublicFacts]] = {}
        for name, mechanism in self._mechanisms.items():
            sampling = mechanism.sampling
            if sampling is not None and _count_batches(sampling) <= _MOST_BATCHES:
                found = list(_all_batches(sampling))
                public = replace(planned.public, n_rows=sampling.batch)
                asks = [
                    [
                        _exact_answers(rows.batch(np.array(batch, dtype=np.intp)), public, self._mechanisms)
                        for batch, _ in found
                    ]
                    for rows in worlds
                ]
                self._batches[name] = np.log([chance for _, chance in found]), asks, public

    @property
    def has_densities(self) -> bool:
        """Whether the density of some answer is known; not where all are of batches that are too many."""
        return any(one.sampling is None or name in self._batches for name, one in self._mechanisms.items())

    def watch(self, ask: Ask, ratios: list[float]) -> Ask:
        """`ask`, with the log-ratio of every answer appended to `ratios`."""

        def ask_and_weigh(name: str, query: Query, then: Then | None = None) -> Any:
            answer = ask(name, query, then=then)
            with np.errstate(all="ignore"):
                ratio = self._log_ratio(name, query, answer, then is not None)
            ratios.append(ratio if math.isfinite(ratio) else 0.0)
            return answer

        return ask_and_weigh

    def _log_ratio(self, name: str, query: Query, answer: Any, cut: bool) -> float:
        """The log-density of the answer on the first data set minus that on the second. `cut`: numbers that are 0 were
        set to 0 afterwards and are left out."""
        mechanism = self._mechanisms[name]
        if mechanism.sampling is None:
            density = _log_density(mechanism, query.resolve(self._public).sensitivity(self._public))
            first, second = (density(ask(name, query), answer, cut) for ask in self._everybody)
            return first - second
        if name not in self._batches:
            return 0.0
        chances, worlds, public = self._batches[name]
        resolved = query.resolve(public)
        density = _log_density(
            mechanism, Sensitivity(l2=max(resolved.sensitivity(public).l2, 2.0 * resolved.one_unit(public)))
        )
        first, second = (
            float(logsumexp(chances + np.array([density(ask(name, query), answer, cut) for ask in asks])))
            for asks in worlds
        )
        return first - second


def _exact_answers(rows: Rows, public: PublicFacts, mechanisms: dict[str, Mechanism]) -> Ask:
    """What asks these rows without noise, as often as you like."""
    plan = Plan(tuple(Release(name, Exact(), 2**62) for name in mechanisms))
    return Curator(rows, public, plan, np.random.default_rng(0)).ask


def _count_batches(sampling: Sampling) -> int:
    """How many batches there are; those of a shuffled epoch are taken one by one, as if drawn anew."""
    if sampling.scheme == "poisson":
        return int(2 ** min(sampling.n_rows, 62))
    return math.comb(sampling.n_rows, sampling.batch)


def _all_batches(sampling: Sampling) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every batch with its probability."""
    n, rate = sampling.n_rows, sampling.batch / sampling.n_rows
    if sampling.scheme != "poisson":
        for batch in itertools.combinations(range(n), sampling.batch):
            yield batch, 1 / _count_batches(sampling)
        return
    for size in range(n + 1):
        chance = rate**size * (1 - rate) ** (n - size)
        if chance > 0:
            yield from ((batch, chance) for batch in itertools.combinations(range(n), size))


Density = Callable[[Any, Any, bool], float]  # of an exact answer, a released one, and whether zeros are left out


def _log_density(mechanism: Mechanism, sensitivity: Sensitivity) -> Density:
    """The logarithm of the density of an answer, up to a constant. Of a mechanism that is not known: 0."""
    noise = mechanism.noise.value
    if isinstance(mechanism, Gaussian):
        return partial(_additive, power=2, scale=noise * sensitivity.l2)
    if isinstance(mechanism, Laplace):
        return partial(_additive, power=1, scale=noise * sensitivity.l1)
    if isinstance(mechanism, (TopK, NoisyMax)):
        return partial(_choice, scale=noise * sensitivity.linf)
    if isinstance(mechanism, ObjectivePerturbation) and sensitivity.objective is not None:
        return partial(_minimiser, scale=noise * sensitivity.objective.gradient)
    return lambda exact, answer, cut: 0.0


def _dense(values: Any) -> FloatArray:
    return np.asarray(
        values if isinstance(values, np.ndarray) or not hasattr(values, "to_dense") else values.to_dense()
    )


def _additive(exact: Any, answer: Any, cut: bool, power: int, scale: float) -> float:
    released = np.asarray(answer, dtype=float)
    off = np.abs(released - _dense(exact).reshape(released.shape))
    if cut:
        off = off[released != 0]
    return -float(np.sum((off / scale) ** power)) / power


def _choice(exact: Any, answer: Any, cut: bool, scale: float) -> float:
    """Of a choice with Gumbel noise. Of several items that were chosen at once the order is taken to be that of their
    scores, which is the likeliest; other noise is taken for Gumbel noise."""
    scores, chosen, total = _dense(exact) / scale, np.asarray(answer), 0.0
    for column in range(scores.shape[1]):
        left = scores[:, column].copy()
        items = np.flatnonzero(chosen[:, column]) if chosen.ndim == 2 else np.atleast_1d(chosen)[[column]]
        for item in items[np.argsort(-left[items], kind="stable")]:
            total += float(log_softmax(left)[item])
            left[item] = -np.inf
    return total


def _minimiser(exact: PenalisedSum, answer: Any, cut: bool, scale: float) -> float:
    """Of the linear term that the answer is the minimiser for: minus the gradient there. The change of variables, a
    determinant, is that of the objective's curvature."""
    theta = np.asarray(answer, dtype=float).reshape(exact.shape)

    def gradient(at: FloatArray) -> FloatArray:
        start = exact.penalty * (at - exact.centre)
        return np.asarray(exact.parts.sum(partial(exact.terms.gradient, theta=at), start))

    return -float(np.sum((gradient(theta) / scale) ** 2)) / 2
