"""The trusted aggregator: rows at clients, fitted by the methods, mechanisms, plans and bills of central fits.

Clients keep their rows and do the one sum that everything is built on (`Rows.reduce`, `Pieces.sum`); the process that
calls fit adds the clients' sums up, draws the noise once, and releases what a central fit releases. It is trusted with
exact sums, and clients are trusted not to send wrong ones: a sum of the right shape is taken as it is.

    rows = RowsAtClients(link)
    SparseClassifier(epsilon=1.0, bounds=Bounds(row_l2=1.0)).fit(rows, None)

Every client bills the whole fit to its own ledger before its first sum. First all are asked whether they would, and
only then all do. Clients are told where sums are taken. For most methods these are answers on the bill. A solver
(`screen_refine`, `two_stage`, the teacher of `knowledge_transfer`) also asks at points on its way, which depend on
exact sums over everybody's rows and which no promise covers: the report says so.

Whoever drops out. A client that does not answer for `patience` seconds counts as nothing for the rest of the fit: its
rows contribute zeros to every later sum, and the public number of rows stays what it was. That is sound under
replace-one adjacency as long as who counts at which answer does not depend on rows: the sum is then over a set of
clients that is the same for neighbours, of contributions clipped as before and divided by the same n, so that replacing
a row moves it by no more than before (by nothing, if the row is a lost client's). A single sum is over one set of
clients; a minimiser's certificate is the last gradient, a single sum, so it holds for the objective of those who gave
it. How many sums a solver takes does depend on rows, and so, in principle, does which of its answers a client that
leaves at a given time is still in: as everywhere in tulle, running time is not protected.
"""

from __future__ import annotations

import operator
import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np

from tulle.backends import Spread
from tulle.events import FloatArray
from tulle.federated.link import Link
from tulle.federated.messages import Refused
from tulle.federated.questions import (
    COMBINED,
    DERIVED,
    OF_PARTS,
    OF_ROWS,
    REPLY_CLASSES,
    AskLabels,
    AskParts,
    AskPrice,
    AskRows,
    AskShape,
    AskSign,
    Clip,
    Clipped,
    CloseFit,
    Done,
    Expected,
    Forgotten,
    Labels,
    MakeParts,
    NotOpen,
    OpenFit,
    Opening,
    SettleFit,
    Shape,
    Sign,
    Summed,
    check_can_travel,
    portable,
    question_of,
)
from tulle.federated.wire import WireError, decode, encode
from tulle.intake import Cells, Mask, different
from tulle.losses import Loss
from tulle.pieces import Pieces, summed
from tulle.privacy import BudgetExceededError, Plan, PlanError, Promise
from tulle.rows import Block, RowNumbers, Rows

T = TypeVar("T")

# Between two attempts to reach whoever does not answer.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class RowsAtClients(Spread):
    """The rows of all clients of a link, in the order of the clients' names. Pass it to fit as X, with y=None.

    Parameters
    ----------
    link : Link
        The way to the clients, which several threads may use. Whoever can speak for it or listen to it sees exact sums:
        encrypt and authenticate it.
    clients : sequence of str or None, default=None
        Names of the clients to wait for; others are left out. None: all that are connected.
    seconds : float, default=60.0
        How long one answer may take, > 0.
    patience : float, default=300.0
        For how long a client that does not answer, or answers nonsense, is asked again, >= 0. Whoever comes back under
        the same name, with as many rows, goes on.
    min_clients : int, default=1
        Fewer neither begin nor go on with a fit; at least 1.

    Attributes
    ----------
    shape : (n, d)
        Of all clients together. Their numbers of rows are public.
    clients : tuple of str
    """

    feature_names = None

    def __init__(
        self,
        link: Link,
        *,
        clients: Sequence[str] | None = None,
        seconds: float = 60.0,
        patience: float = 300.0,
        min_clients: int = 1,
    ) -> None:
        if not (seconds > 0 and patience >= 0 and min_clients >= 1):
            raise ValueError(
                f"seconds must be > 0, patience >= 0 and min_clients >= 1, got {seconds}, {patience} and {min_clients}"
            )
        self._clients = _Clients(link, seconds, patience)
        self._min_clients = min_clients
        self._clients.gather(clients, min_clients)
        shapes = self._clients.shapes
        if len({shape.n_features for shape in shapes.values()}) > 1:
            widths = ", ".join(f"{name}: {shape.n_features}" for name, shape in shapes.items())
            raise ValueError(f"the clients' rows have different numbers of features ({widths}); all must have the same")
        self.clients = tuple(shapes)
        self.shape = (sum(shape.n_rows for shape in shapes.values()), next(iter(shapes.values())).n_features)
        self._fit: _Fit | None = None

    def check_groups(self, groups: Any) -> None:
        if groups is not None:
            raise ValueError(
                "groups are known at the clients, where the rows are: give each client its own, and say "
                "Bounds(rows_per_person=...) here"
            )

    def labels(self) -> Cells:
        said = self._clients.facts(AskLabels(), Labels)
        if len({isinstance(one.labels, tuple) for one in said}) > 1:
            raise ValueError("y holds words at some clients and numbers at others; make them one kind")
        return different(np.concatenate([np.asarray(one.labels) for one in said]))

    def smallest_target(self) -> float:
        """-1 where any target is below zero, otherwise 0: clients tell the sign only."""
        signs = [one.negative for one in self._clients.facts(AskSign(), Sign)]
        if None in signs:
            raise ValueError("y holds words, and a regression needs numbers; convert them, or fit a classifier")
        return -1.0 if any(signs) else 0.0

    def bill(self, what: str, plans: Sequence[Plan], loss: Loss | None, price: Promise, rows_per_unit: int) -> None:
        """Have every client bill the fit: first all are asked whether they would, and only then all do."""
        check_can_travel((loss, *plans))
        opening = Opening(secrets.token_hex(16), what, tuple(plans), price[1], rows_per_unit)
        fit = _Fit(self._clients, opening, self._min_clients)
        said = self._clients.ask(dict.fromkeys(self.clients, AskPrice(opening)), fit.agreed)
        refused = _words_of(said)
        if refused:
            raise BudgetExceededError(f"nothing was billed and nothing released: {refused}")
        silent = [name for name in self.clients if name not in said]
        if silent:
            raise TimeoutError(f"nothing was billed and nothing released: no answer from {', '.join(silent)}")
        said = self._clients.ask(dict.fromkeys(self.clients, OpenFit(opening)), fit.agreed)
        refused = _words_of(said)
        if refused:
            fit.close()
            raise BudgetExceededError(
                f"nothing was released: {refused}. It had agreed a moment ago; the others have billed the fit"
            )
        # Whoever does not say that it has billed the fit answers none of its questions either.
        fit.lose(name for name in self.clients if name not in said)
        self._fit = fit

    def confirm(self, plan: Plan, price: Promise) -> None:
        fit = self._open_fit()
        if plan in fit.opening.plans:
            return
        said = fit.ask(dict.fromkeys(fit.answering, SettleFit(fit.opening.fit, plan)), fit.agreed)
        refused = _words_of(said)
        if refused:
            raise PlanError(
                f"the method's plan depends on the estimated bounds in a way that was not billed: {refused}"
            )
        fit.lose(name for name in fit.answering if name not in said)

    def close(self) -> None:
        if self._fit is not None:
            self._fit.close()
            self._fit = None

    def rows(self, active: Mask | None) -> Rows:
        if active is not None:
            raise ValueError("which rows count is known at the clients; give each of them its own groups")
        return AggregatedRows(self._open_fit(), Clipped(portable(self.code), (), None))

    def map(self, function: Callable[[Any], FloatArray]) -> FloatArray:
        raise ValueError(
            "rows stay at their clients, and nothing is computed here for each of them; give the fitted model to the "
            "clients, and let each of them predict for its own rows"
        )

    def _open_fit(self) -> _Fit:
        if self._fit is None:
            raise ValueError("no fit is billed at the clients; their rows are for fit and Bounds.estimate alone")
        return self._fit


class AggregatedRows(Rows):
    """All rows of a fit, as sums over them come from clients."""

    def __init__(self, fit: _Fit, wanted: Clipped) -> None:
        self._fit, self._wanted = fit, wanted
        self._batch: dict[str, RowNumbers] | None = None

    @property
    def seen_by(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._fit.seen_by()

    def only_block(self) -> Block | None:
        return None

    def sizes(self) -> list[int]:
        if self._batch is not None:
            return [len(numbers) for numbers in self._batch.values()]
        return [shape.n_rows for shape in self._fit.clients.shapes.values()]

    def batch(self, numbers: RowNumbers) -> Rows:
        parts = self._numbers_in_blocks(numbers)
        if parts is None:
            return self
        assert self._batch is None, "row numbers are those of clients, not of a batch"
        chosen = copy(self)
        # A client learns which of its own rows are in the batch, and nothing of others'.
        chosen._batch = dict(zip(self._fit.clients.shapes, parts))
        return chosen

    def reduce(self, contribution: Callable[[Block], Any], combine: Callable[[Any, Any], Any] = operator.add) -> Any:
        question, expected = question_of(contribution, OF_ROWS)
        how = next((name for name, function in COMBINED.items() if function is combine), None)
        if how is None:
            raise TypeError(f"clients' answers are put together by one of {sorted(COMBINED)}, not by {combine!r}")
        fit, values = self._fit, list[Any]()
        while not values:  # it ends: where all are lost who have rows in a batch, others are asked, or the fit is over
            number = fit.next_number()
            asked = partial(AskRows, fit.opening.fit, number, question, combined=how)
            values = fit.values(self._messages(asked), number, expected)
        # What was read off the wire cannot be written to, and a query may go on with its sum in place.
        return (
            np.array(values[0]) if len(values) == 1 and isinstance(values[0], np.ndarray) else reduce(combine, values)
        )

    def derive(self, make: Callable[[Block], Sequence[T]]) -> Pieces[T]:
        question, _ = question_of(make, DERIVED)
        fit, number = self._fit, self._fit.next_number()
        assert self._batch is None, "what is kept is made of all rows"
        made = dict.fromkeys(fit.answering, MakeParts(fit.opening.fit, number, question, self._wanted))
        fit.solver = True
        fit.values(made, number, None)
        return _PartsAtClients(fit, number, made)

    def _messages(self, make: Callable[[Clipped], AskRows]) -> dict[str, AskRows]:
        """A message to each client with rows in play; to one in any case, since an empty sum has a shape too."""
        answering, batch = self._fit.answering, self._batch
        if batch is None:
            return dict.fromkeys(answering, make(self._wanted))
        used = [name for name in answering if len(batch[name])] or answering[:1]
        return {name: make(replace(self._wanted, numbers=batch[name])) for name in used}

    def _clip(self, how: str, *bounds: Any) -> None:
        self._wanted = replace(self._wanted, clips=(*self._wanted.clips, Clip(how, bounds)))


class _PartsAtClients(Pieces[T]):
    """Parts that clients hold. Whoever lost them makes them anew, as they were made."""

    def __init__(self, fit: _Fit, number: int, made: Mapping[str, MakeParts]) -> None:
        self._fit, self._number, self._made = fit, number, made

    def sum(self, function: Callable[[T], Any], start: Any) -> Any:
        question, expected = question_of(function, OF_PARTS)
        number = self._fit.next_number()
        asked = AskParts(self._fit.opening.fit, number, question, self._number)
        values = self._fit.values(dict.fromkeys(self._fit.answering, asked), number, expected, self._made)
        return start + summed(values)


# --- conversations ---------------------------------------------------------------------------------------------------


class _Fit:
    """A fit that clients have billed, and who still answers its questions."""

    def __init__(self, clients: _Clients, opening: Opening, min_clients: int) -> None:
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
        """From now on the rows of these count as nothing (the head of this file says why that is sound)."""
        for name in names:
            self.lost[name] = None
            warnings.warn(
                f"client {name!r} does not answer; its {self.clients.shapes[name].n_rows:,} rows count as nothing for "
                "the rest of this fit",
                UserWarning,
                stacklevel=2,
            )
        if len(self.answering) < self._min_clients:
            raise RuntimeError(
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
            "Whoever can listen between clients and the aggregator sees exact sums: encrypting that (TLS) is their "
            "operators' part. A person with rows at several clients is protected as so many people.",
        ]
        if self.lost:
            lines.append(
                f"Clients that stopped answering: {', '.join(self.lost)}. From then on their rows counted as nothing; "
                "that they did, and at which answer, must not have depended on rows."
            )
        return tuple(lines)


class _Clients:
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
                    if self._at.setdefault(reply.client, connection) != connection:
                        raise ValueError(f"two connections say that they are client {reply.client!r}")
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
        refused = _words_of(said)
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

        Whoever does not answer is asked again, wherever it is connected then, until `patience` is over. Where a reply
        can be remedied by another message, that is sent first.
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
            if hasattr(reply, "client"):
                yield connection, reply


def _pauses() -> Iterator[float]:
    pause = _SHORTEST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def _words_of(said: Mapping[str, Any]) -> str:
    """What those said who refused; "" where nobody did."""
    return "; ".join(
        f"client {name!r} refuses ({reply.why}: {reply.text})"
        for name, reply in said.items()
        if isinstance(reply, Refused)
    )
