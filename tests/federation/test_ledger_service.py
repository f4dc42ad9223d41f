"""A ledger behind HTTPS: billed once, whatever answers are lost, and only for clients with a certificate."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from certificates import write_certificates

import tulle.ledgers.remote_chain
from tulle import Bounds, Budget, FileLedger, SparseClassifier
from tulle.cli import main
from tulle.ledgers.entries import LedgerFileError, charge_to_plain
from tulle.ledgers.ledger import BudgetExceededError
from tulle.ledgers.remote_chain import RemoteChain
from tulle.ledgers.service import LedgerService
from tulle.ledgers.verification import verify
from tulle.monitoring.status_pages import StatusServer
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Plan, Release

PLAN = Plan((Release("answer", Gaussian(NoisePerSensitivity(50.0)), 1),))


def charge(ledger: FileLedger) -> int:
    return ledger.bill("test", [PLAN], (0.1, 1e-7))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_certificates(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FileLedger.create(tmp_path / "budget", "visits 2026", Budget(3.0, 1e-5))
    return tmp_path / "budget"


@pytest.fixture
def served(path: Path, keys: dict[str, Path]) -> Iterator[str]:
    """The address of a service."""
    with running(path, keys) as address:
        yield address


class running:
    """A service in a thread, on a port that is kept where it is started again."""

    def __init__(self, path: Path, keys: dict[str, Path], port: int = 0) -> None:
        credentials = tuple(str(keys[name]) for name in ("certificate", "key", "authority"))
        self.server = LedgerService(path, ("localhost", port), credentials)  # type: ignore[arg-type]
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        self.thread.start()
        return f"https://localhost:{self.port}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def opened(address: str, keys: dict[str, Path], who: str = "client", **more: Any) -> FileLedger:
    credentials = (str(keys[who]), str(keys[f"{who}_key"]), str(keys["authority"]))
    return FileLedger(address, "visits 2026", credentials=credentials, **more)


def fetch(address: str, page: str, keys: dict[str, Path]) -> tuple[int, str]:
    """A page, by a client with a certificate."""
    context = ssl.create_default_context(cafile=str(keys["authority"]))
    context.load_cert_chain(str(keys["client"]), str(keys["client_key"]))
    connection = http.client.HTTPSConnection("localhost", int(address.rpartition(":")[2]), timeout=10, context=context)
    with closing(connection):
        connection.request("GET", page)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_clients_with_a_certificate_see_cap_and_spending(served: str, path: Path, keys: dict[str, Path]) -> None:
    """And whether the ledger can be read and written."""
    charge(opened(served, keys))
    status, text = fetch(served, "/metrics", keys)
    assert status == 200
    assert '\ntulle_ledger_cap_epsilon{dataset="visits 2026"} 3.0\n' in text
    share = float(text.split('tulle_ledger_spent_share{dataset="visits 2026"} ')[1].split("\n")[0])
    assert share == FileLedger(path, "visits 2026").share > 0
    assert "\ntulle_ledger_charges_total 1.0\n" in text
    assert '\ntulle_ledger_requests_total{outcome="charged"} 1.0\n' in text
    assert json.loads(fetch(served, "/healthz", keys)[1]) == {"status": "ok", "readable": True, "writable": True}


def test_a_port_without_certificates_names_no_data_set(path: Path, keys: dict[str, Path]) -> None:
    """It has counts alone, and nothing else is served there."""
    service = running(path, keys)
    with service as address, StatusServer(service.server.pages, ("127.0.0.1", 0)) as second:
        charge(opened(address, keys))
        with urlopen(f"http://127.0.0.1:{second.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{second.port}/ledgers/visits%202026/last", timeout=10)
    assert "\ntulle_ledger_charges_total 1.0\n" in text
    assert "visits" not in text
    assert "cap" not in text


def test_a_fit_is_billed_over_the_network(served: str, path: Path, keys: dict[str, Path]) -> None:
    """The entry lies in the folder, with the name in the client's certificate; the report has its head."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 3))
    with opened(served, keys, analyst="A. Smith"):
        model = SparseClassifier(0.5, 1e-6, bounds=Bounds(row_linf=1.0)).fit(X, X[:, 0] > 0)
    (entry,) = FileLedger(path, "visits 2026").entries
    assert entry.analyst == "A. Smith [ward 7]"
    assert entry.epsilon == pytest.approx(0.5, rel=1e-3)
    assert model.privacy_.billed == (f"entry 1, head {entry.head}",)
    assert verify(path, "visits 2026").last == entry


def test_the_command_line_bills_over_the_network(
    served: str, path: Path, keys: dict[str, Path], tmp_path: Path
) -> None:
    """With the same options as a folder, and three files."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=rng.uniform(-1, 1, (300, 3)), y=rng.integers(0, 2, 300).astype(float))
    words = ["fit", str(tmp_path / "rows.npz"), "--epsilon", "0.5", "--row-linf", "1", "--quiet", "--ledger", served]
    words += ["--dataset", "visits 2026", "-o", str(tmp_path / "model")]
    files = ["--ledger-certificate", str(keys["client"]), "--ledger-key", str(keys["client_key"])]
    assert main([*words, *files]) == 2
    assert main(words) == 2
    assert FileLedger(path, "visits 2026").entries == ()
    assert main([*words, *files, "--ledger-authority", str(keys["authority"])]) == 0
    assert len(FileLedger(path, "visits 2026").entries) == 1


def test_many_clients_and_local_processes_share_one_cap(served: str, path: Path, keys: dict[str, Path]) -> None:
    """Half of them over the network, half in the folder: every number is given once, and the cap holds."""

    def some(k: int) -> list[int]:
        ledger = opened(served, keys) if k % 2 else FileLedger(path, "visits 2026")
        return [charge(ledger) for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for found in pool.map(some, range(4)) for number in found]
    assert sorted(numbers) == list(range(20))
    ledger = opened(served, keys)
    assert ledger.share == FileLedger(path, "visits 2026").share
    big = Plan((Release("answer", Gaussian(NoisePerSensitivity(0.5)), 1),))
    with pytest.raises(BudgetExceededError):
        ledger.bill("too much", [big], (9.0, 1e-7))
    assert verify(path, "visits 2026").last.number == 20


@pytest.mark.parametrize("restart", [False, True], ids=["the same server", "a server that was started again"])
def test_a_lost_answer_is_billed_once(
    path: Path, keys: dict[str, Path], restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge is in the folder and its answer lost on the way: sent again, it finds its own entry."""
    service = running(path, keys)
    with service as address:
        ledger = opened(address, keys)
        lost = []
        real = http.client.HTTPConnection.getresponse

        def losing(self: Any) -> Any:
            answer = real(self)
            if self._method == "POST" and not lost:
                lost.append(answer.read())
                if restart:
                    service.server.account("visits 2026")
                    service.server._accounts.clear()  # as a new process, which knows only the folder
                raise ConnectionResetError("lost")
            return answer

        monkeypatch.setattr(http.client.HTTPConnection, "getresponse", losing)
        assert charge(ledger) == 0
    assert len(lost) == 1
    assert len(FileLedger(path, "visits 2026").entries) == 1


def test_no_answer_means_no_noise(path: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that goes away: the error says that it is unclear whether the fit is billed, and nothing was drawn."""
    monkeypatch.setattr(tulle.ledgers.remote_chain, "_PATIENCE", 0.3)
    with running(path, keys) as address:
        ledger = opened(address, keys)
        real = RemoteChain._ask

        def gone(self: Any, method: str, place: str, body: bytes | None = None) -> Any:
            if method == "POST":
                self._port = 1
            return real(self, method, place, body)

        monkeypatch.setattr(RemoteChain, "_ask", gone)
        with pytest.raises(LedgerFileError, match=r"unclear whether the fit is on the bill\. Nothing is released"):
            charge(ledger)


def test_only_certificates_of_the_authority_are_answered(served: str, keys: dict[str, Path]) -> None:
    """None, and one of another authority; and a client does not talk to a server that it does not know."""
    with pytest.raises(LedgerFileError):
        opened(served, keys, who="foreign")
    with pytest.raises(ValueError, match="needs credentials"):
        FileLedger(served, "visits 2026")
    with pytest.raises(ValueError, match=r"https://HOST:PORT"):
        FileLedger(served.replace("https", "http"), "visits 2026", credentials=("a", "b", "c"))
    strange = (str(keys["client"]), str(keys["client_key"]), str(keys["stranger"]))
    with pytest.raises(LedgerFileError, match="is not trusted"):
        FileLedger(served, "visits 2026", credentials=strange)


def post(address: str, keys: dict[str, Path], place: str, body: Any, method: str = "POST") -> int:
    context = ssl.create_default_context(cafile=str(keys["authority"]))
    context.load_cert_chain(keys["client"], keys["client_key"])
    connection = http.client.HTTPSConnection("localhost", int(address.rpartition(":")[2]), context=context, timeout=10)
    connection.request(method, place, json.dumps(body))
    try:
        return connection.getresponse().status
    except (http.client.HTTPException, ConnectionError):
        return 400  # closed without an answer


def test_a_cap_cannot_be_changed_from_afar(served: str, path: Path, keys: dict[str, Path]) -> None:
    """No page opens an account or touches a cap, and a forged charge is refused."""
    with pytest.raises(ValueError, match="not over the network"):
        FileLedger.create(served, "other", Budget(9.0, 1e-5))
    ledger = opened(served, keys)
    charge(ledger)

    good = charge_to_plain(ledger.entries[0])
    good = {
        k: v for k, v in good.items() if k not in ("number", "epsilon_so_far", "totals", "previous", "random", "head")
    }
    place = "/ledgers/visits%202026"
    for changed in (
        {"share": -0.5},
        {"share": 2.0},
        {"share": "nan"},
        {"epsilon": -1.0},
        {"request": "short"},
        {"what": "a\nb"},
        {"currency": {"kind": "sum"}},
        {"rows_per_unit": 5},
        {"cap": {"epsilon": 99.0, "delta": 0.1}},
        {"share": 0.999999, "request": "1" * 32},
    ):
        body = {"previous": ledger.head, "charge": {**good, "request": "0" * 32, **changed}}
        assert post(served, keys, f"{place}/charges", body) in (403, 404), changed
    for page, method in (
        (place, "POST"),
        (f"{place}/entries/0", "PUT"),
        ("/ledgers", "POST"),
        (f"{place}/cap", "POST"),
    ):
        assert post(served, keys, page, {"cap": 9}, method) >= 400
    assert verify(path, "visits 2026").last.number == 1
    assert FileLedger(path, "visits 2026").cap == Budget(3.0, 1e-5)


def test_a_stale_view_is_a_conflict(served: str, path: Path, keys: dict[str, Path]) -> None:
    """A charge that was proposed before another was appended is proposed again, and not appended blindly."""
    ledger = opened(served, keys)
    charge(FileLedger(path, "visits 2026"))
    assert charge(ledger) == 1
