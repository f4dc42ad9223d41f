"""Mechanisms: how an exact answer becomes a private one.

A mechanism knows its noise relative to the sensitivity; the query that it answers knows the sensitivity. What a
mechanism costs is its `events`, which never depend on data.

Finite precision: noise is drawn and added, and choices are made, without rounding errors (`tulle.exact_noise`,
docs/proofs/floating_point.md). Where a mechanism can only bound what finite precision does, `inexact` is that bound,
and it is a part of the delta that is promised.
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
from tulle.exact_noise import (
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
)
from tulle.lazy_noise import Background, dense_noisy_largest, noisy_largest
from tulle.sampling import Sampling
from tulle.weights import SparseWeights

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

    def with_errors(self, error: float, count: int) -> Sensitivity:
        """The same of `count` numbers that are computed with an error of this ℓ2 norm; what nothing moves has none."""
        l1, l2, linf = error * math.sqrt(count), error, error
        return Sensitivity(
            self.l1 + l1 * (self.l1 > 0),
            self.l2 + l2 * (self.l2 > 0),
            self.linf + linf * (self.linf > 0),
            self.objective,
        )


@dataclass(frozen=True)
class HardThreshold:
    """Keep the `keep` largest magnitudes of each column; lines from `free_from` on are kept whatever they are.

    Post-processing, but done inside the trusted rooms: noise that cannot pass the threshold need not be drawn there.
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

    @property
    def inexact(self) -> float:
        """Upper bound on the total variation distance between one answer and the ideal one; 0 where there is none."""
        return 0.0


@dataclass(frozen=True)
class _AdditiveNoise(Mechanism):
    """Independent noise on every coordinate, then an optional threshold.

    The answer is rounded to a public grid and the noise to the same, so that whole numbers are added up. Rounding them
    one by one is the same as rounding their sum: a function of the ideal mechanism's answer. What rounding adds to the
    sensitivity is in the scale.
    """

    LAW: ClassVar[SymmetricLaw]

    @abstractmethod
    def _relevant(self, sensitivity: Sensitivity) -> float:
        """The sensitivity in the norm that the noise needs."""

    @abstractmethod
    def _coordinates(self, count: int) -> float:
        """The norm of a vector of `count` ones."""

    def grid_and_scale(self, sensitivity: Sensitivity, count: int) -> tuple[float, float]:
        """The grid that an answer of `count` numbers is rounded to, and the scale of its noise; noise > 0."""
        self._scale(self._relevant(sensitivity))  # an error where no sensitivity is stated
        return grid_and_scale(self.noise.value, self._relevant(sensitivity), self._coordinates(count))

    def release(
        self, exact: FloatArray, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> FloatArray:
        if self.noise.value == 0:
            return exact if then is None else then(exact)
        grid, scale = self.grid_and_scale(sensitivity, math.prod(exact.shape))
        units = add_noise(exact, scale, grid, self.LAW, generator)
        return _from_units(units if then is None else then(units), grid)


def _from_units(units: FloatArray, grid: float) -> FloatArray:
    """Values of whole units of a grid. Overwrites them."""
    units *= grid
    units += 0.0  # no negative zeros
    return units


@dataclass(frozen=True)
class Gaussian(_AdditiveNoise):
    """exact + N(0, σ²) on every coordinate, σ = noise × ℓ2 sensitivity. Proof: docs/proofs/gaussian.md.

    Of long answers that are thresholded, noise that cannot matter is not drawn. The law is the same:
    docs/proofs/lazy_noise.md.
    """

    @property
    def label(self) -> str:
        return "Gaussian on a vector"

    @property
    def events(self) -> tuple[Event, int]:
        return GaussianEvent(self.noise), 1

    def _relevant(self, sensitivity: Sensitivity) -> float:
        return sensitivity.l2

    LAW: ClassVar[SymmetricLaw] = NORMAL

    def _coordinates(self, count: int) -> float:
        return math.sqrt(count)

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> Any:
        if self.noise.value == 0 or then is None or not then.one_border or len(exact) <= _LONG:
            return super().release(exact, sensitivity, generator, then)
        listed = SparseWeights(np.arange(len(exact)), exact, len(exact))
        return self._largest(SparseAnswer(listed), sensitivity, generator, then).to_dense()

    def _largest(
        self, exact: SparseAnswer, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold
    ) -> SparseWeights:
        """What a threshold with one border keeps, without drawing all noise."""
        grid, scale = self.grid_and_scale(sensitivity, math.prod(exact.shape))
        listed, border = exact.listed, (then.keep, then.free_from, generator)
        if len(listed.lines) == listed.n_lines > _MANY_LINES:
            kept = dense_noisy_largest(listed.values, scale, grid, *border)
        else:
            kept = noisy_largest(listed, exact.background, scale, grid, *border)
        return SparseWeights(kept.lines, _from_units(kept.values, grid), kept.n_lines)


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
    Proofs: docs/proofs/sampled_gaussian.md, docs/proofs/lazy_noise.md.

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

    def _coordinates(self, count: int) -> float:
        # A batch with a unit is compared with the same batch without it. What that moves is bounded by half of the
        # sensitivity, and rounding comes on top of it as a whole.
        return 2.0 * math.sqrt(count)

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
        if self.noise.value == 0 and exact.background is None:
            return then.sparsely(exact.listed)
        if not (self.lazy and then.one_border) or self.noise.value == 0:
            dense = _AdditiveNoise.release(self, exact.to_dense(), sensitivity, generator, then)
            return SparseWeights.from_dense(dense)
        return self._largest(exact, sensitivity, generator, then).pruned()


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

    LAW: ClassVar[SymmetricLaw] = LAPLACE

    def _coordinates(self, count: int) -> float:
        return float(count)


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
        if scale:
            return choose_largest(exact, scale, self.k, GUMBEL, generator)
        chosen = np.zeros(exact.shape, dtype=bool)
        for column in range(exact.shape[1]):
            chosen[largest(exact[:, column], self.k), column] = True
        return chosen


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

    LAW: ClassVar[ChoiceLaw]

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
        return np.argmax(choose_largest(exact, scale, 1, self.LAW, generator) if scale else exact, axis=0)

    def _on_demand(self, scores: ScoresOnDemand, scale: float, generator: np.random.Generator) -> npt.NDArray[np.intp]:
        raise TypeError(f"{self.label}: scores on demand are for Gumbel noise only")


@dataclass(frozen=True)
class GumbelMax(NoisyMax):
    """Noisy max with Gumbel noise: the exponential mechanism. Bounded range makes many uses cheap.

    Parameters
    ----------
    noise : NoisePerSensitivity
    columns : int
        The number of columns that the query will have.
    candidates, rows : int
        Where scores may be drawn from on demand: how many candidates there are at most, and over how many rows scores
        are means. 0 for scores that are arrays.
    """

    candidates: int = 0
    rows: int = 0

    LAW: ClassVar[ChoiceLaw] = GUMBEL

    @property
    def label(self) -> str:
        return "noisy max (Gumbel)"

    @property
    def events(self) -> tuple[Event, int]:
        return BoundedRangeEvent(_choice_range(self.noise)), self.columns

    def _on_demand(self, scores: ScoresOnDemand, scale: float, generator: np.random.Generator) -> npt.NDArray[np.intp]:
        if scores.shape[0] > self.candidates:
            raise ValueError(f"{self.label}: the plan does not allow for scores on demand of so many candidates")
        return np.array([scores.draw(scale, generator)])

    @property
    def inexact(self) -> float:
        """Scores on demand are drawn by proposals in float64: docs/proofs/scores_on_demand.md, lemma 4."""
        if not self.candidates or self.noise.value == 0:
            return 0.0
        # No score is more than n / (2 noise) of the scale: a mean moves by two bounds / n at least.
        largest_score = self.rows / (2.0 * self.noise.value)
        cells = 0.04 * math.sqrt(self.candidates) + 140.0
        once = 75.0 * largest_score + 11_100.0 + 2.0 * math.sqrt(self.candidates) + 600.0 * (3.0 * cells + 1.0)
        return min(1.0, self.columns * 2.0**-53 * once)


@dataclass(frozen=True)
class LaplaceMax(NoisyMax):
    """Noisy max with Laplace noise, as the private Frank-Wolfe paper has it."""

    @property
    def label(self) -> str:
        return "noisy max (Laplace)"

    LAW: ClassVar[ChoiceLaw] = LAPLACE_CHOICE


@dataclass(frozen=True)
class PermuteAndFlip(NoisyMax):
    """Permute and flip (McKenna and Sheldon 2020): noisy max with exponential noise has its law (Ding et al. 2021)."""

    @property
    def label(self) -> str:
        return "permute and flip"

    LAW: ClassVar[ChoiceLaw] = EXPONENTIAL


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

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: HardThreshold | None
    ) -> FloatArray:
        objective: Objective = exact
        if self.noise.value == 0:
            return objective.minimise(np.zeros(objective.shape))
        moves, count = self._moves(sensitivity), math.prod(objective.shape)
        draw = NORMAL.noise(Draws.fresh(count, generator)).reshape(objective.shape)
        spread = self._scale(moves.gradient)
        minimiser = objective.minimise(spread * draw)
        # A linear term that is off by an error moves the minimiser by no more than its length / penalty.
        off = 2.0 * LARGEST_ERROR * spread * math.sqrt(count) / moves.penalty
        grid, scale = grid_and_scale(self.CERTIFICATE * self.noise.value, moves.minimiser + 2 * off, math.sqrt(count))
        return _from_units(add_noise(minimiser, scale, grid, NORMAL, generator), grid)


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
