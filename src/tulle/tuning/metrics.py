"""How good a public model is on private rows: noisy scores, with intervals that cover sampling and noise.

A metric turns each row into a few bounded figures, by the model's prediction for that row and its label alone; the
curator gives their noisy means or counts, and the score is computed from these answers. Proof: docs/proofs/tuning.md.
"""

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

from tulle import intake
from tulle.curator import Curator, summation_slack
from tulle.events import FloatArray, NoisePerSensitivity
from tulle.mechanisms import Laplace
from tulle.privacy import (
    BillLine,
    Plan,
    PrivacyReport,
    Release,
    bill_open_ledgers,
    can_be_repeated,
    is_number,
    stream_of,
)
from tulle.public import PublicFacts
from tulle.queries import BoundedMeans, CellCounts, Query
from tulle.randomness import fixed_nonce_told, keyed_generator, seed_of
from tulle.report import arithmetic_line, rounded_up
from tulle.rows import Rows

Interval = tuple[float, float]


class Metric(ABC):
    """A score between a model's predictions and the labels of private rows; larger is better."""

    name: str
    kind: Literal["classification", "regression"]
    worst = 0.0
    best = 1.0
    columns = 1

    @property
    def query(self) -> Query:
        """What is asked about the rows of `figures`."""
        return BoundedMeans(self.columns)

    @property
    def answers(self) -> int:
        """How many numbers the answer has."""
        return self.columns

    @abstractmethod
    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        """What the query sees of each row: functions of that row's prediction and label alone; shape (n, columns).

        `y` are finite numbers, or for classifiers the numbers of classes in ``model.classes_``, -1 for a label that is
        none of them.
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


def row_figures(metric: Metric, model: Any, X: Any, labels: intake.Cells, label: float) -> FloatArray:
    """A metric's figures of all rows, or an error where some row has none. The noise is made for this shape."""
    if metric.kind == "regression":
        y: Any = intake.finite_numbers(labels, "y")
    else:
        y = intake.codes(labels, model.classes_)
    figures = metric.figures(model, X, y, label)
    if figures.shape != (len(y), metric.columns):
        raise ValueError(f"metric {metric.name!r} makes figures of shape {figures.shape} of {len(y)} rows")
    return figures


def ask_score(
    metric: Metric,
    plan: Plan,
    figures: FloatArray,
    generator: np.random.Generator,
    rows_per_unit: int = 1,
    active: intake.Mask | None = None,
) -> FloatArray:
    """The noisy answer to a metric's query under the release "score".

    `active` are the rows that count, each by its own label; None: all.
    """
    public = PublicFacts.without_model(len(figures), figures.shape[1], rows_per_unit)
    curator = Curator(Rows(figures, np.zeros(len(figures)), active), public, plan, generator)
    answer: FloatArray = curator.ask("score", metric.query)
    curator.settle()
    return answer


def quietly(predict: Callable[[Any], Any], X: Any) -> Any:
    """Predictions without warnings: one about somebody's extreme row would be a release."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return predict(X)
        except Exception as error:
            if type(getattr(predict, "__self__", None)).__module__.startswith("tulle."):
                raise  # tulle's own messages quote no row
            raise ValueError(
                f"the model cannot predict for these rows: {type(error).__name__}. What it says is not shown, since it "
                "may quote a row; let it predict for rows that you made up"
            ) from None


def _one_per_row(predicted: Any, n_rows: int) -> npt.NDArray[Any]:
    """Predictions as a vector. Some models give a column, or a line."""
    predicted = np.asarray(predicted)
    if predicted.size != n_rows:
        raise ValueError(
            f"the model gives predictions of shape {predicted.shape} for {n_rows} rows; one each is needed"
        )
    return predicted.reshape(n_rows)


# --- metrics ---------------------------------------------------------------------------------------------------------


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
        predicted = intake.codes(_one_per_row(quietly(model.predict, X), len(y)), model.classes_)
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
            raise ValueError(f"metric 'auc' is for two classes, and the model has {len(model.classes_)}")
        if not (hasattr(model, "decision_function") or hasattr(model, "predict_proba")):
            raise ValueError("metric 'auc' needs a model with decision_function or predict_proba")

    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        if hasattr(model, "decision_function"):
            values = np.asarray(_one_per_row(quietly(model.decision_function, X), len(y)), dtype=np.float64)
        else:
            chances = np.asarray(quietly(model.predict_proba, X), dtype=np.float64)
            if chances.shape != (len(y), 2):
                raise ValueError(f"predict_proba gives shape {chances.shape} for {len(y)} rows of two classes")
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


# --- intervals -------------------------------------------------------------------------------------------------------


def _mean_intervals(answers: FloatArray, n_rows: int, scale: float, error: float, binary: bool) -> list[Interval]:
    """Intervals that hold all means of the population together, but for a probability of at most `error`.

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


# --- the score of a model --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivateScore:
    """A score on private rows, and what it cost.

    Attributes
    ----------
    value : float
        The noisy score.
    low, high : float
        An interval for the score on the population that the rows were drawn from: sampling and noise are both in it.
    confidence : float
    metric : str
    n_rows : int
    privacy : PrivacyReport
    """

    value: float
    low: float
    high: float
    confidence: float
    metric: str
    n_rows: int
    privacy: PrivacyReport

    def __str__(self) -> str:
        return (
            f"{self.metric} {self.value:.4g} ({100 * self.confidence:g} % interval {self.low:.4g} to {self.high:.4g}, "
            f"sampling and noise) on {self.n_rows:,} private rows; ε = {rounded_up(self.privacy.epsilon)}, δ = 0"
        )


@np.errstate(all="ignore")  # a warning, or an error, about somebody's extreme row would be a release
def private_score(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float,
    metric: Literal["accuracy", "auc", "r2", "absolute_error", "squared_error"] | None = None,
    label: float | None = None,
    classes: Any = None,
    confidence: float = 0.95,
    rows_per_person: int = 1,
    random_state: Any = None,
) -> PrivateScore:
    """How good a fitted model is on private rows, purely `epsilon`-privately, billed to every open `Ledger`.

    Parameters
    ----------
    model : fitted classifier or regressor
        Any with scikit-learn's interface that predicts each row by itself. It must be public, or private on its own
        account. If it was fitted to some of these rows, they pay for both, and the score is too good.
    X : array or sparse array of shape (n, d)
        At least one row.
    y : array of shape (n,)
        Labels are compared with ``model.classes_`` one by one; one that is none of them counts as wrong.
    epsilon : float
        In (0, inf). The noise on a mean of n figures in [0, 1] is Laplace of scale 1 / (n epsilon).
    metric : {"accuracy", "auc", "r2", "absolute_error", "squared_error"} or None, default=None
        None: "accuracy" for classifiers, "r2" for regressors. The two errors are given as 1 - error / label bound
        (squared: per squared bound), so that larger is better. "auc" is for two classes; labels other than
        ``classes_[1]`` count as the first class. Its value is that of decision values in cells: one cell below 1/64 in
        magnitude on either side of 0, cells in ratios of sqrt 2 up to 32, and one beyond; two rows of one cell count
        one half. Its interval is for the decision values as they are, and is wide where many share a cell.
    label : float or None, default=None
        Bound on the magnitude of regression targets, in (0, inf), declared without looking at them. Labels and
        residuals beyond it are clipped. None takes ``model.bounds.label``, of a search that of its best model.
    classes : sequence of str or of numbers, or None, default=None
        The labels that count, at least two, declared without looking at the rows: rows with another one count as
        nothing (as wrong for "accuracy", not at all for "auc"). None: those of the model. Classifiers only.
    confidence : float, default=0.95
        In (0, 1): of the interval.
    rows_per_person : int, default=1
        At least 1: the unit of privacy is a person with at most this many rows. The interval still takes rows as
        independent.
    random_state : int, RandomState, Generator or None, default=None
        An integer makes the result reproducible, and the promise void towards whoever knows it, can guess it, or sees
        another release with the same seed; not so inside a `FileLedger`, where no seed repeats noise. A RandomState or
        a Generator counts as None.

    Returns
    -------
    PrivateScore

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.dummy import DummyClassifier
    >>> from tulle import private_score
    >>> X, y = np.zeros((1000, 1)), np.arange(1000) % 4 == 0
    >>> model = DummyClassifier(strategy="constant", constant=False).fit(X, y)
    >>> print(private_score(model, X, y, epsilon=1.0, random_state=0))
    accuracy 0.7493 (95 % interval 0.715 to 0.7816, sampling and noise) on 1,000 private rows; ε = 1, δ = 0
    """
    from sklearn.utils import check_consistent_length
    from sklearn.utils.validation import check_is_fitted

    if not (is_number(epsilon) and 0 < epsilon < math.inf):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon!r}")
    if not (is_number(confidence) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if not (isinstance(rows_per_person, (int, np.integer)) and rows_per_person >= 1):
        raise ValueError(f"rows_per_person must be an integer >= 1, got {rows_per_person!r}")
    if not hasattr(model, "predict"):
        raise TypeError(f"private_score takes a classifier or a regressor with predict, got {model!r}")
    if hasattr(model, "fit"):
        check_is_fitted(model)
    # Anything that names its classes is a classifier, whether or not it knows scikit-learn's tags.
    kind, default = ("classification", "accuracy") if hasattr(model, "classes_") else ("regression", "r2")
    chosen = resolve_metric(metric, kind, default)
    chosen.check(model)
    bounds = getattr(getattr(model, "best_estimator_", model), "bounds", None)
    bound = label_bound(label, bounds) if kind == "regression" else 1.0
    if classes is not None and kind == "regression":
        raise ValueError("classes are for classifiers, and this model has none; leave classes out")
    declared = None if classes is None else intake.declared_classes(classes)
    labels = intake.cells(y, "y")
    check_consistent_length(X, labels)
    if len(labels) == 0:
        raise ValueError("there are no rows to score on")
    active = None if declared is None else intake.codes(labels, declared) >= 0
    seed = seed_of(random_state)
    public = PublicFacts.without_model(len(labels), chosen.columns, int(rows_per_person))
    noise = 1 / float(epsilon)
    if not 1e-100 < noise * chosen.query.sensitivity(public).l1 < 1e100:
        raise ValueError(f"epsilon = {epsilon:g} asks for noise that float64 cannot hold; choose another epsilon")
    scale = _noise_scale(chosen, noise, public)
    figures = row_figures(chosen, model, X, labels, bound)

    plan = Plan((Release("score", Laplace(NoisePerSensitivity(noise)), 1),))
    entries = bill_open_ledgers("private_score", [plan], (float(epsilon), 0.0), rows_per_person)
    generator = keyed_generator(seed, stream_of(entries))
    answer = ask_score(chosen, plan, figures, generator, rows_per_person, active)
    low, high = chosen.interval(answer, public.n_rows, scale, 1 - confidence)
    return PrivateScore(
        value=min(max(chosen.score(answer), chosen.worst), chosen.best),
        low=low,
        high=high,
        confidence=float(confidence),
        metric=chosen.name,
        n_rows=public.n_rows,
        privacy=_score_report(chosen, float(epsilon), public, seed if can_be_repeated(entries) else None),
    )


def _noise_scale(metric: Metric, noise: float, public: PublicFacts) -> float:
    """The scale of Laplace noise of `noise` per sensitivity, as `Curator.ask` draws it, with room for its grid."""
    sensitivity = metric.query.sensitivity(public).times(summation_slack(public.n_rows))
    grid, scale = Laplace(NoisePerSensitivity(noise)).grid_and_scale(sensitivity, metric.answers)
    # The answer and the noise are rounded by half a unit each. A whole unit more of noise covers both at every
    # confidence above 1 - 1/e, and at the others by far within what intervals leave.
    return scale + grid


def label_bound(label: Any, bounds: Any) -> float:
    """The declared bound on labels: given here, or in the model's bounds."""
    label = getattr(bounds, "label", None) if label is None else label
    if label is None:
        raise ValueError(
            "the score of a regression is scaled by a bound on |y|, which must not be taken from the rows; declare it "
            "with Bounds(label=...) on the model, or pass label=... to private_score"
        )
    if not (is_number(label) and 0 < label < math.inf):
        raise ValueError(f"label must be a finite number > 0, got {label!r}")
    return float(label)


def _score_report(metric: Metric, epsilon: float, public: PublicFacts, seed: int | None) -> PrivacyReport:
    unit = "one row" if public.rows_per_unit == 1 else f"one person with at most {public.rows_per_unit} rows"
    return PrivacyReport(
        epsilon=epsilon,
        delta=0.0,
        asked=(epsilon, 0.0),
        method=f"private_score: {metric.name}",
        calibration="rigorous",
        accountant="pure composition",
        unit=f"{unit}; replace-one adjacency: the number of rows, {public.n_rows:,}, is public",
        bill=(BillLine("score", Laplace().label, 1, 1 / epsilon, epsilon),),
        assumptions=(
            "The model is public or paid for elsewhere, and predicts each row by itself.",
            "If it was fitted to some of these rows, those rows pay for both: add the two promises up.",
            f"{arithmetic_line(0.0)} Running time is not protected.",
            "The noise came from a seed: not private against anyone who knows or guesses the seed, or sees another "
            "release with the same seed."
            if seed is not None
            else "The noise came from AES-128 in counter mode, keyed by the operating system.",
            *fixed_nonce_told(),
        ),
        who_saw_what=(
            "The process held the rows (those on a cluster were held by its workers), the predictions for them and the "
            "exact score.",
            "Whoever gets the result sees the noisy score, its interval and this report; the promise covers all of it.",
        ),
        seeded=seed is not None,
        floating_point_slack=0.0,
    )
