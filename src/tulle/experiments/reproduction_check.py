"""Which cells of committed results are of today's code, settings and data: read from cells.jsonl, without any fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tulle.datasets.locations import available
from tulle.experiments.catalogue import Data, Published
from tulle.experiments.cell_runner import code_checksums, files_checksum, settings_checksum
from tulle.experiments.cells import Cell, Task
from tulle.experiments.federated_rounds import Rounds
from tulle.experiments.fits import Fits
from tulle.experiments.reproduction import TRIALS, TUNING, experiment, search_for
from tulle.experiments.stored_cells import (
    FILE,
    PARTS,
    CellFile,
    CellFileError,
    StoredCell,
    differing_parts,
    joined_checksum,
    read_cell_file,
)

_RESULTS_DEPEND_ON = "nothing"

State = Literal["current", "out of date", "missing", "failed", "undecided", "not checked"]
STATES: tuple[State, ...] = ("current", "out of date", "missing", "failed", "undecided", "not checked")
# What a script must not miss: a run is needed.
TO_RUN: tuple[State, ...] = ("out of date", "missing", "failed", "undecided")


@dataclass(frozen=True)
class PageState:
    """The state of the cells of one table or figure.

    Attributes
    ----------
    name : str
    trials : int
        That the cells are counted for.
    cells : int
    states : mapping of str to int
        Cells by state. "current": code, settings and data are those of today. "out of date": one of them is not.
        "failed": it failed, and is run again. "undecided": its settings are chosen by a search that has to be run
        first. "not checked": its data is not there; code and settings are those of today.
    parts : mapping of str to int
        Cells that are out of date, by the part that changed: "code", "settings", "data". One cell can be in several.
    written : bool
        Whether the tables were written of all cells of the file.
    message : str
        Why no cells could be read, or whose data is not there; "" otherwise.
    """

    name: str
    trials: int
    cells: int
    states: Mapping[str, int]
    parts: Mapping[str, int] = field(default_factory=dict)
    written: bool = False
    message: str = ""

    @property
    def needs_run(self) -> bool:
        return any(self.states[state] for state in TO_RUN) or not self.written

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "needs_run": self.needs_run}

    def text(self) -> str:
        """The state in one line."""
        said = [f"{self.states[state]:,} {state}" for state in STATES if self.states[state]]
        trials = f"{self.trials} trial{'s' * (self.trials != 1)}"
        words = f"{self.name}: {self.cells:,} cells, {trials}: {', '.join(said)}"
        if changed := [f"{part} of {self.parts[part]:,}" for part in PARTS if self.parts[part]]:
            words += f"; changed: {', '.join(changed)}"
        if not self.needs_run and self.states["not checked"]:
            words += "; code and settings are of today"
        if not self.written and not any(self.states[state] for state in TO_RUN):
            words += "; tables are not written of these cells yet"
        return f"{words}. {self.message}" if self.message else f"{words}."


def check(of: Published, folder: str | Path, *, trials: int | None = None) -> PageState:
    """Compare the stored cells of a table or figure with what today's code, settings and data would be run with.

    Parameters
    ----------
    of : Published
    folder : path
        With the subfolder `of.name`, in which cells.jsonl is.
    trials : int or None, default=None
        At least 1; None: as many as the file has.
    """
    place = Path(folder) / of.name / FILE
    message = ""
    try:
        file = read_cell_file(place, of.name)
        trials = file.trials if trials is None else trials
    except FileNotFoundError:
        file, message = CellFile(place, of.name, of.trials), f"There is no {place}."
    except CellFileError as error:
        file, message = CellFile(place, of.name, of.trials), f"{error}."
    of = replace(of if trials is None else replace(of, trials=trials), data=tuple(_panels(of, file)))
    task = experiment(of)
    found: list[tuple[State, tuple[str, ...]]] = []
    undecided: set[Cell] = set()
    if isinstance(task, (Fits, Rounds)) and (search := search_for(task)) is not None:
        stored = file.parts.get(TUNING, {})
        states = _states(search, stored)
        found += states.values()
        # A failure is a result of a search too.
        unfinished = {
            search.search_of(cell) for cell, (state, _) in states.items() if state in ("missing", "out of date")
        }
        decided = [stored[cell].finished for cell in states if search.search_of(cell) not in unfinished]
        task = task.with_choices(decided)
        undecided = {cell for cell in task.cells() if task.search_of(cell) in unfinished}
    found += _states(task, file.parts.get(TRIALS, {}), undecided).values()
    counted = Counter(state for state, _ in found)
    changed = Counter(part for _, parts in found for part in parts)
    if counted["not checked"]:
        message = f"{message} Not checked, since files of its data were not found: {counted['not checked']:,} cells."
    return PageState(
        of.name,
        of.trials,
        len(found),
        {state: counted[state] for state in STATES},
        {part: changed[part] for part in PARTS},
        file.complete,
        message.strip(),
    )


def _panels(of: Published, file: CellFile) -> Iterable[Data]:
    """Those of the paper's own data where that is there, or where the file has cells of it."""
    known = {cell.data for cells in file.parts.values() for cell in cells}
    for panel in of.data:
        own = panel.real and (available(panel.real["source"]) or panel.real.get("name") in known)
        yield replace(panel, **panel.real, real={}) if own else panel


def _states(
    task: Task, stored: Mapping[Cell, StoredCell], undecided: Collection[Cell] = ()
) -> dict[Cell, tuple[State, tuple[str, ...]]]:
    """The state of every cell of a task, and what of it changed."""
    cells = task.cells()
    code = code_checksums(task, cells)
    return {cell: _state(task, cell, code[cell], stored.get(cell), cell in undecided) for cell in cells}


def _state(
    task: Task, cell: Cell, code: str, stored: StoredCell | None, undecided: bool
) -> tuple[State, tuple[str, ...]]:
    if stored is None:
        return "missing", ()
    try:
        files = files_checksum(task, cell)
    except FileNotFoundError:
        files = None
    today = joined_checksum(code, settings_checksum(task, cell), files or "")
    cannot_tell = {*(["data"] if files is None else []), *(["settings"] if undecided else [])}
    changed = tuple(part for part in differing_parts(stored.checksum, today) if part not in cannot_tell)
    if changed:
        return "out of date", changed
    if undecided:
        return "undecided", ()
    if stored.finished.failed:
        return "failed", ()
    return ("not checked" if files is None else "current"), ()
