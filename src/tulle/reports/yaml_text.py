"""Plain values as YAML that readers of versions 1.1 and 1.2 read alike; no text becomes structure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_KEY = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def write_yaml(values: Mapping[str, Any]) -> str:
    """A mapping as a YAML document.

    Parameters
    ----------
    values : mapping
        Of mappings, lists, tuples, str, bool, int, float and None. Keys are words of small letters, digits and
        underscores. Strings are always quoted, so that none is read as a number, a date or a word such as "no".
    """
    return "\n".join(_lines(values, 0)) + "\n"


def _lines(value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not _KEY.fullmatch(key):
                raise ValueError(f"{key!r} is no plain key")
            yield from _entry(f"{indent}{key}:", item, depth)
    else:
        for item in value:
            yield from _entry(f"{indent}-", item, depth)


def _entry(start: str, item: Any, depth: int) -> Iterator[str]:
    nested = isinstance(item, (Mapping, list, tuple))
    if nested and item:
        yield start
        yield from _lines(item, depth + 1)
    elif nested:
        yield f"{start} {'{}' if isinstance(item, Mapping) else '[]'}"
    else:
        yield f"{start} {_scalar(item)}"


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return f'"{"".join(map(_character, value))}"'
    raise TypeError(f"{type(value).__name__} has no place in YAML of plain values")


def _number(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    digits, _, exponent = repr(value).partition("e")
    # YAML 1.1 takes a number with an exponent for text unless it has a point and the exponent a sign.
    digits = digits if "." in digits else f"{digits}.0"
    return digits if not exponent else f"{digits}e{'' if exponent[0] in '+-' else '+'}{exponent}"


def _character(one: str) -> str:
    if one in _ESCAPES:
        return _ESCAPES[one]
    code = ord(one)
    if 0xD800 <= code <= 0xDFFF:  # half a character
        return "\ufffd"
    breaks = code in (0x85, 0x2028, 0x2029, 0xFEFF)
    if 0x20 <= code <= 0x7E or (code >= 0xA0 and not breaks and code not in (0xFFFE, 0xFFFF)):
        return one
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
