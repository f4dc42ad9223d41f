"""What an aggregator sends to clients and gets from them: requests, retries, and who still answers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count
from typing import Any, TypeVar

from tulle.federated.encoding import WireError, decode, encode
from tulle.federated.link import Link
from tulle.federated.messages import Refused
from tulle.federated.question_data import Expected
from tulle.federated.questions import (
    REPLY_CLASSES,
    AskShape,
    CloseFit,
    Done,
    Forgotten,
    MakeParts,
    NotOpen,
    OpenFit,
    Opening,
    Shape,
    Summed,
)
from tulle.monitoring.log_events import log_event

T = TypeVar("T")

# Between two attempts to reach anyone who does not answer.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class TooFewClientsError(RuntimeError):
    """Clients have billed a fit, and too few of them are left to go on with it."""


class BilledFit:
    """A fit that clients have billed, and who still answers its questions."""

    def __init__(self, clients: ConnectedClients, opening: Opening, min_clients: int) -> None:
        self.clients, self.opening, self._min_clients = clients, opening, min_clients
        self.lost: dict[str, None] = {}
        self.solver = False  # whether sums were taken on the way to a minimum
        self._count = count()

    @property
    def answering(self) -> list[str]:
        return [name for name in self.clients.shapes if name not in self.lost]

    def next_number(self) -> int:
        return next(self._count)

    def agreed(self, reply: Any) -> bool:
        return isinstance(reply, Done) and reply.fit == self.opening.fit

    def ask(
        self,
        messages: Mapping[str, Any],
        is_answer: Callable[[Any], bool],
        made: Mapping[str, MakeParts] | None = None,
    ) -> dict[str, Any]:
        """Replies by client. A client that was started again in between is told what it has forgotten."""

        def remedy(name: str, reply: Any) -> Any:
            if isinstance(reply, NotOpen):
                return OpenFit(self.opening)
            if isinstance(reply, Forgotten) and made is not None:
                return made[name]
            return None

        return self.clients.ask(messages, is_answer, remedy)

    def values(
        self,
        messages: Mapping[str, Any],
        number: int,
        expected: Expected | None,
        made: Mapping[str, MakeParts] | None = None,
    ) -> list[Any]:
        """The answers to a question, in the order of clients' names; of those who gave one of the right shape."""

        def is_answer(reply: Any) -> bool:
            here = isinstance(reply, Summed) and reply.fit == self.opening.fit and reply.number == number
            return here and (reply.value is None if expected is None else expected.fits(reply.value))

        said = self.ask(messages, is_answer, made)
        self.lose(name for name in messages if not isinstance(said.get(name), Summed))
        return [said[name].value for name in messages if name not in self.lost]

    def lose(self, names: Iterable[str]) -> None:
        """From now on the rows of these count as nothing; the head of `aggregator` says why that is sound."""
        for name in names:
            self.lost[name] = None
            log_event(__name__, "federated.client_lost", n_clients=len(self.answering))
            warnings.warn(
                f"client {name!r} does not answer; its {self.clients.shapes[name].n_rows:,} rows count as nothing for "
                "the rest of this fit",
                UserWarning,
                stacklevel=2,
            )
        if len(self.answering) < self._min_clients:
            raise TooFewClientsError(
                f"{len(self.answering)} client(s) are left, and {self._min_clients} are needed to go on; the fit stays "
                "on the clients' bills"
            )

    def close(self) -> None:
        """Tell all who can be reached, once."""
        self.clients.once(dict.fromkeys(self.clients.shapes, CloseFit(self.opening.fit)))

    def seen_by(self) -> tuple[str, ...]:
        samplings = [release.mechanism.sampling for plan in self.opening.plans for release in plan]
        of_fixed_size = any(one is not None and one.scheme == "without_replacement" for one in samplings)
        told = "Clients were told where sums are taken (answers on the bill, and public quantities)"
        if any(one is not None for one in samplings):
            told += ", and which of their own rows a batch held"
        told += "."
        if of_fixed_size:
            told += (
                " Batches are of a fixed size: a client that knows how many of its rows are in one knows how many of "
                "the others' are, and against it the promise is weaker than stated; Poisson batches tell it nothing."
            )
        if self.solver:
            told += (
                " They were also told points on the way to a minimum, which depend on exact sums over all clients' "
                "rows and which the promise does not cover: clients are trusted not to look at them."
            )
        lines = [
            f"Trusted aggregator: {len(self.clients.shapes)} clients kept their rows and sent exact sums over them, "
            "clipped row by row as it asked, to the process that ran fit. It is trusted with these sums; it alone "
            "drew the noise, once, and nothing but the answers on the bill left the part of the code that saw them.",
            "Every client worked out the price of the fit itself and billed it to its own ledger, if it keeps one, "
            "before its first sum.",
            told,
            "Anyone who can listen between clients and the aggregator sees exact sums: encrypting that (TLS) is their "
            "operators' part. A person with rows at several clients is protected as so many people.",
        ]
        if self.lost:
            lines.append(
                f"Clients that stopped answering: {', '.join(self.lost)}. From then on their rows counted as nothing; "
                "that they did, and at which answer, must not have depended on rows."
            )
        return tuple(lines)


class ConnectedClients:
    """Who is there, and how to ask them."""

    def __init__(self, link: Link, seconds: float, patience: float) -> None:
        self._link, self._seconds, self._patience = link, seconds, patience
        self.shapes: dict[str, Shape] = {}  # by name, in order
        self._at: dict[str, str] = {}  # the connection of each client

    def gather(self, wanted: Sequence[str] | None, least: int) -> None:
        """Find out who is connected."""
        needed = max(least, len(wanted or ()))
        end = time.monotonic() + self._patience
        self._link.wait_for(needed, self._patience)
        found: dict[str, Shape] = {}
        for pause in _pauses():
            for connection, reply in self._replies({connection: AskShape() for connection in self._link.connected()}):
                if isinstance(reply, Shape) and (wanted is None or reply.client in wanted):
                    earlier = self._at.get(reply.client, connection)
                    if earlier != connection and earlier in self._link.connected():
                        raise ValueError(f"two connections say that they are client {reply.client!r}")
                    self._at[reply.client] = connection  # a client that was started again has another
                    found[reply.client] = reply
                elif isinstance(reply, Refused) and (wanted is None or reply.client in wanted):
                    raise ValueError(f"client {reply.client!r} refuses: {reply.text}")
            if len(found) >= needed or time.monotonic() >= end:
                break
            time.sleep(pause)
        missing = sorted(set(wanted or ()) - set(found))
        if missing or len(found) < least:
            who = f"{', '.join(missing)} did not answer" if missing else f"{len(found)} of {least} clients answered"
            raise TimeoutError(f"{who} within {self._patience:g} seconds")
        self.shapes = {name: found[name] for name in sorted(found)}

    def facts(self, message: Any, kind: type[T]) -> list[T]:
        """What every client says of itself, before anything is billed."""
        said = self.ask(dict.fromkeys(self.shapes, message), lambda reply: isinstance(reply, kind))
        refused = describe_refusals(said)
        if refused:
            raise ValueError(refused)
        silent = [name for name in self.shapes if name not in said]
        if silent:
            raise TimeoutError(f"no answer from {', '.join(silent)}; nothing was billed")
        return [said[name] for name in self.shapes]

    def ask(
        self,
        messages: Mapping[str, Any],
        is_answer: Callable[[Any], bool],
        remedy: Callable[[str, Any], Any] = lambda name, reply: None,
    ) -> dict[str, Any]:
        """Replies by client: answers and refusals. Garbage is no answer.

        A client that does not answer is asked again, wherever it connects, until `patience` is over. Where a reply can
        be remedied by another message, that is sent first.
        """
        said: dict[str, Any] = {}
        end = time.monotonic() + self._patience
        for pause in _pauses():
            remedies: dict[str, Any] = {}
            waiting = {name: message for name, message in messages.items() if name not in said}
            for name, reply in self.once(waiting):
                if is_answer(reply) or isinstance(reply, Refused):
                    said[name] = reply
                elif (cure := remedy(name, reply)) is not None:
                    remedies[name] = cure
            if len(said) == len(messages):
                break
            for name, reply in self.once(remedies):
                if isinstance(reply, Refused):
                    said[name] = reply
            if time.monotonic() >= end:
                break
            if len(remedies) + len(said) < len(messages):
                time.sleep(pause)
                self._look_for([name for name in messages if name not in said])
        return said

    def once(self, messages: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """What clients reply to their messages, of those that can be reached now."""
        there = set(self._link.connected())
        to = {self._at[name]: message for name, message in messages.items() if self._at[name] in there}
        names = {self._at[name]: name for name in messages}
        replies = [(names[connection], reply) for connection, reply in self._replies(to)]
        return [(name, reply) for name, reply in replies if reply.client == name]

    def _look_for(self, names: Sequence[str]) -> None:
        """Clients that have come back on another connection, with as many rows as they had."""
        known = {self._at[name] for name in self.shapes if name not in names}
        others = {connection: AskShape() for connection in self._link.connected() if connection not in known}
        for connection, reply in self._replies(others):
            if isinstance(reply, Shape) and reply.client in names and reply == self.shapes[reply.client]:
                self._at[reply.client] = connection

    def _replies(self, messages: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """What comes from connections, as far as it can be read."""
        same: dict[int, tuple[Any, list[str]]] = {}
        for connection, message in messages.items():
            same.setdefault(id(message), (message, []))[1].append(connection)

        def asked(message: Any, connections: list[str]) -> list[tuple[str, bytes]]:
            return list(self._link.ask(encode(message), connections, self._seconds))

        if len(same) <= 1:
            found = [asked(*one) for one in same.values()]
        else:  # of a batch each client is asked about its own rows, all at the same time
            with ThreadPoolExecutor(len(same)) as pool:
                found = list(pool.map(lambda one: asked(*one), same.values()))
        for connection, raw in chain.from_iterable(found):
            try:
                reply = decode(raw, REPLY_CLASSES)
            except WireError:
                continue
            if not hasattr(reply, "client"):
                continue
            if self._link.may_speak_for(connection, reply.client):
                yield connection, reply
            else:
                log_event(__name__, "federated.unknown_client")


def _pauses() -> Iterator[float]:
    pause = _SHORTEST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def describe_refusals(said: Mapping[str, Any]) -> str:
    """The refusals and their reasons; "" where there are none."""
    return "; ".join(
        f"client {name!r} refuses ({reply.why}: {reply.text})"
        for name, reply in said.items()
        if isinstance(reply, Refused)
    )
