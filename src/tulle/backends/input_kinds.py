"""Which back end holds the rows that were passed to an estimator."""

from __future__ import annotations

from typing import Any

from tulle.backends.rows_elsewhere import Spread
from tulle.files.own_types import role_of


def is_elsewhere(X: Any) -> bool:
    """Whether `find_spread` finds rows, or refuses them: looks at the type alone."""
    return role_of(X) not in (None, "model") or _is_dask(X)


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "dask"


def find_spread(X: Any, y: Any = None, *, missing: bool = False) -> Spread | None:
    """The rows behind what was passed to an estimator; None where it is an array, or something to make one of.

    Parameters
    ----------
    X, y
        As passed to `fit`.
    missing : bool, default=False
        Whether entries may be NaN or infinite.
    """
    # Back ends are imported when their rows come: Dask takes seconds to load.
    role = role_of(X)
    if role == "block folder":
        raise TypeError("this is a folder of blocks, not its rows; pass folder.X, folder.y and groups=folder.groups")
    if role == "block matrix":
        from tulle.backends.disk import RowsOnDisk

        return RowsOnDisk(X, y, missing=missing)
    if _is_dask(X):
        from tulle.backends.dask import RowsOnDask

        return RowsOnDask(X, y, missing=missing)
    if role in ("rows at clients", "rows elsewhere") and isinstance(X, Spread):
        if y is not None:
            where = ", at the clients" if role == "rows at clients" else ""
            raise ValueError(f"the targets are with the rows{where}; pass y=None")
        return X
    return None
