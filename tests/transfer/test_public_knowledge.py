"""Public knowledge: what is read and refused, which features and directions it suggests, and the sparse student."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp

from tulle import Bounds, PublicFrequencies, SparseClassifier, SparseRegressor
from tulle.transfer.public_features import check_not_private
from tulle.transfer.public_knowledge import MOST_CANDIDATES, PUBLIC_ASSUMPTION, PublicView, read_public

M, D = 400, 12
facts = partial(fits.facts, n_features=D, row_l2=2.0, row_linf=math.inf)
formats = pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"])


def rows_of_few_directions(n: int = M, seed: int = 0) -> Any:
    """Rows that vary in four directions, nearly; the last two features are always zero."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 4)) @ np.random.default_rng(5).normal(size=(4, D)) + 0.01 * rng.normal(size=(n, D))
    rows[:, -2:] = 0.0
    return rows


# --- reading ---------------------------------------------------------------------------------------------------------


@formats
def test_common_features_are_those_with_large_squares(convert: Any) -> None:
    """In order, without those that the public rows do not have, however many are asked for."""
    rows = np.random.default_rng(0).normal(size=(50, 6)) * np.array([1.0, 5.0, 0.0, 3.0, 0.0, 2.0])
    knowledge = read_public(convert(rows), 6)
    np.testing.assert_array_equal(knowledge.common(2), [1, 3])
    np.testing.assert_array_equal(knowledge.common(3), [1, 3, 5])
    np.testing.assert_array_equal(knowledge.common(100), [0, 1, 3, 5])
    np.testing.assert_array_equal(knowledge.candidates, [0, 1, 3, 5])
    assert knowledge.is_useful


@pytest.mark.parametrize("size", [1e-40, 1.0, 1e40])
def test_the_scale_of_public_rows_does_not_matter_for_what_is_common(size: float) -> None:
    """No square vanishes, and none overflows."""
    rows = np.abs(rows_of_few_directions())
    knowledge = read_public(size * rows, D)
    assert np.all(np.isfinite(knowledge.frequencies))
    np.testing.assert_array_equal(knowledge.common(5), read_public(rows, D).common(5))
    np.testing.assert_array_equal(knowledge.candidates, np.arange(D - 2))


@formats
@pytest.mark.parametrize("size", [1e-310, 1e-60, 1e60, 1e300])
def test_public_rows_of_an_extreme_size_are_refused(convert: Any, size: float) -> None:
    """As bounds of that size are; before anything is billed."""
    with pytest.raises(ValueError, match=r"the largest entry of public is .*; it must lie in \[1e-50, 1e\+50\]"):
        read_public(convert(size * rows_of_few_directions()), D)


def test_what_is_given_as_public_stays_as_it_is() -> None:
    """Entries that are too small to count are left out of a copy."""
    rows = rows_of_few_directions()
    rows[3, 4] = 1e-40
    before = rows.copy()
    assert read_public(rows, D).rows[3, 4] == 0.0
    np.testing.assert_array_equal(rows, before)


def test_candidates_are_no_more_than_can_be_held() -> None:
    frequencies = np.linspace(1, 2, MOST_CANDIDATES + 70)
    knowledge = read_public(PublicFrequencies(frequencies), len(frequencies))
    np.testing.assert_array_equal(knowledge.candidates, np.arange(70, MOST_CANDIDATES + 70))


def test_frequencies_of_all_features_say_nothing() -> None:
    assert not read_public(PublicFrequencies(np.ones(D)), D).is_useful
    assert read_public(PublicFrequencies(np.arange(D)), D).is_useful
    assert read_public(np.ones((30, D)), D).is_useful


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, -1e-9, 1.0], "must be finite, >= 0 and not all zero"),
        ([0.0, 0.0, 0.0], "must be finite, >= 0 and not all zero"),
        ([1.0, math.nan, 1.0], "must be finite, >= 0 and not all zero"),
        ([1.0, math.inf, 1.0], "must be finite, >= 0 and not all zero"),
        (np.ones((3, 1)), "one number for each feature, got the shape (3, 1)"),
        ("abc", "one number for each feature"),
    ],
)
def test_frequencies_that_make_no_sense(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PublicFrequencies(values)


def test_frequencies_of_other_features_are_refused() -> None:
    with pytest.raises(ValueError, match="public has frequencies of 5 features, the private rows 12"):
        read_public(PublicFrequencies(np.ones(5)), D)


def test_columns_of_other_names_are_refused() -> None:
    """Or of the same ones in another order: a column that is taken for another makes directions that mean nothing."""
    pandas = pytest.importorskip("pandas")
    names = [f"word {number}" for number in range(D)]
    frame = pandas.DataFrame(rows_of_few_directions(), columns=names)
    assert read_public(frame, D, names).rows.shape == (M, D)
    assert read_public(frame.to_numpy(), D, names).rows.shape == (M, D)
    private = pandas.DataFrame(rows_of_few_directions(seed=1), columns=names)
    y = np.arange(M) % 2
    model = SparseClassifier(bounds=Bounds(row_l2=2.0), random_state=0)
    assert np.any(model.fit(private, y, public=frame).coef_)
    for other in (frame[names[::-1]], frame.rename(columns={"word 3": "another"})):
        with pytest.raises(ValueError, match="the columns of public must have the names of the private columns"):
            read_public(other, D, names)
        with pytest.raises(ValueError, match="the columns of public must have the names of the private columns"):
            SparseClassifier(bounds=Bounds(row_l2=2.0)).fit(private, y, public=other)


def test_private_tables_are_no_public_ones() -> None:
    """The same DataFrame, a part of it, the array that it was made of, or a column of it; a copy cannot be told."""
    pandas = pytest.importorskip("pandas")
    values = rows_of_few_directions()
    frame = pandas.DataFrame(values, copy=False)
    refused = [(frame, frame), (frame.iloc[:100], frame), (frame, values), (values, frame), (frame[[3, 4]], frame)]
    mixed = frame.assign(kind=["a"] * M)
    for public, private in [*refused, (mixed, mixed)]:
        with pytest.raises(ValueError, match="the public features are the private rows"):
            check_not_private(public, private)
    other = pandas.DataFrame(rows_of_few_directions(seed=1))
    for public, private in ((other, frame), (other, values), (frame.iloc[:100], frame.iloc[100:]), (None, frame)):
        check_not_private(public, private)
    for estimator, y in ((SparseClassifier, np.arange(M) % 2), (SparseRegressor, values[:, 0])):
        with pytest.raises(ValueError, match="the public features are the private rows"):
            estimator(bounds=Bounds(row_l2=2.0, label=1.0)).fit(frame, y, public=frame)


# --- what it suggests ------------------------------------------------------------------------------------------------


@formats
def test_a_view_holds_what_public_rows_vary_by(convert: Any) -> None:
    """Four directions are all there is, and the probes see as much of the rows as is expected."""
    knowledge = read_public(convert(rows_of_few_directions()), D)
    view = knowledge.view(facts(n_rows=1000), 4)
    np.testing.assert_array_equal(view.features, np.arange(D - 2))
    assert view.mixing is not None
    assert view.mixing.shape == (D - 2, 4)
    assert view.expected_share == pytest.approx(1.0, abs=1e-2)
    lengths = np.linalg.norm(view.rows.toarray() if sp.issparse(view.rows) else view.rows, axis=1)
    assert lengths.max() <= 2.0 * (1 + 1e-12)  # bounds are those of the private rows
    np.testing.assert_allclose(view.lengths(view.features), lengths, rtol=1e-9)


@pytest.mark.parametrize(("m", "wanted", "mixed"), [(400, 4, True), (40, 10, True), (20, 12, False), (20, 10, True)])
def test_too_few_public_rows_for_the_directions_suggest_features_alone(m: int, wanted: int, mixed: bool) -> None:
    """Where a quarter of the rows is less than half of what private rows can tell, unless that much holds them."""
    rows = np.random.default_rng(0).normal(size=(m, D))
    view = read_public(rows, D).view(facts(), wanted)
    assert (view.mixing is not None) == mixed
    few = np.outer(np.random.default_rng(0).normal(size=m), np.arange(1.0, D + 1))  # of one direction
    assert read_public(few, D).view(facts(), wanted).mixing is not None


def test_a_view_of_frequencies_has_features_alone() -> None:
    view = read_public(PublicFrequencies(np.arange(D)), D).view(facts(), 4)
    np.testing.assert_array_equal(view.features, np.arange(1, D))
    assert view.mixing is None
    assert view.expected_share == 1.0
    assert view.lengths().shape == (0,)


@pytest.mark.parametrize("kind", ["rows", "frequencies"])
def test_probes_measure_squared_lengths(kind: str) -> None:
    """The mean square along the probes, times the number of directions, is the squared length there on average (over
    these rows within 15 %; a wrong number of directions is off by a third). They have length 1, and nothing along the
    constant."""
    rows = np.random.default_rng(2).normal(size=(4000, D)) * np.linspace(2, 1, D)
    public = rows[:400] if kind == "rows" else PublicFrequencies(np.square(rows).mean(axis=0) * (np.arange(D) < 8))
    view = read_public(public, D).view(facts(row_l2=math.inf), 8)
    inside, everywhere = view.probes(D + 1)
    assert view.n_probed == 8
    for probes in (inside, everywhere):
        np.testing.assert_allclose(np.linalg.norm(probes, axis=0), 1.0, rtol=1e-9)
        np.testing.assert_array_equal(probes[D], 0.0)
    seen = [np.square(rows @ probes[:D]).mean() * count for probes, count in ((inside, 8), (everywhere, D))]
    assert seen[1] == pytest.approx(np.square(rows).sum(axis=1).mean(), rel=0.15)
    on_features = np.square(rows[:, :8]).sum() / np.square(rows).sum()
    expected = on_features if kind == "frequencies" else view.expected_share
    assert seen[0] / seen[1] == pytest.approx(expected, rel=0.2)


def test_how_many_directions_does_not_depend_on_the_bounds() -> None:
    """Nor on anything but public rows and the number of private ones: a plan that was billed holds for all bounds."""
    knowledge = read_public(rows_of_few_directions(), D)
    assert knowledge.most_directions(facts()) == D - 2
    for change in ({"row_l2": 1e-6}, {"row_l2": 1e9}, {"row_linf": 0.1}, {"label": 7.0}, {"normalised": True}):
        assert knowledge.most_directions(facts(**change)) == D - 2
    assert read_public(PublicFrequencies(np.arange(D)), D).most_directions(facts()) == 0
    assert read_public(np.random.default_rng(0).normal(size=(36, D)), D).most_directions(facts()) == 9
    assert knowledge.most_directions(facts(n_rows=10**9)) == D - 2


# --- the student -----------------------------------------------------------------------------------------------------


@formats
@pytest.mark.parametrize("count", [1, 3, 10, 100])
def test_a_sparse_student_keeps_at_most_count_weights(convert: Any, count: int) -> None:
    """And comes nearer to the teacher's margins on public rows than its largest weights as they are."""
    rows = rows_of_few_directions()
    view = read_public(convert(rows), D).view(facts(row_l2=math.inf), 4)
    rng = np.random.default_rng(3)
    for _ in range(10):
        weights = rng.normal(size=D) * (np.arange(D) < D - 2)
        student = view.sparse_student(weights, count)
        assert np.count_nonzero(student) <= min(count, D - 2)
        assert np.all(np.isfinite(student))
        cut = np.where(student != 0, weights, 0.0)
        missed = [np.linalg.norm(rows @ (weights - one)) for one in (student, cut)]
        assert missed[0] <= missed[1] * (1 + 1e-9)
        if count >= D - 2:
            np.testing.assert_allclose(student, weights, rtol=1e-9)


def test_a_student_of_frequencies_keeps_the_weights_that_count() -> None:
    """|w_j| times the root of how common the feature is; as they are, since nothing is known of margins."""
    frequencies = np.array([1.0, 100.0, 0.01, 1.0])
    view = PublicView(np.arange(4), None, None, frequencies, 1.0)
    np.testing.assert_array_equal(view.sparse_student(np.array([2.0, 1.0, 9.0, -3.0]), 2), [0.0, 1.0, 0.0, -3.0])
    np.testing.assert_array_equal(view.sparse_student(np.zeros(4), 2), np.zeros(4))


# --- what the report says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "fit_again"])
@pytest.mark.parametrize("what", ["rows", "frequencies of features"])
def test_the_report_says_what_the_promise_counts_on(method: str, what: str) -> None:
    """That public rows are public, and were not chosen by looking at private ones; no word of it without them."""
    X, y = rows_of_few_directions(), np.arange(M) % 2
    public = rows_of_few_directions(seed=1) if what == "rows" else PublicFrequencies(np.arange(D))
    line = PUBLIC_ASSUMPTION.format(what=what)
    assert "nothing is guaranteed about anybody" in line
    model = SparseClassifier(method=method, bounds=Bounds(row_l2=2.0), random_state=0)
    assert line in model.fit(X, y, public=public).privacy_.assumptions
    assert line in " ".join(str(model.privacy_).split())
    assert "Public" not in str(model.fit(X, y).privacy_)
