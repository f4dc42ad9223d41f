"""Saved models: the same model to the last bit, no seed, no rows, no code; and files that say otherwise are refused."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import fits
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import tulle
from tulle import Bounds, Budget, PrivateSearch, SparseClassifier, SparseRegressor, load, save
from tulle.estimators.saving import KIND, VERSION, load_saved
from tulle.files.archive import ArchiveError, read_archive, write_archive
from tulle.files.error_messages import PrivacyWarning
from tulle.files.saved_models import saved_models
from tulle.local import (
    LabelPrivateSparseClassifier,
    LabelPrivateSparseRegressor,
    LocalSparseClassifier,
    LocalSparseRegressor,
    OneRoundSparseRegressor,
)
from tulle.methods import FrankWolfe, HardThresholding, KnowledgeTransfer, ScreenRefine
from tulle.methods.loss_functions import Huber, Squared
from tulle.reports.report import About, PrivacyReport
from tulle.transfer.public_features import UniformFeatures

# Small data sets at small budgets are what these tests are made on.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*more users, fewer features:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*guess:UserWarning"),
]

X, Y = fits.problem("regression", 300)
_, CODES = fits.problem("classification", 300, n_classes=3)
BINARY = (Y > 0.3).astype(int)
NEW = np.random.default_rng(9).uniform(-1, 1, (60, fits.D))
BOUNDS = fits.BOUNDS
SEED = 715_827_882_137


def classifier(**settings: Any) -> SparseClassifier:
    return SparseClassifier(**{"epsilon": 3.0, "n_nonzero": 4, "bounds": BOUNDS, **settings})


def regressor(**settings: Any) -> SparseRegressor:
    return SparseRegressor(**{"epsilon": 3.0, "n_nonzero": 4, "bounds": BOUNDS, **settings})


def transfer(variant: str) -> KnowledgeTransfer:
    return KnowledgeTransfer(variant, UniformFeatures(), n_public=100)


MODELS: dict[str, Any] = {
    "binary": lambda: classifier().fit(X, BINARY),
    "binary words": lambda: classifier().fit(X, np.array(["no", "yes"])[BINARY]),
    "binary bools": lambda: classifier().fit(X, BINARY == 1),
    "binary objects": lambda: classifier().fit(X, np.array(["no", "a longer yes"], dtype=object)[BINARY]),
    "binary floats": lambda: classifier().fit(X, 2.0 * BINARY - 1),
    "several classes": lambda: classifier().fit(X, CODES.astype(np.int8)),
    "several words": lambda: classifier().fit(X, np.array(["ham", "spam", "ε"])[CODES.astype(int)]),
    "squared hinge": lambda: classifier(loss="squared_hinge").fit(X, CODES),
    "no intercept": lambda: classifier(fit_intercept=False).fit(X, BINARY),
    "normalised": lambda: classifier(bounds=Bounds(row_l2=2.0, normalise=True)).fit(X, BINARY),
    "without privacy": lambda: classifier(epsilon=None).fit(X, BINARY),
    "regression": lambda: regressor().fit(X, Y),
    "poisson": lambda: regressor(loss="poisson").fit(X, np.abs(np.round(Y))),
    "huber object": lambda: regressor(loss=Huber(2.5)).fit(X, Y),
    "estimated bounds": lambda: regressor(bounds=None).fit(X, Y),
    "one feature": lambda: regressor().fit(X[:, :1], Y),
    "people": lambda: regressor(bounds=dataclasses.replace(BOUNDS, rows_per_person=2)).fit(X, Y, np.arange(300) // 2),
    "sparse rows": lambda: regressor().fit(sp.csr_array(X), Y),
    "float32 rows": lambda: regressor().fit(X.astype(np.float32), Y),
    "sparsified": lambda: classifier().fit(X, CODES).sparsify(),
    "sparsified regression": lambda: regressor().fit(X, Y).sparsify(),
    "named": lambda: regressor().fit(pd.DataFrame(X, columns=[f"blood {k} µ" for k in range(fits.D)]), Y),
    "teacher": lambda: regressor(method=transfer("dense")).fit(X, Y),
    "teacher of classes": lambda: classifier(method=transfer("sparse"), loss="squared_hinge").fit(X, CODES),
    "search": lambda: (
        PrivateSearch(regressor(), {"n_nonzero": [2, 4]}, Budget(3.0, 1e-5), n_trials=2, random_state=SEED)
        .fit(X, Y)
        .best_estimator_
    ),
    "label-private classes": lambda: LabelPrivateSparseClassifier(3.0, n_nonzero=4, random_state=5).fit(X, CODES),
    "label-private numbers": lambda: LabelPrivateSparseRegressor(3.0, n_nonzero=4, bounds=BOUNDS).fit(X, Y),
    "local classes": lambda: LocalSparseClassifier(3.0, n_nonzero=4, bounds=BOUNDS).fit(X, BINARY),
    "local declared classes": lambda: LocalSparseClassifier(3.0, n_nonzero=4, classes=["no", "yes"], bounds=BOUNDS).fit(
        X, np.array(["no", "yes"])[BINARY]
    ),
    "local": lambda: LocalSparseRegressor(3.0, n_nonzero=4, bounds=BOUNDS).fit(X, Y),
    "one round": lambda: OneRoundSparseRegressor(3.0, n_nonzero=4, bounds=BOUNDS).fit(X, Y),
}


@pytest.fixture(scope="module")
def fitted() -> Any:
    """Each model, fitted once."""
    kept: dict[str, Any] = {}

    def model(name: str) -> Any:
        if name not in kept:
            kept[name] = MODELS[name]()
        return kept[name]

    return model


def bits(array: Any) -> tuple[Any, ...]:
    plain = array.toarray() if sp.issparse(array) else np.asarray(array)
    # Classes that were Python strings come back as numpy's.
    plain = plain.astype(np.str_) if plain.dtype == object else plain
    plain = plain + 0.0 if plain.dtype == float else plain  # a zero has no sign in the file
    return plain.dtype, plain.shape, plain.tobytes()


# --- the same model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_saved_one(tmp_path: Path, fitted: Any, name: str) -> None:
    """Weights, support, classes, names, predictions and the report, to the last bit and figure."""
    model = fitted(name)
    save(model, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert type(again) is type(model)
    for learnt in ("coef_", "intercept_", "support_", "classes_", "teacher_coef_", "teacher_intercept_"):
        assert hasattr(again, learnt) == hasattr(model, learnt)
        if hasattr(model, learnt):
            assert bits(getattr(again, learnt)) == bits(getattr(model, learnt)), learnt
    for figure in ("n_features_in_", "n_iter_", "n_passes_", "n_thresholds_"):
        assert getattr(again, figure, None) == getattr(model, figure, None)
    assert sp.issparse(again.coef_) == sp.issparse(model.coef_)
    assert again.privacy_ == model.privacy_
    assert str(again.privacy_) == str(model.privacy_)
    rows: Any = NEW[:, : model.n_features_in_]
    if hasattr(model, "feature_names_in_"):
        rows = pd.DataFrame(rows, columns=model.feature_names_in_)
        assert list(again.feature_names_in_) == list(model.feature_names_in_)
    for question in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        assert hasattr(again, question) == hasattr(model, question)
        if hasattr(model, question):
            assert bits(getattr(again, question)(rows)) == bits(getattr(model, question)(rows)), question


@pytest.mark.parametrize("name", MODELS)
def test_settings_are_kept_but_for_the_seed(tmp_path: Path, fitted: Any, name: str) -> None:
    """Bounds, loss and plain settings as they were; the random state is None; a clone can be made of it."""
    model = fitted(name)
    save(model, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz").get_params(deep=False)
    wanted = model.get_params(deep=False) | {"random_state": None}
    if name.startswith("teacher"):
        assert again.pop("method") == "knowledge_transfer (saved without features)"
        del wanted["method"]
    assert again == wanted
    clone(load(tmp_path / "model.npz"))


def test_every_model_that_can_be_saved_is_tried_above(fitted: Any) -> None:
    """A new estimator must be added to the tests too."""
    assert {type(fitted(name)).__name__ for name in MODELS} == saved_models()


def test_a_loaded_model_can_be_fitted_again(tmp_path: Path, fitted: Any) -> None:
    """It has all that a fit needs, and draws fresh noise."""
    save(fitted("regression"), tmp_path / "model.npz")
    again = load(tmp_path / "model.npz").fit(X, Y)
    assert again.privacy_.asked == fitted("regression").privacy_.asked
    assert not np.array_equal(again.coef_, fitted("regression").coef_)


METHODS: dict[str, Any] = {
    "plain": HardThresholding(n_iter=7, clip=0.25),
    "numbers of numpy": HardThresholding(n_iter=np.int64(7), clip=np.float64(0.25)),
    "words": ScreenRefine(noise="gaussian"),
    "radius": FrankWolfe(noise="gaussian", radius=2.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_settings_of_a_method_are_kept(tmp_path: Path, name: str) -> None:
    """A method object with plain settings comes back as one."""
    model = regressor(method=METHODS[name]).fit(X, Y)
    save(model, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz").method
    assert type(again) is type(METHODS[name])
    assert again.get_params() == METHODS[name].get_params()
    assert load(tmp_path / "model.npz").fit(X, Y).privacy_.method == model.privacy_.method


class MyMethod(HardThresholding):
    """Code of a user's."""


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (MyMethod(), "MyMethod (saved without its code)"),
        (KnowledgeTransfer("dense", NEW, student=Lasso(0.01)), "knowledge_transfer (saved without features, student)"),
    ],
    ids=["own", "public features"],
)
def test_a_method_that_cannot_be_kept_predicts_and_refuses_to_refit(tmp_path: Path, method: Any, words: str) -> None:
    """What would need a pickle is left out, and named where the model is fitted again."""
    model = regressor(method=method).fit(X, Y)
    save(model, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    with pytest.raises(ValueError, match=re.escape(f"method={words!r} is unknown")):
        again.fit(X, Y)


# --- who asked -------------------------------------------------------------------------------------------------------


def test_who_asked_is_kept(tmp_path: Path, fitted: Any) -> None:
    """All that was said, in any script; nothing where nothing was."""
    about = About(
        "Readmission ☂", "Å. Müller", "triage\nof all", "2026-11-16T04:35:00+00:00", "visits", "half is spent"
    )
    save(fitted("binary"), tmp_path / "a.npz", about)
    assert load_saved(tmp_path / "a.npz").about == about
    save(fitted("binary"), tmp_path / "b.npz")
    assert load_saved(tmp_path / "b.npz").about == About()


# --- the content of the file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state",
    [SEED, np.random.RandomState(SEED % 2**32), np.random.default_rng(SEED)],
    ids=["int", "RandomState", "Generator"],
)
def test_the_seed_is_never_in_the_file(tmp_path: Path, state: Any) -> None:
    """Whoever has the seed can take the noise off: not as a number, not as text, not in bytes."""
    model = classifier(random_state=state).fit(X, BINARY)
    save(model, tmp_path / "model.npz")
    with zipfile.ZipFile(tmp_path / "model.npz") as file:
        content = b"".join(file.read(name) for name in file.namelist())
    text = content.replace(b"\0", b"")  # text is stored with four bytes a character
    assert b'"model": "SparseClassifier"' in text
    assert b'"random_state": null' in text
    for secret in (SEED, SEED % 2**32):
        assert str(secret).encode() not in text
        assert hex(secret)[2:].encode() not in text
        for size in (5, 8) if secret == SEED else (4, 8):
            assert secret.to_bytes(size, "little") not in content
            assert secret.to_bytes(size, "big") not in content
    assert load(tmp_path / "model.npz").random_state is None


def test_the_file_holds_what_is_documented_and_nothing_else(tmp_path: Path, fitted: Any) -> None:
    """Header and members by name; no rows, which would be 300 long."""
    save(fitted("teacher of classes"), tmp_path / "model.npz")
    header, arrays = read_archive(tmp_path / "model.npz", KIND, VERSION)
    assert set(header) == {"format", "tulle", "model", "settings", "fitted", "sparse", "privacy", "about"}
    assert header["format"] == "tulle model 3"
    assert header["tulle"] == header["privacy"]["version"] == tulle.__version__
    assert set(header["fitted"]) == {"n_features_in_", "n_iter_", "n_passes_", "n_thresholds_"}
    assert set(arrays) == {
        *(f"{weights}{part}" for weights in ("coef_", "teacher_coef_") for part in ("values", "places", "shape")),
        *("intercept_", "classes_", "teacher_intercept_"),
    }
    assert all(300 not in array.shape for array in arrays.values())
    assert all(not array.dtype.hasobject for array in arrays.values())
    assert PrivacyReport.from_dict(header["privacy"]) == fitted("teacher of classes").privacy_


def test_only_weights_that_are_there_take_room(tmp_path: Path) -> None:
    """A model of many features and few weights is a small file."""
    rows = sp.random_array((200, 100_000), density=1e-3, random_state=np.random.default_rng(0), format="csr")
    model = classifier(bounds=Bounds(row_l2=1.0), n_nonzero=20).fit(rows, np.arange(200) % 2)
    save(model, tmp_path / "model.npz")
    assert (tmp_path / "model.npz").stat().st_size < 20_000
    np.testing.assert_array_equal(load(tmp_path / "model.npz").coef_, model.coef_)


def test_another_process_reads_the_same(tmp_path: Path, fitted: Any) -> None:
    """Nothing of this process is needed."""
    save(fitted("several words"), tmp_path / "model.npz")
    np.save(tmp_path / "rows.npy", NEW)
    code = "import sys, numpy as np, tulle\nprint(*tulle.load(sys.argv[1]).predict(np.load(sys.argv[2])), sep='|')"
    run = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code, tmp_path / "model.npz", tmp_path / "rows.npy"],
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert run.stdout.decode().strip().split("|") == fitted("several words").predict(NEW).tolist()


# --- what cannot be saved --------------------------------------------------------------------------------------------


class MyLoss(Squared):
    """Code of a user's."""


class MyRegressor(SparseRegressor):
    """Code of a user's."""


def test_what_is_not_fitted_is_refused(tmp_path: Path) -> None:
    """There is nothing to save."""
    with pytest.raises(NotFittedError):
        save(SparseClassifier(), tmp_path / "model.npz")
    assert not [*tmp_path.iterdir()]


class Scaled(Squared):
    """A loss of a user's own with a setting, and with one that JSON has no word for."""

    def __init__(self, factor: float) -> None:
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "table", np.arange(3))

    def mean(self, margins: Any) -> Any:
        return self.factor * margins


def test_a_loss_of_ones_own_is_passed_again(tmp_path: Path) -> None:
    """The file has its name and its plain settings; the loss that is passed must have the same."""
    path = tmp_path / "model.npz"
    model = regressor(loss=Scaled(3.0)).fit(X, Y)
    save(model, path)
    again = load(path, loss=Scaled(3.0))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert again.loss.factor == 3.0
    with pytest.raises(ArchiveError, match=r"with the loss .*test_saving.Scaled, which is not of tulle .*loss=Scaled"):
        load(path)
    with pytest.raises(ArchiveError, match=r"of factor = 3.0, not 2.0; pass a loss with the same settings"):
        load(path, loss=Scaled(2.0))
    with pytest.raises(ArchiveError, match=r"with the loss .*Scaled, not with MyLoss"):
        load(path, loss=MyLoss())
    save(regressor().fit(X, Y), path)
    with pytest.raises(ArchiveError, match=r"was fitted with a loss of tulle, not with MyLoss.*; omit loss="):
        load(path, loss=MyLoss())


def test_no_module_that_a_file_names_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing runs code: a file that was given away must not choose it."""
    (tmp_path / "planted_loss.py").write_text("WAS_RUN = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(MyLoss, "__module__", "planted_loss")
    path = tmp_path / "model.npz"
    save(regressor(loss=MyLoss()).fit(X, Y), path)
    with pytest.raises(ArchiveError, match=r"planted_loss\.MyLoss"):
        load(path)
    load(path, loss=MyLoss())
    assert "planted_loss" not in sys.modules


def test_classes_that_are_objects_are_refused(tmp_path: Path) -> None:
    """Only a pickle could keep them."""
    model = classifier().fit(X, BINARY)
    model.classes_ = np.array([None, "yes"], dtype=object)
    with pytest.raises(ValueError, match="classes_ contains Python objects, which only a pickle could store"):
        save(model, tmp_path / "model.npz")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "other",
    [
        lambda: make_pipeline(Normalizer(), Lasso()).fit(X, Y),
        lambda: PrivateSearch(regressor(), {"n_nonzero": [2]}, Budget(3.0, 1e-5)),
        lambda: Lasso().fit(X, Y),
        lambda: MyRegressor(3.0, bounds=BOUNDS).fit(X, Y),
        lambda: None,
    ],
    ids=["pipeline", "search", "scikit-learn", "subclass", "None"],
)
def test_what_is_no_model_of_tulle_is_refused_with_advice(tmp_path: Path, other: Any) -> None:
    """A pipeline that ends in a model, and the best model of a search, can be saved."""
    with pytest.raises(TypeError, match=r"only tulle models can be saved, not a \w+; the last step of a pipeline must"):
        save(other(), tmp_path / "model.npz")
    assert not [*tmp_path.iterdir()]


# --- forged files ----------------------------------------------------------------------------------------------------


def forged(path: Path, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """A file by somebody who puts the checksums right."""
    written, kept = read_archive(path, KIND, VERSION)
    merged = {**written, **{name: value for name, value in header.items() if not isinstance(value, dict)}}
    for name, changes in header.items():
        if isinstance(changes, dict):
            merged[name] = {key: value for key, value in ({**written[name], **changes}).items() if value is not GONE}
    kept = {name: array for name, array in (kept | arrays).items() if array is not GONE}
    write_archive(path, KIND, VERSION, {name: value for name, value in merged.items() if value is not GONE}, kept)


GONE: Any = object()
# Forged parts of the file of a classifier with three classes, 12 features and 4 weights each, and the messages.
FORGED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no such model": ({"model": "DenseClassifier"}, {}, "unknown model class 'DenseClassifier'"),
    "code for a model": ({"model": "os.system"}, {}, "unknown model class 'os.system'"),
    "a module for a model": ({"model": "tulle.estimators.sparse"}, {}, "unknown model class"),
    "a list for a model": ({"model": ["SparseClassifier"]}, {}, "TypeError"),
    "another model": ({"model": "SparseRegressor"}, {}, "a regression has no classes"),
    "no model": ({"model": GONE}, {}, "KeyError: 'model'"),
    "no settings": ({"settings": GONE}, {}, "KeyError: 'settings'"),
    "an unknown setting": ({"settings": {"shell": "rm"}}, {}, "SparseClassifier has no setting 'shell'"),
    "an unknown loss": ({"settings": {"loss": "nope"}}, {}, "loss='nope' is unknown"),
    "a loss of another kind": ({"settings": {"loss": {"loss": "Squared", "settings": {}}}}, {}, "is for regression"),
    "code for a loss": ({"settings": {"loss": {"loss": "system", "settings": {"command": "id"}}}}, {}, "'system'"),
    "code for a method": ({"settings": {"method": {"method": "os.system", "settings": {}}}}, {}, "'os.system'"),
    "code for a number": (
        {"settings": {"epsilon": {"method": "auto", "settings": {}}}},
        {},
        "epsilon must be a finite number > 0",
    ),
    "no bounds": ({"settings": {"bounds": "1"}}, {}, "the setting bounds does not contain bounds"),
    "wrong bounds": ({"settings": {"bounds": {"bounds": {"row_l2": -1}}}}, {}, "must be a finite number > 0"),
    "unknown part": ({"rows": [1, 2]}, {}, "it contains rows, which no model has"),
    "unknown figure": ({"fitted": {"__class__": 1}}, {}, "it contains __class__, which no model has"),
    "unknown array": ({}, {"X": np.ones((300, 12))}, "it contains X, which no model has"),
    "no figures": ({"fitted": {"n_features_in_": GONE}}, {}, "n_features_in_"),
    "figures that are words": ({"fitted": {"n_iter_": "many"}}, {}, "invalid literal"),
    "more features": (
        {"fitted": {"n_features_in_": 13}},
        {},
        "shape [3, 12], but its classes and features require [3, 13]",
    ),
    "no features": ({"fitted": {"n_features_in_": 0}}, {"coef_shape": np.array([3, 0])}, "coef_ is of shape [3, 0]"),
    "features beyond memory": (
        {"fitted": {"n_features_in_": 10**12}},
        {"coef_shape": np.array([3, 10**12])},
        "coef_ is of shape [3, 1000000000000]",
    ),
    "weights that are NaN": ({}, {"coef_values": np.full(12, math.nan)}, "invalid indices or that are not finite"),
    "weights that are infinite": ({}, {"coef_values": np.full(12, math.inf)}, "invalid indices or that are not finite"),
    "weights of another type": ({}, {"coef_values": np.full(12, "a")}, "does not contain numbers and their indices"),
    "weights below": ({}, {"coef_places": np.full((2, 12), -1)}, "has indices that do not match its weights"),
    "a weight below": ({}, {"coef_places": np.vstack([[0] * 12, range(-1, 11)])}, "invalid indices"),
    "a weight beyond": ({}, {"coef_places": np.vstack([[0] * 12, range(1, 13)])}, "invalid indices"),
    "a class beyond": ({}, {"coef_places": np.vstack([[3] * 12, range(12)])}, "invalid indices"),
    "places that are flags": (
        {},
        {"coef_places": np.ones((2, 12), bool)},
        "does not contain numbers and their indices",
    ),
    "places missing": ({}, {"coef_places": GONE}, "KeyError: 'coef_places'"),
    "fewer places": ({}, {"coef_places": np.zeros((2, 3), int)}, "has indices that do not match its weights"),
    "weights missing": ({}, {"coef_values": GONE, "coef_places": GONE, "coef_shape": GONE}, "coef_ and intercept_"),
    "another shape": (
        {},
        {"coef_shape": np.array([12, 3])},
        "shape [12, 3], but its classes and features require [3, 12]",
    ),
    "a flat shape": ({}, {"coef_shape": np.array([36])}, "coef_ is of shape [36]"),
    "intercepts missing": ({}, {"intercept_": GONE}, "it must have both coef_ and intercept_"),
    "one intercept": ({}, {"intercept_": np.array(0.5)}, "intercept_ does not contain a finite number for each output"),
    "NaN intercepts": ({}, {"intercept_": np.full(3, math.nan)}, "intercept_ does not contain a finite number"),
    "words for intercepts": (
        {},
        {"intercept_": np.array(["a", "b", "c"])},
        "intercept_ does not contain a finite number",
    ),
    "a teacher's intercept alone": ({}, {"teacher_intercept_": np.zeros(3)}, "both teacher_coef_ and teacher_inter"),
    "one class": ({}, {"classes_": np.array([1])}, "it has fewer than two different classes"),
    "no classes": ({}, {"classes_": GONE}, "it has fewer than two different classes"),
    "equal classes": ({}, {"classes_": np.array([1, 1, 2])}, "it has fewer than two different classes"),
    "a class that is no list": ({}, {"classes_": np.array(3)}, "it has fewer than two different classes"),
    "two classes": ({}, {"classes_": np.array([0, 1])}, "shape [3, 12], but its classes and features require [1, 12]"),
    "fewer names": ({}, {"feature_names_in_": np.array(["a", "b"])}, "its feature names are not 12 strings"),
    "names that are numbers": ({}, {"feature_names_in_": np.arange(12)}, "its feature names are not 12 strings"),
    "no report": ({"privacy": GONE}, {}, "KeyError: 'privacy'"),
    "a seed": ({"settings": {"random_state": 7}}, {}, "it contains a seed"),
    "a budget below zero": ({"settings": {"epsilon": -1.0}}, {}, "epsilon must be a finite number > 0"),
    "no weights wanted": ({"settings": {"n_nonzero": 0}}, {}, "n_nonzero is 0"),
    "a word for yes": ({"settings": {"fit_intercept": "no"}}, {}, "fit_intercept is 'no'"),
    "half a report": ({"privacy": {"epsilon": GONE}}, {}, "KeyError: 'epsilon'"),
    "more than a report": ({"privacy": {"rows": []}}, {}, "PrivacyReport has no setting 'rows'"),
    "nobody asked": ({"about": GONE}, {}, "KeyError: 'about'"),
    "an unknown asker": ({"about": {"shell": "rm"}}, {}, "About has no setting 'shell'"),
}


@pytest.mark.parametrize("way", FORGED)
def test_forged_files_are_refused(tmp_path: Path, fitted: Any, way: str) -> None:
    """Checksums are right, and the content is not what `save` would write: refused in words, never half a model."""
    path = tmp_path / "model.npz"
    save(fitted("several classes"), path)
    header, arrays, words = FORGED[way]
    forged(path, header, arrays)
    with pytest.raises(
        ArchiveError, match=f"{re.escape(str(path))} (is not a tulle model file: |was made by )"
    ) as caught:
        load(path)
    assert words in str(caught.value)


METHOD = {"method": "frank_wolfe", "settings": {}}
LOSS = {"loss": "Logistic", "settings": {}}
# Parts that a later tulle may write, and the message about each.
LATER: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a setting": ({"settings": {"depth": 3}}, {}, "SparseClassifier has no setting 'depth'"),
    "settings": ({"settings": {"depth": 3, "age": 1}}, {}, "SparseClassifier has no settings 'age', 'depth'"),
    "a setting of a kind": ({"settings": {"calibration": {"settings": {}}}}, {}, "'calibration' is not a plain value"),
    "a model": ({"model": "SparseForest"}, {}, "unknown model class 'SparseForest'"),
    "a method": ({"settings": {"method": {**METHOD, "method": "annealing"}}}, {}, "unknown method 'annealing'"),
    "a method's setting": (
        {"settings": {"method": {**METHOD, "settings": {"heat": 1}}}},
        {},
        "FrankWolfe has no setting 'heat'",
    ),
    "a loss by name": ({"settings": {"loss": "cauchy"}}, {}, "loss='cauchy' is unknown"),
    "a loss": ({"settings": {"loss": {**LOSS, "loss": "Cauchy"}}}, {}, "unknown loss 'Cauchy'"),
    "a loss's setting": ({"settings": {"loss": {**LOSS, "settings": {"x": 1}}}}, {}, "Logistic has no setting 'x'"),
    "a bound": ({"settings": {"bounds": {"bounds": {"row_l3": 1.0}}}}, {}, "Bounds has no setting 'row_l3'"),
    "a step": ({"steps": [{"name": "a", "step": "Knots", "settings": {}}, {"name": "b"}]}, {}, "unknown step 'Knots'"),
    "a step's setting": (
        {"steps": [{"name": "a", "step": "PrivateScaler", "settings": {"x": 1}, "learnt": {}}, {"name": "b"}]},
        {},
        "PrivateScaler has no setting 'x'",
    ),
    "a schema's setting": (
        {"steps": [{"name": "a", "step": "Schema", "settings": {"x": 1}, "columns": []}, {"name": "b"}]},
        {},
        "Schema has no setting 'x'",
    ),
    "a part of the report": ({"privacy": {"kappa": 1.0}}, {}, "PrivacyReport has no setting 'kappa'"),
    "a word about it": ({"about": {"licence": "x"}}, {}, "About has no setting 'licence'"),
    "a part": ({"certificate": "x"}, {}, "it contains certificate, which no model has"),
    "an array": ({}, {"knots": np.ones(3)}, "it contains knots, which no model has"),
}


@pytest.mark.parametrize("way", LATER)
def test_an_unknown_part_names_the_version_that_wrote_it_and_says_upgrade(
    tmp_path: Path, fitted: Any, way: str
) -> None:
    path = tmp_path / "model.npz"
    save(fitted("several classes"), path)
    header, arrays, words = LATER[way]
    forged(path, {**header, "tulle": "9.8"}, arrays)
    with pytest.raises(ArchiveError) as caught:
        load(path)
    said = str(caught.value)
    assert said.startswith(
        f"{path} was made by tulle 9.8, and has a part that this tulle {tulle.__version__} does not know: "
    )
    assert said.endswith(f"{words}; upgrade tulle")


@pytest.mark.parametrize("version", ["9.8\n9.9", "x" * 41, "", "<b>"])
def test_a_version_that_is_none_is_not_repeated(tmp_path: Path, fitted: Any, version: str) -> None:
    save(fitted("several classes"), tmp_path / "model.npz")
    forged(tmp_path / "model.npz", {"settings": {"depth": 3}, "tulle": version}, {})
    with pytest.raises(ArchiveError, match="was made by a version of tulle that it does not name, and has a part"):
        load(tmp_path / "model.npz")


def test_a_forger_who_changes_nothing_is_believed(tmp_path: Path, fitted: Any) -> None:
    """The refusals above are for what was forged, not for how."""
    save(fitted("several classes"), tmp_path / "model.npz")
    forged(tmp_path / "model.npz", {"settings": {}}, {"coef_shape": np.array([3, 12])})
    assert bits(load(tmp_path / "model.npz").coef_) == bits(fitted("several classes").coef_)


@pytest.mark.parametrize("name", ["regression", "teacher"])
def test_forged_regressions_are_refused(tmp_path: Path, fitted: Any, name: str) -> None:
    """A regression has one intercept and no classes."""
    for arrays in (
        {"classes_": np.array([0, 1])},
        {"intercept_": np.zeros(1)},
        {"coef_shape": np.array([1, 12])},
        {"intercept_": np.array(math.inf)},
    ):
        save(fitted(name), tmp_path / "model.npz")
        forged(tmp_path / "model.npz", {}, arrays)
        with pytest.raises(ArchiveError, match="is not a tulle model file"):
            load(tmp_path / "model.npz")


def test_damaged_files_and_files_of_others_are_refused(tmp_path: Path, fitted: Any) -> None:
    """As `tulle.files.archive` refuses them; a data set that tulle published is not a model."""
    path = tmp_path / "model.npz"
    save(fitted("regression"), path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ArchiveError, match="is not a tulle model file, or is damaged"):
        load(path)
    fitted("regression").release_synthetic(NEW).save(path)
    with pytest.raises(ArchiveError, match="is not a tulle model file: its format is 'tulle synthetic data 1'"):
        load(path)
    write_archive(path, KIND, VERSION + 1, {"tulle": "9.8"}, {})
    with pytest.raises(ArchiveError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path} was made by tulle 9.8 and is a tulle model of version 6; this is tulle {tulle.__version__}, which "
        "reads up to version 5: upgrade tulle"
    )
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.npz")


def test_the_header_is_plain_json(tmp_path: Path) -> None:
    """Other programs can read it: a fit without privacy has infinite figures, which are written as text."""
    save(classifier(epsilon=None).fit(X, BINARY), tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        header = json.loads(str(file["header"]), parse_constant=pytest.fail)
    assert header["privacy"]["epsilon"] == "inf"
    assert header["privacy"]["asked"] is None


# --- files of earlier versions ---------------------------------------------------------------------------------------

BEFORE = Path(__file__).parents[1] / "written_before"


def test_a_report_of_before_says_that_its_delta_leaves_finite_precision_out(tmp_path: Path) -> None:
    """Once on load, in the report, and in the report of what is saved again."""
    with pytest.warns(PrivacyWarning, match="its δ omits that part") as caught:
        model = load(BEFORE / "model.npz")
    assert len(caught) == 1
    (line,) = [line for line in model.privacy_.assumptions if "written before" in line]
    assert "by its own value is at most 1.5e-10" in line
    assert line in str(caught[0].message)
    save(model, tmp_path / "again.npz")
    assert load(tmp_path / "again.npz").privacy_ == model.privacy_


def test_nothing_is_said_of_new_files_and_of_fits_without_privacy(tmp_path: Path) -> None:
    """Warnings are errors here."""
    assert not any("written before" in line for line in load(BEFORE / "no_privacy.npz").privacy_.assumptions)
    model = classifier().fit(X, BINARY)
    save(model, tmp_path / "model.npz")
    assert load(tmp_path / "model.npz").privacy_ == model.privacy_


@pytest.mark.parametrize("name", ["model.npz", "no_privacy.npz"])
@pytest.mark.filterwarnings("ignore::tulle.files.error_messages.PrivacyWarning")
def test_files_of_before_name_no_version_and_are_read(tmp_path: Path, name: str) -> None:
    """A report keeps the version that made it, and the file names the one that wrote it."""
    model = load(BEFORE / name)
    assert model.privacy_.version == ""
    assert "Library" not in str(model.privacy_)
    save(model, tmp_path / "again.npz")
    header, _ = read_archive(tmp_path / "again.npz", KIND, VERSION)
    assert (header["tulle"], header["privacy"]["version"]) == (tulle.__version__, "")
    assert f"tulle {tulle.__version__}" in str(classifier().fit(X, BINARY).privacy_)


PREDICTIONS = json.loads((BEFORE / "predictions.json").read_text())


def test_there_are_files_of_every_format() -> None:
    formats = {json.loads(str(np.load(BEFORE / name)["header"]))["format"] for name in PREDICTIONS}
    assert formats == {f"{KIND} {version}" for version in range(1, VERSION + 1)}
    assert set(PREDICTIONS) == {file.name for file in BEFORE.glob("format_*.npz")}


@pytest.mark.parametrize("name", sorted(PREDICTIONS))
@pytest.mark.filterwarnings("ignore::tulle.files.error_messages.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_files_of_every_format_predict_as_the_code_that_wrote_them(tmp_path: Path, name: str) -> None:
    """predictions.json has what each model said before it was saved, by the code of its time; saved again, the same."""
    new: Any = np.array([[0.5, -0.5, 0.25], [-0.125, 0.875, 0.5], [0.0, 0.0, 0.0]])
    if "schema" in name:
        new = pd.DataFrame({"age": [20.0, 50.0, 95.0], "job": ["clerk", "nurse", "other"]})
    model = load(BEFORE / name)
    for _ in range(2):
        said = model.decision_function(new) if hasattr(model, "decision_function") else model.predict(new)
        assert np.asarray(said).tolist() == pytest.approx(PREDICTIONS[name], rel=1e-12, abs=1e-15)
        save(model, tmp_path / "again.npz")
        model = load(tmp_path / "again.npz")
