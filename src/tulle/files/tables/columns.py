"""Columns by name, what a cell may hold (a feature, the target or a person's id), and which columns cannot be read.

A cell is never quoted: its column and its row are enough to find it.
"""

from __future__ import annotations

import csv
import difflib
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tulle.files.tables.input_files import Source, TableError, shown

FaultOf: TypeAlias = "Callable[[str], Fault | None]"

# Words that programs write where there is no value. "none" is not among them: it can be a class.
_MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null"})


@dataclass(frozen=True)
class Wanted:
    """What the user asked for; the parameters of `tulle.files.tables.read_table`."""

    target: str | None = None
    groups: str | None = None
    ignore: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    n_features: int | None = None
    header: bool = True
    delimiter: str | None = None
    encoding: str = "utf-8"
    zero_based: bool = False
    labels: bool = False
    missing: bool = False
    need_target: bool = False


class Parts(NamedTuple):
    """Some rows of a file, at least one: readers yield them in order, all in the same form.

    Sparse rows (CSR) are as wide as those read so far need; the last batch knows whether that is an error.
    """

    X: Any
    y: npt.NDArray[Any] | None
    feature_names: tuple[str, ...] | None
    groups: npt.NDArray[Any] | None


@dataclass(frozen=True)
class Layout:
    """Facts about a file's rows that are known before they are read, and are the same in files that are appended.

    Attributes
    ----------
    features : tuple of str
        The names of the columns that are features; numbers where the file has no names.
    target, people : str
        What these columns hold; "" without one.
    sparse : bool
    text : bool
        Whether names are the first line of a text file.
    types : tuple of str
        The type of each of these columns, where the file declares them and it matters.
    """

    features: tuple[str, ...]
    target: str
    people: str
    sparse: bool = False
    text: bool = False
    types: tuple[str, ...] = ()

    def check_same(self, source: Source, first: str, other: Layout) -> None:
        """Refuse a file whose rows cannot be appended to those of the first one, which has the layout `other`."""
        if self.sparse != other.sparse:
            words = ("sparse", "dense") if self.sparse else ("dense", "sparse")
            raise source.refusal(
                f"its rows are {words[0]}, and those of {shown_name(first)} {words[1]}; convert them apart"
            )
        check_same_columns(source, self.features, first, other.features, header=self.text)
        if self.types and other.types:
            types, others = (dict(zip(one.features, one.types)) for one in (self, other))
            check_same_types(source, types, first, others)
        for role, mine, its in (("target", self.target, other.target), ("person ids", self.people, other.people)):
            if mine != its:
                raise source.refusal(
                    f"its {role} contain{'s' * (role == 'target')} {mine or 'nothing'}, but {its or 'nothing'} in "
                    f"{shown_name(first)}; write all files alike"
                )


DOUBTFUL = "the first line has a number in place of a column name; if it is a row, pass --no-header"


@dataclass(frozen=True)
class Roles:
    """Which columns, by position, are what."""

    features: tuple[int, ...]
    target: int | None
    groups: int | None

    @property
    def used(self) -> list[int]:
        """Features, then the target, then people."""
        return [*self.features, *(place for place in (self.target, self.groups) if place is not None)]


def assign_roles(source: Source, given: Sequence[str], wanted: Wanted, *, doubtful: bool = False) -> Roles:
    """Give each column its role, or say which name is wrong.

    Parameters
    ----------
    source : Source
    given : sequence of str
        The names of all columns in the file; "" for one without.
    wanted : Wanted
    doubtful : bool, default=False
        Whether `given` may be somebody's row and no header. Then only names that the user passed are quoted.
    """
    names = [name or f"column {place}" for place, name in enumerate(given, 1)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        which = DOUBTFUL if doubtful else f"more than one column is named {some(repeated)}"
        raise source.refusal(f"{which}; give each a unique name")
    places = {name: place for place, name in enumerate(names)}

    def place_of(name: str, option: str) -> int:
        if name not in places:
            instead = DOUBTFUL if doubtful else _instead(name, names)
            raise source.refusal(f"{option}: no column is named {shown(name)}; {instead}")
        return places[name]

    if wanted.need_target and wanted.target is None:
        instead = DOUBTFUL if doubtful else f"the columns are {some(names)}"
        raise source.refusal(f"which column is to be predicted? Name it with --target COLUMN; {instead}")
    ignored = {place_of(name, "--ignore") for name in split_names(wanted.ignore, names)}
    target = None if wanted.target is None else place_of(wanted.target, "--target")
    groups = None if wanted.groups is None else place_of(wanted.groups, "--groups")
    if target is not None and target == groups:
        raise source.refusal("cannot be both --target and --groups; choose two columns", column=names[target])
    for place, option in ((target, "--target"), (groups, "--groups")):
        if place is not None and place in ignored:
            raise source.refusal(f"given to both {option} and --ignore; remove it from one", column=names[place])
    if wanted.features is None:
        features = tuple(place for place in range(len(names)) if place not in {*ignored, target, groups})
    else:
        features = _choose(source, wanted.features, places, doubtful=doubtful)
        for place, option in ((target, "--target"), (groups, "--groups")):
            if place in features:
                raise source.refusal(f"a feature of the model cannot also be {option}", column=names[place or 0])
    nameless = [names[place] for place in features if not given[place]]
    if nameless:
        raise source.refusal(
            f"the header has no name for {some(nameless)} (often a column of row numbers); add a name, or omit the "
            f"column with --ignore {shown(nameless[0])}"
        )
    check_n_features(source, len(features), wanted.n_features)
    return Roles(features, target, groups)


def split_names(given: Sequence[str], names: Collection[str]) -> list[str]:
    """The columns that a list names, of which an item that is no name may be several, separated by commas.

    Such an item is read as a line of CSV: a name that contains a comma is written in double quotes.
    """
    found: list[str] = []
    for item in given:
        found += [item] if item in names or "," not in item else next(csv.reader([item], skipinitialspace=True))
    return found


def _choose(source: Source, wanted: Sequence[str], places: dict[str, int], *, doubtful: bool) -> tuple[int, ...]:
    absent = [name for name in wanted if name not in places]
    if absent:
        instead = DOUBTFUL if doubtful else _instead(absent[0], list(places))
        raise source.refusal(f"{len(absent)} of {len(wanted)} features are missing: {some(absent)}; {instead}")
    return tuple(places[name] for name in wanted)


def check_n_features(source: Source, found: int, wanted: int | None) -> None:
    """Refuse a table without features, or with another number of them than was asked for."""
    if not found:
        raise source.refusal("no column is left for features; list fewer in --target, --groups and --ignore")
    if wanted is not None and found != wanted:
        raise source.refusal(
            f"{found:,} features, expected {wanted:,} (--n-features); add or --ignore columns to match"
        )


def check_same_columns(
    source: Source, names: Sequence[str], first: str, others: Sequence[str], *, header: bool = False
) -> None:
    """Refuse a file that does not have the columns of the first one, in any order.

    Parameters
    ----------
    source : Source
    names : sequence of str
        Its columns.
    first : str
        The path of the first file.
    others : sequence of str
        The columns of that one.
    header : bool, default=False
        Whether names are the first line of a text file, which may be a row: only those of the first file are quoted.
    """
    absent = [name for name in others if name not in set(names)]
    extra = [place for place, name in enumerate(names, 1) if name not in set(others)]
    what = [f"it lacks {some(absent)}"] if absent else []
    if extra and header:
        what.append(f"it has other columns in {len(extra):,} place{'s' * (len(extra) > 1)}, the first is {extra[0]}")
    elif extra:
        what.append(f"it also has {some([names[place - 1] for place in extra])}")
    if what:
        raise source.refusal(
            f"not the same columns as in {shown_name(first)}: {' and '.join(what)}; write all files alike"
        )


def check_same_types(source: Source, types: Mapping[str, Any], first: str, others: Mapping[str, Any]) -> None:
    """Refuse a file in which a column has another type than in the first one."""
    for name, kind in types.items():
        if kind != others[name]:
            raise source.refusal(
                f"the column contains {kind}, but {others[name]} in {shown_name(first)}; write all files alike",
                column=name,
            )


def shown_name(path: str) -> str:
    """A file as a message about another one names it."""
    return shown(os.path.basename(path))


def some(names: Sequence[str], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    text = ", ".join(shown(name) for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most:,} more"


def _instead(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    meant = f"did you mean {shown(close[0])}? " if close else ""
    return f"{meant}The columns are {some(names)}"


# --- cells ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """What can be wrong with a cell, in words that hold for every such cell, and what to do: no cell is ever quoted."""

    what: str
    advice: str
    or_ignore: bool = False  # whether leaving the column out would do


NO_NUMBER = Fault("a cell is not a number", "encode the column as numbers", True)
DECIMAL_COMMA = Fault("a cell has a decimal comma", "write a point (2.5, not 2,5)")
THOUSANDS = Fault(
    "a cell has a comma before three digits",
    "if it separates thousands, remove it (1234, not 1,234), and if it is a decimal comma, write a point",
)
_IN_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+([.][0-9]*)?")
MISSING_VALUE = Fault(
    "a cell has no value",
    "filling it with a statistic of other rows (a mean, a median) would be a release, so fill it with a constant "
    "chosen without looking at the data (tulle fit does so with a schema, and privately with --private-scaler)",
    True,
)
INFINITE_VALUE = Fault(
    "a cell is not a finite number", "replace it by a bound chosen without looking at the data", True
)
MISSING_TARGET = Fault("a target is missing", "fill it in, or drop the row")
INFINITE_TARGET = Fault("a target is not a finite number", "replace it by a bound chosen without looking at the data")
_ONE_KIND = "targets must be all numbers or all text, so correct the cell or write every class as text"
WORD_AS_TARGET = Fault("a target is text, but the first row's is a number", _ONE_KIND)
NUMBER_AS_TARGET = Fault("a target is a number, but the first row's is text", _ONE_KIND)
MISSING_PERSON = Fault("a person's id is missing", "every row needs one, so fill it in or drop the row")


def is_missing(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text.strip().lower() in _MISSING


def missing_spellings() -> list[str]:
    """Every cell without spaces that says so: for a parser that compares cells letter by letter."""
    letters = (itertools.product(*zip(word, word.upper())) for word in _MISSING)
    return sorted({"".join(chosen) for chosen in itertools.chain.from_iterable(letters)})


def is_number(text: str) -> bool:
    """Whether a cell is a number as numpy reads it; "nan" and "inf" are."""
    if not text.isascii() or "_" in text:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def fault_of_number(text: str, word: Fault, missing: Fault, infinite: Fault) -> Fault | None:
    """Which of three faults a cell has that must be a finite number; None where it is one."""
    if not is_number(text):
        return word
    if math.isnan(float(text)):
        return missing
    return None if math.isfinite(float(text)) else infinite


def fault_of_feature(text: str, missing: bool = False) -> Fault | None:
    """Why a cell cannot be a feature's value; None where it can. `missing`: as in `read_table`."""
    if missing and (is_missing(text) or is_number(text)):
        return None
    if is_missing(text):
        return MISSING_VALUE
    word = NO_NUMBER
    if _IN_THOUSANDS.fullmatch(text.strip()):
        word = THOUSANDS
    elif is_number(text.replace(",", ".", 1)):
        word = DECIMAL_COMMA
    elif apart := next((mark for mark in ";\t" if mark in text), None):
        word = Fault("a cell is not a number", f"if {apart!r} separates cells, pass --delimiter {apart!r}")
    return fault_of_number(text, word, MISSING_VALUE, INFINITE_VALUE)


def fault_of_target(text: str) -> Fault | None:
    """Why a cell cannot be a target that is a number; None where it can."""
    if is_missing(text):
        return MISSING_TARGET
    return fault_of_number(text, WORD_AS_TARGET, MISSING_TARGET, INFINITE_TARGET)


# More columns than anybody mends by hand: a text read as a table, or a table of words.
_MOST_NAMED = 100


class Faults:
    """The columns of a file that cannot be read, each with its first fault: told together, when all rows were seen.

    Parameters
    ----------
    source : Source
    named : bool, default=True
        Whether --ignore knows the columns by the names that they have here.
    """

    def __init__(self, source: Source, *, named: bool = True) -> None:
        self._source = source
        self._named = named
        self._found: dict[str, tuple[Fault, dict[str, int]]] = {}

    def __contains__(self, column: object) -> bool:
        return column in self._found

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, column: str, fault: Fault | None, **place: int) -> None:
        """A fault of a column, if it is one, and its place: the line or the row, from 1. The first one counts."""
        if fault is not None:
            self._found.setdefault(column, (fault, place))

    def add_first(
        self, column: str, cells: npt.NDArray[Any], bad: npt.NDArray[np.bool_], first_row: int, fault_of: FaultOf
    ) -> None:
        """The fault of the first bad cell, if there is one, by its text or by the number that was read."""
        if bad.any():
            place = int(bad.argmax())
            self.add(column, fault_of(str(cells[place])), row=first_row + place)

    def add_numbers(
        self,
        columns: Sequence[str],
        X: npt.NDArray[np.float64],
        first_row: int,
        cells: Sequence[Any] = (),
        *,
        missing: bool = False,
    ) -> None:
        """The faults of features, of which entries are NaN or infinite.

        Parameters
        ----------
        columns : sequence of str
        X : ndarray of shape (rows, features)
        first_row : int
            The number of the first row, from 1.
        cells : sequence of columns, default=()
            What the numbers come from. Where it is text (an object array), the text decides about faults.
        missing : bool, default=False
            As in `read_table`: only text that is neither a number nor missing is wrong.
        """
        bad = ~np.isfinite(X)
        for place in np.flatnonzero(bad.any(axis=0)).tolist() if bad.any() else []:
            texts, wrong = X[:, place], bad[:, place]
            if cells and isinstance(cells[place], np.ndarray):
                texts = cells[place]
                if missing:
                    wrong[wrong] = [fault_of_feature(text, missing) is not None for text in texts[wrong]]
            elif missing:
                continue
            self.add_first(columns[place], texts, wrong, first_row, fault_of_feature)

    def check(self, lines_of: Callable[[set[int]], dict[int, int]] | None = None) -> None:
        """Raise where a column has a fault. `lines_of` gives the lines of rows, if the message is to name lines."""
        # In order of their places, for any size of the batches in which they were found.
        found = dict(sorted(self._found.items(), key=lambda item: tuple(item[1][1].values())))
        if found and lines_of is not None:
            lines = lines_of({place["row"] for _, place in found.values()})
            found = {column: (fault, {"line": lines[place["row"]]}) for column, (fault, place) in found.items()}
        self._found = found
        if len(self._found) == 1:
            ((column, (fault, place)),) = self._found.items()
            advice = self._advice(fault, f"omit the column with --ignore {shown(column)}")
            raise self._source.refusal(f"{fault.what}; {advice}", column=column, **place)
        if self._found:
            raise TableError(
                f"{self._source.name}: {self._describe(True)}", f"{self._source.name}: {self._describe(False)}"
            )

    def _advice(self, fault: Fault, otherwise: str) -> str:
        return f"{fault.advice}, or {otherwise}" if fault.or_ignore and self._named else fault.advice

    def _describe(self, places: bool) -> str:
        left = _MOST_NAMED
        sentences = [f"{len(self._found):,} columns cannot be read"]
        for fault in dict.fromkeys(fault for fault, _ in self._found.values()):
            columns = [(column, place) for column, (of, place) in self._found.items() if of == fault]
            named = [
                shown(column) + (f" ({' '.join(f'{kind} {n}' for kind, n in place.items())})" if places else "")
                for column, place in columns[:left]
            ]
            more = len(columns) - len(named)
            named += [f"{more:,} more"] if more else []
            advice = self._advice(fault, "omit such columns with --ignore")
            sentences.append(f"{fault.what[0].upper()}{fault.what[1:]} in {', '.join(named)}; {advice}")
            left -= min(left, len(columns))
        return ". ".join(sentences)
