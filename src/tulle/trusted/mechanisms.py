"""Mechanisms: how an exact answer becomes a private one.

A mechanism knows its noise relative to the sensitivity; the query that it answers knows the sensitivity. What one
release costs is in `PRICES` and never depends on data.

Noise is drawn and added, and choices are made, without rounding errors (`tulle.trusted.exact_noise`,
docs/proofs/floating_point.md). Where a mechanism can only bound what finite precision does, `inexact` is that bound,
and it is a part of the delta that is promised.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tulle.trusted import events, hooks
from tulle.trusted.events import Event, FloatArray
from tulle.trusted.events import NoisePerSensitivity as Noise
from tulle.trusted.exact_noise import (
    EXPONENTIAL,
    GUMBEL,
    LAPLACE,
    LAPLACE_CHOICE,
    LARGEST_ERROR,
    NORMAL,
    ChoiceLaw,
    Draws,
    SymmetricLaw,
    add_noise,
    choose_largest,
    grid_and_scale,
    mark_largest,
)
from tulle.trusted.sampling import Sampling

# Noise that is asked for never underflows to none, however small the sensitivity.
_LEAST_SCALE = 1e-280
_UNIT = Noise(1.0)
_ONE_ROW = Sampling("poisson", 1, 1)
Generator = np.random.Generator
# Post-processing: any function of a noisy answer.
Then = Callable[[FloatArray], Any]
_NUMBERS = (int, float, bool, np.float64, np.bool_)


def has_plain_fields(record: Any) -> bool:
    """Whether the numbers of a query or a mechanism are Python's or float64 and its arrays plain ones: arithmetic on
    numbers with few bits wraps around or underflows, and sums leave masked lines out."""
    declared = getattr(record, "__dataclass_fields__", {})
    return all(_fits(getattr(declared.get(name), "type", ""), value) for name, value in vars(record).items())


def _fits(declared: Any, value: Any) -> bool:
    if declared in ("int", "float", "bool", int, float, bool) or str(declared).startswith("tuple"):
        return all(type(one) in _NUMBERS for one in (value if type(value) is tuple else (value,)))
    plain = type(value) is np.ndarray and (value.dtype == np.float64 or value.dtype.kind in "biu")
    return plain or not isinstance(value, (np.generic, np.ndarray))


@dataclass(frozen=True)
class ObjectiveSensitivity:
    """How an objective F(theta) = sum over rows + penalty moves when one unit is replaced, for objective perturbation.

    `one_sided`: every row's gradient points the same way along the row at every theta.
    """

    gradient: float  # how far the gradient can move anywhere, in ℓ2
    log_determinant: float  # bound on the change of log det of the Hessian
    minimiser: float  # how far two answers of the solver to one and the same problem can lie apart, in ℓ2
    penalty: float  # the least curvature, anywhere and in all directions
    rounding: float  # how much further an answer can be from the minimiser, per length of the linear term / penalty
    one_sided: bool
    rows_per_unit: int  # at most


@dataclass(frozen=True)
class Sensitivity:
    """How far an answer can move when one unit (row or person) is replaced, in three norms: inf where none is claimed,
    and then no mechanism that needs it will answer. `objective` is for queries whose exact answer is an objective."""

    l1: float = math.inf
    l2: float = math.inf
    linf: float = math.inf
    objective: ObjectiveSensitivity | None = None

    def times(self, factor: float) -> Sensitivity:
        return Sensitivity(self.l1 * factor, self.l2 * factor, self.linf * factor, self.objective)

    def with_errors(self, error: float, count: int) -> Sensitivity:
        """The same of `count` numbers that are computed with an error of this ℓ2 norm; what nothing moves has none."""
        l1 = self.l1 + error * math.sqrt(count) * (self.l1 > 0)
        return Sensitivity(l1, self.l2 + error * (self.l2 > 0), self.linf + error * (self.linf > 0), self.objective)


@dataclass(frozen=True)
class Mechanism(ABC):
    """A randomised answer to a query of bounded sensitivity. A subclass must be a frozen dataclass of its own:
    calibrations are remembered by equality."""

    noise: Noise = _UNIT

    @property
    def sampling(self) -> Sampling | None:
        """How the rows of one answer are drawn; None: every answer is about all rows."""
        return None

    def scaled(self, factor: float) -> Mechanism:
        """The same mechanism with its noise multiplied by `factor`; 0 removes it."""
        return replace(self, noise=self.noise.times(factor))

    def _scale(self, sensitivity: float) -> float:
        if self.noise.value == 0:
            return 0.0
        if not 0 <= sensitivity < math.inf:
            raise ValueError(f"{type(self).__name__}: the query states no sensitivity in the norm that it needs")
        return max(self.noise.value * sensitivity, _LEAST_SCALE)

    @abstractmethod
    def release(self, exact: Any, sensitivity: Sensitivity, generator: Generator, then: Then | None) -> Any:
        """The private answer; for noisy vectors, what `then` makes of it. If it is no array it has a `to_dense()`."""

    @property
    def inexact(self) -> float:
        """Upper bound on the total variation distance between one answer and the ideal one; 0 where there is none."""
        return 0.0


def _as_array(exact: Any) -> FloatArray:
    return exact if isinstance(exact, np.ndarray) else exact.to_dense()


def from_units(units: FloatArray, grid: float) -> FloatArray:
    """Values of whole units of a grid. Overwrites them."""
    units *= grid
    units += 0.0  # no negative zeros
    return units


@dataclass(frozen=True)
class AdditiveNoise(Mechanism):
    """Independent noise on every coordinate.

    The answer is rounded to a public grid and the noise to the same, so that whole numbers are added up. Rounding them
    one by one is the same as rounding their sum: a function of the ideal mechanism's answer. What rounding adds to the
    sensitivity is in the scale. The hook "lazy_noise" may answer instead, if `then` does not need all of the noise.
    """

    LAW: ClassVar[SymmetricLaw]
    NORM: ClassVar[Literal["l1", "l2"]]  # in which the noise needs the sensitivity
    ROUNDINGS: ClassVar[float] = 1.0  # of all coordinates, that two answers are taken apart by

    def grid_and_scale(self, sensitivity: Sensitivity, count: int) -> tuple[float, float]:
        """The grid that an answer of `count` numbers is rounded to, and the scale of its noise; 0 for no noise."""
        moved, ones = (sensitivity.l1, float(count)) if self.NORM == "l1" else (sensitivity.l2, math.sqrt(count))
        if self._scale(moved) == 0:  # an error where no sensitivity is stated
            return 0.0, 0.0
        return grid_and_scale(self.noise.value, moved, self.ROUNDINGS * ones)

    def release(self, exact: Any, sensitivity: Sensitivity, generator: Generator, then: Then | None) -> Any:
        grid, scale = self.grid_and_scale(sensitivity, math.prod(exact.shape))
        lazy_noise = hooks.get("lazy_noise")
        if then is not None and lazy_noise is not None:
            answer = lazy_noise(self, exact, grid, scale, then, generator)
            if answer is not None:
                return answer
        answer = _as_array(exact)
        if scale:
            answer = from_units(add_noise(answer, scale, grid, self.LAW, generator), grid)
        return answer if then is None else then(answer)


@dataclass(frozen=True)
class Gaussian(AdditiveNoise):
    """exact + N(0, σ²) on every coordinate, σ = noise × ℓ2 sensitivity. Proof: docs/proofs/gaussian.md."""

    LAW = NORMAL
    NORM = "l2"


@dataclass(frozen=True)
class SampledGaussian(Gaussian):
    """Gaussian noise on an answer about a random batch of rows. Proof: docs/proofs/sampled_gaussian.md.

    `noise` is per how far the answer moves when the replaced unit *is* in the batch. The default of `batches`, one row
    of one, is there to be replaced. `lazy`: whether the hook "lazy_noise" may leave noise undrawn.
    """

    batches: Sampling = _ONE_ROW
    lazy: bool = True

    # A batch with a unit is compared with the same batch without it. What that moves is bounded by half of the
    # sensitivity, and rounding comes on top of it as a whole.
    ROUNDINGS = 2.0

    @property
    def sampling(self) -> Sampling:
        return self.batches


@dataclass(frozen=True)
class Laplace(AdditiveNoise):
    """exact + Laplace(b) on every coordinate, b = noise × ℓ1 sensitivity. Proof: docs/proofs/laplace.md."""

    LAW = LAPLACE
    NORM = "l1"


def check_columns(exact: Any, planned: int) -> None:
    if exact.shape[1] != planned:
        raise ValueError(f"the plan holds {planned} columns but the query has {exact.shape[1]}")


@dataclass(frozen=True)
class TopK(Mechanism):
    """The k coordinates of each column with the largest score + Gumbel noise, scale = noise × ℓ∞ sensitivity.

    One draw of Gumbel noise for all coordinates is the same as k exponential mechanisms without replacement, each
    of range 2 / noise. Answers with a boolean array. Proof: docs/proofs/noisy_max.md.
    """

    k: int = 1
    columns: int = 1  # that the query will have

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: Generator, then: Then | None
    ) -> npt.NDArray[np.bool_]:
        check_columns(exact, self.columns)
        scale = self._scale(sensitivity.linf)
        return choose_largest(exact, scale, self.k, GUMBEL, generator) if scale else mark_largest(exact, self.k)


@dataclass(frozen=True)
class NoisyMax(Mechanism):
    """The candidate of each column with the largest score + noise, scale = noise × ℓ∞ sensitivity: an index for each
    column, never a noisy score. Proof: docs/proofs/noisy_max.md."""

    columns: int = 1  # that the query will have
    LAW: ClassVar[ChoiceLaw]

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: Generator, then: Then | None
    ) -> npt.NDArray[np.intp]:
        check_columns(exact, self.columns)
        scores, scale = _as_array(exact), self._scale(sensitivity.linf)
        return np.argmax(choose_largest(scores, scale, 1, self.LAW, generator) if scale else scores, axis=0)


@dataclass(frozen=True)
class GumbelMax(NoisyMax):
    """Noisy max with Gumbel noise: the exponential mechanism. Bounded range makes many uses cheap."""

    LAW = GUMBEL


@dataclass(frozen=True)
class LaplaceMax(NoisyMax):
    """Noisy max with Laplace noise, as the private Frank-Wolfe paper has it."""

    LAW = LAPLACE_CHOICE


@dataclass(frozen=True)
class PermuteAndFlip(NoisyMax):
    """Permute and flip (McKenna and Sheldon 2020): noisy max with exponential noise has its law (Ding et al. 2021)."""

    LAW = EXPONENTIAL


@dataclass(frozen=True)
class ObjectivePerturbation(Mechanism):
    """The minimiser of objective + <b, theta>, b ~ N(0, σ² I), σ = noise × how far the objective's gradient can move.

    A solver stops near the exact minimiser, never on it; a further Gaussian noise, `CERTIFICATE` times larger relative
    to that distance, hides where. A query that states a larger change of log det, other rows per unit (fewer rows with
    the same change cost more), or no one-sided gradients where the plan counts on them, is refused. Proof:
    docs/proofs/objective_perturbation.md.
    """

    log_determinant: float = 0.0
    one_sided: bool = False
    rows_per_unit: int = 1

    CERTIFICATE = 30.0
    # Log-determinants are compared up to rounding, and billed with it.
    ROUNDED_UP = 1.0 + 1e-9

    def _moves(self, sensitivity: Sensitivity) -> ObjectiveSensitivity:
        moves = sensitivity.objective
        if moves is None:
            raise ValueError("objective perturbation: the query is not an objective")
        if (
            not moves.log_determinant <= self.log_determinant * self.ROUNDED_UP
            or moves.rows_per_unit != self.rows_per_unit
            or (self.one_sided and not moves.one_sided)
        ):
            raise ValueError(f"objective perturbation: the query moves in more ways than the plan counts: {moves}")
        return moves

    def release(self, exact: Any, sensitivity: Sensitivity, generator: Generator, then: Then | None) -> FloatArray:
        """`exact` is an objective: `minimise(b)` has the minimiser to the certified accuracy, of its `shape`."""
        if self.noise.value == 0:
            return exact.minimise(np.zeros(exact.shape))
        moves, count = self._moves(sensitivity), math.prod(exact.shape)
        draw = NORMAL.noise(Draws.fresh(count, generator)).reshape(exact.shape)
        spread = self._scale(moves.gradient)
        minimiser = exact.minimise(spread * draw)
        # An error of the linear term moves the minimiser by its length / penalty; draws are within 37.6, 41 / 1.09.
        off = (2.0 * LARGEST_ERROR + 41.0 * moves.rounding) * spread * math.sqrt(count) / moves.penalty
        grid, scale = grid_and_scale(self.CERTIFICATE * self.noise.value, moves.minimiser + 2 * off, math.sqrt(count))
        return from_units(add_noise(minimiser, scale, grid, NORMAL, generator), grid)


@dataclass(frozen=True)
class Exact(Mechanism):
    """The exact answer. Only in plans that promise nothing."""

    def release(self, exact: Any, sensitivity: Sensitivity, generator: Generator, then: Then | None) -> FloatArray:
        return exact


def _price_of_batches(mechanism: SampledGaussian) -> tuple[Event, int]:
    batches = mechanism.batches
    # Of a shuffled epoch, who is in which batch is not counted on; and all rows are no sample.
    if batches.scheme == "shuffled" or batches.unit_rate == 1:
        return events.GaussianEvent(mechanism.noise), 1
    return events.SampledGaussianEvent(mechanism.noise, batches.unit_rate, batches.scheme), 1


def _price_of_objective(mechanism: ObjectivePerturbation) -> tuple[Event, int]:
    log_determinant = mechanism.log_determinant * mechanism.ROUNDED_UP
    ways = mechanism.one_sided, mechanism.rows_per_unit
    return events.ObjectivePerturbationEvent(mechanism.noise, log_determinant, *ways, mechanism.CERTIFICATE), 1


def _choice_range(choice: Mechanism) -> float:
    """Scores may move up and down, so that a score and its rival part by two sensitivities."""
    return 2.0 * choice.noise.inverse


# What one release costs: an event, and how many of it one release is.
PRICES: dict[type[Mechanism], Callable[[Any], tuple[Event, int]]] = {
    Exact: lambda one: (events.ExposedEvent(), 1),
    Gaussian: lambda one: (events.GaussianEvent(one.noise), 1),
    SampledGaussian: _price_of_batches,
    Laplace: lambda one: (events.LaplaceEvent(one.noise), 1),
    TopK: lambda one: (events.BoundedRangeEvent(_choice_range(one)), one.k * one.columns),
    GumbelMax: lambda one: (events.BoundedRangeEvent(_choice_range(one)), one.columns),
    LaplaceMax: lambda one: (events.PureEvent(_choice_range(one)), one.columns),
    PermuteAndFlip: lambda one: (events.PureEvent(_choice_range(one)), one.columns),
    ObjectivePerturbation: _price_of_objective,
}


def price_of(mechanism: Mechanism) -> tuple[Event, int]:
    """The cost of one release, by exact type; that of an exact answer for every mechanism that is not listed or not
    plain. No less than nothing: it would pay for other releases."""
    event, uses = PRICES.get(type(mechanism) if has_plain_fields(mechanism) else Exact, PRICES[Exact])(mechanism)
    return event, max(uses, 0)
