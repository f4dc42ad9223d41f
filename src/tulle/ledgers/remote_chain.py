"""The entries of a ledger that another host keeps: what `tulle.ledgers.chain.Chain` does, over HTTPS.

A charge carries its own id. Where the answer is lost it is sent again, and billed once. Noise is drawn only after an
entry has come back that holds the charge.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote, urlsplit

from tulle.ledgers.entries import (
    Charge,
    LedgerEntry,
    LedgerFileError,
    Opening,
    Record,
    UnclearChargeError,
    charge_to_plain,
    from_json,
)
from tulle.monitoring.log_events import log_event

# Seconds for one answer, and in all for answers that are lost.
_TIMEOUT, _PATIENCE = 10.0, 60.0

# What the server may write otherwise than it was asked: it adds the name in the client's certificate.
_WRITTEN_BY_SERVER = ("analyst",)


class RemoteChain:
    """The ledger of a data set on a server.

    Parameters
    ----------
    address : str
        "https://host:port".
    dataset : str
    credentials : tuple of three paths
        This client's certificate, its key, and the certificate of the authority that signed the server's.
    """

    def __init__(self, address: str, dataset: str, credentials: tuple[str, str, str] | None) -> None:
        parts = urlsplit(address)
        if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"the address of a ledger is https://HOST:PORT, got {address!r}")
        if credentials is None:
            raise ValueError(
                "a ledger on a server needs credentials=(certificate, key, authority): three PEM files "
                "(--ledger-certificate, --ledger-key, --ledger-authority)"
            )
        certificate, key, authority = credentials
        self._context = ssl.create_default_context(cafile=authority)
        self._context.load_cert_chain(certificate, key)
        self._host, self._port = parts.hostname, parts.port or 443
        self._place = f"/ledgers/{quote(dataset, safe='')}"
        self.address = address
        opening = from_json(self._get("/entries/0"))
        assert isinstance(opening, Opening)
        self.opening = opening

    def read(self, number: int) -> Record:
        """The record of this number."""
        record = self._parse(self._get(f"/entries/{number}"))
        if record.number != number:
            raise LedgerFileError(f"{self.address} answered with entry {record.number} in place of entry {number}")
        return record

    def last(self, known: Record) -> Record:
        """The last record. It raises unless the server still has a record that is known."""
        if self.read(known.number).head != known.head:
            raise LedgerFileError(
                f"entry {known.number} on {self.address} is not the one that was there before; was an older copy "
                "restored? Nothing is released"
            )
        last = self._parse(self._get("/last"))
        if last.number < known.number:
            raise LedgerFileError(f"{self.address} has lost entries. Nothing is released")
        return last

    def append(self, propose: Callable[[Record], Charge], known: Record) -> LedgerEntry:
        """Append the charge that is proposed in view of the last record; again where another was appended first."""
        while True:
            known = self.last(known)
            charge = propose(known)
            body = json.dumps({"previous": known.head, "charge": charge_to_plain(charge)}).encode()
            status, content = self._ask("POST", "/charges", body)
            if status == 409:  # another process was first
                log_event(__name__, "ledger.retry", reason="another charge was first")
                continue
            self._check(status, content)
            entry = self._parse(content)
            if not isinstance(entry, LedgerEntry) or not _is_entry_of(charge, entry):
                raise UnclearChargeError(f"{self.address} answered with another charge. Nothing is released")
            return entry

    # --- asking ---

    def _get(self, place: str) -> bytes:
        status, content = self._ask("GET", place)
        self._check(status, content)
        return content

    def _check(self, status: int, content: bytes) -> None:
        if status == 200:
            return
        said = content.decode(errors="replace")[:500]
        if status == 404:
            raise ValueError(said)
        raise LedgerFileError(f"{self.address} refused ({status}): {said}. Nothing is released")

    def _ask(self, method: str, place: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and content of an answer. A request whose answer is lost is sent again, the same to the byte."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT, context=self._context)
            try:
                connection.request(method, self._place + place, body)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status != 503:
                    return answer.status, content
            except ssl.SSLError as error:
                raise LedgerFileError(f"{self.address} is not trusted, or does not trust us: {error}") from error
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() > deadline:
                    told = f"{self.address} does not answer ({error})."
                    if body is not None:
                        told += " It is unclear whether the fit is on the bill."
                        raise UnclearChargeError(f"{told} Nothing is released") from error
                    raise LedgerFileError(f"{told} Nothing is released") from error
            finally:
                connection.close()
            log_event(__name__, "ledger.retry", reason="no answer")
            time.sleep(0.2)

    def _parse(self, content: bytes) -> Record:
        try:
            return from_json(content, self.opening.cap)
        except Exception as error:
            raise LedgerFileError(f"{self.address} answered with an invalid entry: {error}") from error


def _is_entry_of(charge: Charge, entry: LedgerEntry) -> bool:
    """Whether an entry holds a charge."""
    said = (one.name for one in fields(Charge) if one.name not in _WRITTEN_BY_SERVER)
    return all(getattr(entry, name) == getattr(charge, name) for name in said)


def check_credentials(paths: tuple[str, str, str]) -> None:
    """Raise where a file is missing, with its name: ssl does not tell which."""
    for path in paths:
        if not Path(path).is_file():
            raise FileNotFoundError(2, "no such file; certificates and keys are PEM files", str(path))
