"""No message, output, log, report or ledger quotes a cell: a secret is planted in each kind, in all formats."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from tulle import Budget, FileLedger
from tulle.cli import main
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.encoding import encode
from tulle.federated.messages import Enrol
from tulle.federated.terms import Terms
from tulle.local.user_side.user import User

SECRET = "Jane Doe 12 Elm St"
PARTS = ("Jane", "Doe", "Elm")
N = 60
ROW = 47
LINE = ROW + 1  # the header is the first
PLACE = re.compile(rf"(row|line) ({ROW}|{LINE})")


class Planted(NamedTuple):
    """A file, how to read it, and whether it can be read at all."""

    name: str
    content: bytes
    options: tuple[str, ...]
    readable: bool = False


def csv_file(column: str, cell: str, *options: str, readable: bool = False) -> Callable[[], Planted]:
    """Rows of two numbers, a target of numbers, a person and a note; one cell is another."""

    def planted() -> Planted:
        rng = np.random.default_rng(0)
        names = ("x", "z", "y", "person", "note")
        lines = [",".join(names)]
        for row in range(1, N + 1):
            cells = dict(zip(names, (f"{rng.normal():.3f}", f"{rng.normal():.3f}", f"{row % 2}", f"p{row}", "none")))
            if row == ROW:
                cells[column] = cell
            lines.append(",".join(cells.values()))
        given = ("--target", "y", "--groups", "person", "--ignore", "note", *options)
        return Planted("rows.csv", ("\n".join(lines) + "\n").encode(), given, readable)

    return planted


def svmlight_file(line: str, *options: str, readable: bool = False) -> Callable[[], Planted]:
    def planted() -> Planted:
        rng = np.random.default_rng(0)
        lines = [f"{row % 2} qid:{row} 1:{rng.normal():.3f} 2:{rng.normal():.3f}" for row in range(N)]
        lines[LINE - 1] = line
        return Planted("rows.svm", ("\n".join(lines) + "\n").encode(), ("--groups", "qid", *options), readable)

    return planted


def npz_file(member: str, *options: str, readable: bool = False) -> Callable[[], Planted]:
    def planted() -> Planted:
        arrays: dict[str, Any] = {
            "X": np.random.default_rng(0).normal(size=(N, 2)),
            "y": np.arange(N) % 2,
            "groups": np.array([f"p{row}" for row in range(N)]),
        }
        changed = arrays[member].astype("U40")
        changed[ROW - 1] = SECRET
        file = io.BytesIO()
        np.savez(file, **{**arrays, member: changed})
        return Planted("rows.npz", file.getvalue(), options, readable)

    return planted


def parquet_file(column: str, *options: str, readable: bool = False) -> Callable[[], Planted]:
    def planted() -> Planted:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        rng = np.random.default_rng(0)
        columns: dict[str, Any] = {
            "x": rng.normal(size=N).tolist(),
            "z": rng.normal(size=N).tolist(),
            "y": (np.arange(N) % 2).tolist(),
            "person": [f"p{row}" for row in range(N)],
            "note": ["none"] * N,
        }
        columns[column] = [f"{value}" for value in columns[column]]
        columns[column][ROW - 1] = SECRET
        file = io.BytesIO()
        pq.write_table(pa.table(columns), file)
        given = ("--target", "y", "--groups", "person", "--ignore", "note", *options)
        return Planted("rows.parquet", file.getvalue(), given, readable)

    return planted


FILES: dict[str, Callable[[], Planted]] = {
    "csv feature": csv_file("x", SECRET),
    "csv feature in quotes": csv_file("x", f'"{SECRET}, flat 3"'),
    "csv feature with a semicolon": csv_file("x", f"{SECRET};1"),
    "csv target": csv_file("y", SECRET),
    "csv person": csv_file("person", SECRET, readable=True),
    "csv note": csv_file("note", SECRET, readable=True),
    "csv note that opens": csv_file("note", f'"{SECRET}'),
    "csv note after a quote": csv_file("note", f'"a"{SECRET}', readable=True),
    "csv one cell more": csv_file("note", f"{SECRET},{SECRET}"),
    "csv NUL": csv_file("note", f"{SECRET}\0"),
    "csv as svmlight": lambda: csv_file("x", SECRET)()._replace(options=("--format", "svmlight")),
    "csv as npz": lambda: Planted("rows.csv", SECRET.encode(), ("--format", "npz")),
    "csv without a header": lambda: Planted("rows.csv", f"{SECRET},17,0\nb,3,1\n".encode(), ("--target", "y")),
    "csv without a header, repeated": lambda: Planted("rows.csv", f"{SECRET},17,17\nb,3,1\n".encode(), ()),
    "csv in another encoding": lambda: csv_file("note", f"{SECRET} §")()._replace(
        content=csv_file("note", f"{SECRET} §")().content.decode().encode("latin-1")
    ),
    "svmlight target": svmlight_file("Jane qid:1 1:0.5"),
    "svmlight value": svmlight_file("1 qid:1 1:Jane"),
    "svmlight index": svmlight_file("1 qid:1 Elm:0.5"),
    "svmlight entry": svmlight_file("1 qid:1 1:0.5 Doe"),
    "svmlight qid": svmlight_file("1 qid:Jane 1:0.5"),
    "svmlight comment": svmlight_file(f"1 qid:1 1:0.5 # {SECRET}", "--n-features", "2", readable=True),
    "npz rows": npz_file("X"),
    "npz people": npz_file("groups", readable=True),
    "parquet feature": parquet_file("x"),
    "parquet person": parquet_file("person", readable=True),
    "parquet note": parquet_file("note", readable=True),
}

KNOWN = ("--row-l2", "1", "--n-nonzero", "1", "--task", "classification")
COMMANDS: dict[str, Callable[[str, tuple[str, ...]], list[str]]] = {
    "fit": lambda data, read: [
        *("fit", data, *read, *KNOWN, "--epsilon", "1", "--seed", "0"),
        *("--ledger", "ledger/budget", "--dataset", "visits", "-o", "out"),
    ],
    "predict": lambda data, read: ["predict", "model", data, *without(read, "--target", "--groups", "--n-features")],
    "convert": lambda data, read: ["convert", data, "rows.blocks", *read],
    "compare": lambda data, read: [
        *("compare", data, *read, *KNOWN, "--methods", "hard_thresholding", "--epsilons", "1"),
        *("--trials", "1", "--jobs", "1", "-o", "out"),
    ],
    "simulate": lambda data, read: [
        *("federated", "simulate", data, *without(read, "--groups"), "--parts", "2", "--rounds", "1"),
        *("--row-l2", "1", "--n-nonzero", "1", "--epsilon", "1", "--study", "s", "-o", "out"),
    ],
    "client": lambda data, read: [
        *("federated", "client", "--data", data, *read, "--name", "a", "--server", "127.0.0.1:1", "--state", "out"),
        *("--without-privacy", "--retry-seconds", "0"),
    ],
}


def without(options: tuple[str, ...], *left_out: str) -> tuple[str, ...]:
    """Options that take a value, but for some."""
    pairs = zip(options[::2], options[1::2])
    return tuple(word for name, value in pairs if name not in left_out for word in (name, value))


def simulated(read: tuple[str, ...]) -> tuple[str, ...]:
    """What `simulate` needs: people are no features, and it takes none."""
    return (*without(read, "--groups"), *(("--ignore", "person") if "person" in read else ()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two features, x and z."""
    folder = tmp_path_factory.mktemp("fitted")
    made = csv_file("note", "none")()
    (folder / "rows.csv").write_bytes(made.content)
    words = ["fit", str(folder / "rows.csv"), *made.options, *KNOWN, "--epsilon", "1", "--quiet"]
    assert main([*words, "-o", str(folder / "model")]) == 0
    return folder / "model"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


def texts_below(*folders: Path) -> str:
    """All that was written, whatever the bytes are."""
    files = [path for folder in folders if folder.exists() for path in sorted(folder.rglob("*")) if path.is_file()]
    return "\n".join(f"{path.name}\n{path.read_bytes().decode('latin-1')}" for path in files)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_secret_in_a_file_stays_there(
    command: str,
    kind: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    logged: pytest.LogCaptureFixture,
) -> None:
    """Said as text, as JSON and with tracebacks: no part of it is in what is printed, logged or written, and the row's
    number is on standard error alone."""
    if command == "client":
        pytest.importorskip("grpc")
    planted = FILES[kind]()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(model)
    Path(planted.name).write_bytes(planted.content)
    Path("ledger").mkdir()
    FileLedger.create("ledger/budget", "visits", Budget(1000.0, 1e-3))
    read = simulated(planted.options) if command == "simulate" else planted.options
    words = COMMANDS[command](planted.name, read)
    for mode in ((), ("--json",), ("--debug",)):
        capfd.readouterr()
        code = main([*words, "--quiet", *mode, *(("--replace",) if command in ("fit", "simulate", "convert") else ())])
        out, err = capfd.readouterr()
        # Targets of CSV files and people of svmlight files are not read to predict.
        if not planted.readable and not (command == "predict" and kind in ("csv target", "svmlight qid")):
            assert code == 2, err
        written = texts_below(tmp_path / "out", tmp_path / "ledger")
        for text in (out, err, logged.text, written):
            assert not any(part in text for part in PARTS), text
        if code == 2:
            assert not any(PLACE.search(text) for text in (out, logged.text, written))
        if mode == ("--json",):
            json.loads(out)


def test_a_secret_of_an_audited_function_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a user's function says when it fails is not repeated, nor what its file says when it is read."""
    monkeypatch.chdir(tmp_path)
    Path("rows.txt").write_text(SECRET)
    Path("mine.py").write_text(
        "def fit(X, y, rng):\n    raise ValueError(open('rows.txt').read())\n"
        "def words(X, y, rng):\n    return open('rows.txt').read()\n"
    )
    Path("reading.py").write_text("raise KeyError(open('rows.txt').read())\n")
    for subject in ("mine.py:fit", "mine.py:words", "reading.py:fit"):
        for mode in ((), ("--json",), ("--debug",)):
            assert main(["audit", subject, "--runs", "16", "--claimed", "1", "--quiet", *mode]) == 2
            out, err = capfd.readouterr()
            assert not any(part in text for part in PARTS for text in (out, err)), (out, err)


def test_a_secret_in_a_failed_cell_of_a_comparison_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Failures are kept in files and shown in tables."""
    monkeypatch.chdir(tmp_path)
    planted = csv_file("note", "none")()
    Path(planted.name).write_bytes(planted.content)

    def failing(self: Any, X: Any, y: Any, groups: Any = None, *, public: Any = None) -> Any:
        raise ValueError(SECRET)

    monkeypatch.setattr("tulle.estimators.sparse.SparseClassifier.fit", failing)
    assert main([*COMMANDS["compare"](planted.name, planted.options), "--quiet"]) == 1
    text = "".join([*capfd.readouterr(), texts_below(tmp_path / "out")])
    assert "ValueError (test_no_cell_leaves.py" in text
    assert not any(part in text for part in PARTS)


def test_a_secret_in_a_users_row_stays_there() -> None:
    """Of local privacy: the user's own process may log what it refuses."""
    for x, y in (([1.0, SECRET], 1.0), ([1.0, 2.0], SECRET)):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            User("u", x, cast(float, y), max_epsilon=1.0)
        assert not any(part in str(raised.value) for part in PARTS)


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_a_secret_at_a_federated_client_stays_there(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a library says of rows that do not go with a study: neither the server nor the client's log gets it."""

    def failing(*rows: Any) -> Any:
        raise kind(SECRET)

    monkeypatch.setattr("tulle.federated.client_side.linear_study.LinearTerms.task", failing)
    model = linear_terms(2, step=1.0, classes=None, loss="squared", row_l2=1.0, label=1.0)
    terms = Terms(
        "s", model, rounds=1, local_steps=1, n_nonzero=1, step=1.0, clip=1.0, batch=None, epsilon=None, delta=None
    )
    told: list[str] = []
    X = np.random.default_rng(0).normal(size=(N, 2))
    client = Client("a", X, X[:, 0], ledger=None, state=tmp_path, without_privacy=True, tell=told.append)
    answer = client.answer(encode(Enrol(terms)))
    assert f"{kind.__name__} (test_no_cell_leaves.py" in "".join(told)
    for text in (answer.decode("latin-1"), *told, texts_below(tmp_path)):
        assert not any(part in text for part in PARTS), text
