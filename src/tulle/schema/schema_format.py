"""A schema as a dict or as TOML: what each column may say, and errors that name all wrong columns at once.

[columns]
age = { range = [18, 95] }
job = { categories = ["clerk", "nurse"], other = true }
smoker = { boolean = true }
admitted = { date = ["2015-01-01", "2026-12-31"], unit = "year" }
note = { text = 14 }
"answer_*" = { range = [1, 5], missing = 3 }
"*" = "ignore"

[target]
column = "readmitted"
classes = ["no", "yes"]

[person]
column = "patient"
rows = 3
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tulle.schema.column_kinds import Boolean, Categories, ColumnKind, Date, Ignore, Number, Range, Text

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class SchemaError(ValueError):
    """A schema that contradicts itself or a table's header. Depends on no cell."""


@dataclass(frozen=True)
class Target:
    """The column to predict: one of `classes` (text or numbers), or a number in `bounds`."""

    column: str
    classes: Categories | None = None
    bounds: Range | None = None


@dataclass(frozen=True)
class Person:
    """The column with people's ids, and how many rows of one person are used."""

    column: str
    rows: int = 1


def parse_columns(columns: Any) -> dict[str, ColumnKind]:
    """The kinds of columns, by name or pattern, in order. Raises `SchemaError` with every column that is wrong."""
    if not isinstance(columns, Mapping) or not columns:
        raise SchemaError("a schema needs columns: a dict from names to settings, as in {'age': {'range': [18, 95]}}")
    kinds: dict[str, ColumnKind] = {}
    wrong = []
    for name, settings in columns.items():
        try:
            if not isinstance(name, str) or not name:
                raise ValueError("the name of a column must be text")
            kinds[name] = parse_kind(settings)
        except (ValueError, TypeError) as error:
            wrong.append(f"{name!r}: {error}")
    if wrong:
        raise SchemaError("; ".join(wrong))
    return kinds


def parse_kind(settings: Any) -> ColumnKind:
    """The kind of one column."""
    if isinstance(settings, ColumnKind):
        return settings
    if settings == "?":
        raise ValueError('is still undecided; declare it, or write "ignore"')
    if settings == "ignore":
        return Ignore()
    if settings == "boolean":
        return Boolean()
    if settings == "text":
        return Text()
    if not isinstance(settings, Mapping):
        raise ValueError(
            f"must be a table such as {{ range = [0, 1] }}, 'ignore', 'boolean' or 'text', got {settings!r}"
        )
    words = [word for word in _KINDS if word in settings]
    if len(words) != 1:
        raise ValueError(f"needs exactly one of {', '.join(_KINDS)}, got {', '.join(map(str, settings)) or 'nothing'}")
    make, allowed = _KINDS[words[0]]
    if unknown := sorted(set(map(str, settings)) - {words[0], *allowed}):
        raise ValueError(
            f"{words[0]} does not take {', '.join(unknown)}; it takes {', '.join(allowed) or 'nothing else'}"
        )
    for name in ("indicator", "other", "counts"):
        if not isinstance(settings.get(name, False), bool):
            raise ValueError(f"{name} must be true or false")
    return make(settings[words[0]], {name: value for name, value in settings.items() if name != words[0]})


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, got {value!r}")
    return float(value)


def _pair(value: Any, what: str) -> tuple[Any, Any]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or len(value) != 2:
        raise ValueError(f"{what} must be a list of two values, got {value!r}")
    return value[0], value[1]


def _range(value: Any, more: dict[str, Any]) -> Range:
    low, high = _pair(value, "range")
    missing = more.get("missing")
    return Range(
        _number(low, "range"),
        _number(high, "range"),
        None if missing is None else _number(missing, "missing"),
        more.get("indicator", False),
    )


def _categories(value: Any, more: dict[str, Any]) -> Categories:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise ValueError(f"categories must be a list, got {value!r}")
    return Categories(tuple(value), **more)


def _boolean(value: Any, more: dict[str, Any]) -> Boolean:
    if value is True:
        return Boolean(**more)
    true, false = ([word] if isinstance(word, (str, int)) else word for word in _pair(value, "boolean"))
    return Boolean(tuple(map(str, true)), tuple(map(str, false)), **more)


def _date(value: Any, more: dict[str, Any]) -> Date:
    since, until = map(str, _pair(value, "date"))  # TOML has dates of its own
    missing = more.pop("missing", None)
    return Date(
        since,
        until,
        more.get("unit", "day"),
        more.get("format"),
        None if missing is None else str(missing),
        more.get("indicator", False),
    )


def _text(value: Any, more: dict[str, Any]) -> Text:
    return Text(14 if value is True else value, **more)


def _ignore(value: Any, more: dict[str, Any]) -> Ignore:
    if value is not True:
        raise ValueError("ignore must be true")
    return Ignore()


_KINDS: dict[str, tuple[Callable[[Any, dict[str, Any]], ColumnKind], tuple[str, ...]]] = {
    "range": (_range, ("missing", "indicator")),
    "number": (lambda value, more: Number(_number(value, "number"), **more), ("indicator",)),
    "categories": (_categories, ("other", "missing", "indicator")),
    "boolean": (_boolean, ("missing", "indicator")),
    "date": (_date, ("unit", "format", "missing", "indicator")),
    "text": (_text, ("ngrams", "counts")),
    "ignore": (_ignore, ()),
}


def parse_target(target: Any) -> Target | None:
    """The column to predict."""
    if target is None or isinstance(target, Target):
        return target
    if not isinstance(target, Mapping) or not isinstance(target.get("column"), str):
        raise SchemaError("target must be a table with column, and with classes or range")
    if unknown := sorted(set(map(str, target)) - {"column", "classes", "range"}):
        raise SchemaError(f"target does not take {', '.join(unknown)}; it takes column, classes and range")
    if ("classes" in target) == ("range" in target):
        raise SchemaError("target needs classes (for a classification) or range (for a regression), not both")
    try:
        if "range" in target:
            return Target(target["column"], bounds=_range(target["range"], {}))
        classes = _categories(target["classes"], {})
        if len(classes.values) < 2:
            raise ValueError("a target needs at least two classes")
        return Target(target["column"], classes)
    except (ValueError, TypeError) as error:
        raise SchemaError(f"target: {error}") from None


def parse_person(person: Any) -> Person | None:
    """The column with people's ids."""
    if person is None or isinstance(person, Person):
        return person
    if isinstance(person, str) and person:
        return Person(person)
    if not isinstance(person, Mapping) or not isinstance(person.get("column"), str):
        raise SchemaError("person must be the name of a column, or a table with column and rows")
    if unknown := sorted(set(map(str, person)) - {"column", "rows"}):
        raise SchemaError(f"person does not take {', '.join(unknown)}; it takes column and rows")
    rows = person.get("rows", 1)
    if type(rows) is not int or rows < 1:
        raise SchemaError("person: rows must be a whole number >= 1")
    return Person(person["column"], rows)


# --- as plain values and as TOML -------------------------------------------------------------------------------------


def describe_kind(kind: ColumnKind) -> Any:
    """The settings of a kind as plain values that `parse_kind` reads."""
    found: dict[str, Any]
    if isinstance(kind, Ignore):
        return "ignore"
    if isinstance(kind, Range):
        found = {"range": [kind.low, kind.high], "missing": kind.missing, "indicator": kind.indicator}
    elif isinstance(kind, Number):
        found = {"number": kind.bound, "indicator": kind.indicator}
    elif isinstance(kind, Categories):
        found = {"categories": list(kind.values), "other": kind.other, "missing": kind.missing}
        found["indicator"] = kind.indicator
    elif isinstance(kind, Boolean):
        usual = (kind.true, kind.false) == (Boolean.true, Boolean.false)
        found = {"boolean": True if usual else [list(kind.true), list(kind.false)], "missing": kind.missing}
        found["indicator"] = kind.indicator
    elif isinstance(kind, Date):
        found = {"date": [kind.since, kind.until], "unit": kind.unit_name, "format": kind.pattern}
        found |= {"missing": kind.missing, "indicator": kind.indicator}
    else:
        assert isinstance(kind, Text)
        found = {"text": kind.bits, "ngrams": kind.ngrams, "counts": kind.counts}
    plain = {"unit": "day", "ngrams": 1}
    first, *rest = found
    return {first: found[first]} | {
        name: found[name] for name in rest if found[name] not in (None, False) and found[name] != plain.get(name)
    }


def read_toml(text: str) -> dict[str, Any]:
    """The parts of a schema file: columns, target and person."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SchemaError(f"it is not TOML: {error}") from None
    if unknown := sorted(set(found) - {"columns", "target", "person"}):
        raise SchemaError(f"unknown part {', '.join(unknown)}; a schema has [columns], [target] and [person]")
    if "columns" not in found:
        raise SchemaError("it has no [columns]")
    return found


def write_toml(columns: Mapping[str, Any], target: Any = None, person: Any = None) -> str:
    """The text that `read_toml` reads."""
    lines = ["[columns]", *(f"{_key(name)} = {_value(settings)}" for name, settings in columns.items())]
    for part, found in (("target", target), ("person", person)):
        if found is not None:
            lines += ["", f"[{part}]", *(f"{_key(name)} = {_value(value)}" for name, value in found.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
