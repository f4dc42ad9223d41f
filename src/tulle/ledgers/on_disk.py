"""Ledgers on disk: what was ever released about a named data set, and a cap that outlives a process.

A fit is written down, and the writing has reached the disk, before its noise is drawn. A crash may therefore leave on
the bill a fit that released nothing, and never the other way round. The file is replaced as a whole under a lock, so
that readers see the old ledger or the new one, and processes spend one after the other. Proof:
docs/proofs/accounting.md, theorem 4.

The file is not for release: whoever knows all rows but one could test guesses about the last against the hints in it.
"""

from __future__ import annotations

import difflib
import hashlib
import hmac
import json
import math
import os
import secrets
import stat
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tulle.durable import locked, locked_in_place, write_durably
from tulle.privacy import (
    ROUNDING,
    Budget,
    Currency,
    Ledger,
    Plan,
    PrivacyWarning,
    Promise,
    RenyiCurrency,
    SumCurrency,
    cheapest_currency,
)
from tulle.randomness import nonce, nonce_is_fixed
from tulle.report import finite, rounded_up

FORMAT = "tulle ledger 2"
# Entries of files of this format do not hold in their delta what finite precision adds to it.
_OLD_FORMAT = "tulle ledger 1"

# Billing takes milliseconds; whoever holds the lock for longer hangs.
_PATIENCE = 30.0


class LedgerFileError(ValueError):
    """The file is not a ledger, or damaged. Nothing is released until that is mended."""


@dataclass(frozen=True)
class LedgerEntry:
    """One release on a data set.

    Attributes
    ----------
    time : str
        When it was billed, in ISO 8601, UTC.
    what : str
        What was run, such as "SparseClassifier.fit".
    note : str
        What the caller said about it.
    epsilon, delta : float
        What the release promises by itself.
    share : float
        The part of the cap that it took, in [0, 1].
    epsilon_so_far : float
        What is proved, at the cap's delta, for everything up to this entry, if nothing of it was chosen in view of
        results; else what holds is the cap.
    plan : tuple of str
        What was planned to be released, line by line.
    hint : str
        A keyed hash of the rows: the same for the same rows, "" where they were not shown. Only a hint: a data set is
        its name, and one changed row must not reset a budget.
    finite_precision : bool
        Whether `delta` holds what finite precision adds. Not so of entries that were written before tulle counted it.
    """

    time: str
    what: str
    note: str
    epsilon: float
    delta: float
    share: float
    epsilon_so_far: float
    plan: tuple[str, ...]
    hint: str
    finite_precision: bool = True


class FileLedger(Ledger):
    """A ledger in a file, for one data set named in it: a cap on everything that is ever released about it.

    As `tulle.Ledger`, and it goes on where it was left, in other processes too. Several processes may use one file at a
    time. Counts in Rényi divergence at one order or in plain sums of epsilon and delta, whichever is less for the first
    fit; nearly every method has a price in both.

    Parameters
    ----------
    path : path
        A file that `FileLedger.create` made.
    dataset : str
        The name of the data set in it.
    note : str, default=""
        Written beside each entry: who asks, what for, where the model goes.
    rows : array, tuple of arrays, str or None, default=None
        The rows, or the name of their content, to leave a hint by which they are recognised under another name.

    Examples
    --------
    >>> import os, tempfile
    >>> from tulle import Budget, FileLedger
    >>> path = os.path.join(tempfile.mkdtemp(), "ledger.json")
    >>> FileLedger.create(path, "visits 2026", Budget(3.0, 1e-6)).epsilon
    0.0
    >>> with FileLedger(path, "visits 2026") as ledger:
    ...     pass  # fit models here
    """

    def __init__(self, path: str | os.PathLike[str], dataset: str, *, note: str = "", rows: Any = None) -> None:
        self.path = _place(path)
        self.dataset = _name(dataset)
        self.note = str(note)
        if not self.note.isprintable():
            raise ValueError(f"the note of a ledger must be printable text on one line, got {self.note!r}")
        self.entries: tuple[LedgerEntry, ...] = ()
        account = _account(_read(self.path), self.dataset, self.path)
        super().__init__(Budget(**account["cap"]))
        self._hint = ""
        self._nonce = nonce()
        self._take(account)
        if told := self._told_of_old_entries():
            warnings.warn(told, PrivacyWarning, stacklevel=2)
        if rows is not None:
            self._hint = _hint(_read(self.path)["key"], rows)
            self._recognise()

    @classmethod
    def create(cls, path: str | os.PathLike[str], dataset: str, cap: Budget) -> FileLedger:
        """Open an account for a data set; the file is made where it is missing.

        Parameters
        ----------
        path : path
        dataset : str
            A name that is not in the file yet, not empty.
        cap : Budget
            The promise that holds for everything that will ever be released about it. It cannot be raised later.
        """
        if not isinstance(cap, Budget):
            raise TypeError(f"a cap is a Budget, for example Budget(3.0, 1e-6); got {cap!r}")
        dataset = _name(dataset)
        path = _place(path)
        with _locked(path):
            new: dict[str, Any] = {"format": FORMAT, "key": secrets.token_hex(16), "datasets": {}}
            values = _read(path) if path.exists() else new
            for known in values["datasets"]:
                if _looks(known) == _looks(dataset):
                    raise ValueError(
                        f"{path.name} has an account for {known!r} already, and its cap cannot be changed; open it "
                        "with FileLedger(path, dataset), or choose a name that looks different if it holds other people"
                    )
            values["datasets"][dataset] = {
                "cap": asdict(cap),
                "opened": _now(),
                "currency": None,
                "rows_per_unit": None,
                "entries": [],
            }
            _write(path, values)
        return cls(path, dataset)

    def _take(self, account: dict[str, Any]) -> None:
        """Become what the file says."""
        entries = tuple(account["entries"])
        if entries[: len(self.entries)] != self.entries:
            raise LedgerFileError(
                f"{self.path.name} has lost or changed entries of {self.dataset!r} since it was opened; was an old "
                "copy put back? Nothing is released"
            )
        self.entries = entries
        self.fits = [(entry.what, entry.share) for entry in entries]
        self._currency = account["currency"]
        self._rows_per_unit = account["rows_per_unit"]

    def refresh(self) -> FileLedger:
        """See what other processes have spent since.

        Returns
        -------
        self
        """
        with self._lock:  # or a fit of another thread would be billed between reading and taking
            self._take(_account(_read(self.path), self.dataset, self.path))
        return self

    def __enter__(self) -> FileLedger:
        self.refresh()
        self._nonce = nonce()
        super().__enter__()
        return self

    @property
    def epsilon(self) -> float:
        """What is proved, at the cap's delta, for everything so far, if what was asked did not depend on the results.

        The least of what the ledger's currency proves and of the plain sum. Where fits were chosen in view of earlier
        results, what holds is the cap.
        """
        promises = [(entry.epsilon, entry.delta) for entry in self.entries]
        return self._proved(self._currency, self.share, promises)

    def _proved(self, currency: Currency | None, share: float, promises: Sequence[Promise]) -> float:
        if currency is None:
            return 0.0
        added_up = sum(epsilon for epsilon, _ in promises)
        within = sum(delta for _, delta in promises) <= self.cap.delta * (1 + 1e-12)
        return min(currency.epsilon(share), added_up) if within else currency.epsilon(share)

    def _first_currency(self, plans: Sequence[Plan], promise: Promise) -> Currency:
        # Not Gaussian mu²: a ledger that lasts for years would refuse for ever all methods that have no such price.
        return cheapest_currency(self.cap, plans, promise, with_gaussian=False)

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        """Bill a fit: when this returns it is on the disk, and its noise may be drawn."""
        with self._lock, _locked(self.path):
            values = _read(self.path)
            self._take(_account(values, self.dataset, self.path))
            currency, share = self.quote(what, plans, promise, rows_per_unit)
            dearest = max(plans, key=lambda plan: currency.share(plan, promise))
            promises = [*((entry.epsilon, entry.delta) for entry in self.entries), promise]
            entry = LedgerEntry(
                time=_now(),
                what=what,
                note=self.note,
                epsilon=float(promise[0]),
                delta=float(promise[1]),
                share=share,
                epsilon_so_far=self._proved(currency, self.share + share, promises),
                plan=_lines(dearest),
                hint=self._hint,
            )
            account = values["datasets"][self.dataset]
            account["entries"].append(entry)
            account |= {"currency": currency, "rows_per_unit": rows_per_unit}
            _write(self.path, values)
            self._take(account)
            return len(self.fits) - 1

    def stream(self, number: int) -> tuple[int, ...]:
        """As in `tulle.Ledger`, and other words for every data set of every file and every time that it is opened.

        The nonce is not in the file: an older copy that is put back finds the old numbers, and not the old noise.
        """
        key = bytes.fromhex(_read(self.path)["key"])
        words = hmac.new(key, f"noise of {self.dataset}".encode(), hashlib.sha256).digest()[:16]
        return (number, *(int.from_bytes(words[k : k + 4], "big") for k in range(0, 16, 4)), *self._nonce)

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        """Whether a seed repeats noise here: not without a test hook."""
        return nonce_is_fixed()

    def _recognise(self) -> None:
        """Say so where the same rows have spent under another name."""
        for name, account in _read(self.path)["datasets"].items():
            if name != self.dataset and any(entry.hint == self._hint for entry in account["entries"]):
                warnings.warn(
                    f"these very rows were billed as {name!r} before; as {self.dataset!r} they have another cap, and "
                    "people in both lose the sum of what the two allow",
                    UserWarning,
                    stacklevel=3,
                )

    def _told_of_old_entries(self) -> str:
        """What is said of entries that were written before finite precision was counted; "" where there are none."""
        old = sum(not entry.finite_precision for entry in self.entries)
        if not old:
            return ""
        return (
            f"{self.dataset}: {old} {'entry was' if old == 1 else 'entries were'} written before tulle counted in "
            "delta what finite precision adds to it: their delta leaves that part out, and so does what is proved for "
            "all entries together (SECURITY.md)"
        )

    def summary(self) -> str:
        """The cap and what is spent of it, in one line."""
        so_far = f" (epsilon = {rounded_up(self.epsilon)} if no fit was chosen in view of another's result)"
        return (
            f"{self.dataset}: cap epsilon = {self.cap.epsilon:g}, delta = {self.cap.delta:g}; "
            f"{100 * self.share:.1f} % is spent{so_far if self.entries else ''}"
        )

    def __str__(self) -> str:
        lines = [self.summary()]
        for number, entry in enumerate(self.entries, 1):
            said = f"  {entry.note}" if entry.note else ""
            lines.append(
                f"  {number:>3}  {entry.time}  {100 * entry.share:6.2f} %  ε = {rounded_up(entry.epsilon, 4)}, "
                f"δ = {rounded_up(entry.delta, 4)}  {entry.what}{said}"
            )
        if told := self._told_of_old_entries():
            lines.append(f"  {told}")
        return "\n".join(lines)


def read_ledgers(path: str | os.PathLike[str]) -> dict[str, FileLedger]:
    """Every data set's ledger in a file, by name."""
    found = _place(path)
    return {name: FileLedger(found, name) for name in _read(found)["datasets"]}


def _place(path: str | os.PathLike[str]) -> Path:
    """The one file behind a path and its links."""
    found = Path(os.path.realpath(path))
    if found.exists() and not found.is_file():
        raise LedgerFileError(f"{found.name or found} is a folder, a pipe or a device; a ledger is a file")
    return found


def _name(dataset: Any) -> str:
    """The name of a data set, in one of the ways in which Unicode can write it."""
    if not (isinstance(dataset, str) and dataset.strip() == dataset != "" and dataset.isprintable()):
        raise ValueError(f"the name of a data set must be printable text without spaces around it, got {dataset!r}")
    return unicodedata.normalize("NFC", dataset)


def _looks(dataset: str) -> str:
    """What is left of a name when it is read and not compared letter by letter."""
    return " ".join(unicodedata.normalize("NFKC", dataset).casefold().split())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _lines(plan: Plan) -> tuple[str, ...]:
    """A plan as text."""
    return tuple(
        f"{release.name}: {release.mechanism.label}, {release.count} times, noise / sensitivity "
        f"{release.mechanism.noise.value:.6g}"
        for release in plan
    )


def _hint(key: str, rows: Any) -> str:
    """A keyed hash of rows. The key keeps hints of different ledgers apart."""
    digest = hmac.new(bytes.fromhex(key), digestmod=hashlib.sha256)
    for part in rows if isinstance(rows, tuple) else (rows,):
        if isinstance(part, str):
            digest.update(part.encode())
            continue
        arrays = (part.data, part.indices, part.indptr) if hasattr(part, "indptr") else (np.asarray(part),)
        for array in arrays:
            # Objects (words, dates) have no bytes of their own but those of their text.
            plain = array.astype(np.str_) if array.dtype == object else array
            digest.update(f"{plain.dtype.str}{plain.shape}".encode())
            digest.update(np.ascontiguousarray(plain).tobytes())
    return digest.hexdigest()[:16]


# --- the file --------------------------------------------------------------------------------------------------------


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a ledger alone: by a file beside it, and by itself, should somebody delete that file."""
    with locked(path.with_name(path.name + ".lock"), _PATIENCE), locked_in_place(path, _PATIENCE):
        yield


def _account(values: dict[str, Any], dataset: str, path: Path) -> dict[str, Any]:
    accounts: dict[str, Any] = values["datasets"]
    if dataset not in accounts:
        near = difflib.get_close_matches(str(dataset), accounts, 1)
        guess = f"; did you mean {near[0]!r}?" if near else f" (it has {', '.join(map(repr, accounts)) or 'none'})"
        raise ValueError(
            f"{path.name} has no account for {dataset!r}{guess} Open one with FileLedger.create, or: tulle ledger open "
            f"{path.name} --dataset {dataset} --epsilon ... --delta ..."
        )
    account: dict[str, Any] = accounts[dataset]
    return account


def _read(path: Path) -> dict[str, Any]:
    """The ledgers in a file, checked; currencies and entries as objects."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            2, "there is no such ledger; make it with FileLedger.create or: tulle ledger open", str(path)
        ) from None
    try:
        return _parsed(content)
    except Exception as error:
        raise LedgerFileError(
            f"{path.name} is not a ledger of tulle: {error}. Nothing is released until it is mended. An older copy "
            "does not know what was released after it was made"
        ) from error


def _parsed(content: bytes) -> dict[str, Any]:
    values = json.loads(content)
    if not isinstance(values, dict) or not str(values.get("format", "")).startswith("tulle ledger "):
        raise ValueError("it is of another format")
    old = values["format"] == _OLD_FORMAT
    if values["format"] != FORMAT and not old:
        raise ValueError(f"it is a {values['format']}, of a newer tulle; upgrade")
    if values.pop("check", None) != _checksum(values):
        raise ValueError("its checksum does not agree: it was changed by hand or damaged")
    values["format"] = FORMAT  # as which it is written again; entries keep what is known of them
    for account in values["datasets"].values():
        if old:
            account["entries"] = [{**line, "finite_precision": False} for line in account["entries"]]
        account["currency"] = _currency(account["currency"], Budget(**account["cap"]))
        account["entries"] = [LedgerEntry(**{**line, "plan": tuple(line["plan"])}) for line in account["entries"]]
        for entry in account["entries"]:
            if not (0 <= entry.share <= 1 + ROUNDING and 0 <= entry.epsilon < math.inf and 0 <= entry.delta < 1):
                raise ValueError("an entry has no price")
    bytes.fromhex(values["key"])
    return values


def _write(path: Path, values: dict[str, Any]) -> None:
    if path.exists():
        about = path.stat()
        if about.st_nlink > 1:
            raise LedgerFileError(
                f"{path.name} has {about.st_nlink} names (hard links), of which one would be left behind"
            )
        mode = stat.S_IMODE(about.st_mode)
    else:
        mode = 0o600  # its hints are about rows
    plain = {
        **values,
        "datasets": {
            name: {
                **account,
                "currency": _plain_currency(account["currency"]),
                "entries": [asdict(entry) for entry in account["entries"]],
            }
            for name, account in values["datasets"].items()
        },
    }
    plain = json.loads(json.dumps(finite(plain), allow_nan=False))
    text = json.dumps({**plain, "check": _checksum(plain)}, indent=1, ensure_ascii=False)
    _parsed(text.encode())  # what is written can be read again, or is not written
    write_durably(path, text.encode(), mode)
    if path.read_bytes() != text.encode():
        raise LedgerFileError(
            f"{path.name} does not hold what was just written to it: another process changed it in spite of its lock, "
            "or its file system loses writes. Nothing is released; keep it on a local disk"
        )


def _checksum(values: dict[str, Any]) -> str:
    """Against accidents: whoever may write the file may also write this."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _plain_currency(currency: Currency | None) -> dict[str, Any] | None:
    if currency is None:
        return None
    if isinstance(currency, RenyiCurrency):
        return {"kind": "renyi", "order": currency.order}
    if isinstance(currency, SumCurrency):
        return {"kind": "sum"}
    raise TypeError(f"a file cannot hold {currency!r}")


def _currency(values: dict[str, Any] | None, cap: Budget) -> Currency | None:
    if values is None:
        return None
    if values["kind"] == "sum":
        return SumCurrency(cap)
    if values["kind"] == "renyi" and values["order"] > 1:
        return RenyiCurrency(cap, float(values["order"]))
    raise ValueError(f"it counts in {values!r}")
