"""A masked study with ten clients in processes of their own, over gRPC with certificates, while things go wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from masked_client_process import D, rows_of
from scipy import stats

from tulle import FileLedger
from tulle.federated.certificates import fingerprint, read_certificate
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.client_side.masked_study import MASKED_CLASSES
from tulle.federated.encoding import decode
from tulle.federated.link import Link
from tulle.federated.masked_terms import MASKED_REPLIES, AskSum, MaskedAnswer, MaskedTerms, Seat
from tulle.federated.messages import Refused
from tulle.federated.server_side.grpc_link import GrpcLink
from tulle.federated.server_side.masked_server import MaskedServer
from tulle.federated.study_authority import make_certificates
from tulle.methods import HardThresholding

pytest.importorskip("grpc")

HERE = Path(__file__).parent
NAMES = tuple(f"h{k}" for k in range(10))
BEHAVIOUR = {
    "h1": ("killed", "2"),  # in mid-round, before it answers
    "h2": ("answered", "3"),  # in mid-round, after its answer was written down; it is started again
    "h3": ("slow",),
    "h4": ("replaying",),
}


@dataclass
class Captured(Link):
    """A link that keeps every byte that the server receives."""

    link: GrpcLink
    received: list[tuple[AskSum, str, bytes]] = field(default_factory=list)

    def connected(self) -> tuple[str, ...]:
        return self.link.connected()

    def certified_name(self, connection: str) -> str | None:
        return self.link.certified_name(connection)

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        asked = decode(message, MASKED_CLASSES)
        for at, raw in self.link.ask(message, whom, seconds):
            if isinstance(asked, AskSum):
                self.received.append((asked, str(self.certified_name(at)), raw))
            yield at, raw


def start(folder: Path, name: str, address: str, *behaviour: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, str(HERE / "masked_client_process.py"), str(folder), name, address.rpartition(":")[2]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    log = (folder / f"{name}.{len(list(folder.glob(f'{name}.*')))}.log").open("wb")
    return subprocess.Popen([*words, *(behaviour or ("honest",))], env=environment, stdout=log, stderr=log)


def entries(folder: Path, name: str) -> tuple[Any, ...]:
    return FileLedger(folder / name / "ledger", "rows").entries


def test_a_study_ends_well_whatever_happens_to_some_of_its_clients(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_certificates(keys, server=("localhost",), clients=(*NAMES, "mallory"))
    authority = keys / "authority.pem"
    terms = MaskedTerms(
        "processes",
        linear_terms(D, step=1.0, classes=(0, 1), row_l2=3.0),
        epsilon=2.0,
        delta=1e-5,
        least=5,
        authority=fingerprint(read_certificate(authority.read_bytes())),
        colluding=2,
        retries=12,
    )
    method = HardThresholding(n_iter=5, noise="gaussian", step=2.0)
    processes: list[subprocess.Popen[bytes]] = []
    with GrpcLink(
        "localhost", certificates=(authority, keys / "server/server.pem", keys / "server/server.key")
    ) as link:
        try:
            for name in NAMES:
                processes.append(start(tmp_path, name, link.address, *BEHAVIOUR.get(name, ())))
            # A stranger with a certificate of its own who answers as h5, and one with h6's own certificate: the true
            # clients have their seats by then.
            assert link.wait_for(len(NAMES), 120)
            processes.append(start_impostor(tmp_path, "h5", link.address, "mallory"))
            processes.append(start_impostor(tmp_path, "h6", link.address, "h6"))
            restarted = threading.Event()

            def restart() -> None:
                processes[2].wait(timeout=120)
                processes.append(start(tmp_path, "h2", link.address))
                restarted.set()

            threading.Thread(target=restart, daemon=True).start()
            captured = Captured(link)
            server = MaskedServer(
                terms, method, authority=authority, clients=NAMES, n_nonzero=2, seconds=4.0, patience=120.0
            )
            fit = server.run(captured)
            assert restarted.wait(60)
        finally:
            codes = stop(processes)
    # The study finished, with a model.
    X, y = (np.concatenate([rows_of(name)[k] for name in NAMES]) for k in (0, 1))
    assert fit.model().score(X, y) > 0.85
    assert len(fit.records) == 5
    assert all(len(record.members) >= terms.least for record in fit.records)
    members = [set(record.members) for record in fit.records]
    assert all("h0" in one and "h9" in one for one in members)  # honest clients are in every sum
    assert not any("h1" in one for one in members[1:])  # killed for good
    assert not any("h4" in one for one in members[1:])  # replays
    assert "h3" in members[-1]  # slow, and waited for
    # Ledgers: everyone has billed the study once, the one that was started again too.
    for name in NAMES:
        (entry,) = entries(tmp_path, name)
        assert fit.study.digest in entry.what
    assert 0.99 * 2.0 <= fit.privacy.epsilon <= 2.0
    assert codes[1] == codes[2] == 9
    # The impostors' answers did not arrive: every answer came from the client whom the certificate names.
    assert {name for _, name, _ in captured.received} <= set(NAMES)
    check_that_no_answer_is_readable(captured)


def start_impostor(folder: Path, name: str, address: str, certificate: str) -> subprocess.Popen[bytes]:
    """It has rows, a ledger and a state of its own, and speaks under another's name."""
    own = folder / "impostors" / certificate
    own.mkdir(parents=True)
    (own / "keys").symlink_to(folder / "keys")
    return start(own, name, address, "impostor", certificate)


def stop(processes: list[subprocess.Popen[bytes]]) -> list[int | None]:
    end = time.monotonic() + 20
    for one in processes:
        with suppress(subprocess.TimeoutExpired):
            one.wait(timeout=max(end - time.monotonic(), 0.1) if one.poll() is None else 0)
        one.kill()
    return [one.wait() for one in processes]


def check_that_no_answer_is_readable(captured: Captured) -> None:
    """Of the bytes that the server received: every answer by itself, and every sum of an incomplete set, is uniform; a
    false alarm has a chance of 1e-6 for each of the two tests. Only sums over whole sets are small."""
    answers: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    sizes: dict[tuple[int, int], int] = {}
    for asked, name, raw in captured.received:
        reply = decode(raw, (*MASKED_REPLIES, Seat, Refused))
        if isinstance(reply, MaskedAnswer) and (reply.number, reply.attempt) == (asked.number, asked.attempt):
            answers.setdefault((asked.number, asked.attempt), {})[name] = reply.values
            sizes[asked.number, asked.attempt] = len(asked.members)
    single = np.concatenate([one for said in answers.values() for one in said.values()])
    assert len(single) > 200
    octets = single.view(np.uint8)
    assert stats.chisquare(np.bincount(octets // 16, minlength=16)).pvalue > 1e-6
    assert abs(np.mean(single / 2.0**63)) < 5 / np.sqrt(len(single))
    complete = [key for key, said in answers.items() if len(said) == sizes[key]]
    assert len(complete) >= 5
    for key, said in answers.items():
        with np.errstate(over="ignore"):
            total = np.sum(np.stack(list(said.values())).view(np.uint64), axis=0, dtype=np.uint64).view(np.int64)
        largest = np.abs(total.astype(float)).max()
        assert (largest < 2.0**45) == (key in complete)
