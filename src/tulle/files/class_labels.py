"""The set of class labels: declared, or taken from the rows and published.

Which class a label is of is decided in `tulle.trusted.intake`, label by label, given this set.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.files.array_checks import check_values
from tulle.files.error_messages import show_setting
from tulle.trusted.intake import (
    MISSING,
    NUMBERS,
    Cells,
    GetKey,
    get_key,
    index_keys,
    read_cells,
    read_finite_number,
    unwrap,
)


def get_text_key(cell: Any) -> Hashable:
    """The key of a cell of a file: the number that text spells, if it does. In a file every cell is text, and whether a
    column was read as numbers can depend on another row."""
    key = get_key(cell)
    if isinstance(key, str):
        number = read_finite_number(key)
        return key if math.isnan(number) else number
    return key


def check_classes(classes: Any, key: GetKey = get_key) -> npt.NDArray[Any]:
    """The classes that somebody declares, in order; an error where they are not at least two, all words or all numbers.

    Parameters
    ----------
    classes : sequence
        Public.
    key : callable, default=get_key
        What they are compared by.
    """
    if isinstance(classes, (str, bytes)) or not hasattr(classes, "__len__"):
        raise ValueError(f"classes must be at least two different strings, or numbers, got {show_setting(classes)}")
    values = [cell.item() if isinstance(cell, np.generic) else cell for cell in read_cells(classes, "classes").tolist()]
    words = [isinstance(value, str) for value in values]
    numbers = [isinstance(value, (int, float)) and math.isfinite(value) for value in values]
    different = len({key(value) for value in values}) == len(values)
    if not (len(values) >= 2 and different and (all(words) or all(numbers))):
        raise ValueError(f"classes must be at least two different strings, or numbers, got {show_setting(classes)}")
    return _sort_classes(values)


def _sort_classes(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Different words, or numbers, in order, as an array that holds them as they are."""
    values = sorted(values)
    array = np.array(values)
    if array.tolist() == values:
        return array
    array = np.empty(len(values), dtype=object)  # numbers beyond 64 bits, words that end in a zero byte
    array[:] = values
    return array


def find_classes(labels: Cells) -> npt.NDArray[Any]:
    """The classes that labels hold, in order: published, since a model says which classes it has.

    Raises
    ------
    ValueError
        Where some label is no class: missing, infinite, a fraction, or a word among numbers.
    """
    keys = check_values(labels, "y")
    words = [isinstance(key, str) for key in keys]
    numbers = [isinstance(key, (int, float)) for key in keys]
    if not (all(words) or all(numbers)):
        raise ValueError(
            "Unknown label type: labels must be all strings or all numbers; declare classes=..., and rows with any "
            "other label contribute nothing"
        )
    if any(isinstance(key, float) and not key.is_integer() for key in keys):
        raise ValueError(
            "Unknown label type: continuous. A classifier expects discrete classes, but some labels are fractions; "
            "fit a regression, or declare classes=..."
        )
    if labels.dtype.kind != "O":
        return np.unique(labels)
    return _sort_classes([unwrap(label) for label in find_different(labels)])


def find_different(of: Cells) -> Cells:
    """Cells with every key that there is, the first of each."""
    _, places = index_keys(of)
    return of[np.unique(places, return_index=True)[1]]


def read_text_cells(given: Cells) -> Cells:
    """Cells of a file with text that spells numbers as numbers."""
    if given.dtype.kind in NUMBERS:
        return given
    keys, places = index_keys(given, get_text_key)
    values = np.empty(len(keys), dtype=object)
    values[:] = [None if key is MISSING else key for key in keys]
    return values[places]
