"""Which other processes have a ledger open, and whether this one was started by one of them.

A ledger bills the fits of its own process. A worker process cannot bill it and must not fit unbilled, however it was
started: forked, spawned, by a server of forks, by another worker, before the ledger was opened or after. So a process
with an open ledger leaves a marker file, and every fit looks for markers of its ancestors.

Markers lie in one folder per user that depends on no environment variable. Their names carry the process's number and
start time, so that a number that was given to a later process is no ancestor. Ancestors come from /proc. Where they
cannot be read (no /proc, a parent that has died or is out of sight), any marker that could be an ancestor's counts.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Not the folder of TMPDIR, which a worker may not share with its parent, and not that of a login session, which goes
# with it. A marker is left in the first that can be used, and looked for in all of them.
_user = os.geteuid() if hasattr(os, "geteuid") else ""
FOLDERS: tuple[Path, ...] = tuple(Path(place, f"tulle-ledgers-{_user}") for place in ("/tmp", "/var/tmp", "/dev/shm"))
if sys.platform == "win32":  # pragma: no cover
    FOLDERS = (Path.home() / "AppData" / "Local" / "tulle-ledgers",)

_PROC = Path("/proc")

# Child processes inherit it: the processes above that had a ledger open when this one was started. It outlives them.
_INHERITED = "TULLE_LEDGER_PROCESS"

# Processes that adopt the children of processes that end, besides process 1. The kernel does not list them.
_REAPERS = ("systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "conmon", "slurmstepd")


class MarkerError(OSError):
    """No folder for markers can be used, so workers could not learn that a ledger is open."""


@dataclass(frozen=True)
class Process:
    """A process, distinguished from others that had its number.

    Attributes
    ----------
    number : int
    start : int
        When it was started, in ticks of the kernel's clock; 0 where that cannot be read.
    space : str
        A short name of the boot and the number space (container) that `number` is from; "" where /proc is not there.
    """

    number: int
    start: int
    space: str

    def __str__(self) -> str:
        return f"{self.number}-{self.start}-{self.space}"

    @classmethod
    def from_text(cls, text: str) -> Process | None:
        """The process that a marker's name or the environment tells of; None where the text is something else."""
        number, _, rest = text.partition("-")
        start, _, space = rest.partition("-")
        return cls(int(number), int(start), space) if number.isdecimal() and start.isdecimal() else None

    @property
    def is_alive(self) -> bool:
        """Whether it may still run: True if that is unknown."""
        here = this_process()
        if self.space != here.space:
            boots = {self.space.partition(".")[0], here.space.partition(".")[0]}
            return len(boots - {""}) < 2  # of another boot: gone
        if here.space:
            seen = _seen(self.number)
            return seen is not None and seen.start == self.start and seen.state not in "ZX"
        if sys.platform == "win32":  # pragma: no cover
            return True  # there os.kill(number, 0) is Ctrl-C
        try:
            os.kill(self.number, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@dataclass(frozen=True)
class _Seen:
    """What /proc says of a process."""

    number: int
    name: str
    state: str
    parent: int
    session: int
    start: int


def _seen(number: int) -> _Seen | None:
    try:
        text = (_PROC / str(number) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # A process may have brackets and spaces in its name, which stands in brackets.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return _Seen(number, name, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def this_process() -> Process:
    """The process that asks. Not kept: a fork would take it for its own."""
    here = _seen(os.getpid())
    return Process(os.getpid(), 0, "") if here is None else Process(here.number, here.start, _space())


def _space() -> str:
    """Names of this boot and of this process's number space, short enough for a file name."""

    def short(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    try:
        numbers = os.readlink(_PROC / "self/ns/pid")
    except OSError:
        numbers = ""
    return f"{short(boot)}.{short(numbers)}"


def _ancestors() -> tuple[set[tuple[int, int]], float]:
    """Number and start of all ancestors that can be read; and the start of the latest process among them, or of this
    one, whose first parent is unknown (-inf: of none). Only what was started no later can be an ancestor unseen."""
    found: set[tuple[int, int]] = set()
    child = _seen(os.getpid())
    if child is None:
        return found, math.inf
    latest = -math.inf
    while True:
        parent = _seen(child.parent) if child.parent > 0 else None
        if parent is None or parent.start > child.start or _took_over(parent, child):
            latest = max(latest, child.start)
        if parent is None or parent.start > child.start or (parent.number, parent.start) in found:
            return found, latest
        found.add((parent.number, parent.start))
        child = parent


def _took_over(parent: _Seen, child: _Seen) -> bool:
    """Whether the child's first parent may have died, so that this one got it."""
    # A child is in its first parent's session or leads its own; if neither is so, its parent was another.
    foreign = child.session not in (child.number, parent.session)
    return parent.number == 1 or parent.name in _REAPERS or foreign


# --- markers ---------------------------------------------------------------------------------------------------------


def leave_marker() -> None:
    """Tell workers that this process has a ledger open. Again and again: systems clear away files that seem unused."""
    here = this_process()
    place = _own_folder() / str(here)
    handle = os.open(place, os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with open(handle, "w") as file:
        file.write(f"process {here.number}, started at {here.start}, has a ledger of tulle open\n")
    os.environ[_INHERITED] = ",".join(str(one) for one in (*_inherited(here), here))


def take_marker_away() -> None:
    """Tell workers that this process has no ledger open any more."""
    here = this_process()
    for folder in FOLDERS:
        if _is_ours(folder):
            (folder / str(here)).unlink(missing_ok=True)
    above = _inherited(here)
    os.environ[_INHERITED] = ",".join(map(str, above))
    if not above:
        del os.environ[_INHERITED]


def why_not_to_fit() -> str:
    """Why a fit of this process would have to be billed to a ledger of another one; "" where it would not.

    Markers of processes that have ended are removed.
    """
    if _INHERITED not in os.environ and not any(_is_ours(folder) and any(folder.iterdir()) for folder in FOLDERS):
        return ""  # the common case, and reading /proc takes a part of a small fit's time
    here = this_process()
    inherited = _inherited(here)
    for process in inherited:
        if not process.is_alive:
            # Closed or killed with it: unknown. A worker that outlives its parent must not fit without a bill.
            return (
                f"process {process.number}, above this one, had a ledger open when this process was started, and has "
                f"ended since; restart this process, or remove {_INHERITED} from its environment if that ledger was "
                "closed"
            )
    open_ones = {process: place for place, process in _markers() if process != here}
    if not open_ones:
        return ""
    found, latest = _ancestors()
    for process, place in open_ones.items():
        if process in inherited or (process.space == here.space and (process.number, process.start) in found):
            return f"a ledger is open in another process, number {process.number}, and cannot bill this fit"
        if process.start <= latest:
            return (
                f"a ledger is open in another process, number {process.number}, and cannot bill this fit. It is "
                "unknown whether that process started this one, because this process's parent has ended or is not "
                "visible; wait until that ledger is closed, or start the fit from an older shell. If that process is "
                f"not yours, delete {place}"
            )
    return ""


def _markers() -> Iterator[tuple[Path, Process]]:
    """The markers of processes that may still run."""
    for folder in FOLDERS:
        for place in sorted(folder.iterdir()) if _is_ours(folder) else ():
            process = Process.from_text(place.name)
            if process is None:
                continue
            if process.is_alive:
                yield place, process
            else:
                place.unlink(missing_ok=True)


def _inherited(here: Process) -> list[Process]:
    """The processes above that had a ledger open when this one was started."""
    read = [Process.from_text(text) for text in os.environ.get(_INHERITED, "").split(",")]
    return [process for process in read if process is not None and process != here]


def _own_folder() -> Path:
    """The folder for markers of this user, made where it is missing."""
    for folder in FOLDERS:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if _is_ours(folder) and os.access(folder, os.W_OK):
            return folder
    raise MarkerError(
        f"a ledger must write a marker for worker processes, but none of {', '.join(map(str, FOLDERS))} can be used: "
        "each must be a folder owned by this user, not a link, with mode 0700, or must be creatable"
    )


def _is_ours(folder: Path) -> bool:
    """Whether a folder exists and only this user can add or remove markers."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(about.st_mode):
        return False
    return sys.platform == "win32" or (about.st_uid == os.geteuid() and not about.st_mode & 0o077)
