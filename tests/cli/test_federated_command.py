"""`tulle federated` as far as it needs no network: simulations, and what is refused before anything starts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tulle
from tulle.cli import main
from tulle.cli.command_runner import parser
from tulle.cli.federated_terms import make_server_terms
from tulle.files.install_hints import install_hint

TERMS = "--row-l2 2 --epsilon 4 --delta 1e-6 --rounds 6 --n-nonzero 3"
SERVER = "federated server --study s --port 0 -o model"
CLIENT = "federated client --data rows.csv --target outcome --name north --server localhost:1 --state state"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 400 rows of 8 features, with labels and with numbers to predict."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 8)) / 3
    scores = np.clip(X[:, :2] @ [1.0, -1.0], -1, 1)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{j}" for j in range(8)), "score", "outcome"])
        writer.writerows([*row, score, "ward" if score > 0 else "home"] for row, score in zip(X, scores))
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], *phrases: str) -> tuple[int, Any]:
    """The exit code of a command, and what it says."""
    code = main([*" ".join(phrases).split(), "--json"])
    return code, json.loads(capsys.readouterr().out)


def simulated(capsys: pytest.CaptureFixture[str], *words: str, target: str = "outcome", ignore: str = "score") -> Any:
    data = f"federated simulate --data rows.csv --target {target} --ignore {ignore} --parts 4 --quiet"
    code, values = ran(capsys, data, TERMS, *words)
    assert code == 0, values
    return values


def test_a_simulation_writes_what_a_fit_writes_and_its_rounds(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model with its names, its report, and a line for each round with everybody in it."""
    values = simulated(capsys, "-o", "model", "--seed", "1")
    files = sorted(path.name for path in (place / "model").iterdir())
    assert files == ["model.npz", "privacy.json", "report.html", "rounds.csv", "weights.csv"]
    model = tulle.load(values["model"])
    assert list(model.classes_) == ["home", "ward"]
    assert model.feature_names_in_[0] == "f0"
    assert len(model.support_) == values["n_nonzero"] == 3
    assert 3.9 < model.privacy_.epsilon <= 4
    assert model.privacy_.seeded
    with (place / "model" / "rounds.csv").open() as file:
        rounds = list(csv.DictReader(file))
    assert [line["round"] for line in rounds] == list("123456")
    assert {line["answered"] for line in rounds} == {"part 1;part 2;part 3;part 4"}
    assert {(line["missing"], line["rejected"]) for line in rounds} == {("", "")}
    assert [(client["name"], client["n_rows"]) for client in values["clients"]] == [
        (f"part {i}", 100) for i in (1, 2, 3, 4)
    ]


def test_a_seed_repeats_a_simulation(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same weights for the same seed; others for another, and for other parts."""
    words = {"a": "--seed 1", "b": "--seed 1", "c": "--seed 2", "d": "--seed 1 --skew"}
    weights = {name: simulated(capsys, f"-o {name} {said}")["weights"] for name, said in words.items()}
    assert weights["a"] == weights["b"]
    assert weights["a"] != weights["c"]
    assert weights["a"] != weights["d"]


def test_skewed_clients_see_different_labels(place: Path) -> None:
    """Two runs of the rows sorted by label: some have next to none of one label, and no row is lost or doubled."""
    from tulle.cli.federated_simulation import _parts
    from tulle.files.tables import read_table

    table = read_table("rows.csv", target="outcome", ignore=["score"], progress=False)
    assert table.y is not None
    for skew, most in ((False, 0.2), (True, 1.0)):
        parts = _parts(table, 4, skew, 0)
        shares = [float(np.mean(y == "ward")) for _, y in parts.values()]
        assert max(shares) - min(shares) <= most
        assert not skew or max(shares) - min(shares) >= 0.5
        rows = np.concatenate([X for X, _ in parts.values()])
        assert np.array_equal(np.sort(rows, axis=0), np.sort(np.asarray(table.X), axis=0))
    again, other = _parts(table, 4, True, 0), _parts(table, 4, True, 1)
    assert all(np.array_equal(X, again[name][0]) for name, (X, _) in parts.items())
    assert any(len(X) != len(other[name][0]) or not np.array_equal(X, other[name][0]) for name, (X, _) in parts.items())


def test_without_privacy_and_noise_a_simulation_finds_the_features(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A regression on two features, without noise; and batches are taken where they are asked for."""
    words = "--epsilon none --regression --label-bound 1 --step 2 --n-nonzero 2 --rounds 40 -o model --batch 50"
    data = "federated simulate --data rows.csv --target score --ignore outcome --parts 4 --quiet"
    code, values = ran(capsys, data, words)
    assert code == 0, values
    assert {line["feature"] for line in values["weights"]} == {"f0", "f1"}
    assert values["privacy"]["asked"] is None
    assert "batches of about 50 rows" in values["privacy"]["method"]


@pytest.mark.parametrize(("rows", "name"), [("60", "DP-FedSCSG-HT"), ("all", "DP-FedSVRG-HT")])
def test_a_simulation_with_snapshots(place: Path, capsys: pytest.CaptureFixture[str], rows: str, name: str) -> None:
    words = "--row-l2 1 --epsilon 5 --delta 1e-4 --n-nonzero 2 --rounds 2 --local-steps 3 -o model "
    words += f"--batch 20 --snapshot-batch {rows}"
    data = "federated simulate --data rows.csv --target outcome --ignore score --parts 4 --difference-clip 0.5 --quiet"
    code, values = ran(capsys, data, words)
    assert code == 0, values
    assert values["privacy"]["method"].startswith(name)
    assert "clipped at 0.5 of that" in values["privacy"]["method"]
    bill = values["privacy"]["bill"]
    assert [line["count"] for line in bill] == [6, 2] * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--parts 4 --row-l2 1 --epsilon 1 --n-nonzero 2 -o rows.csv", "rows.csv"),
        ("--parts 101 --row-l2 1 --epsilon 1 --n-nonzero 2 -o m", "from 1 to a quarter of the 400 rows, got 101"),
        ("--parts 4 --epsilon 1 --n-nonzero 2 -o m", "declare --row-l2, --row-linf or --normalise"),
        ("--parts 4 --row-l2 1 --epsilon 1 -o m", "pass the number of weights to keep: --n-nonzero S"),
        ("--parts 4 --row-l2 1 --epsilon none --delta 1e-6 --n-nonzero 2 -o m", "--delta needs an --epsilon"),
        ("--parts 4 --row-l2 1 --epsilon 1 --n-nonzero 2 --batch few -o m", "must be a number of rows, or all"),
        ("--parts 4 --row-l2 1 --epsilon 1 --n-nonzero 2 --rounds 0 -o m", "rounds must be an integer from 1"),
        ("--parts 4 --row-l2 1 --epsilon 1 --n-nonzero 2 --snapshot-batch all -o m", "give batch a number of rows"),
        (
            "--parts 4 --row-l2 1 --epsilon 1 --n-nonzero 2 --batch 9 --snapshot-batch 0 -o m",
            "'all' or an integer",
        ),
        ("--parts 4 --row-l2 1 --epsilon 1 --n-nonzero 2 --difference-clip 1 -o m", "give snapshot_batch"),
        ("--parts 4 --epsilon none --n-nonzero 2 -o m", "no bound on the row norm to derive the step size from"),
        ("--parts 4 --row-l2 1 --epsilon 1 --n-nonzero 2 --groups f0 -o m", "omit --groups"),
        ("--parts 4 --row-l2 1 --epsilon 1 --n-nonzero 2 --classes home -o m", "at least two different words"),
    ],
)
def test_wrong_simulations_are_told(place: Path, capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    """Exit code 2, what to change, and nothing left behind."""
    data = "federated simulate --data rows.csv --target outcome --ignore score --quiet"
    code, values = ran(capsys, data, words)
    assert code == 2
    assert message in values["error"]["message"]
    assert not (place / "m").exists()


def test_a_regression_needs_a_bound_on_slopes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With privacy: the bound of labels, or a clip."""
    data = "federated simulate --data rows.csv --target score --ignore outcome --parts 4 --regression --quiet"
    terms = "--row-l2 1 --epsilon 1 --n-nonzero 2 --rounds 2 -o m"
    code, values = ran(capsys, data, terms)
    assert code == 2
    assert "pass --label-bound, or --clip" in values["error"]["message"]
    for enough in ("--label-bound", "--clip"):
        assert ran(capsys, data, terms, "--replace", enough, "1")[0] == 0


def test_classes_are_words_or_numbers() -> None:
    """Numbers where all of them are, as files hold them."""
    from tulle.cli.federated_terms import parse_classes

    assert parse_classes("home, ward") == ("home", "ward")
    assert parse_classes("0,1") == (0, 1)
    assert parse_classes("0,0.5") == (0.0, 0.5)
    assert parse_classes("0,none") == ("0", "none")
    assert {type(label) for label in parse_classes("0,1")} == {int}


def test_a_simulation_needs_no_extra(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs where no transport is installed."""
    import subprocess
    import sys

    words = f"federated simulate --data rows.csv --target outcome --parts 2 -o m {TERMS}"
    absent = "sys.modules['flwr'] = sys.modules['grpc'] = sys.modules['cryptography'] = None"
    code = f"import sys; {absent}; from tulle.cli import main; sys.exit(main({words!r}.split()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr


def test_terms_are_printed_with_their_digest(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With all options of the server; nothing is started or written, and no extra is needed."""
    words = f"--study s --features 8 --classes home,ward {TERMS} --port 0 --min-clients 3"
    code, values = ran(capsys, "federated terms", words, "-o model")
    assert code == 0
    arguments = parser().parse_args(["federated", "server", *words.split(), "-o", "model"])
    terms = make_server_terms(arguments)
    assert values == {"study": "s", "digest": terms.digest, "terms": terms.describe_fully()}
    assert main(["federated", "terms", *words.split()]) == 0
    assert capsys.readouterr().out == f"{terms.describe_fully()}\ndigest: {terms.digest}\n"
    assert ran(capsys, "federated terms", words, "--clip 0.25")[1]["digest"] != terms.digest
    assert [path.name for path in place.iterdir()] == ["rows.csv"]
    for wrong, message in (("--trust aggregator", "have no terms"), ("--regression", "not allowed with")):
        code, values = ran(capsys, "federated terms", words, wrong)
        assert (code, message in values["error"]["message"]) == (2, True)


def test_a_file_with_one_row_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number of rows is public; what a library says of it is not passed on."""
    pytest.importorskip("grpc")
    (place / "rows.csv").write_text("".join((place / "rows.csv").read_text().splitlines(keepends=True)[:2]))
    code, values = ran(capsys, CLIENT, "--without-privacy --retry-seconds 0")
    assert (code, "a client needs at least 2 rows, got 1" in values["error"]["message"]) == (2, True), values


def test_a_masked_server_has_metrics(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("grpc")
    pytest.importorskip("cryptography")
    assert main(["federated", "certificates", "--folder", "keys", "--server", "localhost", "--clients", "a,b"]) == 0
    words = (
        "federated server --study s --features 8 --classes home,ward --row-l2 3 --epsilon 1 --trust masked "
        "--tls-ca keys/authority.pem --tls-certificate keys/server/server.pem --tls-key keys/server/server.key "
        "--clients a,b --port 0 --patience 0.2 --metrics 0 -o model"
    )
    assert main(words.split()) == 1
    assert "metrics at http://" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["terms", "server"])
def test_masked_studies_that_no_server_can_run_have_no_terms(
    place: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Or a data steward would approve them in vain."""
    words = "--study s --features 8 --classes home,ward --row-l2 3 --epsilon 1 --trust masked --clients a,b -o model"
    for wrong, message in (
        ("--method frank_wolfe", "--method with --trust masked must be one of hard_thresholding"),
        ("--transport flower", "omit --transport flower"),
        ("", "pass the certificate of the study's authority"),
    ):
        code, values = ran(capsys, f"federated {command}", words, wrong)
        assert (code, message in values["error"]["message"]) == (2, True), values


@pytest.mark.parametrize(("transport", "extra"), [("grpc", "federated"), ("flower", "flower")])
@pytest.mark.parametrize("command", ["server", "client"])
def test_a_missing_extra_is_told(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    transport: str,
    extra: str,
) -> None:
    import sys

    ours = ("grpc_protocol", "grpc_link", "grpc_connection", "flower", "flower_node", "superlink")
    for name in [name for name in sys.modules if name.startswith("tulle.federated.") and name.endswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] in ("flwr", "grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "grpc", None)
    words = f"{SERVER} --classes a,b --features 3 {TERMS}" if command == "server" else CLIENT
    code, values = ran(capsys, words, "--transport", transport)
    assert code == 2
    assert install_hint(extra) in values["error"]["message"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{CLIENT} --ledger l.json", "pass --ledger FOLDER and --dataset NAME"),
        (f"{CLIENT} --without-privacy --ledger l.json", "--without-privacy is for rows without a ledger"),
        (f"{CLIENT} --ledger l.json --dataset d", "l.json"),
        ("federated client --data rows.csv --name n --server x:1", "required: --state"),
        (CLIENT.replace("--name north", ""), "pass --name NAME, or the certificate that has it"),
        (f"{CLIENT} --tls-ca ca.pem", "pass all of --tls-ca, --tls-certificate and --tls-key"),
        (f"{CLIENT} --node-key key", "--node-key cannot be used with --transport grpc; omit it"),
        (CLIENT.replace("localhost:1", "192.0.2.1:1"), "or --insecure within a VPN"),
        ("federated", "required: server|terms|client|simulate|certificates"),
        (f"{CLIENT} --without-privacy --approve abc", "64 hexadecimal digits"),
        (f"{CLIENT} --without-privacy --approve {'0' * 64} --show-terms", "refuses all terms"),
        (f"{CLIENT} --without-privacy --approve {'0' * 64} --trust-aggregator", "omit --trust-aggregator"),
        (f"{CLIENT} --without-privacy --show-terms --trust-aggregator", "omit --trust-aggregator"),
    ],
)
def test_wrong_clients_are_told(place: Path, capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    """Before rows are read, or a server is looked for."""
    pytest.importorskip("grpc")
    code, values = ran(capsys, words)
    assert code == 2
    assert message in values["error"]["message"]
    assert not (place / "state").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--features 3", "one of the arguments --classes --regression is required"),
        (f"--classes a,b {TERMS}", "pass the number of features that all clients have: --features D"),
        (f"--classes a,b --features 3 --clients a {TERMS}", "fewer than the 2 of --min-clients"),
        (f"--classes a,b --features 3 --tls-ca x {TERMS}", "pass all of --tls-ca, --tls-certificate and --tls-key"),
        (
            f"--classes a,b --features 3 --host 0.0.0.0 {TERMS}",
            "(tulle federated certificates makes them), or --insecure",
        ),
        (f"--classes a,b --features 3 --superlink x:1 {TERMS}", "--superlink cannot be used with --transport grpc"),
        (f"--classes a,b --features 3 --method auto {TERMS}", "--method needs --trust aggregator"),
        (f"--classes a,b --trust aggregator {TERMS}", "--rounds cannot be used with --trust aggregator"),
        (f"--classes a,b --features 3 --journal no/j {TERMS}", "its folder does not exist"),
        (f"--classes a,b --features 3 --port 99999 {TERMS}", "port must be from 0 to 65535"),
    ],
)
def test_wrong_servers_are_told(place: Path, capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    """Before anything listens, and no folder is left behind."""
    pytest.importorskip("grpc")
    epsilon = "" if TERMS in words else "--epsilon 1"
    code, values = ran(capsys, SERVER, words, epsilon)
    assert code == 2
    assert message in values["error"]["message"]
    assert not (place / "model").exists()


def test_nothing_travels_in_the_clear_by_default(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages go to another machine under TLS, or by an express word."""
    pytest.importorskip("grpc")
    words = CLIENT.replace("localhost:1", "192.0.2.1:1") + " --without-privacy --retry-seconds 0"
    code, values = ran(capsys, words)
    assert code == 2
    assert "pass --tls-ca, --tls-certificate and --tls-key" in values["error"]["message"]
    code, values = ran(capsys, words, "--insecure")
    assert "no server at 192.0.2.1:1" in values["error"]["message"]


def test_certificates_are_made_and_name_a_client(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The client's name is the certificate's; another --name is told, and so is a certificate of another use."""
    pytest.importorskip("grpc")
    pytest.importorskip("cryptography")
    made = "federated certificates --folder study"
    code, values = ran(capsys, made, "--server localhost,127.0.0.1 --clients north,south --days 9")
    assert code == 0
    assert len(values["written"]) == 8
    assert ran(capsys, made, "--clients west")[0] == 0
    code, values = ran(capsys, made, "--clients west")
    assert (code, "exists and is not overwritten" in values["error"]["message"]) == (2, True)
    nobody = CLIENT.replace("--name north", "--without-privacy --retry-seconds 0 --tls-ca study/authority.pem")
    code, values = ran(capsys, nobody, "--tls-certificate study/clients/west.pem --tls-key study/clients/west.key")
    assert "no server at localhost:1" in values["error"]["message"]
    code, values = ran(
        capsys, nobody, "--tls-certificate study/clients/west.pem --tls-key study/clients/west.key --name north"
    )
    assert (code, values["error"]["message"]) == (
        2,
        "--name is 'north', but the certificate is that of 'west'; omit --name",
    )
    code, values = ran(capsys, nobody, "--tls-certificate study/server/server.pem --tls-key study/server/server.key")
    assert (code, "not for client authentication" in values["error"]["message"]) == (2, True)


def test_options_of_a_connection_reach_the_transport(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates, the server's name, the proxy and the limits, as they were given."""
    pytest.importorskip("grpc")
    from tulle.federated.client_side import grpc_connection

    given: dict[str, Any] = {}
    monkeypatch.setattr(grpc_connection, "connect", lambda address, answer, **said: given.update(said, to=address))
    assert ran(capsys, "federated certificates --folder study --clients west")[0] == 0
    files = ("study/authority.pem", "study/clients/west.pem", "study/clients/west.key")
    tls = "--tls-ca {} --tls-certificate {} --tls-key {}".format(*files)
    words = CLIENT.replace("--name north", tls).replace("localhost:1", "study.example.org:443")
    more = "--proxy proxy.example.org:8080 --server-name inside.example.org --retry-seconds 7 --forever"
    code, values = ran(capsys, words, more, "--without-privacy")
    assert (code, values["client"]) == (0, "west")
    assert callable(given.pop("told"))
    assert given == {
        "to": "study.example.org:443",
        "certificates": files,
        "proxy": "proxy.example.org:8080",
        "server_name": "inside.example.org",
        "insecure": False,
        "retry_seconds": 7.0,
        "forever": True,
    }


def test_flower_is_a_second_transport(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own options reach it; those of gRPC are told, not ignored."""
    pytest.importorskip("flwr")
    from tulle.federated.server_side import flower

    given: dict[str, Any] = {}
    monkeypatch.setattr(flower, "connect", lambda address, answer, **said: given.update(said, to=address))
    words = f"{CLIENT} --transport flower --without-privacy"
    assert ran(capsys, words, "--tls-ca ca.pem --node-key key")[0] == 0
    assert (given["to"], given["certificate"], given["node_key"]) == ("localhost:1", "ca.pem", "key")
    for option in ("--tls-key k", "--tls-certificate c", "--proxy p:1", "--server-name s"):
        code, values = ran(capsys, words, option)
        assert code == 2
        assert f"{option.split()[0]} cannot be used with --transport flower" in values["error"]["message"]

    def link(address: str, **said: Any) -> Any:
        given.update(said, to=address)
        raise ConnectionError("no SuperLink")

    monkeypatch.setattr(flower, "FlowerLink", link)
    server = f"{SERVER} --classes a,b --features 3 {TERMS} --transport flower --superlink-secret s --superlink"
    assert ran(capsys, server, "localhost:9092")[0] == 2
    assert (given["to"], given["secret"]) == ("localhost:9092", "s")
    code, values = ran(capsys, server, "192.0.2.1:9092")
    assert "pass --tls-ca FILE, or --insecure within a VPN" in values["error"]["message"]
