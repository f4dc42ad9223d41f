"""Claims as curves: the largest hit rate that a claim allows at each false-hit rate.

An event A that happens with probability q in one world and p in the other is a test with type I error q and type II
error 1 - p. A claim of privacy is a trade-off curve f that limits all tests: p <= 1 - f(q), for both orders of the
worlds. Every curve here is concave and does not fall, so that a line that touches it lies above it: the test by betting
needs that. Proofs: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from tulle.accounting.bounds_from_counts import gaussian_hit_rate, range_hit_rate
from tulle.audit.fingerprints import digest
from tulle.trusted.events import FloatArray
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.plan import is_number


class ClaimedCurve(ABC):
    """A claim, as the curve that it allows."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The claim in words; two claims that differ have different texts."""

    @abstractmethod
    def allowed(self, false_rate: FloatArray) -> FloatArray:
        """The largest hit rate at each false-hit rate in [0, 1]. It does not fall."""

    @abstractmethod
    def slope(self, false_rate: FloatArray) -> FloatArray:
        """The slope, at false-hit rates in (0, 1), of a line that touches the curve there and lies above it."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """The epsilon that the claim implies at `delta`."""


@dataclass(frozen=True)
class Profile(ClaimedCurve):
    """(epsilon, delta)-DP at one or more pairs of epsilon and delta, all at once: the lowest of their lines."""

    pairs: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        pairs = self.pairs
        if not pairs or any(
            len(pair) != 2
            or not all(is_number(value) for value in pair)
            or not (0 <= pair[0] < 700 and 0 <= pair[1] < 1)
            for pair in pairs
        ):
            raise ValueError(
                "a claimed profile is a list of pairs (epsilon, delta) with epsilon in [0, 700) and delta in [0, 1), "
                f"got {pairs!r}"
            )

    @property
    def text(self) -> str:
        return ", ".join(f"(ε = {epsilon!r}, δ = {delta!r})" for epsilon, delta in self.pairs)

    def allowed(self, false_rate: FloatArray) -> FloatArray:
        return self._lowest(false_rate)[0]

    def slope(self, false_rate: FloatArray) -> FloatArray:
        return self._lowest(false_rate)[1]

    def _lowest(self, false_rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        epsilons, deltas = np.array(self.pairs, dtype=float).T
        # Of an event, and of its complement with the worlds exchanged; and no rate is above 1.
        slopes = np.concatenate([np.exp(epsilons), np.exp(-epsilons), [0.0]])
        heights = np.concatenate([deltas, 1 - np.exp(-epsilons) * (1 - deltas), [1.0]])
        lines = np.multiply.outer(np.asarray(false_rate, dtype=float), slopes) + heights
        return lines.min(axis=-1), slopes[lines.argmin(axis=-1)]

    def epsilon(self, delta: float) -> float:
        """The least epsilon of the pairs, each moved to `delta` where its own delta is larger."""
        return min(_epsilon_of_line(epsilon, own, delta) for epsilon, own in self.pairs)


def _epsilon_of_line(epsilon: float, own: float, delta: float) -> float:
    """(epsilon, own)-DP at another delta: the lines of its curve meet at a hit rate h, where h <= e^x q + delta."""
    if own <= delta:
        meeting = (1 - own) / (1 + math.exp(epsilon))
        hit = 1 - meeting
        return max(0.0, math.log(max(hit - delta, 0.0) / meeting)) if hit > delta and meeting > 0 else 0.0
    return math.inf


@dataclass(frozen=True)
class GaussianClaim(ClaimedCurve):
    """mu-GDP."""

    mu: float

    @property
    def text(self) -> str:
        return f"μ = {self.mu!r}"

    def allowed(self, false_rate: FloatArray) -> FloatArray:
        return gaussian_hit_rate(false_rate, self.mu)

    def slope(self, false_rate: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-self.mu * ndtri(false_rate) - self.mu**2 / 2))

    def epsilon(self, delta: float) -> float:
        return gaussian_epsilon(self.mu, delta) if delta > 0 else math.inf if self.mu > 0 else 0.0


@dataclass(frozen=True)
class RangeClaim(ClaimedCurve):
    """Bounded range: odds change by a factor of e^span at most (docs/proofs/events.md, lemma 1)."""

    span: float

    @property
    def text(self) -> str:
        return f"range {self.span!r}"

    def allowed(self, false_rate: FloatArray) -> FloatArray:
        return range_hit_rate(false_rate, self.span)

    def slope(self, false_rate: FloatArray) -> FloatArray:
        # Not by rates and their complements: near 1 these lose digits, and the line would cut the curve.
        return np.asarray(np.exp(self.span - 2 * np.log1p(math.expm1(self.span) * np.asarray(false_rate))))

    def epsilon(self, delta: float) -> float:
        return epsilon_of_range(self.span, delta)


@dataclass(frozen=True)
class MovedClaim(ClaimedCurve):
    """A claim about a release that lies, in each world, within a distance in total variation of the audited one."""

    claim: ClaimedCurve
    distance: float

    @property
    def text(self) -> str:
        return f"{self.claim.text}, up to {self.distance!r} in total variation"

    def allowed(self, false_rate: FloatArray) -> FloatArray:
        moved = np.minimum(np.asarray(false_rate, dtype=float) + self.distance, 1.0)
        return np.minimum(self.claim.allowed(moved) + self.distance, 1.0)

    def slope(self, false_rate: FloatArray) -> FloatArray:
        # Beyond, the curve is 1: its line is flat.
        inside = (np.asarray(false_rate) + self.distance < 1) & (self.allowed(false_rate) < 1)
        moved = np.minimum(np.asarray(false_rate, dtype=float) + self.distance, 1 - 1e-15)
        return np.where(inside, self.claim.slope(moved), 0.0)

    def epsilon(self, delta: float) -> float:
        return self.claim.epsilon(delta)


def moved_claim(claim: ClaimedCurve, distance: float) -> ClaimedCurve:
    """The claim for a release that keeps it up to a distance: itself at distance 0."""
    return MovedClaim(claim, distance) if distance > 0 else claim


@dataclass(frozen=True, eq=False)
class FunctionClaim(ClaimedCurve):
    """A trade-off curve of one's own: type I error -> least type II error."""

    curve: Callable[[float], float]

    def __post_init__(self) -> None:
        errors = np.linspace(0, 1, 201)
        values = 1 - self.allowed(errors)
        if not (
            np.all((values >= 0) & (values <= 1 - errors + 1e-12)) and np.all(np.diff(values) <= 1e-12)
        ):  # false for NaN too
            raise ValueError(
                "claimed_curve must be a trade-off curve: for a type I error a in [0, 1] the least type II error, at "
                "least 0, at most 1 - a, and not rising with a"
            )

    @property
    def text(self) -> str:
        name = getattr(self.curve, "__name__", type(self.curve).__name__)
        return f"curve {name} ({digest(self.allowed(np.linspace(0, 1, 201)))[:12]})"

    def allowed(self, false_rate: FloatArray) -> FloatArray:
        rates = np.asarray(false_rate, dtype=float)
        return np.array([1 - float(self.curve(float(rate))) for rate in rates.ravel()]).reshape(rates.shape)

    def slope(self, false_rate: FloatArray) -> FloatArray:
        raise ValueError("the slope of a curve that is a function is not known; pass a profile, a mu or a range")

    def epsilon(self, delta: float) -> float:
        """On a grid: for display, the verdict does not use it."""
        rates = np.concatenate([np.geomspace(1e-9, 1e-2, 500), np.linspace(0.01, 1, 500)])
        with np.errstate(divide="ignore"):
            return max(0.0, float(np.max(np.log(np.maximum(self.allowed(rates) - delta, 0.0) / rates))))


def epsilon_of_range(span: float, delta: float) -> float:
    """The least epsilon at `delta` that holds for every release of this range: docs/proofs/audit.md, lemma 4."""
    root = -math.expm1(-span) * delta
    # e^(span/2) - sqrt(delta (e^span - 1)), with e^(span/2) taken out.
    left = 1 - math.sqrt(root)
    return max(0.0, span + 2 * math.log(left)) if left > 0 else 0.0


def read_claim(
    *,
    claimed: float | None = None,
    delta: float | None = None,
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
) -> ClaimedCurve:
    """The one claim that was passed, or an error that says which may be."""
    given = {
        "claimed": claimed,
        "claimed_mu": claimed_mu,
        "claimed_range": claimed_range,
        "claimed_curve": claimed_curve,
    }
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise ValueError(f"pass one claim, one of {', '.join(given)}; got {' and '.join(names) or 'none'}")
    if claimed is not None:
        if delta is None:
            raise ValueError("claimed is an epsilon at a delta: pass delta")
        return Profile(((claimed, delta),))
    if claimed_curve is None:
        value = given[names[0]]
        if not (is_number(value) and 0 <= value < 500):
            raise ValueError(f"{names[0]} must be a number in [0, 500), got {value!r}")
        return RangeClaim(float(value)) if claimed_mu is None else GaussianClaim(float(value))
    if callable(claimed_curve):
        return FunctionClaim(claimed_curve)
    if not isinstance(claimed_curve, Sequence) or isinstance(claimed_curve, str):
        raise ValueError(
            "claimed_curve must be a function (type I error -> least type II error) or a list of pairs "
            f"(epsilon, delta), got {claimed_curve!r}"
        )
    try:
        return Profile(tuple((pair[0], pair[1]) for pair in claimed_curve))
    except (TypeError, IndexError) as error:
        raise ValueError(f"claimed_curve must be a list of pairs (epsilon, delta), got {claimed_curve!r}") from error
