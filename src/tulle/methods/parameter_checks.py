"""Checks of a method's parameters: a clear word on what to change, before any row is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tulle.privacy import is_number

# What a number must do, in words, and whether it does.
Range = tuple[str, Callable[[float], bool]]

POSITIVE: Range = ("be a finite number > 0", lambda value: 0 < value < math.inf)
NOT_NEGATIVE: Range = ("be a finite number >= 0", lambda value: 0 <= value < math.inf)
SHARE: Range = ("lie in (0, 1)", lambda value: 0 < value < 1)
SHARE_OR_NONE: Range = ("lie in [0, 1)", lambda value: 0 <= value < 1)
SHARE_OR_ALL: Range = ("lie in (0, 1]", lambda value: 0 < value <= 1)


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
