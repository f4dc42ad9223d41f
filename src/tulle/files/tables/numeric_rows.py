"""Tables of numbers on top of cells: CSV and Parquet as features, target and people, a batch of rows at a time.

pyarrow reads the columns of a CSV file that must hold numbers. Where it meets a cell that it does not read as a number,
the standard library goes on, and each cell is judged by itself. A column that cannot be read is noted with its first
such row and skipped from then on, so that one message names all of them; the line of a row is looked up at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tulle.files.tables.columns import (
    MISSING_PERSON,
    MISSING_TARGET,
    NUMBER_AS_TARGET,
    Fault,
    FaultOf,
    Faults,
    Layout,
    Parts,
    Roles,
    Wanted,
    assign_roles,
    fault_of_target,
    is_missing,
    is_number,
)
from tulle.files.tables.in_order import map_in_order
from tulle.files.tables.input_files import BatchStart, Progress, Source
from tulle.files.tables.raw_cells import Cells
from tulle.files.tables.raw_delimited import CsvCells

# A smaller file is read by the standard library before pyarrow is loaded.
_SMALL_FILE = 1 << 20


class _OpenCsv(NamedTuple):
    """A CSV file whose header and first row were read."""

    cells: CsvCells
    roles: Roles
    words: bool  # whether the target is words


def _open_csv(source: Source, wanted: Wanted) -> _OpenCsv:
    cells = CsvCells(source, wanted.header, wanted.delimiter, wanted.encoding, strict=True)
    roles = assign_roles(source, cells.names, wanted, doubtful=cells.doubtful)
    # The first row says whether targets are words or numbers; a column that mixes them is refused.
    first = None if roles.target is None or wanted.labels else cells.first_cell(roles.target)
    return _OpenCsv(cells, roles, wanted.labels or not (first is None or is_number(first)))


def find_csv_layout(source: Source, wanted: Wanted) -> Layout:
    """Facts about a CSV file's rows that are known before all of them are read."""
    cells, roles, words = _open_csv(source, wanted)
    target = "" if roles.target is None else "text" if words else "numbers"
    columns = tuple(cells.names[place] for place in roles.features)
    people = "" if roles.groups is None else "string"
    return Layout(columns, target, people, text=True)


def read_csv(
    source: Source, wanted: Wanted, progress: Progress, jobs: int = 1, start: BatchStart | None = None
) -> Iterator[Parts]:
    """The rows in batches; see `tulle.files.tables.read_table`."""
    cells, roles, words = _open_csv(source, wanted)
    # Where the header may be a row, columns are named by their places, except those that the user has named: words of a
    # header are public, and words of a row are not.
    known = {wanted.target, wanted.groups, *(wanted.features or ())}
    told = [
        name if name and not (cells.doubtful and name not in known) else f"column {place}"
        for place, name in enumerate(cells.names, 1)
    ]
    faults = Faults(source, named=not cells.doubtful)
    rows = _Rows(faults, told, roles, words=words, mixed=wanted.labels, named_people=True, missing=wanted.missing)
    names = tuple(cells.names[place] for place in roles.features) if wanted.header else None
    numbers = set(roles.used).difference([roles.groups, roles.target if words else None])
    batches = cells.batches(
        roles.used,
        progress,
        plain=source.size < _SMALL_FILE,
        numbers=numbers,
        missing=wanted.missing,
        finish=rows.prepare,
        jobs=jobs,
        start=start,
    )
    yield from rows.note_faults(batches, names, 0 if start is None else start.row)
    faults.check(cells.lines_of)


def find_parquet_layout(source: Source, wanted: Wanted) -> Layout:
    """Facts about a Parquet file's rows that are known before they are read; other types of columns are refused."""
    from tulle.files.tables.parquet import open_parquet, plain_name

    _, schema, n = open_parquet(source)
    roles, words, _ = _parquet_roles(source, schema, n, wanted)
    target = "" if roles.target is None else "text" if words else "numbers"
    people = "" if roles.groups is None else plain_name(schema.field(roles.groups).type)
    return Layout(tuple(schema.names[place] for place in roles.features), target, people)


def _parquet_roles(source: Source, schema: Any, n: int, wanted: Wanted) -> tuple[Roles, bool, bool]:
    """Roles of columns, whether targets are words, and whether ids are."""
    from tulle.files.tables.parquet import NUMBERS, STRINGS, is_one_of

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
    return roles, words, named_people


def read_parquet(
    source: Source, wanted: Wanted, progress: Progress, jobs: int = 1, start: BatchStart | None = None
) -> Iterator[Parts]:
    """The rows in batches; see `tulle.files.tables.read_table`."""
    from tulle.files.tables.parquet import open_parquet, read_cells

    file, schema, n = open_parquet(source)
    roles, words, named_people = _parquet_roles(source, schema, n, wanted)
    faults = Faults(source)
    rows = _Rows(
        faults, schema.names, roles, words=words, mixed=True, named_people=named_people, missing=wanted.missing
    )
    numbers = set(roles.used).difference([roles.groups, roles.target if words else None])
    first = 0 if start is None else start.row
    columns = [schema.names[place] for place in roles.used]

    def cells() -> Iterator[tuple[list[Cells], BatchStart | None]]:
        for part in read_cells(source, file, columns, n, strict=True, jobs=jobs, first=first):
            yield part, source.batch_start

    def prepare(given: tuple[list[Cells], BatchStart | None]) -> tuple[_Batch, BatchStart | None]:
        part = [one.cast("float64", safe=False) if at in numbers else one for at, one in zip(roles.used, given[0])]
        return rows.prepare(part), given[1]

    def batches() -> Iterator[_Batch]:
        done = first
        with closing(map_in_order(prepare, cells(), jobs)) as prepared:
            for batch, begin in prepared:
                done += len(batch.X)
                source.at(done / n)
                source.batch_start = begin
                progress.at(source.share)
                yield batch

    yield from rows.note_faults(batches(), tuple(schema.names[place] for place in roles.features), first)
    faults.check()


class _Column(NamedTuple):
    """Targets or people of some rows, which of them are no such thing, and why."""

    cells: npt.NDArray[Any]
    bad: npt.NDArray[np.bool_]
    fault_of: FaultOf
    texts: npt.NDArray[Any]  # what the fault is found by


class _Batch(NamedTuple):
    """Some rows, with what may be wrong with them."""

    X: npt.NDArray[np.float64]
    y: _Column | None
    people: _Column | None
    doubtful: Sequence[Cells]  # the features' cells, where an entry is not finite


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

    def prepare(self, columns: Sequence[Cells]) -> _Batch:
        """The rows of some columns: of these alone, so that any thread may do it."""
        features = list(columns)
        people = None if self._groups is None else self._people(features.pop())
        y = None if self._target is None else self._targets(features.pop())
        X = np.empty((len(features[0]), len(features)))
        for place, cells in enumerate(features):
            X[:, place] = _numbers(cells)
        return _Batch(X, y, people, () if np.isfinite(X).all() else features)

    def note_faults(self, batches: Iterable[_Batch], names: tuple[str, ...] | None, first_row: int) -> Iterator[Parts]:
        """The rows of all batches, as long as every column can be read. `first_row`: how many rows are before them."""
        row = first_row + 1
        for batch in batches:
            for name, column in ((self._groups, batch.people), (self._target, batch.y)):
                if name is not None and column is not None:
                    self._faults.add_first(name, column.texts, column.bad, row, column.fault_of)
            if batch.doubtful:
                self._faults.add_numbers(self._told, batch.X, row, batch.doubtful, missing=self._missing)
            row += len(batch.X)
            if not self._faults:
                y, people = (None if column is None else column.cells for column in (batch.y, batch.people))
                yield Parts(batch.X, y, names, people)

    def _targets(self, cells: Cells) -> _Column:
        if self._words:
            return self._texts(cells, self._fault_of_word)
        y = _numbers(cells)
        return _Column(y, ~np.isfinite(y), fault_of_target, cells if isinstance(cells, np.ndarray) else y)

    def _fault_of_word(self, word: str) -> Fault | None:
        if is_missing(word):
            return MISSING_TARGET
        return None if self._mixed or not is_number(word) else NUMBER_AS_TARGET

    def _people(self, cells: Cells) -> _Column:
        if self._named_people:
            return self._texts(cells, lambda word: MISSING_PERSON if is_missing(word) else None)
        people: npt.NDArray[Any] = cells.to_numpy(zero_copy_only=False)
        missing = cells.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        return _Column(people, missing, lambda _: MISSING_PERSON, people)

    def _texts(self, cells: Cells, fault_of: FaultOf) -> _Column:
        distinct, codes = _distinct(cells)
        words = np.array([word.strip() for word in distinct], dtype=str)
        bad = np.array([fault_of(word) is not None for word in words.tolist()])
        found = words[codes]
        return _Column(found, bad[codes], fault_of, found)


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
