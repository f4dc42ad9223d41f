"""Where rows can be besides an array in memory: folders of blocks on disk, workers of a Dask cluster, other houses.

A back end is another way to do the one sum that `tulle.rows` knows. Methods, mechanisms, the plan and the bill are the
same ones, and noise is drawn once, by the process that calls fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

from tulle.events import FloatArray
from tulle.intake import AsNumbers, Cells, ClassCodes, Mask, NoTargets
from tulle.losses import Loss
from tulle.privacy import Plan, Promise
from tulle.rows import Rows

Code = ClassCodes | AsNumbers | NoTargets


class Spread(ABC):
    """Checked rows with their targets, not held by this process as one array.

    Attributes
    ----------
    shape : (n, d)
    feature_names : tuple of str or None
    """

    shape: tuple[int, int]
    feature_names: tuple[str, ...] | None
    code: Code | None = None

    def check(self) -> None:
        """Find what is damaged, before anything is billed."""
        return

    def check_groups(self, groups: Any) -> None:
        """Refuse person ids that these rows cannot be told apart by, before anything is billed."""
        return

    def bill(self, what: str, plans: Sequence[Plan], loss: Loss | None, price: Promise, rows_per_unit: int) -> None:
        """Have a fit billed by those who hold the rows, where they keep ledgers of their own: before anything is asked.

        Parameters
        ----------
        what : str
        plans : sequence of Plan
            Those that the answers to preliminary questions can lead to; the dearest counts.
        loss : Loss or None
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

    @contextmanager
    def billed(
        self, what: str, plans: Sequence[Plan], loss: Loss | None, price: Promise, rows_per_unit: int
    ) -> Iterator[None]:
        """While a fit asks: it is billed before, and closed after, however it ends."""
        self.bill(what, plans, loss, price, rows_per_unit)
        try:
            yield
        finally:
            self.close()

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


def find_spread(X: Any, y: Any = None) -> Spread | None:
    """The rows behind what was passed to an estimator; None where it is an array, or something to make one of."""
    # By name: whoever passes an array need not import what reads other things.
    where = type(X).__module__
    if where == "tulle.blocks":
        from tulle.backends.disk import RowsOnDisk
        from tulle.blocks import BlockMatrix

        if not isinstance(X, BlockMatrix):
            raise TypeError(
                "this is a folder of blocks, not its rows; pass folder.X, folder.y and groups=folder.groups"
            )
        return RowsOnDisk(X, y)
    if where.partition(".")[0] == "dask":
        from tulle.backends.dask import RowsOnDask

        return RowsOnDask(X, y)
    if where == "tulle.federated.aggregator" and isinstance(X, Spread):
        if y is not None:
            raise ValueError("the targets are with the rows, at the clients; pass y=None")
        return X
    return None


def targets_of(labels: Cells, code: Code | None) -> FloatArray:
    """Targets as a code makes them of labels; as numbers without one. Rows of no target have NaN (`intake.counted`)."""
    return (code or AsNumbers())(labels)
