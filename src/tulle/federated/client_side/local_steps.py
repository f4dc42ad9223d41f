"""The local steps of a client in one round: noisy gradients of its rows, thresholded; with snapshots or without.

All that depends on rows are answers of the curator, on their grid; the rest is post-processing of them.
"""

from __future__ import annotations

import numpy as np

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.study_plan import SNAPSHOT, STEP
from tulle.federated.terms import Task, Terms
from tulle.trusted.curator import Curator
from tulle.trusted.events import FloatArray

LARGEST_WEIGHT = 1e100


def take_local_steps(
    terms: Terms, task: Task, curator: Curator, coins: np.random.Generator, weights: SparseWeights
) -> SparseWeights:
    """K noisy steps of hard thresholding, after a noisy snapshot of the gradient where the terms have snapshots.

    Parameters
    ----------
    terms : Terms
    task : Task
    curator : Curator
        Of the study's plan: it answers K steps and, with snapshots, one snapshot.
    coins : Generator
        For ties, where there is noise.
    weights : SparseWeights
        The server's model.
    """
    anchor, snapshot = None, None
    if terms.snapshot_batch is not None:
        anchor = terms.model.threshold(terms.n_nonzero).sparsely(weights)
        snapshot = np.asarray(curator.ask(SNAPSHOT, task.gradient(anchor, terms.clip)))
    for _ in range(terms.local_steps):
        at = terms.model.threshold(terms.n_nonzero).sparsely(weights)
        if anchor is None or snapshot is None:
            gradient = curator.ask(STEP, task.gradient(at, terms.clip))
        else:
            most = terms.difference_clip * terms.clip
            gradient = snapshot + curator.ask(STEP, task.gradient_change(at, anchor, terms.clip, most))
        weights = _move(terms, coins, weights, at, gradient)
    return weights


def _move(
    terms: Terms, coins: np.random.Generator, start: SparseWeights, at: SparseWeights, gradient: FloatArray
) -> SparseWeights:
    """H( start - eta × (noisy gradient + penalty) ).

    The noisy gradient is released, on its grid; the rest is post-processing. Noise is not added to `start`: a
    server could choose weights so large that sums with them lose the noise and show exact sums by how they are rounded.
    """
    keep = terms.model.threshold(terms.remembered)
    moved = start.to_dense()
    if terms.penalty:
        moved[: keep.free_from] -= terms.step * terms.penalty * at.to_dense()[: keep.free_from]
    moved += -terms.step * gradient
    if terms.budget is not None:
        # On a grid many are equal: which of them pass the threshold is for chance to say, not for their order.
        moved *= 1.0 + 1e-9 * coins.random(moved.shape)
    # What the server's weights make too large for another step is cut: post-processing, as all of this.
    moved = np.clip(np.nan_to_num(moved, nan=0.0), -LARGEST_WEIGHT, LARGEST_WEIGHT)
    return SparseWeights.from_dense(keep(moved))
