"""How good a public model is on private rows: noisy scores, with intervals that cover sampling and noise.

A metric turns each row into a few bounded figures, by the model's prediction for that row and its label alone; the
curator gives their noisy means or counts, and the score is computed from these answers. Proof: docs/proofs/tuning.md.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from tulle.files import array_checks, class_labels
from tulle.files.number_text import finite, rounded_up
from tulle.ledgers.ledger import describe_entries
from tulle.ledgers.spending import note_release
from tulle.methods.loss_functions import facts_without_model
from tulle.monitoring.logged_account import open_logged_account
from tulle.reports.report import PrivacyReport
from tulle.reports.words import warn_of_large_epsilon
from tulle.trusted import intake
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.fit import Account, Order
from tulle.trusted.mechanisms import Laplace
from tulle.trusted.plan import Budget, Plan, Release, is_number
from tulle.trusted.randomness import seed_of
from tulle.trusted.rows import Rows
from tulle.tuning.metrics import Metric, resolve_metric
from tulle.tuning.pure_release import check_confidence, check_epsilon, find_scale, report_release


def row_figures(metric: Metric, model: Any, X: Any, labels: intake.Cells, label: float) -> FloatArray:
    """A metric's figures of all rows, or an error where some row has none. The noise is made for this shape."""
    if metric.kind == "survival":
        y: Any = labels
    elif metric.kind == "regression":
        y = array_checks.read_finite_numbers(labels, "y")
    else:
        y = intake.encode_labels(labels, model.classes_)
    figures = metric.figures(model, X, y, label)
    if figures.shape != (len(y), metric.columns):
        raise ValueError(f"metric {metric.name!r} returns values of shape {figures.shape} for {len(y)} rows")
    return figures


def ask_score(account: Account, metric: Metric, figures: FloatArray, active: intake.Mask | None = None) -> FloatArray:
    """The noisy answer to a metric's query under the release "score", all that the account was opened for.

    `active` are the rows that count, each by its own label; None: all.
    """
    (plan,) = account.order.plans
    public = facts_without_model(len(figures), figures.shape[1], account.order.rows_per_unit)
    rows = Rows(figures, np.zeros(len(figures)), active)
    answer: FloatArray = account.ask(rows, public, plan, lambda ask: ask("score", metric.query))
    return answer


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

    def to_json(self) -> str:
        """The score with its report as JSON, as ``tulle report --card --score`` reads it."""
        return json.dumps(finite(asdict(self)), indent=2, ensure_ascii=False, allow_nan=False)


@np.errstate(all="ignore")  # a warning, or an error, about somebody's extreme row would be a release
def private_score(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float,
    metric: Literal["accuracy", "auc", "r2", "absolute_error", "squared_error", "concordance"] | None = None,
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
        An integer makes the result reproducible, without a guarantee against anyone who knows it, can guess it, or sees
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

    check_epsilon(epsilon)
    warn_of_large_epsilon(epsilon, 4)  # np.errstate stands between
    check_confidence(confidence)
    if not (isinstance(rows_per_person, (int, np.integer)) and rows_per_person >= 1):
        raise ValueError(f"rows_per_person must be an integer >= 1, got {rows_per_person!r}")
    if not hasattr(model, "predict"):
        raise TypeError(f"private_score takes a classifier or a regressor with predict, got {model!r}")
    if hasattr(model, "fit"):
        check_is_fitted(model)
    if hasattr(model, "find_exits"):
        labels, chosen, bound, active = _survival(model, y, metric, classes)
    else:
        labels, chosen, bound, active = _labels(model, y, metric, label, classes)
    check_consistent_length(X, labels)
    if len(labels) == 0:
        raise ValueError("there are no rows to score")
    seed = seed_of(random_state)
    public = facts_without_model(len(labels), chosen.columns, int(rows_per_person))
    scale = find_scale(chosen.query, chosen.answers, epsilon, public)
    figures = row_figures(chosen, model, X, labels, bound)

    plan = Plan((Release("score", Laplace(NoisePerSensitivity(1 / float(epsilon))), 1),))
    order = Order("private_score", (plan,), 0.0, int(rows_per_person), seed, Budget(epsilon))
    with open_logged_account(order, __name__, {"n_rows": public.n_rows, "method": chosen.name}) as account:
        note_release()
        answer = ask_score(account, chosen, figures, active)
    low, high = chosen.interval(answer, public.n_rows, scale, 1 - confidence)
    return PrivateScore(
        value=min(max(chosen.score(answer), chosen.worst), chosen.best),
        low=low,
        high=high,
        confidence=float(confidence),
        metric=chosen.name,
        n_rows=public.n_rows,
        privacy=replace(
            _score_report(chosen, float(epsilon), public, account.seeded), billed=describe_entries(account.entries)
        ),
    )


def _survival(model: Any, y: Any, metric: str | None, classes: Any) -> tuple[Any, Metric, float, intake.Mask | None]:
    """The same for a model of hazards."""
    from tulle.survival.concordance import Concordance

    if metric not in (None, "concordance") or classes is not None:
        raise ValueError("a model of hazards is scored by metric='concordance', without classes")
    return model.find_exits(y), Concordance(model.n_periods, model.largest_risk), 1.0, None


def _labels(
    model: Any, y: Any, metric: str | None, label: float | None, classes: Any
) -> tuple[Any, Metric, float, intake.Mask | None]:
    """Labels, the metric, the bound on labels and the rows that count."""
    # Anything that names its classes is a classifier, whether or not it knows scikit-learn's tags.
    kind, default = ("classification", "accuracy") if hasattr(model, "classes_") else ("regression", "r2")
    chosen = resolve_metric(metric, kind, default)
    chosen.check(model)
    bounds = getattr(getattr(model, "best_estimator_", model), "bounds", None)
    bound = label_bound(label, bounds) if kind == "regression" else 1.0
    if classes is not None and kind == "regression":
        raise ValueError("classes are for classifiers, and this model has none; leave classes out")
    declared = None if classes is None else class_labels.check_classes(classes)
    labels = intake.read_cells(y, "y")
    active = None if declared is None else intake.encode_labels(labels, declared) >= 0
    return labels, chosen, bound, active


def label_bound(label: Any, bounds: Any) -> float:
    """The declared bound on labels: given here, or in the model's bounds."""
    label = getattr(bounds, "label", None) if label is None else label
    if label is None:
        raise ValueError(
            "the score of a regression is scaled by a bound on |y|, which must not be computed from the rows; declare "
            "it "
            "with Bounds(label=...) on the model, or pass label=... to private_score"
        )
    if not (is_number(label) and 0 < label < math.inf):
        raise ValueError(f"label must be a finite number > 0, got {label!r}")
    return float(label)


def _score_report(metric: Metric, epsilon: float, public: PublicFacts, seeded: bool) -> PrivacyReport:
    unit = "one row" if public.rows_per_unit == 1 else f"one person with at most {public.rows_per_unit} rows"
    return report_release(
        f"private_score: {metric.name}",
        "score",
        f"{unit}; replace-one adjacency: the number of rows, {public.n_rows:,}, is public",
        epsilon,
        seeded,
        (
            "The model is public or billed elsewhere, and predicts each row independently of the others.",
            "If it was fitted to some of these rows, their total privacy loss is the sum of both guarantees.",
        ),
        (
            "The process held the rows (those on a cluster were held by its workers), the predictions for them and the "
            "exact score.",
            "Recipients of the result see the noisy score, its interval and this report; the guarantee covers all of "
            "it.",
        ),
    )
