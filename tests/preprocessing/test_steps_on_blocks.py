"""Private steps on folders of blocks: the fit of the same rows in memory, transformed block by block, and nothing kept.

The tests of Dask are in tests/cluster/test_private_steps_on_dask.py.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from private_steps import EVERY_STEP, private
from replayed import differences, replayed
from sensitivity_replay import Conversation, Tally, hostile_row
from sklearn.base import clone
from sklearn.preprocessing import Normalizer
from spread_fits import METHODS, STEPS, assert_same_steps, margins, sparse_rows, with_steps
from test_front_replay import OTHER_ROWS, targets, usual
from test_step_replay import PRIVATE_STEPS, told_of_pipeline

from tulle import Bounds, Budget, Ledger, PrivatePipeline, SparseClassifier, load, save
from tulle.backends.block_folder import BlockFolder
from tulle.backends.block_writer import write_blocks
from tulle.backends.disk import RowsOnDisk
from tulle.backends.input_kinds import find_spread, is_elsewhere
from tulle.backends.rows_elsewhere import count_bytes
from tulle.estimators import memory_check
from tulle.federated.server_side.aggregator import RowsAtClients
from tulle.methods import HardThresholding, StochasticHardThresholding
from tulle.preprocessing import PrivateScaler, PrivateWeights
from tulle.preprocessing.private_step import scale_rows
from tulle.trusted.rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore:.*rows of .*:UserWarning")  # of few rows

N = 600
BLOCK = 130  # the last block is shorter
X = sparse_rows(N)
Y = (margins(X) > 0).astype(float)
ARRAYS = {"sparse": X, "dense": X.toarray() * np.r_[1e3, np.ones(99)]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BlockFolder]:
    """The same rows, sparse and dense; the first dense column is in other units."""
    path = tmp_path_factory.mktemp("folders")
    return {kind: write_blocks(path / kind, [(rows, Y)], rows_per_block=BLOCK) for kind, rows in ARRAYS.items()}


# --- the same fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("method", METHODS)
def test_steps_learn_from_a_folder_as_from_an_array(folders: dict[str, BlockFolder], method: str, steps: str) -> None:
    kind, made = STEPS[steps]
    assert_same_steps(with_steps(made, METHODS[method]), (ARRAYS[kind], Y), (folders[kind].X, folders[kind].y))
    folders[kind].verify()


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("batch", [1, 60], ids=["one block", "blocks"])
def test_rows_that_do_not_count_do_not_count_there(tmp_path: Path, steps: str, batch: int) -> None:
    """A person's surplus rows, which lie in several blocks, and rows of no class."""
    kind, made = STEPS[steps]
    labels = np.where(np.arange(N) % 11 == 0, 7.0, Y)
    groups = np.random.default_rng(0).integers(0, 250, N)
    folder = write_blocks(tmp_path / "rows", [(ARRAYS[kind], labels)], rows_per_block=N if batch == 1 else BLOCK)
    for method in (HardThresholding(n_iter=2), StochasticHardThresholding(batch=batch, passes=0.2)):
        unfitted = with_steps(made, method, bounds=Bounds(rows_per_person=2))
        assert_same_steps(unfitted, (ARRAYS[kind], labels), (folder.X, folder.y), groups)


def test_names_and_saved_pipelines(tmp_path: Path) -> None:
    """As of a table in memory: names belong to the pipeline, and are compared."""
    names = [f"column {k}" for k in range(100)]
    parts = {
        order: write_blocks(tmp_path / order, [(ARRAYS["dense"], Y)], rows_per_block=BLOCK, feature_names=given)
        for order, given in (("right", names), ("wrong", names[::-1]))
    }
    fitted = with_steps([PrivateScaler(rounds=6)]).fit(parts["right"].X, Y)
    assert fitted.feature_names_in_.tolist() == fitted.model_.weight_names_.tolist() == names
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(parts["wrong"].X)
    save(fitted, tmp_path / "model.npz")
    found = load(tmp_path / "model.npz")
    for rows in (parts["right"].X, ARRAYS["dense"]):
        np.testing.assert_allclose(found.predict_proba(rows), fitted.predict_proba(parts["right"].X), atol=1e-12)


@pytest.mark.parametrize("kind", ARRAYS)
def test_what_a_step_made_not_finite_counts_as_nothing(folders: dict[str, BlockFolder], kind: str) -> None:
    """Steps of somebody else may divide by zero: the row is left out, as in memory, by every kind of question."""
    for method in ("hard thresholding, gaussian", "batches, poisson", "screen and refine"):
        unfitted = with_steps([Dividing()], METHODS[method])
        assert_same_steps(unfitted, (ARRAYS[kind], Y), (folders[kind].X, folders[kind].y), predict=False)


class Dividing(PrivateWeights):
    """Infinite, and no numbers, where a row's third entry is positive."""

    def prepare(self, X: Any) -> Any:
        return self._divided(X, super().prepare(X))

    def transform(self, X: Any) -> Any:
        return self._divided(X, super().transform(X))

    def _divided(self, X: Any, made: Any) -> Any:
        factors = np.where(np.asarray(X[:, [2]].sum(axis=1)).ravel() > 0, np.inf, 1.0)
        return scale_rows(made, factors)


# --- block by block --------------------------------------------------------------------------------------------------


class Counting(PrivateScaler):
    """Notes how many rows it is given at a time."""

    seen: ClassVar[list[int]] = []

    def transform(self, X: Any) -> Any:
        self.seen.append(X.shape[0])
        return super().transform(X)


def test_no_more_than_a_block_is_transformed_at_a_time(folders: dict[str, BlockFolder]) -> None:
    """And for a batch its own rows alone."""
    Counting.seen.clear()
    method = StochasticHardThresholding(batch=10, passes=0.5, sampling="without_replacement")
    with_steps([Counting(rounds=6)], method).fit(folders["dense"].X, Y)
    assert max(Counting.seen) == BLOCK
    batches = [size for size in Counting.seen if size not in (BLOCK, N % BLOCK)]
    assert sum(batches) > N / 4
    assert max(batches) <= 10


@pytest.mark.parametrize("kind", ARRAYS)
def test_nothing_that_was_transformed_stays(folders: dict[str, BlockFolder], kind: str) -> None:
    """Between questions a block holds some numbers a row, and its entries neither before nor after."""
    spread = RowsOnDisk(folders[kind].X, Y).then(np.abs).then(PrivateWeights().prepare)
    rows = spread.rows(None)
    rows.clip_rows(0.5)
    for _ in range(2):
        assert rows.reduce(lambda block: block.norms("l2").max(), max) == pytest.approx(0.5)
        assert all(count_bytes(block) < 5 * 8 * block.n_rows for block in rows.blocks)
    assert rows.only_block() is None


def test_memory_of_a_dense_block_is_counted(folders: dict[str, BlockFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the bill; of the largest block, not of all rows."""
    block = 8 * 100 * BLOCK
    monkeypatch.setattr(memory_check, "free_memory", lambda: 4 * block)
    SparseClassifier(bounds=Bounds(row_linf=1.0), method=HardThresholding(n_iter=2)).fit(folders["dense"].X, Y)
    with Ledger(Budget(1e3, 0.1)) as ledger, pytest.raises(memory_check.TooLargeError):
        with_steps([PrivateScaler()], HardThresholding(n_iter=2)).fit(folders["dense"].X, Y)
    assert not ledger.fits
    monkeypatch.setattr(memory_check, "free_memory", lambda: 5 * block)
    assert 5 * block < 8 * 100 * N * 4
    with_steps([PrivateScaler()], HardThresholding(n_iter=2)).fit(folders["dense"].X, Y)


# --- attacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY_STEP)
def test_no_answer_moves_further_than_its_sensitivity(name: str, tmp_path: Path) -> None:
    """As in test_private_pipeline.py, in blocks of five rows, with the replaced person in two of them."""
    tally, rng = Tally(), np.random.default_rng(6)
    for number in range(12):
        n, d = 12, int(rng.choice([1, 3]))
        rows = np.array([hostile_row(rng, d) for _ in range(n)]) if number % 2 else rng.normal(size=(n, d))
        other = rows.copy()
        other[0], other[5] = hostile_row(rng, d), hostile_row(rng, d)
        kind = sp.csr_array if name == "weights" and number % 3 else np.array
        y = np.array([True, False] * 6)
        conversation = Conversation(f"{name}, pair {number}", tally)
        groups = np.arange(n) % 5 if number % 2 else None
        for side, one in (("one", rows), ("other", other)):
            folder = write_blocks(tmp_path / f"{number} {side}", [(kind(one), y)], rows_per_block=5)
            with conversation.listens() if side == "one" else conversation.repeats():
                private(EVERY_STEP[name], bounds=Bounds(rows_per_person=2)).fit(folder.X, y, groups)
    assert not tally.violations
    assert tally.worst["Gaussian"] > 0.4


@pytest.mark.parametrize("steps", PRIVATE_STEPS)
@pytest.mark.parametrize("other", OTHER_ROWS)
def test_steps_on_blocks_tell_nothing_but_their_answers(
    steps: str, other: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """As in test_step_replay.py: of the folder its path is told, which is the same for both."""
    numbers = itertools.count()

    def fit(rows: Any, y: Any) -> Any:
        kind = sp.csr_array if steps == "weights" and len(other) % 2 else np.array
        folder = write_blocks(tmp_path / f"rows {next(numbers)}", [(kind(rows), y)], rows_per_block=50)
        named = [(f"step {number}", step) for number, step in enumerate(PRIVATE_STEPS[steps]())]
        model = SparseClassifier(classes=[0, 1], method=HardThresholding(n_iter=2, noise="gaussian"))
        with Ledger(Budget(1e9, 0.1)) as ledger:
            pipeline = PrivatePipeline([*named, ("model", model)], 2.0, 1e-6, random_state=1)
            return pipeline.fit(folder.X, folder.y), ledger.fits

    one, others = replayed(
        lambda: fit(usual(), targets("logistic")),
        lambda: fit(OTHER_ROWS[other](), targets("logistic", other)),
        told_of_pipeline(tmp_path),
    )
    assert not one.error, one.error
    assert differences(one, others) == []


# --- refused, before anything is billed ------------------------------------------------------------------------------


class Shortening(PrivateWeights):
    """Drops a column."""

    def mark(self, X: Any) -> Any:
        return X[:, 1:]


REFUSED: dict[str, tuple[Any, str, str]] = {
    "sparse rows": ([PrivateScaler()], "sparse", "these rows are sparse. Behind a tulle.Schema omit it"),
    "a public step": ([Normalizer(), PrivateWeights()], "sparse", "public steps take rows in memory"),
    "settings": ([PrivateScaler(rounds=3)], "dense", r"rounds=...\) must be a whole number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_fitted_is_refused_before_anything_is_billed(folders: dict[str, BlockFolder], case: str) -> None:
    steps, kind, message = REFUSED[case]
    with Ledger(Budget(1e3, 0.1)) as ledger, pytest.raises(ValueError, match=message):
        with_steps(steps).fit(folders[kind].X, folders[kind].y)
    assert not ledger.fits


def test_rows_keep_their_number_and_columns(folders: dict[str, BlockFolder]) -> None:
    with pytest.raises(ValueError, match=r"rows of the shape \(130, 99\) of a block of the shape \(130, 100\)"):
        with_steps([Shortening()]).fit(folders["dense"].X, Y)


def test_targets_of_changed_rows_are_with_them(folders: dict[str, BlockFolder]) -> None:
    spread = RowsOnDisk(folders["dense"].X, Y).then(np.abs)
    assert find_spread(spread) is spread
    with pytest.raises(ValueError, match="the targets are with the rows; pass y=None"):
        find_spread(spread, Y)


def test_predictions_are_for_the_columns_of_the_fit(folders: dict[str, BlockFolder], tmp_path: Path) -> None:
    fitted = with_steps([PrivateScaler(rounds=6)]).fit(folders["dense"].X, Y)
    narrow = write_blocks(tmp_path / "narrow", [np.ones((3, 1))])
    with pytest.raises(ValueError, match="X has 1 columns, but PrivateScaler learnt from 100"):
        fitted.predict(narrow.X)
    with pytest.raises(TypeError, match=r"pass folder\.X"):
        fitted.predict(folders["dense"])
    with_public = PrivatePipeline([("public", Normalizer()), *fitted.steps], 200.0).fit(ARRAYS["dense"], Y)
    with pytest.raises(ValueError, match="public steps take rows in memory"):
        with_public.predict(folders["dense"].X)


def test_clients_do_not_transform_their_rows() -> None:
    with pytest.raises(ValueError, match="clients answer questions about their rows as they are"):
        RowsAtClients.__new__(RowsAtClients).then(np.abs)


def test_what_is_elsewhere_is_told_by_its_type(folders: dict[str, BlockFolder]) -> None:
    class Own(RowsOnDisk):
        """Of somebody else: it may do anything."""

    folder = folders["dense"]
    assert all(is_elsewhere(one) for one in (folder, folder.X, RowsOnDisk(folder.X, None)))
    assert not any(is_elsewhere(one) for one in (Own(folder.X, None), ARRAYS["dense"], X, clone(with_steps([])), Rows))
    assert find_spread(Own(folder.X, None)) is None
