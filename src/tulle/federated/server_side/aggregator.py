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

Dropped clients. A client that does not answer for `patience` seconds counts as nothing for the rest of the fit: its
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
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Self, TypeVar

import numpy as np

from tulle.backends.rows_elsewhere import Spread
from tulle.federated.client_weights import check_all_weighted, check_weights, weigh_sums
from tulle.federated.link import Link
from tulle.federated.question_data import DERIVED, OF_PARTS, OF_ROWS
from tulle.federated.questions import (
    COMBINED,
    AskLabels,
    AskParts,
    AskPrice,
    AskRows,
    AskSign,
    Clip,
    Clipped,
    Labels,
    MakeParts,
    OpenFit,
    Opening,
    SettleFit,
    Sign,
    check_can_travel,
    portable,
    question_of,
)
from tulle.federated.server_side.client_requests import BilledFit, ConnectedClients, describe_refusals
from tulle.files.class_labels import find_different
from tulle.files.own_types import register
from tulle.ledgers.ledger import BudgetExceededError
from tulle.monitoring.log_events import log_event
from tulle.trusted.events import FloatArray
from tulle.trusted.intake import Cells, Mask
from tulle.trusted.losses import AnyLoss
from tulle.trusted.mechanisms import ObjectivePerturbation
from tulle.trusted.plan import Plan, PlanError, Promise, Release
from tulle.trusted.rows import Block, Pieces, RowNumbers, Rows, sum_in_pairs

T = TypeVar("T")

_WEIGHTED = (
    "Clients were weighted by given public numbers. A row counts by its client's weight over its client's number of "
    "rows, and noise covers the largest of these."
)
_ONLY_SUMS = (
    "weights of clients are for methods that ask for sums over all rows (hard_thresholding, frank_wolfe, "
    "coordinate_descent); batches and minimisers are of rows that count alike"
)


@register("rows at clients")
class RowsAtClients(Spread):
    """The rows of all clients of a link, in the order of the clients' names. Pass it to fit as X, with y=None.

    Parameters
    ----------
    link : Link
        The way to the clients, which several threads may use. Who can speak for it or listen to it sees exact sums:
        encrypt and authenticate it.
    clients : sequence of str or None, default=None
        Names of the clients to wait for; others are left out. None: all that are connected.
    seconds : float, default=60.0
        How long one answer may take, > 0.
    patience : float, default=300.0
        For how long a client that does not answer, or answers nonsense, is asked again, >= 0. A client that comes back
        under the same name, with as many rows, goes on.
    min_clients : int, default=1
        Fewer neither begin nor go on with a fit; at least 1.
    weights : mapping of str to float or None, default=None
        Public weights p_i of all clients, > 0, with sum 1: means are over clients by these weights, and over the rows
        of each client alike. Noise covers the row that counts most, max p_i / n_i; see
        `tulle.federated.client_weights.weigh_sums`. For methods that ask for sums over all rows. None: all rows count
        alike.

    Attributes
    ----------
    shape : (n, d)
        Of all clients together. Their numbers of rows are public. With `weights`, n is min n_i / p_i, rounded down: as
        many rows of equal weight need the same noise.
    clients : tuple of str
    billed : bool
        Whether any client may have billed a fit.
    """

    feature_names = None
    billed = False

    def __init__(
        self,
        link: Link,
        *,
        clients: Sequence[str] | None = None,
        seconds: float = 60.0,
        patience: float = 300.0,
        min_clients: int = 1,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        weights = None if weights is None else check_weights(weights)
        if not (seconds > 0 and patience >= 0 and min_clients >= 1):
            raise ValueError(
                f"seconds must be > 0, patience >= 0 and min_clients >= 1, got {seconds}, {patience} and {min_clients}"
            )
        self._clients = ConnectedClients(link, seconds, patience)
        self._min_clients = min_clients
        self._clients.gather(clients, min_clients)
        shapes = self._clients.shapes
        if len({shape.n_features for shape in shapes.values()}) > 1:
            widths = ", ".join(f"{name}: {shape.n_features}" for name, shape in shapes.items())
            raise ValueError(f"the clients' rows have different numbers of features ({widths}); all must have the same")
        self.clients = tuple(shapes)
        self.shape = (sum(shape.n_rows for shape in shapes.values()), next(iter(shapes.values())).n_features)
        self._factors: dict[str, float] | None = None
        if weights is not None:
            check_all_weighted(weights, self.clients)
            counted, factors = weigh_sums(weights, {name: shape.n_rows for name, shape in shapes.items()})
            self.shape = (counted, self.shape[1])
            self._factors = None if set(factors.values()) == {1.0} else factors
        self.answers_at_once = len(self.clients)
        self._fit: BilledFit | None = None

    def check_groups(self, groups: Any) -> None:
        if groups is not None:
            raise ValueError(
                "groups are known at the clients, where the rows are: give each client its own, and say "
                "Bounds(rows_per_person=...) here"
            )

    def labels(self) -> Cells:
        said = self._clients.facts(AskLabels(), Labels)
        if len({isinstance(one.labels, tuple) for one in said}) > 1:
            raise ValueError("y contains text at some clients and numbers at others; convert them to one type")
        return find_different(np.concatenate([np.asarray(one.labels) for one in said]))

    def smallest_target(self) -> float:
        """-1 where any target is below zero, otherwise 0: clients tell the sign only."""
        signs = [one.negative for one in self._clients.facts(AskSign(), Sign)]
        if None in signs:
            raise ValueError("y contains text, but a regression needs numbers; convert it, or fit a classifier")
        return -1.0 if any(signs) else 0.0

    def bill(self, what: str, plans: Sequence[Plan], loss: AnyLoss | None, price: Promise, rows_per_unit: int) -> None:
        """Have every client bill the fit: first all are asked whether they would, and only then all do."""
        check_can_travel((loss, *plans))
        if self._factors is not None and any(_needs_equal_rows(release) for plan in plans for release in plan):
            raise ValueError(_ONLY_SUMS)
        opening = Opening(secrets.token_hex(16), what, tuple(plans), price[1], rows_per_unit)
        fit = BilledFit(self._clients, opening, self._min_clients)
        said = self._clients.ask(dict.fromkeys(self.clients, AskPrice(opening)), fit.agreed)
        refused = describe_refusals(said)
        if refused:
            raise BudgetExceededError(f"nothing was billed and nothing released: {refused}")
        silent = [name for name in self.clients if name not in said]
        if silent:
            raise TimeoutError(f"nothing was billed and nothing released: no answer from {', '.join(silent)}")
        self.billed = True
        said = self._clients.ask(dict.fromkeys(self.clients, OpenFit(opening)), fit.agreed)
        refused = describe_refusals(said)
        if refused:
            fit.close()
            raise BudgetExceededError(
                f"nothing was released: {refused}. It had agreed a moment ago; the others have billed the fit"
            )
        # Anyone who does not say that it has billed the fit answers none of its questions either.
        fit.lose(name for name in self.clients if name not in said)
        self._fit = fit
        log_event(__name__, "federated.clients_billed", n_clients=len(fit.answering))

    def confirm(self, plan: Plan, price: Promise) -> None:
        fit = self._open_fit()
        if plan in fit.opening.plans:
            return
        said = fit.ask(dict.fromkeys(fit.answering, SettleFit(fit.opening.fit, plan)), fit.agreed)
        refused = describe_refusals(said)
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
        return AggregatedRows(self._open_fit(), Clipped(portable(self.code), (), None), self._factors)

    def map(self, function: Callable[[Any], FloatArray]) -> FloatArray:
        raise ValueError(
            "rows stay at their clients, and nothing is computed here for each of them; give the fitted model to the "
            "clients, and let each of them predict for its own rows"
        )

    def then(self, function: Callable[[Any], Any]) -> Self:
        raise ValueError(
            "private steps change rows, and clients answer questions about their rows as they are; let clients encode "
            "them by a tulle.Schema that all share"
        )

    def _open_fit(self) -> BilledFit:
        if self._fit is None:
            raise ValueError("no fit is billed at the clients; their rows are for fit and Bounds.estimate alone")
        return self._fit


class AggregatedRows(Rows):
    """All rows of a fit, as sums over them come from clients."""

    def __init__(self, fit: BilledFit, wanted: Clipped, factors: Mapping[str, float] | None = None) -> None:
        self._fit, self._wanted, self._factors = fit, wanted, factors
        self._batch: dict[str, RowNumbers] | None = None

    @property
    def seen_by(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self._fit.seen_by(), *((_WEIGHTED,) if self._factors is not None else ()))

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
            messages = self._messages(asked)
            values = fit.values(messages, number, expected)
            if combine is operator.add:
                values = _weigh(values, messages, fit, self._factors)
        # What was read off the wire cannot be written to, and a query may go on with its sum in place.
        return (
            np.array(values[0]) if len(values) == 1 and isinstance(values[0], np.ndarray) else reduce(combine, values)
        )

    def derive(self, make: Callable[[Block], Sequence[T]]) -> Pieces[T]:
        if self._factors is not None:
            raise ValueError(_ONLY_SUMS)
        question, _ = question_of(make, DERIVED)
        fit, number = self._fit, self._fit.next_number()
        assert self._batch is None, "parts that are kept are made of all rows"
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
    """Parts that clients hold. Anyone who lost them makes them anew, as they were made."""

    def __init__(self, fit: BilledFit, number: int, made: Mapping[str, MakeParts]) -> None:
        self._fit, self._number, self._made = fit, number, made

    def sum(self, function: Callable[[T], Any], start: Any) -> Any:
        question, expected = question_of(function, OF_PARTS)
        number = self._fit.next_number()
        asked = AskParts(self._fit.opening.fit, number, question, self._number)
        values = self._fit.values(dict.fromkeys(self._fit.answering, asked), number, expected, self._made)
        return start + sum_in_pairs(values)


def _needs_equal_rows(release: Release) -> bool:
    """Whether a release is about a batch, whose rate is that of rows that count alike, or a minimiser, whose
    certificate allows for the rounding of as many rows as are counted."""
    solved = isinstance(release.mechanism, ObjectivePerturbation) or release.name == "teacher"
    return solved or release.mechanism.sampling is not None


def _weigh(
    values: list[Any], asked: Mapping[str, Any], fit: BilledFit, factors: Mapping[str, float] | None
) -> list[Any]:
    """Clients' sums times their factors; `values` are of those asked who are not lost, in their order."""
    if factors is None:
        return values
    return [
        factors[name] * value
        for name, value in zip((name for name in asked if name not in fit.lost), values, strict=True)
    ]
