"""Which settings that were chosen from a grid sit at one of its ends, where a wider grid might have a better one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_RESULTS_DEPEND_ON = "nothing"

Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Chosen:
    """Settings that were chosen for a line of a table at one ε.

    Attributes
    ----------
    data, line : str
    epsilon : float or None
    settings : mapping
        Empty where the defaults were chosen.
    grids : sequence of mappings
        What they were chosen from.
    printed : bool
        Whether the grids are the paper's.
    """

    data: str
    line: str
    epsilon: float | None
    settings: Mapping[str, Any]
    grids: Sequence[Grid]
    printed: bool = False

    def ends(self) -> dict[str, str]:
        """The parameters whose chosen value is the least or the greatest of all that were tried, and which of them."""
        found = {}
        for name, value in self.settings.items():
            tried = {one for grid in self.grids for one in grid.get(name, ())}
            numbers = {one for one in tried if isinstance(one, (int, float))}
            if len(tried) > 1 and value in numbers and value in (min(numbers), max(numbers)):
                found[name] = "least" if value == min(numbers) else "greatest"
        return found


def describe_ends(chosen: Iterable[Chosen]) -> tuple[str, ...]:
    """Notes for readers of a table: how many chosen settings sit at an end, and where; none where none were chosen."""
    notes = []
    for printed, whose in ((False, "grids of ours"), (True, "the paper's grid")):
        cells = [one for one in chosen if one.printed == printed]
        if not cells:
            continue
        at_end = [one for one in cells if one.ends()]
        words = f"Settings at an end of {whose}: {len(at_end)} of {len(cells)} tuned cells"
        notes.append(f"{words}: {'; '.join(_by_line(at_end))}." if at_end else f"{words}.")
    return tuple(notes)


def _by_line(cells: Iterable[Chosen]) -> list[str]:
    """One entry for each data set and line: "DP-GD-HT (step 100, the greatest, at ε = 2, 4)"."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in cells:
        for name, end in one.ends().items():
            places = found.setdefault((one.data, one.line), {})
            budget = "no ε" if one.epsilon is None else f"{one.epsilon:g}"
            places.setdefault(f"{name} {one.settings[name]:g}, the {end}", []).append(budget)
    several = len({data for data, _ in found}) > 1
    return [
        f"{f'{data}, ' if several else ''}{line.removesuffix(' (oracle-tuned, not private)')} ("
        + "; ".join(f"{words}, at ε = {', '.join(budgets)}" for words, budgets in places.items())
        + ")"
        for (data, line), places in found.items()
    ]
