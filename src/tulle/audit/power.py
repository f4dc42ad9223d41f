"""The power of an audit, before its runs: how large a violation would be seen with so many runs.

Power is computed for releases whose curves are known, from binomial quantiles and by the judge's own ways to count. A
Gaussian release is what most private fits look like to an attacker. Randomised response is the easiest one: no
(epsilon, delta) release gives an attacker more. For judge "bounded_range" it is a choice between two. All numbers
assume that the attack finds the best event; a worse attack sees less. Proof: docs/proofs/audit.md.

>>> from tulle.audit import expected_power
>>> print(expected_power(2_000, delta=1e-5, claimed=1.0))  # doctest: +NORMALIZE_WHITESPACE
the claim ε = 1 is refuted in 90 % of audits if the release is Gaussian with ε >= 4.32, or randomised response with ε
>= 1.27 (1,000 counted runs, confidence 0.95, best event found)
>>> expected_power(2_000, delta=1e-5, claimed=1.0).has_power
False
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np
from scipy.special import expit, ndtr
from scipy.stats import binom

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit.attacks import split_confidence
from tulle.audit.claimed_curves import epsilon_of_range
from tulle.audit.judges import BoundedRange, GaussianCurve, Judge, choose_judge
from tulle.files.number_text import rounded_up
from tulle.trusted.events import FloatArray
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.plan import is_number

Attack = Literal["chosen", "likelihood_ratio"]

# The judges whose power is known.
JUDGES_WITH_POWER = ("any", "gaussian", "bounded_range")
# An audit that sees no violation below this multiple of the claim has no power worth the name.
SEVERAL = 3.0
# The violation that an audit of enough runs sees: this multiple of the claim.
WORTH_SEEING = 2.0

_MOST_RUNS = 10**9
_LARGEST = 60.0  # of a mu, a range or an epsilon

_OfNumber = Callable[[float], float]


@dataclass(frozen=True)
class _Counting:
    """How an audit counts its runs, and how often it is to succeed."""

    splits: int
    attack: Attack
    delta: float
    confidence: float
    chance: float

    def counted(self, runs: int) -> int:
        """The runs of each part that is counted."""
        if self.attack == "likelihood_ratio":
            return runs
        return runs - runs // 2 if self.splits == 1 else runs // self.splits

    def runs(self, counted: int) -> int:
        """The runs of which so many are counted in each part."""
        return counted if self.attack == "likelihood_ratio" else counted * max(2, self.splits)

    def reached(self, judge: Judge, hit: FloatArray, false: FloatArray, counted: int) -> float:
        """The bound that the best of some events reaches with the stated chance, in the judge's measure.

        One of several independent parts has to reach it: each may miss it more often than all together.
        """
        each, miss = split_confidence(self.confidence, self.splits), (1 - self.chance) ** (1 / self.splits)
        ways = judge.ways(each)[-1:] if self.attack == "likelihood_ratio" else judge.ways(each)
        bounds = []
        for way in ways:
            if isinstance(way, GaussianCurve | BoundedRange) and way.guesses:
                # The event with the most right guesses errs as often in either world, so that their sum is binomial.
                right = binom.ppf(miss, 2 * counted, np.max(hit + 1 - false) / 2)
                bounds.append(way.bound(right, counted, counted, self.delta, each))  # no false hit is left to add
            else:
                hits, false_hits = binom.ppf(miss / 2, counted, hit), binom.ppf(1 - miss / 2, counted, false)
                bounds.append(way.bound(hits, false_hits, counted, self.delta, each))
        return max(float(np.max(bound)) for bound in bounds)


@dataclass(frozen=True)
class Power:
    """The smallest violations that an audit sees.

    Attributes
    ----------
    judge : {"any", "gaussian", "bounded_range"}
    counted : int
        Runs that are counted on each data set, in each part.
    splits : int
        Parts that are counted, each at its share of the allowed failure.
    delta, confidence : float
    claimed : float or None
        The claimed epsilon; with judges "gaussian" and "bounded_range" that of the claimed mu or range.
    chance : float
        The probability with which these violations are seen, at least.
    gaussian : float or None
        The smallest epsilon of a Gaussian release that is seen; inf where none is; None at delta = 0, where a Gaussian
        release has no epsilon, and with judge "bounded_range".
    easiest : float or None
        The same for randomised response; with judge "any" alone.
    choice : float or None
        The same for a choice between two by noisy maximum; with judge "bounded_range" alone.
    runs_needed : int or None
        Runs on each data set, counted or not, that show a release of twice the claimed epsilon (Gaussian, a choice, or
        randomised response at delta = 0); rounded up to two digits. None where nothing is claimed, the claim is 0, or
        more than a billion are needed.
    """

    judge: str
    counted: int
    splits: int
    delta: float
    confidence: float
    claimed: float | None
    chance: float
    gaussian: float | None
    easiest: float | None
    choice: float | None
    runs_needed: int | None

    @property
    def seen(self) -> float:
        """The smallest epsilon of a usual release that is seen: Gaussian, a choice, or randomised response at
        delta = 0."""
        return next(value for value in (self.gaussian, self.choice, self.easiest, math.inf) if value is not None)

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
        kinds = (
            ("Gaussian", self.gaussian),
            ("a choice between two", self.choice),
            ("randomised response", self.easiest),
        )
        seen = [f"{name} with ε >= {rounded_up(value, 3)}" for name, value in kinds if value and value < math.inf]
        claim = "a claim of no leak" if self.claimed is None else f"the claim ε = {self.claimed:.4g}"
        parts = "" if self.splits == 1 else f"{self.splits} parts of "
        runs = f"{parts}{self.counted:,} counted runs, confidence {self.confidence:g}"
        if not seen:
            return f"{claim} cannot be refuted, for any release ({runs})"
        often = f"in {100 * self.chance:g} % of audits"
        return f"{claim} is refuted {often} if the release is {', or '.join(seen)} ({runs}, best event found)"


def expected_power(
    runs: int,
    *,
    delta: float,
    claimed: float | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    confidence: float = 0.95,
    chance: float = 0.9,
    splits: int | None = None,
    attack: Attack = "chosen",
) -> Power:
    """How large a violation an audit with so many runs would see. Nothing is run.

    Parameters
    ----------
    runs : int
        Runs on each data set, as for `audit_function` and `audit_model`: at least 8.
    delta : float
        In [0, 1).
    claimed : float or None, default=None
        The claimed epsilon, for judge="any". None: any leak at all.
    judge : {"any", "gaussian", "bounded_range"}, default="any"
    claimed_mu : float or None, default=None
        The claimed mu, for judge="gaussian", which needs a delta > 0.
    claimed_range : float or None, default=None
        The claimed range, for judge="bounded_range".
    confidence : float, default=0.95
        In (0, 1).
    chance : float, default=0.9
        In (0, 1): how likely the violation is to be seen.
    splits : int or None, default=None
        As in `audit_function`.
    attack : {"chosen", "likelihood_ratio"}, default="chosen"
        As in `audit_model`: with "likelihood_ratio" all runs are counted.

    Returns
    -------
    Power
    """
    if not (isinstance(runs, int | np.integer) and runs >= 8):
        raise ValueError(f"runs must be a whole number >= 8, got {runs!r}")
    check_chances(delta, confidence, chance)
    if judge not in JUDGES_WITH_POWER:
        known = ", ".join(f"judge={name!r}" for name in JUDGES_WITH_POWER)
        raise ValueError(f"power is known for {known}, got {judge!r}")
    chosen = choose_judge(judge, delta=delta, claimed=claimed, claimed_mu=claimed_mu, claimed_range=claimed_range)
    if claimed is not None and not 0 <= claimed < math.inf:
        raise ValueError(f"the claim must be a finite number >= 0, got {claimed!r}")
    if splits is None:
        splits = 1 if attack == "likelihood_ratio" else chosen.splits
    if not (is_number(splits) and splits >= 1 and splits % 1 == 0 and runs >= 8 * max(1, splits - 1)):
        raise ValueError(f"splits must be a whole number >= 1, with 8 runs for each part but one, got {splits!r}")
    counting = _Counting(int(splits), attack, delta, confidence, chance)
    return _power(chosen, counting, counting.counted(int(runs)), claimed)


def check_chances(delta: float, confidence: float, chance: float) -> None:
    """Raise for a probability out of range."""
    for name, value in (("confidence", confidence), ("chance", chance)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}")


def _gaussian_rates(mu: float) -> tuple[FloatArray, FloatArray]:
    """Of the events {x >= t}, for many t; mu / 2 is one of them."""
    thresholds = np.linspace(-5.0, mu + 5.0, 801)
    return ndtr(mu - thresholds), ndtr(-thresholds)


def _response_rates(epsilon: float, shown: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Of the first of two answers, whose odds are e^epsilon; with probability `shown` the truth is shown."""
    hit, false = (expit(np.array([sign * epsilon])) for sign in (1, -1))
    return shown + (1 - shown) * hit, (1 - shown) * false


@lru_cache(maxsize=64)
def _power(judge: Judge, counting: _Counting, counted: int, claimed: float | None) -> Power:
    delta = counting.delta
    limit, names = claimed or 0.0, ("gaussian", "easiest") if delta > 0 else ("easiest",)
    if isinstance(judge, GaussianCurve):
        limit, claimed, names = judge.claimed_mu, gaussian_epsilon(judge.claimed_mu, delta), ("gaussian",)
    elif isinstance(judge, BoundedRange):
        limit, claimed, names = judge.claimed_range, epsilon_of_range(judge.claimed_range, delta), ("choice",)
    # For each release: its rates by a parameter, the epsilon of a parameter, and the parameter of an epsilon.
    releases: dict[str, tuple[Callable[[float], tuple[FloatArray, FloatArray]], _OfNumber, _OfNumber]] = {
        "gaussian": (
            _gaussian_rates,
            lambda mu: gaussian_epsilon(mu, delta),
            lambda epsilon: gaussian_mu(epsilon, delta),
        ),
        # The odds of a choice between two of range r are e^(r/2) on one data set and e^(-r/2) on the other.
        "choice": (
            lambda span: _response_rates(span / 2),
            lambda span: epsilon_of_range(span, delta),
            lambda epsilon: smallest_seen(lambda span: epsilon_of_range(span, delta) >= epsilon, _LARGEST),
        ),
        "easiest": (lambda epsilon: _response_rates(epsilon, delta), float, float),
    }

    def is_seen(name: str, parameter: float, runs: int) -> bool:
        return counting.reached(judge, *releases[name][0](parameter), runs) > limit

    seen: dict[str, float | None] = dict.fromkeys(releases)
    for name in names:
        least = smallest_seen(partial(is_seen, name, runs=counted), _LARGEST)
        seen[name] = releases[name][1](least) if least < math.inf else math.inf
    needed = None
    if claimed:
        violation = releases[names[0]][2](WORTH_SEEING * claimed)
        needed = _runs_needed(partial(is_seen, names[0], violation), counting)
    shown = seen["gaussian"], seen["easiest"], seen["choice"]
    levels = delta, counting.confidence, claimed, counting.chance
    return Power(judge.name, counted, counting.splits, *levels, *shown, needed)


def smallest_seen(is_seen: Callable[[float], bool], largest: float) -> float:
    """The smallest value that is seen, from above, to three digits; inf where `largest` is not seen."""
    if not is_seen(largest):
        return math.inf
    low, high = 0.0, largest
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_seen(middle) else (middle, high)
    return high


def _runs_needed(suffices: Callable[[int], bool], counting: _Counting) -> int | None:
    if not suffices(counting.counted(_MOST_RUNS)):
        return None
    low, high = 2.0, math.log(counting.counted(_MOST_RUNS))  # of counted runs, in logarithms
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(math.ceil(math.exp(middle))) else (middle, high)
    runs = counting.runs(math.ceil(math.exp(high)))
    unit = 10 ** max(0, len(str(runs)) - 2)
    return -(-runs // unit) * unit
