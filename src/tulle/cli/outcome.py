"""The result of a command, and its failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DONE = 0
BAD_NEWS = 1  # done, and the answer is one that a script must not miss: a claim refuted, a signature false
WRONG_INPUT = 2  # the command line, or a file that it names; nothing was spent
REFUSED = 3  # a ledger's cap would be passed; nothing was released
SPENT = 4  # the budget is spent, or may be, and the result could not be written or did not come
NO_PART = 5  # a federated client took no part in a study, for another reason than its cap; nothing was spent
INTERRUPTED = 130  # Ctrl-C
TERMINATED = 143  # SIGTERM, as kill and schedulers send it
BUG = 70  # a mistake of ours


class UserError(ValueError):
    """The user can mend this: the message says how. Exit code 2."""


class SpentError(Exception):
    """Something failed, for the reason that is its cause, after the budget was spent. Exit code 4, never 2 or 3."""


@contextmanager
def mark_spent(words: Callable[[BaseException], str]) -> Iterator[None]:
    """Mark a failure inside this context as one after a spend, if there was one.

    Parameters
    ----------
    words : callable
        What to say of the spend, given the failure; "" as long as nothing was spent.
    """
    try:
        yield
    except SpentError:  # marked already, inside of this
        raise
    except BaseException as error:
        if not (said := words(error)):
            raise
        error.add_note(said)
        if not isinstance(error, Exception):
            raise  # an interruption has a code of its own
        raise SpentError from error


def output_file(name: str | Path, *read: str | Path | None) -> Path:
    """A file to write, refused before any work is done: no folder to put it in, or one of the files that are read."""
    path = Path(name)
    why = ""
    if not path.parent.is_dir():
        why = "its folder does not exist"
    elif path.is_dir():
        why = "it is a folder"
    elif path.is_symlink() or (path.exists() and not path.is_file()):
        # Files are replaced as a whole: a device such as /dev/null would be removed.
        why = "it is a link, a pipe or a device, and only a plain file can be replaced"
    if why:
        raise UserError(f"{path} cannot be written: {why}")
    if path.is_file() and b'"format": "tulle ledger ' in _beginning(path):
        raise UserError(f"{path} is a ledger and would be overwritten; choose another file with -o")
    if any(path.exists() and path.samefile(other) for other in read if other is not None and Path(other).exists()):
        raise UserError(f"{path} is read by this command and would be overwritten; choose another file with -o")
    return path


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(64)


@dataclass(frozen=True)
class Outcome:
    """The result of a command.

    Attributes
    ----------
    text : str
        For people.
    values : mapping
        The same for machines: plain values, printed by ``--json`` as one JSON object.
    code : int
        The exit code.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    code: int = DONE
