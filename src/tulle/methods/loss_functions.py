"""Losses of generalised linear models: f(margin, target), averaged over rows, always.

A loss is a function of one row's margin <x, w> and of its target. Methods use `slope` (the derivative in the margin,
from which gradients are summed) and `slope_bound`; queries *enforce* the bound by clipping, so a loss of your own that
states a wrong one costs accuracy, never privacy. What must hold is that `slope` treats each row on its own. Objective
perturbation uses none of it: it takes slopes and curvatures from `tulle.trusted.losses`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from scipy.special import expit, log_softmax, logit, softmax

from tulle.accounting.row_limit import check_row_count
from tulle.methods.parameter_checks import to_python_number
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import (
    AnyLoss,
    ConvexHuber,
    ConvexLogistic,
    ConvexLoss,
    ConvexPoisson,
    ConvexSquared,
    ConvexSquaredHinge,
    Norm,
)


class Loss(ABC):
    """A loss f(m, y) that is convex in the margin m. Margins have one column per output.

    Attributes
    ----------
    kind : {"regression", "classification"}
        Classification targets are -1 and +1 (one output) or class numbers (several).
    curvature : float
        Least upper bound of the second derivative in the margin (largest eigenvalue for several outputs).
    n_outputs : int
        Columns of the margins.
    one_sided : bool
        Whether the slope times the target is never positive: a larger margin on the right side never costs more.
    """

    kind: Literal["regression", "classification"]
    curvature: float
    n_outputs: int = 1
    one_sided: bool = False

    @abstractmethod
    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        """f(m, y) of each row; shape (n,)."""

    @abstractmethod
    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        """The derivative in the margin, row by row; shape of `margins`."""

    @abstractmethod
    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        """Least upper bound of the norm of one row's slopes while |m| <= margin_bound and |y| <= label_bound."""

    def default_clip(self, label_bound: float) -> float:
        """Where to clip slopes when the user does not say.

        Classification: the slope of a row about which the zero model knows nothing, so that the first step loses
        nothing. Regression: a quarter of the label bound, since a bound is an extreme and most labels lie far inside.
        """
        start = self.slope_bound(0.0, label_bound)
        return start if self.kind == "classification" else start / 4

    def typical_curvature(self, label_bound: float) -> float:
        """The curvature to size steps by, where the least upper bound is far above usual values."""
        return self.curvature

    def margin_scale(self, label_bound: float) -> float:
        """The scale on which margins of a good model live."""
        return 1.0

    def curvature_within(self, slope: float, label_bound: float) -> float:
        """Upper bound of the second derivative where the slope's magnitude is below `slope`."""
        return self.curvature

    def curvature_at(self, margins: FloatArray) -> FloatArray:
        """The second derivative at each of these margins, for any target; for intervals of weights."""
        raise ValueError(f"the second derivative of {self!r} is not known, and intervals need it")

    @property
    def convex(self) -> ConvexLoss | None:
        """The trusted loss of one margin that this one is, if it is one of tulle's own and no subclass of these."""
        return None

    def constant_margin(self, mean_slope: float) -> float:
        """The margin of the best constant model, given the mean slope at margin 0."""
        return -mean_slope / self.curvature

    def mean(self, margins: FloatArray) -> FloatArray:
        """The prediction that belongs to a margin (inverse link)."""
        return margins


class _OneOutput(Loss):
    """A loss of one output that has its slope and its curvature from a trusted one."""

    @property
    @abstractmethod
    def _trusted(self) -> ConvexLoss: ...

    @property
    def convex(self) -> ConvexLoss | None:
        return self._trusted if type(self) in LOSSES.values() else None

    @property
    def one_sided(self) -> bool:  # type: ignore[override]
        return self._trusted.one_sided

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        return self._trusted.slope(margins, targets)

    def curvature_within(self, slope: float, label_bound: float) -> float:
        return self._trusted.curvature_within(slope, label_bound)


@dataclass(frozen=True)
class Squared(_OneOutput):
    """f(m, y) = (m - y)² / 2."""

    kind = "regression"
    curvature = 1.0

    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        return (margins[:, 0] - targets) ** 2 / 2

    @property
    def _trusted(self) -> ConvexLoss:
        return ConvexSquared()

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        return margin_bound + label_bound

    def curvature_at(self, margins: FloatArray) -> FloatArray:
        return np.ones_like(margins)

    def margin_scale(self, label_bound: float) -> float:
        return label_bound


@dataclass(frozen=True)
class Huber(_OneOutput):
    """Quadratic up to `threshold` from the label, linear beyond.

    Parameters
    ----------
    threshold : float, default=1.0
        In (0, inf), in units of the label.
    """

    threshold: float = 1.0
    kind = "regression"
    curvature = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise ValueError(f"Huber's threshold must be a finite number > 0, got {self.threshold}")
        object.__setattr__(self, "threshold", to_python_number(self.threshold))

    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        residual = np.abs(margins[:, 0] - targets)
        inside = np.minimum(residual, self.threshold)
        return inside**2 / 2 + self.threshold * (residual - inside)

    @property
    def _trusted(self) -> ConvexLoss:
        return ConvexHuber(self.threshold)

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        return min(self.threshold, margin_bound + label_bound)

    def margin_scale(self, label_bound: float) -> float:
        return label_bound if label_bound < math.inf else self.threshold


@dataclass(frozen=True)
class Poisson(_OneOutput):
    """f(m, y) = exp(m) - y m for counts y >= 0, continued linearly above the margin `cap`.

    Parameters
    ----------
    cap : float, default=10.0
        Predicted means stay below exp(cap). In (0, 100].
    """

    cap: float = 10.0
    kind = "regression"

    def __post_init__(self) -> None:
        if not 0 < self.cap <= 100:
            raise ValueError(f"Poisson's cap must lie in (0, 100], got {self.cap}")
        object.__setattr__(self, "cap", to_python_number(self.cap))

    @property
    def curvature(self) -> float:  # type: ignore[override]
        return math.exp(self.cap)

    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        margin = margins[:, 0]
        inside = np.minimum(margin, self.cap)
        return np.exp(inside) * (1 + margin - inside) - targets * margin

    @property
    def _trusted(self) -> ConvexLoss:
        return ConvexPoisson(self.cap)

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        return max(math.exp(min(margin_bound, self.cap)), label_bound - math.exp(-min(margin_bound, 700.0)))

    def curvature_at(self, margins: FloatArray) -> FloatArray:
        return np.where(margins < self.cap, self.mean(margins), 0.0)

    def typical_curvature(self, label_bound: float) -> float:
        return min(self.curvature, max(1.0, label_bound))  # the second derivative is the predicted mean

    def constant_margin(self, mean_slope: float) -> float:
        return math.log(max(1.0 - mean_slope, 1e-3))

    def mean(self, margins: FloatArray) -> FloatArray:
        return np.exp(np.minimum(margins, self.cap))


@dataclass(frozen=True)
class Logistic(_OneOutput):
    """f(m, y) = log(1 + exp(-y m)) for y in {-1, +1}."""

    kind = "classification"
    curvature = 0.25

    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        return np.logaddexp(0.0, -targets * margins[:, 0])

    @property
    def _trusted(self) -> ConvexLoss:
        return ConvexLogistic()

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        return float(expit(margin_bound))

    def curvature_at(self, margins: FloatArray) -> FloatArray:
        return np.asarray(expit(margins) * expit(-margins))

    def constant_margin(self, mean_slope: float) -> float:
        return float(logit(min(max(0.5 - mean_slope, 0.01), 0.99)))  # the slopes at 0 are 1/2 minus the class

    def probabilities(self, margins: FloatArray) -> FloatArray:
        """P(-1) and P(+1) of each row."""
        return np.hstack([expit(-margins), expit(margins)])


@dataclass(frozen=True)
class SquaredHinge(_OneOutput):
    """f(m, y) = max(0, 1 - y m)² / 2 for y in {-1, +1}."""

    kind = "classification"
    curvature = 1.0

    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        return np.maximum(0.0, 1.0 - targets * margins[:, 0]) ** 2 / 2

    @property
    def _trusted(self) -> ConvexLoss:
        return ConvexSquaredHinge()

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        return 1.0 + margin_bound


@dataclass(frozen=True)
class Softmax(Loss):
    """f(m, y) = logsumexp(m) - m_y for class numbers y; the logistic loss of several classes.

    Parameters
    ----------
    n_outputs : int
        The number of classes, at least 2.
    """

    n_outputs: int = 2
    kind = "classification"
    curvature = 0.5

    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        return np.asarray(-log_softmax(margins, axis=1)[np.arange(len(targets)), targets.astype(int)])

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        slopes = softmax(margins, axis=1)
        slopes[np.arange(len(targets)), targets.astype(int)] -= 1.0
        return slopes

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        # With a = 1 - p_y the others sum to a and none exceeds p_max, so |slopes|² <= a² + min(a, p_max) a.
        others = math.log(self.n_outputs - 1)
        away = float(expit(2 * margin_bound + others))
        largest = float(expit(2 * margin_bound - others))
        return max(away, largest) if norm == "linf" else math.sqrt(away**2 + min(away, largest) * away)

    def probabilities(self, margins: FloatArray) -> FloatArray:
        """The probability of each class, row by row."""
        return np.asarray(softmax(margins, axis=1))


@dataclass(frozen=True)
class OneVsRest(Loss):
    """The sum over classes of a two-class loss that tells each class from all others.

    Parameters
    ----------
    binary : Loss
        A classification loss of one output.
    n_outputs : int
        The number of classes, at least 2.
    """

    binary: Loss
    n_outputs: int
    kind = "classification"

    @property
    def curvature(self) -> float:  # type: ignore[override]
        return self.binary.curvature

    @property
    def convex(self) -> ConvexLoss | None:
        return self.binary.convex if type(self) is OneVsRest else None

    def _signs(self, targets: FloatArray) -> FloatArray:
        return np.where(targets[:, None] == np.arange(self.n_outputs), 1.0, -1.0)

    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        signs = self._signs(targets)
        return np.sum([self.binary.value(margins[:, [k]], signs[:, k]) for k in range(self.n_outputs)], axis=0)

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        signs = self._signs(targets)
        return np.hstack([self.binary.slope(margins[:, [k]], signs[:, k]) for k in range(self.n_outputs)])

    def probabilities(self, margins: FloatArray) -> FloatArray:
        """The binary loss's probability of each class, scaled to a sum of 1."""
        binary: Any = self.binary
        chances = np.hstack([binary.probabilities(margins[:, [k]])[:, 1:] for k in range(self.n_outputs)])
        return np.asarray(chances / np.maximum(chances.sum(axis=1, keepdims=True), 1e-300))

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        one = self.binary.slope_bound(margin_bound, label_bound)
        return one if norm == "linf" else math.sqrt(self.n_outputs) * one


LOSSES: dict[str, type[Loss]] = {
    "squared": Squared,
    "huber": Huber,
    "poisson": Poisson,
    "logistic": Logistic,
    "squared_hinge": SquaredHinge,
}


def without_weights(loss: AnyLoss) -> AnyLoss:
    """The loss behind that of rows with weights (`tulle.methods.weighted_loss`); any other loss itself."""
    return cast(Any, loss).base if getattr(loss, "weighted", False) else loss


def of_one_output(loss: AnyLoss) -> Loss:
    """The two-class loss behind a one-against-the-rest loss; any other loss itself. Without the weights of rows."""
    loss = without_weights(loss)
    return loss.binary if isinstance(loss, OneVsRest) else cast(Loss, loss)


def is_built_in(loss: AnyLoss) -> bool:
    """Whether a loss is one of those defined here, not one of a user's, subclasses of these among them."""
    loss = without_weights(loss)
    binary = loss.binary if type(loss) is OneVsRest else loss
    return type(loss) is Softmax or type(binary) in LOSSES.values()


_REQUIRED = (
    "kind",
    "curvature",
    "typical_curvature",
    "value",
    "slope",
    "slope_bound",
    "default_clip",
    "mean",
    "convex",
)


def resolve_loss(loss: str | Loss, kind: str, n_classes: int = 2) -> Loss:
    """The loss object behind a name or a user's own object, with several outputs where there are several classes."""
    if isinstance(loss, str):
        names = [name for name, cls in LOSSES.items() if cls.kind == kind]
        if loss not in names:
            raise ValueError(f"loss={loss!r} is unknown for {kind}; choose one of {names} or pass a loss object")
        loss = LOSSES[loss]()
    missing = [name for name in _REQUIRED if not hasattr(loss, name)]
    if missing:
        raise TypeError(f"the loss {loss!r} lacks {', '.join(missing)}; derive it from {Loss.__module__}.Loss")
    if loss.kind != kind:
        raise ValueError(f"the loss {loss!r} is for {loss.kind}; this estimator does {kind}")
    if n_classes <= 2:
        return loss
    return Softmax(n_classes) if isinstance(loss, Logistic) else OneVsRest(loss, n_classes)


def facts_without_model(n_rows: int, n_features: int, rows_per_unit: int) -> PublicFacts:
    """The facts of rows that are asked something but that no model is fitted to; the loss is never looked at."""
    check_row_count(n_rows)
    return PublicFacts(
        n_rows=n_rows,
        n_features=n_features,
        n_nonzero=1,
        loss=Squared(),
        budget=None,
        row_l2=math.inf,
        row_linf=math.inf,
        label=math.inf,
        fit_intercept=False,
        rows_per_unit=rows_per_unit,
    )
