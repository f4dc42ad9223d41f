"""The intake: every private cell is read by a rule of that cell alone, whatever it is read beside."""

from __future__ import annotations

import math
import traceback
import warnings
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tulle import Bounds, Budget, Ledger, PrivateSearch, SparseClassifier, SparseRegressor, load, private_score, save
from tulle.backends.block_writer import write_blocks
from tulle.cli import main
from tulle.files import array_checks, class_labels
from tulle.files.class_labels import get_text_key
from tulle.local import LabelPrivateSparseClassifier
from tulle.methods import HardThresholding
from tulle.reports import words
from tulle.trusted import intake
from tulle.trusted.intake import MISSING, encode_labels, get_key, read_cells, select_first_rows

N, D = 400, 4
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
Y = (X[:, 0] > 0).astype(int)
BOUNDS = Bounds(row_linf=1.0, label=2.0)
HUGE = np.array([1.7e308, 1.7e308, -1.7e308, -1.7e308])

# Cells of all kinds: what somebody may write where others write 0 and 1.
CELLS = st.one_of(
    st.sampled_from([0, 1, 0.0, 1.0, True, False, np.int64(1), np.float32(0), "0", "1", "unknown", "", b"1", None]),
    st.sampled_from([math.nan, math.inf, -0.0, 0.5, 10**17, 10**17 + 1, 1e17, 2**70, pd.NA, pd.NaT, date(2020, 1, 1)]),
    st.sampled_from([Decimal(1), Decimal("nan"), Decimal("snan"), Fraction(1, 2), 1j, (1,), (), {"a": 1}, object]),
    st.sampled_from([np.datetime64("2020-01-01"), np.datetime64("NaT"), np.str_("1"), np.bool_(True), "a\0", "a"]),
)
CONTAINERS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "object array": lambda given: as_objects(given),
    "series": lambda given: pd.Series(as_objects(given), dtype=object),
}
in_any_container = pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)


def as_objects(given: Any) -> Any:
    array = np.empty(len(given), dtype=object)
    for place, cell in enumerate(given):
        array[place] = cell
    return array


def classifier(**settings: Any) -> Any:
    return SparseClassifier(1.0, 1e-6, bounds=BOUNDS, random_state=0, **settings)


def silently(function: Any) -> Any:
    """What a function gives, where no warning, no refusal and no floating-point error may come of it."""
    with warnings.catch_warnings(record=True) as said, np.errstate(all="raise"):
        warnings.simplefilter("always")
        try:
            made = function()
        except (ValueError, FloatingPointError) as error:
            raise AssertionError("there is nothing to refuse") from error
    assert [str(one.message) for one in said if not issubclass(one.category, UserWarning)] == []
    return made


# --- what a cell is compared by --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (7, 7.0, True),
        (7, np.int64(7), True),
        (7, np.float32(7), True),
        (7, Decimal(7), True),
        (7, "7", False),
        ("7", np.str_("7"), True),
        ("7", b"7", False),
        (True, 1, True),
        (np.bool_(False), 0, True),
        (10**17, 10**17 + 1, False),
        (10**17 + 1, float(10**17), False),
        (0.0, -0.0, True),
        (0.1, np.float32(0.1), False),
        ("a", "a\0", False),
        (date(2020, 1, 1), "2020-01-01", False),
        ((1, 2), (1, 2), True),
        ([1, 2], (1, 2), False),
    ],
)
def test_labels_and_ids_are_compared_by_type_and_value(one: Any, other: Any, same: bool) -> None:
    assert (get_key(one) == get_key(other)) is same
    assert (hash(get_key(one)) == hash(get_key(other))) or not same


@pytest.mark.parametrize(
    "cell", [None, math.nan, np.float64("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), Decimal("sNaN")]
)
def test_missing_cells(cell: Any) -> None:
    assert get_key(cell) is MISSING
    assert math.isnan(intake.read_finite_number(cell))


def test_a_cell_that_does_not_let_itself_be_looked_at_is_missing() -> None:
    class Awkward:
        def __repr__(self) -> str:
            raise RuntimeError("Jane Doe")

        __float__ = None

    assert get_key(Awkward()) is MISSING
    assert encode_labels(read_cells([0, Awkward(), 1], "y"), [0, 1]).tolist() == [0, -1, 1]


@in_any_container
@settings(max_examples=200, deadline=None)
@given(given_cells=st.lists(CELLS, min_size=2, max_size=12), new=CELLS, place=st.integers(0, 11))
def test_one_cell_changes_its_own_code_alone(container: Any, given_cells: list[Any], new: Any, place: int) -> None:
    """Labels as codes, as numbers, and ids: whatever one cell becomes, all others are read as before."""
    place %= len(given_cells)
    other = list(given_cells)
    other[place] = new
    before, after = (read_cells(container(each), "y") for each in (given_cells, other))
    others = np.arange(len(other)) != place
    for classes in ([0, 1], ["0", "1"], ["unknown", "a"]):
        for read in (get_key, get_text_key):
            one, two = encode_labels(before, classes, read), encode_labels(after, classes, read)
            np.testing.assert_array_equal(one[others], two[others])
            assert set(one) <= {-1, 0, 1}
    np.testing.assert_array_equal(intake.read_numbers(before)[others], intake.read_numbers(after)[others])
    persons = [intake.index_keys(each)[1] for each in (before, after)]
    same = [np.equal.outer(person[others], person[others]) for person in persons]
    np.testing.assert_array_equal(same[0], same[1])


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.lists(st.integers(-3, 3), min_size=2, max_size=8),
        st.lists(st.sampled_from([0.0, 1.0, 0.5, -0.0]), min_size=2, max_size=8),
        st.lists(st.booleans(), min_size=2, max_size=8),
        st.lists(st.sampled_from(["a", "b", "7"]), min_size=2, max_size=8),
    ),
    st.integers(1, 3),
)
def test_an_array_of_one_type_is_read_as_its_cells_are(values: list[Any], limit: int) -> None:
    """The quick way for numpy's own types, pandas' types, and one cell after the other: the same codes and people."""
    ways = [
        values,
        np.array(values),
        pd.Series(values),
        pd.Series(values, dtype=object),
        pd.Series(values).convert_dtypes(),
    ]
    ways.append(pd.Series(values).astype("category"))
    for classes in ([0, 1], ["a", "7"]):
        found = [encode_labels(read_cells(way, "y"), classes).tolist() for way in ways]
        assert all(one == found[0] for one in found)
    active = [select_first_rows(way, limit).tolist() for way in ways]
    assert all(one == active[0] for one in active)


def test_declared_classes_are_at_least_two_different_words_or_numbers() -> None:
    for wrong in (
        [],
        [1],
        [1, 1.0],
        [0, "1"],
        "ab",
        3,
        [0, None],
        [0, math.nan],
        [0, math.inf],
        [b"a", b"b"],
        [[1], [2, 3]],
    ):
        with pytest.raises(ValueError, match="classes must be at least two different strings, or numbers"):
            classifier(classes=wrong).fit(X, Y)
    for right in (["b", "a"], ("b", "a"), np.array(["a", "b"]), pd.Series(["b", "a"]), pd.Index(["b", "a"])):
        assert class_labels.check_classes(right).tolist() == ["a", "b"]
    assert class_labels.check_classes([True, False]).dtype == bool
    assert class_labels.check_classes([3, 1.5]).tolist() == [1.5, 3.0]
    assert class_labels.check_classes([2**70, 1]).tolist() == [1, 2**70]


# --- person ids ------------------------------------------------------------------------------------------------------


SNOWFLAKES = [10**17 + i for i in range(N)]
TWO_ROWS_EACH = [i // 2 if i % 2 else float(i // 2) for i in range(N)]


@in_any_container
@pytest.mark.parametrize("ids", [SNOWFLAKES, TWO_ROWS_EACH], ids=["large", "7 and 7.0"])
@pytest.mark.parametrize("odd", [0.5, "x", "7", b"7", (1, 2), Decimal("0.5"), np.datetime64("2020")], ids=repr)
def test_an_odd_id_changes_nothing_for_others(container: Any, ids: list[Any], odd: Any) -> None:
    """Which rows of others count, and so what a fit sees of them."""
    changed = list(ids)
    changed[5] = odd
    before, after = (select_first_rows(container(each), 1) for each in (ids, changed))
    own = [4, 5] if ids is TWO_ROWS_EACH else [5]
    others = np.delete(np.arange(N), own)
    np.testing.assert_array_equal(before[others], after[others])
    assert before.sum() == (N if ids is SNOWFLAKES else N // 2)


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA, pd.NaT, np.datetime64("NaT")], ids=repr)
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_missing_ids_are_refused_before_the_bill(missing: Any, epsilon: Any) -> None:
    ids: list[Any] = [f"person {i}" for i in range(N)]
    ids[5] = ids[9] = missing
    with Ledger(Budget(10.0, 1e-4)) as ledger, pytest.raises(ValueError, match="no person id for rows 5, 9;") as error:
        SparseClassifier(epsilon, bounds=BOUNDS).fit(X, Y, groups=ids)
    assert not ledger.fits
    assert "person" not in str(error.value).replace("no person id", "")
    with pytest.raises(ValueError, match="no person id for row 3;"):
        select_first_rows(np.where(np.arange(9) == 3, np.nan, 1.0), 1)
    with pytest.raises(ValueError, match="no person id for row 0;"):
        select_first_rows(np.ma.array([1, 2], mask=[True, False]), 1)


def test_ids_of_many_types_and_many_rows() -> None:
    dates = pd.date_range("2020-01-01", periods=6).repeat(2)
    for ids in (dates, dates.to_numpy(), dates.to_series(), list(dates), dates.strftime("%Y-%m-%d").to_numpy("S")):
        assert select_first_rows(ids, 1).tolist() == [True, False] * 6
    assert select_first_rows(np.arange(10**6) // 2, 1).sum() == 5 * 10**5


# --- scores ----------------------------------------------------------------------------------------------------------


@in_any_container
@pytest.mark.parametrize("metric", ["accuracy", "auc"])
@pytest.mark.parametrize("odd", ["unknown", None, math.nan, 0.5, "1"], ids=repr)
def test_an_odd_label_moves_a_score_by_one_row(container: Any, metric: Any, odd: Any) -> None:
    model = LogisticRegression().fit(X, Y)
    labels = Y.tolist()
    labels[17] = odd
    figures = [intake_figures(metric, model, container(each)) for each in (Y.tolist(), labels)]
    assert np.flatnonzero((figures[0] != figures[1]).any(axis=1)).tolist() in ([], [17])
    score = private_score(model, X, container(labels), epsilon=50.0, metric=metric, random_state=0)
    assert score.value > 0.9


def intake_figures(metric: str, model: Any, labels: Any) -> Any:
    from tulle.tuning.metrics import METRICS
    from tulle.tuning.private_score import row_figures

    return row_figures(METRICS[metric], model, X, read_cells(labels, "y"), 1.0)


def test_what_a_model_says_of_private_rows_is_not_passed_on() -> None:
    """Of scikit-learn's models; tulle's own say which rows and columns cannot be read."""
    words = X.astype(object)
    words[3, 2] = "Jane Doe"
    for model, said in (
        (LogisticRegression().fit(X, Y), "cannot predict for these rows: ValueError"),
        (classifier().fit(X, Y), r"text in column 2 \(row 3\)"),
    ):
        with pytest.raises(ValueError, match=said) as error:
            private_score(model, words, Y, epsilon=1.0)
        assert "Jane" not in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__ or error.value.__context__ is None


def test_declared_classes_of_a_score() -> None:
    """Rows with another label count as nothing: for auc in no class, for accuracy as wrong."""
    model = LogisticRegression().fit(X, Y)
    labels: list[Any] = Y.tolist()
    for row in range(0, N, 2):
        labels[row] = "unknown"
    rest = private_score(model, X[1::2], Y[1::2], epsilon=1e4, metric="auc", random_state=0)
    masked = private_score(model, X, labels, epsilon=1e4, metric="auc", classes=[0, 1], random_state=0)
    assert masked.value == pytest.approx(rest.value, abs=0.01)
    accuracy = private_score(model, X, labels, epsilon=1e4, classes=[1, 0], random_state=0)
    assert accuracy.value == pytest.approx(0.5 * model.score(X[1::2], Y[1::2]), abs=0.01)
    with pytest.raises(ValueError, match="classes must be at least two"):
        private_score(model, X, labels, epsilon=1.0, classes=[1])
    with pytest.raises(ValueError, match="classes are for classifiers"):
        private_score(SparseRegressor(None).fit(X, X[:, 0]), X, X[:, 0], epsilon=1.0, label=1.0, classes=[0, 1])


# --- declared classes ------------------------------------------------------------------------------------------------


DECLARED = [
    ("odd label", [0, 1]),
    ("only one class", [0, 1]),
    ("a class that nobody has", [0, 1, 2]),
    ("words", ["no", "yes"]),
]


@pytest.mark.parametrize(("way", "classes"), DECLARED, ids=[way for way, _ in DECLARED])
@pytest.mark.parametrize("method", ["auto", "hard_thresholding", "frank_wolfe", "stochastic_hard_thresholding"])
def test_declared_classes_decide_all_shapes(way: str, classes: list[Any], method: str) -> None:
    labels: list[Any] = Y.tolist()
    if way == "odd label":
        labels[7] = "HIV-positive"
    if way == "only one class":
        labels = [0] * N
    loss = "squared_hinge" if len(classes) > 2 and method == "auto" else "logistic"
    model = classifier(classes=classes, method=method, loss=loss)
    silently(lambda: model.fit(X, labels))
    assert model.classes_.tolist() == sorted(classes)
    assert model.coef_.shape == ((1 if len(classes) == 2 else len(classes)), D)
    said = " ".join(model.privacy_.assumptions)
    assert words.LABELS_DECLARED in said
    assert words.LABELS_PUBLISHED not in said
    assert "HIV" not in str(model.privacy_)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("method", ["auto", "hard_thresholding"])
@pytest.mark.parametrize("odd", ["unknown", None, math.nan, math.inf, 0.5, 7], ids=repr)
def test_rows_with_another_label_count_as_nothing(convert: Any, method: str, odd: Any) -> None:
    """Whatever else is in such a row changes no weight."""
    labels: list[Any] = Y.tolist()
    labels[3] = odd
    other = X.copy()
    other[3] = [-0.5, 0.9, 0.3, -0.7]
    # Without noise: one row of 400 is less than the grid of a private answer.
    exact = classifier(classes=[0, 1], method=method).set_params(epsilon=None)
    models = [clone(exact).fit(convert(rows), labels) for rows in (X, other)]
    kept = np.arange(N) != 3
    without = clone(exact).fit(convert(X[kept]), Y[kept])
    assert np.abs(models[0].coef_ - without.coef_).max() < 0.02 * np.abs(without.coef_).max()
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    np.testing.assert_array_equal(models[0].intercept_, models[1].intercept_)


def test_the_set_of_labels_is_said_to_be_published() -> None:
    for cls in (SparseClassifier, LabelPrivateSparseClassifier):
        assert words.LABELS_PUBLISHED in cls().fit(X, Y).privacy_.assumptions
        assert words.LABELS_PUBLISHED not in cls(classes=[0, 1]).fit(X, Y).privacy_.assumptions
    assert words.LABELS_PUBLISHED not in SparseRegressor(bounds=BOUNDS).fit(X, Y).privacy_.assumptions


@pytest.mark.parametrize("count", [2, 150, 210, 399])
def test_how_many_labels_there_are_is_not_warned_of(count: int) -> None:
    labels = np.arange(N) % count
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = SparseClassifier(None, method=HardThresholding(n_iter=1)).fit(X, labels)
    assert model.coef_.shape[0] == (1 if count == 2 else count)
    assert [str(one.message) for one in said] == []


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, "unknown"], "Unknown label type"),
        ([0, 1, None], "Input y contains NaN"),
        ([0, 1, math.inf], "Input y contains infinity"),
        ([0, 1, 0.5], "Unknown label type: continuous"),
        (["a", "b", 7], "Unknown label type"),
        (["a", "b", b"a"], "Unknown label type"),
        (["a"] * 3, "the labels have one class"),
    ],
    ids=repr,
)
@in_any_container
def test_labels_that_are_no_classes_are_refused_before_the_bill(container: Any, labels: Any, message: str) -> None:
    labels = [*labels[:2] * (N // 2 - 1), labels[0], labels[-1]]
    with Ledger(Budget(10.0, 1e-4)) as ledger, pytest.raises(ValueError, match=message) as error:
        classifier().fit(X, container(labels))
    assert not ledger.fits
    assert "unknown" not in str(error.value)


def test_users_of_another_class_answer_as_the_first() -> None:
    labels: list[Any] = Y.tolist()
    first = LabelPrivateSparseClassifier(classes=[0, 1], random_state=0, n_nonzero=2)
    labels[3] = 0
    one = clone(first).fit(X, labels)
    labels[3] = "unknown"
    other = clone(first).fit(X, labels)
    assert one.n_answers_ == other.n_answers_ == N
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_a_search_with_declared_classes() -> None:
    labels: list[Any] = Y.tolist()
    labels[3], labels[4] = "unknown", None
    search = PrivateSearch(
        SparseClassifier(bounds=BOUNDS, classes=[0, 1, 2], loss="squared_hinge"),
        {"n_nonzero": [2, 4]},
        Budget(20.0, 1e-5),
        n_trials=2.0,
        random_state=0,
    )
    search.fit(X, labels)
    assert search.classes_.tolist() == [0, 1, 2]
    assert words.LABELS_DECLARED in search.privacy_.assumptions
    with pytest.raises(ValueError, match="must not contain 'classes'"):
        PrivateSearch(classifier(), {"classes": [[0, 1]]}, Budget(1.0, 1e-5)).fit(X, Y)


def test_declared_classes_are_cloned_saved_and_piped(tmp_path: Path) -> None:
    for given_classes in ([1, 0], (1.0, 0.0), np.array([0, 1])):
        model = clone(classifier(classes=given_classes)).fit(X, Y)
        save(model, tmp_path / "model.npz")
        again = load(tmp_path / "model.npz")
        assert list(again.classes) == [0, 1]
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.set_params(random_state=0).fit(X, [0] * N).classes_.tolist() == [0, 1]
    save(classifier().fit(X, Y), tmp_path / "model.npz")
    assert load(tmp_path / "model.npz").classes is None
    pipe = make_pipeline(FunctionTransformer(), classifier(classes=["a", "b"])).fit(X, np.where(Y, "a", "c"))
    assert pipe[-1].classes_.tolist() == ["a", "b"]


# --- rows on disk, at workers and at clients -------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_declared_classes_of_rows_on_disk(tmp_path: Path, sparse: bool) -> None:
    """The same model as from memory, an odd label included."""
    rows = sp.csr_array(X) if sparse else X
    folder = write_blocks(tmp_path / "rows", [(rows[:150], Y[:150]), (rows[150:], Y[150:])])
    labels: list[Any] = Y.tolist()
    labels[3], labels[200] = "unknown", None
    for groups in (None, [*range(N - 1), "odd"]):
        exact = classifier(classes=[0, 1]).set_params(epsilon=None)
        models = [clone(exact).fit(each, labels, groups=groups) for each in (folder.X, rows)]
        np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-6)
    with pytest.raises(ValueError, match=r"Unknown label type|Input y contains NaN"):
        classifier().fit(folder.X, labels)
    with pytest.raises(ValueError, match="y contains text"):
        SparseRegressor(bounds=BOUNDS).fit(folder.X, labels)


def test_labels_and_ids_of_blocks_are_written_as_they_are(tmp_path: Path) -> None:
    """No float among large ids rounds the others, be it in the same batch or in another; words are no numbers."""
    ids = SNOWFLAKES[:6]
    for batches in ([ids[:3], [*ids[3:5], 0.5]], [[*ids[:3]], [0.25, 0.5, 0.75]]):
        given_batches = [(X[:3], [0, 1, 1], batches[0]), (X[3:6], [1, 0, 1], batches[1])]
        if 0.25 not in batches[1]:
            with pytest.raises(ValueError, match="pass all of them as text"):
                write_blocks(tmp_path / "rows", given_batches, rows_per_block=3, replace=True)
            continue
        folder = write_blocks(tmp_path / "rows", given_batches, rows_per_block=3, replace=True)
        assert folder.groups is not None
        assert [get_key(cell) for cell in folder.groups] == [*batches[0], *batches[1]]
    with pytest.raises(ValueError, match=r"y has type object; pass numbers or text"):
        write_blocks(tmp_path / "rows", [(X[:3], [0, 1, "unknown"])], replace=True)
    folder = write_blocks(tmp_path / "rows", [(X[:3], ["a", "b", "7"], [7, 7.0, 8])], replace=True)
    assert folder.y is not None
    assert folder.y.tolist() == ["a", "b", "7"]
    assert select_first_rows(folder.groups, 1).tolist() == [True, False, True]


def test_labels_at_workers_are_read_one_by_one() -> None:
    partitions = pytest.importorskip("tulle.backends.dask_partitions")
    groups = pytest.importorskip("tulle.backends.dask_groups")
    labels: list[Any] = Y.tolist()
    labels[3] = "unknown"
    (part,) = partitions.check_one(partitions.Rules(), X, labels, None)
    assert part.problem == ""
    held = groups.HeldRows(part.features, part.targets, part.masked)
    (block,) = groups.make_blocks([held], intake.ClassCodes(np.array([0, 1]), False), None, None)
    assert block.active.sum() == N - 1
    assert not block.active[3]
    np.testing.assert_array_equal(np.delete(block.targets, 3), np.delete(2.0 * Y - 1, 3))
    # A block of rows of two partitions, of which one has masked targets.
    mask = np.arange(N) == 3
    masked = partitions.check_one(partitions.Rules(), X, np.ma.array(Y, mask=mask), None)[0]
    parts, layout = [(part,), (masked,)], groups.Layout.of(partitions.describe_partitions([part, masked]))
    (both,) = groups.assemble(parts, 0, [2 * N], layout)
    np.testing.assert_array_equal(both.masked, np.append(np.zeros(N, dtype=bool), mask))
    _, joined = partitions._join([X[:2], X[2:4]], [np.array([0, 1]), np.array(["a", "1"])])
    assert [get_key(cell) for cell in joined] == [0, 1, "a", "1"]
    assert "Jane" not in partitions.check_one(partitions.Rules(), [[0.0, "Jane Doe"]], [0], None)[0].problem
    assert groups.find_smallest(np.array([1.0, np.nan]))[1].startswith("Input y contains NaN")


# --- entries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array, pd.DataFrame], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("method", ["auto", "hard_thresholding"])
def test_an_extreme_row_is_not_warned_of(convert: Any, dtype: Any, method: str) -> None:
    """Also where the user makes errors of warnings."""
    rows = X.astype(dtype)
    rows[17] = HUGE if dtype is np.float64 else HUGE / 1e270
    model = classifier(method=method)
    for each in (X.astype(dtype), rows):
        assert silently(lambda each=each: model.fit(convert(each), Y)).privacy_.epsilon <= 1.0


def test_extreme_targets_are_not_warned_of() -> None:
    targets = X[:, 0].copy()
    targets[1:5] = HUGE
    for bounds in (BOUNDS, Bounds(row_linf=1.0), None):
        silently(lambda bounds=bounds: SparseRegressor(1.0, 1e-6, bounds=bounds).fit(X, targets))
    rows = X.copy()
    rows[17] = HUGE
    silently(lambda: Bounds.estimate(rows, targets, epsilon=1.0))
    model = SparseRegressor(None).fit(X, X[:, 0])
    silently(lambda: private_score(model, rows, targets, epsilon=1.0, label=1.0))
    silently(lambda: private_score(LogisticRegression().fit(X, Y), rows, Y, epsilon=1.0))


@pytest.mark.parametrize("cls", [SparseClassifier, SparseRegressor])
def test_messages_never_quote_a_cell(cls: Any) -> None:
    """Words, in any container; rows of one dimension; complex numbers: the traceback holds none of them."""
    words = X.astype(object)
    words[3, 2] = "Jane Doe"
    words[5, 0] = "12 Elm St"
    table = pd.DataFrame(words, columns=["age", "b", "name", "d"])
    other_words: list[Any] = X[:, 0].tolist()
    other_words[7] = "Jane Doe"
    for rows, labels in (
        (words, Y),
        (words.tolist(), Y),
        (words.astype(str), Y),
        (table, Y),
        (table.astype({"name": "category", "age": "string"}), Y),
        (X[:, 0] * 0 + 0.123456, Y),
        (X + 0.123456j, Y),
        (np.full(N, "Jane Doe"), Y),
        (X, np.full((N, 2), 0.123456)),
        (X, Y + 0.123456j),
        (X, np.where(np.arange(N) == 3, 0.123456, np.nan)),
        *(() if cls is SparseClassifier else ((X, other_words), (X, as_objects(other_words)))),
    ):
        try:
            cls(bounds=BOUNDS).fit(rows, labels)
        except (ValueError, TypeError):
            said = traceback.format_exc().partition("tulle/trusted/intake.py")[2] or traceback.format_exc()
            assert all(quoted not in said for quoted in ("Jane", "Elm", "0.123"))
        else:
            pytest.fail("it was not refused")


def test_all_columns_that_cannot_be_read_are_named() -> None:
    table = pd.DataFrame(X, columns=["age", "b", "name", "d"]).astype(object)
    table.iloc[3, 2] = "Jane Doe"
    table.iloc[[5, 7], 0] = "12 Elm St"
    with pytest.raises(ValueError, match=r"text in column 'age' \(rows 5, 7\), column 'name' \(row 3\)"):
        classifier().fit(table, Y)
    with pytest.raises(TypeError, match=r"argument must be a string or a real number: .* column 1 \(row 0\)"):
        array_checks.read_rows(np.array([[1.0, {"a": 1}], [2.0, 3.0]], dtype=object))


def test_entries_of_many_types_are_numbers() -> None:
    whole = np.arange(12).reshape(6, 2)
    expected = whole.astype(float)
    table = pd.DataFrame(whole, columns=["a", "b"])
    for rows in (
        whole,
        whole.tolist(),
        whole.astype(object),
        whole.astype(str),
        [[str(cell) for cell in row] for row in whole],
        table,
        table.astype("Int64"),
        table.astype({"a": "category", "b": "string"}),
        table.astype(np.float32),
        sp.coo_array(whole),
        table.astype(pd.SparseDtype(float, 0.0)),
        [[Decimal(int(cell)) for cell in row] for row in whole],
    ):
        found = array_checks.read_rows(rows)
        np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, expected)
    assert array_checks.read_rows(whole.astype(np.float32)).dtype == np.float32
    assert array_checks.read_rows([[np.float32(0.1), 0.5], [1, 2]])[0, 0] == np.float32(0.1)
    # One text among the numbers of a list does not send the others through text and back.
    assert array_checks.read_rows([[np.float32(0.1), 0.5], ["1", 2]])[0, 0] == np.float32(0.1)


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA, pd.NaT, Decimal("nan")], ids=repr)
def test_missing_entries_are_nan(missing: Any) -> None:
    rows = X.astype(object)
    rows[3, 1] = missing
    for each in (rows, rows.tolist(), pd.DataFrame(rows)):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            classifier().fit(each, Y)
    labels = X[:, 0].tolist()
    labels[3] = missing
    with pytest.raises(ValueError, match=r"Input y contains NaN \(row 3\)"):
        SparseRegressor(bounds=BOUNDS).fit(X, labels)


def test_entries_that_sum_to_infinity_count_as_nothing() -> None:
    """Two entries of one place, each finite: the row is left out, and nobody is told."""
    rows = sp.csr_array(X)
    data, indices = np.r_[rows.data, 1.7e308, 1.7e308], np.r_[rows.indices, 0, 0]
    starts = rows.indptr.copy()
    starts[-1] += 2
    twice = sp.csr_array((data, indices, starts), shape=rows.shape)
    assert silently(lambda: classifier().fit(twice, Y)).privacy_.epsilon <= 1.0


def test_a_target_beyond_all_numbers_is_infinite() -> None:
    labels: list[Any] = X[:, 0].tolist()
    for cell in (10**400, "1e999", math.inf, -math.inf):
        labels[3] = cell
        with pytest.raises(ValueError, match="Input y contains infinity"):
            SparseRegressor(bounds=BOUNDS).fit(X, labels)


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [("0", "1"), ("no", "yes")], ids=["numbers", "words"])
@pytest.mark.parametrize("odd", [None, "unknown", "2", "0.5"])
def test_classes_on_the_command_line(tmp_path: Path, labels: tuple[str, str], odd: str | None) -> None:
    """Shapes, classes and which other rows count do not depend on what one line says."""
    lines = [",".join([*(f"{x:.3f}" for x in row), labels[y]]) for row, y in zip(X, Y)]
    if odd is not None:
        lines[7] = lines[7].rpartition(",")[0] + f",{odd}"
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    arguments = ["fit", str(tmp_path / "rows.csv"), "--target", "y", "--epsilon", "1", "--row-linf", "1", "--quiet"]
    arguments += ["--classes", ", ".join(labels), "-o", str(tmp_path / "model"), "--seed", "0"]
    assert main(arguments) == 0
    model = load(tmp_path / "model" / "model.npz")
    assert [str(label).removesuffix(".0") for label in model.classes_] == list(labels)
    assert model.coef_.shape == (1, D)
    assert words.LABELS_DECLARED in model.privacy_.assumptions
    kept = np.arange(N) != 7 if odd else np.ones(N, dtype=bool)
    table = np.array([[float(f"{x:.3f}") for x in row] for row in X])
    own: Any = np.where(kept, Y, 9)
    expected = SparseClassifier(1.0, bounds=Bounds(row_linf=1.0), classes=[0, 1], random_state=0).fit(table, own)
    np.testing.assert_allclose(model.coef_, expected.coef_)


def test_classes_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n" + "".join(f"{x},{y}\n" for x, y in zip(X[:, 0], Y)))
    arguments = ["fit", str(tmp_path / "rows.csv"), "--target", "y", "--epsilon", "1", "-o", str(tmp_path / "model")]
    assert main([*arguments, "--classes", "0,1", "--task", "regression"]) == 2
    assert "--classes is for classification" in capsys.readouterr().err
    for wrong in ("0", "1,1.0", "a,a"):
        assert main([*arguments, "--classes", wrong]) == 2
        assert "at least two different labels" in capsys.readouterr().err
