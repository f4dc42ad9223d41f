"""The finished cells of an experiment in one file that is committed with its results: cells.jsonl.

A later run with the same code, settings and data takes over what the file holds, on another machine too, so that a long
measurement can go on in another session. The file has the values of every cell, also of those that only chose
settings, each with the checksum of all that it depends on. It is text, one line for each cell:

    {"format": ..., "experiment": ..., "trials": ..., "complete": ..., "machines": [...], "sha256": ...}
    {"part": "trials", "data": ..., "method": ..., "checksum": ..., "machine": 0, "values": ["score", ...]}
    [epsilon, trial, seconds, failed, score, ...]

A line in braces is of all cells below it. `complete` says whether tables were written of these cells; `sha256` is of
all else in the file, which is read as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tulle.experiments.cells import Cell, Finished
from tulle.experiments.machine import versions
from tulle.files.durable_writes import write_durably
from tulle.files.number_text import finite

_RESULTS_DEPEND_ON = "nothing"

FILE = "cells.jsonl"
_FORMAT = "tulle cells 1"
PARTS = ("code", "settings", "data")
"""What a checksum has a part for, in this order."""
_DIGITS = 16
# Seconds between writes while cells are run.
_INTERVAL = 60.0


class CellFileError(ValueError):
    """The file cannot be used; the message says why."""


# --- checksums -------------------------------------------------------------------------------------------------------


def joined_checksum(code: str, settings: str, data: str) -> str:
    """One checksum of three, in which each has a place of its own."""
    return "-".join(part[:_DIGITS] for part in (code, settings, data))


def differing_parts(one: str, other: str) -> tuple[str, ...]:
    """In which of code, settings and data two checksums differ; () where they are the same."""
    if one == other:
        return ()
    first, second = one.split("-"), other.split("-")
    if len(first) != len(PARTS) or len(second) != len(PARTS):
        return PARTS
    return tuple(part for part, a, b in zip(PARTS, first, second) if a != b)


# --- the file --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredCell:
    """A finished cell, the checksum of all that it depends on, and the versions that it was found with."""

    finished: Finished
    checksum: str
    machine: Mapping[str, Any]


@dataclass(eq=False)
class CellFile:
    """The finished cells of an experiment, as they are written to a file.

    Attributes
    ----------
    path : path
    experiment : str
    trials : int
    complete : bool
        Whether tables were written of all cells.
    parts : mapping of str to mappings of cells
        "trials", and "tuning" where settings are chosen.
    """

    path: Path
    experiment: str
    trials: int
    complete: bool = False
    parts: dict[str, dict[Cell, StoredCell]] = field(default_factory=dict)

    @cached_property
    def machine(self) -> Mapping[str, Any]:
        """What new cells are found with."""
        return versions()

    def part(self, name: str) -> Part:
        return Part(self, name)

    def finish(self, parts: Iterable[str]) -> None:
        """Write the file when everything is done: nothing is kept of other parts."""
        kept = set(parts)
        self.parts = {name: cells for name, cells in self.parts.items() if name in kept}
        self.complete = True
        self.write()

    def write(self) -> None:
        machines: list[Mapping[str, Any]] = []
        body = "".join(f"{_dumped(line)}\n" for line in self._lines(machines))
        header = {
            "format": _FORMAT,
            "experiment": self.experiment,
            "trials": self.trials,
            "complete": self.complete,
            "machines": machines,
        }
        checked = {**header, "sha256": _file_checksum(header, body)}
        write_durably(self.path, f"{_dumped(checked)}\n{body}".encode())

    def _lines(self, machines: list[Mapping[str, Any]]) -> Iterator[Any]:
        for part in sorted(self.parts):
            groups: dict[str, list[Finished]] = {}
            for stored in self.parts[part].values():
                if stored.machine not in machines:
                    machines.append(stored.machine)
                finished = stored.finished
                said = {
                    "part": part,
                    "data": finished.cell.data,
                    "method": finished.cell.method,
                    "checksum": stored.checksum,
                    "machine": machines.index(stored.machine),
                    "values": list(finished.values),
                }
                groups.setdefault(_dumped(said), []).append(finished)
            for words, group in groups.items():
                yield json.loads(words)
                for one in group:
                    yield [one.cell.epsilon, one.cell.trial, one.seconds, one.failed, *one.values.values()]


def read_cell_file(path: Path, experiment: str) -> CellFile:
    """The cells that a file holds.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    CellFileError
        It is damaged, or of something else.
    """
    try:
        first, _, body = path.read_text(encoding="utf-8").partition("\n")
        header = json.loads(first)
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise CellFileError(f"{path} has a format that this version cannot read")
        if header["sha256"] != _file_checksum({name: said for name, said in header.items() if name != "sha256"}, body):
            raise CellFileError(f"{path} is damaged: its contents do not have the checksum in its first line")
        if header["experiment"] != experiment:
            raise CellFileError(f"{path} is of {header['experiment']}, not of {experiment}")
        file = CellFile(path, experiment, int(header["trials"]), complete=bool(header["complete"]))
        for part, stored in _read_lines(body.splitlines(), header["machines"]):
            cells = file.parts.setdefault(part, {})
            if stored.finished.cell in cells:
                raise CellFileError(f"{path} is damaged: it has a cell twice")
            cells[stored.finished.cell] = stored
    except (CellFileError, FileNotFoundError):
        raise
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise CellFileError(f"{path} cannot be read ({type(error).__name__})") from None
    return file


def _read_lines(lines: Iterable[str], machines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, StoredCell]]:
    group: Mapping[str, Any] = {}
    for line in lines:
        said = json.loads(line)
        if isinstance(said, dict):
            group = said
            continue
        epsilon, trial, seconds, failed, *values = said
        cell = Cell(str(group["data"]), str(group["method"]), None if epsilon is None else float(epsilon), int(trial))
        named = dict(zip(group["values"], values, strict=True))
        finished = Finished(cell, named, float(seconds), str(failed))
        yield str(group["part"]), StoredCell(finished, str(group["checksum"]), machines[group["machine"]])


def _dumped(value: Any) -> str:
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _file_checksum(header: Mapping[str, Any], body: str) -> str:
    return hashlib.sha256(f"{_dumped(header)}\n{body}".encode()).hexdigest()


# --- one part of it, while cells are run -----------------------------------------------------------------------------


@dataclass(eq=False)
class Part:
    """One part of a file, which grows while the cells of a task are run.

    Attributes
    ----------
    file : CellFile
    name : str
    """

    file: CellFile
    name: str
    _order: dict[Cell, int] = field(default_factory=dict)
    _written: float = field(default_factory=time.monotonic)

    def earlier(self, cell: Cell, checksum: str) -> Finished | None:
        """An earlier result that still holds; None where there is none, also where the cell failed."""
        stored = self.file.parts.get(self.name, {}).get(cell)
        holds = stored is not None and stored.checksum == checksum and not stored.finished.failed
        return stored.finished if stored is not None and holds else None

    def begin(self, finished: Mapping[Cell, Finished], checksums: Mapping[Cell, str]) -> None:
        """Keep the finished cells, in the order in which `checksums` has all cells, and forget earlier results."""
        before = self.file.parts.get(self.name, {})
        self.file.complete = False
        self.file.parts[self.name] = {}
        self._order = {cell: place for place, cell in enumerate(checksums)}
        for cell, one in finished.items():
            stored = before.get(cell)
            same = stored is not None and stored.checksum == checksums[cell] and stored.finished.values == one.values
            self._add(one, checksums[cell], stored.machine if stored is not None and same else self.file.machine)

    def add(self, finished: Finished, checksum: str) -> None:
        """Add a cell, and write the file where that was not done for some time."""
        self._add(finished, checksum, self.file.machine)
        if time.monotonic() - self._written > _INTERVAL:
            self.save()

    def save(self) -> None:
        cells = self.file.parts[self.name]
        self.file.parts[self.name] = {cell: cells[cell] for cell in sorted(cells, key=self._order.__getitem__)}
        self.file.write()
        self._written = time.monotonic()

    def _add(self, finished: Finished, checksum: str, machine: Mapping[str, Any]) -> None:
        self.file.parts[self.name][finished.cell] = StoredCell(finished, checksum, machine)
