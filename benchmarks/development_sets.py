"""The sets that the constants of the default are chosen on, and how each is split, bounded and measured.

Real data is read from the folder that TULLE_DATA names. Bounds are round numbers that are known without the rows.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import HashingVectorizer

from tulle import Bounds
from tulle.datasets import (
    Split,
    data_folder,
    dp_ight_figure1,
    load_a9a,
    load_covertype,
    load_golub,
    load_imdb_ratings,
    load_imdb_sentiment,
    load_mnist,
    load_pneumonia,
    load_rcv1_subset,
)

UNIT = Bounds(row_l2=1.0)


@dataclass(frozen=True)
class DevelopmentSet:
    """Rows of one trial by its seed, and the declarations about them."""

    task: str  # "classification" or "regression"
    split: Callable[[int], Split]
    bounds: Bounds = UNIT
    delta: float = 1e-5
    several: bool = False  # whether there are more than two classes


def _svmlight(name: str, n_features: int) -> tuple[Any, Any]:
    with bz2.open(data_folder() / f"{name}.svm.bz2") as file:
        X, y = load_svmlight_file(file, n_features=n_features)
    return sp.csr_array(X), y


@lru_cache(maxsize=2)
def load_w8a() -> tuple[Any, Any]:
    return _svmlight("w8a", 300)


@lru_cache(maxsize=1)
def _reuters() -> Split:
    return Split(*_svmlight("reuters_acq_train", 9947), *_svmlight("reuters_acq_test", 9947))


@lru_cache(maxsize=1)
def read_news() -> Split:
    """20 newsgroups: words hashed into 2^15 binary columns, unit rows; targets are the names of groups."""
    csv.field_size_limit(sys.maxsize)
    hashing = HashingVectorizer(n_features=2**15, binary=True, norm="l2", alternate_sign=False)
    parts: list[Any] = []
    for name in ("train", "test"):
        with bz2.open(data_folder() / f"news20_text_{name}.csv.bz2", "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        parts += [sp.csr_array(hashing.transform(r["text"] for r in rows)), np.array([r["group"] for r in rows])]
    return Split(*parts)


def news(positive: Callable[[str], bool], among: Callable[[str], bool] = lambda group: True) -> Split:
    parts: list[Any] = []
    for X, groups in (read_news()[:2], read_news()[2:]):
        chosen = np.array([among(group) for group in groups])
        parts += [X[chosen], np.array([1.0 if positive(group) else -1.0 for group in groups[chosen]])]
    return Split(*parts)


_rcv1, _a9a, _imdb, _ratings = (
    lru_cache(maxsize=1)(load) for load in (load_rcv1_subset, load_a9a, load_imdb_sentiment, load_imdb_ratings)
)
_golub, _mnist = lru_cache(maxsize=1)(load_golub), lru_cache(maxsize=1)(load_mnist)


@lru_cache(maxsize=1)
def _pneumonia() -> Split:
    return load_pneumonia(centred=True)


@lru_cache(maxsize=1)
def _covertype() -> Split:
    data = load_covertype()
    return Split(data.X_train[:200_000], data.y_train[:200_000], data.X_test[:20_000], data.y_test[:20_000])


@lru_cache(maxsize=1)
def _riboflavin() -> tuple[Any, Any]:
    with gzip.open(data_folder() / "riboflavin.csv.gz", "rt") as file:
        header = next(csv.reader(file))
        table = np.array([[float(cell) for cell in line] for line in csv.reader(file)])
    target = header.index("y") if "y" in header else 0
    return np.delete(table, target, axis=1) - 7.0, (table[:, target] + 7.0) / 3.0  # expressions lie about 7


def _some_rows(data: Split, count: int, seed: int) -> Split:
    chosen = np.random.default_rng(seed).choice(data.X_train.shape[0], count, replace=False)
    return data._replace(X_train=data.X_train[chosen], y_train=data.y_train[chosen])


def _again(X: Any, y: Any, count: int, seed: int) -> Split:
    """Another split into `count` training rows and the rest."""
    order = np.random.default_rng(seed).permutation(X.shape[0])
    train, test = order[:count], order[count:]
    return Split(X[train], y[train], X[test], y[test])


def _elevation(seed: int) -> Split:
    """Covertype's first column from the others, centred and scaled by round numbers."""
    data = _some_rows(_covertype(), 20_000, seed)
    targets = [(X[:, 0] * 4000 - 2900) / 1100 for X in (data.X_train, data.X_test)]
    return Split(data.X_train[:, 1:], targets[0], data.X_test[:, 1:], targets[1])


def digits(seed: int, label: Callable[[Any], Any]) -> Split:
    data = _some_rows(_mnist(), 10_000, seed)
    return Split(2 * data.X_train - 1, label(data.y_train), 2 * data.X_test[:5000] - 1, label(data.y_test[:5000]))


def synthetic(n: int, d: int, s: int, logistic: bool, seed: int) -> Split:
    drawn = dp_ight_figure1(2 * n, d, s, logistic=logistic, seed=seed)
    return Split(drawn.X[:n], drawn.y[:n], drawn.X[n:], drawn.y[n:])


def _golub_split(seed: int) -> Split:
    data = _golub()
    return _again(np.vstack([data.X_train, data.X_test]), np.r_[data.y_train, data.y_test], 48, seed)


SETS: dict[str, DevelopmentSet] = {
    "rcv1": DevelopmentSet("classification", lambda seed: _rcv1()),
    "reuters_acq": DevelopmentSet("classification", lambda seed: _reuters()),
    "imdb": DevelopmentSet("classification", lambda seed: _imdb()),
    "imdb_2000": DevelopmentSet("classification", lambda seed: _some_rows(_imdb(), 2000, seed)),
    "news_comp": DevelopmentSet("classification", lambda seed: news(lambda g: g.startswith("comp."))),
    "news_med": DevelopmentSet(
        "classification", lambda seed: news(lambda g: g == "sci.med", lambda g: g in ("sci.med", "sci.space"))
    ),
    "w8a": DevelopmentSet("classification", lambda seed: _again(*load_w8a(), 40_000, seed), Bounds(row_linf=1.0)),
    "w8a_5000": DevelopmentSet("classification", lambda seed: _again(*load_w8a(), 5_000, seed), Bounds(row_linf=1.0)),
    "a9a": DevelopmentSet("classification", lambda seed: _a9a(), Bounds(row_l2=3.742, row_linf=1.0)),
    "a9a_2000": DevelopmentSet(
        "classification", lambda seed: _some_rows(_a9a(), 2000, seed), Bounds(row_l2=3.742, row_linf=1.0)
    ),
    "covertype_20000": DevelopmentSet(
        "classification", lambda seed: _some_rows(_covertype(), 20_000, seed), Bounds(normalise=True)
    ),
    "covertype_2000": DevelopmentSet(
        "classification", lambda seed: _some_rows(_covertype(), 2000, seed), Bounds(normalise=True)
    ),
    "pneumonia": DevelopmentSet("classification", lambda seed: _pneumonia(), Bounds(row_linf=1.0)),
    "mnist_even": DevelopmentSet(
        "classification", lambda seed: digits(seed, lambda y: np.where(y % 2 == 0, 1.0, -1.0)), Bounds(row_linf=1.0)
    ),
    "golub": DevelopmentSet("classification", _golub_split, Bounds(normalise=True), 2e-3),
    "synthetic_logistic": DevelopmentSet(
        "classification",
        lambda seed: synthetic(5000, 500, 10, True, seed),
        Bounds(row_l2=20.0, row_linf=1.2),
    ),
    "imdb_ratings": DevelopmentSet("regression", lambda seed: _ratings(), Bounds(row_l2=1.0, label=1.0)),
    "elevation": DevelopmentSet("regression", _elevation, Bounds(row_linf=1.0, label=1.0)),
    "riboflavin": DevelopmentSet(
        "regression", lambda seed: _again(*_riboflavin(), 50, seed), Bounds(row_linf=5.0, label=1.5), 2e-3
    ),
    "synthetic_linear": DevelopmentSet(
        "regression",
        lambda seed: synthetic(5000, 500, 10, False, seed),
        Bounds(row_l2=20.0, row_linf=1.2, label=5.0),
    ),
    "news_20": DevelopmentSet("classification", lambda seed: read_news(), several=True),
    "mnist_10": DevelopmentSet(
        "classification", lambda seed: digits(seed, lambda y: y), Bounds(row_linf=1.0), several=True
    ),
}


def names(task: str | None = None) -> Iterator[str]:
    """All sets, or those of one task."""
    return (name for name, one in SETS.items() if task in (None, one.task))
