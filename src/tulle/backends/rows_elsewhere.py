"""Where rows can be besides an array in memory: folders of blocks on disk, workers of a Dask cluster, other houses.

A back end is another way to do the one sum that `tulle.trusted.rows` knows. Methods, mechanisms, the plan and the bill
are the same ones, and noise is drawn once, by the process that calls fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import scipy.sparse as sp

from tulle.fast.install import install
from tulle.trusted.events import FloatArray
from tulle.trusted.intake import PLAIN, AsNumbers, Cells, ClassCodes, GetKey, Mask, get_key
from tulle.trusted.losses import AnyLoss
from tulle.trusted.plan import Plan, Promise
from tulle.trusted.rows import Rows

install()

T = TypeVar("T")


@dataclass(frozen=True)
class NoTargets:
    """Zeros, where rows alone are asked about."""

    def __call__(self, y: Cells, key: GetKey = get_key) -> FloatArray:
        return np.zeros(len(y))


class RawCells(NamedTuple):
    """What a reader makes of the cells of a raw partition: features, targets and person ids, None where there are
    none. Masked targets are those of rows that count as nothing."""

    features: Any
    targets: Any = None
    people: Any = None


Reader = Callable[[Any], RawCells]

Code = ClassCodes | AsNumbers | NoTargets


def count_bytes(held: object) -> int:
    """The memory of an array, or of the arrays, dense and sparse, among the attributes of a block or a part."""
    values: list[Any] = [held] if isinstance(held, np.ndarray) else list(vars(held).values())
    values += [array for x in values if sp.issparse(x) for array in (x.data, x.indices, x.indptr)]
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def join_cells(parts: Sequence[Cells]) -> Cells:
    """The cells of several parts of the rows, each as it is in its own part."""
    if len({part.dtype.kind if part.dtype.kind in PLAIN else "O" for part in parts}) > 1:
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts) if parts else np.empty(0, dtype=object)


def join_ids(parts: Sequence[Cells]) -> Cells:
    """The person ids of several parts of the rows, each compared by its exact value.

    An integer column of which a part has empty cells is often read as floats there. A float holds whole numbers up to a
    size; beyond, an id and its float are two ids of one person, or one of two. Such a float is refused, by a rule of
    that cell alone. Ids of other parts are not rounded to match it: one person's cell would decide who others are.
    """
    for part in parts:
        if part.dtype.kind == "f" and np.any(np.abs(part) >= 2.0 ** (np.finfo(part.dtype).nmant + 1)):
            raise ValueError(
                "groups has large whole numbers as floats, which cannot hold them exactly, as where a column of "
                "integers has an empty cell; store person ids as text, or as integers in all parts"
            )
    return join_cells(parts)


@dataclass(frozen=True, eq=False)
class Changes:
    """Functions of rows that are applied in turn where blocks of rows are: each treats a row by itself, and uses only
    values that are public or were released. Data and not a closure, so that it can be sent."""

    functions: tuple[Callable[[Any], Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.functions)

    def __call__(self, X: Any) -> Any:
        """As many rows, in the same order."""
        changed = X
        for function in self.functions if X.shape[0] else ():
            changed = function(changed)
        if changed.shape != X.shape:  # shapes are public, and no entry is quoted
            raise ValueError(f"a step made rows of the shape {changed.shape} of a block of the shape {X.shape}")
        return changed

    def before(self, function: Callable[[Any], T]) -> Callable[[Any], T]:
        """A function of changed rows as one of rows as they are stored."""
        return partial(_apply_to_changed, self, function)


def _apply_to_changed(changes: Changes, function: Callable[[Any], T], X: Any) -> T:
    return function(changes(X))


class Spread(ABC):
    """Checked rows with their targets, not held by this process as one array.

    Attributes
    ----------
    shape : (n, d)
    feature_names : tuple of str or None
    sparse : bool
        Whether blocks are sparse.
    """

    shape: tuple[int, int]
    feature_names: tuple[str, ...] | None
    sparse = False
    code: Code | None = None
    changes = Changes()  # applied to rows whenever they are read
    block_bytes = 0  # of the largest dense block that this process reads as a whole, in float64
    answers_at_once = 1  # how many sums over parts of the rows this process holds at a time
    least_memory: int | None = None  # bytes of the smallest of the machines that hold the rows; None where unknown

    def check(self) -> None:
        """Find damage before anything is billed."""
        return

    def check_reachable(self) -> None:
        """Raise where those who hold the rows do not answer any more: the last look before the bill."""
        return

    def check_groups(self, groups: Any) -> None:
        """Refuse person ids that these rows cannot be told apart by, before anything is billed."""
        return

    def bill(self, what: str, plans: Sequence[Plan], loss: AnyLoss | None, price: Promise, rows_per_unit: int) -> None:
        """Have a fit billed by those who hold the rows, where they keep ledgers of their own: before anything is asked.

        Parameters
        ----------
        what : str
        plans : sequence of Plan
            Those that the answers to preliminary questions can lead to; the dearest counts.
        loss : AnyLoss or None
            What will be asked about, if a model is fitted.
        price : (epsilon, delta)
        rows_per_unit : int

        Raises
        ------
        BudgetExceededError
            Where any of them refuses.
        """
        return

    def confirm(self, plan: Plan, price: Promise) -> None:
        """Have those who billed the fit look at the plan that it settled on."""
        return

    def close(self) -> None:
        """Say that the fit is over, or has failed: nothing more will be asked."""
        return

    @abstractmethod
    def labels(self) -> Cells:
        """The different labels, at least once each: what a fit without declared classes publishes."""

    @abstractmethod
    def smallest_target(self) -> float:
        """The smallest target; an error where one is no finite number."""

    @abstractmethod
    def rows(self, active: Mask | None) -> Rows:
        """The rows, with targets as `code` makes them of the given ones (zeros without any). `active` are those that
        count, if they have a target; None: all."""

    @abstractmethod
    def map(self, function: Callable[[Any], FloatArray]) -> FloatArray:
        """What a function makes of features, block by block: an array with a line for each row."""

    def coded(self, code: Code) -> Self:
        """The same rows with targets as a function makes them."""
        other = copy(self)
        other.code = code
        return other

    def then(self, function: Callable[[Any], Any]) -> Self:
        """The rows that a function makes of these, each of one row alone: there where blocks are, when they are used.

        Raises
        ------
        ValueError
            Where those who hold the rows do not do such a thing.
        """
        other = copy(self)
        other.changes = Changes((*self.changes.functions, function))
        return other

    def no_rows(self) -> Any:
        """An array without rows, of the form of these: dense or CSR, with as many columns."""
        return sp.csr_array((0, self.shape[1])) if self.sparse else np.empty((0, self.shape[1]))

    def check_names(self, known: Any) -> None:
        """Raise where columns have other names than those of the fit, or stand in another order."""
        check_feature_names(known, self.feature_names)


def check_feature_names(known: Any, found: Any) -> None:
    """Raise where columns have other names than those of the fit, or stand in another order; None: unknown."""
    if known is not None and found is not None and list(known) != list(found):
        raise ValueError("The feature names should match those that were passed during fit, in the same order")


def change_rows(X: Any, function: Callable[[Any], Any]) -> Any:
    """What a function of one row makes of rows: at once of an array, and of rows elsewhere when they are used."""
    return X.then(function) if isinstance(X, Spread) else function(X)


def targets_of(labels: Cells, code: Code | None) -> FloatArray:
    """Targets as a code makes them of labels; as numbers without one. NaN for rows of no target (`mask_unlabelled`)."""
    return (code or AsNumbers())(labels)
