"""What a caller sees of a computation: its result, errors, warnings, printed text and log lines; and how two differ."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp


class ReplayError(AssertionError):
    """A computation that did something else than on the first rows, or that took too long."""


@dataclass(frozen=True)
class Seen:
    """What a caller sees of a computation.

    Attributes
    ----------
    result : dict
        The result by name.
    error : str
        Type and message of the error that ended it; "" for none.
    warnings : list of (category, message, file, line)
    out, err : str
        What was printed.
    logged : list of str
    """

    result: dict[str, Any]
    error: str
    warnings: list[tuple[str, str, str, int]]
    out: str
    err: str
    logged: list[str]


def watch(
    compute: Callable[[], Any],
    show: Callable[[Any], Mapping[str, Any]],
    *,
    seconds: float | None = None,
    refusals: tuple[type[Exception], ...] = (Exception,),
) -> Seen:
    """Run a computation and record everything that a caller sees. Errors other than `refusals` are raised."""
    out, err, lines = io.StringIO(), io.StringIO(), _Lines()
    root, ours, error = logging.getLogger(), logging.getLogger("tulle"), ""
    result: dict[str, Any] = {}
    level = ours.level
    ours.setLevel(logging.DEBUG)
    root.addHandler(lines)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            time_limit(seconds, "the computation"),
        ):
            warnings.simplefilter("always")
            try:
                result = dict(show(compute()))
            except ReplayError:
                raise
            except refusals as refusal:
                error = f"{type(refusal).__name__}: {refusal}"
    finally:
        root.removeHandler(lines)
        ours.setLevel(level)
    shown = [(one.category.__name__, str(one.message), one.filename, one.lineno) for one in caught]
    return Seen(result, error, shown, out.getvalue(), err.getvalue(), lines.written)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=logging.NOTSET)
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@contextlib.contextmanager
def time_limit(seconds: float | None, what: object) -> Iterator[None]:
    """Raise `ReplayError` in code that takes longer. Only the main thread of a POSIX process can be interrupted;
    elsewhere there is no limit."""

    def fail(*_: Any) -> None:
        raise ReplayError(f"not done after {seconds:g} s: {what}")

    in_main_thread = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main_thread or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def differences(one: Seen, other: Seen) -> list[str]:
    """Where two are not the same, and how."""
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in ("error", "warnings", "out", "err", "logged")}
    pairs |= {name: (one.result.get(name), other.result.get(name)) for name in {*one.result, *other.result}}
    return [f"{name}: {a!r:.600} and {b!r:.600}" for name, (a, b) in sorted(pairs.items()) if not is_same(a, b)]


def is_same(one: Any, other: Any, depth: int = 8) -> bool:
    """Whether two values are the same to the last bit, as far as a caller can see: arrays by their bytes, other objects
    by their attributes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray) and one.dtype != object:
        return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if sp.issparse(one):
        return is_same(one.toarray(), other.toarray())
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(is_same(one[name], other[name], depth) for name in one)
    if isinstance(one, (list, tuple, np.ndarray)):
        return len(one) == len(other) and all(is_same(a, b, depth) for a, b in zip(one, other))
    if isinstance(one, np.random.Generator):
        return is_same(one.bit_generator.state, other.bit_generator.state)
    state = getattr(one, "__dict__", None)
    if state and depth and not callable(one):
        return is_same(state, other.__dict__, depth - 1)
    return repr(one) == repr(other)
