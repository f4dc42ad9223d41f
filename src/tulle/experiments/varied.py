"""Figures in which one quantity at a time leaves its usual value: which settings there are, and their panels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Setting = Mapping[str, float]


@dataclass(frozen=True)
class Varied:
    """Quantities by their symbols, such as p, s* and ε.

    Attributes
    ----------
    usual : mapping
        The value of each, where it is another's turn to vary.
    values : mapping
        The values that each takes in its own panel.
    """

    usual: Setting
    values: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        if unknown := [name for name in self.values if name not in self.usual]:
            raise ValueError(f"{unknown[0]} varies but has no usual value; add one to usual")

    def settings(self) -> list[dict[str, float]]:
        """All of them, each once."""
        found: list[dict[str, float]] = []
        for _, settings in self.panels():
            found += [setting for setting in settings.values() if setting not in found]
        return found

    def panels(self) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
        """What varies and the fixed values, in words; and the settings, by the value that varies."""
        for name, values in self.values.items():
            fixed = named({other: value for other, value in self.usual.items() if other != name})
            yield f"{name} varies; {fixed}", {named({name: value}): {**self.usual, name: value} for value in values}


def named(setting: Setting) -> str:
    """A setting in words, such as "p = 1,000, s* = 10"."""
    return ", ".join(f"{name} = {value:,g}" for name, value in setting.items())
