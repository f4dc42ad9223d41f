"""A witness: a second place where the heads of a ledger are written down, and compared before every charge.

The entries of a ledger are a chain of hashes, but anybody who can write the folder can put an older copy back, or
write all of it anew. A witness on another disk, or in another person's hands, catches both: an entry that it knows must
still be in the ledger, with the same head.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tulle.files.durable_writes import sync_folder
from tulle.ledgers.entries import LedgerFileError, Opening, Record

_BLOCK = 1 << 16


class Witness:
    """A file with one line for each entry: hashes of the data set's name and of the opening, number, head and time.

    Parameters
    ----------
    path : path
        Created if it is missing. One file may serve several data sets, but not two ledgers of one name: whichever of
        them it knows, the other would be one that was written anew.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        if self.path.exists() and not self.path.is_file():
            raise LedgerFileError(f"{self.path} cannot be a witness: it is not a plain file")

    def latest(self, opening: Opening) -> tuple[int, str] | None:
        """The largest number that was written down for a ledger, and its head.

        Processes append one after the other, but not always in the order of numbers: all lines in the last block that
        has any are compared.
        """
        name, identity = _identity(opening)
        for block in self._blocks_from_the_end():
            lines = [words for words in (line.split() for line in block) if len(words) == 5 and words[0] == name]
            if any(words[1] != identity for words in lines):
                raise LedgerFileError(
                    f"{self.path} knows another ledger of {opening.dataset!r}: this one was written anew, or it needs "
                    "a witness of its own. Nothing is released"
                )
            if lines:
                return max((int(words[2]), words[3]) for words in lines)
        return None

    def compare(self, opening: Opening, last: Record, read: Callable[[int], Record]) -> int | None:
        """Raise where the witness knows an entry that a ledger does not have; the largest number that it knows."""
        seen = self.latest(opening)
        if seen is None:
            return None
        number, head = seen
        if number > last.number or read(number).head != head:
            raise LedgerFileError(
                f"{self.path} knows entry {number}, head {head[:12]}, of {opening.dataset!r}, and the ledger does not "
                "have it: an older copy was restored, or entries were changed. Nothing is released"
            )
        return number

    def compare_before_charge(self, opening: Opening, last: Record, read: Callable[[int], Record]) -> None:
        """As `compare`; and a witness that has never seen the ledger is not one, unless the ledger has just begun."""
        if self.compare(opening, last, read) is None and (opening.witness or last.number > 0):
            raise LedgerFileError(
                f"{self.path} has no entry of the ledger of {opening.dataset!r}: the ledger was written anew, or it is "
                "another one's witness. To begin with a witness now: tulle ledger verify --witness. Nothing is released"
            )

    def append(self, opening: Opening, record: Record) -> None:
        """Write a head down. When this returns, it is on the disk."""
        is_new = not self.path.exists()
        handle = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
        try:
            # A line that a crash cut off must not swallow this one.
            size = os.fstat(handle).st_size
            start = b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""
            line = f"{' '.join(_identity(opening))} {record.number} {record.head} {record.time}\n".encode()
            if os.write(handle, start + line) != len(start + line):
                raise OSError(28, "could not be written whole", str(self.path))
            os.fsync(handle)
        finally:
            os.close(handle)
        if is_new:
            sync_folder(self.path.parent)

    def _blocks_from_the_end(self) -> Iterator[list[str]]:
        """Whole lines in blocks, the last block first."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            end, rest = file.seek(0, os.SEEK_END), b""
            while end > 0:
                start = max(0, end - _BLOCK)
                file.seek(start)
                block = file.read(end - start) + rest
                # The first line of a block began in the one before it.
                cut = 0 if start == 0 else block.find(b"\n") + 1
                if cut == 0 and start > 0:
                    rest, end = block, start
                    continue
                yield block[cut:].decode(errors="replace").splitlines()
                rest, end = block[:cut], start


def require_witness(opening: Opening) -> None:
    """Raise where a ledger must not be billed without its witness."""
    if opening.witness:
        raise LedgerFileError(
            f"the ledger of {opening.dataset!r} was opened with a witness; pass the same file as witness= (--witness). "
            "Nothing is released"
        )


def _identity(opening: Opening) -> tuple[str, str]:
    """What stands for a ledger in a witness: its data set, and the opening that all its entries follow."""
    return hashlib.sha256(opening.dataset.encode()).hexdigest()[:16], opening.head[:16]
