"""Predictions for Dask collections: lazy, in their partitions, and the same as for rows in memory."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from collections_of_rows import COLLECTIONS, DENSE, MARGINS, NAMES, PART, D, N, X, Y, bag, cut, in_memory
from spread_fits import model

from tulle import Bounds, Budget, Ledger, SparseRegressor, private_score
from tulle.methods import HardThresholding

QUICK = HardThresholding(n_iter=2)
ANSWERS = ("predict", "predict_proba", "predict_log_proba", "decision_function")
WORDS = np.array(["ham", "spam", "toast"])[np.digitize(MARGINS, [0.0, 0.7])]


@pytest.fixture(autouse=True)
def without_a_cluster() -> Any:
    """Whatever computes: no client is needed."""
    with dask.config.set(scheduler="synchronous"):
        yield


def fitted(n_classes: int = 2, **settings: Any) -> Any:
    return model(QUICK, **settings).fit(DENSE, Y if n_classes == 2 else WORDS)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("collection", COLLECTIONS)
def test_the_answers_for_rows_in_memory(collection: str, n_classes: int) -> None:
    rows, here = COLLECTIONS[collection](Y)[0], in_memory(collection)
    one = fitted(n_classes)
    for name in ANSWERS:
        found, expected = getattr(one, name)(rows), getattr(one, name)(here)
        assert dask.is_dask_collection(found)
        computed = np.asarray(found)
        assert computed.shape == expected.shape
        if name == "predict":
            np.testing.assert_array_equal(computed, expected)
        else:
            np.testing.assert_allclose(computed, expected, rtol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_regression(loss: str) -> None:
    bounds = Bounds(row_l2=1.5, label=2.0)
    one = SparseRegressor(200.0, 1e-6, loss=loss, method=QUICK, bounds=bounds, random_state=0).fit(X, np.abs(MARGINS))
    found = one.predict(COLLECTIONS["frame"](Y)[0])
    np.testing.assert_allclose(found.compute(), one.predict(DENSE), rtol=1e-12)
    assert one.score(COLLECTIONS["array"](Y)[0], da.from_array(MARGINS, chunks=300)) == one.score(DENSE, MARGINS)


def test_a_table_keeps_its_index_and_its_partitions() -> None:
    table = pd.DataFrame(DENSE, columns=NAMES, index=np.arange(N) * 3)
    rows, one = dd.from_pandas(table, npartitions=5), model(QUICK).fit(table, WORDS)
    answers = one.predict(rows)
    assert answers.npartitions == 5
    assert answers.divisions == rows.divisions
    np.testing.assert_array_equal(answers.compute().index, table.index)
    both = rows.assign(answer=answers).compute()
    np.testing.assert_array_equal(both["answer"], one.predict(table))
    assert one.predict_proba(rows).compute().columns.tolist() == ["ham", "spam", "toast"]
    assert one.predict(rows).dtype == one.predict(rows).compute().dtype


def test_sizes_of_chunks_are_kept_and_need_not_be_known() -> None:
    one = fitted()
    known = one.predict(da.from_array(DENSE, chunks=(PART, 40)))
    assert known.chunks == ((PART,) * 4 + (N - 4 * PART,),)
    assert one.predict_proba(da.from_array(DENSE, chunks=(PART, 40))).shape == (N, 2)
    unknown = dd.from_pandas(pd.DataFrame(DENSE), npartitions=5).values
    assert np.isnan(unknown.chunks[0]).all()
    np.testing.assert_array_equal(one.predict(unknown).compute(), one.predict(DENSE))


@pytest.mark.parametrize("normalise", [False, True])
def test_partitions_may_be_empty(normalise: bool) -> None:
    one = fitted(bounds=Bounds(row_l2=1.0, normalise=normalise))
    expected = one.predict(X)
    np.testing.assert_array_equal(one.predict(bag([[X[:70]], [], [X[:0]], [X[70:]]])), expected)
    parts = cut(pd.DataFrame(DENSE), [0, 0, 70, 70, N])
    rows = dd.from_delayed([dask.delayed(part) for part in parts], meta=parts[0])
    np.testing.assert_array_equal(one.predict(rows), expected)


def not_yet(*_: Any) -> Any:
    raise AssertionError("this was computed")


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    one = fitted()
    delayed = dask.delayed(not_yet)
    table = pd.DataFrame(DENSE[:1])
    sources = [
        da.from_delayed(delayed(), (N, D), dtype=float),
        db.from_delayed([delayed(), delayed()]),
        dd.from_delayed([delayed(), delayed()], meta=table[:0], verify_meta=False),
    ]
    for rows in sources:
        for name in ANSWERS:
            lazy = getattr(one, name)(rows)
            with pytest.raises(AssertionError, match="this was computed"):
                lazy.compute()


def test_columns_are_checked_at_once() -> None:
    table = pd.DataFrame(DENSE, columns=NAMES)
    one = model(QUICK).fit(table, Y)
    for rows, message in (
        (dd.from_pandas(table[NAMES[:50]], npartitions=2), "expecting 100 features"),
        (dd.from_pandas(table[NAMES[::-1]], npartitions=2), "names"),
        (da.ones((10, 50), chunks=5), "expecting 100 features"),
        (da.ones(10, chunks=5), "two dimensions"),
    ):
        with pytest.raises(ValueError, match=message):
            one.predict(rows)
    with pytest.raises(ValueError, match="offset is for rows in memory"):
        one.predict(dd.from_pandas(table, npartitions=2), offset=np.zeros(N))


@pytest.mark.parametrize("what", ["a NaN", "a word", "other widths"])
def test_what_is_wrong_with_rows_is_said_without_quoting_them(what: str) -> None:
    table = pd.DataFrame(DENSE, columns=NAMES).astype(object)
    table.iloc[1999, 3] = np.nan if what == "a NaN" else "Jane Doe"
    rows = dd.from_pandas(table, npartitions=3)
    if what == "other widths":
        rows = bag([[X[:, :90]]])
    lazy = fitted().predict(rows)
    with pytest.raises(ValueError, match=r"a partition of the rows: (Input X|could not|X has 90 features)") as raised:
        lazy.compute()
    assert "Jane" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert "Jane" not in str(raised.value.__context__)


def test_what_travels_holds_no_model_and_no_generator() -> None:
    """A generator that draws noise would leave the process with the model; weights that are zero are not sent."""
    one = fitted(random_state=np.random.default_rng(5))
    sent = cloudpickle.dumps(one.predict(da.zeros((10**6, D), chunks=(1000, D))))
    assert b"_margins_of" in sent
    for word in (b"random", b"PrivacyReport"):
        assert word not in sent
        assert word in pickle.dumps(one)


def test_private_scores_of_a_collection() -> None:
    one = fitted()
    rows, y = COLLECTIONS["array"](Y)
    assert private_score(one, rows, y, epsilon=1.0, random_state=0).value == (
        private_score(one, DENSE, Y, epsilon=1.0, random_state=0).value
    )


def secret_source() -> Any:
    raise KeyError("Jane Doe")


def test_a_source_that_fails_under_a_private_score_is_not_quoted() -> None:
    rows, one = da.from_delayed(dask.delayed(secret_source)(), (N, D), dtype=float), fitted()
    with Ledger(Budget(5.0)) as ledger, pytest.raises(ValueError, match="cannot predict for these rows") as raised:
        private_score(one, rows, Y, epsilon=1.0)
    assert "Jane" not in str(raised.value)
    assert ledger.fits == []
