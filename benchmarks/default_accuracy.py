"""Test errors of the default, with and without public rows, on the sets of docs/fit_again.md and docs/public_rows.md.

Needs TULLE_DATA. Means over seeds; the sets helped to choose the default's constants.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from default_evidence import measures
from development_sets import SETS

from tulle import SparseClassifier, SparseRegressor


def mean_measures(
    name: str,
    epsilon: float,
    weights: int | None,
    seeds: int,
    public: int = 0,
    held_out: int = 0,
    permuted: bool = False,
) -> dict[str, float]:
    """Mean error, AUC and log-loss. The first `public` of `held_out` training rows are public, the rest is unused."""
    one, found = SETS[name], []
    estimator = SparseClassifier if one.task == "classification" else SparseRegressor
    for seed in range(seeds):
        data = one.split(seed)
        X, y, rows = data.X_train, data.y_train, None
        if held_out:
            order = np.arange(X.shape[0]) if name == "rcv1" else np.random.default_rng(5).permutation(X.shape[0])
            rows = X[order[:public]] if public else None
            X, y = X[order[held_out:]], y[order[held_out:]]
        if rows is not None and permuted:
            rows = rows[:, np.random.default_rng(1).permutation(X.shape[1])]
        model = estimator(epsilon, one.delta, n_nonzero=weights, bounds=one.bounds, random_state=seed)
        found.append(measures(one, model.fit(X, y, public=rows), data.X_test, data.y_test))
    return {measure: float(np.mean([line[measure] for line in found])) for measure in found[0]}


def show(what: str, epsilons: Sequence[float], measure: str = "error", **settings: Any) -> None:
    values = [mean_measures(epsilon=epsilon, **settings)[measure] for epsilon in epsilons]
    print(f"{what:<72} {' / '.join(f'{value:.4f}' for value in values)}", flush=True)


def few_rows(name: str, epsilon: float, seeds: int, rows: int | None) -> None:
    """The mean log-loss of models of few rows over that of the constant model, and how many models are constant."""
    one, losses, constant, without = SETS[name], [], [], 0
    for seed in range(seeds):
        data = one.split(seed)
        X, y = data.X_train, data.y_train
        if rows is not None:
            chosen = np.random.default_rng(seed).choice(X.shape[0], rows, replace=False)
            X, y = X[chosen], y[chosen]
        classes, delta = np.unique(data.y_test), one.delta if rows is None else 1e-3
        model = SparseClassifier(epsilon, delta, bounds=one.bounds, random_state=seed, classes=classes.tolist())
        losses.append(measures(one, model.fit(X, y), data.X_test, data.y_test)["log_loss"])
        share = np.clip(np.mean(y == classes[1]), 1e-3, 1 - 1e-3)
        constant.append(-np.mean(np.log(np.where(data.y_test == classes[1], share, 1 - share))))
        without += not len(model.support_)
    what = f"{name}{'' if rows is None else f', {rows} rows'}, epsilon {epsilon:g}, {seeds} seeds"
    ratio = np.mean(losses) / np.mean(constant)
    print(f"{what:<72} log-loss {ratio:.3f} of the constant model's, {without} constant models", flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    parts, four = sys.argv[1:] or ["plain", "public", "few"], (0.5, 1, 2, 8)
    if "plain" in parts:
        show("RCV1 subset, 1,000 weights, epsilon 0.5 / 1 / 2 / 8", four, name="rcv1", weights=1000, seeds=5)
        show("RCV1 subset, default number of weights", four, name="rcv1", weights=None, seeds=5)
        show("reuters_acq, 108 weights, epsilon 0.5 / 1 / 4", (0.5, 1, 4), name="reuters_acq", weights=108, seeds=10)
        show("reuters_acq, default number of weights", (0.5, 1, 4), name="reuters_acq", weights=None, seeds=10)
        for measure in ("error", "auc", "log_loss"):
            show(f"w8a, {measure}, epsilon 0.5 / 1", (0.5, 1), measure, name="w8a", weights=None, seeds=5)
        for name in ("imdb", "imdb_ratings", "pneumonia", "a9a", "covertype_20000"):
            show(f"{name}, epsilon 0.5 / 1 / 8", (0.5, 1, 8), name=name, weights=None, seeds=3)
        show("golub, AUC, epsilon 0.5 / 1 / 8", (0.5, 1, 8), "auc", name="golub", weights=None, seeds=20)
        show("20 newsgroups, 20 classes, epsilon 4 / 8", (4, 8), name="news_20", weights=None, seeds=3)
    if "public" in parts:
        rows: dict[str, Any] = {"name": "rcv1", "seeds": 5, "held_out": 3000}
        for public in (0, 300, 3000):
            show(f"RCV1 subset, {public:,} public rows, 1,000 weights", four, weights=1000, public=public, **rows)
            show(f"RCV1 subset, {public:,} public rows, default number", four, weights=None, public=public, **rows)
        for weights in (1000, None):
            what = f"RCV1 subset, 3,000 public rows, columns permuted, {weights or 'default'} weights"
            show(what, four, weights=weights, public=3000, permuted=True, **rows)
        for name in ("news_comp", "imdb", "covertype_20000", "pneumonia", "mnist_even", "imdb_ratings", "elevation"):
            for public in (0, 1000):
                what = f"{name}, {public:,} public rows, epsilon 1 / 4"
                show(what, (1, 4), name=name, weights=None, seeds=3, public=public, held_out=1000)
    if "few" in parts:
        for epsilon in (0.5, 1, 2, 4, 8):
            few_rows("golub", epsilon, 100, None)
        for name in ("a9a", "reuters_acq", "covertype_20000", "pneumonia"):
            for epsilon in (0.5, 1, 4):
                few_rows(name, epsilon, 100, 100)
        few_rows("w8a", 0.5, 100, None)


if __name__ == "__main__":
    main()
