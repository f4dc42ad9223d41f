"""The likelihood ratio of everything that a plan released, by an attacker who knows both data sets.

Given the earlier answers, a method asks the same question on either data set. The attacker evaluates it on both, knows
how the noise was drawn, and adds up the logarithms of the two densities at the answer. Only answers, public
facts and the two data sets enters, so that the number is one more function of what was released, and a bound that is
counted on it is valid. Where the mechanisms do what they claim, no other statistic tells the data sets apart better
(Neyman and Pearson). Random batches are secret: the density is then a mixture over all batches. Of a shuffled epoch no
secrecy is claimed, and the attacker is told who is in which batch.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
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

# Batches that are gone through one by one, and how many of them may hold different rows, which takes an answer each;
# with more of them their answers are left out of the ratio.
_MOST_BATCHES, _MOST_DIFFERENT = 4096, 64


class WatchedRows(Rows):
    """Rows that an audit made up. They remember who was in the last batch."""

    last_batch: npt.NDArray[np.intp] | None = None

    def batch(self, numbers: npt.NDArray[np.intp]) -> Rows:
        self.last_batch = numbers
        return super().batch(numbers)


class KnownWorlds:
    """Both data sets of an audit, as an attacker knows them: what would have been answered without noise.

    Parameters
    ----------
    planned : PlannedFit
    worlds : pair of Rows
        Clipped as in a fit.
    kinds : sequence of int or None, default=None
        A number for each row: rows of one number are equal, on both data sets. None: all are different.
    """

    def __init__(self, planned: PlannedFit, worlds: tuple[Rows, Rows], kinds: Sequence[int] | None = None) -> None:
        self._mechanisms = {release.name: release.mechanism for release in planned.plan.releases}
        self._public, self._worlds = planned.public, worlds
        self._everybody = [_exact_answers(rows, planned.public, self._mechanisms) for rows in worlds]
        self._batches: dict[str, Batches] = {}
        self._last: tuple[Any, list[list[Any]]] | None = None  # a question about batches, and its exact answers
        for name, mechanism in self._mechanisms.items():
            sampling = mechanism.sampling
            if sampling is None or sampling.scheme == "shuffled" or _count_batches(sampling) > _MOST_BATCHES:
                continue
            found = _different_batches(sampling, range(sampling.n_rows) if kinds is None else kinds)
            if len(found) <= _MOST_DIFFERENT:
                self._batches[name] = self._known_batches(list(found), sampling, np.log(list(found.values())))

    def _known_batches(self, members: Sequence[Sequence[int]], sampling: Sampling, log_chances: FloatArray) -> Batches:
        """What asks these batches on both data sets."""
        public = replace(self._public, n_rows=sampling.batch)
        asks = [
            [_exact_answers(rows.batch(np.array(one, dtype=np.intp)), public, self._mechanisms) for one in members]
            for rows in self._worlds
        ]
        return log_chances, asks, public

    @property
    def has_densities(self) -> bool:
        """Whether the density of some answer is known; not where all are of batches that are too many."""
        samplings = {name: one.sampling for name, one in self._mechanisms.items()}
        return any(one is None or one.scheme == "shuffled" or name in self._batches for name, one in samplings.items())

    def watch(self, ask: Ask, ratios: list[float], asked: WatchedRows | None = None) -> Ask:
        """`ask`, with the log-ratio of every answer appended to `ratios`. `asked` are the rows that it is about, which
        tell who is in a batch of a shuffled epoch."""

        def ask_and_weigh(name: str, query: Query, then: Then | None = None) -> Any:
            answer = ask(name, query, then=then)
            with np.errstate(all="ignore"):
                batch = None if asked is None else asked.last_batch
                ratio = self._log_ratio(name, query, answer, then is not None, batch)
            ratios.append(ratio if math.isfinite(ratio) else 0.0)
            return answer

        return ask_and_weigh

    def _log_ratio(self, name: str, query: Query, answer: Any, cut: bool, batch: npt.NDArray[np.intp] | None) -> float:
        """The log-density of the answer on the first data set minus that on the second. `cut`: numbers that are 0 were
        set to 0 afterwards and are left out."""
        mechanism = self._mechanisms[name]
        sampling = mechanism.sampling
        if sampling is None:
            density = log_density(mechanism, query.resolve(self._public).sensitivity(self._public))
            first, second = (density(ask(name, query), answer, cut) for ask in self._everybody)
            return first - second
        if sampling.scheme != "shuffled":
            batch = None  # which is secret
        if batch is not None:
            known = self._known_batches([batch.tolist()], sampling, np.zeros(1))
        elif name in self._batches:
            known = self._batches[name]
        else:
            return 0.0
        chances, worlds, public = known
        resolved = query.resolve(public)
        density = log_density(
            mechanism, Sensitivity(l2=max(resolved.sensitivity(public).l2, 2.0 * resolved.one_unit(public)))
        )
        # The first question is the same in every run.
        asked = (name, None if batch is None else batch.tobytes(), pickle.dumps(query))
        if self._last is None or self._last[0] != asked:
            self._last = asked, [[ask(name, query) for ask in asks] for asks in worlds]
        first, second = (
            float(logsumexp(chances + np.array([density(one, answer, cut) for one in exact])))
            for exact in self._last[1]
        )
        return first - second


def _exact_answers(rows: Rows, public: PublicFacts, mechanisms: dict[str, Mechanism]) -> Ask:
    """What asks these rows without noise, as often as you like."""
    plan = Plan(tuple(Release(name, Exact(), 2**62) for name in mechanisms))
    return Curator(rows, public, plan, np.random.default_rng(0)).ask


def _count_batches(sampling: Sampling) -> int:
    """How many batches there are."""
    if sampling.scheme == "poisson" and sampling.unit_rate < 1:
        return int(2 ** min(sampling.n_rows, 62))
    return math.comb(sampling.n_rows, sampling.batch)


def _different_batches(sampling: Sampling, kinds: Sequence[int]) -> dict[tuple[int, ...], float]:
    """Batches that hold different kinds of rows, each with the probability of all that hold the same."""
    first: dict[tuple[int, ...], tuple[int, ...]] = {}
    total: dict[tuple[int, ...], float] = {}
    for batch, chance in _all_batches(sampling):
        held = first.setdefault(tuple(sorted(kinds[row] for row in batch)), batch)
        total[held] = total.get(held, 0.0) + chance
    return total


def _all_batches(sampling: Sampling) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every batch with its probability."""
    n, rate = sampling.n_rows, sampling.batch / sampling.n_rows
    if sampling.scheme != "poisson" or sampling.unit_rate == 1:
        for batch in itertools.combinations(range(n), sampling.batch):
            yield batch, 1 / _count_batches(sampling)
        return
    for size in range(n + 1):
        chance = rate**size * (1 - rate) ** (n - size)
        if chance > 0:
            yield from ((batch, chance) for batch in itertools.combinations(range(n), size))


Density = Callable[[Any, Any, bool], float]  # of an exact answer, a released one, and whether zeros are left out
# Logarithms of the chances of batches, what asks them without noise on each data set, and the facts of one of them.
Batches = tuple[FloatArray, list[list[Ask]], PublicFacts]


def log_density(mechanism: Mechanism, sensitivity: Sensitivity) -> Density:
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
    released = np.asarray(_dense(answer), dtype=float)
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
