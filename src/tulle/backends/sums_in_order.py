"""Sums of many terms of which several machines hold some each, in an order that does not depend on who holds which.

Each machine adds up those of its own terms that can be added without leaving that order. The few sums that remain are
joined on the way to the process that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

Combine = Callable[[Any, Any], Any]


class Sum(NamedTuple):
    """The sum of terms number `start` to `start + size - 1`."""

    start: int
    size: int
    value: Any


def number_terms(values: Iterable[Any], start: int) -> Iterable[Sum]:
    """Terms as sums of one each, the first of them number `start`."""
    return (Sum(start + k, 1, value) for k, value in enumerate(values))


def join_in_turn(sums: Iterable[Sum], combine: Combine) -> list[Sum]:
    """Consecutive sums in the order of `Rows.reduce`: one after another. Without term 0 nothing can be added up yet."""
    joined: list[Sum] = []
    for one in sums:
        if joined and joined[-1].start == 0:
            joined[-1] = _add(joined[-1], one, combine)
        else:
            joined.append(one)
    return joined


def join_in_pairs(sums: Iterable[Sum], combine: Combine) -> list[Sum]:
    """Consecutive sums in the order of `sum_in_pairs`: terms 0 and 1, 2 and 3, ..., pairs of pairs, and so on."""
    waiting: list[Sum] = []
    for one in sums:
        while waiting and waiting[-1].size == one.size and waiting[-1].start % (2 * one.size) == 0:
            one = _add(waiting.pop(), one, combine)
        waiting.append(one)
    return waiting


def take_total(sums: Sequence[Sum], combine: Combine) -> Any:
    """The sum of all terms, of which the joined sums are given: the last ones are added up first."""
    return reduce(lambda total, one: combine(one.value, total), reversed(sums[:-1]), sums[-1].value)


def _add(one: Sum, other: Sum, combine: Combine) -> Sum:
    return Sum(one.start, one.size + other.size, combine(one.value, other.value))
