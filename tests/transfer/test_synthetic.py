"""Data sets to publish: a private teacher's answers on public features, saved with their report."""

from __future__ import annotations

import math
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from pairwise import reduce_to_pairs
from sklearn.exceptions import NotFittedError

import tulle
from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor
from tulle.files.archive import ArchiveError, read_archive, write_archive
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import KnowledgeTransfer
from tulle.transfer.public_features import UniformFeatures
from tulle.transfer.synthetic import SyntheticData

# Small data sets at small budgets are what these tests are made on.
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

PUBLIC = np.random.default_rng(5).uniform(-1, 1, (40, fits.D)) * (np.arange(40 * fits.D).reshape(40, fits.D) % 5 > 0)
TARGETS: dict[str, tuple[str, int]] = {
    "squared": ("regression", 0),
    "poisson": ("poisson", 0),
    "logistic": ("classification", 2),
    "squared_hinge": ("squared_hinge", 3),
}
METHODS: dict[str, Any] = {
    "sparse": KnowledgeTransfer(features=UniformFeatures()),
    "dense": KnowledgeTransfer("dense", UniformFeatures(), n_public=100),
    "another method": "hard_thresholding",
}
storages = pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"])


def fitted(loss: str, method: Any, epsilon: float | None = 3.0, **parameters: Any) -> Any:
    target, n_classes = TARGETS[loss]
    X, y = fits.problem(target, 300, n_classes=n_classes or 2)
    if n_classes == 3:
        y = np.array(["ham", "spam", "eggs"])[y.astype(int)]
    return fits.model_for(target, epsilon, method, loss=loss, n_nonzero=4, **parameters).fit(X, y)


def plain(rows: Any) -> Any:
    return rows.toarray() if sp.issparse(rows) else np.asarray(rows)


# --- answers ---------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@storages
@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("name", METHODS)
def test_answers_are_the_teachers(name: str, loss: str, convert: Any) -> None:
    """Margins are X times the teacher's weights plus its intercept, targets what a model of them would predict."""
    model = fitted(loss, METHODS[name])
    data = model.release_synthetic(convert(PUBLIC))
    weights = (model.coef_, model.intercept_)
    if name != "another method":
        weights = (model.teacher_coef_, model.teacher_intercept_)
    coef, intercept = np.atleast_2d(weights[0]), np.atleast_1d(weights[1])
    margins = PUBLIC @ coef.T + intercept
    np.testing.assert_allclose(data.margins, margins, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(plain(data.X), PUBLIC)
    assert sp.issparse(data.X) == (convert is not np.asarray)
    assert data.margins.shape == (40, 3 if loss == "squared_hinge" else 1)
    if loss == "squared":
        np.testing.assert_allclose(data.y, margins[:, 0])
    elif loss == "poisson":
        np.testing.assert_allclose(data.y, np.exp(np.minimum(margins[:, 0], 10)), rtol=1e-9)
    elif loss == "logistic":
        np.testing.assert_array_equal(data.y, model.classes_[(margins[:, 0] > 0).astype(int)])
    else:
        np.testing.assert_array_equal(data.y, model.classes_[margins.argmax(axis=1)])
    # Where a model has no teacher but itself, these are its own predictions.
    if name == "another method":
        assert not hasattr(model, "teacher_coef_")
        np.testing.assert_array_equal(data.y, model.predict(convert(PUBLIC)))
    if name == "dense":
        assert np.count_nonzero(model.teacher_coef_) > np.count_nonzero(model.coef_)


def test_a_teacher_is_not_left_over_from_an_earlier_fit() -> None:
    """Fitted anew by a method that has none, a model answers with its own weights."""
    model = fitted("squared", METHODS["dense"])
    X, y = fits.problem("squared")
    model.set_params(method="screen_refine").fit(X, y)
    assert not hasattr(model, "teacher_coef_")
    assert not hasattr(model, "teacher_intercept_")
    np.testing.assert_array_equal(model.release_synthetic(PUBLIC).y, model.predict(PUBLIC))


@storages
def test_rows_are_normalised_as_those_of_the_fit_were(convert: Any) -> None:
    """normalise=True: the teacher answers for rows of unit length, and the features stay as they were given."""
    bounds = Bounds(row_l2=1.0, label=4.0, normalise=True)
    model = fitted("squared", METHODS["dense"], bounds=bounds)
    data = model.release_synthetic(convert(7 * PUBLIC))
    lengths = np.linalg.norm(PUBLIC, axis=1, keepdims=True)
    expected = (PUBLIC / np.maximum(lengths, 1e-300)) @ model.teacher_coef_ + model.teacher_intercept_
    np.testing.assert_allclose(data.margins[:, 0], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(plain(data.X), 7 * PUBLIC)


def test_a_student_can_learn_from_it_what_the_teacher_knows() -> None:
    """Least squares on the published margins gives the teacher back."""
    model = fitted("squared", METHODS["dense"])
    data = model.release_synthetic(PUBLIC)
    A = np.column_stack([data.X, np.ones(len(data.X))])
    found = np.linalg.lstsq(A, data.margins[:, 0], rcond=None)[0]
    np.testing.assert_allclose(found, np.append(model.teacher_coef_, model.teacher_intercept_), atol=1e-9)


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_the_report_is_the_fits_and_says_what_was_public() -> None:
    """One assumption more, and not one figure else."""
    model = fitted("logistic", METHODS["dense"])
    report = model.release_synthetic(PUBLIC).privacy
    assert report == replace(model.privacy_, assumptions=report.assumptions)
    assert report.assumptions[:-1] == model.privacy_.assumptions
    assert "a data set of 40 rows" in report.assumptions[-1]
    assert "features were passed as public and are not protected" in report.assumptions[-1]
    assert "a function of what the fit released" in report.assumptions[-1]
    assert 2.97 < report.epsilon <= 3
    assert "This is a data set" not in str(model.privacy_)
    assert "This is a data set" in str(report)


def test_any_number_of_answers_is_free() -> None:
    """A ledger is billed for the fit and for nothing after it."""
    with Ledger(Budget(3.5, 1e-3)) as ledger:
        model = fitted("squared", METHODS["sparse"], delta=1e-5)
        spent = ledger.epsilon
        for _ in range(5):
            model.release_synthetic(PUBLIC)
        assert ledger.epsilon == spent
        assert len(ledger.fits) == 1


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_fit_without_privacy_has_nothing_to_publish(method: Any) -> None:
    model = fitted("squared", method, epsilon=None)
    with pytest.raises(ValueError, match="no epsilon is proved for this fit, and its predictions may reveal any"):
        model.release_synthetic(PUBLIC)


def test_the_published_variant_has_nothing_to_publish() -> None:
    method = KnowledgeTransfer("published", UniformFeatures(), n_public=50, n_iter=2)
    with pytest.warns(PrivacyWarning):
        model = fitted("squared", method)
    with pytest.raises(ValueError, match="no epsilon is proved for this fit"):
        model.release_synthetic(PUBLIC)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (PUBLIC[:, :-1], "X has 11 features, but"),
        (np.full(PUBLIC.shape, np.nan), "Input X contains NaN"),
        (PUBLIC[0], "Expected 2D array, got 1D array instead"),
    ],
    ids=["width", "nan", "1-d"],
)
def test_rows_that_cannot_be_answered_on(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted("squared", METHODS["sparse"]).release_synthetic(rows)


@pytest.mark.parametrize("cls", [SparseRegressor, SparseClassifier])
def test_nothing_is_answered_before_fit(cls: Any) -> None:
    with pytest.raises(NotFittedError):
        cls().release_synthetic(PUBLIC)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def data() -> SyntheticData:
    released: SyntheticData = fitted("squared", METHODS["sparse"]).release_synthetic(PUBLIC)
    return released


@reduce_to_pairs()
@storages
@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_holds_all_of_it_without_a_pickle(tmp_path: Path, loss: str, convert: Any, kind: Any) -> None:
    """Features, answers, margins and the report to the last digit; reading runs no code."""
    data = fitted(loss, METHODS["sparse"]).release_synthetic(convert(PUBLIC))
    path = kind(tmp_path / "answers.npz")
    data.save(path)
    again = SyntheticData.load(path)
    assert sp.issparse(again.X) == sp.issparse(data.X)
    np.testing.assert_array_equal(plain(again.X), plain(data.X))
    np.testing.assert_array_equal(again.y, data.y)
    np.testing.assert_array_equal(again.margins, data.margins)
    assert again.y.dtype == data.y.dtype
    assert again.privacy == data.privacy
    assert str(again.privacy) == str(data.privacy)
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_a_name_without_a_suffix_can_be_read_under_the_same_name(tmp_path: Path, data: SyntheticData) -> None:
    """save("answers") and load("answers") go together."""
    data.save(tmp_path / "answers")
    np.testing.assert_array_equal(SyntheticData.load(tmp_path / "answers").y, data.y)


def test_what_only_a_pickle_could_keep_is_refused(tmp_path: Path, data: SyntheticData) -> None:
    """Classes that are Python objects: before anything is written."""
    path = tmp_path / "answers.npz"
    with pytest.raises(ValueError, match="y has type object, which is neither numeric nor text"):
        replace(data, y=np.array([object()] * 40)).save(path)
    assert not path.exists()


def test_a_report_with_nothing_asked_and_infinite_parts_survives(tmp_path: Path, data: SyntheticData) -> None:
    """Infinities and the missing budget of the JSON come back as they were."""
    bill = tuple(replace(line, epsilon_alone=math.inf) for line in data.privacy.bill)
    odd = replace(data, privacy=replace(data.privacy, asked=None, bill=bill))
    odd.save(tmp_path / "odd.npz")
    assert SyntheticData.load(tmp_path / "odd.npz").privacy == odd.privacy


def rewritten(path: Path, header: dict[str, Any] | None = None, **changes: Any) -> None:
    """The file with some arrays changed, or left out (None), by somebody who puts the checksums right."""
    written, arrays = read_archive(path, "tulle synthetic data", 1)
    arrays = {name: array for name, array in (arrays | changes).items() if array is not None}
    write_archive(path, "tulle synthetic data", 1, written if header is None else header, arrays)


def broken_in(way: str, path: Path) -> None:
    content = path.read_bytes()
    if way == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif way == "corrupt":
        middle = len(content) // 3
        path.write_bytes(
            content[:middle] + bytes(255 - byte for byte in content[middle : middle + 200]) + content[middle + 200 :]
        )
    elif way == "empty":
        path.write_bytes(b"")
    elif way == "text":
        path.write_text("x,y\n1,2\n")
    elif way == "one array":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    elif way == "foreign":
        np.savez(path, X=np.ones((2, 2)), y=np.ones(2))
    elif way == "zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("notes.txt", "hello")
    elif way == "a model":
        write_archive(path, "tulle model", 1, {}, {})
    elif way == "newer":
        write_archive(path, "tulle synthetic data", 99, {}, {})
    elif way == "header":
        np.savez(path, header=np.array("{"))
    elif way == "changed":
        with np.load(path) as file:
            np.savez(path, **{name: file[name] for name in file.files} | {"y": np.zeros(40)})
    elif way == "pickle":
        with np.load(path) as file:
            np.savez(path, **{name: file[name] for name in file.files} | {"y": np.array([{}] * 40, dtype=object)})
    elif way == "report":
        rewritten(path, {"privacy": {"epsilon": "1"}})
    elif way == "no report":
        rewritten(path, {})
    elif way == "missing":
        rewritten(path, y=None)
    elif way == "no rows":
        rewritten(path, X=None)
    elif way == "lengths":
        rewritten(path, y=np.ones(3))
    elif way == "columns":
        rewritten(
            path,
            X=None,
            data=np.ones(2),
            indices=np.array([0, 99]),
            indptr=np.array([0, *[2] * 40]),
            shape=np.array([40, 12]),
        )


NO_ARCHIVE = "is not a tulle synthetic data file"
NO_DATA = "is not a data set that tulle saved"
WAYS = {
    **dict.fromkeys(("truncated", "corrupt", "empty", "text", "one array", "foreign", "zip"), NO_ARCHIVE),
    **dict.fromkeys(("a model", "header", "pickle"), NO_ARCHIVE),
    "newer": f"was made by a version of tulle that it does not name and is a tulle synthetic data of version 99; this "
    f"is tulle {tulle.__version__}, which reads up to version 1: upgrade tulle",
    "changed": "was changed after it was written",
    **dict.fromkeys(("report", "no report", "missing", "no rows", "lengths", "columns"), NO_DATA),
}


@pytest.mark.parametrize("way", WAYS)
def test_files_that_are_not_such_data_are_refused(tmp_path: Path, data: SyntheticData, way: str) -> None:
    """One kind of error, which names the file; no pickle is ever opened. Checksums alone do not make a data set."""
    path = tmp_path / "answers.npz"
    data.save(path)
    broken_in(way, path)
    with pytest.raises(ArchiveError, match=re.escape(f"{path} {WAYS[way]}")):
        SyntheticData.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SyntheticData.load(tmp_path / "nowhere.npz")
