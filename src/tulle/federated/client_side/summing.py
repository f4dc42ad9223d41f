"""A client's side of the trusted aggregator: exact sums over rows, for fits that it has billed itself.

What the trust is: the aggregator gets exact sums over this client's rows, as many of a fit as its solver takes, clipped
as it says, and is trusted to release nothing of them but the noisy answers on the plan. A client cannot see whether it
does, and anyone who gets so many exact sums can work out any row. What a client
sees to by itself: it works out the price of the plan with its own accountants, bills it to its own ledger, on disk,
before the first sum, and refuses past its cap; it answers questions of tulle's own about fits that are open, runs no
code but its own, and answers nothing more of a fit that was closed.

Before the bill it says how many rows and features it has, which class labels there are, and whether any target is below
zero: exact facts about its rows, which tulle takes as public wherever rows are (the aggregator sees exact sums anyway).

The ledger is the memory of what was billed: an entry names the digest of the fit's opening, so that a client that was
killed at any moment and started again neither bills it twice nor answers unbilled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tulle.fast.install import install
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client_ledger import ClientLedger
from tulle.federated.encoding import encode
from tulle.federated.messages import RefusedError, check_delta
from tulle.federated.question_data import DERIVED, OF_PARTS, OF_ROWS, find_function
from tulle.federated.questions import (
    COMBINED,
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
    check_plan,
)
from tulle.files import class_labels
from tulle.files.class_labels import get_text_key
from tulle.files.durable_writes import locked, write_durably
from tulle.files.number_text import rounded_up
from tulle.ledgers.on_disk import FileLedger
from tulle.ledgers.spending import note_release
from tulle.monitoring.logged_account import open_logged_account
from tulle.trusted import intake
from tulle.trusted.fit import Account, Order, Proved
from tulle.trusted.plan import PlanError, Promise
from tulle.trusted.rows import Mask, Pieces, Rows, sum_in_pairs

install()

# More labels than that are no classes, and their set would be the targets of so many rows.
_MOST_CLASSES = 1000
# A solver works on one set of parts at a time; a server whose older one was dropped is told so, and makes it anew.
_HELD_PARTS = 2
# Billing takes milliseconds; anyone who holds the lock for longer hangs.
_PATIENCE = 30.0


@dataclass(eq=False)
class _Fit:
    """A fit that is billed and open. `account`: None where there is no ledger, and nothing is promised."""

    opening: Opening
    account: Account | None
    parts: dict[int, Pieces[Any]] = field(default_factory=dict)


class Summing:
    """Answers a trusted aggregator, for a client that trusts one. Not for several threads at a time.

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        Checked: finite, dense or CSR or CSC.
    y : array of shape (n,)
        Checked: words or finite numbers.
    active : boolean array of shape (n,) or None
        The rows that count: a person's rows beyond `rows_per_person` do not. None: all.
    rows_per_person : int
        At least 1. Fits that protect units of fewer rows are refused.
    ledger : FileLedger or None
        Billed before the first sum of a fit. None, for rows that need no protection: fits without privacy are answered,
        and no others.
    state : path
        An existing folder for what must outlive the process: which fits are over.
    name : str
        The client's name.
    trusts_aggregator : bool, default=False
        Without it everything is refused.
    max_epsilon : float or None, default=None
        The most that one fit may cost, > 0. None: what the ledger's cap leaves.
    tell : callable or None, default=None
        Called with a line of text about what was billed or is over: for the client's own people.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        active: Mask | None,
        rows_per_person: int,
        ledger: FileLedger | None,
        state: str | Path,
        name: str,
        *,
        trusts_aggregator: bool = False,
        max_epsilon: float | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._X, self._y = X, intake.read_cells(y, "y")
        self._active = active
        self._rows_per_person = rows_per_person
        self._ledger, self._state, self._name = ledger, Path(state), name
        self._trusts_aggregator, self._max_epsilon = trusts_aggregator, max_epsilon
        self._tell = tell or (lambda line: None)
        self._fits: dict[str, _Fit] = {}
        # The rows as the last question wanted them: what was asked for, and what was made.
        self._prepared: tuple[bytes, tuple[Clip, ...], Rows] | None = None

    def answer(self, message: Any) -> Any:
        """The reply to one of `tulle.federated.questions.MESSAGES`.

        Raises
        ------
        RefusedError, BudgetExceededError
            Where it is refused. No reason depends on any row.
        """
        if not self._trusts_aggregator:
            raise RefusedError("trust", "this client trusts no aggregator with exact sums; it draws its own noise")
        reply = self._replies[type(message)]
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            return reply(self, message)

    # --- public facts ---

    def _shape(self, asked: AskShape) -> Shape:
        return Shape(self._name, *map(int, self._X.shape))

    def _labels(self, asked: AskLabels) -> Labels:
        try:
            found = class_labels.find_classes(self._y)
        except ValueError:
            found = np.empty(0)
        if not 0 < len(found) <= _MOST_CLASSES or found.dtype.kind not in "biufU":
            raise RefusedError("terms", "the targets here are no class labels")
        return Labels(self._name, tuple(found.tolist()) if found.dtype.kind == "U" else found)

    def _sign(self, asked: AskSign) -> Sign:
        """One bit, where other back ends tell the smallest target: it is all that anybody asks."""
        numbers = intake.read_numbers(self._y)
        return Sign(self._name, None if np.isnan(numbers).any() else bool(numbers.min() < 0))

    # --- the bill ---

    def _price(self, asked: AskPrice) -> Done:
        self._check(asked.opening)
        return Done(self._name, asked.opening.fit)

    def _check(self, opening: Opening) -> Promise:
        """What the fit costs, by this client's own accountants; raises where it is not to be had."""
        if not isinstance(opening, Opening):
            raise RefusedError("malformed", "there is no fit in it")
        if self._closed(opening.fit).exists():
            raise RefusedError("answered", "this fit is over")
        if self._rows_per_person > opening.rows_per_unit:
            raise RefusedError(
                "terms",
                f"the fit protects units of {opening.rows_per_unit} row(s), and people here have up to "
                f"{self._rows_per_person}; raise Bounds(rows_per_person=...)",
            )
        promise = (Proved.of(opening.plans, opening.delta).epsilon, opening.delta)
        private = 0 <= promise[0] < math.inf
        if self._ledger is None:
            if private:
                raise RefusedError("terms", "this client has no ledger to bill; it answers fits without privacy only")
            return promise
        if not private:
            raise RefusedError("terms", "no epsilon is proved for this fit; this client answers private ones only")
        check_delta(opening.delta, self._X.shape[0], self._ledger)
        if self._max_epsilon is not None and promise[0] > self._max_epsilon * (1 + 1e-9):
            raise RefusedError("terms", f"epsilon = {promise[0]:.4g}; this client allows {self._max_epsilon:g} a fit")
        try:
            _ledger_for(opening, self._ledger).quote(opening.what, opening.plans, promise, opening.rows_per_unit)
        except ValueError as error:  # units of another size were billed before
            raise RefusedError("terms", str(error)) from None
        return promise

    def _open(self, asked: OpenFit) -> Done:
        opening = asked.opening
        promise = self._check(opening)
        if opening.fit not in self._fits:
            self._fits[opening.fit] = _Fit(opening, self._bill(opening, promise, self._ledger))
        return Done(self._name, opening.fit)

    def _bill(self, opening: Opening, promise: Promise, ledger: FileLedger | None) -> Account | None:
        """The account of a fit, billed unless the ledger has the fit already, from before a crash."""
        if ledger is None:
            return None
        what = f"{opening.what}{_ending(opening.fit)}"
        order = Order(what, opening.plans, opening.delta, opening.rows_per_unit)
        with locked(self._state / "sums.lock", _PATIENCE):
            new = _ledger_for(opening, ledger).find_entry() is None
            with open_logged_account(order, __name__, ledgers=(_ledger_for(opening, ledger),)) as account:
                note_release()
                if new:
                    self._tell(f"billed epsilon = {rounded_up(promise[0])}, delta = {rounded_up(promise[1])}: {what}")
                return account

    def _settle(self, asked: SettleFit) -> Done | NotOpen:
        fit = self._fits.get(asked.fit)
        if fit is None:
            return NotOpen(self._name, asked.fit)
        try:
            check_plan(asked.plan, fit.opening.rows_per_unit)
            if fit.account is not None:
                fit.account.confirm(asked.plan)
        except (PlanError, ValueError):
            del self._fits[asked.fit]
            raise RefusedError("cap", "the plan that the fit settled on costs more than was billed for it") from None
        return Done(self._name, asked.fit)

    def _close(self, asked: CloseFit) -> Done:
        known = self._fits.pop(asked.fit, None) is not None
        if not known and self._ledger is not None:  # billed before this process was started
            known = ClientLedger(self._ledger, _ending(asked.fit)).find_entry() is not None
        if known and not self._closed(asked.fit).exists():
            write_durably(self._closed(asked.fit), b"", 0o600)
            self._tell(f"fit {asked.fit} is over")
        if not self._fits:
            self._prepared = None
        return Done(self._name, asked.fit)

    def _closed(self, fit: str) -> Path:
        return self._state / f"{fit}.closed"

    # --- sums ---

    def _sum_rows(self, asked: AskRows) -> Summed | NotOpen:
        if asked.fit not in self._fits:
            return NotOpen(self._name, asked.fit)
        contribution = _known(asked, OF_ROWS)
        total = self._rows(asked.rows, self._fits[asked.fit]).reduce(contribution, COMBINED[asked.combined])
        return Summed(self._name, asked.fit, asked.number, _plain(total))

    def _make(self, asked: MakeParts) -> Summed | NotOpen:
        fit = self._fits.get(asked.fit)
        if fit is None:
            return NotOpen(self._name, asked.fit)
        made = self._rows(asked.rows, fit).derive(_known(asked, DERIVED))
        assert isinstance(made, Pieces)
        fit.parts[asked.number] = made
        for old in list(fit.parts)[:-_HELD_PARTS]:
            del fit.parts[old]
        return Summed(self._name, asked.fit, asked.number, None)

    def _sum_parts(self, asked: AskParts) -> Summed | NotOpen | Forgotten:
        fit = self._fits.get(asked.fit)
        if fit is None:
            return NotOpen(self._name, asked.fit)
        function = _known(asked, OF_PARTS)
        held = fit.parts.get(asked.parts)
        if held is None:
            return Forgotten(self._name, asked.fit, asked.parts)
        return Summed(self._name, asked.fit, asked.number, _plain(sum_in_pairs(map(function, held.items))))

    def _rows(self, wanted: Clipped, fit: _Fit) -> Rows:
        """The rows with targets by the code, clipped, and of these the batch."""
        key = encode(wanted.code)
        known = self._prepared
        if known is None or known[0] != key or known[1] != wanted.clips[: len(known[1])]:
            # By what cells of a file spell, as in `LinearTerms`.
            targets = wanted.code(self._y, get_text_key)
            known = (key, (), Rows(self._X, *intake.mask_unlabelled(targets, self._active)))
        rows = known[2]
        self._prepared = None  # until all of it is done
        for clip in wanted.clips[len(known[1]) :]:
            getattr(rows, clip.how)(*clip.bounds)
        self._prepared = (key, wanted.clips, rows)
        numbers = wanted.numbers
        if numbers is None:
            return rows
        if not any(release.mechanism.sampling for plan in fit.opening.plans for release in plan):
            raise RefusedError("malformed", "the fit has no batches in its plan")
        n = self._X.shape[0]
        rising = numbers.ndim == 1 and numbers.dtype.kind == "i" and bool(np.all(np.diff(numbers) > 0))
        if not rising or (len(numbers) and not 0 <= numbers[0] <= numbers[-1] < n):
            raise RefusedError("malformed", "a batch is a rising list of row numbers")
        return rows.batch(numbers)

    _replies: ClassVar[dict[type, Callable[[Any, Any], Any]]] = {
        AskShape: _shape,
        AskLabels: _labels,
        AskSign: _sign,
        AskPrice: _price,
        OpenFit: _open,
        SettleFit: _settle,
        CloseFit: _close,
        AskRows: _sum_rows,
        MakeParts: _make,
        AskParts: _sum_parts,
    }

    def __repr__(self) -> str:
        return f"Summing({self._name!r})"  # never the rows


def _ending(fit: str) -> str:
    """How a ledger's text about a fit ends. The name is a digest of all of the fit: no other plan has it."""
    return f" by a trusted aggregator (fit {fit})"


def _ledger_for(opening: Opening, ledger: FileLedger) -> ClientLedger:
    return ClientLedger(ledger, _ending(opening.fit))


def _known(asked: AskRows | MakeParts | AskParts, allowed: Any) -> Callable[[Any], Any]:
    try:
        return find_function(asked.question, allowed)
    except Exception:  # any fault of the question that was sent
        raise RefusedError("malformed", "no such question is answered") from None


def _plain(value: Any) -> Any:
    """A sum as it is sent. As at the curator, an entry that is not finite counts as nothing; clipped sums have none."""
    if isinstance(value, SparseWeights):
        return SparseWeights(value.lines, _plain(value.values), value.n_lines)
    if isinstance(value, np.ndarray):
        return np.nan_to_num(np.asarray(value, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return float(value) if math.isfinite(value) else 0.0
