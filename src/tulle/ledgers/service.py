"""`tulle ledger serve`: the folder of a ledger behind HTTPS, for hosts that do not share a folder.

Only clients with a certificate of the authority are answered. They can read entries, `/healthz` and `/metrics`, where
data sets are named with cap and spending, and append charges under the cap;
accounts are opened, and caps set, where the folder is. The server appends through `Chain`, so that processes on its own
host may use the same folder at the same time.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tulle.ledgers.chain import Chain, datasets, find_root
from tulle.ledgers.entries import Charge, LedgerEntry, LedgerFileError, Record, charge_from_plain, to_json
from tulle.ledgers.ledger import ROUNDING, log_charge
from tulle.ledgers.remote_chain import check_credentials
from tulle.ledgers.witness import Witness, require_witness
from tulle.monitoring.log_events import log_event
from tulle.monitoring.status_pages import Metric, Outcomes, Page, StatusPages, StatusServer, check_store, send_page

_TIMEOUT = 30.0
_LARGEST_BODY = 1 << 20

# What can become of a request; see `_Handler._answer`.
_OUTCOMES = ("charged", "read", "conflict", "refused", "failed", "unknown")


class _Conflict(Exception):
    """Another charge was appended first."""


class Account:
    """The ledger of one data set, as the server keeps it.

    Parameters
    ----------
    root : path
    dataset : str
    witness : Witness or None
    """

    def __init__(self, root: str | os.PathLike[str], dataset: str, witness: Witness | None) -> None:
        self.chain = Chain(root, dataset)
        self._witness = witness
        self._lock = threading.Lock()
        self._last: Record = self.chain.opening
        # Every id that was ever billed: a charge that is sent again, also after a restart, is billed once.
        self._billed: dict[str, int] = {}
        self.appended = 0  # by this server
        self.refresh()

    def refresh(self) -> Record:
        """The last record; ids of all entries up to it are known afterwards."""
        last = self.chain.last(self._last)
        for number in range(self._last.number + 1, last.number + 1):
            entry = self.chain.read(number)
            if isinstance(entry, LedgerEntry) and entry.request:
                self._billed[entry.request] = number
        self._last = last
        return last

    def last(self) -> Record:
        with self._lock:
            return self.refresh()

    def append(self, charge: Charge, previous: str) -> Record:
        """The entry of a charge: the one that it has already, or a new one after the record with that head."""
        with self._lock:
            self.refresh()
            if charge.request in self._billed:
                return self.chain.read(self._billed[charge.request])

            def propose(last: Record) -> Charge:
                if last.head != previous:
                    raise _Conflict
                if last.totals.share + charge.share > 1 + ROUNDING:
                    raise LedgerFileError("the cap would be passed")
                self._compare(last)
                return charge

            entry = self.chain.append(propose, self._last)
            if self._witness is not None:
                self._witness.append(self.chain.opening, entry)
            self.refresh()
            self.appended += 1
            price = (entry.epsilon, entry.delta)
            about = {"dataset": self.chain.opening.dataset}
            log_charge(__name__, price, entry.share, entry.totals.share, entry.number, **about)
            return entry

    def _compare(self, last: Record) -> None:
        if self._witness is None:
            require_witness(self.chain.opening)
        else:
            self._witness.compare_before_charge(self.chain.opening, last, self.chain.read)


class LedgerService(ThreadingHTTPServer):
    """The server. `serve_forever` answers until `shutdown`.

    Parameters
    ----------
    root : path
        The folder of the ledger.
    place : tuple of str and int
        Host and port.
    credentials : tuple of three paths
        Certificate and key of the server, and the certificate of the authority that signs those of clients.
    witness : path or None, default=None
    """

    daemon_threads = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        place: tuple[str, int],
        credentials: tuple[str, str, str],
        *,
        witness: str | os.PathLike[str] | None = None,
    ) -> None:
        self.root = find_root(root)
        check_credentials(credentials)
        certificate, key, authority = credentials
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(certificate, key)
        self._context.load_verify_locations(authority)
        self._witness = None if witness is None else Witness(witness)
        self._accounts: dict[str, Account] = {}
        self._lock = threading.Lock()
        self.outcomes = Outcomes(*_OUTCOMES)
        # Without names of data sets: also for a port that asks for no certificate.
        self.pages = StatusPages(self._metrics, lambda: check_store(self.root))
        super().__init__(place, _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the thread of the connection: a client that sends nothing does not make others wait.
        request.settimeout(_TIMEOUT)
        try:
            secured = self._context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return  # no certificate of the authority: not answered
        with secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is its client's affair."""

    def _metrics(self) -> tuple[Metric, ...]:
        with self._lock:
            charges = sum(account.appended for account in self._accounts.values())
        return (
            Metric("tulle_ledger_charges_total", "counter", "Charges that were appended.", {"": charges}),
            Metric("tulle_ledger_requests_total", "counter", "Requests, by outcome.", self.outcomes.now(), "outcome"),
        )

    def spending(self) -> tuple[Metric, ...]:
        """Cap and spending of every data set, for those who may read its entries."""
        last = {name: self.account(name).last() for name in datasets(self.root)}
        caps = {name: self.account(name).chain.opening.cap for name in last}
        shares = {name: record.totals.share for name, record in last.items()}
        epsilons = {name: cap.epsilon for name, cap in caps.items()}
        deltas = {name: cap.delta for name, cap in caps.items()}
        return (
            Metric("tulle_ledger_cap_epsilon", "gauge", "The cap of a data set.", epsilons, "dataset"),
            Metric("tulle_ledger_cap_delta", "gauge", "The delta of that cap.", deltas, "dataset"),
            Metric("tulle_ledger_spent_share", "gauge", "The part of the cap that is spent.", shares, "dataset"),
        )

    def account(self, dataset: str) -> Account:
        """The account of a data set."""
        with self._lock:
            if dataset not in self._accounts:
                self._accounts[dataset] = Account(self.root, dataset, self._witness)
            return self._accounts[dataset]


class _Handler(BaseHTTPRequestHandler):
    server: LedgerService
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        try:
            page = self.server.pages.find(self.path, self.server.spending() if self.path == "/metrics" else ())
        except (OSError, ValueError, LedgerFileError):
            page = Page(500, "text/plain", b"the ledger cannot be read\n")
        if page is not None:
            return send_page(self, page)
        return self._answer(self._get, "read")

    def do_POST(self) -> None:
        # Read in any case: a connection that is closed with unread bytes may lose the answer.
        length = int(self.headers.get("Content-Length") or 0)
        self._body = self.rfile.read(length) if 0 < length <= _LARGEST_BODY else b""
        self.close_connection = True
        self._answer(self._post, "charged")

    def _get(self, account: Account, place: list[str]) -> Record:
        if place == ["last"]:
            return account.last()
        if len(place) == 2 and place[0] == "entries" and place[1].isdecimal():
            return account.chain.read(int(place[1]))
        raise ValueError("no such page")

    def _post(self, account: Account, place: list[str]) -> Record:
        if place != ["charges"]:
            raise ValueError("no such page")
        if not self._body:
            raise ValueError("a charge has a length of at most 1 MiB")
        values = json.loads(self._body)
        charge = Charge(**charge_from_plain(values["charge"], account.chain.opening.cap))
        if len(charge.request) != 32 or not all(
            text.isprintable() for text in (charge.what, charge.analyst, charge.purpose, charge.note)
        ):
            raise ValueError("a charge has an id and printable texts")
        return account.append(replace(charge, analyst=self._analyst(charge.analyst)), str(values["previous"]))

    def _analyst(self, said: str) -> str:
        """What the client says, and the name in its certificate."""
        subject = dict(pair for group in self.connection.getpeercert()["subject"] for pair in group)  # type: ignore[attr-defined]
        certified = subject.get("commonName", "unnamed")
        return f"{said} [{certified}]" if said else f"[{certified}]"

    def _answer(self, give: Callable[[Account, list[str]], Record], outcome: str) -> None:
        try:
            kind, dataset, *place = self.path.strip("/").split("/")
            if kind != "ledgers":
                raise ValueError("no such page")
            status, content = 200, to_json(give(self.server.account(unquote(dataset)), place))
        except _Conflict:
            status, content, outcome = 409, b"another charge was first", "conflict"
        except LedgerFileError as error:
            status, content, outcome = 403, str(error).encode(), "refused"
            log_event(__name__, "service.refused", error=type(error).__name__)
        except OSError as error:
            status, content, outcome = 500, str(error).encode(), "failed"
        except (ValueError, KeyError, TypeError) as error:
            status, content, outcome = 404, str(error).encode(), "unknown"
        self.server.outcomes.count(outcome)
        log_event(__name__, "service.request", outcome=outcome)
        send_page(self, Page(status, "application/octet-stream", content))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Entries are the log."""


def serve(
    root: str | os.PathLike[str],
    place: tuple[str, int],
    credentials: tuple[str, str, str],
    *,
    witness: str | os.PathLike[str] | None = None,
    metrics: tuple[str, int] | None = None,
    tell: Callable[[str], None] = print,
) -> None:
    """Answer until interrupted. See `LedgerService`; `metrics` is a second host and port for `/healthz` and `/metrics`
    alone, which asks for no certificate and names no data set."""
    with LedgerService(root, place, credentials, witness=witness) as server, ExitStack() as stack:
        host, port = server.server_address[:2]
        if metrics is not None:
            second = stack.enter_context(StatusServer(server.pages, metrics))
            tell(f"metrics at http://{metrics[0]}:{second.port}/metrics")
        log_event(__name__, "service.begin", what="LedgerService", port=int(port))
        stack.callback(log_event, __name__, "service.end", what="LedgerService")
        tell(f"{root} is served at https://{host!s}:{port}: {', '.join(datasets(root)) or 'no data sets yet'}")
        server.serve_forever()
