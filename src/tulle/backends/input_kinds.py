"""Which back end holds the rows that were passed to an estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tulle.backends.rows_elsewhere import Reader, Spread
from tulle.files.own_types import role_of


def is_elsewhere(X: Any) -> bool:
    """Whether `find_spread` finds rows, or refuses them: looks at the type alone."""
    return role_of(X) not in (None, "model") or _is_dask(X)


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "dask"


def find_lazy(X: Any, *, missing: bool = False, reader: Callable[[Any], Any] | None = None) -> Any:
    """A Dask collection to predict for, as `tulle.backends.lazy_rows.LazyRows`; None where it is none."""
    if role_of(X) == "lazy rows":
        return X
    if not _is_dask(X):
        return None
    from tulle.backends.lazy_rows import LazyRows

    return LazyRows(X, missing, reader)


def gather(cells: Any) -> Any:
    """Cells or answers in this process: those of a Dask collection are computed."""
    return cells.compute() if _is_dask(cells) else cells


def take_together(
    X: Any, y: Any, groups: Any, *, missing: bool = False, reader: Reader | None = None
) -> tuple[Any, Any, Any]:
    """X, y and groups for `fit`. Those of a cluster are read together, so that a row and its person cannot be mixed up;
    only the ids come to this process.

    Parameters
    ----------
    X, y, groups
        As passed to `fit`.
    missing : bool, default=False
        Whether entries may be NaN or infinite.
    reader : callable or None, default=None
        Of partitions of a Dask DataFrame of raw cells; may find targets and person ids, too.
    """
    if not _is_dask(X) or (reader is None and not _is_dask(groups)):
        return X, y, groups
    from tulle.backends.dask import RowsOnDask

    here = groups is not None and not _is_dask(groups)
    rows = RowsOnDask(X, y, None if here else groups, missing=missing, reader=reader)
    return rows, None, groups if here else rows.people


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
