"""The folder of a ledger: one file per entry, appended by any number of processes on any number of hosts.

    budget/                        the ledgers of several data sets
        ledger.json                a random key for hints
        hints/                     which rows were billed under which name; see `Hints`
        visits-2026-0f3c…/         one data set
            00000000.json          the opening: name and cap
            00000001.json          the first charge
            last                   a number that the last entry is not below

A charge writes its entry to a temporary file, brings it to the disk and claims the next number by `link()`. Where
another process was first, it reads that one's entry and checks the cap again. Nothing is locked. Entries are never
changed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import secrets
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tulle import __version__
from tulle.files.claimed_names import claim_name, exists, leftovers
from tulle.ledgers.entries import (
    FORMAT,
    Charge,
    LedgerEntry,
    LedgerFileError,
    Opening,
    Record,
    entry_after,
    from_json,
    new_opening,
    now,
    to_json,
)
from tulle.trusted.plan import Budget

ROOT, HINTS, LAST = "ledger.json", "hints", "last"
OLD_FORMATS = ("tulle ledger 1", "tulle ledger 2")

# How long to read again where a file system says that an entry is there and does not show it.
_PATIENCE = 30.0


class Chain:
    """The entries of one data set in a folder.

    Parameters
    ----------
    root : path
        The folder of the ledger.
    dataset : str
    """

    def __init__(self, root: str | os.PathLike[str], dataset: str) -> None:
        self.root = find_root(root)
        self.folder = self.root / folder_name(dataset)
        try:
            content = (self.folder / entry_name(0)).read_bytes()
        except FileNotFoundError:
            raise ValueError(_no_account(self.root, dataset)) from None
        opening = self._parse(content, entry_name(0))
        if not isinstance(opening, Opening) or folder_name(opening.dataset) != self.folder.name:
            raise self._error("is not the opening of this data set", 0)
        self.opening = opening

    @classmethod
    def create(cls, root: str | os.PathLike[str], dataset: str, cap: Budget, *, witness: bool = False) -> Chain:
        """Open an account for a data set, in a folder that is created if it is missing."""
        place = make_root(root)
        folder = place / folder_name(dataset)
        with suppress(FileExistsError):
            folder.mkdir(mode=stat.S_IMODE(place.stat().st_mode))
        opening = new_opening(dataset, cap, witness=witness)
        if not claim_name(folder, entry_name(0), to_json(opening), _file_mode(place)):
            known = cls(place, dataset).opening.dataset
            raise ValueError(
                f"{place.name} already has an account for {known!r}, and its cap cannot be changed; open it "
                "with FileLedger(path, dataset), or choose a clearly different name for data of other people"
            )
        return cls(place, dataset)

    # --- reading ---

    def read(self, number: int) -> Record:
        """The record of this number."""
        path = self.folder / entry_name(number)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise self._error("is missing", number) from None
        record = self._parse(content, path.name)
        if record.number != number:
            raise self._error(f"says that it is entry {record.number}", number)
        return record

    def last(self, known: Record) -> Record:
        """The last record. It raises unless the entries up to it still hold a record that is known."""
        pointer = self._pointer()
        start = max(known.number, 0 if pointer is None else pointer[0])
        for number, head in (p for p in ((known.number, known.head), pointer) if p is not None):
            if self.read(number).head != head:
                raise self._error("is not the one that was there before; was an older copy restored?", number)
        return self.read(self._find_last(start))

    def _find_last(self, low: int) -> int:
        """The largest number that is taken, from one that is: numbers have no gaps, and no folder is listed."""
        step = 1
        while self._is_taken(low + step):
            low, step = low + step, 2 * step
        while step > 1:
            step //= 2
            if self._is_taken(low + step):
                low += step
        return low

    def _is_taken(self, number: int) -> bool:
        return exists(self.folder / entry_name(number))

    def _parse(self, content: bytes, name: str) -> Record:
        try:
            return from_json(content, self.opening.cap if name != entry_name(0) else None)
        except Exception as error:
            raise LedgerFileError(
                f"{name} in {self.folder.name} is not a valid entry of a tulle ledger: {error}. Nothing is released "
                "until it is repaired. An older copy lacks the releases made after it"
            ) from error

    def _error(self, what: str, number: int) -> LedgerFileError:
        return LedgerFileError(
            f"entry {number} ({entry_name(number)}) in {self.folder} {what}. Nothing is released; tulle ledger verify "
            "checks all entries"
        )

    # --- appending ---

    def append(self, propose: Callable[[Record], Charge], known: Record) -> LedgerEntry:
        """Append the charge that is proposed in view of the last record. When this returns, it is on the disk.

        Parameters
        ----------
        propose : callable
            Called again where another process appends first. It raises where the cap would be passed.
        known : Record
            The last one that the caller has seen.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            last = self.last(known)
            if last.number > known.number:  # others go on: that is no reason to give up
                known, deadline = last, time.monotonic() + _PATIENCE
            entry = entry_after(last, propose(last), self.opening.cap)
            if claim_name(self.folder, entry_name(entry.number), to_json(entry), _file_mode(self.root)):
                self._point_at(entry)
                return entry
            if time.monotonic() > deadline:
                raise self._error("cannot be created and cannot be read: its folder does not show it", entry.number)
            # Shared out unevenly, so that two processes do not meet again.
            time.sleep(0.001 * (1 + secrets.randbelow(4)))

    def _pointer(self) -> tuple[int, str] | None:
        """A number and head that were the last ones at some time; None where the file says nothing."""
        try:
            number, head = (self.folder / LAST).read_text().split()
            return int(number), head
        except (OSError, ValueError):
            return None

    def _point_at(self, entry: LedgerEntry) -> None:
        """Best effort: it saves time, and tells of entries that were deleted since."""
        partial = self.folder / f".{LAST}.{os.getpid()}-{secrets.token_hex(6)}.partial"
        with suppress(OSError):
            try:
                partial.write_text(f"{entry.number} {entry.head}\n")
                partial.chmod(_file_mode(self.root))
                os.replace(partial, self.folder / LAST)
            finally:
                partial.unlink(missing_ok=True)

    def leftovers(self) -> Iterator[tuple[Path, bool]]:
        """Unfinished files of processes that were killed, and whether each is old enough to be deleted."""
        return leftovers(self.folder)

    def __repr__(self) -> str:
        return f"Chain({str(self.root)!r}, {self.opening.dataset!r})"


# --- the folder of all data sets -------------------------------------------------------------------------------------


def find_root(path: str | os.PathLike[str]) -> Path:
    """The folder of a ledger; an error that says what else is there."""
    found = Path(os.path.realpath(path))
    if not exists(found):
        raise FileNotFoundError(2, "no such ledger; create it with FileLedger.create or: tulle ledger open", str(found))
    if found.is_file():
        if old_format(found):
            raise LedgerFileError(
                f"{found.name} is a ledger of an older tulle; convert it: tulle ledger convert {found.name} NEW_FOLDER"
            )
        raise LedgerFileError(f"{found.name} is a file; a ledger is a folder that tulle ledger open creates")
    if not found.is_dir() or not exists(found / ROOT):
        raise LedgerFileError(f"{found.name or found} is not a ledger: it has no {ROOT}; see tulle ledger open")
    _read_root(found)
    return found


def make_root(path: str | os.PathLike[str]) -> Path:
    """The folder of a ledger, created if it is missing. Folders that hold something else are refused."""
    found = Path(os.path.realpath(path))
    if not exists(found):
        found.mkdir(mode=0o700)
    elif found.is_dir() and not exists(found / ROOT) and any(found.iterdir()):
        raise LedgerFileError(
            f"{found.name or found} holds other files; choose a new or an empty folder for the ledger"
        )
    if found.is_dir() and not exists(found / ROOT):
        values = {"format": FORMAT, "key": secrets.token_hex(16), "time": now(), "version": __version__}
        claim_name(found, ROOT, json.dumps(values, indent=1).encode(), _file_mode(found))
    return find_root(found)


def _read_root(root: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads((root / ROOT).read_bytes())
        if values["format"] != FORMAT:
            raise ValueError(f"it is a {values['format']}, of another tulle; upgrade")
        bytes.fromhex(values["key"])
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerFileError(f"{root.name}/{ROOT} is not that of a tulle ledger: {error}") from error
    return values


def hint_key(root: Path) -> bytes:
    """The key of the ledger's hints."""
    return bytes.fromhex(_read_root(root)["key"])


def datasets(root: str | os.PathLike[str]) -> list[str]:
    """The names of all data sets that have an account in a ledger."""
    folders = sorted(one for one in find_root(root).iterdir() if one.is_dir() and one.name != HINTS)
    openings = []
    for folder in folders:
        with suppress(FileNotFoundError):  # its process was killed before the account was there
            openings.append(from_json((folder / entry_name(0)).read_bytes()))
    return [one.dataset for one in sorted(openings, key=lambda one: one.time) if isinstance(one, Opening)]


def old_format(path: Path) -> bool:
    """Whether a file is a ledger of an older tulle."""
    with path.open("rb") as file:
        beginning = file.read(64)
    return any(f'"{name}"'.encode() in beginning for name in OLD_FORMATS)


def entry_name(number: int) -> str:
    return f"{number:08d}.json"


def folder_name(dataset: str) -> str:
    """The folder of a data set: the same for all names that look alike, so that these have one account."""
    looks = looks_like(dataset)
    words = re.sub(r"[^a-z0-9]+", "-", unicodedata.normalize("NFKD", looks).encode("ascii", "ignore").decode())
    return f"{words.strip('-')[:40]}-{hashlib.sha256(looks.encode()).hexdigest()[:12]}"


def looks_like(dataset: str) -> str:
    """A name reduced to what a reader distinguishes: names that look alike are equal."""
    return " ".join(unicodedata.normalize("NFKC", dataset).casefold().split())


def _file_mode(root: Path) -> int:
    """Files can be read and written by those who can use the folder."""
    return stat.S_IMODE(root.stat().st_mode) & 0o666


def _no_account(root: Path, dataset: str) -> str:
    known = datasets(root)
    near = difflib.get_close_matches(dataset, known, 1)
    guess = f"; did you mean {near[0]!r}?" if near else f" (it has {', '.join(map(repr, known)) or 'none'})"
    return (
        f"{root.name} has no account for {dataset!r}{guess} Open one with FileLedger.create, or: tulle ledger open "
        f"{root.name} --dataset {dataset} --epsilon ... --delta ..."
    )
