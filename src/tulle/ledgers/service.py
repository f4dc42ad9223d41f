"""`tulle ledger serve`: the folder of a ledger behind HTTPS, for hosts that do not share a folder.

Only clients with a certificate of the authority are answered. They can read entries and append charges under the cap;
accounts are opened, and caps set, where the folder is. The server appends through `Chain`, so that processes on its own
host may use the same folder at the same time.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tulle.ledgers.chain import Chain, datasets, find_root
from tulle.ledgers.entries import Charge, LedgerEntry, LedgerFileError, Record, charge_from_plain, to_json
from tulle.ledgers.ledger import ROUNDING
from tulle.ledgers.remote_chain import check_credentials
from tulle.ledgers.witness import Witness, require_witness

_TIMEOUT = 30.0
_LARGEST_BODY = 1 << 20


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
        super().__init__(place, _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the thread of the connection: a client that says nothing keeps nobody else waiting.
        request.settimeout(_TIMEOUT)
        try:
            secured = self._context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return  # no certificate of the authority: not answered
        with secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is its client's affair."""

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
        self._answer(self._get)

    def do_POST(self) -> None:
        # Read in any case: a connection that is closed with unread bytes may lose the answer.
        length = int(self.headers.get("Content-Length") or 0)
        self._body = self.rfile.read(length) if 0 < length <= _LARGEST_BODY else b""
        self.close_connection = True
        self._answer(self._post)

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

    def _answer(self, give: Callable[[Account, list[str]], Record]) -> None:
        try:
            kind, dataset, *place = self.path.strip("/").split("/")
            if kind != "ledgers":
                raise ValueError("no such page")
            status, content = 200, to_json(give(self.server.account(unquote(dataset)), place))
        except _Conflict:
            status, content = 409, b"another charge was first"
        except LedgerFileError as error:
            status, content = 403, str(error).encode()
        except OSError as error:
            status, content = 500, str(error).encode()
        except (ValueError, KeyError, TypeError) as error:
            status, content = 404, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Entries are the log."""


def serve(
    root: str | os.PathLike[str],
    place: tuple[str, int],
    credentials: tuple[str, str, str],
    *,
    witness: str | os.PathLike[str] | None = None,
    tell: Callable[[str], None] = print,
) -> None:
    """Answer until interrupted. See `LedgerService`."""
    with LedgerService(root, place, credentials, witness=witness) as server:
        host, port = server.server_address[:2]
        tell(f"{root} is served at https://{host!s}:{port}: {', '.join(datasets(root)) or 'no data sets yet'}")
        server.serve_forever()
