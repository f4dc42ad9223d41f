"""Numbers as text: rounded in the direction that keeps a promise true, and as JSON can hold them."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_UP, Context
from typing import Any


def rounded_up(value: float, digits: int = 5) -> str:
    """A few significant digits, never below the value: a printed promise must not be smaller than the proof."""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    text = f"{value:.{digits}g}"
    if float(text) >= value:
        return text
    # Conversion to float is monotone: a decimal number above the value is not below it as a float.
    up = Context(prec=digits, rounding=ROUND_UP).create_decimal_from_float(value)
    return f"{float(up):.{digits}g}"


def rounded_down(value: float, digits: int = 4) -> str:
    """A few significant digits, never above the value: an audit must not print more than it has shown."""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    text = f"{value:.{digits}g}"
    if float(text) <= value:
        return text
    return f"{float(Context(prec=digits, rounding=ROUND_DOWN).create_decimal_from_float(value)):.{digits}g}"


def finite(value: Any) -> Any:
    """The value with infinite numbers written as strings, as JSON needs it."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
