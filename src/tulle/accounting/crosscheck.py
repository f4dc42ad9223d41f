"""The epsilon that dp-accounting proves, to compare ours with.

For tests and comparisons (extra `crosscheck`). No fit, ledger, report or command bills by it: every printed ε is from
the accountants of tulle itself.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from tulle.files.install_hints import install_hint
from tulle.trusted.events import (
    BoundedRangeEvent,
    Event,
    ExposedEvent,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    SampledGaussianEvent,
)
from tulle.trusted.plan import Composition

Library = Literal["rdp", "pld"]


def import_dp_accounting() -> Any:
    """The package `dp_accounting` with its modules `pld` and `rdp`; an `ImportError` that says what to install."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise ImportError(
            f"the cross-check needs the package dp-accounting: {install_hint('crosscheck')}", name=error.name
        ) from error
    return dp_accounting


def library_epsilon(composition: Composition, delta: float, library: Library) -> float | None:
    """dp-accounting's own epsilon of a composition, as a cross-check; None where it does not know the events."""
    dp = import_dp_accounting()
    replace_one = dp.NeighboringRelation.REPLACE_ONE
    accountant = (
        dp.rdp.RdpAccountant(neighboring_relation=replace_one)
        if library == "rdp"
        else dp.pld.PLDAccountant(replace_one, 1e-4)
    )
    for event, count in composition:
        dp_event = to_dp_accounting(event, library)
        if dp_event is None:
            return None
        # One by one, not as a ComposedDpEvent: the contract test compares sums with our own.
        accountant.compose(dp.SelfComposedDpEvent(dp_event, count))
    return float(accountant.get_epsilon(delta))


def to_dp_accounting(event: Event, library: Library) -> Any:
    """The event as dp-accounting's `library` accountant under REPLACE_ONE reads it; None where it has none.

    By exact type: a subclass may mean something else by the same noise.
    """
    convert = _CONVERSIONS.get(type(event))
    return None if convert is None else convert(event, library)


def _convert_gaussian(event: GaussianEvent, library: Library) -> Any:
    dp_event = import_dp_accounting().dp_event

    if math.isinf(event.noise.value):
        return dp_event.NoOpDpEvent()
    # Under REPLACE_ONE dp-accounting 0.6 takes the number as noise per sensitivity in the Rényi accountant, but as
    # noise per record bound in the PLD accountant.
    multiplier = event.noise.value if library == "rdp" else _per_record_bound(event)
    return dp_event.GaussianDpEvent(multiplier)


def _per_record_bound(event: GaussianEvent) -> float:
    """Noise divided by the bound on one record: replacing a record moves a sum by two bounds."""
    return 2.0 * event.noise.value


def _convert_sampled_gaussian(event: SampledGaussianEvent, library: Library) -> Any:
    dp_event = import_dp_accounting().dp_event

    if math.isinf(event.noise.value):
        return dp_event.NoOpDpEvent()
    if event.noise.value == 0:
        return dp_event.NonPrivateDpEvent()
    # dp-accounting 0.6 has Poisson batches in its PLD accountant alone, and others in its Rényi accountant, which
    # wants the number of rows.
    if event.scheme == "poisson" and library == "pld":
        return dp_event.PoissonSampledDpEvent(event.rate, dp_event.GaussianDpEvent(_per_record_bound(event)))
    return None


def _convert_laplace(event: LaplaceEvent, library: Library) -> Any:
    dp_event = import_dp_accounting().dp_event

    if event.noise.value == 0:
        return dp_event.NonPrivateDpEvent()
    return dp_event.LaplaceDpEvent(event.noise.value) if library == "rdp" else None


def _convert_bounded_range(event: BoundedRangeEvent, library: Library) -> Any:
    dp_event = import_dp_accounting().dp_event

    return dp_event.ZCDpEvent(event.epsilon**2 / 8) if library == "rdp" else None


def _convert_pure(event: PureEvent, library: Library) -> Any:
    dp_event = import_dp_accounting().dp_event

    if event.epsilon > 700:
        return dp_event.NonPrivateDpEvent()
    # dp-accounting 0.6 answers with one of two buckets at random with probability p, and truly otherwise: the odds of
    # the true one are 2 / p - 1. Its PLD accountant forgets how often this event is used and bills it once.
    return dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(event.epsilon)), 2) if library == "rdp" else None


def _convert_exposed(event: ExposedEvent, library: Library) -> Any:
    dp_event = import_dp_accounting().dp_event

    return dp_event.NonPrivateDpEvent()


_CONVERSIONS: dict[type[Event], Any] = {
    GaussianEvent: _convert_gaussian,
    SampledGaussianEvent: _convert_sampled_gaussian,
    LaplaceEvent: _convert_laplace,
    BoundedRangeEvent: _convert_bounded_range,
    PureEvent: _convert_pure,
    ExposedEvent: _convert_exposed,
}
