"""Pairwise testing: instead of a product of parameters, cases in which every pair of values occurs.

    @reduce_to_pairs()
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("storage", STORAGES)
    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_fit(loss, storage, fit_intercept): ...

Cases have the ids that the product would give them, so that a planted bug in mutants*.py can name one; `always` lists
ids that stay whatever else covers their pairs. Worst cases of a sensitivity stay a product: there three parameters
matter together.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from enum import Enum
from itertools import combinations, product
from typing import Any, TypeVar

import numpy as np
import pytest

Test = TypeVar("Test", bound=Callable[..., Any])


def cover_pairs(candidates: Sequence[Sequence[Hashable]], always: Collection[int] = ()) -> list[int]:
    """Choose candidates so that every pair of values that occurs in one of them occurs in a chosen one.

    Greedy: the candidate with the most pairs that are still missing comes next, the first of several; the same
    candidates always give the same choice.

    Parameters
    ----------
    candidates : sequence of sequences
        The possible cases: one value for each parameter.
    always : collection of int
        Places of candidates that are chosen first.

    Returns
    -------
    list of int
        The places of the chosen candidates, in ascending order.
    """
    # Two equal values of different parameters are different: a value goes with the place of its parameter.
    pairs = [set(combinations(enumerate(candidate), 2)) for candidate in candidates]
    missing = set().union(*pairs).difference(*(pairs[place] for place in always))
    chosen = set(always)
    # What a candidate adds never grows while others are chosen: only the best needs to be counted again.
    best_first = [(-len(found), place) for place, found in enumerate(pairs)]
    heapq.heapify(best_first)
    while missing:
        _, place = heapq.heappop(best_first)
        gain = len(pairs[place] & missing)
        if best_first and (-gain, place) > best_first[0]:
            heapq.heappush(best_first, (-gain, place))
            continue
        chosen.add(place)
        missing -= pairs[place]
    return sorted(chosen)


def draw_cases(axes: dict[str, list[Any]], seed: int = 0, tries: int = 30) -> list[dict[str, Any]]:
    """Cases in which every pair of values of two axes occurs, where the product is too long to be listed.

    The next case holds the first pair that is missing; of some drawn ones with that pair, it is the best.
    """
    rng = np.random.default_rng(seed)
    names = list(axes)
    missing = {
        (a, i, b, k) for a, b in combinations(names, 2) for i in range(len(axes[a])) for k in range(len(axes[b]))
    }

    def met(chosen: dict[str, int]) -> set[tuple[str, int, str, int]]:
        return {(a, chosen[a], b, chosen[b]) for a, b in combinations(names, 2)}

    rows = []
    while missing:
        a, i, b, k = min(missing)
        drawn = [{name: int(rng.integers(len(axes[name]))) for name in names} | {a: i, b: k} for _ in range(tries)]
        best = max(drawn, key=lambda chosen: len(met(chosen) & missing))
        missing -= met(best)
        rows.append({name: axes[name][best[name]] for name in names})
    return rows


def name_value(name: str, place: int, value: Any) -> str:
    """What pytest calls a value of a parameter in a test's id."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float, complex, Enum)):
        return str(value)
    return str(getattr(value, "__name__", f"{name}{place}"))


def list_cases(mark: pytest.Mark) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    """The parameters of one parametrize mark, and an id and the values of each of its cases."""
    names, rows = mark.args
    single = isinstance(names, str) and "," not in names
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    given = mark.kwargs.get("ids")
    fixed = None if given is None or callable(given) else list(given)
    cases = []
    for place, row in enumerate(rows):
        own_id, values = None, (row,) if single else row
        # What pytest.param makes; its class has no public name.
        if hasattr(row, "marks"):
            if row.marks:
                raise ValueError("reduce_to_pairs takes no marks of single cases")
            own_id, values = row.id, row.values
        if own_id is None and fixed is not None and fixed[place] is not None:
            own_id = str(fixed[place])
        if own_id is None:
            renamed = [given(value) if callable(given) else None for value in values]
            own_id = "-".join(
                name_value(name, place, value if new is None else new)
                for name, value, new in zip(names, values, renamed)
            )
        cases.append((own_id, dict(zip(names, values))))
    repeated = [own_id for own_id, count in Counter(own_id for own_id, _ in cases).items() if count > 1]
    if repeated:
        raise ValueError(f"give ids: several cases of {names} are called {repeated}")
    return names, cases


def reduce_to_pairs(
    always: Collection[str] = (), where: Callable[[dict[str, Any]], bool] = lambda values: True
) -> Callable[[Test], Test]:
    """A decorator above parametrize marks: cases that cover all pairs of their values instead of the product.

    Parameters
    ----------
    always : collection of str
        Ids of the product that are kept.
    where : callable
        Whether a case of the product, given the values by their names, is one at all. A case that would return or be
        skipped at once must not count as the one in which a pair of values was tested.
    """

    def reduce_marks(test: Test) -> Test:
        stored: list[pytest.Mark] = test.pytestmark  # type: ignore[attr-defined]
        marks = [mark for mark in stored if mark.name == "parametrize"]
        if any(set(mark.kwargs) - {"ids"} for mark in marks):
            raise ValueError("reduce_to_pairs knows no argument of parametrize but ids")
        listed = [list_cases(mark) for mark in marks]
        names = [name for own, _ in listed for name in own]
        cases: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}
        # Next to the function stands the mark that pytest varies last and names first.
        for places in product(*(range(len(own)) for _, own in listed)):
            parts = [own[place] for place, (_, own) in zip(places, listed)]
            values = {name: value for _, part in parts for name, value in part.items()}
            if where(values):
                cases["-".join(part for part, _ in parts)] = places, values
        ids = list(cases)
        if unknown := set(always) - set(ids):
            raise ValueError(f"no such cases: {sorted(unknown)}")
        chosen = cover_pairs([places for places, _ in cases.values()], [ids.index(one) for one in always])
        rows = [pytest.param(*(cases[ids[place]][1][name] for name in names), id=ids[place]) for place in chosen]
        others = [mark for mark in stored if mark.name != "parametrize"]
        test.pytestmark = [pytest.mark.parametrize(names, rows).mark, *others]  # type: ignore[attr-defined]
        return test

    return reduce_marks
