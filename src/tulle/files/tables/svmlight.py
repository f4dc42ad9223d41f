"""svmlight (LIBSVM) files: scikit-learn's parser on blocks of whole lines, each a CSR array.

A block that cannot be read is gone through again line by line to name the
places, and no index and no value is quoted but the feature that a bad value belongs to.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.files.tables.columns import (
    INFINITE_TARGET,
    INFINITE_VALUE,
    MISSING_TARGET,
    NO_NUMBER,
    Fault,
    Faults,
    Parts,
    Wanted,
    fault_of_number,
)
from tulle.files.tables.free_memory import fits
from tulle.files.tables.input_files import BatchStart, Progress, Source, shown, whole_lines

# Columns are kept in 32 bits: half the memory, and liblinear takes no others.
_LARGEST_INDEX = 2**31 - 1
_ONE_BASED = "indices count from 1 in svmlight files; if they count from 0 in this one, pass --zero-based"


class _Block(NamedTuple):
    values: npt.NDArray[np.float64]
    indices: npt.NDArray[Any]  # as they stand in the file
    starts: npt.NDArray[Any]  # of each row, in values; and the end
    targets: npt.NDArray[np.float64]
    people: npt.NDArray[np.int64] | None


def read_svmlight(
    source: Source, wanted: Wanted, progress: Progress, jobs: int = 1, start: BatchStart | None = None
) -> Iterator[Parts]:
    """The rows in batches; see `tulle.files.tables.read_table`."""
    for given, option, why in (
        (wanted.target, "--target", "the target is the first value of every line"),
        (wanted.ignore, "--ignore", "columns have no names"),
        (
            None if wanted.groups == "qid" else wanted.groups,
            "--groups",
            "people are read only from qid: (--groups qid)",
        ),
    ):
        if given:
            raise source.refusal(f"omit {option} {shown(given)}: in svmlight files {why}")
    n_features = wanted.n_features
    if n_features is None and wanted.features is not None:
        n_features = len(wanted.features)
    first = 0 if wanted.zero_based else 1
    largest = n_features - 1 + first if n_features else _LARGEST_INDEX
    _check_weights_fit(source, n_features or 0)
    used = n_rows = 0
    faults = Faults(source, named=False)
    people = wanted.groups is not None
    for line, text in whole_lines(source, _without_mark(source.blocks())):
        block = _parsed(text, people=people)
        if block is None or (len(block.indices) and (block.indices.min() < first or block.indices.max() > largest)):
            _note_faults(source, faults, line, text, (first, largest), n_features, people=people)
            continue
        if len(block.indices) and block.indices.max() - first >= used:
            used = int(block.indices.max()) - first + 1
            _check_weights_fit(source, used)
        progress.at(source.share)
        if not len(block.targets):  # comments alone
            continue
        n_rows += len(block.targets)
        entries = (block.values, (block.indices - first).astype(np.int32), block.starts.astype(np.int32))
        X = sp.csr_array(entries, shape=(len(block.targets), n_features or used))
        if not faults:
            yield Parts(X, block.targets, None, block.people)
    faults.check()
    if not n_rows:
        raise source.refusal("no rows, only blank lines and comments; write the file again")
    if not (n_features or used):
        raise source.refusal(
            "no row has a feature (index:value), so the number of features is unknown; pass --n-features"
        )


def _check_weights_fit(source: Source, d: int) -> None:
    """A model has a weight for each feature. Their number may come from one row, so the message does not state it."""
    if not fits(8 * d):
        raise source.refusal(
            "an index is so large that a weight for each feature does not fit into the memory that is free; pass "
            "--n-features, or correct the largest index"
        )


def _without_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes without a byte-order mark."""
    yield next(blocks, b"").removeprefix(codecs.BOM_UTF8)
    yield from blocks


def _parsed(text: bytes, *, people: bool) -> _Block | None:
    """The rows of a block, or None where it is not well-formed or has numbers that are not finite."""
    from sklearn.datasets import load_svmlight_file

    try:
        # zero_based=True takes indices as they are: nothing is guessed.
        X, y, *ids = load_svmlight_file(io.BytesIO(text), zero_based=True, query_id=people)
    except (ValueError, OverflowError, TypeError):
        return None
    if not (np.isfinite(X.data).all() and np.isfinite(y).all()) or (people and len(ids[0]) != len(y)):
        return None
    return _Block(X.data, X.indices, X.indptr, y, ids[0] if people else None)


_TARGET = "target"
_TARGET_WORD = Fault("a target is not a number", "write classes as numbers, or use CSV for text")
_NO_VALUE = Fault(
    "an entry has no value",
    "filling it with a statistic of other rows would be a release, so omit the entry (it is then 0) or write a "
    "constant chosen without looking at the data",
)


def _note_faults(
    source: Source,
    faults: Faults,
    first_line: int,
    text: bytes,
    allowed: tuple[int, int],
    n_features: int | None,
    *,
    people: bool,
) -> None:
    """Note the features of the block with bad values; raise where a line is no row."""
    for line, content in enumerate(text.split(b"\n"), first_line):
        tokens = content.partition(b"#")[0].decode("utf-8", "backslashreplace").split()
        reason = _note_row(faults, line, tokens, *allowed, n_features, people=people) if tokens else None
        if reason:
            raise source.refusal(reason, line=line)
    if not faults:
        raise source.refusal(
            "a row here cannot be read; the format is: target index:value index:value …", line=first_line
        )


def _note_row(
    faults: Faults, line: int, tokens: list[str], first: int, largest: int, n_features: int | None, *, people: bool
) -> str | None:
    """Note bad values of a line; why it is no row, if it is none."""
    target, *entries = tokens
    faults.add(_TARGET, fault_of_number(target, _TARGET_WORD, MISSING_TARGET, INFINITE_TARGET), line=line)
    if entries and entries[0].startswith("qid"):
        if not _is_integer(entries.pop(0).partition(":")[2]):
            return "no qid can be read; write qid: and a whole number"
    elif people:
        return "no qid: after the target, but --groups qid needs one; write the person's number there"
    before = first - 1
    for entry in entries:
        index, colon, value = entry.partition(":")
        if not colon or not _is_integer(index):
            return "an entry is not of the form index:value; check that this is an svmlight file, or pass --format"
        if int(index) < first:
            return f"an index below {first}: {_ONE_BASED if first else 'indices are at least 0'}"
        if int(index) > largest:
            limit = f"--n-features is {n_features:,}" if n_features else f"the largest allowed is {largest:,}"
            return f"an index is too large: {limit}; correct the index, or pass the right --n-features"
        if int(index) <= before:
            return "indices are not increasing; sort the indices of a row and write each once"
        before = int(index)
        faults.add(str(before), fault_of_number(value, NO_NUMBER, _NO_VALUE, INFINITE_VALUE), line=line)
    return None


def _is_integer(text: str) -> bool:
    return text.isascii() and text.lstrip("+-").isdigit()
