"""Faster code for trusted answers, put in place when methods are imported."""

from __future__ import annotations

import os
from typing import Any

import scipy.sparse as sp

from tulle.fast import newton
from tulle.fast.batch_answers import BatchAnswers, find_margins
from tulle.fast.compiled_rows import DenseBlock, SparseBlock
from tulle.fast.scores_on_demand import find_scores, sum_along_path
from tulle.fast.thresholded_noise import answer_lazily
from tulle.trusted import hooks
from tulle.trusted.events import FloatArray
from tulle.trusted.rows import Block, Mask


def is_plain() -> bool:
    """Whether the environment says TULLE_PLAIN=1: no hook but the solver is installed, no plan counts on one."""
    return os.environ.get("TULLE_PLAIN") == "1"


def install() -> None:
    """Install every hook of this package, once; where `is_plain`, the solver alone: its answers are checked."""
    hooks.install("solver", newton.minimise)
    if is_plain():
        return
    hooks.install("lazy_noise", answer_lazily, "noise drawn only where it can pass a threshold")
    hooks.install("margins", find_margins, "margins from the weights that changed")
    hooks.install("batches", BatchAnswers(), "sparse sums over batches")
    hooks.install("scores_on_demand", find_scores, "scores on demand")
    hooks.install("sum_along_path", sum_along_path, "sums of single coordinates")
    hooks.install("block", _make_block, "threads and compiled loops over rows")


def _make_block(matrix: Any, targets: FloatArray, active: Mask) -> Block:
    """The hook "block": a block of rows in memory."""
    return SparseBlock(matrix, targets, active) if sp.issparse(matrix) else DenseBlock(matrix, targets, active)
