"""Checks of a method's parameters: a clear word on what to change, before any row is looked at. And their types:
trusted code takes Python's numbers and float64, and no others."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tulle.trusted.plan import is_number

# What a number must do, in words, and whether it does.
Range = tuple[str, Callable[[float], bool]]

POSITIVE: Range = ("be a finite number > 0", lambda value: 0 < value < math.inf)
NOT_NEGATIVE: Range = ("be a finite number >= 0", lambda value: 0 <= value < math.inf)
SHARE: Range = ("lie in (0, 1)", lambda value: 0 < value < 1)
SHARE_OR_NONE: Range = ("lie in [0, 1)", lambda value: 0 <= value < 1)
SHARE_OR_ALL: Range = ("lie in (0, 1]", lambda value: 0 < value <= 1)

T = TypeVar("T")


def to_python_number(value: Any) -> Any:
    """A number of numpy as Python's bool, int or float; anything else as it is."""
    for kind, plain in ((np.bool_, bool), (np.integer, int), (np.floating, float)):
        if isinstance(value, kind):
            return plain(value)
    return value


def with_python_numbers(method: T) -> T:
    """The method, with parameters that are numbers of numpy as Python's; itself where there are none, else a copy."""
    given = method.get_params(deep=False) if hasattr(method, "get_params") else {}
    changed = {name: to_python_number(value) for name, value in given.items() if isinstance(value, np.generic)}
    if not changed:
        return method
    found = copy.copy(method)
    for name, value in changed.items():
        setattr(found, name, value)
    return found


def check_numbers(method: Any, ranges: Mapping[str, Range], optional: Sequence[str] = ()) -> None:
    """Raise unless every parameter in `ranges` is a number in its range, or None where it is optional."""
    for name, (words, allowed) in ranges.items():
        value = getattr(method, name)
        if not (value is None and name in optional) and not (is_number(value) and allowed(value)):
            raise ValueError(f"{type(method).__name__}({name}=...) must {words}, got {value!r}")


def check_whole(method: Any, least: Mapping[str, int], optional: Sequence[str] = ()) -> None:
    """Raise unless every parameter in `least` is an integer of at least that, or None where it is optional."""
    for name, smallest in least.items():
        value = getattr(method, name)
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= smallest
        if not (value is None and name in optional) and not whole:
            raise ValueError(f"{type(method).__name__}({name}=...) must be an integer >= {smallest}, got {value!r}")


def check_choices(method: Any, choices: Mapping[str, tuple[Any, ...]], optional: Sequence[str] = ()) -> None:
    """Raise unless every parameter in `choices` is one of them, or None where it is optional."""
    for name, allowed in choices.items():
        value = getattr(method, name)
        if not (value is None and name in optional) and value not in allowed:
            raise ValueError(f"{type(method).__name__}({name}=...) must be one of {allowed}, got {value!r}")


def check_groups(method: Any, n_features: int) -> npt.NDArray[np.intp] | None:
    """The number of each feature's group, from 0, of the parameter `groups`; None where it is None.

    Raise unless it holds a label for every feature, whole numbers or strings. Labels are public.
    """
    if method.groups is None:
        return None
    labels = np.asarray(method.groups)
    texts = labels.dtype.kind in "OT" and all(isinstance(label, str) for label in labels.ravel())
    if labels.shape != (n_features,) or not (texts or labels.dtype.kind in "iuUS"):
        raise ValueError(
            f"{type(method).__name__}(groups=...) must hold one label, a whole number or a string, for each of the "
            f"{n_features} features; got an array of the shape {labels.shape} and the type {labels.dtype}"
        )
    return np.asarray(np.unique(labels.astype(str) if texts else labels, return_inverse=True)[1], dtype=np.intp)
