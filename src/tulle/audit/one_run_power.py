"""The power of an audit in one run, before the run: how large a violation so many canaries would show, and how many of
them to guess.

It is computed for canaries whose noise is independent: Gaussian, or randomised response at delta = 0. The score is
taken to be the best one.

>>> from tulle.audit import one_run_power
>>> print(one_run_power(1_000, delta=1e-5, claimed_mu=0.268))  # doctest: +NORMALIZE_WHITESPACE
the claim ε = 0.9998 is refuted in 90 % of audits if the release is Gaussian with ε >= 2.71 (one run, 1,000 canaries,
300 guesses of which 207 must be right, confidence 0.95, best score)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scipy.optimize import brentq
from scipy.special import betaincinv, expit, ndtr
from scipy.stats import binom

from tulle.audit.claimed_curves import ClaimedCurve, RangeClaim, read_claim
from tulle.audit.one_run_tails import fewest_right, touching_lines
from tulle.audit.power import SEVERAL, check_chances, smallest_seen
from tulle.files.number_text import rounded_up
from tulle.trusted.gaussian import gaussian_epsilon

# The parts of the canaries among which the number of guesses is chosen: fewer guesses are surer ones, more guesses
# count more evenly.
_SHARES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
_LARGEST_MU = 40.0
_LARGEST_EPSILON = 40.0


@dataclass(frozen=True)
class OneRunPower:
    """The smallest violation that one run sees.

    Attributes
    ----------
    canaries, guesses : int
    fewest_right : int
        So many right guesses refute the claim; one more than the guesses where nothing does.
    delta, confidence : float
    claimed : float or None
        The epsilon at `delta` that the claim implies; None where nothing is claimed, and no leak at all is tested.
    chance : float
        The probability with which this violation is seen, at least.
    release : {"Gaussian", "randomised response"}
    seen : float
        The smallest epsilon of such a release that is seen; inf where none is.
    """

    canaries: int
    guesses: int
    fewest_right: int
    delta: float
    confidence: float
    claimed: float | None
    chance: float
    release: str
    seen: float

    @property
    def has_power(self) -> bool:
        """Whether a violation by a factor of three would be seen; without a claim, whether anything would be."""
        return self.seen <= SEVERAL * self.claimed if self.claimed else self.seen < math.inf

    @property
    def shortfall(self) -> str:
        """What to say of an audit without power; "" where it has power."""
        words = f"this audit had no power to see {SEVERAL:g} times the claimed ε; use more canaries or a stronger judge"
        return "" if self.has_power else words

    def __str__(self) -> str:
        claim = "a claim of no leak" if self.claimed is None else f"the claim ε = {self.claimed:.4g}"
        run = f"one run, {self.canaries:,} canaries, {self.guesses:,} guesses"
        if self.seen == math.inf:
            return f"{claim} is not refuted, for any noise ({run}, confidence {self.confidence:g})"
        often = f"in {100 * self.chance:g} % of audits"
        needed = f"{run} of which {self.fewest_right:,} must be right, confidence {self.confidence:g}, best score"
        violation = f"the release is {self.release} with ε >= {rounded_up(self.seen, 3)}"
        return f"{claim} is refuted {often} if {violation} ({needed})"


def one_run_power(
    canaries: int,
    *,
    delta: float,
    claimed: float | None = None,
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    guesses: int | None = None,
    confidence: float = 0.95,
    chance: float = 0.9,
) -> OneRunPower:
    """How large a violation `audit_one_run` would see with so many canaries. Nothing is run.

    Parameters
    ----------
    canaries : int
        Rows that have two versions, at least 2.
    delta : float
        In [0, 1).
    claimed, claimed_mu, claimed_range, claimed_curve
        One claim, as for `audit_one_run`. None: any leak at all.
    guesses : int or None, default=None
        An even number from 2 to the canaries. None: the number, of some parts of the canaries from 1 % to a half, with
        which the smallest violation is seen; a third of the canaries where nothing is claimed or nothing would be seen.
    confidence : float, default=0.95
        In (0, 1).
    chance : float, default=0.9
        In (0, 1): how likely the violation is to be seen.

    Returns
    -------
    OneRunPower
    """
    if not (isinstance(canaries, int) and canaries >= 2):
        raise ValueError(f"canaries must be a whole number >= 2, got {canaries!r}")
    check_chances(delta, confidence, chance)
    nothing = all(value is None for value in (claimed, claimed_mu, claimed_range, claimed_curve))
    claim = read_claim(
        claimed=0.0 if nothing else claimed,
        delta=delta,
        claimed_mu=claimed_mu,
        claimed_range=claimed_range,
        claimed_curve=claimed_curve,
    )
    return power_of_claim(canaries, claim, nothing, check_guesses(guesses, canaries), delta, confidence, chance)


def check_guesses(guesses: int | None, canaries: int) -> int | None:
    """The number of guesses, or an error where one half cannot be for each version."""
    if guesses is None or (isinstance(guesses, int) and guesses % 2 == 0 and 0 < guesses <= canaries):
        return guesses
    raise ValueError(f"guesses must be an even number from 2 to the {canaries} rows that differ, got {guesses!r}")


@lru_cache(maxsize=64)
def power_of_claim(
    canaries: int,
    claim: ClaimedCurve,
    nothing: bool,
    guesses: int | None,
    delta: float,
    confidence: float,
    chance: float = 0.9,
    moved: float = 0.0,
    most_guesses: int | None = None,
) -> OneRunPower:
    """`one_run_power` of a claim that was read. `nothing`: it stands for no claim. `most_guesses` limits the choice."""
    most = canaries if most_guesses is None else max(2, min(canaries, most_guesses))
    third = max(2, 2 * (min(canaries, 3 * most) // 6))
    numbers = [guesses] if guesses else [third]
    if guesses is None and not nothing:
        shares = {2 * round(share * canaries / 2) for share in _SHARES}
        numbers = sorted({share for share in shares if 0 < share <= most} | {third})
    fewest = fewest_right(canaries, numbers, 1 - confidence, touching_lines(claim, moved))
    gaussian = delta > 0 and not isinstance(claim, RangeClaim)
    seen = [_smallest_epsilon(canaries, n, right, delta, 1 - chance, gaussian) for n, right in zip(numbers, fewest)]
    best = min(range(len(numbers)), key=lambda k: (seen[k], numbers[k] != third))
    return OneRunPower(
        canaries,
        numbers[best],
        fewest[best],
        delta,
        confidence,
        None if nothing else claim.epsilon(delta),
        chance,
        "Gaussian" if gaussian else "randomised response",
        seen[best],
    )


def _smallest_epsilon(canaries: int, guesses: int, right: int, delta: float, miss: float, gaussian: bool) -> float:
    """The smallest epsilon of a release that gives so many right guesses with probability 1 - miss."""
    if right > guesses:
        return math.inf
    if gaussian:
        mu = smallest_seen(lambda value: _gaussian_right(value, canaries, guesses, miss) >= right, _LARGEST_MU)
        return gaussian_epsilon(mu, delta) if mu < math.inf else math.inf
    return smallest_seen(lambda value: _response_right(value, canaries, guesses, miss) >= right, _LARGEST_EPSILON)


def _gaussian_right(mu: float, canaries: int, guesses: int, miss: float) -> float:
    """Right guesses that Gaussian canaries give with probability 1 - miss: docs/proofs/audit.md, power of one run."""
    half = guesses // 2
    # So large a part of the scores that more than half the guesses lie above its edge, with probability 1 - miss / 4.
    part = float(betaincinv(half + 1, max(canaries - half, 1), 1 - miss / 4))
    edge = brentq(lambda t: (ndtr(mu / 2 - t) + ndtr(-mu / 2 - t)) / 2 - part, -mu / 2 - 12, mu / 2 + 12)
    hit, false = ndtr(mu / 2 - edge), ndtr(-mu / 2 - edge)
    return float(binom.ppf(miss / 2, guesses, hit / (hit + false)))


def _response_right(epsilon: float, canaries: int, guesses: int, miss: float) -> float:
    """The same for randomised response, where both answers are given often enough."""
    if binom.cdf(guesses // 2 - 1, canaries, 0.5) > miss / 4:
        return 0.0
    return float(binom.ppf(miss / 2, guesses, expit(epsilon)))
