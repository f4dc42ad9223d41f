"""A client's side of the trusted aggregator: exact sums over rows, for fits that it has billed itself.

What the trust is: the aggregator gets exact sums over this client's rows, as many of a fit as its solver takes, clipped
as it says, and is trusted to release nothing of them but the noisy answers on the plan. A client cannot see whether it
does, and whoever gets so many exact sums can work out any row. What a client
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

from tulle import intake
from tulle.durable import locked, write_durably
from tulle.federated.messages import RefusedError, check_delta
from tulle.federated.questions import (
    COMBINED,
    DERIVED,
    OF_PARTS,
    OF_ROWS,
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
    asked_by,
    check_plan,
)
from tulle.federated.wire import encode
from tulle.ledger_file import FileLedger
from tulle.pieces import HeldPieces, summed
from tulle.privacy import Plan, PlanError, Promise, proof
from tulle.report import rounded_up
from tulle.rows import Rows
from tulle.weights import SparseWeights

# More labels than that are no classes, and their set would be the targets of so many rows.
_MOST_CLASSES = 1000
# A solver works on one set of parts at a time; who lost an older one is told so, and makes it anew.
_HELD_PARTS = 2
# Billing takes milliseconds; whoever holds the lock for longer hangs.
_PATIENCE = 30.0


@dataclass(eq=False)
class _Fit:
    """A fit that is billed and open. `entry` is its number in the ledger; None without privacy."""

    opening: Opening
    entry: int | None
    parts: dict[int, HeldPieces[Any]] = field(default_factory=dict)


class Summing:
    """Answers a trusted aggregator, for a client that trusts one. Not for several threads at a time.

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        Checked: finite, dense or CSR or CSC.
    y : array of shape (n,)
        Checked: words or finite numbers.
    groups : array of shape (n,) or None
        Person ids; a person's rows beyond `rows_per_person` are left out.
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
        groups: Any,
        rows_per_person: int,
        ledger: FileLedger | None,
        state: str | Path,
        name: str,
        *,
        trusts_aggregator: bool = False,
        max_epsilon: float | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._X, self._y = X, intake.cells(y, "y")
        self._active = None if groups is None else intake.first_rows_of_each_person(groups, rows_per_person)
        self._rows_per_person = rows_per_person
        self._ledger, self._state, self._name = ledger, Path(state), name
        self._trusts_aggregator, self._max_epsilon = trusts_aggregator, max_epsilon
        self._tell = tell or (lambda line: None)
        self._fits: dict[str, _Fit] = {}
        self._proved: tuple[str, float] | None = None
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

    # --- what is public ---

    def _shape(self, asked: AskShape) -> Shape:
        return Shape(self._name, *map(int, self._X.shape))

    def _labels(self, asked: AskLabels) -> Labels:
        try:
            found = intake.found_classes(self._y)
        except ValueError:
            found = np.empty(0)
        if not 0 < len(found) <= _MOST_CLASSES or found.dtype.kind not in "biufU":
            raise RefusedError("terms", "the targets here are no class labels")
        return Labels(self._name, tuple(found.tolist()) if found.dtype.kind == "U" else found)

    def _sign(self, asked: AskSign) -> Sign:
        """One bit, where other back ends tell the smallest target: it is all that anybody asks."""
        numbers = intake.numbers(self._y)
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
        promise = self._promise(opening)
        private = 0 <= promise[0] < math.inf
        if self._ledger is None:
            if private:
                raise RefusedError("terms", "this client has no ledger to bill; it answers fits without privacy only")
            return promise
        if not private:
            raise RefusedError("terms", "nothing is proved for this fit; this client answers private ones only")
        check_delta(opening.delta, self._X.shape[0], self._ledger)
        if self._max_epsilon is not None and promise[0] > self._max_epsilon * (1 + 1e-9):
            raise RefusedError("terms", f"epsilon = {promise[0]:.4g}; this client allows {self._max_epsilon:g} a fit")
        if self._entry_of(opening) is None:
            try:
                self._ledger.quote(opening.what, opening.plans, promise, opening.rows_per_unit)
            except ValueError as error:  # units of another size were billed before
                raise RefusedError("terms", str(error)) from None
        return promise

    def _promise(self, opening: Opening) -> Promise:
        """Worked out once for the question and the bill: accountants of batches take their time."""
        if self._proved is None or self._proved[0] != opening.fit:
            self._proved = (opening.fit, max(proof(plan, opening.delta)[0] for plan in opening.plans))
        return self._proved[1], opening.delta

    def _open(self, asked: OpenFit) -> Done:
        opening = asked.opening
        promise = self._check(opening)
        if opening.fit not in self._fits:
            with locked(self._state / "sums.lock", _PATIENCE):
                entry = self._entry_of(opening)
                if entry is None and self._ledger is not None:
                    words = _in_ledger(opening)
                    entry = self._ledger.bill(words, opening.plans, promise, opening.rows_per_unit)
                    self._tell(f"billed epsilon = {rounded_up(promise[0])}, delta = {rounded_up(promise[1])}: {words}")
            self._fits[opening.fit] = _Fit(opening, entry)
        return Done(self._name, opening.fit)

    def _entry_of(self, opening: Opening) -> int | None:
        """The number of a fit's entry in the ledger, whoever wrote it, before a crash or after; None for none."""
        if self._ledger is None:
            return None
        words = _in_ledger(opening)
        return next((k for k, entry in enumerate(self._ledger.refresh().entries) if entry.what == words), None)

    def _settle(self, asked: SettleFit) -> Done | NotOpen:
        fit = self._fits.get(asked.fit)
        if fit is None:
            return NotOpen(self._name, asked.fit)
        try:
            check_plan(asked.plan, fit.opening.rows_per_unit)
            plan: Plan = asked.plan
            if self._ledger is not None and fit.entry is not None:
                promise = (proof(plan, fit.opening.delta)[0], fit.opening.delta)
                self._ledger.confirm(plan, promise, fit.entry)
        except (PlanError, ValueError):
            del self._fits[asked.fit]
            raise RefusedError("cap", "the plan that the fit settled on costs more than was billed for it") from None
        return Done(self._name, asked.fit)

    def _close(self, asked: CloseFit) -> Done:
        known = self._fits.pop(asked.fit, None) is not None
        if not known and self._ledger is not None:  # billed before this process was started
            known = any(entry.what.endswith(_mark(asked.fit)) for entry in self._ledger.refresh().entries)
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
        assert isinstance(made, HeldPieces)
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
        return Summed(self._name, asked.fit, asked.number, _plain(summed(map(function, held.items))))

    def _rows(self, wanted: Clipped, fit: _Fit) -> Rows:
        """The rows with targets by the code, clipped, and of these the batch."""
        key = encode(wanted.code)
        known = self._prepared
        if known is None or known[0] != key or known[1] != wanted.clips[: len(known[1])]:
            # By what cells of a file spell, as in `LinearTerms`.
            targets = wanted.code(self._y, intake.spelled)
            known = (key, (), Rows(self._X, *intake.counted(targets, self._active)))
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


def _in_ledger(opening: Opening) -> str:
    """What a ledger says of a fit. The digest is of all of it: no other plan can pass for one that was billed."""
    return f"{opening.what}{_mark(opening.fit)}"


def _mark(fit: str) -> str:
    return f" by a trusted aggregator (fit {fit})"


def _known(asked: AskRows | MakeParts | AskParts, allowed: Any) -> Callable[[Any], Any]:
    try:
        return asked_by(asked.question, allowed)
    except Exception:  # whatever is wrong with what was sent
        raise RefusedError("malformed", "no such question is answered") from None


def _plain(value: Any) -> Any:
    """A sum as it is sent. As at the curator, an entry that is not finite counts as nothing; clipped sums have none."""
    if isinstance(value, SparseWeights):
        return SparseWeights(value.lines, _plain(value.values), value.n_lines)
    if isinstance(value, np.ndarray):
        return np.nan_to_num(np.asarray(value, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return float(value) if math.isfinite(value) else 0.0
