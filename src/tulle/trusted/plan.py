"""Budgets, plans, accounting, calibration, ledgers and reports. The only file that runs accountants.

A method states what it will release as a list of `Release` (mechanism, count). `calibrate` searches the noise for
that list, the run charges a `Bill` as it goes, and the bill must equal the plan. Nobody writes an epsilon by hand.

Adjacency is replace-one throughout. Proofs: docs/proofs/accounting.md.
"""

from __future__ import annotations

import math
import numbers
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from types import TracebackType
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from tulle.events import Event, FloatArray, GaussianParts, Library, SampledGaussianEvent
from tulle.gaussian_tradeoff import gaussian_delta, gaussian_epsilon, gaussian_mu
from tulle.ledger_markers import leave_marker, take_marker_away, why_not_to_fit
from tulle.mechanisms import Mechanism
from tulle.privacy_loss import pairs_epsilon
from tulle.report import BillLine, PrivacyReport, rounded_up

__all__ = [
    "Bill",
    "BillLine",
    "Budget",
    "BudgetExceededError",
    "Ledger",
    "Plan",
    "PlanError",
    "PrivacyReport",
    "PrivacyWarning",
    "Release",
    "calibrate",
    "epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "library_epsilon",
]


class PlanError(RuntimeError):
    """A method asked for something else than its plan says: a bug in the method, never a user's mistake."""


class PrivacyWarning(UserWarning):
    """A promise that is weaker than it looks."""


class BudgetExceededError(RuntimeError):
    """A fit would have passed the cap of an open ledger. No noise was drawn and nothing was released."""


def is_number(value: Any) -> bool:
    """Whether a parameter is a real number, numpy's included; True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


@dataclass(frozen=True)
class Budget:
    """What may be spent: an (epsilon, delta) promise under replace-one adjacency.

    Parameters
    ----------
    epsilon : float
        In (0, inf).
    delta : float, default=0.0
        In [0, 1). 0 admits only releases that are purely epsilon-private.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (is_number(self.epsilon) and 0 < self.epsilon < math.inf):
            raise ValueError(
                f"epsilon must be a finite number > 0, got {self.epsilon!r}; use epsilon=None for a fit without privacy"
            )
        if not (is_number(self.delta) and 0 <= self.delta < 1):
            raise ValueError(f"delta must lie in [0, 1), got {self.delta!r}; choose it well below 1 / number of rows")
        # A float32 would pull later comparisons down to its own precision.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    def after(self, pure_epsilon: float) -> Budget:
        """What is left when a purely `pure_epsilon`-private release came first."""
        return Budget(self.epsilon - pure_epsilon, self.delta)


def default_delta(n_rows: int) -> float:
    """The delta of a budget where none is asked for: a tenth of what would allow publishing a row, at most 1e-5."""
    return min(1e-5, 1 / (10 * n_rows))


@dataclass(frozen=True)
class Release:
    """One line of a plan: a mechanism that will be used `count` times under one name."""

    name: str
    mechanism: Mechanism
    count: int

    @property
    def answers_each(self) -> int:
        """How many answers one use gives: several where each is about other rows, and a row is in one of them."""
        sampling = self.mechanism.sampling
        return 1 if sampling is None else sampling.answers_per_release

    @property
    def answers(self) -> int:
        """How many answers the plan allows in all."""
        return self.count * self.answers_each

    def scaled(self, factor: float) -> Release:
        return replace(self, mechanism=self.mechanism.scaled(factor))


Composition = tuple[tuple[Event, int], ...]

# What a fit proves of itself, (epsilon, delta); unlike a Budget it may be infinite.
Promise = tuple[float, float]


@dataclass(frozen=True)
class Plan:
    """Everything a fit will release.

    `preliminary` releases are purely private and come first; `releases` may be chosen in view of their answers,
    because the fit's own promise adds the two parts up as (e1 + e2, delta) and never composes them more tightly.
    """

    releases: tuple[Release, ...]
    preliminary: tuple[Release, ...] = ()

    def __post_init__(self) -> None:
        names = [release.name for release in self]
        if len(set(names)) < len(names):
            raise PlanError(f"two releases of one plan share a name: {names}")

    def __iter__(self) -> Iterator[Release]:
        yield from self.preliminary
        yield from self.releases

    def composition(self) -> Composition:
        return compose(self)

    @property
    def inexact(self) -> float:
        """What finite precision can move, in total variation: the sum over all answers."""
        return sum(release.answers * release.mechanism.inexact for release in self)


def compose(releases: Iterable[Release]) -> Composition:
    """The events of a list of releases with their multiplicities."""
    total: Counter[Event] = Counter()
    for release in releases:
        event, uses = release.mechanism.events
        total[event] += uses * release.count
    return tuple((event, count) for event, count in total.items() if count)


# --- accountants -----------------------------------------------------------------------------------------------------


class Accountant(ABC):
    """Turns a composition into an epsilon. Composition is adaptive: each mechanism may depend on earlier answers."""

    name: str

    @abstractmethod
    def supports(self, composition: Composition, delta: float) -> bool: ...

    @abstractmethod
    def epsilon(self, composition: Composition, delta: float) -> float: ...


def total_mu(composition: Composition) -> float:
    return math.sqrt(sum(count * event.gaussian_mu() ** 2 for event, count in composition))


def total_parts(composition: Composition) -> GaussianParts:
    """The shift and the Gaussians of a composition: shifts and mu² add up, multiplicities multiply.

    Where there would be very many, some are taken for the next larger mu², which only costs.
    """
    shift, total = 0.0, {0.0: 1.0}
    for event, count in composition:
        more, parts = event.gaussian_parts()
        shift += count * more
        if len(parts) > 1 and count > _MANY_USES:
            return shift, ((math.inf, math.inf),)  # other accountants do better by far
        repeated = [_repeated(parts, chosen) for chosen in _compositions_of(count, len(parts))]
        merged: dict[float, float] = {}
        for square, times in total.items():
            for factor, extra in repeated:
                merged[square + extra] = merged.get(square + extra, 0.0) + times * factor
        total = _rounded_up_squares(merged)
    return shift, tuple((times, square) for square, times in total.items())


# Uses of one many-part event that are still written out, and Gaussians that are told apart.
_MANY_USES, _MANY_PARTS = 64, 2048


def _rounded_up_squares(parts: dict[float, float]) -> dict[float, float]:
    if len(parts) <= _MANY_PARTS or math.isinf(max(parts)):
        return parts
    unit = max(parts) / _MANY_PARTS
    merged: dict[float, float] = {}
    for square, times in parts.items():
        up = math.ceil(square / unit) * unit * (1 + 1e-15)
        merged[up] = merged.get(up, 0.0) + times
    return merged


def _compositions_of(count: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `count` as an ordered sum of `kinds` numbers >= 0."""
    if kinds == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for rest in _compositions_of(count - first, kinds - 1):
            yield (first, *rest)


def _repeated(parts: Sequence[tuple[float, float]], chosen: Sequence[int]) -> tuple[float, float]:
    """The multiplicity and mu² of taking part k `chosen[k]` times, in any order."""
    if len(parts) == 1:
        times, square = parts[0]
        log_factor = chosen[0] * math.log(times)
        return (math.exp(log_factor) if log_factor < 700 else math.inf), chosen[0] * square
    ways = math.factorial(sum(chosen)) / math.prod(math.factorial(times) for times in chosen)
    factor = ways * math.prod(times**k for (times, _), k in zip(parts, chosen))
    return factor, sum(k * square for (_, square), k in zip(parts, chosen) if k)


class GaussianAccountant(Accountant):
    """Sums of Gaussians: exact where all events are Gaussian, an upper bound where others are dominated by some."""

    name = "Gaussian differential privacy"

    def supports(self, composition: Composition, delta: float) -> bool:
        return delta > 0

    def epsilon(self, composition: Composition, delta: float) -> float:
        shift, parts = total_parts(composition)
        if len(parts) == 1 and parts[0][0] == 1:
            return shift + gaussian_epsilon(math.sqrt(parts[0][1]), delta)

        def excess(epsilon: float) -> float:
            return sum(times * gaussian_delta(epsilon, math.sqrt(square)) for times, square in parts) - delta

        if any(math.isinf(square) or math.isinf(times) for times, square in parts):
            return math.inf
        if excess(0.0) <= 0:
            return shift
        high = 1.0
        while excess(high) > 0:
            high *= 2
        return shift + float(brentq(excess, 0.0, high, xtol=1e-14, rtol=1e-13)) * (1 + 1e-7)


# Where Rényi curves are compared first. A search puts its order on this grid: nothing is lost between the points then.
ORDERS = 1.0 + np.geomspace(1e-4, 1e7, 320)


def renyi_curve(composition: Composition, orders: FloatArray) -> FloatArray:
    return np.asarray(sum((count * event.renyi(orders) for event, count in composition), np.zeros_like(orders)))


def renyi_conversion(orders: FloatArray, delta: float) -> FloatArray:
    """What is added to a Rényi curve to get an epsilon at `delta` (Canonne, Kamath, Steinke 2020, prop. 12)."""
    return (math.log(1 / delta) - np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)


class RenyiAccountant(Accountant):
    """Rényi curves added up. Every order gives a valid epsilon; the best one is searched on two nested grids."""

    name = "Rényi differential privacy"

    def supports(self, composition: Composition, delta: float) -> bool:
        return delta > 0

    def epsilon(self, composition: Composition, delta: float) -> float:
        def curve(orders: FloatArray) -> FloatArray:
            return renyi_curve(composition, orders) + renyi_conversion(orders, delta)

        coarse = curve(ORDERS)
        best = int(np.argmin(coarse))
        low, high = ORDERS[max(best - 1, 0)], ORDERS[min(best + 1, len(ORDERS) - 1)]
        fine = curve(1.0 + np.geomspace(low - 1, high - 1, 320))
        return float(max(min(coarse[best], fine.min()), 0.0))


class PureAccountant(Accountant):
    """Basic composition of purely private releases; valid at every delta, 0 included."""

    name = "pure composition"

    def supports(self, composition: Composition, delta: float) -> bool:
        return True

    def epsilon(self, composition: Composition, delta: float) -> float:
        return sum(count * event.pure_epsilon() for event, count in composition)


class OptimalPureAccountant(Accountant):
    """Exact composition of randomised responses, the worst releases of their pure epsilons.

    No better bound holds for releases of which nothing but a pure epsilon is known (Kairouz, Oh, Viswanath 2015;
    docs/proofs/accounting.md, theorem 2'). Where epsilons differ every combination of answers is written out, as long
    as there are not too many.
    """

    name = "optimal composition of pure releases"

    # Combinations of answers that are still written out.
    _MANY_ANSWERS = 2**17
    # Chances are held as floats, and must be so precisely down to well below delta.
    _LEAST_DELTA = 1e-200

    def supports(self, composition: Composition, delta: float) -> bool:
        return (
            delta >= self._LEAST_DELTA
            and math.isfinite(sum(count * event.pure_epsilon() for event, count in composition))
            and math.prod(count + 1 for count in _pure_uses(composition).values()) <= self._MANY_ANSWERS
        )

    def epsilon(self, composition: Composition, delta: float) -> float:
        if not self.supports(composition, delta):
            return math.inf
        losses, chances, size = _randomised_responses(composition)
        # Chances err by a few units in the last place of the logarithms they are made of, losses by a few units of the
        # largest of them. The first is taken off delta, the second put on the result.
        room = delta * (1 - 4e-15 * (100 + size))

        def profile(j: int) -> float:
            """The delta at the j-th loss. All terms are positive: nothing cancels."""
            return float(np.sum(chances[:j] * -np.expm1(losses[j] - losses[:j])))

        low, high = 0, len(losses) - 1
        if profile(high) <= room:
            return 0.0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if profile(middle) <= room else (low, middle)
        # Between two losses the profile is linear in exp(epsilon).
        slope = float(np.sum(chances[:high] * np.exp(losses[low] - losses[:high])))
        share = (room - profile(low)) / slope
        solved = losses[low] + math.log1p(-share) if share < 1 else -math.inf
        return float(max(solved, losses[high]) + 1e-15 * losses[0])


def _pure_uses(composition: Composition) -> Counter[float]:
    """How often each pure epsilon > 0 occurs."""
    uses: Counter[float] = Counter()
    for event, count in composition:
        if event.pure_epsilon() > 0:
            uses[event.pure_epsilon()] += count
    return uses


def _randomised_responses(composition: Composition) -> tuple[FloatArray, FloatArray, float]:
    """The positive privacy losses of all answers together, falling, and a last 0; their chances; a size of logarithms.

    A response of pure epsilon e has the loss e with odds exp(e) : 1, and else -e.
    """
    losses, logs, size = np.zeros(1), np.zeros(1), 0.0
    for epsilon, count in _pure_uses(composition).items():
        false = np.arange(count + 1.0)
        factorials = gammaln(false + 1)
        binomials = factorials[-1] - factorials - factorials[::-1]
        losses = np.add.outer(losses, (count - 2 * false) * epsilon).ravel()
        logs = np.add.outer(logs, binomials - count * math.log1p(math.exp(-epsilon)) - false * epsilon).ravel()
        size += float(factorials[-1])
    order = np.argsort(-losses, kind="stable")[: np.count_nonzero(losses > 0)]
    return np.append(losses[order], 0.0), np.append(np.exp(logs[order]), 0.0), size


class PrivacyLossAccountant(Accountant):
    """Privacy losses added up as random variables: all but exact for the pairs of laws that dominate the events.

    For plans with random batches; others are served exactly and faster by the other accountants. Valid for adaptive
    releases, because dominating pairs compose (docs/proofs/sampled_gaussian.md, theorem 7).
    """

    name = "privacy loss distributions"

    # Below this the rounding of transforms is felt, and Rényi curves do as well.
    _LEAST_DELTA = 1e-40
    # Beyond this the losses of one release, about mu² / 2, are too large to be told apart to a digit that matters.
    _LARGEST_MU = 1e6

    def supports(self, composition: Composition, delta: float) -> bool:
        return (
            delta >= self._LEAST_DELTA
            and any(isinstance(event, SampledGaussianEvent) for event, _ in composition)
            and all(event.dominating_pair() is not None for event, _ in composition)
        )

    def epsilon(self, composition: Composition, delta: float) -> float:
        pairs = [(event.dominating_pair(), count) for event, count in composition]
        known = [(pair, count) for pair, count in pairs if pair is not None and pair.distance <= self._LARGEST_MU]
        if not self.supports(composition, delta) or len(known) < len(pairs):
            return math.inf
        return pairs_epsilon([(pair, count) for pair, count in known if pair.distance > 0], delta)


ACCOUNTANTS: tuple[Accountant, ...] = (
    PrivacyLossAccountant(),
    GaussianAccountant(),
    RenyiAccountant(),
    PureAccountant(),
    OptimalPureAccountant(),
)


@lru_cache(maxsize=256)
def best_accountant(composition: Composition, delta: float) -> tuple[float, str]:
    """The least epsilon that any of our accountants proves, and its name."""
    if not composition:
        return 0.0, "nothing was released"
    able = [a for a in ACCOUNTANTS if a.supports(composition, delta)]
    if isinstance(able[0], PrivacyLossAccountant):
        # It starts from what Rényi curves prove, which take time. Only the exact sum of Gaussians can be lower by a
        # part that matters, where a batch is all rows.
        able = [a for a in able if isinstance(a, (PrivacyLossAccountant, GaussianAccountant))]
    return min((a.epsilon(composition, delta), a.name) for a in able)


def epsilon(plan: Plan | Sequence[Release], delta: float) -> float:
    """The epsilon that is proved for the noise written in a plan.

    Parameters
    ----------
    plan : Plan or sequence of Release
    delta : float
        In [0, 1).
    """
    return proof(plan, delta)[0]


def proof(plan: Plan | Sequence[Release], delta: float) -> tuple[float, str]:
    """The proved epsilon of a plan and the name of the accountant that proves it."""
    if not isinstance(plan, Plan):
        plan = Plan(tuple(plan))
    proved, _, name = _proof(plan, delta)
    return proved, name


def arithmetic_delta(plan: Plan, delta: float) -> float:
    """The part of `delta` that finite precision takes of a plan's proof."""
    return _proof(plan, delta)[1]


# What finite precision may take of a delta that is calibrated to.
MOST_ARITHMETIC = 0.1


def _proof(plan: Plan, delta: float) -> tuple[float, float, str]:
    """The proved epsilon, the part of `delta` for finite precision, and the name of the accountant.

    If answers are within tv of an ideal (e, d)-DP law, they are (e, d + (1 + exp(e)) tv)-DP: lemma 3 of
    docs/proofs/floating_point.md. So the ideal law has to keep to what is left of delta.
    """
    first = PureAccountant().epsilon(compose(plan.preliminary), delta)
    releases, tv = compose(plan.releases), plan.inexact
    if tv == 0:
        rest, name = best_accountant(releases, delta)
        return first + rest, 0.0, name
    for share in (MOST_ARITHMETIC, 0.5, 0.9, 1.0):
        rest, name = best_accountant(releases, (1 - share) * delta)
        needed = (1 + _exp(first + rest)) * tv
        if needed <= share * delta:  # at the larger delta that this leaves, epsilon is no larger
            rest, name = best_accountant(releases, delta - needed)
            return first + rest, needed, name
    return math.inf, min(needed, 1.0), name


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def bill_lines(releases: Iterable[Release], delta: float) -> tuple[BillLine, ...]:
    """What a report says of each release: its noise, and what it would cost alone."""
    return tuple(
        BillLine(
            release.name,
            release.mechanism.label,
            release.count,
            release.mechanism.noise.value,
            proof([release], delta)[0],
        )
        for release in releases
    )


def calibrate(releases: Sequence[Release], budget: Budget) -> tuple[Release, ...]:
    """The releases with the least noise that meets the budget.

    Parameters
    ----------
    releases : sequence of Release
        Their noises are read as relative to each other: all are multiplied by one common factor.
    budget : Budget

    Returns
    -------
    tuple of Release
        `epsilon(result, budget.delta)` is at most `budget.epsilon`, and within one part in a million of it; commonly
        within one in two thousand, always within one in a hundred, where privacy losses are added up.
    """
    return _calibrated(tuple(releases), budget)


# Adding up privacy losses takes time: their calibration ends at this part of the budget.
_ENOUGH = 0.9995


@lru_cache(maxsize=256)  # the same plan is calibrated for every fold, clone and audit run
def _calibrated(releases: tuple[Release, ...], budget: Budget) -> tuple[Release, ...]:
    def spent(log_factor: float) -> float:
        return epsilon([r.scaled(math.exp(log_factor)) for r in releases], budget.delta)

    sharp = PrivacyLossAccountant().supports(compose(releases), budget.delta)
    low, high = -1.0, 1.0
    while spent(high) > budget.epsilon:
        low, high = high, high + 2 * (high - low)
        if high > 300:
            names = ", ".join(r.name for r in releases)
            advice = "with delta = 0 use pure mechanisms only"
            if Plan(releases).inexact:
                advice = "finite precision takes more; use engine='plain', fewer iterations or a smaller epsilon"
            raise ValueError(f"no amount of noise on {names} gives {budget}: {advice}")
    while spent(low) <= budget.epsilon:
        low, high = low - 2 * (high - low), low
        if low < -300:
            raise ValueError(f"the plan costs nothing at any noise: {releases}")
    search = _secant_search if sharp else _halving_search
    factor = math.exp(search(spent, low, high, budget.epsilon))
    return tuple(r.scaled(factor) for r in releases)


def _halving_search(spent: Callable[[float], float], low: float, high: float, target: float) -> float:
    """The end of a small interval at which at most the target is spent; it is so at `high` and not at `low`."""
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= target else (middle, high)
    return high


def _secant_search(spent: Callable[[float], float], low: float, high: float, target: float) -> float:
    """A place at which a little less than the target is spent, in few steps; at most that is at `high`, not at `low`.

    Secants of log(spent), where the same end is kept twice the value there is halved (the Illinois method).
    """

    def excess(place: float) -> float:
        """Of the middle of what is wanted, in logarithms and not too far from it for a secant to be of use."""
        share = spent(place) / (target * (1 + _ENOUGH) / 2)
        return max(min(math.log(max(share, 1e-300)), 3.0), -3.0)

    above, below, kept = excess(low), excess(high), 0
    while high - low > 1e-9 and spent(high) < _ENOUGH * target:
        middle = (low * below - high * above) / (below - above)
        # Never so close to an end that the interval would not shrink.
        middle = min(max(middle, low + 0.01 * (high - low)), high - 0.01 * (high - low))
        value = excess(middle)
        if spent(middle) <= target:
            high, below = middle, value
            above, kept = (above / 2 if kept > 0 else above), 1
        else:
            low, above = middle, value
            below, kept = (below / 2 if kept < 0 else below), -1
    return high


def library_epsilon(composition: Composition, delta: float, library: Library) -> float | None:
    """dp-accounting's own epsilon of a composition, as a cross-check; None where it does not know the events."""
    from dp_accounting import NeighboringRelation, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    accountant = (
        RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        if library == "rdp"
        else PLDAccountant(NeighboringRelation.REPLACE_ONE, 1e-4)
    )
    for event, count in composition:
        dp_event = event.to_dp_accounting(library)
        if dp_event is None:
            return None
        # One by one, not as a ComposedDpEvent: the contract test compares sums with our own.
        accountant.compose(SelfComposedDpEvent(dp_event, count))
    return float(accountant.get_epsilon(delta))


# --- the bill of one fit ---------------------------------------------------------------------------------------------


class Bill:
    """What a fit has released so far. A release is charged before its noise is drawn."""

    def __init__(self, plan: Plan) -> None:
        self._planned = {release.name: release for release in plan}
        self._used: Counter[str] = Counter()

    def charge(self, name: str) -> Release:
        """Charge one use of the release called `name`, or raise if the plan holds no such use."""
        release = self._planned.get(name)
        if release is None:
            raise PlanError(f"the method asks for {name!r}, which is not in its plan ({sorted(self._planned)})")
        if self._used[name] >= release.answers:
            raise PlanError(f"the method asks for {name!r} more than the {release.answers} times in its plan")
        self._used[name] += 1
        return release

    def settle(self) -> None:
        """Raise unless exactly the plan was released."""
        planned = {name: release.count for name, release in self._planned.items() if release.count}
        released = {name: math.ceil(uses / self._planned[name].answers_each) for name, uses in self._used.items()}
        if released != planned:
            raise PlanError(f"the method released {released} but planned {planned}")


# --- a cap over many fits --------------------------------------------------------------------------------------------

_open_ledgers: list[Ledger] = []

# By how much shares may add up to more than 1: the rounding of calibrations and sums.
ROUNDING = 1e-9

_OTHER_PROCESS = (
    "Run the fits in the ledger's own process (n_jobs=1, or joblib's threading backend). Nothing was released"
)


class Ledger:
    """A cap on everything that fits release while the ledger is open.

    Every private fit inside ``with Ledger(cap):`` is billed, clones and cross-validation folds included; one that
    would pass the cap raises `BudgetExceededError` before it draws noise. The fits may depend on each other's
    results: the ledger is a privacy filter (docs/proofs/accounting.md, theorem 4). Its currency (Gaussian mu², Rényi
    divergence at one order, or plain sums of epsilon and delta) is fixed by the first fit, before that fit's noise.

    Parameters
    ----------
    cap : Budget
        The promise that holds for all fits together.

    Examples
    --------
    >>> from tulle import Budget, Ledger
    >>> with Ledger(Budget(3.0, 1e-5)) as ledger:
    ...     pass  # fit models here
    >>> ledger.epsilon
    0.0
    """

    def __init__(self, cap: Budget) -> None:
        if not isinstance(cap, Budget):
            raise TypeError(f"Ledger(cap) takes a Budget, for example Budget(3.0, 1e-5); got {cap!r}")
        self.cap = cap
        self.fits: list[tuple[str, float]] = []
        self._currency: Currency | None = None
        self._rows_per_unit: int | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __enter__(self) -> Ledger:
        # Process-wide, not per thread: a fold that joblib runs in another thread is billed too.
        leave_marker()
        _open_ledgers.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open_ledgers.remove(self)
        if not _open_ledgers:
            take_marker_away()

    @property
    def share(self) -> float:
        """The part of the cap that is spent, in [0, 1]."""
        return sum(share for _, share in self.fits)

    @property
    def epsilon(self) -> float:
        """The epsilon that is proved, at the cap's delta, for everything billed so far."""
        return self._currency.epsilon(self.share) if self._currency is not None else 0.0

    def quote(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> tuple[Currency, float]:
        """The currency and share of a fit, or an error where the ledger would refuse it.

        Where the fit will choose among several plans, in view of its preliminary answers, the dearest counts.
        """
        if os.getpid() != self._pid:
            raise BudgetExceededError(
                f"a ledger is open in another process, number {self._pid}, and cannot bill this fit. {_OTHER_PROCESS}"
            )
        if self._rows_per_unit not in (None, rows_per_unit):
            raise ValueError(
                f"this ledger protects units of {self._rows_per_unit} row(s) and {what} units of {rows_per_unit}; "
                "their costs cannot be added up, use a ledger for each"
            )
        currency = self._currency or self._first_currency(plans, promise)
        share = max(currency.share(plan, promise) for plan in plans)
        if self.share + share > 1 + ROUNDING:
            advice = "Lower this fit's epsilon or open a ledger with a higher cap"
            reach = f"to {100 * (self.share + share):.1f} % of" if math.isfinite(share) else "past"
            if math.isinf(share) and math.isfinite(promise[0]):
                advice = "It has no price in the currency that the ledger's first fit fixed; run it first or apart"
            if self.cap.delta == 0 < promise[1]:
                advice = f"It promises delta = {rounded_up(promise[1], 2)}; open a ledger whose cap has a delta"
            raise BudgetExceededError(
                f"{what} would take the ledger {reach} its cap "
                f"(epsilon = {self.cap.epsilon:g}, delta = {self.cap.delta:g}; {100 * self.share:.1f} % is spent); "
                f"nothing was released. {advice}"
            )
        return currency, share

    def _first_currency(self, plans: Sequence[Plan], promise: Promise) -> Currency:
        """The currency that the first fit fixes."""
        return cheapest_currency(self.cap, plans, promise)

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        """Bill a fit before it draws noise; returns how many fits were billed before."""
        with self._lock:
            self._currency, share = self.quote(what, plans, promise, rows_per_unit)
            self._rows_per_unit = rows_per_unit
            self.fits.append((what, share))
            return len(self.fits) - 1

    # Whether the same fits with the same seeds in another ledger like this draw the same noise.
    repeats = True

    def stream(self, number: int) -> tuple[int, ...]:
        """What tells the noise of the fit of this number from that of others under the same seed."""
        return (number,)

    def confirm(self, plan: Plan, promise: Promise, number: int) -> None:
        """Raise unless the plan that a fit settled on costs no more than was billed for it."""
        if self._currency is None or self._currency.share(plan, promise) > self.fits[number][1] * (1 + 1e-8):
            raise PlanError("the method's plan depends on the estimated bounds in a way that was not billed")

    def __str__(self) -> str:
        lines = [
            f"Ledger: cap epsilon = {self.cap.epsilon:g}, delta = {self.cap.delta:g}; "
            f"proved so far epsilon = {rounded_up(self.epsilon)} ({100 * self.share:.1f} % of the cap)"
        ]
        lines += [f"  {100 * share:6.2f} %  {what}" for what, share in self.fits]
        return "\n".join(lines)

    def __getstate__(self) -> Any:
        raise TypeError("a Ledger cannot be copied or sent to another process: its fits would be billed twice or never")


def ledgers_are_open() -> bool:
    """Whether fits of this process are being billed."""
    return bool(_open_ledgers)


# A fit's place in a ledger: the ledger and the number of fits billed before.
Entry = tuple[Ledger, int]

# Stands in for the open ledgers, in this thread alone, while what they were billed for beforehand is carried out.
_prepaid: ContextVar[Ledger | None] = ContextVar("tulle_prepaid", default=None)


@contextmanager
def billed_to(ledger: Ledger) -> Iterator[None]:
    """Bill fits to `ledger` instead of the open ledgers, which were billed for all that `ledger` allows."""
    token = _prepaid.set(ledger)
    try:
        yield
    finally:
        _prepaid.reset(token)


# The public rows that a student is fitted to, in this thread.
_lessons: ContextVar[Any] = ContextVar("tulle_lessons", default=None)


@contextmanager
def taught_on(rows: Any) -> Iterator[None]:
    """While a student is fitted to these public rows, and to answers that were paid for, no ledger is billed for it."""
    token = _lessons.set(rows)
    try:
        yield
    finally:
        _lessons.reset(token)


def is_being_taught_on(X: Any) -> bool:
    """Whether these are exactly the public rows of the student that is fitted: not copies, not more or fewer rows."""

    def place(rows: Any) -> Any:
        entries = getattr(rows, "data", None) if not isinstance(rows, np.ndarray) else rows
        if not isinstance(entries, np.ndarray):
            return rows
        return entries.__array_interface__["data"][0], entries.shape, entries.strides

    rows = _lessons.get()
    return rows is not None and (rows is X or (rows.shape == X.shape and place(rows) == place(X)))


def bill_open_ledgers(what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> tuple[Entry, ...]:
    """Bill a fit to every open ledger."""
    ledgers = list(_open_ledgers)
    if (prepaid := _prepaid.get()) is not None:
        ledgers = [prepaid]
    # A ledger of its own does not free a worker from its parent's: in one process both would be billed.
    if prepaid is None and (why := why_not_to_fit()):
        raise BudgetExceededError(f"{why}. {_OTHER_PROCESS}")
    for ledger in ledgers:  # all or none
        ledger.quote(what, plans, promise, rows_per_unit)
    if _open_ledgers:
        leave_marker()  # should somebody have cleared it away
    return tuple((ledger, ledger.bill(what, plans, promise, rows_per_unit)) for ledger in ledgers)


def confirm_entries(entries: Sequence[Entry], plan: Plan, promise: Promise) -> None:
    """Raise if the plan that a fit chose in view of its preliminary answers costs more than was billed for it."""
    for ledger, number in entries:
        ledger.confirm(plan, promise, number)


def stream_of(entries: Sequence[Entry]) -> tuple[int, ...]:
    """What tells the noise of a billed fit from that of another under the same seed."""
    return tuple(word for ledger, number in entries for word in ledger.stream(number))


def can_be_repeated(entries: Sequence[Entry]) -> bool:
    """Whether a billed fit with a seed could ever draw its noise again: a nonce in its stream forbids it."""
    return all(ledger.repeats for ledger, _ in entries)


# --- currencies: in what a ledger counts -----------------------------------------------------------------------------


class Currency(ABC):
    """A price for every fit, as a share of a cap. Shares add up, and what adds up to at most 1 is within the cap."""

    @abstractmethod
    def share(self, plan: Plan, promise: Promise) -> float:
        """The part of the cap that a plan takes; inf where it has no price."""

    @abstractmethod
    def epsilon(self, share: float) -> float:
        """The epsilon, at the cap's delta, that is proved where this share is spent."""


def cheapest_currency(cap: Budget, plans: Sequence[Plan], promise: Promise, *, with_gaussian: bool = True) -> Currency:
    """The currency in which the first fit takes the least share of the cap.

    Each currency is a valid privacy filter on its own; fixing one before any noise is drawn keeps it so.
    """
    currencies: list[Currency] = [SumCurrency(cap)]
    if cap.delta > 0:
        orders = 1.0 + np.geomspace(1e-3, 1e5, 800)
        room = np.maximum(cap.epsilon - renyi_conversion(orders, cap.delta), 1e-300)
        dearest = np.max([renyi_curve(plan.composition(), orders) for plan in plans], axis=0)
        currencies.append(RenyiCurrency(cap, float(orders[np.argmin(dearest / room)])))
    if cap.delta > 0 and with_gaussian:
        currencies.append(GaussianCurrency(cap))
    return min(currencies, key=lambda currency: max(currency.share(plan, promise) for plan in plans))


def _arithmetic_share(cap: Budget, plan: Plan) -> float:
    """The part of a cap's delta that finite precision takes of a plan."""
    return (1 + _exp(cap.epsilon)) * plan.inexact / cap.delta


@dataclass(frozen=True)
class SumCurrency(Currency):
    """Basic composition: epsilons and deltas add up."""

    cap: Budget

    def share(self, plan: Plan, promise: Promise) -> float:
        epsilon, delta = promise
        delta_share = 0.0 if delta == 0 else math.inf if self.cap.delta == 0 else delta / self.cap.delta
        return max(epsilon / self.cap.epsilon, delta_share)

    def epsilon(self, share: float) -> float:
        return share * self.cap.epsilon


@dataclass(frozen=True)
class GaussianCurrency(Currency):
    """Squares of Gaussian mu add up; other mechanisms than Gaussian ones may have no price."""

    cap: Budget

    @property
    def mu(self) -> float:
        return gaussian_mu(self.cap.epsilon, self.cap.delta)

    def share(self, plan: Plan, promise: Promise) -> float:
        share = (total_mu(plan.composition()) / self.mu) ** 2
        if plan.inexact == 0:
            return share
        # Finite precision takes a part of the cap's delta. Where this holds, the delta at the cap's epsilon is convex
        # in the share of mu² and at most the share of the cap's delta, so both parts may be added up.
        convex = self.cap.epsilon**2 >= self.mu**4 / 4 + self.mu**2
        return share + _arithmetic_share(self.cap, plan) if convex else math.inf

    def epsilon(self, share: float) -> float:
        return gaussian_epsilon(math.sqrt(share) * self.mu, self.cap.delta)


@dataclass(frozen=True)
class RenyiCurrency(Currency):
    """Rényi divergences at one order add up."""

    cap: Budget
    order: float

    @property
    def conversion(self) -> float:
        return float(renyi_conversion(np.array([self.order]), self.cap.delta)[0])

    @property
    def room(self) -> float:
        """The divergence that the cap allows; none where it is not positive."""
        return self.cap.epsilon - self.conversion

    def share(self, plan: Plan, promise: Promise) -> float:
        if self.room <= 0:
            return math.inf
        share = float(renyi_curve(plan.composition(), np.array([self.order]))[0]) / self.room
        if plan.inexact == 0:
            return share
        # With a share s to spare the delta at the cap's epsilon is that of the cap times exp(-s room (order - 1)).
        return share + _arithmetic_share(self.cap, plan) / -math.expm1(-self.room * (self.order - 1))

    def epsilon(self, share: float) -> float:
        return share * self.room + self.conversion if self.room > 0 else math.inf
