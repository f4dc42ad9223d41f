"""YAML of plain values: what is read is what was written, whatever the text is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from page_samples import HOSTILE_NAMES

from tulle.reports.yaml_text import write_yaml

KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
WHOLE = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WHOLE
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
@example({"a": ["no", "1e5", "2026-01-01", "~", "null", "- x", "a: b", "#", "'", '"', "\\", "{", "%"]})
@example({"a": [1e-6, 1e16, 5e-324, 1.0, -0.0, math.inf, -math.inf, 10**30]})
@example({"a": "\x85\u2028\u2029\ufeff\x00\x1b\n\t\r\ufffe\uffff😀"})
def test_what_is_written_is_read(values: dict[str, Any]) -> None:
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load(write_yaml(values))
    assert read == values
    assert repr(read) == repr(values)  # a float stays a float, and true is not 1


def test_half_a_character_is_replaced() -> None:
    yaml = pytest.importorskip("yaml")
    names = [name.replace("\ud800", "\ufffd") for name in HOSTILE_NAMES]
    assert yaml.safe_load(write_yaml({"names": list(HOSTILE_NAMES)})) == {"names": names}


@pytest.mark.parametrize("value", [{1, 2}, b"x", object()])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="has no place in YAML"):
        write_yaml({"a": value})


@pytest.mark.parametrize("key", ["", "a b", "a:", "A", "1", "no\n"])
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is no plain key"):
        write_yaml({key: 1})
