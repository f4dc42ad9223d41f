"""The rounds of a local study: the questions, and the use of the answers. No row is accessible here.

- `LdpIht`: iterative hard thresholding on gradients that users randomise, the whole row private (Wang and Xu, ICML
  2019, algorithm 1). With one round it is the estimator of their theorem 1.
- `LabelCollection`: every user sends a randomised label once (algorithm 2); the features are known to the server.

A bound that is not declared is searched first, by halving a fixed grid with yes-or-no questions to a share of the
users. Each user is in one group and answers one question. Proof: docs/proofs/local_protocol.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from tulle.accounting.zcdp import refuse_rho
from tulle.estimators.bounds import GRID, Bounds
from tulle.local.user_side.answer_format import CHANNELS, Ask, ExceedsAsk, GradientAsk, LabelAsk, Quantity
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.channel import MOST_EPSILON, Channel, IntArray, Unrandomised, check_count, check_epsilon
from tulle.local.user_side.label_randomisers import GaussianLabel, LabelChannel, RandomisedResponse, best_label_channel
from tulle.local.user_side.responses import IDENTITY, Response
from tulle.methods.public_start import read_start
from tulle.methods.thresholds import HardThreshold, project_on_ball
from tulle.trusted.accountants import MOST_ARITHMETIC
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import Budget

BallChoice = Literal["priv_unit", "hemisphere"]

LABEL_CHANNELS = tuple(name for name, cls in CHANNELS.items() if issubclass(cls, LabelChannel))

# Halvings until one of the grid's values is left.
_HALVINGS = math.ceil(math.log2(len(GRID)))


@dataclass
class Tally:
    """The answers of one round: their exact sum, how many they are and, where it is wanted, who said what."""

    total: IntArray
    count: int = 0
    each: dict[str, IntArray] | None = None

    @classmethod
    def empty(cls, width: int, keep_each: bool) -> Tally:
        return cls(np.zeros(width, dtype=np.int64), 0, {} if keep_each else None)

    def add(self, user: str, values: IntArray) -> None:
        self.total += values
        self.count += 1
        if self.each is not None:
            self.each[user] = values


@dataclass
class _BoundSearch:
    """One bound, found by halving: `low` and `high` enclose it on the grid."""

    quantity: Quantity
    low: int = 0
    high: int = len(GRID) - 1

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    @property
    def value(self) -> float:
        return float(GRID[self.high])

    def absorb(self, share_beyond: float, quantile: float) -> None:
        if self.low < self.high:
            self.low, self.high = (
                (self.middle + 1, self.high) if share_beyond > 1 - quantile else (self.low, self.middle)
            )


@dataclass
class Protocol(ABC):
    """What a server asks, round by round. Mutable: it learns from the answers.

    Parameters
    ----------
    budget : Budget or None
        What one answer may cost, and so what the study costs each user. With a delta of 0 the promise has the delta
        that the channel's arithmetic needs, if any: see `delta`. None randomises nothing (but yes-or-no answers about
        bounds keep epsilon = 16), and only a simulation takes it.
    n_features : int
    bounds : Bounds
        Of its fields `row_l2` (or `row_linf`) and `label` are read; a missing one is searched for, with
        `estimate_share` of the users, as the `quantile` of the users' values.
    fit_intercept : bool
    """

    budget: Budget | None
    n_features: int
    bounds: Bounds
    fit_intercept: bool
    round: int = field(default=1, init=False)
    found: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.bounds, Bounds):
            raise TypeError(f"bounds must be a Bounds or None, got {self.bounds!r}")
        if self.bounds.rows_per_person != 1:
            raise ValueError("each user has one row and one answer: use Bounds(rows_per_person=1)")
        if self.bounds.normalise:
            raise ValueError("users do not normalise rows: normalise them beforehand, and use Bounds(row_l2=1.0)")
        refuse_rho(self.budget, "a local study")
        if self.budget is not None:
            check_epsilon("the epsilon of a local study", self.budget.epsilon)
        self._searches = [_BoundSearch(quantity) for quantity in self._missing()]

    @abstractmethod
    def _missing(self) -> tuple[Quantity, ...]:
        """The bounds that are needed and not declared."""

    @property
    def dimension(self) -> int:
        """How many weights there are, the intercept's included."""
        return self.n_features + self.fit_intercept

    @property
    def epsilon(self) -> float:
        return math.inf if self.budget is None else self.budget.epsilon

    @property
    def delta(self) -> float:
        """The delta of the promise to every user, all of it: the one asked for, or that of the channel's arithmetic."""
        if self.budget is None:
            return 0.0
        return self.budget.delta or self.make_channel(1.0).delta

    def _check_arithmetic(self) -> None:
        """Raise where finite precision would take more than a tenth of the delta that was asked for, or leave no
        promise where none was."""
        if self.budget is None:
            return
        needed = self.make_channel(1.0).arithmetic_delta
        if self.budget.delta > 0 and needed > MOST_ARITHMETIC * self.budget.delta:
            raise ValueError(
                f"finite precision would use {needed:.2g} of delta = {self.budget.delta:g}, and at most a tenth of "
                "delta is allowed; use a smaller epsilon, fewer features or a larger delta"
            )
        if needed >= 1:
            raise ValueError("finite precision leaves no privacy guarantee; use a smaller epsilon or fewer features")

    @property
    def yes_or_no(self) -> RandomisedResponse:
        """What randomises the answers of users who are asked about bounds."""
        return RandomisedResponse(min(self.epsilon, MOST_EPSILON), 1.0, 2)

    @abstractmethod
    def make_channel(self, bound: float) -> Channel:
        """What randomises the answers of the main rounds, within a bound."""

    @property
    def n_searching(self) -> int:
        """Rounds that look for bounds."""
        return _HALVINGS * len(self._searches)

    @property
    @abstractmethod
    def n_main(self) -> int:
        """Rounds that look for the model."""

    @property
    def n_rounds(self) -> int:
        """All rounds: those that look for bounds and those that look for the model."""
        return self.n_searching + self.n_main

    @property
    def finished(self) -> bool:
        return self.round > self.n_rounds

    def borders(self) -> FloatArray:
        """Where the groups of the rounds begin and end, in [0, 1]."""
        searching = self.bounds.estimate_share if self.n_searching else 0.0
        shares = [searching / self.n_searching] * self.n_searching if self.n_searching else []
        borders = np.concatenate([[0.0], np.cumsum([*shares, *[(1 - searching) / self.n_main] * self.n_main])])
        borders[-1] = 1.0
        return borders

    def ask(self) -> tuple[Ask, Channel]:
        """The question of the current round."""
        if self.round <= self.n_searching:
            search = self._searches[(self.round - 1) // _HALVINGS]
            return ExceedsAsk(search.quantity, float(GRID[search.middle]), self.fit_intercept), self.yes_or_no
        return self._ask()

    @property
    def keep_each(self) -> bool:
        """Whether it matters who said what, in the current round."""
        return False

    def absorb(self, tally: Tally) -> None:
        """Learn from the answers of the current round, and go on to the next."""
        if self.round <= self.n_searching:
            search = self._searches[(self.round - 1) // _HALVINGS]
            channel = self.yes_or_no
            yes = float(tally.total[0]) / max(tally.count, 1)
            beyond = (yes - (1 - channel.chance)) / (2 * channel.chance - 1)
            if tally.count:  # without answers the bound stays: one that is too large only costs noise
                search.absorb(beyond, self.bounds.quantile)
            self.found[search.quantity] = search.value
        else:
            self._absorb(tally)
        self.round += 1

    @abstractmethod
    def _ask(self) -> tuple[Ask, Channel]: ...

    @abstractmethod
    def _absorb(self, tally: Tally) -> None: ...

    @property
    def label_bound(self) -> float:
        return float(self.bounds.label or self.found.get("label", math.inf))


@dataclass
class LdpIht(Protocol):
    """Interactive iterative hard thresholding on randomised gradients; the whole row is private.

    Parameters
    ----------
    n_nonzero : int
        Non-zero weights of the result, at least 1; the intercept is not counted.
    n_gradients : int
        T: rounds, and groups of users.
    ball : {"priv_unit", "hemisphere"}
        How gradients are randomised.
    response : Response
    step : float or None
        The first step; None is what suits features of equal variance that fill the row bound.
    radius : float or None
        What the first gradients are clipped to. None: with `constant_radius` the longest gradient that the bounds
        allow; else row bound × label bound × steepness of the response, and half of that if there are several rounds.
    working : int
        How many times `n_nonzero` weights are kept between rounds (the paper: 8).
    weight_bound : float or None
        Weights are scaled down to this norm (the paper: 1); None: what would explain labels at their bound.
    constant_step : bool
        Whether all steps are as long as the first (the paper). False: step t (from 0) is 2/(t + 2) of it, so that
        later gradients are averaged with earlier ones.
    constant_radius : bool
        Whether all gradients are clipped to the first radius (the paper). False: to 0.7^t of it, at least 0.3, as
        errors shrink.
    cut_at_end : bool
        Whether the last round keeps `n_nonzero` weights. False: `working` times as many, as after every other round
        (the paper).
    start : array of shape (dimension,) or None
        Public weights that the first gradients are taken at, the intercept last; None: 0 (the paper). For any
        start, every user clips its own gradient to the radius.
    """

    n_nonzero: int = 1
    n_gradients: int = 8
    ball: BallChoice = "priv_unit"
    response: Response = IDENTITY
    step: float | None = None
    radius: float | None = None
    working: int = 8
    weight_bound: float | None = None
    constant_step: bool = False
    constant_radius: bool = False
    cut_at_end: bool = True
    start: FloatArray | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_nonzero", "n_gradients", "working"):
            check_count(name, getattr(self, name), 1)
        if self.ball not in get_args(BallChoice):
            raise ValueError(f"ball={self.ball!r} is unknown; choose one of {get_args(BallChoice)}")
        self._check_arithmetic()
        self.weights: FloatArray = np.zeros(self.dimension)
        if self.start is not None:
            weights, intercept = self.start[: self.n_features], self.start[self.n_features :]
            given = weights if not len(intercept) else (weights, intercept)
            read_start(type(self).__name__, given, self.n_features, 1, self.fit_intercept)
            self.weights[: len(self.start)] = self.start

    def _missing(self) -> tuple[Quantity, ...]:
        # With all three given no bound is used.
        if None not in (self.step, self.radius, self.weight_bound):
            return ()
        row = self.bounds.row_l2 is None and self.bounds.row_linf is None
        return (*(("row",) if row else ()), *(("label",) if self.bounds.label is None else ()))  # type: ignore[return-value]

    @property
    def n_main(self) -> int:
        return self.n_gradients

    @property
    def row_bound(self) -> float:
        """Of a row with its constant."""
        if "row" in self.found:
            return self.found["row"]
        return math.hypot(self.bounds.known(self.n_features).row_l2, 1.0 if self.fit_intercept else 0.0)

    @property
    def curvature(self) -> float:
        """The mean square of a feature times the squared slope of the response, if features fill the bound evenly."""
        return self.row_bound**2 / self.dimension * self.response.steepness**2

    @property
    def largest_weight(self) -> float:
        """The norm of weights that would explain labels at their bound."""
        if self.weight_bound is not None:
            return self.weight_bound
        # A response that flattens out reaches its bound at larger margins than its slope at 0 says.
        margin = (1 if self.response == IDENTITY else 2) * self.label_bound / self.response.steepness
        return margin * math.sqrt(self.dimension) / self.row_bound

    @property
    def clipping(self) -> float:
        """The first radius over the longest gradient at 0: later rounds, if any, make up for the part cut off."""
        return 0.5 if self.n_gradients > 1 else 1.0

    @property
    def first_radius(self) -> float:
        if self.radius is not None:
            return self.radius
        if self.constant_radius:
            return self.longest_gradient
        return self.clipping * self.row_bound * self.label_bound * self.response.steepness

    @property
    def longest_gradient(self) -> float:
        """No gradient is longer where rows, labels and weights keep their bounds and no slope passes the one at 0."""
        entry = math.inf if "row" in self.found else self.bounds.known(self.n_features).row_linf
        in_support = entry * math.sqrt(min(self.working * self.n_nonzero, self.n_features))
        margin = self.largest_weight * min(self.row_bound, math.hypot(in_support, 1.0 if self.fit_intercept else 0.0))
        fitted = float(np.max(np.abs(self.response.value(np.array([-margin, margin])))))
        return self.row_bound * (fitted + self.label_bound) * self.response.steepness

    def make_channel(self, bound: float) -> Channel:
        if self.budget is None:
            return Unrandomised(math.inf, bound, self.dimension)
        make = PrivUnit.best if self.ball == "priv_unit" else PrivUnit.hemisphere
        return make(self.epsilon, bound, self.dimension)

    def channel(self, number: int) -> Channel:
        """The randomiser of gradient round `number`, from 0."""
        return self.make_channel(self.first_radius * self.radius_share(number))

    def radius_share(self, number: int) -> float:
        """The radius of gradient round `number` over the first: errors shrink, and so do gradients."""
        return 1.0 if self.constant_radius else max(0.7**number, 0.3)

    def step_share(self, number: int) -> float:
        """The step of gradient round `number` over the first."""
        return 1.0 if self.constant_step else 2 / (number + 2)

    def step_size(self, number: int) -> float:
        first = 1 / self.curvature if self.step is None else self.step
        # Not first * step_share: fits repeat to the last bit.
        return first if self.constant_step else first * 2 / (number + 2)

    def kept(self, number: int) -> int:
        """How many weights gradient round `number` leaves, the intercept not counted."""
        last = number == self.n_gradients - 1
        return self.n_nonzero * (1 if last and self.cut_at_end else self.working)

    def _ask(self) -> tuple[Ask, Channel]:
        ask = GradientAsk(self.weights, self.response.name, self.fit_intercept)
        return ask, self.channel(self.round - 1 - self.n_searching)

    def _absorb(self, tally: Tally) -> None:
        number = self.round - 1 - self.n_searching
        gradient = self.channel(number).unit * tally.total / max(tally.count, 1)
        # Steps may be any size: what overflows is as good as the largest number.
        moved = np.clip(self.weights - self.step_size(number) * gradient, -1e150, 1e150)[:, None]
        weights = HardThreshold(self.kept(number), self.n_features)(moved)[:, 0]
        self.weights = project_on_ball(weights, self.largest_weight)


@dataclass
class LabelCollection(Protocol):
    """Every user sends a randomised label; `answers` holds them by name. Features are known to the server.

    Parameters
    ----------
    randomiser : str
        "auto" is the purely private channel with the least variance for the worst label; else the name of one:
        "gaussian", "laplace", "two_point", "piecewise", "hybrid".
    n_classes : int or None
        None: labels are numbers.
    """

    randomiser: str = "auto"
    n_classes: int | None = None
    answers: dict[str, int] = field(default_factory=dict, init=False)

    def _missing(self) -> tuple[Quantity, ...]:
        return ("label",) if self.n_classes is None and self.bounds.label is None else ()

    @property
    def n_main(self) -> int:
        return 1

    @property
    def keep_each(self) -> bool:
        return self.round > self.n_searching

    def make_channel(self, bound: float) -> Channel:
        if self.randomiser != "auto" and self.randomiser not in LABEL_CHANNELS:
            names = sorted(LABEL_CHANNELS)
            raise ValueError(f"randomiser={self.randomiser!r} is unknown; choose 'auto' or one of {names}")
        if self.budget is None:
            return Unrandomised(math.inf, bound if self.n_classes is None else self.n_classes, 1)
        if self.n_classes is not None:
            return RandomisedResponse(self.epsilon, 1.0, self.n_classes)
        return self._label_channel(self.budget, bound)

    def _label_channel(self, budget: Budget, bound: float) -> Channel:
        name = self.randomiser
        if name == "auto":
            return best_label_channel(budget.epsilon, bound)
        if name == GaussianLabel.name:
            if budget.delta == 0:
                raise ValueError("randomiser='gaussian' needs a delta > 0; 'auto' needs none and has less noise")
            return GaussianLabel(budget.epsilon, bound, budget.delta)
        return CHANNELS[name](budget.epsilon, bound)

    @property
    def channel(self) -> Channel:
        return self.make_channel(self.label_bound)

    def by_number(self) -> tuple[npt.NDArray[np.intp], IntArray]:
        """Whose answers counted, where users are called by numbers, and what they said."""
        numbers = sorted(map(int, self.answers))
        said = [self.answers[str(number)] for number in numbers]
        return np.array(numbers, dtype=np.intp), np.array(said, dtype=np.int64)

    def _ask(self) -> tuple[Ask, Channel]:
        return LabelAsk(), self.channel

    def _absorb(self, tally: Tally) -> None:
        self.answers = {user: int(values[0]) for user, values in (tally.each or {}).items()}
