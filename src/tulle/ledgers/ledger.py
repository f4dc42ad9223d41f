"""Ledgers: a cap over many fits, as a privacy filter. Proof: docs/proofs/accounting.md, theorem 4."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tulle.accounting.zcdp import rho_of
from tulle.files.notebook_html import html_paragraphs, html_table
from tulle.files.number_text import rounded_up
from tulle.ledgers.currencies import Currency, cheapest_currency
from tulle.ledgers.open_markers import leave_marker, take_marker_away, why_not_to_fit
from tulle.monitoring.log_events import log_event
from tulle.trusted.billing import Entry, open_ledgers, register_check_of_other_processes
from tulle.trusted.plan import Budget, Plan, PlanError, Promise


class BudgetExceededError(RuntimeError):
    """A fit would have passed the cap of an open ledger. No noise was drawn and nothing was released."""


# By how much shares may add up to more than 1: the rounding of calibrations and sums.
ROUNDING = 1e-9

_OTHER_PROCESS = "Run the fits in the ledger's own process (n_jobs=1, or joblib's threading backend)"


class Ledger:
    """A cap on everything that fits release while the ledger is open.

    Every private fit inside ``with Ledger(cap):`` is billed, clones and cross-validation folds included; one that
    would pass the cap raises `BudgetExceededError` before it draws noise. The fits may depend on each other's
    results: the ledger is a privacy filter (docs/proofs/accounting.md, theorem 4). Its currency (Gaussian mu², Rényi
    divergence at one order, or plain sums of epsilon and delta) is fixed by the first fit, before that fit's noise.

    Parameters
    ----------
    cap : Budget
        The guarantee for all fits together. With a rho, the currency is rho, and fits that have none are refused.

    Examples
    --------
    >>> from tulle import Budget, Ledger
    >>> with Ledger(Budget(3.0, 1e-5)) as ledger:
    ...     pass  # fit models here
    >>> ledger.epsilon
    0.0
    """

    def __init__(self, cap: Budget) -> None:
        if not isinstance(cap, Budget):
            raise TypeError(f"Ledger(cap) takes a Budget, for example Budget(3.0, 1e-5); got {cap!r}")
        self.cap = cap
        self._billed: list[tuple[str, float]] = []
        self._currency: Currency | None = None
        self._rows_per_unit: int | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __enter__(self) -> Ledger:
        leave_marker()
        open_ledgers.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        open_ledgers.remove(self)
        if not open_ledgers:
            take_marker_away()
        # scikit-learn catches the refusals of its workers, and raises an error of its own that begins with a guess.
        if isinstance(error, Exception) and not isinstance(error, BudgetExceededError) and _OTHER_PROCESS in str(error):
            raise BudgetExceededError(
                f"fits in other processes cannot be billed to this ledger, and released nothing. {_OTHER_PROCESS}"
            ) from error

    @property
    def fits(self) -> list[tuple[str, float]]:
        """What was billed, and the share of the cap that it took."""
        return self._billed

    @property
    def share(self) -> float:
        """The part of the cap that is spent, in [0, 1]."""
        return sum(share for _, share in self.fits)

    @property
    def epsilon(self) -> float:
        """The epsilon that is proved, at the cap's delta, for everything billed so far.

        A bound for fits that were not chosen in view of results of this ledger. Where later fits depend on the results
        of earlier ones, the cap is what holds.
        """
        return self._currency.epsilon(self.share) if self._currency is not None else 0.0

    def quote(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> tuple[Currency, float]:
        """The currency and share of a fit, or an error where the ledger would refuse it.

        If the fit will choose among several plans, given its preliminary answers, the most expensive counts.
        """
        if os.getpid() != self._pid:
            raise BudgetExceededError(
                f"a ledger is open in another process, number {self._pid}, and cannot bill this fit. {_OTHER_PROCESS}. "
                "Nothing was released"
            )
        if self._rows_per_unit not in (None, rows_per_unit):
            raise ValueError(
                f"this ledger protects units of {self._rows_per_unit} row(s) and {what} units of {rows_per_unit}; "
                "their costs cannot be added; use a separate ledger for each"
            )
        currency = self._currency or self._first_currency(plans, promise)
        share = max(currency.share(plan, promise) for plan in plans)
        if self.share + share > 1 + ROUNDING:
            advice = "Lower this fit's epsilon, or do without it"
            reach = f"to {100 * (self.share + share):.1f} % of" if math.isfinite(share) else "past"
            if math.isinf(share) and math.isfinite(promise[0]):
                advice = (
                    "It has no cost in the currency fixed by the ledger's first fit; run it first, or use other noise"
                )
            if math.isinf(share) and rho_of(self.cap) is not None:
                advice = "It has no rho; use method='hard_thresholding', or a ledger whose cap is in epsilon"
            if self.cap.delta == 0 < promise[1]:
                advice = (
                    f"It needs delta = {rounded_up(promise[1], 2)}; use a method whose noise needs no delta, such as "
                    "method='auto' with delta=0"
                )
            raise BudgetExceededError(
                f"{what} would take the ledger {reach} its cap "
                f"({_describe_cap(self.cap)}; {100 * self.share:.1f} % is spent); "
                f"nothing was released. {advice}"
            )
        return currency, share

    def _first_currency(self, plans: Sequence[Plan], promise: Promise) -> Currency:
        """The currency that the first fit fixes."""
        return cheapest_currency(self.cap, plans, promise)

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        """Bill a fit before it draws noise; returns how many fits were billed before."""
        with self._lock:
            self._currency, share = self.quote(what, plans, promise, rows_per_unit)
            self._rows_per_unit = rows_per_unit
            self._billed.append((what, share))
            number = len(self._billed) - 1
        log_charge(__name__, promise, share, self.share, number + 1)
        return number

    # Whether the same fits with the same seeds in another ledger like this draw the same noise.
    repeats = True

    def stream(self, number: int) -> tuple[int, ...]:
        """What tells the noise of the fit of this number from that of others under the same seed."""
        return (number,)

    def describe_entry(self, number: int) -> str:
        """The place of a fit in the ledger, for its report; "" where no one could look it up later."""
        return ""

    def confirm(self, plan: Plan, promise: Promise, number: int) -> None:
        """Raise unless the plan that a fit settled on costs no more than was billed for it."""
        if self._currency is None or self._currency.share(plan, promise) > self._share_of(number) * (1 + 1e-8):
            raise PlanError("the method's plan depends on the estimated bounds in a way that was not billed")

    def _share_of(self, number: int) -> float:
        return self._billed[number][1]

    def __str__(self) -> str:
        lines = [
            f"Ledger: cap {_describe_cap(self.cap)}; "
            f"proved so far epsilon = {rounded_up(self.epsilon)} ({100 * self.share:.1f} % of the cap)"
        ]
        lines += [f"  {100 * share:6.2f} %  {what}" for what, share in self.fits]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The ledger as notebooks show it: the same figures as `print` gives."""
        first, *_ = str(self).splitlines()
        lines = [(what, f"{100 * share:.2f} %") for what, share in self.fits]
        return html_paragraphs([first]) + html_table(("release", "share of the cap"), lines)

    def __getstate__(self) -> Any:
        raise TypeError(
            "a Ledger cannot be copied or sent to another process: its fits would be billed twice or not at all"
        )


def _describe_cap(cap: Budget) -> str:
    rho = rho_of(cap)
    # Rounded like the amount spent, which then does not look like more than the cap.
    measure = f"epsilon = {rounded_up(cap.epsilon)}" if rho is None else f"rho = {rounded_up(rho)}"
    return f"{measure}, delta = {rounded_up(cap.delta)}"


def log_charge(logger: str, promise: Promise, share: float, spent: float, entry: int, **about: str) -> None:
    """Log what was billed. A ledger's own text may name an analyst, a study or a client, and is left out."""
    price = {"proved_epsilon": float(promise[0]), "proved_delta": float(promise[1])}
    log_event(logger, "ledger.charged", **about, **price, share=float(share), spent=float(spent), entry=entry)


def describe_entries(entries: Sequence[Entry]) -> tuple[str, ...]:
    """The places of a billed release in ledgers on disk."""
    told = (ledger.describe_entry(number) for ledger, number in entries if isinstance(ledger, Ledger))
    return tuple(text for text in told if text)


def ledgers_are_open() -> bool:
    """Whether fits of this process are being billed."""
    return bool(open_ledgers)


def _check_other_processes(prepaid: bool) -> None:
    """Raise where a ledger that is open in another process would have to be billed for a fit of this one."""
    # A ledger of its own does not free a worker from its parent's: in one process both would be billed.
    if not prepaid and (why := why_not_to_fit()):
        raise BudgetExceededError(f"{why}. {_OTHER_PROCESS}. Nothing was released")
    if ledgers_are_open():
        leave_marker()  # in case it was deleted


register_check_of_other_processes(_check_other_processes)
