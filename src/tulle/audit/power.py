"""The power of an audit, before its runs: how large a violation would be seen with so many runs.

Power is computed for two releases whose curves are known, from binomial quantiles. A Gaussian release is what most
private fits look like to an attacker. Randomised response is the easiest one: no (epsilon, delta) release gives an
attacker more. Both numbers assume that the attack finds the best event; a worse attack sees less.

>>> from tulle.audit import expected_power
>>> print(expected_power(2_000, delta=1e-5, claimed=1.0))  # doctest: +NORMALIZE_WHITESPACE
the claim ε = 1 is refuted in 90 % of audits if the release is Gaussian with ε >= 4.31, or randomised response with ε
>= 1.27 (1,000 counted runs, confidence 0.95, best event found)
>>> expected_power(2_000, delta=1e-5, claimed=1.0).has_power
False
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import expit, ndtr
from scipy.stats import binom

from tulle.accounting.bounds_from_counts import epsilon_lower_bound, mu_lower_bound
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.files.number_text import rounded_up
from tulle.trusted.events import FloatArray
from tulle.trusted.gaussian import gaussian_epsilon

# The judges whose power is known.
JUDGES_WITH_POWER = ("any", "gaussian")
# An audit that sees no violation below this multiple of the claim has no power worth the name.
SEVERAL = 3.0
# The violation that an audit of enough runs sees: this multiple of the claim.
WORTH_SEEING = 2.0

_MOST_RUNS = 10**9
_LARGEST_MU = 60.0
_LARGEST_EPSILON = 60.0


@dataclass(frozen=True)
class Power:
    """The smallest violations that an audit sees.

    Attributes
    ----------
    judge : {"any", "gaussian"}
    counted : int
        Runs that are counted on each data set.
    delta, confidence : float
    claimed : float or None
        The claimed epsilon; with judge "gaussian" that of the claimed mu.
    chance : float
        The probability with which these violations are seen, at least.
    gaussian : float or None
        The smallest epsilon of a Gaussian release that is seen; inf where none is; None at delta = 0, where a Gaussian
        release has no epsilon.
    easiest : float or None
        The same for randomised response; None with judge "gaussian", whose claims it cannot meet.
    runs_needed : int or None
        Runs on each data set, half of them counted, that show a release of twice the claimed epsilon (Gaussian, or
        randomised response at delta = 0); rounded up to two digits. None where nothing is claimed, the claim is 0, or
        more than a billion are needed.
    """

    judge: str
    counted: int
    delta: float
    confidence: float
    claimed: float | None
    chance: float
    gaussian: float | None
    easiest: float | None
    runs_needed: int | None

    @property
    def seen(self) -> float:
        """The smallest epsilon of a usual release that is seen: Gaussian, or randomised response at delta = 0."""
        return next(value for value in (self.gaussian, self.easiest, math.inf) if value is not None)

    @property
    def has_power(self) -> bool:
        """Whether a violation by a factor of three would be seen; without a claim, whether anything would be."""
        return self.seen <= SEVERAL * self.claimed if self.claimed else self.seen < math.inf

    @property
    def shortfall(self) -> str:
        """What to say of an audit without power, and how many runs it would need; "" where it has power."""
        if self.has_power:
            return ""
        if self.runs_needed is None:
            return "this audit had no power; more than 1,000,000,000 runs would be needed"
        factor = f"{WORTH_SEEING:g} times the claimed ε"
        return f"this audit had no power; {self.runs_needed:,} runs would be needed to see {factor}"

    def __str__(self) -> str:
        releases = [("Gaussian", self.gaussian), ("randomised response", self.easiest)]
        seen = [f"{name} with ε >= {rounded_up(value, 3)}" for name, value in releases if value and value < math.inf]
        claim = "a claim of no leak" if self.claimed is None else f"the claim ε = {self.claimed:.4g}"
        runs = f"{self.counted:,} counted runs, confidence {self.confidence:g}"
        if not seen:
            return f"{claim} cannot be refuted, whatever the release ({runs})"
        often = f"in {100 * self.chance:g} % of audits"
        return f"{claim} is refuted {often} if the release is {', or '.join(seen)} ({runs}, best event found)"


def expected_power(
    runs: int,
    *,
    delta: float,
    claimed: float | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    confidence: float = 0.95,
    chance: float = 0.9,
    counted: int | None = None,
) -> Power:
    """How large a violation an audit with so many runs would see. Nothing is run.

    Parameters
    ----------
    runs : int
        Runs on each data set, as for `audit_function` and `audit_model`: at least 8.
    delta : float
        In [0, 1).
    claimed : float or None, default=None
        The claimed epsilon, for judge="any". None: what is told from no leak at all.
    judge : {"any", "gaussian"}, default="any"
    claimed_mu : float or None, default=None
        The claimed mu, for judge="gaussian", which needs a delta > 0.
    confidence : float, default=0.95
        In (0, 1).
    chance : float, default=0.9
        In (0, 1): how likely the violation is to be seen.
    counted : int or None, default=None
        How many of the runs are counted; None is the half of them that does not choose the attack.

    Returns
    -------
    Power
    """
    if not (isinstance(runs, int) and runs >= 8):
        raise ValueError(f"runs must be a whole number >= 8, got {runs!r}")
    check_chances(delta, confidence, chance)
    if judge not in JUDGES_WITH_POWER:
        raise ValueError(f"power is known for judge='any' and judge='gaussian', got {judge!r}")
    if judge == "gaussian" and (claimed_mu is None or delta == 0):
        raise ValueError("judge='gaussian' tests a claim of mu-GDP: pass claimed_mu, and a delta > 0")
    claim = claimed_mu if judge == "gaussian" else claimed
    if claim is not None and not 0 <= claim < math.inf:
        raise ValueError(f"the claim must be a finite number >= 0, got {claim!r}")
    return _power(judge, runs - runs // 2 if counted is None else counted, delta, claim, confidence, chance)


def check_chances(delta: float, confidence: float, chance: float) -> None:
    """Raise for a probability out of range."""
    for name, value in (("confidence", confidence), ("chance", chance)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}")


@lru_cache(maxsize=64)
def _power(judge: str, counted: int, delta: float, claim: float | None, confidence: float, chance: float) -> Power:
    limit, claimed = claim or 0.0, claim

    def sees_gaussian(mu: float, runs: int) -> bool:
        thresholds = np.linspace(-5.0, mu + 5.0, 800)
        rates = ndtr(mu - thresholds), ndtr(-thresholds)
        return _prove(judge, *rates, runs, delta, confidence, chance) > limit

    def sees_easiest(epsilon: float, runs: int) -> bool:
        hit, false = expit(np.array([epsilon])), expit(np.array([-epsilon]))
        return _prove(judge, delta + (1 - delta) * hit, (1 - delta) * false, runs, delta, confidence, chance) > limit

    gaussian = easiest = None
    if delta > 0:
        mu = smallest_seen(lambda value: sees_gaussian(value, counted), _LARGEST_MU)
        gaussian = gaussian_epsilon(mu, delta) if mu < math.inf else math.inf
    if judge == "gaussian":
        claimed = gaussian_epsilon(limit, delta)
    else:
        easiest = smallest_seen(lambda value: sees_easiest(value, counted), _LARGEST_EPSILON)
    needed = None
    if claimed:
        violation = WORTH_SEEING * claimed
        if delta > 0:
            needed = _runs_needed(lambda n: sees_gaussian(gaussian_mu(violation, delta), n))
        else:
            needed = _runs_needed(lambda n: sees_easiest(violation, n))
    return Power(judge, counted, delta, confidence, claimed, chance, gaussian, easiest, needed)


def _prove(
    judge: str, hit: FloatArray, false: FloatArray, runs: int, delta: float, confidence: float, chance: float
) -> float:
    """The bound that counts of the best of some events reach with probability `chance`, in the judge's measure."""
    miss = (1 - chance) / 2  # for each of the two counts
    hits, false_hits = binom.ppf(miss, runs, hit), binom.ppf(1 - miss, runs, false)
    if judge == "gaussian":
        return float(np.max(mu_lower_bound(hits, false_hits, runs, confidence)))
    return float(np.max(epsilon_lower_bound(hits, false_hits, runs, delta, confidence)))


def smallest_seen(is_seen: Callable[[float], bool], largest: float) -> float:
    """The smallest value that is seen, from above, to three digits; inf where `largest` is not seen."""
    if not is_seen(largest):
        return math.inf
    low, high = 0.0, largest
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_seen(middle) else (middle, high)
    return high


def _runs_needed(suffices: Callable[[int], bool]) -> int | None:
    if not suffices(_MOST_RUNS // 2):
        return None
    low, high = 3.0, math.log(_MOST_RUNS // 2)  # of counted runs, in logarithms
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(math.ceil(math.exp(middle))) else (middle, high)
    runs = 2 * math.ceil(math.exp(high))
    unit = 10 ** max(0, len(str(runs)) - 2)
    return -(-runs // unit) * unit
