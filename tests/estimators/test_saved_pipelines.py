"""Saved pipelines: public steps by their settings, private ones with what was released, no pickle, no seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, Normalizer, StandardScaler

from tulle import Bounds, PrivatePipeline, Schema, SparseClassifier, SparseRegressor, load, save
from tulle.estimators.saved_steps import last_model
from tulle.files.archive import ArchiveError, read_archive, write_archive
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)) * [1, 100, 0.01, 1] + [0, 50, 0, 1]
Y = np.where(X[:, 1] > 50, "yes", "no")
TEXTS = [f"word{k % 7} other{k % 3}" for k in range(300)]
VISITS = {"age": [str(k % 90) for k in range(300)], "job": ["nurse", "clerk", ""] * 100, "note": TEXTS, "y": Y.tolist()}
SCHEMA = Schema(
    {"age": {"range": [0, 90]}, "job": {"categories": ["nurse", "clerk"]}, "note": {"text": 5}},
    target={"column": "y", "classes": ["no", "yes"]},
    words=["word1", "word2"],
)


def classifier() -> SparseClassifier:
    return SparseClassifier(8.0, bounds=Bounds(row_l2=2.0), classes=["no", "yes"], random_state=7)


def private(*steps: Any) -> PrivatePipeline:
    pairs = [(type(step).__name__, step) for step in steps]
    return PrivatePipeline([*pairs, ("m", SparseClassifier(classes=["no", "yes"]))], 8.0, random_state=7)


CASES: dict[str, Any] = {
    "schema": lambda: (make_pipeline(SCHEMA, classifier()).fit(VISITS, Y), VISITS),
    "hashed words": lambda: (make_pipeline(HashingVectorizer(n_features=64), classifier()).fit(TEXTS, Y), TEXTS),
    "normaliser": lambda: (make_pipeline(Normalizer(), Binarizer(), classifier()).fit(X, Y), X),
    "weights": lambda: (private(PrivateWeights()).fit(sp.csr_array(np.abs(X)), Y), sp.csr_array(np.abs(X))),
    "scaler": lambda: (private(PrivateScaler()).fit(X, Y), X),
    "imputer": lambda: (private(PrivateImputer(200.0)).fit(X, Y), np.where(X > 60, np.nan, X)),
    "schema and weights": lambda: (private(SCHEMA, PrivateWeights()).fit(VISITS, Y), VISITS),
}


@pytest.mark.parametrize("case", CASES)
def test_a_saved_pipeline_predicts_the_same(case: str, tmp_path: Path) -> None:
    """Raw rows in, the same predictions to the last bit out, the same report."""
    pipeline, rows = CASES[case]()
    save(pipeline, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert type(again) is type(pipeline)
    np.testing.assert_array_equal(again.predict(rows), pipeline.predict(rows))
    np.testing.assert_array_equal(again.predict_proba(rows), pipeline.predict_proba(rows))
    assert last_model(again).privacy_ == last_model(pipeline).privacy_
    assert last_model(again).random_state is None
    header, _ = read_archive(tmp_path / "model.npz", "tulle model", 4)
    assert "random_state" not in str(header["steps"])


@pytest.mark.parametrize("case", ["schema", "schema and weights"])
def test_the_report_names_the_schema(case: str) -> None:
    pipeline, _ = CASES[case]()
    assert sum("A declared schema of 3 columns" in line for line in last_model(pipeline).privacy_.assumptions) == 1


def test_weights_after_private_steps_have_the_names_of_columns() -> None:
    rows = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    pipeline = private(PrivateScaler()).fit(rows, Y)
    assert {name for name, _ in pipeline.model_.named_weights()} <= {"a", "b", "c", "d"}
    assert any("what private steps learnt" in line for line in pipeline.privacy_.who_saw_what)


def test_a_folder_that_tulle_fit_wrote_is_read(tmp_path: Path) -> None:
    pipeline, rows = CASES["scaler"]()
    save(pipeline, tmp_path / "model.npz")
    np.testing.assert_array_equal(load(tmp_path).predict(rows), pipeline.predict(rows))


def test_weights_of_a_schema_have_names_after_loading(tmp_path: Path) -> None:
    pipeline, _ = CASES["schema"]()
    save(pipeline, tmp_path / "model.npz")
    names = [name for name, _ in last_model(load(tmp_path / "model.npz")).named_weights()]
    assert set(names) <= set(SCHEMA.fit(VISITS).get_feature_names_out())
    assert any(name.startswith("note: word") for name in SCHEMA.get_feature_names_out())


@pytest.mark.parametrize("step", [TfidfVectorizer(), HashingVectorizer(preprocessor=str.lower)], ids=["fitted", "code"])
def test_a_step_that_only_a_pickle_could_hold_is_refused(step: Any, tmp_path: Path) -> None:
    pipeline = make_pipeline(step, SparseClassifier(None, bounds=Bounds(row_l2=2.0))).fit(TEXTS, Y)
    with pytest.raises((TypeError, ValueError), match="cannot be saved without a pickle"):
        save(pipeline, tmp_path / "model.npz")
    assert not [*tmp_path.iterdir()]


def test_a_scaler_that_learnt_from_private_rows_is_not_given_away(tmp_path: Path) -> None:
    pipeline = make_pipeline(StandardScaler(), SparseRegressor(None)).fit(X, X[:, 1])
    with pytest.raises(TypeError, match="StandardScaler"):
        save(pipeline, tmp_path / "model.npz")


def _change(header: dict[str, Any], what: str) -> None:
    step = header["steps"][0]
    if what == "unknown step":
        step["step"] = "Popen"
    elif what == "not finite":
        step["learnt"]["weights_"][0] = float("inf")
    elif what == "nothing learnt":
        step["learnt"] = {}
    else:
        step["settings"]["power"] = ["a", "list"]


@pytest.mark.parametrize("what", ["unknown step", "not finite", "nothing learnt", "no plain setting"])
def test_forged_steps_are_refused(what: str, tmp_path: Path) -> None:
    pipeline, _ = CASES["weights"]()
    path = tmp_path / "model.npz"
    save(pipeline, path)
    header, arrays = read_archive(path, "tulle model", 4)
    _change(header, what)
    kept = {name: value for name, value in header.items() if name not in ("format", "arrays")}
    write_archive(path, "tulle model", 4, kept, arrays)
    with pytest.raises(
        ArchiveError, match=r"is not a tulle model file|was made by .* unknown step 'Popen'; upgrade tulle"
    ):
        load(path)
