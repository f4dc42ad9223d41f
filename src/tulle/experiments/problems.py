"""The rows of a cell: drawn from a seed, or read from a file and divided as the paper did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tulle import datasets
from tulle.experiments.examples import Examples

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Data

FOLDS = 5


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to train on, and the means to judge a fit: test rows, or the true weights.

    Attributes
    ----------
    train : Examples
    test : Examples or None
    weights : array or None
    public : array or None
        Rows without labels that everybody knows.
    """

    train: Examples
    test: Examples | None
    weights: Any = None
    public: Any = None

    def held_out(self, fold: int) -> Problem:
        """Training rows alone, a fifth of them to judge by: for settings that are chosen by cross-validation."""
        order = np.random.default_rng(0).permutation(len(self.train))
        judging = order[fold::FOLDS]
        learning = np.setdiff1d(order, judging)
        return Problem(self.train.chosen(learning), self.train.chosen(judging), self.weights, self.public)

    def with_public(self, count: int, seed: int) -> Problem:
        """`count` training rows, at most a fifth of them, as public rows without labels; the others stay private."""
        order = np.random.default_rng(seed).permutation(len(self.train))
        count = min(count, len(order) // 5)
        public = self.train.X[np.sort(order[:count])]
        return Problem(self.train.chosen(np.sort(order[count:])), self.test, self.weights, public)


def problem_of(panel: Data, trial: int, seed: int) -> Problem:
    """The rows of one trial. Trials differ in the data where the paper draws or divides it at random.

    Parameters
    ----------
    panel : Data
    trial : int
        From 0; which fold is judged by, where there are folds.
    seed : int
        Of everything that is random about the data of this trial.
    """
    arguments = json.dumps(dict(panel.arguments), sort_keys=True)
    if not panel.source.startswith("load_"):
        return _draw(panel.source, arguments, seed)
    return _divided(panel.source, arguments, json.dumps(panel.division(), sort_keys=True), trial, seed)


@lru_cache(maxsize=1)
def _draw(source: str, arguments: str, seed: int) -> Problem:
    """Kept, since cells of one trial follow each other."""
    problem = getattr(datasets, source)(**json.loads(arguments), seed=seed)
    return Problem(Examples(problem.X, problem.y), None, problem.weights)


@lru_cache(maxsize=1)
def _loaded(source: str, arguments: str) -> datasets.Split:
    return getattr(datasets, source)(**json.loads(arguments))  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _divided(source: str, arguments: str, division: str, trial: int, seed: int) -> Problem:
    split = _loaded(source, arguments)
    train, test = Examples(split.X_train, split.y_train), Examples(split.X_test, split.y_test)
    says: Mapping[str, Any] = json.loads(division)
    rng = np.random.default_rng(seed)
    if says["split"] == "random":  # the same sizes, other rows
        both = Examples(_stacked(train.X, test.X), np.concatenate([train.y, test.y]))
        order = rng.permutation(len(both))
        train, test = both.chosen(np.sort(order[: len(train)])), both.chosen(np.sort(order[len(train) :]))
    if says["rows"] is not None:
        train = train.chosen(np.sort(rng.permutation(len(train))[: says["rows"]]))
    if says["split"] == "folds":  # of the same rows the same folds in all trials
        order = np.random.default_rng(0).permutation(len(train))
        judged = np.sort(order[trial % FOLDS :: FOLDS])
        train, test = train.chosen(np.setdiff1d(order, judged)), train.chosen(judged)
    if says["features"] is not None:
        kept = np.sort(rng.choice(train.X.shape[1], says["features"], replace=False))
        train, test = Examples(train.X[:, kept], train.y), Examples(test.X[:, kept], test.y)
    public = None
    if says["public_share"]:
        order = rng.permutation(len(train))
        n_public = round(says["public_share"] * len(train))
        public = train.X[np.sort(order[:n_public])]
        train = train.chosen(np.sort(order[n_public:]))
    return Problem(train, test, None, public)


def _stacked(top: Any, bottom: Any) -> Any:
    return sp.vstack([top, bottom], format="csr") if sp.issparse(top) else np.vstack([top, bottom])
