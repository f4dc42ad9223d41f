"""npz files: dense or CSR rows with their targets, people and names as members. Pickled objects are never loaded."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.files.tables.columns import (
    MISSING_PERSON,
    MISSING_TARGET,
    Fault,
    Faults,
    Parts,
    Wanted,
    assign_roles,
    check_n_features,
    fault_of_feature,
    fault_of_target,
    is_missing,
    some,
)
from tulle.files.tables.free_memory import DENSE_ADVICE, SPARSE_ADVICE, check_fits
from tulle.files.tables.input_files import BatchStart, Progress, Source, report_damage, shown

_CSR = ("data", "indices", "indptr", "shape")


def read_npz(
    source: Source, wanted: Wanted, progress: Progress, jobs: int = 1, start: BatchStart | None = None
) -> Iterator[Parts]:
    """All rows as one batch, since an archive cannot be read in parts; see `tulle.files.tables.read_table`."""
    archive = _Archive(source)
    names = archive.feature_names()
    left_out = {name for name in wanted.ignore if name in archive.members and name in ("y", "groups")}
    target = archive.chosen(wanted.target, "y", "--target", left_out)
    groups = archive.chosen(wanted.groups, "groups", "--groups", left_out)
    progress.at(0.1)
    X = archive.dense("X") if "X" in archive.members else archive.csr()
    progress.at(0.9)
    if not X.shape[0]:
        raise source.refusal("X has no rows; write the file again")
    columns = [name for name in wanted.ignore if name not in left_out]
    if names is None:
        if columns:
            raise source.refusal(f"--ignore {some(columns)}: X has no names; save them as the member feature_names")
        named = None if wanted.features is None else len(wanted.features)
        check_n_features(source, X.shape[1], wanted.n_features if named is None else named)
    else:
        if len(names) != X.shape[1]:
            raise source.refusal(f"feature_names has {len(names):,} names, but X has {X.shape[1]:,} columns")
        chosen = assign_roles(
            source, names, replace(wanted, target=None, groups=None, ignore=tuple(columns), need_target=False)
        ).features
        if chosen != tuple(range(len(names))):
            X, names = X[:, list(chosen)], tuple(names[place] for place in chosen)
    faults = Faults(source, named=names is not None)
    if sp.issparse(X) or not wanted.missing:
        _note_rows(faults, X, names or [str(place) for place in range(X.shape[1])])
    y = people = None
    if target is not None:
        y = archive.one_per_row(target, X.shape[0])
        y = y.astype(np.float64) if y.dtype.kind in "biuf" else y
        if y.dtype.kind == "f":
            faults.add_first(target, y, ~np.isfinite(y), 1, fault_of_target)
        else:
            _note_missing(faults, y, target, MISSING_TARGET)
    if groups is not None:
        people = archive.one_per_row(groups, X.shape[0])
        _note_missing(faults, people, groups, MISSING_PERSON)
    faults.check()
    progress.at(1.0)
    yield Parts(X, y, names, people)


class _Archive:
    """The members of a zip archive of arrays."""

    def __init__(self, source: Source) -> None:
        self._source = source
        with report_damage(source, "the archive"):
            self._zip = zipfile.ZipFile(source.raw)
        self.members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
        if "X" not in self.members and not set(_CSR) <= set(self.members):
            raise source.refusal(
                f"neither the member X nor a CSR matrix ({', '.join(_CSR)}); the members are "
                f"{some(sorted(self.members)) or 'none'}; write it with np.savez(path, X=X, y=y)"
            )

    def chosen(self, name: str | None, default: str, option: str, left_out: set[str]) -> str | None:
        """The member that the user named, or the default one if it is there."""
        if name is None:
            return default if default in self.members and default not in left_out else None
        if name in left_out:
            raise self._source.refusal(f"{shown(name)} is given to both {option} and --ignore; remove it from one")
        if name not in self.members:
            raise self._source.refusal(
                f"{option}: no member is named {shown(name)}; the members are {some(sorted(self.members))}"
            )
        return name

    def array(self, name: str, advice: str = SPARSE_ADVICE) -> npt.NDArray[Any]:
        """One member, after its header was held against its length and the memory that is free."""
        info = self.members[name]
        with report_damage(self._source, f"the member {name}"):
            with self._zip.open(info) as file:
                version = np.lib.format.read_magic(file)
                header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = header(file)
                held = info.file_size - file.tell()
            if dtype.hasobject:
                raise self._source.refusal(
                    f"the member {name} contains pickled Python objects, which are never loaded (they can run code); "
                    "save an array of numbers, or of text with astype(str)"
                )
            if math.prod(shape) * dtype.itemsize != held:
                raise self._source.refusal(
                    f"the member {name} claims the shape {shape} of {_kind(dtype)} but has {held:,} bytes; it is "
                    "damaged, so write the file again"
                )
            # Features of another type are copied once more, into 64-bit numbers.
            check_fits(self._source, held + (0 if dtype == np.float64 else 8 * math.prod(shape)), advice)
            with self._zip.open(info) as file:
                array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array

    def _numbers(self, name: str, advice: str = SPARSE_ADVICE) -> npt.NDArray[np.float64]:
        array = self.array(name, advice)
        if array.dtype.kind not in "biuf":
            raise self._source.refusal(
                f"the member {name} contains {_kind(array.dtype)}; save numbers, such as float64"
            )
        return array.astype(np.float64, copy=False)

    def dense(self, name: str) -> npt.NDArray[np.float64]:
        """A member of two dimensions as numbers."""
        array = self._numbers(name, DENSE_ADVICE)
        if array.ndim != 2:
            raise self._source.refusal(f"{name} has shape {array.shape}; save it with two dimensions, rows × features")
        return array

    def csr(self) -> Any:
        """The rows that `scipy.sparse.save_npz` wrote, after a check that no index points outside of them."""
        stored = self._words("format").ravel().tolist() if "format" in self.members else ["csr"]
        if stored != ["csr"]:
            raise self._damaged(f"a sparse matrix in the format {some([str(name) for name in stored])}")
        data = self._numbers("data")
        shape, indptr, indices = (self.array(name) for name in ("shape", "indptr", "indices"))
        whole = all(part.dtype.kind in "iu" and part.ndim == 1 for part in (shape, indptr, indices))
        if not (whole and data.ndim == 1 and len(shape) == 2 and (shape >= 0).all() and len(data) == len(indices)):
            raise self._damaged("data, indices, indptr and shape are not those of a CSR matrix")
        n, d = (int(size) for size in shape)
        check_fits(self._source, 8 * d, "correct its shape")  # a model has a weight for each
        if (
            len(indptr) != n + 1
            or indptr[0] != 0
            or indptr[-1] != len(data)
            or (np.diff(indptr.astype(np.int64)) < 0).any()
        ):
            raise self._damaged("indptr does not divide the entries into rows")
        if len(indices) and not 0 <= indices.min() <= indices.max() < d:
            raise self._damaged(f"an index is outside the {d:,} columns")
        with report_damage(self._source, "the CSR matrix"):
            X = sp.csr_array((data, indices, indptr), shape=(n, d))
            X.sum_duplicates()  # an entry stored in two parts would pass as two small ones where rows are clipped
        return X

    def _damaged(self, what: str) -> Exception:
        return self._source.refusal(f"{what}; write the file again with scipy.sparse.save_npz(path, X.tocsr())")

    def feature_names(self) -> tuple[str, ...] | None:
        """The member of that name, if there is one."""
        if "feature_names" not in self.members:
            return None
        array = self._words("feature_names")
        if array.dtype.kind != "U" or array.ndim != 1:
            raise self._source.refusal(
                f"the member feature_names contains {_kind(array.dtype)}; save one string per column, with astype(str)"
            )
        return tuple(array.tolist())

    def _words(self, name: str) -> npt.NDArray[Any]:
        """A member whose bytes, if it holds bytes, are read as words."""
        array = self.array(name)
        with report_damage(self._source, f"the member {name}"):
            return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array

    def one_per_row(self, name: str, n: int) -> npt.NDArray[Any]:
        """A member with a number or a word for each row."""
        array = self._words(name)
        if array.dtype.kind not in "biufU":
            raise self._source.refusal(f"the member {name} contains {array.dtype}; save numbers or text (astype(str))")
        if array.shape not in ((n,), (n, 1)):
            raise self._source.refusal(
                f"the member {name} has shape {array.shape}, but X has {n:,} rows; save one value per row"
            )
        return array.ravel()


def _note_rows(faults: Faults, X: Any, names: Sequence[str]) -> None:
    if not sp.issparse(X):
        faults.add_numbers(names, X, 1)
        return
    for at in np.flatnonzero(~np.isfinite(X.data)).tolist():
        row = int(np.searchsorted(X.indptr, at, "right"))
        faults.add(names[X.indices[at]], fault_of_feature(str(X.data[at])), row=row)


def _note_missing(faults: Faults, values: npt.NDArray[Any], column: str, fault: Fault) -> None:
    """Note a word that says that there is no value, or NaN."""
    words, codes = np.unique(values, return_inverse=True)
    bad = np.array([is_missing(str(word)) for word in words])
    faults.add_first(column, values, bad[codes], 1, lambda _: fault)


def _kind(dtype: np.dtype[Any]) -> str:
    """What an array holds. The type itself would tell how long somebody's word is."""
    return "words" if dtype.kind in "SU" else f"{dtype}"
