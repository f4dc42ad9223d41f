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


def test_a_simulation_loads_no_flower(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs where the extra is not installed."""
    import subprocess
    import sys

    words = f"federated simulate --data rows.csv --target outcome --parts 2 -o m {TERMS}"
    code = f"import sys; sys.modules['flwr'] = None; from tulle.cli import main; sys.exit(main({words!r}.split()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("command", ["server", "client"])
def test_a_missing_extra_is_told(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "tulle.federated.server_side.flower", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] in ("flwr", "grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "grpc", None)
    words = f"{SERVER} --classes a,b --features 3 {TERMS}" if command == "server" else CLIENT
    code, values = ran(capsys, words)
    assert code == 2
    assert 'pip install "tulle[federated]"' in values["error"]["message"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{CLIENT} --ledger l.json", "pass --ledger FOLDER and --dataset NAME"),
        (f"{CLIENT} --without-privacy --ledger l.json", "--without-privacy is for rows without a ledger"),
        (f"{CLIENT} --ledger l.json --dataset d", "l.json"),
        ("federated client --data rows.csv --name n --server x:1", "required: --state"),
        ("federated", "required: server|client|simulate"),
    ],
)
def test_wrong_clients_are_told(place: Path, capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    """Before rows are read, or a server is looked for."""
    pytest.importorskip("flwr")
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
        (f"--classes a,b --features 3 --tls-ca x {TERMS}", "pass all of --tls-ca, --tls-cert and --tls-key"),
        (f"--classes a,b --features 3 --method auto {TERMS}", "--method needs --trust aggregator"),
        (f"--classes a,b --trust aggregator {TERMS}", "--rounds cannot be used with --trust aggregator"),
        (f"--classes a,b --features 3 --journal no/j {TERMS}", "its folder does not exist"),
        (f"--classes a,b --features 3 --port 99999 {TERMS}", "port must be from 0 to 65535"),
    ],
)
def test_wrong_servers_are_told(place: Path, capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    """Before anything listens, and no folder is left behind."""
    pytest.importorskip("flwr")
    epsilon = "" if TERMS in words else "--epsilon 1"
    code, values = ran(capsys, SERVER, words, epsilon)
    assert code == 2
    assert message in values["error"]["message"]
    assert not (place / "model").exists()


def test_sums_do_not_travel_in_the_clear(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exact sums go to another machine under TLS, or by an express word."""
    pytest.importorskip("flwr")
    words = CLIENT.replace("localhost:1", "192.0.2.1:1") + " --without-privacy --trust-aggregator --retry-seconds 0"
    code, values = ran(capsys, words)
    assert code == 2
    assert "pass --tls-ca FILE, or --insecure within a VPN" in values["error"]["message"]
    code, values = ran(capsys, words, "--insecure")
    assert "no server at 192.0.2.1:1" in values["error"]["message"]
