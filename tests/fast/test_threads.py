"""Threads: results in order, equal to the last bit for any number of threads, and failures that are heard of."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from pairwise import reduce_to_pairs

from tulle.fast import compiled_rows, threads
from tulle.trusted.rows import Rows


@pytest.mark.parametrize(
    ("setting", "expected"), [("1", 1), ("3", 3), ("4,2", 4), (" 2 ", 2)], ids=["one", "three", "nested", "spaces"]
)
def test_the_setting_says_how_many(setting: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert threads.n_threads() == expected


@pytest.mark.parametrize("setting", ["", "0", "many"], ids=["empty", "none", "a word"])
def test_without_a_number_there_is_one_for_each_core(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda process: {0, 1, 5}, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert threads.n_threads() == 3


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("jobs", [0, 1, 2, 7])
def test_results_come_in_the_order_of_jobs(jobs: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(count))
    seen = []

    def job(number: int) -> int:
        seen.append(threading.get_ident())
        return number**2

    assert threads.together([partial(job, number) for number in range(jobs)]) == [k**2 for k in range(jobs)]
    assert len(seen) == jobs
    if jobs and count == 1:
        assert set(seen) == {threading.get_ident()}


def test_two_threads_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    meeting = threading.Barrier(2, timeout=10)
    threads.together([meeting.wait, meeting.wait])  # each waits until the other has come


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_in_any_thread_is_raised(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")

    def job(number: int) -> None:
        if number == failing:
            raise ZeroDivisionError("of this job")

    with pytest.raises(ZeroDivisionError, match="of this job"):
        threads.together([partial(job, 0), partial(job, 1)])


def test_threads_know_which_warnings_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with np.errstate(divide="ignore"):
        assert threads.together([lambda: np.geterr()["divide"]] * 2) == ["ignore"] * 2


def _matrix(n: int, d: int, kind: str) -> Any:
    rng = np.random.default_rng(7)
    dense = np.where(rng.random((n, d)) < 0.4, rng.normal(size=(n, d)), 0.0)
    if kind == "empty lines":
        dense[: n // 2] = 0.0
    elif kind == "no entries":
        dense[:] = 0.0
    elif kind == "one full line":
        dense[1:] = 0.0
    matrix = sp.csr_array(dense)
    return sp.csr_array((matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)), (n, d))


@reduce_to_pairs()
@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("kind", ["plain", "empty lines", "no entries", "one full line"])
@pytest.mark.parametrize("shape", [(11, 6), (1, 6), (5, 1)], ids=["many lines", "one line", "one column"])
def test_a_shared_product_is_scipys(
    shape: tuple[int, int], kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_WORTH_SHARING", 0)
    monkeypatch.setenv("OMP_NUM_THREADS", str(count))
    matrix = _matrix(*shape, kind)
    for vectors in (np.arange(1.0, shape[1] + 1), np.random.default_rng(3).normal(size=(shape[1], 2))):
        np.testing.assert_array_equal(threads.product(matrix, vectors), matrix @ vectors)


def test_sums_over_rows_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit: a seed gives the same model on every machine of a kind."""
    monkeypatch.setattr(threads, "_WORTH_SHARING", 0)
    monkeypatch.setattr(compiled_rows, "_SPARSE_PART_ENTRIES", 16)
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 40), density=0.3, format="csr", random_state=rng)
    weights, slopes, features = rng.normal(size=(40, 1)), rng.normal(size=(300, 1)), np.arange(0, 40, 3)
    answers = []
    for count in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", count)
        rows = Rows(X, np.zeros(300))
        rows.clip_rows(0.5)
        block = rows.blocks[0]
        answers.append([block.margins(weights, 0.0), block.gather(slopes), block.gather_on(slopes[:, 0], features)])
    for others in answers[1:]:
        for one, other in zip(answers[0], others):
            np.testing.assert_array_equal(one, other)


@reduce_to_pairs()
@pytest.mark.parametrize("n", [1, 3, 200], ids=["one row", "fewer rows than lanes", "many rows"])
@pytest.mark.parametrize("kept", [1, 40], ids=["one weight", "all weights"])
@pytest.mark.parametrize("storage", ["float64", "float32", "fortran"])
@pytest.mark.parametrize("bound", [None, 0.5], ids=["unclipped", "clipped"])
def test_dense_products_in_lanes_are_numpys(
    n: int, kept: int, storage: str, bound: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_rows, "_LARGE_DENSE", 0)
    rng = np.random.default_rng(n)
    exact = np.round(64 * rng.normal(size=(n, 40))) / 64  # float32 holds these
    X = {"float64": exact, "float32": exact.astype(np.float32), "fortran": np.asfortranarray(exact)}[storage]
    weights, slopes = np.zeros((40, 1)), rng.normal(size=(n, 1))
    weights[:kept] = rng.normal(size=(kept, 1))
    expected = exact if bound is None else np.clip(exact, -bound, bound)
    answers = []
    for count in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", count)
        rows = Rows(X, np.zeros(n))
        if bound is not None:
            rows.clip_entries(bound)
        answers.append((rows.blocks[0].margins(weights, 0.0), rows.blocks[0].gather(slopes)))
        np.testing.assert_array_equal(answers[-1][0], answers[0][0])
        np.testing.assert_array_equal(answers[-1][1], answers[0][1])
    np.testing.assert_allclose(answers[0][0], expected @ weights, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(answers[0][1], expected.T @ slopes, rtol=1e-12, atol=1e-12)
