"""One fit of an experiment, and how good it is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tulle.estimators.bounds import Bounds
from tulle.estimators.private_pipeline import PrivatePipeline
from tulle.estimators.sparse import SparseClassifier, SparseRegressor
from tulle.experiments.comparison_metrics import read_metrics
from tulle.experiments.examples import judged, null_answers, record_warnings
from tulle.experiments.peers import PEERS, BoundedData
from tulle.experiments.problems import Problem
from tulle.methods import METHODS
from tulle.preprocessing.private_scaler import PrivateScaler
from tulle.transfer.public_features import UniformFeatures

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Data, Line

# Lines that are no method of tulle: answers that look at no row's features, and the fit that users come from.
NULL, SCIKIT_LEARN = "null model", "scikit-learn"


def run_trial(
    panel: Data,
    line: Line,
    parameters: Mapping[str, Any],
    problem: Problem,
    *,
    epsilon: float | None,
    delta: float,
    metric: str,
    seed: int,
    measures: Sequence[str] = (),
) -> dict[str, Any]:
    """Fit a line's model to a problem: its score, the ε that is proved, how sparse it is, and what it took.

    Parameters
    ----------
    panel, line : Data, Line
    parameters : mapping
        Of the method, besides those of the line: chosen by tuning.
    problem : Problem
    epsilon : float or None
        None without privacy.
    delta : float
    metric : str
    seed : int
        Of the noise.
    measures : sequence of str
        Other scores on test rows, by their names in `tulle.experiments.comparison_metrics`.
    """
    X, y = problem.train.X, problem.train.y
    if line.method == NULL:
        # Against true weights the null model has none.
        return {"score": 1.0 if metric == "relative error" else judged(metric, *_null(panel, problem, metric))}
    if line.method in PEERS:
        assert epsilon is not None
        return _peer(panel, line, problem, epsilon, delta, metric, seed)
    if line.method == SCIKIT_LEARN:
        model = _scikit_learn(panel, problem)
    else:
        model = _estimator(panel, line, parameters, problem, epsilon, delta, seed)
    start = time.perf_counter()
    with record_warnings() as warned:
        model.fit(X, y, **({"public": problem.public} if line.public or line.public_rows else {}))
    seconds = time.perf_counter() - start
    penalty = float(line.parameters.get("penalty", 0.0))
    linear = model.model_ if panel.scaled else model
    values = {
        "score": score(model, problem, metric, penalty),
        "nonzero": int(np.count_nonzero(linear.coef_)),
        "seconds": seconds,
    }
    if problem.test is not None:
        others = read_metrics(measures, panel.task)
        values |= {one.name: one.score(model, problem.test.X, problem.test.y) for one in others}
    if line.method == SCIKIT_LEARN:
        return values
    return values | {
        "proved": None if epsilon is None else model.privacy_.epsilon,
        "passes": float(linear.n_passes_),
        "thresholds": int(linear.n_thresholds_),
        "warnings": warned,
    }


def _estimator(
    panel: Data,
    line: Line,
    parameters: Mapping[str, Any],
    problem: Problem,
    epsilon: float | None,
    delta: float,
    seed: int,
) -> Any:
    """A method of tulle, unfitted; behind a private scaler where the panel says so, under one ε."""
    settings: dict[str, Any] = {
        "n_nonzero": _n_nonzero(panel, line, parameters, problem.train.X.shape[1]),
        "method": _method(panel, line, parameters, problem),
        "calibration": line.calibration,
        "fit_intercept": line.has_intercept(panel),
    }
    estimator = SparseClassifier if panel.task == "classification" else SparseRegressor
    if not panel.scaled:
        return estimator(epsilon, delta, bounds=Bounds(**panel.bounds), random_state=seed, **settings)
    label = panel.bounds.get("label")  # the scaler bounds the rows
    model = estimator(bounds=None if label is None else Bounds(label=label), **settings)
    return PrivatePipeline([("scale", PrivateScaler()), ("model", model)], epsilon, delta, random_state=seed)


def _peer(
    panel: Data, line: Line, problem: Problem, epsilon: float, delta: float, metric: str, seed: int
) -> dict[str, Any]:
    """A method of another paper, which is calibrated to ε and δ for the neighbours that it names."""
    bounds = Bounds(**panel.bounds).known(problem.train.X.shape[1])
    assert bounds.row_l2 is not None
    assert bounds.label is not None
    start = time.perf_counter()
    data = BoundedData.of(problem.train.X, problem.train.y, bounds.row_l2, bounds.label)
    model = PEERS[line.method].fit(data, epsilon, delta, np.random.default_rng(seed))
    seconds = time.perf_counter() - start
    nonzero = int(np.count_nonzero(model.coef_))
    return {"score": score(model, problem, metric), "nonzero": nonzero, "seconds": seconds, "proved": epsilon}


def score(model: Any, problem: Problem, metric: str, penalty: float = 0.0) -> float:
    """How far a model is from the truth or from the labels of test rows, or what it makes of the objective."""
    if metric == "relative error":
        distance = np.linalg.norm(model.coef_.ravel() - problem.weights)
        return float(distance / np.linalg.norm(problem.weights))
    with np.errstate(over="ignore"):  # models that were lost in noise may answer anything
        if metric == "objective":
            margins = model.decision_function(problem.train.X)
            loss = judged("logistic loss", problem.train.y == model.classes_[1], margins)
            return loss + penalty / 2 * float((model.coef_**2).sum())
        assert problem.test is not None
        if metric == "logistic loss":
            margins = model.decision_function(problem.test.X)
            return judged(metric, problem.test.y == model.classes_[1], margins)
        return judged(metric, problem.test.y, model.predict(problem.test.X))


def _method(panel: Data, line: Line, parameters: Mapping[str, Any], problem: Problem) -> Any:
    wanted = {**line.parameters, **parameters}
    wanted.pop("n_nonzero", None)
    if isinstance(step := wanted.get("step"), str):
        row_l2 = Bounds(**panel.bounds).known(problem.train.X.shape[1]).row_l2
        assert row_l2 is not None
        wanted["step"] = float(step.removesuffix(" / row_l2²")) / row_l2**2
    if wanted.get("weight_norm") == "true":
        wanted["weight_norm"] = float(np.linalg.norm(problem.weights))
    if wanted.get("features") == "public":
        wanted["features"] = problem.public
    elif "features" in wanted:
        wanted["features"] = UniformFeatures(*wanted["features"]["uniform"])
    return METHODS[line.method](**wanted)


def _n_nonzero(panel: Data, line: Line, parameters: Mapping[str, Any], n_features: int) -> int | None:
    """How many weights are kept: as the panel says, unless the line does: "all", or "2 s" for twice the panel's."""
    wanted = {**line.parameters, **parameters}.get("n_nonzero", "1 s")
    if wanted == "all":
        return n_features
    return None if panel.n_nonzero is None else int(wanted.removesuffix(" s")) * panel.n_nonzero


def _null(panel: Data, problem: Problem, metric: str) -> tuple[Any, Any]:
    """The truth, and the answers of the best model without features."""
    assert problem.test is not None
    truth, targets = problem.test.y, problem.train.y
    if metric == "logistic loss":
        largest = targets.max()
        share = float(np.mean(targets == largest))
        return truth == largest, np.full(len(truth), np.log(share / (1 - share)))
    return truth, null_answers(panel.task, targets, len(truth))


def _scikit_learn(panel: Data, problem: Problem) -> Any:
    """The ℓ1 fit of scikit-learn: liblinear with C = 1, or the LASSO at 1 % of the penalty that leaves nothing."""
    from sklearn.linear_model import Lasso, LogisticRegression

    if panel.task == "classification":
        return LogisticRegression(l1_ratio=1.0, solver="liblinear", fit_intercept=panel.has_intercept)
    X, y = problem.train.X, problem.train.y
    most = float(np.abs(X.T @ (y - y.mean())).max()) / len(y)
    return Lasso(alpha=0.01 * most, fit_intercept=panel.has_intercept)
