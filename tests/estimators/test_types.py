"""Types of the front door, as mypy in strict mode sees them from a user's program; names of the features in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tulle import SparseClassifier, SparseRegressor

PROGRAM = """
import numpy as np
import pandas as pd
from scipy import sparse

import tulle
from tulle import SparseClassifier, SparseRegressor

df = pd.DataFrame({"a": [0.0, 1.0]})
model = SparseClassifier(1.0).fit(df, df["a"])
reveal_type(model)
reveal_type(SparseRegressor(1.0).fit([[0.0], [1.0]], np.zeros(2), groups=[1, 2], sample_weight=None))
SparseRegressor().fit(sparse.csr_array(np.eye(2)), [0, 1])
score: float = model.score(df, df["a"])
model.fit(lambda row: row, [0, 1])
model.fit(df, [0, 1], sample_weights=None)
"""


def test_a_strict_program_sees_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\nignore_missing_imports = True\nfollow_imports = silent\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "program.py"]
    told = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache")], cwd=tmp_path, capture_output=True, text=True
    )
    lines = told.stdout.splitlines()
    notes = [line for line in lines if "Revealed type" in line]
    assert ["tulle.estimators.sparse.SparseClassifier" in notes[0], "SparseRegressor" in notes[1]] == [True, True]
    errors = [line for line in lines if "error:" in line]
    assert [line.split(":")[1] for line in errors] == ["15", "16"], told.stdout
    assert "[arg-type]" in errors[0]
    assert "[call-arg]" in errors[1]


def test_names_of_the_features_in_use() -> None:
    X = np.random.default_rng(0).normal(size=(80, 5))
    model = SparseRegressor(None, n_nonzero=2).fit(X, X[:, 1] - X[:, 3])
    assert model.get_feature_names_out().tolist() == ["x1", "x3"]
    assert model.get_feature_names_out(list("abcde")).tolist() == ["b", "d"]
    with pytest.raises(ValueError, match="one name for each of the model's 5 features"):
        model.get_feature_names_out(["a"])


def test_names_of_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(80, 3))
    table = pandas.DataFrame(X, columns=["age", "dose", "days"])
    model = SparseClassifier(None, n_nonzero=1).fit(table, X[:, 1] > 0)
    assert model.get_feature_names_out().tolist() == ["dose"]
