"""An unfinished folder of blocks: locked by the process that writes it, with a journal by which it can be continued.

``.NAME.partial`` lies next to the folder NAME that is being written, and only its owner may read it:

- ``blocks``: the files of blocks. It is renamed to NAME when all is written.
- ``journal``: a line for the input and the settings (`identity`), then one for each block whose files are on the disk,
  with their SHA-256 and with the place of the next row in the input. Every line has a checksum of itself and of all
  lines before it.
- ``lock``: held as long as a process writes. The system takes it back when the process dies, however it dies.
- ``old``: a folder that is being replaced, for a moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tulle.backends.block_files import check_file, report_write_errors
from tulle.backends.block_folder import MANIFEST, StoredFile, is_block_folder
from tulle.files.durable_writes import locked, sync_folder, write_durably
from tulle.files.tables.in_order import map_in_order
from tulle.files.tables.input_files import TableError

_FORMAT = "tulle conversion 1"
_JOURNAL, _LOCK, _BLOCKS, _OLD = "journal", "lock", "blocks", "old"


@dataclass(frozen=True)
class Place:
    """Where in the input the next row is.

    Attributes
    ----------
    input : int
        Which of the input files.
    taken : int
        How many of its rows are in blocks.
    row, offset : int
        A row at or before it with which the reader can begin, and its byte; 0 and -1 where it reads from the start.
    """

    input: int
    taken: int
    row: int = 0
    offset: int = -1


@dataclass(frozen=True)
class FinishedBlock:
    """A block whose files are on the disk; `place` is None where rows do not come from files."""

    n_rows: int
    files: dict[str, StoredFile]
    place: Place | None


class PartialFolder:
    """The unfinished state of the folder `target`, held by this process.

    Parameters
    ----------
    target : Path
        The folder to be written.
    replace : bool
        Whether a folder of blocks of this name may be replaced.
    identity : dict or None
        What the bytes of the folder depend on, as JSON has it: a state of the same identity is continued. None: it
        cannot be continued.
    restart : bool, default=False
        Whether to delete a state of another identity.
    jobs : int, default=1
        Threads that check finished blocks.

    Attributes
    ----------
    finished : list of FinishedBlock
        What an earlier process had written, each file of which was checked.

    Raises
    ------
    TableError
        Where the name is taken, another process writes it, or the state is of another identity.
    """

    def __init__(
        self, target: Path, replace: bool, identity: dict[str, Any] | None, *, restart: bool = False, jobs: int = 1
    ) -> None:
        self._target, self._replace = target, replace
        self._place = target.with_name(f".{target.name}.partial")
        self.blocks = self._place / _BLOCKS
        self.finished: list[FinishedBlock] = []
        self._checksum = ""
        check_free(target, replace)
        with ExitStack() as stack, report_write_errors(str(target)):
            stack.enter_context(self._hold())
            self._recover()
            check_free(target, replace)
            if not restart:
                self._check_identity(identity)
            if identity is not None and not restart:
                self._read(jobs)
            if self.finished:
                self._keep_finished()
            else:
                self._begin(identity)
            self._held = stack.pop_all()

    # --- the lock ---

    @contextmanager
    def _hold(self) -> Iterator[None]:
        """Hold the lock file that has its name now: another process may have finished and removed the one before."""
        lock = self._place / _LOCK
        while True:
            self._check_owner()
            self._place.mkdir(mode=0o700, exist_ok=True)
            with ExitStack() as stack:
                try:
                    # Kept open, so that no other file can get its number.
                    handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
                    stack.callback(os.close, handle)
                    stack.enter_context(locked(lock, seconds=0))
                    same = os.path.samestat(os.fstat(handle), os.stat(lock))
                except FileNotFoundError:
                    continue
                except TimeoutError:
                    raise TableError(
                        f"{self._target}: another process is writing this folder; wait until it has finished, or "
                        "choose another folder"
                    ) from None
                if same:
                    yield
                    return

    def _check_owner(self) -> None:
        """Refuse a hidden folder that another user may have put there, to get at the rows or to change them."""
        try:
            found = os.lstat(self._place)
        except FileNotFoundError:
            return
        own = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
        if not (own and stat.S_ISDIR(found.st_mode)):
            raise TableError(
                f"{self._target}: {self._place} is a link, a file or another user's folder; delete it, or choose "
                "another folder that other users cannot write to"
            )

    # --- an earlier state ---

    def _recover(self) -> None:
        """Undo a replacement that was cut off between its two renames, and forget what was finished."""
        old = self._place / _OLD
        if old.exists() and not self._target.exists():
            old.rename(self._target)
        elif old.exists():
            shutil.rmtree(old)
        if not self.blocks.is_dir():
            (self._place / _JOURNAL).unlink(missing_ok=True)

    def _check_identity(self, identity: dict[str, Any] | None) -> None:
        """Refuse a state that another conversion may go on with."""
        lines = self._lines()
        left = next(lines, None)
        if left is None or left.get("identity") is None or next(lines, None) is None:
            return  # without a finished block, or never to be continued
        if identity is None or left["identity"] != identity:
            found = left["identity"]
            differs = sorted(key for key in {*found, *(identity or {})} if found.get(key) != (identity or {}).get(key))
            what = f"with other {', '.join(differs)}" if identity is not None else "of a file"
            raise TableError(
                f"{self._target}: {self._place} contains an unfinished conversion {what}; run that one again to "
                "continue it, or pass --restart (restart=True) to delete it"
            )

    def _lines(self) -> Iterator[dict[str, Any]]:
        """The lines of the journal up to the first one that is not whole."""
        try:
            content = (self._place / _JOURNAL).read_bytes()
        except FileNotFoundError:
            return
        checksum = ""
        for line in content.split(b"\n")[:-1]:
            told, _, text = line.partition(b" ")
            checksum = _chain(checksum, text)
            if told.decode("ascii", "replace") != checksum:
                return
            yield json.loads(text)
            self._checksum = checksum

    def _read(self, jobs: int) -> None:
        """The finished blocks of the journal, up to the first one whose files are not what was written."""
        lines = self._lines()
        if (first := next(lines, None)) is None or first.get("format") != _FORMAT:
            return
        for line in lines:
            files = {
                name: StoredFile(of["size"], of["sha256"], of["dtype"], tuple(of["shape"]))
                for name, of in line["files"].items()
            }
            place = None if line["place"] is None else Place(**line["place"])
            self.finished.append(FinishedBlock(line["n_rows"], files, place))

        def check(block: FinishedBlock) -> bool:
            return all(check_file(self.blocks / name, stored) for name, stored in block.files.items())

        good = [*map_in_order(check, self.finished, jobs), False].index(False)
        self.finished = self.finished[:good]

    def _keep_finished(self) -> None:
        """Delete all but finished blocks, from the journal too."""
        lines = list(self._lines())[: len(self.finished) + 1]
        known = {name for block in self.finished for name in block.files}
        for path in self.blocks.iterdir():
            if path.name not in known:
                path.unlink()
        self._checksum = ""
        write_durably(self._place / _JOURNAL, b"".join(self._sealed(line) for line in lines), mode=0o600)

    def _begin(self, identity: dict[str, Any] | None) -> None:
        self._checksum = ""
        first = {"format": _FORMAT, "identity": identity}
        try:
            shutil.rmtree(self.blocks, ignore_errors=True)
            self.blocks.mkdir(mode=0o700)
            write_durably(self._place / _JOURNAL, self._sealed(first), mode=0o600)
        except BaseException:
            self._empty()
            raise

    # --- writing ---

    def _sealed(self, line: dict[str, Any]) -> bytes:
        text = json.dumps(line, sort_keys=True).encode()
        self._checksum = _chain(self._checksum, text)
        return f"{self._checksum} ".encode() + text + b"\n"

    def add(self, block: FinishedBlock) -> None:
        """Note the next block, all of whose files are on the disk."""
        line = {
            "n_rows": block.n_rows,
            "files": {name: asdict(stored) for name, stored in block.files.items()},
            "place": None if block.place is None else asdict(block.place),
        }
        sync_folder(self.blocks)
        with open(self._place / _JOURNAL, "ab") as file:
            file.write(self._sealed(line))
            file.flush()
            os.fsync(file.fileno())

    def take_name(self, manifest: bytes) -> None:
        """Write the manifest, and give the folder its name."""
        sync_folder(self.blocks)
        write_durably(self.blocks / MANIFEST, manifest, mode=0o600)
        check_free(self._target, self._replace)
        if self._target.exists():
            self._target.rename(self._place / _OLD)
        self.blocks.rename(self._target)
        sync_folder(self._target.parent)
        self._remove()

    def discard(self) -> None:
        """Delete what was written so far. A folder that was to be replaced stays, wherever the writer was stopped."""
        self._restore_old()
        self._remove()

    def release(self) -> bool:
        """Leave what was written so far, to be continued. False where the folder has its name already: nothing is left
        then."""
        self._restore_old()
        if not self.blocks.is_dir():
            self._remove()
            return False
        self._held.close()
        return True

    def _restore_old(self) -> None:
        old = self._place / _OLD
        if old.exists() and not self._target.exists():
            old.rename(self._target)

    def _remove(self) -> None:
        self._empty()
        self._held.close()

    def _empty(self) -> None:
        """Delete the hidden folder, the lock last: without it another process may begin to write in the same place."""
        for name in (_BLOCKS, _OLD):
            shutil.rmtree(self._place / name, ignore_errors=True)
        with suppress(OSError):
            for path in self._place.iterdir():
                if path.name != _LOCK:
                    path.unlink()
            (self._place / _LOCK).unlink()
            self._place.rmdir()

    def __str__(self) -> str:
        return str(self._place)


def _chain(checksum: str, text: bytes) -> str:
    """A checksum of a line and of all lines before it."""
    return hashlib.sha256(checksum.encode() + text).hexdigest()


def check_free(target: Path, replace: bool) -> None:
    """Refuse a name that is taken, unless by a folder of blocks that may be replaced."""
    if not target.name or not target.parent.is_dir():
        raise TableError(f"{target}: its parent folder does not exist; create it first, or choose another path")
    if target.is_symlink() or (target.exists() and not is_block_folder(target)):
        raise TableError(
            f"{target}: exists and is not a folder of blocks, so it is not replaced; choose another folder"
        )
    if target.exists() and not replace:
        raise TableError(f"{target}: exists; choose another folder, or replace it (--replace)")
