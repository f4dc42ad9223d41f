"""The cases that pairwise chooses: every pair of values, few of them, the same every time, under pytest's own ids."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from pairwise import cover_pairs, draw_cases, reduce_to_pairs

SIZES = [(2,), (3, 2), (2, 2, 2), (3, 3, 3), (2,) * 10, (65, 5, 2, 2), (7, 5, 3, 2), (1, 4, 1, 3), (4, 3, 2, 2, 2, 2)]


def pairs_of(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    return {pair for row in rows for pair in combinations(enumerate(row), 2)}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_pair_of_values_occurs(sizes: tuple[int, ...]) -> None:
    rows = list(product(*map(range, sizes)))
    chosen = cover_pairs(rows)
    assert pairs_of([rows[place] for place in chosen]) == pairs_of(rows)
    assert chosen == sorted(set(chosen)) == cover_pairs(rows)


@pytest.mark.parametrize(
    ("sizes", "most"),
    [((3, 2), 6), ((2, 2, 2), 4), ((3, 3, 3), 11), ((2,) * 10, 10), ((65, 5, 2, 2), 325), ((7, 5, 3, 2), 38)],
    ids=str,
)
def test_there_are_hardly_more_than_the_two_largest_parameters_need(sizes: tuple[int, ...], most: int) -> None:
    assert len(cover_pairs(list(product(*map(range, sizes))))) <= most


def test_drawn_cases_hold_every_pair_of_values() -> None:
    axes = {"a": [*range(12)], "b": [*"uvwxyz"], "c": [None, 0.5, 1, 2], "d": [True, False]}
    cases = draw_cases(axes)
    assert pairs_of([tuple(case.values()) for case in cases]) == pairs_of(list(product(*axes.values())))
    assert 72 <= len(cases) <= 90
    assert cases == draw_cases(axes)


def test_without_a_pair_nothing_is_missing_but_what_is_always_wanted() -> None:
    assert cover_pairs([(0,), (1,)]) == []
    assert cover_pairs([(0,), (1,)], always=[1]) == [1]
    assert cover_pairs([]) == []


def test_what_is_always_wanted_stays_and_counts() -> None:
    rows = list(product(range(3), range(3), range(2)))
    for wanted in ([0, 1, 2], [17], list(range(18))):
        chosen = cover_pairs(rows, always=wanted)
        assert set(wanted) <= set(chosen)
        assert pairs_of([rows[place] for place in chosen]) == pairs_of(rows)
    assert len(cover_pairs(rows, always=[0])) <= 10


def test_only_pairs_that_can_occur_are_asked_for() -> None:
    """Parameters that exclude each other: (1, 1, ...) is in no candidate."""
    rows = [row for row in product(range(2), range(2), range(2)) if row[:2] != (1, 1)]
    chosen = [rows[place] for place in cover_pairs(rows)]
    assert pairs_of(chosen) == pairs_of(rows)
    assert len(chosen) < len(rows)


def ids_of(test: Any) -> list[str]:
    (mark,) = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    return [row.id for row in mark.args[1]]


def make_test(where: Any = lambda values: True, always: tuple[str, ...] = ()) -> Any:
    @reduce_to_pairs(always, where)
    @pytest.mark.usefixtures("tmp_path")
    @pytest.mark.parametrize("letter", "abc")
    @pytest.mark.parametrize(("x", "y"), [(0, None), (1.5, int)])
    @pytest.mark.parametrize("flag", [True, False], ids=["on", "off"])
    def one(letter: str, x: float, y: Any, flag: bool) -> None: ...

    return one


def test_other_marks_stay() -> None:
    assert [mark.name for mark in make_test().pytestmark] == ["parametrize", "usefixtures"]


def test_values_come_under_their_names() -> None:
    (mark, _) = make_test().pytestmark
    assert mark.args[0] == ["flag", "x", "y", "letter"]
    assert {row.id: row.values for row in mark.args[1]}["on-0-None-a"] == (True, 0, None, "a")


def test_a_named_case_is_kept() -> None:
    dropped = "on-1.5-int-a"
    assert dropped not in ids_of(make_test())
    assert dropped in ids_of(make_test(always=(dropped,)))
    with pytest.raises(ValueError, match="no such cases"):
        make_test(always=("on-2-int-a",))


def test_cases_that_are_none_are_left_out() -> None:
    ids = ids_of(make_test(where=lambda values: values["letter"] != "b" or values["flag"]))
    assert "b" in {one[-1] for one in ids}
    assert not any(one.startswith("off") and one.endswith("b") for one in ids)


def test_cases_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="give ids"):

        @reduce_to_pairs()
        @pytest.mark.parametrize("x", [1, "1"])
        def one(x: Any) -> None: ...


def test_ids_are_those_of_pytest(tmp_path: Path) -> None:
    """Collected by pytest as a product and by pairs: the second are some of the first, in the same order."""
    body = """
import enum, pytest
from pairwise import reduce_to_pairs

class Colour(enum.Enum):
    RED = 1

ITEMS = [1, -2.5, 1e-300, float("nan"), None, True, "a b", "", len, int, Colour.RED, (1, 2), [3], {{}}, "x"]
{decorator}
@pytest.mark.parametrize("first", ITEMS)
@pytest.mark.parametrize(("x", "y"), [(1, [2]), pytest.param(3, 4, id="three"), ("u", {{}})])
@pytest.mark.parametrize("z,w", [(1, 2), (3, 4)], ids=lambda value: None if value == 2 else f"<{{value}}>")
@pytest.mark.parametrize("last", [0, 1], ids=["zero", None])
def test_one(first, x, y, z, w, last): ...
"""
    collected = []
    for name, decorator in (("product", ""), ("pairs", "@reduce_to_pairs()")):
        (tmp_path / f"test_{name}.py").write_text(body.format(decorator=decorator), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", f"test_{name}.py"]
        ran = subprocess.run(
            command,
            cwd=tmp_path,
            env={"PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=True,
        )
        collected.append([line.partition("::")[2] for line in ran.stdout.splitlines() if "::" in line])
    whole, pairs = collected
    assert len(whole) == 180
    assert 45 <= len(pairs) <= 60
    assert [one for one in whole if one in pairs] == pairs
