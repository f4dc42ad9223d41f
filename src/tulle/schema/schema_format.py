"""A schema as a dict or as TOML: what each column may say, and errors that name all wrong columns at once.

[columns]
age = { range = [18, 95] }
job = { categories = ["clerk", "nurse"], other = true }
smoker = { boolean = true }
admitted = { date = ["2015-01-01", "2026-12-31"], unit = "year" }
note = { text = 14 }
ward = { categories = "private", most = 50 }
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

import numpy as np

from tulle.schema.cell_rules import read_number, read_text
from tulle.schema.column_kinds import Boolean, Categories, ColumnKind, Date, Ignore, Number, Range
from tulle.schema.found_kinds import FoundCategories, FoundWords
from tulle.schema.hashed_kinds import Hashed, Text

_BARE = re.compile(r"[A-Za-z0-9_-]+")

# In the place of categories, or of the size of a hash: the values are to be found with noise, on the bill of the model.
PRIVATE = "private"


class SchemaError(ValueError):
    """A schema that contradicts itself or a table's header. Depends on no cell."""


@dataclass(frozen=True)
class Target:
    """The column to predict: one of `classes` (text or numbers), or a number in `bounds`.

    `names` are the classes of the values in `classes`, where several values are one class; () where each is its own.
    """

    column: str
    classes: Categories | None = None
    bounds: Range | None = None
    names: tuple[Any, ...] = ()

    def class_of_each(self) -> tuple[Any, ...]:
        """The class of each declared value."""
        assert self.classes is not None
        return self.names or self.classes.values

    def describe(self) -> dict[str, Any]:
        """Plain values that `parse_target` reads."""
        if self.bounds is not None:
            return {"column": self.column, "range": [self.bounds.low, self.bounds.high]}
        assert self.classes is not None
        if not self.names:
            return {"column": self.column, "classes": list(self.classes.values)}
        merged: dict[str, list[Any]] = {}
        for value, name in zip(self.classes.values, self.names):
            merged.setdefault(name, []).append(value)
        return {"column": self.column, "classes": merged}


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
            _check_text(name, "the name of a column")
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
    if isinstance(settings, str) and settings == "?":
        raise ValueError('is still undecided; declare it, or write "ignore"')
    if isinstance(settings, str) and settings in ("ignore", "boolean", "text"):
        settings = {settings: True}
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


def _check_text(value: Any, what: str) -> None:
    """Raise unless a value is text that a file can hold."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text that UTF-8 can hold") from None


def _number(value: Any, what: str) -> float:
    number = math.nan
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        number = read_number(value)
    if math.isnan(number):
        raise ValueError(f"{what} must be a finite number, got {value!r}")
    return number


def _list(value: Any, what: str) -> list[Any]:
    """A list, not a set, which has no order, nor an iterator, which can be read once."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return value.tolist()
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{what} must be a list, got {value!r}")
    return [one.item() if isinstance(one, np.generic) else one for one in value]


def _pair(value: Any, what: str) -> list[Any]:
    found = _list(value, what)
    if len(found) != 2:
        raise ValueError(f"{what} must be a list of two values, got {value!r}")
    return found


def _range(value: Any, more: dict[str, Any]) -> Range:
    low, high = _pair(value, "range")
    missing = more.get("missing")
    return Range(
        _number(low, "range"),
        _number(high, "range"),
        None if missing is None else _number(missing, "missing"),
        more.get("indicator", False),
    )


def _categories(value: Any, more: dict[str, Any]) -> Categories | FoundCategories:
    if isinstance(value, str) and value == PRIVATE:
        _check_only(more, "categories", "most")
        return FoundCategories(**more)
    _check_only(more, "categories", "other", "missing", "indicator")
    return _declared_categories(value, more)


def _check_only(more: Mapping[str, Any], word: str, *allowed: str) -> None:
    """Raise where a kind that is declared in two ways has settings of the other one."""
    if unknown := sorted(set(more) - set(allowed)):
        raise ValueError(f"{word} in this form does not take {', '.join(unknown)}; it takes {', '.join(allowed)}")


def _declared_categories(value: Any, more: dict[str, Any]) -> Categories:
    values = _list(value, "categories")
    for one in values:
        if isinstance(one, str):
            _check_text(one, "a category")
    if not isinstance(more.get("missing", ""), (str, int, float)):
        raise ValueError("missing must be one of the categories")
    return Categories(tuple(values), **more)


def _boolean(value: Any, more: dict[str, Any]) -> Boolean:
    if value is True:
        return Boolean(**more)
    true, false = ([word] if isinstance(word, (str, int)) else word for word in _pair(value, "boolean"))
    return Boolean(_words(true), _words(false), **more)


def _words(value: Any) -> tuple[str, ...]:
    words = [read_text(word) if isinstance(word, (str, int)) else None for word in _list(value, "words for boolean")]
    for word in words:
        _check_text(word, "a word for boolean")
    return tuple(map(str, words))


def _date(value: Any, more: dict[str, Any]) -> Date:
    since, until = map(str, _pair(value, "date"))  # TOML has dates of its own
    missing = more.get("missing")
    return Date(
        since,
        until,
        more.get("unit", "day"),
        more.get("format"),
        None if missing is None else str(missing),
        more.get("indicator", False),
    )


def _text(value: Any, more: dict[str, Any]) -> Text | FoundWords:
    if isinstance(value, str) and value == PRIVATE:
        _check_only(more, "text", "most", "ngrams")
        return FoundWords(**more)
    _check_only(more, "text", "ngrams", "counts")
    return Text(14 if value is True else value, **more)


def _ignore(value: Any, more: dict[str, Any]) -> Ignore:
    if value is not True:
        raise ValueError("ignore must be true")
    return Ignore()


_KINDS: dict[str, tuple[Callable[[Any, dict[str, Any]], ColumnKind], tuple[str, ...]]] = {
    "range": (_range, ("missing", "indicator")),
    "number": (lambda value, more: Number(_number(value, "number"), **more), ("indicator",)),
    "categories": (_categories, ("other", "missing", "indicator", "most")),
    "boolean": (_boolean, ("missing", "indicator")),
    "date": (_date, ("unit", "format", "missing", "indicator")),
    "text": (_text, ("ngrams", "counts", "most")),
    "hashed": (lambda value, more: Hashed(value, **more), ("indicator",)),
    "ignore": (_ignore, ()),
}


def parse_target(target: Any) -> Target | None:
    """The column to predict."""
    if target is None or isinstance(target, Target):
        return target
    if not isinstance(target, Mapping) or not isinstance(target.get("column"), str):
        raise SchemaError("target must be a table with column (a name), and with classes or range")
    if unknown := sorted(set(map(str, target)) - {"column", "classes", "range"}):
        raise SchemaError(f"target does not take {', '.join(unknown)}; it takes column, classes and range")
    if ("classes" in target) == ("range" in target):
        raise SchemaError("target needs classes (for a classification) or range (for a regression), not both")
    try:
        _check_text(target["column"], "column")
        if "range" in target:
            return Target(target["column"], bounds=_range(target["range"], {}))
        given: Any = target["classes"]
        names: tuple[str, ...] = ()
        if isinstance(given, Mapping):  # of several values each
            if not all(isinstance(values, (list, tuple)) for values in given.values()):
                raise ValueError("classes must be a list, or a table of lists of values")
            for name in given:
                _check_text(name, "the name of a class")
            names = tuple(name for name, values in given.items() for _ in values)
            given = [value for values in given.values() for value in values]
        classes = _declared_categories(given, {})
        if len(set(names or classes.values)) < 2:
            raise ValueError("a target needs at least two classes")
        return Target(target["column"], classes, names=names)
    except (ValueError, TypeError) as error:
        raise SchemaError(f"target {target['column']!r}: {error}") from None


def parse_person(person: Any) -> Person | None:
    """The column with people's ids."""
    if person is None or isinstance(person, Person):
        return person
    if isinstance(person, str):
        person = {"column": person}
    if not isinstance(person, Mapping) or not isinstance(person.get("column"), str):
        raise SchemaError("person must be the name of a column, or a table with column and rows")
    if unknown := sorted(set(map(str, person)) - {"column", "rows"}):
        raise SchemaError(f"person does not take {', '.join(unknown)}; it takes column and rows")
    rows = person.get("rows", 1)
    try:
        _check_text(person["column"], "column")
        if type(rows) is not int or rows < 1:
            raise ValueError("rows must be a whole number >= 1")
    except ValueError as error:
        raise SchemaError(f"person: {error}") from None
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
        plain = (kind.true, kind.false) == (Boolean.true, Boolean.false)
        found = {"boolean": True if plain else [list(kind.true), list(kind.false)], "missing": kind.missing}
        found["indicator"] = kind.indicator
    elif isinstance(kind, Date):
        found = {"date": [kind.since, kind.until], "unit": kind.unit_name, "format": kind.pattern}
        found |= {"missing": kind.missing, "indicator": kind.indicator}
    elif isinstance(kind, FoundCategories):
        return {"categories": PRIVATE, "most": kind.most}
    elif isinstance(kind, FoundWords):
        found = {"text": PRIVATE, "most": kind.most, "ngrams": kind.ngrams}
    elif isinstance(kind, Hashed):
        found = {"hashed": kind.bits, "indicator": kind.indicator}
    else:
        assert isinstance(kind, Text)
        found = {"text": kind.bits, "ngrams": kind.ngrams, "counts": kind.counts}
    usual = {"unit": "day", "ngrams": 1}
    first, *rest = found
    # 0 is no False here: `missing` may be 0.
    told = [name for name in rest if not (found[name] is None or found[name] is False)]
    return {first: found[first]} | {name: found[name] for name in told if found[name] != usual.get(name)}


def read_toml(text: str) -> dict[str, Any]:
    """The parts of a schema file: columns, target, person and words."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SchemaError(f"it is not TOML: {error}") from None
    except RecursionError:
        raise SchemaError("it is not TOML that can be read: too many brackets in each other") from None
    if unknown := sorted(set(found) - {"columns", "target", "person", "words"}):
        raise SchemaError(f"unknown part {', '.join(unknown)}; a schema has words, [columns], [target] and [person]")
    if "columns" not in found:
        raise SchemaError("it has no [columns]")
    return found


def write_toml(columns: Mapping[str, Any], target: Any = None, person: Any = None, words: Any = None) -> str:
    """The text that `read_toml` reads."""
    lines = [f"words = {_value(words)}", ""] if words else []
    lines += ["[columns]", *(f"{_key(name)} = {_value(settings)}" for name, settings in columns.items())]
    for part, found in (("target", target), ("person", person)):
        if found is not None:
            lines += ["", f"[{part}]", *(f"{_key(name)} = {_value(value)}" for name, value in found.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, except for DEL, which TOML requires to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(float(value))
    return _quoted(str(value))
