"""Rows for questions of a server that is not trusted: what a row contributes does not depend on other rows, in any bit.

A server chooses the weights that margins are taken at, and can choose them such that all but the rounding of a margin
cancels: then slopes, and with them whole contributions, follow the last bits. The usual blocks add up margins and
lengths of rows in an order that may depend on other rows: on how many entries a column has, on how many rows a batch
has, on the place of a row in it. Here they are added up feature by feature, in the order of the features, in
operations that treat every row by itself.

Vouched for on use. Proof: docs/proofs/federated.md, lemma 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.fast.compiled_rows import DenseBlock, SparseBlock
from tulle.trusted import hooks
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import Norm
from tulle.trusted.rows import Block, Mask, Rows

# Entries of a dense block: passes over rows make copies of one block at a time.
_DENSE_BLOCK = 1 << 22


def _add_features(block: Block, weights: FloatArray) -> FloatArray:
    """The margins of dense rows. No product of matrices: those of BLAS are rounded by the place of a row."""
    margins = np.zeros((block.n_rows, weights.shape[1]))
    for feature in np.flatnonzero(weights.any(axis=1)):
        margins += block._columns(np.array([feature])) * weights[feature]
    return margins


class _Dense(DenseBlock):
    def _in_memory(self) -> type[DenseBlock]:
        return _Dense

    def _product(self, weights: FloatArray) -> FloatArray:
        return _add_features(self, weights)


class _Sparse(SparseBlock):
    # Batches of it are read row by row, in the order of features.

    def _product(self, weights: FloatArray) -> FloatArray:
        support = np.flatnonzero(weights.any(axis=1))
        return np.asarray(self._csc[:, support] @ weights[support])

    def _norms(self, norm: Norm) -> FloatArray:
        # Of all entries at once, where the usual block adds up parts of so many entries.
        if norm == "linf":
            return super()._norms(norm)
        return np.sqrt(np.bincount(self._csc.indices, self._csc.data**2, minlength=self.n_rows))


class _Plain(Block):
    # Of sparse rows, the product of scipy is one row after another.

    def _product(self, weights: FloatArray) -> FloatArray:
        return super()._product(weights) if sp.issparse(self._held) else _add_features(self, weights)


def make_rows(X: Any, targets: FloatArray, active: Mask) -> Rows:
    """Rows of which each contributes what it would alone.

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
    targets, active : arrays of shape (n,)
        `active` are the rows that count.
    """
    is_sparse = sp.issparse(X)
    kind: Any = (_Sparse if is_sparse else _Dense) if hooks.get("block") is not None else _Plain
    if is_sparse:
        return Rows.of_blocks([kind(X, targets, active)])
    step = max(1, _DENSE_BLOCK // max(1, X.shape[1]))
    parts = [slice(start, start + step) for start in range(0, len(targets), step)]
    return Rows.of_blocks([kind(X[part], targets[part], active[part]) for part in parts])
