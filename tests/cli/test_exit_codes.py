"""Exit code 2 says that nothing was spent, in every command that bills; a spend without a result is code 4."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands_and_files import DATASET, NAMES, fit_words, one_line, table

import tulle.estimators.request
import tulle.files.archive
import tulle.trusted.fit
from tulle import Budget, FileLedger, load
from tulle.cli import main
from tulle.federated.link import DirectLink

INPUT_ERRORS = [
    OSError(errno.EIO, "Input/output error", "somewhere"),
    ValueError("some row"),
    MemoryError(),
    ImportError("a library"),
]


def fail_with(error: BaseException) -> Callable[..., Any]:
    """A function that raises a new error like this one, without the notes of earlier ones."""

    def fail(*_: Any, **__: Any) -> Any:
        more = (error.filename,) if isinstance(error, OSError) else ()
        raise type(error)(*error.args, *more)

    return fail


# --- tulle fit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", INPUT_ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("billed", [True, False], ids=["ledger", "no-ledger"])
def test_what_fails_after_the_bill_of_a_fit_is_no_wrong_input(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any, error: Exception, billed: bool
) -> None:
    """Whatever kind of failure it is; before the bill the same one is code 2, and the ledger stays as it was."""
    words = fit_words(place, tmp_path / "m", *(("--ledger", ledger, "--dataset", DATASET) if billed else ()))
    monkeypatch.setattr(tulle.trusted.fit, "bill_open_ledgers", fail_with(error))
    assert "spent" not in one_line(run(*words), "fit", code=2)
    monkeypatch.undo()
    monkeypatch.setattr(tulle.estimators.request, "clip_and_plan", fail_with(error))
    assert "spent" in one_line(run(*words), "fit", code=4)
    assert len(FileLedger(ledger, DATASET).entries) == billed
    assert not (tmp_path / "m").exists()


def test_a_fit_without_privacy_spends_nothing(run: Any, place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tulle.estimators.request, "clip_and_plan", fail_with(MemoryError()))
    assert "spent" not in one_line(run(*fit_words(place, tmp_path / "m", "--epsilon", "none")), "fit", code=2)


@pytest.mark.parametrize("written", [True, False])
def test_a_bill_that_fails_itself_is_looked_up(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any, written: bool
) -> None:
    """Its entry may be on the disk although an error came: then code 4, else 2."""
    real = FileLedger.bill

    def unclear(self: FileLedger, *given: Any) -> int:
        if written:
            real(self, *given)
        raise OSError(errno.EIO, "Input/output error", str(ledger))

    monkeypatch.setattr(FileLedger, "bill", unclear)
    words = fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)
    message = one_line(run(*words), "fit", code=4 if written else 2)
    assert ("the fit may have been billed" in message) == written
    assert len(FileLedger(ledger, DATASET).entries) == written


def test_another_process_that_bills_makes_no_spend_of_a_refusal(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any
) -> None:
    """Past the cap is code 3 though the ledger has grown meanwhile."""
    real = FileLedger.quote

    def quote(self: FileLedger, what: str, plans: Any, promise: Any, rows_per_unit: int) -> Any:
        monkeypatch.setattr(FileLedger, "quote", real)
        FileLedger(ledger, DATASET).bill("another fit", plans, promise, rows_per_unit)
        return real(self.refresh(), what, plans, promise, rows_per_unit)

    billed = ("--ledger", ledger, "--dataset", DATASET)
    monkeypatch.setattr(FileLedger, "quote", quote)
    refused = run(*fit_words(place, tmp_path / "m", "--epsilon", 2.9, *billed))
    assert "nothing was released" in one_line(refused, "fit", 3)


# --- room on the disk ------------------------------------------------------------------------------------------------


def test_a_full_disk_is_noticed_before_the_bill(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any
) -> None:
    """Code 2: no entry, no folder; the message names the folder and what to do."""
    monkeypatch.setattr(os, "posix_fallocate", fail_with(OSError(errno.ENOSPC, "No space left on device")))
    words = fit_words(place, tmp_path / "deep" / "m", "--ledger", ledger, "--dataset", DATASET)
    message = one_line(run(*words), "fit", code=2)
    assert message.startswith(
        f"{tmp_path / 'deep' / 'm'}: no room for 4 MB, which the result may need; free some space"
    )
    assert FileLedger(ledger, DATASET).entries == ()
    assert not (tmp_path / "deep").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="limits of POSIX")
def test_a_real_limit_of_the_disk_is_noticed_before_the_bill(place: Path, tmp_path: Path, ledger: Path) -> None:
    """A process that may write no file of a megabyte bills nothing."""
    import resource

    words = fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)
    ran = subprocess.run(
        [sys.executable, "-m", "tulle", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert ran.returncode == 2, ran.stderr
    assert f"{tmp_path / 'm'}: no room for 4 MB" in ran.stderr
    assert FileLedger(ledger, DATASET).entries == ()
    assert not (tmp_path / "m").exists()


def test_a_model_that_cannot_be_written_goes_to_another_folder(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any
) -> None:
    """And the message says where it is: the budget is spent, the model is not lost."""
    real = tulle.files.archive.write_durably

    def full(path: Any, *content: Any) -> None:
        if Path(path).is_relative_to(tmp_path / "m"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, *content)

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(tulle.files.archive, "write_durably", full)
    message = one_line(run(*fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)), "fit", code=4)
    (saved,) = (tmp_path / "temporary").glob("tulle-model-*/model.npz")
    assert f"The model is saved in {saved} instead" in message
    assert f"{tmp_path / 'm' / 'model.npz'}: No space left on device" in message
    assert load(saved).privacy_.epsilon <= 1
    assert not (tmp_path / "m").exists()
    # Where that is full too, the message does not send anybody there.
    monkeypatch.setattr(
        tulle.files.archive, "write_durably", fail_with(OSError(errno.ENOSPC, "No space left on device", "x"))
    )
    message = one_line(run(*fit_words(place, tmp_path / "m")), "fit", code=4)
    assert "the model is lost" in message
    assert len(list((tmp_path / "temporary").glob("tulle-model-*"))) == 1


def test_reserved_room_leaves_nothing_and_is_given_back(tmp_path: Path) -> None:
    """By its owner or by the end of a context; where the system cannot reserve, it writes."""
    from tulle.files.reserved_room import ReservedRoom, check_room

    with ReservedRoom(tmp_path, 3_000_000) as reserved:
        assert os.fstat(reserved._file.fileno()).st_blocks * 512 >= 3_000_000
        assert list(tmp_path.iterdir()) == []
        reserved.release()
    check_room(tmp_path, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_fallocate", fail_with(OSError(errno.EOPNOTSUPP, "not supported")))
        with ReservedRoom(tmp_path, 3_000_000) as reserved:
            assert os.fstat(reserved._file.fileno()).st_size == 3_000_000
    with pytest.raises(FileNotFoundError, match="nowhere"):
        check_room(tmp_path / "nowhere", 1)


def test_the_room_for_a_model_is_an_upper_bound(place: Path) -> None:
    """Of everything that fits wrote, with names and without."""
    from tulle.cli.model_folder import room_for_model

    for name, n_outputs in (("m_outcome", 1), ("m_triage", 3), ("m_cost", 1)):
        taken = sum(path.stat().st_size for path in (place / name).iterdir())
        assert taken < room_for_model(4, n_outputs, 2, NAMES)
    assert room_for_model(10**9, 1, 5) < 2e8
    assert room_for_model(10**9, 1, 10**8) > 5e9


# --- tulle federated -------------------------------------------------------------------------------------------------

TERMS = "--row-l2 2 --epsilon 1 --delta 1e-6 --rounds 3 --n-nonzero 2"
SERVER = f"federated server --study s --features 4 --classes home,ward {TERMS} --port 0 -o model --json --patience 0.2"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rows."""
    monkeypatch.chdir(tmp_path)
    table()[[*NAMES, "outcome"]].to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path


def command(capsys: Any, words: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main(words.split())
    return code, json.loads(capsys.readouterr().out)


def make_client(name: str, **settings: Any) -> Any:
    """A client with a third of the rows, and a ledger of its own."""
    from tulle.federated.client_side.client import Client

    frame = table()
    if not Path(f"{name}.json").exists():
        FileLedger.create(f"{name}.json", name, Budget(settings.pop("cap", 3.0), 1e-3))
    ledger = FileLedger(f"{name}.json", name)
    return Client(name, frame[[*NAMES]].to_numpy(), frame["outcome"], ledger=ledger, state=f"{name}-state", **settings)


class Connected(DirectLink):
    """Clients in this process where a server listens."""

    address = "127.0.0.1:1"

    def __enter__(self) -> Connected:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        return iter([(name, raw) for name, raw in super().ask(message, whom, seconds) if raw])


def listen(monkeypatch: Any, answers: dict[str, Callable[[bytes], bytes]]) -> None:
    pytest.importorskip("grpc")
    from tulle.federated.server_side import grpc_link

    monkeypatch.setattr(grpc_link, "GrpcLink", lambda *_, **__: Connected(answers))


def test_a_simulation_that_fails_after_a_round_has_spent(study: Path, capsys: Any, monkeypatch: Any) -> None:
    words = f"federated simulate --data rows.csv --target outcome --parts 2 {TERMS} -o model --json"
    full = fail_with(OSError(errno.ENOSPC, "No space left on device", "rounds.csv"))
    monkeypatch.setattr("tulle.cli.federated_output.RoundLog._write", full)
    code, values = command(capsys, words)
    assert (code, values["error"]["kind"]) == (4, "spent")
    assert "its budget is spent" in values["error"]["message"]
    monkeypatch.undo()
    monkeypatch.chdir(study)
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert command(capsys, words)[0] == 2
    code, values = command(capsys, words.replace("--row-l2 2", "--row-l2 2 --batch 0"))
    assert code == 2


def test_a_server_that_stops_says_whether_clients_may_have_billed(study: Path, capsys: Any, monkeypatch: Any) -> None:
    """Too few would take part: code 1, and nobody has billed. Some were asked to enrol and did not refuse: code 4."""
    small, north, south = make_client("small", cap=0.1), make_client("north"), make_client("south")

    def says_no_more(raw: bytes) -> bytes:
        return b"" if b'"Enrol"' in raw else south.answer(raw)

    for answers, code in (
        ({}, 1),
        ({"a": small.answer}, 1),
        ({"a": small.answer, "b": north.answer}, 1),
        ({"a": lambda raw: b""}, 1),
        ({"a": lambda raw: b"garbage", "b": north.answer}, 1),
        ({"a": says_no_more, "b": small.answer, "c": north.answer}, 4),
    ):
        listen(monkeypatch, answers)
        found, values = command(capsys, f"{SERVER} --replace")
        assert (found, values["may_be_billed"]) == (code, code == 4)
        assert ("no client was billed" in values["stopped"]) == (code == 1)
    entries = [len(FileLedger(f"{name}.json", name).entries) for name in ("small", "south", "north")]
    assert entries == [0, 0, 1]


@pytest.mark.parametrize("error", INPUT_ERRORS, ids=lambda error: type(error).__name__)
def test_a_server_that_fails_after_clients_have_billed(
    study: Path, capsys: Any, monkeypatch: Any, error: Exception
) -> None:
    from tulle.federated.server_side.server import Server

    listen(monkeypatch, {name: make_client(name).answer for name in ("north", "south")})
    monkeypatch.setattr(Server, "_averaged", fail_with(error))
    code, values = command(capsys, SERVER)
    assert (code, values["error"]["kind"]) == (4, "spent")
    assert "clients may have billed the study" in values["error"]["message"]
    assert len(FileLedger("north.json", "north").entries) == 1


AGGREGATOR = f"{SERVER} --trust aggregator --method hard_thresholding".replace("--rounds 3", "")


def test_an_aggregator_whose_clients_leave_has_spent(study: Path, capsys: Any, monkeypatch: Any) -> None:
    """After their bill: too few are left. Before it, code 2, and they have billed nothing."""
    clients = {name: make_client(name, trusts_aggregator=True) for name in ("north", "south")}

    def until(words: bytes) -> dict[str, Callable[[bytes], bytes]]:
        gone: list[bool] = []

        def answer(raw: bytes) -> bytes:
            gone.extend([True] * (words in raw))
            return b"" if gone else bytes(clients["south"].answer(raw))

        return {"north": clients["north"].answer, "south": answer}

    for words, code in ((b'"AskPrice"', 2), (b'"AskRows"', 4)):
        listen(monkeypatch, until(words))
        found, values = command(capsys, f"{AGGREGATOR} --replace")
        assert found == code, values
        assert len(FileLedger("south.json", "south").entries) == (code == 4)
    assert "the fit stays on the clients' bills" in values["error"]["message"]


def test_an_aggregator_that_is_refused_in_the_end_says_that_others_have_billed(
    study: Path, capsys: Any, monkeypatch: Any
) -> None:
    """It had agreed a moment ago: a refusal that is no longer free."""
    clients = {name: make_client(name, trusts_aggregator=True) for name in ("north", "south")}

    def answer(raw: bytes) -> bytes:
        if b'"OpenFit"' in raw:
            clients["south"]._summing._max_epsilon = 1e-3
        return bytes(clients["south"].answer(raw))

    listen(monkeypatch, {"north": clients["north"].answer, "south": answer})
    code, values = command(capsys, AGGREGATOR)
    assert (code, values["error"]["kind"]) == (4, "spent")
    assert len(FileLedger("north.json", "north").entries) == 1


CLIENT = (
    "federated client --data rows.csv --target outcome --name north --server localhost:1 --state north-state --json "
    "--ledger north.json --dataset north"
)


@pytest.mark.parametrize(
    ("way", "code", "billed"),
    [
        ("takes part", 0, 1),
        ("nobody asks", 0, 0),
        ("cap", 3, 0),
        ("terms", 5, 0),
        ("not invited", 5, 0),
        ("never asked", 4, 1),
        ("server away", 2, 0),
        ("server gone", 4, 1),
        ("disk full", 4, 1),
    ],
)
def test_exit_codes_of_a_client(study: Path, capsys: Any, monkeypatch: Any, way: str, code: int, billed: int) -> None:
    """Its own code where it refused, or was refused; never 0 without a part, never 2 after a bill."""
    from dataclasses import replace

    from tulle.fast.sparse_weights import SparseWeights
    from tulle.federated.client_side.client import Client
    from tulle.federated.client_side.linear_study import linear_terms
    from tulle.federated.encoding import encode
    from tulle.federated.messages import Enrol, Round, invitation
    from tulle.federated.terms import Terms

    pytest.importorskip("grpc")
    from tulle.federated.client_side import grpc_connection

    model = linear_terms(4, step=1.0, classes=("home", "ward"), row_l2=2.0)
    terms = Terms("s", model, 2, 1, 2, 1.0, 0.5, None, 1.0, 1e-6)
    FileLedger.create("north.json", "north", Budget(0.1 if way == "cap" else 3.0, 1e-3))

    def connect(address: str, answer: Callable[[bytes], bytes], **_: Any) -> None:
        if way in ("nobody asks", "server away"):
            if way == "server away":
                raise ConnectionError("no server")
            return
        names = ("south",) if way == "not invited" else ("south", "north")
        asked = replace(terms, model=replace(model, n_features=5)) if way == "terms" else terms
        answer(encode(Enrol(asked, tuple(invitation(asked.digest, name) for name in names))))
        if way == "takes part":
            answer(encode(Round(terms.digest, 1, SparseWeights.zeros(*model.shape))))
        if way == "server gone":
            raise ConnectionError("the server was gone")

    monkeypatch.setattr(grpc_connection, "connect", connect)
    if way == "disk full":
        monkeypatch.setattr(Client, "_write", fail_with(OSError(errno.ENOSPC, "No space left on device")))
    found, values = command(capsys, CLIENT)
    assert found == code, values
    assert len(FileLedger("north.json", "north").entries) == billed
    if code in (0, 3, 5):
        assert values["answers"] == (way == "takes part")
        assert set(values["refused"]) == ({way} if code else set())


@pytest.mark.parametrize(("way", "code", "billed"), [("approved", 0, 1), ("others approved", 5, 0), ("shown", 5, 0)])
def test_a_client_takes_part_on_approved_terms_only(
    study: Path, capsys: Any, monkeypatch: Any, way: str, code: int, billed: int
) -> None:
    """By the digest that tulle federated terms prints; terms that were not approved are printed in words."""
    pytest.importorskip("grpc")
    from tulle.cli.command_runner import parser
    from tulle.cli.federated_terms import make_server_terms
    from tulle.fast.sparse_weights import SparseWeights
    from tulle.federated.encoding import encode
    from tulle.federated.messages import AskWilling, Enrol, Round

    digest = command(capsys, SERVER.replace("federated server", "federated terms"))[1]["digest"]
    terms = make_server_terms(parser().parse_args(SERVER.split()))
    FileLedger.create("north.json", "north", Budget(3.0, 1e-3))

    first = Round(terms.digest, 1, SparseWeights.zeros(*terms.model.shape))

    def connect(address: str, answer: Callable[[bytes], bytes], **_: Any) -> None:
        for message in (AskWilling(terms), Enrol(terms), first):
            answer(encode(message))

    monkeypatch.setattr("tulle.federated.client_side.grpc_connection.connect", connect)
    given = {"approved": f"--approve {'0' * 64} --approve {digest}", "others approved": f"--approve {'0' * 64}"}
    found, values = command(capsys, f"{CLIENT} {given.get(way, '--show-terms')}")
    assert found == code
    proposed = [] if way == "approved" else [f"{terms.describe_fully()}\ndigest: {digest}"]
    assert values.get("not_approved", []) == proposed
    assert len(FileLedger("north.json", "north").entries) == billed
    if proposed:
        assert main(CLIENT.replace("--json", "--quiet --show-terms").split()) == code
        assert proposed[0] in capsys.readouterr().out
