"""The cells of an experiment: data × method × budget × trial, their seeds, and what was found in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: data × method × budget × trial. All of it is public.

    Attributes
    ----------
    data : str
        Which rows.
    method : str
        Which line of the table.
    epsilon : float or None
        The budget; None without privacy.
    trial : int
        From 0.
    """

    data: str
    method: str
    epsilon: float | None
    trial: int


def seed_from(root: int, *axes: object) -> int:
    """A seed in [0, 2⁶³) that depends on the root seed and the named axes, and on nothing else.

    So a new method or a new budget leaves the seeds of all other cells as they are.
    """
    text = json.dumps([int(root), *(repr(axis) for axis in axes)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def data_seed(root: int, cell: Cell) -> int:
    """For drawing or splitting the rows: the same for every method and budget, so that they are compared in pairs."""
    return seed_from(root, "data", cell.data, cell.trial)


def noise_seed(root: int, cell: Cell) -> int:
    """For the noise of a fit: another one in each cell."""
    epsilon = None if cell.epsilon is None else float(cell.epsilon)
    return seed_from(root, "noise", cell.data, cell.method, epsilon, cell.trial)


class Task(Protocol):
    """The work to run. It is sent to other processes; its arrays are shared with them, not copied."""

    def cells(self) -> Sequence[Cell]:
        """All cells, each once, in the order of the results."""
        ...

    def run(self, cell: Cell) -> Mapping[str, Any]:
        """The values of a cell, as JSON has them; a function of the cell and of what the other methods say of it.

        `seconds` among them is taken for the time of the cell, which else is all that `run` took; it may differ from
        run to run.
        """
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """What a folder of results is of; as JSON has it. A folder with another fingerprint is refused."""
        ...

    def depends(self, cell: Cell) -> Mapping[str, Any]:
        """All settings that the values of a cell depend on; as JSON has it. Where they change, it is run again."""
        ...

    def files_digest(self, cell: Cell) -> str:
        """A checksum of the files that the rows of a cell are read from; "" where it reads none. Where it changes, that
        cell is run again. FileNotFoundError where they are not there.
        """
        ...

    def sources(self, cell: Cell) -> Sequence[str]:
        """The modules whose code, with all that they import, can change the values of a cell."""
        ...


@dataclass(frozen=True)
class Finished:
    """A cell that was run: its values, or in one line why it failed; and a checksum of the code that it depends on."""

    cell: Cell
    values: Mapping[str, Any]
    seconds: float
    failed: str = ""
    code: str = ""
