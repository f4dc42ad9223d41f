"""Tables of numbers on top of cells: CSV and Parquet as features, target and people, a batch of rows at a time.

pyarrow reads as numbers the columns of a CSV file that must hold numbers. Where it meets a cell that is none to it, the
standard library goes on, and each cell is judged by itself. A column that cannot be read is noted with its first such
row and looked at no more, for all of them to be told in one message; the line of a row is looked up at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.files.tables.columns import (
    MISSING_PERSON,
    MISSING_TARGET,
    NUMBER_AS_TARGET,
    Fault,
    FaultOf,
    Faults,
    Parts,
    Roles,
    Wanted,
    assign_roles,
    fault_of_target,
    is_missing,
    is_number,
)
from tulle.files.tables.input_files import Progress, Source
from tulle.files.tables.raw_cells import Cells
from tulle.files.tables.raw_delimited import CsvCells

# A smaller file is read by the standard library before pyarrow is loaded.
_SMALL_FILE = 1 << 20


def read_csv(source: Source, wanted: Wanted, progress: Progress) -> Iterator[Parts]:
    """The rows in batches; see `tulle.files.tables.read_table`."""
    cells = CsvCells(source, wanted.header, wanted.delimiter, wanted.encoding, strict=True)
    roles = assign_roles(source, cells.names, wanted, doubtful=cells.doubtful)
    # The first row says whether targets are words or numbers; a column that mixes them is refused.
    first = None if roles.target is None or wanted.labels else cells.first_cell(roles.target)
    words = wanted.labels or not (first is None or is_number(first))
    # Where the header may be a row, columns are told by their places, but for those that the user has named: what is
    # quoted from a header is public, and what is quoted from a row is not.
    known = {wanted.target, wanted.groups, *(wanted.features or ())}
    told = [
        name if name and not (cells.doubtful and name not in known) else f"column {place}"
        for place, name in enumerate(cells.names, 1)
    ]
    faults = Faults(source, named=not cells.doubtful)
    rows = _Rows(faults, told, roles, words=words, mixed=wanted.labels, named_people=True, missing=wanted.missing)
    names = tuple(cells.names[place] for place in roles.features) if wanted.header else None
    numbers = set(roles.used).difference([roles.groups, roles.target if words else None])
    plain = source.size < _SMALL_FILE
    batches = cells.batches(roles.used, progress, plain=plain, numbers=numbers, missing=wanted.missing)
    yield from rows.read(batches, names)
    faults.check(cells.lines_of)


def read_parquet(source: Source, wanted: Wanted, progress: Progress) -> Iterator[Parts]:
    """The rows in batches; see `tulle.files.tables.read_table`."""
    from tulle.files.tables.parquet import NUMBERS, STRINGS, is_one_of, open_parquet, read_cells

    file, schema, n = open_parquet(source)
    roles = assign_roles(source, schema.names, wanted)
    faults = Faults(source)
    for place in roles.used:
        kind = schema.field(place).type
        if place in roles.features and not is_one_of(NUMBERS, kind):
            fault = Fault(f"the column contains {kind}, not numbers", "encode it as numbers", True)
            faults.add(schema.names[place], fault)
        elif not (is_one_of(NUMBERS, kind) or is_one_of(STRINGS, kind)):
            faults.add(schema.names[place], Fault(f"the column contains {kind}", "store numbers or text"))
    faults.check()
    if n < 1:
        raise source.refusal("no rows; write the table again")
    words, named_people = (
        place is not None and is_one_of(STRINGS, schema.field(place).type) for place in (roles.target, roles.groups)
    )
    rows = _Rows(
        faults, schema.names, roles, words=words, mixed=True, named_people=named_people, missing=wanted.missing
    )
    numbers = set(roles.used).difference([roles.groups, roles.target if words else None])

    def batches() -> Iterator[list[Cells]]:
        done = 0
        for columns in read_cells(source, file, [schema.names[place] for place in roles.used], n, strict=True):
            done += len(columns[0])
            source.at(done / n)
            progress.at(source.share)
            yield [
                cells.cast("float64", safe=False) if at in numbers else cells for at, cells in zip(roles.used, columns)
            ]

    yield from rows.read(batches(), tuple(schema.names[place] for place in roles.features))
    faults.check()


class _Rows:
    """Columns of cells as rows.

    Parameters
    ----------
    faults : Faults
    told : sequence of str
        The columns of the file as messages call them.
    roles : Roles
    words : bool
        Whether the target is words.
    mixed : bool
        Whether numbers may be among the words.
    named_people : bool
        Whether ids are words.
    missing : bool
        Whether features may be missing or infinite.
    """

    def __init__(
        self,
        faults: Faults,
        told: Sequence[str],
        roles: Roles,
        *,
        words: bool,
        mixed: bool,
        named_people: bool,
        missing: bool,
    ) -> None:
        self._faults = faults
        self._told = [told[place] for place in roles.features]
        self._target, self._groups = (None if at is None else told[at] for at in (roles.target, roles.groups))
        self._words = words
        self._mixed = mixed
        self._named_people = named_people
        self._missing = missing

    def read(self, batches: Iterable[list[Cells]], names: tuple[str, ...] | None) -> Iterator[Parts]:
        """The rows of all batches, as long as every column can be read."""
        row = 1
        for columns in batches:
            X, y, people = self._rows(columns, row)
            row += len(X)
            if not self._faults:
                yield Parts(X, y, names, people)

    def _rows(self, columns: list[Cells], row: int) -> tuple[npt.NDArray[np.float64], Any, Any]:
        """The parts of a table; `row` is the number of the first row. What cannot be read is noted."""
        people = None if self._groups is None else self._people(self._groups, columns.pop(), row)
        y = None if self._target is None else self._targets(self._target, columns.pop(), row)
        X = np.empty((len(columns[0]), len(columns)))
        for place, cells in enumerate(columns):
            X[:, place] = 0.0 if self._told[place] in self._faults else _numbers(cells)
        self._faults.add_numbers(self._told, X, row, columns, missing=self._missing)
        return X, y, people

    def _targets(self, name: str, cells: Cells, row: int) -> npt.NDArray[Any]:
        if self._words:
            return self._texts(name, cells, row, self._fault_of_word)
        y = _numbers(cells)
        texts = cells if isinstance(cells, np.ndarray) else y
        self._faults.add_first(name, texts, ~np.isfinite(y), row, fault_of_target)
        return y

    def _fault_of_word(self, word: str) -> Fault | None:
        if is_missing(word):
            return MISSING_TARGET
        return None if self._mixed or not is_number(word) else NUMBER_AS_TARGET

    def _people(self, name: str, cells: Cells, row: int) -> npt.NDArray[Any]:
        if self._named_people:
            return self._texts(name, cells, row, lambda word: MISSING_PERSON if is_missing(word) else None)
        people: npt.NDArray[Any] = cells.to_numpy(zero_copy_only=False)
        missing = cells.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        self._faults.add_first(name, people, missing, row, lambda _: MISSING_PERSON)
        return people

    def _texts(self, name: str, cells: Cells, row: int, fault_of: FaultOf) -> npt.NDArray[Any]:
        distinct, codes = _distinct(cells)
        words = np.array([word.strip() for word in distinct], dtype=str)
        bad = np.array([fault_of(word) is not None for word in words.tolist()])
        self._faults.add_first(name, words[codes], bad[codes], row, fault_of)
        return words[codes]


def _numbers(cells: Cells) -> npt.NDArray[np.float64]:
    """Each cell as a number; NaN where it is none."""
    if not isinstance(cells, np.ndarray):
        numbers: npt.NDArray[np.float64] = cells.to_numpy(zero_copy_only=False)
        return numbers
    text = "".join(cells.tolist())
    if text.isascii() and "_" not in text:  # the rest of `is_number`
        try:
            return cells.astype(np.float64)
        except ValueError:
            pass
    return np.array([float(cell) if is_number(cell) else math.nan for cell in cells])


def _distinct(cells: Cells) -> tuple[list[str], npt.NDArray[Any]]:
    """The texts that occur, "" for null, and which of them each cell is."""
    if isinstance(cells, np.ndarray):
        places: dict[str, int] = {}
        codes = np.fromiter((places.setdefault(cell, len(places)) for cell in cells), np.intp, len(cells))
        return list(places), codes
    encoded = cells.fill_null("").dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
