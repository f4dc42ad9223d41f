"""A client's ledger as `tulle.trusted.fit.open_account` bills it: it has a study or a fit once, even after crashes."""

from __future__ import annotations

from collections.abc import Sequence

from tulle.ledgers.on_disk import FileLedger
from tulle.trusted.plan import Plan, Promise


class NotBilledError(Exception):
    """A dry run ends where the bill would be written."""


class ClientLedger:
    """The ledger of a client's rows, for one study or fit.

    An entry is found again by how its text ends. What stands before that, such as the name of a study, is chosen by the
    server: an entry that only contains the ending is another one's.

    Parameters
    ----------
    ledger : FileLedger
    ending : str
        With a digest of all that was agreed on, so that no other plan has the same ending.
    stream_words : tuple of int, default=()
        Added to the ledger's own words for the noise.
    bill_again : bool, default=False
        Bill it although it is on the ledger, because it is unknown what was answered.
    number : int or None, default=None
        Of the entry that was billed for it in this process. Two clients may share a ledger, and each draws the noise of
        its own entry.
    """

    def __init__(
        self,
        ledger: FileLedger,
        ending: str,
        stream_words: tuple[int, ...] = (),
        *,
        bill_again: bool = False,
        number: int | None = None,
    ) -> None:
        self._ledger, self._ending = ledger, ending
        self._stream_words, self._bill_again = stream_words, bill_again
        self.repeats = ledger.repeats
        self.number = number  # of the entry, once it was billed or found

    def find_entry(self) -> int | None:
        """The number of the last entry, whichever process wrote it; None where there is none."""
        entries = self._ledger.refresh().entries
        found = [k for k, entry in enumerate(entries) if entry.what.endswith(self._ending)]
        return self.number if self.number in found else max(found, default=None)

    def _find_paid(self) -> int | None:
        return None if self._bill_again else self.find_entry()

    def quote(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> None:
        if self._find_paid() is None:
            self._ledger.quote(what, plans, promise, rows_per_unit)

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        paid = self._find_paid()
        self.number = self._ledger.bill(what, plans, promise, rows_per_unit) if paid is None else paid
        return self.number

    def confirm(self, plan: Plan, promise: Promise, number: int) -> None:
        self._ledger.confirm(plan, promise, number)

    def stream(self, number: int) -> tuple[int, ...]:
        return (*self._ledger.stream(number), *self._stream_words)


class QuotingLedger(ClientLedger):
    """The same ledger in a dry run: it refuses what it would refuse, and bills nothing."""

    def quote(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> None:
        self._ledger.refresh()  # as before a bill: other processes may have spent since
        super().quote(what, plans, promise, rows_per_unit)

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        raise NotBilledError
