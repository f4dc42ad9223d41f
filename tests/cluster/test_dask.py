"""Rows on the workers of a Dask cluster: the fit of the same rows in memory, and what is refused before it."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
from collections_of_rows import (
    COLLECTIONS,
    DENSE,
    MARGINS,
    NAMES,
    PART,
    D,
    N,
    X,
    Y,
    array,
    bag,
    bag_of_csr,
    cut,
    frame,
    in_memory,
    in_partitions,
)
from distributed import Client, LocalCluster, wait
from spread_fits import BOUNDS, METHODS, model
from spread_fits import assert_same_fit as assert_close_fit

import tulle.backends.dask as on_dask
import tulle.backends.dask_groups as dask_groups
from tulle import Bounds, Budget, FileLedger, Ledger, SparseRegressor
from tulle.backends.dask import DaskRows, RowsOnDask
from tulle.methods import HardThresholding, ScreenRefine, StochasticHardThresholding, TwoStage

# Rows in blocks of few rows and groups of few blocks: otherwise all of these rows are one block.
pytestmark = pytest.mark.usefixtures("client", "small_blocks")

# To the last bit: of dense rows that is so by construction, of sparse ones since answers are rounded to a grid.
assert_same_fit = partial(assert_close_fit, atol=0.0)

# One of each kind of question.
SOME = ["two stage", "batches, svrg", "coordinate descent, selection", "hard thresholding, gaussian"]
QUICK = HardThresholding(n_iter=2)
BATCHES = StochasticHardThresholding(batch=60, passes=0.1)


# --- the same fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits_a_cluster_as_it_fits_an_array(method: str) -> None:
    assert_same_fit(model(METHODS[method]), (X, Y), bag_of_csr(Y))


@pytest.mark.parametrize("collection", COLLECTIONS)
@pytest.mark.parametrize("method", [QUICK, BATCHES], ids=["passes", "batches"])
def test_every_collection_is_the_same_rows(method: Any, collection: str) -> None:
    found = assert_same_fit(model(method), (in_memory(collection), Y), COLLECTIONS[collection](Y))
    assert found.n_features_in_ == D
    assert getattr(found, "feature_names_in_", np.array([])).tolist() == (NAMES if collection == "frame" else [])


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(
    ("collection", "method"),
    [
        pytest.param("bag of csr", QUICK, id="passes"),
        pytest.param("array", QUICK, id="dense passes"),
        pytest.param("bag of csr", BATCHES, id="batches"),
        pytest.param("array", BATCHES, id="dense batches"),
        pytest.param("bag of csr", TwoStage(), id="minimiser"),
    ],
)
def test_rows_on_workers_obey_the_same_bounds(collection: str, method: Any, bounds: str) -> None:
    unfitted = model(method, bounds=BOUNDS[bounds])
    assert_same_fit(unfitted, (in_memory(collection), Y), COLLECTIONS[collection](Y))


@pytest.mark.parametrize("collection", ["bag of pairs", "frame"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_may_be_words(collection: str, n_classes: int) -> None:
    """Also where a partition does not hold every one of them, or only short ones."""
    words = np.array(["ham", "spam", "buttered toast"])[np.digitize(MARGINS, [0.0, 0.7][: n_classes - 1])]
    words[:PART] = "ham"
    found = assert_same_fit(model(QUICK), (in_memory(collection), words), COLLECTIONS[collection](words))
    assert found.classes_.tolist() == sorted(["ham", "spam", "buttered toast"][:n_classes])
    rows = COLLECTIONS[collection](words)[0]
    np.testing.assert_allclose(found.decision_function(rows), found.decision_function(DENSE), atol=1e-9)


@pytest.mark.parametrize("refinement", ["objective", "statistics"])
def test_regression(refinement: str) -> None:
    bounds = Bounds(row_l2=1.5, label=2.0)
    regressor = SparseRegressor(200.0, 1e-6, method=ScreenRefine(refinement=refinement), bounds=bounds, random_state=0)
    assert_same_fit(regressor, (X, MARGINS), bag_of_csr(MARGINS))


def test_a_fit_without_privacy() -> None:
    """Nothing is rounded to a grid: of sparse rows in several blocks the sums round in another order."""
    assert_close_fit(model(HardThresholding(n_iter=5), epsilon=None), (X, Y), bag_of_csr(Y))
    assert_same_fit(model(HardThresholding(n_iter=5), epsilon=None), (DENSE, Y), array(Y))


@pytest.mark.parametrize(
    ("method", "of"),
    [
        pytest.param(QUICK, "numpy", id="passes"),
        pytest.param(BATCHES, "dask", id="batches"),
        pytest.param(TwoStage(), "dask", id="minimiser"),
    ],
)
def test_surplus_rows_of_a_person_count_as_nothing(method: Any, of: str) -> None:
    """A person's rows may lie in several partitions."""
    groups = np.random.default_rng(0).integers(0, 700, N)
    unfitted = model(method, bounds=Bounds(row_l2=1.5, rows_per_person=2))
    here = unfitted.fit(X, Y, groups=groups).coef_.copy()
    there = unfitted.fit(*bag_of_csr(Y), groups=in_partitions(groups) if of == "dask" else groups).coef_.copy()
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-12)
    assert np.any(here != unfitted.fit(*bag_of_csr(Y)).coef_)


@pytest.mark.parametrize("at", [[0], [2, 3], [5]], ids=["first", "middle", "last"])
def test_partitions_may_be_empty(at: list[int]) -> None:
    """As filters leave them: in bags, arrays and frames."""
    ends = [*range(0, N, PART), N]
    for place in at:
        ends.insert(place, ends[place])
    chunks = (tuple(np.diff(ends).tolist()),)
    rows, y = cut(X, ends), da.from_array(Y, chunks=chunks)
    assert_same_fit(model(QUICK), (X, Y), (bag([[part] for part in rows]), y))
    assert_same_fit(model(QUICK), (X, Y), (bag([[part] if part.shape[0] else [] for part in rows]), y))
    assert_same_fit(model(QUICK), (DENSE, Y), (da.from_array(DENSE, chunks=(*chunks, (D,))), y))
    parts = cut(pd.DataFrame(DENSE, columns=NAMES).assign(label=Y), ends)
    whole = dd.from_delayed([dask.delayed(part) for part in parts], meta=parts[1])
    assert_same_fit(model(QUICK), (DENSE, Y), (whole[NAMES], whole["label"]))


# --- chance, copies and what travels ---------------------------------------------------------------------------------


DRAWING = ("default_rng", "RandomState", "seed", "random", "rand", "randn", "normal", "choice", "permutation")


def forbid_chance() -> None:
    """On a worker: whoever draws a random number from now on fails."""
    import tulle.trusted.randomness

    def refused(*arguments: Any, **settings: Any) -> None:
        raise RuntimeError("a worker drew a random number")

    np.random.before = {name: getattr(np.random, name) for name in DRAWING}  # type: ignore[attr-defined]
    tulle.trusted.randomness.before = tulle.trusted.randomness.keyed_generator  # type: ignore[attr-defined]
    tulle.trusted.randomness.keyed_generator = refused  # type: ignore[assignment]
    for name in DRAWING:
        setattr(np.random, name, refused)


def allow_chance() -> None:
    import tulle.trusted.randomness

    tulle.trusted.randomness.keyed_generator = tulle.trusted.randomness.before  # type: ignore[attr-defined]
    for name, function in np.random.before.items():  # type: ignore[attr-defined]
        setattr(np.random, name, function)


def loaded() -> set[str]:
    return set(sys.modules)


@pytest.fixture
def workers_without_chance(client: Client) -> Iterator[Client]:
    client.run(forbid_chance)
    yield client
    client.run(allow_chance)


@pytest.mark.parametrize("method", ["batches, poisson", "batches, svrg", "two stage", "frank wolfe, selection"])
def test_nothing_random_happens_on_a_worker(workers_without_chance: Client, method: str) -> None:
    """On workers that cannot draw, the fit is the same; none of them has ever loaded the generator of noise."""
    with pytest.raises(RuntimeError, match="drew a random number"):
        workers_without_chance.submit(lambda: np.random.default_rng(), pure=False).result()
    assert_same_fit(model(METHODS[method], bounds=Bounds()), (X, Y), bag_of_csr(Y))
    for modules in workers_without_chance.run(loaded).values():
        assert "tulle.trusted.rows" in modules
        assert "randomgen" not in modules


def test_no_generator_leaves_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent to workers holds no source of noise, wherever it may hang."""
    sent = []
    dumps = cloudpickle.dumps

    class Looking(cloudpickle.Pickler):
        def reducer_override(self, thing: Any) -> Any:
            sent.append(type(thing))
            assert not isinstance(thing, (np.random.Generator, np.random.BitGenerator, np.random.RandomState))
            return super().reducer_override(thing)

    def looked(function: Any) -> bytes:
        with io.BytesIO() as file:
            Looking(file).dump(function)
        return dumps(function)

    with pytest.raises(AssertionError):
        looked(partial(print, np.random.default_rng(0)))
    monkeypatch.setattr(on_dask.cloudpickle, "dumps", looked)
    for method in ("two stage", "batches, poisson", "frank wolfe, selection", "hard thresholding, gaussian"):
        sent.clear()
        model(METHODS[method], bounds=Bounds()).fit(*bag_of_csr(Y))
        assert sent


def twice(*arguments: Any) -> Any:
    """A task that is run, its result lost, and run again on what is left of its arguments."""
    import tulle.backends.dask as module

    module._sum_blocks(*arguments)
    return module._sum_blocks(*arguments)


def pieces_twice(*arguments: Any) -> Any:
    import tulle.backends.dask as module

    module._sum_pieces(*arguments)
    return module._sum_pieces(*arguments)


@pytest.mark.parametrize(
    "method", ["two stage", "batches, svrg", "coordinate descent, selection", "hard thresholding, gaussian"]
)
def test_a_task_may_run_twice(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task does not change what it was given: whoever runs it again gets the same bits."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    unfitted = model(METHODS[method], bounds=Bounds(row_l2=2.0, row_linf=0.4))
    once = unfitted.fit(*bag_of_csr(Y)).coef_.copy()
    monkeypatch.setattr(on_dask, "_sum_blocks", twice)
    monkeypatch.setattr(on_dask, "_sum_pieces", pieces_twice)
    np.testing.assert_array_equal(unfitted.fit(*bag_of_csr(Y)).coef_, once)
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_fits_at_the_same_time_do_not_meet() -> None:
    """Of the same collection, from several threads, on a worker with several threads that hands blocks on uncopied."""
    expected = {method: model(METHODS[method]).fit(X, Y).coef_ for method in SOME}
    with (
        LocalCluster(n_workers=1, threads_per_worker=4, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as other,
        ThreadPoolExecutor(4) as pool,
    ):
        rows, y = bag_of_csr(Y)

        def fitted(method: str) -> Any:
            with other.as_current():
                return model(METHODS[method]).fit(rows, y).coef_

        for method, found in zip(SOME * 2, pool.map(fitted, SOME * 2)):
            np.testing.assert_allclose(found, expected[method], rtol=0, atol=1e-12)


def read(path: str, start: int, end: int) -> list[Any]:
    """A source that cannot be reached the first time."""
    mark = Path(f"{path}.{start}")
    if not mark.exists():
        mark.touch()
        raise OSError("the disk is asleep")
    return [X[start:end]]


def test_a_source_that_fails_is_read_again(tmp_path: Path) -> None:
    """With the retries that its owner asked for."""
    starts = range(0, N, PART)
    with dask.annotate(retries=2):
        parts = [dask.delayed(read)(str(tmp_path / "part"), start, min(start + PART, N)) for start in starts]
        rows = dask.bag.from_delayed(parts)
    found = model(QUICK).fit(rows, in_partitions(Y))
    assert len(list(tmp_path.iterdir())) == len(starts)
    np.testing.assert_allclose(found.coef_, model(QUICK).fit(X, Y).coef_, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "method", ["two stage", "batches, svrg", "coordinate descent, selection", "hard thresholding, gaussian"]
)
def test_no_row_comes_to_the_process_that_fits(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it fetches is no longer than a sum over rows (d + 1 numbers, or a few squared) and its wrapping."""
    sizes: list[int] = []

    def weighed(fetch: Any) -> Any:
        def fetched(*arguments: Any, **settings: Any) -> Any:
            result = fetch(*arguments, **settings)
            if not isinstance(result, distributed.Future):
                sizes.append(len(pickle.dumps(result)))
            return result

        return fetched

    monkeypatch.setattr(distributed.Client, "gather", weighed(distributed.Client.gather))
    monkeypatch.setattr(distributed.Future, "result", weighed(distributed.Future.result))
    model(METHODS[method], bounds=Bounds()).fit(*bag_of_csr(Y))
    assert len(sizes) >= 4
    # Facts about five partitions; a sum; a square of at most nine parameters.
    assert max(sizes) < 8 * (D + 1) + 1200
    part = X[:PART]
    assert max(sizes) < min(part.data.nbytes, 8 * N) / 6


def test_what_is_fetched_is_weighed(client: Client) -> None:
    """The test above would see rows: they come through gather or result."""
    assert len(pickle.dumps(client.submit(lambda: DENSE[:PART]).result())) > 8 * (D + 1) + 1200


# --- the bill and the report -----------------------------------------------------------------------------------------


def test_the_report_says_who_saw_sums(client: Client) -> None:
    here, there = model(QUICK).fit(X, Y).privacy_, model(QUICK).fit(*bag_of_csr(Y)).privacy_
    assert there.who_saw_what[:2] == DaskRows.seen_by
    for who in ("workers", "scheduler", "process that ran fit"):
        assert who in there.who_saw_what[0]
    assert there.who_saw_what[2:] == here.who_saw_what[1:]
    assert "workers of a Dask cluster" in str(there)
    assert "Dask" not in str(here)


def test_the_ledger_does_not_see_where_rows_are(tmp_path: Path) -> None:
    entries = []
    for name, rows in (("array", (X, Y)), ("cluster", bag_of_csr(Y))):
        FileLedger.create(tmp_path / name, "rows", Budget(500.0, 1e-5))
        with FileLedger(tmp_path / name, "rows") as ledger:
            model(bounds=Bounds()).fit(*rows)
        entries.append([(one.what, one.epsilon, one.delta) for one in ledger.entries])
    assert entries[0] == entries[1]
    assert len(entries[0]) == 1


def changed(entry: int, value: float) -> tuple[Any, Any]:
    """A bag in which one entry is another number."""
    rows = X.copy()
    rows.data[entry] = value
    return bag([[part] for part in cut(rows)]), in_partitions(Y)


def words_and_numbers() -> tuple[Any, Any]:
    return bag([[part] for part in cut(X)]), bag([[part] if k else [part.astype(str)] for k, part in enumerate(cut(Y))])


def objects() -> tuple[Any, Any]:
    rows = pd.DataFrame(DENSE[:, :3], columns=["a", "b", "c"]).assign(town=np.where(Y > 0, "Rome", "Oslo"))
    return dd.from_pandas(rows, chunksize=PART), dd.from_pandas(pd.Series(Y), chunksize=PART)


BAD: dict[str, tuple[Any, str]] = {
    "a NaN in one partition": (partial(changed, -1, np.nan), "partition 4 of the rows: Input X contains NaN"),
    "an infinite entry": (partial(changed, 0, np.inf), "infinity"),
    "a NaN in a dense array": (
        lambda: (da.from_array(np.where(DENSE > 0.99, np.nan, DENSE), chunks=(PART, D)), in_partitions(Y)),
        "partition . of the rows: Input X contains NaN",
    ),
    "words for features": (objects, "could not convert"),
    "other widths": (
        lambda: (bag([[part[:, :90] if k == 3 else part] for k, part in enumerate(cut(X))]), in_partitions(Y)),
        r"the partitions have \[90, 100\] columns",
    ),
    "other widths in one partition": (lambda: (bag([[X[:, :90], X]]), bag([[Y, Y]])), "partition 0 of the rows"),
    "fewer targets": (lambda: (array(Y)[0], in_partitions(Y[:-1])), "X has 2,000 rows and y has 1,999"),
    "fewer targets of a bag": (lambda: (bag_of_csr(Y)[0], in_partitions(Y[:-1])), "X has 320 rows there and y has 319"),
    "other partitions": (lambda: (bag_of_csr(Y)[0], da.from_array(Y, chunks=500)), "X has 5 partitions and y has 4"),
    "targets in memory": (lambda: (bag_of_csr(Y)[0], Y), "X is a Dask collection but y is not"),
    "no targets": (lambda: (bag_of_csr(Y)[0], None), "y is None"),
    "targets that are not finite": (lambda: bag_of_csr(np.where(Y > 0, np.nan, 0.0)), "y contains NaN"),
    "one class": (lambda: bag_of_csr(np.ones(N)), "at least two classes"),
    "words and numbers for labels": (words_and_numbers, "labels must be all strings or all numbers"),
    "no rows": (lambda: (bag([[X[:0]], []]), bag([[Y[:0]], []])), "no partition has a row"),
    "one row": (lambda: (bag([[X[:1]]]), bag([[Y[:1]]])), "at least 2 rows"),
    "one dimension": (lambda: (in_partitions(Y), in_partitions(Y)), "two dimensions"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_before_anything_is_billed(case: str) -> None:
    make, message = BAD[case]
    rows = make()
    with Ledger(Budget(300.0, 1e-5)) as ledger, pytest.raises(ValueError, match=message):
        model(QUICK, bounds=Bounds()).fit(*rows)
    assert ledger.epsilon == 0


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        pytest.param("poisson", MARGINS, "needs targets >= 0", id="negative counts"),
        pytest.param(
            "squared", np.where(Y > 0, "yes", "no"), "y contains text, but a regression needs numbers", id="words"
        ),
    ],
)
def test_wrong_targets_of_a_regression_are_refused_before_the_bill(loss: str, y: Any, message: str) -> None:
    estimator = SparseRegressor(1.0, 1e-6, loss=loss, bounds=Bounds(row_l2=1.0, label=1.0))
    with Ledger(Budget(300.0, 1e-5)) as ledger, pytest.raises(ValueError, match=message):
        estimator.fit(*bag_of_csr(y))
    assert ledger.epsilon == 0


def test_without_a_cluster_the_way_to_one_is_said() -> None:
    """In a process of its own: here there is a cluster."""
    code = (
        "import dask.array as da\nfrom tulle import Budget, Ledger, SparseClassifier\n"
        "with Ledger(Budget(300.0, 1e-5)) as ledger:\n"
        "    try:\n        SparseClassifier().fit(da.ones((9, 2), chunks=3), da.arange(9, chunks=3) % 2)\n"
        "    except ValueError as error:\n        print(error)\n"
        "print(ledger.epsilon)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    message, spent = done.stdout.splitlines()
    assert "no cluster is connected; connect one first" in message
    assert float(spent) == 0


def test_groups_of_other_rows_are_refused_before_the_bill() -> None:
    with Ledger(Budget(300.0, 1e-5)) as ledger, pytest.raises(ValueError, match="groups has shape"):
        model(QUICK).fit(*bag_of_csr(Y), groups=np.zeros(N - 1))
    assert ledger.epsilon == 0


def test_predictions_for_other_columns_are_refused() -> None:
    fitted = model(QUICK).fit(*frame(Y))
    rows = pd.DataFrame(DENSE, columns=NAMES)
    with pytest.raises(ValueError, match="expecting 100 features"):
        fitted.predict(dd.from_pandas(rows[NAMES[:50]], chunksize=PART))
    with pytest.raises(ValueError, match="names"):
        fitted.predict(dd.from_pandas(rows[NAMES[::-1]], chunksize=PART))


# --- sums ------------------------------------------------------------------------------------------------------------


def in_groups(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As of a cluster with so many threads."""
    plan = dask_groups.plan_groups
    monkeypatch.setattr(on_dask, "plan_groups", lambda layout, threads, memory: plan(layout, count, None))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n_parts", [1, 2, 8, 9, 65])
def test_every_row_is_in_a_sum_once(n_parts: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And in its order, whatever the partitions and the blocks are: here about 20 blocks in 9 groups."""
    monkeypatch.setattr(dask_groups, "_DENSE_BLOCK_BYTES", 8 * D * 6)
    monkeypatch.setattr(dask_groups, "_SPARSE_BLOCK_BYTES", 600)
    monkeypatch.setattr(dask_groups, "_LEAST_ROWS", 1)
    in_groups(monkeypatch, 9)
    targets = np.arange(130.0)
    ends = np.linspace(0, 130, n_parts + 1).astype(int)
    rows = bag([[part] for part in cut(X if kind == "sparse" else DENSE, ends)])
    spread = RowsOnDask(rows, bag([[part] for part in cut(targets, ends)]))
    assert len(spread._groups) == 9
    assert len(spread.rows(None).sizes()) > len(spread._groups)
    found = spread.rows(None).reduce(lambda block: block.targets.tolist())
    assert found == targets.tolist()
    numbers = np.array([0, 1, 64, 65, 66, 129])
    assert spread.rows(None).batch(numbers).reduce(lambda block: block.targets.tolist()) == numbers.tolist()
    assert spread.rows(None).batch(numbers[:0]).reduce(lambda block: block.n_rows) == 0
    pieces = spread.rows(None).derive(lambda block: [block.targets[:1], block.targets[1:]])
    assert pieces.sum(np.sum, 5.0) == targets.sum() + 5.0


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_partitions_and_groups_do_not_change_a_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even of exact sums: blocks begin at row numbers, and the order of sums is that of blocks."""
    large = np.random.default_rng(0).standard_normal(D) * 10.0 ** np.arange(D)

    def ask(ends: Any) -> tuple[Any, Any]:
        rows = bag([[part] for part in cut(X if kind == "sparse" else DENSE, ends)])
        held = RowsOnDask(rows, bag([[part] for part in cut(Y, ends)])).rows(None)
        pieces = held.derive(lambda block: [block, block])
        return held.reduce(lambda block: block.gather(block.margins(large[:, None], 0.0))), pieces.sum(
            lambda block: block.gather(block.margins(large[:, None], 0.0)), 0.0
        )

    expected = ask([0, N])
    for count, cuts in ((1, [7, 1999]), (3, range(50, N, 50)), (11, [500])):
        in_groups(monkeypatch, count)
        for one, other in zip(ask([0, *cuts, N]), expected):
            np.testing.assert_array_equal(one, other)


def test_a_group_fits_into_a_worker() -> None:
    """About one group for each thread, and more of rows that are too large for so few."""
    layout = dask_groups.Layout((10**9, 100), False, False, 8 * 10**11)
    few = dask_groups.plan_groups(layout, 40, 10**12)
    assert len(few) == 40
    many = dask_groups.plan_groups(layout, 40, 8 * 10**9)
    assert max(group.stop - group.start for group in many) * 800 <= 1.1 * 10**9
    for plan in (few, many):
        assert [group.start for group in plan] == [0, *(group.stop for group in plan[:-1])]
        assert plan[-1].stop == 10**9
        assert {size for group in plan for size in group.sizes[:-1]} == {layout.step}


def test_rows_are_on_workers_once(client: Client) -> None:
    """What was read is let go when its blocks are made."""
    before = {key for keys in client.has_what().values() for key in keys}
    rows = RowsOnDask(*frame(Y))
    wait(rows._groups)
    end = time.monotonic() + 20
    while (held := {key for keys in client.has_what().values() for key in keys} - before) != {
        group.key for group in rows._groups
    }:
        assert time.monotonic() < end, held
        time.sleep(0.05)


def test_long_questions_are_sent_once(client: Client) -> None:
    """Through the cluster, as a task that can be run again."""
    long = np.random.default_rng(0).standard_normal(20_000)
    rows = RowsOnDask(*bag_of_csr(Y)).rows(None)
    assert rows.reduce(lambda block: long.sum() * block.n_rows) == pytest.approx(long.sum() * N)
    assert isinstance(on_dask._send(client, lambda: long), distributed.Future)
    assert isinstance(on_dask._send(client, lambda: 1), bytes)
