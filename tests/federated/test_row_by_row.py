"""What a row contributes to an answer does not depend on other rows, in any bit: a server may choose weights such that
all but the rounding of margins cancels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.client_side.masked_query import is_query
from tulle.federated.client_side.masked_study import RowsOfOne
from tulle.methods.row_functions import LossSlopes, SlopeChanges, SquaredMargins
from tulle.trusted.clipped_sum import ClippedSum, RowFunction, SeenRows
from tulle.trusted.rows import Block

N = 40


def block_of(X: Any, n_outputs: int = 1) -> tuple[LinearTerms, RowsOfOne]:
    """The rows of a client, as its curator has them."""
    about = {"loss": "squared", "label": 1.0} if n_outputs == 1 else {"classes": tuple(range(n_outputs))}
    model = LinearTerms(X.shape[1], **about, row_l2=2.0, fit_intercept=False)
    y = np.arange(X.shape[0]) % n_outputs
    return model, RowsOfOne.of_blocks(model.task(X, y, None, 1).rows.blocks)


def values(function: RowFunction, model: LinearTerms, block: Block) -> np.ndarray:
    seen = SeenRows(block, model.intercept_value)
    return np.asarray(function.values(seen, block.targets, model.public(N)))


FUNCTIONS: dict[str, Any] = {
    "slopes": lambda w: LossSlopes(w),
    "slopes of sparse weights": lambda w: LossSlopes(SparseWeights.from_dense(w)),
    "changes": lambda w: SlopeChanges(w, np.roll(w, 1, axis=0), (1.0, 1.0)),
    "squared margins": lambda w: SquaredMargins(w),
}


@pytest.mark.parametrize("kind", [np.ascontiguousarray, np.asfortranarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("n_features", [1, 20, 40, 1700])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_row_has_the_same_bits_in_every_batch(kind: Any, n_features: int, function: str) -> None:
    """Entries of very different sizes: any other order of a sum would be rounded differently."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, n_features)) * rng.choice([1e6, 1.0, 1e-6], (N, n_features))
    model, rows = block_of(kind(X))
    asked = FUNCTIONS[function](rng.normal(size=(n_features, 1)))
    (block,) = rows.blocks
    alone = values(asked, model, block)
    for numbers in (np.arange(1, N), np.arange(0, N, 3), np.arange(7), np.array([5])):
        (batch,) = rows.batch(numbers).blocks
        np.testing.assert_array_equal(values(asked, model, batch), alone[numbers])


@pytest.mark.parametrize("kind", [np.ascontiguousarray, sp.csr_array])
def test_a_row_has_the_same_bits_in_every_batch_of_several_outputs(kind: Any) -> None:
    rng = np.random.default_rng(0)
    model, rows = block_of(kind(rng.normal(size=(N, 40))), 3)
    weights = LossSlopes(rng.normal(size=model.shape))
    alone = values(weights, model, rows.blocks[0])
    for numbers in [np.delete(np.arange(N), left_out) for left_out in range(N)] + [np.array([one]) for one in range(N)]:
        np.testing.assert_array_equal(values(weights, model, rows.batch(numbers).blocks[0]), alone[numbers])


def test_the_entries_of_one_row_do_not_decide_how_others_are_rounded() -> None:
    """40,000 rows of 0 and 1. Row 0 has feature 1, or not: with it, columns up to there have 2^16 entries, where sums
    over columns were divided. Margins are 0 in one order of the sum and not in another, so that every row contributed
    all of its clip level or nothing: the mean moved by 12,000 times its sensitivity."""
    n = 40_000
    w0, w1, w2 = (1e8 * np.random.default_rng(0).normal(size=3)).tolist()
    w3 = -((w0 + w1) + w2)
    assert ((w0 + w1) + w2) + w3 == 0 != (w0 + w1) + (w2 + w3)
    query = ClippedSum(LossSlopes(np.array([[w0], [w1], [w2], [w3]])), (4, 1), 1e-12)
    answers = []
    for entry in (0.0, 1.0):
        X = np.ones((n, 4))
        X[25_536:, 1], X[0, 1] = 0.0, entry
        model, rows = block_of(sp.csr_array(X))
        answers.append(query.evaluate(rows, model.public(n)))
    assert is_query(query, model)
    assert np.linalg.norm(answers[0] - answers[1]) <= query.sensitivity(model.public(n)).l2


def test_the_entries_of_one_row_do_not_decide_the_last_bits_of_the_lengths_of_others() -> None:
    """Slopes are divided by them, and differences of slopes may be nothing but their rounding. All rows are alike; the
    usual blocks end a part of the sum after 2^16 entries, which are those of one row more if row 0 lacks one."""
    row = np.random.default_rng(2).random(4)
    a, b, c, d = (row**2).tolist()
    assert np.sqrt(((a + b) + c) + d) != np.sqrt((a + b) + (c + d))
    lengths = []
    for entry in (0.0, row[0]):
        X = np.tile(row, (30_000, 1))
        X[0, 0] = entry
        _, rows = block_of(sp.csr_array(X))
        lengths.append(rows.blocks[0].norms("l2")[1:])
    np.testing.assert_array_equal(*lengths)
