"""The plain blocks of rows: the answers of the faster ones and of dense numpy, whatever the rows are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from copy import copy
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tulle.fast.compiled_rows import DenseBlock, SparseBlock
from tulle.trusted.rows import Block

FORMATS = {
    "float64": np.array,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csc": sp.csc_array,
}
ENTRIES = st.one_of(
    st.just(0.0),
    st.floats(-4.0, 4.0, width=32),
    st.sampled_from([1e-160, 1e-145, 1e-139, -1e-30, 1e30, 1e139, -1e141, 1e200, np.inf, np.nan]),
)


def _faster(matrix: Any, targets: np.ndarray, active: np.ndarray) -> Block:
    return (SparseBlock if sp.issparse(matrix) else DenseBlock)(matrix, targets, active)


def _answers(block: Block) -> dict[str, np.ndarray]:
    """Everything that queries ask of a block."""
    n, d = block.n_rows, block.margins(np.eye(5), 0.0).shape[1]
    rng = np.random.default_rng(7)
    slopes, weights = rng.normal(size=(n, 2)), rng.normal(size=(d + 1, 2))
    features = np.array([0, 3])
    columns = block.columns(features)
    return {
        "active": block.active,
        "targets": block.targets,
        "contents": block.margins(np.eye(d), 0.0),
        "margins": block.margins(weights, 0.5),
        "gather": block.gather(slopes),
        "gather_on": block.gather_on(slopes[:, 0], features),
        "columns": columns.toarray() if sp.issparse(columns) else columns,
        "l2": block.norms("l2"),
        "linf": block.norms("linf"),
        "norms_in": block.norms_in(np.array([0.5, 1.0, 2.0, 4.0, 1e-3])),
        "norms_on": block.norms_on(features),
    }


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    n = draw(st.integers(1, 6))
    return np.array(draw(st.lists(st.lists(ENTRIES, min_size=5, max_size=5), min_size=n, max_size=n)))


@pytest.mark.parametrize("storage", FORMATS)
@given(
    X=rows(),
    entry=st.sampled_from([None, 0.5, 1e10]),
    row=st.sampled_from([None, 1e-3, 1.0, 1e5]),
    normalise=st.booleans(),
    active=st.integers(0, 63),
)
@np.errstate(all="ignore")
def test_plain_blocks_answer_as_the_faster_ones(
    storage: str, X: np.ndarray, entry: float | None, row: float | None, normalise: bool, active: int
) -> None:
    n = len(X)
    counts = np.array([active >> k & 1 == 1 for k in range(n)])
    targets = np.linspace(-3.0, 3.0, n)
    matrix = FORMATS[storage](X)
    before = matrix.copy()
    blocks = [make(matrix, targets, counts) for make in (Block, _faster)]
    for block in blocks:
        if entry is not None:
            block.clip_entries(entry)
        if row is not None:
            block.clip_rows(row, np.inf if entry is None else entry, normalise)
        block.clip_targets(-2.0, 2.0)
    numbers = np.arange(0, n, 2)
    for plain, faster in (blocks, [block.take(numbers) for block in blocks]):
        found, expected = _answers(plain), _answers(faster)
        for name, right in expected.items():
            # Sums of numbers of opposite signs may cancel: the rest is compared with the terms.
            largest = np.abs(right[np.isfinite(right)]).max(initial=0.0)
            np.testing.assert_allclose(found[name], right, rtol=1e-12, atol=1e-13 * largest, err_msg=name)
        assert not found["contents"][~plain.active].any()
        assert not found["targets"][~plain.active].any()
    as_stored = [matrix.data, before.data] if sp.issparse(matrix) else [matrix, before]
    np.testing.assert_array_equal(*as_stored)


@pytest.mark.parametrize("storage", FORMATS)
def test_plain_blocks_answer_as_dense_numpy(storage: str) -> None:
    rng = np.random.default_rng(0)
    X = (np.round(8 * rng.normal(size=(30, 5))) / 8 * (rng.random((30, 5)) < 0.6)).astype(np.float32).astype(float)
    X[4] = 0.0
    counts, targets = np.arange(30) % 7 != 3, rng.normal(size=30)
    block = Block(FORMATS[storage](X), targets, counts)
    block.clip_entries(1.0)
    block.clip_rows(1.2, 1.0, False)
    block.clip_targets(-0.5, 0.5)
    right = np.clip(X, -1.0, 1.0) * counts[:, None]
    right *= np.minimum(1.0, 1.2 / np.maximum(np.linalg.norm(right, axis=1), 1e-300))[:, None]
    found, slopes = _answers(block), np.random.default_rng(7).normal(size=(30, 2))
    near = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(found["contents"], right, **near)
    np.testing.assert_allclose(found["targets"], np.clip(targets, -0.5, 0.5) * counts, **near)
    np.testing.assert_allclose(found["gather"], right.T @ slopes, **near)
    np.testing.assert_allclose(found["gather_on"], right[:, [0, 3]].T @ slopes[:, 0], **near)
    np.testing.assert_allclose(found["columns"], right[:, [0, 3]], **near)
    np.testing.assert_allclose(found["l2"], np.linalg.norm(right, axis=1), **near)
    np.testing.assert_allclose(found["linf"], np.abs(right).max(axis=1), **near)
    np.testing.assert_allclose(found["norms_on"], np.linalg.norm(right[:, [0, 3]], axis=1), **near)
    units = np.array([0.5, 1.0, 2.0, 4.0, 1e-3])
    np.testing.assert_allclose(found["norms_in"], np.abs(right / units).max(axis=1), **near)


@pytest.mark.parametrize("storage", FORMATS)
def test_a_copy_is_clipped_without_a_change_to_its_block(storage: str) -> None:
    X = np.random.default_rng(1).normal(size=(6, 5))
    block = Block(FORMATS[storage](X), np.ones(6), np.ones(6, dtype=bool))
    right, other = _answers(block), copy(block)
    other.clip_entries(0.1)
    other.clip_rows(1e-3, np.inf, False)
    other._leave_out(np.arange(6) < 3)
    for name, value in _answers(block).items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


_FIT = """
import json, sys
import numpy as np, scipy.sparse as sp
from tulle import Bounds, SparseClassifier
from tulle.trusted import hooks
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 12)) * (rng.random((400, 12)) < 0.5)
y = np.where(X[:, 0] - X[:, 1] > 0, "a", "b")
found = []
for method in ("hard_thresholding", "frank_wolfe", "coordinate_descent", "stochastic_hard_thresholding"):
    for matrix in (X, sp.csr_array(X)):
        model = SparseClassifier(2.0, 1e-6, method=method, bounds=Bounds(row_l2=1.0), random_state=0).fit(matrix, y)
        found.append([method, model.coef_.tolist(), model.intercept_.tolist(), str(model.privacy_)])
print(json.dumps({"installed": hooks.get("block") is not None, "numba": "numba" in sys.modules, "fits": found}))
"""


def _fits(plain: bool) -> Any:
    environment = {**os.environ, "TULLE_PLAIN": "1" if plain else ""}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _FIT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_fits_with_plain_blocks_are_those_with_faster_ones() -> None:
    plain, faster = _fits(True), _fits(False)
    assert (plain["installed"], faster["installed"]) == (False, True)
    for found, right in zip(plain["fits"], faster["fits"], strict=True):
        assert found[0] == right[0]
        assert "Faster code was installed" not in found[3]
        assert "Faster code was installed" in right[3]
        # All else that the reports say is the same; the words on faster code are a paragraph of their own.
        paragraphs = [
            [part for part in text.split("  - ") if "Faster code" not in part] for text in (found[3], right[3])
        ]
        assert paragraphs[0] == paragraphs[1]
        np.testing.assert_allclose(found[1], right[1], rtol=1e-9, atol=1e-9, err_msg=found[0])
        np.testing.assert_allclose(found[2], right[2], rtol=1e-9, atol=1e-9, err_msg=found[0])
