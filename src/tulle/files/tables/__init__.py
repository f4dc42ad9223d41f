"""Tables from files: CSV, Parquet, svmlight and npz, read in blocks, and refused with advice where they are wrong.

Nothing about the rows is decided by looking at them: no value is filled in, no word is encoded, no column is scaled.
Three facts are read off the file and taken as public: the number of rows, the names (or the number) of columns, and
whether a target holds words or numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tulle.files.tables.addresses import open_address
from tulle.files.tables.input_files import FORMATS, BatchStart, Progress, Source, TableError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tulle.files.tables.columns import Parts, Wanted

__all__ = ["FORMATS", "Table", "TableError", "read_table"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a file.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, d)
        Features, float64, and finite unless they may be missing; sparse for svmlight files and sparse npz files.
    y : ndarray of shape (n,) or None
        Targets: float64, or str where the column holds words. None where no target was named or found.
    feature_names : tuple of str or None
        Names in the order of the columns of `X`; None where the file has none.
    groups : ndarray of shape (n,) or None
        Whose row it is: str for CSV, otherwise as stored.
    source : str
        The path as given.
    content : str
        "sha256:" and the hash of the file's bytes.
    width_from_rows : bool
        Whether the number of features is no fact about the file but the largest index among the rows, as in svmlight
        files where `n_features` is None. A model publishes it.
    schema : tulle.Schema or None
        What encoded the rows, where one was declared.
    numbers : mapping from str to ndarray of shape (n,)
        Columns of numbers that are no features, read in addition to a schema (weights, offsets), by name.
    """

    X: Any
    y: npt.NDArray[Any] | None
    feature_names: tuple[str, ...] | None
    groups: npt.NDArray[Any] | None
    source: str
    content: str
    width_from_rows: bool = False
    schema: Any = None
    numbers: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def read_table(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    groups: str | None = None,
    ignore: Sequence[str] = (),
    format: str | None = None,
    header: bool = True,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    n_features: int | None = None,
    zero_based: bool = False,
    labels: bool = False,
    missing: bool = False,
    need_target: bool = False,
    features: Sequence[str] | None = None,
    progress: bool = False,
) -> Table:
    """Read a table, all of whose features must be finite numbers, unless they may be `missing`.

    Parameters
    ----------
    path : path
        A CSV, Parquet, svmlight or npz file. CSV and svmlight files may be packed: .gz or .bz2.
    target : str or None, default=None
        The column to predict: numbers, or words for classes. None: no target, except that svmlight files carry one at
        the start of each line and npz files one in the member ``y``. For npz files, the name of the member.
    groups : str or None, default=None
        The column with people's ids, where a person may have several rows. For npz files the name of a member (None:
        ``groups``, if there is one), for svmlight files "qid" or None.
    ignore : sequence of str, default=()
        Columns to leave out. An item that is no column's name may be several names, separated by commas.
    format : {"csv", "parquet", "svmlight", "npz"} or None, default=None
        None: by the suffix, see `FORMATS`.
    header : bool, default=True
        CSV: whether the first line names the columns. If not, they are called "0", "1", … in `target`, `groups` and
        `ignore`.
    delimiter : str or None, default=None
        CSV: one character. None: whichever of comma, semicolon and tab is most frequent in the first line.
    encoding : str, default="utf-8"
        CSV: how characters are written. A byte-order mark is skipped.
    n_features : int or None, default=None
        At least 1. svmlight: the number of features; a larger index is refused. None: the largest index in the file,
        which is then taken as public although one person's row may decide it. Other formats: the number of features
        that there must be.
    zero_based : bool, default=False
        svmlight: whether indices count from 0, as scikit-learn's `dump_svmlight_file` writes them unless told
        otherwise, and not from 1, as LIBSVM does. Never guessed from the indices, since one row could decide it.
    labels : bool, default=False
        CSV: whether all cells of the target are read as words, so that words may stand among numbers: for classes that
        are declared beforehand (`tulle.files.class_labels.read_text_cells`).
    missing : bool, default=False
        Whether dense features may have no value, or an infinite one: for steps that accept them (`PrivateScaler`). They
        are NaN and infinite in `X`.
    need_target : bool, default=False
        CSV and Parquet: whether to refuse the file, before a row is read, where no `target` is named.
    features : sequence of str or None, default=None
        Features by name, in this order; other columns are left out. None: all columns that have no other role. Where a
        file has no names (svmlight, npz without ``feature_names``) only their number counts.
    progress : bool, default=False
        Whether to say on standard error how much is read and how long it takes yet.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        The file, or the request for its columns, has a fault.

    Notes
    -----
    CSV is divided into cells by the rules of `tulle.files.tables.raw_cells.open_raw`, by pyarrow where it is installed
    and the file is not small, else by the standard library: with the same rows and refusals, several times slower.

    svmlight: targets are numbers, comments (#) are skipped.

    npz: ``X`` (two dimensions), or the members that `scipy.sparse.save_npz` writes for a CSR matrix (``data``,
    ``indices``, ``indptr``, ``shape``, ``format``); optionally ``y``, ``groups`` and ``feature_names``. Pickled objects
    are never loaded.

    Without `missing`, a cell without a value is refused, because filling it by what other rows hold is a release that
    no bill would show.
    """
    from tulle.files.tables.collecting import collected
    from tulle.files.tables.columns import Wanted

    wanted = Wanted(
        target,
        groups,
        tuple(ignore),
        None if features is None else tuple(features),
        n_features,
        header,
        delimiter,
        encoding,
        zero_based,
        labels,
        missing,
        need_target,
    )
    with open_batches(path, wanted, format=format, progress=progress) as (source, batches):
        parts = collected(source, batches)
        content = source.fingerprint()
        return Table(*parts, source=source.name, content=content, width_from_rows=source.width_from_rows)


@contextmanager
def open_batches(
    path: str | os.PathLike[str],
    wanted: Wanted,
    *,
    format: str | None = None,
    progress: bool = False,
    jobs: int = 1,
    start: BatchStart | None = None,
) -> Iterator[tuple[Source, Iterator[Parts]]]:
    """Open a file to be read a batch of rows at a time: what `read_table` collects.

    Parameters
    ----------
    path : path
        Also an address with a protocol, such as s3://bucket/table.parquet, which needs fsspec.
    wanted : Wanted
    format, progress
        As in `read_table`.
    jobs : int, default=1
        Threads that parse CSV or Parquet at a time.
    start : BatchStart or None, default=None
        The `Source.batch_start` to begin with, of an earlier reading of the same file.
    """
    name = os.fsdecode(path)
    with open_address(name) as source:
        chosen = check_wanted(source, wanted, format)
        said = Progress(name, shown=progress)
        try:
            yield source, _reader(chosen)(source, wanted, said, jobs, start)
        finally:
            said.close()


def check_wanted(source: Source, wanted: Wanted, format: str | None) -> str:
    """The format of an open file; a request that contradicts itself is refused."""
    if wanted.n_features is not None and wanted.n_features < 1:
        raise source.refusal(f"--n-features must be at least 1, not {wanted.n_features}")
    named = None if wanted.features is None else len(wanted.features)
    if None not in (named, wanted.n_features) and named != wanted.n_features:
        raise source.refusal(f"{named} features are named but --n-features is {wanted.n_features}")
    chosen = source.format(format)
    source.width_from_rows = chosen == "svmlight" and wanted.n_features is None and wanted.features is None
    return chosen


def _reader(format: str) -> Callable[[Source, Wanted, Progress, int, BatchStart | None], Iterator[Parts]]:
    """The reader of a format, imported when it is needed."""
    if format == "svmlight":
        from tulle.files.tables.svmlight import read_svmlight

        return read_svmlight
    if format == "npz":
        from tulle.files.tables.npz import read_npz

        return read_npz
    from tulle.files.tables.numeric_rows import read_csv, read_parquet

    return read_csv if format == "csv" else read_parquet
