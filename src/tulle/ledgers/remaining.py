"""What a ledger still allows, in words that a person can plan with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tulle.files.number_text import rounded_down
from tulle.ledgers.currencies import Currency, RenyiCurrency, SumCurrency
from tulle.ledgers.on_disk import FileLedger
from tulle.trusted.gaussian import gaussian_epsilon


@dataclass(frozen=True)
class Remaining:
    """The remaining part of a cap.

    Attributes
    ----------
    epsilon : float
        The largest epsilon of one more fit, at `delta`; for Rényi currencies that of a fit with Gaussian noise alone.
    delta : float
    fits_like_last : int or None
        How many more fits that cost as much as the last one; None before the first.
    noise : str
        The noise that `epsilon` is for; "": any.
    """

    epsilon: float
    delta: float
    fits_like_last: int | None
    noise: str = ""

    def __str__(self) -> str:
        text = f"left: one more fit of epsilon up to {rounded_down(self.epsilon, 3)} at delta = "
        text += f"{rounded_down(self.delta, 5)}{self.noise}"
        if self.fits_like_last is not None:
            text += f", or {self.fits_like_last:,} more like the last one"
        return text


def remaining(ledger: FileLedger) -> Remaining:
    """What one more fit may cost, and how many more fits like the last there are."""
    last = ledger.entries[-1] if ledger.entries else None
    left = max(0.0, 1.0 - ledger.share)
    delta = ledger.cap.delta if last is None else last.delta
    if last is None:
        return Remaining(ledger.cap.epsilon, delta, None)
    fits = math.floor(left / last.share * (1 + 1e-9)) if last.share > 0 else None
    gaussian = isinstance(last.currency, RenyiCurrency) and delta > 0
    noise = " (with Gaussian noise)" if gaussian else ""
    return Remaining(_largest_epsilon(last.currency, left, delta), delta, fits, noise)


def _largest_epsilon(currency: Currency, left: float, delta: float) -> float:
    cap = currency.cap  # type: ignore[attr-defined]
    if isinstance(currency, SumCurrency):
        return left * cap.epsilon if delta <= left * cap.delta else 0.0
    assert isinstance(currency, RenyiCurrency)
    if delta == 0:
        return _largest_pure(currency, left)
    # Of one Gaussian: its divergence at this order is order mu² / 2.
    mu = math.sqrt(max(0.0, 2 * left * currency.room / currency.order))
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def _largest_pure(currency: RenyiCurrency, left: float) -> float:
    """Of a purely private fit: its divergence is at most epsilon, and at most order epsilon² / 2."""
    room = max(0.0, left * currency.room)
    return max(room, math.sqrt(2 * room / currency.order))
