"""Entries of a ledger on disk, and the chain of their hashes.

Each entry is a file. Its head is a hash of all that it says, the head of the entry before included, so that one head
stands for the whole ledger up to there. It covers 16 random bytes: without these, a printed head would confirm a guess
of what an entry says. Nothing that is computed from rows is in an entry.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from tulle import __version__
from tulle.files.number_text import finite
from tulle.ledgers.currencies import Currency, RenyiCurrency, SumCurrency
from tulle.ledgers.ledger import ROUNDING
from tulle.ledgers.nonces import random_id
from tulle.trusted.plan import Budget

FORMAT = "tulle ledger 3"


class LedgerFileError(ValueError):
    """The ledger is damaged, or something else. Nothing is released until it is repaired."""


class UnclearChargeError(LedgerFileError):
    """It is unclear whether a charge is on the bill. No noise was drawn, and it is to be taken for billed."""


@dataclass(frozen=True)
class Totals:
    """What all entries up to one add up to, rounded up.

    `imprecise` counts entries that were written before tulle included finite precision in delta.
    """

    share: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    imprecise: int = 0


@dataclass(frozen=True)
class Opening:
    """Entry 0: which data set, and the cap on everything that will ever be released about it.

    Attributes
    ----------
    dataset : str
    cap : Budget
    time : str
        In ISO 8601, UTC.
    witness : bool
        Whether every charge must be compared with a witness file.
    version : str
        Of tulle.
    random : str
        16 bytes, as hexadecimal digits. They identify the ledger of this data set.
    head : str
        The hash of all this.
    """

    dataset: str
    cap: Budget
    time: str
    witness: bool
    version: str
    random: str
    head: str = ""

    number = 0
    totals = Totals()
    currency: Currency | None = field(default=None, init=False, repr=False)
    rows_per_unit: int | None = field(default=None, init=False, repr=False)


@dataclass(frozen=True)
class Charge:
    """What a fit asks of a ledger.

    Attributes
    ----------
    what : str
        What was run, such as "SparseClassifier.fit".
    analyst, purpose, note : str
        In the caller's words.
    epsilon, delta : float
        The guarantee of the release alone.
    share : float
        The part of the cap that it takes, in [0, 1], in the currency.
    currency : Currency
        Fixed by the first charge.
    rows_per_unit : int
        Rows of one person; fixed by the first charge.
    plan : tuple of str
        What will be released, line by line.
    request : str
        Its own id: repeated over a network, it is billed once.
    time : str
        When it was billed, in ISO 8601, UTC.
    version : str
        Of the tulle that asks.
    finite_precision : bool
        Whether `delta` includes the effect of finite precision. False in some entries of older ledgers.
    """

    what: str
    analyst: str
    purpose: str
    note: str
    epsilon: float
    delta: float
    share: float
    currency: Currency
    rows_per_unit: int
    plan: tuple[str, ...]
    request: str
    time: str
    version: str = __version__
    finite_precision: bool = True


@dataclass(frozen=True)
class LedgerEntry(Charge):
    """One release on a data set: a charge, and its place in the ledger.

    Attributes
    ----------
    number : int
        Its place, from 1.
    epsilon_so_far : float
        The epsilon proved, at the cap's delta, for everything up to this entry, if nothing of it was chosen in view of
        results; otherwise the cap holds.
    totals : Totals
    previous : str
        The head of the entry before.
    random : str
        16 bytes, as hexadecimal digits.
    head : str
        The hash of all this.
    """

    number: int = 0
    epsilon_so_far: float = math.inf
    totals: Totals = Totals()
    previous: str = ""
    random: str = ""
    head: str = ""


Record = Opening | LedgerEntry


def new_opening(dataset: str, cap: Budget, *, witness: bool = False) -> Opening:
    """The first record of a ledger."""
    return _seal(Opening(dataset, cap, now(), witness, __version__, secrets.token_hex(16)))


def entry_after(last: Record, charge: Charge, cap: Budget) -> LedgerEntry:
    """The entry of a charge, or an error where it does not follow the last one or passes the cap."""
    if last.currency not in (None, charge.currency) or last.rows_per_unit not in (None, charge.rows_per_unit):
        raise LedgerFileError("the charge counts in another currency or in other units than the ledger")
    totals = Totals(
        _add(last.totals.share, charge.share),
        _add(last.totals.epsilon, charge.epsilon),
        _add(last.totals.delta, charge.delta),
        last.totals.imprecise + (not charge.finite_precision),
    )
    if not totals.share <= 1 + ROUNDING:
        raise LedgerFileError("the charge passes the cap")
    said = {one.name: getattr(charge, one.name) for one in fields(Charge)}
    return _seal(
        LedgerEntry(
            **said,
            number=last.number + 1,
            epsilon_so_far=proved(charge.currency, totals, cap),
            totals=totals,
            previous=last.head,
            random=random_id("entry", last.number + 1),
        )
    )


def proved(currency: Currency | None, totals: Totals, cap: Budget) -> float:
    """The least of what the currency proves and of the plain sum, at the cap's delta.

    A bound for fits that were not chosen in view of each other's results; otherwise what holds is the cap.
    """
    if currency is None:
        return 0.0
    within = totals.delta <= cap.delta * (1 + 1e-9)
    return min(currency.epsilon(totals.share), totals.epsilon) if within else currency.epsilon(totals.share)


def now() -> str:
    """The time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _add(total: float, more: float) -> float:
    """A sum, rounded up."""
    return math.nextafter(total + more, math.inf) if more else total


# --- as text ---------------------------------------------------------------------------------------------------------


def to_json(record: Record) -> bytes:
    """A record as the content of its file."""
    return (json.dumps({"format": FORMAT, **_plain(record)}, indent=1, ensure_ascii=False) + "\n").encode()


def from_json(content: bytes, cap: Budget | None = None) -> Record:
    """The record that a file holds, checked against its own head. Raises ValueError where it is anything else.

    `cap` is that of the ledger; None for its opening alone.
    """
    values = json.loads(content)
    if not isinstance(values, dict) or not str(values.get("format", "")).startswith("tulle ledger "):
        raise ValueError("it has another format")
    if values.pop("format") != FORMAT:
        raise ValueError("it is of another version of tulle; upgrade")
    kind = values.pop("kind")
    record: Record
    if kind == "opening":
        record = Opening(**{**values, "cap": Budget(**values["cap"])})
    elif cap is None:
        raise ValueError("it is no opening of a ledger")
    else:
        record = _read_entry(values, cap)
    if _seal(record).head != record.head:
        raise ValueError("its hash does not match: it was edited or damaged")
    return record


def _seal(record: Any) -> Any:
    """The record with its head."""
    plain = {name: value for name, value in _plain(record).items() if name != "head"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return replace(record, head=hashlib.sha256(text.encode()).hexdigest())


def _plain(record: Record) -> dict[str, Any]:
    if isinstance(record, Opening):
        return {
            "kind": "opening",
            "dataset": record.dataset,
            "cap": asdict(record.cap),
            "time": record.time,
            "witness": record.witness,
            "version": record.version,
            "random": record.random,
            "head": record.head,
        }
    return {"kind": "entry", **charge_to_plain(record)}


def charge_to_plain(charge: Charge) -> dict[str, Any]:
    """A charge or an entry as JSON can hold it."""
    values = {one.name: getattr(charge, one.name) for one in fields(charge)}
    values["currency"] = currency_to_plain(charge.currency)
    if isinstance(charge, LedgerEntry):
        values["totals"] = asdict(charge.totals)
    plain: dict[str, Any] = finite(values)
    return plain


def charge_from_plain(values: Mapping[str, Any], cap: Budget) -> dict[str, Any]:
    """The arguments of a charge or an entry, those of a charge checked."""
    found = dict(values)
    found["plan"] = tuple(map(str, found["plan"]))
    found["currency"] = currency_from_plain(found["currency"], cap)
    for name in ("epsilon", "delta", "share"):
        found[name] = float(found[name])
    whole = isinstance(found["rows_per_unit"], int) and found["rows_per_unit"] >= 1
    priced = 0 <= found["share"] <= 1 + ROUNDING and 0 <= found["epsilon"] < math.inf and 0 <= found["delta"] < 1
    texts = all(isinstance(found[name], str) for name in ("what", "analyst", "purpose", "note", "request", "time"))
    if not (whole and priced and texts):
        raise ValueError("an entry has no valid cost")
    return found


def _read_entry(values: dict[str, Any], cap: Budget) -> LedgerEntry:
    found = charge_from_plain(values, cap)
    found["totals"] = Totals(**found["totals"])
    found["epsilon_so_far"] = float(found["epsilon_so_far"])
    if not (isinstance(found["number"], int) and found["number"] >= 1 and found["totals"].share >= found["share"]):
        raise ValueError("an entry has no place")
    return LedgerEntry(**found)


def currency_to_plain(currency: Currency) -> dict[str, Any]:
    if isinstance(currency, RenyiCurrency):
        return {"kind": "renyi", "order": currency.order}
    if isinstance(currency, SumCurrency):
        return {"kind": "sum"}
    raise TypeError(f"a file cannot store {currency!r}")


def currency_from_plain(values: Mapping[str, Any], cap: Budget) -> Currency:
    if values["kind"] == "sum":
        return SumCurrency(cap)
    if values["kind"] == "renyi" and values["order"] > 1:
        return RenyiCurrency(cap, float(values["order"]))
    raise ValueError(f"it counts in {values!r}")
