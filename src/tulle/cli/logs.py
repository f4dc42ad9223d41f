"""Options of every command about its output, and the log of a command: JSON lines, or text on standard error.

A line of JSON has "time" (UTC, whole seconds), "level", "logger", "event" and the fields of the event; see
docs/operations.md. Records of other libraries have no fields, and their messages may quote rows: they are not written.
Neither are times below a second: the running time of single answers depends slightly on the rows.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tulle.cli.outcome import UserError

if TYPE_CHECKING:
    from tulle.monitoring.status_pages import StatusPages

LEVELS = ("debug", "info", "warning", "error")

# How a file begins that a log may be appended to.
_FIRST_BYTES = b'{"time": "'


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """What every command has."""
    common = parser.add_argument_group("output")
    common.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    common.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
    common.add_argument(
        "--log-json",
        metavar="FILE",
        help="append a log to FILE, one JSON object a line; -: to standard error. It has no cell of any row",
    )
    common.add_argument(
        "--log-level",
        choices=LEVELS,
        help="how much is logged (default info); without --log-json as text on standard error",
    )
    common.add_argument("--debug", action="store_true", help="show a traceback if something fails")


def add_metrics_option(parser: Any) -> None:
    """A port for `/healthz` and `/metrics`."""
    parser.add_argument(
        "--metrics",
        type=_read_place,
        metavar="[HOST:]PORT",
        help="serve /healthz and /metrics over HTTP at this port, of this machine only unless HOST is given; they have "
        "counts, and no name of a client or a data set",
    )


def _read_place(text: str) -> tuple[str, int]:
    from tulle.monitoring.status_pages import read_place

    try:
        return read_place(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@contextmanager
def serve_metrics(arguments: argparse.Namespace, pages: StatusPages, tell: Callable[[str], None]) -> Iterator[None]:
    """Serve the pages of a server while it runs, if the arguments ask for it."""
    if arguments.metrics is None:
        yield
        return
    from tulle.monitoring.status_pages import StatusServer

    with StatusServer(pages, arguments.metrics) as server:
        tell(f"metrics at http://{arguments.metrics[0]}:{server.port}/metrics")
        yield


def is_silent(arguments: argparse.Namespace) -> bool:
    """Whether progress is not to be printed: asked for, or the output is for machines."""
    return bool(arguments.quiet or arguments.json or arguments.log_json == "-")


class CommandLog:
    """The log of one command, from `begin` to the end of `with`."""

    def __init__(self) -> None:
        self._handler: _EventHandler | None = None
        self._level_before = logging.NOTSET
        self._command = ""
        self.kind = ""  # of failure

    def __enter__(self) -> CommandLog:
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is None:
            return
        logger = logging.getLogger("tulle")
        logger.removeHandler(self._handler)
        logger.setLevel(self._level_before)
        self._handler.close()
        self._handler = None

    def begin(self, command: str, arguments: argparse.Namespace) -> None:
        """Open the log that the arguments ask for, if any. Raises where it cannot be written."""
        if arguments.log_json is None and arguments.log_level is None:
            return
        from tulle import __version__
        from tulle.monitoring.log_events import log_event

        as_json = arguments.log_json is not None
        number = _open_file(arguments.log_json) if as_json and arguments.log_json != "-" else None
        self._handler = _EventHandler(number, as_json)
        logger = logging.getLogger("tulle")
        self._level_before = logger.level
        logger.setLevel((arguments.log_level or "info").upper())
        logger.addHandler(self._handler)
        self._command = command
        log_event(__name__, "command.begin", command=command, version=__version__)

    def warn(self, category: type[Warning]) -> None:
        """Log that a warning was printed. Its text may be that of another library."""
        if self._handler is not None:
            from tulle.monitoring.log_events import log_event

            log_event(__name__, "command.warning", error=category.__name__)

    def end(self, code: int) -> None:
        """Log how the command ended."""
        if self._handler is not None:
            from tulle.monitoring.log_events import log_event

            about = {"kind": self.kind} if self.kind else {}
            log_event(__name__, "command.end", command=self._command, exit_code=code, **about)


def _open_file(name: str) -> int:
    """A file to append lines to, created for its owner alone."""
    try:
        number = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise UserError(f"{name}: the log cannot be written: {error.strerror}") from None
    about = os.fstat(number)
    if stat.S_ISREG(about.st_mode) and about.st_size and os.pread(number, len(_FIRST_BYTES), 0) != _FIRST_BYTES:
        os.close(number)
        raise UserError(f"{name} is no log of tulle and is left as it is; name a new file with --log-json")
    return number


class _EventHandler(logging.Handler):
    """Writes events of tulle, and no other records, each by one write: lines of several processes do not mix.

    Parameters
    ----------
    number : int or None
        A file descriptor; None: the standard error at the time that a line is written.
    as_json : bool
    """

    def __init__(self, number: int | None, as_json: bool) -> None:
        super().__init__()
        self._number, self._as_json = number, as_json
        self._broken = False
        self.addFilter(lambda record: hasattr(record, "tulle_event"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
            if self._number is None:
                sys.stderr.write(line)
                sys.stderr.flush()
            else:
                self._append(line.encode())
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(int(record.created), UTC).isoformat().replace("+00:00", "Z")
        if not self._as_json:
            return f"{time} {record.levelname.lower()} {record.name} {record.getMessage()}\n"
        from tulle.files.number_text import finite

        values: dict[str, Any] = {
            "time": time,
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.tulle_event,  # type: ignore[attr-defined]
            **record.tulle_fields,  # type: ignore[attr-defined]
        }
        return json.dumps(finite(values), allow_nan=False) + "\n"

    def _append(self, line: bytes) -> None:
        assert self._number is not None
        # After a line that a full disk has cut off, a new one begins.
        whole = b"\n" + line if self._broken else line
        self._broken = True
        self._broken = os.write(self._number, whole) < len(whole)

    def handleError(self, record: logging.LogRecord) -> None:
        """A log that cannot be written does not stop a command, least of all one that has billed."""

    def close(self) -> None:
        if self._number is not None:
            os.close(self._number)
            self._number = None
        super().close()
