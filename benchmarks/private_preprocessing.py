"""Errors of private preprocessing and model under one epsilon, on raw text: the values of docs/text.md.

    python benchmarks/private_preprocessing.py [imdb] [ratings] [comp] [news] [vocabulary] [scales]

Needs TULLE_DATA. Test error (1 - R² for ratings), means over seeds at delta = 1e-5. "exact IDF" is that of the
private rows without noise, which is on no bill: it leaks, and is printed for comparison alone.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle import Bounds, PrivatePipeline, Schema, SparseClassifier, SparseRegressor
from tulle.datasets import data_folder, load_covertype, load_imdb_ratings, load_imdb_sentiment
from tulle.files.tables.raw_cells import read_raw
from tulle.preprocessing import PrivateScaler, PrivateVocabulary, PrivateWeights

DELTA = 1e-5
Rows = tuple[Any, Any, Any, Any]


def binary(X: Any) -> Any:
    """Which words a text has."""
    return sp.csr_array((np.ones(X.nnz), X.indices, X.indptr), shape=X.shape)


def read_newsgroups() -> tuple[Any, Any]:
    """Training and test rows of 20 newsgroups, as they are in CSV."""
    names = (f"news20_text_{part}.csv.bz2" for part in ("train", "test"))
    train, test = (read_raw(data_folder() / name, lambda header: header)[0] for name in names)
    return train, test


def newsgroups_schema(train: Any, merged: bool) -> Schema:
    """Words hashed to 2^15 columns; comp against the rest, or 20 classes."""
    groups = sorted(set(train["group"].to_pylist()))
    classes: Any = groups
    if merged:
        classes = {kind: [g for g in groups if g.startswith("comp.") == (kind == "comp")] for kind in ("comp", "rest")}
    return Schema({"text": {"text": 15}}, target={"column": "group", "classes": classes})


def newsgroups(merged: bool) -> Rows:
    """20 newsgroups, encoded."""
    train, test = read_newsgroups()
    schema = newsgroups_schema(train, merged)
    return schema.fit_transform(train), schema.labels(train), schema.transform(test), schema.labels(test)


def show(what: str, fit: Callable[[float, int], float], epsilons: Sequence[float], seeds: int) -> None:
    found = [[fit(epsilon, seed) for seed in range(seeds)] for epsilon in epsilons]
    means = " / ".join(f"{np.mean(one):.4f}" for one in found)
    print(f"{what:<64} epsilon {' / '.join(f'{e:g}' for e in epsilons)}: {means}", flush=True)


def compare(name: str, rows: Rows, model: Any, epsilons: Sequence[float], seeds: int) -> None:
    """Without weights, with private ones under the same total, and with exact ones."""
    X, y, X_test, y_test = rows

    def plain(epsilon: float, seed: int) -> float:
        bounds = Bounds(normalise=True, label=None if model.bounds is None else model.bounds.label)
        settings = {"epsilon": epsilon, "delta": DELTA, "bounds": bounds, "random_state": seed}
        return 1 - float(type(model)(**model_settings(model), **settings).fit(X, y).score(X_test, y_test))

    def weighted(epsilon: float, seed: int) -> float:
        steps = [("weights", PrivateWeights()), ("model", model)]
        return 1 - PrivatePipeline(steps, epsilon, DELTA, random_state=seed).fit(X, y).score(X_test, y_test)

    def exact(epsilon: float, seed: int) -> float:
        counts = np.bincount(X.indices, minlength=X.shape[1])
        idf = sp.diags_array(np.log((1 + X.shape[0]) / (1 + counts)) + 1)
        bounds = Bounds(normalise=True, label=None if model.bounds is None else model.bounds.label)
        settings = {"epsilon": epsilon, "delta": DELTA, "bounds": bounds, "random_state": seed}
        fitted = type(model)(**model_settings(model), **settings).fit(sp.csr_array(X @ idf), y)
        return 1 - float(fitted.score(sp.csr_array(X_test @ idf), y_test))

    show(f"{name}, words unweighted", plain, epsilons, seeds)
    show(f"{name}, private weights", weighted, epsilons, seeds)
    show(f"{name}, exact IDF (it leaks)", exact, epsilons, seeds)


def vocabulary() -> None:
    """20 newsgroups, comp against the rest, with words that were found, and their names: what a model can name."""
    train, test = read_newsgroups()
    schema = newsgroups_schema(train, True)
    y, y_test = schema.labels(train), schema.labels(test)
    for most in (1024, 4096):
        sizes: list[int] = []

        def fit(epsilon: float, seed: int, most: int = most, sizes: list[int] = sizes) -> float:
            steps = [("words", PrivateVocabulary(most=most)), ("model", SparseClassifier(classes=["comp", "rest"]))]
            pipeline = PrivatePipeline(steps, epsilon, DELTA, random_state=seed).fit(train["text"], y)
            sizes.append(len(pipeline.steps_[0][1].found_["text"]))
            return 1 - pipeline.score(test["text"], y_test)

        show(f"20 newsgroups, comp, up to {most:,} words found privately", fit, (1, 4), 5)
        print(f"  words found, each fit: {', '.join(map(str, sizes))}")


def model_settings(model: Any) -> dict[str, Any]:
    return {"classes": model.classes} if isinstance(model, SparseClassifier) else {}


def scales() -> None:
    """Covertype with one column in other units."""
    data = load_covertype()
    kept = slice(0, 20_000)
    for factor in (1, 10, 100, 1000, 100_000):
        X, X_test = (np.array(part.toarray() if sp.issparse(part) else part) for part in (data.X_train, data.X_test))
        X[:, 0] *= factor
        X_test[:, 0] *= factor

        def fit(epsilon: float, seed: int, X: Any = X, X_test: Any = X_test) -> float:
            steps = [("scale", PrivateScaler()), ("model", SparseClassifier())]
            pipeline = PrivatePipeline(steps, epsilon, DELTA, random_state=seed)
            return 1 - pipeline.fit(X[kept], data.y_train[kept]).score(X_test, data.y_test)

        show(f"Covertype, 20,000 rows, first column times {factor:,}", fit, (1,), 3)


def main() -> None:
    warnings.simplefilter("ignore")
    parts = sys.argv[1:] or ["imdb", "ratings", "comp", "news", "vocabulary", "scales"]
    if "imdb" in parts:
        data = load_imdb_sentiment()
        rows = (binary(data.X_train), data.y_train, binary(data.X_test), data.y_test)
        compare("IMDB sentiment", rows, SparseClassifier(), (0.5, 1, 2, 4), 5)
    if "ratings" in parts:
        data = load_imdb_ratings()
        rows = (binary(data.X_train), data.y_train, binary(data.X_test), data.y_test)
        compare("IMDB ratings (1 - R²)", rows, SparseRegressor(bounds=Bounds(label=1.0)), (1, 2), 5)
    if "comp" in parts:
        compare("20 newsgroups, comp", newsgroups(True), SparseClassifier(classes=["comp", "rest"]), (1, 4), 5)
    if "news" in parts:
        rows = newsgroups(False)
        model = SparseClassifier(classes=sorted(set(rows[3].tolist())))
        compare("20 newsgroups, 20 classes", rows, model, (4, 8), 3)
    if "vocabulary" in parts:
        vocabulary()
    if "scales" in parts:
        scales()


if __name__ == "__main__":
    main()
