"""How models of a comparison are judged besides their error: by name, by a function of predictions, or by a scorer.

Scores on rows are not private: `tulle.experiments.comparison` says so in everything that it writes.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Scorer = Callable[[Any, Any, npt.NDArray[Any]], float]

_TASKS = {"accuracy": "classification", "auc": "classification", "log_loss": "classification", "r2": "regression"}
METRIC_NAMES = {
    task: tuple(name for name, of in _TASKS.items() if of == task) for task in ("classification", "regression")
}
"""The names of metrics for each task."""
# Metrics of which smaller values are better; for a function of the caller's own this is not known.
_SMALLER_IS_BETTER = ("log_loss",)


def _accuracy(model: Any, X: Any, y: npt.NDArray[Any]) -> float:
    return float(np.mean(np.asarray(model.predict(X)) == y))


def _auc(model: Any, X: Any, y: npt.NDArray[Any]) -> float:
    from sklearn.metrics import roc_auc_score

    if len(model.classes_) > 2:
        return float(roc_auc_score(y, _probabilities("auc", model, X), multi_class="ovr", labels=model.classes_))
    margins = model.decision_function(X) if hasattr(model, "decision_function") else model.predict_proba(X)[:, 1]
    return float(roc_auc_score(y == model.classes_[1], margins))


def _log_loss(model: Any, X: Any, y: npt.NDArray[Any]) -> float:
    from sklearn.metrics import log_loss

    return float(log_loss(y, _probabilities("log_loss", model, X), labels=model.classes_))


def _r2(model: Any, X: Any, y: npt.NDArray[Any]) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(y, model.predict(X)))


def _probabilities(metric: str, model: Any, X: Any) -> npt.NDArray[Any]:
    if not hasattr(model, "predict_proba"):
        raise ValueError(f"{metric} needs predict_proba, which {type(model).__name__} with this loss does not have")
    return np.asarray(model.predict_proba(X))


_BY_NAME: Mapping[str, Scorer] = {"accuracy": _accuracy, "auc": _auc, "log_loss": _log_loss, "r2": _r2}


@dataclass(frozen=True)
class ComparisonMetric:
    """One score of a fitted model on test rows.

    Attributes
    ----------
    name : str
    score : callable
        Of a fitted model, rows and their targets.
    larger_is_better : bool or None
        None: not known.
    code : str
        A checksum of a function of the caller's own: results of another function are not reused. "" for a name.
    """

    name: str
    score: Scorer
    larger_is_better: bool | None
    code: str = ""


def read_metrics(given: Any, task: str) -> tuple[ComparisonMetric, ...]:
    """The metrics that a caller names or passes.

    Parameters
    ----------
    given : str, callable, iterable of these, or mapping of names to these
        "accuracy", "auc", "log_loss" (classification) or "r2" (regression); a function of targets and predictions whose
        first parameter is `y_true`, as those of scikit-learn; or a scorer, a function of a fitted model, rows and
        targets.
    task : {"classification", "regression"}
    """
    if isinstance(given, str) or callable(given):
        given = (given,)
    named: Iterable[tuple[str, Any]] = (
        given.items() if isinstance(given, Mapping) else ((_name_of(metric), metric) for metric in given)
    )
    found = tuple(_read_metric(name, metric, task) for name, metric in named)
    names = [metric.name for metric in found]
    if len(set(names)) < len(names):
        raise ValueError(f"each metric needs a name of its own, got {names}; pass a mapping of names to metrics")
    if taken := [name for name in names if name in _RESERVED]:
        raise ValueError(f"a metric cannot be called {taken[0]!r}; pass a mapping of other names to metrics")
    return found


# Columns that results have in any case.
_RESERVED = (
    "score",
    "proved",
    "nonzero",
    "seconds",
    "failed",
    "code",
    "data",
    "method",
    "epsilon",
    "trial",
    "warnings",
)


def _read_metric(name: str, metric: Any, task: str) -> ComparisonMetric:
    if isinstance(metric, str):
        if metric not in _BY_NAME:
            raise ValueError(f"metric {metric!r} is unknown; choose among {', '.join(_BY_NAME)}, or pass a function")
        if _TASKS[metric] != task:
            fitting = ", ".join(one for one in _BY_NAME if _TASKS[one] == task)
            raise ValueError(f"metric {metric!r} is for {_TASKS[metric]}; for {task} choose among {fitting}")
        return ComparisonMetric(name, _BY_NAME[metric], metric not in _SMALLER_IS_BETTER)
    if not callable(metric):
        raise TypeError(f"a metric is a name or a function, got {metric!r}")
    return ComparisonMetric(name, _OfModel(metric, _takes_predictions(metric)), None, _checksum(metric))


def _name_of(metric: Any) -> str:
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))


def _takes_predictions(metric: Callable[..., Any]) -> bool:
    """Whether it is a function of targets and predictions, by the name of its first parameter."""
    try:
        return next(iter(inspect.signature(metric).parameters), "") == "y_true"
    except (TypeError, ValueError):  # what has no signature is called as a scorer
        return False


@dataclass(frozen=True)
class _OfModel:
    """A function of the caller's own, as a function of a fitted model, rows and targets."""

    metric: Callable[..., Any]
    of_predictions: bool

    def __call__(self, model: Any, X: Any, y: npt.NDArray[Any]) -> float:
        return float(self.metric(y, model.predict(X)) if self.of_predictions else self.metric(model, X, y))


def _checksum(metric: Callable[..., Any]) -> str:
    try:
        text = inspect.getsource(metric)
    except (OSError, TypeError):  # typed at a prompt, or an object
        code = getattr(metric, "__code__", None)
        text = repr(metric) if code is None else f"{code.co_code!r}{code.co_consts!r}{code.co_names!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
