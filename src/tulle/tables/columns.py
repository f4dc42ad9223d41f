"""Columns by name, and what a cell may hold: features, the target or a person's id, and why a cell is refused."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tulle.tables.files import Source, shown

# Words that programs write where there is no value. "none" is not among them: it can be a class.
_MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null"})


@dataclass(frozen=True)
class Wanted:
    """What the user asked for; the parameters of `tulle.tables.read_table`."""

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


class Parts(NamedTuple):
    """Some rows of a file, at least one: readers yield them in order, all in the same form.

    Sparse rows (CSR) are as wide as those read so far need; the last batch knows whether that is an error.
    """

    X: Any
    y: npt.NDArray[Any] | None
    feature_names: tuple[str, ...] | None
    groups: npt.NDArray[Any] | None


@dataclass(frozen=True)
class Roles:
    """Which columns, by position, are what."""

    features: tuple[int, ...]
    target: int | None
    groups: int | None


def assign_roles(source: Source, given: Sequence[str], wanted: Wanted) -> Roles:
    """Give each column its role, or say which name is wrong.

    Parameters
    ----------
    source : Source
    given : sequence of str
        The names of all columns in the file; "" for one without.
    wanted : Wanted
    """
    names = [name or f"column {place}" for place, name in enumerate(given, 1)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise source.refusal(f"more than one column is called {some(repeated)}; give each its own name")
    places = {name: place for place, name in enumerate(names)}

    def place_of(name: str, option: str) -> int:
        if name not in places:
            raise source.refusal(f"{option}: no column is called {shown(name)}; {_instead(name, names)}")
        return places[name]

    ignored = {place_of(name, "--ignore") for name in wanted.ignore}
    target = None if wanted.target is None else place_of(wanted.target, "--target")
    groups = None if wanted.groups is None else place_of(wanted.groups, "--groups")
    if target is not None and target == groups:
        raise source.refusal("cannot be both --target and --groups; name two columns", column=names[target])
    for place, option in ((target, "--target"), (groups, "--groups")):
        if place is not None and place in ignored:
            raise source.refusal(f"named by {option} and by --ignore; take it out of one", column=names[place])
    if wanted.features is None:
        features = tuple(place for place in range(len(names)) if place not in {*ignored, target, groups})
    else:
        features = _chosen(source, wanted.features, places)
        for place, option in ((target, "--target"), (groups, "--groups")):
            if place in features:
                raise source.refusal(f"a feature of the model cannot be {option} too", column=names[place or 0])
    nameless = [names[place] for place in features if not given[place]]
    if nameless:
        raise source.refusal(
            f"the header has no name for {some(nameless)} (row numbers are often written so); write a name there, or "
            f"leave it out with --ignore {shown(nameless[0])}"
        )
    check_n_features(source, len(features), wanted.n_features)
    return Roles(features, target, groups)


def _chosen(source: Source, wanted: Sequence[str], places: dict[str, int]) -> tuple[int, ...]:
    absent = [name for name in wanted if name not in places]
    if absent:
        raise source.refusal(
            f"{len(absent)} of {len(wanted)} features are not there: {some(absent)}; "
            f"{_instead(absent[0], list(places))}"
        )
    return tuple(places[name] for name in wanted)


def check_n_features(source: Source, found: int, wanted: int | None) -> None:
    """Refuse a table without features, or with another number of them than was asked for."""
    if not found:
        raise source.refusal("no column is left for features; name fewer in --target, --groups and --ignore")
    if wanted is not None and found != wanted:
        raise source.refusal(
            f"{found:,} features, where {wanted:,} are wanted (--n-features); add or --ignore columns until they agree"
        )


def some(names: Sequence[str], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    text = ", ".join(shown(name) for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most:,} more"


def _instead(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    meant = f"did you mean {shown(close[0])}? " if close else ""
    return f"{meant}The columns are {some(names)}"


# --- cells ---------------------------------------------------------------------------------------------------------


def is_missing(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text.strip().lower() in _MISSING


def is_number(text: str) -> bool:
    """Whether a cell is a number as numpy reads it; "nan" and "inf" are."""
    if not text.isascii() or "_" in text:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def why_not_feature(text: str, column: str | None) -> str | None:
    """Why a cell cannot be a feature's value, and what to do; None where it can.

    `column` is None where --ignore cannot name it.
    """
    if is_missing(text):
        return missing_value(text, column)
    if not is_number(text):
        if is_number(text.replace(",", ".", 1)):
            return f"{shown(text)} has a decimal comma; write a point (2.5, not 2,5)"
        apart = next((mark for mark in ";\t" if mark in text), None)
        if apart:
            return f"{shown(text)} is not a number; if {apart!r} separates cells, pass --delimiter {apart!r}"
        return f"{shown(text)} is not a number; encode the column as numbers{_or_ignore(column)}"
    return None if math.isfinite(float(text)) else infinite_value(text, column)


def missing_value(value: object, column: str | None) -> str:
    """What to say of a feature without a value."""
    cell = f"the cell says {shown(value)}" if str(value).strip() else "the cell is empty"
    return (
        f"{cell}; filling it by what other rows hold (a mean, a median) would be a release, so fill it with a constant "
        f"that you choose without looking{_or_ignore(column)}"
    )


def infinite_value(value: object, column: str | None) -> str:
    """What to say of a feature that is infinite or beyond 64-bit numbers."""
    return (
        f"{shown(value)} is not a finite number; replace it by a bound that you choose without looking"
        f"{_or_ignore(column)}"
    )


def missing_target(value: object) -> str:
    """What to say of a row without a target."""
    return f"the target is missing ({shown(value)}); fill it in, or leave the row out"


def infinite_target(value: object) -> str:
    """What to say of a target that is infinite."""
    return f"the target {shown(value)} is not a finite number; replace it by a bound that you choose without looking"


MISSING_PERSON = "the person's id is missing; every row needs one, so fill it in or leave the row out"


def _or_ignore(column: str | None) -> str:
    return "" if column is None else f", or leave the column out with --ignore {shown(column)}"


def check_finite(source: Source, block: npt.NDArray[np.float64], first_row: int, names: Sequence[str] | None) -> None:
    """Refuse NaN and infinite entries of dense rows, naming the first one's row and column.

    Parameters
    ----------
    source : Source
    block : ndarray of shape (rows, features)
    first_row : int
        The number of the block's first row, from 1.
    names : sequence of str or None
        Names of the features; None: they are numbered from 0.
    """
    finite = np.isfinite(block)
    if finite.all():
        return
    row, place = np.argwhere(~finite)[0]
    value, name = float(block[row, place]), str(place) if names is None else names[place]
    reason = missing_value if math.isnan(value) else infinite_value
    raise source.refusal(reason(value, None if names is None else name), row=first_row + int(row), column=name)


def check_target(source: Source, target: npt.NDArray[Any], first_row: int, column: str) -> None:
    """Refuse targets that are missing or infinite, naming the first one's row."""
    if target.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(target))
    else:
        words, inverse = np.unique(target, return_inverse=True)
        bad = np.flatnonzero(np.array([is_missing(word) for word in words], dtype=bool)[inverse])
    if len(bad):
        value = target[bad[0]].item()
        reason = infinite_target if isinstance(value, float) and not math.isnan(value) else missing_target
        raise source.refusal(reason(value), row=first_row + int(bad[0]), column=column)


def check_people(source: Source, people: npt.NDArray[Any], first_row: int, column: str) -> None:
    """Refuse ids that are missing, naming the first one's row."""
    if people.dtype.kind == "U":
        missing = np.array([is_missing(person) for person in people.tolist()], dtype=bool)
    else:
        missing = people != people  # NaN alone differs from itself
    if missing.any():
        raise source.refusal(MISSING_PERSON, row=first_row + int(missing.argmax()), column=column)
