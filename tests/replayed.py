"""Front replay: a computation on rows D, and the same on unrelated rows with the answers of D in place of its own.

Everything that leaves a private computation follows from its settings, from the shape of the rows and from the answers
of the curator. So whatever differs between the two has passed the curator by.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tulle.trusted.curator import Curator

# A fit that never ends is a difference too. All of these take a fraction of a second.
SECONDS = 60


class Tape:
    """The answers of every curator, in order: written while D is read, played while other rows are."""

    def __init__(self) -> None:
        self._answers: list[tuple[str, Any]] = []
        self._played: int | None = None

    def rewind(self) -> None:
        """Play from now on."""
        self._played = 0

    def finished(self) -> bool:
        """Whether all answers were played."""
        return self._played == len(self._answers)

    def asking(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        """In place of `Curator.ask`. The rows are asked in both cases: that must say nothing either."""

        def asked(curator: Curator, name: str, query: Any, then: Any = None) -> Any:
            with _noise_of_its_own(curator):
                answer = ask(curator, name, query, then)
            if self._played is None:
                self._answers.append((name, copy.deepcopy(answer)))
                return answer
            assert self._played < len(self._answers), f"more was asked than on the first rows: {name}"
            recorded, answer = self._answers[self._played]
            assert recorded == name, f"{name} was asked in the place of {recorded}"
            self._played += 1
            return copy.deepcopy(answer)

        return asked


@contextlib.contextmanager
def _noise_of_its_own(curator: Curator) -> Iterator[None]:
    """How much randomness an answer takes may depend on rows: what else is drawn is drawn from another source."""
    found = {name: value for name, value in vars(curator).items() if isinstance(value, np.random.Generator)}
    vars(curator).update(dict.fromkeys(found, np.random.default_rng(0)))
    try:
        yield
    finally:
        vars(curator).update(found)


@dataclass(frozen=True)
class Seen:
    """What a caller sees of a computation, besides what `told` makes of its result."""

    result: dict[str, Any]
    error: str
    warnings: list[tuple[str, str, str, int]]
    out: str
    err: str
    logged: list[str]


def watched(compute: Callable[[], Any], told: Callable[[Any], dict[str, Any]]) -> Seen:
    """Run a computation and note everything that comes out of it."""
    out, err, lines = io.StringIO(), io.StringIO(), _Lines()
    root, error, result = logging.getLogger(), "", {}
    ours = logging.getLogger("tulle")
    level = ours.level
    ours.setLevel(logging.DEBUG)
    root.addHandler(lines)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            _time_limit(),
        ):
            warnings.simplefilter("always")
            try:
                result = told(compute())
            except ValueError as refused:
                error = f"{type(refused).__name__}: {refused}"
    finally:
        root.removeHandler(lines)
        ours.setLevel(level)
    said = [(one.category.__name__, str(one.message), one.filename, one.lineno) for one in caught]
    return Seen(result, error, said, out.getvalue(), err.getvalue(), lines.written)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=logging.NOTSET)
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def late(number: int, frame: Any) -> None:
        raise AssertionError(f"not done after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def replayed(
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[], Any],
    second: Callable[[], Any],
    told: Callable[[Any], dict[str, Any]],
) -> tuple[Seen, Seen]:
    """What is seen of a computation, and of the same on other rows with the answers of the first."""
    tape = Tape()
    with monkeypatch.context() as patch:
        patch.setattr(Curator, "ask", tape.asking(Curator.ask))
        one = watched(first, told)
        tape.rewind()
        other = watched(second, told)
    assert tape.finished() or one.error, "less was asked than on the first rows"
    return one, other


def differences(one: Seen, other: Seen) -> list[str]:
    """Where two are not the same, and how."""
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in ("error", "warnings", "out", "err", "logged")}
    pairs |= {name: (one.result.get(name), other.result.get(name)) for name in {*one.result, *other.result}}
    return [f"{name}: {a!r:.600} and {b!r:.600}" for name, (a, b) in pairs.items() if repr(a) != repr(b)]
