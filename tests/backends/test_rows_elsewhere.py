"""Rows in folders of blocks: the fit of the same rows in memory, block by block, and nothing else left in memory.

The tests of Dask are in tests/cluster.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from spread_fits import BOUNDS, METHODS, assert_same_fit, margins, model, sparse_rows

from tulle import Bounds, Budget, FileLedger, Ledger, SparseRegressor
from tulle.backends import disk
from tulle.backends.block_folder import BlockFolder
from tulle.backends.block_writer import write_blocks
from tulle.backends.disk import DiskRows, RowsOnDisk
from tulle.backends.input_kinds import find_spread
from tulle.backends.rows_elsewhere import count_bytes
from tulle.fast.newton import NewtonTerms, margins_of
from tulle.methods import HardThresholding, ScreenRefine, StochasticHardThresholding
from tulle.methods.loss_functions import Logistic
from tulle.trusted.objectives import Part
from tulle.trusted.rows import Pieces, Rows, make_block, sum_in_pairs

N = 600
BLOCK = 130  # the last block is shorter
X = sparse_rows(N)
MARGINS = margins(X)
Y = (MARGINS > 0).astype(float)
ARRAYS = {"sparse": X, "dense": X.toarray()}
KINDS = list(ARRAYS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BlockFolder]:
    """The same rows, sparse and dense."""
    path = tmp_path_factory.mktemp("folders")
    return {kind: write_blocks(path / kind, [(rows, Y)], rows_per_block=BLOCK) for kind, rows in ARRAYS.items()}


def on_disk(folder: BlockFolder, active: Any = None) -> Rows:
    return RowsOnDisk(folder.X, folder.y).coded(lambda y: 2 * y - 1).rows(active)


# --- the same fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits_a_folder_as_it_fits_an_array(
    folders: dict[str, BlockFolder], method: str, kind: str
) -> None:
    folder = folders[kind]
    assert_same_fit(model(METHODS[method]), (ARRAYS[kind], Y), (folder.X, folder.y))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(HardThresholding(n_iter=2), id="passes"),
        pytest.param(StochasticHardThresholding(batch=60, passes=0.2), id="batches"),
        pytest.param(ScreenRefine(), id="minimiser"),
    ],
)
def test_rows_on_disk_obey_the_same_bounds(
    folders: dict[str, BlockFolder], method: Any, bounds: str, kind: str
) -> None:
    """Files are read anew for every question, and every time clipped."""
    folder = folders[kind]
    assert_same_fit(model(method, bounds=BOUNDS[bounds]), (ARRAYS[kind], Y), (folder.X, folder.y))


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_into_memory_is_made_anew(
    folders: dict[str, BlockFolder], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no room for the columns that a solver works on they are read for every sum, and the sums are the same."""
    folder = folders[kind]
    made: list[tuple[int, int]] = []
    keep = disk._PiecesOnDisk._keep

    def seen(self: Any, k: int, pieces: Any) -> None:
        made.append((k, sum(map(count_bytes, pieces))))
        keep(self, k, pieces)

    def fitted(room: int) -> tuple[Any, list[int]]:
        """The weights, and how often the pieces of each block were made."""
        made.clear()
        monkeypatch.setattr(disk, "ROOM", room)
        weights = model().fit(folder.X, folder.y).coef_
        return weights, np.bincount([k for k, _ in made]).tolist()

    monkeypatch.setattr(disk._PiecesOnDisk, "_keep", seen)
    weights, once = fitted(disk.ROOM)
    assert len(set(once)) == 1
    for_two = made[0][1] + made[1][1] + made[2][1] // 2
    for room, held in ((for_two, 2), (0, 0)):
        others, counts = fitted(room)
        np.testing.assert_array_equal(others, weights)
        assert counts[:held] == once[:held]
        assert min(counts[held:]) > 3 * once[0]


def test_surplus_rows_of_a_person_count_as_nothing(folders: dict[str, BlockFolder], tmp_path: Path) -> None:
    groups = np.random.default_rng(0).integers(0, 250, N)
    settings = {"bounds": Bounds(row_l2=1.5, rows_per_person=2)}
    folder = write_blocks(tmp_path / "groups", [(X, Y, groups)], rows_per_block=BLOCK)
    for method in ("hard_thresholding", "screen_refine"):
        assert_same_fit(model(method, **settings), (X, Y), (folder.X, folder.y), groups=folder.groups)
    one = model("hard_thresholding", **settings).fit(folder.X, folder.y, groups=folder.groups)
    all_rows = model("hard_thresholding", **settings).fit(folder.X, folder.y)
    assert np.any(one.coef_ != all_rows.coef_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("why", ["surplus", "too long", "entries clipped"])
def test_rows_that_do_not_count_are_zeros_every_time_they_are_read(tmp_path: Path, kind: str, why: str) -> None:
    """In memory only: the files are what they were."""
    rows = ARRAYS["dense"].copy()
    rows[7], rows[-1, 3] = 1.7e308, -1.7e308
    active = np.ones(N, dtype=bool)
    active[[7, N - 1]] = False
    given = sp.csr_array(rows) if kind == "sparse" else rows
    folder = write_blocks(tmp_path / "rows", [(given, Y)], rows_per_block=BLOCK)
    found = on_disk(folder, None if why == "too long" else active)
    with np.errstate(all="ignore"):
        if why == "entries clipped":
            found.clip_entries(0.5)
        found.clip_rows(1e9)
    numbers = np.array([3, 7, 8, 200, N - 1])
    for _ in range(2):
        for one, which in ((found, np.arange(N)), (found.batch(numbers), numbers)):
            contents = one.reduce(lambda block: block.margins(np.eye(X.shape[1]), 0.0), lambda a, b: np.vstack([a, b]))
            assert not contents[~active[which]].any()
            assert np.abs(contents).max() <= 1.0
            sums = one.reduce(lambda block: block.gather(np.where(block.active, 1.0, 1e300)[:, None]))
            np.testing.assert_allclose(sums[:, 0], contents.sum(axis=0), atol=1e-9)
            targets = one.reduce(lambda block: block.targets, lambda a, b: np.concatenate([a, b]))
            np.testing.assert_array_equal(targets, np.where(active, 2 * Y - 1, 0.0)[which])
            columns = one.reduce(
                lambda block: sp.csr_array(block.columns(np.arange(5))).toarray(), lambda a, b: np.vstack([a, b])
            )
            np.testing.assert_array_equal(columns, contents[:, :5])
        held = found.reduce(lambda block: np.abs(block._csc.data if kind == "sparse" else block._rows).max(), max)
        assert held <= 1.0
    folder.verify()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_may_be_words(tmp_path: Path, kind: str, n_classes: int) -> None:
    words = np.array(["ham", "spam", "toast"])[np.digitize(MARGINS, [0.0, 0.7][: n_classes - 1])]
    folder = write_blocks(tmp_path / "words", [(ARRAYS[kind], words)], rows_per_block=BLOCK)
    found = assert_same_fit(model(HardThresholding(n_iter=2)), (ARRAYS[kind], words), (folder.X, folder.y))
    assert found.classes_.tolist() == ["ham", "spam", "toast"][:n_classes]
    np.testing.assert_allclose(found.predict_proba(folder.X), found.predict_proba(X), atol=1e-12)
    assert found.score(folder.X, folder.y) == found.score(X, words)


@pytest.mark.parametrize("refinement", ["objective", "statistics"])
def test_regression(folders: dict[str, BlockFolder], refinement: str) -> None:
    bounds = Bounds(row_l2=1.5, label=2.0)
    regressor = SparseRegressor(200.0, 1e-6, method=ScreenRefine(refinement=refinement), bounds=bounds, random_state=0)
    assert_same_fit(regressor, (X, MARGINS), (folders["sparse"].X, MARGINS))


def test_a_fit_without_privacy(folders: dict[str, BlockFolder]) -> None:
    folder = folders["sparse"]
    assert_same_fit(model(HardThresholding(n_iter=20), epsilon=None), (X, Y), (folder.X, folder.y))


# --- messages and bills ----------------------------------------------------------------------------------------------


def test_the_report_says_who_read_the_folder(folders: dict[str, BlockFolder]) -> None:
    folder = folders["sparse"]
    here, there = model().fit(X, Y).privacy_, model().fit(folder.X, folder.y).privacy_
    assert there.who_saw_what[:2] == DiskRows.seen_by
    assert any("folder of blocks" in line for line in there.who_saw_what)
    assert not any("folder" in line for line in here.who_saw_what)
    assert there.who_saw_what[2:] == here.who_saw_what[1:]


def test_the_ledger_does_not_see_where_rows_are(folders: dict[str, BlockFolder], tmp_path: Path) -> None:
    entries = []
    for name, rows in (("array", (X, Y)), ("folder", (folders["sparse"].X, Y))):
        FileLedger.create(tmp_path / name, "rows", Budget(500.0, 1e-5))
        with FileLedger(tmp_path / name, "rows") as ledger:
            model(bounds=Bounds()).fit(*rows)
        entries.append(ledger.entries)
    here, there = entries
    assert [(one.what, one.epsilon, one.delta) for one in here] == [(one.what, one.epsilon, one.delta) for one in there]
    assert len(here) == 1


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("too few targets", "X has 600 rows and y has 599"),
        ("no targets", "y is None; pass the targets of these rows"),
        ("targets that are not finite", "Input y contains NaN"),
        ("two columns of targets", "y should be a 1d array"),
        ("one class", "at least two classes"),
        ("negative counts", "needs targets >= 0"),
        ("words for a regression", "y contains text, but a regression needs numbers"),
        ("a damaged block", "it is damaged"),
        ("the folder itself", "pass folder.X"),
        ("groups of other rows", "groups has shape"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_billed(tmp_path: Path, case: str, message: str) -> None:
    folder = write_blocks(tmp_path / "rows", [(X.toarray(), Y)], rows_per_block=BLOCK)
    rows: Any = folder.X
    estimator: Any = model()
    y: Any = {
        "too few targets": Y[:-1],
        "no targets": None,
        "targets that are not finite": np.where(Y > 0, np.nan, 1.0),
        "two columns of targets": np.column_stack([Y, Y]),
        "one class": np.ones(N),
        "negative counts": MARGINS,
        "words for a regression": np.where(Y > 0, "yes", "no"),
    }.get(case, Y)
    if case in ("negative counts", "words for a regression"):
        loss = "poisson" if case == "negative counts" else "squared"
        estimator = SparseRegressor(1.0, 1e-6, loss=loss, bounds=Bounds(row_l2=1.0, label=1.0))
    if case == "a damaged block":
        path = next(Path(rows.path).glob("*3.dense.npy"))
        with path.open("r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(np.array([np.nan]).tobytes())
    if case == "the folder itself":
        rows = folder
    groups = np.zeros(N - 1) if case == "groups of other rows" else None
    with Ledger(Budget(300.0, 1e-5)) as ledger, pytest.raises((ValueError, TypeError), match=message):
        estimator.fit(rows, y, groups=groups)
    assert ledger.epsilon == 0


def test_a_model_of_other_columns_is_refused(folders: dict[str, BlockFolder], tmp_path: Path) -> None:
    narrow = write_blocks(tmp_path / "narrow", [X[:, :50]])
    with pytest.raises(ValueError, match="X has 50 features, but SparseClassifier is expecting 100"):
        model().fit(folders["sparse"].X, Y).predict(narrow.X)


@pytest.mark.parametrize("of", [X, X.toarray(), X.toarray().tolist(), pd.DataFrame({"a": [1.0]})], ids=type)
def test_arrays_are_nowhere_else(of: Any) -> None:
    assert find_spread(of) is None


def test_a_folder_is_on_disk(folders: dict[str, BlockFolder]) -> None:
    found = find_spread(folders["sparse"].X, Y)
    assert isinstance(found, RowsOnDisk)
    assert found.shape == (N, 100)


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say what is mapped")
@pytest.mark.parametrize("kind", KINDS)
def test_one_block_at_a_time_is_mapped(folders: dict[str, BlockFolder], kind: str) -> None:
    """While it is looked at; between questions there is none, whatever was asked."""

    def mapped() -> set[int]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        names = [Path(line.split()[-1]).name for line in lines if folders[kind].X.path in line]
        return {int(name.partition(".")[0]) for name in names}

    rows = on_disk(folders[kind])
    assert mapped() == set()
    rows.clip_entries(0.5)
    rows.clip_rows(1.0)
    seen = rows.reduce(lambda block: [mapped()])
    assert seen == [{k} for k in range(folders[kind].X.n_blocks)]
    batch = rows.batch(np.arange(0, N, 7))
    pieces = rows.derive(lambda block: [block.columns(np.arange(3))])
    pieces.sum(lambda piece: piece.sum(), 0.0)
    assert batch.reduce(lambda block: block.n_rows) == len(range(0, N, 7))
    assert mapped() == set()


# --- sums over blocks and pieces -------------------------------------------------------------------------------------


def in_blocks(sizes: list[int]) -> Rows:
    ends = np.cumsum(sizes)
    targets = np.arange(float(N))  # each row has its number
    return Rows.of_blocks([make_block(X[e - s : e], targets[e - s : e]) for e, s in zip(ends, sizes)])


@pytest.mark.parametrize(
    "numbers",
    [[0], [99], [100], [299, 300], [0, 99, 100, 101, 399, 400, 599], list(range(0, 600, 3)), list(range(599)), []],
    ids=["first", "end", "start", "seam", "all seams", "some", "all but one", "none"],
)
def test_a_batch_holds_the_rows_of_its_numbers(numbers: list[int]) -> None:
    """Whatever blocks they are in; each once."""
    batch = in_blocks([100, 200, 100, 1, 199]).batch(np.array(numbers, dtype=np.intp))
    found = batch.reduce(lambda block: list(block.targets))
    assert found == numbers
    sums = batch.reduce(lambda block: block.gather(np.ones((block.n_rows, 1)))[:, 0])
    np.testing.assert_allclose(sums, X[numbers].sum(axis=0), atol=1e-12)


def test_a_batch_of_all_rows_is_the_rows() -> None:
    rows = in_blocks([100, 500])
    assert rows.batch(np.arange(N)) is rows


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 13, 100])
def test_pieces_are_summed_in_their_order_and_in_pairs(n: int) -> None:
    """Each is there once, where it belongs, and goes through few additions."""

    class Value:
        def __init__(self, items: list[int], additions: int = 0) -> None:
            self.items, self.additions = items, additions

        def __add__(self, other: Value) -> Value:
            return Value(self.items + other.items, 1 + max(self.additions, other.additions))

    total = sum_in_pairs(Value([k]) for k in range(n))
    assert total.items == list(range(n))
    assert total.additions <= int(np.ceil(np.log2(n)))
    assert Pieces(iter(range(n))).sum(lambda k: 10 * k, 3) == 3 + 10 * sum(range(n))


def test_what_is_derived_counts_each_row_once(folders: dict[str, BlockFolder]) -> None:
    """Also in the second sum, when some of it is held."""
    rows = on_disk(folders["sparse"])
    pieces = rows.derive(lambda block: [block.targets[:50], block.targets[50:]])
    for _ in range(3):
        assert pieces.sum(len, 0) == N
        assert pieces.sum(np.sum, 0.0) == (2 * Y - 1).sum()


def test_objects_are_as_large_as_their_arrays() -> None:
    part = Part(X[:50], np.ones(50))
    sparse = X[:50].data.nbytes + X[:50].indices.nbytes + X[:50].indptr.nbytes
    assert count_bytes(part) == sparse + 400
    block = make_block(X.toarray(), Y)
    assert count_bytes(block) >= X.shape[0] * X.shape[1] * 8


@pytest.mark.parametrize("features", [X[:50], X[:50].toarray()], ids=KINDS)
def test_the_solver_remembers_one_point_and_no_other(features: Any) -> None:
    """Also where the caller goes on to change the point in place."""
    targets = 2 * Y[:50] - 1
    part, terms = Part(features, targets), NewtonTerms(Logistic(), 1.0, 0.25)
    theta = np.zeros(100)
    for step in range(4):
        fresh = Part(features, targets)
        for of in (terms.gradient, terms.second, terms.hessian):
            np.testing.assert_array_equal(of(part, theta), of(fresh, theta))
        along = terms.slope_along(part, theta, np.full(100, step + 1.0), 0.3)
        assert along == terms.slope_along(fresh, theta, np.full(100, step + 1.0), 0.3)
        theta[step] += 1.0


def test_the_solver_does_not_multiply_twice_for_one_point() -> None:
    part, theta = Part(X[:50], Y[:50]), np.ones(100)
    assert margins_of(part, theta) is margins_of(part, theta.copy())
    assert sp.issparse(part.features)
