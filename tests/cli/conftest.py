"""Fixtures for the tests of this folder."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands_and_files import DATASET, NAMES, Ran, fit_words, table
from sklearn.datasets import dump_svmlight_file

from tulle import Budget, FileLedger
from tulle.cli import main


@pytest.fixture
def run(capsys: Any) -> Any:
    """Runs a command in this process."""

    def ran(*words: Any) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Ran(code, *capsys.readouterr())

    return ran


@pytest.fixture(scope="session")
def place(tmp_path_factory: Any) -> Path:
    """A folder with the same rows in all formats, and a model fitted to each kind of target."""
    folder: Path = tmp_path_factory.mktemp("cli")
    frame = table()
    X, signs = frame[[*NAMES]].to_numpy(), np.where(frame["outcome"] == "home", 1, -1)
    for target in ("outcome", "cost", "triage"):
        frame[[*NAMES, target]].to_csv(folder / f"{target}.csv", index=False)
    frame[[*NAMES, "outcome"]].to_parquet(folder / "outcome.parquet")
    np.savez(folder / "outcome.npz", X=X, y=signs)
    dump_svmlight_file(X, signs, str(folder / "outcome.svm"), zero_based=False)
    (folder / "outcome.csv.gz").write_bytes(gzip.compress((folder / "outcome.csv").read_bytes()))
    common = ("--epsilon", "3", "--row-linf", "1", "--n-nonzero", "2", "--quiet", "--seed", "1")
    for target, more in (("outcome", ()), ("triage", ()), ("cost", ("--task", "regression", "--label-bound", "3"))):
        words = ("fit", folder / f"{target}.csv", "--target", target, *common, *more, "-o", folder / f"m_{target}")
        assert main([str(word) for word in words]) == 0
    return folder


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with a cap of 3 for the data set."""
    path = tmp_path / "ledger" / "budget"
    path.parent.mkdir()
    FileLedger.create(path, DATASET, Budget(3.0, 1e-4))
    return path


@pytest.fixture(scope="session")
def audited(place: Path) -> Path:
    """What `tulle audit --output` wrote about a saved model."""
    path = place / "audit.json"
    assert main([str(word) for word in fit_words(place, place / "m_two", "--method", "two_stage", "--epsilon", 3)]) == 0
    words = ("audit", place / "m_two", "--runs", 100, "--seed", 0, "--quiet", "-o", path)
    assert main([str(word) for word in words]) == 0
    return path


@pytest.fixture
def model(place: Path, tmp_path: Path) -> Path:
    """A copy of a model's folder."""
    return Path(shutil.copytree(place / "m_outcome", tmp_path / "model"))
