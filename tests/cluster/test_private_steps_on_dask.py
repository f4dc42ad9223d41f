"""Private steps on the workers of a Dask cluster: the fit of the same rows in memory, transformed where they are."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from collections_of_rows import COLLECTIONS, DENSE, NAMES, PART, D, N, X, Y, array, bag_of_csr, in_memory, in_partitions
from distributed import Client
from sensitivity_replay import Conversation, Tally, hostile_row
from sklearn.preprocessing import Normalizer
from spread_fits import METHODS, STEPS, assert_same_steps, with_steps
from test_sensitivity_replay_on_dask import on_workers

from tulle import Bounds, Budget, Ledger
from tulle.backends.dask import RowsOnDask
from tulle.methods import HardThresholding, StochasticHardThresholding
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights

pytestmark = [
    pytest.mark.usefixtures("client"),
    pytest.mark.filterwarnings("ignore:.*rows of .*:UserWarning"),  # of few rows
]

# One of each kind of question.
SOME = ["two stage", "batches, svrg", "coordinate descent, selection", "fit again"]
QUICK = HardThresholding(n_iter=2)
GAPS = DENSE.copy()
GAPS[::7, 1], GAPS[5, 2], GAPS[PART : 2 * PART, 3] = np.nan, np.inf, np.nan


# --- the same fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("method", SOME)
def test_steps_learn_from_a_cluster_as_from_an_array(method: str, steps: str) -> None:
    kind, made = STEPS[steps]
    here, there = (X, bag_of_csr(Y)) if kind == "sparse" else (DENSE, array(Y))
    assert_same_steps(with_steps(made, METHODS[method]), (here, Y), there)


@pytest.mark.parametrize("collection", [name for name in COLLECTIONS if name != "bag of pairs"])
def test_every_collection_is_the_same_rows(collection: str) -> None:
    rows, y = COLLECTIONS[collection](Y)
    here = in_memory(collection)
    step = PrivateScaler(rounds=6) if isinstance(here, np.ndarray) else PrivateWeights()
    here = pd.DataFrame(here, columns=NAMES) if collection == "frame" else here
    found = assert_same_steps(with_steps([step], QUICK), (here, Y), (rows, y))
    assert getattr(found, "feature_names_in_", np.array([])).tolist() == (NAMES if collection == "frame" else [])


def test_targets_may_be_with_the_rows() -> None:
    pipeline = with_steps([PrivateWeights()], QUICK)
    here = pipeline.fit(X, Y).model_.coef_
    pairs, none = COLLECTIONS["bag of pairs"](Y)
    np.testing.assert_allclose(pipeline.fit(pairs, none).model_.coef_, here, atol=1e-12)


@pytest.mark.parametrize("step", [PrivateScaler(rounds=6), PrivateImputer(0.8, rounds=6)], ids=["scaler", "imputer"])
def test_missing_numbers(step: Any) -> None:
    """Of arrays and of tables, at fit and at predict; a partition may have none that are not missing in a column."""
    assert_same_steps(with_steps([step]), (GAPS, Y), (da.from_array(GAPS, chunks=(PART, D)), in_partitions(Y)))
    frame = pd.DataFrame(GAPS, columns=NAMES)
    there = dd.from_pandas(frame, chunksize=PART), dd.from_pandas(pd.Series(Y), chunksize=PART)
    fitted = assert_same_steps(with_steps([step], QUICK), (frame, Y), there)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(there[0][NAMES[::-1]])


@pytest.mark.parametrize("steps", ["weights", "scaler"])
def test_rows_that_do_not_count_do_not_count_there(steps: str) -> None:
    """A person's surplus rows, which lie in several partitions, and rows of no class."""
    kind, made = STEPS[steps]
    labels = np.where(np.arange(N) % 11 == 0, 7.0, Y)
    groups = np.random.default_rng(0).integers(0, 700, N)
    here, there = (X, bag_of_csr(labels)) if kind == "sparse" else (DENSE, array(labels))
    for method in (QUICK, StochasticHardThresholding(batch=60, passes=0.1)):
        unfitted = with_steps(made, method, bounds=Bounds(rows_per_person=2))
        assert_same_steps(unfitted, (here, labels), there, groups)


# --- where rows are --------------------------------------------------------------------------------------------------


def test_no_row_comes_to_the_process_that_fits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fit gathers is as long as columns or as pairs of quartiles, and never a line for each row of a block."""
    sizes: list[int] = []
    gather, result = Client.gather, type(client.submit(int)).result

    def noted(found: Any) -> Any:
        sizes.append(len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(Client, "gather", lambda *given, **settings: noted(gather(*given, **settings)))
    monkeypatch.setattr(type(client.submit(int)), "result", lambda *given, **more: noted(result(*given, **more)))
    with_steps([PrivateScaler(rounds=6), PrivateWeights()], QUICK).fit(*array(Y))
    assert len(sizes) >= 6
    assert max(sizes) < 8 * 4 * D + 1000 < 8 * PART * D / 10


def test_what_travels_holds_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are sent with settings and with what was released."""
    sent: list[int] = []
    dumps = cloudpickle.dumps

    def seen(thing: Any, *more: Any, **settings: Any) -> Any:
        packed = dumps(thing, *more, **settings)
        sent.append(len(packed))
        return packed

    rows = array(Y)
    monkeypatch.setattr("tulle.backends.dask.cloudpickle.dumps", seen)
    with_steps([PrivateScaler(rounds=6), PrivateWeights()], QUICK).fit(*rows)
    assert sent
    assert max(sent) < 8 * 10 * D + 10_000 < 8 * PART * D / 10


def _double(rows: Any) -> Any:
    return 2.0 * rows


def test_a_partition_is_not_changed_in_its_place() -> None:
    """A task may run again, and predictions are made of the rows as they were."""
    spread = RowsOnDask(*array(Y))
    for _ in range(2):
        changed = spread.then(_double)
        np.testing.assert_array_equal(changed.map(_double), 4.0 * DENSE)
        changed.rows(None).clip_rows(1e-3)
        np.testing.assert_array_equal(spread.map(np.asarray), DENSE)


# --- attacks and refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights", "scaler", "imputer"])
def test_no_answer_moves_further_than_its_sensitivity(name: str) -> None:
    """Neighbours with hostile rows in partitions of five, with missing numbers where a step takes them."""
    step = {"weights": PrivateWeights(), "scaler": PrivateScaler(rounds=6), "imputer": PrivateImputer(2.0, rounds=6)}
    tally, rng = Tally(), np.random.default_rng(6)
    for number in range(2):
        rows = np.array([hostile_row(rng, 3) for _ in range(12)]) if number else rng.normal(size=(12, 3))
        other = rows.copy()
        other[0], other[5] = hostile_row(rng, 3), hostile_row(rng, 3)
        if name != "weights":
            other[0, 0] = np.nan
        pipeline = with_steps([step[name]], HardThresholding(n_iter=2, noise="gaussian"))
        pipeline.set_params(epsilon=1.0, model__bounds=Bounds(rows_per_person=2))
        conversation, y = Conversation(f"{name}, pair {number}", tally), np.array([0.0, 1.0] * 6)
        for side in (rows, other):
            with conversation.listens() if side is rows else conversation.repeats():
                pipeline.fit(*on_workers(side, y), np.arange(12) % 5)
    assert not tally.violations
    assert tally.worst["Gaussian"] > 0.2


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "missing, weights": ([PrivateWeights()], GAPS, "partition 0 of the rows: Input X contains NaN"),
    "sparse rows": ([PrivateScaler()], "csr", "these rows are sparse"),
    "a public step": ([Normalizer(), PrivateWeights()], DENSE, "public steps take rows in memory"),
    "settings": ([PrivateScaler(rounds=3)], DENSE, r"rounds=...\) must be a whole number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_fitted_is_refused_before_anything_is_billed(case: str) -> None:
    steps, rows, message = REFUSED[case]
    given = bag_of_csr(Y) if isinstance(rows, str) else (da.from_array(rows, chunks=(PART, D)), in_partitions(Y))
    with Ledger(Budget(1e3, 0.1)) as ledger, pytest.raises(ValueError, match=message):
        with_steps(steps).fit(*given)
    assert not ledger.fits


def test_predictions_for_missing_numbers_need_a_step_that_fills_them() -> None:
    fitted = with_steps([PrivateWeights()], QUICK).fit(*array(Y))
    with pytest.raises(ValueError, match="contains NaN"):
        fitted.predict(da.from_array(GAPS, chunks=(PART, D))).compute()
