"""Metrics: each turns a row into a few bounded figures, and noisy answers about them into a score with an interval."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtri

from tulle.backends.input_kinds import gather, is_elsewhere
from tulle.files.error_messages import get_own_message
from tulle.files.own_types import role_of
from tulle.methods.gradient_queries import BoundedMeans
from tulle.trusted import intake
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Sensitivity
from tulle.trusted.queries import Query, vouch_for_query
from tulle.trusted.rows import Block, Rows

Interval = tuple[float, float]


class Metric(ABC):
    """A score between a model's predictions and the labels of private rows; larger is better."""

    name: str
    kind: Literal["classification", "regression", "survival"]
    worst = 0.0
    best = 1.0
    columns = 1

    @property
    def query(self) -> Query:
        """The query about the rows of `figures`."""
        return BoundedMeans(self.columns)

    @property
    def answers(self) -> int:
        """How many numbers the answer has."""
        return self.columns

    @abstractmethod
    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        """What the query sees of each row: functions of that row's prediction and label alone; shape (n, columns).

        `y` are finite numbers, or for classifiers the numbers of classes in ``model.classes_``, -1 for a label that is
        none of them; for models of hazards the cells of `SparseHazard.find_exits`.
        """

    @abstractmethod
    def score(self, answer: FloatArray) -> float:
        """The score, from a noisy answer; noise can carry it past `best` and `worst`, and is left to."""

    @abstractmethod
    def interval(self, answer: FloatArray, n_rows: int, scale: float, error: float) -> Interval:
        """Where the score of the whole population lies, up to a probability of `error`, after Laplace noise."""

    def check(self, model: Any) -> None:
        """Raise where the model, of the metric's kind, is none that it can judge."""
        return


def quietly(predict: Callable[[Any], Any], X: Any) -> Any:
    """Predictions without warnings: a warning caused by a person's extreme row would be a release."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return gather(predict(X))
        except Exception as error:
            own = role_of(getattr(predict, "__self__", None)) == "model"
            if own and (not is_elsewhere(X) or get_own_message(error) is not None):
                raise  # tulle's own messages quote no row; what reads a Dask collection may be another library
            raise ValueError(
                f"the model cannot predict for these rows: {type(error).__name__}. Its message is not shown, since it "
                "may quote a row; test its predictions on synthetic rows"
            ) from None


def _one_per_row(predicted: Any, n_rows: int) -> npt.NDArray[Any]:
    """Predictions as a vector. Some models give a column, or a line."""
    predicted = np.asarray(predicted)
    if predicted.size != n_rows:
        raise ValueError(
            f"the model returns predictions of shape {predicted.shape} for {n_rows} rows; one per row is needed"
        )
    return predicted.reshape(n_rows)


class _Mean(Metric):
    """The mean of one figure in [0, 1] per row."""

    binary = False

    def score(self, answer: FloatArray) -> float:
        return float(answer[0, 0])

    def interval(self, answer: FloatArray, n_rows: int, scale: float, error: float) -> Interval:
        return _mean_intervals(answer[:, 0], n_rows, scale, error, self.binary)[0]


class Accuracy(_Mean):
    """The share of rows whose class is predicted."""

    name = "accuracy"
    kind = "classification"
    binary = True

    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        predicted = intake.encode_labels(_one_per_row(quietly(model.predict, X), len(y)), model.classes_)
        return ((predicted == y) & (y >= 0)).astype(np.float64)[:, None]


class AbsoluteError(_Mean):
    """1 - mean |residual| / label bound. Labels are clipped to the bound, and so are residuals."""

    name = "absolute_error"
    kind = "regression"

    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        return 1 - np.sqrt(_squared_residuals(model, X, y, label))[:, None]


class SquaredError(_Mean):
    """1 - mean squared residual / squared label bound. Labels are clipped to the bound, and so are residuals."""

    name = "squared_error"
    kind = "regression"

    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        return 1 - _squared_residuals(model, X, y, label)[:, None]


class RSquared(Metric):
    """1 - sum of squared residuals / sum of squared deviations from the mean; labels and residuals are clipped.

    From three means: of squared residuals, of labels (moved to [0, 1]) and of squared labels, all per label bound.
    """

    name = "r2"
    kind = "regression"
    worst = -math.inf
    columns = 3

    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        labels = np.clip(np.asarray(y, dtype=np.float64), -label, label) / label
        return np.column_stack([_squared_residuals(model, X, y, label), (labels + 1) / 2, labels**2])

    def score(self, answer: FloatArray) -> float:
        residual, first, second = answer[:, 0]
        variance = second - (2 * first - 1) ** 2
        return float(1 - residual / variance) if variance > 0 else -math.inf

    def interval(self, answer: FloatArray, n_rows: int, scale: float, error: float) -> Interval:
        residual, first, second = _mean_intervals(answer[:, 0], n_rows, scale, error, binary=False)
        mean_low, mean_high = 2 * first[0] - 1, 2 * first[1] - 1
        squares = mean_low**2, mean_high**2
        least_square = 0.0 if mean_low <= 0 <= mean_high else min(squares)
        variance_low, variance_high = second[0] - max(squares), second[1] - least_square
        low = 1 - residual[1] / variance_low if variance_low > 0 else -math.inf
        return low, (1 - residual[0] / variance_high if variance_high > 0 else 1.0)


@vouch_for_query
@dataclass(frozen=True, eq=False)
class CellCounts(Query):
    """How many rows lie in each of `cells` public cells.

    The rows that are asked hold the number of their cell as their only feature. A row is in one cell at most, so that
    replacing it lowers one count by 1 and raises another.

    Parameters
    ----------
    cells : int
        At least 1.
    """

    cells: int

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        rows = float(public.rows_per_unit)
        return Sensitivity(l1=2 * rows, l2=math.sqrt(2) * rows, linf=rows)

    def size(self, public: PublicFacts) -> float:
        return float(public.n_rows)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        return rows.reduce(self._count)

    def _count(self, block: Block) -> FloatArray:
        cell = block.margins(np.ones((1, 1)), 0.0)[:, 0]
        counted = block.active & (cell >= 0) & (cell < self.cells)
        return np.bincount(cell[counted].astype(np.intp), minlength=self.cells).astype(float)[:, None]


# Edges for decision values: geometric on either side of 0, so that no scale has to be known.
_EDGES = np.concatenate([-(2.0 ** np.arange(5.0, -6.5, -0.5)), [0.0], 2.0 ** np.arange(-6.0, 5.5, 0.5)])


class AreaUnderCurve(Metric):
    """The probability that a row of the second class has a larger decision value than one of the first.

    From a histogram of decision values (cells in ratios of sqrt 2, from 1/64 to 32, on either side of 0) per class; two
    rows of one cell count one half. The interval lets them count anything from 0 to 1, and so holds the area of the
    decision values themselves. Labels other than the second class count as the first.
    """

    name = "auc"
    kind = "classification"
    cells = len(_EDGES) + 1

    @property
    def query(self) -> Query:
        return CellCounts(self.answers)

    @property
    def answers(self) -> int:
        return 2 * self.cells

    def check(self, model: Any) -> None:
        if len(model.classes_) != 2:
            raise ValueError(f"metric 'auc' is for two classes, but the model has {len(model.classes_)}")
        if not (hasattr(model, "decision_function") or hasattr(model, "predict_proba")):
            raise ValueError("metric 'auc' needs a model with decision_function or predict_proba")

    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        if hasattr(model, "decision_function"):
            values = np.asarray(_one_per_row(quietly(model.decision_function, X), len(y)), dtype=np.float64)
        else:
            chances = np.asarray(quietly(model.predict_proba, X), dtype=np.float64)
            if chances.shape != (len(y), 2):
                raise ValueError(f"predict_proba returns shape {chances.shape} for {len(y)} rows of two classes")
            with np.errstate(all="ignore"):
                values = np.log(chances[:, 1]) - np.log1p(-chances[:, 1])
        cell = np.searchsorted(_EDGES, np.nan_to_num(values, nan=0.0), side="right")
        return (cell + self.cells * (y == 1)).astype(np.float64)[:, None]

    def score(self, answer: FloatArray) -> float:
        return self._curve(answer, 0.5)[0]

    def interval(self, answer: FloatArray, n_rows: int, scale: float, error: float) -> Interval:
        # The area counts pairs of one cell as 0 to 1: the lower end is that of 0, the upper end that of 1.
        value = min(max(self.score(answer), 0.0), 1.0)
        low, low_reach = self._area_and_reach(answer, 0.0, scale, error)
        high, high_reach = self._area_and_reach(answer, 1.0, scale, error)
        return max(min(low, value) - low_reach, 0.0), min(max(high, value) + high_reach, 1.0)

    def _area_and_reach(self, answer: FloatArray, ties: float, scale: float, error: float) -> Interval:
        """The area where pairs of one cell count `ties`, in [0, 1], and how far sampling and noise can have moved it.

        Sampling gives it a variance of at most area (1 - area) / (rows of the smaller class) (Birnbaum and Klose 1957).
        """
        noisy, below, above, negatives, positives = self._curve(answer, ties)
        area = min(max(noisy, 0.0), 1.0)
        # A class that drowns in the noise of its cells says nothing.
        if min(negatives, positives) < 4 * scale * math.sqrt(2 * self.cells):
            return area, math.inf
        one = 2 * scale**2  # the variance of one cell's noise
        noise = one * (((below - area) ** 2).sum() / positives**2 + ((above - area) ** 2).sum() / negatives**2)
        noise += one**2 * self.cells * (self.cells + 1) / 2 / (negatives * positives) ** 2
        # Within a noise of 0 or 1 the area is taken there.
        spread = max(area * (1 - area), math.sqrt(noise) / 2, 1 / min(negatives, positives))
        return area, float(-ndtri(error / 2)) * math.sqrt(noise + spread / min(negatives, positives))

    def _curve(self, answer: FloatArray, ties: float) -> tuple[float, FloatArray, FloatArray, float, float]:
        """The area; per cell the shares of negatives below and of positives above; `ties` of the cell's own each."""
        negative, positive = answer[: self.cells, 0], answer[self.cells :, 0]
        negatives, positives = float(negative.sum()), float(positive.sum())
        if min(negatives, positives) <= 0:
            return 0.5, np.zeros(self.cells), np.zeros(self.cells), 0.0, 0.0
        below = (np.cumsum(negative) - (1 - ties) * negative) / negatives
        above = 1 - (np.cumsum(positive) - ties * positive) / positives
        area = float((below * positive).sum() / positives)
        return area, np.clip(below, 0, 1), np.clip(above, 0, 1), negatives, positives


_METRICS: tuple[Metric, ...] = (Accuracy(), AreaUnderCurve(), RSquared(), AbsoluteError(), SquaredError())

METRICS = {metric.name: metric for metric in _METRICS}


def resolve_metric(name: Any, kind: str, default: str) -> Metric:
    """The metric behind a name, or the default; an error where it is for another kind of model."""
    fitting = sorted(metric.name for metric in METRICS.values() if metric.kind == kind)
    name = default if name is None else name
    if name not in fitting:
        raise ValueError(f"a {kind} model is scored by one of {fitting}, got {name!r}")
    return METRICS[name]


def _squared_residuals(model: Any, X: Any, y: Any, label: float) -> FloatArray:
    """Per squared label bound, within [0, 1]. Predictions that are not finite are wrong by the bound."""
    labels = np.clip(np.asarray(y, dtype=np.float64), -label, label)
    with np.errstate(all="ignore"):
        predicted = np.asarray(_one_per_row(quietly(model.predict, X), len(labels)), dtype=np.float64)
        residuals = np.abs(predicted - labels) / label
        return np.where(residuals < 1, residuals, 1.0) ** 2


def _mean_intervals(answers: FloatArray, n_rows: int, scale: float, error: float, binary: bool) -> list[Interval]:
    """Intervals that hold all means of the population together, except with probability at most `error`.

    A part of `error` goes to the noise and the rest to sampling; the split looks at public quantities alone.
    """
    each = error / len(answers)
    parts = each * np.linspace(0.01, 0.99, 99)
    part = float(parts[np.argmin(-scale * np.log(parts) + np.sqrt(np.log(2 / (each - parts)) / (2 * n_rows)))])
    reach = -scale * math.log(part)  # P(|Laplace| > t) = exp(-t / scale)
    sampling = _binomial_interval if binary else _bounded_interval
    found = []
    for answer in answers:
        low, high = (min(max(float(end), 0.0), 1.0) for end in (answer - reach, answer + reach))
        found.append((sampling(low, n_rows, each - part)[0], sampling(high, n_rows, each - part)[1]))
    return found


def _binomial_interval(share: float, n_rows: int, error: float) -> Interval:
    """Clopper and Pearson's; it grows with the share, which need not be a whole number of rows."""
    hits = share * n_rows
    low = float(betaincinv(hits, n_rows - hits + 1, error / 2)) if hits > 0 else 0.0
    return low, float(betaincinv(hits + 1, n_rows - hits, 1 - error / 2)) if hits < n_rows else 1.0


def _bounded_interval(mean: float, n_rows: int, error: float) -> Interval:
    """Hoeffding's bound in its relative-entropy form, for any figures in [0, 1]."""
    limit = math.log(2 / error) / n_rows

    def excess(p: float) -> float:
        first = mean * math.log(mean / p) if mean > 0 else 0.0
        return first + ((1 - mean) * math.log((1 - mean) / (1 - p)) if mean < 1 else 0.0) - limit

    least, most = 1e-300, 1 - 2.0**-53
    low = float(brentq(excess, least, mean)) if mean > least and excess(least) > 0 else 0.0
    return low, float(brentq(excess, mean, most)) if mean < most and excess(most) > 0 else 1.0
