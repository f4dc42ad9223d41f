"""A schema as a dict or as TOML: what is written is read back, and every wrong column is named at once."""

from __future__ import annotations

import tomllib
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_cells import KINDS, OBJECTS, TEXTS, by_itself

from tulle import Schema
from tulle.schema import schema_format
from tulle.schema.column_kinds import Boolean, Categories, ColumnKind, Number, Range
from tulle.schema.schema_format import SchemaError, parse_kind

AGE = {"age": {"range": [18, 95]}}

# Settings of one column that make no sense, and the messages about them.
WRONG: list[tuple[Any, str]] = [
    *[(None, "must be a table"), (7, "must be a table"), ("number", "must be a table"), ([], "must be a table")],
    *[({}, "exactly one of"), ({"missing": 3}, "exactly one of"), ({"range": [0, 1], "text": 4}, "exactly one of")],
    *[
        ("?", "undecided"),
        ({"range": [0, 1], "colour": 1}, "does not take colour"),
        ({"ignore": False}, "must be true"),
    ],
    *[({"range": value}, "range must be a list") for value in (7, "01", {0: 0, 1: 1}, {0, 1}, None, b"01")],
    *[({"range": [0, value]}, "range must be a finite number") for value in ("1", None, True, 10**400, np.inf, [1])],
    *[({"range": [0, 1, 2]}, "list of two"), ({"range": [1, 0]}, "smaller one first"), ({"range": [0, 0]}, "smaller")],
    *[({"range": [0, 1], "missing": 2}, "missing must lie"), ({"range": [0, 1], "missing": "x"}, "missing must be a")],
    *[({"range": [0, 1], "indicator": 1}, "indicator must be true or false")],
    *[({"number": value}, "number must be") for value in (0, -1, "7", None, np.nan)],
    *[
        ({"categories": value}, "categories must be")
        for value in ("ab", [], 7, {"a"}, iter("ab"), ["a", 1], [True], [[1]])
    ],
    *[({"categories": value}, "different, and not blank") for value in (["a", " a"], [1, 1.0], [" "], [np.nan])],
    *[({"categories": [""]}, "a category must be text"), ({"categories": ["\ud800"]}, "UTF-8")],
    *[({"categories": ["a"], "missing": value}, "missing must be one") for value in ("b", b"a", ["a"], 7)],
    *[({"categories": ["a"], "missing": "a", "indicator": True}, "exclude each other")],
    *[({"categories": ["a"], "other": "b"}, "other must be true or false")],
    *[({"boolean": value}, "boolean must be") for value in (False, "yes", ["yes"], None, ["y", "Y"], [["y"], []])],
    *[
        ({"boolean": value}, "for boolean must be")
        for value in (["", "n"], [0.5, "n"], [None, "n"], [["y", None], "n"])
    ],
    *[({"boolean": True, "missing": 1}, "missing must be true or false")],
    *[({"date": value}, "date must be") for value in (7, "2020-01-01", ["2020-01-01"], ["2020", "2021"], [None, None])],
    *[({"date": ["2021-01-01", "2020-01-01"]}, "the earlier one first")],
    *[
        ({"date": ["2020-01-01", "2021-01-01"], "unit": unit}, "unit must be one of")
        for unit in ("hour", None, ["day"])
    ],
    *[({"date": ["2020-01-01", "2021-01-01"], "format": "%H"}, "format must"), ({"date": "?"}, "date must be a list")],
    *[({"date": ["2020-01-01", "2021-01-01"], "missing": day}, "missing must lie") for day in ("1999-01-01", "soon")],
    *[({"text": value}, "text must be the number of bits") for value in (3, 23, 14.0, "14", False, None)],
    *[({"text": 14, "ngrams": value}, "ngrams must be") for value in (0, 6, True, "2")],
    *[({"hashed": value}, "hashed must be the number of bits") for value in (3, 23, True, "10", None)],
    *[({"text": 14, "counts": "yes"}, "counts must be true or false"), ({"text": 14, "missing": 1}, "does not take")],
]


@pytest.mark.parametrize(("settings", "said"), WRONG)
def test_settings_that_make_no_sense(settings: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=f"^'x': .*{said}"):
        Schema({"x": settings})


def test_every_wrong_column_is_named_at_once() -> None:
    columns = {f"column {number}": settings for number, (settings, _) in enumerate(WRONG)}
    with pytest.raises(SchemaError) as raised:
        Schema({**columns, 7: "ignore", "": "text"}, target={"column": "y"}, person=7, words="words")
    assert all(f"'{name}': " in str(raised.value) for name in columns)
    assert all(said in str(raised.value) for said in ("7: ", "'': ", "target needs", "person must", "words must"))


@pytest.mark.parametrize("columns", [None, {}, [], "age", [("age", "text")]])
def test_no_columns(columns: Any) -> None:
    with pytest.raises(SchemaError, match="a schema needs columns"):
        Schema(columns)


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        *[({"target": value}, "target must be a table") for value in ("y", 7, {}, {"column": 7}, [])],
        *[({"target": {"column": "y"}}, "classes .* or range"), ({"target": {"column": "", "range": [0, 1]}}, "text")],
        *[({"target": {"column": "y", "classes": [0, 1], "range": [0, 1]}}, "not both")],
        *[({"target": {"column": "y", "classes": value}}, "target 'y': ") for value in (["a"], "ab", ["a", "a"], 7)],
        *[({"target": {"column": "y", "classes": {"a": 1, "b": [2]}}}, "table of lists")],
        *[({"target": {"column": "y", "classes": {name: ["a"], "b": ["b"]}}}, "name of a class") for name in ("", 7)],
        *[({"target": {"column": "y", "range": value}}, "target 'y': ") for value in ([1, 0], 7, ["a", "b"])],
        *[({"target": {"column": "y", "classes": [0, 1], "missing": 0}}, "does not take missing")],
        *[
            ({"person": value}, "person")
            for value in ("", 7, {}, {"column": "id", "rows": 0}, {"column": "id", "rows": True})
        ],
        *[
            ({"person": {"column": "id", "row": 1}}, "does not take row"),
            ({"words": [1]}, "words"),
            ({"words": 7}, "words"),
        ],
        *[({"person": "id", "target": {"column": "id", "classes": [0, 1]}}, "both target and person")],
        *[
            ({"person": "age"}, "'age' is a feature and"),
            ({"target": {"column": "age", "range": [0, 1]}}, "is a feature"),
        ],
    ],
)
def test_targets_and_people_that_make_no_sense(roles: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        Schema(AGE, **roles)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        *[({"range": (18, 95)}, Range(18, 95)), ({"range": np.array([1, 5])}, Range(1, 5)), ("boolean", Boolean())],
        *[({"range": [np.float32(0), np.int8(5)]}, Range(0, 5)), ({"boolean": [1, 0]}, Boolean(("1",), ("0",)))],
        *[({"categories": np.array([1, 2])}, Categories((1, 2))), ({"categories": [np.str_("a")]}, Categories(("a",)))],
        *[({"number": 7}, Number(7)), (Number(7), Number(7))],
        *[
            (
                {"date": [date(2020, 1, 1), datetime(2021, 1, 1)]},
                parse_kind({"date": ["2020-01-01", "2021-01-01 00:00:00"]}),
            )
        ],
    ],
)
def test_settings_in_other_words(settings: Any, kind: ColumnKind) -> None:
    assert parse_kind(settings) == kind


# --- TOML ------------------------------------------------------------------------------------------------------------


def written_and_read(schema: Schema, folder: Path) -> Schema:
    (folder / "columns.toml").write_text(schema.to_toml(), encoding="utf-8")
    return Schema.from_file(folder / "columns.toml")


MORE_KINDS = [
    Range(-5, 5, missing=0),
    Range(0.1, 1e300),
    Categories((0, 2**60 + 1, 0.5, 1e300), missing=0),
    Number(1e-9),
]


@pytest.mark.parametrize("kind", [*KINDS.values(), *MORE_KINDS], ids=str)
def test_a_kind_is_the_same_when_read_back(kind: ColumnKind, tmp_path: Path) -> None:
    schema = Schema({"x": kind})
    for again in (Schema(**schema.to_dict()), written_and_read(schema, tmp_path)):
        assert parse_kind(again.columns["x"]) == kind
        assert again.to_toml() == schema.to_toml()


# Everything but half of a pair, which no file can hold.
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(
    ['"', "'", "a.b", "a b", "\\", "#", "[x]", "=", "\n", "\r\n", "\t", "\0", "\x7f", "\u2028", "é", "*", "7", "true"]
)
words = names.map(str.strip).filter(bool)


@given(st.lists(names, min_size=3, max_size=5, unique=True), st.lists(words, min_size=2, max_size=4, unique=True))
def test_any_name_and_category_is_written_and_read(drawn: list[str], categories: list[str]) -> None:
    target, person, *columns = drawn
    schema = Schema(
        {name: {"categories": categories, "missing": categories[0]} for name in columns},
        target={"column": target, "classes": categories},
        person={"column": person, "rows": 3},
        words=categories,
    )
    text = schema.to_toml()
    assert Schema(**schema.to_dict()).to_toml() == text
    read = tomllib.loads(text)
    assert read == schema.to_dict()


def test_the_example_in_the_docstring(tmp_path: Path) -> None:
    example = (schema_format.__doc__ or "").split("\n\n", 1)[1]
    path = tmp_path / "columns.toml"
    path.write_text("\ufeff" + example, encoding="utf-8")  # as some editors begin a file
    schema = Schema.from_file(path)
    assert (schema.target_column, schema.person_column, schema.rows_per_person) == ("readmitted", "patient", 3)
    assert list(schema.columns) == ["age", "job", "smoker", "admitted", "note", "ward", "answer_*", "*"]


def test_public_words_of_a_file(tmp_path: Path) -> None:
    """As a list, or as another file with a word a line; what is written can be read."""
    path = tmp_path / "columns.toml"
    (tmp_path / "words.txt").write_text("\ufeffgoal\n\n rocket \n", encoding="utf-8")
    for words in ('["goal", "rocket"]', '"words.txt"'):
        path.write_text(f"words = {words}\n[columns]\nnote = 'text'\n")
        schema = Schema.from_file(path)
        assert list(schema.words) == ["goal", "rocket"]
        path.write_text(schema.to_toml(), encoding="utf-8")
        assert Schema.from_file(path).to_dict() == schema.to_dict()
    path.write_text("words = 'absent.txt'\n[columns]\nnote = 'text'\n")
    with pytest.raises(SchemaError, match="one word a line"):
        Schema.from_file(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *[
            (b"\xff", "is not UTF-8"),
            (b"columns", "is not TOML"),
            (b"x = " + b"[" * 10**5, "is not TOML"),
            (b"", "no .columns."),
        ],
        *[(b"columns = 7", "needs columns"), (b"[columns]\nage = 7\njob = 'text'\nx = {}", "'age': .*'x': ")],
        *[(b"[columns]\n[colour]", "unknown part colour"), (b"[columns]\nage='text'\nage='text'", "is not TOML")],
        *[
            (b"[columns]\nage='text'\n[target]", "target must be"),
            (b"[columns]\nage='text'\n[person]", "person must be"),
        ],
    ],
)
def test_errors_of_a_file_name_it(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_bytes(content)
    with pytest.raises(SchemaError, match=f"(?s)columns.toml.*{said}"):
        Schema.from_file(path)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_schema_that_was_read_back_encodes_the_same(kind: ColumnKind, tmp_path: Path) -> None:
    again = parse_kind(written_and_read(Schema({"x": kind}), tmp_path).columns["x"])
    given = [*TEXTS, *OBJECTS]
    assert np.array_equal(by_itself(again, given), by_itself(kind, given))
