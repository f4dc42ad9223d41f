"""Sums whose terms several machines hold: the same bits as in one list, however terms are shared out."""

from __future__ import annotations

import operator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tulle.backends.sums_in_order import join_in_pairs, join_in_turn, number_terms, take_total
from tulle.trusted.rows import sum_in_pairs

# Of very different sizes: nearly every other order of additions gives other bits.
TERMS = [float(value) for value in np.random.default_rng(0).standard_normal(70) * 10.0 ** np.arange(70)[::-1] ** 0.5]


def share_out(count: int, rng: np.random.Generator) -> list[slice]:
    """Terms in up to seven groups of consecutive ones, some of them empty."""
    cuts = np.sort(rng.integers(0, count + 1, rng.integers(0, 7)))
    return [slice(start, end) for start, end in pairwise([0, *cuts.tolist(), count])]


def total(join: Any, terms: list[Any], groups: list[slice], combine: Any = operator.add, at_once: int = 3) -> Any:
    """As on a cluster: each group first, then some groups together, in pairs in any grouping, in turn from the left."""
    sums = [join(number_terms(terms[group], group.start), combine) for group in groups]
    while len(sums) > 1:
        if join is join_in_turn:
            sums = [join([one for part in sums[:at_once] for one in part], combine), *sums[at_once:]]
        else:
            parts = [sums[k : k + at_once] for k in range(0, len(sums), at_once)]
            sums = [join([one for part in some for one in part], combine) for some in parts]
    return take_total(sums[0], combine)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13, 64, 70])
def test_groups_do_not_change_a_bit(count: int) -> None:
    terms, rng = TERMS[:count], np.random.default_rng(count)
    for _ in range(50):
        groups = share_out(count, rng)
        assert total(join_in_pairs, terms, groups) == sum_in_pairs(terms)
        assert total(join_in_turn, terms, groups) == reduce(operator.add, terms)


def test_other_orders_would_be_seen() -> None:
    """Sums of groups that are simply added up have other bits: the test above can fail."""
    rng, found = np.random.default_rng(1), set()
    for _ in range(20):
        sums = [reduce(operator.add, TERMS[group]) for group in share_out(70, rng) if TERMS[group]]
        found.add(reduce(operator.add, sums))
    assert len(found) > 1
    assert sum_in_pairs(TERMS) != reduce(operator.add, TERMS)


def test_terms_stay_in_their_order() -> None:
    terms, rng = [[k] for k in range(40)], np.random.default_rng(2)
    for join in (join_in_pairs, join_in_turn):
        for _ in range(20):
            assert total(join, terms, share_out(40, rng)) == list(range(40))


def test_a_group_sends_few_sums_in_pairs() -> None:
    """About twice the logarithm of its terms."""
    for start in range(40):
        assert len(join_in_pairs(number_terms([1.0] * 1000, start), operator.add)) <= 2 * 10
