"""Which back end holds the rows that were passed to an estimator."""

from __future__ import annotations

from typing import Any

from tulle.backends.rows_elsewhere import Spread
from tulle.files.own_types import role_of


def find_spread(X: Any, y: Any = None) -> Spread | None:
    """The rows behind what was passed to an estimator; None where it is an array, or something to make one of."""
    # Back ends are imported when their rows come: Dask takes seconds to load.
    role = role_of(X)
    if role == "block folder":
        raise TypeError("this is a folder of blocks, not its rows; pass folder.X, folder.y and groups=folder.groups")
    if role == "block matrix":
        from tulle.backends.disk import RowsOnDisk

        return RowsOnDisk(X, y)
    if type(X).__module__.partition(".")[0] == "dask":
        from tulle.backends.dask import RowsOnDask

        return RowsOnDask(X, y)
    if role == "rows at clients" and isinstance(X, Spread):
        if y is not None:
            raise ValueError("the targets are with the rows, at the clients; pass y=None")
        return X
    return None
