"""Ledgers on disk: what was ever released about a named data set, and a cap that outlives a process.

A fit is written down, and the writing has reached the disk, before its noise is drawn. A crash may therefore leave on
the bill a fit that released nothing, and never the other way round. How entries are stored: `tulle.ledgers.chain`.
Proof: docs/proofs/accounting.md, theorem 4.

The folder is not for release: someone who knows all rows but one could test guesses about the last against its hints.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.accounting.zcdp import refuse_rho
from tulle.files.claimed_names import ClaimError
from tulle.files.error_messages import PrivacyWarning
from tulle.files.notebook_html import html_paragraphs, html_table
from tulle.files.number_text import rounded_up
from tulle.ledgers.chain import Chain, datasets
from tulle.ledgers.currencies import Currency, cheapest_currency
from tulle.ledgers.entries import Charge, LedgerEntry, LedgerFileError, Record, UnclearChargeError, now, proved
from tulle.ledgers.hints import hint_of, leave_hint, other_names
from tulle.ledgers.ledger import Ledger, log_charge
from tulle.ledgers.nonces import nonce, nonce_is_fixed, random_id
from tulle.ledgers.witness import Witness, require_witness
from tulle.trusted.plan import Budget, Plan, Promise

__all__ = ["FileLedger", "LedgerEntry", "LedgerFileError", "read_ledgers"]


class FileLedger(Ledger):
    """A ledger in a folder, for one data set named in it: a cap on everything that is ever released about it.

    As `tulle.Ledger`, but it persists, for other processes too. Any number of processes may use one folder at a
    time, also over a network file system, if that has hard links. Counts in Rényi divergence at one order or in plain
    sums of epsilon and delta, whichever is less for the first fit; nearly every method has a price in both.

    Parameters
    ----------
    path : path or str
        A folder that `FileLedger.create` made, or the address ("https://…") of `tulle ledger serve`.
    dataset : str
        The name of the data set in it.
    note, analyst, purpose : str, default=""
        Written into each entry: where the model goes, who asks, and for which purpose.
    rows : array, tuple of arrays, str or None, default=None
        The rows, or the name of their content, to leave a hint by which they are recognised under another name.
    witness : path or None, default=None
        A second file, best on another disk, where the head of each entry is written down. With it every charge first
        compares the two, and is refused if an entry was changed or lost.
    credentials : tuple of three paths or None, default=None
        For an address: this client's certificate, its key, and the certificate of the authority.

    Examples
    --------
    >>> import os, tempfile
    >>> from tulle import Budget, FileLedger
    >>> path = os.path.join(tempfile.mkdtemp(), "budget")
    >>> FileLedger.create(path, "visits 2026", Budget(3.0, 1e-6)).epsilon
    0.0
    >>> with FileLedger(path, "visits 2026") as ledger:
    ...     pass  # fit models here
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dataset: str,
        *,
        note: str = "",
        analyst: str = "",
        purpose: str = "",
        rows: Any = None,
        witness: str | os.PathLike[str] | None = None,
        credentials: tuple[str, str, str] | None = None,
    ) -> None:
        self.note, self.analyst, self.purpose = str(note), str(analyst), str(purpose)
        for words in (self.note, self.analyst, self.purpose):
            if not words.isprintable():
                raise ValueError(f"the note of a ledger must be printable text on one line, got {words!r}")
        self._chain: Any = _open_chain(path, _name(dataset), credentials)
        self.path = path if _is_address(path) else self._chain.root
        self.dataset: str = self._chain.opening.dataset
        self.witness = None if witness is None else Witness(witness)
        super().__init__(self._chain.opening.cap)
        self._hint = ""
        self._nonce = nonce()
        self._entries: tuple[LedgerEntry, ...] = ()
        self._last: Record = self._chain.opening
        # Fits that this object has billed, those included of which a failing disk leaves unclear whether they are.
        self.n_billed = 0
        # What this object has billed. After noise was drawn nothing is read again: a failing disk would cost the model.
        self._own: dict[int, LedgerEntry] = {}
        self.refresh()
        if told := self._describe_old_entries():
            warnings.warn(told, PrivacyWarning, stacklevel=2)
        if rows is not None and isinstance(self._chain, Chain):
            self._hint = hint_of(self._chain, rows)
            self._recognise()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        dataset: str,
        cap: Budget,
        *,
        witness: str | os.PathLike[str] | None = None,
    ) -> FileLedger:
        """Open an account for a data set; the folder is created if it is missing.

        Parameters
        ----------
        path : path
        dataset : str
            A name that is not in the ledger yet, not empty.
        cap : Budget
            The guarantee for everything that will ever be released about it. It cannot be raised later.
        witness : path or None, default=None
            A file where the head of every entry is written down. With it, every later charge needs it too.
        """
        if not isinstance(cap, Budget):
            raise TypeError(f"a cap is a Budget, for example Budget(3.0, 1e-6); got {cap!r}")
        refuse_rho(cap, "a ledger on disk")
        if _is_address(path):
            raise ValueError("accounts are opened where the folder of the ledger is, not over the network")
        chain = Chain.create(path, _name(dataset), cap, witness=witness is not None)
        if witness is not None:
            Witness(witness).append(chain.opening, chain.opening)
        return cls(path, dataset, witness=witness)

    def _take(self, last: Record) -> None:
        """Continue from a later record."""
        self._last = last
        self._currency, self._rows_per_unit = last.currency, last.rows_per_unit

    def refresh(self) -> FileLedger:
        """See what other processes have spent since.

        Returns
        -------
        self
        """
        with self._lock:  # or a fit of another thread would be billed between reading and taking
            self._take(self._chain.last(self._last))
        return self

    def __enter__(self) -> FileLedger:
        self.refresh()
        self._nonce = nonce()
        super().__enter__()
        return self

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries that this object has seen, each read once."""
        known = len(self._entries)
        self._entries += tuple(self._chain.read(number) for number in range(known + 1, self._last.number + 1))
        return self._entries

    @property
    def fits(self) -> list[tuple[str, float]]:
        """What was billed, and the share of the cap that it took."""
        return [(entry.what, entry.share) for entry in self.entries]

    @property
    def share(self) -> float:
        """The part of the cap that is spent, in [0, 1]."""
        return self._last.totals.share

    @property
    def head(self) -> str:
        """The hash that stands for the whole ledger up to its last entry."""
        return self._last.head

    @property
    def epsilon(self) -> float:
        """The epsilon proved, at the cap's delta, for all releases so far, if none was chosen in view of results.

        The smaller of the plain sum and the value that the ledger's currency proves. Where fits were chosen in view of
        earlier results, only the cap holds.
        """
        return proved(self._currency, self._last.totals, self.cap)

    def _first_currency(self, plans: Sequence[Plan], promise: Promise) -> Currency:
        # Not Gaussian mu²: a ledger that lasts for years would refuse for ever all methods that have no such price.
        return cheapest_currency(self.cap, plans, promise, with_gaussian=False)

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        """Bill a fit: when this returns it is on the disk, and its noise may be drawn."""
        request = random_id("request", what, self.n_billed)

        def propose(last: Record) -> Charge:
            self._take(last)
            if self.witness is None:
                require_witness(self._chain.opening)
            else:
                self.witness.compare_before_charge(self._chain.opening, last, self._chain.read)
            currency, share = self.quote(what, plans, promise, rows_per_unit)
            return Charge(
                what=what,
                analyst=self.analyst,
                purpose=self.purpose,
                note=self.note,
                epsilon=float(promise[0]),
                delta=float(promise[1]),
                share=share,
                currency=currency,
                rows_per_unit=rows_per_unit,
                plan=_lines(max(plans, key=lambda plan: currency.share(plan, promise))),
                request=request,
                time=now(),
            )

        with self._lock:
            try:
                entry: LedgerEntry = self._chain.append(propose, self._last)
            except (ClaimError, UnclearChargeError):
                self.n_billed += 1
                raise
            self.n_billed += 1
            self._own[entry.number] = entry
            self._take(entry)
            if self.witness is not None:
                self.witness.append(self._chain.opening, entry)
            if self._hint:
                leave_hint(self._chain, self._hint)
        log_charge(__name__, promise, entry.share, entry.totals.share, entry.number, dataset=self.dataset)
        return entry.number - 1

    def _entry_of(self, number: int) -> LedgerEntry:
        """The entry of the fit of this number; read where another object billed it, as before a crash."""
        return self._own.get(number + 1) or self._chain.read(number + 1)

    def _share_of(self, number: int) -> float:
        return self._entry_of(number).share

    def stream(self, number: int) -> tuple[int, ...]:
        """As in `tulle.Ledger`, and other words for every data set of every ledger and every time that it is opened.

        The nonce is not in the folder: an older copy that is put back finds the old numbers, and not the old noise.
        """
        key = bytes.fromhex(self._chain.opening.random)
        words = hmac.new(key, f"noise of {self.dataset}".encode(), hashlib.sha256).digest()[:16]
        return (number, *(int.from_bytes(words[k : k + 4], "big") for k in range(0, 16, 4)), *self._nonce)

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        """Whether a seed repeats noise here: not without a test hook."""
        return nonce_is_fixed()

    def describe_entry(self, number: int) -> str:
        """The place of a fit in the ledger, for its report: with it, the ledger can be checked later."""
        return f"entry {number + 1}, head {self._entry_of(number).head}"

    def _recognise(self) -> None:
        """Say so where the same rows have spent under another name."""
        for name in other_names(self._chain, self._hint):
            warnings.warn(
                f"the same rows were billed as {name!r} before; as {self.dataset!r} they have another cap, and "
                "the privacy loss of people in both is the sum of the two",
                UserWarning,
                stacklevel=3,
            )

    def _describe_old_entries(self) -> str:
        """The remark on entries that were written before finite precision was counted; "" if there are none."""
        old = self._last.totals.imprecise
        if not old:
            return ""
        return (
            f"{self.dataset}: {old} {'entry was' if old == 1 else 'entries were'} written before tulle included the "
            "effect of finite precision in delta: their delta omits that part, and so does the value proved for all "
            "entries together (SECURITY.md)"
        )

    def summary(self) -> str:
        """The cap and the share of it that is spent, in one line."""
        so_far = f" (epsilon = {rounded_up(self.epsilon)} if no fit was chosen after seeing the result of another)"
        return (
            f"{self.dataset}: cap epsilon = {rounded_up(self.cap.epsilon)}, delta = {rounded_up(self.cap.delta)}; "
            f"{100 * self.share:.1f} % is spent{so_far if self._last.number else ''}; "
            f"entry {self._last.number}, head {self.head[:16]}"
        )

    def __str__(self) -> str:
        lines = [self.summary()]
        for entry in self.entries:
            said = "; ".join(text for text in (entry.analyst, entry.purpose, entry.note) if text)
            lines.append(
                f"  {entry.number:>3}  {entry.time}  {100 * entry.share:6.2f} %  ε = {rounded_up(entry.epsilon)}, "
                f"δ = {rounded_up(entry.delta)}  {entry.what}{'  ' + said if said else ''}"
            )
        if told := self._describe_old_entries():
            lines.append(f"  {told}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = ("entry", "time", "share of the cap", "ε", "δ", "release", "analyst", "purpose", "note")
        lines = [
            (
                str(entry.number),
                entry.time,
                f"{100 * entry.share:.2f} %",
                rounded_up(entry.epsilon, 4),
                rounded_up(entry.delta, 4),
                entry.what,
                entry.analyst,
                entry.purpose,
                entry.note,
            )
            for entry in self.entries
        ]
        told = self._describe_old_entries()
        return html_paragraphs([self.summary()]) + html_table(head, lines) + html_paragraphs([told] if told else [])


def read_ledgers(path: str | os.PathLike[str]) -> dict[str, FileLedger]:
    """Every data set's ledger in a folder, by name."""
    return {name: FileLedger(path, name) for name in datasets(path)}


def _open_chain(path: str | os.PathLike[str], dataset: str, credentials: tuple[str, str, str] | None) -> Any:
    if not _is_address(path):
        return Chain(path, dataset)
    from tulle.ledgers.remote_chain import RemoteChain

    return RemoteChain(str(path), dataset, credentials)


def _is_address(path: str | os.PathLike[str]) -> bool:
    return isinstance(path, str) and path.startswith(("https://", "http://"))


def _name(dataset: Any) -> str:
    """The name of a data set, in one of the ways in which Unicode can write it."""
    if not (isinstance(dataset, str) and dataset.strip() == dataset != "" and dataset.isprintable()):
        raise ValueError(f"the name of a data set must be printable text without spaces around it, got {dataset!r}")
    return unicodedata.normalize("NFC", dataset)


def _lines(plan: Plan) -> tuple[str, ...]:
    """A plan as text."""
    return tuple(
        f"{release.name}: {describe_mechanism(release.mechanism)}, {release.count} times, noise / sensitivity "
        f"{release.mechanism.noise.value:.6g}"
        for release in plan
    )
