"""The sets that the constants of the default are chosen on, and how each is split, bounded and measured.

Real data is read from the folder that TULLE_DATA names. Bounds are round numbers that are known without the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle import Bounds
from tulle.datasets import (
    Split,
    dp_ight_figure1,
    load_a9a,
    load_covertype,
    load_golub,
    load_imdb_ratings,
    load_imdb_sentiment,
    load_mnist,
    load_news20,
    load_pneumonia,
    load_rcv1_subset,
    load_reuters_acq,
    load_riboflavin,
    load_w8a,
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


read_news, _reuters = lru_cache(maxsize=1)(load_news20), lru_cache(maxsize=1)(load_reuters_acq)


def news(positive: Callable[[str], bool], among: Callable[[str], bool] = lambda group: True) -> Split:
    parts: list[Any] = []
    for X, groups in (read_news()[:2], read_news()[2:]):
        chosen = np.array([among(group) for group in groups])
        parts += [X[chosen], np.array([1.0 if positive(group) else -1.0 for group in groups[chosen]])]
    return Split(*parts)


_rcv1, _a9a, _imdb, _ratings = (
    lru_cache(maxsize=1)(load) for load in (load_rcv1_subset, load_a9a, load_imdb_sentiment, load_imdb_ratings)
)
_golub, _w8a, _riboflavin = (lru_cache(maxsize=1)(load) for load in (load_golub, load_w8a, load_riboflavin))


@lru_cache(maxsize=1)
def _mnist() -> Split:
    return load_mnist(centred=True, test_rows=5000)


@lru_cache(maxsize=1)
def _pneumonia() -> Split:
    return load_pneumonia(centred=True)


@lru_cache(maxsize=1)
def _covertype(elevation: bool = False) -> Split:
    data = load_covertype(elevation=elevation)
    return Split(data.X_train[:200_000], data.y_train[:200_000], data.X_test[:20_000], data.y_test[:20_000])


def _some_rows(data: Split, count: int, seed: int) -> Split:
    chosen = np.random.default_rng(seed).choice(data.X_train.shape[0], count, replace=False)
    return data._replace(X_train=data.X_train[chosen], y_train=data.y_train[chosen])


def digits(seed: int, label: Callable[[Any], Any]) -> Split:
    data = _some_rows(_mnist(), 10_000, seed)
    return data._replace(y_train=label(data.y_train), y_test=label(data.y_test))


def synthetic(n: int, d: int, s: int, logistic: bool, seed: int) -> Split:
    drawn = dp_ight_figure1(2 * n, d, s, logistic=logistic, seed=seed)
    return Split(drawn.X[:n], drawn.y[:n], drawn.X[n:], drawn.y[n:])


def _split_again(data: Split, seed: int, count: int | None = None) -> Split:
    """All rows of a set in another random split, with as many training rows as before or `count`."""
    stack = sp.vstack if sp.issparse(data.X_train) else np.vstack
    X, y = stack([data.X_train, data.X_test]), np.r_[data.y_train, data.y_test]
    order = np.random.default_rng(seed).permutation(len(y))
    count = len(data.y_train) if count is None else count
    train, test = order[:count], order[count:]
    X = sp.csr_array(X) if sp.issparse(X) else X
    return Split(X[train], y[train], X[test], y[test])


SETS: dict[str, DevelopmentSet] = {
    "rcv1": DevelopmentSet("classification", lambda seed: _rcv1()),
    "reuters_acq": DevelopmentSet("classification", lambda seed: _reuters()),
    "imdb": DevelopmentSet("classification", lambda seed: _imdb()),
    "imdb_2000": DevelopmentSet("classification", lambda seed: _some_rows(_imdb(), 2000, seed)),
    "news_comp": DevelopmentSet("classification", lambda seed: news(lambda g: g.startswith("comp."))),
    "news_med": DevelopmentSet(
        "classification", lambda seed: news(lambda g: g == "sci.med", lambda g: g in ("sci.med", "sci.space"))
    ),
    "w8a": DevelopmentSet("classification", lambda seed: _split_again(_w8a(), seed), Bounds(row_linf=1.0)),
    "w8a_5000": DevelopmentSet("classification", lambda seed: _split_again(_w8a(), seed, 5_000), Bounds(row_linf=1.0)),
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
    "golub": DevelopmentSet("classification", lambda seed: _split_again(_golub(), seed), Bounds(normalise=True), 2e-3),
    "synthetic_logistic": DevelopmentSet(
        "classification",
        lambda seed: synthetic(5000, 500, 10, True, seed),
        Bounds(row_l2=20.0, row_linf=1.2),
    ),
    "imdb_ratings": DevelopmentSet("regression", lambda seed: _ratings(), Bounds(row_l2=1.0, label=1.0)),
    "elevation": DevelopmentSet(
        "regression",
        lambda seed: _some_rows(_covertype(elevation=True), 20_000, seed),
        Bounds(row_linf=1.0, label=1.0),
    ),
    "riboflavin": DevelopmentSet(
        "regression", lambda seed: _split_again(_riboflavin(), seed), Bounds(row_linf=5.0, label=1.5), 2e-3
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
