"""The log: named events with fields from a fixed list, under the logger of the module that they are about.

Nothing of a row may get into a log. So there is no free text: an event is one of `EVENTS`, a field one of `FIELDS`, and
each field takes numbers, short names or fingerprints by a rule of its own. Arrays, numpy scalars and long texts fit no
rule. Durations are no field: the running time of a fit is not protected, and a log is kept and passed on.

tulle adds a `NullHandler` and sets no level: nothing is written unless the program that uses it configures logging.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# No result depends on the lines of a log.
_RESULTS_DEPEND_ON = "nothing"

# By event: its level, and what has happened.
EVENTS: Mapping[str, tuple[int, str]] = {
    "audit.begin": (logging.INFO, "an audit runs its subject, `total` batches of runs"),
    "audit.progress": (logging.INFO, "so many batches are done"),
    "audit.end": (logging.INFO, "all batches are done, or the time is up"),
    "command.begin": (logging.INFO, "a command of `tulle` begins"),
    "command.end": (logging.INFO, "it has ended, with this exit code"),
    "command.warning": (logging.WARNING, "a warning was printed on standard error"),
    "comparison.begin": (logging.INFO, "a comparison runs `total` cells"),
    "comparison.end": (logging.INFO, "its cells are done, `failed` of them without a result"),
    "convert.begin": (logging.INFO, "a file is converted to blocks on disk"),
    "convert.end": (logging.INFO, "the blocks are written"),
    "federated.begin": (logging.INFO, "a server begins or resumes a study"),
    "federated.round": (logging.INFO, "a round is closed: clients that answered, are missing, were rejected"),
    "federated.end": (logging.INFO, "the study is over"),
    "federated.stopped": (logging.WARNING, "too few clients answered for too long"),
    "federated.retry": (logging.WARNING, "too few clients answered a round; it is asked again"),
    "federated.clients_billed": (logging.INFO, "all clients of a trusted aggregator have billed a fit"),
    "federated.client_lost": (logging.WARNING, "a client of a trusted aggregator does not answer any more"),
    "federated.unknown_client": (logging.WARNING, "a client's certificate is for another name than it states"),
    "federated.certificate_refused": (logging.WARNING, "a client's certificate is none of a client of this study"),
    "federated.second_connection": (logging.WARNING, "a second connection under a client's name was refused"),
    "federated.taken_over": (logging.INFO, "a client connects again: its earlier connection has ended"),
    "federated.client.willing": (logging.INFO, "this client would take part in a study; nothing is billed so far"),
    "federated.client.enrolled": (logging.INFO, "this client takes part in a study, which is billed"),
    "federated.client.answered": (logging.INFO, "this client has answered a round"),
    "federated.client.refused": (logging.WARNING, "this client has refused a message"),
    "federated.client.connected": (logging.INFO, "this client has reached its server"),
    "federated.client.disconnected": (logging.INFO, "the server has ended the connection, or it was lost"),
    "ledger.charged": (logging.INFO, "a release is on the ledger: its price and what share of the cap it takes"),
    "ledger.retry": (logging.WARNING, "a charge is sent again: another was first, or the answer was lost"),
    "local.begin": (logging.INFO, "a local study begins or resumes"),
    "local.round": (logging.INFO, "a round is closed: answers so far that count, and that do not, by reason"),
    "local.end": (logging.INFO, "the local study is over"),
    "release.begin": (logging.INFO, "a private computation is asked for: a fit, a search, a score, an estimate"),
    "release.refused": (logging.WARNING, "it was refused before its noise was drawn; nothing was released"),
    "release.billed": (logging.INFO, "it is proved and billed; its noise may be drawn from now on"),
    "release.progress": (logging.INFO, "so many of its answers are given: ten such events at most"),
    "release.failed": (logging.ERROR, "it failed after the bill, which stays"),
    "release.end": (logging.INFO, "its result is there"),
    "service.begin": (logging.INFO, "an HTTP server listens"),
    "service.request": (logging.DEBUG, "a ledger service has answered a request"),
    "service.refused": (logging.WARNING, "a ledger service has refused a charge"),
    "service.end": (logging.INFO, "the server is closed"),
}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    """Not numpy's numbers, which are what sums over rows are."""
    return value is None or type(value) in (int, float)


def _is_word(value: Any) -> bool:
    """A name in code: of a class, a command, a reason."""
    return type(value) is str and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.: -]{0,63}", value) is not None


def _is_name(value: Any) -> bool:
    """A name that a person chose, such as that of a data set."""
    return type(value) is str and 0 < len(value) <= 200 and value.isprintable()


def _is_fingerprint(value: Any) -> bool:
    return type(value) is str and re.fullmatch("[0-9a-f]{16,64}", value) is not None


def _are_names(value: Any) -> bool:
    return type(value) is tuple and len(value) <= 100 and all(map(_is_name, value))


def _are_counts(value: Any) -> bool:
    return type(value) is dict and all(_is_word(why) and _is_count(count) for why, count in value.items())


# By field: what it may hold, and what it means.
FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "what": (_is_word, "the requested release, such as SparseClassifier.fit"),
    "method": (_is_word, "the algorithm"),
    "calibration": (_is_word, "rigorous, or published: the paper's noise"),
    "command": (_is_word, "the command of `tulle`"),
    "kind": (_is_word, "the kind of failure: input, refused, spent, interrupted, terminated, bug"),
    "reason": (_is_word, "why something was refused, in a fixed word"),
    "error": (_is_word, "the type of an exception, never its message"),
    "outcome": (_is_word, "what became of a request"),
    "version": (_is_name, "of tulle"),
    "dataset": (_is_name, "the name of a data set in a ledger"),
    "study": (_is_fingerprint, "the digest of a federated study's terms"),
    "releases": (_are_names, "the names of the planned releases"),
    "n_rows": (_is_count, "rows, which are public"),
    "n_features": (_is_count, "columns"),
    "n_users": (_is_count, "users of a local study"),
    "n_clients": (_is_count, "clients"),
    "n_ledgers": (_is_count, "ledgers that were billed"),
    "n_blocks": (_is_count, "blocks on disk"),
    "done": (_is_count, "steps that are done"),
    "total": (_is_count, "steps in all"),
    "failed": (_is_count, "steps without a result"),
    "round": (_is_count, "the number of a round, from 1"),
    "n_rounds": (_is_count, "rounds in all"),
    "answered": (_is_count, "answers that count"),
    "missing": (_is_count, "clients that did not answer"),
    "rejected": (_are_counts, "messages that do not count, by reason"),
    "entry": (_is_count, "the number of an entry in a ledger"),
    "exit_code": (_is_count, "of the command"),
    "port": (_is_count, "of a server"),
    "asked_epsilon": (_is_number, "the epsilon that was asked for; null: no privacy"),
    "asked_delta": (_is_number, "the delta that was asked for"),
    "proved_epsilon": (_is_number, "the epsilon that is proved and billed"),
    "proved_delta": (_is_number, "the delta that is proved and billed"),
    "rho": (_is_number, "the rho that was asked for"),
    "share": (_is_number, "the part of a ledger's cap that a charge takes"),
    "spent": (_is_number, "the part of a ledger's cap that is spent, with it"),
}

# Whether a field that does not fit its rule raises. In production it is left out, and named in `DROPPED`: a fit that is
# billed must not fail for a line of its log.
raises_on_misuse = False
DROPPED = "dropped"

_muted: ContextVar[bool] = ContextVar("tulle_log_muted", default=False)

logging.getLogger("tulle").addHandler(logging.NullHandler())


def log_event(logger: str, event: str, /, **fields: Any) -> None:
    """Log an event, unless its logger is off or `muted` is in force.

    Parameters
    ----------
    logger : str
        The `__name__` of the module.
    event : str
        One of `EVENTS`.
    **fields
        Some of `FIELDS`. None: the value does not apply.
    """
    target, level = logging.getLogger(logger), EVENTS[event][0] if event in EVENTS else logging.ERROR
    if _muted.get() or not (raises_on_misuse or target.isEnabledFor(level)):
        return
    checked = _checked(event, fields)
    words = " ".join([event, *(f"{name}={_shown(value)}" for name, value in checked.items())])
    target.log(level, "%s", words, extra={"tulle_event": event, "tulle_fields": checked})


@contextmanager
def muted() -> Iterator[None]:
    """Log nothing in this thread: for computations whose number or order is secret, as the trials of a search."""
    token = _muted.set(True)
    try:
        yield
    finally:
        _muted.reset(token)


def _checked(event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    wrong = [name for name, value in fields.items() if name not in FIELDS or not FIELDS[name][0](value)]
    if raises_on_misuse and (wrong or event not in EVENTS):
        # Names alone: values may be what must not be shown.
        raise ValueError(f"event {event!r} with {wrong}: use the events and fields of tulle.monitoring.log_events")
    kept = {name: value for name, value in fields.items() if name not in wrong}
    return {**kept, DROPPED: tuple(name for name in wrong if name in FIELDS)} if wrong else kept


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{why}: {count}' for why, count in value.items())}}}"
    return f"{value!r}" if isinstance(value, str) and " " in value else f"{value}"


class ProgressSteps:
    """Says when a tenth of the work is done, so that a log gets ten lines of progress for any amount of work.

    Parameters
    ----------
    total : int
        Steps in all, at least 0.
    """

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def advance(self) -> bool:
        """Count a step; whether another tenth is complete."""
        self.done += 1
        return self.done <= self.total and 10 * self.done // self.total > 10 * (self.done - 1) // self.total
