"""No table that tulle writes runs a formula in a spreadsheet, and numbers stay numbers."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tulle
from tulle.files.csv_cells import defuse, write_csv

SOURCE = Path(tulle.__file__).parent
# What a spreadsheet takes as the beginning of a formula, after spaces that it may remove.
RISKY = re.compile("^ *[=+\\-@\t\r\n＝＋－＠]")

FORMULAS = [
    '=HYPERLINK("http://x","y")',
    "+1+cmd|'/c calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "＝1",
    "-",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_written_as_text(text: str) -> None:
    assert defuse(text) == f"'{text}"
    assert defuse(np.str_(text)) == f"'{text}"


@pytest.mark.parametrize(
    "cell",
    [
        *(-1.5, 0, None, -3, np.float64(-2.5), float("-inf"), True),
        *("-1.5", "+2", "-1e-05", "-.5", "-5.", "-inf", "-nan", "1.5E+3"),
        *("", "age", "a=b", "mail@host", "don't", "'quoted'", "probability_=x"),
    ],
)
def test_numbers_and_plain_text_stay_as_they_are(cell: Any) -> None:
    assert defuse(cell) is cell


@given(st.text(max_size=12), st.text(max_size=12))
def test_no_text_begins_like_a_formula_and_no_two_are_written_alike(one: str, other: str) -> None:
    assert not RISKY.match(defuse(one)) or float(one) == float(one) or one.endswith("nan")
    assert (defuse(one) == defuse(other)) == (one == other)


@given(st.text(alphabet="'=-+@ \t1a", max_size=6), st.text(alphabet="'=-+@ \t1a", max_size=6))
def test_likewise_for_what_formulas_are_made_of(one: str, other: str) -> None:
    assert not RISKY.match(defuse(one)) or float(one) == float(one)
    assert (defuse(one) == defuse(other)) == (one == other)


def test_a_table_has_defused_headers_and_cells() -> None:
    text = write_csv(("=a", "b"), [("@x", -1.5), ('-"quoted", with comma', None)])
    assert text.splitlines()[0] == "'=a,b"
    assert list(csv.reader(io.StringIO(text))) == [["'=a", "b"], ["'@x", "-1.5"], ['\'-"quoted", with comma', ""]]
    assert write_csv((), [("a", 1)]) == "a,1\n"


def test_every_table_is_written_by_these_functions() -> None:
    """A writer elsewhere would not defuse."""
    written = re.compile(r"csv\.writer|DictWriter|to_csv|savetxt")
    found = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if written.search(path.read_text("utf-8"))]
    assert found == ["files/csv_cells.py"]
