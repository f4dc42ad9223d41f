"""The protocol of private steps: what each releases, and how it transforms rows by what was released.

A step never holds rows of which it learns: it has `ask`, as a method has, and what it learns are answers on the bill.
`prepare` and `transform` are functions of one row and of released numbers. They keep the number of columns, except a
first step that takes raw rows: its number of features is public, too.

Vouched for on use: `transform` sees rows, and a report names the steps of its fit. Queries clip rows again after
a step, so a step that treats each row by itself cannot break the guarantee.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from tulle.backends.rows_elsewhere import change_rows
from tulle.trusted.clipped_sum import RowFunction, SeenRows
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Release


@dataclass(frozen=True)
class RowBounds:
    """Bounds that every transformed row keeps, for any row."""

    row_l2: float
    row_linf: float


class PrivateStep(TransformerMixin, BaseEstimator):
    """A step of a `tulle.PrivatePipeline` that learns from private rows, and is billed for it."""

    # What was learnt, by the names of attributes: released numbers, saved with a model.
    learnt: tuple[str, ...] = ()
    # Whether rows may have missing numbers, which `mark` then makes finite.
    takes_missing = False

    def fit(self, X: Any, y: Any = None) -> Any:
        """Refused: what a step learns is billed by the pipeline that it stands in."""
        raise TypeError(
            f"{type(self).__name__} learns from private rows; fit it as a step of tulle.PrivatePipeline, which bills it"
        )

    def mark(self, X: Any) -> Any:
        """Finite rows, each by itself: where the step takes missing numbers, these are marked."""
        return X

    def check(self, X: Any) -> None:
        """Raise where rows are of a form that the step is not for; looks at no entry. Of rows elsewhere it gets none,
        in the same form."""

    def default_share(self, public: PublicFacts) -> float:
        """The part of the cost (of the squared mu) that it takes where the user does not say, in (0, 1).

        `public` has the budget of the whole pipeline.
        """
        return 0.05

    @abstractmethod
    def releases(self, square: float, public: PublicFacts) -> tuple[Release, ...]:
        """What it will ask, Gaussian answers for a squared mu of `square` in all. Names do not depend on `square`."""

    def prepare(self, X: Any) -> Any:
        """The rows that it learns from, each a function of one row."""
        return X

    def name_answers(self, ask: Ask, X: Any) -> Ask:
        """`ask` as the step learns by it. X are the rows that are transformed next: of a step that finds names, these
        go with the answers."""
        return ask

    @abstractmethod
    def learn(self, ask: Ask, public: PublicFacts, mu: float) -> None:
        """Ask, and keep the answers in attributes.

        Parameters
        ----------
        ask : callable
        public : PublicFacts
        mu : float
            What its answers cost together, which says how noisy they are; inf without privacy.
        """

    def doubt(self, public: PublicFacts, mu: float) -> str | None:
        """Why what it learns for this mu is expected to be of no use, from public quantities; None where it is."""
        return None

    def expect(self, public: PublicFacts, mu: float) -> str | None:
        """What it is expected to learn for this mu, from public quantities, for a line that is printed beforehand."""
        return None

    @abstractmethod
    def transform(self, X: Any) -> Any:
        """Transform rows, each by itself, by what was learnt."""

    def check_columns(self, X: Any) -> None:
        """Raise unless rows to transform have the columns that it learnt from."""
        learnt = getattr(self, self.learnt[0], None)
        if learnt is None:
            raise NotFittedError(
                f"this {type(self).__name__} has learnt nothing yet; fit the pipeline that it stands in"
            )
        if X.shape[1] != len(learnt):
            raise ValueError(f"X has {X.shape[1]} columns, but {type(self).__name__} learnt from {len(learnt)}")

    @abstractmethod
    def bounds(self, n_features: int) -> RowBounds:
        """What transformed rows keep to."""

    def describe(self) -> str:
        """One line for the report."""
        return f"{type(self).__name__}: what it learnt was released with noise and is on the bill."


def gaussian_release(name: str, square: float, count: int = 1) -> Release:
    """`count` Gaussian answers that cost a squared mu of `square` in all."""
    return Release(name, Gaussian(NoisePerSensitivity(float(np.sqrt(count / square)))), count)


@dataclass(frozen=True, eq=False)
class Ones(RowFunction):
    """1 for each row: times the row it is the row itself."""

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        return np.ones((len(targets), 1))


def scale_rows(X: Any, factors: FloatArray) -> Any:
    """Each row times its factor."""
    return sp.csr_array(sp.diags_array(factors) @ X) if sp.issparse(X) else X * factors[:, None]


def run_steps(
    steps: Sequence[tuple[PrivateStep, float]], ask: Ask, public: PublicFacts, X: Any, use: Callable[[Any], None]
) -> None:
    """Let each step learn and transform in turn. `use` makes rows those that queries are about, from then on.

    Parameters
    ----------
    steps : sequence of (PrivateStep, mu)
    ask : callable
    public : PublicFacts
    X : array, sparse array or Spread
    use : callable
    """
    for step, mu in steps:
        use(change_rows(X, step.prepare))
        step.learn(step.name_answers(ask, X), public, mu)
        X = change_rows(X, step.transform)
    use(X)
