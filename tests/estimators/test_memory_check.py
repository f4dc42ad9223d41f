"""A fit that would run out of memory is refused before the bill, by the number of columns alone, in every format."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import tulle.estimators.memory_check as memory_check
import tulle.estimators.request
from tulle import Bounds, Budget, FileLedger, Ledger, PrivateSearch, SparseClassifier, SparseRegressor
from tulle.backends.block_writer import write_blocks
from tulle.cli import main
from tulle.estimators.lasso_path import lasso_path
from tulle.estimators.memory_check import TooLargeError, check_memory, count_vectors
from tulle.methods import METHODS
from tulle.methods.base import MOST_DENSE_VECTORS
from tulle.methods.hard_thresholding import HardThresholding

N, WIDE = 60, 100_000
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 4))
Y = np.arange(N) % 2
BOUNDS = Bounds(row_l2=1.0, label=1.0)


def wide_rows() -> Any:
    """A few entries, of which one has a large index."""
    rows = sp.lil_array((N, WIDE))
    rows[np.arange(N), np.arange(N)] = 1.0
    rows[7, WIDE - 1] = 0.5
    return rows.tocsr()


def model(kind: Any = SparseClassifier, **settings: Any) -> Any:
    return kind(1.0, 1e-5, **{"n_nonzero": 2, "bounds": BOUNDS, "random_state": 0, **settings})


def search() -> PrivateSearch:
    return PrivateSearch(model(), {"n_nonzero": [1, 2]}, budget=Budget(1.0, 1e-5), random_state=0)


FITS: dict[str, Callable[[Any], Any]] = {
    "a classification": lambda rows: model().fit(rows, Y),
    "a regression": lambda rows: model(SparseRegressor).fit(rows, Y.astype(float)),
    "three classes": lambda rows: model(method="hard_thresholding").fit(rows, np.arange(N) % 3),
    "a path": lambda rows: lasso_path(rows, Y.astype(float), [0.5, 1.0], 1.0, 1e-5, bounds=BOUNDS),
    "bounds": lambda rows: Bounds.estimate(rows, epsilon=1.0),
    "a search": lambda rows: search().fit(rows, Y),
}


@pytest.mark.parametrize("what", FITS)
def test_too_many_columns_are_refused_before_the_bill(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The message names the largest index, which the shape says, and what to change."""
    monkeypatch.setattr(memory_check, "free_memory", lambda: 8 * WIDE * 5)
    with Ledger(Budget(5.0, 1e-3)) as ledger, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=r"100,000 columns needs up to .*nothing was billed.*index is 99,999,"):
            FITS[what](wide_rows())
        assert ledger.fits == []
        monkeypatch.setattr(memory_check, "free_memory", lambda: None)  # a system that does not say
        if what in ("a classification", "bounds"):
            FITS[what](wide_rows())
            assert len(ledger.fits) == 1


def test_the_refusal_depends_on_the_shape_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which row has the index, and how many entries there are, changes nothing."""
    monkeypatch.setattr(memory_check, "free_memory", lambda: 8 * WIDE * 5)
    said = set()
    for rows in (wide_rows(), wide_rows()[::-1], sp.csr_array((N, WIDE)), sp.csc_array(wide_rows())):
        with pytest.raises(TooLargeError) as caught:
            model().fit(rows, Y)
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_copies_of_dense_rows_count(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    """By public rules: entries are clipped, or are not of 64 bits. Otherwise rows stay where they are."""
    rows = RNG.uniform(-1, 1, (2000, 4)).astype(dtype)
    monkeypatch.setattr(memory_check, "free_memory", lambda: rows.shape[0] * 4 * 8)
    with pytest.raises(TooLargeError):
        model(bounds=Bounds(row_linf=0.5)).fit(rows, np.arange(2000) % 2)
    if dtype == np.float64:
        model(bounds=Bounds(row_l2=0.5)).fit(rows, np.arange(2000) % 2)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", [*METHODS, "selection"])
def test_no_method_holds_more_vectors_than_it_says(monkeypatch: pytest.MonkeyPatch, name: str, n_classes: int) -> None:
    """As measured, from the bill to the end of the fit."""
    method: Any = {
        "selection": lambda: HardThresholding(n_iter=2, step=0.5, noise="selection"),
        "frank_wolfe": lambda: METHODS[name](n_iter=2),
        "coordinate_descent": lambda: METHODS[name](n_iter=2),
    }.get(name, lambda: METHODS[name]())()
    if n_classes > 2 and name in ("fit_again", "screen_refine", "two_stage", "knowledge_transfer"):
        pytest.skip("for one output")
    fitted, y = model(method=method), np.arange(N) % n_classes
    fitted.fit(wide_rows()[:, :200], y)  # compiles kernels first
    real, found = tulle.estimators.request.open_logged_account, []

    def opened(*given: Any, **more: Any) -> Any:
        tracemalloc.start()
        return real(*given, **more)

    def said(rows: Any, planned: Any, steps: int = 0) -> None:
        found.append(count_vectors(planned[0].method))
        check_memory(rows, planned, steps)

    monkeypatch.setattr(tulle.estimators.request, "open_logged_account", opened)
    monkeypatch.setattr("tulle.estimators.sparse.check_memory", said)
    try:
        fitted.fit(wide_rows(), y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    outputs = 1 if n_classes == 2 else n_classes
    held = peak / (8 * WIDE * outputs)
    assert held <= found[0] <= MOST_DENSE_VECTORS
    assert held >= 3  # or the count would say nothing


def test_workers_of_a_cluster_and_clients_count() -> None:
    """What they answer is held here at a time, and the smallest machine must hold its sums."""
    from tulle.backends.rows_elsewhere import Spread

    class Elsewhere(Spread):
        shape, feature_names = (N, WIDE), None
        labels = smallest_target = rows = map = None  # type: ignore[assignment]

    Elsewhere.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    rows: Any = Elsewhere()  # type: ignore[abstract]
    asked = model()
    asked.classes_ = np.array([0, 1])
    loss = asked._targets(Y)[1]
    planned = asked._request(loss, N).plan_all(rows.shape)
    vectors = count_vectors(planned[0].method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_check, "free_memory", lambda: 8 * WIDE * (vectors + 3))
        check_memory(rows, planned)
        rows.answers_at_once = 4
        with pytest.raises(TooLargeError, match="this process may take"):
            check_memory(rows, planned)
        rows.answers_at_once, rows.least_memory = 1, 8 * WIDE * 9
        with pytest.raises(TooLargeError, match="the smallest worker has"):
            check_memory(rows, planned)


# --- files -----------------------------------------------------------------------------------------------------------


def write_all(folder: Path) -> dict[str, list[str]]:
    """The same rows in every format, and how each is read."""
    frame = pd.DataFrame(X, columns=[*"abcd"]).assign(y=Y)
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_parquet(folder / "x.parquet")
    np.savez(folder / "x.npz", X=X, y=Y)
    lines = [f"{y} " + " ".join(f"{j + 1}:{value}" for j, value in enumerate(row)) for row, y in zip(X, Y)]
    (folder / "x.svm").write_text("\n".join(lines))
    write_blocks(folder / "dense.blocks", [(X, Y)])
    write_blocks(folder / "sparse.blocks", [(sp.csr_array(X), Y)])
    named = ["--target", "y"]
    return {"x.csv": named, "x.parquet": named, "x.npz": [], "x.svm": [], "dense.blocks": [], "sparse.blocks": []}


def test_every_format_is_refused_before_the_bill(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, no entry, no folder."""
    FileLedger.create(tmp_path / "ledger.json", "rows", Budget(3.0, 1e-3))
    monkeypatch.setattr(memory_check, "free_memory", lambda: 100)
    for name, words in write_all(tmp_path).items():
        common = f"--epsilon 1 --row-l2 1 --quiet --ledger {tmp_path}/ledger.json --dataset rows -o {tmp_path}/m"
        assert main(["fit", str(tmp_path / name), *words, *common.split()]) == 2
        assert "The largest column index is 3, counted from 0" in capsys.readouterr().err, name
        assert not (tmp_path / "m").exists()
    assert FileLedger(tmp_path / "ledger.json", "rows").entries == ()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_mistyped_index_costs_nothing(tmp_path: Path) -> None:
    """A real process with 8 GB of address space, and an index that a weight each would fit for: not seventeen."""
    import resource

    lines = [f"{k % 2} {k % 5 + 1}:1" for k in range(200)]
    lines[77] += " 300000000:1"
    (tmp_path / "x.svm").write_text("\n".join(lines))
    FileLedger.create(tmp_path / "ledger.json", "rows", Budget(3.0, 1e-3))
    options = {"--epsilon": "1", "--row-l2": "1", "--ledger": "ledger.json", "--dataset": "rows", "-o": "m"}
    words = ["fit", "x.svm", "--quiet", *(word for pair in options.items() for word in pair)]
    limit = 8 << 30
    ran = subprocess.run(
        [sys.executable, "-m", "tulle", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert ran.returncode == 2, ran.stderr
    assert "The largest column index is 299,999,999, counted from 0" in ran.stderr
    assert "--n-features" in ran.stderr
    assert FileLedger(tmp_path / "ledger.json", "rows").entries == ()
    assert not (tmp_path / "m").exists()
