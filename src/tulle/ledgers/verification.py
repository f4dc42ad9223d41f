"""Checking a whole ledger: every entry, the chain of their hashes, the sums, and a head that was printed earlier.

| what was done to the folder | what notices |
| --- | --- |
| an entry was edited, cut or deleted, not the last | `verify`; at the next charge, where it is the last one read |
| the last entries were deleted | the file `last`, at the next charge and in `verify`; a head; a witness |
| an older copy was restored | a process that has the ledger open; a head; a witness |
| an old entry was put back under a later number | `verify`, and the next charge |
| all entries were written anew | a head that was printed before; a witness; nothing else |
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tulle.ledgers.chain import LAST, Chain, entry_name
from tulle.ledgers.entries import LedgerEntry, LedgerFileError, Record, entry_after
from tulle.ledgers.witness import Witness

# A head may be shortened where people copy it; not to what occurs by chance.
_SHORTEST_HEAD = 8


@dataclass(frozen=True)
class Verified:
    """A ledger that was found whole.

    Attributes
    ----------
    dataset : str
    last : Opening or LedgerEntry
    found_at : int or None
        The number of the entry whose head was asked for.
    witnessed : str
        What the witness says.
    """

    dataset: str
    last: Record
    found_at: int | None = None
    witnessed: str = ""


def verify(
    root: str | os.PathLike[str], dataset: str, *, head: str = "", witness: str | os.PathLike[str] | None = None
) -> Verified:
    """Check every entry of a data set's ledger, or raise `LedgerFileError` with the first fault.

    Parameters
    ----------
    root : path
    dataset : str
    head : str, default=""
        A head, or its first digits, that a report or a receipt has printed: it must be in the ledger.
    witness : path or None, default=None
        Its last head must be in the ledger. It is given the ledger's last head afterwards, also where it knew none.
    """
    head = head.lower().rstrip("…")
    if head and (len(head) < _SHORTEST_HEAD or set(head) - set("0123456789abcdef")):
        raise ValueError(f"a head has at least {_SHORTEST_HEAD} hexadecimal digits, got {head!r}")
    chain = Chain(root, dataset)
    last = chain.last(chain.opening)
    before: Record = chain.opening
    found_at = 0 if head and before.head.startswith(head) else None
    for number in range(1, last.number + 1):
        entry = chain.read(number)
        assert isinstance(entry, LedgerEntry)
        _check_link(chain, before, entry)
        if head and entry.head.startswith(head):
            found_at = number
        before = entry
    _check_names(chain, last.number)
    if head and found_at is None:
        raise LedgerFileError(
            f"no entry of {dataset!r} has the head {head}: the ledger was written anew, or an older copy was restored, "
            "or the head is another ledger's"
        )
    return Verified(chain.opening.dataset, last, found_at, _check_witness(chain, last, witness))


def _check_link(chain: Chain, before: Record, entry: LedgerEntry) -> None:
    """Raise unless an entry follows the one before: its hash, the sums and the cap."""
    if entry.previous != before.head:
        raise LedgerFileError(
            f"entry {entry.number} of {chain.opening.dataset!r} does not follow entry {before.number}: one of them was "
            "changed or replaced"
        )
    # All that follows from the charge is computed again: sums, cap and proved epsilon.
    again = entry_after(before, entry, chain.opening.cap)
    if (again.totals, again.epsilon_so_far) != (entry.totals, entry.epsilon_so_far):
        raise LedgerFileError(f"the sums in entry {entry.number} of {chain.opening.dataset!r} are wrong")


def _check_names(chain: Chain, last: int) -> None:
    """Raise where the folder holds entries beyond the last one: then one in between is missing."""
    expected = {entry_name(number) for number in range(last + 1)}
    found = {path.name for path in chain.folder.iterdir() if not path.name.startswith(".") and path.name != LAST}
    if beyond := sorted(found - expected):
        raise LedgerFileError(
            f"{chain.folder} holds {beyond[0]}, but entry {last + 1} is missing: entries were deleted, or the file "
            "does not belong there"
        )


def _check_witness(chain: Chain, last: Record, path: str | os.PathLike[str] | None) -> str:
    if path is None:
        return ""
    witness = Witness(path)
    seen = witness.compare(chain.opening, last, chain.read)
    if seen is None or seen < last.number:
        witness.append(chain.opening, last)
    return f"{'knew nothing of it' if seen is None else f'agrees up to entry {seen}'}; it has entry {last.number} now"


def remove_leftovers(root: str | os.PathLike[str], dataset: str) -> tuple[list[Path], list[Path]]:
    """Delete unfinished files of processes that were killed: which were deleted, and which are too young to tell."""
    removed: list[Path] = []
    kept: list[Path] = []
    for path, is_old in Chain(root, dataset).leftovers():
        if is_old:
            path.unlink(missing_ok=True)
        (removed if is_old else kept).append(path)
    return removed, kept
