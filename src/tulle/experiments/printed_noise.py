"""What the printed noise of DP-SGD-HT and DP-SCSG-HT proves: a kind of experiment without chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tulle.experiments.cells import Cell, Finished
from tulle.methods.published_noise import TrueEpsilon, true_epsilon_table
from tulle.reports.series import Panel, Point, Series

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Published

SCHEMES = ("fixed size", "Poisson")


@dataclass(frozen=True, eq=False)
class Noise:
    """The ε that is proved for each claim, by data, batch sizes and method: a task of the runner."""

    of: Published

    @cached_property
    def _rows(self) -> dict[Cell, TrueEpsilon]:
        return {_noise_cell(row): row for row in true_epsilon_table()}

    def cells(self) -> list[Cell]:
        return list(self._rows)

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.of.name}

    def depends(self, cell: Cell) -> dict[str, Any]:
        return {}

    def files_digest(self, cell: Cell) -> str:
        return ""

    def sources(self, cell: Cell) -> tuple[str, ...]:
        return (true_epsilon_table.__module__,)

    def run(self, cell: Cell) -> dict[str, Any]:
        row = self._rows[cell]
        return {
            "batches": " / ".join(map(str, row.uses)),
            "noise": " / ".join(f"{noise:.3g}" for noise in row.noise),
            "fixed size": row.without_replacement,
            "Poisson": row.poisson,
            "failing": len(row.failed),
            "failing conditions": "; ".join(row.failed),
        }

    def panels(self, finished: Sequence[Finished]) -> tuple[Panel, ...]:
        """The claimed ε on the x axis, the proved one on the y axis; one panel for each data set and batch size."""
        found: dict[str, dict[str, list[Point]]] = {}
        for one in finished:
            if one.failed:
                continue
            claim = one.cell.epsilon or 0.0
            for scheme in SCHEMES:
                proved = float(one.values[scheme])
                notes = ["above the claim"] if proved > claim else []
                failing = int(one.values["failing"])
                notes += [f"{failing} condition{'s' * (failing > 1)} fail{'s' * (failing == 1)}"] if failing else []
                points = found.setdefault(one.cell.data, {}).setdefault(f"{one.cell.method}, {scheme}", [])
                points.append(Point(claim, proved, None, "; ".join(notes)))
        return tuple(
            Panel(
                data,
                "claimed ε",
                "proved ε",
                tuple(Series(name, "unsound", tuple(points)) for name, points in lines.items()),
                log_y=True,
            )
            for data, lines in found.items()
        )


def _noise_cell(row: TrueEpsilon) -> Cell:
    size = " / ".join(map(str, row.batches))
    method = "DP-SGD-HT" if len(row.batches) == 1 else f"DP-SCSG-HT, {row.constants} constants"
    return Cell(f"{row.data}, {row.n_rows:,} rows, batch {size}", method, row.claim, 0)
