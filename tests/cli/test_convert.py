"""`tulle convert`, and `tulle fit` and `tulle predict` on the folder that it makes."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tulle import Budget, FileLedger, load
from tulle.backends.block_folder import open_blocks
from tulle.cli import main

N, NAMES = 400, ("age", "dose", "sodium")
# Without noise, or with the same, a folder and its file must give the same model.
KNOWN = ["--row-linf", "1", "--n-nonzero", "2", "--quiet", "--seed", "1"]


def run(capsys: Any, *words: Any, code: int = 0) -> Any:
    """The JSON of a command that exits with `code`."""
    capsys.readouterr()
    assert main([*map(str, words), "--json", "--quiet"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys: Any, *words: Any) -> str:
    """What a command says that exits with 2."""
    message: str = run(capsys, *words, code=2)["error"]["message"]
    return message


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits with words to predict, by people with two rows each, as a file and as a folder of four blocks."""
    folder = tmp_path_factory.mktemp("convert")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, 3))
    with (folder / "visits.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", *NAMES, "outcome"])
        for k, row in enumerate(X.tolist()):
            writer.writerow([f"p{k // 2}", *map(repr, row), "home" if row[0] > row[1] else "ward"])
    words = ["convert", folder / "visits.csv", folder / "visits.blocks", "--target", "outcome", "--groups", "patient"]
    assert main([*map(str, words), "--rows-per-block", "120", "--quiet"]) == 0
    return folder


def test_the_command_says_what_it_wrote(place: Path, tmp_path: Path, capsys: Any) -> None:
    """In words with progress on standard error, and as JSON; what is there already is replaced when that is said."""
    words = [
        "convert",
        str(place / "visits.csv"),
        str(tmp_path / "v.blocks"),
        "--target",
        "outcome",
        "--ignore",
        "patient",
    ]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "400 rows of 3 features, with a target, in 1 block of" in out
    assert "private rows" in out
    assert "visits.csv: 100% read" in err
    assert "exists" in refused(capsys, *words)
    values = run(capsys, *words, "--replace", "--rows-per-block", 100)
    folder = open_blocks(tmp_path / "v.blocks")
    assert values == {
        "folder": str(tmp_path / "v.blocks"),
        "n_rows": N,
        "n_features": 3,
        "n_blocks": 4,
        "bytes": folder.X.nbytes,
        "target": True,
        "groups": False,
        "missing": False,
        "schema": False,
        "resumed_rows": 0,
        "content": folder.content,
    }
    assert folder.feature_names == NAMES


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "outcom"], "did you mean 'outcome'"),
        (["--target", "outcome"], "column 'patient': a cell is not a number"),
        (["--target", "outcome", "--ignore", "patient", "--rows-per-block", "0"], "rows_per_block must be from 1"),
    ],
    ids=["name", "cell", "size"],
)
def test_a_wrong_command_leaves_nothing(
    place: Path, tmp_path: Path, capsys: Any, more: list[str], message: str
) -> None:
    """One line that says what to change, exit code 2."""
    assert message in refused(capsys, "convert", place / "visits.csv", tmp_path / "v.blocks", *more)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_fitted_like_its_file(place: Path, tmp_path: Path, capsys: Any) -> None:
    """The same seed gives the same weights under the same names, also where people have several rows."""
    common = ["--epsilon", 3, *KNOWN, "--rows-per-person", 2]
    from_file = run(
        capsys, "fit", place / "visits.csv", "--target", "outcome", "--groups", "patient", *common, "-o", tmp_path / "f"
    )
    from_blocks = run(capsys, "fit", f"{place / 'visits.blocks'}/", *common, "-o", tmp_path / "b")
    assert (from_blocks["n_rows"], from_blocks["n_features"]) == (N, 3)
    for one, other in zip(from_blocks["weights"], from_file["weights"], strict=True):
        assert one["feature"] == other["feature"]
        assert one["weight"] == pytest.approx(other["weight"], abs=1e-9)
    assert load(tmp_path / "b" / "model.npz").feature_names_in_.tolist() == [*NAMES]
    assert "visits.blocks" in (tmp_path / "b" / "report.html").read_text()


def test_a_ledger_knows_the_rows_of_a_folder(place: Path, tmp_path: Path, capsys: Any) -> None:
    """Converting the file and giving it another name does not buy a second budget in silence."""
    ledger = tmp_path / "budget"
    for name in ("visits", "blocks"):
        FileLedger.create(ledger, name, Budget(3.0, 1e-4))
    known = ["--epsilon", 1, *KNOWN, "--rows-per-person", 2, "--ledger", ledger]
    file = ["--target", "outcome", "--groups", "patient", "-o", tmp_path / "f"]
    assert "warnings" not in run(capsys, "fit", place / "visits.csv", *known, "--dataset", "visits", *file)
    billed = run(capsys, "fit", place / "visits.blocks", *known, "--dataset", "blocks", "-o", tmp_path / "b")
    assert any("the same rows were billed as 'visits'" in one for one in billed.get("warnings", ()))


def test_predictions_for_a_folder_are_those_for_its_file(place: Path, tmp_path: Path, capsys: Any) -> None:
    """Block by block, in the order of the rows; columns are found by their names, also in another order."""
    model = tmp_path / "m"
    words = ["--target", "outcome", "--ignore", "patient", "--epsilon", "none", *KNOWN, "-o", model]
    run(capsys, "fit", place / "visits.csv", *words)
    expected = run(capsys, "predict", model, place / "visits.csv", "--probabilities")

    def assert_same(name: str) -> None:
        found = run(capsys, "predict", model, name, "--probabilities")
        assert found["prediction"] == expected["prediction"]
        # Products of other shapes round otherwise.
        assert found["probability_home"] == pytest.approx(expected["probability_home"], abs=1e-12)

    assert_same(f"{place / 'visits.blocks'}")
    turned = tmp_path / "turned.csv"
    lines = list(csv.reader((place / "visits.csv").open(newline="")))
    turned.write_text("".join(f"{row[3]},{row[1]},{row[2]},0\n" for row in lines).replace(",0\n", ",more\n", 1))
    run(capsys, "convert", turned, tmp_path / "turned.blocks", "--rows-per-block", 70)
    assert_same(f"{tmp_path / 'turned.blocks'}")
    run(capsys, "convert", turned, tmp_path / "less.blocks", "--ignore", "dose")
    message = refused(capsys, "predict", model, tmp_path / "less.blocks")
    assert "1 of 3 features are missing: 'dose'" in message


def test_sparse_rows_without_names_are_fitted_and_predicted(tmp_path: Path, capsys: Any) -> None:
    """A folder must then have as many columns as the model."""
    rng = np.random.default_rng(0)
    rows = [f"{k % 2} {1 + k % 2}:1 {3 + rng.integers(5)}:1\n" for k in range(200)]
    (tmp_path / "a.svm").write_text("".join(rows))
    for d in (8, 9):
        run(capsys, "convert", tmp_path / "a.svm", tmp_path / f"{d}.blocks", "--n-features", d, "--rows-per-block", 64)
    words = ["--task", "classification", "--epsilon", "none", "--normalise", "--n-nonzero", 2, "-o", tmp_path / "m"]
    run(capsys, "fit", tmp_path / "8.blocks", *words)
    expected = run(capsys, "predict", tmp_path / "m", tmp_path / "a.svm")
    assert expected["prediction"] == [float(k % 2) for k in range(200)]
    assert run(capsys, "predict", tmp_path / "m", tmp_path / "8.blocks") == expected
    assert "9 features, expected 8" in refused(capsys, "predict", tmp_path / "m", tmp_path / "9.blocks")
    assert "8 features, expected 9" in refused(
        capsys, "fit", tmp_path / "8.blocks", "--n-features", 9, *words, "--replace"
    )


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (["--target", "outcome"], "--target"),
        (["--groups", "patient"], "--groups"),
        (["--ignore", "age"], "--ignore"),
        (["--no-header"], "--no-header"),
        (["--zero-based"], "--zero-based"),
        (["--encoding", "cp1252"], "--encoding"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_how_to_read_a_file_is_not_asked_of_a_folder(
    place: Path, tmp_path: Path, capsys: Any, option: list[str], named: str
) -> None:
    """It was said when the file was converted; to say it again and be ignored would mislead."""
    message = refused(capsys, "fit", place / "visits.blocks", "--epsilon", 1, *KNOWN, *option, "-o", tmp_path / "m")
    assert f"omit {named} here, and pass it to tulle convert" in message


def test_folders_go_where_they_can_be_used(place: Path, tmp_path: Path, capsys: Any) -> None:
    """No comparison in memory, no model among private rows, no fit without a target, no damaged folder."""
    assert "so pass a file" in refused(capsys, "compare", place / "visits.blocks", "-o", tmp_path / "c")
    fit = ["fit", place / "visits.blocks", "--epsilon", 1, *KNOWN]
    assert "private rows" in refused(capsys, *fit, "-o", place / "visits.blocks", "--replace")
    run(capsys, "convert", place / "visits.csv", tmp_path / "bare.blocks", "--ignore", "patient", "--ignore", "outcome")
    fit[1] = tmp_path / "bare.blocks"
    message = refused(capsys, *fit, "-o", tmp_path / "m")
    assert "no column to predict; convert the rows again with --target" in message
    (tmp_path / "bare.blocks" / "blocks.json").unlink()
    assert "not finished" in refused(capsys, *fit, "-o", tmp_path / "m")
    fit[1] = tmp_path
    assert "this is a folder" in refused(capsys, *fit, "-o", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_damaged_block_costs_nothing(place: Path, tmp_path: Path, capsys: Any) -> None:
    """It is found before the ledger is billed and before noise is drawn, also where a method would reach it late."""
    ledger = tmp_path / "budget"
    FileLedger.create(ledger, "visits", Budget(3.0, 1e-4))
    run(capsys, "convert", place / "visits.csv", tmp_path / "v.blocks", "--target", "outcome", "--ignore", "patient")
    last = tmp_path / "v.blocks" / "000000.dense.npy"
    rows = np.load(last)
    rows[-1, -1] = np.nan
    np.save(last, rows)
    words = ["fit", tmp_path / "v.blocks", "--epsilon", 1, *KNOWN, "--ledger", ledger, "--dataset", "visits"]
    message = refused(capsys, *words, "--method", "stochastic_hard_thresholding", "-o", tmp_path / "m")
    assert "it is damaged, so convert the rows again" in message
    assert len(FileLedger(ledger, "visits").entries) == 0
    assert not (tmp_path / "m").exists()


def test_a_second_signal_does_not_stop_the_cleaning_up(tmp_path: Path) -> None:
    """Schedulers send SIGTERM again: rows must not stay behind because of that, where no block is finished."""
    source = tmp_path / "a.svm"
    source.write_text("1 1:1\n" * 200)
    code = (
        "import os, shutil, signal, sys, tulle.cli\n"
        "from tulle.backends.block_writer import BlockWriter\n"
        "take, rmtree = BlockWriter.take, shutil.rmtree\n"
        "def stop(*_): os.kill(os.getpid(), signal.SIGTERM)\n"
        "def stopped(*given):\n"
        "    take(*given)\n"
        "    stop()\n"
        "def stopped_again(*given, **more):\n"
        "    stop()\n"
        "    rmtree(*given, **more)\n"
        "BlockWriter.take, shutil.rmtree = stopped, stopped_again\n"
        "sys.exit(tulle.cli.main(sys.argv[1:]))\n"
    )
    words = ["convert", str(source), str(tmp_path / "a.blocks"), "--rows-per-block", "1000", "--quiet"]
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGTERM, "tulle convert: terminated\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.parametrize("step", range(4))
def test_a_folder_that_is_replaced_is_never_lost(tmp_path: Path, capsys: Any, monkeypatch: Any, step: int) -> None:
    """Wherever the last steps are interrupted there is the old folder or the new one; the same command goes on."""
    source, folder = tmp_path / "a.svm", tmp_path / "a.blocks"
    source.write_text("1 1:1\n" * 20)
    words = ["convert", source, folder, "--quiet"]
    run(capsys, *words)
    source.write_text("1 1:1\n" * 30)
    real, calls = Path.rename, []

    def interrupted(self: Path, target: Path) -> Any:
        calls.append(self.name)
        if len(calls) == 1 + step // 2:
            if step % 2:
                real(self, target)
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    assert main([str(word) for word in [*words, "--replace"]]) == 130
    monkeypatch.undo()
    assert open_blocks(folder).shape[0] == (30 if step == 3 else 20)
    left = [] if step == 3 else [".a.blocks.partial"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*left, "a.blocks", "a.svm"]
    assert run(capsys, *words, "--replace")["resumed_rows"] == (0 if step == 3 else 30)
    assert open_blocks(folder).shape[0] == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.blocks", "a.svm"]


@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["interrupted", "terminated", "killed"]
)
def test_a_stopped_conversion_goes_on(tmp_path: Path, capsys: Any, how: signal.Signals) -> None:
    """Nothing that looks whole is left, but finished blocks in a hidden folder, with which the same command goes on."""
    source = tmp_path / "a.svm"
    source.write_text("1 1:1\n" * 2000)
    # Stopped in the middle: the third block never comes. In short sleeps, since a signal just before a call that blocks
    # is handled when the call returns.
    code = (
        "import sys, time, tulle.files.tables.input_files as files, tulle.cli\n"
        "files.BLOCK_BYTES = 4000\n"
        "blocks = files.Source.blocks\n"
        "def slow(self):\n"
        "    for k, block in enumerate(blocks(self)):\n"
        "        while k == 2:\n"
        "            time.sleep(0.05)\n"
        "        yield block\n"
        "files.Source.blocks = slow\n"
        "sys.exit(tulle.cli.main(sys.argv[1:]))\n"
    )
    words = ["convert", str(source), str(tmp_path / "a.blocks"), "--rows-per-block", "100"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stderr=subprocess.PIPE,
        text=True,
        # Of a test run in the background of a shell it would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    journal = tmp_path / ".a.blocks.partial" / "journal"
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 9) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    assert not (tmp_path / "a.blocks").exists()
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + how
        assert ("interrupted" if how == signal.SIGINT else "terminated") in err
        assert f"Finished blocks are in {tmp_path / '.a.blocks.partial'}" in err
    capsys.readouterr()
    assert main(words) == 0
    out, err = capsys.readouterr()
    n_rows = int(re.search(r"continuing at row ([\d,]+)", err)[1].replace(",", "")) - 1  # type: ignore[index]
    assert n_rows >= 900
    assert n_rows % 100 == 0
    assert f"Continued an interrupted conversion at row {n_rows + 1:,}." in out
    assert open_blocks(tmp_path / "a.blocks").shape == (2000, 1)
    run(capsys, "convert", source, tmp_path / "whole.blocks", "--rows-per-block", 100)
    found, whole = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("a.blocks", "whole.blocks")
    )
    assert found == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.blocks", "a.svm", "whole.blocks"]
