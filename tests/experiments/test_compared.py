"""`tulle.compare`: methods, objects and estimators on one table, with metrics of the caller's own, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, log_loss, roc_auc_score

import tulle
from tulle.experiments.comparison_metrics import read_metrics
from tulle.methods import HardThresholding

BOUNDS = tulle.Bounds(row_linf=1.0)


def _rows(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 6))
    return X, np.where(X[:, 0] - X[:, 1] + 0.2 * rng.normal(size=n) > 0, "yes", "no")


def share_of_yes(y_true: Any, y_pred: Any) -> float:
    return float(np.mean(y_pred == "yes"))


def largest_margin(model: Any, X: Any, y: Any) -> float:
    return float(np.max(model.predict_proba(X)))


@pytest.fixture(scope="module")
def result() -> Any:
    X, y = _rows()
    lines = [
        "auto",
        HardThresholding(n_iter=2),
        tulle.SparseClassifier(bounds=BOUNDS, n_nonzero=2),
        LogisticRegression(),
    ]
    metrics = ["accuracy", "auc", "log_loss", share_of_yes, largest_margin]
    return tulle.compare(lines, X, y, [1.0, 8.0], metrics=metrics, trials=2, bounds=BOUNDS)


def test_there_is_a_row_for_every_fit(result: Any) -> None:
    names = ["auto", "HardThresholding(n_iter=2)", "SparseClassifier", "LogisticRegression()"]
    found = [row["method"] for row in result.rows if row["trial"] == 0]
    assert found[:2] == ["null model", "auto"]
    assert len(result.rows) == 2 * (2 + 3 * 2 + 1)
    assert list(dict.fromkeys(found[2:])) == names
    assert not any(row["failed"] for row in result.rows)
    private = [row for row in result.rows if row["epsilon"] is not None]
    assert all(row["proved"] <= row["epsilon"] for row in private)
    assert {row["epsilon"] for row in result.rows if row["method"] == names[3]} == {None}


def test_metrics_are_those_of_the_model_on_the_test_rows(result: Any) -> None:
    """An estimator's scores, computed again from its split and its seed."""
    from tulle.experiments.cells import Cell, data_seed

    X, y = _rows()
    order = np.random.default_rng(data_seed(0, Cell("table", "any", None, 1))).permutation(len(y))
    test, train = np.sort(order[:60]), np.sort(order[60:])
    model = LogisticRegression(random_state=0).fit(X[train], y[train])
    row = next(row for row in result.rows if row["method"] == "LogisticRegression()" and row["trial"] == 1)
    assert row["score"] == pytest.approx(1 - model.score(X[test], y[test]))
    assert row["accuracy"] == pytest.approx(1 - row["score"])
    assert row["auc"] == pytest.approx(roc_auc_score(y[test], model.decision_function(X[test])))
    assert row["log_loss"] == pytest.approx(log_loss(y[test], model.predict_proba(X[test])), rel=1e-4)
    assert row["share_of_yes"] == pytest.approx(np.mean(model.predict(X[test]) == "yes"))
    null = next(row for row in result.rows if row["method"] == "null model")
    assert null["auc"] == 0.5
    assert null["nonzero"] is None


def test_the_result_says_what_it_may_be_used_for(result: Any) -> None:
    for text in (str(result), result._repr_html_()):
        assert "private rows nothing here may be released, no ledger was billed" in text
        assert "LogisticRegression() (not private)" in text
        assert "share_of_yes" in text
    assert "Not for release" in str(result)
    assert "<script" not in result._repr_html_()


def test_frames_and_plots(result: Any) -> None:
    pytest.importorskip("pandas")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    frame = result.to_frame()
    assert list(frame.columns[:4]) == ["method", "epsilon", "trial", "score"]
    assert len(frame) == len(result.rows)
    ax = result.plot("auc")
    labels = ax.get_legend_handles_labels()[1]
    assert {"auto", "no privacy", "null model", "LogisticRegression() (not private)"} <= set(labels)
    assert ax.get_ylabel() == "auc"
    with pytest.raises(ValueError, match="'r2' was not measured"):
        result.plot("r2")


def test_a_folder_resumes_and_runs_only_what_is_new(tmp_path: Path) -> None:
    X, y = _rows()
    more: dict[str, Any] = {"trials": 1, "bounds": BOUNDS, "folder": tmp_path / "out"}
    first = tulle.compare("auto", X, y, [4.0], **more)
    log = tmp_path / "out" / "log.jsonl"
    assert len(log.read_text().splitlines()) == 3
    again = tulle.compare(["auto", HardThresholding(n_iter=2)], X, y, [4.0], **more)
    assert len(log.read_text().splitlines()) == 4
    assert again.rows[:3] == first.rows
    # Another object under the same name is another line.
    named = tulle.compare({"two steps": HardThresholding(n_iter=2)}, X, y, [4.0], **more)
    changed = tulle.compare({"two steps": HardThresholding(n_iter=3)}, X, y, [4.0], **more)
    assert named.rows[-1]["method"] == changed.rows[-1]["method"] == "two steps"
    assert len(log.read_text().splitlines()) == 6


def test_no_comparison_inside_a_ledger() -> None:
    X, y = _rows()
    with tulle.Ledger(tulle.Budget(3.0, 1e-5)), pytest.raises(ValueError, match="no ledger can bill it"):
        tulle.compare("auto", X, y, [1.0], trials=1, bounds=BOUNDS)


def test_regression_and_names_of_its_own() -> None:
    X, _ = _rows()
    y = X[:, 0] - 0.5 * X[:, 2]
    bounds = tulle.Bounds(row_linf=1.0, label=1.5)
    lines = {"ridge": Ridge(), "ours": "auto"}
    found = tulle.compare(lines, X, y, [8.0], metrics="r2", trials=1, bounds=bounds)
    assert found.summary["task"] == "regression"
    ridge = next(row for row in found.rows if row["method"] == "ridge")
    assert ridge["r2"] == pytest.approx(1 - ridge["score"])
    assert ridge["r2"] > 0.95
    assert "ours" in {row["method"] for row in found.rows}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": "magic"}, "'magic' is unknown"),
        ({"methods": {"null model": LogisticRegression()}}, "cannot be the name of a line"),
        ({"metrics": "r2"}, "'r2' is for regression; for classification choose among accuracy, auc, log_loss"),
        ({"metrics": "f2"}, "'f2' is unknown"),
        ({"metrics": [f1_score, f1_score]}, "a name of its own"),
        ({"metrics": {"proved": f1_score}}, "cannot be called 'proved'"),
        ({"X_test": np.zeros((3, 6))}, "X_test and y_test go together"),
        ({"y": np.zeros(7)}, "X has 200 rows and y 7"),
        ({"trials": 0}, "trials must be at least 1"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], message: str) -> None:
    X, y = _rows()
    given = {"methods": "auto", "X": X, "y": y, "epsilons": [1.0], **change}
    with pytest.raises(ValueError, match=message):
        tulle.compare(**given)


def test_a_metric_knows_what_is_better() -> None:
    named = read_metrics(["auc", "log_loss", f1_score], "classification")
    assert [metric.larger_is_better for metric in named] == [True, False, None]
