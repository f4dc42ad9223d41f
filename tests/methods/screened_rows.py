"""Rows and bounds for the tests of the method that screens and refines."""

from __future__ import annotations

from functools import partial

import fits

from tulle import Bounds
from tulle.methods.loss_functions import Logistic

problem = partial(fits.problem, n_classes=None)

facts = partial(fits.facts, n_nonzero=6, row_l2=1.0, label=2.0)

BOUNDS = Bounds(row_l2=2.5, row_linf=1.0, label=4.0)

BUDGETS = [(0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-9), (20.0, 1e-5)]


class OwnLogistic(Logistic):
    """A subclass may say anything of itself."""
