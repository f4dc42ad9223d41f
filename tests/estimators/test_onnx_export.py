"""Models as ONNX files: the same predictions, the guarantee in the metadata, and nothing else about the fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import ROOT
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from test_doc_blocks import run_page

import tulle
from tulle import Bounds, Budget, FileLedger, PrivatePipeline, SparseClassifier, SparseRegressor
from tulle.estimators.onnx_export import to_onnx
from tulle.methods.loss_functions import Huber, Logistic, Poisson
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights
from tulle.reports.report import NOT_COVERED, WIDTH_PUBLISHED
from tulle.reports.words import LABELS_PUBLISHED

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
reference = pytest.importorskip("onnx.reference")

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 6))
SIGNS = X[:, 1] - X[:, 4] > 0
CLASSES = [False, True]
THREE = np.digitize(X[:, 1], [-0.4, 0.4])
WORDS = np.array(["low", "mid", "high"])
NUMBER = 2 * X[:, 2] + 1
SEEDED: dict[str, Any] = {"epsilon": 8.0, "bounds": Bounds(row_linf=1.0, label=3.0), "random_state": 5}
RAW = X * [1, 100, 0.01, 1, 5, 1] + [0, 50, 0, 1, 0, 0]
HOLES = np.where(np.abs(X) > 0.9, np.nan, RAW)
HOLES[0] = [1e300, -1e300, np.inf, -1e14, 1e13, np.nan]


def classifier(**more: Any) -> SparseClassifier:
    return SparseClassifier(**SEEDED, **more)


def regressor(**more: Any) -> SparseRegressor:
    return SparseRegressor(**SEEDED, **more)


def pipeline(*steps: Any, model: Any = None) -> PrivatePipeline:
    pairs = [(f"step{k}", step) for k, step in enumerate(steps)]
    return PrivatePipeline([*pairs, ("model", model or SparseClassifier())], 8.0, random_state=5)


def fitted_steps() -> list[Any]:
    """Two private steps, each fitted in a pipeline of its own: one pipeline may have one of them."""
    return [pipeline(step).fit(RAW, SIGNS).steps_[0][1] for step in (PrivateImputer(60.0), PrivateScaler())]


CASES: dict[str, Any] = {
    "truth values": lambda: (classifier().fit(X, SIGNS), X),
    "whole numbers": lambda: (classifier(n_nonzero=2).fit(X, np.where(SIGNS, 7, -3)), X),
    "floats": lambda: (classifier(classes=[0.5, 1.5]).fit(X, np.where(SIGNS, 0.5, 1.5)), X),
    "three words": lambda: (classifier(classes=WORDS).fit(X, WORDS[THREE]), X),
    "three numbers, one against the rest": lambda: (classifier(loss="squared_hinge").fit(X, THREE), X),
    "two words, hinge": lambda: (classifier(loss="squared_hinge").fit(X, WORDS[SIGNS.astype(int)]), X),
    "without intercept": lambda: (classifier(fit_intercept=False).fit(X, SIGNS), X),
    "sparse weights": lambda: (classifier().fit(X, THREE).sparsify(), X),
    "regression": lambda: (regressor().fit(X, NUMBER), X),
    "regression, sparse weights": lambda: (regressor(n_nonzero=1).fit(X, NUMBER).sparsify(), X),
    "huber": lambda: (regressor(loss=Huber(0.5)).fit(X, NUMBER), X),
    "poisson with a low cap": lambda: (regressor(loss=Poisson(0.3)).fit(X, np.exp(NUMBER)), X),
    "scaler": lambda: (pipeline(PrivateScaler(reach=2.0)).fit(RAW, SIGNS), HOLES),
    "imputer": lambda: (pipeline(PrivateImputer(60.0)).fit(RAW, THREE), HOLES),
    "scaler and regression": lambda: (
        pipeline(PrivateScaler(), model=SparseRegressor(bounds=Bounds(label=3.0))).fit(RAW, NUMBER),
        HOLES,
    ),
    "two fitted steps": lambda: (make_pipeline(*fitted_steps(), classifier().fit(X, SIGNS)), HOLES),
    "pipeline of scikit-learn": lambda: (make_pipeline("passthrough", classifier()).fit(X, SIGNS), X),
}


def run_file(exported: Any, rows: Any, dtype: Any = np.float64) -> dict[str, Any]:
    """What the bytes of an exported model answer, by the names of its outputs."""
    read = onnx.load_from_string(exported.SerializeToString())
    onnx.checker.check_model(read, full_check=True)
    answers = reference.ReferenceEvaluator(read).run(None, {"X": rows.astype(dtype)})
    return dict(zip([one.name for one in read.graph.output], answers, strict=True))


def compare(model: Any, answers: dict[str, Any], rows: Any, tolerance: float) -> None:
    predicted = model.predict(rows)
    if "prediction" in answers:
        np.testing.assert_allclose(answers.pop("prediction"), predicted, rtol=0, atol=tolerance)
    else:
        assert answers.pop("label").tolist() == predicted.tolist()
        margins = model.decision_function(rows).reshape(len(rows), -1)
        np.testing.assert_allclose(answers.pop("margins"), margins, rtol=0, atol=tolerance)
        if "probabilities" in answers:
            np.testing.assert_allclose(answers.pop("probabilities"), model.predict_proba(rows), rtol=0, atol=1e-6)
        else:
            assert not hasattr(model, "predict_proba")
    assert answers == {}


@pytest.mark.parametrize("case", CASES)
def test_the_file_predicts_as_the_model(case: str) -> None:
    """Labels, margins, probabilities and targets; also of missing, infinite and enormous cells where a step takes
    them."""
    model, rows = CASES[case]()
    compare(model, run_file(to_onnx(model), rows), rows, 1e-9)


@pytest.mark.parametrize("case", ["truth values", "regression", "scaler"])
def test_rows_in_float32(case: str) -> None:
    """The predictions are those for the rows as float32 has them."""
    model, rows = CASES[case]()
    with np.errstate(over="ignore"):
        rows = np.asarray(rows, dtype=np.float32)
    compare(model, run_file(to_onnx(model, input_type="float32"), rows, np.float32), rows.astype(np.float64), 1e-6)


def test_a_model_without_weights() -> None:
    """A constant model stays one."""
    model = regressor().fit(X, NUMBER)
    model.coef_, model.support_ = np.zeros(6), np.array([], dtype=np.intp)
    assert run_file(to_onnx(model), X)["prediction"] == pytest.approx(np.full(400, model.intercept_))


def test_a_wide_file_is_small() -> None:
    """Weights of 0 are not in it."""
    rows = RNG.uniform(-1, 1, (100, 20_000))
    model = classifier(n_nonzero=3).fit(rows, rows[:, 7] > 0)
    exported = to_onnx(model)
    assert len(exported.SerializeToString()) < 3000
    compare(model, run_file(exported, rows), rows, 1e-9)


# --- metadata --------------------------------------------------------------------------------------------------------


def metadata(model: Any) -> dict[str, str]:
    return {one.key: one.value for one in to_onnx(model).metadata_props}


def test_the_file_states_the_guarantee() -> None:
    """Never less than is proved, and that a seed makes it unfit for release."""
    model = classifier(classes=CLASSES).fit(X, SIGNS)
    stated = metadata(model)
    assert set(stated) == {
        *("tulle.version", "tulle.exported_by", "tulle.epsilon", "tulle.delta", "tulle.unit", "tulle.note")
    }
    for name in ("epsilon", "delta"):
        proved = getattr(model.privacy_, name)
        assert proved <= float(stated[f"tulle.{name}"]) <= proved * (1 + 1e-4)
    assert stated["tulle.version"] == tulle.__version__
    assert stated["tulle.unit"] == model.privacy_.unit
    assert stated["tulle.note"] == "The noise came from a seed: not for release."
    assert "tulle.note" not in metadata(classifier(classes=CLASSES).set_params(random_state=None).fit(X, SIGNS))


def test_epsilon_is_rounded_up() -> None:
    model = classifier().fit(X, SIGNS)
    model.privacy_ = replace(model.privacy_, epsilon=1.000001, delta=1.000001e-6)
    stated = metadata(model)
    assert (float(stated["tulle.epsilon"]), float(stated["tulle.delta"])) == (1.0001, 1.0001e-6)


def test_a_model_without_privacy_says_so() -> None:
    stated = metadata(classifier().set_params(epsilon=None).fit(X, SIGNS))
    assert stated["tulle.epsilon"] == "inf"
    assert stated["tulle.note"].startswith("Fitted without privacy")


def test_limits_of_the_guarantee_are_in_the_file() -> None:
    """A step that learnt from rows without noise is named."""
    model = classifier().fit(X, SIGNS)
    line = f"{NOT_COVERED} scale (StandardScaler): it learns means."
    model.privacy_ = replace(model.privacy_, assumptions=(line, "secret.csv was read from /secret/place."))
    assert line in metadata(model)["tulle.note"]
    assert b"secret" not in to_onnx(model).SerializeToString()


def test_classes_and_a_width_that_were_read_off_the_rows_are_named() -> None:
    """They are in the file, and no epsilon covers them."""
    model = classifier(classes=None).set_params(random_state=None).fit(X, SIGNS)
    assert metadata(model)["tulle.note"] == LABELS_PUBLISHED
    width = f"{WIDTH_PUBLISHED}6, was published: it is the largest index in the rows."
    model.privacy_ = replace(model.privacy_, assumptions=(*model.privacy_.assumptions, width))
    assert metadata(model)["tulle.note"] == f"{LABELS_PUBLISHED} {width}"


def test_nothing_else_about_the_fit_is_in_the_file(tmp_path: Any) -> None:
    """Neither names of columns, ledgers or data sets nor the seed or a cell; two exports are equal."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"secret column {k}" for k in range(6)])
    ledger = FileLedger.create(tmp_path / "secret place", "secret data", Budget(20.0, 1e-3))
    with ledger:
        model = classifier().set_params(random_state=None).fit(frame, SIGNS)
    assert model.privacy_.billed
    written = to_onnx(model).SerializeToString()
    assert b"secret" not in written
    assert b"entry" not in written
    assert not any(cell.tobytes() in written for cell in X.ravel())
    assert written == to_onnx(model).SerializeToString()


# --- refusals --------------------------------------------------------------------------------------------------------


class OwnLoss(Logistic):
    """A subclass may have any link."""


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "not fitted": (lambda: classifier(), Exception, "not fitted"),
    "another step": (
        lambda: make_pipeline(Normalizer(), classifier()).fit(X, SIGNS),
        TypeError,
        r"'normalizer' \(Normalizer\) cannot be exported to ONNX; steps that can: PrivateScaler, PrivateImputer",
    ),
    "weights of columns": (lambda: pipeline(PrivateWeights()).fit(np.abs(X), SIGNS), TypeError, "PrivateWeights"),
    "another model": (lambda: OwnLoss(), TypeError, "not a OwnLoss"),
    "a loss of one's own": (lambda: classifier(loss=OwnLoss()).fit(X, SIGNS), ValueError, "is not one of tulle's"),
    "normalised rows": (
        lambda: SparseClassifier(8.0, bounds=Bounds(row_l2=1.0, normalise=True)).fit(X, SIGNS),
        ValueError,
        "normalise=True",
    ),
    "large labels": (
        lambda: classifier(classes=[1, 2**70]).fit(X, SIGNS),
        ValueError,
        "no type for these class labels",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_refused(case: str) -> None:
    make, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        to_onnx(make())


def test_types_of_rows_are_two() -> None:
    with pytest.raises(ValueError, match='input_type must be "float64" or "float32"'):
        to_onnx(classifier(), input_type="float16")  # type: ignore[arg-type]


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of docs/onnx_files.md."""
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / "docs" / "onnx_files.md")
