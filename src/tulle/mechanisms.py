"""Mechanisms: how an exact answer becomes a private one.

A mechanism knows its noise relative to the sensitivity; the query that it answers knows the sensitivity. What a
mechanism costs is its `events`, which never depend on data.

Finite precision (docs/proofs/floating_point.md): noise is added in float64; supports and arg-maxes are decided on the
unrounded sums; the values that leave are rounded to a grid between 1/8 and 1/4 of the noise scale, which removes
the low-order bits in which exact sums would show. `rounding` bounds the total variation distance between what is
computed and the ideal mechanism; the report prints the sum over all releases.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tulle.events import (
    BoundedRangeEvent,
    Event,
    ExposedEvent,
    FloatArray,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    PureEvent,
    SampledGaussianEvent,
)
from tulle.events import NoisePerSensitivity as Noise
from tulle.order_statistics import Background, dense_noisy_largest, noisy_largest
from tulle.sampling import Sampling
from tulle.weights import SparseWeights

# Six roundings of a draw and of the sum it enters, each of half a unit in the last place, on either side of a border.
_ULPS = 12 * 2.0**-53

# Noise that is asked for never underflows to none, however small the sensitivity.
_LEAST_SCALE = 1e-280

_UNIT = Noise(1.0)
_ONE_ROW = Sampling("poisson", 1, 1)

# Where more lines are listed than this, and none is left out, it pays to look for those whose noise can matter.
_MANY_LINES = 16384

# Of answers about all rows, noise that cannot pass a threshold is left undrawn where there are more lines than this.
_LONG = 200_000


@dataclass(frozen=True)
class ObjectiveSensitivity:
    """How an objective F(theta) = sum over rows + penalty moves when one unit is replaced, for objective perturbation.

    Attributes
    ----------
    gradient : float
        How far its gradient can move anywhere, in ℓ2.
    log_determinant : float
        Bound on the change of log det of its Hessian.
    minimiser : float
        How far two answers of the solver to one and the same problem can lie apart, in ℓ2.
    penalty : float
        The least curvature of the objective, anywhere and in all directions.
    one_sided : bool
        Whether every row's gradient points one way along the row, whatever theta is.
    rows_per_unit : int
        How many rows one unit has at most.
    """

    gradient: float
    log_determinant: float
    minimiser: float
    penalty: float
    one_sided: bool
    rows_per_unit: int


@dataclass(frozen=True)
class Sensitivity:
    """How far an answer can move when one unit (row or person) is replaced.

    Attributes
    ----------
    l1, l2, linf : float
        In the three norms; inf where no bound is claimed, and then no mechanism that needs it will answer.
    objective : ObjectiveSensitivity or None
        For queries whose exact answer is an objective and not a vector.
    """

    l1: float = math.inf
    l2: float = math.inf
    linf: float = math.inf
    objective: ObjectiveSensitivity | None = None

    def times(self, factor: float) -> Sensitivity:
        return Sensitivity(self.l1 * factor, self.l2 * factor, self.linf * factor, self.objective)


@dataclass(frozen=True)
class HardThreshold:
    """Keep the `keep` largest magnitudes of each column; lines from `free_from` on are kept whatever they are.

    Post-processing, but done inside the trusted rooms: the choice is made on unrounded values.
    """

    keep: int
    free_from: int

    # Whether `keep` and `free_from` say all there is, so that noise which cannot pass the border may stay undrawn.
    one_border: ClassVar[bool] = True

    def __call__(self, values: FloatArray) -> FloatArray:
        kept = np.zeros_like(values)
        kept[self.free_from :] = values[self.free_from :]
        for column in range(values.shape[1]):
            # Among the non-zeros: numpy's partition is slow on many equal values.
            filled = np.flatnonzero(values[: self.free_from, column])
            top = filled[largest(np.abs(values[filled, column]), self.keep)]
            kept[top, column] = values[top, column]
        return kept

    def sparsely(self, weights: SparseWeights) -> SparseWeights:
        """The same of weights that are zero outside of some lines."""
        features = int(np.searchsorted(weights.lines, self.free_from))
        kept = HardThreshold(self.keep, features)(weights.values)
        return SparseWeights(weights.lines, kept, weights.n_lines).pruned()


@dataclass(frozen=True)
class ThresholdByLayer(HardThreshold):
    """Keep the largest magnitudes of each layer, its share of `keep` being proportional to its size.

    Parameters
    ----------
    keep : int
        Of all layers together, at least one each.
    free_from : int
        Where the layers end; lines from there on are kept whatever they are.
    layers : tuple of int
        The lines of each layer, in their order; each at least 1, `free_from` in all.
    """

    layers: tuple[int, ...]

    one_border: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.layers or min(self.layers) < 1 or sum(self.layers) != self.free_from:
            raise ValueError(f"layers of {self.layers} lines do not make {self.free_from} lines")
        if self.keep < len(self.layers):
            raise ValueError(f"keep={self.keep} is too few for {len(self.layers)} layers; keep at least one of each")

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """How many lines each layer keeps."""
        keep = min(self.keep, self.free_from)
        shares = [max(1, keep * size // self.free_from) for size in self.layers]

        def missing(layer: int) -> int:
            """By how much its share falls short of the exact one; in whole numbers, so that all machines agree."""
            return keep * self.layers[layer] - shares[layer] * self.free_from

        while sum(shares) < keep:
            shares[max((k for k, size in enumerate(self.layers) if shares[k] < size), key=missing)] += 1
        while sum(shares) > keep:
            shares[min((k for k in range(len(shares)) if shares[k] > 1), key=missing)] -= 1
        return tuple(shares)

    def _by_layer(self, values: FloatArray, ends: npt.NDArray[np.intp]) -> FloatArray:
        """The largest between each end and the next, and all that comes after the last."""
        parts = np.split(values, ends)
        kept = [HardThreshold(share, len(part))(part) for share, part in zip(self.shares, parts)]
        return np.concatenate([*kept, parts[-1]])

    def __call__(self, values: FloatArray) -> FloatArray:
        return self._by_layer(values, np.cumsum(self.layers))

    def sparsely(self, weights: SparseWeights) -> SparseWeights:
        kept = self._by_layer(weights.values, np.searchsorted(weights.lines, np.cumsum(self.layers)))
        return SparseWeights(weights.lines, kept, weights.n_lines).pruned()


def largest(scores: FloatArray, k: int) -> npt.NDArray[np.intp]:
    """The indices of the k largest scores, in increasing order of index."""
    if k >= len(scores):
        return np.arange(len(scores))
    if k == 0:
        return np.arange(0)
    return np.sort(np.argpartition(scores, len(scores) - k)[len(scores) - k :])


@dataclass(frozen=True)
class Mechanism(ABC):
    """A randomised answer to a query of bounded sensitivity.

    A subclass must be a frozen dataclass of its own: calibrations are remembered by equality.

    Parameters
    ----------
    noise : NoisePerSensitivity
    """

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
            raise ValueError(f"{self.label}: the query states no sensitivity in the norm that this mechanism needs")
        return max(self.noise.value * sensitivity, _LEAST_SCALE)

    @property
    @abstractmethod
    def label(self) -> str:
        """Words for the bill."""

    @property
    @abstractmethod
    def events(self) -> tuple[Event, int]:
        """The cost of one release: an event, and how many of it one release is."""

    @abstractmethod
    def release(
        self, exact: FloatArray, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> Any:
        """The private answer."""

    def rounding(
        self, shape: tuple[int, ...], size: float, sensitivity: Sensitivity, then: HardThreshold | None
    ) -> float:
        """Upper bound on the total variation distance to the ideal mechanism, from public quantities alone.

        `size` bounds the ℓ2 norm of the exact answer; for `NoisyMax`, where it is the smaller one, its largest entry.
        """
        return 0.0


def _expected_error(count: int, size: float, scale: float, among: int) -> float:
    """Expected sum of rounding errors over the `count` largest of `among` noisy values."""
    # The mean of the largest 1/x of |N(0,1)|, |Laplace| or |Gumbel| draws is at most 2 + log x.
    typical = 2.0 + math.log(max(among / max(count, 1), 1.0))
    return _ULPS * (math.sqrt(count) * size + count * scale * (1.0 + typical))


def _on_grid(exact: FloatArray, scale: float, draw: FloatArray, then: HardThreshold | None = None) -> FloatArray:
    """exact + scale × draw, thresholded, on the grid that belongs to the scale. Overwrites `draw`."""
    noisy = draw  # in place from here on: vectors can be long
    noisy *= scale
    noisy += exact
    return _rounded(noisy if then is None else then(noisy), scale)


def _rounded(values: FloatArray, scale: float) -> FloatArray:
    """The values on the grid that belongs to a noise scale. Overwrites them."""
    grid = rounding_grid(scale)
    values /= grid
    np.round(values, out=values)
    values *= grid
    values += 0.0  # no negative zeros
    return values


@dataclass(frozen=True)
class _AdditiveNoise(Mechanism):
    """Independent noise on every coordinate, an optional threshold, then the grid."""

    @abstractmethod
    def _relevant(self, sensitivity: Sensitivity) -> float:
        """The sensitivity in the norm that the noise needs."""

    @abstractmethod
    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
        """Noise of scale 1."""

    def release(
        self, exact: FloatArray, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> FloatArray:
        scale = self._scale(self._relevant(sensitivity))
        if scale == 0:
            return exact if then is None else then(exact)
        return _on_grid(exact, scale, self._draw(exact.shape, generator), then)

    def rounding(
        self, shape: tuple[int, ...], size: float, sensitivity: Sensitivity, then: HardThreshold | None
    ) -> float:
        scale = self._scale(self._relevant(sensitivity))
        if scale == 0 or self._relevant(sensitivity) == 0:  # no noise, or the same answer whatever the rows
            return 0.0
        total = math.prod(shape)
        released = total if then is None else min(total, (then.keep + shape[0] - then.free_from) * shape[1])
        # An error of e carries a value over a border of the grid with probability at most e / grid, and over the
        # threshold with probability at most e / scale: the noise has density at most 1 / (2 scale).
        moved = _expected_error(released, size, scale, total) / rounding_grid(scale)
        swapped = 0.0 if then is None else _expected_error(total, size, scale, total) / scale
        return moved + swapped


@dataclass(frozen=True)
class Gaussian(_AdditiveNoise):
    """exact + N(0, σ²) on every coordinate, σ = noise × ℓ2 sensitivity. Proof: docs/proofs/gaussian.md.

    Of long answers that are thresholded, noise that cannot matter is not drawn. The law is the same:
    docs/proofs/order_statistics.md.
    """

    @property
    def label(self) -> str:
        return "Gaussian on a vector"

    @property
    def events(self) -> tuple[Event, int]:
        return GaussianEvent(self.noise), 1

    def _relevant(self, sensitivity: Sensitivity) -> float:
        return sensitivity.l2

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
        return generator.standard_normal(shape)

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> Any:
        scale = self._scale(sensitivity.l2)
        if scale == 0 or then is None or not then.one_border or len(exact) <= _LONG:
            return super().release(exact, sensitivity, generator, then)
        kept = dense_noisy_largest(exact, scale, then.keep, then.free_from, generator)
        return SparseWeights(kept.lines, _rounded(kept.values, scale), kept.n_lines).to_dense()


@dataclass(frozen=True, eq=False)
class SparseAnswer:
    """An exact answer of which few lines differ from what is public, so that most of its noise need not be drawn.

    Attributes
    ----------
    listed : SparseWeights
        Lines that depend on rows, and whatever else is convenient.
    background : Background or None
        The public values of all other lines; None for zero.
    """

    listed: SparseWeights
    background: Background | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.listed.shape

    def to_dense(self) -> FloatArray:
        if self.background is None:
            return self.listed.to_dense()
        dense = self.background.factor * self.background.means
        dense[self.listed.lines] = self.listed.values
        return dense


@dataclass(frozen=True)
class SampledGaussian(Gaussian):
    """Gaussian noise on an answer about a random batch of rows.

    Answers of which few lines are listed (`SparseAnswer`) may be thresholded without drawing noise for every line.
    Proofs: docs/proofs/sampled_gaussian.md, docs/proofs/order_statistics.md.

    Parameters
    ----------
    noise : NoisePerSensitivity
        Noise per how far the answer moves when the replaced unit *is* in the batch.
    batches : Sampling
        How batches are drawn. The default, one row of one, is there to be replaced.
    lazy : bool, default=True
        Whether noise that cannot pass a threshold is left undrawn. The law is the same.
    """

    batches: Sampling = _ONE_ROW
    lazy: bool = True

    @property
    def sampling(self) -> Sampling:
        return self.batches

    @property
    def label(self) -> str:
        return f"Gaussian, {self.batches.label}"

    @property
    def events(self) -> tuple[Event, int]:
        # Of a shuffled epoch, who is in which batch is not counted on; and all rows are no sample.
        if self.batches.scheme == "shuffled" or self.batches.unit_rate == 1:
            return GaussianEvent(self.noise), 1
        return SampledGaussianEvent(self.noise, self.batches.unit_rate, self.batches.scheme), 1

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> Any:
        if then is None or not isinstance(exact, SparseAnswer):
            exact = exact.to_dense() if isinstance(exact, SparseAnswer) else exact
            return super().release(exact, sensitivity, generator, then)
        scale = self._scale(sensitivity.l2)
        if not (self.lazy and then.one_border):
            dense = _AdditiveNoise.release(self, exact.to_dense(), sensitivity, generator, then)
            return SparseWeights.from_dense(dense)
        listed = exact.listed
        if scale and len(listed.lines) == listed.n_lines > _MANY_LINES:
            kept = dense_noisy_largest(listed.values, scale, then.keep, then.free_from, generator)
        else:
            kept = noisy_largest(listed, exact.background, scale, then.keep, then.free_from, generator)
        return SparseWeights(kept.lines, _rounded(kept.values, scale), kept.n_lines).pruned() if scale else kept


@dataclass(frozen=True)
class Laplace(_AdditiveNoise):
    """exact + Laplace(b) on every coordinate, b = noise × ℓ1 sensitivity. Proof: docs/proofs/laplace.md."""

    @property
    def label(self) -> str:
        return "Laplace on a vector"

    @property
    def events(self) -> tuple[Event, int]:
        return LaplaceEvent(self.noise), 1

    def _relevant(self, sensitivity: Sensitivity) -> float:
        return sensitivity.l1

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
        # A difference of two exponentials is Laplace and, unlike an inverse CDF, has no gaps at the largest values.
        return generator.standard_exponential(shape) - generator.standard_exponential(shape)


def _gumbel(shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
    """Gumbel noise of scale 1, -log(Exponential), for mechanisms that *maximise* score + noise."""
    return -np.log(generator.standard_exponential(shape))


def _choice_range(noise: Noise) -> float:
    """What one choice costs: scores may move up and down, so that a score and its rival part by two sensitivities."""
    return math.inf if noise.value == 0 else 2.0 / noise.value


@dataclass(frozen=True)
class TopK(Mechanism):
    """The k coordinates of each column with the largest score + Gumbel noise, scale = noise × ℓ∞ sensitivity.

    One draw of Gumbel noise for all coordinates is the same as k exponential mechanisms without replacement, each
    of range 2 / noise. Answers with a boolean array. Proof: docs/proofs/noisy_max.md.

    Parameters
    ----------
    noise : NoisePerSensitivity
    k : int
        At least 1.
    columns : int
        The number of columns that the query will have.
    """

    k: int = 1
    columns: int = 1

    @property
    def label(self) -> str:
        return "noisy max (Gumbel)" if self.k == 1 else f"one-shot top {self.k} (Gumbel)"

    @property
    def events(self) -> tuple[Event, int]:
        return BoundedRangeEvent(_choice_range(self.noise)), self.k * self.columns

    def release(
        self, exact: FloatArray, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> npt.NDArray[np.bool_]:
        if exact.shape[1] != self.columns:
            raise ValueError(f"the plan holds {self.columns} columns but the query has {exact.shape[1]}")
        scale = self._scale(sensitivity.linf)
        noisy = exact + scale * _gumbel(exact.shape, generator) if scale else exact
        chosen = np.zeros(exact.shape, dtype=bool)
        for column in range(exact.shape[1]):
            chosen[largest(noisy[:, column], self.k), column] = True
        return chosen

    def rounding(
        self, shape: tuple[int, ...], size: float, sensitivity: Sensitivity, then: HardThreshold | None
    ) -> float:
        scale = self._scale(sensitivity.linf)
        total = math.prod(shape)
        # The density of a Gumbel law is at most 1 / (e scale).
        return _expected_error(total, size, scale, total) / scale if scale else 0.0


class ScoresOnDemand(Protocol):
    """Scores of candidates that are looked up one at a time, from which an exponential mechanism is drawn."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(candidates, 1)."""
        ...

    def draw(self, scale: float, generator: np.random.Generator) -> int:
        """A candidate with probability proportional to exp(score / scale); the best one for scale 0."""
        ...


@dataclass(frozen=True)
class NoisyMax(Mechanism):
    """The candidate of each column with the largest score + noise, scale = noise × ℓ∞ sensitivity.

    Answers with an index for each column, never with a noisy score. Proof: docs/proofs/noisy_max.md.

    Parameters
    ----------
    noise : NoisePerSensitivity
    columns : int
        The number of columns that the query will have.
    """

    columns: int = 1

    @abstractmethod
    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
        """Noise of scale 1."""

    @property
    def events(self) -> tuple[Event, int]:
        return PureEvent(_choice_range(self.noise)), self.columns

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> npt.NDArray[np.intp]:
        if exact.shape[1] != self.columns:
            raise ValueError(f"the plan holds {self.columns} columns but the query has {exact.shape[1]}")
        scale = self._scale(sensitivity.linf)
        if not isinstance(exact, np.ndarray):
            return self._on_demand(exact, scale, generator)
        noisy = exact + scale * self._draw(exact.shape, generator) if scale else exact
        return np.argmax(noisy, axis=0)

    def _on_demand(self, scores: ScoresOnDemand, scale: float, generator: np.random.Generator) -> npt.NDArray[np.intp]:
        raise TypeError(f"{self.label}: scores on demand are for Gumbel noise only")

    def rounding(
        self, shape: tuple[int, ...], size: float, sensitivity: Sensitivity, then: HardThreshold | None
    ) -> float:
        """Here `size` bounds the largest score alone (docs/proofs/noisy_max.md, lemma 6)."""
        scale = self._scale(sensitivity.linf)
        if scale == 0:
            return 0.0
        # The hazard rates of all three laws are at most 1 / scale, so the best two are seldom close, however many
        # candidates there are; numpy's draws themselves have a resolution of 2^-53.
        return self.columns * 2.0**-48 * (4.0 * size / scale + math.log(shape[0] + 1.0) + 64.0 + shape[0] / 15.0)


@dataclass(frozen=True)
class GumbelMax(NoisyMax):
    """Noisy max with Gumbel noise: the exponential mechanism. Bounded range makes many uses cheap."""

    @property
    def label(self) -> str:
        return "noisy max (Gumbel)"

    @property
    def events(self) -> tuple[Event, int]:
        return BoundedRangeEvent(_choice_range(self.noise)), self.columns

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
        return _gumbel(shape, generator)

    def _on_demand(self, scores: ScoresOnDemand, scale: float, generator: np.random.Generator) -> npt.NDArray[np.intp]:
        return np.array([scores.draw(scale, generator)])

    def rounding(
        self, shape: tuple[int, ...], size: float, sensitivity: Sensitivity, then: HardThreshold | None
    ) -> float:
        """Covers both ways to draw it (for scores on demand: docs/proofs/scores_on_demand.md, lemma 4)."""
        sums = 2.0**-47 * (2.0 * math.sqrt(shape[0]) + 9000.0) if self.noise.value else 0.0
        return super().rounding(shape, size, sensitivity, then) + self.columns * sums


@dataclass(frozen=True)
class LaplaceMax(NoisyMax):
    """Noisy max with Laplace noise, as the private Frank-Wolfe paper has it."""

    @property
    def label(self) -> str:
        return "noisy max (Laplace)"

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
        return generator.standard_exponential(shape) - generator.standard_exponential(shape)


@dataclass(frozen=True)
class PermuteAndFlip(NoisyMax):
    """Permute and flip (McKenna and Sheldon 2020): noisy max with exponential noise has its law (Ding et al. 2021)."""

    @property
    def label(self) -> str:
        return "permute and flip"

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
        return generator.standard_exponential(shape)


class Objective(Protocol):
    """A strongly convex objective of private rows, which a mechanism perturbs and has minimised."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a minimiser."""
        ...

    def minimise(self, linear_term: FloatArray) -> FloatArray:
        """The minimiser of the objective + <linear_term, theta>, to the certified accuracy."""
        ...


@dataclass(frozen=True)
class ObjectivePerturbation(Mechanism):
    """The minimiser of objective + <b, theta>, b ~ N(0, σ² I), σ = noise × how far the objective's gradient can move.

    A solver stops near the exact minimiser, never on it; a further Gaussian noise, `CERTIFICATE` times larger relative
    to that distance, hides where. Proof: docs/proofs/objective_perturbation.md.

    Parameters
    ----------
    noise : NoisePerSensitivity
    log_determinant : float
        What the plan allows for the change of log det of the Hessian, in [0, inf). A query that states more is refused.
    one_sided : bool
        Whether the plan counts on gradients that point one way along a row. A query that does not state it is refused.
    rows_per_unit : int
        At least 1.
    """

    log_determinant: float = 0.0
    one_sided: bool = False
    rows_per_unit: int = 1

    CERTIFICATE = 30.0
    # Log-determinants are compared up to rounding, and billed with it.
    _ROUNDED_UP = 1.0 + 1e-9

    @property
    def label(self) -> str:
        return "objective perturbation"

    @property
    def events(self) -> tuple[Event, int]:
        event = ObjectivePerturbationEvent(
            self.noise,
            self.log_determinant * self._ROUNDED_UP,
            self.one_sided,
            self.rows_per_unit,
            self.CERTIFICATE,
        )
        return event, 1

    def _moves(self, sensitivity: Sensitivity) -> ObjectiveSensitivity:
        moves = sensitivity.objective
        if moves is None:
            raise ValueError(f"{self.label}: the query is not an objective")
        if (
            not moves.log_determinant <= self.log_determinant * self._ROUNDED_UP
            or moves.rows_per_unit > self.rows_per_unit
            or (self.one_sided and not moves.one_sided)
        ):
            raise ValueError(f"{self.label}: the query moves in more ways than the plan counts: {moves}")
        return moves

    def _hiding_scale(self, moves: ObjectiveSensitivity) -> float:
        return self.CERTIFICATE * self._scale(moves.minimiser)

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> FloatArray:
        objective: Objective = exact
        if self.noise.value == 0:
            return objective.minimise(np.zeros(objective.shape))
        moves = self._moves(sensitivity)
        linear_term = self._scale(moves.gradient) * generator.standard_normal(objective.shape)
        minimiser = objective.minimise(linear_term)
        return _on_grid(minimiser, self._hiding_scale(moves), generator.standard_normal(objective.shape))

    def rounding(
        self, shape: tuple[int, ...], size: float, sensitivity: Sensitivity, then: HardThreshold | None
    ) -> float:
        if self.noise.value == 0:
            return 0.0
        moves, total = self._moves(sensitivity), math.prod(shape)
        scale = self._hiding_scale(moves)
        # The linear term moves the minimiser by up to its length / penalty; twice the expected length is for its tail.
        size += 2 * self._scale(moves.gradient) * math.sqrt(total) / moves.penalty
        return _expected_error(total, size, scale, total) / rounding_grid(scale)


@dataclass(frozen=True)
class Exact(Mechanism):
    """The exact answer. Only in plans that promise nothing."""

    @property
    def label(self) -> str:
        return "exact answer, no privacy"

    @property
    def events(self) -> tuple[Event, int]:
        return ExposedEvent(), 1

    def release(
        self, exact: FloatArray, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> FloatArray:
        return exact


@dataclass(frozen=True)
class NoiseWithoutProof(Exact):
    """exact + N(0, σ²), σ = noise × a sensitivity that a paper claims and that does not hold.

    Nothing is promised: it costs what the exact answer costs.

    Parameters
    ----------
    noise : NoisePerSensitivity
    claimed : float
        The paper's sensitivity, >= 0.
    """

    claimed: float = 0.0

    @property
    def label(self) -> str:
        return "Gaussian noise without a proof"

    def release(
        self, exact: FloatArray, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> FloatArray:
        return exact + self.noise.value * self.claimed * generator.standard_normal(exact.shape)


def rounding_grid(scale: float) -> float:
    """A power of two between 1/8 and 1/4 of the noise scale (1/8 included)."""
    return 2.0 ** (math.ceil(math.log2(scale)) - 3)
