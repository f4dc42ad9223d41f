"""Accountants: from the releases of a plan to the epsilon that is proved for it.

Composition is adaptive: each mechanism may depend on earlier answers. Adjacency is replace-one throughout. Proofs:
docs/proofs/accounting.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.plan import Composition, Plan, Release, compose


class Accountant(ABC):
    """Turns a composition into an epsilon."""

    name: str
    # Whether it proves less than all others but `GaussianAccountant` where it supports a composition.
    sharp: bool = False

    def supports(self, composition: Composition, delta: float) -> bool:
        return delta > 0

    @abstractmethod
    def epsilon(self, composition: Composition, delta: float) -> float: ...


class GaussianAccountant(Accountant):
    """Gaussian differential privacy: squares of mu add up. Exact where all events are Gaussian."""

    name = "Gaussian differential privacy"

    def epsilon(self, composition: Composition, delta: float) -> float:
        return gaussian_epsilon(math.sqrt(sum(count * event.gaussian_mu() ** 2 for event, count in composition)), delta)

    @classmethod
    def prove(cls, composition: Composition, delta: float) -> tuple[float, str]:
        """Its epsilon, regardless of what others prove, and its name."""
        return cls().epsilon(composition, delta), cls.name


class PureAccountant(Accountant):
    """Basic composition of purely private releases; valid at every delta, 0 included."""

    name = "pure composition"

    def supports(self, composition: Composition, delta: float) -> bool:
        return True

    def epsilon(self, composition: Composition, delta: float) -> float:
        return sum(count * event.pure_epsilon() for event, count in composition)


ACCOUNTANTS: list[Accountant] = [GaussianAccountant(), PureAccountant()]


def vouch_for(accountant: Accountant) -> None:
    """Add an accountant of another package. The report names the accountant whose proof it prints."""
    ACCOUNTANTS.append(accountant)
    best_accountant.cache_clear()


@lru_cache(maxsize=256)
def best_accountant(composition: Composition, delta: float) -> tuple[float, str]:
    """The least epsilon that any of the accountants proves, and its name."""
    if not composition:
        return 0.0, "nothing was released"
    able = [a for a in ACCOUNTANTS if a.supports(composition, delta)]
    if any(a.sharp for a in able):
        # Rényi curves take time and prove no less; the exact sum of Gaussians can, where a batch is all rows.
        able = [a for a in able if a.sharp or isinstance(a, GaussianAccountant)]
    proofs = [(a.epsilon(composition, delta), a.name) for a in able]
    return min(proof for proof in proofs if proof[0] >= 0)  # NaN proves nothing


def epsilon(plan: Plan | Sequence[Release], delta: float) -> float:
    """The epsilon that is proved for the noise written in a plan, at a delta in [0, 1)."""
    return proof(plan, delta)[0]


def proof(plan: Plan | Sequence[Release], delta: float) -> tuple[float, str]:
    """The proved epsilon of a plan and the name of the accountant that proves it."""
    if not isinstance(plan, Plan):
        plan = Plan(tuple(plan))
    proved, _, name = prove(plan, delta)
    return proved, name


# What finite precision may take of a delta that is calibrated to.
MOST_ARITHMETIC = 0.1


def prove(plan: Plan, delta: float) -> tuple[float, float, str]:
    """The proved epsilon, the part of `delta` for finite precision, and the name of the accountant.

    If answers are within tv of an ideal (e, d)-DP law, they are (e, d + (1 + exp(e)) tv)-DP: lemma 3 of
    docs/proofs/floating_point.md. So the ideal law may use only the remaining delta.
    """
    if plan.together:
        first, releases, tv = 0.0, compose(plan), plan.inexact
        best = GaussianAccountant.prove
        if tv:  # how delta is divided between mu and tv could hang on preliminary answers
            return math.inf, min(tv, 1.0), GaussianAccountant.name
    else:
        first = PureAccountant().epsilon(compose(plan.preliminary), delta)
        releases, tv, best = compose(plan.releases), plan.inexact, best_accountant
    if tv == 0:
        rest, name = best(releases, delta)
        return first + rest, 0.0, name
    for share in (MOST_ARITHMETIC, 0.5, 0.9, 1.0):
        rest, name = best(releases, (1 - share) * delta)
        needed = (1 + exp_or_inf(first + rest)) * tv
        if needed <= share * delta:  # at the larger delta that this leaves, epsilon is no larger
            rest, name = best(releases, delta - needed)
            return first + rest, needed, name
    return math.inf, min(needed, 1.0), name


def exp_or_inf(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
